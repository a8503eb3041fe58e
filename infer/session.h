// The state of sequences while a model reads and writes them: a prompt goes in as matrices, then one token a step; the memory can be saved
// and restored.
//
// A session always knows the logits of the token that comes next, so whoever holds one needs nothing else to go on. Its size does not grow
// with the text, but for attention: room for the tokens that will come is made by session_reserve, up to the window.
//
//     Session *session = session_create(&model, 1, 0, &error);
//     session_reserve(session, n_prompt + n_more, &error);
//     session_feed(session, prompt, n_prompt);                    // the first token of a document is <|endoftext|>
//     for (...) { sampler_sample(&sampler, &token, session_logits(session, 0), &error); session_step(session, &token); }
//     session_free(session);
#ifndef INFER_SESSION_H
#define INFER_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

#define SESSION_PIECE 2048  // tokens of a prompt that go through the model at once, unless asked otherwise

typedef struct Session {
    const Model *model;
    Workspace *prompt_workspace;   // one sequence of `piece` tokens
    Workspace *step_workspace;     // `capacity` sequences of one token
    size_t capacity;               // sequences there is room for
    size_t piece;                  // longest matrix of a prompt, in tokens
    size_t batch;                  // sequences that live now, 1 … capacity
    size_t position;               // tokens that every one of them has seen
    StateLayout layout;            // of a state, for as many tokens as there is room for
    float *states;                 // [capacity, layout.table.total]
    float *logits;                 // [capacity, vocab_size] of the next token; meaningless while position is 0
} Session;

// A session of one fresh sequence with room for `capacity` (at least 1). piece 0: SESSION_PIECE. The model's weights may change between
// calls (sampling during training: session_reset after each change); its shape and place may not. Returns NULL with `error` set when memory
// is short. With attention there is room for one token.
Session *session_create(const Model *model, size_t capacity, size_t piece, Error *error);
void session_free(Session *session);   // NULL is allowed

// Makes room for `count` tokens more than have been read, for each sequence: attention keeps that many, until its window is full. Where no layer is
// attention, or the window is full, nothing happens. Returns 0, or -1 with `error` set (more memory than this machine has) and the session as before.
int session_reserve(Session *session, size_t count, Error *error);

// Back to one sequence at the start, position 0. The room stays.
void session_reset(Session *session);

// Reads `count` tokens (any number, 0 too) into the only sequence, in matrices of up to `piece` tokens. The batch must be 1 and every token
// in 0 … vocab_size−1, and there must be room for them (asserted). Afterwards session_logits gives the logits after the last token.
void session_feed(Session *session, const int32_t *tokens, size_t count);

// Copies the only sequence, with its logits, so that `batch` (1 … capacity) equal ones live; the batch must be 1 (asserted).
void session_fork(Session *session, size_t batch);

// Reads one token for each sequence: tokens [batch]. There must be room for it (asserted).
void session_step(Session *session, const int32_t *tokens);

// Logits [vocab_size] of the next token of a sequence; NULL while nothing has been read. Valid until the session changes.
const float *session_logits(const Session *session, size_t sequence);

// Writes the first sequence to a state file (safetensors): the tensors of its state by name, attention's as long as the tokens read need,
// "logits", and metadata with format, version, model hash, position, a checksum, and `note`, a text of the caller's that comes back on load
// (NULL: none). Atomic: the old file stays until the new one is complete. A session that has read nothing cannot be saved. Returns 0, or -1
// with `error` set.
int session_save(const Session *session, const char *path, const char *note, Error *error);

// Replaces the session by the one sequence of a state file, at a cost that does not depend on its position but for attention; then there is
// room for the tokens that it has read. Another model's file, an altered or truncated one, another version, tensors of other sizes: refused,
// and the session is as before. `note`, if not NULL, receives the caller's text in a buffer to free ("" if there was none). Returns 0, or -1
// with `error` set.
int session_load(Session *session, const char *path, char **note, Error *error);

#endif
