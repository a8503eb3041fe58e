// The safetensors format: 8 bytes of header length (little endian), a JSON header padded with spaces to a multiple of 8, then the tensors.
#ifndef CHECKPOINT_SAFETENSORS_H
#define CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cJSON;

#define SAFETENSORS_MAX_DIMS 8

typedef struct SafeTensor {
    const char *name;                        // owned by the file
    char dtype[8];                           // "F32", "BF16", "I64", ...
    size_t n_dims, shape[SAFETENSORS_MAX_DIMS];
    size_t count;                            // elements
    uint64_t begin, end;                     // bytes in the data part
} SafeTensor;

typedef struct SafeFile {
    int fd;
    char *path;
    struct cJSON *header;
    SafeTensor *items;                       // sorted by name
    size_t count;
    uint64_t data_start;                     // where the data part begins in the file
} SafeFile;

// Opens and checks the whole header (lengths, types, shapes against offsets, no overlap, no hole, no bytes behind the end, no name twice).
// Returns 0, or -1 with `error` set and nothing to close.
int safetensors_open(SafeFile *file, const char *path, Error *error);
void safetensors_close(SafeFile *file);
const SafeTensor *safetensors_find(const SafeFile *file, const char *name);   // NULL if there is none
const char *safetensors_metadata(const SafeFile *file, const char *key);      // the string under __metadata__, or NULL
// Whether a tensor of that name with dtype F32 and exactly this shape is there: 0, or -1 with an error that names file, tensor and both shapes.
int safetensors_check_f32(const SafeFile *file, const char *name, size_t n_dims, const size_t *shape, Error *error);
// Reads a tensor of dtype F32 with exactly this shape; anything else is an error that names the tensor and both shapes.
int safetensors_read_f32(float *out, const SafeFile *file, const char *name, size_t n_dims, const size_t *shape, Error *error);

typedef struct SafeTensorOut {
    const char *name;
    size_t n_dims;
    const size_t *shape;
    const float *data;
} SafeTensorOut;

// Writes F32 tensors in the order given, with optional metadata pairs {key, value, key, value, ..., NULL}; fsyncs the file.
// Not atomic by itself: the caller writes to a temporary place. Returns 0, or -1 with `error` set.
int safetensors_write(const char *path, const SafeTensorOut *tensors, size_t count, const char *const *metadata, Error *error);

#endif
