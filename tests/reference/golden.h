// Files in golden's format: inputs with outputs, end state and gradients known from elsewhere, for a mixer or a whole model.
//
//   mixer  {"meta": {mixer, T, d, m, N, objective, forget_gate, chunk, form, normalize}, "inputs": {q, k, v, g, mu, S0}, "do", "o", "grads", "state", "dstate"}
//          The rivals' inputs and gradients are those that they read: alpha (gla), W0, ln_w, ln_b (ttt, one norm for all heads); attention has no state.
//   model  {"meta": {"kind": "model", config, B, T}, "tokens": [B][T + 1], "params": {name: array}, "loss", "logits", "grads": {name: array}}
//   array  {"shape": [...], "data": [...]}, row-major; S0, state and dstate are [N, d, m]
#ifndef TESTS_REFERENCE_GOLDEN_H
#define TESTS_REFERENCE_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/error.h"
#include "tests/reference/mixer_case.h"
#include "tests/reference/reference.h"

// Allowed relative RMS errors: of the reference, whose inputs carry 12 digits, and of the fast code in f32.
#define GOLDEN_REFERENCE 1e-9
#define GOLDEN_FAST_OUTPUT 1e-5
#define GOLDEN_FAST_GRADIENT 1e-4

// A mixer file in the layout of this project (batch 1, N heads); arrays belong to the pool, strings to the JSON tree.
typedef struct GoldenMixer {
    MixerCase input;
    MixerResult expected;
} GoldenMixer;

// A model file; arrays belong to the pool. Free the table with tensor_table_free.
typedef struct GoldenModel {
    ModelConfig config;
    TensorTable table;
    size_t batch, length;
    int32_t *tokens, *targets;                  // [B, T]
    double *params, *grads;                     // arenas
    double *logits;                             // [B·T, V]
    double loss;                                // mean over B·T
} GoldenModel;

// Both check sizes and numbers of everything. Return 0, or -1 with `error` set and no table to free.
// A form that the reference cannot run is an error that begins with "not supported: ".
int golden_read_mixer(GoldenMixer *golden, Pool *pool, const cJSON *json, Error *error);
int golden_read_model(GoldenModel *golden, Pool *pool, const cJSON *json, Error *error);

// Checks a file: reference against file, and every instruction set that can run the same. Writes one line without newline, "NAME: errors: ok" or
// "NAME: ...: FAILED...", and returns whether it is ok. What cannot be read is FAILED.
bool golden_check(char *line, size_t line_size, const char *path);

#endif
