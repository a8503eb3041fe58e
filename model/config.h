// Shape of a model: the keys of config.json, the presets, the flags. One table (config_keys) drives all three.
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/args.h"
#include "base/error.h"

struct cJSON;
struct Mixer;

#define CONFIG_MIXER_BYTES 256

typedef struct ModelConfig {
    int64_t vocab_size;
    int64_t d_model;       // width D of the residual stream
    int64_t n_layer;
    int64_t n_head;        // H
    int64_t d_head;        // d: numbers in a value and in a slot
    int64_t n_slot;        // m: slots of a head's memory, and numbers in its query and key
    int64_t conv_width;    // taps of the causal convolutions
    int64_t mlp_hidden;    // F, 0 = no MLP
    double norm_eps;
    bool tie_embeddings;
    char mixer[CONFIG_MIXER_BYTES];   // "lattice", or a list that the layers repeat: "lattice,lattice,attention:1024" (a number: attention's window)
    const char *objective;    // "decode", "encode", "similarity"; this and the next names are static
    int64_t chunk;            // C; 1 = exact
    const char *chunk_form;   // "frozen", "gated"
    const char *chunk_norm;   // "token", "chunk"
    bool forget_gate;
    // Keys with a usual value, 0: they stand in JSON only where they differ from it.
    bool no_projection;       // Lattice writes h itself
    bool no_normalisation;    // Lattice takes plain gradient steps
    double l1;                // Lattice's slots are soft-thresholded by g·l1
    int64_t max_seq_len;      // window of attention that is given none
    // How a memory is parametrised.
    bool random_start;        // Lattice's slots start each in a random direction instead of a common one
    bool relative_read;       // Lattice's output is (S − S_0) q
    bool wide_gate;           // write gates go up to 2
    double gate_shift;        // added to the start value of their bias
    bool plain_codes;         // q and k are not brought to length 1,
    bool plain_values;        // nor v to RMS 1
    bool unit_values;         // v is brought to length 1 instead
    bool softmax_codes;       // q and k are the softmax of what the convolution gives, instead of SiLU and length 1
    bool scaled_keys;         // each head's k is multiplied by a learned number
    bool slot_gate;           // Lattice has a write gate for each slot
} ModelConfig;

// What mixes tokens in one layer.
typedef struct LayerMixer {
    const struct Mixer *mixer;   // its row among the mixers of `table`
    size_t window;               // attention: tokens that a token sees, itself included; else 0
    bool lattice;                // it is Lattice, in whichever form
} LayerMixer;

// Of the entry of config->mixer that is the layer's turn, in the form that the configuration asks for. `table`: the mixers of an instruction set
// (kernels.h). The configuration must be valid.
LayerMixer config_layer_mixer(const ModelConfig *config, const struct Mixer *const *table, size_t layer);

// Attention without a window of its own sees `length` tokens where max_seq_len is not set; nothing else changes.
void config_settle_length(ModelConfig *config, int64_t length);

// The configuration of a preset ("nano", "9m", "40m", "110m"). Returns 0, or -1 with `error` set: it lists the names there are.
int config_preset(ModelConfig *config, const char *name, Error *error);

// Checks every size for range and that the mixers can run the combination. Returns 0, or -1 with `error` naming key, value and what is allowed.
int config_validate(const ModelConfig *config, Error *error);

// Behind config_apply_flags, for the shape of a new model that no file describes: Lattice reads relative to its start (docs/memories.md 2), wherever a layer is
// Lattice and no flag (specs as in config_apply_flags) says otherwise. Files without the key mean the plain read.
void config_settle_new(ModelConfig *config, const ArgSpec *specs, size_t n_specs);

// JSON with "model_type": "lattice" and every key but those that have their usual value. Unknown keys are an error by name; keys missing from JSON keep the value that
// `config` has. Names must exist; neither validates further.
struct cJSON *config_to_json(const ModelConfig *config);
int config_from_json(ModelConfig *config, const struct cJSON *json, Error *error);

// The first key that `json` lacks and that has no usual value, or NULL.
const char *config_missing_key(const struct cJSON *json);

// Fills flags for every key ("d-model" for d_model), each pointing into `config`, for a program's table. It has room for `max`, enough for all (asserted).
// Returns how many there are. The flags' defaults in --help are what `config` holds then.
size_t config_arg_specs(ArgSpec *specs, size_t max, ModelConfig *config);

// After args_parse: carries the flags that were given (specs as written by config_arg_specs) over to `config`, which comes from a preset or a file.
// A mixer that is given, of which no layer is Lattice, takes relative_read away unless it is given, too.
// When d_model or n_head is given and d_head is not, d_head becomes d_model / n_head, and n_slot becomes d_head unless it is given.
// Returns 0, or -1 with `error` set: d_model is not divisible by n_head. Does not validate.
int config_apply_flags(ModelConfig *config, const ArgSpec *specs, size_t n_specs, Error *error);

#endif
