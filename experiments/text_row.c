#include "experiments/text_row.h"

#include <math.h>

#define AT(field) offsetof(TextRow, field)
static const Column columns[] = {
    {"mixer", COLUMN_TEXT, ROLE_SUBJECT, AT(mixer)},
    {"data", COLUMN_TEXT, ROLE_SETTING, AT(data)},
    {"data_hash", COLUMN_TEXT, ROLE_SETTING, AT(data_hash)},
    {"seq_len", COLUMN_INT, ROLE_SETTING, AT(seq_len)},
    {"tokens", COLUMN_INT, ROLE_SETTING, AT(tokens)},
    {"batch_tokens", COLUMN_INT, ROLE_SETTING, AT(batch_tokens)},
    {"d_model", COLUMN_INT, ROLE_SETTING, AT(d_model)},
    {"n_layer", COLUMN_INT, ROLE_SETTING, AT(n_layer)},
    {"n_head", COLUMN_INT, ROLE_SETTING, AT(n_head)},
    {"mlp_hidden", COLUMN_INT, ROLE_SETTING, AT(mlp_hidden)},
    {"optimizer", COLUMN_TEXT, ROLE_SETTING, AT(optimizer)},
    {"dtype", COLUMN_TEXT, ROLE_SETTING, AT(dtype)},
    {"eval_tokens", COLUMN_INT, ROLE_SETTING, AT(eval_tokens)},
    {"lr", COLUMN_REAL, ROLE_RATE, AT(lr)},
    {"seed", COLUMN_INT, ROLE_SEED, AT(seed)},
    {"vocab", COLUMN_INT, ROLE_SETTING, AT(vocab)},
    {"parameters", COLUMN_INT, ROLE_RESULT, AT(parameters)},
    {"state_bytes", COLUMN_INT, ROLE_RESULT, AT(state_bytes)},
    {"cpu_seconds", COLUMN_REAL, ROLE_RESULT, AT(cpu_seconds)},
    {"ppl_64", COLUMN_REAL, ROLE_RESULT, AT(perplexity[0])},
    {"ppl_128", COLUMN_REAL, ROLE_RESULT, AT(perplexity[1])},
    {"ppl_256", COLUMN_REAL, ROLE_RESULT, AT(perplexity[2])},
    {"ppl_512", COLUMN_REAL, ROLE_RESULT, AT(perplexity[3])},
    {"ppl_1024", COLUMN_REAL, ROLE_RESULT, AT(perplexity[4])},
    {"ppl_2048", COLUMN_REAL, ROLE_RESULT, AT(perplexity[5])},
    {"ppl_4096", COLUMN_REAL, ROLE_RESULT, AT(perplexity[6])},
    {"ppl_8192", COLUMN_REAL, ROLE_RESULT, AT(perplexity[7])},
    {"ppl_16384", COLUMN_REAL, ROLE_RESULT, AT(perplexity[8])},
};

const RowLayout text_layout = {columns, sizeof columns / sizeof columns[0], sizeof(TextRow), "text_run"};
const int64_t text_contexts[TEXT_CONTEXTS] = {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

size_t text_main_context(const TextRow *row)
{
    size_t best = TEXT_CONTEXTS;
    for (size_t i = 0; i < TEXT_CONTEXTS; i++) {
        if (!isnan(row->perplexity[i]) && (best == TEXT_CONTEXTS || text_contexts[i] <= row->seq_len)) {
            best = i;
        }
    }
    return best;
}
