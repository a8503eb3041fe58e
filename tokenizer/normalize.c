// NFC is the work of utf8proc, but only on the few characters that need it: text is cut before each character that never joins what stands
// in front of it ("stable"), and only pieces with another character in them are handed over.
#include "tokenizer/normalize.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tokenizer/byte_map.h"
#include "tokenizer/characters.h"

// utf8proc takes this vowel, which stands just before the final consonants of Hangul, for the lack of one and drops it behind a syllable.
enum { BEFORE_FINALS = 0x11A7 };

enum { FIRST_UNSTABLE = 0x300, FEW_MARKS = 32, MAX_DECOMPOSED = 18, UNASKED = 0, STABLE, UNSTABLE };

// Marks that came with Unicode 10 and later, with the characters they compose. HuggingFace's library normalises by Unicode 9, to which they
// are characters like any other, and so must this be: ids would differ otherwise.
static const struct {
    uint32_t first, last;
} newer_marks[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},
    {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ADD},   {0x1AE0, 0x1AEB},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFA, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x113B8, 0x113E2}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x1611E, 0x1612F},
    {0x16D63, 0x16D6A}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF},
};

struct Normalizer {
    char *buffers[2];        // an edit reads one and writes the other
    size_t capacities[2];
    size_t used;             // of the one that is written
    uint8_t *kinds;          // by code point: UNASKED, STABLE, UNSTABLE; made with the first NFC
    utf8proc_int32_t *codes; // of one piece
    size_t codes_capacity;
};

Normalizer *normalizer_create(Error *error)
{
    Normalizer *n = calloc(1, sizeof *n);
    if (n == NULL) {
        error_set(error, "out of memory for an encoder");
    }
    return n;
}

void normalizer_free(Normalizer *n)
{
    if (n != NULL) {
        free(n->buffers[0]);
        free(n->buffers[1]);
        free(n->kinds);
        free(n->codes);
        free(n);
    }
}

static int put(Normalizer *n, int buffer, const char *text, size_t length)
{
    if (length > SIZE_MAX / 2 - n->used || array_reserve(&n->buffers[buffer], &n->capacities[buffer], n->used + length + 1, 1) != 0) {
        return -1;
    }
    memcpy(n->buffers[buffer] + n->used, text, length);
    n->used += length;
    return 0;
}

static bool is_newer_mark(uint32_t code)
{
    for (size_t i = 0; i < sizeof newer_marks / sizeof *newer_marks; i++) {
        if (code >= newer_marks[i].first && code <= newer_marks[i].last) {
            return true;
        }
    }
    return false;
}

// Sorts marks by combining class; those of one class keep their order. Insertion for the few that words have, counting for hostile piles.
static int sort_marks(utf8proc_int32_t *codes, size_t count)
{
    if (count <= FEW_MARKS) {
        for (size_t i = 1; i < count; i++) {
            utf8proc_int32_t code = codes[i];
            size_t k = i;
            for (; k > 0 && utf8proc_get_property(codes[k - 1])->combining_class > utf8proc_get_property(code)->combining_class; k--) {
                codes[k] = codes[k - 1];
            }
            codes[k] = code;
        }
        return 0;
    }
    size_t starts[257] = {0};
    utf8proc_int32_t *sorted = malloc(count * sizeof *sorted);
    if (sorted == NULL) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        starts[utf8proc_get_property(codes[i])->combining_class % 256 + 1]++;
    }
    for (size_t class = 1; class < 257; class++) {
        starts[class] += starts[class - 1];
    }
    for (size_t i = 0; i < count; i++) {
        sorted[starts[utf8proc_get_property(codes[i])->combining_class % 256]++] = codes[i];
    }
    memcpy(codes, sorted, count * sizeof *sorted);
    free(sorted);
    return 0;
}

