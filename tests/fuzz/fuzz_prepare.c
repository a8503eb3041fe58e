// Any bytes as prepare.json and as the state of an unfinished ./prepare: what is accepted can be gone on with, and nothing else in the
// folder's neighbourhood is touched. The tree of the input is also tried with the request and the tokenizer that it should have.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/prepare_folder.h"
#include "data/where.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SHARD_TOKENS = 16 };

typedef struct Place {
    char folder[FOLDER_BYTES], *input, *json, *unfinished, *tokenizer;
    PrepareOptions options;
    cJSON *request;
    char hash[20];   // of the tokenizer's file
} Place;

static void make_place(Place *place)
{
    Error error = {""};
    PathList files = {0};
    uint64_t hash = 0;
    fuzz_folder(place->folder);
    place->input = path_join(place->folder, "input.txt");
    place->json = path_join(place->folder, "prepare.json");
    place->unfinished = path_join(place->folder, "prepare.unfinished");
    place->tokenizer = path_join(place->folder, "tokenizer.json");
    check(place->input != NULL && place->json != NULL && place->unfinished != NULL && place->tokenizer != NULL);
    check(file_write_atomic(place->input, "x", 1, &error) == 0 && path_list_add(&files, place->input, &error) == 0);
    prepare_defaults(&place->options);
    place->options.shard_tokens = SHARD_TOKENS;
    place->options.quiet = true;
    place->request = prepare_request(&files, &place->options, &error);
    check(place->request != NULL && file_write_atomic(place->tokenizer, "{}", 2, &error) == 0 && file_hash(place->tokenizer, &hash, &error) == 0);
    snprintf(place->hash, sizeof place->hash, "%016llx", (unsigned long long)hash);
    path_list_free(&files);
}

// Makes the folder that an unfinished run would have left, with a full shard and one of seven tokens.
static void make_shards(const Place *place)
{
    Error error = {""};
    ShardPosition position;
    const int32_t ids[SHARD_TOKENS + 7] = {1, 2, 3};
    check(prepare_folder_clear(place->folder, &error) == 0);
    ShardWriter *writer = shard_writer_create(place->folder, "train", SHARD_TOKENS, 300, 7, &error);
    check(writer != NULL && shard_writer_add(writer, ids, SHARD_TOKENS + 7, &error) == 0 && shard_writer_sync(writer, &position, &error) == 0);
    shard_writer_leave(writer);
}

static void try_resume(const Place *place, const PrepareState *state)
{
    Error error = {""};
    uint64_t total = 0;
    ShardWriter *writer = shard_writer_create(place->folder, "train", SHARD_TOKENS, 300, 7, &error);
    check(writer != NULL);
    if (shard_writer_resume(writer, &state->train_at, &error) != 0) {
        check(error.text[0] != 0);
        shard_writer_abort(writer);
        return;
    }
    check(state->train_at.shards * SHARD_TOKENS + state->train_at.tokens <= SHARD_TOKENS + 7);
    check(shard_writer_close(writer, &total, NULL, &error) == 0);
    check(total == state->train_at.shards * SHARD_TOKENS + state->train_at.tokens);
}

static void try_folder(const Place *place)
{
    Error error = {""};
    PrepareState state;
    bool done;
    int lock;
    if (prepare_folder_open(place->folder, place->request, &place->options, &state, &done, &lock, &error) != 0) {
        check(error.text[0] != 0);
    } else if (!done && state.resumable) {
        try_resume(place, &state);
    }
    if (lock >= 0) {
        close(lock);
    }
}

static void replace(cJSON *json, const char *key, cJSON *value)
{
    check(value != NULL);
    cJSON_DeleteItemFromObjectCaseSensitive(json, key);
    check(cJSON_AddItemToObject(json, key, value));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Place place;
    Error error = {""};
    if (place.json == NULL) {
        make_place(&place);
    }
    make_shards(&place);
    check(file_write_atomic(place.json, data, size, &error) == 0);
    try_folder(&place);
    check(unlink(place.json) == 0 && file_write_atomic(place.unfinished, data, size, &error) == 0);
    try_folder(&place);
    cJSON *json = json_read_file(place.unfinished, 1 << 20, &error);
    if (cJSON_IsObject(json)) {
        make_shards(&place);
        replace(json, "request", cJSON_Duplicate(place.request, true));
        replace(json, "tokenizer_file", cJSON_CreateString(place.hash));
        check(json_write_file(place.unfinished, json, false, &error) == 0);
        try_folder(&place);
        make_shards(&place);
        check(json_write_file(place.json, json, false, &error) == 0);
        try_folder(&place);
        check(unlink(place.json) == 0);
    }
    cJSON_Delete(json);
    Where where;
    char *text = strndup((const char *)data, size);
    check(text != NULL);
    (void)where_parse(&where, text, &error);
    free(text);
    return 0;
}
