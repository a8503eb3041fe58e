// BPE: text to ids and back. Any bytes can be encoded (a tokenizer that lacks bytes which are never in UTF-8 takes U+FFFD for them). Where
// the tokenizer neither normalises text (NFC, a space in front) nor swallows spaces beside added tokens, decode(encode(x)) = x.
#ifndef TOKENIZER_BPE_H
#define TOKENIZER_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct Tokenizer Tokenizer;

// Loads a tokenizer; its form is told by the content:
//   - HuggingFace's tokenizer.json with a BPE model, byte-level (GPT-2, GPT-NeoX, Llama-3, Qwen-2, ...) or of characters with bytes as
//     fallback (Llama-2, Mistral, ...). What is not supported is refused by the name of the field.
//   - tiktoken's rank files (a token in base64, a space, its rank, on each line). Which encoding it is, is told by the number of ranks:
//     gpt2 (r50k_base), p50k_base, cl100k_base, o200k_base, llama3, qwen, gpt-neox; others need tokenizer_load_as.
//   - GPT-2's pair vocab.json + merges.txt, or encoder.json + vocab.bpe: either is named, the other stands beside it.
//   - llama2.c's tokenizer.bin. Equal scores, which its trainer never writes, go by id.
// The other forms are turned into a tokenizer.json while they are read, so all behave as HuggingFace's library does with that file.
// The end-of-text token, which separates documents, is the first of these that the file has as an added token: <|endoftext|>,
// <|end_of_text|>, </s>, <|im_end|>, <|eot_id|>, <eos>, <|end▁of▁sentence|> (with U+FF5C too), [EOS], and "\n</s>\n" of llama2.c; a file
// without any is refused. Returns NULL with `error` set.
Tokenizer *tokenizer_load(const char *path, Error *error);

// The same for a rank file of which the encoding is known: one of the names above, or a regular expression that cuts text into pre-tokens.
// Special tokens come with the names; where the ranks are not those of the name, tokens in the file that are written <|...|> are special,
// and <|endoftext|> gets the first free id if it is not there. NULL as `pattern`: tokenizer_load.
Tokenizer *tokenizer_load_as(const char *path, const char *pattern, Error *error);

// Writes a tokenizer.json that tokenizer_load and HuggingFace's library read, with the same ids and hash: byte for byte the file it was
// loaded from if that was one. Checkpoints and shards keep a tokenizer this way. Returns 0, or -1 with `error` set.
int tokenizer_save(const Tokenizer *tokenizer, const char *path, Error *error);
void tokenizer_free(Tokenizer *tokenizer);

size_t tokenizer_vocab_size(const Tokenizer *tokenizer);     // largest id + 1
int32_t tokenizer_end_of_text(const Tokenizer *tokenizer);   // see tokenizer_load
uint32_t tokenizer_hash(const Tokenizer *tokenizer);         // of everything that decides ids; never 0; stands in field 4 of shards
// The bytes of a token as it is written out (not NUL-terminated); NULL for an id that does not exist. Special tokens give their text.
const char *tokenizer_token(const Tokenizer *tokenizer, int32_t id, size_t *length);
// 1 if decoding a whole text drops one space at its start (Llama-2's, which encoding puts there); else 0.
int tokenizer_strips_first_space(const Tokenizer *tokenizer);

// A place at which a document may be cut so that its parts alone give the ids of the whole, as pretokenize_cut (pretokenize.h) finds it; 0
// when there is none, or this tokenizer's texts cannot be cut at all (a space is put in front, an unknown pattern, added tokens with line ends
// or with words).
size_t tokenizer_cut(const Tokenizer *tokenizer, const char *text, size_t length, size_t wanted);

// A growing list of ids.
typedef struct TokenList {
    int32_t *ids;
    size_t count, capacity;
} TokenList;
void token_list_free(TokenList *list);

// A thread's scratch memory for encoding (pattern matcher, cache of pre-tokens). One tokenizer serves many encoders at once.
typedef struct Encoder Encoder;
Encoder *encoder_create(const Tokenizer *tokenizer, Error *error);
void encoder_free(Encoder *encoder);

// Appends the ids of text [length] to the list. With `specials`, the text of special tokens ("<|endoftext|>") becomes their id;
// without, it is plain text (documents and prompts are only data). Added tokens that the file does not call special always become their
// id. A run of more than 4 MB that nothing cuts is encoded in parts. Returns 0, or -1 with `error` set: out of memory, a pattern that needs too
// much time.
int encoder_encode(Encoder *encoder, TokenList *list, const char *text, size_t length, int specials, Error *error);

#endif
