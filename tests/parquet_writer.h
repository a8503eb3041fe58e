// A small writer of Parquet files for the tests: two columns, "text" and a number "score", in every encoding and codec that is read.
#ifndef TESTS_PARQUET_WRITER_H
#define TESTS_PARQUET_WRITER_H

#include <lz4.h>
#include <snappy-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

// ---- bytes that grow

typedef struct Output {
    unsigned char *data;
    size_t size, capacity;
} Output;

static inline void put(Output *out, const void *data, size_t size)
{
    if (out->size + size > out->capacity) {
        out->capacity = (out->size + size) * 2;
        out->data = realloc(out->data, out->capacity);
    }
    if (size > 0) {
        memcpy(out->data + out->size, data, size);
    }
    out->size += size;
}

static inline void put_byte(Output *out, unsigned byte)
{
    unsigned char c = (unsigned char)byte;
    put(out, &c, 1);
}

static inline void put_le(Output *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        put_byte(out, (unsigned)(value >> (8 * i)) & 255);
    }
}

static inline void put_varint(Output *out, uint64_t value)
{
    for (; value >= 128; value >>= 7) {
        put_byte(out, (unsigned)(value & 127) | 128);
    }
    put_byte(out, (unsigned)value);
}

static inline void put_zigzag(Output *out, int64_t value) { put_varint(out, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63)); }

static inline void put_all(Output *out, const Output *part) { put(out, part->data, part->size); }

// ---- thrift: fields in rising order, `last` is the number of the one before

static inline void put_field(Output *out, int *last, int id, unsigned type)
{
    put_byte(out, (unsigned)(id - *last) << 4 | type);
    *last = id;
}

static inline void put_int(Output *out, int *last, int id, int64_t value, unsigned type)
{
    put_field(out, last, id, type);
    put_zigzag(out, value);
}

enum { I32 = 5, I64 = 6, STRING = 8, LIST = 9, STRUCT = 12 };

static inline void put_string(Output *out, int *last, int id, const char *text)
{
    put_field(out, last, id, STRING);
    put_varint(out, strlen(text));
    put(out, text, strlen(text));
}

// ---- what is written

typedef enum WriterNumber { WRITE_INT32 = 1, WRITE_INT64 = 2, WRITE_FLOAT = 4, WRITE_DOUBLE = 5 } WriterNumber;

typedef struct WriterOptions {
    int text_encoding, number_encoding;   // as in the format: 0 plain, 8 dictionary, 6 and 7 delta of text, 5 delta, 9 bytes apart
    int codec;                            // as in the format
    bool version_2, optional, checksums, wrong_checksum, level_bits;
    WriterNumber number;
    size_t rows, page_rows, group_rows;
    const char *text_name;
    bool nested_first;                    // a group with two leaves stands in front of the columns
    size_t hole;                          // the footer says that so many bytes stand behind the first four of the file
} WriterOptions;

// The text of a row (NULL: null), its length, and its number.
typedef const char *(*WriterText)(size_t row, size_t *length);
typedef int64_t (*WriterScore)(size_t row);

static inline bool is_null(const WriterOptions *o, size_t row) { return o->optional && row % 7 == 3; }

// ---- integers

static inline void put_bits(Output *out, const uint64_t *values, size_t count, unsigned width)
{
    unsigned char byte = 0;
    unsigned used = 0;
    for (size_t i = 0; i < count; i++) {
        for (unsigned b = 0; b < width; b++) {
            byte |= (unsigned char)((values[i] >> b & 1) << used);
            if (++used == 8) {
                put_byte(out, byte);
                byte = 0;
                used = 0;
            }
        }
    }
    if (used > 0) {
        put_byte(out, byte);
    }
}

