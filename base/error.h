// Errors as values: a function that can fail returns 0 or -1 (or NULL) and leaves one line in an Error.
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

typedef struct Error {
    char text[768];   // what went wrong, where, and what to do; one line without "error: " and without newline
} Error;

// Formats the message into `error` (NULL is allowed). Control characters are shown as '?', so that a hostile file name or
// JSON string cannot forge lines. Always returns -1, so that callers can write `return error_set(error, ...)`.
int error_set(Error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Puts "prefix: " in front of the message that is there: adds the place to an error from further down. Returns -1.
int error_prefix(Error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
