// Parquet: files of a small writer in every encoding and codec, damaged ones, and (where they are) those of other writers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/corpus.h"
#include "data/parquet.h"
#include "tests/parquet_writer.h"
#include "tests/scratch.h"

static const char shared[] = "../shared/parquet";

// ---- own files

// Texts of very different lengths that share beginnings; some are empty.
static const char *text_of_row(size_t row, size_t *length)
{
    static char letters[4096];
    if (letters[0] == 0) {
        for (size_t i = 0; i < sizeof letters; i++) {
            letters[i] = "abcdefg\xc3\xa9\n"[i * i % 10];
        }
    }
    *length = row % 11 == 0 ? 0 : row * 37 % 300;
    return letters + row % 3;
}

static int64_t score_of_row(size_t row) { return (int64_t)(row * row % 19) - 7; }

typedef struct Expected {
    const WriterOptions *options;
    size_t row;
    int64_t least;    // rows below are left out
    size_t documents, filtered, skipped;
} Expected;

static size_t value_row(const Expected *e, int encoding) { return encoding == 8 ? dictionary_row(e->row) : e->row; }

// Moves on to the next row that must come as a document.
static bool next_expected(Expected *e, const char **text, size_t *length)
{
    for (; e->row < e->options->rows; e->row++) {
        if (e->least > INT64_MIN && (is_null(e->options, e->row) || score_of_row(value_row(e, e->options->number_encoding)) < e->least)) {
            e->filtered++;
            continue;
        }
        *text = text_of_row(value_row(e, e->options->text_encoding), length);
        if (!is_null(e->options, e->row) && *length > 0) {
            e->row++;
            e->documents++;
            return true;
        }
        e->skipped++;
    }
    return false;
}

static int compare(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    Expected *expected = context;
    const char *wanted = NULL;
    size_t wanted_length = 0;
    (void)index;
    (void)error;
    assert_true(next_expected(expected, &wanted, &wanted_length));
    assert_int_equal(length, wanted_length);
    assert_memory_equal(text, wanted, length);
    return 0;
}

static int read_corpus(const char *path, const CorpusOptions *options, CorpusStats *stats, CorpusVisit visit, void *context, Error *error)
{
    PathList list = {0};
    assert_int_equal(path_list_add(&list, path, error), 0);
    int result = corpus_read(&list, options, stats, visit, context, error);
    path_list_free(&list);
    return result;
}

static void check_file(void **state, const WriterOptions *o)
{
    Error error;
    CorpusStats stats;
    Output file = write_parquet(o, text_of_row, score_of_row);
    char *path = make_file(state, "own.parquet", file.data, file.size);
    for (int filtered = 0; filtered < 2; filtered++) {
        CorpusOptions options = {.quiet = true, .where = filtered ? "score>=4" : NULL, .text_key = o->text_name};
        Expected expected = {.options = o, .least = filtered ? 4 : INT64_MIN};
        if (read_corpus(path, &options, &stats, compare, &expected, &error) != 0) {
            fail_msg("text encoding %d, number encoding %d, codec %d, v%d: %s", o->text_encoding, o->number_encoding, o->codec,
                     o->version_2 ? 2 : 1, error.text);
        }
        const char *text;
        size_t length;
        assert_false(next_expected(&expected, &text, &length));
        assert_int_equal(stats.documents, expected.documents);
        assert_int_equal(stats.filtered, expected.filtered);
        assert_int_equal(stats.skipped, expected.skipped);
        assert_int_equal(stats.bytes_read, file.size);
        assert_true(stats.documents > o->rows / 10);
    }
    free(path);
    free(file.data);
}

static void all_encodings_and_codecs(void **state)
{
    const int text_encodings[] = {0, 8, 6, 7}, codecs[] = {0, 1, 2, 4, 6, 7};
    const struct {
        int encoding;
        WriterNumber type;
    } numbers[] = {{0, WRITE_INT64}, {8, WRITE_FLOAT}, {5, WRITE_INT32}, {9, WRITE_DOUBLE}, {5, WRITE_INT64}, {0, WRITE_FLOAT},
                   {9, WRITE_INT32}, {8, WRITE_INT64}};
    for (size_t t = 0; t < 4; t++) {
        for (size_t c = 0; c < 6; c++) {
            for (size_t form = 0; form < 4; form++) {
                size_t n = (t + c + form) % (sizeof numbers / sizeof numbers[0]);
                WriterOptions o = {.text_encoding = text_encodings[t], .number_encoding = numbers[n].encoding, .number = numbers[n].type,
                                   .codec = codecs[c], .version_2 = form % 2 == 1, .optional = form / 2 == 1, .checksums = c % 2 == 0,
                                   .rows = 1000, .page_rows = 173, .group_rows = 400, .nested_first = c == 1};
                check_file(state, &o);
            }
        }
    }
}

