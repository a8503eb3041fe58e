// UTF-8, and Unicode's sets of characters as the reference tokenizers know them (Unicode 16).
#ifndef TOKENIZER_CHARACTERS_H
#define TOKENIZER_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { N_CODE_POINTS = 0x110000 };

// Length of the valid UTF-8 sequence at `p` < `end`, 0 if there is none (overlong forms, surrogates and values above U+10FFFF are invalid).
size_t utf8_length(const unsigned char *p, const unsigned char *end);

// End of the valid UTF-8 that starts at `p`.
const unsigned char *utf8_valid_end(const unsigned char *p, const unsigned char *end);

// End of the bytes that start no valid sequence, from `p` on.
const unsigned char *utf8_invalid_end(const unsigned char *p, const unsigned char *end);

// Bytes at the start of the text that are valid UTF-8.
size_t utf8_valid_length(const char *text, size_t length);

// Writes a code point; returns its length.
size_t utf8_put(unsigned char out[4], uint32_t code);

// The code point of a valid sequence whose first byte is not ASCII.
static inline uint32_t utf8_get(const unsigned char *p, size_t *length)
{
    if (p[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
    }
    if (p[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
    }
    *length = 4;
    return (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 | (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
}

// Unicode's White_Space.
bool is_white_space(uint32_t code);

// Sets of characters in PCRE2's syntax, for use inside [...]. \p{L} and the like depend on the release of PCRE2, so what came with Unicode
// 15 and 16 is named. \s is spelled out as Unicode's White_Space: PCRE2's own also holds U+180E, and ids would differ from other programs'.
#define CHARACTERS_SPACES                                                                                                                 \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define CHARACTERS_UPPER "\\p{Lu}\\x{1c89}\\x{a7cb}\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}"
#define CHARACTERS_LOWER "\\p{Ll}\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}"
#define CHARACTERS_MODIFIERS                                                                                                              \
    "\\p{Lm}\\x{10d4e}\\x{10d6f}\\x{16d40}-\\x{16d42}\\x{16d6b}\\x{16d6c}\\x{1e030}-\\x{1e06d}\\x{1e4eb}"
#define CHARACTERS_OTHER_LETTERS                                                                                                          \
    "\\p{Lo}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4d}\\x{10d4f}\\x{10ec2}-\\x{10ec4}\\x{1123f}\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}" \
    "\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}"                   \
    "\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d43}-\\x{16d6a}\\x{18cff}"       \
    "\\x{1b132}\\x{1b155}\\x{1e4d0}-\\x{1e4ea}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define CHARACTERS_LETTERS "\\p{Lt}" CHARACTERS_UPPER CHARACTERS_LOWER CHARACTERS_MODIFIERS CHARACTERS_OTHER_LETTERS
#define CHARACTERS_DIGITS                                                                                                                 \
    "\\p{Nd}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}"                    \
    "\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"
#define CHARACTERS_NUMBERS "\\p{N}" CHARACTERS_DIGITS "\\x{1d2c0}-\\x{1d2d3}"
#define CHARACTERS_MARKS                                                                                                                  \
    "\\p{M}\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113b8}-\\x{113c0}\\x{113c2}\\x{113c5}"         \
    "\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}\\x{113d2}\\x{113e1}\\x{113e2}\\x{11f00}\\x{11f01}\\x{11f03}\\x{11f34}-\\x{11f3a}"         \
    "\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}\\x{1e5ef}"
#define CHARACTERS_PUNCTUATION                                                                                                            \
    "\\p{P}\\x{1b4e}\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}\\x{113d5}\\x{113d7}\\x{113d8}\\x{11b00}-\\x{11b09}\\x{11be1}"                  \
    "\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}"
#define CHARACTERS_SYMBOLS                                                                                                                \
    "\\p{S}\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}\\x{31e5}\\x{31ef}\\x{10d8e}\\x{10d8f}\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ceb3}" \
    "\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}\\x{1f8c1}\\x{1fa75}-\\x{1fa77}"        \
    "\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}\\x{1facf}\\x{1fada}-\\x{1fadc}"        \
    "\\x{1fadf}\\x{1fae8}\\x{1fae9}\\x{1faf7}\\x{1faf8}\\x{1fbcb}-\\x{1fbef}"

#endif
