#include "infer/output.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"

// Whether writing `path`, or the temporary file beside it, would change `other`.
static bool would_change(const char *path, const char *temporary, const char *other)
{
    return file_is_same(path, other) || file_is_same(temporary, other);
}

static bool in_prepared_folder(const char *path)
{
    char *folder = path_folder(path);
    bool held = folder == NULL || folder_holds(folder, "prepare.json");   // in doubt nothing is overwritten
    free(folder);
    return held;
}

// What the folder of the file (of the one behind it, if it is a link) is, when nothing may be written there; else NULL.
static const char *forbidden_place(const char *path)
{
    char *real = realpath(path, NULL);
    const char *place = real != NULL ? real : path;
    const char *what = checkpoint_holds(place) ? "checkpoint" : in_prepared_folder(place) ? "folder of prepared data" : NULL;
    free(real);
    return what;
}

static int check_one(const OutputFile *outputs, size_t i, const char *temporary, char *const *inputs, size_t n_inputs, Error *error)
{
    const OutputFile *output = &outputs[i];
    if (file_check_output(output->path, error) != 0) {
        return error_prefix(error, "%s", output->flag);
    }
    const char *place = forbidden_place(output->path);
    if (place != NULL) {
        return error_set(error, "%s %s would write into a %s: name a file elsewhere", output->flag, output->path, place);
    }
    for (size_t k = 0; k < n_inputs; k++) {
        if (would_change(output->path, temporary, inputs[k])) {
            return error_set(error, "%s %s would overwrite the input %s: name another file", output->flag, output->path, inputs[k]);
        }
    }
    for (size_t k = 0; k < i; k++) {
        if (outputs[k].path != NULL && would_change(output->path, temporary, outputs[k].path)) {
            return error_set(error, "%s and %s both name the file %s: name two files", outputs[k].flag, output->flag, output->path);
        }
    }
    return 0;
}

int output_check(const OutputFile *outputs, size_t n_outputs, char *const *inputs, size_t n_inputs, Error *error)
{
    int result = 0;
    for (size_t i = 0; i < n_outputs && result == 0; i++) {
        if (outputs[i].path == NULL) {
            continue;
        }
        size_t size = strlen(outputs[i].path) + sizeof ".tmp";
        char *temporary = malloc(size);
        if (temporary == NULL) {
            return error_set(error, "out of memory");
        }
        snprintf(temporary, size, "%s.tmp", outputs[i].path);
        result = check_one(outputs, i, temporary, inputs, n_inputs, error);
        free(temporary);
    }
    return result;
}
