// What the tests of training share: a tiny model, settings from a command line, temporary folders. Functions end the test through cmocka.
#ifndef TESTS_TRAINING_H
#define TESTS_TRAINING_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/model.h"
#include "training/settings.h"

#define VOCAB 61
#define SEQ_LEN 24

static inline void assert_ok(int status, const Error *error)
{
    if (status != 0) {
        fail_msg("%s", error->text);
    }
}

static inline char *make_folder(void)
{
    char path[512];
    Error error;
    assert_ok(folder_temporary(path, sizeof path, &error), &error);
    return strdup(path);
}

static inline void remove_folder(char *folder)
{
    Error error;
    assert_ok(folder_remove(folder, &error), &error);
    free(folder);
}

static inline const Kernels *kernels(void)
{
    Error error;
    const Kernels *found = kernels_select(&error);
    assert_non_null(found);
    return found;
}

static inline ModelConfig tiny_config(void)
{
    ModelConfig config;
    Error error;
    assert_ok(config_preset(&config, "nano", &error), &error);
    config.vocab_size = VOCAB;
    config.d_model = 32;
    config.n_layer = 2;
    config.n_head = 2;
    config.d_head = config.n_slot = 16;
    config.mlp_hidden = 48;
    return config;
}

static inline double relative_rms(const float *a, const float *b, size_t n)
{
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / size);
}

static inline TrainSettings *parse(int argc, const char *const *argv)
{
    TrainSettings *settings = malloc(sizeof *settings);
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    for (int i = 0; i < argc; i++) {
        copy[i] = (char *)(uintptr_t)argv[i];
    }
    settings_init(settings);
    settings_parse(settings, argc, copy);
    return settings;
}

#define PARSE(...) parse((int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[]){__VA_ARGS__})

static inline void drop(TrainSettings *settings)
{
    free(settings->data - 1);
    settings_free(settings);
    free(settings);
}

#endif
