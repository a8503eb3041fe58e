#include "checkpoint/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"

enum { MAX_TRAINER_BYTES = 16 << 20 };

static const char optimizer_file[] = "optimizer.safetensors";
static const char *const known_files[] = {"model.safetensors", "config.json", "tokenizer.json", optimizer_file};
enum { N_KNOWN = sizeof known_files / sizeof known_files[0], N_REQUIRED = 2 };

enum { N_DIGITS = 16 };
static const char zeros[] = "0000000000000000";

static void hash_text(char text[N_DIGITS + 1], uint64_t hash) { snprintf(text, N_DIGITS + 1, "%016" PRIx64, hash); }

// ---- writing ----

static int add_file(cJSON *files, const char *folder, const char *name, Error *error)
{
    char *path = path_join(folder, name);
    uint64_t hash = 0;
    char text[N_DIGITS + 1];
    if (path == NULL) {
        return error_set(error, "out of memory while listing %s", folder);
    }
    int status = 0;
    if (!file_is_missing(path)) {
        int64_t size = file_size(path);
        status = size >= 0 ? file_hash(path, &hash, error) : error_set(error, "cannot read %s: its size is unknown", path);
        hash_text(text, hash);
        cJSON *entry = status == 0 ? cJSON_AddObjectToObject(files, name) : NULL;
        if (status == 0 && (cJSON_AddNumberToObject(entry, "bytes", (double)size) == NULL || cJSON_AddStringToObject(entry, "xxh3", text) == NULL)) {
            status = error_set(error, "out of memory while listing %s", folder);
        }
    }
    free(path);
    return status;
}

// The sixteen digits behind the first "checksum" in the text of a trainer.json, or NULL. They count as zeros in the checksum itself.
static char *find_digits(char *text)
{
    char *place = strstr(text, "\"checksum\"");
    place = place != NULL ? strchr(place + strlen("\"checksum\""), '"') : NULL;
    return place != NULL && strlen(place + 1) > N_DIGITS && place[1 + N_DIGITS] == '"' ? place + 1 : NULL;
}

// The text of trainer.json, its checksum in place; free with free(). NULL with `error` set. Everything in `trainer` but "files" and
// "checksum" is taken over.
static char *manifest_text(const char *folder, const cJSON *trainer, Error *error)
{
    cJSON *tree = cJSON_CreateObject();
    char *text = NULL, digits[N_DIGITS + 1];
    cJSON_AddStringToObject(tree, "checksum", zeros);   // first, so that its digits are found first
    cJSON *files = cJSON_AddObjectToObject(tree, "files");
    for (size_t i = 0; i < N_KNOWN && files != NULL; i++) {
        if (add_file(files, folder, known_files[i], error)) {
            goto done;
        }
    }
    bool good = files != NULL;
    for (const cJSON *item = trainer != NULL ? trainer->child : NULL; item != NULL && good; item = item->next) {
        if (strcmp(item->string, "files") != 0 && strcmp(item->string, "checksum") != 0) {
            cJSON *copy = cJSON_Duplicate(item, true);
            good = copy != NULL && cJSON_AddItemToObject(tree, item->string, copy);
            if (!good) {
                cJSON_Delete(copy);
            }
        }
    }
    text = good ? json_to_text(tree, true) : NULL;
    char *place = text != NULL ? find_digits(text) : NULL;
    if (place == NULL) {
        error_set(error, "out of memory while writing %s/trainer.json", folder);
        free(text);
        text = NULL;
    } else {
        hash_text(digits, XXH3_64bits(text, strlen(text)));
        memcpy(place, digits, N_DIGITS);
    }
done:
    cJSON_Delete(tree);
    return text;
}

int manifest_write(const char *folder, const struct cJSON *trainer, Error *error)
{
    char *path = path_join(folder, "trainer.json"), *text = manifest_text(folder, trainer, error);
    int status = -1;
    if (path == NULL) {
        error_set(error, "out of memory while writing %s/trainer.json", folder);
    } else if (text != NULL) {
        status = file_write_atomic(path, text, strlen(text), error);
    }
    free(text);
    free(path);
    return status;
}

// ---- checking ----

// Every byte counts: a flipped one in white space is damage too.
static bool text_is_whole(char *text, size_t size)
{
    char found[N_DIGITS + 1] = "", expected[N_DIGITS + 1], *place = find_digits(text);
    if (place == NULL || strlen(text) != size) {
        return false;
    }
    memcpy(found, place, N_DIGITS);
    memcpy(place, zeros, N_DIGITS);
    hash_text(expected, XXH3_64bits(text, size));
    return strcmp(found, expected) == 0;
}

struct cJSON *manifest_read(const char *folder, Error *error)
{
    char *path = path_join(folder, "trainer.json");
    cJSON *tree = NULL;
    size_t size = 0;
    if (path == NULL) {
        error_set(error, "out of memory while reading %s", folder);
    } else if (file_is_missing(path)) {
        error_set(error, "%s holds no trainer.json: it is no complete checkpoint", folder);
    } else {
        char *text = file_read(path, MAX_TRAINER_BYTES, &size, error);
        if (text != NULL && !text_is_whole(text, size)) {
            error_set(error, "%s does not match its own checksum: it was changed or damaged; use another checkpoint", path);
        } else if (text != NULL && (tree = cJSON_Parse(text)) == NULL) {
            error_set(error, file_shortage() ? "cannot read %s: out of memory" : "%s is not valid JSON: use another checkpoint", path);
        }
        free(text);
    }
    free(path);
    return tree;
}

static int check_listed(const char *folder, const cJSON *entry, bool hashes, bool slim, Error *error)
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
    if (slim && strcmp(name, optimizer_file) == 0 && file_is_missing(path)) {
        status = 0;
    } else if (found < 0) {
        status = error_set(error, "%s is missing, but trainer.json lists it: use another checkpoint", path);
    } else if (found != bytes) {
        status = error_set(error, "%s has %" PRId64 " bytes, but trainer.json lists %" PRId64 ": it was cut short or changed; use another checkpoint",
                           path, found, bytes);
    } else if (hashes) {
        uint64_t hash = 0;
        char text[N_DIGITS + 1];
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
        if (i < N_REQUIRED || folder_holds(folder, known_files[i])) {
            return error_set(error, "%s/%s is not listed in trainer.json: it cannot be checked; use another checkpoint", folder, known_files[i]);
        }
    }
    return 0;
}

int manifest_check(const char *folder, bool hashes, bool slim, Error *error)
{
    errno = 0;
    cJSON *tree = manifest_read(folder, error);
    if (tree == NULL) {
        return -1;
    }
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(tree, "files");
    int status = cJSON_IsObject(files) ? 0 : error_set(error, "%s/trainer.json lists no files: it is no complete checkpoint", folder);
    for (const cJSON *entry = files != NULL ? files->child : NULL; entry != NULL && status == 0; entry = entry->next) {
        status = check_listed(folder, entry, hashes, slim, error);
    }
    if (status == 0) {
        status = check_unlisted(folder, files, error);
    }
    cJSON_Delete(tree);
    return status;
}
