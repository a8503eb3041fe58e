// Chunks of Lattice by matrix products, of every instruction set: against the reference, in pieces, with several threads, with NaN, and where norms cancel.
#include "tests/mixer.h"
#include "tests/short.h"

// Every objective, form, normalisation and forget gate in one number below FORM_COUNT.
enum { FORM_COUNT = 3 * 2 * 2 * 2 };

static ReferenceForm numbered_form(size_t i, size_t chunk)
{
    static const char *const objectives[] = {"decode", "encode", "similarity"}, *const chunk_forms[] = {"frozen", "gated"}, *const norms[] = {"token", "chunk"};
    return (ReferenceForm){.mixer = "lattice", .objective = objectives[i / 8], .chunk = chunk, .chunk_form = chunk_forms[i / 4 % 2],
                           .chunk_norm = norms[i / 2 % 2]};
}

static bool numbered_forget_gate(size_t i) { return i % 2 == 1; }

// Strong writing with `encode` magnifies rounding a thousandfold in 200 tokens, whichever way it is computed.
static double gate_mean(size_t i, bool strong) { return i / 8 == 1 ? -6.0 : strong ? 0.0 : -3.0; }

// size: B, H, T, m, d.
static MixerCase numbered_case(Pool *pool, Rng *rng, size_t i, size_t chunk, const size_t size[5], double mean)
{
    MixerCase c = {.form = numbered_form(i, chunk), .batch = size[0], .n_head = size[1], .length = size[2], .n_slot = size[3], .d_head = size[4],
                   .fast = "lattice_forms"};
    mixer_case_fill(&c, pool, rng, numbered_forget_gate(i), mean, 1.0);
    return c;
}

static void test_reference(void **state)
{
    (void)state;
    static const size_t chunks[] = {1, 3, 4, 16, 64}, lengths[] = {1, 63, 64, 200};
    static const size_t shapes[][3] = {{1, 16, 24}, {2, 24, 20}, {1, 64, 64}, {1, 40, 16}, {2, 17, 33}, {1, 192, 48}, {1, 16, 96}};   // B, m, d
    for (size_t i = 0, n = 0; i < FORM_COUNT; i++) {
        for (size_t chunk = 0; chunk < 5; chunk++) {
            for (size_t length = chunk % 2; length < 4; length += 2, n++) {
                if (n % rounds(1, 3) != 0) {
                    continue;
                }
                Pool pool = {0};
                Rng rng;
                rng_seed(&rng, 41, n);
                const size_t *s = shapes[n % 7], size[5] = {s[0], 1 + n % 2, lengths[length], s[1], s[2]};
                MixerCase c = numbered_case(&pool, &rng, i, chunks[chunk], size, lengths[length] == 1 ? 0.0 : gate_mean(i, n % 3 == 0));
                c.dstate = n % 5 == 0 ? NULL : c.dstate;
                check_against_reference(&c, "chunks");
                pool_free(&pool);
            }
        }
    }
}

// Long chunks and those that no vector divides, in pieces that cut them anywhere.
static void test_cuts(void **state)
{
    (void)state;
    static const size_t chunks[] = {16, 5, 64, 31};
    for (size_t i = 0; i < FORM_COUNT; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 43, i);
        size_t size[5] = {2, 2, 90, i % 3 == 0 ? 64 : 19, i % 3 == 0 ? 64 : 24};
        MixerCase c = numbered_case(&pool, &rng, i, chunks[(i + i / 4) % 4], size, -2.0);
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            check_cuts_within(&c, *kernels, true, GOLDEN_FAST_OUTPUT);
        }
        pool_free(&pool);
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORM_COUNT; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 47, i);
        size_t size[5] = {2, 3, 70, 16, 40};
        MixerCase c = numbered_case(&pool, &rng, i, i % 2 == 0 ? 16 : 4, size, -1.0);
        check_same_for_threads(&c);
        pool_free(&pool);
    }
}

// A NaN in one head's value shows in all its later outputs, and in none of another head or of an earlier chunk; the gradients show it as well.
static void test_nan(void **state)
{
    (void)state;
    enum { HEADS = 2, LENGTH = 50, M = 6, D = 20, BAD = 37, CHUNK = 16 };
    for (size_t i = 0; i < FORM_COUNT; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 53, i);
        size_t size[5] = {1, HEADS, LENGTH, M, D};
        MixerCase c = numbered_case(&pool, &rng, i, CHUNK, size, -1.0);
        for (size_t j = 0; j < D; j++) {
            c.v[(1 * LENGTH + BAD) * D + j] = NAN;
        }
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            MixerResult r = mixer_case_fast(&pool, &c, *kernels);
            for (size_t l = 0; l < HEADS * LENGTH * D; l++) {
                size_t head = l / D / LENGTH, t = l / D % LENGTH;
                if (head == 0 || t < BAD / CHUNK * CHUNK) {
                    assert_false(isnan(r.o[l]));
                } else if (t >= BAD) {
                    assert_true(isnan(r.o[l]));
                }
            }
            assert_true(isnan(r.d_g[1 * LENGTH + BAD]) && isnan(r.d_state0[M * D]));
            assert_false(isnan(r.d_g[BAD]) || isnan(r.d_state0[0]));
        }
        pool_free(&pool);
    }
}

