// A growing text: JSON that is written without a tree of it.
#ifndef TOKENIZER_TEXT_BUILDER_H
#define TOKENIZER_TEXT_BUILDER_H

#include <stdbool.h>
#include <stddef.h>

// All zeros is an empty text. When memory runs out `failed` is set, and whatever follows does nothing.
typedef struct TextBuilder {
    char *bytes;      // NUL-terminated once something was added
    size_t used, capacity;
    bool failed;
} TextBuilder;

void text_add(TextBuilder *text, const char *bytes, size_t length);
void text_format(TextBuilder *text, const char *format, ...) __attribute__((format(printf, 2, 3)));   // up to 1,023 bytes

// A JSON string, in quotes. The bytes must be valid UTF-8.
void text_add_string(TextBuilder *text, const char *bytes, size_t length);

#endif
