// What folders hold beside documents, counted by kind.
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "data/corpus.h"

enum { MAX_KINDS = 64, MAX_SHOWN = 8, MAX_EXTENSION = 12 };

typedef struct Kind {
    const char *extension;   // with its dot, in a path of the list; "" for none
    size_t count;
} Kind;

// A long one is no kind of file but a part of a name.
static const char *extension_of(const char *path)
{
    const char *name = path_base(path), *dot = strrchr(name, '.');
    return dot == NULL || dot == name || strlen(dot) > MAX_EXTENSION ? "" : dot;
}

// Counts the kinds and returns how many there are; *others counts the files for which there was no room.
static size_t count_kinds(Kind kinds[MAX_KINDS], size_t *others, const PathList *rest)
{
    size_t n = 0;
    *others = 0;
    for (size_t i = 0; i < rest->count; i++) {
        const char *extension = extension_of(rest->items[i]);
        size_t k = 0;
        while (k < n && strcasecmp(kinds[k].extension, extension) != 0) {
            k++;
        }
        if (k < n) {
            kinds[k].count++;
        } else if (n < MAX_KINDS) {
            kinds[n++] = (Kind){extension, 1};
        } else {
            ++*others;
        }
    }
    return n;
}

// The commonest kind comes to the front of kinds[0 .. n); of equal ones the first by name.
static void commonest_first(Kind *kinds, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        bool before = kinds[i].count > kinds[0].count ||
                      (kinds[i].count == kinds[0].count && strcasecmp(kinds[i].extension, kinds[0].extension) < 0);
        if (before) {
            Kind kind = kinds[0];
            kinds[0] = kinds[i];
            kinds[i] = kind;
        }
    }
}

char *corpus_describe_rest(char *text, size_t size, const PathList *rest)
{
    Kind kinds[MAX_KINDS];
    size_t others, n = count_kinds(kinds, &others, rest), used = 0;
    text[0] = 0;
    if (rest->count > 0) {
        used = (size_t)snprintf(text, size, "%zu file%s skipped:", rest->count, rest->count == 1 ? "" : "s");
    }
    for (size_t k = 0; k < n; k++) {
        if (k >= MAX_SHOWN) {
            others += kinds[k].count;
            continue;
        }
        commonest_first(kinds + k, n - k);
        const char *name = kinds[k].extension[0] != 0 ? kinds[k].extension : "no extension";
        used += used < size ? (size_t)snprintf(text + used, size - used, "%s %s %zu", k > 0 ? "," : "", name, kinds[k].count) : 0;
    }
    if (others > 0 && used < size) {
        snprintf(text + used, size - used, ", others %zu", others);
    }
    // The names of files may hold anything.
    for (char *c = text; *c != 0; c++) {
        *c = (unsigned char)*c < 32 || *c == 127 ? '?' : *c;
    }
    return text;
}

int corpus_check_rest(const PathList *rest, bool strict, Error *error)
{
    char text[256];
    if (!strict || rest->count == 0) {
        return 0;
    }
    return error_set(error, "%s is no document that can be read (%s): remove it, name the documents themselves, or leave out --strict",
                     rest->items[0], corpus_describe_rest(text, sizeof text, rest));
}
