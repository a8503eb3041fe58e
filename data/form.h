// What a file holds, told by its name: kind of documents, how it is packed.
#ifndef DATA_FORM_H
#define DATA_FORM_H

#include <stdbool.h>

typedef enum FormKind {
    FORM_UNKNOWN,
    FORM_TEXT,      // .txt
    FORM_LINES,     // .jsonl
    FORM_PARQUET,   // .parquet, .parq
    FORM_TAR,       // .tar, with .tgz, .tbz2, .txz and .tzst
} FormKind;

typedef enum Packing {
    PACKING_NONE,
    PACKING_GZIP,    // .gz
    PACKING_ZSTD,    // .zst
    PACKING_XZ,      // .xz
    PACKING_BZIP2,   // .bz2
} Packing;

typedef struct Form {
    FormKind kind;
    Packing packing;
} Form;

// The form of a file with this name, in upper or lower case. Parquet files are read at several places, so a packed one is FORM_UNKNOWN.
Form form_of(const char *name);

// "gzip", "zstd" ... for messages.
const char *packing_name(Packing packing);

#endif
