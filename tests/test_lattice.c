// The fast Lattice mixer of every instruction set: against the reference on odd shapes, in pieces, with several threads, and over long sequences of extreme gates.
#include "tests/check.h"

#include <math.h>

#include "tests/reference/golden.h"

static MixerCase new_case(size_t batch, size_t n_head, size_t length, size_t n_slot, size_t d_head)
{
    return (MixerCase){.form = {"lattice", "decode", 1, "frozen", "token"}, .batch = batch, .n_head = n_head, .length = length, .n_slot = n_slot,
                       .d_head = d_head};
}

typedef struct Where {
    const char *kernels, *what;
    const MixerCase *mixer_case;
    double output_tolerance, gradient_tolerance;
} Where;

static void check_error(void *context, const char *name, bool is_gradient, double error)
{
    const Where *w = context;
    double tolerance = is_gradient ? w->gradient_tolerance : w->output_tolerance;
    if (!(error <= tolerance)) {
        const MixerCase *c = w->mixer_case;
        fail_msg("%s, %s: B %zu, H %zu, T %zu, m %zu, d %zu, %s: relative RMS error of %s%s is %.2e, above %.0e", w->kernels, w->what, c->batch, c->n_head,
                 c->length, c->n_slot, c->d_head, c->mu != NULL ? "forget gate" : "no forget gate", is_gradient ? "gradient " : "", name, error, tolerance);
    }
}

static void check_against_reference(const MixerCase *c, const char *what)
{
    Pool pool = {0};
    MixerResult expected = mixer_case_reference(&pool, c);
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        Where where = {(*kernels)->name, what, c, GOLDEN_FAST_OUTPUT, GOLDEN_FAST_GRADIENT};
        MixerResult fast = mixer_case_fast(&pool, c, *kernels);
        mixer_result_compare(&fast, &expected, c, check_error, &where);
    }
    pool_free(&pool);
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
            // The write intensity that training starts from (lattice.md 6) on even shapes, strong writing on the others.
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

static float *rows_piece(Pool *pool, const float *rows, size_t stride, size_t begin, size_t count, const MixerShape *whole)
{
    float *out = pool_floats(pool, whole->batch * count * stride);
    for (size_t b = 0; b < whole->batch; b++) {
        memcpy(out + b * count * stride, rows + (b * whole->length + begin) * stride, count * stride * sizeof *out);
    }
    return out;
}

// Runs tokens [begin, begin + count) of all sequences on the states, and puts the outputs into their rows of o [B·T, H·d].
static void run_piece(float *o, float *states, size_t state_stride, const Mixer *mixer, const MixerTensors *whole, const MixerShape *shape, size_t begin,
                      size_t count)
{
    Pool pool = {0};
    size_t keys = shape->n_head * shape->n_slot, values = shape->n_head * shape->d_head;
    float *qkv = rows_piece(&pool, whole->q, whole->qkv_stride, begin, count, shape), *out = pool_floats(&pool, shape->batch * count * values);
    MixerTensors in = {qkv, qkv + keys, qkv + 2 * keys, whole->qkv_stride, rows_piece(&pool, whole->g, shape->n_head, begin, count, shape),
                       whole->mu != NULL ? rows_piece(&pool, whole->mu, shape->n_head, begin, count, shape) : NULL, whole->state0};
    MixerShape piece = *shape;
    piece.length = count;
    piece.position = begin;
    float *scratch = pool_floats(&pool, mixer->scratch_floats(&piece, false));
    mixer->forward(out, NULL, scratch, states, state_stride, &in, &piece);
    for (size_t b = 0; b < shape->batch; b++) {
        memcpy(o + (b * shape->length + begin) * values, out + b * count * values, count * values * sizeof *o);
    }
    pool_free(&pool);
}

typedef enum Cut {
    CUT_WHOLE,
    CUT_TOKENS,    // one at a time
    CUT_PIECES,    // 1, 2, 3, … tokens
    CUT_COPIED,    // two halves, the second from a copy of the state after the first was destroyed
} Cut;

static void run_cut(float *o, float *states, Cut cut, const Mixer *mixer, const MixerTensors *in, const MixerShape *shape)
{
    Pool pool = {0};
    size_t stride = shape->n_head * shape->n_slot * shape->d_head, length = shape->length, n = shape->batch * stride;
    for (size_t b = 0; b < shape->batch; b++) {
        mixer->state_init(states + b * stride, in->state0, shape);
    }
    for (size_t begin = 0, size = 1; begin < length; begin += size) {
        if (cut == CUT_WHOLE) {
            size = length;
        } else if (cut == CUT_PIECES) {
            size = begin == 0 ? 1 : size + 1;
        } else if (cut == CUT_COPIED) {
            size = begin == 0 ? (length + 1) / 2 : length;
        }
        size = size < length - begin ? size : length - begin;
        run_piece(o, states, stride, mixer, in, shape, begin, size);
        if (cut == CUT_COPIED) {
            float *copy = copy_floats(&pool, states, n);
            fill_floats(states, n, NAN);
            memcpy(states, copy, n * sizeof *states);
        }
    }
    pool_free(&pool);
}

static void check_cuts(const MixerCase *c, const Kernels *kernels)
{
    static const char *const names[] = {"whole", "token by token", "in pieces", "from a copied state"};
    Pool pool = {0};
    MixerTensors in;
    MixerShape shape;
    mixer_case_tensors(&in, &shape, &pool, c);
    const Mixer *mixer = mixer_find(kernels->mixers, "lattice");
    size_t n = c->batch * c->length * c->n_head * c->d_head, n_state = c->batch * c->n_head * c->n_slot * c->d_head;
    float *whole = pool_floats(&pool, n), *whole_states = pool_floats(&pool, n_state), *o = pool_floats(&pool, n), *states = pool_floats(&pool, n_state);
    run_cut(whole, whole_states, CUT_WHOLE, mixer, &in, &shape);
    for (Cut cut = CUT_TOKENS; cut <= CUT_COPIED; cut++) {
        run_cut(o, states, cut, mixer, &in, &shape);
        check_bits(names[cut], "outputs against the whole", o, whole, n);
        check_bits(names[cut], "states against the whole", states, whole_states, n_state);
    }
    // The forward of training is the same function.
    mixer->forward(o, pool_floats(&pool, mixer->saved_floats(&shape)), pool_floats(&pool, mixer->scratch_floats(&shape, false)), NULL, 0, &in, &shape);
    check_bits("training forward", "outputs against the whole", o, whole, n);
    pool_free(&pool);
}

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
            check_cuts(&c, *kernels);
        }
        pool_free(&pool);
    }
}

// ---- Threads, NaN, long sequences ----

static void check_equal(void *context, const char *name, bool is_gradient, double error)
{
    (void)is_gradient;
    if (error != 0.0) {
        fail_msg("%s: %s differs between 1 thread and more", (const char *)context, name);
    }
}

static void test_threads(void **state)
{
    (void)state;
    Pool pool = {0};
    Rng rng;
    rng_seed(&rng, 13, 0);
    MixerCase c = new_case(3, 3, 130, 16, 40);
    mixer_case_fill(&c, &pool, &rng, true, -1.0, 1.0);
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        check_threads(1);
        MixerResult one = mixer_case_fast(&pool, &c, *kernels);
        for (int threads = 2; threads <= 8; threads += threads == 3 ? 5 : 1) {
            check_threads(threads);
            MixerResult more = mixer_case_fast(&pool, &c, *kernels);
            mixer_result_compare(&more, &one, &c, check_equal, (void *)(uintptr_t)(*kernels)->name);
        }
    }
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
