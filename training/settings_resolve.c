// The numbers of a run that were left open: by the size of the model, of the data and of the machine.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "training/settings.h"

#define DEFAULT_SHARES 8   // of a step, where it has so many micro-batches: as many ranks can work on it

// What suits a model of up to `params` numbers: found by the size, so that a preset with changed flags gets sensible values too.
// eval_every and save_every are some minutes of one machine's work.
typedef struct SizeDefaults {
    double params;
    double lr;
    int64_t batch_tokens, eval_every, save_every;
} SizeDefaults;

static const SizeDefaults size_defaults[] = {
    {3e6, 4e-3, 4096, 500, 500},
    {2e7, 2e-3, 16384, 100, 100},
    {7e7, 1e-3, 65536, 40, 20},
    {INFINITY, 6e-4, 262144, 10, 4},
};

static const SizeDefaults *defaults_for(uint64_t params)
{
    const SizeDefaults *defaults = size_defaults;
    while ((double)params > defaults->params) {
        defaults++;
    }
    return defaults;
}

// Of n_micro micro-batches a step. So many shares that up to as many ranks, and one process, give the same bits unless told otherwise.
static int resolve_shares(TrainSettings *s, int64_t n_micro, int64_t ranks, Error *error)
{
    int64_t wanted = s->shares > 0 ? s->shares : DEFAULT_SHARES;
    if (s->shares == 0 || !settings_given(s, "shares")) {
        wanted = wanted < n_micro ? wanted : n_micro;
        wanted = wanted > ranks ? wanted : ranks;
    }
    if (n_micro < wanted) {
        return error_set(error, "a step of --batch-tokens %" PRId64 " has %" PRId64 " micro-batches, too few for %" PRId64 " shares (one or more a rank): "
                         "lower --micro-batch %" PRId64 " or raise --batch-tokens", s->batch_tokens, n_micro, wanted, s->micro_batch);
    }
    s->shares = wanted;
    return 0;
}

// Chooses the batch and rounds it up to whole micro-batches.
static int resolve_batch(TrainSettings *s, const RunSize *size, const SizeDefaults *defaults, Error *error)
{
    bool asked = s->batch_tokens > 0;
    int64_t ranks = size->ranks > 1 ? size->ranks : 1, least_shares = s->shares > 0 ? s->shares : ranks;
    if (least_shares < ranks) {
        return error_set(error, "the run adds up --shares %" PRId64 " in a step, too few for %" PRId64 " ranks: start fewer, or give --shares %" PRId64
                         " (sums are then rounded otherwise)", s->shares, ranks, ranks);
    }
    if (!asked) {
        // Little data: still ten steps an epoch; but work for each of several shares.
        int64_t most = (int64_t)(size->windows / 10 < 1 ? 1 : size->windows / 10);
        int64_t least = least_shares > 1 ? least_shares * (s->micro_batch > 0 ? s->micro_batch : 1) * s->seq_len : 0;
        s->batch_tokens = most < defaults->batch_tokens / s->seq_len ? most * s->seq_len : defaults->batch_tokens;
        s->batch_tokens = s->batch_tokens < least ? least : s->batch_tokens;
    }
    if (s->micro_batch == 0) {
        int64_t fit = s->batch_tokens / s->seq_len / least_shares;
        s->micro_batch = fit > 4 ? 4 : fit < 1 ? 1 : fit;
    }
    int64_t micro_tokens = s->micro_batch * s->seq_len;
    if (micro_tokens > INT32_MAX) {
        return error_set(error, "--micro-batch %" PRId64 " of --seq-len %" PRId64 " tokens is more than 2^31 tokens at once: lower one of them",
                         s->micro_batch, s->seq_len);
    }
    int64_t rounded = (s->batch_tokens + micro_tokens - 1) / micro_tokens * micro_tokens;
    if (asked && rounded != s->batch_tokens) {
        fprintf(stderr, "--batch-tokens %" PRId64 " is rounded up to %" PRId64 ", whole micro-batches of %" PRId64 " × %" PRId64 " tokens\n",
                s->batch_tokens, rounded, s->micro_batch, s->seq_len);
    }
    s->batch_tokens = rounded;
    return resolve_shares(s, rounded / micro_tokens, ranks, error);
}

static int resolve_steps(TrainSettings *s, const RunSize *size, Error *error)
{
    if (s->steps > 0) {
        return 0;
    }
    double epoch = (double)size->windows * (double)s->seq_len;
    double total = fmax(epoch, fmin(4.0 * epoch, 20.0 * (double)size->params));
    if (s->tokens > 0) {
        total = (double)s->tokens;
    } else if (s->epochs > 0.0) {
        total = s->epochs * epoch;
    }
    double steps = ceil(total / (double)s->batch_tokens);
    if (!(steps <= SETTINGS_MAX_STEPS)) {
        return error_set(error, "the run would be longer than 10^12 steps: lower --tokens or --epochs");
    }
    s->steps = steps < 1.0 ? 1 : (int64_t)steps;
    return 0;
}

int settings_check_rates(const TrainSettings *settings, uint64_t params, Error *error)
{
    double lr = settings->lr > 0.0 ? settings->lr : defaults_for(params)->lr;
    if (settings->min_lr <= lr) {
        return 0;
    }
    return error_set(error, "--min-lr %g is above --lr %g%s: lower the one or raise the other", settings->min_lr, lr,
                     settings->lr > 0.0 ? "" : " (by the size of the model)");
}

int settings_resolve(TrainSettings *settings, const RunSize *size, Error *error)
{
    const SizeDefaults *defaults = defaults_for(size->params);
    if (resolve_batch(settings, size, defaults, error) || resolve_steps(settings, size, error) ||
        settings_check_rates(settings, size->params, error)) {
        return -1;
    }
    if (settings->lr == 0.0) {
        settings->lr = defaults->lr;
    }
    if (settings->min_lr < 0.0) {
        settings->min_lr = settings->lr / 10.0;
    }
    if (settings->warmup < 0) {
        settings->warmup = settings->steps / 10 < 1000 ? settings->steps / 10 : 1000;
    }
    if (settings->eval_every < 0) {
        settings->eval_every = defaults->eval_every;
    }
    if (settings->save_every < 0) {
        settings->save_every = defaults->save_every;
    }
    return 0;
}
