// Documents out of files: .txt and .jsonl; long texts, conditions, duplicates, bad records.
#include <fcntl.h>
#include <unistd.h>

#include "tests/corpus.h"

static void text_files(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true};
    assert_int_equal(read_one(state, "a.txt", "\xef\xbb\xbfone\r\ntwo\xff\n", 13, &options, &stats, &seen, &error), 0);
    assert_int_equal(seen.count, 1);
    assert_document(&seen, 0, "one\r\ntwo\xff\n", 10);
    assert_int_equal(stats.documents, 1);
    assert_int_equal(stats.bytes, 10);
    assert_int_equal(stats.bytes_read, 13);
    assert_int_equal(read_one(state, "B.TXT", "x", 1, &options, &stats, &seen, &error), 0);
    assert_document(&seen, 0, "x", 1);
    // Nothing, and nothing but a mark: no document.
    assert_int_equal(read_one(state, "c.txt", "", 0, &options, &stats, &seen, &error), 0);
    assert_int_equal(stats.skipped, 1);
    assert_int_equal(read_one(state, "c.txt", "\xef\xbb\xbf", 3, &options, &stats, &seen, &error), 0);
    assert_int_equal(stats.skipped, 1);
    assert_int_equal(seen.count, 0);
    // What is no text is a bad record.
    assert_int_equal(read_one(state, "binary.txt", "ab\0c", 4, &options, &stats, &seen, &error), 0);
    assert_int_equal(stats.skipped, 1);
    assert_int_equal(seen.count, 0);
    options.strict = true;
    assert_int_equal(read_one(state, "binary.txt", "ab\0c", 4, &options, &stats, &seen, &error), -1);
    assert_says(&error, "binary.txt, offset 2: NUL byte, so this is no text");
    options.strict = false;
    assert_int_equal(read_one(state, "a.pdf", "ab", 2, &options, &stats, &seen, &error), -1);
    assert_says(&error, "a.pdf");
    // Larger than the first buffer.
    size_t size = 300000;
    char *large = malloc(size);
    memset(large, 'y', size);
    assert_int_equal(read_one(state, "large.txt", large, size, &options, &stats, &seen, &error), 0);
    assert_int_equal(seen.total, size);
    free(large);
    assert_true(corpus_accepts("x/y.jsonl") && corpus_accepts("y.TXT") && !corpus_accepts("y.txt.bak") && !corpus_accepts("y.json"));
}

static void json_lines(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true};
    static const char lines[] =
        "\xef\xbb\xbf{\"text\": \"first \\u00e9\\n\\\"q\\\"\", \"id\": \"x\"}\r\n"
        "\n"
        "  \t\r\n"
        "{\"content\": \"second\", \"text\": 5, \"title\": \"t\"}\n"
        "{\"id\": 3, \"body\": \"third\"}\n"
        "{\"text\": \"bad\xff\xfe bytes\"}\n"
        "{\"text\": \"a back\\\\u0000slash\"}\n"
        "{\"text\": \"\"}\n"                       // empty: skipped
        "{\"text\": \"a\\u0000b\"}\n"
        "{\"a\": \"x\", \"b\": \"y\"}\n"           // bad: which?
        "{\"text\": [\"x\"]}\n"                    // bad
        "[\"text\"]\n"                             // bad
        "{\"text\": \"cut\n"                       // bad
        "{\"text\": \"x\"} {\"text\": \"y\"}\n"    // bad
        "{\"text\": \"\\ud83d\\ude00\"}\n"
        "{\"text\": \"no line end\"}";
    assert_int_equal(read_one(state, "a.jsonl", lines, sizeof lines - 1, &options, &stats, &seen, &error), 0);
    assert_int_equal(seen.count, 8);
    assert_document(&seen, 0, "first \xc3\xa9\n\"q\"", 12);
    assert_document(&seen, 1, "second", 6);
    assert_document(&seen, 2, "third", 5);
    assert_document(&seen, 3, "bad\xff\xfe bytes", 11);
    assert_document(&seen, 4, "a back\\u0000slash", 17);
    assert_document(&seen, 5, "a\0b", 3);
    assert_document(&seen, 6, "\xf0\x9f\x98\x80", 4);
    assert_document(&seen, 7, "no line end", 11);
    assert_int_equal(stats.documents, 8);
    assert_int_equal(stats.skipped, 6);
    assert_int_equal(stats.bytes, 12 + 6 + 5 + 11 + 17 + 3 + 4 + 11);
    assert_int_equal(stats.bytes_read, sizeof lines - 1);
    assert_int_equal(read_one(state, "nul.jsonl", "{\"text\": \"x\"}\0\n", 15, &options, &stats, &seen, &error), 0);
    assert_int_equal(stats.skipped, 1);
    assert_int_equal(seen.count, 0);

    options.text_key = "body";
    assert_int_equal(read_one(state, "key.jsonl", "{\"text\":\"a\",\"body\":\"b\"}\n{\"text\":\"c\"}\n", 37, &options, &stats, &seen,
                              &error), 0);
    assert_int_equal(seen.count, 1);
    assert_document(&seen, 0, "b", 1);
    assert_int_equal(stats.skipped, 1);
}

