// What the tests with faults on purpose (tests/fault/fault.h) share: every n-th call of each kind fails, one at a time. What comes out is an error or a
// retry: never a crash, a wrong file, or the loss of what was good before.
//
// Long sweeps are thinned out; with FAULT_ALL=1 in the environment no call is left out.
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <unistd.h>

#include "tests/scratch.h"
#include "tests/short.h"

#ifdef WITHOUT_FAULTS

int main(void)
{
    puts("skipped: faults, because this linker has no --wrap");
    return 0;
}

#else

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/json.h"
#include "tests/fault/fault.h"

enum { DENSE = 250, STRIDE = 13 };

typedef struct Fault {
    const char *name;
    FaultKind kind;
    int effect;
    long count;
    bool harmless;   // the code must come through
} Fault;

static const Fault faults[] = {
    {"an allocation fails", FAULT_MEMORY, ENOMEM, 1, false},
    {"no memory from here on", FAULT_MEMORY, ENOMEM, LONG_MAX, false},
    {"no descriptor", FAULT_OPEN, EMFILE, 1, false},
    {"an open is interrupted", FAULT_OPEN, EINTR, 1, true},
    {"short reads", FAULT_READ, FAULT_SHORT, LONG_MAX, true},
    {"a read is interrupted", FAULT_READ, EINTR, 1, true},
    {"a read fails", FAULT_READ, EIO, 1, false},
    {"short writes", FAULT_WRITE, FAULT_SHORT, LONG_MAX, true},
    {"a write is interrupted", FAULT_WRITE, EINTR, 1, true},
    {"a write fails", FAULT_WRITE, EIO, 1, false},
    {"the disk is full", FAULT_WRITE, ENOSPC, LONG_MAX, false},
    {"fsync is interrupted", FAULT_SYNC, EINTR, 1, true},
    {"fsync fails", FAULT_SYNC, EIO, 1, false},
    {"close fails", FAULT_CLOSE, EIO, 1, false},
    {"a name cannot be changed", FAULT_NAMES, EIO, 1, false},
    {"no name can be changed", FAULT_NAMES, ENOSPC, LONG_MAX, false},
    {"another has the lock", FAULT_LOCKS, EWOULDBLOCK, 1, false},
    {"there are no locks", FAULT_LOCKS, ENOLCK, LONG_MAX, true},
};

// What is done under faults. `before` makes the state anew, `run` is the code in question, `after` holds the state against what is allowed;
// all get the test's context.
typedef struct Case {
    const char *name;
    void *context;
    void (*before)(void *context);
    int (*run)(void *context, Error *error);
    void (*after)(void *context, int status, const Fault *fault);
} Case;

static inline int next_descriptor(void)
{
    int fd = dup(STDIN_FILENO);
    close(fd);
    return fd;
}

// Fails the calls from number n on. Returns whether there was such a call.
static inline bool try_one(const Case *c, const Fault *fault, long n)
{
    Error error = {""};
    c->before(c->context);
    int descriptor = next_descriptor();
    fault_arm(fault->kind, fault->effect, n, fault->count);
    int status = c->run(c->context, &error);
    bool fired = fault_disarm() > 0;
    if (status != 0 && (!fired || fault->harmless)) {
        fail_msg("%s, %s at call %ld: fails for no reason: %s", c->name, fault->name, n, error.text);
    }
    if (status != 0 && error.text[0] == 0) {
        fail_msg("%s, %s at call %ld: an error without words", c->name, fault->name, n);
    }
    if (next_descriptor() != descriptor) {
        fail_msg("%s, %s at call %ld: a file stays open", c->name, fault->name, n);
    }
    c->after(c->context, status, fault);
    return fired;
}

// Every call of every kind. At least `least` allocations must have been met, so that the test tests something.
static inline void sweep(const Case *c, long least)
{
    bool all = getenv("FAULT_ALL") != NULL;
    long dense = (long)rounds(DENSE, 60), stride = (long)rounds(STRIDE, 29);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        long n = 1;
        while (try_one(c, &faults[i], n)) {
            n += n < dense || all ? 1 : stride;
        }
        if (faults[i].kind == FAULT_MEMORY && n <= least) {
            fail_msg("%s: only %ld allocations were met", c->name, n);
        }
    }
}

// The same with memory alone.
static inline void sweep_memory(const Case *c, long least)
{
    long n = 1;
    while (try_one(c, &faults[0], n)) {
        try_one(c, &faults[1], n++);
    }
    assert_true(n > least);
}

static inline void nothing_before(void *context) { (void)context; }

static inline void nothing_after(void *context, int status, const Fault *fault) { (void)context, (void)status, (void)fault; }

static inline void *faulty_malloc(size_t size) { return malloc(size); }

// Before the tests. Memory that cJSON asks for fails as well.
static inline void faults_start(void)
{
#ifdef _OPENMP
    omp_set_num_threads(1);   // the numbers are so few that threads would only wait for each other
#endif
    cJSON_InitHooks(&(cJSON_Hooks){faulty_malloc, free});
}

#endif
#endif
