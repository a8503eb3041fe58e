// Where things lie in one sequence's state. Attention keeps the keys and values of its window; where sequences stay shorter than that, of no more tokens than
// they can have.
#ifndef MODEL_STATE_LAYOUT_H
#define MODEL_STATE_LAYOUT_H

#include "model/params.h"

typedef struct StateLayout {
    TensorTable table;   // names and places: convolution tails and memories, layer by layer
    size_t longest;      // tokens that a sequence may have; SIZE_MAX: any number
} StateLayout;

// For sequences of up to `longest` tokens; a configuration whose state has room for any number then gets SIZE_MAX for it. Returns 0, or -1 with `error` set
// (sizes overflow, no memory) and nothing to free.
int state_layout_create(StateLayout *layout, const ModelConfig *config, size_t longest, Error *error);
void state_layout_free(StateLayout *layout);   // one that is all zero is allowed

// Puts a state that lies as `from_layout` says where `to_layout` has its parts. Both are of the same configuration, and the sequence has no more tokens than
// either is for. What `to` has beyond stays as it is.
void state_layout_move(float *to, const StateLayout *to_layout, const float *from, const StateLayout *from_layout);

#endif
