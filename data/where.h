// A condition on one number of a record: "int_score>=3".
#ifndef DATA_WHERE_H
#define DATA_WHERE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum WhereOperator { WHERE_LESS, WHERE_AT_MOST, WHERE_EQUAL, WHERE_OTHER, WHERE_AT_LEAST, WHERE_MORE } WhereOperator;

typedef struct Where {
    char column[256];   // name of the column or JSON key
    WhereOperator operator;
    double number;
    bool whole;         // `number` is a whole number, then also in `integer`: compared without rounding
    int64_t integer;
} Where;

// Parses NAME OPERATOR NUMBER with one of >= > <= < == !=; spaces between them do not count. Returns 0, or -1 with `error` set.
int where_parse(Where *where, const char *text, Error *error);

// Whether the value fulfils the condition. A value that is not a number (NaN) fulfils != alone.
bool where_real(const Where *where, double value);
bool where_integer(const Where *where, int64_t value);
bool where_unsigned(const Where *where, uint64_t value);

#endif
