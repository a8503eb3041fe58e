// ./bench: how fast this build is on this machine, each figure beside a ceiling measured in the same run.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/args.h"
#include "base/memory.h"
#include "base/progress.h"
#include "benchmarks/bench.h"
#include "benchmarks/encode.h"
#include "benchmarks/optimizer.h"
#include "benchmarks/profile.h"
#include "model/block.h"
#include "model/mixers/mixer.h"
#include "model/mixers/start_read.h"
#include "model/model.h"
#include "training/trainer.h"

// ---- training step ----

#define STEP_RUNS 3

// The step is timed inside: the model gets a table of kernels that take the time of the real ones. Kernels are functions without a context, so what they
// need stands here.
static Profile profile;
static const Kernels *plain;
static const Mixer *plain_mixer;

#define TIMED(part, work_done, call)                                    \
    do {                                                                \
        double start_ = seconds_now();                                  \
        call;                                                           \
        profile_add(&profile, part, seconds_now() - start_, work_done); \
    } while (0)

// Floating-point operations of a product; bytes of `count` arrays [n, width] that are read or written.
static double product_work(size_t n, size_t n_in, size_t n_out) { return 2.0 * (double)n * (double)n_in * (double)n_out; }
static double bytes_work(double count, size_t n, size_t width) { return count * (double)n * (double)width * sizeof(float); }

// As how many arrays of f32 `count` of rows count.
static double rows_count(double count, Rows rows) { return rows.bf16 ? 0.5 * count : count; }

// Floating-point operations of a mixer, from those for each number of the state and token; they are known of Lattice (lattice.c): 2 for a dot or a
// multiply-add, 3 to update the state.
static double mixer_work(const MixerShape *shape, double each)
{
    bool known = strcmp(plain_mixer->name, "lattice") == 0;
    return known ? each * (double)(shape->batch * shape->length * shape->n_head) * (double)(shape->n_slot * shape->d_head) : 0.0;
}

static void timed_forward(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out)
{
    TIMED(profile_product(&profile, w.data), product_work(n, n_in, n_out), plain->linear_forward(out, x, w, n, n_in, n_out));
}

static void timed_backward_input(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate)
{
    TIMED(profile_product(&profile, w.data), product_work(n, n_in, n_out), plain->linear_backward_input(dx, dout, w, n, n_in, n_out, accumulate));
}

static void timed_backward_weight(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out)
{
    TIMED(profile_product(&profile, dw), product_work(n, n_in, n_out), plain->linear_backward_weight(dw, dout, x, n, n_in, n_out));
}

static void timed_forward_bf16(float *out, Rows x, Weights w, size_t n, size_t n_in, size_t n_out)
{
    TIMED(profile_product(&profile, w.data), product_work(n, n_in, n_out), plain->linear_forward_bf16(out, x, w, n, n_in, n_out));
}

static void timed_backward_input_bf16(float *dx, Rows dout, Weights w, size_t n, size_t n_in, size_t n_out, bool accumulate)
{
    TIMED(profile_product(&profile, w.data), product_work(n, n_in, n_out), plain->linear_backward_input_bf16(dx, dout, w, n, n_in, n_out, accumulate));
}

static void timed_backward_weight_bf16(float *dw, Rows dout, Rows x, size_t n, size_t n_in, size_t n_out)
{
    TIMED(profile_product(&profile, dw), product_work(n, n_in, n_out), plain->linear_backward_weight_bf16(dw, dout, x, n, n_in, n_out));
}

static void timed_rmsnorm_forward(Rows out, const float *x, const float *w, float eps, size_t n, size_t dim)
{
    TIMED(PROFILE_NORMS, bytes_work(1 + rows_count(1, out), n, dim), plain->rmsnorm_forward(out, x, w, eps, n, dim));
}

static void timed_rmsnorm_backward(float *dx, float *dw, const float *dout, const float *x, const float *w, float eps, size_t n, size_t dim)
{
    TIMED(PROFILE_NORMS, bytes_work(4, n, dim), plain->rmsnorm_backward(dx, dw, dout, x, w, eps, n, dim));
}

