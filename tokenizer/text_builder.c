#include "tokenizer/text_builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/byte_map.h"

void text_add(TextBuilder *text, const char *bytes, size_t length)
{
    if (text->failed || length > SIZE_MAX / 2 - text->used
        || array_reserve(&text->bytes, &text->capacity, text->used + length + 1, 1) != 0) {
        text->failed = true;
        return;
    }
    memcpy(text->bytes + text->used, bytes, length);
    text->used += length;
    text->bytes[text->used] = 0;
}

void text_format(TextBuilder *text, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line) {
        text->failed = true;
        return;
    }
    text_add(text, line, (size_t)length);
}

void text_add_string(TextBuilder *text, const char *bytes, size_t length)
{
    text_add(text, "\"", 1);
    size_t start = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 32 && c != '"' && c != '\\') {
            continue;
        }
        text_add(text, bytes + start, i - start);
        text_format(text, c >= 32 ? "\\%c" : "\\u%04x", c);
        start = i + 1;
    }
    text_add(text, bytes + start, length - start);
    text_add(text, "\"", 1);
}
