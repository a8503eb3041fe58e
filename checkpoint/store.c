// A run's folder OUT: which checkpoints it holds, which of them is the newest good one, and which may go.
//
// Names: step_N is complete. step_N.tmp is unfinished, or on its way out. step_N.old is complete and was moved aside while its
// successor took its name; it counts where step_N itself is not there or is bad.
#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "checkpoint/manifest.h"

typedef struct Entry {
    int64_t step;
    bool aside;         // step_N.old
    const char *name;   // owned by the list of names
} Entry;

typedef struct Store {
    PathList names;
    Entry *entries;     // newest first
    size_t count;
} Store;

// Reads "step_N" with at least one digit and a suffix, if any. Returns whether it is such a name.
static bool parse_name(const char *name, int64_t *step, const char **suffix)
{
    if (strncmp(name, "step_", 5) != 0 || name[5] < '0' || name[5] > '9') {
        return false;
    }
    errno = 0;
    char *end = NULL;
    *step = strtoll(name + 5, &end, 10);
    *suffix = end;
    return errno == 0 && (*end == 0 || strcmp(end, ".tmp") == 0 || strcmp(end, ".old") == 0);
}

static int compare_entries(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    if (x->step != y->step) {
        return x->step > y->step ? -1 : 1;
    }
    return (int)x->aside - (int)y->aside;
}

static void store_close(Store *store)
{
    free(store->entries);
    path_list_free(&store->names);
    *store = (Store){0};
}

static int store_open(Store *store, const char *out, Error *error)
{
    *store = (Store){0};
    if (folder_list(&store->names, out, error)) {
        store_close(store);
        return -1;
    }
    store->entries = calloc(store->names.count + 1, sizeof *store->entries);
    if (store->entries == NULL) {
        store_close(store);
        return error_set(error, "out of memory while reading folder %s", out);
    }
    for (size_t i = 0; i < store->names.count; i++) {
        int64_t step = 0;
        const char *suffix = NULL, *name = store->names.items[i];
        if (parse_name(name, &step, &suffix) && strcmp(suffix, ".tmp") != 0) {
            store->entries[store->count++] = (Entry){step, *suffix != 0, name};
        }
    }
    qsort(store->entries, store->count, sizeof *store->entries, compare_entries);
    return 0;
}

int checkpoint_verify(const char *folder, Error *error) { return manifest_check(folder, true, false, error); }

// ---- resolve ----

// Adds "name was passed over (why)" to the note while there is room.
static void add_note(Error *note, const char *why)
{
    if (note != NULL) {
        char old[sizeof note->text];
        snprintf(old, sizeof old, "%s", note->text);
        error_set(note, "%s%spassed over: %s", old, old[0] != 0 ? "; " : "", why);
    }
}

static char *resolve_run(const char *out, bool slim, Error *note, Error *error)
{
    Store store;
    if (store_open(&store, out, error)) {
        return NULL;
    }
    char *found = NULL;
    bool shortage = false;
    Error why = {""}, first = {""};
    for (size_t i = 0; i < store.count && found == NULL && !shortage; i++) {
        found = path_join(out, store.entries[i].name);
        if (found == NULL || manifest_check(found, true, slim, &why) != 0) {
            shortage = file_shortage();   // then nothing is known, and an older one must not take its place
            free(found);
            found = NULL;
            add_note(note, why.text);
            first = first.text[0] == 0 ? why : first;
        }
    }
    if (shortage) {
        error_set(error, "the checkpoints in %s cannot be checked: %s", out, why.text[0] != 0 ? why.text : "out of memory");
    } else if (store.count == 0) {
        error_set(error, "%s holds no checkpoint: give a checkpoint folder (step_...) or the --out folder of a run that has saved one", out);
    } else if (found == NULL) {
        error_set(error, "none of the %zu checkpoints in %s is whole; the newest: %s", store.count, out, first.text);
    }
    store_close(&store);
    return found;
}

// The path without slashes at its end, so that its last part can be read.
static char *trimmed(const char *path)
{
    char *copy = strdup(path);
    size_t length = copy != NULL ? strlen(copy) : 0;
    while (length > 1 && copy[length - 1] == '/') {
        copy[--length] = 0;
    }
    return copy;
}

