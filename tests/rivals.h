// The mixers beside Lattice (mixers.md) in every form that their files have: what the tests of mixers run through.
#ifndef TESTS_RIVALS_H
#define TESTS_RIVALS_H

#include "tests/reference/reference.h"

static const ReferenceForm rival_forms[] = {
    {.mixer = "linear", .chunk = 1},
    {.mixer = "mamba2", .chunk = 1},
    {.mixer = "gla", .chunk = 1},
    {.mixer = "delta", .chunk = 1},
    {.mixer = "gated_delta", .chunk = 1},
    {.mixer = "output_norm", .chunk = 1},
    {.mixer = "ttt", .chunk = 1},
    {.mixer = "ttt", .chunk = 5},
    {.mixer = "ttt", .chunk = 8},
    {.mixer = "ttt", .chunk = 16},
    {.mixer = "ttt", .chunk = 32},
    {.mixer = "ttt", .chunk = 50},
    {.mixer = "attention", .chunk = 1, .window = 1},
    {.mixer = "attention", .chunk = 1, .window = 40},
    {.mixer = "attention", .chunk = 1, .window = 2000},
    {.mixer = "attention", .chunk = 1},   // no window: no state holds all tokens, so this is for whole sequences only, and stands last
};
enum { N_RIVALS = sizeof rival_forms / sizeof rival_forms[0], N_CARRIED_RIVALS = N_RIVALS - 1 };

#endif
