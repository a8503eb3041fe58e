#include "base/expand.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

#ifndef GLOB_BRACE
#define GLOB_BRACE 0   // an extension that some C libraries lack
#endif

enum { MAX_DEPTH = 64 };

// The folders that lead to the one being read: a link back to one of them must not be followed for ever.
typedef struct Ancestor {
    const struct Ancestor *parent;
    dev_t device;
    ino_t inode;
    size_t depth;
} Ancestor;

static bool is_ancestor(const Ancestor *folder, const struct stat *info)
{
    for (; folder != NULL; folder = folder->parent) {
        if (folder->device == info->st_dev && folder->inode == info->st_ino) {
            return true;
        }
    }
    return false;
}

// Where the files that are found go.
typedef struct Expansion {
    PathList *list, *rest;   // rest: what is not accepted; may be NULL
    bool (*accept)(const char *path);
} Expansion;

static int add_file(const Expansion *to, const char *path, Error *error)
{
    if (to->accept == NULL || to->accept(path)) {
        return path_list_add(to->list, path, error);
    }
    return to->rest != NULL ? path_list_add(to->rest, path, error) : 0;
}

static int add_folder(const Expansion *to, const char *path, const Ancestor *parent, Error *error)
{
    struct stat info;
    if (stat(path, &info) != 0 || is_ancestor(parent, &info)) {
        return 0;
    }
    Ancestor here = {parent, info.st_dev, info.st_ino, parent != NULL ? parent->depth + 1 : 0};
    if (here.depth > MAX_DEPTH) {
        return error_set(error, "%s: folders are nested more than %d deep", path, MAX_DEPTH);
    }
    PathList names = {0};
    int status = folder_list(&names, path, error);
    for (size_t i = 0; i < names.count && status == 0; i++) {
        if (names.items[i][0] == '.') {
            continue;
        }
        char *full = path_join(path, names.items[i]);
        if (full == NULL) {
            status = error_set(error, "out of memory while reading folder %s", path);
        } else if (file_is_folder(full)) {
            status = add_folder(to, full, &here, error);
        } else if (file_size(full) >= 0) {
            status = add_file(to, full, error);
        }
        free(full);
    }
    path_list_free(&names);
    return status;
}

// A path that exists: a file or a folder.
static int add_existing(const Expansion *to, const char *path, Error *error)
{
    PathList *list = to->list;
    if (file_is_folder(path)) {
        size_t first = list->count;
        if (add_folder(to, path, NULL, error)) {
            return -1;
        }
        if (list->count == first) {
            return error_set(error, "folder %s holds no file of a kind that can be read here: name the files themselves", path);
        }
        qsort(list->items + first, list->count - first, sizeof *list->items, path_compare);
        return 0;
    }
    if (file_size(path) < 0) {
        return file_check(path, error) ? -1 : error_set(error, "%s is not a regular file", path);
    }
    return path_list_add(list, path, error);
}

static int add_glob(const Expansion *to, const char *pattern, Error *error)
{
    glob_t matches = {0};
    int code = glob(pattern, GLOB_NOSORT | GLOB_BRACE, NULL, &matches);
    int status = 0;
    if (code == GLOB_NOSPACE) {
        status = error_set(error, "out of memory for the pattern %s", pattern);
    } else if (code != 0) {
        status = error_set(error, "nothing matches the pattern %s, or a folder on its way cannot be read", pattern);
    } else {
        qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, path_compare);
        for (size_t i = 0; i < matches.gl_pathc && status == 0; i++) {
            status = add_existing(to, matches.gl_pathv[i], error);
        }
    }
    globfree(&matches);
    return status;
}

int path_expand_with_rest(PathList *list, PathList *rest, char *const *arguments, size_t n_arguments, bool (*accept)(const char *path),
                          Error *error)
{
    const Expansion to = {list, rest, accept};
    for (size_t i = 0; i < n_arguments; i++) {
        int status;
        if (file_is_missing(arguments[i]) && strpbrk(arguments[i], "*?[{") != NULL) {
            status = add_glob(&to, arguments[i], error);
        } else {
            status = file_check(arguments[i], error) == 0 ? add_existing(&to, arguments[i], error) : -1;
        }
        if (status) {
            return -1;
        }
    }
    return 0;
}

int path_expand(PathList *list, char *const *arguments, size_t n_arguments, bool (*accept)(const char *path), Error *error)
{
    return path_expand_with_rest(list, NULL, arguments, n_arguments, accept, error);
}
