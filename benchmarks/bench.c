// ./bench: how fast this build is on this machine, each figure beside a ceiling measured in the same run.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/args.h"
#include "base/rng.h"
#include "benchmarks/optimizer.h"
#include "benchmarks/report.h"
#include "data/story.h"
#include "infer/session.h"
#include "model/block.h"
#include "model/mixers/mixer.h"
#include "model/model.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_train.h"

// Everything a part needs.
typedef struct Bench {
    const Kernels *kernels;
    Ceilings ceilings;
    Report report;
    ModelConfig config;
    int64_t runs, micro_batch, seq_len;
} Bench;

static float *make_floats(size_t n, uint64_t stream)
{
    float *x = malloc(n * sizeof *x);
    Rng rng;
    rng_seed(&rng, 1, stream);
    for (size_t i = 0; x != NULL && i < n; i++) {
        x[i] = (float)(rng_uniform(&rng) - 0.5);
    }
    return x;
}

static int32_t *make_tokens(size_t n, int64_t vocab)
{
    int32_t *tokens = malloc(n * sizeof *tokens);
    Rng rng;
    rng_seed(&rng, 1, 99);
    for (size_t i = 0; tokens != NULL && i < n; i++) {
        tokens[i] = (int32_t)rng_below(&rng, (uint64_t)vocab);
    }
    return tokens;
}

static int no_memory(Error *error) { return error_set(error, "no memory for the benchmark: choose a smaller --preset, --micro-batch or --seq-len"); }

// ---- matrix products ----

typedef struct ProductContext {
    const Bench *bench;
    LibrarySgemm *library;
    float *y, *x, *w, *dx, *dw;
    size_t n, in, out;
    bool bf16;
} ProductContext;

static void run_products(void *context)
{
    ProductContext *c = context;
    LinearKernels linear = linear_kernels(c->bench->kernels, c->bf16);
    linear.forward(c->y, c->x, c->w, c->n, c->in, c->out);
    linear.backward_input(c->dx, c->y, c->w, c->n, c->in, c->out, false);
    linear.backward_weight(c->dw, c->y, c->x, c->n, c->in, c->out);
}

// The same three by the library.
static void run_library_products(void *context)
{
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
    ProductContext *c = context;
    int n = (int)c->n, in = (int)c->in, out = (int)c->out;
    c->library(ROW_MAJOR, PLAIN, TRANSPOSED, n, out, in, 1.0f, c->x, in, c->w, in, 0.0f, c->y, out);
    c->library(ROW_MAJOR, PLAIN, PLAIN, n, in, out, 1.0f, c->y, out, c->w, in, 0.0f, c->dx, in);
    c->library(ROW_MAJOR, TRANSPOSED, PLAIN, out, in, n, 1.0f, c->y, out, c->x, in, 1.0f, c->dw, in);
}

// One shape: forward, gradient of the input and gradient of the weights by ours, and by the library beside it.
static int bench_shape(Bench *bench, const char *name, size_t out, size_t in, bool bf16, Error *error)
{
    ProductContext c = {.bench = bench, .n = 2048, .in = in, .out = out, .bf16 = bf16};
    c.x = make_floats(c.n * in, 1);
    c.w = make_floats(out * in, 2);
    c.y = make_floats(c.n * out, 3);
    c.dx = make_floats(c.n * in, 4);
    c.dw = make_floats(out * in, 5);
    bool whole = c.x != NULL && c.w != NULL && c.y != NULL && c.dx != NULL && c.dw != NULL;
    if (whole) {
        double work = 6.0 * (double)c.n * (double)in * (double)out / 1e9;
        char label[64];
        Spread ours = rate_of(time_runs((size_t)bench->runs, run_products, &c), work);
        snprintf(label, sizeof label, "gemm %s %s", bf16 ? "bf16" : "f32", name);
        report_line(&bench->report, label, ours, "GFLOP/s", (bf16 ? bench->ceilings.peak_bf16 : bench->ceilings.peak_f32) / 1e9, 0.0);
        c.library = bf16 ? NULL : find_library_sgemm();
        if (c.library != NULL) {
            Spread theirs = rate_of(time_runs((size_t)bench->runs, run_library_products, &c), work);
            snprintf(label, sizeof label, "gemm f32 %s over OpenBLAS", name);
            report_line(&bench->report, label, ours, "GFLOP/s", theirs.median, 0.92);
        }
    }
    free(c.x), free(c.w), free(c.y), free(c.dx), free(c.dw);
    return whole ? 0 : no_memory(error);
}

