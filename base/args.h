// Command lines: one table a program drives parsing, defaults, --help and the saved settings.
#ifndef BASE_ARGS_H
#define BASE_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct PathList;
struct cJSON;

typedef enum ArgKind {
    ARG_SWITCH,   // --name sets a bool; --no-name clears it; --name=true|false|1|0 too
    ARG_SIZE,     // int64_t; decimal with an optional suffix k, m, g (1,000-fold unless `binary`), e.g. 512k, 1.5m
    ARG_REAL,     // double
    ARG_STRING,   // const char * into argv
    ARG_TEXT,     // char[max]: a copy; what does not fit is wrong usage
} ArgKind;

typedef struct ArgSpec {
    const char *name;     // long name without dashes ("seq-len"); underscores on the command line count as dashes
    char short_name;      // 'p' for -p, or 0
    ArgKind kind;
    void *target;         // bool*, int64_t*, double*, const char ** or char *; holds the default before parsing
    const char *value;    // how --help names the value ("N", "DIR"); NULL for switches
    const char *help;     // one line
    double min, max;      // bounds of ARG_SIZE and ARG_REAL, both 0 = unbounded; of ARG_TEXT max is the size of the target
    bool binary;          // ARG_SIZE: k = 1,024 (context lengths) instead of 1,000 (token counts); ARG_STRING: a list of such sizes
    bool given;           // set by args_parse when it stood on the command line
    void (*choices)(char *text, size_t size);   // writes the names that --help lists behind `help`, where they stand in no constant; NULL: none
    struct PathList *list;   // ARG_STRING that may be given several times: receives every value, in order; else NULL: the last one counts
} ArgSpec;

typedef struct ArgProgram {
    const char *name;         // "train"
    const char *usage;        // "DATA... --out DIR [flags]"
    const char *description;  // some lines of text: what it does, an example
    ArgSpec *specs;
    size_t n_specs;
    size_t min_positional, max_positional;
} ArgProgram;

// Calls program_start (base/program.h), then parses argv[1..]. Flags and positionals may mix; `--` ends flags; `--name value` and `--name=value` both work.
// The positionals are moved, in order, to argv[1..*n_positional].
// On --help prints the help to stdout and exits 0, or 1 when that cannot be written. On wrong usage prints "error: ..." and a hint at --help to stderr
// and exits 2 (a near miss of a flag's name is suggested).
void args_parse(const ArgProgram *program, int argc, char **argv, size_t *n_positional);

// Prints usage, description, one line a flag with its default, and in which flags k, m and g are 1,024-fold.
void args_help(const ArgProgram *program, FILE *out);

// Parses a size such as "512k" or "1.5m"; thousand is 1000 or 1024. Returns 0, or -1 with `error` set.
int args_size(const char *text, int thousand, int64_t *value, Error *error);

// The values of all flags as a JSON object {"seq_len": 1024, ...}; caller frees with cJSON_Delete. NULL when out of memory.
// JSON numbers are doubles: a size above 2^53 (a seed) loses its last digits, so bound such flags.
struct cJSON *args_to_json(const ArgProgram *program);

// Prints "error: TEXT" to stderr; returns 1, the exit code of a failed program.
int args_fail(const Error *error);

// Prints "error: ..." and a hint at --help to stderr; exits 2.
void args_usage_error(const ArgProgram *program, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

#endif
