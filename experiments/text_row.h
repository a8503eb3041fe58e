// One small language model, trained and evaluated on text, as a row of results (rows.h).
#ifndef EXPERIMENTS_TEXT_ROW_H
#define EXPERIMENTS_TEXT_ROW_H

#include "experiments/rows.h"

#define TEXT_CONTEXTS 9

typedef struct TextRow {
    // What was run.
    char mixer[ROW_TEXT_BYTES];   // describe_mixer
    char data[ROW_TEXT_BYTES];    // name of the prepared folder
    char data_hash[ROW_TEXT_BYTES];   // of what was prepared: its tokenizer, and its documents and tokens
    int64_t seq_len, tokens, batch_tokens, d_model, n_layer, n_head, mlp_hidden;
    char optimizer[ROW_TEXT_BYTES], dtype[ROW_TEXT_BYTES];
    int64_t eval_tokens;          // of the validation split; 0: all
    int64_t vocab;
    double lr;
    int64_t seed;
    // What came out.
    int64_t parameters, state_bytes;   // the last: what all layers remember of a sequence, without the convolutions' tails
    double cpu_seconds;                       // of the processor, in training; NaN when the training was interrupted
    double perplexity[TEXT_CONTEXTS];         // at text_contexts; NaN where it was not measured, infinite where it is no number
} TextRow;

// 64, 128, … 16,384
extern const int64_t text_contexts[TEXT_CONTEXTS];
extern const RowLayout text_layout;

// The context by which runs are ranked: the longest measured one that is not above the training length, or the shortest there is. TEXT_CONTEXTS: none.
size_t text_main_context(const TextRow *row);

#endif
