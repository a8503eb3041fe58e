#include "base/thread.h"

#include <sched.h>
#include <stdbool.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define MAX_PLACE 1024   // processors of one place of OpenMP; larger ones are left as inherited

// Sets the processors of all of OpenMP's places; returns whether there are any.
static bool places_union(cpu_set_t *all)
{
    CPU_ZERO(all);
#ifdef _OPENMP
    for (int place = 0; place < omp_get_num_places(); place++) {
        int ids[MAX_PLACE], count = omp_get_place_num_procs(place);
        if (count > MAX_PLACE) {
            return false;
        }
        omp_get_place_proc_ids(place, ids);
        for (int i = 0; i < count; i++) {
            if (ids[i] >= 0 && ids[i] < CPU_SETSIZE) {
                CPU_SET(ids[i], all);
            }
        }
    }
#endif
    return CPU_COUNT(all) > 0;
}

int thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    pthread_attr_t attributes;
    cpu_set_t all;
    bool bound = places_union(&all) && pthread_attr_init(&attributes) == 0;
    if (bound) {
        pthread_attr_setaffinity_np(&attributes, sizeof all, &all);
    }
    int result = pthread_create(thread, bound ? &attributes : NULL, run, context);
    if (bound) {
        pthread_attr_destroy(&attributes);
    }
    return result;
}