static void sizes_at_the_edges(void **state)
{
    const size_t rows[] = {1, 7, 8, 9, 32, 33, 128, 129, 130, 257};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        WriterOptions o = {.text_encoding = 7, .number_encoding = 5, .number = WRITE_INT64, .rows = 257, .page_rows = rows[i], .group_rows = 200,
                           .optional = true, .level_bits = i % 2 == 0};
        check_file(state, &o);
    }
    // More row groups than the short form of a list holds, and a name of its own.
    WriterOptions o = {.number = WRITE_INT32, .rows = 100, .page_rows = 10, .group_rows = 3, .text_name = "body"};
    check_file(state, &o);
}

static WriterOptions simple_options(void)
{
    return (WriterOptions){.number = WRITE_INT64, .rows = 50, .page_rows = 20, .group_rows = 30, .optional = true};
}

static int ignore(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    uint64_t *sum = context;
    (void)index;
    (void)error;
    *sum += length;
    for (size_t i = 0; i < length; i++) {
        *sum = *sum * 31 + (unsigned char)text[i];
    }
    return 0;
}

static void columns_are_found(void **state)
{
    Error error;
    size_t column, length;
    WriterOptions o = simple_options();
    o.nested_first = true;
    Output bytes = write_parquet(&o, text_of_row, score_of_row);
    char *path = make_file(state, "a.parquet", bytes.data, bytes.size);
    ParquetFile *file = parquet_open(path, &error);
    assert_non_null(file);
    assert_int_equal(parquet_rows(file), 50);
    assert_int_equal(parquet_groups(file), 2);
    assert_int_equal(parquet_group_rows(file, 1), 20);
    assert_int_equal(parquet_columns(file), 3);
    assert_int_equal(parquet_find_text(file, NULL, &column, &error), 0);
    assert_memory_equal(parquet_column_name(file, column, &length), "text", 4);
    assert_int_equal(parquet_find_number(file, "score", &column, &error), 0);
    assert_int_equal(column, 2);
    assert_int_equal(parquet_find_text(file, "score", &column, &error), -1);
    assert_says(&error, "a.parquet: the column \"score\" is INT64, not one of text; its columns of text: text");
    assert_int_equal(parquet_find_text(file, "nest", &column, &error), -1);
    assert_says(&error, "the column \"nest\" is nested or repeated");
    assert_int_equal(parquet_find_text(file, "body", &column, &error), -1);
    assert_says(&error, "a.parquet has no column \"body\"; its columns of text: text");
    assert_int_equal(parquet_find_number(file, "text", &column, &error), -1);
    assert_says(&error, "the column \"text\" is BYTE_ARRAY, not one of numbers; its columns of numbers: score");
    parquet_close(file);
    free(bytes.data);
    free(path);
    o.text_name = "anything";
    bytes = write_parquet(&o, text_of_row, score_of_row);
    path = make_file(state, "b.parquet", bytes.data, bytes.size);
    file = parquet_open(path, &error);
    assert_non_null(file);
    assert_int_equal(parquet_find_text(file, NULL, &column, &error), 0);
    assert_int_equal(column, 1);
    parquet_close(file);
    free(bytes.data);
    free(path);
}

static void damaged_files_are_refused(void **state)
{
    Error error;
    CorpusStats stats;
    CorpusOptions options = {.quiet = true};
    uint64_t sum = 0;
    WriterOptions o = simple_options();
    o.checksums = o.wrong_checksum = true;
    Output file = write_parquet(&o, text_of_row, score_of_row);
    char *path = make_file(state, "checksum.parquet", file.data, file.size);
    assert_int_equal(read_corpus(path, &options, &stats, ignore, &sum, &error), -1);
    assert_says(&error, "checksum.parquet: row group 0, column text: page at byte 4: its checksum is wrong");
    free(path);
    free(file.data);
    o = simple_options();
    file = write_parquet(&o, text_of_row, score_of_row);
    // Cut off anywhere.
    for (size_t size = 0; size < file.size; size += 13) {
        path = make_file(state, "cut.parquet", file.data, size);
        assert_int_equal(read_corpus(path, &options, &stats, ignore, &sum, &error), -1);
        assert_says(&error, "cut.parquet");
        free(path);
    }
    file.data[file.size - 1] = 'E';
    path = make_file(state, "secret.parquet", file.data, file.size);
    assert_int_equal(read_corpus(path, &options, &stats, ignore, &sum, &error), -1);
    assert_says(&error, "secret.parquet: an encrypted Parquet file");
    free(path);
    // A footer longer than the file.
    memcpy(file.data + file.size - 8, "\xff\xff\xff\x7fPAR1", 8);
    path = make_file(state, "long.parquet", file.data, file.size);
    assert_int_equal(read_corpus(path, &options, &stats, ignore, &sum, &error), -1);
    assert_says(&error, "long.parquet: its footer should have 2147483647 bytes");
    free(path);
    free(file.data);
}

