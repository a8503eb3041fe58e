// What the tests of checkpoints share: a folder, a tiny model, what a path resolves to. Functions end the test through cmocka.
#ifndef TESTS_CHECKPOINT_H
#define TESTS_CHECKPOINT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"

static char root[256];

// A path below the tests' folder; the last few stay valid.
static inline const char *at(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline const char *at(const char *format, ...)
{
    static char paths[8][512];
    static size_t next;
    char name[200], *path = paths[next++ % 8];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static inline int make_root(void **state)
{
    (void)state;
    Error error;
    return folder_temporary(root, sizeof root, &error);
}

static inline int drop_root(void **state)
{
    (void)state;
    Error error;
    return folder_remove(root, &error);
}

static inline ModelConfig tiny_config(bool tied)
{
    ModelConfig config;
    Error error;
    assert_int_equal(config_preset(&config, "nano", &error), 0);
    config.vocab_size = 50;
    config.d_model = 12;
    config.n_layer = 2;
    config.n_head = 2;
    config.d_head = 6;
    config.n_slot = 5;
    config.mlp_hidden = 16;
    config.tie_embeddings = tied;
    return config;
}

static inline void make_model(Model *model, const ModelConfig *config, uint64_t seed)
{
    Error error;
    const Kernels *kernels = kernels_select(&error);
    assert_non_null(kernels);
    assert_int_equal(model_create(model, config, kernels, &error), 0);
    Rng rng;
    rng_seed(&rng, seed, 0);
    for (size_t i = 0; i < model->table.total; i++) {
        model->params[i] = (float)rng_normal(&rng);
    }
}

static inline void save(const Model *model, const char *out, int64_t step)
{
    CheckpointSource source = {.model = model};
    Error error = {""};
    if (checkpoint_save(&source, out, step, &error)) {
        fail_msg("%s", error.text);
    }
}

static inline void assert_same_params(const Model *a, const Model *b)
{
    assert_int_equal(a->table.total, b->table.total);
    assert_memory_equal(a->params, b->params, a->table.total * sizeof *a->params);
}

// Loads what a path resolves to and compares it with the model.
static inline void assert_loads(const char *path, const Model *expected)
{
    Error error = {""}, note;
    char *folder = checkpoint_resolve(path, &note, &error);
    if (folder == NULL) {
        fail_msg("%s", error.text);
    }
    Model loaded;
    assert_int_equal(checkpoint_load_model(&loaded, expected->kernels, folder, &error), 0);
    assert_same_params(expected, &loaded);
    model_free(&loaded);
    free(folder);
}

static inline void assert_resolves_to(const char *path, const char *name, const char *note_says)
{
    Error error = {""}, note;
    char *folder = checkpoint_resolve(path, &note, &error);
    if (folder == NULL) {
        fail_msg("%s", error.text);
    }
    assert_string_equal(path_base(folder), name);
    if (note_says == NULL) {
        assert_string_equal(note.text, "");
    } else {
        assert_non_null(strstr(note.text, note_says));
    }
    free(folder);
}

#endif
