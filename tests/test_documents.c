// Packed documents in the fast mixers, of every instruction set: each document gives the numbers that it gives as a sequence of its own, forward and backward;
// several threads; and no mixer writes beyond the memory that it asked for, however a sequence is cut.
#include "model/mixers/documents.h"
#include "tests/documents.h"
#include "tests/mixer.h"
#include "tests/rivals.h"
#include "tests/short.h"

#define CANARY 12345.0f
#define CANARIES 64

static const ReferenceForm lattice_forms[] = {
    {.mixer = "lattice", .objective = "decode", .chunk = 1, .chunk_form = "frozen", .chunk_norm = "token"},
    {.mixer = "lattice", .objective = "encode", .chunk = 1, .chunk_form = "frozen", .chunk_norm = "token"},
    {.mixer = "lattice", .objective = "similarity", .chunk = 1, .chunk_form = "gated", .chunk_norm = "token"},
    {.mixer = "lattice", .objective = "decode", .chunk = 5, .chunk_form = "frozen", .chunk_norm = "token"},
    {.mixer = "lattice", .objective = "decode", .chunk = 16, .chunk_form = "gated", .chunk_norm = "token"},
    {.mixer = "lattice", .objective = "encode", .chunk = 16, .chunk_form = "frozen", .chunk_norm = "chunk"},
    {.mixer = "lattice", .objective = "similarity", .chunk = 2, .chunk_form = "gated", .chunk_norm = "chunk"},
    {.mixer = "lattice", .objective = "similarity", .chunk = 64, .chunk_form = "frozen", .chunk_norm = "token"},
    {.mixer = "lattice", .objective = "encode", .chunk = 7, .chunk_form = "gated", .chunk_norm = "token"},
    {.mixer = "lattice", .objective = "decode", .chunk = 50, .chunk_form = "gated", .chunk_norm = "chunk"},
    {.mixer = "lattice", .objective = "decode", .chunk = 6, .chunk_form = "frozen", .chunk_norm = "chunk", .no_projection = true},
    {.mixer = "lattice", .objective = "decode", .chunk = 1, .chunk_form = "frozen", .chunk_norm = "token", .no_normalisation = true},
    {.mixer = "lattice", .objective = "decode", .chunk = 40, .chunk_form = "gated", .chunk_norm = "token", .l1 = 0.01},
    {.mixer = "lattice", .objective = "decode", .chunk = 1, .chunk_form = "frozen", .chunk_norm = "token", .slot_gate = true},
    {.mixer = "lattice", .objective = "similarity", .chunk = 5, .chunk_form = "frozen", .chunk_norm = "chunk", .slot_gate = true},
};
enum { LATTICE_FORMS = sizeof lattice_forms / sizeof lattice_forms[0] };

// Everything that one forward and backward of a batch sets; what is summed over documents last.
typedef struct DocumentRows {
    float *o, *qkv, *g, *mu, *alpha;
    float *state0, *ln_weight, *ln_bias;
} DocumentRows;

static float *nan_floats(Pool *pool, size_t n)
{
    float *x = pool_floats(pool, n);
    fill_floats(x, n, NAN);
    return x;
}

static float *guarded_floats(Pool *pool, size_t n)
{
    float *x = nan_floats(pool, n + CANARIES);
    fill_floats(x + n, CANARIES, CANARY);
    return x;
}

static void check_guard(const char *where, const char *what, const float *x, size_t n)
{
    for (size_t i = 0; i < CANARIES; i++) {
        if (x[n + i] != CANARY) {
            fail_msg("%s: the memory for %s is written beyond its %zu floats", where, what, n);
        }
    }
}

// Numbers of g a token.
static size_t gates_of(const MixerTensors *in, const MixerShape *shape) { return shape->n_head * (in->form.slot_gate ? shape->n_slot : 1); }

static DocumentRows new_rows(Pool *pool, const MixerTensors *in, const MixerShape *shape)
{
    size_t n = shape->batch * shape->length, heads = shape->n_head;
    return (DocumentRows){
        .o = nan_floats(pool, n * heads * shape->d_head),
        .qkv = nan_floats(pool, n * in->qkv_stride),
        .g = in->g != NULL ? nan_floats(pool, n * gates_of(in, shape)) : NULL,
        .mu = in->mu != NULL ? nan_floats(pool, n * heads) : NULL,
        .alpha = in->alpha != NULL ? nan_floats(pool, n * in->alpha_stride) : NULL,
        .state0 = in->state0 != NULL ? pool_floats(pool, heads * shape->n_slot * shape->d_head) : NULL,
        .ln_weight = in->ln_weight != NULL ? pool_floats(pool, heads * shape->d_head) : NULL,
        .ln_bias = in->ln_bias != NULL ? pool_floats(pool, heads * shape->d_head) : NULL,
    };
}

