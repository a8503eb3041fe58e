#include "infer/runtime.h"

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

static Tokenizer *load_tokenizer(const char *folder, const Model *model, Error *error)
{
    char *path = path_join(folder, "tokenizer.json");
    if (path == NULL) {
        error_set(error, "out of memory");
        return NULL;
    }
    Tokenizer *tokenizer = NULL;
    if (!file_exists(path)) {
        error_set(error, "%s: missing: the checkpoint was saved without a tokenizer; copy the one it was trained with there", path);
    } else {
        tokenizer = tokenizer_load(path, error);
    }
    free(path);
    if (tokenizer != NULL && tokenizer_vocab_size(tokenizer) > (size_t)model->config.vocab_size) {
        error_set(error, "%s: the tokenizer has %zu tokens but the model only %lld: they do not belong together", folder,
                  tokenizer_vocab_size(tokenizer), (long long)model->config.vocab_size);
        tokenizer_free(tokenizer);
        return NULL;
    }
    return tokenizer;
}

int runtime_open(Runtime *runtime, const char *checkpoint, int64_t threads, Error *error)
{
    memset(runtime, 0, sizeof *runtime);
    set_threads(threads);
    const Kernels *kernels = kernels_select(error);
    if (kernels == NULL) {
        return -1;
    }
    Error note = {""};
    runtime->folder = checkpoint_resolve(checkpoint, &note, error);
    if (runtime->folder == NULL) {
        return -1;
    }
    if (note.text[0] != '\0') {
        fprintf(stderr, "%s\n", note.text);
    }
    bool has_model = checkpoint_load_model(&runtime->model, kernels, runtime->folder, error) == 0;
    if (has_model) {
        runtime->tokenizer = load_tokenizer(runtime->folder, &runtime->model, error);
    }
    if (runtime->tokenizer == NULL) {
        if (has_model) {
            model_free(&runtime->model);
        }
        free(runtime->folder);
        runtime->folder = NULL;
        return -1;
    }
    char path[96], parameters[32];
    fprintf(stderr, "%s; %s: %s parameters\n", kernels_describe(path, kernels), runtime->folder,
            format_count(parameters, (double)runtime->model.table.total));
    return 0;
}

void runtime_close(Runtime *runtime)
{
    tokenizer_free(runtime->tokenizer);
    model_free(&runtime->model);
    free(runtime->folder);
}

int runtime_check_dtype(const char *dtype, Error *error)
{
    if (strcmp(dtype, "f32") == 0) {
        return 0;
    }
    if (strcmp(dtype, "bf16") == 0 || strcmp(dtype, "int8") == 0) {
        return error_set(error, "--dtype %s is not in this version: use --dtype f32", dtype);
    }
    return error_set(error, "--dtype %s is unknown: use f32", dtype);
}
