// Ranks by MPI. Its own error handling ends all ranks when one cannot be reached, so its functions are called without a check.
#include "training/ranks.h"

#include <assert.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_NUMBERS 8
#define SCRATCH_FLOATS ((size_t)1 << 22)   // what ranks_add_floats moves at once
#define SPINS 10000                        // looks at a request before the processor is left to others

// Where `stderr` can be set, descriptor 2 stays as it is: what ends a process (the C library, sanitizers) writes there, and is seen.
static void hush(void)
{
#ifdef __GLIBC__
    stderr = fopen("/dev/null", "w");
    bool failed = stderr == NULL;
#else
    bool failed = freopen("/dev/null", "w", stderr) == NULL;
#endif
    if (failed) {
        exit(1);   // nothing may be said
    }
}

void ranks_hush(void)
{
    // Before MPI knows its ranks, its starters tell them: Open MPI's mpirun, PMIx (Slurm), PMI (MPICH).
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank != NULL) {
            if (strtol(rank, NULL, 10) > 0) {
                hush();
            }
            return;
        }
    }
}

// The processors that this process may run on, as bytes to compare; all zero where the system does not tell.
typedef struct Processors {
#ifdef __linux__
    cpu_set_t set;
#else
    char none;
#endif
} Processors;

static Processors own_processors(void)
{
    Processors own;
    memset(&own, 0, sizeof own);
#ifdef __linux__
    sched_getaffinity(0, sizeof own.set, &own.set);
#endif
    return own;
}

// Finds the ranks on this machine, and which of them have the same processors.
static int find_neighbours(Ranks *ranks, Error *error)
{
    MPI_Comm machine;
    Processors own = own_processors();
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &ranks->local);
    Processors *all = malloc((size_t)ranks->local * sizeof *all);
    // A process that leaves while others wait for it would keep them waiting: out of memory, they learn of it in ranks_agree.
    if (ranks_agree(ranks, all == NULL ? error_set(error, "out of memory") : 0, error) != 0 || all == NULL) {
        free(all);
        MPI_Comm_free(&machine);
        return -1;
    }
    MPI_Allgather(&own, (int)sizeof own, MPI_BYTE, all, (int)sizeof own, MPI_BYTE, machine);
    for (int i = 0; i < ranks->local; i++) {
        ranks->sharing += memcmp(&all[i], &own, sizeof own) == 0;
    }
    free(all);
    MPI_Comm_free(&machine);
    return 0;
}

int ranks_start(Ranks *ranks, Error *error)
{
    int provided;   // only one thread of a process calls MPI
    *ranks = (Ranks){0};
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks->count);
    int failed = 0;
    if (ranks->count > 1) {
        size_t n = (size_t)ranks->count;
        ranks->scratch = malloc(SCRATCH_FLOATS * sizeof(float) + n * MAX_NUMBERS * sizeof(double));
        ranks->lists = malloc(n * 4 * sizeof *ranks->lists);
        failed = ranks->scratch == NULL || ranks->lists == NULL ? error_set(error, "out of memory for adding gradients") : 0;
    }
    return ranks_agree(ranks, failed, error) != 0 || find_neighbours(ranks, error) != 0 ? -1 : 0;
}

void ranks_finish(Ranks *ranks)
{
    if (ranks->count > 0) {
        MPI_Finalize();
    }
    free(ranks->scratch);
    free(ranks->lists);
    *ranks = (Ranks){0};
}

static bool alone(const Ranks *ranks) { return ranks == NULL || ranks->count == 1; }

// MPI waits actively; but the first rank may be preparing data or saving, which needs the processors. MPI_Wait follows, and returns at once.
static void leave_processor_until(MPI_Request *request)
{
    int done = 0;
    for (int looks = 0; done == 0; looks++) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done == 0 && looks >= SPINS) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            looks = SPINS;
        }
    }
}

