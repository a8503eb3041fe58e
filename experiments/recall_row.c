#include "experiments/recall_row.h"

#define AT(field) offsetof(RecallRow, field)
static const Column columns[] = {
    {"mixer", COLUMN_TEXT, ROLE_SUBJECT, AT(mixer)},
    {"pairs", COLUMN_INT, ROLE_SETTING, AT(pairs)},
    {"length", COLUMN_INT, ROLE_SETTING, AT(length)},
    {"vocab", COLUMN_INT, ROLE_SETTING, AT(vocab)},
    {"d_model", COLUMN_INT, ROLE_SETTING, AT(d_model)},
    {"d_head", COLUMN_INT, ROLE_SETTING, AT(d_head)},
    {"n_slot", COLUMN_INT, ROLE_SETTING, AT(n_slot)},
    {"steps", COLUMN_INT, ROLE_SETTING, AT(steps)},
    {"batch", COLUMN_INT, ROLE_SETTING, AT(batch)},
    {"grow_from", COLUMN_INT, ROLE_SETTING, AT(grow_from)},
    {"optimizer", COLUMN_TEXT, ROLE_SETTING, AT(optimizer)},
    {"test", COLUMN_INT, ROLE_SETTING, AT(test)},
    {"until", COLUMN_REAL, ROLE_SETTING, AT(until)},
    {"lr", COLUMN_REAL, ROLE_RATE, AT(lr)},
    {"seed", COLUMN_INT, ROLE_SEED, AT(seed)},
    {"state", COLUMN_INT, ROLE_RESULT, AT(state)},
    {"parameters", COLUMN_INT, ROLE_RESULT, AT(parameters)},
    {"steps_run", COLUMN_INT, ROLE_RESULT, AT(steps_run)},
    {"accuracy", COLUMN_REAL, ROLE_RESULT, AT(accuracy)},
    {"loss", COLUMN_REAL, ROLE_RESULT, AT(loss)},
    {"seconds", COLUMN_REAL, ROLE_RESULT, AT(seconds)},
};

const RowLayout recall_layout = {columns, sizeof columns / sizeof columns[0], sizeof(RecallRow), "mqar"};