// Any single byte changed: read or refused, and with checksums never read with other texts.
static void every_byte_changed(void **state)
{
    Error error;
    CorpusStats stats;
    CorpusOptions options = {.quiet = true};
    WriterOptions o = simple_options();
    o.checksums = true;
    o.text_encoding = 7;
    o.codec = 6;
    Output file = write_parquet(&o, text_of_row, score_of_row);
    uint64_t good = 0;
    char *path = make_file(state, "byte.parquet", file.data, file.size);
    assert_int_equal(read_corpus(path, &options, &stats, ignore, &good, &error), 0);
    free(path);
    size_t refused = 0;
    for (size_t i = 0; i < file.size; i++) {
        file.data[i] ^= (unsigned char)(1 << i % 8);
        uint64_t sum = 0;
        path = make_file(state, "byte.parquet", file.data, file.size);
        refused += read_corpus(path, &options, &stats, ignore, &sum, &error) != 0;
        file.data[i] ^= (unsigned char)(1 << i % 8);
        free(path);
    }
    assert_true(refused > file.size / 4);
    free(file.data);
}

// Columns behind the first 5 GB of a file, which take no room on the disk.
static void large_files(void **state)
{
    Error error;
    CorpusStats stats;
    CorpusOptions options = {.quiet = true};
    WriterOptions o = simple_options();
    uint64_t sums[2] = {0, 0};
    for (int large = 0; large < 2; large++) {
        o.hole = large ? (size_t)5 << 30 : 0;
        Output bytes = write_parquet(&o, text_of_row, score_of_row);
        char *path = make_file(state, "large.parquet", "PAR1", 4);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        bool fits = fseeko(file, (off_t)o.hole + 4, SEEK_SET) == 0 && fwrite(bytes.data + 4, 1, bytes.size - 4, file) == bytes.size - 4;
        fits = fclose(file) == 0 && fits;
        if (fits) {
            assert_int_equal(file_size(path), o.hole + bytes.size);
            assert_int_equal(read_corpus(path, &options, &stats, ignore, &sums[large], &error), 0);
        } else {
            printf("skipped: the file system of the temporary folder takes no file of 5 GB\n");
            sums[large] = sums[0];
        }
        free(bytes.data);
        free(path);
    }
    assert_true(sums[0] != 0 && sums[0] == sums[1]);
}

// ---- row groups in parallel

typedef struct GroupTask {
    const ParquetFile *file;
    size_t group, column;
    uint64_t rows, bytes;
    Error error;
    bool failed;
} GroupTask;

static void *read_group_task(void *argument)
{
    GroupTask *task = argument;
    ParquetCursor *cursor = parquet_cursor_open(task->file, task->group, task->column, &task->error);
    ParquetValue value;
    int more = cursor == NULL ? -1 : 1;
    while (more > 0 && (more = parquet_cursor_next(cursor, &value, &task->error)) > 0) {
        task->rows++;
        task->bytes += value.length;
    }
    task->failed = more < 0;
    parquet_cursor_close(cursor);
    return NULL;
}

static void groups_are_read_at_the_same_time(void **state)
{
    Error error;
    WriterOptions o = {.number = WRITE_INT64, .rows = 4000, .page_rows = 100, .group_rows = 1000, .codec = 1};
    Output bytes = write_parquet(&o, text_of_row, score_of_row);
    char *path = make_file(state, "a.parquet", bytes.data, bytes.size);
    ParquetFile *file = parquet_open(path, &error);
    assert_non_null(file);
    GroupTask tasks[4];
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        tasks[i] = (GroupTask){.file = file, .group = i};
        assert_int_equal(pthread_create(&threads[i], NULL, read_group_task, &tasks[i]), 0);
    }
    size_t length, total = 0, expected = 0;
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_false(tasks[i].failed);
        assert_int_equal(tasks[i].rows, 1000);
        total += tasks[i].bytes;
    }
    for (size_t row = 0; row < 4000; row++) {
        (void)text_of_row(row, &length);
        expected += length;
    }
    assert_int_equal(total, expected);
    parquet_close(file);
    free(bytes.data);
    free(path);
}

