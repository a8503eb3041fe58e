#include "training/mix.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader.h"

#define MIN_WEIGHT 1e-9
#define MAX_WEIGHT 1e9

// Cuts the weight off one text; *weight is 0 when there is none.
static int cut_weight(double *weight, char *text, Error *error)
{
    *weight = 0.0;
    char *colon = strrchr(text, ':');
    if (file_exists(text) || colon == NULL) {
        return 0;
    }
    char *end = NULL;
    double value = strtod(colon + 1, &end);
    bool number = end != colon + 1 && *end == 0;
    if (!number) {
        // A path may have a colon in it: what is behind it is told to be no weight only where there would be a path without it.
        *colon = 0;
        bool meant = file_exists(text);
        *colon = ':';
        return meant ? error_set(error, "'%s' ends with no weight: write PATH:NUMBER, such as books:0.7", text) : 0;
    }
    if (!(value >= MIN_WEIGHT && value <= MAX_WEIGHT)) {
        return error_set(error, "'%s': the weight must be above 0 (from %g to %g); leave a source out that is not wanted", text, MIN_WEIGHT,
                         MAX_WEIGHT);
    }
    *weight = value;
    *colon = 0;
    return text[0] != 0 ? 0 : error_set(error, "':%s' names no path in front of its weight", colon + 1);
}

int mix_parse(double *weights, PathList *data, Error *error)
{
    for (size_t i = 0; i < data->count; i++) {
        if (cut_weight(&weights[i], data->items[i], error)) {
            return -1;
        }
        if ((weights[i] > 0.0) != (weights[0] > 0.0)) {
            return error_set(error, "'%s' has %s weight, '%s' has %s: give every source a weight, or none of them", data->items[0],
                             weights[0] > 0.0 ? "a" : "no", data->items[i], weights[i] > 0.0 ? "one" : "none");
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(data->items[i], data->items[j]) == 0 || file_is_same(data->items[i], data->items[j])) {
                return error_set(error, "'%s' is given twice: give it once, with the sum of the weights", data->items[i]);
            }
        }
    }
    return 0;
}

// Whether all weights times `scale` are whole numbers with a sum that is not too large.
static bool is_whole(const double *weights, size_t count, double scale)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        double part = weights[i] * scale;
        if (part < 0.5 || fabs(part - round(part)) > 1e-9 * part) {
            return false;
        }
        sum += part;
    }
    return sum <= LOADER_MAX_PARTS;
}

void mix_parts(uint32_t *parts, const double *weights, size_t count)
{
    double scale = 1.0, sum = 0.0;
    while (scale < 1e7 && !is_whole(weights, count, scale)) {
        scale *= 10.0;
    }
    for (size_t i = 0; i < count; i++) {
        sum += weights[i];
    }
    if (scale >= 1e7) {
        scale = 0x1p30 / sum;
    }
    for (size_t i = 0; i < count; i++) {
        double part = round(weights[i] * scale);
        parts[i] = part < 1.0 ? 1 : (uint32_t)part;
    }
}