// Composes text [length], valid UTF-8, into n->codes; returns the number of code points, or -1.
static int64_t compose(Normalizer *n, const unsigned char *text, size_t length)
{
    size_t count = 0, marks = 0, size;
    for (size_t at = 0; at < length; at += size) {
        size = 1;
        utf8proc_int32_t code = text[at] < 0x80 ? text[at] : (utf8proc_int32_t)utf8_get(text + at, &size);
        if (array_reserve(&n->codes, &n->codes_capacity, count + MAX_DECOMPOSED, sizeof *n->codes) != 0) {
            return -1;
        }
        if (is_newer_mark((uint32_t)code)) {
            n->codes[count++] = code;   // stable, so it is the first: nothing is sorted before it or composed with it
            continue;
        }
        int boundary = 0;
        utf8proc_ssize_t more = utf8proc_decompose_char(code, n->codes + count, MAX_DECOMPOSED, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
                                                        &boundary);
        if (more < 0 || more > MAX_DECOMPOSED) {
            return -1;
        }
        for (size_t end = count + (size_t)more; count < end; count++) {
            bool is_mark = utf8proc_get_property(n->codes[count])->combining_class != 0;
            if (!is_mark && sort_marks(n->codes + count - marks, marks) != 0) {
                return -1;
            }
            marks = is_mark ? marks + 1 : 0;
        }
    }
    if (sort_marks(n->codes + count - marks, marks) != 0) {
        return -1;
    }
    return utf8proc_normalize_utf32(n->codes, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
}

// Marks and the later parts of Hangul syllables may join what stands before them; other characters are stable if they are their own NFC.
static uint8_t kind_of(Normalizer *n, uint32_t code)
{
    if (is_newer_mark(code) || code == BEFORE_FINALS) {
        return STABLE;
    }
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    if (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME
        || (code >= 0x1160 && code <= 0x11FF) || utf8proc_get_property((utf8proc_int32_t)code)->combining_class != 0) {
        return UNSTABLE;
    }
    unsigned char text[4] = {0};
    return compose(n, text, utf8_put(text, code)) == 1 && (uint32_t)n->codes[0] == code ? STABLE : UNSTABLE;
}

static inline bool is_stable(Normalizer *n, const unsigned char *p, size_t *length)
{
    if (*p < 0x80) {
        *length = 1;
        return true;
    }
    uint32_t code = utf8_get(p, length);
    if (code < FIRST_UNSTABLE) {
        return true;
    }
    if (n->kinds[code] == UNASKED) {
        n->kinds[code] = kind_of(n, code);
    }
    return n->kinds[code] == STABLE;
}

static int put_composed(Normalizer *n, int buffer, const unsigned char *text, size_t length)
{
    int64_t count = compose(n, text, length);
    for (int64_t i = 0; i < count; i++) {
        unsigned char bytes[4] = {0};
        if (put(n, buffer, (const char *)bytes, utf8_put(bytes, (uint32_t)n->codes[i])) != 0) {
            return -1;
        }
    }
    return count < 0 ? -1 : 0;
}

// Composes [start, end), valid UTF-8. What is stable is written in one go, up to `start`, when something unstable or the end comes.
static int put_valid_run(Normalizer *n, int buffer, const unsigned char *start, const unsigned char *end)
{
    const unsigned char *p = start, *last_stable = start;
    size_t length;
    while (p < end) {
        if (is_stable(n, p, &length)) {
            last_stable = p;
            p += length;
            continue;
        }
        do {
            p += length;
        } while (p < end && !is_stable(n, p, &length));
        if (put(n, buffer, (const char *)start, (size_t)(last_stable - start)) != 0
            || put_composed(n, buffer, last_stable, (size_t)(p - last_stable)) != 0) {
            return -1;
        }
        start = last_stable = p;
    }
    return put(n, buffer, (const char *)start, (size_t)(end - start));
}

// True if NFC changes nothing, as far as single characters tell.
static bool is_composed(Normalizer *n, const unsigned char *p, const unsigned char *end)
{
    while (p < end) {
        size_t length = 1;
        if (*p >= 0x80) {
            length = utf8_length(p, end);
            if (length == 0) {
                length = 1;
            } else if (!is_stable(n, p, &length)) {
                return false;
            }
        }
        p += length;
    }
    return true;
}

static int edit_nfc(Normalizer *n, int buffer, const char *text, size_t length)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + length;
    while (p < end) {
        const unsigned char *valid = utf8_valid_end(p, end), *next = utf8_invalid_end(valid, end);
        if (put_valid_run(n, buffer, p, valid) != 0 || put(n, buffer, (const char *)valid, (size_t)(next - valid)) != 0) {
            return -1;
        }
        p = next;
    }
    return 0;
}

static int edit_replace(Normalizer *n, int buffer, const Edit *edit, const char *text, size_t length)
{
    const char *end = text + length, *found;
    while (text < end && (found = memmem(text, (size_t)(end - text), edit->from, edit->from_length)) != NULL) {
        if (put(n, buffer, text, (size_t)(found - text)) != 0 || put(n, buffer, edit->to, edit->to_length) != 0) {
            return -1;
        }
        text = found + edit->from_length;
    }
    return put(n, buffer, text, (size_t)(end - text));
}

static bool changes(Normalizer *n, const Edit *edit, bool at_start, const char *text, size_t length)
{
    const unsigned char *start = (const unsigned char *)text;
    switch (edit->kind) {
    case EDIT_NFC:
        return !is_composed(n, start, start + length);
    case EDIT_PREPEND:
        return (at_start || !edit->only_at_start)
               && !(edit->unless_there && length >= edit->to_length && memcmp(text, edit->to, edit->to_length) == 0);
    case EDIT_REPLACE:
        return memmem(text, length, edit->from, edit->from_length) != NULL;
    }
    return false;
}

int normalizer_apply(Normalizer *n, const Edit *edits, size_t n_edits, bool at_start, const char **text, size_t *length, Error *error)
{
    int buffer = 0;
    for (size_t i = 0; i < n_edits && *length > 0; i++) {
        const Edit *edit = &edits[i];
        if (edit->kind == EDIT_NFC && n->kinds == NULL) {
            n->kinds = calloc(N_CODE_POINTS, 1);
            if (n->kinds == NULL || array_reserve(&n->codes, &n->codes_capacity, 1, sizeof *n->codes) != 0) {
                return error_set(error, "out of memory for an encoder");
            }
        }
        if (!changes(n, edit, at_start, *text, *length)) {
            continue;
        }
        n->used = 0;
        int failed = edit->kind == EDIT_NFC       ? edit_nfc(n, buffer, *text, *length)
                     : edit->kind == EDIT_REPLACE ? edit_replace(n, buffer, edit, *text, *length)
                                                  : put(n, buffer, edit->to, edit->to_length) || put(n, buffer, *text, *length);
        if (failed) {
            return error_set(error, "out of memory for normalising a text of %zu bytes", *length);
        }
        *text = n->buffers[buffer];
        *length = n->used;
        buffer = 1 - buffer;
    }
    return 0;
}
