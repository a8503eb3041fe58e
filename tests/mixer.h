// A fast mixer of every instruction set against the reference, against itself in pieces, and with several threads: what the tests of mixers share.
#ifndef TESTS_MIXER_H
#define TESTS_MIXER_H

#include <math.h>

#include "tests/check.h"
#include "tests/reference/golden.h"

// "decode, chunk 4, frozen, token, l1"
static inline void mixer_form_text(char text[160], const ReferenceForm *form)
{
    snprintf(text, 160, "%s, chunk %zu, %s, %s, window %zu%s%s%s%s", form->objective != NULL ? form->objective : "-", form->chunk,
             form->chunk_form != NULL ? form->chunk_form : "-", form->chunk_norm != NULL ? form->chunk_norm : "-", form->window,
             form->no_projection ? ", no projection" : "", form->no_normalisation ? ", no normalisation" : "", form->l1 > 0.0 ? ", l1" : "",
             form->slot_gate ? ", slot gate" : "");
}

typedef struct Where {
    const char *kernels, *what;
    const MixerCase *mixer_case;
    double output_tolerance, gradient_tolerance;
} Where;

static inline void check_error(void *context, const char *name, bool is_gradient, double error)
{
    const Where *w = context;
    double tolerance = is_gradient ? w->gradient_tolerance : w->output_tolerance;
    if (!(error <= tolerance)) {
        const MixerCase *c = w->mixer_case;
        char form[160];
        mixer_form_text(form, &c->form);
        fail_msg("%s %s, %s: %s, B %zu, H %zu, T %zu, m %zu, d %zu, %s: relative RMS error of %s%s is %.2e, above %.0e", w->kernels, mixer_case_fast_name(c),
                 w->what, form, c->batch, c->n_head, c->length, c->n_slot, c->d_head, c->mu != NULL ? "forget gate" : "no forget gate",
                 is_gradient ? "gradient " : "", name, error, tolerance);
    }
}

static inline void check_against_reference(const MixerCase *c, const char *what)
{
    Pool pool = {0};
    MixerResult expected = mixer_case_reference(&pool, c);
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        // A threshold's gradient jumps where rounding takes a number to its other side.
        double gradient_tolerance = c->form.l1 > 0.0 ? 50.0 * GOLDEN_FAST_GRADIENT : GOLDEN_FAST_GRADIENT;
        Where where = {(*kernels)->name, what, c, GOLDEN_FAST_OUTPUT, gradient_tolerance};
        MixerResult fast = mixer_case_fast(&pool, c, *kernels);
        mixer_result_compare(&fast, &expected, c, check_error, &where);
    }
    pool_free(&pool);
}

static inline float *rows_piece(Pool *pool, const float *rows, size_t stride, size_t begin, size_t count, const MixerShape *whole)
{
    float *out = rows != NULL ? pool_floats(pool, whole->batch * count * stride) : NULL;
    for (size_t b = 0; rows != NULL && b < whole->batch; b++) {
        memcpy(out + b * count * stride, rows + (b * whole->length + begin) * stride, count * stride * sizeof *out);
    }
    return out;
}

