#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian and is used as it lies in the file");

enum {
    MAX_HEADER = 16 << 20,   // bytes of JSON; its tree in memory takes up to some forty times as much
    PREFIX = 8,              // bytes of the header's length
};

typedef struct DtypeSize {
    const char *name;
    size_t bytes;
} DtypeSize;

static const DtypeSize dtype_sizes[] = {
    {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},
    {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

static size_t dtype_bytes(const char *dtype)
{
    for (size_t i = 0; i < sizeof dtype_sizes / sizeof dtype_sizes[0]; i++) {
        if (strcmp(dtype, dtype_sizes[i].name) == 0) {
            return dtype_sizes[i].bytes;
        }
    }
    return 0;
}

// a·b, or -1 when that does not fit.
static int multiply(size_t *result, size_t a, size_t b) { return __builtin_mul_overflow(a, b, result) ? -1 : 0; }

// ---- opening ----

// A list entry as a whole number from 0 to 2^53; -1 for anything else.
static int get_entry(const cJSON *item, uint64_t *value)
{
    double number = cJSON_IsNumber(item) ? item->valuedouble : -1.0;
    if (!(number >= 0.0 && number <= 0x1p53) || number != floor(number)) {
        return -1;
    }
    *value = (uint64_t)number;
    return 0;
}

static int parse_shape(SafeTensor *tensor, const cJSON *shape, Error *error)
{
    if (!cJSON_IsArray(shape)) {
        return error_set(error, "tensor %s has no list \"shape\"", tensor->name);
    }
    tensor->n_dims = 0;
    tensor->count = 1;
    for (const cJSON *item = shape->child; item != NULL; item = item->next) {
        uint64_t size = 0;
        if (tensor->n_dims == SAFETENSORS_MAX_DIMS) {
            return error_set(error, "tensor %s has more than %d dimensions", tensor->name, SAFETENSORS_MAX_DIMS);
        }
        if (get_entry(item, &size) || size > SIZE_MAX || multiply(&tensor->count, tensor->count, (size_t)size)) {
            return error_set(error, "the shape of tensor %s is negative, fractional or too large", tensor->name);
        }
        tensor->shape[tensor->n_dims++] = (size_t)size;
    }
    return 0;
}

static int parse_tensor(SafeTensor *tensor, const cJSON *item, uint64_t data_bytes, Error *error)
{
    tensor->name = item->string;
    const char *dtype = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "dtype"));
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    if (dtype == NULL || dtype_bytes(dtype) == 0) {
        return error_set(error, "tensor %s has the unknown dtype \"%s\"", tensor->name, dtype != NULL ? dtype : "");
    }
    snprintf(tensor->dtype, sizeof tensor->dtype, "%s", dtype);
    if (parse_shape(tensor, cJSON_GetObjectItemCaseSensitive(item, "shape"), error)) {
        return -1;
    }
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || get_entry(offsets->child, &tensor->begin) ||
        get_entry(offsets->child->next, &tensor->end) || tensor->begin > tensor->end || tensor->end > data_bytes) {
        return error_set(error, "the data_offsets of tensor %s do not lie within the file (%llu bytes of data)", tensor->name,
                         (unsigned long long)data_bytes);
    }
    size_t bytes = 0;
    if (multiply(&bytes, tensor->count, dtype_bytes(dtype)) || bytes != tensor->end - tensor->begin) {
        return error_set(error, "tensor %s takes %llu bytes, which is not what its shape and dtype need", tensor->name,
                         (unsigned long long)(tensor->end - tensor->begin));
    }
    return 0;
}

static int check_metadata(const cJSON *metadata, Error *error)
{
    if (!cJSON_IsObject(metadata)) {
        return error_set(error, "__metadata__ is not an object");
    }
    for (const cJSON *item = metadata->child; item != NULL; item = item->next) {
        if (!cJSON_IsString(item)) {
            return error_set(error, "__metadata__ \"%s\" is not a string", item->string);
        }
    }
    return 0;
}

static int compare_begins(const void *a, const void *b)
{
    const SafeTensor *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return (x->end > y->end) - (x->end < y->end);
}

static int compare_names(const void *a, const void *b) { return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name); }

// The tensors must tile the data part, and no name may stand twice. Leaves them sorted by name.
static int check_layout(SafeFile *file, uint64_t data_bytes, Error *error)
{
    qsort(file->items, file->count, sizeof *file->items, compare_begins);
    uint64_t place = 0;
    for (size_t i = 0; i < file->count; i++) {
        if (file->items[i].begin != place) {
            return error_set(error, "tensor %s %s the data before it", file->items[i].name,
                             file->items[i].begin < place ? "overlaps" : "leaves a hole behind");
        }
        place = file->items[i].end;
    }
    if (place != data_bytes) {
        return error_set(error, "%llu bytes stand behind the last tensor", (unsigned long long)(data_bytes - place));
    }
    qsort(file->items, file->count, sizeof *file->items, compare_names);
    for (size_t i = 1; i < file->count; i++) {
        if (strcmp(file->items[i - 1].name, file->items[i].name) == 0) {
            return error_set(error, "tensor %s stands in the header twice", file->items[i].name);
        }
    }
    return 0;
}

