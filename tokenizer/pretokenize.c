#include "tokenizer/pretokenize.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { PAGE = 256 };

// Classes of characters; UNKNOWN must be 0, the state of a fresh table.
enum { UNKNOWN, LETTER, NUMBER, SPACE, OTHER };

struct Pretokenizer {
    PretokenPattern pattern;
    const unsigned char *at, *run_end, *end;   // next byte; end of the valid run that `at` lies in; end of the text
    pcre2_code *classes;                       // one group each for letters, numbers and spaces
    pcre2_match_data *match;
    uint8_t *class_of;                         // by code point, filled a page at a time when first asked
};

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

Pretokenizer *pretokenizer_create(PretokenPattern pattern, Error *error)
{
    static const char classes[] = "([" CHARACTERS_LETTERS "])|([" CHARACTERS_NUMBERS "])|([" CHARACTERS_SPACES "])";
    Pretokenizer *t = calloc(1, sizeof *t);
    int code = 0;
    PCRE2_SIZE offset = 0;
    if (t != NULL) {
        t->pattern = pattern;
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
    t->run_end = utf8_valid_end(t->at, t->end);
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

static const unsigned char *match_gpt2(Pretokenizer *t)
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

// The same in either case, with U+017F, which is an s in the other case.
static size_t contraction_of_any_case(const unsigned char *p, const unsigned char *end)
{
    size_t left = (size_t)(end - p);
    int first = left >= 2 ? p[1] | 32 : 0, second = left >= 3 ? p[2] | 32 : 0;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') {
        return 2;
    }
    if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l')) {
        return 3;
    }
    return left >= 3 && p[1] == 0xC5 && p[2] == 0xBF ? 3 : 0;
}

static const unsigned char *run_end_of(Pretokenizer *t, const unsigned char *p, int class)
{
    size_t length;
    while (p < t->run_end && class_at(t, p, &length) == class) {
        p += length;
    }
    return p;
}

// \s*[\r\n]+|\s+(?!\S)|\s+: white space through its last line end, if there is one in it.
static const unsigned char *space_or_lines_end(Pretokenizer *t, const unsigned char *start)
{
    const unsigned char *p = start, *last = start, *line_end = NULL;
    size_t length;
    while (p < t->run_end && class_at(t, p, &length) == SPACE) {
        last = p;
        p += length;
        line_end = *last == '\n' || *last == '\r' ? p : line_end;
    }
    return line_end != NULL ? line_end : p == t->run_end || last == start ? p : last;
}

static const unsigned char *match_llama3(Pretokenizer *t)
{
    const unsigned char *p = t->at, *next;
    size_t length, n;
    if (*p == '\'' && (n = contraction_of_any_case(p, t->run_end)) > 0) {
        return p + n;
    }
    int class = class_at(t, p, &length), next_class = OTHER;
    if (class == LETTER) {
        return run_end_of(t, p + length, LETTER);
    }
    next = p + length;
    if (class == NUMBER) {
        for (n = t->pattern == PRETOKENIZE_LLAMA3 ? 2 : 0; n > 0 && next < t->run_end && class_at(t, next, &length) == NUMBER; n--) {
            next += length;
        }
        return next;
    }
    bool at_end = next == t->run_end;
    next_class = at_end ? SPACE : class_at(t, next, &length);
    if (next_class == LETTER && *p != '\r' && *p != '\n') {
        return run_end_of(t, next + length, LETTER);
    }
    if (class == OTHER || (*p == ' ' && next_class == OTHER)) {
        p = run_end_of(t, next, OTHER);
        while (p < t->run_end && (*p == '\r' || *p == '\n')) {
            p++;
        }
        return p;
    }
    return space_or_lines_end(t, p);
}

size_t pretokenizer_next(Pretokenizer *t, const char **token)
{
    const unsigned char *start = t->at;
    *token = (const char *)start;
    if (start < t->run_end) {
        t->at = t->pattern == PRETOKENIZE_GPT2 ? match_gpt2(t) : match_llama3(t);
    } else if (start < t->end) {
        t->at = utf8_invalid_end(t->at, t->end);
        t->run_end = utf8_valid_end(t->at, t->end);
    }
    return (size_t)(t->at - start);
}

static bool is_ascii_letter(char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

// Whether a cut in front of text[place] keeps the pre-tokens; text[place + 1] is there.
static bool may_cut(const char *text, size_t place)
{
    char before = text[place - 1], here = text[place];
    bool digit = before >= '0' && before <= '9';
    return here == ' ' ? is_ascii_letter(before) && is_ascii_letter(text[place + 1])
                       : (here == '\n' || here == '\r') && (digit || is_ascii_letter(before));
}

size_t pretokenize_cut(const char *text, size_t length, size_t wanted)
{
    if (length < 3) {
        return 0;
    }
    for (size_t place = wanted < length - 1 ? wanted : length - 2; place > 0; place--) {
        if (may_cut(text, place)) {
            return place;
        }
    }
    for (size_t place = wanted + 1; place < length - 1; place++) {
        if (may_cut(text, place)) {
            return place;
        }
    }
    return 0;
}