static int bench_gemm(Bench *bench, Error *error)
{
    BlockShape shape = block_shape(&bench->config);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        if (bench_shape(bench, "projections", shape.projection, shape.width, bf16 == 1, error) != 0 ||
            bench_shape(bench, "output", shape.width, shape.value, bf16 == 1, error) != 0 ||
            bench_shape(bench, "mlp up", 2 * shape.hidden, shape.width, bf16 == 1, error) != 0 ||
            bench_shape(bench, "mlp down", shape.width, shape.hidden, bf16 == 1, error) != 0) {
            return -1;
        }
    }
    return 0;
}

// ---- training step ----

typedef struct StepContext {
    Model model;
    Workspace *workspace;
    float *grad;
    int32_t *tokens;
    size_t batch, length;
} StepContext;

static void run_step(void *context)
{
    StepContext *c = context;
    model_forward(&c->model, c->workspace, NULL, 0, c->tokens, c->batch, c->length);
    model_loss(NULL, c->grad, &c->model, c->workspace, c->tokens + 1, 1.0f / (float)(c->batch * c->length));
    model_backward(c->grad, &c->model, c->workspace, c->tokens);
}

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

// Seconds of one layer's mixer, forward and backward.
static int time_mixer(Spread *seconds, const Bench *bench, Error *error)
{
    const ModelConfig *config = &bench->config;
    BlockShape s = block_shape(config);
    size_t n = (size_t)(bench->micro_batch * bench->seq_len), m = (size_t)config->n_slot, d = (size_t)config->d_head, stride = s.channels;
    MixerContext c = {.mixer = mixer_find(bench->kernels->mixers, config->mixer),
                      .shape = {(size_t)bench->micro_batch, (size_t)bench->seq_len, s.heads, m, d, 0}};
    float *qkv = make_floats(n * stride, 1), *dqkv = make_floats(n * stride, 2), *g = make_floats(n * s.heads, 3), *dg = make_floats(n * s.heads, 4);
    float *state0 = make_floats(s.heads * m * d, 5), *dstate0 = make_floats(s.heads * m * d, 6);
    c.o = make_floats(n * s.value, 7);
    c.saved = malloc(c.mixer->saved_floats(&c.shape) * sizeof(float));
    c.scratch = malloc((c.mixer->scratch_floats(&c.shape, true) + c.mixer->scratch_floats(&c.shape, false)) * sizeof(float));
    bool whole = qkv != NULL && dqkv != NULL && g != NULL && dg != NULL && state0 != NULL && dstate0 != NULL && c.o != NULL && c.saved != NULL && c.scratch != NULL;
    if (whole) {
        // Write intensities as at the start of training; keys of length 1.
        for (size_t i = 0; i < n * s.heads; i++) {
            g[i] = 0.02f + 0.01f * g[i];
        }
        for (size_t t = 0; t < n; t++) {
            for (size_t i = 0; i < 2 * s.query; i++) {
                qkv[t * stride + i] *= 3.46f / sqrtf((float)m);
            }
        }
        c.in = (MixerTensors){.q = qkv, .k = qkv + s.query, .v = qkv + 2 * s.query, .qkv_stride = stride, .g = g, .state0 = state0};
        c.grad = (MixerGradients){.q = dqkv, .k = dqkv + s.query, .v = dqkv + 2 * s.query, .g = dg, .state0 = dstate0};
        *seconds = time_runs((size_t)bench->runs, run_mixer, &c);
    }
    free(qkv), free(dqkv), free(g), free(dg), free(state0), free(dstate0), free(c.o), free(c.saved), free(c.scratch);
    return whole ? 0 : no_memory(error);
}

