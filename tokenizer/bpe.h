// Byte-level BPE: text to ids and back. Any bytes can be encoded; decode(encode(x)) = x.
#ifndef TOKENIZER_BPE_H
#define TOKENIZER_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct Tokenizer Tokenizer;

// Loads a HuggingFace tokenizer.json (byte-level BPE with GPT-2's pattern; what is not supported is refused by the name of the field).
// Returns NULL with `error` set.
Tokenizer *tokenizer_load(const char *path, Error *error);
int tokenizer_save(const Tokenizer *tokenizer, const char *path, Error *error);
void tokenizer_free(Tokenizer *tokenizer);

size_t tokenizer_vocab_size(const Tokenizer *tokenizer);
int32_t tokenizer_end_of_text(const Tokenizer *tokenizer);   // id of <|endoftext|>
uint32_t tokenizer_hash(const Tokenizer *tokenizer);         // of everything that decides ids; never 0; stands in field 4 of shards
// The bytes of a token (not NUL-terminated); NULL for an id that does not exist. Special tokens give their text.
const char *tokenizer_token(const Tokenizer *tokenizer, int32_t id, size_t *length);

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
// id. Returns 0, or -1 with `error` set when out of memory or for a run of 2^31 bytes without a break.
int encoder_encode(Encoder *encoder, TokenList *list, const char *text, size_t length, int specials, Error *error);

#endif
