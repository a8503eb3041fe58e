// Processes that train together, called ranks: each works on its shares of a step, and what they found is added up. `make MPI=1` builds
// ./train with training/ranks_mpi.c, on any number of machines; otherwise training/ranks.c stands for one process.
//
// Sums go in the order of the ranks, whatever arrives first, and all ranks get the same bits: they take the same decisions and make the
// same step with the optimizer, so weights are never sent. Gradients are added behind the last micro-batch of a share, once a step when
// there is a share for each rank. That is 8 · parameters bytes to and fro, against 6 · parameters · tokens operations of a rank: with
// thousands of tokens a step a rank computes for far longer than the wire is busy. Adding while the backward still runs would hide little,
// and cost a trainer that knows of layers.
//
// Every function but ranks_hush must be called by all ranks in the same order.
#ifndef TRAINING_RANKS_H
#define TRAINING_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct Ranks {
    int rank, count;   // this process, from 0, of so many
    int local;         // ranks on this machine
    int sharing;       // ranks on this machine that run on the same processors as this one: mpirun may bind each to some of its own
    void *scratch;     // of sums, with lists [4, count] of their pieces; NULL: count is 1
    int *lists;
} Ranks;

// In a process that was started as another rank than the first: its messages are lost from here on, so that each is written once. What
// went wrong in it, ranks_agree tells; what ends it at once, as a sanitizer does, is still seen where the C library is glibc.
void ranks_hush(void);

// Joins the other ranks. Returns 0, or -1 with `error` set: out of memory. ranks_finish follows in any case.
int ranks_start(Ranks *ranks, Error *error);
void ranks_finish(Ranks *ranks);

// Of a status of each rank (0 done, more than 0: stopped, −1: failed with `error` set) the worst: -1 in all of them when one failed, with
// the error of the first that did in every `error`; else the largest. Waits for the other ranks, and leaves them the processor meanwhile.
// In this and the functions below ranks NULL is one process alone.
int ranks_agree(const Ranks *ranks, int status, Error *error);

// Returns 0 when `number` is the same in all ranks, else -1 with `error` naming `what` ("other data") and the rank that has it.
int ranks_same(const Ranks *ranks, uint64_t number, const char *what, Error *error);

// Adds to each of some few sums [count ≤ 8] the number of rank 0, then that of rank 1, and so on.
void ranks_add(const Ranks *ranks, double *sums, const double *numbers, size_t count);

// The same for large arrays, of the first `among` ranks. Unless `onto`, sums [count] hold nothing yet, and may be `numbers` itself.
void ranks_add_floats(const Ranks *ranks, float *sums, const float *numbers, size_t count, int among, bool onto);

static inline int ranks_count(const Ranks *ranks) { return ranks != NULL ? ranks->count : 1; }
static inline int ranks_own(const Ranks *ranks) { return ranks != NULL ? ranks->rank : 0; }

// Whether this process is the one that writes: messages, log, checkpoints.
static inline bool ranks_first(const Ranks *ranks) { return ranks == NULL || ranks->rank == 0; }

// What one process does of ranks_add_floats.
static inline void ranks_add_own(float *sums, const float *numbers, size_t count, bool onto)
{
#pragma omp parallel for schedule(static) if (count > 65536)
    for (size_t i = 0; i < count; i++) {
        sums[i] = onto ? sums[i] + numbers[i] : numbers[i];
    }
}

// Of n pieces of work, numbered in order, this rank does those from ranks_from up to, not including, ranks_to.
static inline uint64_t ranks_from(const Ranks *ranks, uint64_t n) { return ranks == NULL ? 0 : n * (uint64_t)ranks->rank / (uint64_t)ranks->count; }
static inline uint64_t ranks_to(const Ranks *ranks, uint64_t n) { return ranks == NULL ? n : n * (uint64_t)(ranks->rank + 1) / (uint64_t)ranks->count; }

#endif
