// Fields of a tokenizer.json: whatever is not known is refused, since it could change ids.
#ifndef TOKENIZER_JSON_FIELDS_H
#define TOKENIZER_JSON_FIELDS_H

#include <stdbool.h>

#include "base/json.h"

// Refuses keys that are not in `known` (at most 31, ends with NULL) and keys that come twice. `where` names the object in the error.
int fields_check(const cJSON *object, const char *where, const char *const *known, Error *error);

// The value of a key; NULL when it is absent or null.
const cJSON *field(const cJSON *object, const char *key);

// The string under a key, or "" when there is none.
const char *field_text(const cJSON *object, const char *key);

// True if "type" is the string `type`.
bool has_type(const cJSON *object, const char *type);

// A switch that may be absent; then it is `otherwise`.
int field_switch(const cJSON *object, const char *key, bool otherwise, bool *value, Error *error);

#endif
