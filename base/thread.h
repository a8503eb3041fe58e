#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

// Starts a thread that runs run(context) on any processor that OpenMP may use. A thread inherits the processors of the one
// that starts it, and where OMP_PROC_BIND or OMP_PLACES is set that is a single one: all would wait for each other there.
// Returns 0, or an error number as pthread_create does.
int thread_start(pthread_t *thread, void *(*run)(void *), void *context);

#endif
