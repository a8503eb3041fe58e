// Any bytes as a token shard: opened or refused, and all tokens and windows read.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/loader.h"
#include "data/shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const char *path)
{
    Error error;
    Shard shard;
    if (shard_open(&shard, path, &error) != 0) {
        return;
    }
    int32_t *ids = malloc((size_t)shard.count * sizeof *ids + 1);
    if (ids == NULL) {
        abort();
    }
    shard_read(&shard, ids, 0, (size_t)shard.count);
    free(ids);
    shard_close(&shard);
    PathList list = {0};
    if (path_list_add(&list, path, &error) != 0) {
        abort();
    }
    Loader *loader = loader_create(&list, 3, 1, 0, 1000, &error);
    if (loader != NULL) {
        int32_t tokens[3], targets[3];
        for (uint64_t i = 0; i < 2 * loader_windows(loader); i++) {
            (void)loader_window(loader, tokens, targets, i, &error);
        }
        loader_free(loader);
    }
    path_list_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("shard", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        abort();
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_all(path);
    close(fd);
    return 0;
}
