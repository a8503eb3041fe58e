// The fast rivals of Lattice (docs/memories.md 8), of every instruction set: against the reference on odd shapes, in pieces, with several threads.
#include "tests/mixer.h"
#include "tests/rivals.h"

// The longest chunk of those that go by matrix products (model/mixers/scan_chunk.h), as ReferenceNeeds.products says of a mixer.
enum { CHUNK = 32 };

// B, H, T, m, d; where m = d is needed, m is taken for both.
static MixerCase new_case(const ReferenceForm *form, const size_t size[5])
{
    ReferenceNeeds needs = reference_needs(form);
    return (MixerCase){.form = *form, .batch = size[0], .n_head = size[1], .length = size[2], .n_slot = size[3], .d_head = needs.square ? size[3] : size[4]};
}

static void test_needs(void **state)
{
    (void)state;
    const Rivals rivals = rivals_list(true);
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t i = 0; i < rivals.count; i++) {
            const Mixer *mixer = mixer_find((*kernels)->mixers, rivals.forms[i].mixer);
            assert_non_null(mixer);
            ReferenceNeeds expected = reference_needs(&rivals.forms[i]);
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
    const Rivals rivals = rivals_list(true);
    static const size_t shapes[][5] = {   // B, H, T, m, d
        {1, 1, 1, 16, 16}, {2, 3, 63, 17, 33}, {3, 1, 63, 48, 5}, {1, 1, 1000, 16, 64}, {1, 1, 96, 64, 64}, {1, 1, 100, 192, 64}, {1, 2, 100, 64, 192}, {1, 3, 33, 16, 20},
    };
    for (size_t i = 0; i < rivals.count * (sizeof shapes / sizeof shapes[0]); i++) {
        const ReferenceForm *form = &rivals.forms[i % rivals.count];
        for (int forget_gate = 0; forget_gate < (reference_needs(form).forget && reference_needs(form).no_forget ? 2 : 1); forget_gate++) {
            Pool pool = {0};
            Rng rng;
            rng_seed(&rng, i, (uint64_t)forget_gate);
            MixerCase c = new_case(form, shapes[i / rivals.count]);
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
    const Rivals rivals = rivals_list(true);
    static const size_t shapes[][5] = {{1, 2, 100, 16, 24}, {3, 1, 67, 5, 33}, {2, 1, 40, 64, 64}, {1, 1, 300, 1, 8}};
    for (size_t i = 0; i < 4 * rivals.count; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 11, i);
        MixerCase c = new_case(&rivals.forms[i % rivals.count], shapes[i / rivals.count]);
        mixer_case_fill(&c, &pool, &rng, i % 2 == 1, -1.0, 2.0);
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            check_threads(1 + (int)(i % 2));
            // Token by token is another order of operations than by matrix products.
            bool other = reference_needs(&c.form).products && !(c.n_slot == 64 && c.d_head == 64);
            check_cuts_within(&c, *kernels, reference_needs(&c.form).state, other ? GOLDEN_FAST_OUTPUT : 0.0);
        }
        pool_free(&pool);
    }
}

static void test_threads(void **state)
{
    (void)state;
    const Rivals rivals = rivals_list(true);
    static const size_t shape[5] = {3, 3, 130, 16, 40};
    for (size_t i = 0; i < rivals.count; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 13, i);
        MixerCase c = new_case(&rivals.forms[i], shape);
        mixer_case_fill(&c, &pool, &rng, true, -1.0, 1.0);
        check_same_for_threads(&c);
        pool_free(&pool);
    }
}

// A state is the memory alone, but for chunks of ttt: they need the one at their start, too.
static void test_state_floats(void **state)
{
    (void)state;
    Rivals rivals = rivals_list(true);
    for (size_t i = 0; i < rivals.count; i++) {
        const ReferenceForm *form = &rivals.forms[i];
        const Mixer *mixer = mixer_find(kernels_available()[0]->mixers, form->mixer);
        ModelConfig config = {.n_head = 3, .n_slot = 8, .d_head = 8, .chunk = (int64_t)form->chunk};
        if (mixer->state_floats != NULL) {
            assert_int_equal(mixer->state_floats(&config), (form->chunk > 1 ? 2 : 1) * 3 * 8 * 8);
        }
    }
}

