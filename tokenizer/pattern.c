#include "tokenizer/pattern.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tokenizer/characters.h"

enum {
    MAX_SOURCE = 4096,
    JIT_STACK_START = 1 << 15,
    JIT_STACK_MAX = 1 << 23,
    MATCH_LIMIT = 10000000,   // steps of one match
};

struct Pattern {
    pcre2_code *code;
};

struct Matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

// A pattern while it is translated.
typedef struct Translation {
    const char *at;
    char *out;
    size_t used, capacity;
    bool in_class, class_start;
    Error *error;
} Translation;

static void put(Translation *t, const char *text, size_t length)
{
    // The buffer is sized for the longest translation of every character, so this cannot fail on what translate() lets through.
    if (length <= t->capacity - t->used) {
        memcpy(t->out + t->used, text, length);
        t->used += length;
    }
}

static void put_text(Translation *t, const char *text)
{
    put(t, text, strlen(text));
}

// A set of characters, in brackets of its own unless it stands inside some.
static int put_set(Translation *t, const char *set, bool negated)
{
    if (t->in_class && negated) {
        return error_set(t->error, "a negated set inside [...] is not supported");
    }
    put_text(t, t->in_class ? "" : negated ? "[^" : "[");
    put_text(t, set);
    put_text(t, t->in_class ? "" : "]");
    return 0;
}

// \p{Name}, \P{Name}, \pL: general categories with what PCRE2 may not know yet, and names of scripts.
static int translate_property(Translation *t, bool negated)
{
    static const char *const sets[][2] = {
        {"L", CHARACTERS_LETTERS}, {"Lu", CHARACTERS_UPPER}, {"Ll", CHARACTERS_LOWER}, {"Lm", CHARACTERS_MODIFIERS},
        {"Lo", CHARACTERS_OTHER_LETTERS}, {"N", CHARACTERS_NUMBERS}, {"Nd", CHARACTERS_DIGITS}, {"M", CHARACTERS_MARKS},
        {"P", CHARACTERS_PUNCTUATION}, {"S", CHARACTERS_SYMBOLS},
    };
    const char *name = t->at;
    size_t length = 1;
    if (*name == '{') {
        name++;
        length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
        if (length == 0 || length > 40 || name[length] != '}') {
            return error_set(t->error, "\\p{...} must hold the name of a category or script");
        }
        t->at = name + length + 1;
    } else if (*name != 0) {
        t->at = name + 1;
    }
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (strlen(sets[i][0]) == length && memcmp(sets[i][0], name, length) == 0) {
            return put_set(t, sets[i][1], negated);
        }
    }
    char text[64];
    snprintf(text, sizeof text, length <= 2 ? "\\p{%.*s}" : "\\p{sc:%.*s}", (int)length, name);
    return put_set(t, text, negated);
}

static int translate_escape(Translation *t)
{
    char c = *t->at++;
    size_t hex;
    switch (c) {
    case 's':
        return put_set(t, CHARACTERS_SPACES, false);
    case 'S':
        if (t->in_class) {
            put_text(t, "\\S\\x{180e}");   // which PCRE2 alone takes for a space
            return 0;
        }
        return put_set(t, CHARACTERS_SPACES, true);
    case 'd':
    case 'D':
        return put_set(t, CHARACTERS_DIGITS, c == 'D');
    case 'p':
    case 'P':
        return translate_property(t, c == 'P');
    case 'v':
        put_text(t, "\\x{b}");
        return 0;
    case 'r':
    case 'n':
    case 't':
    case 'f':
        put(t, t->at - 2, 2);
        return 0;
    case 'u':
    case 'x':
        hex = strspn(t->at + (*t->at == '{'), "0123456789abcdefABCDEF");
        if (*t->at == '{' ? hex < 1 || hex > 6 || t->at[hex + 1] != '}' : hex < (c == 'u' ? 4u : 2u)) {
            break;
        }
        put_text(t, "\\x{");
        if (*t->at == '{') {
            put(t, t->at + 1, hex);
            t->at += hex + 2;
        } else {
            put(t, t->at, c == 'u' ? 4 : 2);
            t->at += c == 'u' ? 4 : 2;
        }
        put_text(t, "}");
        return 0;
    default:
        if (strchr("\\.+*?()[]{}|^$#&-~/'\"<>!@%=:;, _`", c) != NULL && c != 0) {
            put(t, t->at - 2, 2);
            return 0;
        }
    }
    return error_set(t->error, "\\%c is not supported", c > 32 && c < 127 ? c : '?');
}

static int translate_in_class(Translation *t)
{
    char c = *t->at;
    if (c == '[') {
        return error_set(t->error, "a set inside [...] is not supported: write \\[ for the character");
    }
    if ((c == '&' || c == '-' || c == '~') && t->at[1] == c) {
        return error_set(t->error, "%c%c inside [...] is not supported", c, c);
    }
    t->in_class = c != ']' || t->class_start;
    t->class_start = false;
    put(t, t->at++, 1);
    return 0;
}

