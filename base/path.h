// Names of files and folders, and lists of them.
#ifndef BASE_PATH_H
#define BASE_PATH_H

#include <stddef.h>

#include "base/error.h"

// "folder/name" in a fresh buffer to free; NULL when out of memory.
char *path_join(const char *folder, const char *name);

// The part behind the last '/'.
const char *path_base(const char *path);

// The folder that holds a file ("a/" of "a/b", "." of "b"), in a buffer to free; NULL when out of memory.
char *path_folder(const char *path);

// A growing list of strings, each owned.
typedef struct PathList {
    char **items;
    size_t count, capacity;
} PathList;

int path_list_add(PathList *list, const char *path, Error *error);   // copies `path`
void path_list_free(PathList *list);

// The bytewise order of two strings of such a list, for qsort.
int path_compare(const void *a, const void *b);

#endif