static int bench_train(Bench *bench, Error *error)
{
    StepContext c = {.batch = (size_t)bench->micro_batch, .length = (size_t)bench->seq_len};
    if (model_create(&c.model, &bench->config, bench->kernels, error) != 0) {
        return -1;
    }
    model_init(&c.model, 1, c.length);
    double tokens = (double)(c.batch * c.length), params = (double)c.model.table.total;
    c.workspace = workspace_create(&c.model, c.batch, c.length, WORKSPACE_TRAINING, error);
    c.grad = calloc(c.model.table.total, sizeof(float));
    c.tokens = make_tokens(c.batch * c.length + 1, bench->config.vocab_size);
    int failed = c.workspace == NULL ? -1 : c.grad == NULL || c.tokens == NULL ? no_memory(error) : 0;
    Spread mixer = {0};
    failed = failed != 0 ? failed : time_mixer(&mixer, bench, error);
    for (int bf16 = 0; bf16 < 2 && failed == 0; bf16++) {
        c.model.bf16 = bf16 == 1;
        Spread step = time_runs(3, run_step, &c);
        double peak = bf16 == 1 ? bench->ceilings.peak_bf16 : bench->ceilings.peak_f32;
        report_line(&bench->report, bf16 == 1 ? "training step bf16" : "training step f32", rate_of(step, tokens), "tokens/s", peak / (6.0 * params),
                    bf16 == 1 ? 0.65 : 0.72);
        double layers = (double)bench->config.n_layer;
        Spread share = {mixer.median * layers, mixer.least * layers, mixer.most * layers};
        report_line(&bench->report, bf16 == 1 ? "of which mixer, bf16" : "of which mixer, f32", share, "s/step", step.median, 0.0);
    }
    free(c.grad), free(c.tokens);
    workspace_free(c.workspace);
    model_free(&c.model);
    return failed;
}

static int bench_optimizers(Bench *bench, Error *error)
{
    return bench_optimizer(&bench->report, &bench->ceilings, bench->kernels, &bench->config, (size_t)bench->runs, error);
}

// ---- prompt and decoding ----

typedef struct DecodeContext {
    Session *session;
    const int32_t *tokens;
    size_t count;
} DecodeContext;

static void run_prompt(void *context)
{
    DecodeContext *c = context;
    session_reset(c->session);
    session_feed(c->session, c->tokens, c->count);
}

static void run_decode(void *context)
{
    DecodeContext *c = context;
    for (size_t i = 0; i < c->count; i++) {
        session_step(c->session, c->tokens + i);
    }
}

static int bench_infer(Bench *bench, Error *error)
{
    Model model;
    if (model_create(&model, &bench->config, bench->kernels, error) != 0) {
        return -1;
    }
    model_init(&model, 1, 1024);
    DecodeContext c = {.session = session_create(&model, 1, 0, error), .count = 4096};
    int32_t *tokens = make_tokens(c.count, bench->config.vocab_size);
    int failed = c.session == NULL ? -1 : tokens == NULL ? no_memory(error) : 0;
    if (failed == 0) {
        double params = (double)model.table.total, head = (double)bench->config.vocab_size * (double)bench->config.d_model;
        double peak[2] = {bench->ceilings.peak_f32, bench->ceilings.peak_bf16};
        c.tokens = tokens;
        for (int bf16 = 0; bf16 < 2; bf16++) {
            model.bf16 = bf16 == 1;
            report_line(&bench->report, bf16 == 1 ? "prompt of 4096 tokens bf16" : "prompt of 4096 tokens f32", rate_of(time_runs(3, run_prompt, &c), 4096.0),
                        "tokens/s", peak[bf16] / (2.0 * (params - head)), 0.65);
        }
        model.bf16 = false;
        c.count = 32;
        session_reset(c.session);
        session_feed(c.session, tokens, 100);
        Spread early = rate_of(time_runs((size_t)bench->runs, run_decode, &c), (double)c.count);
        report_line(&bench->report, "decoding f32", early, "tokens/s", bench->ceilings.read / (params * sizeof(float)), 0.85);
        c.session->position = 1000000;   // the memory has one size: only the number of the position changes
        Spread late = rate_of(time_runs((size_t)bench->runs, run_decode, &c), (double)c.count);
        report_line(&bench->report, "decoding f32 at position 1,000,000", late, "tokens/s", early.median, 0.98);
    }
    free(tokens);
    session_free(c.session);
    model_free(&model);
    return failed;
}

// ---- tokenizer ----

typedef struct EncodeContext {
    Encoder *encoder;
    const char *text;
    size_t length;
    TokenList list;
    Error error;
} EncodeContext;

static void run_encode(void *context)
{
    EncodeContext *c = context;
    c->list.count = 0;
    encoder_encode(c->encoder, &c->list, c->text, c->length, 0, &c->error);
}

