#include "tokenizer/json_fields.h"

#include <string.h>

int fields_check(const cJSON *object, const char *where, const char *const *known, Error *error)
{
    unsigned seen = 0;
    const cJSON *item;
    if (!cJSON_IsObject(object)) {
        return error_set(error, "%s must be an object", where);
    }
    cJSON_ArrayForEach(item, object) {
        unsigned k = 0;
        while (known[k] != NULL && strcmp(known[k], item->string) != 0) {
            k++;
        }
        if (known[k] == NULL) {
            return error_set(error, "%s has a field \"%.100s\", which is not supported", where, item->string);
        }
        if (seen & 1u << k) {
            return error_set(error, "%s has \"%s\" twice", where, item->string);
        }
        seen |= 1u << k;
    }
    return 0;
}

const cJSON *field(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

const char *field_text(const cJSON *object, const char *key)
{
    const cJSON *item = field(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

bool has_type(const cJSON *object, const char *type)
{
    return strcmp(field_text(object, "type"), type) == 0;
}

int field_switch(const cJSON *object, const char *key, bool otherwise, bool *value, Error *error)
{
    *value = otherwise;
    return field(object, key) != NULL ? json_get_bool(object, key, value, error) : 0;
}
