#include "tokenizer/pretokenize.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { N_CODE_POINTS = 0x110000, PAGE = 256 };

// Classes of characters; UNKNOWN must be 0, the state of a fresh table.
enum { UNKNOWN, LETTER, NUMBER, SPACE, OTHER };

struct Pretokenizer {
    const unsigned char *at, *run_end, *end;   // next byte; end of the valid run that `at` lies in; end of the text
    pcre2_code *classes;                       // one group each for letters, numbers and spaces
    pcre2_match_data *match;
    uint8_t *class_of;                         // by code point, filled a page at a time when first asked
};

// Length of the valid UTF-8 sequence at `p`, 0 if there is none (overlong forms, surrogates and values above U+10FFFF are invalid).
static size_t utf8_length(const unsigned char *p, const unsigned char *end)
{
    size_t left = (size_t)(end - p);
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] < 0xC2 || p[0] > 0xF4 || left < 2) {
        return 0;
    }
    unsigned low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) {
        return 0;
    }
    size_t length = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (left < length) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return length;
}

// End of the valid UTF-8 that starts at `p`.
static const unsigned char *valid_end(const unsigned char *p, const unsigned char *end)
{
    while (p < end) {
        uint64_t eight;
        while (end - p >= 8 && (memcpy(&eight, p, 8), (eight & UINT64_C(0x8080808080808080)) == 0)) {
            p += 8;
        }
        if (p == end) {
            break;
        }
        size_t length = utf8_length(p, end);
        if (length == 0) {
            break;
        }
        p += length;
    }
    return p;
}

size_t utf8_valid_length(const char *text, size_t length)
{
    const unsigned char *start = (const unsigned char *)text;
    return length == 0 ? 0 : (size_t)(valid_end(start, start + length) - start);
}

static size_t utf8_put(unsigned char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (unsigned char)(0xC0 | code >> 6);
        out[1] = (unsigned char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (unsigned char)(0xE0 | code >> 12);
        out[1] = (unsigned char)(0x80 | (code >> 6 & 63));
        out[2] = (unsigned char)(0x80 | (code & 63));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | code >> 18);
    out[1] = (unsigned char)(0x80 | (code >> 12 & 63));
    out[2] = (unsigned char)(0x80 | (code >> 6 & 63));
    out[3] = (unsigned char)(0x80 | (code & 63));
    return 4;
}

// The code point of a valid sequence whose first byte is not ASCII.
static inline uint32_t utf8_get(const unsigned char *p, size_t *length)
{
    if (p[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
    }
    if (p[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
    }
    *length = 4;
    return (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 | (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
}

static void classify_page(Pretokenizer *t, uint32_t code)
{
    uint32_t first = code - code % PAGE;
    for (uint32_t c = first; c < first + PAGE; c++) {
        unsigned char text[4];
        size_t length = utf8_put(text, c);
        int class = OTHER;
        if (c < 0xD800 || c > 0xDFFF) {
            int groups = pcre2_match(t->classes, text, length, 0, PCRE2_NO_UTF_CHECK, t->match, NULL);
            class = groups > 1 ? groups - 1 : OTHER;
        }
        t->class_of[c] = (uint8_t)class;
    }
}

static inline int class_at(Pretokenizer *t, const unsigned char *p, size_t *length)
{
    if (*p < 0x80) {
        *length = 1;
        return t->class_of[*p];
    }
    uint32_t code = utf8_get(p, length);
    if (t->class_of[code] == UNKNOWN) {
        classify_page(t, code);
    }
    return t->class_of[code];
}

Pretokenizer *pretokenizer_create(Error *error)
{
    static const char classes[] = "([" PRETOKENIZE_LETTERS "])|([" PRETOKENIZE_NUMBERS "])|([" PRETOKENIZE_SPACES "])";
    Pretokenizer *t = calloc(1, sizeof *t);
    int code = 0;
    PCRE2_SIZE offset = 0;
    if (t != NULL) {
        t->classes = pcre2_compile((PCRE2_SPTR)classes, sizeof classes - 1, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &offset, NULL);
        t->match = t->classes != NULL ? pcre2_match_data_create(4, NULL) : NULL;
        t->class_of = calloc(N_CODE_POINTS, sizeof *t->class_of);
    }
    if (t == NULL || t->match == NULL || t->class_of == NULL) {
        error_set(error, "cannot set up the splitting of text: out of memory, or a PCRE2 library built without Unicode (code %d)", code);
        pretokenizer_free(t);
        return NULL;
    }
    classify_page(t, 0);
    return t;
}

void pretokenizer_free(Pretokenizer *t)
{
    if (t != NULL) {
        pcre2_match_data_free(t->match);
        pcre2_code_free(t->classes);
        free(t->class_of);
        free(t);
    }
}

void pretokenizer_start(Pretokenizer *t, const char *text, size_t length)
{
    t->at = (const unsigned char *)(length > 0 ? text : "");
    t->end = t->at + length;
    t->run_end = valid_end(t->at, t->end);
}

// Length of 's 't 're 've 'm 'll 'd at `p`, which points at an apostrophe; else 0.
static size_t contraction(const unsigned char *p, const unsigned char *end)
{
    if (end - p >= 2 && (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd')) {
        return 2;
    }
    if (end - p >= 3 && ((p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') || (p[1] == 'l' && p[2] == 'l'))) {
        return 3;
    }
    return 0;
}

// \s+(?!\S)|\s+: white space up to what is visible leaves its last character to the next pre-token, unless it is the only one.
static const unsigned char *space_end(Pretokenizer *t, const unsigned char *start)
{
    const unsigned char *p = start, *last = start;
    size_t length;
    while (p < t->run_end && class_at(t, p, &length) == SPACE) {
        last = p;
        p += length;
    }
    return p == t->run_end || last == start ? p : last;
}

static const unsigned char *match(Pretokenizer *t)
{
    const unsigned char *p = t->at;
    size_t length;
    if (*p == '\'') {
        size_t n = contraction(p, t->run_end);
        if (n > 0) {
            return p + n;
        }
    }
    if (*p == ' ' && p + 1 < t->run_end) {
        p++;
    }
    int class = class_at(t, p, &length);
    if (class == SPACE) {
        return space_end(t, t->at);
    }
    do {
        p += length;
    } while (p < t->run_end && class_at(t, p, &length) == class);
    return p;
}

size_t pretokenizer_next(Pretokenizer *t, const char **token)
{
    const unsigned char *start = t->at;
    *token = (const char *)start;
    if (start < t->run_end) {
        t->at = match(t);
    } else if (start < t->end) {
        do {
            t->at++;
        } while (t->at < t->end && utf8_length(t->at, t->end) == 0);
        t->run_end = valid_end(t->at, t->end);
    }
    return (size_t)(t->at - start);
}

static bool may_cut(const char *text, size_t place)
{
    return text[place] == '\n' && text[place - 1] > 32 && text[place - 1] < 127;
}

size_t pretokenize_cut(const char *text, size_t length, size_t wanted)
{
    if (length == 0) {
        return 0;
    }
    for (size_t place = wanted < length ? wanted : length - 1; place > 0; place--) {
        if (may_cut(text, place)) {
            return place;
        }
    }
    for (size_t place = wanted + 1; place < length; place++) {
        if (may_cut(text, place)) {
            return place;
        }
    }
    return 0;
}
