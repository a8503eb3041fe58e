// What the tests of sessions and of perplexity share: a small random model with a tokenizer of its own, and a folder. Functions end the test through cmocka.
#ifndef TESTS_INFER_H
#define TESTS_INFER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/rng.h"
#include "model/model.h"
#include "tokenizer/bpe_train.h"

static const char TEXT[] = "One morning the fox went down to the river, and the river said: come in, come in! The fox did not. "
                           "He sat on a stone in the sun and thought about the morning, the river and the hen. It was a very long morning; "
                           "the sun went up and up. ";

typedef struct Fixture {
    Tokenizer *tokenizer;
    Model model;
    char folder[256];
} Fixture;

// Larger than the usual start values, so that what comes next depends on what was read.
static inline void fill_model(Model *model, uint64_t seed)
{
    model_init(model, seed, 64);
    for (size_t i = 0; i < model->table.count; i++) {
        const Tensor *tensor = &model->table.items[i];
        for (size_t j = 0; j < tensor->count && tensor->is_matrix; j++) {
            model->params[tensor->offset + j] *= 8.0f;
        }
    }
}

// A small model's configuration, of Lattice.
static inline ModelConfig infer_config(size_t vocab)
{
    Error error;
    ModelConfig config;
    assert_int_equal(config_preset(&config, "nano", &error), 0);
    config.vocab_size = (int64_t)vocab;
    config.d_model = 32;
    config.n_layer = 2;
    config.n_head = 2;
    config.d_head = 12;
    config.n_slot = 9;
    config.mlp_hidden = 40;
    return config;
}

static inline void make_model_of(Model *model, const ModelConfig *config, uint64_t seed)
{
    Error error;
    const Kernels *kernels = kernels_select(&error);
    assert_non_null(kernels);
    if (model_create(model, config, kernels, &error) != 0) {
        fail_msg("%s", error.text);
    }
    fill_model(model, seed);
}

static inline void make_model(Model *model, size_t vocab, uint64_t seed)
{
    ModelConfig config = infer_config(vocab);
    make_model_of(model, &config, seed);
}

// The same with other mixers, which need m = d where they are attention.
static inline void make_mixer_model(Model *model, size_t vocab, const char *mixer, uint64_t seed)
{
    ModelConfig config = infer_config(vocab);
    snprintf(config.mixer, sizeof config.mixer, "%s", mixer);
    config.n_slot = config.d_head;
    make_model_of(model, &config, seed);
}

static inline int set_up(void **state)
{
    Fixture *fixture = calloc(1, sizeof *fixture);
    Error error;
    BpeTrainer *trainer = bpe_trainer_create(&error);
    assert_non_null(trainer);
    assert_int_equal(bpe_trainer_add(trainer, 0, TEXT, strlen(TEXT), &error), 0);
    fixture->tokenizer = bpe_trainer_finish(trainer, 300, &error);
    bpe_trainer_free(trainer);
    assert_non_null(fixture->tokenizer);
    make_model(&fixture->model, tokenizer_vocab_size(fixture->tokenizer), 1);
    assert_int_equal(folder_temporary(fixture->folder, sizeof fixture->folder, &error), 0);
    *state = fixture;
    return 0;
}

static inline int tear_down(void **state)
{
    Fixture *fixture = *state;
    Error error;
    assert_int_equal(folder_remove(fixture->folder, &error), 0);
    tokenizer_free(fixture->tokenizer);
    model_free(&fixture->model);
    free(fixture);
    return 0;
}

#endif