// Forward and backward of `shape` rows; everything begins at the first of them.
static void run_rows(const char *where, DocumentRows *rows, const float *do_, const Mixer *mixer, const MixerTensors *in, const MixerShape *shape)
{
    Pool pool = {0};
    size_t keys = shape->n_head * shape->n_slot, n_saved = mixer->saved_floats(shape), n_forward = mixer->scratch_floats(shape, false);
    size_t n_backward = mixer->scratch_floats(shape, true);
    float *saved = guarded_floats(&pool, n_saved), *forward = guarded_floats(&pool, n_forward), *backward = guarded_floats(&pool, n_backward);
    MixerGradients grad = {.q = rows->qkv, .k = rows->qkv + keys, .v = rows->qkv + 2 * keys, .g = rows->g, .mu = rows->mu, .state0 = rows->state0,
                           .alpha = rows->alpha, .ln_weight = rows->ln_weight, .ln_bias = rows->ln_bias};
    mixer->forward(rows->o, saved, forward, NULL, 0, in, shape);
    mixer->backward(&grad, do_, NULL, 0, saved, backward, in, shape);
    check_guard(where, "what the forward keeps", saved, n_saved);
    check_guard(where, "the forward's scratch", forward, n_forward);
    check_guard(where, "the backward's scratch", backward, n_backward);
    pool_free(&pool);
}

static const float *from(const float *x, size_t n) { return x != NULL ? x + n : NULL; }
static float *from_row(float *x, size_t n) { return x != NULL ? x + n : NULL; }

// The document of `length` rows from row `first` of the batch on, by itself.
static void run_document(const char *where, DocumentRows *rows, const float *do_, const Mixer *mixer, const MixerTensors *whole, const MixerShape *shape,
                         size_t first, size_t length)
{
    size_t heads = shape->n_head, values = heads * shape->d_head;
    MixerTensors in = *whole;
    in.q += first * in.qkv_stride;
    in.k += first * in.qkv_stride;
    in.v += first * in.qkv_stride;
    in.g = from(in.g, first * gates_of(whole, shape));
    in.mu = from(in.mu, first * heads);
    in.alpha = from(in.alpha, first * in.alpha_stride);
    DocumentRows own = *rows;
    own.o += first * values;
    own.qkv += first * in.qkv_stride;
    own.g = from_row(own.g, first * gates_of(whole, shape));
    own.mu = from_row(own.mu, first * heads);
    own.alpha = from_row(own.alpha, first * in.alpha_stride);
    MixerShape one = *shape;
    one.batch = 1;
    one.length = length;
    one.starts = NULL;
    run_rows(where, &own, do_ + first * values, mixer, &in, &one);
}

static void run_documents(const char *where, DocumentRows *rows, const float *do_, const Mixer *mixer, const MixerTensors *in, const MixerShape *shape)
{
    for (size_t b = 0; b < shape->batch; b++) {
        const uint8_t *starts = sequence_starts(shape->starts, b, shape->length);
        for (size_t first = 0, end; first < shape->length; first = end) {
            end = document_end(starts, first, shape->length);
            run_document(where, rows, do_, mixer, in, shape, b * shape->length + first, end - first);
        }
    }
}

static void check_rows(const char *where, const DocumentRows *actual, const DocumentRows *expected, const MixerTensors *in, const MixerShape *shape,
                       double tolerance, double sum_tolerance)
{
    size_t n = shape->batch * shape->length, heads = shape->n_head, values = heads * shape->d_head;
    const struct {
        const char *name;
        const float *actual, *expected;
        size_t count;
        bool sum;
    } arrays[] = {
        {"outputs", actual->o, expected->o, n * values, false},
        {"gradients of q, k and v", actual->qkv, expected->qkv, n * in->qkv_stride, false},
        {"gradient of g", actual->g, expected->g, n * gates_of(in, shape), false},
        {"gradient of mu", actual->mu, expected->mu, n * heads, false},
        {"gradient of alpha", actual->alpha, expected->alpha, n * in->alpha_stride, false},
        {"gradient of state0", actual->state0, expected->state0, values * shape->n_slot, true},
        {"gradient of the norm's scale", actual->ln_weight, expected->ln_weight, values, true},
        {"gradient of the norm's bias", actual->ln_bias, expected->ln_bias, values, true},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        if (arrays[i].expected != NULL) {
            check_same(where, arrays[i].name, arrays[i].actual, arrays[i].expected, arrays[i].count, arrays[i].sum ? sum_tolerance : tolerance);
        }
    }
}

