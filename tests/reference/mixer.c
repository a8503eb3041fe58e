// The list of mixers, and what they share. Every mixer is as its definition says, one head of one sequence at a time.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/kernels/kernels.h"
#include "model/mixers/mixer.h"
#include "tests/reference/reference.h"

double reference_dot(const double *x, const double *y, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

void reference_read(double *out, const double *s, const double *k, size_t m, size_t d)
{
    for (size_t j = 0; j < d; j++) {
        out[j] = 0.0;
        for (size_t i = 0; i < m; i++) {
            out[j] += s[i * d + j] * k[i];
        }
    }
}

void reference_normalise(double *slots, double *lengths, const double *raw, size_t m, size_t d)
{
    for (size_t i = 0; i < m; i++) {
        lengths[i] = sqrt(reference_dot(raw + i * d, raw + i * d, d));
        for (size_t j = 0; j < d; j++) {
            slots[i * d + j] = lengths[i] == 0.0 ? 0.0 : raw[i * d + j] / lengths[i];
        }
    }
}

void reference_normalise_backward(double *ds, const double *slots, const double *lengths, size_t m, size_t d)
{
    for (size_t i = 0; i < m; i++) {
        double radial = reference_dot(slots + i * d, ds + i * d, d);
        for (size_t j = 0; j < d; j++) {
            ds[i * d + j] = lengths[i] == 0.0 ? 0.0 : (ds[i * d + j] - radial * slots[i * d + j]) / lengths[i];
        }
    }
}

typedef struct ReferenceMixer {
    const char *name;
    bool chunked;   // has forms with chunks above 1
    ReferenceNeeds needs;
    void (*forward)(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape);
    void (*backward)(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in, const ReferenceForm *form,
                     const ReferenceMixerShape *shape);
} ReferenceMixer;

#define RECURRENT reference_recurrent_forward, reference_recurrent_backward

// All that the tests know of a mixer. Which ones there are to test, the table of the fast ones says (tests/rivals.h).
static const ReferenceMixer mixers[] = {
    {"lattice", true, {.gate = true, .forget = true, .no_forget = true, .start = true, .state = true}, reference_lattice_forward, reference_lattice_backward},
    {"linear", false, {.no_forget = true, .state = true, .products = true}, RECURRENT},
    {"mamba2", false, {.gate = true, .forget = true, .state = true, .shared_gate = true, .products = true}, RECURRENT},
    {"gla", false, {.no_forget = true, .slot_decay = true, .state = true, .products = true}, RECURRENT},
    {"delta", false, {.gate = true, .no_forget = true, .state = true, .products = true}, RECURRENT},
    {"gated_delta", false, {.gate = true, .forget = true, .state = true, .products = true}, RECURRENT},
    {"output_norm", false, {.gate = true, .forget = true, .no_forget = true, .start = true, .state = true}, RECURRENT},
    {"ttt", true, {.gate = true, .no_forget = true, .start = true, .norm = true, .state = true, .square = true}, RECURRENT},
    {"attention", false, {.no_forget = true, .square = true, .bare = true}, reference_attention_forward, reference_attention_backward},
};

static const ReferenceMixer *find_mixer(const char *name)
{
    for (size_t i = 0; i < sizeof mixers / sizeof mixers[0]; i++) {
        if (strcmp(mixers[i].name, name) == 0) {
            return &mixers[i];
        }
    }
    return NULL;
}

ReferenceForm reference_form(const ModelConfig *config, size_t layer)
{
    LayerMixer chosen = config_layer_mixer(config, kernels_available()[0]->mixers, layer);
    const ReferenceMixer *mixer = find_mixer(chosen.mixer->serves != NULL ? chosen.mixer->serves : chosen.mixer->name);
    return (ReferenceForm){.mixer = mixer->name, .objective = config->objective, .chunk = mixer->chunked ? (size_t)config->chunk : 1,
                           .chunk_form = config->chunk_form, .chunk_norm = config->chunk_norm, .no_projection = config->no_projection,
                           .no_normalisation = config->no_normalisation, .relative_read = config->relative_read,
                           .slot_gate = config->slot_gate && chosen.lattice, .l1 = config->l1, .window = chosen.window};
}

ReferenceNeeds reference_needs(const ReferenceForm *form) { return find_mixer(form->mixer)->needs; }

size_t reference_gates(const ReferenceForm *form, size_t n_slot) { return form->slot_gate ? n_slot : 1; }

// Whether `value` is one of two or three names; else `text` says what it is instead.
static bool is_one_of(const char *value, const char *const choices[3], const char *what, char text[128])
{
    for (size_t i = 0; i < 3 && value != NULL; i++) {
        if (strcmp(value, choices[i]) == 0) {
            return true;
        }
    }
    snprintf(text, 128, "%s %s", what, value != NULL ? value : "(none)");
    return false;
}

const char *reference_mixer_unsupported(const ReferenceForm *form, char text[128])
{
    static const char *const objectives[3] = {"decode", "encode", "similarity"}, *const forms[3] = {"frozen", "gated", "gated"};
    static const char *const norms[3] = {"token", "chunk", "chunk"};
    const ReferenceMixer *mixer = find_mixer(form->mixer);
    if (mixer == NULL) {
        snprintf(text, 128, "mixer %s", form->mixer);
        return text;
    }
    if (form->chunk < 1 || (form->chunk > 1 && !mixer->chunked)) {
        snprintf(text, 128, "mixer %s with chunk %zu", form->mixer, form->chunk);
        return text;
    }
    if (strcmp(form->mixer, "lattice") != 0) {
        return NULL;
    }
    bool known = is_one_of(form->objective, objectives, "objective", text) &&
                 (form->chunk == 1 ||
                  (is_one_of(form->chunk_form, forms, "chunk_form", text) && is_one_of(form->chunk_norm, norms, "chunk_norm", text)));
    return known ? NULL : text;
}

void reference_mixer_forward(double *o, double *state, const ReferenceTensors *in, const ReferenceForm *form, const ReferenceMixerShape *shape)
{
    find_mixer(form->mixer)->forward(o, state, in, form, shape);
}

void reference_mixer_backward(const ReferenceGradients *grad, const double *do_, const double *dstate, const ReferenceTensors *in, const ReferenceForm *form,
                              const ReferenceMixerShape *shape)
{
    find_mixer(form->mixer)->backward(grad, do_, dstate, in, form, shape);
}
