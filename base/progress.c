#include "base/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_init(Progress *progress)
{
    progress->terminal = isatty(STDERR_FILENO) == 1;
    progress->interval = progress->terminal ? 0.1 : 10.0;
    progress->last = -INFINITY;
    progress->last_width = 0;
}

static size_t terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
        return size.ws_col;
    }
    return 80;
}

// Replaces control characters and cuts the text so that it stays within `columns`. Characters from U+1100 on count as two
// columns, which some are: the line may come out short, never too long. Returns the columns counted.
static size_t fit(char *text, size_t columns)
{
    size_t used = 0;
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c < 32 || *c == 127) {
            *c = '?';
        }
        if ((*c & 0xc0) == 0x80) {
            continue;
        }
        size_t wide = *c >= 0xe1 ? 2 : 1;
        if (used + wide > columns) {
            *c = 0;
            break;
        }
        used += wide;
    }
    return used;
}

void progress_show(Progress *progress, bool force, const char *format, ...)
{
    double now = seconds_now();
    if (!force && now - progress->last < progress->interval) {
        return;
    }
    progress->last = now;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!progress->terminal) {
        fit(text, sizeof text);
        fprintf(stderr, "%s\n", text);
        return;
    }
    // The last column stays free: writing into it makes some terminals start a new line.
    size_t columns = terminal_columns() - 1, width = fit(text, columns);
    size_t old = progress->last_width < columns ? progress->last_width : columns;
    fprintf(stderr, "\r%s%*s", text, old > width ? (int)(old - width) : 0, "");
    fflush(stderr);
    progress->last_width = width;
}

void progress_break(Progress *progress)
{
    if (progress->last_width > 0) {
        fputc('\n', stderr);
        progress->last_width = 0;
    }
}

char *format_duration(char text[32], double seconds)
{
    if (!(seconds >= 0.0) || seconds > 1e12) {
        snprintf(text, 32, "?");
        return text;
    }
    long long s = (long long)(seconds + 0.5);
    if (s < 3600) {
        snprintf(text, 32, "%lld:%02lld", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(text, 32, "%lldh %lldm", s / 3600, s / 60 % 60);
    } else {
        snprintf(text, 32, "%lldd %lldh", s / 86400, s / 3600 % 24);
    }
    return text;
}

char *format_bytes(char text[32], double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    // 999.95 would be printed as 1000.0
    while (unit + 1 < sizeof units / sizeof units[0] && fabs(bytes) >= (unit == 0 ? 999.5 : 999.95)) {
        bytes /= 1000.0;
        unit++;
    }
    snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

char *format_count(char text[32], double count)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    size_t unit = 0;
    while (unit + 1 < sizeof units / sizeof units[0] && fabs(count) >= 999.5) {
        count /= 1000.0;
        unit++;
    }
    snprintf(text, 32, "%.3g%s", count, units[unit]);
    return text;
}
