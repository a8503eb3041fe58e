// The values of one column chunk: definition levels tell which are there, the page's encoding how they are stored.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/parquet_page.h"

#define MAX_DICTIONARY ((size_t)128 << 20)   // bytes

struct ParquetCursor {
    const ParquetFile *file;
    const Column *column;
    size_t group;
    Chunk chunk;
    PageReader pages;
    uint64_t left;           // values not yet given
    uint32_t in_page;        // of those, in the present page

    // The present page.
    Page page;
    Hybrid levels;           // of optional columns
    uint64_t level;          // place in levels of the old form
    const unsigned char *at, *end;   // values
    uint64_t index;          // values given
    Hybrid places;           // in the dictionary
    Delta numbers;           // DELTA_BINARY_PACKED, or lengths
    Delta prefixes;          // lengths of what is taken from the value before
    unsigned char *before;   // the value before, for DELTA_BYTE_ARRAY
    size_t before_size, before_capacity;

    unsigned char *dictionary;   // bytes of its page
    const unsigned char *dictionary_data;
    uint32_t *entries;       // [n_entries + 1] offsets of text in it, each behind the length
    size_t n_entries;
    size_t dictionary_size;
    bool has_dictionary;
};

static const char damaged[] = "its values are damaged";

static uint32_t load32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static size_t number_width(const Column *column) { return column->type == TYPE_INT32 || column->type == TYPE_FLOAT ? 4 : 8; }

// `bits` as the column's type has them in little-endian order.
static void set_number(const Column *column, uint64_t bits, ParquetValue *value)
{
    if (column->type == TYPE_FLOAT) {
        uint32_t low = (uint32_t)bits;
        float real;
        memcpy(&real, &low, sizeof real);
        value->kind = PARQUET_REAL;
        value->number.real = real;
    } else if (column->type == TYPE_DOUBLE) {
        value->kind = PARQUET_REAL;
        memcpy(&value->number.real, &bits, sizeof bits);
    } else if (column->natural) {
        value->kind = PARQUET_UNSIGNED;
        value->number.natural = column->type == TYPE_INT32 ? (uint32_t)bits : bits;
    } else {
        value->kind = PARQUET_INTEGER;
        value->number.integer = column->type == TYPE_INT32 ? (int32_t)(uint32_t)bits : (int64_t)bits;
    }
}

static uint64_t load_number(const unsigned char *p, size_t width, size_t stride)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < width; i++) {
        bits |= (uint64_t)p[i * stride] << (8 * i);
    }
    return bits;
}

// ---- the dictionary ----

static int keep_dictionary(ParquetCursor *c, Page *page, Error *error)
{
    bool text = c->column->type == TYPE_BYTE_ARRAY;
    size_t width = text ? 4 : number_width(c->column);
    if (c->has_dictionary) {
        return error_set(error, "the column has two dictionaries: the file is damaged");
    }
    if (page->encoding != ENCODING_PLAIN && page->encoding != ENCODING_PLAIN_DICTIONARY) {
        return error_set(error, "its dictionary has the unknown encoding %d", page->encoding);
    }
    if (page->size > MAX_DICTIONARY || page->values > page->size / width) {
        return error_set(error, page->size > MAX_DICTIONARY ? "its dictionary is larger than 128 MB" : "its dictionary is damaged");
    }
    c->n_entries = page->values;
    c->dictionary_size = page->size;
    c->dictionary_data = page->data;
    c->dictionary = page_keep(&c->pages, page);
    c->has_dictionary = true;
    if (!text) {
        return 0;
    }
    c->entries = malloc((c->n_entries + 1) * sizeof *c->entries);
    if (c->entries == NULL) {
        return error_set(error, "out of memory for its dictionary");
    }
    size_t at = 0;
    for (size_t i = 0; i < c->n_entries; i++) {
        if (c->dictionary_size - at < 4 || load32(c->dictionary_data + at) > c->dictionary_size - at - 4) {
            return error_set(error, "its dictionary is damaged");
        }
        c->entries[i] = (uint32_t)at;
        at += 4 + load32(c->dictionary_data + at);
    }
    return 0;
}

static const char *from_dictionary(ParquetCursor *c, ParquetValue *value)
{
    uint32_t place;
    if (!hybrid_next(&c->places, &place) || place >= c->n_entries) {
        return "its places in the dictionary are damaged";
    }
    if (c->column->type == TYPE_BYTE_ARRAY) {
        const unsigned char *entry = c->dictionary_data + c->entries[place];
        *value = (ParquetValue){.kind = PARQUET_TEXT, .text = (const char *)entry + 4, .length = load32(entry)};
    } else {
        size_t width = number_width(c->column);
        set_number(c->column, load_number(c->dictionary_data + place * width, width, 1), value);
    }
    return NULL;
}

