#include "training/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

static const char first_key[] = "{\"step\":";

// Whether a line, of which `head` is the beginning, is the record of a step behind `step`.
static bool is_later(const char *head, int64_t step)
{
    if (strncmp(head, first_key, sizeof first_key - 1) != 0) {
        return false;
    }
    char *end = NULL;
    errno = 0;
    long long number = strtoll(head + sizeof first_key - 1, &end, 10);
    return errno == 0 && *end == ',' && number > step;
}

// Where the first record behind `step` begins, or else what stands behind the last whole line: that much of the log stays, whatever it holds.
static int64_t kept_of(FILE *file, int64_t step)
{
    char head[64];
    size_t n = 0;
    int64_t kept = 0, at = 0;
    for (int c = getc(file); c != EOF; c = getc(file)) {
        at++;
        if (n + 1 < sizeof head) {
            head[n++] = (char)c;
        }
        if (c == '\n') {
            head[n] = 0;
            if (is_later(head, step)) {
                break;
            }
            kept = at;
            n = 0;
        }
    }
    return kept;
}

// The bytes of the log that stay when a run goes on from `step`; 0 when there is no file. -1 with `error` set when it cannot be read to the end: what
// lies behind would be cut off.
static int64_t kept_bytes(const char *path, int64_t step, Error *error)
{
    int fd = file_open(path, O_RDONLY | O_NONBLOCK);   // a pipe without a writer would wait for one
    struct stat info;
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file == NULL || fstat(fd, &info) != 0) {
        int code = errno;
        if (file != NULL) {
            fclose(file);
        } else if (fd >= 0) {
            close(fd);
        }
        return code == ENOENT ? 0 : error_set(error, "cannot read %s: %s", path, strerror(code));
    }
    int64_t kept = S_ISREG(info.st_mode) ? kept_of(file, step) : error_set(error, "%s is no regular file: move it away", path);
    if (kept >= 0 && ferror(file)) {
        kept = error_set(error, "cannot read %s: %s", path, strerror(errno));
    }
    fclose(file);
    return kept;
}

int train_log_open(TrainLog *log, const char *out, int64_t step, Error *error)
{
    *log = (TrainLog){.fd = -1, .path = path_join(out, "log.jsonl")};
    if (log->path == NULL) {
        return error_set(error, "out of memory");
    }
    log->bytes = step > 0 ? kept_bytes(log->path, step, error) : 0;
    if (log->bytes < 0) {
        train_log_close(log);
        return -1;
    }
    log->fd = file_open(log->path, O_WRONLY | O_CREAT | O_APPEND);
    if (log->fd < 0 || ftruncate(log->fd, (off_t)log->bytes) != 0) {
        error_set(error, "%s: cannot be opened for writing and cut behind step %" PRId64 ": %s", log->path, step, strerror(errno));
        train_log_close(log);
        return -1;
    }
    return 0;
}

void train_log_close(TrainLog *log)
{
    if (log->fd >= 0) {
        close(log->fd);
    }
    free(log->path);
    *log = (TrainLog){.fd = -1};
}

static void print_number(FILE *file, const char *key, double value)
{
    if (isfinite(value)) {
        fprintf(file, ",\"%s\":%.9g", key, value);
    } else {
        fprintf(file, ",\"%s\":null", key);
    }
}

// A string as JSON has it. Bytes that are no UTF-8 go out as they are.
static void print_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != 0; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 32) {
            fprintf(file, "\\u%04x", byte);
        } else {
            fprintf(file, byte == '"' || byte == '\\' ? "\\%c" : "%c", byte);
        }
    }
    fputc('"', file);
}

static void print_sources(FILE *file, const LogSource *sources, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? ",\"sources\":[{\"data\":" : ",{\"data\":", file);
        print_text(file, sources[i].name);
        print_number(file, "share", sources[i].share);
        print_number(file, "epochs", sources[i].epochs);
        fputs(i + 1 == count ? "}]" : "}", file);
    }
}

static void print_record(FILE *file, const LogRecord *record)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(file, "%s%" PRId64 ",\"tokens\":%" PRIu64, first_key, record->step, record->tokens);
    print_number(file, "loss", record->loss);
    print_number(file, "lr", record->lr);
    print_number(file, "grad_norm", record->grad_norm);
    print_number(file, "tokens_per_second", record->tokens_per_second);
    if (!isnan(record->val_loss)) {
        print_number(file, "val_loss", record->val_loss);
    }
    if (record->clipped) {
        fprintf(file, ",\"clipped\":true");
    }
    if (record->spike) {
        fprintf(file, ",\"spike\":true");
    }
    if (record->rising) {
        fprintf(file, ",\"rising\":true");
    }
    if (record->skipped != NULL) {
        fprintf(file, ",\"skipped\":\"%s\"", record->skipped);
    }
    print_sources(file, record->sources, record->n_sources);
    fprintf(file, ",\"time\":%.3f}\n", (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
}

int train_log_write(TrainLog *log, const LogRecord *record, Error *error)
{
    char *line = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&line, &length);
    if (memory == NULL) {
        return error_set(error, "out of memory");
    }
    print_record(memory, record);
    int failed = fclose(memory);
    if (failed == 0) {
        failed = file_write_all(log->fd, line, length, log->path, error);
    } else {
        error_set(error, "out of memory");
    }
    free(line);
    if (failed == 0) {
        log->bytes += (int64_t)length;
        return 0;
    }
    // What was written of a record would spoil the one behind it.
    if (ftruncate(log->fd, (off_t)log->bytes) != 0) {
        error_prefix(error, "a torn line stays");
    }
    return -1;
}

int train_log_sync(const TrainLog *log, Error *error) { return file_sync(log->fd, log->path, error); }
