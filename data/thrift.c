#include "data/thrift.h"

#include <limits.h>

enum { MAX_DEPTH = 40 };

static uint64_t fail(Thrift *thrift, bool ran_out)
{
    thrift->ran_out = thrift->ran_out || (ran_out && !thrift->failed);
    thrift->failed = true;
    return 0;
}

static unsigned get_byte(Thrift *thrift)
{
    if (thrift->failed || thrift->at >= thrift->size) {
        return (unsigned)fail(thrift, true);
    }
    return thrift->data[thrift->at++];
}

static void advance(Thrift *thrift, uint64_t bytes)
{
    if (thrift->failed || bytes > thrift->size - thrift->at) {
        fail(thrift, true);
    } else {
        thrift->at += (size_t)bytes;
    }
}

static uint64_t get_varint(Thrift *thrift)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned byte = get_byte(thrift);
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            return thrift->failed ? 0 : value;
        }
    }
    return fail(thrift, false);
}

static int64_t get_zigzag(Thrift *thrift)
{
    uint64_t value = get_varint(thrift);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

bool thrift_field(Thrift *thrift, int *id, ThriftType *type)
{
    unsigned head = get_byte(thrift);
    *type = (ThriftType)(head & 15);
    if (thrift->failed || *type == THRIFT_STOP) {
        return false;
    }
    int64_t next = head >> 4 != 0 ? *id + (int64_t)(head >> 4) : get_zigzag(thrift);
    if (thrift->failed || *type > THRIFT_UUID || next < INT16_MIN || next > INT16_MAX) {
        fail(thrift, false);
        return false;
    }
    *id = (int)next;
    return true;
}

int64_t thrift_int(Thrift *thrift, ThriftType type, int64_t min, int64_t max)
{
    int64_t value = 0;
    if (type == THRIFT_BYTE) {
        value = (int8_t)get_byte(thrift);
    } else if (type == THRIFT_I16 || type == THRIFT_I32 || type == THRIFT_I64) {
        value = get_zigzag(thrift);
    } else {
        fail(thrift, false);
    }
    if (!thrift->failed && (value < min || value > max)) {
        fail(thrift, false);
    }
    return thrift->failed ? 0 : value;
}

bool thrift_bool(Thrift *thrift, ThriftType type)
{
    if (type != THRIFT_TRUE && type != THRIFT_FALSE) {
        fail(thrift, false);
    }
    return type == THRIFT_TRUE;
}

const char *thrift_binary(Thrift *thrift, ThriftType type, size_t *length)
{
    *length = 0;
    if (type != THRIFT_BINARY) {
        fail(thrift, false);
        return "";
    }
    uint64_t size = get_varint(thrift);
    size_t start = thrift->at;
    advance(thrift, size);
    if (thrift->failed) {
        return "";
    }
    *length = (size_t)size;
    return (const char *)thrift->data + start;
}

size_t thrift_list(Thrift *thrift, ThriftType type, ThriftType *element)
{
    if (type != THRIFT_LIST && type != THRIFT_SET) {
        return (size_t)fail(thrift, false);
    }
    unsigned head = get_byte(thrift);
    uint64_t count = head >> 4 == 15 ? get_varint(thrift) : head >> 4;
    *element = (ThriftType)(head & 15);
    // Every element takes a byte at least.
    if (!thrift->failed && count > thrift->size - thrift->at) {
        fail(thrift, true);
    }
    return thrift->failed ? 0 : (size_t)count;
}

static void skip(Thrift *thrift, ThriftType type, bool element, int depth);

static void skip_struct(Thrift *thrift, int depth)
{
    int id = 0;
    ThriftType type;
    while (thrift_field(thrift, &id, &type)) {
        skip(thrift, type, false, depth + 1);
    }
}

static void skip_map(Thrift *thrift, int depth)
{
    uint64_t count = get_varint(thrift);
    unsigned types = count > 0 ? get_byte(thrift) : 0;
    for (uint64_t i = 0; i < count && !thrift->failed; i++) {
        skip(thrift, (ThriftType)(types >> 4), true, depth + 1);
        skip(thrift, (ThriftType)(types & 15), true, depth + 1);
    }
}

// A boolean field has its value in its type; as an element of a list it is a byte.
static void skip(Thrift *thrift, ThriftType type, bool element, int depth)
{
    size_t length, count;
    ThriftType inner;
    if (depth > MAX_DEPTH) {
        fail(thrift, false);
        return;
    }
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        advance(thrift, element ? 1 : 0);
        break;
    case THRIFT_BYTE:
        advance(thrift, 1);
        break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        get_varint(thrift);
        break;
    case THRIFT_DOUBLE:
        advance(thrift, 8);
        break;
    case THRIFT_UUID:
        advance(thrift, 16);
        break;
    case THRIFT_BINARY:
        thrift_binary(thrift, type, &length);
        break;
    case THRIFT_LIST:
    case THRIFT_SET:
        count = thrift_list(thrift, type, &inner);
        for (size_t i = 0; i < count && !thrift->failed; i++) {
            skip(thrift, inner, true, depth + 1);
        }
        break;
    case THRIFT_MAP:
        skip_map(thrift, depth);
        break;
    case THRIFT_STRUCT:
        skip_struct(thrift, depth);
        break;
    default:
        fail(thrift, false);
    }
}

void thrift_skip(Thrift *thrift, ThriftType type) { skip(thrift, type, false, 0); }