// ---- files of other writers

// Why a file, or one of its columns, is refused although its list says that it can be read.
static const struct {
    const char *file, *words;
} known[] = {
    {"rle-dict-uncompressed-corrupt-checksum.parquet", "its checksum is wrong"},
    {"datapage_v1-corrupt-checksum.parquet", "its checksum is wrong"},
};

static const char *known_reason(const char *file)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(path_base(file), known[i].file) == 0) {
            return known[i].words;
        }
    }
    return NULL;
}

// What an independent reader made of a row's value: null, a string, a number, or something else that does not compare. Returns true if it compared.
static bool compare_expected(const char *path, const cJSON *wanted, size_t row, size_t place, const ParquetValue *value)
{
    double number = value->kind == PARQUET_INTEGER    ? (double)value->number.integer
                    : value->kind == PARQUET_UNSIGNED ? (double)value->number.natural
                                                      : value->number.real;
    bool is_number = value->kind != PARQUET_TEXT && value->kind != PARQUET_NULL;
    if (cJSON_IsNull(wanted) && value->kind != PARQUET_NULL && !(is_number && isnan(number))) {
        fail_msg("%s: row %zu, column %zu should be null", path, row, place);
    }
    if (cJSON_IsString(wanted) && value->kind != PARQUET_TEXT && !is_number) {
        fail_msg("%s: row %zu, column %zu should be \"%s\"", path, row, place, wanted->valuestring);
    }
    if (cJSON_IsString(wanted) && value->kind == PARQUET_TEXT &&
        (strlen(wanted->valuestring) != value->length || memcmp(wanted->valuestring, value->text, value->length) != 0)) {
        fail_msg("%s: row %zu, column %zu: \"%.*s\" instead of \"%s\"", path, row, place, (int)value->length, value->text, wanted->valuestring);
    }
    if (cJSON_IsNumber(wanted) && (!is_number || fabs(number - wanted->valuedouble) > 1e-15 * fabs(number))) {
        fail_msg("%s: row %zu, column %zu: %.17g instead of %.17g", path, row, place, number, wanted->valuedouble);
    }
    return cJSON_IsNull(wanted) || (cJSON_IsString(wanted) && value->kind == PARQUET_TEXT) || cJSON_IsNumber(wanted);
}

typedef struct Walk {
    size_t files, opened, refused, columns, compared;
} Walk;

// Reads a column of all row groups. Returns 0, or -1 with `error` set.
static int read_column(const ParquetFile *file, const char *path, size_t column, const cJSON *rows, Walk *walk, Error *error)
{
    size_t row = 0;
    const cJSON *expected = rows != NULL ? rows->child : NULL;
    for (size_t group = 0; group < parquet_groups(file); group++) {
        ParquetCursor *cursor = parquet_cursor_open(file, group, column, error);
        ParquetValue value;
        int more = cursor == NULL ? -1 : 1;
        while (more > 0 && (more = parquet_cursor_next(cursor, &value, error)) > 0) {
            if (rows != NULL) {
                assert_non_null(expected);
                walk->compared += compare_expected(path, cJSON_GetArrayItem(expected, (int)column), row, column, &value);
                expected = expected->next;
            }
            row++;
        }
        parquet_cursor_close(cursor);
        if (more < 0) {
            return -1;
        }
    }
    assert_int_equal(row, parquet_rows(file));
    assert_null(expected);
    return 0;
}

static void walk_columns(const ParquetFile *file, const char *path, const cJSON *rows, bool readable, Walk *walk)
{
    Error error;
    for (size_t i = 0; i < parquet_columns(file); i++) {
        size_t length, column;
        const char *name = parquet_column_name(file, i, &length);
        char *text = strndup(name, length);
        bool is_text = parquet_find_text(file, text, &column, &error) == 0 && column == i;
        bool is_number = !is_text && parquet_find_number(file, text, &column, &error) == 0 && column == i;
        free(text);
        if (!is_text && !is_number) {
            continue;
        }
        if (read_column(file, path, i, rows, walk, &error) == 0) {
            walk->columns++;
            continue;
        }
        assert_says(&error, path);
        const char *reason = known_reason(path);
        if (reason != NULL) {
            assert_says(&error, reason);
        } else if (readable) {
            fail_msg("%s", error.text);
        }
    }
}

