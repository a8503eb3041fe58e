// The results of recall runs as a CSV file, one row a run; what stands there need not be run again.
#ifndef EXPERIMENTS_RECALL_ROWS_H
#define EXPERIMENTS_RECALL_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define ROW_MIXER_BYTES 256

typedef struct RecallRow {
    // What was run.
    char mixer[ROW_MIXER_BYTES];   // with what differs from its usual configuration: "lattice objective=encode"; no comma, no line break
    int64_t pairs, length, vocab, d_model, d_head, n_slot, steps, batch;
    double lr;
    int64_t seed;
    // What came out.
    int64_t state, parameters, steps_run;
    double accuracy, loss, seconds;
} RecallRow;

typedef struct RecallRows {
    RecallRow *items;
    size_t count;
} RecallRows;

// Reads a file. One that is missing has no rows. Returns 0, or -1 with `error` set (file and line) and nothing to free.
int recall_rows_read(RecallRows *rows, const char *path, Error *error);
void recall_rows_free(RecallRows *rows);

// The row of the same run, whatever came out; NULL when there is none.
const RecallRow *recall_rows_find(const RecallRows *rows, const RecallRow *row);

// Whether two rows differ in mixer, rate and seed at most.
bool recall_rows_same_setting(const RecallRow *a, const RecallRow *b);

// Adds a row at the file's end, whole even when several processes do so at once; a new or empty file gets the header first. Returns 0, or -1 with `error` set.
int recall_rows_append(const char *path, const RecallRow *row, Error *error);

// The header and one row as CSV lines without line break. `text` has room for RECALL_LINE_BYTES.
#define RECALL_LINE_BYTES 1024
char *recall_rows_header(char *text);
char *recall_rows_line(char *text, const RecallRow *row);

#endif