static void strict_names_file_and_line(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.strict = true};
    const char *bad[] = {"{\"text\": 1}", "{", "{\"text\": \"\\ud800\"}", "nothing"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char lines[128];
        int size = snprintf(lines, sizeof lines, "{\"text\": \"good\"}\n\n%s\n{\"text\": \"more\"}\n", bad[i]);
        assert_int_equal(read_one(state, "s.jsonl", lines, (size_t)size, &options, &stats, &seen, &error), -1);
        assert_says(&error, "s.jsonl:3: ");
        assert_int_equal(seen.count, 1);
    }
    // A document without text is no fault.
    assert_int_equal(read_one(state, "s.jsonl", "{\"text\": \"\"}\n", 13, &options, &stats, &seen, &error), 0);
}

static void long_lines(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true};
    size_t size = (size_t)100 << 20;
    char *line = malloc(size);
    memset(line, 'z', size);
    memcpy(line, "{\"text\": \"", 10);
    memcpy(line + size - 3, "\"}\n", 3);
    assert_int_equal(read_one(state, "long.jsonl", line, size, &options, &stats, &seen, &error), 0);
    assert_int_equal(seen.count, 1 + (size - 13) / CORPUS_MAX_DOCUMENT);
    assert_int_equal(seen.total, size - 13);
    free(line);
}

static void files_in_order_and_stop(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen = {0};
    CorpusOptions options = {.quiet = true};
    PathList list = {0};
    const char *names[] = {"2.txt", "1.jsonl", "3.txt"};
    const char *texts[] = {"two", "{\"text\":\"one\"}\n{\"text\":\"one more\"}\n", "three"};
    for (int i = 0; i < 3; i++) {
        char *path = make_file(state, names[i], texts[i], strlen(texts[i]));
        assert_int_equal(path_list_add(&list, path, &error), 0);
        free(path);
    }
    assert_int_equal(corpus_bytes(&list), strlen(texts[0]) + strlen(texts[1]) + strlen(texts[2]));
    assert_int_equal(corpus_read(&list, &options, &stats, see, &seen, &error), 0);
    assert_int_equal(seen.count, 4);
    assert_document(&seen, 0, "two", 3);
    assert_document(&seen, 2, "one more", 8);
    assert_document(&seen, 3, "three", 5);
    memset(&seen, 0, sizeof seen);
    seen.stop_at = 2;
    assert_int_equal(corpus_read(&list, &options, &stats, see, &seen, &error), -1);
    assert_string_equal(error.text, "stopped");
    assert_int_equal(seen.count, 2);
    char *missing = in_folder(state, "missing.txt");
    assert_int_equal(path_list_add(&list, missing, &error), 0);
    memset(&seen, 0, sizeof seen);
    assert_int_equal(corpus_read(&list, &options, &stats, see, &seen, &error), -1);
    assert_says(&error, missing);
    free(missing);
    path_list_free(&list);
}

static void warnings_name_the_first_and_count_the_rest(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {0};
    char lines[64] = "";
    for (int i = 0; i < 9; i++) {
        strcat(lines, "bad\n");
    }
    char *path = in_folder(state, "stderr");
    fflush(stderr);
    int kept = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, STDERR_FILENO);
    int result = read_one(state, "w.jsonl", lines, strlen(lines), &options, &stats, &seen, &error);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(fd);
    assert_int_equal(result, 0);
    assert_int_equal(stats.skipped, 9);
    size_t size;
    char *text = file_read(path, 1 << 16, &size, &error);
    assert_non_null(text);
    assert_non_null(strstr(text, "w.jsonl:1: not valid JSON"));
    assert_non_null(strstr(text, "w.jsonl:5: "));
    assert_null(strstr(text, "w.jsonl:6: "));
    assert_non_null(strstr(text, "9 bad records skipped in all"));
    free(text);
    free(path);
}

// ---- long texts, conditions, duplicates

// What a document must look like when the text is one letter and a line end now and then.
typedef struct Cut {
    size_t count, total, largest;
    bool ends_lines;
} Cut;

static int see_cut(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    Cut *cut = context;
    (void)index;
    (void)error;
    cut->count++;
    cut->total += length;
    cut->largest = length > cut->largest ? length : cut->largest;
    cut->ends_lines = cut->ends_lines && text[length - 1] == '\n';
    return 0;
}

