// ./bench --only mixers: Lattice's chunk forms beside its exact form, forward and backward.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "benchmarks/bench.h"
#include "model/mixers/mixer.h"

typedef struct MixerContext {
    const Mixer *mixer;
    MixerShape shape;
    MixerTensors in;
    MixerGradients grad;
    float *o, *saved, *scratch;
} MixerContext;

static void run_mixer(void *context)
{
    MixerContext *c = context;
    c->mixer->forward(c->o, c->saved, c->scratch, NULL, 0, &c->in, &c->shape);
    c->mixer->backward(&c->grad, c->o, NULL, 0, c->saved, c->scratch, &c->in, &c->shape);
}

// n numbers N(0, scale²) + mean
static float *make_normals(size_t n, uint64_t stream, double mean, double scale)
{
    float *x = malloc(n * sizeof *x);
    Rng rng;
    rng_seed(&rng, 1, stream);
    for (size_t i = 0; x != NULL && i < n; i++) {
        x[i] = (float)(mean + scale * rng_normal(&rng));
    }
    return x;
}

// Seconds of one layer's forward and backward on random inputs: keys of length 1, write intensities as at the start of training. Fails without memory.
static int mixer_seconds(Spread *seconds, const Mixer *mixer, const MixerShape *shape, size_t chunk, LatticeForm form, size_t runs, Error *error)
{
    size_t n = shape->batch * shape->length, heads = shape->n_head, m = shape->n_slot, d = shape->d_head;
    size_t query = heads * m, value = heads * d, stride = 2 * query + value, state = heads * m * d;
    MixerContext c = {.mixer = mixer, .shape = *shape};
    float *qkv = make_normals(n * stride, 1, 0.0, 1.0), *dqkv = malloc(n * stride * sizeof *dqkv), *g = make_normals(n * heads, 2, 0.02, 0.002);
    float *dg = malloc(n * heads * sizeof *dg), *state0 = make_normals(state, 3, 1.0, 0.2), *dstate0 = calloc(state, sizeof *dstate0);
    c.o = malloc(n * value * sizeof *c.o);
    c.saved = malloc(mixer->saved_floats(shape) * sizeof *c.saved);
    c.scratch = malloc((mixer->scratch_floats(shape, true) + mixer->scratch_floats(shape, false)) * sizeof *c.scratch);
    bool whole = qkv != NULL && dqkv != NULL && g != NULL && dg != NULL && state0 != NULL && dstate0 != NULL && c.o != NULL && c.saved != NULL && c.scratch != NULL;
    if (whole) {
        for (size_t t = 0; t < n; t++) {
            for (size_t i = 0; i < 2 * query; i++) {
                qkv[t * stride + i] /= sqrtf((float)m);
            }
        }
        c.in = (MixerTensors){.q = qkv, .k = qkv + query, .v = qkv + 2 * query, .qkv_stride = stride, .g = g, .state0 = state0, .chunk = chunk, .form = form};
        c.grad = (MixerGradients){.q = dqkv, .k = dqkv + query, .v = dqkv + 2 * query, .g = dg, .state0 = dstate0};
        *seconds = time_runs(runs, run_mixer, &c);
    }
    free(qkv), free(dqkv), free(g), free(dg), free(state0), free(dstate0), free(c.o), free(c.saved), free(c.scratch);
    return whole ? 0 : no_memory(error);
}

int bench_mixers(Bench *bench, Error *error)
{
    const Mixer *const *mixers = bench->kernels->mixers;
    size_t runs = (size_t)bench->runs;
    enum { LENGTH = 2048, HEADS = 4, SIZE = 64 };
    static const size_t chunks[] = {4, 8, 16, 32, 64};
    MixerShape shape = {.batch = 1, .length = LENGTH, .n_head = HEADS, .n_slot = SIZE, .d_head = SIZE};
    const double tokens = (double)LENGTH * HEADS;
    Spread seconds;
    if (mixer_seconds(&seconds, mixer_find(mixers, "lattice"), &shape, 1, (LatticeForm){.gated = false}, runs, error) != 0) {
        return -1;
    }
    Spread exact = rate_of(seconds, tokens);
    report_line(&bench->report, "lattice exact", exact, "tokens/s", 0.0, 0.0);
    for (size_t form = 0; form < 4; form++) {
        bool gated = form % 2 == 1, chunk_norm = form / 2 == 1;
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            LatticeForm lattice = {.gated = gated, .chunk_norm = chunk_norm};
            char label[64];
            if (mixer_seconds(&seconds, mixer_find(mixers, "lattice_forms"), &shape, chunks[i], lattice, runs, error) != 0) {
                return -1;
            }
            snprintf(label, sizeof label, "lattice %s %zu, norm per %s", gated ? "gated" : "frozen", chunks[i], chunk_norm ? "chunk" : "token");
            report_line(&bench->report, label, rate_of(seconds, tokens), "tokens/s", exact.median, chunks[i] == 16 && form == 0 ? 1.5 : 0.0);
        }
    }
    return 0;
}
