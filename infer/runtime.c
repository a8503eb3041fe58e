#include "infer/runtime.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/file.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"

static void set_threads(int64_t threads)
{
#ifdef _OPENMP
    if (threads > 0) {
        omp_set_num_threads((int)threads);
    }
#else
    if (threads > 1) {
        fprintf(stderr, "this build has no OpenMP: it runs on one thread\n");
    }
#endif
}

// The checkpoint's own tokenizer, or the one given for a checkpoint without. Returns 0 with *tokenizer NULL where there is neither.
static int choose_tokenizer(Tokenizer **tokenizer, const char *folder, const char *given, Error *error)
{
    char *own = path_join(folder, "tokenizer.json");
    if (own == NULL) {
        return error_set(error, "out of memory");
    }
    bool has_own = file_exists(own);
    const char *path = has_own ? own : given;
    *tokenizer = path != NULL ? tokenizer_load(path, error) : NULL;
    int result = path == NULL || *tokenizer != NULL ? 0 : -1;
    free(own);
    if (result != 0 || !has_own || given == NULL) {
        return result;
    }
    Tokenizer *other = tokenizer_load(given, error);
    bool same = other != NULL && tokenizer_hash(other) == tokenizer_hash(*tokenizer);
    if (other != NULL && !same) {
        error_set(error, "--tokenizer %s is not the one that %s was trained with, which lies in it: leave --tokenizer out", given, folder);
    }
    tokenizer_free(other);
    return same ? 0 : -1;
}

static int load_tokenizer(Runtime *runtime, const char *given, Error *error)
{
    if (choose_tokenizer(&runtime->tokenizer, runtime->folder, given, error) != 0) {
        return -1;
    }
    if (runtime->tokenizer != NULL && tokenizer_vocab_size(runtime->tokenizer) > (size_t)runtime->model.config.vocab_size) {
        return error_set(error, "%s: the tokenizer has %zu tokens but the model only %lld: they do not belong together", runtime->folder,
                         tokenizer_vocab_size(runtime->tokenizer), (long long)runtime->model.config.vocab_size);
    }
    return 0;
}

// Converts the weights; states saved with them are this checkpoint's all the same.
static int pack(Model *model, const char *folder, WeightType type, Error *error)
{
    if (type == WEIGHTS_F32) {
        return 0;
    }
    return checkpoint_model_hash(&model->hash, model, error) == 0 && model_pack(model, type, error) == 0 ? 0 : error_prefix(error, "%s", folder);
}

int runtime_open(Runtime *runtime, const char *checkpoint, const char *tokenizer, WeightType type, int64_t threads, Error *error)
{
    memset(runtime, 0, sizeof *runtime);
    set_threads(threads);
    const Kernels *kernels = kernels_select(error);
    if (kernels == NULL) {
        return -1;
    }
    Error note = {""};
    runtime->folder = checkpoint_resolve_model(checkpoint, &note, error);
    if (runtime->folder == NULL) {
        return -1;
    }
    if (note.text[0] != '\0') {
        fprintf(stderr, "%s\n", note.text);
    }
    if (checkpoint_load_model(&runtime->model, kernels, runtime->folder, error) != 0) {
        free(runtime->folder);
        runtime->folder = NULL;
        return -1;
    }
    if (load_tokenizer(runtime, tokenizer, error) != 0 || pack(&runtime->model, runtime->folder, type, error) != 0) {
        runtime_close(runtime);
        runtime->folder = NULL;
        return -1;
    }
    char path[96], parameters[32];
    fprintf(stderr, "%s; %s: %s parameters, %s\n", kernels_describe(path, kernels), runtime->folder,
            format_count(parameters, (double)runtime->model.table.total), weight_type_name(type));
    return 0;
}

void runtime_close(Runtime *runtime)
{
    tokenizer_free(runtime->tokenizer);
    model_free(&runtime->model);
    free(runtime->folder);
}
