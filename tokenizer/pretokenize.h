// Cuts text into pre-tokens: merges never cross the border between two of them. The patterns that most tokenizers have are matched by hand:
//
//   GPT-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   Llama-3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   Qwen-2   the same with \p{N} in place of \p{N}{1,3}
//
// PCRE2 says which characters are letters and numbers. Text that is not valid UTF-8 works too: it is taken as maximal valid runs, each
// matched as if it were alone, and each run of invalid bytes between them is one pre-token. Other patterns are in pattern.h.
#ifndef TOKENIZER_PRETOKENIZE_H
#define TOKENIZER_PRETOKENIZE_H

#include <stddef.h>

#include "base/error.h"
#include "tokenizer/characters.h"

typedef enum PretokenPattern { PRETOKENIZE_GPT2, PRETOKENIZE_LLAMA3, PRETOKENIZE_QWEN2 } PretokenPattern;

// A cursor over one text, with the table of character classes it has looked up so far. One thread uses it at a time.
typedef struct Pretokenizer Pretokenizer;

// Returns NULL with `error` set when out of memory.
Pretokenizer *pretokenizer_create(PretokenPattern pattern, Error *error);
void pretokenizer_free(Pretokenizer *pretokenizer);

// Starts on a text, which must stay as it is until the last pretokenizer_next().
void pretokenizer_start(Pretokenizer *pretokenizer, const char *text, size_t length);

// Returns the length of the next pre-token and points `token` into the text; 0 at the end. The pre-tokens in a row are the text.
size_t pretokenizer_next(Pretokenizer *pretokenizer, const char **token);

// A place at which a text may be cut so that both parts alone give the pre-tokens of the whole, with each of these patterns: before a '\n' or
// '\r' that follows an ASCII letter or digit, or a space between ASCII letters; the last such place at or before `wanted` if there is one, else
// the first one behind it. Returns 0 when there is none. tokenizer_cut (bpe.h) says whether a tokenizer's text may be cut at all.
size_t pretokenize_cut(const char *text, size_t length, size_t wanted);

#endif