// All cuts of one form; in short tests a third of them, each form another third. Attention's blocks of keys are not cut at borders: it adds up in another order.
static void check_form(const ReferenceForm *form, const size_t size[5], const Kernels *kernels, uint64_t seed)
{
    Pool pool = {0};
    Rng rng;
    char where[320], text[160];
    rng_seed(&rng, 71, seed);
    ReferenceNeeds needs = reference_needs(form);
    MixerCase c = {.form = *form, .batch = size[0], .n_head = size[1], .length = size[2], .n_slot = size[3], .d_head = needs.square ? size[3] : size[4]};
    bool encode = form->objective != NULL && strcmp(form->objective, "encode") == 0;
    mixer_case_fill(&c, &pool, &rng, seed % 2 == 0, encode ? -4.0 : -2.0, 1.0);
    MixerTensors in;
    MixerShape shape;
    mixer_case_tensors(&in, &shape, &pool, &c);
    const Mixer *mixer = mixer_find(kernels->mixers, mixer_case_fast_name(&c));
    float *do_ = random_floats(&pool, &rng, c.batch * c.length * c.n_head * c.d_head, 1.0);
    uint8_t *starts = (uint8_t *)pool_ints(&pool, c.batch * c.length);
    mixer_form_text(text, form);
    for (DocumentCut cut = 0; cut < DOCUMENT_CUTS; cut++) {
        if ((cut + seed) % rounds(1, 3) != 0) {
            continue;
        }
        snprintf(where, sizeof where, "%s %s, %s, cut %d", kernels->name, mixer->name, text, (int)cut);
        for (size_t b = 0; b < c.batch; b++) {
            cut_documents(starts + b * c.length, c.length, (cut + b) % DOCUMENT_CUTS, &rng);
        }
        shape.starts = starts;
        DocumentRows packed = new_rows(&pool, &in, &shape), alone = new_rows(&pool, &in, &shape);
        check_threads(1);
        run_rows(where, &packed, do_, mixer, &in, &shape);
        run_documents(where, &alone, do_, mixer, &in, &shape);
        check_rows(where, &packed, &alone, &in, &shape, strcmp(form->mixer, "attention") == 0 ? 1e-5 : 0.0, 1e-5);
        for (int threads = 2; threads <= 3 && cut == DOCUMENTS_RANDOM; threads++) {
            DocumentRows again = new_rows(&pool, &in, &shape);
            check_threads(threads);
            run_rows(where, &again, do_, mixer, &in, &shape);
            check_rows("several threads", &again, &packed, &in, &shape, 0.0, 0.0);
        }
    }
    pool_free(&pool);
}

static void test_documents(void **state)
{
    (void)state;
    static const size_t odd[5] = {2, 3, 133, 17, 20}, full[5] = {1, 1, 133, 64, 64};   // B, H, T, m, d
    const Rivals rivals = rivals_list(false);
    for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
        for (size_t i = 0; i < rivals.count + LATTICE_FORMS; i++) {
            const ReferenceForm *form = i < rivals.count ? &rivals.forms[i] : &lattice_forms[i - rivals.count];
            bool best = kernels == kernels_available();
            if (best || i % 2 == 0) {
                check_form(form, odd, *kernels, 2 * i);
            }
            if (best || i % 2 == 1) {
                check_form(form, full, *kernels, 2 * i + 1);
            }
        }
    }
}

// Every chunk of Lattice that goes by matrix products, in every form.
static void test_chunks(void **state)
{
    (void)state;
    static const char *const objectives[] = {"decode", "encode", "similarity"}, *const chunk_forms[] = {"frozen", "gated"}, *const norms[] = {"token", "chunk"};
    static const size_t size[5] = {2, 1, 110, 9, 12};
    for (size_t chunk = 2; chunk <= 64; chunk++) {
        ReferenceForm form = {.mixer = "lattice", .objective = objectives[chunk % 3], .chunk = chunk, .chunk_form = chunk_forms[chunk / 3 % 2],
                              .chunk_norm = norms[chunk / 6 % 2]};
        check_form(&form, size, kernels_available()[0], chunk);
    }
}

// However long a sequence and however it is cut, the states that its documents keep have places of their own, within the room there is.
static void test_kept(void **state)
{
    (void)state;
    Rng rng;
    rng_seed(&rng, 73, 0);
    for (size_t length = 1; length < 400; length++) {
        Pool pool = {0};
        uint8_t *starts = (uint8_t *)pool_ints(&pool, length);
        cut_documents(starts, length, length % DOCUMENT_CUTS, &rng);
        size_t used = 0;
        for (size_t first = 0, end; first < length; first = end) {
            end = document_end(starts, first, length);
            assert_true(document_begin(starts, end) == first);
            assert_true(kept_before(first) >= used);
            used = kept_before(first) + kept_states(end - first);
        }
        assert_true(used <= kept_states(length));
        pool_free(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