// ---- values of the present page ----

static const char *plain_text(ParquetCursor *c, ParquetValue *value)
{
    size_t there = (size_t)(c->end - c->at);
    if (there < 4 || load32(c->at) > there - 4) {
        return damaged;
    }
    *value = (ParquetValue){.kind = PARQUET_TEXT, .text = (const char *)c->at + 4, .length = load32(c->at)};
    c->at += 4 + value->length;
    return NULL;
}

// Bytes whose length stands among the lengths at the page's start.
static const char *delta_length(ParquetCursor *c, ParquetValue *value)
{
    int64_t length;
    if (!delta_next(&c->numbers, &length) || length < 0 || length > c->end - c->at) {
        return damaged;
    }
    *value = (ParquetValue){.kind = PARQUET_TEXT, .text = (const char *)c->at, .length = (size_t)length};
    c->at += length;
    return NULL;
}

// The first bytes of the value before, and others.
static const char *delta_bytes(ParquetCursor *c, ParquetValue *value)
{
    int64_t prefix;
    const char *problem = delta_length(c, value);
    if (problem != NULL || !delta_next(&c->prefixes, &prefix) || prefix < 0 || (uint64_t)prefix > c->before_size) {
        return damaged;
    }
    size_t size = (size_t)prefix + value->length;
    if (size > PARQUET_MAX_PAGE) {
        return "a value is larger than 256 MB";
    }
    if (size > c->before_capacity) {
        unsigned char *larger = realloc(c->before, size + size / 2);
        if (larger == NULL) {
            return "out of memory for its values";
        }
        c->before = larger;
        c->before_capacity = size + size / 2;
    }
    if (value->length > 0) {
        memcpy(c->before + prefix, value->text, value->length);
    }
    c->before_size = size;
    value->text = size > 0 ? (const char *)c->before : "";
    value->length = size;
    return NULL;
}

static const char *plain_number(ParquetCursor *c, ParquetValue *value)
{
    size_t width = number_width(c->column);
    if ((size_t)(c->end - c->at) < width) {
        return damaged;
    }
    set_number(c->column, load_number(c->at, width, 1), value);
    c->at += width;
    return NULL;
}

// Byte k of all values, then byte k + 1 of all.
static const char *split_number(ParquetCursor *c, ParquetValue *value)
{
    size_t width = number_width(c->column), count = c->page.size / width;
    if (c->index >= count) {
        return damaged;
    }
    set_number(c->column, load_number(c->page.data + c->index, width, count), value);
    return NULL;
}

static const char *delta_number(ParquetCursor *c, ParquetValue *value)
{
    int64_t number;
    if (!delta_next(&c->numbers, &number)) {
        return damaged;
    }
    set_number(c->column, (uint64_t)number, value);
    return NULL;
}

typedef const char *(*ReadValue)(ParquetCursor *cursor, ParquetValue *value);

static ReadValue reader_of(const Column *column, int encoding)
{
    bool text = column->type == TYPE_BYTE_ARRAY, whole = column->type == TYPE_INT32 || column->type == TYPE_INT64;
    switch (encoding) {
    case ENCODING_PLAIN:
        return text ? plain_text : plain_number;
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_RLE_DICTIONARY:
        return from_dictionary;
    case ENCODING_DELTA_LENGTH_BYTE_ARRAY:
        return text ? delta_length : NULL;
    case ENCODING_DELTA_BYTE_ARRAY:
        return text ? delta_bytes : NULL;
    case ENCODING_DELTA_BINARY_PACKED:
        return whole ? delta_number : NULL;
    case ENCODING_BYTE_STREAM_SPLIT:
        return text ? NULL : split_number;
    default:
        return NULL;
    }
}

// ---- pages ----

static int start_deltas(ParquetCursor *c, Error *error)
{
    const unsigned char *at = c->at;
    if (c->page.encoding == ENCODING_DELTA_BYTE_ARRAY) {
        if (!delta_start(&c->prefixes, at, (size_t)(c->end - at)) || (at = delta_end(c->prefixes)) == NULL) {
            return error_set(error, "%s", damaged);
        }
    }
    if (!delta_start(&c->numbers, at, (size_t)(c->end - at)) || (at = delta_end(c->numbers)) == NULL) {
        return error_set(error, "%s", damaged);
    }
    c->at = at;
    c->before_size = 0;
    return 0;
}