static size_t conv_channels(const ConvShape *shape) { return shape->n_head * (2 * shape->n_slot + shape->d_head); }

static void timed_conv_forward(float *qkv, float *tails, size_t tail_stride, const float *proj, const float *weight, const float *bias, const ConvShape *shape)
{
    TIMED(PROFILE_CONVOLUTION, bytes_work(2, shape->batch * shape->length, conv_channels(shape)),
          plain->conv_forward(qkv, tails, tail_stride, proj, weight, bias, shape));
}

static void timed_conv_backward(float *dproj, float *dweight, float *dbias, float *sums, const float *dqkv, const float *proj, const float *weight,
                                const float *bias, const ConvShape *shape)
{
    TIMED(PROFILE_CONVOLUTION, bytes_work(5, shape->batch * shape->length, conv_channels(shape)),
          plain->conv_backward(dproj, dweight, dbias, sums, dqkv, proj, weight, bias, shape));
}

static void timed_gate_forward(Rows out, const float *o, const float *z, size_t z_stride, const float *w, float eps, size_t n, size_t n_head, size_t d_head)
{
    TIMED(PROFILE_GATES, bytes_work(2 + rows_count(1, out), n, n_head * d_head), plain->gate_forward(out, o, z, z_stride, w, eps, n, n_head, d_head));
}

static void timed_gate_backward(float *do_, float *dz, float *dw, const float *dout, const float *o, const float *z, size_t z_stride, const float *w, float eps,
                                size_t n, size_t n_head, size_t d_head)
{
    TIMED(PROFILE_GATES, bytes_work(5, n, n_head * d_head), plain->gate_backward(do_, dz, dw, dout, o, z, z_stride, w, eps, n, n_head, d_head));
}

static void timed_sigmoid_forward(float *out, const float *x, size_t x_stride, const float *bias, size_t n, size_t count)
{
    TIMED(PROFILE_GATES, bytes_work(2, n, count), plain->sigmoid_forward(out, x, x_stride, bias, n, count));
}

static void timed_sigmoid_backward(float *dx, size_t x_stride, float *dbias, const float *dout, const float *out, size_t n, size_t count)
{
    TIMED(PROFILE_GATES, bytes_work(3, n, count), plain->sigmoid_backward(dx, x_stride, dbias, dout, out, n, count));
}

static void timed_swiglu_forward(Rows out, Rows h, size_t n, size_t hidden)
{
    TIMED(PROFILE_ACTIVATION, bytes_work(rows_count(1, out) + rows_count(2, h), n, hidden), plain->swiglu_forward(out, h, n, hidden));
}

static void timed_swiglu_backward(Rows dh, const float *dout, Rows h, size_t n, size_t hidden)
{
    TIMED(PROFILE_ACTIVATION, bytes_work(1 + rows_count(2, dh) + rows_count(2, h), n, hidden), plain->swiglu_backward(dh, dout, h, n, hidden));
}

static void timed_embedding_forward(float *out, const float *table, const int32_t *ids, size_t n, size_t dim)
{
    TIMED(PROFILE_EMBEDDING, bytes_work(2, n, dim), plain->embedding_forward(out, table, ids, n, dim));
}

static void timed_embedding_backward(float *dtable, const float *dout, const int32_t *ids, size_t n, size_t dim)
{
    TIMED(PROFILE_EMBEDDING, bytes_work(3, n, dim), plain->embedding_backward(dtable, dout, ids, n, dim));
}

static void timed_cross_entropy(float *losses, float *logits, const int32_t *targets, float scale, size_t n, size_t vocab)
{
    TIMED(PROFILE_LOSS, bytes_work(2, n, vocab), plain->cross_entropy(losses, logits, targets, scale, n, vocab));
}

static void timed_add(float *y, const float *x, size_t n) { TIMED(PROFILE_SUMS, bytes_work(3, n, 1), plain->add(y, x, n)); }

static void timed_make_panels(const WeightPanels *panels, const float *w, size_t n_out, size_t n_in)
{
    TIMED(PROFILE_ROUNDING, bytes_work(3, n_out, n_in), plain->make_panels(panels, w, n_out, n_in));
}

