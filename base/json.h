// JSON through cJSON, with bounds: every getter checks presence, type and range, and names the key and the file in its error.
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/error.h"

// Parses a file of at most `max` bytes. Returns the tree (free with cJSON_Delete) or NULL with `error` set.
cJSON *json_read_file(const char *path, size_t max, Error *error);

// The tree as text that reads back with the same bits in every number; free with free(). NULL when out of memory.
char *json_to_text(const cJSON *json, bool pretty);

// Writes the tree to `path` atomically, indented when `pretty`. Returns 0, or -1 with `error` set.
int json_write_file(const char *path, const cJSON *json, bool pretty, Error *error);

// An integer within [min, max] (also when JSON writes it as 1e3). Missing, of another type, fractional or out of range: -1.
int json_get_int(const cJSON *object, const char *key, int64_t min, int64_t max, int64_t *value, Error *error);
int json_get_real(const cJSON *object, const char *key, double *value, Error *error);   // finite numbers only
int json_get_bool(const cJSON *object, const char *key, bool *value, Error *error);
// The string stays owned by the tree.
int json_get_string(const cJSON *object, const char *key, const char **value, Error *error);

#endif
