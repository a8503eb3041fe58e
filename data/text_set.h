// The texts met so far, by their 128-bit hash (XXH3): memory does not depend on their length, it is 16 to 46 bytes a text.
#ifndef DATA_TEXT_SET_H
#define DATA_TEXT_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct TextSet TextSet;

TextSet *text_set_create(Error *error);   // NULL with `error` set when out of memory
void text_set_free(TextSet *set);         // NULL is allowed

// Adds a text; *is_new tells whether it was missing. Returns 0, or -1 with `error` set (out of memory).
int text_set_add(TextSet *set, const char *text, size_t length, bool *is_new, Error *error);

#endif
