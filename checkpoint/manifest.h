// The manifest of a checkpoint: trainer.json lists every other file with size and checksum, and carries a checksum of itself.
// Used inside checkpoint/ only.
#ifndef CHECKPOINT_MANIFEST_H
#define CHECKPOINT_MANIFEST_H

#include <stdbool.h>

#include "base/error.h"

struct cJSON;

// Writes folder/trainer.json: the tree `trainer` (NULL: nothing) with "files" for the checkpoint's files that stand in the folder, and "checksum".
// Returns 0, or -1 with `error` set.
int manifest_write(const char *folder, const struct cJSON *trainer, Error *error);

// Reads folder/trainer.json and checks it against its own checksum. Free with cJSON_Delete. NULL with `error` set.
struct cJSON *manifest_read(const char *folder, Error *error);

// Checks that the files listed are there with the size listed, with `hashes` also the checksum, that model.safetensors and config.json are among them
// and that no file of a checkpoint stands there unlisted. With `slim` optimizer.safetensors may be missing: only training needs it. Returns 0, or -1
// naming the file that is wrong; then file_shortage tells whether it could just not be checked.
int manifest_check(const char *folder, bool hashes, bool slim, Error *error);

#endif
