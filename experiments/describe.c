#include "experiments/describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// As few digits as give the same number back.
static int describe_real(char *text, size_t size, const char *name, double value)
{
    char digits[32];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    return snprintf(text, size, "%s=%s", name, digits);
}

int describe_flag(char *text, size_t size, const ArgSpec *spec)
{
    switch (spec->kind) {
    case ARG_SWITCH: return snprintf(text, size, "%s%s", spec->name, *(const bool *)spec->target ? "" : "=false");
    case ARG_SIZE:   return snprintf(text, size, "%s=%" PRId64, spec->name, *(const int64_t *)spec->target);
    case ARG_REAL:   return describe_real(text, size, spec->name, *(const double *)spec->target);
    case ARG_STRING: return snprintf(text, size, "%s=%s", spec->name, *(const char *const *)spec->target);
    case ARG_TEXT:   return snprintf(text, size, "%s=%s", spec->name, (const char *)spec->target);
    }
    return 0;
}

static bool has_column(const char *flag, const char *const *columns)
{
    while (*columns != NULL && strcmp(*columns, flag) != 0) {
        columns++;
    }
    return *columns != NULL;
}

static bool is_usual(const ArgSpec *spec, const ArgSpec *usual)
{
    char text[DESCRIBED_BYTES], other[DESCRIBED_BYTES];
    describe_flag(text, sizeof text, spec);
    describe_flag(other, sizeof other, usual);
    return strcmp(text, other) == 0;
}

int describe_mixer(char *text, size_t size, const char *mixer, const ArgSpec *specs, const ArgSpec *usual, size_t n_specs, const char *const *columns,
                   Error *error)
{
    size_t used = (size_t)snprintf(text, size, "%s", mixer);
    for (size_t i = 0; i < n_specs && used + 1 < size; i++) {
        if (specs[i].given && !has_column(specs[i].name, columns) && !is_usual(&specs[i], &usual[i])) {
            text[used++] = ' ';
            used += (size_t)describe_flag(text + used, size - used, &specs[i]);
        }
    }
    if (used + 1 >= size) {
        return error_set(error, "the mixer and its flags together are longer than %zu bytes: give fewer", size - 2);
    }
    for (char *at = text; *at != '\0'; at++) {
        *at = *at == ',' ? '+' : *at;
    }
    return 0;
}

size_t describe_memory(const TensorTable *state)
{
    size_t total = 0;
    for (size_t i = 0; i < state->count; i++) {
        total += strstr(state->items[i].name, "conv_tail") == NULL ? state->items[i].count : 0;
    }
    return total;
}
