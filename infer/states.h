// Memory for the states of sequences, which is most of what long contexts of attention take.
#ifndef INFER_STATES_H
#define INFER_STATES_H

#include <stddef.h>

#include "base/error.h"
#include "model/model.h"

// States [count, layout's table.total] to free(), zero and not set to a start yet: what no token is written to takes no memory. Where they,
// with `more` bytes that the caller is about to take beside them, need more memory than this machine has free, they are refused at once: the
// system might end the program later. Returns NULL with `error` set when memory is short.
float *states_create(const StateLayout *layout, size_t count, size_t more, Error *error);

#endif