// Lengths around the borders of chunks, and between kept memories.
static void test_chunk_borders(void **state)
{
    (void)state;
    const Rivals rivals = rivals_list(true);
    static const size_t lengths[] = {2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 97};
    for (size_t i = 0; i < rivals.count; i++) {
        bool here = reference_needs(&rivals.forms[i]).products || rivals.forms[i].chunk > 1;
        for (size_t l = 0; here && l < sizeof lengths / sizeof lengths[0]; l++) {
            Pool pool = {0};
            Rng rng;
            rng_seed(&rng, 19, i * 100 + l);
            size_t size[5] = {1, 2, lengths[l], 3 + l, 40 - 2 * l};
            MixerCase c = new_case(&rivals.forms[i], size);
            mixer_case_fill(&c, &pool, &rng, true, 0.0, 2.0);
            check_against_reference(&c, "borders");
            pool_free(&pool);
        }
    }
}

// Decays at their ends: 0, what is lost in f32 as soon as two are multiplied, almost 1 and 1. No ratio of decays may be taken that is above 1.
static void test_decays(void **state)
{
    (void)state;
    static const double decays[] = {0.0, 1e-38, 1e-30, 1e-20, 1e-7, 0.5, 0.99999994039535522, 1.0};
    static const char *const mixers[] = {"mamba2", "gated_delta", "gla"};
    for (size_t i = 0; i < 24; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 23, i);
        size_t size[5] = {1, 2, 100, i % 2 == 0 ? 64 : 20, i % 2 == 0 ? 64 : 24};
        MixerCase c = new_case(&(ReferenceForm){.mixer = mixers[i % 3], .chunk = 1}, size);
        mixer_case_fill(&c, &pool, &rng, true, 0.0, 1.0);
        double *decay = c.alpha != NULL ? c.alpha : c.mu;
        size_t n = c.n_head * c.length * (c.alpha != NULL ? c.n_slot : 1), kind = i / 3;
        for (size_t t = 0; t < n; t++) {
            // One in ten, one in two, or all; of one kind, or of all kinds.
            bool here = kind % 3 == 2 || rng_below(&rng, kind % 3 == 0 ? 10 : 2) == 0;
            decay[t] = !here ? decay[t] : (double)(float)decays[kind < 4 ? rng_below(&rng, 8) : kind - 4];
        }
        check_against_reference(&c, "decays");
        pool_free(&pool);
    }
}

// A NaN in one head's value shows in all later outputs of that head (attention: that see it), and nowhere else; by products, nowhere else but in its chunk.
static void test_nan(void **state)
{
    (void)state;
    const Rivals rivals = rivals_list(true);
    enum { HEADS = 2, LENGTH = 50, D = 20, BAD = 37 };
    static const size_t shape[5] = {1, HEADS, LENGTH, D, D};
    for (size_t form = 0; form < rivals.count; form++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 17, form);
        MixerCase c = new_case(&rivals.forms[form], shape);
        mixer_case_fill(&c, &pool, &rng, false, -1.0, 1.0);
        for (size_t j = 0; j < D; j++) {
            c.v[(1 * LENGTH + BAD) * D + j] = NAN;
        }
        size_t last = c.form.window > 0 ? BAD + c.form.window : LENGTH;
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            MixerResult r = mixer_case_fast(&pool, &c, *kernels);
            for (size_t i = 0; i < HEADS * LENGTH * D; i++) {
                size_t t = i / D % LENGTH;
                bool may = reference_needs(&rivals.forms[form]).products && i / D / LENGTH == 1 && t < BAD && t >= BAD / CHUNK * CHUNK;
                assert_true(may || isnan(r.o[i]) == (i / D / LENGTH == 1 && t >= BAD && t < last));
            }
        }
        pool_free(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needs), cmocka_unit_test(test_reference_shapes), cmocka_unit_test(test_cuts), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_chunk_borders), cmocka_unit_test(test_decays), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_state_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
