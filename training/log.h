// OUT/log.jsonl: one JSON object a step, for plots and scripts.
#ifndef TRAINING_LOG_H
#define TRAINING_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct TrainLog {
    int fd;          // appends; -1: closed
    int64_t bytes;   // whole records in the file
    char *path;
} TrainLog;

// How far the run has come in one of several sources of data.
typedef struct LogSource {
    const char *name;
    double share;      // of the tokens
    double epochs;     // passes over the source so far
} LogSource;

typedef struct LogRecord {
    int64_t step;               // steps done, this one included
    uint64_t tokens;            // tokens seen so far
    double loss;                // mean cross-entropy in nats a target; written as null when not finite
    double lr, grad_norm;       // the norm before clipping
    double tokens_per_second;
    double val_loss;            // NaN: not evaluated at this step, the key is left out
    bool clipped, spike, rising;   // true: the keys "clipped", "spike" and "rising" are written
    const LogSource *sources;   // [n_sources]: written as "sources", an array of {"data", "share", "epochs"}
    size_t n_sources;           // 0: the key is left out
    const char *skipped;        // why the step was skipped; NULL: it was not, the key is left out
} LogRecord;

// Opens the log of the folder `out` for appending, after cutting it before the first record behind `step` (0: empty); a line torn by a crash goes
// as well. Returns 0, or -1 with `error` set and nothing to close.
int train_log_open(TrainLog *log, const char *out, int64_t step, Error *error);
void train_log_close(TrainLog *log);

// Appends a record, with the time of day in seconds as "time". Returns 0, or -1 with `error` set (disk full): the record is left out
// as a whole, and further ones may be tried.
int train_log_write(TrainLog *log, const LogRecord *record, Error *error);

// Brings the log to the disk, as a checkpoint does with its files. Returns 0, or -1 with `error` set.
int train_log_sync(const TrainLog *log, Error *error);

#endif
