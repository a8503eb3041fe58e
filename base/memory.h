// Large pieces of memory.
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>

// `bytes` zeroed bytes to free(), beginning at a cache line; NULL when there are none. Where the system can, large pieces lie in large pages, which are read
// through faster. All threads write the zeros, so that on machines of several parts each part holds a share.
void *memory_large(size_t bytes);

#endif
