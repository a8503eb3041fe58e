// stories: writes the quickstart corpus, one JSON line a story (main).
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "data/story.h"

static void write_json_line(FILE *out, const char *text)
{
    fputs("{\"text\": \"", out);
    for (; *text != 0; text++) {
        if (*text == '"') {
            fputs("\\\"", out);
        } else if (*text == '\n') {
            fputs("\\n", out);
        } else {
            fputc(*text, out);
        }
    }
    fputs("\"}\n", out);
}

static int write_stories(FILE *out, const char *path, uint64_t documents, uint64_t seed, Error *error)
{
    Story *story = malloc(sizeof *story);
    if (story == NULL) {
        return error_set(error, "out of memory for a story");
    }
    for (uint64_t i = 0; i < documents && !ferror(out); i++) {
        story_tell(story, seed, i);
        write_json_line(out, story->text);
    }
    free(story);
    if (fflush(out) != 0 || ferror(out)) {
        return error_set(error, "cannot write %s: %s", path, strerror(errno));
    }
    return 0;
}

// The file gets its name only when it is complete.
static int write_file(const char *path, uint64_t documents, uint64_t seed, Error *error)
{
    char *temporary;
    if (asprintf(&temporary, "%s.tmp", path) < 0) {
        return error_set(error, "out of memory");
    }
    FILE *out = fopen(temporary, "wb");
    int result = out == NULL ? error_set(error, "cannot write %s: %s", temporary, strerror(errno)) : 0;
    if (out != NULL) {
        result = write_stories(out, temporary, documents, seed, error);
        if (fclose(out) != 0 && result == 0) {
            result = error_set(error, "cannot write %s: %s", temporary, strerror(errno));
        }
        if (result == 0 && rename(temporary, path) != 0) {
            result = error_set(error, "cannot write %s: %s", path, strerror(errno));
        }
        if (result != 0) {
            unlink(temporary);
        }
    }
    free(temporary);
    return result;
}

int main(int argc, char **argv)
{
    int64_t documents = 5000, seed = 1;
    const char *out = NULL;
    ArgSpec specs[] = {
        {.name = "documents", .short_name = 'n', .kind = ARG_SIZE, .target = &documents, .value = "N", .help = "number of stories",
         .min = 1, .max = 1e12},
        {.name = "seed", .kind = ARG_SIZE, .target = &seed, .value = "N", .help = "same seed, same stories", .min = 0, .max = 9e18},
        {.name = "out", .short_name = 'o', .kind = ARG_STRING, .target = &out, .value = "FILE",
         .help = "file to write (.jsonl); standard output if not given"},
    };
    ArgProgram program = {
        .name = "stories",
        .usage = "[--documents N] [--seed N] [--out FILE.jsonl]",
        .description = "Writes short English stories, one JSON line {\"text\": ...} each, whose endings need what was told at their beginnings.",
        .specs = specs,
        .n_specs = sizeof specs / sizeof specs[0],
    };
    size_t n_positional;
    args_parse(&program, argc, argv, &n_positional);
    Error error;
    int result = out == NULL ? write_stories(stdout, "standard output", (uint64_t)documents, (uint64_t)seed, &error)
                             : write_file(out, (uint64_t)documents, (uint64_t)seed, &error);
    return result == 0 ? 0 : args_fail(&error);
}
