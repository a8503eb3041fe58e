// One process: there is nobody to wait for.
#include "training/ranks.h"

void ranks_hush(void) {}

int ranks_start(Ranks *ranks, Error *error)
{
    (void)error;
    *ranks = (Ranks){.count = 1, .local = 1, .sharing = 1};
    return 0;
}

void ranks_finish(Ranks *ranks) { *ranks = (Ranks){0}; }

int ranks_agree(const Ranks *ranks, int status, Error *error)
{
    (void)ranks;
    (void)error;
    return status;
}

int ranks_same(const Ranks *ranks, uint64_t number, const char *what, Error *error)
{
    (void)ranks;
    (void)number;
    (void)what;
    (void)error;
    return 0;
}

void ranks_add(const Ranks *ranks, double *sums, const double *numbers, size_t count)
{
    (void)ranks;
    for (size_t i = 0; i < count; i++) {
        sums[i] += numbers[i];
    }
}

void ranks_add_floats(const Ranks *ranks, float *sums, const float *numbers, size_t count, int among, bool onto)
{
    (void)ranks;
    (void)among;
    if (onto || sums != numbers) {
        ranks_add_own(sums, numbers, count, onto);
    }
}
