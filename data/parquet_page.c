#include "data/parquet_page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"

enum { FIRST_HEAD = 256 };
#define MAX_HEAD ((size_t)16 << 20)   // statistics have whole values in them

typedef struct Header {
    int64_t kind, unpacked, packed, values, encoding, level_encoding, level_bytes, repetition_bytes;
    bool has_checksum, is_packed, has_data;
    uint32_t checksum;
} Header;

static int need(Bytes *bytes, size_t size, Error *error)
{
    if (size <= bytes->capacity) {
        return 0;
    }
    free(bytes->data);   // what was there is not needed
    bytes->data = malloc(size);
    bytes->capacity = bytes->data != NULL ? size : 0;
    return bytes->data != NULL ? 0 : error_set(error, "out of memory for a page of %zu bytes", size);
}

// DataPageHeader, DictionaryPageHeader or DataPageHeaderV2, whose numbers of the same meaning have different places.
static void read_inner(Thrift *t, ThriftType outer, Header *header, PageKind kind)
{
    int id = 0;
    ThriftType type;
    int encoding_id = kind == PAGE_DATA_2 ? 4 : 2;
    t->failed = t->failed || outer != THRIFT_STRUCT;
    header->has_data = true;
    while (thrift_field(t, &id, &type)) {
        if (id == 1) {
            header->values = thrift_int(t, type, 0, INT32_MAX);
        } else if (id == encoding_id) {
            header->encoding = thrift_int(t, type, 0, INT32_MAX);
        } else if (kind == PAGE_DATA && id == 3) {
            header->level_encoding = thrift_int(t, type, 0, INT32_MAX);
        } else if (kind == PAGE_DATA_2 && id == 5) {
            header->level_bytes = thrift_int(t, type, 0, INT32_MAX);
        } else if (kind == PAGE_DATA_2 && id == 6) {
            header->repetition_bytes = thrift_int(t, type, 0, INT32_MAX);
        } else if (kind == PAGE_DATA_2 && id == 7) {
            header->is_packed = thrift_bool(t, type);
        } else {
            thrift_skip(t, type);
        }
    }
}

static void read_header(Thrift *t, Header *header)
{
    int id = 0;
    ThriftType type;
    *header = (Header){.kind = -1, .unpacked = -1, .packed = -1, .values = -1, .encoding = -1, .level_encoding = ENCODING_RLE,
                       .is_packed = true};
    while (thrift_field(t, &id, &type)) {
        if (id == 1) {
            header->kind = thrift_int(t, type, 0, INT32_MAX);
        } else if (id == 2) {
            header->unpacked = thrift_int(t, type, 0, INT32_MAX);
        } else if (id == 3) {
            header->packed = thrift_int(t, type, 0, INT32_MAX);
        } else if (id == 4) {
            header->checksum = (uint32_t)thrift_int(t, type, INT32_MIN, INT32_MAX);
            header->has_checksum = true;
        } else if ((id == 5 && header->kind == PAGE_DATA) || (id == 7 && header->kind == PAGE_DICTIONARY) ||
                   (id == 8 && header->kind == PAGE_DATA_2)) {
            read_inner(t, type, header, (PageKind)header->kind);
        } else {
            thrift_skip(t, type);
        }
    }
}

// The header's size is not known before it is read: so much is read that it fits.
static int find_header(PageReader *reader, Header *header, Error *error)
{
    uint64_t left = reader->at < reader->chunk->end ? reader->chunk->end - reader->at : 0;
    for (size_t size = FIRST_HEAD;; size *= 8) {
        size = size < MAX_HEAD ? size : MAX_HEAD;
        size_t there = left < size ? (size_t)left : size;
        if (need(&reader->head, there, error) != 0 ||
            (there > 0 && file_read_at(reader->file->fd, reader->head.data, there, reader->at, reader->file->path, error) != 0)) {
            return -1;
        }
        Thrift t = {.data = reader->head.data, .size = there};
        read_header(&t, header);
        if (!t.failed) {
            reader->at += t.at;
            return 0;
        }
        if (!t.ran_out || there < size || size == MAX_HEAD) {
            return error_set(error, "its header is damaged, or the column ends too early");
        }
    }
}

static int check_header(const Header *header, uint64_t left, Error *error)
{
    if (header->packed < 0 || header->unpacked < 0) {
        return error_set(error, "its header has no sizes: the file is damaged");
    }
    if ((uint64_t)header->packed > left) {
        return error_set(error, "it should have %" PRId64 " bytes where the column has %" PRIu64 ": the file is damaged", header->packed, left);
    }
    if ((uint64_t)header->unpacked > PARQUET_MAX_PAGE || (uint64_t)header->packed > PARQUET_MAX_PAGE) {
        return error_set(error, "it has %" PRId64 " bytes; at most %zu can be read: write the file with smaller pages",
                         header->unpacked > header->packed ? header->unpacked : header->packed, PARQUET_MAX_PAGE);
    }
    return 0;
}

