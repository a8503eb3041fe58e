#include "tokenizer/characters.h"

#include <string.h>

size_t utf8_length(const unsigned char *p, const unsigned char *end)
{
    size_t left = (size_t)(end - p);
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] < 0xC2 || p[0] > 0xF4 || left < 2) {
        return 0;
    }
    unsigned low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) {
        return 0;
    }
    size_t length = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (left < length) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return length;
}

const unsigned char *utf8_valid_end(const unsigned char *p, const unsigned char *end)
{
    while (p < end) {
        uint64_t eight;
        while (end - p >= 8 && (memcpy(&eight, p, 8), (eight & UINT64_C(0x8080808080808080)) == 0)) {
            p += 8;
        }
        if (p == end) {
            break;
        }
        size_t length = utf8_length(p, end);
        if (length == 0) {
            break;
        }
        p += length;
    }
    return p;
}

const unsigned char *utf8_invalid_end(const unsigned char *p, const unsigned char *end)
{
    while (p < end && utf8_length(p, end) == 0) {
        p++;
    }
    return p;
}

size_t utf8_valid_length(const char *text, size_t length)
{
    const unsigned char *start = (const unsigned char *)text;
    return length == 0 ? 0 : (size_t)(utf8_valid_end(start, start + length) - start);
}

size_t utf8_put(unsigned char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (unsigned char)(0xC0 | code >> 6);
        out[1] = (unsigned char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (unsigned char)(0xE0 | code >> 12);
        out[1] = (unsigned char)(0x80 | (code >> 6 & 63));
        out[2] = (unsigned char)(0x80 | (code & 63));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | code >> 18);
    out[1] = (unsigned char)(0x80 | (code >> 12 & 63));
    out[2] = (unsigned char)(0x80 | (code >> 6 & 63));
    out[3] = (unsigned char)(0x80 | (code & 63));
    return 4;
}

bool is_white_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == 32 || code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A)
           || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}
