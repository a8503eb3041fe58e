// ./bench --only mixers: Lattice's chunk forms and the rivals beside Lattice's exact form, forward and backward.
#include <math.h>
#include <stdbool.h>
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

// Where the mixer reads it: n numbers N(0, scale²) + mean in *in, and room for as many gradients in *grad, which go to `arrays` to be freed. Returns whether
// there was memory.
static bool add_input(float ***arrays, const float **in, float **grad, bool reads, size_t n, double mean, double scale)
{
    if (!reads) {
        return true;
    }
    float *x = make_normals(n, (uint64_t)n, mean, scale), *dx = calloc(n, sizeof *dx);
    *in = *(*arrays)++ = x;
    *grad = *(*arrays)++ = dx;
    return x != NULL && dx != NULL;
}

// Seconds of one layer's forward and backward on random inputs: keys of length 1, write intensities as at the start of training. Fails without memory.
static int mixer_seconds(Spread *seconds, const Mixer *mixer, const MixerShape *shape, size_t chunk, LatticeForm form, size_t runs, Error *error)
{
    size_t n = shape->batch * shape->length, heads = shape->n_head, m = shape->n_slot, d = shape->d_head;
    size_t query = heads * m, value = heads * d, stride = 2 * query + value;
    MixerNeeds needs = mixer->needs;
    MixerContext c = {.mixer = mixer, .shape = *shape, .in = {.qkv_stride = stride, .alpha_stride = query, .chunk = chunk, .form = form}};
    float *arrays[20] = {NULL}, **next = arrays;
    const float *qkv = NULL;
    float *dqkv = NULL;
    bool whole = add_input(&next, &qkv, &dqkv, true, n * stride, 0.0, 1.0);
    whole &= add_input(&next, &c.in.g, &c.grad.g, needs.gate, n * heads, 0.02, 0.002);
    whole &= add_input(&next, &c.in.mu, &c.grad.mu, needs.forget, n * heads, 0.98, 0.002);
    whole &= add_input(&next, &c.in.alpha, &c.grad.alpha, needs.slot_decay, n * query, 0.98, 0.002);
    whole &= add_input(&next, &c.in.state0, &c.grad.state0, needs.start, heads * m * d, 1.0, 0.2);
    whole &= add_input(&next, &c.in.ln_weight, &c.grad.ln_weight, needs.norm, value, 1.0, 0.1);
    whole &= add_input(&next, &c.in.ln_bias, &c.grad.ln_bias, needs.norm, value, 0.0, 0.1);
    c.o = *next++ = malloc(n * value * sizeof *c.o);
    c.saved = *next++ = malloc(mixer->saved_floats(shape) * sizeof *c.saved);
    c.scratch = *next++ = malloc((mixer->scratch_floats(shape, true) + mixer->scratch_floats(shape, false)) * sizeof *c.scratch);
    whole &= c.o != NULL && c.saved != NULL && c.scratch != NULL;
    if (whole) {
        float *x = arrays[0];
        for (size_t t = 0; t < n; t++) {
            for (size_t i = 0; i < 2 * query; i++) {
                x[t * stride + i] /= sqrtf((float)m);
            }
        }
        c.in.q = qkv, c.in.k = qkv + query, c.in.v = qkv + 2 * query;
        c.grad.q = dqkv, c.grad.k = dqkv + query, c.grad.v = dqkv + 2 * query;
        *seconds = time_runs(runs, run_mixer, &c);
    }
    while (next > arrays) {
        free(*--next);
    }
    return whole ? 0 : no_memory(error);
}

// The rivals with a memory, in the forms that training runs.
static int bench_rivals(Bench *bench, const MixerShape *shape, double ceiling, Error *error)
{
    static const struct {
        const char *name;
        size_t chunk;
    } rivals[] = {{"linear", 1}, {"mamba2", 1}, {"gla", 1}, {"delta", 1}, {"gated_delta", 1}, {"output_norm", 1}, {"ttt", 1}, {"ttt", 16}};
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++) {
        Spread seconds;
        char label[64];
        const Mixer *mixer = mixer_find(bench->kernels->mixers, rivals[i].name);
        if (mixer_seconds(&seconds, mixer, shape, rivals[i].chunk, (LatticeForm){.gated = false}, (size_t)bench->runs, error) != 0) {
            return -1;
        }
        snprintf(label, sizeof label, mixer->needs.chunk ? "%s %zu" : "%s", rivals[i].name, rivals[i].chunk);
        report_line(&bench->report, label, rate_of(seconds, (double)(shape->length * shape->n_head)), "tokens/s", ceiling, 0.0);
    }
    return 0;
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
    return bench_rivals(bench, &shape, exact.median, error);
}
