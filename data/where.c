#include "data/where.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text;
    WhereOperator operator;
} operators[] = {
    // Those of two characters stand first, so that none is taken for its beginning.
    {">=", WHERE_AT_LEAST}, {"<=", WHERE_AT_MOST}, {"==", WHERE_EQUAL}, {"!=", WHERE_OTHER}, {">", WHERE_MORE}, {"<", WHERE_LESS},
};

static const char blanks[] = " \t\r\n";

static int refuse(const char *text, Error *error)
{
    return error_set(error, "the condition \"%s\" is not understood: write NAME OPERATOR NUMBER with one of >= > <= < == !=, "
                     "such as 'int_score>=3'", text);
}

int where_parse(Where *where, const char *text, Error *error)
{
    *where = (Where){.operator = WHERE_EQUAL};
    const char *start = text + strspn(text, blanks), *at = start + strcspn(start, "<>=!");
    size_t length = (size_t)(at - start);
    while (length > 0 && strchr(blanks, start[length - 1]) != NULL) {
        length--;
    }
    if (length == 0 || length >= sizeof where->column) {
        return refuse(text, error);
    }
    memcpy(where->column, start, length);
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        size_t size = strlen(operators[i].text);
        if (strncmp(at, operators[i].text, size) != 0) {
            continue;
        }
        where->operator = operators[i].operator;
        char *end;
        where->number = strtod(at + size, &end);
        if (end == at + size || end[strspn(end, blanks)] != 0 || !isfinite(where->number)) {
            return refuse(text, error);
        }
        // Every whole double below 2^63 in size is an int64 without rounding.
        where->whole = where->number == floor(where->number) && fabs(where->number) < 0x1p63;
        where->integer = where->whole ? (int64_t)where->number : 0;
        return 0;
    }
    return refuse(text, error);
}

// `order` is below, at or above 0 as the value is to the number.
static bool holds(WhereOperator operator, int order)
{
    switch (operator) {
    case WHERE_LESS:
        return order < 0;
    case WHERE_AT_MOST:
        return order <= 0;
    case WHERE_EQUAL:
        return order == 0;
    case WHERE_OTHER:
        return order != 0;
    case WHERE_AT_LEAST:
        return order >= 0;
    case WHERE_MORE:
        return order > 0;
    }
    return false;
}

bool where_real(const Where *where, double value)
{
    if (isnan(value)) {
        return where->operator == WHERE_OTHER;
    }
    return holds(where->operator, (value > where->number) - (value < where->number));
}

bool where_integer(const Where *where, int64_t value)
{
    if (!where->whole) {
        return where_real(where, (double)value);
    }
    return holds(where->operator, (value > where->integer) - (value < where->integer));
}

bool where_unsigned(const Where *where, uint64_t value)
{
    return value <= INT64_MAX ? where_integer(where, (int64_t)value) : where_real(where, (double)value);
}
