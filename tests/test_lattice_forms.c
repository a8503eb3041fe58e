// The fast mixer of every form of Lattice, of every instruction set: against the reference, in pieces, with several threads.
#include "tests/mixer.h"

static MixerCase new_case(size_t batch, size_t n_head, size_t length, size_t n_slot, size_t d_head)
{
    return (MixerCase){.form = {.mixer = "lattice", .objective = "decode", .chunk = 1}, .batch = batch, .n_head = n_head, .length = length, .n_slot = n_slot,
                       .d_head = d_head};
}

static const size_t form_chunks[] = {1, 2, 7, 32, 50};

// Every objective, form, normalisation, forget gate and ablation in one number below FORM_COUNT; chunk, shape and gates for each slot go with it.
enum { FORM_COUNT = 3 * 2 * 2 * 2 * 4 };

static ReferenceForm numbered_form(size_t i, size_t chunk)
{
    static const char *const objectives[] = {"decode", "encode", "similarity"}, *const chunk_forms[] = {"frozen", "gated"}, *const norms[] = {"token", "chunk"};
    size_t ablation = i % 4;
    return (ReferenceForm){.mixer = "lattice", .objective = objectives[i / 32], .chunk = chunk, .chunk_form = chunk_forms[i / 16 % 2],
                           .chunk_norm = norms[i / 8 % 2], .no_projection = ablation == 1, .no_normalisation = ablation == 2,
                           .l1 = ablation == 3 ? 0.0625 : 0.0, .slot_gate = i % 5 == 1};
}

static bool numbered_forget_gate(size_t i) { return i / 4 % 2 == 1; }

static void test_forms(void **state)
{
    (void)state;
    static const size_t shapes[][5] = {{1, 2, 67, 16, 24}, {2, 1, 63, 33, 5}, {1, 1, 70, 17, 64}, {1, 1, 1, 8, 8}};
    for (size_t i = 0; i < FORM_COUNT; i++) {
        for (size_t chunk = i % 3; chunk < 5; chunk += 3) {
            const size_t *s = shapes[(i / 3 + chunk) % 4];
            Pool pool = {0};
            Rng rng;
            rng_seed(&rng, i, chunk);
            MixerCase c = new_case(s[0], s[1], s[2], s[3], s[4]);
            c.form = numbered_form(i, form_chunks[chunk]);
            c.fast = "lattice_forms";
            // With `encode`, writing as strong as the others' magnifies rounding.
            mixer_case_fill(&c, &pool, &rng, numbered_forget_gate(i), i / 32 == 1 ? -5.0 : -3.0, 1.0);
            check_against_reference(&c, "forms");
            pool_free(&pool);
        }
    }
}

static void test_form_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORM_COUNT; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 31, i);
        MixerCase c = new_case(2, 1, 55, 5 + i % 13, i % 2 == 0 ? 64 : 20);
        c.form = numbered_form(i, form_chunks[i % 5]);
        c.fast = "lattice_forms";
        mixer_case_fill(&c, &pool, &rng, numbered_forget_gate(i), -2.0, 1.0);
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            // Token by token is another order of operations than by matrix products (chunks without ablations, with one gate a head).
            check_cuts_within(&c, *kernels, true, c.form.chunk > 1 && i % 4 == 0 && !c.form.slot_gate ? GOLDEN_FAST_OUTPUT : 0.0);
        }
        if (i % 16 < 1) {
            check_same_for_threads(&c);
        }
        pool_free(&pool);
    }
}

// The memory alone where every token reads the one before; with longer chunks the memory at the chunk's start, too.
static void test_state_floats(void **state)
{
    (void)state;
    const Mixer *forms = mixer_find(kernels_available()[0]->mixers, "lattice_forms");
    ModelConfig config = {.n_head = 3, .n_slot = 7, .d_head = 9, .chunk = 1};
    assert_int_equal(forms->state_floats(&config), 3 * 7 * 9);
    config.chunk = 2;
    assert_int_equal(forms->state_floats(&config), 2 * 3 * 7 * 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_form_cuts), cmocka_unit_test(test_state_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