// Runs of eight equal numbers as such, others bit-packed.
static inline void put_hybrid(Output *out, const uint64_t *values, size_t count, unsigned width)
{
    for (size_t i = 0; i < count;) {
        size_t run = 1;
        while (i + run < count && values[i + run] == values[i]) {
            run++;
        }
        if (run >= 8 || count - i < 8) {
            put_varint(out, run << 1);
            put_le(out, values[i], (int)(width + 7) / 8);
            i += run;
        } else {
            put_varint(out, 1 << 1 | 1);
            put_bits(out, values + i, 8, width);
            i += 8;
        }
    }
}

static inline void put_delta(Output *out, const int64_t *values, size_t count)
{
    enum { BLOCK = 128, MINIBLOCKS = 4, PER = BLOCK / MINIBLOCKS };
    put_varint(out, BLOCK);
    put_varint(out, MINIBLOCKS);
    put_varint(out, count);
    put_zigzag(out, count > 0 ? values[0] : 0);
    for (size_t first = 1; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? count - first : BLOCK;
        uint64_t rest[BLOCK] = {0};
        int64_t least = INT64_MAX;
        for (size_t i = 0; i < n; i++) {
            int64_t difference = (int64_t)((uint64_t)values[first + i] - (uint64_t)values[first + i - 1]);
            least = difference < least ? difference : least;
        }
        unsigned widths[MINIBLOCKS] = {0};
        for (size_t i = 0; i < n; i++) {
            rest[i] = (uint64_t)values[first + i] - (uint64_t)values[first + i - 1] - (uint64_t)least;
            while (widths[i / PER] < 64 && rest[i] >> widths[i / PER] != 0) {
                widths[i / PER]++;
            }
        }
        put_zigzag(out, least);
        for (size_t m = 0; m < MINIBLOCKS; m++) {
            put_byte(out, widths[m]);
        }
        for (size_t m = 0; m * PER < n; m++) {
            put_bits(out, rest + m * PER, PER, widths[m]);
        }
    }
}

// ---- values of the rows [from, to) that are not null

static inline void put_text_values(Output *out, const WriterOptions *o, WriterText text, size_t from, size_t to)
{
    size_t count = 0, length, before_length = 0;
    const char *before = "";
    int64_t *lengths = calloc(to - from + 1, sizeof *lengths), *prefixes = calloc(to - from + 1, sizeof *prefixes);
    Output bytes = {0};
    for (size_t row = from; row < to; row++) {
        if (is_null(o, row)) {
            continue;
        }
        const char *value = text(row, &length);
        size_t prefix = 0;
        while (o->text_encoding == 7 && prefix < length && prefix < before_length && value[prefix] == before[prefix]) {
            prefix++;
        }
        prefixes[count] = (int64_t)prefix;
        lengths[count++] = (int64_t)(length - prefix);
        if (o->text_encoding == 0) {
            put_le(&bytes, length, 4);
        }
        put(&bytes, value + prefix, length - prefix);
        before = value;
        before_length = length;
    }
    if (o->text_encoding == 7) {
        put_delta(out, prefixes, count);
    }
    if (o->text_encoding != 0) {
        put_delta(out, lengths, count);
    }
    put_all(out, &bytes);
    free(bytes.data);
    free(lengths);
    free(prefixes);
}

static inline uint64_t number_bits(const WriterOptions *o, int64_t score)
{
    float single = (float)score;
    double real = (double)score;
    uint32_t low;
    uint64_t bits;
    memcpy(&low, &single, sizeof low);
    memcpy(&bits, &real, sizeof bits);
    return o->number == WRITE_FLOAT ? low : o->number == WRITE_DOUBLE ? bits : (uint64_t)score;
}

static inline void put_number_values(Output *out, const WriterOptions *o, WriterScore score, size_t from, size_t to)
{
    size_t count = 0;
    int64_t *values = calloc(to - from + 1, sizeof *values);
    for (size_t row = from; row < to; row++) {
        if (!is_null(o, row)) {
            values[count++] = score(row);
        }
    }
    int width = o->number == WRITE_INT32 || o->number == WRITE_FLOAT ? 4 : 8;
    if (o->number_encoding == 5) {
        put_delta(out, values, count);
    }
    for (size_t i = 0; i < count && o->number_encoding == 0; i++) {
        put_le(out, number_bits(o, values[i]), width);
    }
    for (int byte = 0; byte < width && o->number_encoding == 9; byte++) {
        for (size_t i = 0; i < count; i++) {
            put_byte(out, (unsigned)(number_bits(o, values[i]) >> (8 * byte)) & 255);
        }
    }
    free(values);
}

