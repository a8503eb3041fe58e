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
    Tokenizer *tokenizer;   // NULL: the checkpoint has none
} Runtime;

// Sets the number of threads (0: all cores that the process may use), resolves CKPT (a checkpoint folder or a run's OUT), loads model and
// tokenizer, and checks that they fit each other. `tokenizer` (may be NULL) names a tokenizer for a checkpoint that has none; another than
// the checkpoint's own is refused. Weights of another type than f32 are converted
// and freed in f32 (model_pack). Says on standard error which kernels, weights and checkpoint are used. Returns 0, or -1 with `error` set,
// nothing to close and `folder` NULL.
int runtime_open(Runtime *runtime, const char *checkpoint, const char *tokenizer, WeightType type, int64_t threads, Error *error);
void runtime_close(Runtime *runtime);

#endif
