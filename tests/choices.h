// Every mixer, and every form and ablation of Lattice, as a model's configuration has it: what the tests of whole models run through.
#ifndef TESTS_CHOICES_H
#define TESTS_CHOICES_H

#include <stdio.h>

#include "model/config.h"

typedef struct ModelChoice {
    const char *mixer, *objective;
    int64_t chunk;
    const char *chunk_form, *chunk_norm;
    bool forget_gate, square;   // square: the mixer needs m = d
    bool no_projection, no_normalisation;
    double l1;
    bool random_start, relative_read, wide_gate, plain_codes, plain_values, unit_values, softmax_codes, scaled_keys, slot_gate;
    double gate_shift;
} ModelChoice;

static const ModelChoice model_choices[] = {
    {.mixer = "lattice", .forget_gate = true},
    {.mixer = "lattice", .objective = "encode", .chunk = 4, .chunk_form = "gated"},
    {.mixer = "lattice", .objective = "similarity", .chunk = 7, .chunk_norm = "chunk", .forget_gate = true},
    {.mixer = "lattice", .objective = "encode"},
    {.mixer = "lattice", .no_projection = true},
    {.mixer = "lattice", .no_normalisation = true, .forget_gate = true},
    {.mixer = "lattice", .l1 = 0.01},
    {.mixer = "linear"},
    {.mixer = "mamba2"},
    {.mixer = "gla"},
    {.mixer = "delta"},
    {.mixer = "gated_delta"},
    {.mixer = "output_norm", .forget_gate = true},
    {.mixer = "ttt", .square = true},
    {.mixer = "ttt", .chunk = 5, .square = true},
    {.mixer = "attention", .square = true},
    {.mixer = "attention:6", .square = true},
    {.mixer = "gla,attention:9", .square = true},
    {.mixer = "mamba2,lattice", .objective = "similarity", .chunk = 3},
    // Reading relative to the start takes a difference, which loses digits where little has been written: strong writes.
    {.mixer = "lattice", .relative_read = true, .wide_gate = true, .gate_shift = 3.0},
    {.mixer = "lattice", .objective = "similarity", .chunk = 5, .relative_read = true, .random_start = true, .plain_values = true, .gate_shift = 3.0},
    {.mixer = "lattice", .no_normalisation = true, .relative_read = true, .gate_shift = 1.0},
    {.mixer = "lattice", .plain_codes = true, .plain_values = true, .gate_shift = 0.5},
    {.mixer = "delta", .wide_gate = true},
    {.mixer = "lattice", .unit_values = true},
    {.mixer = "lattice,delta", .objective = "encode", .chunk = 6, .unit_values = true, .forget_gate = true},
    {.mixer = "lattice", .softmax_codes = true, .scaled_keys = true, .forget_gate = true},
    {.mixer = "delta,attention:9", .square = true, .scaled_keys = true},
    {.mixer = "delta", .softmax_codes = true},
    {.mixer = "lattice", .slot_gate = true, .forget_gate = true},
    {.mixer = "lattice,gated_delta", .objective = "similarity", .chunk = 4, .chunk_form = "gated", .slot_gate = true, .wide_gate = true, .plain_values = true},
};
enum { MODEL_CHOICES = sizeof model_choices / sizeof model_choices[0] };

static inline void choose_mixer(ModelConfig *config, const char *mixer) { snprintf(config->mixer, sizeof config->mixer, "%s", mixer); }

// Puts a choice into a configuration; attention without a window sees 50 tokens.
static inline void make_choice(ModelConfig *config, const ModelChoice *choice)
{
    choose_mixer(config, choice->mixer);
    config->objective = choice->objective != NULL ? choice->objective : "decode";
    config->chunk = choice->chunk > 0 ? choice->chunk : 1;
    config->chunk_form = choice->chunk_form != NULL ? choice->chunk_form : "frozen";
    config->chunk_norm = choice->chunk_norm != NULL ? choice->chunk_norm : "token";
    config->forget_gate = choice->forget_gate;
    config->no_projection = choice->no_projection;
    config->no_normalisation = choice->no_normalisation;
    config->l1 = choice->l1;
    config->random_start = choice->random_start;
    config->relative_read = choice->relative_read;
    config->wide_gate = choice->wide_gate;
    config->gate_shift = choice->gate_shift;
    config->plain_codes = choice->plain_codes;
    config->plain_values = choice->plain_values;
    config->unit_values = choice->unit_values;
    config->softmax_codes = choice->softmax_codes;
    config->scaled_keys = choice->scaled_keys;
    config->slot_gate = choice->slot_gate;
    config->n_slot = choice->square ? config->d_head : config->n_slot;
    config_settle_length(config, 50);
}

#endif
