#include "data/json_record.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 1000 };

typedef struct Span {
    char *start;   // NULL: none
    size_t length;
} Span;

typedef struct Scanner {
    char *at, *end;
} Scanner;

// What the top level has shown so far: raw strings, still with their escapes.
typedef struct Found {
    Span text, content, only;   // under the key asked for or "text", under "content", and of strings the first
    size_t strings;
} Found;

static const char not_json[] = "not valid JSON";

static void skip_space(Scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n')) {
        s->at++;
    }
}

static bool take(Scanner *s, char c)
{
    if (s->at < s->end && *s->at == c) {
        s->at++;
        return true;
    }
    return false;
}

static bool take_word(Scanner *s, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0) {
        return false;
    }
    s->at += length;
    return true;
}

// The value of four hexadecimal digits, or -1.
static int hex4(const char *p, const char *end)
{
    int value = 0;
    if (end - p < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

// The code point of an escape \uXXXX whose digits begin at *p, with its second half if it has one; *p moves behind it. -1: none.
static int code_point(const char **p, const char *end)
{
    int first = hex4(*p, end);
    if (first < 0 || (first >= 0xdc00 && first < 0xe000)) {
        return -1;
    }
    *p += 4;
    if (first < 0xd800 || first >= 0xe000) {
        return first;
    }
    if (end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u') {
        return -1;
    }
    int second = hex4(*p + 2, end);
    if (second < 0xdc00 || second >= 0xe000) {
        return -1;
    }
    *p += 6;
    return 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
}

// Passes over a string, whose inside becomes `span`. Escapes are checked here, so that decoding cannot fail.
static bool scan_string(Scanner *s, Span *span)
{
    if (!take(s, '"')) {
        return false;
    }
    char *start = s->at, *p = start;
    for (;;) {
        while (p < s->end && *p != '"' && *p != '\\') {
            p++;
        }
        if (p < s->end && *p == '"') {
            *span = (Span){start, (size_t)(p - start)};
            s->at = p + 1;
            return true;
        }
        if (s->end - p < 2) {
            return false;
        }
        if (p[1] == 'u') {
            const char *digits = p + 2;
            if (code_point(&digits, s->end) < 0) {
                return false;
            }
            p += digits - p;
        } else if (strchr("\"\\/bfnrt", p[1]) != NULL) {
            p += 2;
        } else {
            return false;
        }
    }
}

static char *put_utf8(char *out, int code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 63));
        *out++ = (char)(0x80 | (code >> 6 & 63));
        *out++ = (char)(0x80 | (code & 63));
    }
    return out;
}

// Resolves the escapes of a string that was scanned, in its own place: the text is never longer than its escaped form.
static void decode(Span *span)
{
    char *out = span->start;
    const char *p = span->start, *end = p + span->length;
    while (p < end) {
        const char *escape = memchr(p, '\\', (size_t)(end - p));
        size_t plain = (size_t)((escape != NULL ? escape : end) - p);
        memmove(out, p, plain);
        out += plain;
        p += plain;
        if (escape == NULL) {
            break;
        }
        if (p[1] == 'u') {
            p += 2;
            out = put_utf8(out, code_point(&p, end));
        } else {
            static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
            const char *found = strchr(from, p[1]);
            *out++ = found != NULL ? to[found - from] : p[1];
            p += 2;
        }
    }
    span->length = (size_t)(out - span->start);
}

static bool scan_digits(Scanner *s)
{
    char *start = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        s->at++;
    }
    return s->at > start;
}

static bool scan_number(Scanner *s)
{
    (void)take(s, '-');
    if (take_word(s, "Infinity") || take_word(s, "NaN")) {
        return true;
    }
    if (!take(s, '0') && !scan_digits(s)) {
        return false;
    }
    if (take(s, '.') && !scan_digits(s)) {
        return false;
    }
    if (take(s, 'e') || take(s, 'E')) {
        (void)(take(s, '+') || take(s, '-'));
        return scan_digits(s);
    }
    return true;
}

static bool skip_value(Scanner *s, int depth);

