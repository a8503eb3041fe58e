#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void make_one_line(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c < 32 || *c == 127) {
            *c = '?';
        }
    }
}

int error_set(Error *error, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
        make_one_line(error->text);
    }
    return -1;
}

int error_prefix(Error *error, const char *format, ...)
{
    if (error != NULL) {
        char prefix[sizeof error->text], joined[2 * sizeof error->text + 3];
        va_list args;
        va_start(args, format);
        vsnprintf(prefix, sizeof prefix, format, args);
        va_end(args);
        snprintf(joined, sizeof joined, "%s: %s", prefix, error->text);
        snprintf(error->text, sizeof error->text, "%.*s", (int)sizeof error->text - 1, joined);
        make_one_line(error->text);
    }
    return -1;
}