// ---- pages

// A brotli stream that only stores; at most 65,536 bytes a block.
static inline void store_brotli(Output *out, const Output *in)
{
    for (size_t at = 0; at < in->size; at += 65536) {
        size_t size = in->size - at < 65536 ? in->size - at : 65536;
        // Bits: window size (first block only), not the last block, 4 nibbles of length, length − 1, stored.
        int shift = at == 0 ? 1 : 0;
        put_le(out, ((uint64_t)(size - 1) << 3 | (uint64_t)1 << 19) << shift, 3);
        put(out, in->data + at, size);
    }
    put_byte(out, in->size > 0 ? 3 : 6);
}

static inline void pack(Output *out, const Output *in, int codec)
{
    size_t room = in->size + in->size / 2 + 1024, size = room;
    Output packed = {malloc(room), 0, room};
    uLongf gzip_size = room;
    switch (codec) {
    case 1:
        snappy_compress((const char *)in->data, in->size, (char *)packed.data, &size);
        break;
    case 2: {
        z_stream stream = {.next_in = in->data, .avail_in = (uInt)in->size, .next_out = packed.data, .avail_out = (uInt)gzip_size};
        deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
        deflate(&stream, Z_FINISH);
        size = stream.total_out;
        deflateEnd(&stream);
        break;
    }
    case 6:
        size = ZSTD_compress(packed.data, room, in->data, in->size, 3);
        break;
    case 7:
        size = (size_t)LZ4_compress_default((const char *)in->data, (char *)packed.data, (int)in->size, (int)room);
        break;
    default:
        size = 0;
    }
    if (codec == 0) {
        put_all(out, in);
    } else if (codec == 4) {
        store_brotli(out, in);
    } else {
        put(out, packed.data, size);
    }
    free(packed.data);
}

// One page: `levels` (v2: in front, not packed) and `values`.
static inline void put_page(Output *file, const WriterOptions *o, int kind, size_t n_values, int encoding, const Output *levels,
                            const Output *values)
{
    Output body = {0}, stored = {0}, head = {0};
    int last = 0, inner = 0;
    bool v2 = kind == 3;
    if (!v2 && levels->size > 0) {
        if (!o->level_bits) {
            put_le(&body, levels->size, 4);
        }
        put_all(&body, levels);
    }
    put_all(&body, values);
    if (v2) {
        put_all(&stored, levels);
    }
    pack(&stored, &body, o->codec);
    put_int(&head, &last, 1, kind, I32);
    put_int(&head, &last, 2, (int64_t)(body.size + (v2 ? levels->size : 0)), I32);
    put_int(&head, &last, 3, (int64_t)stored.size, I32);
    if (o->checksums) {
        put_int(&head, &last, 4, (int32_t)(crc32(0, stored.data, (uInt)stored.size) ^ (o->wrong_checksum ? 1 : 0)), I32);
    }
    put_field(&head, &last, kind == 0 ? 5 : kind == 2 ? 7 : 8, STRUCT);
    put_int(&head, &inner, 1, (int64_t)n_values, I32);
    if (v2) {
        put_int(&head, &inner, 2, 0, I32);
        put_int(&head, &inner, 3, (int64_t)n_values, I32);
        put_int(&head, &inner, 4, encoding, I32);
        put_int(&head, &inner, 5, (int64_t)levels->size, I32);
        put_int(&head, &inner, 6, 0, I32);
    } else {
        put_int(&head, &inner, 2, encoding, I32);
        if (kind == 0) {
            put_int(&head, &inner, 3, o->level_bits ? 4 : 3, I32);
            put_int(&head, &inner, 4, 3, I32);
        }
    }
    put_byte(&head, 0);
    put_byte(&head, 0);
    put_all(file, &head);
    put_all(file, &stored);
    free(body.data);
    free(stored.data);
    free(head.data);
}

