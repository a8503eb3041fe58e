// Fewer rounds of the same for builds in which each takes many times as long.
#ifndef TESTS_SHORT_H
#define TESTS_SHORT_H

#include <stddef.h>
#include <stdlib.h>

// `all`; with TEST_SHORT=1 in the environment, which `make asan` and `make tsan` set, `some`. Sanitizers look at what is done, not at how often.
static inline size_t rounds(size_t all, size_t some) { return getenv("TEST_SHORT") != NULL ? some : all; }

#endif
