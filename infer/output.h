// Files that a program will write when its work is done: looked at before the work begins.
#ifndef INFER_OUTPUT_H
#define INFER_OUTPUT_H

#include <stddef.h>

#include "base/error.h"

typedef struct OutputFile {
    const char *flag;   // "--csv", for messages
    const char *path;   // NULL: not asked for
} OutputFile;

// Refuses by name what could not be written at the end, or would destroy something: a folder that is missing or cannot be written; an
// output that is one of the `inputs` or another output (also by the temporary name PATH.tmp under which files are written); a file in a
// checkpoint or in a prepared folder. Nothing is made or changed. Returns 0, or -1 with `error` set.
int output_check(const OutputFile *outputs, size_t n_outputs, char *const *inputs, size_t n_inputs, Error *error);

#endif
