// Text that arrives in pieces: where it can be cut so that no character is torn.
#ifndef INFER_UTF8_H
#define INFER_UTF8_H

#include <stddef.h>

// How many of the leading bytes may be shown now: all of them, except a UTF-8 sequence at the end that is valid so far and lacks bytes (at
// most 3 are held back). Invalid bytes are never held back.
size_t utf8_showable(const char *bytes, size_t length);

#endif
