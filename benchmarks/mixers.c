// ./bench mixers: Lattice's chunk forms and the rivals beside Lattice's exact form, forward and backward of one layer of the preset (all its heads) without
// what stands around the memory; 2,048 tokens unless --micro-batch and --seq-len say otherwise.
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/rng.h"
#include "benchmarks/bench.h"
#include "model/mixers/mixer.h"

typedef struct MixerContext {
    const Mixer *mixer;
    MixerShape shape;
    MixerTensors in;
    MixerGradients grad;
    float *o, *saved, *scratch;
    float *memory;   // all of it, to free
} MixerContext;

static void run_mixer(void *context)
{
    MixerContext *c = context;
    c->mixer->forward(c->o, c->saved, c->scratch, NULL, 0, &c->in, &c->shape);
    c->mixer->backward(&c->grad, c->o, NULL, 0, c->saved, c->scratch, &c->in, &c->shape);
}

// The memory of one layer, cut out of one piece at cache lines, as a model's is: elsewhere half the loads would touch two lines, and the exact form, which
// has the most, would seem slow.
typedef struct Arena {
    float *memory;   // NULL: only counts
    size_t used;
} Arena;

static float *take(Arena *arena, size_t n)
{
    float *at = arena->memory == NULL ? NULL : arena->memory + arena->used;
    arena->used += (n + 15) / 16 * 16;
    return at;
}

// Where the mixer reads it: n numbers N(0, scale²) + mean in *in, and room for as many gradients in *grad.
static void add_input(Arena *arena, const float **in, float **grad, bool reads, size_t n, double mean, double scale)
{
    float *x = take(arena, reads ? n : 0), *dx = take(arena, reads ? n : 0);
    Rng rng;
    rng_seed(&rng, 1, n);
    for (size_t i = 0; x != NULL && reads && i < n; i++) {
        x[i] = (float)(mean + scale * rng_normal(&rng));
    }
    *in = reads ? x : NULL;
    *grad = reads ? dx : NULL;
}

// Random inputs: keys of length about 1, write intensities as at the start of training.
static void lay_out(MixerContext *c, Arena *arena)
{
    const MixerShape *shape = &c->shape;
    size_t n = shape->batch * shape->length, heads = shape->n_head, m = shape->n_slot, d = shape->d_head;
    size_t query = heads * m, value = heads * d, stride = 2 * query + value;
    MixerNeeds needs = c->mixer->needs;
    add_input(arena, &c->in.q, &c->grad.q, true, n * stride, 0.0, 1.0);
    add_input(arena, &c->in.g, &c->grad.g, needs.gate, n * heads, 0.02, 0.002);
    add_input(arena, &c->in.mu, &c->grad.mu, needs.forget, n * heads, 0.98, 0.002);
    add_input(arena, &c->in.alpha, &c->grad.alpha, needs.slot_decay, n * query, 0.98, 0.002);
    add_input(arena, &c->in.state0, &c->grad.state0, needs.start, heads * m * d, 1.0, 0.2);
    add_input(arena, &c->in.ln_weight, &c->grad.ln_weight, needs.norm, value, 1.0, 0.1);
    add_input(arena, &c->in.ln_bias, &c->grad.ln_bias, needs.norm, value, 0.0, 0.1);
    c->o = take(arena, n * value);
    c->saved = take(arena, c->mixer->saved_floats(shape));
    size_t forward = c->mixer->scratch_floats(shape, false), backward = c->mixer->scratch_floats(shape, true);
    c->scratch = take(arena, forward > backward ? forward : backward);
    if (arena->memory != NULL) {
        float *qkv = arena->memory;
        for (size_t t = 0; t < n; t++) {
            for (size_t i = 0; i < 2 * query; i++) {
                qkv[t * stride + i] /= sqrtf((float)m);
            }
        }
        c->in.k = c->in.q + query, c->in.v = c->in.k + query;
        c->grad.k = c->grad.q + query, c->grad.v = c->grad.k + query;
    }
    c->in.qkv_stride = stride;
    c->in.alpha_stride = query;
}

