// Progress on standard error: one line that is rewritten in a terminal, a plain line now and then elsewhere; durations and sizes for people.
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Progress {
    bool terminal;        // standard error is a terminal
    double interval;      // least seconds between lines: 0.1 in a terminal, 10 elsewhere unless changed
    double last;          // time of the last line printed
    size_t last_width;    // width of the line that stands in the terminal, 0 if none
} Progress;

double seconds_now(void);   // monotonic clock

void progress_init(Progress *progress);
// Shows a line if the interval has passed (or `force`). Text without newline.
void progress_show(Progress *progress, bool force, const char *format, ...) __attribute__((format(printf, 3, 4)));
// Ends the rewritten line, so that other messages start on a line of their own. Call before printing anything else to stderr.
void progress_break(Progress *progress);

// "0:07", "12:05", "3h 20m", "2d 4h". Writes into `text` and returns it.
char *format_duration(char text[32], double seconds);
// "512 B", "1.5 kB", "3.2 MB", "1.1 GB". Writes into `text` and returns it.
char *format_bytes(char text[32], double bytes);
// 950, 12.3k, 4.56M, 1.2G. Writes into `text` and returns it.
char *format_count(char text[32], double count);

#endif
