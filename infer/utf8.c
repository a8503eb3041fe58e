#include "infer/utf8.h"

// Length of the sequence that a lead byte announces; 0 for bytes that cannot lead one.
static size_t sequence_length(unsigned char lead)
{
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
        return 2;
    }
    if ((lead & 0xf0) == 0xe0) {
        return 3;
    }
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

size_t utf8_showable(const char *bytes, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char byte = (unsigned char)bytes[length - back];
        if ((byte & 0xc0) == 0x80) {
            continue;
        }
        return sequence_length(byte) > back ? length - back : length;
    }
    return length;
}