static void walk_file(const char *folder, const cJSON *entry, Walk *walk)
{
    Error error;
    char path[512], expected[600];
    const char *name = cJSON_GetObjectItem(entry, "file")->valuestring;
    const cJSON *rows = cJSON_GetObjectItem(entry, "rows"), *read = cJSON_GetObjectItem(entry, "read");
    snprintf(path, sizeof path, "%s/%s/%s", shared, folder, name);
    if (!file_exists(path)) {
        return;   // the list names files that were left out
    }
    walk->files++;
    ParquetFile *file = parquet_open(path, &error);
    if (file == NULL) {
        assert_says(&error, path);
        if (cJSON_GetObjectItem(entry, "error") == NULL) {
            fail_msg("%s should open: %s", path, error.text);
        }
        walk->refused++;
        return;
    }
    walk->opened++;
    if (cJSON_GetObjectItem(entry, "error") != NULL) {
        fail_msg("%s should be refused", path);
    }
    // One writer left the number of rows in the footer at 0; those of its row groups are right.
    if (rows->valuedouble > 0 || strcmp(name, "repeated_no_annotation.parquet") != 0) {
        assert_int_equal(parquet_rows(file), rows->valuedouble);
    }
    int length = (int)(strlen(name) - strlen(strrchr(name, '.')));
    snprintf(expected, sizeof expected, "%s/%s/expected/%.*s.json", shared, folder, length, name);
    cJSON *json = file_exists(expected) ? json_read_file(expected, (size_t)64 << 20, &error) : NULL;
    bool readable = cJSON_IsString(read) && strncmp(read->valuestring, "ok", 2) == 0 && strstr(path, "bad_data") == NULL &&
                    strstr(path, ".encrypted") == NULL;
    walk_columns(file, path, json, readable, walk);
    cJSON_Delete(json);
    parquet_close(file);
}

static void files_of_other_writers(void **state)
{
    (void)state;
    Error error;
    const char *folders[] = {"apache-parquet-testing", "fastparquet", "fineweb-schema", "hyparquet"};
    Walk walk = {0};
    if (!file_is_folder(shared)) {
        printf("skipped: %s is not here\n", shared);
        return;
    }
    for (size_t i = 0; i < 4; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s/FILES.json", shared, folders[i]);
        cJSON *list = json_read_file(path, 1 << 24, &error);
        assert_non_null(list);
        const cJSON *entry;
        cJSON_ArrayForEach(entry, list) {
            walk_file(folders[i], entry, &walk);
        }
        cJSON_Delete(list);
    }
    printf("%zu files: %zu opened, %zu refused; %zu columns read, %zu values compared\n", walk.files, walk.opened, walk.refused, walk.columns,
           walk.compared);
    assert_true(walk.opened > 280 && walk.columns > 500 && walk.compared > 50000);
}

// The same documents from rows.jsonl and from each Parquet file made of them (some hold only the first hundred).
static void same_documents_as_json_lines(void **state)
{
    (void)state;
    Error error;
    CorpusStats stats;
    CorpusOptions options = {.quiet = true};
    char folder[256];
    snprintf(folder, sizeof folder, "%s/fineweb-schema", shared);
    if (!file_is_folder(folder)) {
        printf("skipped: %s is not here\n", folder);
        return;
    }
    PathList names = {0};
    assert_int_equal(folder_list(&names, folder, &error), 0);
    uint64_t json_sum = 0;
    char *rows = path_join(folder, "rows.jsonl");
    assert_int_equal(read_corpus(rows, &options, &stats, ignore, &json_sum, &error), 0);
    assert_int_equal(stats.documents, 480);
    size_t same = 0;
    for (size_t i = 0; i < names.count; i++) {
        uint64_t sum = 0;
        if (strstr(names.items[i], ".parquet") == NULL) {
            continue;
        }
        char *path = path_join(folder, names.items[i]);
        if (read_corpus(path, &options, &stats, ignore, &sum, &error) != 0) {
            fail_msg("%s", error.text);
        }
        assert_true(stats.documents != 480 || sum == json_sum);
        same += sum == json_sum;
        free(path);
    }
    assert_int_equal(same, 6);
    free(rows);
    path_list_free(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_encodings_and_codecs),
        TEST(sizes_at_the_edges),
        TEST(columns_are_found),
        TEST(damaged_files_are_refused),
        TEST(every_byte_changed),
        TEST(large_files),
        TEST(groups_are_read_at_the_same_time),
        TEST(files_of_other_writers),
        TEST(same_documents_as_json_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
