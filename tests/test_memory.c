// The memory of training: what ./train says it will need is what the system sees it take, and the presets stay within their limits.
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "data/shards.h"
#include "training/trainer.h"

#include "tests/training.h"

#define SHARD_TOKENS 20000
#define SHARE 0.10      // of the measured memory that the estimate may be off
// Bytes that it may be off in any case: libraries and stacks weigh more in a tiny model, and so do oneDNN's code and copies.
#ifdef WITH_ONEDNN
#define SLACK 16e6
#else
#define SLACK 6e6
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

// One shard in FOLDER/data.
static void make_shard(const char *folder)
{
    Error error;
    char data[600];
    snprintf(data, sizeof data, "%s/data", folder);
    assert_ok(folder_make(data, &error), &error);
    ShardWriter *writer = shard_writer_create(data, "train", SHARD_TOKENS, VOCAB, 0, &error);
    assert_non_null(writer);
    Rng rng;
    rng_seed(&rng, 7, 0);
    for (size_t i = 0; i < SHARD_TOKENS; i++) {
        int32_t id = (int32_t)rng_below(&rng, VOCAB);
        assert_ok(shard_writer_add(writer, &id, 1, &error), &error);
    }
    assert_ok(shard_writer_close(writer, NULL, NULL, &error), &error);
}

// Runs a command of at most 30 words with standard error in a file. Returns the most memory that it held, in bytes; ends the test if it fails.
static double run_child(const char *const *words, const char *messages)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (freopen(messages, "w", stderr) != NULL) {
            execv(words[0], (char *const *)(uintptr_t)words);
        }
        _exit(127);
    }
    int status = 0;
    struct rusage usage;
    assert_true(wait4(child, &status, 0, &usage) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        size_t size;
        Error error;
        char *text = file_read(messages, 1 << 20, &size, &error);
        fail_msg("%s ends with status %d: %s", words[0], status, text != NULL ? text : "");
    }
#ifdef __APPLE__
    return (double)usage.ru_maxrss;
#else
    return (double)usage.ru_maxrss * 1024.0;
#endif
}

