// What the parts of the Parquet reader share: the footer's contents, decoders of packed numbers, decompression.
#ifndef DATA_PARQUET_INTERNAL_H
#define DATA_PARQUET_INTERNAL_H

#include "data/parquet.h"
#include "data/thrift.h"

typedef enum ParquetType {
    TYPE_BOOLEAN, TYPE_INT32, TYPE_INT64, TYPE_INT96, TYPE_FLOAT, TYPE_DOUBLE, TYPE_BYTE_ARRAY, TYPE_FIXED,
} ParquetType;

typedef enum ParquetEncoding {
    ENCODING_PLAIN = 0,
    ENCODING_PLAIN_DICTIONARY = 2,
    ENCODING_RLE = 3,
    ENCODING_BIT_PACKED = 4,
    ENCODING_DELTA_BINARY_PACKED = 5,
    ENCODING_DELTA_LENGTH_BYTE_ARRAY = 6,
    ENCODING_DELTA_BYTE_ARRAY = 7,
    ENCODING_RLE_DICTIONARY = 8,
    ENCODING_BYTE_STREAM_SPLIT = 9,
} ParquetEncoding;

typedef struct Column {
    const char *name;
    size_t name_length;
    ParquetType type;
    bool flat;       // neither nested nor repeated
    bool optional;
    bool string;     // marked as text
    bool decimal;    // marked as decimal: neither text nor a plain number
    bool natural;    // marked as unsigned
    uint64_t leaf;   // its place among all leaves, which is that among a row group's chunks
} Column;

typedef struct Group {
    size_t chunks;   // where the list of its column chunks stands in the footer
    uint64_t rows;
} Group;

struct ParquetFile {
    int fd;
    char *path;
    uint64_t footer_at;      // all pages end before
    unsigned char *footer;   // [footer_size]
    size_t footer_size;
    Column *columns;
    size_t n_columns, columns_capacity;
    Group *groups;
    size_t n_groups, groups_capacity;
    uint64_t rows;
};

// The column chunk: where its pages are.
typedef struct Chunk {
    uint64_t start, end;   // in the file
    uint64_t values;
    int codec;
} Chunk;

// Returns 0, or -1 with `error` set (without the file's name).
int parquet_chunk(const ParquetFile *file, size_t group, const Column *column, Chunk *chunk, Error *error);

// Unpacks a page to exactly out_size bytes. Returns NULL, or what is wrong (a constant text).
const char *parquet_unpack(int codec, const unsigned char *in, size_t in_size, unsigned char *out, size_t out_size);

// Numbers of a fixed width, in runs of equal ones or bit-packed: levels and places in the dictionary.
typedef struct Hybrid {
    const unsigned char *at, *end;
    unsigned width;             // bits, at most 32
    uint64_t run;               // numbers left in the run
    uint32_t value;             // of a run of equal ones
    const unsigned char *bits;  // of a bit-packed run, else NULL
    uint64_t bit;
} Hybrid;

Hybrid hybrid_start(const unsigned char *data, size_t size, unsigned width);
bool hybrid_next(Hybrid *hybrid, uint32_t *value);   // false: the data are damaged

// Differences in blocks of small ones (DELTA_BINARY_PACKED).
typedef struct Delta {
    const unsigned char *at, *end;
    uint64_t count;             // numbers in all
    uint64_t left;              // numbers not yet given
    uint64_t value;             // the next one, modulo 2^64
    uint64_t per_miniblock, miniblocks;
    uint64_t least;             // of the block's differences
    const unsigned char *widths;   // [miniblocks], of the block
    uint64_t miniblock;         // the next one in the block
    uint64_t in_miniblock;      // numbers left in the present one
    uint64_t bit;               // in the present one
    unsigned width;
    const unsigned char *bits;
    size_t bits_size;
} Delta;

bool delta_start(Delta *delta, const unsigned char *data, size_t size);   // false: damaged
bool delta_next(Delta *delta, int64_t *value);                            // false: damaged, or none left
// Where the bytes behind the numbers begin; `delta` is as delta_start left it. NULL: damaged.
const unsigned char *delta_end(Delta delta);

#endif