static inline void put_levels(Output *out, const WriterOptions *o, size_t from, size_t to)
{
    uint64_t *levels = calloc(to - from + 8, sizeof *levels);
    for (size_t row = from; row < to; row++) {
        levels[row - from] = !is_null(o, row);
    }
    if (o->level_bits && !o->version_2) {
        for (size_t i = 0; i < to - from; i += 8) {
            unsigned byte = 0;
            for (size_t b = 0; b < 8; b++) {
                byte |= (unsigned)levels[i + b] << (7 - b);
            }
            put_byte(out, byte);
        }
    } else {
        put_hybrid(out, levels, to - from, 1);
    }
    free(levels);
}

enum { DICTIONARY_SIZE = 5 };

// With a dictionary, rows take values of the first five rows in turn.
static inline size_t dictionary_row(size_t row) { return row % DICTIONARY_SIZE == 3 ? 4 : row % DICTIONARY_SIZE; }

static inline void put_places(Output *out, const WriterOptions *o, size_t from, size_t to)
{
    uint64_t *places = calloc(to - from + 1, sizeof *places);
    size_t count = 0;
    for (size_t row = from; row < to; row++) {
        if (!is_null(o, row)) {
            places[count++] = dictionary_row(row);
        }
    }
    put_byte(out, 3);
    put_hybrid(out, places, count, 3);
    free(places);
}

// The pages of one column of the rows [from, to). Returns where the data pages begin; *start is where all begin.
static inline size_t put_column(Output *file, const WriterOptions *o, bool is_text, WriterText text, WriterScore score, size_t from, size_t to,
                                size_t *start)
{
    int encoding = is_text ? o->text_encoding : o->number_encoding;
    Output nothing = {0};
    *start = file->size;
    if (encoding == 8) {
        WriterOptions plain = *o;
        plain.optional = false;
        plain.text_encoding = plain.number_encoding = 0;
        Output values = {0};
        if (is_text) {
            put_text_values(&values, &plain, text, 0, DICTIONARY_SIZE);
        } else {
            put_number_values(&values, &plain, score, 0, DICTIONARY_SIZE);
        }
        put_page(file, o, 2, DICTIONARY_SIZE, 0, &nothing, &values);
        free(values.data);
    }
    size_t data = file->size;
    for (size_t row = from; row < to; row += o->page_rows) {
        size_t end = to - row < o->page_rows ? to : row + o->page_rows;
        Output levels = {0}, values = {0};
        if (o->optional) {
            put_levels(&levels, o, row, end);
        }
        if (encoding == 8) {
            put_places(&values, o, row, end);
        } else if (is_text) {
            put_text_values(&values, o, text, row, end);
        } else {
            put_number_values(&values, o, score, row, end);
        }
        put_page(file, o, o->version_2 ? 3 : 0, end - row, encoding, &levels, &values);
        free(levels.data);
        free(values.data);
    }
    return data;
}

static inline void put_element(Output *out, const char *name, int type, int repetition, int children, int converted)
{
    int last = 0;
    if (type >= 0) {
        put_int(out, &last, 1, type, I32);
    }
    if (repetition >= 0) {
        put_int(out, &last, 3, repetition, I32);
    }
    put_string(out, &last, 4, name);
    if (children > 0) {
        put_int(out, &last, 5, children, I32);
    }
    if (converted >= 0) {
        put_int(out, &last, 6, converted, I32);
    }
    put_byte(out, 0);
}

