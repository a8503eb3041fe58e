// The fast rivals of Lattice (mixers.md), of every instruction set: against the reference on odd shapes, in pieces, with several threads.
#include "tests/mixer.h"
#include "tests/rivals.h"

// B, H, T, m, d; where m = d is needed, m is taken for both.
static MixerCase new_case(const ReferenceForm *form, const size_t size[5])
{
    ReferenceNeeds needs = reference_needs(form);
    return (MixerCase){.form = *form, .batch = size[0], .n_head = size[1], .length = size[2], .n_slot = size[3], .d_head = needs.square ? size[3] : size[4]};
}

static void test_needs(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t i = 0; i < N_CARRIED_RIVALS; i++) {
            const Mixer *mixer = mixer_find((*kernels)->mixers, rival_forms[i].mixer);
            assert_non_null(mixer);
            ReferenceNeeds expected = reference_needs(&rival_forms[i]);
            MixerNeeds needs = mixer->needs;
            assert_int_equal(needs.gate, expected.gate);
            assert_int_equal(needs.forget, expected.forget && !expected.no_forget);
            assert_int_equal(needs.may_forget, expected.forget && expected.no_forget);
            assert_int_equal(needs.slot_decay, expected.slot_decay);
            assert_int_equal(needs.start, expected.start);
            assert_int_equal(needs.norm, expected.norm);
            assert_int_equal(needs.square, expected.square);
        }
    }
}

static void test_reference_shapes(void **state)
{
    (void)state;
    static const size_t shapes[][5] = {   // B, H, T, m, d
        {1, 1, 1, 16, 16}, {2, 3, 63, 17, 33}, {3, 1, 63, 48, 5}, {1, 1, 1000, 16, 64}, {1, 1, 96, 64, 64}, {1, 1, 100, 192, 64}, {1, 2, 100, 64, 192}, {1, 3, 33, 16, 20},
    };
    for (size_t i = 0; i < N_CARRIED_RIVALS * (sizeof shapes / sizeof shapes[0]); i++) {
        const ReferenceForm *form = &rival_forms[i % N_CARRIED_RIVALS];
        for (int forget_gate = 0; forget_gate < (reference_needs(form).forget && reference_needs(form).no_forget ? 2 : 1); forget_gate++) {
            Pool pool = {0};
            Rng rng;
            rng_seed(&rng, i, (uint64_t)forget_gate);
            MixerCase c = new_case(form, shapes[i / N_CARRIED_RIVALS]);
            mixer_case_fill(&c, &pool, &rng, forget_gate == 1, i % 2 == 0 ? -3.0 : 0.0, 1.0);
            check_threads(1 + (int)(i % 3));
            check_against_reference(&c, "with dstates");
            if (c.length < 100) {
                c.dstate = NULL;
                check_against_reference(&c, "without dstates");
            }
            pool_free(&pool);
        }
    }
}

static void test_cuts(void **state)
{
    (void)state;
    static const size_t shapes[][5] = {{1, 2, 100, 16, 24}, {3, 1, 67, 5, 33}, {2, 1, 40, 64, 64}, {1, 1, 300, 1, 8}};
    for (size_t i = 0; i < 4 * N_CARRIED_RIVALS; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 11, i);
        MixerCase c = new_case(&rival_forms[i % N_CARRIED_RIVALS], shapes[i / N_CARRIED_RIVALS]);
        mixer_case_fill(&c, &pool, &rng, i % 2 == 1, -1.0, 2.0);
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            check_threads(1 + (int)(i % 2));
            check_cuts(&c, *kernels, reference_needs(&c.form).state);
        }
        pool_free(&pool);
    }
}

static void test_threads(void **state)
{
    (void)state;
    static const size_t shape[5] = {3, 3, 130, 16, 40};
    for (size_t i = 0; i < N_CARRIED_RIVALS; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 13, i);
        MixerCase c = new_case(&rival_forms[i], shape);
        mixer_case_fill(&c, &pool, &rng, true, -1.0, 1.0);
        check_same_for_threads(&c);
        pool_free(&pool);
    }
}

// A NaN in one head's value shows in all later outputs of that head (attention: that see it), and nowhere else.
static void test_nan(void **state)
{
    (void)state;
    enum { HEADS = 2, LENGTH = 50, D = 20, BAD = 37 };
    static const size_t shape[5] = {1, HEADS, LENGTH, D, D};
    for (size_t form = 0; form < N_CARRIED_RIVALS; form++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 17, form);
        MixerCase c = new_case(&rival_forms[form], shape);
        mixer_case_fill(&c, &pool, &rng, false, -1.0, 1.0);
        for (size_t j = 0; j < D; j++) {
            c.v[(1 * LENGTH + BAD) * D + j] = NAN;
        }
        size_t last = c.form.window > 0 ? BAD + c.form.window : LENGTH;
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            MixerResult r = mixer_case_fast(&pool, &c, *kernels);
            for (size_t i = 0; i < HEADS * LENGTH * D; i++) {
                size_t t = i / D % LENGTH;
                assert_int_equal(isnan(r.o[i]), i / D / LENGTH == 1 && t >= BAD && t < last);
            }
        }
        pool_free(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needs), cmocka_unit_test(test_reference_shapes), cmocka_unit_test(test_cuts), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