// Where norms cancel: slots in one direction and values along or against it, strong writing, gates fully open or closed, keys and slots of zeros.
static void test_degenerate_inputs(void **state)
{
    (void)state;
    enum { LENGTH = 70, M = 5, D = 24, HEADS = 2 };
    for (size_t i = 0; i < FORM_COUNT * 4; i++) {
        Pool pool = {0};
        Rng rng;
        size_t kind = i % 4, size[5] = {1, HEADS, LENGTH, M, D};
        rng_seed(&rng, 59, i);
        MixerCase c = numbered_case(&pool, &rng, i / 4, i % 3 == 0 ? 4 : 16, size, gate_mean(i / 4, true));
        c.mu = kind == 1 ? NULL : c.mu;   // where nothing is written its gradient is rounding alone
        for (size_t l = 0; kind < 3 && l < HEADS * M * D; l++) {
            c.state0[l] = 0.25;
        }
        for (size_t l = 0; l < HEADS * LENGTH; l++) {
            if (kind == 1) {
                memset(c.k + l * M, 0, M * sizeof *c.k);
            } else if (kind == 2) {
                c.g[l] = l % 3 == 0 ? 0.0 : i / 4 / 8 == 1 ? 0.015625 : 1.0;
            }
        }
        for (size_t l = 0; kind == 3 && l < D; l++) {
            c.state0[D + l] = 0.0;
        }
        check_against_reference(&c, "degenerate");
        pool_free(&pool);
    }
}

static void check_unit(const MixerResult *r, size_t m, size_t d, const char *where, size_t form)
{
    for (size_t i = 0; i < m; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < d; j++) {
            sum += r->state[i * d + j] * r->state[i * d + j];
        }
        if (!(fabs(sqrt(sum) - 1.0) <= 1e-5)) {
            fail_msg("%s, form %zu: slot %zu has length %.9g", where, form, i, sqrt(sum));
        }
    }
}

// Gate logits of ±30 over thousands of tokens, decode's values along or against one direction: outputs and gradients stay finite, slots unit vectors, also
// where a sequence ends inside a chunk. (Slots that are normalised once a chunk may grow beyond f32 in the gated form: it is given no such values.)
static void test_extremes(void **state)
{
    (void)state;
    enum { M = 8, D = 12 };
    const size_t length = rounds(4001, 801);
    static const double logits[] = {30.0, -30.0, 0.0};
    for (size_t i = 0; i < FORM_COUNT; i++) {
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 61, i);
        size_t size[5] = {1, 1, length, M, D};
        MixerCase c = numbered_case(&pool, &rng, i, i % 3 == 0 ? 64 : 15, size, 0.0);
        bool tokens = i / 2 % 2 == 0;
        for (size_t t = 0; t < length && tokens; t++) {
            c.g[t] = 1.0 / (1.0 + exp(-logits[rng_below(&rng, 3)]));
            if (c.mu != NULL) {
                c.mu[t] = 1.0 / (1.0 + exp(-logits[rng_below(&rng, 3)]));
            }
            c.v[t * D] += i / 8 != 0 ? 0.0 : rng_below(&rng, 2) == 0 ? 30.0 : -30.0;
        }
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            MixerResult r = mixer_case_fast(&pool, &c, *kernels);
            check_unit(&r, M, D, (*kernels)->name, i);
            for (size_t l = 0; l < length * D; l++) {
                if (!isfinite(r.o[l]) || !isfinite(r.d_v[l]) || !isfinite(r.d_g[l / D])) {
                    fail_msg("%s, form %zu: not finite at token %zu", (*kernels)->name, i, l / D);
                }
            }
        }
        pool_free(&pool);
    }
}

// Writes so much longer than the slots that a slot over its scale (lattice_factors.c) leaves f32 inside one chunk. (Where slots are normalised once a chunk, they
// themselves would.)
static void test_strong_writes(void **state)
{
    (void)state;
    enum { M = 7, D = 24, LENGTH = 97, HEADS = 2 };
    for (size_t i = 0; i < FORM_COUNT; i += i % 2 == 0 ? 1 : 3) {   // the two of four that normalise every token
        Pool pool = {0};
        Rng rng;
        rng_seed(&rng, 67, i);
        MixerCase c = numbered_case(&pool, &rng, i, 48, (const size_t[]){1, HEADS, LENGTH, M, D}, -3.0);
        assert_string_equal(c.form.chunk_norm, "token");
        for (size_t l = 0; l < HEADS * LENGTH * M; l++) {
            c.k[l] *= 18.0;
        }
        for (size_t l = 0; l < HEADS * LENGTH * D; l++) {
            c.v[l] *= 6.0;
        }
        check_against_reference(&c, "strong writes");
        pool_free(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_cuts),     cmocka_unit_test(test_degenerate_inputs),
        cmocka_unit_test(test_nan),       cmocka_unit_test(test_extremes), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_strong_writes),
    };
    check_threads(1);   // small cases: threads would spend more time on waiting than on work
    return cmocka_run_group_tests(tests, NULL, NULL);
}
