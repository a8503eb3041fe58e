// The fast Lattice mixer of every instruction set: against the reference on odd shapes, in pieces, with several threads, and over long sequences of extreme gates.
#include "tests/check.h"

#include <math.h>

#include "tests/mixer.h"

static MixerCase new_case(size_t batch, size_t n_head, size_t length, size_t n_slot, size_t d_head)
{
    return (MixerCase){.form = {.mixer = "lattice", .objective = "decode", .chunk = 1}, .batch = batch, .n_head = n_head, .length = length, .n_slot = n_slot,
                       .d_head = d_head};
}

static void test_reference_shapes(void **state)
{
    (void)state;
    static const size_t shapes[][5] = {   // B, H, T, m, d
        {1, 1, 1, 1, 1},    {1, 2, 1, 16, 64},   {3, 1, 63, 48, 33}, {2, 3, 63, 1, 17},   {1, 1, 63, 64, 192}, {2, 1, 1000, 16, 64},
        {1, 1, 1000, 64, 64}, {1, 2, 1000, 6, 8}, {3, 2, 31, 33, 16}, {2, 2, 32, 16, 20}, {1, 3, 33, 17, 1},   {1, 1, 1000, 64, 33},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const size_t *s = shapes[i];
        for (int forget_gate = 0; forget_gate < 2; forget_gate++) {
            Pool pool = {0};
            Rng rng;
            rng_seed(&rng, i, (uint64_t)forget_gate);
            MixerCase c = new_case(s[0], s[1], s[2], s[3], s[4]);
            // The write intensity that training starts from (docs/memories.md 6) on even shapes, strong writing on the others.
            mixer_case_fill(&c, &pool, &rng, forget_gate == 1, i % 2 == 0 ? -3.0 : 0.0, 1.0);
            check_threads(1 + (int)(i % 3));
            check_against_reference(&c, "with dstates");
            c.dstate = NULL;
            check_against_reference(&c, "without dstates");
            pool_free(&pool);
        }
    }
}

// Where formulas cancel: all slots in one direction, values along it, keys of zero, gates closed.
static void test_degenerate_inputs(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 7, (uint64_t)kind);
        MixerCase c = new_case(1, 2, 70, 5, 24);
        mixer_case_fill(&c, &pool, &rng, kind == 3, -1.0, 1.0);
        for (size_t i = 0; i < 2 * 5 * 24; i++) {
            c.state0[i] = 0.25;
        }
        for (size_t i = 0; kind == 1 && i < 2 * 70 * 5; i++) {
            c.k[i] = 0.0;
        }
        for (size_t i = 0; kind >= 2 && i < 2 * 70; i++) {
            c.g[i] = i % 3 == 0 ? 0.0 : 1.0;
        }
        check_against_reference(&c, "all slots in one direction");
        pool_free(&pool);
    }
}

// ---- Whole, in pieces, token by token, from a copied state ----

static void test_cuts(void **state)
{
    (void)state;
    static const size_t shapes[][5] = {{1, 2, 100, 16, 24}, {3, 1, 67, 5, 33}, {2, 1, 40, 64, 64}, {1, 1, 70, 1, 8}};
    for (size_t i = 0; i < 8; i++) {
        const size_t *s = shapes[i / 2];
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 11, i);
        MixerCase c = new_case(s[0], s[1], s[2], s[3], s[4]);
        mixer_case_fill(&c, &pool, &rng, i % 2 == 1, -1.0, 2.0);
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            check_threads(1 + (int)(i % 2));
            check_cuts(&c, *kernels, true);
        }
        pool_free(&pool);
    }
}

// ---- Threads, NaN, long sequences ----

static void test_threads(void **state)
{
    (void)state;
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, 13, 0);
    MixerCase c = new_case(3, 3, 130, 16, 40);
    mixer_case_fill(&c, &pool, &rng, true, -1.0, 1.0);
    check_same_for_threads(&c);
    pool_free(&pool);
}

// A NaN in one head's value shows in all its later outputs, and nowhere else.
static void test_nan(void **state)
{
    (void)state;
    enum { HEADS = 2, LENGTH = 50, D = 20, BAD = 37 };
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, 17, 0);
    MixerCase c = new_case(1, HEADS, LENGTH, 6, D);
    mixer_case_fill(&c, &pool, &rng, false, -1.0, 1.0);
    c.v[(1 * LENGTH + BAD) * D + 3] = NAN;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        MixerResult r = mixer_case_fast(&pool, &c, *kernels);
        for (size_t i = 0; i < HEADS * LENGTH * D; i++) {
            bool expected = i / D / LENGTH == 1 && i / D % LENGTH >= BAD;
            assert_int_equal(isnan(r.o[i]), expected);
        }
        double sum = 0.0;
        for (size_t i = 0; i < 6 * D; i++) {
            assert_false(isnan(r.state[i]));
            sum += r.state[6 * D + i];
        }
        assert_true(isnan(sum));
        assert_true(isnan(r.d_g[1 * LENGTH + BAD]));
    }
    // In a start slot of the second head.
    c.v[(1 * LENGTH + BAD) * D + 3] = 0.0;
    c.state0[(1 * 6 + 2) * D + 1] = NAN;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        MixerResult r = mixer_case_fast(&pool, &c, *kernels);
        assert_true(isnan(r.d_state0[(1 * 6 + 2) * D + 1]));
        for (size_t i = 0; i < 6 * D; i++) {
            assert_false(isnan(r.d_state0[i]));
        }
    }
    pool_free(&pool);
}