static int bench_tokenizer(Bench *bench, Error *error)
{
    enum { STORIES = 4000 };
    Story *story = malloc(sizeof *story);
    char *text = malloc((size_t)STORIES * STORY_BYTES);
    BpeTrainer *trainer = bpe_trainer_create(error);
    EncodeContext c = {.text = text};
    int failed = story == NULL || text == NULL ? no_memory(error) : trainer == NULL ? -1 : 0;
    for (size_t i = 0; i < STORIES && failed == 0; i++) {
        story_tell(story, 1, i);
        memcpy(text + c.length, story->text, story->length);
        c.length += story->length;
        failed = bpe_trainer_add(trainer, 0, story->text, story->length, error);
    }
    Tokenizer *tokenizer = failed == 0 ? bpe_trainer_finish(trainer, 2048, error) : NULL;
    c.encoder = tokenizer == NULL ? NULL : encoder_create(tokenizer, error);
    failed = c.encoder == NULL ? -1 : 0;
    if (failed == 0) {
        Spread rate = rate_of(time_runs((size_t)bench->runs, run_encode, &c), (double)c.length / 1e6);
        report_line(&bench->report, "tokenizer encode, one thread", rate, "MB/s", 30.0, 1.0);
    }
    token_list_free(&c.list);
    encoder_free(c.encoder);
    tokenizer_free(tokenizer);
    bpe_trainer_free(trainer);
    free(text);
    free(story);
    return failed;
}

// ---- the program ----

static const struct Part {
    const char *name;
    int (*run)(Bench *bench, Error *error);
} parts[] = {
    {"gemm", bench_gemm},
    {"train", bench_train},
    {"optimizer", bench_optimizers},
    {"infer", bench_infer},
    {"tokenizer", bench_tokenizer},
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

int main(int argc, char **argv)
{
    Error error;
    const char *only = NULL, *preset = "110m";
    int64_t threads = 0;
    Bench bench = {.runs = 5, .micro_batch = 2, .seq_len = 1024};
    ArgSpec specs[] = {
        {.name = "only", .kind = ARG_STRING, .target = &only, .value = "NAME", .help = "one part: gemm, train, optimizer, infer or tokenizer"},
        {.name = "json", .kind = ARG_SWITCH, .target = &bench.report.json, .help = "one JSON object a line instead of the table"},
        {.name = "preset", .kind = ARG_STRING, .target = &preset, .value = "NAME", .help = "shape of the model"},
        {.name = "micro-batch", .kind = ARG_SIZE, .target = &bench.micro_batch, .value = "N", .help = "sequences of a training step", .min = 1, .max = 4096},
        {.name = "seq-len", .kind = ARG_SIZE, .target = &bench.seq_len, .value = "N", .help = "tokens of a sequence", .min = 1, .max = 1 << 20, .binary = true},
        {.name = "runs", .kind = ARG_SIZE, .target = &bench.runs, .value = "N", .help = "repetitions; the table shows median, least and most", .min = 1, .max = 64},
        {.name = "threads", .kind = ARG_SIZE, .target = &threads, .value = "N", .help = "0: one a core", .min = 0, .max = 1024},
    };
    ArgProgram program = {.name = "bench",
                          .usage = "[flags]",
                          .description = "Measures kernels, training step, prompt and decoding beside ceilings measured in the same run: the peak of fused\n"
                                         "multiply-adds, the speed at which memory is read, and OpenBLAS where it is installed. Nothing else should run.",
                          .specs = specs,
                          .n_specs = sizeof specs / sizeof *specs};
    size_t n_positional;
    args_parse(&program, argc, argv, &n_positional);
#ifdef _OPENMP
    if (threads > 0) {
        omp_set_num_threads((int)threads);
    }
#endif
    bench.kernels = kernels_select(&error);
    if (bench.kernels == NULL || config_preset(&bench.config, preset, &error) != 0) {
        return args_fail(&error);
    }
    char text[96];
    fprintf(stderr, "%s; preset %s\n", kernels_describe(text, bench.kernels), preset);
    measure_ceilings(&bench.ceilings, bench.kernels);
    report_ceilings(&bench);
    bool known = only == NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (only == NULL || strcmp(only, parts[i].name) == 0) {
            known = true;
            if (parts[i].run(&bench, &error) != 0) {
                return args_fail(&error);
            }
        }
    }
    if (!known) {
        args_usage_error(&program, "--only %s: there are gemm, train, optimizer, infer and tokenizer", only);
    }
    return 0;
}