int ranks_agree(const Ranks *ranks, int status, Error *error)
{
    if (alone(ranks)) {
        return status;
    }
    // The first rank that failed, found as the least number; and the largest status, as the least of its negative.
    int32_t own[2] = {status < 0 ? ranks->rank : ranks->count, -status}, all[2];
    MPI_Request request;
    MPI_Iallreduce(own, all, 2, MPI_INT32_T, MPI_MIN, MPI_COMM_WORLD, &request);
    leave_processor_until(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (all[0] == ranks->count) {
        return -all[1];
    }
    Error first = *error;
    MPI_Bcast(first.text, (int)sizeof first.text, MPI_CHAR, all[0], MPI_COMM_WORLD);
    *error = first;
    return all[0] > 0 ? error_prefix(error, "rank %d", (int)all[0]) : -1;
}

int ranks_same(const Ranks *ranks, uint64_t number, const char *what, Error *error)
{
    if (alone(ranks)) {
        return 0;
    }
    uint64_t first = number;
    MPI_Bcast(&first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    int differs = number == first ? ranks->count : ranks->rank, least;
    MPI_Allreduce(&differs, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return least == ranks->count ? 0 : error_set(error, "rank %d has %s than rank 0: every rank needs the same program, command line and data", least, what);
}

void ranks_add(const Ranks *ranks, double *sums, const double *numbers, size_t count)
{
    assert(count <= MAX_NUMBERS);
    const double *all = numbers;
    if (!alone(ranks)) {
        MPI_Allgather(numbers, (int)count, MPI_DOUBLE, ranks->scratch, (int)count, MPI_DOUBLE, MPI_COMM_WORLD);
        all = ranks->scratch;
    }
    for (size_t r = 0; r < (size_t)ranks_count(ranks); r++) {
        for (size_t i = 0; i < count; i++) {
            sums[i] += all[r * count + i];
        }
    }
}

// A stretch of an array, cut into one piece for each rank.
typedef struct Pieces {
    int *counts, *starts;       // [ranks] as they lie in the array
    int *received, *places;     // [ranks] of the own piece, as all ranks send it, one behind the other
} Pieces;

static void cut(const Pieces *pieces, const Ranks *ranks, size_t length)
{
    size_t piece = (length + (size_t)ranks->count - 1) / (size_t)ranks->count;
    for (int r = 0; r < ranks->count; r++) {
        size_t start = (size_t)r * piece < length ? (size_t)r * piece : length;
        pieces->starts[r] = (int)start;
        pieces->counts[r] = (int)(length - start < piece ? length - start : piece);
    }
    for (int r = 0; r < ranks->count; r++) {
        pieces->received[r] = pieces->counts[ranks->rank];
        pieces->places[r] = r * pieces->counts[ranks->rank];
    }
}

// Each rank gets its piece from all, adds them up in order, and gives the sum to all.
static void add_stretch(const Ranks *ranks, float *sums, const float *numbers, size_t length, int among, bool onto)
{
    size_t n = (size_t)ranks->count;
    const Pieces *pieces = &(const Pieces){ranks->lists, ranks->lists + n, ranks->lists + 2 * n, ranks->lists + 3 * n};
    float *all = ranks->scratch;
    cut(pieces, ranks, length);
    MPI_Alltoallv(numbers, pieces->counts, pieces->starts, MPI_FLOAT, all, pieces->received, pieces->places, MPI_FLOAT, MPI_COMM_WORLD);
    int own = pieces->counts[ranks->rank];
    float *sum = sums + pieces->starts[ranks->rank];
    for (int r = 0; r < among; r++) {
        ranks_add_own(sum, all + pieces->places[r], (size_t)own, onto || r > 0);
    }
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sums, pieces->counts, pieces->starts, MPI_FLOAT, MPI_COMM_WORLD);
}

void ranks_add_floats(const Ranks *ranks, float *sums, const float *numbers, size_t count, int among, bool onto)
{
    if (alone(ranks)) {
        if (onto || sums != numbers) {
            ranks_add_own(sums, numbers, count, onto);
        }
        return;
    }
    for (size_t first = 0; first < count; first += SCRATCH_FLOATS) {
        size_t length = count - first < SCRATCH_FLOATS ? count - first : SCRATCH_FLOATS;
        add_stretch(ranks, sums + first, numbers + first, length, among, onto);
    }
}
