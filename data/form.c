#include "data/form.h"

#include <string.h>
#include <strings.h>

typedef struct Suffix {
    const char *text;
    Form form;   // kind FORM_UNKNOWN: only a packing, what is packed stands in front of it
} Suffix;

static const Suffix suffixes[] = {
    {".txt", {FORM_TEXT, PACKING_NONE}},
    {".jsonl", {FORM_LINES, PACKING_NONE}},
    {".parquet", {FORM_PARQUET, PACKING_NONE}},
    {".parq", {FORM_PARQUET, PACKING_NONE}},
    {".tar", {FORM_TAR, PACKING_NONE}},
    {".tgz", {FORM_TAR, PACKING_GZIP}},
    {".tzst", {FORM_TAR, PACKING_ZSTD}},
    {".txz", {FORM_TAR, PACKING_XZ}},
    {".tbz2", {FORM_TAR, PACKING_BZIP2}},
    {".gz", {FORM_UNKNOWN, PACKING_GZIP}},
    {".zst", {FORM_UNKNOWN, PACKING_ZSTD}},
    {".xz", {FORM_UNKNOWN, PACKING_XZ}},
    {".bz2", {FORM_UNKNOWN, PACKING_BZIP2}},
};

// The suffix with which the first `length` bytes of a name end, or NULL. A name that is nothing but a suffix has none.
static const Suffix *find_suffix(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        size_t size = strlen(suffixes[i].text);
        if (length > size && strncasecmp(name + length - size, suffixes[i].text, size) == 0) {
            return &suffixes[i];
        }
    }
    return NULL;
}

Form form_of(const char *name)
{
    Form unknown = {FORM_UNKNOWN, PACKING_NONE};
    size_t length = strlen(name);
    const Suffix *outer = find_suffix(name, length);
    if (outer == NULL || outer->form.kind != FORM_UNKNOWN) {
        return outer == NULL ? unknown : outer->form;
    }
    const Suffix *inner = find_suffix(name, length - strlen(outer->text));
    if (inner == NULL || inner->form.packing != PACKING_NONE || inner->form.kind == FORM_PARQUET) {
        return unknown;
    }
    return (Form){inner->form.kind, outer->form.packing};
}

const char *packing_name(Packing packing)
{
    static const char *const names[] = {"plain", "gzip", "zstd", "xz", "bzip2"};
    return names[packing];
}