static void timed_round_bf16(uint16_t *out, const float *x, size_t n)
{
    TIMED(PROFILE_ROUNDING, bytes_work(1.5, n, 1), plain->round_bf16(out, x, n));
}

static double timed_sum_squares(const float *x, size_t n)
{
    double sum;
    TIMED(PROFILE_OPTIMIZER, bytes_work(1, n, 1), sum = plain->sum_squares(x, n));
    return sum;
}

static void timed_adamw(float *params, float *m, float *v, const float *grad, size_t n, float grad_scale, float lr, float beta1, float beta2, float eps,
                        float decay, float correction1, float correction2)
{
    TIMED(PROFILE_OPTIMIZER, bytes_work(7, n, 1), plain->adamw(params, m, v, grad, n, grad_scale, lr, beta1, beta2, eps, decay, correction1, correction2));
}

static void timed_mixer_forward(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape)
{
    TIMED(PROFILE_MIXER_FORWARD, mixer_work(shape, 9), plain_mixer->forward(o, saved, scratch, states, state_stride, in, shape));
}

static void timed_mixer_backward(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved, float *scratch,
                                 const MixerTensors *in, const MixerShape *shape)
{
    TIMED(PROFILE_MIXER_BACKWARD, mixer_work(shape, 28), plain_mixer->backward(grad, do_, dstates, state_stride, saved, scratch, in, shape));
}

// The read relative to the start belongs to the mixer: a multiply-add for each number of the state and token, and two in the backward.
static double start_read_work(const StartRead *read, double each) { return each * (double)(read->rows * read->n_head) * (double)(read->n_slot * read->d_head); }

static void timed_start_read_forward(float *o, const StartRead *read)
{
    TIMED(PROFILE_MIXER_FORWARD, start_read_work(read, 2), plain->start_read_forward(o, read));
}

static void timed_start_read_backward(float *dq, float *dstate0, const float *do_, const StartRead *read)
{
    TIMED(PROFILE_MIXER_BACKWARD, start_read_work(read, 4), plain->start_read_backward(dq, dstate0, do_, read));
}

// A model of the preset in training, and the table of kernels through which it is timed.
typedef struct Step {
    Kernels kernels;
    Mixer mixer;
    const Mixer *mixers[3];   // the one that is timed, and the row of its other forms, which says what it can do
    Trainer trainer;
} Step;

static void step_kernels(Step *step, const Kernels *kernels, const char *mixer)
{
    plain = kernels;
    plain_mixer = mixer_find(kernels->mixers, mixer);
    step->mixer = *plain_mixer;
    step->mixer.forward = timed_mixer_forward;
    step->mixer.backward = timed_mixer_backward;
    step->mixers[0] = &step->mixer;
    for (const Mixer *const *row = kernels->mixers; *row != NULL; row++) {
        if ((*row)->serves != NULL && strcmp((*row)->serves, mixer) == 0) {
            step->mixers[1] = *row;
        }
    }
    step->kernels = *kernels;
    step->kernels.mixers = step->mixers;
    step->kernels.linear_forward = timed_forward;
    step->kernels.linear_backward_input = timed_backward_input;
    step->kernels.linear_backward_weight = timed_backward_weight;
    step->kernels.linear_forward_bf16 = timed_forward_bf16;
    step->kernels.linear_backward_input_bf16 = timed_backward_input_bf16;
    step->kernels.linear_backward_weight_bf16 = timed_backward_weight_bf16;
    step->kernels.rmsnorm_forward = timed_rmsnorm_forward;
    step->kernels.rmsnorm_backward = timed_rmsnorm_backward;
    step->kernels.conv_forward = timed_conv_forward;
    step->kernels.conv_backward = timed_conv_backward;
    step->kernels.gate_forward = timed_gate_forward;
    step->kernels.gate_backward = timed_gate_backward;
    step->kernels.sigmoid_forward = timed_sigmoid_forward;
    step->kernels.sigmoid_backward = timed_sigmoid_backward;
    step->kernels.swiglu_forward = timed_swiglu_forward;
    step->kernels.swiglu_backward = timed_swiglu_backward;
    step->kernels.embedding_forward = timed_embedding_forward;
    step->kernels.embedding_backward = timed_embedding_backward;
    step->kernels.cross_entropy = timed_cross_entropy;
    step->kernels.start_read_forward = timed_start_read_forward;
    step->kernels.start_read_backward = timed_start_read_backward;
    step->kernels.add = timed_add;
    step->kernels.make_panels = kernels->make_panels == NULL ? NULL : timed_make_panels;
    step->kernels.round_bf16 = timed_round_bf16;
    step->kernels.sum_squares = timed_sum_squares;
    step->kernels.adamw = timed_adamw;
}

