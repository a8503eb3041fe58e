// The mixers beside Lattice (docs/memories.md 8) in every form that their files have: what the tests of mixers run through.
#ifndef TESTS_RIVALS_H
#define TESTS_RIVALS_H

#include "tests/check.h"

#include "model/kernels/kernels.h"
#include "model/mixers/mixer.h"
#include "tests/reference/reference.h"

typedef struct Rivals {
    ReferenceForm forms[64];
    size_t count;
} Rivals;

static inline void rivals_add(Rivals *rivals, const ReferenceForm *form)
{
    char missing[128];
    if (reference_mixer_unsupported(form, missing) != NULL) {
        fail_msg("%s is in the table of mixers, but not in that of tests/reference/mixer.c", missing);
    }
    assert_true(rivals->count < sizeof rivals->forms / sizeof rivals->forms[0]);
    rivals->forms[rivals->count++] = *form;
}

// From the table of mixers, so that none is forgotten. `carried`: only forms that a state of fixed size carries on, which attention has with a window alone.
static inline Rivals rivals_list(bool carried)
{
    static const size_t chunks[] = {5, 8, 16, 32, 50}, windows[] = {1, 4, 40, 2000};
    Rivals rivals = {.count = 0};
    for (const Mixer *const *row = kernels_available()[0]->mixers; *row != NULL; row++) {
        ReferenceForm form = {.mixer = (*row)->name, .chunk = 1};
        if (strcmp(form.mixer, "lattice") == 0 || (*row)->serves != NULL) {
            continue;
        }
        if ((*row)->window_state_floats == NULL || !carried) {
            rivals_add(&rivals, &form);
        }
        for (size_t i = 0; (*row)->needs.chunk && i < sizeof chunks / sizeof chunks[0]; i++) {
            form.chunk = chunks[i];
            rivals_add(&rivals, &form);
        }
        for (size_t i = 0; (*row)->window_state_floats != NULL && i < sizeof windows / sizeof windows[0]; i++) {
            form.window = windows[i];
            rivals_add(&rivals, &form);
        }
    }
    return rivals;
}

#endif
