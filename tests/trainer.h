// What the tests of the trainer and of its snapshots share: shards to train on, a loader of them and a mix. Functions end the test through cmocka.
#ifndef TESTS_TRAINER_H
#define TESTS_TRAINER_H

#include <stdbool.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/rng.h"
#include "data/loader.h"
#include "data/shards.h"
#include "training/trainer.h"

#include "tests/training.h"

#define END_OF_TEXT 3

// Two shards with patterns in them, so that there is something to learn and a window can lie in either.
static inline void make_shards(PathList *list, const char *folder)
{
    Error error;
    ShardWriter *writer = shard_writer_create(folder, "train", 1500, VOCAB, 0, &error);
    assert_non_null(writer);
    Rng rng;
    rng_seed(&rng, 5, 0);
    int32_t ids[2600];
    for (size_t i = 0; i < 2600; i++) {
        ids[i] = i % 3 == 0 ? (int32_t)rng_below(&rng, VOCAB) : (ids[i - 1] * 2 + 1) % VOCAB;
    }
    assert_ok(shard_writer_add(writer, ids, 2600, &error), &error);
    uint64_t total;
    size_t n_shards;
    assert_ok(shard_writer_close(writer, &total, &n_shards, &error), &error);
    assert_int_equal(n_shards, 2);
    char path[600];
    for (size_t i = 0; i < n_shards; i++) {
        snprintf(path, sizeof path, "%s/train_%06zu.bin", folder, i);
        assert_ok(path_list_add(list, path, &error), &error);
    }
}

typedef struct Fixture {
    char *folder;
    PathList shards;
    Loader *loader;
    Loader *mix;   // the two shards as two sources, three parts to one
} Fixture;

static inline Loader *make_mix(const Fixture *fixture)
{
    Error error;
    PathList one = {.items = fixture->shards.items, .count = 1}, other = {.items = fixture->shards.items + 1, .count = 1};
    const LoaderSource sources[] = {{"one", &one, 3}, {"other", &other, 1}};
    Loader *mix = loader_create_mix(sources, 2, SEQ_LEN, 3, 0, VOCAB, &error);
    assert_non_null(mix);
    return mix;
}

static inline int set_up(void **state)
{
    Fixture *fixture = calloc(1, sizeof *fixture);
    fixture->folder = make_folder();
    make_shards(&fixture->shards, fixture->folder);
    Error error;
    fixture->loader = loader_create(&fixture->shards, SEQ_LEN, 3, 0, VOCAB, &error);
    assert_non_null(fixture->loader);
    fixture->mix = make_mix(fixture);
    *state = fixture;
    return 0;
}

static inline int tear_down(void **state)
{
    Fixture *fixture = *state;
    loader_free(fixture->loader);
    loader_free(fixture->mix);
    path_list_free(&fixture->shards);
    remove_folder(fixture->folder);
    free(fixture);
    return 0;
}

static inline TrainerOptions tiny_options(OptimizerKind optimizer, size_t micro_batch, size_t n_micro)
{
    return (TrainerOptions){.micro_batch = micro_batch, .n_micro = n_micro, .seq_len = SEQ_LEN, .optimizer = optimizer, .weight_decay = 0.1,
                            .clip = 1.0, .seed = 1,
                            .schedule = {.kind = SCHEDULE_COSINE, .lr = 1e-2, .min_lr = 1e-3, .warmup = 2, .steps = 30}};
}

static inline StepResult steps(Trainer *trainer, int count)
{
    Error error;
    StepResult result = {0};
    for (int i = 0; i < count; i++) {
        assert_ok(trainer_step(trainer, &result, &error), &error);
        assert_false(result.skipped);
    }
    return result;
}

static inline void set_threads(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

#endif
