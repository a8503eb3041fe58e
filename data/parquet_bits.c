// Packed integers of Parquet pages.
#include "data/parquet_internal.h"

enum { MAX_MINIBLOCKS = 1 << 12 };
#define MAX_BLOCK (UINT64_C(1) << 24)

static bool get_varint(const unsigned char **at, const unsigned char *end, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        unsigned byte = *(*at)++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            return true;
        }
    }
    return false;
}

// `width` bits (at most 64) that begin `bit` bits into the data; bits behind its end are zeros.
static uint64_t get_bits(const unsigned char *data, size_t size, uint64_t bit, unsigned width)
{
    size_t first = (size_t)(bit / 8), bytes = size > first ? size - first : 0;
    unsigned shift = bit % 8;
    uint64_t value = 0;
    for (size_t i = 0; i < 8 && i < bytes; i++) {
        value |= (uint64_t)data[first + i] << (8 * i);
    }
    value >>= shift;
    if (shift + width > 64 && bytes > 8) {
        value |= (uint64_t)data[first + 8] << (64 - shift);
    }
    return width == 64 ? value : value & ((UINT64_C(1) << width) - 1);
}

Hybrid hybrid_start(const unsigned char *data, size_t size, unsigned width)
{
    return (Hybrid){.at = data, .end = data + size, .width = width};
}

static bool next_run(Hybrid *h)
{
    uint64_t head;
    if (!get_varint(&h->at, h->end, &head)) {
        return false;
    }
    size_t left = (size_t)(h->end - h->at);
    if (head & 1) {
        uint64_t groups = head >> 1, bytes = groups * h->width;
        if (groups > UINT64_MAX / 64 || groups > left) {
            return false;
        }
        // Some writers leave out the padding of the last group.
        size_t there = bytes < left ? (size_t)bytes : left;
        h->bits = h->at;
        h->bit = 0;
        h->at += there;
        h->run = bytes == there ? groups * 8 : (uint64_t)there * 8 / h->width;
        return true;
    }
    unsigned bytes = (h->width + 7) / 8;
    if (left < bytes) {
        return false;
    }
    h->bits = NULL;
    h->value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        h->value |= (uint32_t)h->at[i] << (8 * i);
    }
    h->at += bytes;
    h->run = head >> 1;
    return true;
}

bool hybrid_next(Hybrid *h, uint32_t *value)
{
    *value = 0;
    if (h->width == 0) {
        return true;   // nothing is stored for numbers of no bits
    }
    while (h->run == 0) {
        if (!next_run(h)) {
            return false;
        }
    }
    h->run--;
    if (h->bits == NULL) {
        *value = h->value;
    } else {
        *value = (uint32_t)get_bits(h->bits, (size_t)(h->at - h->bits), h->bit, h->width);
        h->bit += h->width;
    }
    return true;
}

bool delta_start(Delta *d, const unsigned char *data, size_t size)
{
    uint64_t block, first;
    *d = (Delta){.at = data, .end = data + size};
    if (!get_varint(&d->at, d->end, &block) || !get_varint(&d->at, d->end, &d->miniblocks) || !get_varint(&d->at, d->end, &d->count) ||
        !get_varint(&d->at, d->end, &first)) {
        return false;
    }
    if (d->miniblocks == 0 || d->miniblocks > MAX_MINIBLOCKS || block == 0 || block > MAX_BLOCK || block % (d->miniblocks * 8) != 0) {
        return false;
    }
    d->per_miniblock = block / d->miniblocks;
    d->miniblock = d->miniblocks;   // none: the next number begins a block
    d->left = d->count;
    d->value = (first >> 1) ^ -(first & 1);
    return true;
}

static bool next_block(Delta *d)
{
    uint64_t least;
    if (!get_varint(&d->at, d->end, &least) || (size_t)(d->end - d->at) < d->miniblocks) {
        return false;
    }
    d->least = (least >> 1) ^ -(least & 1);
    d->widths = d->at;
    d->at += d->miniblocks;
    d->miniblock = 0;
    return true;
}

static bool next_miniblock(Delta *d)
{
    if (d->miniblock == d->miniblocks && !next_block(d)) {
        return false;
    }
    d->width = d->widths[d->miniblock++];
    uint64_t bytes = d->per_miniblock / 8 * d->width;
    if (d->width > 64 || bytes > (uint64_t)(d->end - d->at)) {
        return false;
    }
    d->bits = d->at;
    d->bits_size = (size_t)bytes;
    d->bit = 0;
    d->at += bytes;
    d->in_miniblock = d->per_miniblock;
    return true;
}

bool delta_next(Delta *d, int64_t *value)
{
    *value = (int64_t)d->value;
    if (d->left == 0) {
        return false;
    }
    if (--d->left == 0) {
        return true;
    }
    if (d->in_miniblock == 0 && !next_miniblock(d)) {
        return false;
    }
    d->in_miniblock--;
    d->value += d->least + get_bits(d->bits, d->bits_size, d->bit, d->width);
    d->bit += d->width;
    return true;
}

// Every miniblock passed over takes a byte at least (its width), so this is bounded by the bytes, whatever count they promise.
const unsigned char *delta_end(Delta d)
{
    uint64_t differences = d.count > 0 ? d.count - 1 : 0;
    while (differences > 0) {
        if (!next_miniblock(&d)) {
            return NULL;
        }
        differences -= differences < d.per_miniblock ? differences : d.per_miniblock;
    }
    return d.at;
}
