#include "training/outdir.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

// The step of a checkpoint's name, or -1 for other names.
static int64_t step_of(const char *name)
{
    if (strncmp(name, "step_", 5) != 0 || name[5] < '0' || name[5] > '9') {
        return -1;
    }
    char *end = NULL;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    return errno == 0 && *end == 0 ? step : -1;
}

int outdir_checkpoints(size_t *count, const char *out, Error *error)
{
    *count = 0;
    if (!file_is_folder(out)) {
        return 0;
    }
    PathList names = {0};
    int failed = folder_list(&names, out, error);
    for (size_t i = 0; i < names.count; i++) {
        *count += step_of(names.items[i]) >= 0;
    }
    path_list_free(&names);
    return failed;
}

static int set_aside(const char *out, const char *name, Error *error)
{
    char new_name[280];
    snprintf(new_name, sizeof new_name, "damaged_%s", name);
    char *from = path_join(out, name), *to = path_join(out, new_name);
    int failed = from == NULL || to == NULL ? error_set(error, "out of memory") : folder_remove(to, error);
    if (failed == 0 && rename(from, to) != 0) {
        failed = error_set(error, "%s: damaged, but cannot be renamed: %s", from, strerror(errno));
    }
    if (failed == 0) {
        fprintf(stderr, "%s is damaged and now called %s\n", from, new_name);
    }
    free(from);
    free(to);
    return failed;
}

int outdir_set_aside(const char *out, int64_t step, Error *error)
{
    PathList names = {0};
    int failed = folder_list(&names, out, error);
    for (size_t i = 0; i < names.count && failed == 0; i++) {
        if (step_of(names.items[i]) > step) {
            failed = set_aside(out, names.items[i], error);
        }
    }
    path_list_free(&names);
    return failed;
}