static void long_texts_are_cut_at_line_ends(void **state)
{
    Error error;
    CorpusStats stats;
    CorpusOptions options = {.quiet = true};
    PathList list = {0};
    char *path = in_folder(state, "long.txt");
    FILE *file = fopen(path, "wb");
    char line[1000];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    size_t lines = CORPUS_MAX_DOCUMENT / 1000 + 5000;
    for (size_t i = 0; i < lines; i++) {
        assert_int_equal(fwrite(line, 1, sizeof line, file), sizeof line);
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(path_list_add(&list, path, &error), 0);
    Cut cut = {.ends_lines = true};
    assert_int_equal(corpus_read(&list, &options, &stats, see_cut, &cut, &error), 0);
    assert_int_equal(cut.count, 2);
    assert_int_equal(cut.total, lines * 1000);
    assert_int_equal(cut.largest, CORPUS_MAX_DOCUMENT / 1000 * 1000);
    assert_true(cut.ends_lines);
    path_list_free(&list);
    free(path);
}

static void too_long_lines_are_bad(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true};
    char *path = in_folder(state, "long.jsonl");
    FILE *file = fopen(path, "wb");
    fputs("{\"text\": \"a\"}\n{\"text\": \"", file);
    // A hole: 300 MB of NUL bytes that take no room on the disk.
    assert_int_equal(fseek(file, 300 << 20, SEEK_CUR), 0);
    fputs("\"}\n{\"text\": \"b\"}\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), 0);
    assert_int_equal(seen.count, 2);
    assert_document(&seen, 1, "b", 1);
    assert_int_equal(stats.skipped, 1);
    options.strict = true;
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
    assert_says(&error, "long.jsonl:2: the line is longer than 256 MB");
    free(path);
}

static void records_are_filtered(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true, .where = "score>=2.5"};
    static const char lines[] = "{\"text\": \"a\", \"score\": 3}\n{\"score\": 2.5, \"text\": \"b\"}\n{\"text\": \"c\", \"score\": 2.4999}\n"
                                "{\"text\": \"d\"}\n{\"text\": \"e\", \"score\": null}\n{\"text\": \"f\", \"score\": \"3\"}\n"
                                "{\"text\": \"g\", \"score\": NaN}\n{\"text\": \"h\", \"score\": 1e3}\n{\"text\": \"i\", \"x\": {\"score\": 9}}\n";
    assert_int_equal(read_one(state, "a.jsonl", lines, sizeof lines - 1, &options, &stats, &seen, &error), 0);
    assert_int_equal(seen.count, 3);
    assert_document(&seen, 0, "a", 1);
    assert_document(&seen, 1, "b", 1);
    assert_document(&seen, 2, "h", 1);
    assert_int_equal(stats.filtered, 5);
    assert_int_equal(stats.skipped, 1);
    assert_int_equal(read_one(state, "a.txt", "x", 1, &options, &stats, &seen, &error), -1);
    assert_says(&error, "a.txt has no number \"score\"");
    options.where = "score";
    assert_int_equal(read_one(state, "a.jsonl", lines, sizeof lines - 1, &options, &stats, &seen, &error), -1);
    assert_says(&error, "is not understood");
}

static void duplicates_are_left_out(void **state)
{
    Error error;
    CorpusStats stats;
    CorpusOptions options = {.quiet = true, .dedup = true};
    PathList list = {0};
    // Enough to make the set grow several times.
    char *path = in_folder(state, "many.jsonl");
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 60000; i++) {
        fprintf(file, "{\"text\": \"document %d\"}\n", i % 20000);
    }
    assert_int_equal(fclose(file), 0);
    char *again = make_file(state, "again.txt", "document 7", 10);
    assert_int_equal(path_list_add(&list, path, &error), 0);
    assert_int_equal(path_list_add(&list, again, &error), 0);
    Cut cut = {0};
    assert_int_equal(corpus_read(&list, &options, &stats, see_cut, &cut, &error), 0);
    assert_int_equal(stats.documents, 20000);
    assert_int_equal(stats.duplicates, 40001);
    assert_int_equal(cut.count, 20000);
    options.dedup = false;
    assert_int_equal(corpus_read(&list, &options, &stats, see_cut, &cut, &error), 0);
    assert_int_equal(stats.documents, 60001);
    path_list_free(&list);
    free(path);
    free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(text_files),
        TEST(json_lines),
        TEST(strict_names_file_and_line),
        TEST(long_lines),
        TEST(files_in_order_and_stop),
        TEST(warnings_name_the_first_and_count_the_rest),
        TEST(long_texts_are_cut_at_line_ends),
        TEST(too_long_lines_are_bad),
        TEST(records_are_filtered),
        TEST(duplicates_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
