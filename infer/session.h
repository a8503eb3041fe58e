// The state of sequences while a model reads and writes them: a prompt goes in as matrices, then one token a step; the memory can be saved
// and restored.
//
// A session always knows the logits of the token that comes next, so whoever holds one needs nothing else to go on. Its size does not grow
// with the text.
//
//     Session *session = session_create(&model, 1, 0, &error);
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
    float *states;                 // [capacity, model->state.total]
    float *logits;                 // [capacity, vocab_size] of the next token; meaningless while position is 0
} Session;

// A session of one fresh sequence with room for `capacity` (at least 1). piece 0: SESSION_PIECE. The model's weights may change between
// calls (sampling during training: session_reset after each change); its shape and place may not. Returns NULL with `error` set when memory
// is short.
Session *session_create(const Model *model, size_t capacity, size_t piece, Error *error);
void session_free(Session *session);   // NULL is allowed

// Back to one sequence at the start, position 0.
void session_reset(Session *session);

// Reads `count` tokens (any number, 0 too) into the only sequence, in matrices of up to `piece` tokens. The batch must be 1 and every token
// in 0 … vocab_size−1 (asserted). Afterwards session_logits gives the logits after the last token.
void session_feed(Session *session, const int32_t *tokens, size_t count);

// Copies the only sequence, with its logits, so that `batch` (1 … capacity) equal ones live; the batch must be 1 (asserted).
void session_fork(Session *session, size_t batch);

// Reads one token for each sequence: tokens [batch].
void session_step(Session *session, const int32_t *tokens);

// Logits [vocab_size] of the next token of a sequence; NULL while nothing has been read. Valid until the session changes.
const float *session_logits(const Session *session, size_t sequence);

// Writes the first sequence to a state file (safetensors): the tensors of model->state by name, "logits", and metadata with format,
// version, model hash, position, a checksum, and `note`, a text of the caller's that comes back on load (NULL: none). Atomic: the old file
// stays until the new one is complete. A session that has read nothing cannot be saved. Returns 0, or -1 with `error` set.
int session_save(const Session *session, const char *path, const char *note, Error *error);

// Replaces the session by the one sequence of a state file, at a cost that does not depend on its position. Another model's file, an
// altered or truncated one, another version: refused, and the session is as before. `note`, if not NULL, receives the caller's text in a
// buffer to free ("" if there was none). Returns 0, or -1 with `error` set.
int session_load(Session *session, const char *path, char **note, Error *error);

#endif