// What follows a '(': groups that all programs know, and the switch for both cases.
static int translate_group(Translation *t)
{
    static const char *const known[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?i)", "?-i:", "?-i)"};
    put(t, t->at++, 1);
    if (*t->at != '?' && *t->at != '*') {
        return 0;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i]);
        if (strncmp(t->at, known[i], length) == 0) {
            put(t, t->at, length);
            t->at += length;
            return 0;
        }
    }
    return error_set(t->error, "the group (%.4s... is not supported", t->at);
}

static int translate_next(Translation *t)
{
    char c = *t->at;
    if (c == '\\') {
        t->at++;
        t->class_start = false;
        return translate_escape(t);
    }
    if (t->in_class) {
        return translate_in_class(t);
    }
    if (c == '(') {
        return translate_group(t);
    }
    if (c == '^' || c == '$') {
        return error_set(t->error, "%c is not supported: programs differ in what it means", c);
    }
    if (c == '}' && t->at[1] == '+') {
        return error_set(t->error, "{...}+ is not supported: programs differ in what it means");
    }
    put(t, t->at++, 1);
    if (c == '[') {
        t->in_class = t->class_start = true;
        if (*t->at == '^') {
            put(t, t->at++, 1);
        }
    }
    return 0;
}

static int translate(Translation *t, const char *source)
{
    size_t length = strlen(source);
    if (length > MAX_SOURCE || utf8_valid_length(source, length) != length) {
        return error_set(t->error, "it is longer than %d bytes or not valid UTF-8", MAX_SOURCE);
    }
    // An escape of two characters becomes at most the longest set.
    t->capacity = (length + 1) / 2 * sizeof CHARACTERS_LETTERS + 64;
    t->out = malloc(t->capacity);
    if (t->out == NULL) {
        return error_set(t->error, "out of memory");
    }
    t->at = source;
    while (*t->at != 0) {
        if (translate_next(t) != 0) {
            return -1;
        }
    }
    return 0;
}

static Pattern *compile(const char *source, size_t length, uint32_t options, Error *error)
{
    Pattern *pattern = calloc(1, sizeof *pattern);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int code = 0;
    PCRE2_SIZE offset = 0;
    if (pattern != NULL && context != NULL) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        pcre2_set_parens_nest_limit(context, 50);
        pattern->code = pcre2_compile((PCRE2_SPTR)source, length, PCRE2_UTF | options, &code, &offset, context);
    }
    pcre2_compile_context_free(context);
    if (pattern == NULL || pattern->code == NULL) {
        char reason[128] = "out of memory";
        if (pattern != NULL && code != 0) {
            pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        }
        pattern_free(pattern);
        error_set(error, "%s", reason);
        return NULL;
    }
    // Where there is no just-in-time compiler the pattern is interpreted.
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return pattern;
}

Pattern *pattern_create(const char *source, bool literal, Error *error)
{
    if (literal) {
        return compile(source, strlen(source), PCRE2_LITERAL, error);
    }
    Translation t = {.error = error};
    Pattern *pattern = translate(&t, source) == 0 ? compile(t.out, t.used, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, error) : NULL;
    free(t.out);
    if (pattern == NULL) {
        error_prefix(error, "the pattern \"%.100s\"", source);
    }
    return pattern;
}

void pattern_free(Pattern *pattern)
{
    if (pattern != NULL) {
        pcre2_code_free(pattern->code);
        free(pattern);
    }
}

Matcher *matcher_create(Error *error)
{
    Matcher *m = calloc(1, sizeof *m);
    if (m != NULL) {
        m->data = pcre2_match_data_create(1, NULL);
        m->context = pcre2_match_context_create(NULL);
        m->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);   // NULL without a just-in-time compiler
    }
    if (m == NULL || m->data == NULL || m->context == NULL) {
        matcher_free(m);
        error_set(error, "out of memory for an encoder");
        return NULL;
    }
    pcre2_set_match_limit(m->context, MATCH_LIMIT);
    if (m->stack != NULL) {
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    }
    return m;
}

void matcher_free(Matcher *m)
{
    if (m != NULL) {
        pcre2_match_data_free(m->data);
        pcre2_match_context_free(m->context);
        pcre2_jit_stack_free(m->stack);
        free(m);
    }
}

int pattern_find(const Pattern *pattern, Matcher *matcher, const char *text, size_t length, size_t from, size_t *start, size_t *end,
                 Error *error)
{
    int groups = pcre2_match(pattern->code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK, matcher->data, matcher->context);
    if (groups == PCRE2_ERROR_NOMATCH) {
        return 0;
    }
    if (groups < 0) {
        char reason[128] = "";
        pcre2_get_error_message(groups, (PCRE2_UCHAR *)reason, sizeof reason);
        return error_set(error, "the tokenizer's pattern cannot be matched on this text: %s", reason);
    }
    const PCRE2_SIZE *borders = pcre2_get_ovector_pointer(matcher->data);
    *start = borders[0];
    *end = borders[1];
    return 1;
}