static char *resolve(const char *path, bool slim, Error *note, Error *error)
{
    if (note != NULL) {
        note->text[0] = 0;
    }
    char *folder = trimmed(path);
    int64_t step = 0;
    const char *suffix = "";
    if (folder == NULL) {
        error_set(error, "out of memory");
        return NULL;
    }
    bool named = parse_name(path_base(folder), &step, &suffix);
    if (named && strcmp(suffix, ".tmp") == 0) {
        error_set(error, "%s is unfinished (its name ends in .tmp): give another checkpoint", path);
    } else if (named && *suffix == 0 && file_is_missing(folder)) {
        // Its successor's save may just be between two renames.
        size_t length = strlen(folder);
        char *aside = realloc(folder, length + 5);
        if (aside != NULL) {
            folder = aside;
            memcpy(folder + length, ".old", 5);
        }
        if (aside != NULL && file_is_folder(folder) && manifest_check(folder, true, slim, error) == 0) {
            return folder;
        }
        error_set(error, "there is no checkpoint %s", path);
    } else if (folder[0] != 0 && file_is_missing(folder)) {
        error_set(error, "there is no checkpoint or folder %s", path);
    } else if (file_check(folder, error)) {
        error_prefix(error, "checkpoint");
    } else if (!file_is_folder(folder)) {
        error_set(error, "%s is a file: give the folder of the checkpoint", path);
    } else if (named || folder_holds(folder, "trainer.json") || folder_holds(folder, "model.safetensors")) {
        if (manifest_check(folder, true, slim, error) == 0) {
            return folder;
        }
    } else {
        char *found = resolve_run(folder, slim, note, error);
        free(folder);
        return found;
    }
    free(folder);
    return NULL;
}

char *checkpoint_resolve(const char *path, Error *note, Error *error) { return resolve(path, false, note, error); }

char *checkpoint_resolve_model(const char *path, Error *note, Error *error) { return resolve(path, true, note, error); }

bool checkpoint_holds(const char *path)
{
    char *folder = path_folder(path);
    bool held = folder == NULL || folder_holds(folder, "trainer.json");
    free(folder);
    return held;
}

// ---- prune ----

// Gives a complete checkpoint the temporary suffix before it is taken apart, so that a part never looks whole.
static int drop(const char *out, const char *name, Error *error)
{
    char *folder = path_join(out, name), temporary[80];
    snprintf(temporary, sizeof temporary, "%.60s.tmp", name);
    char *aside = path_join(out, temporary);
    int status = -1;
    if (folder == NULL || aside == NULL) {
        error_set(error, "out of memory while removing %s/%s", out, name);
    } else if (folder_remove(aside, error) == 0) {
        status = rename(folder, aside) == 0 ? folder_remove(aside, error)
                                            : error_set(error, "cannot remove %s: %s", folder, strerror(errno));
    }
    free(folder);
    free(aside);
    return status;
}

static int remove_temporary(const Store *store, const char *out, Error *error)
{
    for (size_t i = 0; i < store->names.count; i++) {
        int64_t step = 0;
        const char *suffix = NULL, *name = store->names.items[i];
        if (parse_name(name, &step, &suffix) && strcmp(suffix, ".tmp") == 0) {
            char *path = path_join(out, name);
            int status = path != NULL ? folder_remove(path, error) : error_set(error, "out of memory while removing %s/%s", out, name);
            free(path);
            if (status) {
                return -1;
            }
        }
    }
    return 0;
}

// A checkpoint that was moved aside goes when its successor is whole, and gets its name back if that is free and it is whole itself.
static int settle_aside(const Store *store, const char *out, Error *error)
{
    for (size_t i = 0; i < store->count; i++) {
        if (!store->entries[i].aside) {
            continue;
        }
        const char *name = store->entries[i].name;
        char *folder = path_join(out, name), *plain = path_join(out, name);
        int status = 0;
        if (folder == NULL || plain == NULL) {
            status = error_set(error, "out of memory while reading folder %s", out);
        } else {
            plain[strlen(plain) - strlen(".old")] = 0;
            Error ignored;
            if (manifest_check(plain, false, false, &ignored) == 0) {
                status = drop(out, name, error);
            } else if (file_is_missing(plain) && manifest_check(folder, false, false, &ignored) == 0 && rename(folder, plain) != 0) {
                status = error_set(error, "cannot rename %s: %s", folder, strerror(errno));
            }
        }
        free(folder);
        free(plain);
        if (status) {
            return -1;
        }
    }
    return 0;
}

int checkpoint_prune(const char *out, size_t keep, Error *error)
{
    Store store;
    if (store_open(&store, out, error)) {
        return -1;
    }
    int status = remove_temporary(&store, out, error) == 0 ? settle_aside(&store, out, error) : -1;
    store_close(&store);
    if (status || store_open(&store, out, error)) {
        return -1;
    }
    // Damaged ones do not count as kept: a good one must not be removed in their favour. Sizes are compared, not checksums.
    size_t good = 0;
    for (size_t i = 0; i < store.count && status == 0 && keep > 0; i++) {
        if (good == keep) {
            status = drop(out, store.entries[i].name, error);
            continue;
        }
        Error ignored;
        char *folder = path_join(out, store.entries[i].name);
        good += folder != NULL && manifest_check(folder, false, false, &ignored) == 0;
        free(folder);
    }
    store_close(&store);
    return status == 0 ? folder_sync(out, error) : -1;
}