// Of a page v2 the levels stand in front, never packed.
static int unpack(PageReader *reader, const Header *header, Page *page, Error *error)
{
    size_t packed = (size_t)header->packed, unpacked = (size_t)header->unpacked, front = 0;
    const unsigned char *bytes = reader->packed.data;
    if (page->kind == PAGE_DATA_2) {
        front = (size_t)header->level_bytes + (size_t)header->repetition_bytes;
        if (front > packed || front > unpacked) {
            return error_set(error, "its levels are longer than itself: the file is damaged");
        }
        page->levels = reader->optional ? bytes + header->repetition_bytes : NULL;
        page->levels_size = (size_t)header->level_bytes;
    }
    bool is_packed = reader->chunk->codec != 0 && (page->kind != PAGE_DATA_2 || header->is_packed);
    page->data = bytes + front;
    page->size = packed - front;
    if (!is_packed) {
        return 0;
    }
    if (need(&reader->unpacked, unpacked - front + 1, error) != 0) {
        return -1;
    }
    const char *problem = parquet_unpack(reader->chunk->codec, page->data, page->size, reader->unpacked.data, unpacked - front);
    page->data = reader->unpacked.data;
    page->size = unpacked - front;
    return problem == NULL ? 0 : error_set(error, "%s", problem);
}

// Of a page v1 the levels stand in front of the values, packed with them: behind their length, or (the old form) as many bits as values.
static int split_levels(Page *page, Error *error)
{
    size_t before = 0, size;
    if (page->level_encoding == ENCODING_RLE) {
        before = 4;
        size = page->size < 4 ? SIZE_MAX : (size_t)page->data[0] | (size_t)page->data[1] << 8 | (size_t)page->data[2] << 16 |
                                               (size_t)page->data[3] << 24;
    } else if (page->level_encoding == ENCODING_BIT_PACKED) {
        size = ((size_t)page->values + 7) / 8;
    } else {
        return error_set(error, "its levels have the unknown encoding %d", page->level_encoding);
    }
    if (page->size < before || size > page->size - before) {
        return error_set(error, "its levels are longer than itself: the file is damaged");
    }
    page->levels = page->data + before;
    page->levels_size = size;
    page->data += before + size;
    page->size -= before + size;
    return 0;
}

static int read_page(PageReader *reader, const Header *header, Page *page, Error *error)
{
    uint64_t left = reader->at < reader->chunk->end ? reader->chunk->end - reader->at : 0;
    if (check_header(header, left, error) != 0) {
        return -1;
    }
    size_t packed = (size_t)header->packed;
    bool wanted = header->kind == PAGE_DATA || header->kind == PAGE_DATA_2 || header->kind == PAGE_DICTIONARY;
    page->kind = (PageKind)header->kind;
    if (!wanted) {
        reader->at += packed;
        return 0;
    }
    if (!header->has_data || header->values < 0 || header->encoding < 0) {
        return error_set(error, "its header has no number of values or no encoding: the file is damaged");
    }
    if (need(&reader->packed, packed + 1, error) != 0 ||
        file_read_at(reader->file->fd, reader->packed.data, packed, reader->at, reader->file->path, error) != 0) {
        return -1;
    }
    reader->at += packed;
    if (header->has_checksum && (uint32_t)crc32(0, reader->packed.data, (uInt)packed) != header->checksum) {
        return error_set(error, "its checksum is wrong: the file is damaged");
    }
    page->values = (uint32_t)header->values;
    page->encoding = (int)header->encoding;
    page->level_encoding = page->kind == PAGE_DATA_2 ? ENCODING_RLE : (int)header->level_encoding;
    if (unpack(reader, header, page, error) != 0) {
        return -1;
    }
    // A page without values may lack the levels as well.
    return page->kind == PAGE_DATA && reader->optional && page->values > 0 ? split_levels(page, error) : 0;
}

int page_next(PageReader *reader, Page *page, Error *error)
{
    for (;;) {
        Header header;
        *page = (Page){.offset = reader->at};
        if (find_header(reader, &header, error) != 0 || read_page(reader, &header, page, error) != 0) {
            return error_prefix(error, "page at byte %" PRIu64, page->offset);
        }
        if (page->kind == PAGE_DATA || page->kind == PAGE_DATA_2 || page->kind == PAGE_DICTIONARY) {
            return 0;
        }
    }
}

unsigned char *page_keep(PageReader *reader, Page *page)
{
    Bytes *owner = page->data == reader->unpacked.data ? &reader->unpacked : &reader->packed;
    unsigned char *kept = owner->data;
    *owner = (Bytes){0};
    return kept;
}

void page_reader_free(PageReader *reader)
{
    free(reader->head.data);
    free(reader->packed.data);
    free(reader->unpacked.data);
}
