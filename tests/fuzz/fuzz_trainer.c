// Any bytes as the trainer.json of a checkpoint, as log.jsonl and as a value of --data. What is accepted keeps its promises. The manifest
// is tried as it is, and as a good one around the tree of the input, so that the fuzzer gets past the checksum.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "data/loader.h"
#include "training/log.h"
#include "training/mix.h"
#include "training/snapshot.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_parts(const cJSON *json, size_t count)
{
    Error error = {""};
    uint32_t *parts = NULL;
    if (snapshot_parts(&parts, count, json, &error) != 0) {
        check(error.text[0] != 0 && parts == NULL);
        return;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < count && parts != NULL; i++) {
        check(parts[i] > 0);
        sum += parts[i];
    }
    check(sum <= LOADER_MAX_PARTS);
    free(parts);
}

static void try_snapshot(const cJSON *json)
{
    static TrainSettings settings;
    Error error = {""};
    int64_t step;
    size_t count = 0;
    Trainer trainer = {.step = -1};
    if (snapshot_restore(&trainer, json, &error) == 0) {
        check(trainer.step >= 0 && trainer.optimizer.updates <= trainer.step && trainer.skipped_in_row <= TRAINER_MAX_SKIPPED);
        check(snapshot_step(&step, json, &error) == 0 && step == trainer.step);
    } else {
        check(error.text[0] != 0);
    }
    const DataIdentity identity = {.tokens = 1000, .windows = 10, .fingerprint = 1, .tokenizer_hash = 2};
    (void)snapshot_check_data(json, &identity, &error);
    (void)snapshot_prepared(json);
    char **arguments = snapshot_arguments(&count, json, &error);
    if (arguments != NULL) {
        check(count > 0 && snapshot_check_arguments(json, arguments, count, &error) == 0);
        try_parts(json, count);
    }
    free(arguments);
    settings_init(&settings);
    if (settings_restore(&settings, json, &error) == 0) {
        check(settings.optimizer != NULL && settings.schedule != NULL && settings.dtype != NULL);
    }
    settings_free(&settings);
}

static void try_log(const char *folder, const char *path, const uint8_t *data, size_t size)
{
    Error error = {""};
    TrainLog log;
    check(file_write_atomic(path, data, size, &error) == 0);
    check(train_log_open(&log, folder, size > 0 ? data[0] % 16 : 1, &error) == 0);
    check(log.bytes >= 0 && (uint64_t)log.bytes <= size && file_size(path) == log.bytes);
    train_log_close(&log);
}

// The input cut at line ends are values of --data.
static void try_mix(const uint8_t *data, size_t size)
{
    PathList list = {0};
    Error error = {""};
    double weights[8];
    uint32_t parts[8];
    char *text = strndup((const char *)data, size), *rest = text;
    check(text != NULL);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL && list.count < 8; line = strtok_r(NULL, "\n", &rest)) {
        check(path_list_add(&list, line, &error) == 0);
    }
    if (list.count > 0 && mix_parse(weights, &list, &error) == 0 && weights[0] > 0.0) {
        uint64_t sum = 0;
        mix_parts(parts, weights, list.count);
        for (size_t i = 0; i < list.count; i++) {
            check(list.items[i][0] != 0 && parts[i] > 0);
            sum += parts[i];
        }
        check(sum <= LOADER_MAX_PARTS);
    }
    path_list_free(&list);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[FOLDER_BYTES], *trainer, *log;
    Error error = {""};
    if (trainer == NULL) {
        fuzz_folder(folder);
        trainer = path_join(folder, "trainer.json");
        log = path_join(folder, "log.jsonl");
        check(trainer != NULL && log != NULL);
    }
    check(file_write_atomic(trainer, data, size, &error) == 0);
    cJSON *read = manifest_read(folder, &error);
    check(read != NULL || error.text[0] != 0);
    cJSON_Delete(read);
    (void)manifest_check(folder, true, true, &error);
    cJSON *json = json_read_file(trainer, 1 << 20, &error);
    if (json != NULL) {
        try_snapshot(json);
        if (cJSON_IsObject(json) && manifest_write(folder, json, &error) == 0) {
            cJSON *again = manifest_read(folder, &error);
            check(again != NULL);
            cJSON_Delete(again);
            (void)manifest_check(folder, false, false, &error);
        }
    }
    cJSON_Delete(json);
    try_log(folder, log, data, size);
    try_mix(data, size);
    return 0;
}