// `step` must be zeroed and stay where it is. Returns 0, or -1 with `error` set and nothing to free.
static int step_create(Step *step, const Bench *bench, int64_t batch, int64_t length, bool bf16, bool recompute, Error *error)
{
    Model model;
    TrainerOptions options = {.micro_batch = (size_t)batch, .n_micro = 1, .seq_len = (size_t)length, .bf16 = bf16, .recompute = recompute};
    step_kernels(step, bench->kernels, bench->config.mixer);
    if (model_create(&model, &bench->config, &step->kernels, error) != 0) {
        return -1;
    }
    model_init(&model, 1, options.seq_len);
    if (trainer_create(&step->trainer, &model, &options, error) != 0) {
        return -1;
    }
    size_t tokens = options.micro_batch * options.seq_len;
    Rng rng;
    rng_seed(&rng, 1, 99);
    for (size_t i = 0; i < tokens; i++) {
        step->trainer.tokens[i] = (int32_t)rng_below(&rng, (uint64_t)bench->config.vocab_size);
        step->trainer.targets[i > 0 ? i - 1 : tokens - 1] = step->trainer.tokens[i];
    }
    return 0;
}

// One micro-batch and one update. Returns the seconds of the first, and in bf16 of making the weights ready for it.
static double run_step(Step *step)
{
    Trainer *t = &step->trainer;
    float scale = 1.0f / (float)(t->micro_batch * t->seq_len);
    memset(t->gradients, 0, t->model.table.total * sizeof *t->gradients);
    double start = seconds_now();
    model_update_bf16(&t->model);
    model_forward(&t->model, t->workspace, NULL, 0, t->tokens, t->micro_batch, t->seq_len);
    model_loss(NULL, t->gradients, &t->model, t->workspace, t->targets, scale);
    model_backward(t->gradients, &t->model, t->workspace, t->tokens);
    double seconds = seconds_now() - start;
    double norm = sqrt(arena_sum_squares(&t->model, t->gradients));
    optimizer_step(&t->optimizer, &t->model, t->gradients, norm > 1.0 ? 1.0 / norm : 1.0, 1e-4);
    return seconds;
}

// Fills the profile with STEP_RUNS steps.
static void profile_step(Step *step)
{
    profile = (Profile){.model = &step->trainer.model, .gradients = step->trainer.gradients};
    for (int run = 0; run <= STEP_RUNS; run++) {
        profile_end_run(&profile, run_step(step), run == 0);
    }
}

static void report_step(Bench *bench, const Step *step, bool bf16)
{
    double tokens = (double)(step->trainer.micro_batch * step->trainer.seq_len), params = (double)step->trainer.model.table.total;
    double peak = bf16 ? bench->ceilings.peak_bf16 : bench->ceilings.peak_f32;
    report_line(&bench->report, bf16 ? "training step bf16" : "training step f32", rate_of(profile_pass(&profile), tokens), "tokens/s", peak / (6.0 * params),
                bf16 ? 0.65 : 0.72);
    report_limit(&bench->report, bf16 ? "mixer share of the step, bf16" : "mixer share of the step, f32", profile_mixer_share(&profile), "share", 0.15);
}

