// GPT-2's alphabet: each byte written as one visible character, so that tokens can stand in JSON.
#ifndef TOKENIZER_ALPHABET_H
#define TOKENIZER_ALPHABET_H

#include <stdint.h>

enum { ALPHABET_END = 256 + 68 };

typedef struct Alphabet {
    uint16_t code_of[256];            // by byte
    int16_t byte_of[ALPHABET_END];    // by character; −1: not in it
} Alphabet;

void alphabet_make(Alphabet *alphabet);

// Decodes a name into `bytes` (room for strlen(name)). Returns the number of bytes, or -1 if a character is not in the alphabet.
int64_t alphabet_decode(const Alphabet *alphabet, const char *name, char *bytes);

// Writes a byte's character, 1 or 2 bytes; returns its length.
int alphabet_put(const Alphabet *alphabet, unsigned char byte, char out[2]);

#endif
