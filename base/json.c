#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static size_t line_of(const char *text, const char *place)
{
    size_t line = 1;
    for (const char *c = text; c < place; c++) {
        line += *c == '\n';
    }
    return line;
}

cJSON *json_read_file(const char *path, size_t max, Error *error)
{
    size_t size = 0;
    char *text = file_read(path, max, &size, error);
    if (text == NULL) {
        return NULL;
    }
    const char *end = text;
    errno = 0;
    cJSON *json = cJSON_ParseWithLengthOpts(text, size + 1, &end, true);
    if (json == NULL && file_shortage()) {
        error_set(error, "cannot read %s: out of memory", path);
    } else if (json == NULL || end != text + size) {
        bool empty = strspn(text, " \t\r\n") == size;
        error_set(error, "%s: line %zu is not valid JSON%s", path, line_of(text, end), empty ? " (the file is empty)" : "");
        cJSON_Delete(json);
        json = NULL;
    }
    free(text);
    return json;
}

// cJSON prints the shortest text that is equal within one epsilon; numbers for which that loses bits are spelled out.
static int make_exact(cJSON *item)
{
    for (; item != NULL; item = item->next) {
        if (item->child != NULL && make_exact(item->child)) {
            return -1;
        }
        if (!cJSON_IsNumber(item)) {
            continue;
        }
        char text[64];
        snprintf(text, sizeof text, "%.15g", item->valuedouble);
        if (!isfinite(item->valuedouble) || strtod(text, NULL) == item->valuedouble) {
            continue;
        }
        snprintf(text, sizeof text, "%.17g", item->valuedouble);
        cJSON *raw = cJSON_CreateRaw(text);
        if (raw == NULL) {
            return -1;
        }
        item->valuestring = raw->valuestring;
        item->type = cJSON_Raw;
        raw->valuestring = NULL;
        cJSON_Delete(raw);
    }
    return 0;
}

char *json_to_text(const cJSON *json, bool pretty)
{
    cJSON *copy = cJSON_Duplicate(json, true);
    char *text = NULL;
    if (copy != NULL && make_exact(copy) == 0) {
        text = pretty ? cJSON_Print(copy) : cJSON_PrintUnformatted(copy);
    }
    cJSON_Delete(copy);
    return text;
}

int json_write_file(const char *path, const cJSON *json, bool pretty, Error *error)
{
    char *text = json_to_text(json, pretty);
    if (text == NULL) {
        return error_set(error, "cannot write %s: out of memory", path);
    }
    size_t length = strlen(text);
    text[length] = '\n';   // the place of the NUL; the length is given, so none is needed
    int status = file_write_atomic(path, text, length + 1, error);
    free(text);
    return status;
}

static const char *kind_name(const cJSON *item)
{
    return cJSON_IsNumber(item) ? "a number" : cJSON_IsString(item) ? "a string" : cJSON_IsBool(item) ? "true or false"
           : cJSON_IsArray(item) ? "a list" : cJSON_IsObject(item) ? "an object" : "null";
}

static const cJSON *get(const cJSON *object, const char *key, Error *error)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL) {
        error_set(error, "\"%s\" is missing", key);
    }
    return item;
}

int json_get_int(const cJSON *object, const char *key, int64_t min, int64_t max, int64_t *value, Error *error)
{
    const cJSON *item = get(object, key, error);
    if (item == NULL) {
        return -1;
    }
    if (!cJSON_IsNumber(item)) {
        return error_set(error, "\"%s\" must be a whole number, not %s", key, kind_name(item));
    }
    double number = item->valuedouble;
    // Beyond 2^53 doubles skip integers: what was written can no longer be told.
    if (!(fabs(number) <= 0x1p53) || number != floor(number)) {
        return error_set(error, "\"%s\" is %.17g: it must be a whole number", key, number);
    }
    int64_t whole = (int64_t)number;
    if (whole < min || whole > max) {
        return error_set(error, "\"%s\" is %" PRId64 ": it must be from %" PRId64 " to %" PRId64, key, whole, min, max);
    }
    *value = whole;
    return 0;
}

int json_get_real(const cJSON *object, const char *key, double *value, Error *error)
{
    const cJSON *item = get(object, key, error);
    if (item == NULL) {
        return -1;
    }
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble)) {
        return error_set(error, "\"%s\" must be a finite number, not %s", key, cJSON_IsNumber(item) ? "infinite" : kind_name(item));
    }
    *value = item->valuedouble;
    return 0;
}

int json_get_bool(const cJSON *object, const char *key, bool *value, Error *error)
{
    const cJSON *item = get(object, key, error);
    if (item == NULL) {
        return -1;
    }
    if (!cJSON_IsBool(item)) {
        return error_set(error, "\"%s\" must be true or false, not %s", key, kind_name(item));
    }
    *value = cJSON_IsTrue(item);
    return 0;
}

int json_get_string(const cJSON *object, const char *key, const char **value, Error *error)
{
    const cJSON *item = get(object, key, error);
    if (item == NULL) {
        return -1;
    }
    if (!cJSON_IsString(item)) {
        return error_set(error, "\"%s\" must be a string, not %s", key, kind_name(item));
    }
    *value = item->valuestring;
    return 0;
}