static int start_values(ParquetCursor *c, Error *error)
{
    Page *page = &c->page;
    c->in_page = page->values;
    c->at = page->data;
    c->end = page->data + page->size;
    c->index = 0;
    c->level = 0;
    c->places = hybrid_start(c->at, 0, 1);
    c->numbers = c->prefixes = (Delta){0};
    if (c->column->optional && page->levels != NULL) {
        c->levels = hybrid_start(page->levels, page->levels_size, 1);
    }
    if (reader_of(c->column, page->encoding) == NULL) {
        return error_set(error, "its encoding %d is not supported for such a column", page->encoding);
    }
    if (page->values == 0 || page->size == 0) {
        return 0;   // all are null; a value that is not finds nothing and is damaged
    }
    switch (page->encoding) {
    case ENCODING_PLAIN_DICTIONARY:
    case ENCODING_RLE_DICTIONARY:
        if (!c->has_dictionary || c->at[0] > 32) {
            return error_set(error, c->has_dictionary ? "its places in the dictionary are damaged" : "the column has no dictionary");
        }
        c->places = hybrid_start(c->at + 1, page->size - 1, c->at[0]);
        return 0;
    case ENCODING_DELTA_LENGTH_BYTE_ARRAY:
    case ENCODING_DELTA_BYTE_ARRAY:
    case ENCODING_DELTA_BINARY_PACKED:
        return start_deltas(c, error);
    default:
        return 0;
    }
}

static int next_page(ParquetCursor *c, Error *error)
{
    do {
        if (page_next(&c->pages, &c->page, error) != 0) {
            return -1;
        }
        int result = c->page.kind == PAGE_DICTIONARY ? keep_dictionary(c, &c->page, error) : start_values(c, error);
        if (result == 0 && c->page.kind != PAGE_DICTIONARY && c->in_page > c->left) {
            result = error_set(error, "it has more values than the column: the file is damaged");
        }
        if (result != 0) {
            return error_prefix(error, "page at byte %" PRIu64, c->page.offset);
        }
    } while (c->page.kind == PAGE_DICTIONARY || c->in_page == 0);
    return 0;
}

// Whether the next value is there. False in the result: the levels are damaged.
static bool next_level(ParquetCursor *c, bool *present)
{
    uint32_t level = 1;
    if (c->column->optional && c->page.level_encoding == ENCODING_BIT_PACKED) {
        if (c->level / 8 >= c->page.levels_size) {
            return false;
        }
        level = c->page.levels[c->level / 8] >> (7 - c->level % 8) & 1;
        c->level++;
    } else if (c->column->optional && !hybrid_next(&c->levels, &level)) {
        return false;
    }
    *present = level == 1;
    return level <= 1;
}

// Says where it went wrong.
static int place_error(const ParquetCursor *c, Error *error)
{
    int length = c->column->name_length < 64 ? (int)c->column->name_length : 64;
    return error_prefix(error, "%s: row group %zu, column %.*s", c->file->path, c->group, length, c->column->name);
}

ParquetCursor *parquet_cursor_open(const ParquetFile *file, size_t group, size_t column, Error *error)
{
    ParquetCursor *cursor = calloc(1, sizeof *cursor);
    if (cursor == NULL) {
        error_set(error, "out of memory for reading %s", file->path);
        return NULL;
    }
    cursor->file = file;
    cursor->column = &file->columns[column];
    cursor->group = group;
    if (parquet_chunk(file, group, cursor->column, &cursor->chunk, error) != 0) {
        place_error(cursor, error);
        free(cursor);
        return NULL;
    }
    cursor->left = cursor->chunk.values;
    cursor->pages = (PageReader){.file = file, .chunk = &cursor->chunk, .optional = cursor->column->optional, .at = cursor->chunk.start};
    return cursor;
}

void parquet_cursor_close(ParquetCursor *cursor)
{
    if (cursor != NULL) {
        page_reader_free(&cursor->pages);
        free(cursor->before);
        free(cursor->dictionary);
        free(cursor->entries);
        free(cursor);
    }
}

int parquet_cursor_next(ParquetCursor *c, ParquetValue *value, Error *error)
{
    *value = (ParquetValue){.kind = PARQUET_NULL, .text = ""};
    if (c->left == 0) {
        return 0;
    }
    if (c->in_page == 0 && next_page(c, error) != 0) {
        return place_error(c, error);
    }
    bool present;
    const char *problem = NULL;
    if (!next_level(c, &present)) {
        problem = "its levels are damaged";
    } else if (present) {
        problem = reader_of(c->column, c->page.encoding)(c, value);
        c->index++;
    }
    c->in_page--;
    c->left--;
    if (problem != NULL) {
        error_set(error, "page at byte %" PRIu64 ": %s", c->page.offset, problem);
        return place_error(c, error);
    }
    return 1;
}
