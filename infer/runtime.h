// What every program that uses a trained model does first: processor path, threads, checkpoint, tokenizer.
#ifndef INFER_RUNTIME_H
#define INFER_RUNTIME_H

#include <stdint.h>

#include "base/error.h"
#include "model/model.h"
#include "tokenizer/bpe.h"

typedef struct Runtime {
    char *folder;   // the checkpoint that was taken
    Model model;
    Tokenizer *tokenizer;
} Runtime;

// Sets the number of threads (0: all cores that the process may use), resolves CKPT (a checkpoint folder or a run's OUT), loads model and
// tokenizer, and checks that they fit each other. Says on standard error which kernels and which checkpoint are used. Returns 0, or -1 with
// `error` set, nothing to close and `folder` NULL.
int runtime_open(Runtime *runtime, const char *checkpoint, int64_t threads, Error *error);
void runtime_close(Runtime *runtime);

// "f32" is fine; "bf16" and "int8" are not in this version, anything else is unknown: -1 with `error` saying which.
int runtime_check_dtype(const char *dtype, Error *error);

#endif
