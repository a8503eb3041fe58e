// Cuts text into pre-tokens as GPT-2 does: merges never cross the border between two of them. The pattern is
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// It is matched by hand; PCRE2 says which characters are letters and numbers. Text that is not valid UTF-8 works too: it is taken as
// maximal valid runs, each matched as if it were alone, and each run of invalid bytes between them is one pre-token.
#ifndef TOKENIZER_PRETOKENIZE_H
#define TOKENIZER_PRETOKENIZE_H

#include <stddef.h>

#include "base/error.h"

// Sets of characters in PCRE2's syntax, for use inside [...]. \p{L} and \p{N} depend on the release of PCRE2, so what came with Unicode
// 15 and 16 is named. \s is spelled out as Unicode's White_Space: PCRE2's own also holds U+180E, and ids would differ from other programs'.
#define PRETOKENIZE_LETTERS                                                                                                          \
    "\\p{L}\\x{1c89}\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}"   \
    "\\x{10ec2}-\\x{10ec4}\\x{1123f}\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"      \
    "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}"               \
    "\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"               \
    "\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define PRETOKENIZE_NUMBERS                                                                                                          \
    "\\p{N}\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}"                 \
    "\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"
#define PRETOKENIZE_SPACES                                                                                                           \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

// A cursor over one text, with the table of character classes it has looked up so far. One thread uses it at a time.
typedef struct Pretokenizer Pretokenizer;

// Returns NULL with `error` set when out of memory.
Pretokenizer *pretokenizer_create(Error *error);
void pretokenizer_free(Pretokenizer *pretokenizer);

// Starts on a text, which must stay as it is until the last pretokenizer_next().
void pretokenizer_start(Pretokenizer *pretokenizer, const char *text, size_t length);

// Returns the length of the next pre-token and points `token` into the text; 0 at the end. The pre-tokens in a row are the text.
size_t pretokenizer_next(Pretokenizer *pretokenizer, const char **token);

// A place at which a text may be cut so that both parts alone give the pre-tokens of the whole: before a '\n' that follows a visible
// ASCII character, the last such place at or before `wanted` if there is one in the first `length` bytes, else the first one behind it.
// Returns 0 when there is none.
size_t pretokenize_cut(const char *text, size_t length, size_t wanted);

// Bytes at the start of the text that are valid UTF-8.
size_t utf8_valid_length(const char *text, size_t length);

#endif
