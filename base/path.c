#include "base/path.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

char *path_join(const char *folder, const char *name)
{
    size_t a = strlen(folder), b = strlen(name);
    char *path = malloc(a + b + 2);
    if (path == NULL) {
        return NULL;
    }
    memcpy(path, folder, a);
    if (a > 0 && folder[a - 1] != '/') {
        path[a++] = '/';
    }
    memcpy(path + a, name, b + 1);
    return path;
}

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

char *path_folder(const char *path)
{
    size_t length = (size_t)(path_base(path) - path);
    return length > 0 ? strndup(path, length) : strdup(".");
}

int path_list_add(PathList *list, const char *path, Error *error)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity > 0 ? 2 * list->capacity : 16;
        char **items = capacity <= SIZE_MAX / sizeof *items ? realloc(list->items, capacity * sizeof *items) : NULL;
        if (items == NULL) {
            return error_set(error, "out of memory for a list of %zu names", capacity);
        }
        list->items = items;
        list->capacity = capacity;
    }
    char *copy = strdup(path);
    if (copy == NULL) {
        return error_set(error, "out of memory for a list of %zu names", list->count + 1);
    }
    list->items[list->count++] = copy;
    return 0;
}

void path_list_free(PathList *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (PathList){0};
}

int path_compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
