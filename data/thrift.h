// Thrift's compact protocol, as far as Parquet's footers and page headers need it. The bytes may be hostile: whatever is wrong sets
// `failed`, after which every call gives zeros and the end of what it reads, so that callers check once.
#ifndef DATA_THRIFT_H
#define DATA_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ThriftType {
    THRIFT_STOP, THRIFT_TRUE, THRIFT_FALSE, THRIFT_BYTE, THRIFT_I16, THRIFT_I32, THRIFT_I64, THRIFT_DOUBLE, THRIFT_BINARY, THRIFT_LIST,
    THRIFT_SET, THRIFT_MAP, THRIFT_STRUCT, THRIFT_UUID,
} ThriftType;

typedef struct Thrift {
    const unsigned char *data;
    size_t size, at;
    bool failed;
    bool ran_out;   // failed since the bytes ended too early: more of them may help
} Thrift;

// Goes to the next field of a struct: sets *id, which must be 0 before the first field and be kept between calls, and *type. False at the
// end of the struct or on failure. What the field holds must then be read, or passed over with thrift_skip.
bool thrift_field(Thrift *thrift, int *id, ThriftType *type);

// An integer field of `type` (byte, i16, i32, i64) within [min, max]; of another type or outside: failed.
int64_t thrift_int(Thrift *thrift, ThriftType type, int64_t min, int64_t max);
// A field of type true or false.
bool thrift_bool(Thrift *thrift, ThriftType type);
// A binary field: a pointer into the data.
const char *thrift_binary(Thrift *thrift, ThriftType type, size_t *length);
// The head of a list field: number and type of the elements. The number never exceeds the bytes that are left.
size_t thrift_list(Thrift *thrift, ThriftType type, ThriftType *element);
// Passes over a value of the type, at most some dozen structs deep.
void thrift_skip(Thrift *thrift, ThriftType type);

#endif
