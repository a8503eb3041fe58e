#include "benchmarks/profile.h"

#include <stdio.h>

#include "model/block.h"

static const char *const part_names[PROFILE_PARTS] = {
    [PROFILE_PROJECTIONS] = "projections",
    [PROFILE_OUTPUT] = "output projection",
    [PROFILE_MLP] = "mlp products",
    [PROFILE_HEAD] = "head products",
    [PROFILE_MIXER_FORWARD] = "mixer forward",
    [PROFILE_MIXER_BACKWARD] = "mixer backward",
    [PROFILE_LOSS] = "loss",
    [PROFILE_ACTIVATION] = "mlp activation",
    [PROFILE_NORMS] = "norms",
    [PROFILE_CONVOLUTION] = "convolution",
    [PROFILE_GATES] = "gates",
    [PROFILE_EMBEDDING] = "embedding",
    [PROFILE_SUMS] = "residual sums",
    [PROFILE_ROUNDING] = "rounding to bf16",
    [PROFILE_OPTIMIZER] = "optimizer",
};

ProfilePart profile_product(const Profile *profile, const float *w)
{
    const Model *model = profile->model;
    bool is_gradient = w >= profile->gradients && w < profile->gradients + model->table.total;
    size_t offset = (size_t)(w - (is_gradient ? profile->gradients : model->params));
    for (size_t layer = 0; layer < (size_t)model->config.n_layer; layer++) {
        const BlockOffsets *at = &model->blocks[layer];
        if (offset == at->o) {
            return PROFILE_OUTPUT;
        }
        if (model->config.mlp_hidden > 0 && (offset == at->w13 || offset == at->w2)) {
            return PROFILE_MLP;
        }
    }
    return offset == model->head ? PROFILE_HEAD : PROFILE_PROJECTIONS;
}

void profile_add(Profile *profile, ProfilePart part, double seconds, double work)
{
    profile->seconds[part][profile->runs] += seconds;
    profile->work[part][profile->runs] += work;
}

void profile_end_run(Profile *profile, double pass_seconds, bool warm_up)
{
    profile->pass[profile->runs] = pass_seconds;
    profile->runs += warm_up ? 0 : 1;
    for (size_t part = 0; part < PROFILE_PARTS && profile->runs < REPORT_MAX_RUNS; part++) {
        profile->seconds[part][profile->runs] = profile->work[part][profile->runs] = 0.0;
    }
}

Spread profile_pass(const Profile *profile) { return spread_of(profile->pass, profile->runs); }

Spread profile_mixer_share(const Profile *profile)
{
    double shares[REPORT_MAX_RUNS];
    for (size_t run = 0; run < profile->runs; run++) {
        shares[run] = (profile->seconds[PROFILE_MIXER_FORWARD][run] + profile->seconds[PROFILE_MIXER_BACKWARD][run]) / profile->pass[run];
    }
    return spread_of(shares, profile->runs);
}

static Spread scaled(Spread spread, double factor) { return (Spread){spread.median * factor, spread.least * factor, spread.most * factor}; }

static void report_part(Report *report, const Profile *profile, ProfilePart part, const char *dtype, double ceiling)
{
    char name[64];
    Spread seconds = spread_of(profile->seconds[part], profile->runs);
    if (seconds.most <= 0.0) {   // this step has none of it
        return;
    }
    snprintf(name, sizeof name, "%s step: %s", dtype, part_names[part]);
    report_line(report, name, scaled(seconds, 1e3), "ms", 1e3 * profile_pass(profile).median, 0.0);
    // Every run does the same work.
    if (profile->work[part][0] > 0.0 && seconds.least > 0.0) {
        snprintf(name, sizeof name, "%s rate: %s", dtype, part_names[part]);
        report_line(report, name, scaled(rate_of(seconds, profile->work[part][0]), 1e-9), part < PROFILE_LOSS ? "GFLOP/s" : "GB/s", 1e-9 * ceiling, 0.0);
    }
}

void profile_report(Report *report, const Profile *profile, const char *dtype, double peak, double read)
{
    char name[64];
    double rest[REPORT_MAX_RUNS];
    for (size_t run = 0; run < profile->runs; run++) {
        rest[run] = profile->pass[run];
    }
    for (ProfilePart part = 0; part < PROFILE_PARTS; part++) {
        report_part(report, profile, part, dtype, part < PROFILE_LOSS ? peak : read);
        for (size_t run = 0; run < profile->runs && part != PROFILE_OPTIMIZER; run++) {
            rest[run] -= profile->seconds[part][run];
        }
    }
    snprintf(name, sizeof name, "%s step: rest", dtype);
    report_line(report, name, scaled(spread_of(rest, profile->runs), 1e3), "ms", 1e3 * profile_pass(profile).median, 0.0);
    snprintf(name, sizeof name, "%s step: all", dtype);
    report_line(report, name, scaled(profile_pass(profile), 1e3), "ms", 0.0, 0.0);
}
