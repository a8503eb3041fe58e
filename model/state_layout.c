#include "model/state_layout.h"

#include <stdint.h>
#include <string.h>

#include "model/block_shape.h"
#include "model/kernels/kernels.h"

// The most tokens that a layer's state has to hold; 0: no state grows with them.
static size_t widest_window(const ModelConfig *config)
{
    size_t most = 0;
    for (size_t layer = 0; layer < (size_t)config->n_layer; layer++) {
        size_t window = block_shape(config, kernels_available()[0]->mixers, layer).window;
        most = window > most ? window : most;
    }
    return most;
}

int state_layout_create(StateLayout *layout, const ModelConfig *config, size_t longest, Error *error)
{
    layout->longest = longest >= widest_window(config) ? SIZE_MAX : longest;
    return params_state_table(&layout->table, config, layout->longest, error);
}

void state_layout_free(StateLayout *layout)
{
    tensor_table_free(&layout->table);
    *layout = (StateLayout){.longest = 0};
}

// Only a ring of attention differs, in the number of its blocks in each row. The shorter ring has not been filled yet, so that in both a block of tokens lies
// at its own number, and what one has more than the other is never seen before it is written.
void state_layout_move(float *to, const StateLayout *to_layout, const float *from, const StateLayout *from_layout)
{
    for (size_t i = 0; i < to_layout->table.count; i++) {
        const Tensor *here = &to_layout->table.items[i], *there = &from_layout->table.items[i];
        size_t rows = here->shape[0], width = rows > 0 ? here->count / rows : 0, given = rows > 0 ? there->count / rows : 0;
        size_t both = width < given ? width : given;
        for (size_t row = 0; row < rows; row++) {
            memcpy(to + here->offset + row * width, from + there->offset + row * given, both * sizeof(float));
        }
    }
}
