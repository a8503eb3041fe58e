// Where the time of a training step goes: seconds and work of each kind of layer, over several runs of the same step.
#ifndef BENCHMARKS_PROFILE_H
#define BENCHMARKS_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "benchmarks/report.h"
#include "model/model.h"

// The first kinds count floating-point operations as their work, those from PROFILE_LOSS on bytes read and written.
typedef enum ProfilePart {
    PROFILE_PROJECTIONS,
    PROFILE_OUTPUT,
    PROFILE_MLP,
    PROFILE_HEAD,
    PROFILE_MIXER_FORWARD,
    PROFILE_MIXER_BACKWARD,
    PROFILE_LOSS,
    PROFILE_ACTIVATION,
    PROFILE_NORMS,
    PROFILE_CONVOLUTION,
    PROFILE_GATES,
    PROFILE_EMBEDDING,
    PROFILE_SUMS,
    PROFILE_ROUNDING,
    PROFILE_OPTIMIZER,
    PROFILE_PARTS,
} ProfilePart;

typedef struct Profile {
    const Model *model;                                // the one that is timed
    const float *gradients;                            // its gradients [table.total]
    size_t runs;                                       // finished
    double pass[REPORT_MAX_RUNS];                      // seconds of forward, loss and backward of a micro-batch; in bf16 with the weights' rounding
    double seconds[PROFILE_PARTS][REPORT_MAX_RUNS];
    double work[PROFILE_PARTS][REPORT_MAX_RUNS];
} Profile;

// The kind of a product by its weights, or their gradients, w.
ProfilePart profile_product(const Profile *profile, const float *w);

// Adds to the run at hand.
void profile_add(Profile *profile, ProfilePart part, double seconds, double work);

// Ends the run at hand, whose pass took so long; a run to warm up is forgotten.
void profile_end_run(Profile *profile, double pass_seconds, bool warm_up);

// Seconds of the pass; share of the pass that the mixers take, forward and backward.
Spread profile_pass(const Profile *profile);
Spread profile_mixer_share(const Profile *profile);

// Two lines a part: milliseconds with their share of the pass, and the rate beside its ceiling. The optimizer is not part of the pass: its share is what
// one update takes beside one micro-batch.
void profile_report(Report *report, const Profile *profile, const char *dtype, double peak, double read);

#endif