// Runs tokens [begin, begin + count) of all sequences on the states, and puts the outputs into their rows of o [B·T, H·d].
static inline void run_piece(float *o, float *states, size_t state_stride, const Mixer *mixer, const MixerTensors *whole, const MixerShape *shape, size_t begin,
                             size_t count)
{
    Pool pool = {0};
    size_t keys = shape->n_head * shape->n_slot, values = shape->n_head * shape->d_head;
    float *qkv = rows_piece(&pool, whole->q, whole->qkv_stride, begin, count, shape), *out = pool_floats(&pool, shape->batch * count * values);
    MixerTensors in = *whole;
    in.q = qkv;
    in.k = qkv + keys;
    in.v = qkv + 2 * keys;
    in.g = rows_piece(&pool, whole->g, shape->n_head * (whole->form.slot_gate ? shape->n_slot : 1), begin, count, shape);
    in.mu = rows_piece(&pool, whole->mu, shape->n_head, begin, count, shape);
    in.alpha = rows_piece(&pool, whole->alpha, whole->alpha_stride, begin, count, shape);
    MixerShape piece = *shape;
    piece.length = count;
    piece.position = begin;
    float *scratch = pool_floats(&pool, mixer->scratch_floats(&piece, false));
    fill_floats(scratch, mixer->scratch_floats(&piece, false), NAN);
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

static inline void run_cut(float *o, float *states, size_t stride, Cut cut, const Mixer *mixer, const MixerTensors *in, const MixerShape *shape)
{
    Pool pool = {0};
    size_t length = shape->length, n = shape->batch * stride;
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

// The same bits, or with a tolerance the same to that relative RMS.
static inline void check_same(const char *where, const char *what, const float *actual, const float *expected, size_t n, double tolerance)
{
    if (tolerance == 0.0) {
        check_bits(where, what, actual, expected, n);
    } else {
        Pool pool = {0};
        check_close(where, what, actual, to_doubles(&pool, expected, n), n, tolerance);
        pool_free(&pool);
    }
}

// The same whole, token by token, in pieces, and from a copied state; the same bits from the forward of training. Without `end_states` what a mixer keeps
// beside its memory may differ (places of a cache that no token sees yet). tolerance 0: all of it bit by bit.
static inline void check_cuts_within(const MixerCase *c, const Kernels *kernels, bool end_states, double tolerance)
{
    static const char *const names[] = {"whole", "token by token", "in pieces", "from a copied state"};
    char where[256], form[160];
    mixer_form_text(form, &c->form);
    Pool pool = {0};
    MixerTensors in;
    MixerShape shape;
    mixer_case_tensors(&in, &shape, &pool, c);
    const Mixer *mixer = mixer_find(kernels->mixers, mixer_case_fast_name(c));
    size_t n = c->batch * c->length * c->n_head * c->d_head, stride = mixer_case_state_floats(mixer, &in, &shape), n_state = c->batch * stride;
    float *whole = pool_floats(&pool, n), *whole_states = pool_floats(&pool, n_state), *o = pool_floats(&pool, n), *states = pool_floats(&pool, n_state);
    run_cut(whole, whole_states, stride, CUT_WHOLE, mixer, &in, &shape);
    for (Cut cut = CUT_TOKENS; cut <= CUT_COPIED; cut++) {
        snprintf(where, sizeof where, "%s %s, %s, %s", kernels->name, mixer_case_fast_name(c), form, names[cut]);
        run_cut(o, states, stride, cut, mixer, &in, &shape);
        check_same(where, "outputs against the whole", o, whole, n, tolerance);
        if (end_states) {
            check_same(where, "states against the whole", states, whole_states, n_state, tolerance);
        }
    }
    // The forward of training is the same function.
    mixer->forward(o, pool_floats(&pool, mixer->saved_floats(&shape)), pool_floats(&pool, mixer->scratch_floats(&shape, false)), NULL, 0, &in, &shape);
    check_bits("training forward", "outputs against the whole", o, whole, n);
    pool_free(&pool);
}

static inline void check_equal(void *context, const char *name, bool is_gradient, double error)
{
    (void)is_gradient;
    if (error != 0.0) {
        fail_msg("%s: %s differs between 1 thread and more", (const char *)context, name);
    }
}

static inline void check_cuts(const MixerCase *c, const Kernels *kernels, bool end_states) { check_cuts_within(c, kernels, end_states, 0.0); }

// The same bits with 1, 2, 3 and 8 threads, on every instruction set.
static inline void check_same_for_threads(const MixerCase *c)
{
    static const int counts[] = {2, 3, 8};
    Pool pool = {0};
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        check_threads(1);
        MixerResult one = mixer_case_fast(&pool, c, *kernels);
        for (size_t i = 0; i < 3; i++) {
            check_threads(counts[i]);
            MixerResult more = mixer_case_fast(&pool, c, *kernels);
            mixer_result_compare(&more, &one, c, check_equal, (void *)(uintptr_t)(*kernels)->name);
        }
    }
    pool_free(&pool);
}

#endif