// A layer to measure. Fails without memory.
static int prepare(MixerContext *c, const Mixer *mixer, const MixerShape *shape, size_t chunk, LatticeForm form, Error *error)
{
    *c = (MixerContext){.mixer = mixer, .shape = *shape, .in = {.chunk = chunk, .form = form}};
    Arena arena = {NULL, 0};
    lay_out(c, &arena);
    c->memory = memory_large(arena.used * sizeof *c->memory);
    if (c->memory == NULL) {
        return no_memory(error);
    }
    arena = (Arena){c->memory, 0};
    lay_out(c, &arena);
    return 0;
}

// A line: the layer beside the exact form, which runs in turns with it, because processors become faster and slower from second to second.
static int bench_beside(Bench *bench, MixerContext *exact, const char *label, const Mixer *mixer, size_t chunk, LatticeForm form, double required, Error *error)
{
    MixerContext c;
    Spread seconds[2];
    if (prepare(&c, mixer, &exact->shape, chunk, form, error) != 0) {
        return -1;
    }
    void (*const run[2])(void *) = {run_mixer, run_mixer};
    time_in_turns(seconds, (size_t)bench->runs, run, (void *const[2]){exact, &c});
    double tokens = (double)(c.shape.batch * c.shape.length);
    report_line(&bench->report, label, rate_of(seconds[1], tokens), "tokens/s", rate_of(seconds[0], tokens).median, required);
    free(c.memory);
    return 0;
}

// Every other row of the table of mixers; those with chunks also in chunks of 16.
static int bench_rivals(Bench *bench, MixerContext *exact, Error *error)
{
    static const size_t chunks[] = {1, 16};
    for (const Mixer *const *row = bench->kernels->mixers; *row != NULL; row++) {
        if (strcmp((*row)->name, "lattice") == 0 || (*row)->serves != NULL) {
            continue;
        }
        for (size_t i = 0; i < ((*row)->needs.chunk ? 2 : 1); i++) {
            char label[64];
            snprintf(label, sizeof label, (*row)->needs.chunk ? "%s %zu" : "%s", (*row)->name, chunks[i]);
            if (bench_beside(bench, exact, label, *row, chunks[i], (LatticeForm){.gated = false}, 0.0, error) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int bench_forms(Bench *bench, MixerContext *exact, Error *error)
{
    static const size_t chunks[] = {4, 8, 16, 32, 64};
    const Mixer *forms = mixer_find(bench->kernels->mixers, "lattice_forms");
    for (size_t form = 0; form < 4; form++) {
        bool gated = form % 2 == 1, chunk_norm = form / 2 == 1;
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            LatticeForm lattice = {.gated = gated, .chunk_norm = chunk_norm};
            char label[64];
            snprintf(label, sizeof label, "lattice %s %zu, norm per %s", gated ? "gated" : "frozen", chunks[i], chunk_norm ? "chunk" : "token");
            if (bench_beside(bench, exact, label, forms, chunks[i], lattice, chunks[i] == 16 && form == 0 ? 1.5 : 0.0, error) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

int bench_mixers(Bench *bench, Error *error)
{
    // As many tokens as a training step of the usual sizes, in one sequence.
    MixerShape shape = {.batch = 1, .length = (size_t)(bench->micro_batch * bench->seq_len), .n_head = (size_t)bench->config.n_head,
                        .n_slot = (size_t)bench->config.n_slot, .d_head = (size_t)bench->config.d_head};
    MixerContext exact;
    if (prepare(&exact, mixer_find(bench->kernels->mixers, "lattice"), &shape, 1, (LatticeForm){.gated = false}, error) != 0) {
        return -1;
    }
    report_beside(&bench->report, "exact");
    Spread seconds = time_runs((size_t)bench->runs, run_mixer, &exact);
    report_line(&bench->report, "lattice exact", rate_of(seconds, (double)(shape.batch * shape.length)), "tokens/s", 0.0, 0.0);
    int result = bench_forms(bench, &exact, error) != 0 || bench_rivals(bench, &exact, error) != 0 ? -1 : 0;
    report_beside(&bench->report, NULL);
    free(exact.memory);
    return result;
}
