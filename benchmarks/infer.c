// The parts of ./bench that use a model: prompt and decoding, with weights of every type.
#include <stdio.h>
#include <stdlib.h>

#include "benchmarks/bench.h"
#include "infer/session.h"

enum {
    PROMPT = 4096,   // tokens of a prompt
    STEPS = 32,      // tokens of one timed run of decoding
    EARLY = 100,     // tokens read before decoding
    LATE = 1000000,
    TOGETHER = 8,    // sequences decoded together
};

// A model with random weights, and a session of it.
typedef struct Decoder {
    Model model;
    Session *session;
    int32_t *tokens;   // [PROMPT]
} Decoder;

static void decoder_close(Decoder *d)
{
    session_free(d->session);
    free(d->tokens);
    model_free(&d->model);
}

static int decoder_open(Decoder *d, const Bench *bench, WeightType type, Error *error)
{
    *d = (Decoder){.session = NULL};
    if (model_create(&d->model, &bench->config, bench->kernels, error) != 0) {
        return -1;
    }
    model_init(&d->model, 1, 1024);
    int result = model_pack(&d->model, type, error);
    if (result == 0) {
        d->session = session_create(&d->model, TOGETHER, 0, error);
        d->tokens = make_tokens(PROMPT, bench->config.vocab_size);
        result = d->session == NULL ? -1 : d->tokens == NULL ? no_memory(error) : 0;
    }
    if (result != 0) {
        decoder_close(d);
    }
    return result;
}

// ---- prompt ----

static void run_prompt(void *context)
{
    Decoder *d = context;
    session_reset(d->session);
    session_feed(d->session, d->tokens, PROMPT);
}

int bench_prefill(Bench *bench, Error *error)
{
    for (WeightType type = WEIGHTS_F32; type <= WEIGHTS_INT8; type++) {
        Decoder d;
        if (decoder_open(&d, bench, type, error) != 0) {
            return -1;
        }
        // int8 weights go through the products that bf16 has, which are exact for them.
        double peak = type == WEIGHTS_F32 || !bench->kernels->fast_bf16 ? bench->ceilings.peak_f32 : bench->ceilings.peak_bf16;
        double work = 2.0 * ((double)d.model.table.total - (double)bench->config.vocab_size * (double)bench->config.d_model);
        char name[64];
        snprintf(name, sizeof name, "prompt of %d tokens %s", PROMPT, weight_type_name(type));
        report_line(&bench->report, name, rate_of(time_runs((size_t)bench->runs, run_prompt, &d), PROMPT), "tokens/s", peak / work,
                    type == WEIGHTS_INT8 ? 0.0 : 0.65);
        decoder_close(&d);
    }
    return 0;
}

// ---- decoding ----

static void run_decode(void *context)
{
    Decoder *d = context;
    for (size_t i = 0; i < STEPS; i++) {
        session_step(d->session, d->tokens + i);
    }
}

int bench_decode(Bench *bench, Error *error)
{
    static const double required[] = {[WEIGHTS_F32] = 0.85, [WEIGHTS_BF16] = 0.80, [WEIGHTS_INT8] = 0.70};
    for (WeightType type = WEIGHTS_F32; type <= WEIGHTS_INT8; type++) {
        Decoder d;
        if (decoder_open(&d, bench, type, error) != 0) {
            return -1;
        }
        char name[64];
        session_feed(d.session, d.tokens, EARLY);
        snprintf(name, sizeof name, "decoding %s", weight_type_name(type));
        double read;
        Spread seconds = time_beside(&read, kernels_measure_read, bench->kernels, (size_t)bench->runs, run_decode, &d);
        report_line(&bench->report, name, rate_of(seconds, STEPS), "tokens/s", read / (double)model_step_bytes(&d.model), required[type]);
        session_fork(d.session, TOGETHER);
        snprintf(name, sizeof name, "decoding %s, %d together", weight_type_name(type), TOGETHER);
        report_line(&bench->report, name, rate_of(time_runs((size_t)bench->runs, run_decode, &d), STEPS * TOGETHER), "tokens/s", 0.0, 0.0);
        decoder_close(&d);
    }
    return 0;
}

// ---- position ----

// Decoding from one place: the memory has one size, so only the number of the position has to change.
typedef struct PlaceContext {
    Decoder *decoder;
    size_t position;
} PlaceContext;

static void run_place(void *context)
{
    PlaceContext *c = context;
    c->decoder->session->position = c->position;
    run_decode(c->decoder);
}

int bench_long(Bench *bench, Error *error)
{
    Decoder d;
    if (decoder_open(&d, bench, WEIGHTS_F32, error) != 0) {
        return -1;
    }
    session_feed(d.session, d.tokens, EARLY);
    PlaceContext early = {&d, EARLY}, late = {&d, LATE};
    Spread spreads[2];
    time_in_turns(spreads, (size_t)bench->runs, (void (*const[])(void *)){run_place, run_place}, (void *const[]){&early, &late});
    report_line(&bench->report, "decoding f32 at position 100", rate_of(spreads[0], STEPS), "tokens/s", 0.0, 0.0);
    report_line(&bench->report, "decoding f32 at position 1,000,000", rate_of(spreads[1], STEPS), "tokens/s", STEPS / spreads[0].median, 0.98);
    decoder_close(&d);
    return 0;
}
