// What the arguments of a command line name: files, folders and globs.
#ifndef BASE_EXPAND_H
#define BASE_EXPAND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/path.h"

// Expands files, folders (recursively) and globs into a list of regular files, in order of the arguments, folders and globs sorted bytewise.
// Only files for which `accept(path)` is true are taken from folders (NULL: all; names starting with '.' never). An argument that names
// nothing, or a folder that holds nothing acceptable, is an error that says which.
int path_expand(PathList *list, char *const *arguments, size_t n_arguments, bool (*accept)(const char *path), Error *error);
// The same; the files of folders that are not accepted go to `rest`.
int path_expand_with_rest(PathList *list, PathList *rest, char *const *arguments, size_t n_arguments, bool (*accept)(const char *path),
                          Error *error);

#endif
