#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"

enum { MAX_TRAINER_BYTES = 16 << 20 };

static const char *const known_files[] = {"model.safetensors", "config.json", "tokenizer.json", "optimizer.safetensors"};
enum { N_KNOWN = sizeof known_files / sizeof known_files[0], N_REQUIRED = 2 };

static void hash_text(char text[17], uint64_t hash) { snprintf(text, 17, "%016" PRIx64, hash); }

// ---- writing ----

static int add_file(cJSON *files, const char *folder, const char *name, Error *error)
{
    char *path = path_join(folder, name);
    uint64_t hash = 0;
    char text[17];
    if (path == NULL) {
        return error_set(error, "out of memory while listing %s", folder);
    }
    int status = 0;
    if (file_exists(path)) {
        status = file_hash(path, &hash, error);
        hash_text(text, hash);
        cJSON *entry = status == 0 ? cJSON_AddObjectToObject(files, name) : NULL;
        if (status == 0 && (cJSON_AddNumberToObject(entry, "bytes", (double)file_size(path)) == NULL ||
                            cJSON_AddStringToObject(entry, "xxh3", text) == NULL)) {
            status = error_set(error, "out of memory while listing %s", folder);
        }
    }
    free(path);
    return status;
}

// The checksum of the tree without its "checksum": taken over the text that cJSON makes of it, so it does not depend on white space.
static int tree_hash(const cJSON *tree, char text[17])
{
    char *json = json_to_text(tree, false);
    if (json == NULL) {
        return -1;
    }
    hash_text(text, XXH3_64bits(json, strlen(json)));
    free(json);
    return 0;
}

int manifest_write(const char *folder, const struct cJSON *trainer, Error *error)
{
    cJSON *tree = trainer != NULL ? cJSON_Duplicate(trainer, true) : cJSON_CreateObject();
    cJSON_DeleteItemFromObjectCaseSensitive(tree, "files");
    cJSON_DeleteItemFromObjectCaseSensitive(tree, "checksum");
    cJSON *files = cJSON_AddObjectToObject(tree, "files");
    char *path = path_join(folder, "trainer.json"), *text = NULL, checksum[17];
    cJSON *parsed = NULL;
    int status = -1;
    for (size_t i = 0; i < N_KNOWN && files != NULL; i++) {
        if (add_file(files, folder, known_files[i], error)) {
            goto done;
        }
    }
    // Through text and back, so that the tree hashed is the one that a reader will see.
    text = files != NULL ? json_to_text(tree, false) : NULL;
    parsed = text != NULL ? cJSON_Parse(text) : NULL;
    if (path == NULL || parsed == NULL || tree_hash(parsed, checksum) || cJSON_AddStringToObject(parsed, "checksum", checksum) == NULL) {
        error_set(error, "out of memory while writing %s/trainer.json", folder);
        goto done;
    }
    status = json_write_file(path, parsed, true, error);
done:
    cJSON_Delete(tree);
    cJSON_Delete(parsed);
    free(text);
    free(path);
    return status;
}

// ---- checking ----

struct cJSON *manifest_read(const char *folder, Error *error)
{
    char *path = path_join(folder, "trainer.json"), expected[17] = "";
    cJSON *tree = NULL;
    int status = -1;
    if (path == NULL) {
        error_set(error, "out of memory while reading %s", folder);
    } else if (!file_exists(path)) {
        error_set(error, "%s holds no trainer.json: it is no complete checkpoint", folder);
    } else if ((tree = json_read_file(path, MAX_TRAINER_BYTES, error)) != NULL) {
        cJSON *checksum = cJSON_DetachItemFromObjectCaseSensitive(tree, "checksum");
        if (tree_hash(tree, expected)) {
            error_set(error, "out of memory while reading %s", path);
        } else if (!cJSON_IsString(checksum) || strcmp(checksum->valuestring, expected) != 0) {
            error_set(error, "%s does not match its own checksum: it was changed or damaged; use another checkpoint", path);
        } else {
            status = 0;
        }
        cJSON_Delete(checksum);
    }
    if (status) {
        cJSON_Delete(tree);
        tree = NULL;
    }
    free(path);
    return tree;
}

static int check_listed(const char *folder, const cJSON *entry, bool hashes, Error *error)
{
    int64_t bytes = 0;
    const char *xxh3 = NULL;
    const char *name = entry->string;
    if (name[0] == 0 || name[0] == '.' || strchr(name, '/') != NULL) {
        return error_set(error, "%s/trainer.json lists the file \"%s\", which is no name of a file in this folder", folder, name);
    }
    if (json_get_int(entry, "bytes", 0, INT64_MAX, &bytes, error) || json_get_string(entry, "xxh3", &xxh3, error)) {
        return error_prefix(error, "%s/trainer.json: %s", folder, name);
    }
    char *path = path_join(folder, name);
    if (path == NULL) {
        return error_set(error, "out of memory while checking %s", folder);
    }
    int status = 0;
    int64_t found = file_size(path);
    if (found < 0) {
        status = error_set(error, "%s is missing, but trainer.json lists it: use another checkpoint", path);
    } else if (found != bytes) {
        status = error_set(error, "%s has %" PRId64 " bytes, but trainer.json lists %" PRId64 ": it was cut short or changed; use another checkpoint",
                           path, found, bytes);
    } else if (hashes) {
        uint64_t hash = 0;
        char text[17];
        status = file_hash(path, &hash, error);
        hash_text(text, hash);
        if (status == 0 && strcmp(text, xxh3) != 0) {
            status = error_set(error, "%s does not match its checksum in trainer.json: it was changed or damaged; use another checkpoint", path);
        }
    }
    free(path);
    return status;
}

// A known file that is not listed would be used unchecked; one that must be there may not be left out.
static int check_unlisted(const char *folder, const cJSON *files, Error *error)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        if (cJSON_GetObjectItemCaseSensitive(files, known_files[i]) != NULL) {
            continue;
        }
        char *path = path_join(folder, known_files[i]);
        bool there = path == NULL || file_exists(path);
        free(path);
        if (there || i < N_REQUIRED) {
            return error_set(error, "%s/%s is not listed in trainer.json: it cannot be checked; use another checkpoint", folder, known_files[i]);
        }
    }
    return 0;
}

int manifest_check(const char *folder, bool hashes, Error *error)
{
    cJSON *tree = manifest_read(folder, error);
    if (tree == NULL) {
        return -1;
    }
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(tree, "files");
    int status = cJSON_IsObject(files) ? 0 : error_set(error, "%s/trainer.json lists no files: it is no complete checkpoint", folder);
    for (const cJSON *entry = files != NULL ? files->child : NULL; entry != NULL && status == 0; entry = entry->next) {
        status = check_listed(folder, entry, hashes, error);
    }
    if (status == 0) {
        status = check_unlisted(folder, files, error);
    }
    cJSON_Delete(tree);
    return status;
}