// Reads and parses the JSON behind the length. The tree is left in file->header.
static int read_header(SafeFile *file, uint64_t file_bytes, Error *error)
{
    unsigned char prefix[PREFIX];
    if (file_bytes < PREFIX + 2) {
        return error_set(error, "%llu bytes are too few for a safetensors file: it was cut short or is something else",
                         (unsigned long long)file_bytes);
    }
    if (file_read_at(file->fd, prefix, PREFIX, 0, file->path, error)) {
        return -1;
    }
    uint64_t length = 0;
    for (int i = PREFIX - 1; i >= 0; i--) {
        length = length << 8 | prefix[i];
    }
    if (length < 2 || length > file_bytes - PREFIX || length > MAX_HEADER) {
        return error_set(error, "the header's length %llu does not fit a safetensors file of %llu bytes: it was cut short or is something else",
                         (unsigned long long)length, (unsigned long long)file_bytes);
    }
    char *text = malloc((size_t)length + 1);
    if (text == NULL) {
        return error_set(error, "out of memory for a header of %llu bytes", (unsigned long long)length);
    }
    int status = file_read_at(file->fd, text, (size_t)length, PREFIX, file->path, error);
    if (status == 0) {
        const char *end = text;
        text[length] = 0;
        errno = 0;
        file->header = text[0] == '{' ? cJSON_ParseWithLengthOpts(text, (size_t)length + 1, &end, true) : NULL;
        if (!cJSON_IsObject(file->header) || end != text + length) {
            status = error_set(error, "%s", file->header == NULL && file_shortage() ? "out of memory for the header"
                                            : "the header is not a JSON object: the file is damaged or is something else");
        }
    }
    free(text);
    file->data_start = PREFIX + length;
    return status;
}

static int parse_header(SafeFile *file, uint64_t data_bytes, Error *error)
{
    size_t n_items = (size_t)cJSON_GetArraySize(file->header);
    file->items = calloc(n_items > 0 ? n_items : 1, sizeof *file->items);
    if (file->items == NULL) {
        return error_set(error, "out of memory for %zu tensors", n_items);
    }
    bool metadata_seen = false;
    for (const cJSON *item = file->header->child; item != NULL; item = item->next) {
        if (strcmp(item->string, "__metadata__") == 0) {
            if (metadata_seen || check_metadata(item, error)) {
                return metadata_seen ? error_set(error, "__metadata__ stands in the header twice") : -1;
            }
            metadata_seen = true;
        } else {
            if (parse_tensor(&file->items[file->count], item, data_bytes, error)) {
                return -1;
            }
            file->count++;
        }
    }
    return check_layout(file, data_bytes, error);
}

int safetensors_open(SafeFile *file, const char *path, Error *error)
{
    struct stat info;
    *file = (SafeFile){.path = strdup(path)};
    file->fd = file_open(path, O_RDONLY);
    if (file->fd < 0 || fstat(file->fd, &info) != 0) {
        error_set(error, "cannot open %s: %s", path, strerror(errno));
    } else if (file->path == NULL) {
        error_set(error, "cannot open %s: out of memory", path);
    } else if (!S_ISREG(info.st_mode)) {
        error_set(error, "%s is not a regular file", path);
    } else if (read_header(file, (uint64_t)info.st_size, error) == 0 &&
               parse_header(file, (uint64_t)info.st_size - file->data_start, error) == 0) {
        return 0;
    } else {
        error_prefix(error, "%s", path);
    }
    safetensors_close(file);
    return -1;
}

void safetensors_close(SafeFile *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    cJSON_Delete(file->header);
    free(file->items);
    free(file->path);
    *file = (SafeFile){.fd = -1};
}

// ---- reading ----

const SafeTensor *safetensors_find(const SafeFile *file, const char *name)
{
    SafeTensor key = {.name = name};
    return file->count > 0 ? bsearch(&key, file->items, file->count, sizeof *file->items, compare_names) : NULL;
}

const char *safetensors_metadata(const SafeFile *file, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(file->header, "__metadata__"), key));
}

static void shape_text(char *text, size_t size, size_t n_dims, const size_t *shape)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (size_t i = 0; i < n_dims && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%zu", i > 0 ? ", " : "", shape[i]);
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
}