// The size in a line "memory      12.3 MB WORD…" among the messages, in bytes.
static double said_size(const char *messages, const char *word)
{
    static const struct { const char *name; double bytes; } units[] = {{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
    FILE *file = fopen(messages, "r");
    assert_non_null(file);
    char line[512], unit[8], found[32];
    double size = -1.0, number;
    while (fgets(line, sizeof line, file) != NULL) {
        for (size_t i = 0; i < 3 && sscanf(line, "memory %lf %7s %31[a-z]", &number, unit, found) == 3; i++) {
            if (strcmp(unit, units[i].name) == 0 && strcmp(found, word) == 0) {
                size = number * units[i].bytes;
            }
        }
    }
    fclose(file);
    if (size < 0.0) {
        fail_msg("./train does not say \"memory … %s\"", word);
    }
    return size;
}

// One short run; `flags` end with NULL. The folder keeps its checkpoints, so that the next call may resume.
static void check_run(const char *name, const char *folder, const char *out, const char *const *flags)
{
    const char *program_dir = getenv("PROGRAM_DIR");
    char train[300], data[600], run[600], messages[600];
    snprintf(train, sizeof train, "%strain", program_dir == NULL || program_dir[0] == 0 ? "./" : program_dir);
    snprintf(data, sizeof data, "%s/data", folder);
    snprintf(run, sizeof run, "%s/%s", folder, out);
    snprintf(messages, sizeof messages, "%s/messages", folder);
    if (access(train, X_OK) != 0) {
        fail_msg("%s is not built: `make` first", train);
    }
    const char *words[30] = {train, data, "--out", run, "--threads", "2", "--eval-every", "0"};
    size_t n = 8;
    for (; *flags != NULL; flags++) {
        assert_true(n < 29);
        words[n++] = *flags;
    }
    double peak = run_child(words, messages), needed = said_size(messages, "needed"), said = said_size(messages, "at");
    double allowed = SHARE * peak > SLACK ? SHARE * peak : SLACK;
    if (!(fabs(needed - peak) <= allowed)) {
        fail_msg("%s: the estimate is %.1f MB, the run took %.1f MB", name, needed / 1e6, peak / 1e6);
    }
    if (!(fabs(said - peak) <= 0.02 * peak)) {
        fail_msg("%s: the run says that it took %.1f MB, it took %.1f MB", name, said / 1e6, peak / 1e6);
    }
}

#define FLAGS(...) (const char *const[]){__VA_ARGS__, NULL}

static void test_estimate(void **state)
{
    (void)state;
    if (SANITIZED) {
        printf("skipped: measured memory against the estimate, because the sanitizer's own memory is in it\n");
        return;
    }
    char *folder = make_folder();
    make_shard(folder);
    setenv("OMP_WAIT_POLICY", "passive", 1);   // other programs may want the processors
    check_run("nano", folder, "kept", FLAGS("--vocab-size", "2048", "--seq-len", "512", "--batch-tokens", "2k", "--steps", "1"));
    check_run("nano, resumed", folder, "kept", FLAGS("--resume", "--steps", "2"));
    check_run("nano, recomputed", folder, "again", FLAGS("--vocab-size", "2048", "--seq-len", "512", "--batch-tokens", "2k", "--steps", "1", "--recompute"));
    check_run("nano, two micro-batches in bf16", folder, "bf16", FLAGS("--vocab-size", "300", "--seq-len", "256", "--micro-batch", "4", "--batch-tokens", "2k",
              "--steps", "1", "--dtype", "bf16"));
    check_run("nano in bf16, recomputed", folder, "bf16-again", FLAGS("--vocab-size", "2048", "--seq-len", "512", "--batch-tokens", "2k", "--steps", "1",
              "--dtype", "bf16", "--recompute"));
    check_run("wide, no MLP, gates", folder, "wide", FLAGS("--vocab-size", "9000", "--d-model", "256", "--n-layer", "3", "--n-head", "4", "--mlp-hidden", "0",
              "--forget-gate", "--no-tie-embeddings", "--seq-len", "1k", "--micro-batch", "1", "--batch-tokens", "1k", "--steps", "1", "--recompute"));
    remove_folder(folder);
}

static void test_limits(void **state)
{
    (void)state;
    static const struct { const char *preset; size_t batch; bool bf16, recompute; double most; } limits[] = {
        {"nano", 4, false, false, 0.25e9}, {"nano", 4, false, true, 0.12e9}, {"110m", 4, false, false, 6e9},
        {"110m", 4, false, true, 2.5e9},   {"110m", 8, false, true, 3.5e9},  {"110m", 4, true, false, 6e9},
        {"110m", 4, true, true, 3e9},      {"110m", 8, true, true, 3.5e9},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        Error error;
        ModelConfig config;
        TensorTable table;
        assert_ok(config_preset(&config, limits[i].preset, &error), &error);
        assert_ok(params_table(&table, &config, &error), &error);
        TrainerOptions options = {.micro_batch = limits[i].batch, .n_micro = 1, .seq_len = 1024, .bf16 = limits[i].bf16,
                                  .recompute = limits[i].recompute};
        bool panels = limits[i].bf16 && kernels_available()[0]->make_panels != NULL;
        double bytes = trainer_bytes(&config, &table, &options), arenas = (panels ? 19.9 : 16.0) * (double)table.total;
        if (!(bytes > arenas && bytes <= limits[i].most)) {
            fail_msg("%s, %zu × 1024%s%s: %.3g bytes, at most %.3g are wanted", limits[i].preset, limits[i].batch, limits[i].bf16 ? ", bf16" : "",
                     limits[i].recompute ? ", recomputed" : "", bytes, limits[i].most);
        }
        tensor_table_free(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_estimate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
