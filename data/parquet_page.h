// The pages of a column chunk: found, read, checked, unpacked.
#ifndef DATA_PARQUET_PAGE_H
#define DATA_PARQUET_PAGE_H

#include "data/parquet_internal.h"

typedef enum PageKind { PAGE_DATA = 0, PAGE_INDEX = 1, PAGE_DICTIONARY = 2, PAGE_DATA_2 = 3 } PageKind;

typedef struct Page {
    PageKind kind;
    uint32_t values;                 // of a data page with the nulls
    int encoding, level_encoding;
    const unsigned char *levels;     // [levels_size] definition levels; NULL: none
    size_t levels_size;
    const unsigned char *data;       // [size] values
    size_t size;
    uint64_t offset;                 // of its header in the file, for messages
} Page;

typedef struct Bytes {
    unsigned char *data;
    size_t capacity;
} Bytes;

typedef struct PageReader {
    const ParquetFile *file;
    const Chunk *chunk;
    bool optional;       // data pages have definition levels
    uint64_t at;         // of the next header in the file
    Bytes head, packed, unpacked;
} PageReader;

// Reads the next page; what `page` points to is valid until the next call. Pages of other kinds are passed over. Returns 0, or -1 with
// `error` set (the file's and column's name are missing).
int page_next(PageReader *reader, Page *page, Error *error);

// Takes the buffer with the page's values out of the reader, so that they outlive the next call; the caller frees the result.
unsigned char *page_keep(PageReader *reader, Page *page);

void page_reader_free(PageReader *reader);

#endif