static bool skip_container(Scanner *s, bool object, int depth)
{
    char close = object ? '}' : ']';
    if (depth >= MAX_DEPTH) {
        return false;
    }
    skip_space(s);
    if (take(s, close)) {
        return true;
    }
    do {
        Span key;
        skip_space(s);
        if (object) {
            if (!scan_string(s, &key)) {
                return false;
            }
            skip_space(s);
            if (!take(s, ':')) {
                return false;
            }
        }
        if (!skip_value(s, depth + 1)) {
            return false;
        }
        skip_space(s);
    } while (take(s, ','));
    return take(s, close);
}

// Passes over any value.
static bool skip_value(Scanner *s, int depth)
{
    Span string;
    skip_space(s);
    if (s->at == s->end) {
        return false;
    }
    switch (*s->at) {
    case '"':
        return scan_string(s, &string);
    case '{':
    case '[':
        s->at++;
        return skip_container(s, s->at[-1] == '{', depth);
    case 't':
        return take_word(s, "true");
    case 'f':
        return take_word(s, "false");
    case 'n':
        return take_word(s, "null");
    default:
        return scan_number(s);
    }
}

static bool key_is(Span key, const char *name) { return key.length == strlen(name) && memcmp(key.start, name, key.length) == 0; }

static void note_string(Found *found, Span key, Span value, const char *text_key)
{
    if (found->text.start == NULL && key_is(key, text_key != NULL ? text_key : "text")) {
        found->text = value;
    } else if (found->content.start == NULL && key_is(key, "content")) {
        found->content = value;
    }
    if (found->strings++ == 0) {
        found->only = value;
    }
}

static void note_number(JsonRecord *record, const char *start)
{
    if (*start == 'n') {
        return;   // null
    }
    if (*start == '-' || *start == 'I' || *start == 'N' || (*start >= '0' && *start <= '9')) {
        record->number = strtod(start, NULL);
        record->number_state = JSON_NUMBER_FOUND;
    } else {
        record->number_state = JSON_NUMBER_OTHER;
    }
}

// One "key": value of the top level.
static bool scan_member(Scanner *s, JsonRecord *record, Found *found, const char *text_key, const char *number_key)
{
    Span key, value;
    skip_space(s);
    if (!scan_string(s, &key)) {
        return false;
    }
    decode(&key);
    skip_space(s);
    if (!take(s, ':')) {
        return false;
    }
    skip_space(s);
    char *start = s->at;
    bool is_string = start < s->end && *start == '"';
    if (is_string ? !scan_string(s, &value) : !skip_value(s, 1)) {
        return false;
    }
    if (is_string) {
        note_string(found, key, value, text_key);
    }
    if (number_key != NULL && record->number_state == JSON_NUMBER_MISSING && key_is(key, number_key)) {
        note_number(record, start);
    }
    skip_space(s);
    return true;
}

static const char *choose(const Found *found, const char *text_key, Span *text)
{
    if (found->text.start != NULL) {
        *text = found->text;
    } else if (text_key != NULL) {
        return "no string under the key that --text-key names";
    } else if (found->content.start != NULL) {
        *text = found->content;
    } else if (found->strings == 1) {
        *text = found->only;
    } else {
        return "no string under \"text\" or \"content\"; name the key with --text-key";
    }
    return NULL;
}

const char *json_record_read(JsonRecord *record, char *line, size_t length, const char *text_key, const char *number_key)
{
    Scanner s = {line, line + length};
    Found found = {0};
    *record = (JsonRecord){.number_state = JSON_NUMBER_MISSING};
    if (memchr(line, 0, length) != NULL) {
        return "NUL byte in the line";
    }
    skip_space(&s);
    if (!take(&s, '{')) {
        return skip_value(&s, 0) ? "not a JSON object" : not_json;
    }
    skip_space(&s);
    if (!take(&s, '}')) {
        do {
            if (!scan_member(&s, record, &found, text_key, number_key)) {
                return not_json;
            }
        } while (take(&s, ','));
        if (!take(&s, '}')) {
            return not_json;
        }
    }
    skip_space(&s);
    if (s.at != s.end) {
        return "more than one JSON value in the line";
    }
    Span text;
    const char *problem = choose(&found, text_key, &text);
    if (problem == NULL) {
        decode(&text);
        record->text = text.start;
        record->length = text.length;
    }
    return problem;
}