static void report_profile(Bench *bench, const Step *step, bool bf16)
{
    (void)step;
    profile_report(&bench->report, &profile, bf16 ? "bf16" : "f32", bf16 ? bench->ceilings.peak_bf16 : bench->ceilings.peak_f32, bench->ceilings.read);
}

// Runs the step in both precisions and reports each.
static int bench_step(Bench *bench, void (*report)(Bench *bench, const Step *step, bool bf16), Error *error)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        Step step = {0};
        if (step_create(&step, bench, bench->micro_batch, bench->seq_len, bf16 == 1, false, error) != 0) {
            return -1;
        }
        profile_step(&step);
        report(bench, &step, bf16 == 1);
        trainer_free(&step.trainer);
    }
    return 0;
}

static int bench_train(Bench *bench, Error *error) { return bench_step(bench, report_step, error); }

static int bench_profile(Bench *bench, Error *error) { return bench_step(bench, report_profile, error); }

// The most that the process holds during a step, in both precisions, without and with recomputation. The limits are those of the preset 110m.
static int bench_memory(Bench *bench, Error *error)
{
    static const struct { const char *name; bool bf16, recompute; double limit; } ways[] = {
        {"resident memory of training", false, false, 6.0},
        {"training 4 × 1024, --recompute", false, true, 3.5},
        {"training 4 × 1024 in bf16", true, false, 6.0},
        {"training in bf16, --recompute", true, true, 3.5},
    };
    bool limited = strcmp(bench->preset, "110m") == 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        Step step = {0};
        if (memory_restart_peak() != 0) {
            fprintf(stderr, "note: the peak of memory cannot be set back on this system: it is that of the whole run so far\n");
        }
        if (step_create(&step, bench, 4, 1024, ways[i].bf16, ways[i].recompute, error) != 0) {
            return -1;
        }
        profile = (Profile){.model = &step.trainer.model, .gradients = step.trainer.gradients};
        run_step(&step);
        double held = memory_peak() / 1e9;
        trainer_free(&step.trainer);
        report_limit(&bench->report, ways[i].name, (Spread){held, held, held}, "GB", limited ? ways[i].limit : 0.0);
    }
    return 0;
}

static int bench_tokenizer(Bench *bench, Error *error) { return bench_encode(&bench->report, bench->tokenizer, bench->text, (size_t)bench->runs, error); }

static int bench_preparation(Bench *bench, Error *error) { return bench_prepare(&bench->report, bench->tokenizer, bench->text, (size_t)bench->runs, error); }

static int bench_optimizers(Bench *bench, Error *error)
{
    return bench_optimizer(&bench->report, &bench->ceilings, bench->kernels, &bench->config, (size_t)bench->runs, error);
}

// ---- the program ----

static const struct Part {
    const char *name;
    int (*run)(Bench *bench, Error *error);
    bool ceilings;   // it stands beside those of the machine, not beside its own
} parts[] = {
    {"gemm", bench_gemm, true},
    {"train", bench_train, true},
    {"profile", bench_profile, true},
    {"memory", bench_memory, true},
    {"mixers", bench_mixers, true},
    {"optimizer", bench_optimizers, true},
    {"prefill", bench_prefill, true},
    {"decode", bench_decode, true},
    {"long", bench_long, true},
    {"tokenizer", bench_tokenizer, false},
    {"prepare", bench_preparation, false},
};

static void report_ceilings(Bench *bench)
{
    const Ceilings *c = &bench->ceilings;
    double values[3] = {c->peak_f32 / 1e9, c->peak_bf16 / 1e9, c->read / 1e9};
    static const char *const names[3] = {"ceiling: peak f32", "ceiling: peak bf16", "ceiling: memory read"};
    for (int i = 0; i < 3; i++) {
        report_line(&bench->report, names[i], (Spread){values[i], values[i], values[i]}, i < 2 ? "GFLOP/s" : "GB/s", 0.0, 0.0);
    }
}

// Whether a part is among those that the command line names, or it names none.
static bool is_wanted(const char *part, char *const *names, size_t n_names, const char *only)
{
    bool named = only != NULL && strcmp(only, part) == 0;
    for (size_t i = 0; i < n_names; i++) {
        named = named || strcmp(names[i], part) == 0;
    }
    return named || (n_names == 0 && only == NULL);
}

