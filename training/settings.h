// What a run is asked to do: the flags of ./train, their defaults by the size of the model, and what a checkpoint remembers of them.
//
// Order of use: settings_init, settings_parse, [settings_restore on --resume], settings_model, settings_resolve.
#ifndef TRAINING_SETTINGS_H
#define TRAINING_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/args.h"
#include "base/error.h"
#include "base/file.h"
#include "model/config.h"

struct cJSON;

#define SETTINGS_MAX_FLAGS 96
#define SETTINGS_MAX_STEPS 1e12

// How a flag behaves when a run is resumed.
typedef enum SettingRole {
    SETTING_HERE,     // of this call only, not saved: --out, --resume, --threads ...
    SETTING_FIXED,    // saved; another value on --resume is an error, because the run would not be the same
    SETTING_FREE,     // saved; the command line may change it on --resume
    SETTING_MODEL,    // a key of the model configuration: saved in config.json, cannot change
} SettingRole;

typedef struct TrainSettings {
    const char *out, *data_text, *preset, *config_file, *tokenizer, *val, *text_key, *where;
    double val_fraction;
    int64_t seq_len, batch_tokens, micro_batch;   // batch_tokens and micro_batch 0: chosen by settings_resolve
    int64_t shares;                               // of a step (training/trainer.h); 0: chosen by settings_resolve
    int64_t steps, tokens;                        // 0: not given
    double epochs;                                // 0: not given
    double lr, min_lr;                            // 0 and −1: chosen by settings_resolve
    int64_t warmup;                               // −1: chosen
    const char *schedule, *optimizer, *dtype;
    double weight_decay, clip;
    bool recompute, reset_at_document, resume;
    bool dedup, strict;                           // of documents
    int64_t eval_every, save_every;               // −1: chosen
    int64_t eval_tokens, keep, sample_every, seed, threads;
    ModelConfig model;                            // the values of the model's flags, not yet the model's shape

    ArgSpec specs[SETTINGS_MAX_FLAGS];            // point into this struct, so it must stay where settings_init saw it
    SettingRole roles[SETTINGS_MAX_FLAGS];
    size_t n_specs, first_model_spec;             // the model's flags are the last ones
    ArgProgram program;
    char **data;                                  // DATA in argv, or the sources of --data without their weights
    size_t n_data;
    PathList mix;                                 // owns those sources
    double *weights;                              // of each, 0: by its size; NULL: DATA is one source
    struct cJSON *restored;                       // owns the strings that settings_restore set; NULL: a new run
} TrainSettings;

// What settings_resolve needs to know of the model and the data.
typedef struct RunSize {
    uint64_t params;       // numbers in the model
    uint64_t windows;      // windows of seq_len tokens in an epoch, at least 1
    int ranks;             // processes that work on a step (training/ranks.h); 0 counts as 1
} RunSize;

void settings_init(TrainSettings *settings);
void settings_free(TrainSettings *settings);

// Parses the command line; prints usage errors and exits with 2, exits with 0 on --help.
void settings_parse(TrainSettings *settings, int argc, char **argv);

// Whether a flag ("seq-len") stood on the command line.
bool settings_given(const TrainSettings *settings, const char *name);

// Whether the matrix products run in bf16 (--dtype).
bool settings_bf16(const TrainSettings *settings);

// On --resume: takes from "settings" of a trainer.json what was not given on the command line, and says on stderr what the command
// line changes. Returns 0, or -1 with `error` set (a value is missing, of the wrong type or out of range; a fixed one was given with
// another value).
int settings_restore(TrainSettings *settings, const struct cJSON *json, Error *error);

// The model's shape of a new run: preset or file, then single flags. Neither validates nor knows the tokenizer; `vocab_is_asked`
// receives whether the command line or the file names a vocab_size. Strings live as long as argv. Returns 0, or -1 with `error` set.
int settings_model(ModelConfig *config, bool *vocab_is_asked, const TrainSettings *settings, Error *error);

// On --resume: refuses what the command line says about the shape when it differs from the checkpoint's. Returns 0, or -1 with `error`
// naming key and values.
int settings_same_model(const TrainSettings *settings, const ModelConfig *checkpoint, Error *error);

// Refuses a last learning rate above the peak, which is by the size of the model unless it was given. Larger models have lower peaks: what is
// refused for so many parameters is refused for more. Returns 0, or -1 with `error` set.
int settings_check_rates(const TrainSettings *settings, uint64_t params, Error *error);

// Chooses what was left open, rounds batch_tokens up to whole micro-batches and turns tokens or epochs into steps; afterwards
// micro_batch, batch_tokens, shares, steps, lr, min_lr, warmup, eval_every and save_every hold the numbers of the run. Says roundings on
// stderr. Returns 0, or -1 with `error` set.
int settings_resolve(TrainSettings *settings, const RunSize *size, Error *error);

// The saved part as a JSON object; free with cJSON_Delete. NULL when out of memory.
struct cJSON *settings_to_json(const TrainSettings *settings);

#endif