static void check_slots(const float *states, size_t n_slots, size_t d, const char *where, size_t position)
{
    for (size_t i = 0; i < n_slots; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < d; j++) {
            sum += (double)states[i * d + j] * states[i * d + j];
        }
        if (!(fabs(sqrt(sum) - 1.0) <= 1e-5)) {
            fail_msg("%s: slot %zu has length %.9g after %zu tokens", where, i, sqrt(sum), position);
        }
    }
}

// 44,000 tokens with gate logits of ±30 or 0, in pieces of 1,000: slots stay unit vectors and outputs finite.
static void check_long(bool forget_gate, const Kernels *kernels)
{
    enum { LENGTH = 44000, PIECE = 1000, M = 16, D = 24, HEADS = 2 };
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, 19, forget_gate);
    MixerCase c = new_case(1, HEADS, LENGTH, M, D);
    mixer_case_fill(&c, &pool, &rng, forget_gate, 0.0, 1.0);
    for (size_t i = 0; i < HEADS * LENGTH; i++) {
        static const double logits[] = {30.0, -30.0, 0.0};
        c.g[i] = 1.0 / (1.0 + exp(-logits[rng_below(&rng, 3)]));
        if (forget_gate) {
            c.mu[i] = 1.0 / (1.0 + exp(-logits[rng_below(&rng, 3)]));
        }
    }
    MixerTensors in;
    MixerShape shape;
    mixer_case_tensors(&in, &shape, &pool, &c);
    const Mixer *mixer = mixer_find(kernels->mixers, "lattice");
    float *o = pool_floats(&pool, LENGTH * HEADS * D), *states = pool_floats(&pool, HEADS * M * D);
    mixer->state_init(states, in.state0, &shape);
    for (size_t begin = 0; begin < LENGTH; begin += PIECE) {
        run_piece(o, states, HEADS * M * D, mixer, &in, &shape, begin, PIECE);
        check_slots(states, HEADS * M, D, kernels->name, begin + PIECE);
    }
    for (size_t i = 0; i < LENGTH * HEADS * D; i++) {
        assert_true(isfinite(o[i]));
    }
    pool_free(&pool);
}

static void test_long(void **state)
{
    (void)state;
    check_threads(2);
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        check_long(false, *kernels);
        check_long(true, *kernels);
    }
}

// The slots do not drift either when each token is a call of its own, as in decoding: neither with random values, nor with values along or against one
// direction, where a write turns a slot around and a slot's error in length can grow with every token.
static void check_long_decoding(bool aligned, const Kernels *kernels)
{
    enum { LENGTH = 20000, M = 4, D = 8 };
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, 23, aligned);
    MixerCase c = new_case(1, 1, LENGTH, M, D);
    mixer_case_fill(&c, &pool, &rng, false, 0.0, 3.0);
    for (size_t t = 0; aligned && t < LENGTH; t++) {
        c.v[t * D] += rng_below(&rng, 2) == 0 ? 30.0 : -30.0;
    }
    MixerTensors in;
    MixerShape shape;
    mixer_case_tensors(&in, &shape, &pool, &c);
    const Mixer *mixer = mixer_find(kernels->mixers, "lattice");
    float *o = pool_floats(&pool, LENGTH * D), *states = pool_floats(&pool, M * D);
    mixer->state_init(states, in.state0, &shape);
    for (size_t t = 0; t < LENGTH; t++) {
        run_piece(o, states, M * D, mixer, &in, &shape, t, 1);
        check_slots(states, M, D, kernels->name, t + 1);
    }
    pool_free(&pool);
}

static void test_long_decoding(void **state)
{
    (void)state;
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        check_long_decoding(false, *kernels);
        check_long_decoding(true, *kernels);
    }
}

// Gates at their ends on a length of training: every gradient stays finite.
static void test_extreme_gradients(void **state)
{
    (void)state;
    enum { HEADS = 2, LENGTH = 2000, M = 8, D = 12 };
    for (int forget_gate = 0; forget_gate < 2; forget_gate++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 29, (uint64_t)forget_gate);
        MixerCase c = new_case(1, HEADS, LENGTH, M, D);
        mixer_case_fill(&c, &pool, &rng, forget_gate == 1, 0.0, 1.0);
        for (size_t i = 0; i < HEADS * LENGTH; i++) {
            c.g[i] = 1.0 / (1.0 + exp(rng_below(&rng, 2) == 0 ? -30.0 : 30.0));
        }
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            MixerResult r = mixer_case_fast(&pool, &c, *kernels);
            for (size_t i = 0; i < HEADS * LENGTH; i++) {
                assert_true(isfinite(r.d_g[i]) && (forget_gate == 0 || isfinite(r.d_mu[i])));
            }
            for (size_t i = 0; i < HEADS * LENGTH * M; i++) {
                assert_true(isfinite(r.d_q[i]) && isfinite(r.d_k[i]));
            }
            for (size_t i = 0; i < HEADS * LENGTH * D; i++) {
                assert_true(isfinite(r.d_v[i]));
            }
            for (size_t i = 0; i < HEADS * M * D; i++) {
                assert_true(isfinite(r.d_state0[i]));
            }
        }
        pool_free(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_shapes), cmocka_unit_test(test_degenerate_inputs), cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_threads),          cmocka_unit_test(test_nan),               cmocka_unit_test(test_long),
        cmocka_unit_test(test_long_decoding),    cmocka_unit_test(test_extreme_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