int safetensors_check_f32(const SafeFile *file, const char *name, size_t n_dims, const size_t *shape, Error *error)
{
    const SafeTensor *tensor = safetensors_find(file, name);
    if (tensor == NULL) {
        return error_set(error, "%s: tensor %s is missing", file->path, name);
    }
    if (tensor->n_dims != n_dims || (n_dims > 0 && memcmp(tensor->shape, shape, n_dims * sizeof *shape) != 0)) {
        char found[192], wanted[192];
        shape_text(found, sizeof found, tensor->n_dims, tensor->shape);
        shape_text(wanted, sizeof wanted, n_dims, shape);
        return error_set(error, "%s: tensor %s has shape %s, expected %s", file->path, name, found, wanted);
    }
    if (strcmp(tensor->dtype, "F32") != 0) {
        return error_set(error, "%s: tensor %s has dtype %s, expected F32", file->path, name, tensor->dtype);
    }
    return 0;
}

int safetensors_read_f32(float *out, const SafeFile *file, const char *name, size_t n_dims, const size_t *shape, Error *error)
{
    if (safetensors_check_f32(file, name, n_dims, shape, error)) {
        return -1;
    }
    const SafeTensor *tensor = safetensors_find(file, name);
    return file_read_at(file->fd, out, tensor->count * sizeof *out, file->data_start + tensor->begin, file->path, error);
}

// ---- writing ----

static int add_metadata(cJSON *header, const char *const *metadata)
{
    if (metadata == NULL || metadata[0] == NULL) {
        return 0;
    }
    cJSON *object = cJSON_AddObjectToObject(header, "__metadata__");
    for (; object != NULL && metadata[0] != NULL; metadata += 2) {
        if (cJSON_AddStringToObject(object, metadata[0], metadata[1]) == NULL) {
            return -1;
        }
    }
    return object != NULL ? 0 : -1;
}

// Adds a tensor's entry; *place moves behind its data.
static int add_tensor(cJSON *header, const SafeTensorOut *tensor, size_t *place)
{
    cJSON *object = cJSON_AddObjectToObject(header, tensor->name);
    cJSON *dtype = cJSON_AddStringToObject(object, "dtype", "F32");
    cJSON *shape = cJSON_AddArrayToObject(object, "shape");
    cJSON *offsets = cJSON_AddArrayToObject(object, "data_offsets");
    size_t bytes = sizeof *tensor->data, end = 0;
    bool good = dtype != NULL && shape != NULL && offsets != NULL;
    for (size_t i = 0; i < tensor->n_dims && good; i++) {
        good = multiply(&bytes, bytes, tensor->shape[i]) == 0 && cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[i]));
    }
    good = good && !__builtin_add_overflow(*place, bytes, &end) && end <= (size_t)1 << 50;   // 15 digits: exact in cJSON's numbers
    good = good && cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*place)) &&
           cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)end));
    *place = end;
    return good ? 0 : -1;
}

// The length and the padded JSON in a buffer to free; NULL when out of memory or too large.
static char *make_header(const SafeTensorOut *tensors, size_t count, const char *const *metadata, size_t *size)
{
    cJSON *header = cJSON_CreateObject();
    int status = header != NULL ? add_metadata(header, metadata) : -1;
    size_t place = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        status = add_tensor(header, &tensors[i], &place);
    }
    char *json = status == 0 ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    size_t length = json != NULL ? strlen(json) : 0, padded = (length + 7) / 8 * 8;
    char *buffer = json != NULL && padded <= MAX_HEADER ? malloc(PREFIX + padded) : NULL;
    if (buffer != NULL) {
        for (size_t i = 0; i < PREFIX; i++) {
            buffer[i] = (char)(unsigned char)((uint64_t)padded >> (8 * i));
        }
        memcpy(buffer + PREFIX, json, length);
        memset(buffer + PREFIX + length, ' ', padded - length);
        *size = PREFIX + padded;
    }
    cJSON_free(json);
    return buffer;
}

static size_t element_count(const SafeTensorOut *tensor)
{
    size_t count = 1;
    for (size_t i = 0; i < tensor->n_dims; i++) {
        count *= tensor->shape[i];   // cannot overflow: make_header has checked it
    }
    return count;
}

int safetensors_write(const char *path, const SafeTensorOut *tensors, size_t count, const char *const *metadata, Error *error)
{
    size_t size = 0;
    char *header = make_header(tensors, count, metadata, &size);
    if (header == NULL) {
        return error_set(error, "cannot write %s: out of memory, or too many tensors for one file", path);
    }
    int fd = file_open(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) {
        free(header);
        return error_set(error, "cannot create %s: %s", path, strerror(errno));
    }
    int status = file_write_all(fd, header, size, path, error);
    for (size_t i = 0; i < count && status == 0; i++) {
        status = file_write_all(fd, tensors[i].data, element_count(&tensors[i]) * sizeof(float), path, error);
    }
    if (status == 0) {
        status = file_sync(fd, path, error);
    }
    if (close(fd) != 0 && status == 0) {
        status = error_set(error, "cannot write %s: %s", path, strerror(errno));
    }
    free(header);
    return status;
}