static inline void put_chunk(Output *out, const WriterOptions *o, const char *name, int type, size_t rows, size_t start, size_t data, size_t end)
{
    int last = 0, inner = 0;
    start += o->hole;
    data += o->hole;
    end += o->hole;
    put_int(out, &last, 2, (int64_t)start, I64);
    put_field(out, &last, 3, STRUCT);
    put_int(out, &inner, 1, type, I32);
    put_field(out, &inner, 2, LIST);
    put_byte(out, 1 << 4 | I32);
    put_zigzag(out, 0);
    put_field(out, &inner, 3, LIST);
    put_byte(out, 1 << 4 | STRING);
    put_varint(out, strlen(name));
    put(out, name, strlen(name));
    put_int(out, &inner, 4, o->codec, I32);
    put_int(out, &inner, 5, (int64_t)rows, I64);
    put_int(out, &inner, 6, (int64_t)(end - start), I64);
    put_int(out, &inner, 7, (int64_t)(end - start), I64);
    put_int(out, &inner, 9, (int64_t)data, I64);
    if (data != start) {
        put_int(out, &inner, 11, (int64_t)start, I64);
    }
    put_byte(out, 0);
    put_byte(out, 0);
}

// The whole file, in a buffer to free.
static inline Output write_parquet(const WriterOptions *o, WriterText text, WriterScore score)
{
    Output file = {0}, groups = {0}, footer = {0};
    const char *name = o->text_name != NULL ? o->text_name : "text";
    size_t n_groups = 0;
    put(&file, "PAR1", 4);
    for (size_t from = 0; from < o->rows; from += o->group_rows) {
        size_t to = o->rows - from < o->group_rows ? o->rows : from + o->group_rows, start[2], data[2];
        data[0] = put_column(&file, o, true, text, score, from, to, &start[0]);
        size_t text_end = file.size;
        data[1] = put_column(&file, o, false, text, score, from, to, &start[1]);
        int last = 0;
        put_field(&groups, &last, 1, LIST);
        put_byte(&groups, (o->nested_first ? 4u : 2u) << 4 | STRUCT);
        for (int i = 0; i < (o->nested_first ? 2 : 0); i++) {
            put_chunk(&groups, o, "leaf", 1, to - from, start[1], data[1], file.size);
        }
        put_chunk(&groups, o, name, 6, to - from, start[0], data[0], text_end);
        put_chunk(&groups, o, "score", (int)o->number, to - from, start[1], data[1], file.size);
        put_int(&groups, &last, 2, (int64_t)(file.size - start[0]), I64);
        put_int(&groups, &last, 3, (int64_t)(to - from), I64);
        put_byte(&groups, 0);
        n_groups++;
    }
    int last = 0;
    put_int(&footer, &last, 1, 1, I32);
    put_field(&footer, &last, 2, LIST);
    put_byte(&footer, (o->nested_first ? 7u : 3u) << 4 | STRUCT);
    put_element(&footer, "schema", -1, -1, o->nested_first ? 3 : 2, -1);
    if (o->nested_first) {
        put_element(&footer, "nest", -1, 1, 2, -1);
        put_element(&footer, "inner", -1, 2, 1, -1);
        put_element(&footer, "text", 6, 1, 0, 0);
        put_element(&footer, "leaf", 6, 1, 0, 0);
    }
    put_element(&footer, name, 6, o->optional ? 1 : 0, 0, 0);
    put_element(&footer, "score", (int)o->number, o->optional ? 1 : 0, 0, -1);
    put_int(&footer, &last, 3, (int64_t)o->rows, I64);
    put_field(&footer, &last, 4, LIST);
    if (n_groups < 15) {
        put_byte(&footer, (unsigned)n_groups << 4 | STRUCT);
    } else {
        put_byte(&footer, 15u << 4 | STRUCT);
        put_varint(&footer, n_groups);
    }
    put_all(&footer, &groups);
    put_byte(&footer, 0);
    put_all(&file, &footer);
    put_le(&file, footer.size, 4);
    put(&file, "PAR1", 4);
    free(groups.data);
    free(footer.data);
    return file;
}

#endif
