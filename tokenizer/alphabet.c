#include "tokenizer/alphabet.h"

#include <stdbool.h>

// Visible Latin-1 stands for itself, the rest begins at U+0100.
void alphabet_make(Alphabet *a)
{
    uint16_t next = 256;
    for (int i = 0; i < ALPHABET_END; i++) {
        a->byte_of[i] = -1;
    }
    for (int byte = 0; byte < 256; byte++) {
        bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        a->code_of[byte] = visible ? (uint16_t)byte : next++;
        a->byte_of[a->code_of[byte]] = (int16_t)byte;
    }
}

int64_t alphabet_decode(const Alphabet *a, const char *name, char *bytes)
{
    int64_t count = 0;
    for (const unsigned char *p = (const unsigned char *)name; *p != 0;) {
        unsigned code = *p++;
        if (code >= 0x80) {
            if (code < 0xC2 || code > 0xDF || (*p & 0xC0) != 0x80) {
                return -1;
            }
            code = (code & 31) << 6 | (*p++ & 63);
        }
        if (code >= ALPHABET_END || a->byte_of[code] < 0) {
            return -1;
        }
        bytes[count++] = (char)a->byte_of[code];
    }
    return count;
}

int alphabet_put(const Alphabet *a, unsigned char byte, char out[2])
{
    unsigned code = a->code_of[byte];
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}