static void check_part(const char *name, const ArgProgram *program)
{
    bool known = name == NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        known = known || strcmp(name, parts[i].name) == 0;
    }
    if (!known) {
        args_usage_error(program, "no part %s: --help names those there are", name);
    }
}

int main(int argc, char **argv)
{
    Error error;
    const char *only = NULL;
    int64_t threads = 0;
    Bench bench = {.preset = "110m", .runs = 5, .micro_batch = 2, .seq_len = 1024};
    ArgSpec specs[] = {
        {.name = "only", .kind = ARG_STRING, .target = &only, .value = "PART", .help = "the same as PART alone"},
        {.name = "json", .kind = ARG_SWITCH, .target = &bench.report.json, .help = "one JSON object a line instead of the table"},
        {.name = "preset", .kind = ARG_STRING, .target = &bench.preset, .value = "NAME", .help = "shape of the model"},
        {.name = "micro-batch", .kind = ARG_SIZE, .target = &bench.micro_batch, .value = "N", .help = "sequences of a training step; for mixers they are one", .min = 1, .max = 4096},
        {.name = "seq-len", .kind = ARG_SIZE, .target = &bench.seq_len, .value = "N", .help = "tokens of a sequence", .min = 1, .max = 1 << 20, .binary = true},
        {.name = "runs", .kind = ARG_SIZE, .target = &bench.runs, .value = "N", .help = "repetitions; the table shows median, least and most", .min = 1, .max = 64},
        {.name = "tokenizer", .kind = ARG_STRING, .target = &bench.tokenizer, .value = "FILE", .help = "tokenizer or prepare: this one; else one is trained on the text"},
        {.name = "text", .kind = ARG_STRING, .target = &bench.text, .value = "FILE", .help = "tokenizer or prepare: the text to encode, instead of those they make"},
        {.name = "threads", .kind = ARG_SIZE, .target = &threads, .value = "N", .help = "0: one a core", .min = 0, .max = 1024},
    };
    ArgProgram program = {.name = "bench",
                          .usage = "[PART...] [flags]",
                          .description = "Measures kernels, training step, prompt and decoding beside ceilings measured in the same run: the peak of fused\n"
                                         "multiply-adds, the speed at which memory is read, and oneDNN and OpenBLAS where they are installed. Nothing else should run.\n"
                                         "Parts: gemm, train, profile, memory, mixers, optimizer, prefill, decode, long, tokenizer, prepare; all of them where none is named.\n"
                                         "Example: ./bench mixers --runs 3",
                          .specs = specs,
                          .n_specs = sizeof specs / sizeof *specs,
                          .max_positional = sizeof parts / sizeof *parts};
    size_t n_positional;
    args_parse(&program, argc, argv, &n_positional);
    check_part(only, &program);
    bool ceilings = false;
    for (size_t i = 0; i < n_positional; i++) {
        check_part(argv[1 + i], &program);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        ceilings = ceilings || (parts[i].ceilings && is_wanted(parts[i].name, argv + 1, n_positional, only));
    }
#ifdef _OPENMP
    if (threads > 0) {
        omp_set_num_threads((int)threads);
    }
#endif
    bench.kernels = kernels_select(&error);
    if (bench.kernels == NULL || config_preset(&bench.config, bench.preset, &error) != 0) {
        return args_fail(&error);
    }
    config_settle_new(&bench.config, NULL, 0);
    char text[96];
    fprintf(stderr, "%s", kernels_describe(text, bench.kernels));
    if (ceilings) {   // the other parts run no model
        fprintf(stderr, "; preset %s", bench.preset);
    }
    fprintf(stderr, "\n");
    if (ceilings) {
        measure_ceilings(&bench.ceilings, bench.kernels);
        report_ceilings(&bench);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (is_wanted(parts[i].name, argv + 1, n_positional, only) && parts[i].run(&bench, &error) != 0) {
            return args_fail(&error);
        }
    }
    return 0;
}
