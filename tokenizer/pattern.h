// Regular expressions that cut text, through PCRE2 with its just-in-time compiler where the processor has one. Patterns are written for
// the regular expressions of Rust or Oniguruma; what those read differently from PCRE2 is translated, or refused by name.
#ifndef TOKENIZER_PATTERN_H
#define TOKENIZER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

// A compiled pattern; many threads may use it at once.
typedef struct Pattern Pattern;

// Compiles a regular expression (at most 4,096 bytes), or with `literal` a plain string. Returns NULL with `error` set.
Pattern *pattern_create(const char *source, bool literal, Error *error);
void pattern_free(Pattern *pattern);

// A thread's scratch memory for matching.
typedef struct Matcher Matcher;
Matcher *matcher_create(Error *error);
void matcher_free(Matcher *matcher);

// Finds the first match in text [length], valid UTF-8, at or after `from`: 1 with its borders, 0 when there is none, -1 with `error` set
// when the pattern needs too much time or memory on this text.
int pattern_find(const Pattern *pattern, Matcher *matcher, const char *text, size_t length, size_t from, size_t *start, size_t *end,
                 Error *error);

#endif
