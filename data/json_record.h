// One line of a .jsonl file, scanned without building a tree: memory does not depend on what else the record holds.
#ifndef DATA_JSON_RECORD_H
#define DATA_JSON_RECORD_H

#include <stddef.h>

typedef enum JsonNumber {
    JSON_NUMBER_MISSING,   // no such key, or null
    JSON_NUMBER_OTHER,     // something that is no number
    JSON_NUMBER_FOUND,
} JsonNumber;

typedef struct JsonRecord {
    const char *text;   // [length], UTF-8 or whatever bytes stood there; may have NUL bytes (from \u0000); lies in the line
    size_t length;
    JsonNumber number_state;
    double number;
} JsonRecord;

// Reads the record in `line`, whose text is decoded in place: the line is used up. line[length] must be readable and NUL. `text_key` is
// the key of the text; NULL: "text", then "content", then the only string there is (at the top level). `number_key` (NULL: none) is the
// key of the number. Of a key that stands several times the first value of the right type counts. Python's NaN and Infinity count as
// numbers. Returns NULL, or what is wrong with the record (a constant text).
const char *json_record_read(JsonRecord *record, char *line, size_t length, const char *text_key, const char *number_key);

#endif
