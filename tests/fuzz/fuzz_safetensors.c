// Fuzz target: any bytes as a safetensors file. What opens must also be readable, tensor by tensor.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Error error;
    int fd = memfd_create("input", 0);
    if (fd < 0 || file_write_all(fd, data, size, "input", &error)) {
        abort();
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    SafeFile file;
    if (safetensors_open(&file, path, &error) == 0) {
        for (size_t i = 0; i < file.count; i++) {
            const SafeTensor *tensor = &file.items[i];
            // The header has been checked against the file, so this is at most the size of the input.
            if (tensor->end - tensor->begin > size) {
                abort();
            }
            float *out = malloc((size_t)(tensor->end - tensor->begin) + 1);
            if (out == NULL || safetensors_find(&file, tensor->name) != tensor) {
                abort();
            }
            int status = safetensors_read_f32(out, &file, tensor->name, tensor->n_dims, tensor->shape, &error);
            if (status == 0 && tensor->count * sizeof(float) != tensor->end - tensor->begin) {
                abort();
            }
            free(out);
        }
        safetensors_metadata(&file, "format");
        safetensors_close(&file);
    }
    close(fd);
    return 0;
}
