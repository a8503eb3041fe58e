// Documents out of files: .txt and .jsonl, packed and in archives; conditions, duplicates, bad records.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <archive.h>
#include <archive_entry.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/corpus.h"
#include "tests/scratch.h"

typedef struct Seen {
    char text[64][64];
    size_t length[64];
    size_t count, total;
    size_t stop_at;   // 0: never
} Seen;

static int see(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    Seen *seen = context;
    assert_int_equal(index, seen->count);
    if (seen->count < 64) {
        memcpy(seen->text[seen->count], text, length < 64 ? length : 64);
        seen->length[seen->count] = length;
    }
    seen->count++;
    seen->total += length;
    return seen->count == seen->stop_at ? error_set(error, "stopped") : 0;
}

static int read_one(void **state, const char *name, const void *data, size_t size, const CorpusOptions *options, CorpusStats *stats,
                    Seen *seen,
                    Error *error)
{
    PathList list = {0};
    char *path = make_file(state, name, data, size);
    assert_int_equal(path_list_add(&list, path, error), 0);
    free(path);
    memset(seen, 0, sizeof *seen);
    int result = corpus_read(&list, options, stats, see, seen, error);
    path_list_free(&list);
    return result;
}

static void assert_document(const Seen *seen, size_t i, const char *text, size_t length)
{
    assert_true(i < seen->count);
    assert_int_equal(seen->length[i], length);
    assert_memory_equal(seen->text[i], text, length);
}

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

// ---- packed files and archives

typedef struct Member {
    const char *name, *text;
    size_t length;
} Member;

typedef int (*AddFilter)(struct archive *archive);

// Writes members as a tar archive, or the first one alone; packed by `filter` (NULL: not).
static char *make_packed(void **state, const char *name, AddFilter filter, bool tar, const Member *members, size_t n_members)
{
    char *path = in_folder(state, name);
    struct archive *archive = archive_write_new();
    assert_int_equal(tar ? archive_write_set_format_pax_restricted(archive) : archive_write_set_format_raw(archive), ARCHIVE_OK);
    if (filter != NULL) {
        assert_int_equal(filter(archive), ARCHIVE_OK);
    }
    assert_int_equal(archive_write_open_filename(archive, path), ARCHIVE_OK);
    for (size_t i = 0; i < (tar ? n_members : 1); i++) {
        struct archive_entry *entry = archive_entry_new();
        archive_entry_set_pathname(entry, members[i].name);
        archive_entry_set_filetype(entry, members[i].text == NULL ? AE_IFDIR : AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, (la_int64_t)members[i].length);
        assert_true(archive_write_header(archive, entry) >= ARCHIVE_WARN);   // of names that the locale does not know
        assert_int_equal(archive_write_data(archive, members[i].text, members[i].length), members[i].length);
        archive_entry_free(entry);
    }
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
    return path;
}

static int read_path(const char *path, const CorpusOptions *options, CorpusStats *stats, Seen *seen, Error *error)
{
    PathList list = {0};
    memset(seen, 0, sizeof *seen);
    assert_int_equal(path_list_add(&list, path, error), 0);
    int result = corpus_read(&list, options, stats, see, seen, error);
    path_list_free(&list);
    return result;
}

static const struct {
    const char *suffix, *tar_suffix;
    AddFilter filter;
} packings[] = {
    {".gz", ".tgz", archive_write_add_filter_gzip},
    {".zst", ".tzst", archive_write_add_filter_zstd},
    {".xz", ".txz", archive_write_add_filter_xz},
    {".bz2", ".tbz2", archive_write_add_filter_bzip2},
};

enum { N_PACKINGS = sizeof packings / sizeof packings[0] };

static const char two_lines[] = "\xef\xbb\xbf{\"text\": \"one\\u0021\"}\r\n{\"text\": \"two \xff\"}\r\n";

static void packed_files(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true};
    for (size_t i = 0; i < N_PACKINGS; i++) {
        char name[32];
        snprintf(name, sizeof name, "a.jsonl%s", packings[i].suffix);
        Member lines = {"a", two_lines, sizeof two_lines - 1}, text = {"b", "\xef\xbb\xbf" "a text\r\n", 11}, nothing = {"c", "", 0};
        char *path = make_packed(state, name, packings[i].filter, false, &lines, 1);
        assert_int_equal(read_path(path, &options, &stats, &seen, &error), 0);
        assert_int_equal(seen.count, 2);
        assert_document(&seen, 0, "one!", 4);
        assert_document(&seen, 1, "two \xff", 5);
        assert_int_equal(stats.bytes_read, file_size(path));
        // Cut off, or something else: refused, and the packing named.
        assert_int_equal(truncate(path, file_size(path) - 9), 0);
        assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
        assert_says(&error, "is damaged or cut off");
        assert_says(&error, name);
        free(path);
        path = make_file(state, name, two_lines, sizeof two_lines - 1);
        assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
        assert_says(&error, "data; mend the file or its name");
        free(path);
        snprintf(name, sizeof name, "B.TXT%s", packings[i].suffix);
        path = make_packed(state, name, packings[i].filter, false, &text, 1);
        assert_int_equal(read_path(path, &options, &stats, &seen, &error), 0);
        assert_int_equal(seen.count, 1);
        assert_document(&seen, 0, "a text\r\n", 8);
        free(path);
        path = make_packed(state, name, packings[i].filter, false, &nothing, 1);
        assert_int_equal(read_path(path, &options, &stats, &seen, &error), 0);
        assert_int_equal(stats.skipped, 1);
        free(path);
    }
}

// Several gzip streams behind each other are one file, as from `cat a.gz b.gz`.
static void members_behind_each_other(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true};
    Member first = {"a", "{\"text\": \"on", 12}, second = {"b", "e\"}\n{\"text\": \"two\"}\n", 20};
    for (size_t i = 0; i < N_PACKINGS; i++) {
        char name[32];
        snprintf(name, sizeof name, "a.jsonl%s", packings[i].suffix);
        char *path = make_packed(state, name, packings[i].filter, false, &first, 1), *other = make_packed(state, "rest", packings[i].filter,
                                                                                                         false, &second, 1);
        size_t size;
        char *rest = file_read(other, 1 << 20, &size, &error);
        FILE *file = fopen(path, "ab");
        assert_int_equal(fwrite(rest, 1, size, file), size);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(read_path(path, &options, &stats, &seen, &error), 0);
        assert_int_equal(seen.count, 2);
        assert_document(&seen, 0, "one", 3);
        assert_document(&seen, 1, "two", 3);
        free(rest);
        free(path);
        free(other);
    }
}

static void archives(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true};
    const Member inner[] = {{"inner", "{\"text\": \"packed\"}\n", 19}};
    char *inner_path = make_packed(state, "inner.gz", archive_write_add_filter_gzip, false, inner, 1);
    size_t inner_size;
    char *inner_bytes = file_read(inner_path, 1 << 20, &inner_size, &error);
    char long_name[300];
    memset(long_name, 'n', sizeof long_name);
    memcpy(long_name + sizeof long_name - 5, ".txt", 5);
    const Member members[] = {
        {"./books", NULL, 0},
        {"./books/one.txt", "first", 5},
        {"./books/._one.txt", "no text", 7},
        {"books/.git/two.txt", "no text", 7},
        {"README.md", "no text", 7},
        {"../../etc/three.jsonl", two_lines, sizeof two_lines - 1},
        {"empty.txt", "", 0},
        {"deep/inner.jsonl.gz", inner_bytes, inner_size},
        {long_name, "long name", 9},
        {"\xc3\xa9t\xc3\xa9.txt", "name in UTF-8", 13},
    };
    for (size_t i = 0; i <= N_PACKINGS * 2; i++) {
        char name[32];
        const char *form = i == 0 ? ".tar" : i % 2 == 0 ? packings[(i - 1) / 2].tar_suffix : packings[(i - 1) / 2].suffix;
        snprintf(name, sizeof name, "a%s%s", i % 2 == 1 ? ".tar" : "", form);
        assert_true(corpus_accepts(name));
        char *path = make_packed(state, name, i == 0 ? NULL : packings[(i - 1) / 2].filter, true, members, sizeof members / sizeof *members);
        if (read_path(path, &options, &stats, &seen, &error) != 0) {
            fail_msg("%s", error.text);
        }
        assert_int_equal(seen.count, 6);
        assert_document(&seen, 0, "first", 5);
        assert_document(&seen, 1, "one!", 4);
        assert_document(&seen, 2, "two \xff", 5);
        assert_document(&seen, 3, "packed", 6);
        assert_document(&seen, 4, "long name", 9);
        assert_document(&seen, 5, "name in UTF-8", 13);
        assert_int_equal(stats.skipped, 1);
        free(path);
    }
    free(inner_path);
    free(inner_bytes);
}

static void bad_archives(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true, .strict = true};
    const Member none[] = {{"README.md", "x", 1}}, parquet[] = {{"a.parquet", "x", 1}};
    const Member bad[] = {{"good.jsonl", two_lines, sizeof two_lines - 1}, {"dir/bad.jsonl", "\n{}\n", 4}};
    char *path = make_packed(state, "none.tar", NULL, true, none, 1);
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
    assert_says(&error, "none.tar holds no documents");
    free(path);
    path = make_packed(state, "parquet.tar", NULL, true, parquet, 1);
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
    assert_says(&error, "parquet.tar holds the Parquet file a.parquet");
    free(path);
    path = make_packed(state, "bad.tar.zst", archive_write_add_filter_zstd, true, bad, 2);
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
    assert_says(&error, "bad.tar.zst/dir/bad.jsonl:2: no string under");
    free(path);
    path = make_file(state, "garbage.tar", two_lines, sizeof two_lines - 1);
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
    assert_says(&error, "garbage.tar is damaged or cut off");
    free(path);
    path = in_folder(state, "missing.tar.gz");
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
    assert_says(&error, "missing.tar.gz");
    free(path);
    // Tar in tar in tar in tar.
    const char *names[] = {"1.tar", "2.tar", "3.tar", "4.tar", "5.tar"};
    Member member = {"a.txt", "x", 1};
    char *bytes = NULL;
    for (size_t i = 0; i < 5; i++) {
        path = make_packed(state, names[i], NULL, true, &member, 1);
        free(bytes);
        bytes = file_read(path, 1 << 20, &member.length, &error);
        member.text = bytes;
        member.name = names[i];
        assert_int_equal(read_path(path, &options, &stats, &seen, &error), i < 3 ? 0 : -1);
        free(path);
    }
    assert_says(&error, "nested more than 3 deep");
    free(bytes);
}

// An old GNU header and its member's 512 bytes. `holes` is its table of (offset, bytes), `real_size` what the member unpacks to.
static char *make_gnu_tar(void **state, const char *name, char type, const char *real_size, const char *const holes[4])
{
    char bytes[2048] = {0};
    unsigned sum = 0;
    strcpy(bytes, "a.jsonl");
    strcpy(bytes + 100, "0000644");
    strcpy(bytes + 124, "00000001000");
    bytes[156] = type;
    memcpy(bytes + 257, "ustar  ", 8);
    for (size_t i = 0; i < 4; i++) {
        memcpy(bytes + 386 + 12 * i, holes[i], strlen(holes[i]));
    }
    memcpy(bytes + 483, real_size, strlen(real_size));
    memset(bytes + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++) {
        sum += (unsigned char)bytes[i];
    }
    snprintf(bytes + 148, 8, "%06o", sum);
    memset(bytes + 512, '\n', 512);
    memcpy(bytes + 512, two_lines, sizeof two_lines - 1);
    return make_file(state, name, bytes, sizeof bytes);
}

// Holes of an archive's members take no room in it: neither a terabyte of them, nor a table of them that makes no sense, is ever read.
static void archives_with_holes(void **state)
{
    Error error;
    CorpusStats stats;
    Seen seen;
    CorpusOptions options = {.quiet = true};
    const char *const none[4] = {"", "", "", ""}, *const behind[4] = {"00000000000", "00000001000", "77777777777", "00000000000"};
    char *path = make_gnu_tar(state, "plain.tar", '0', "00000001000", none);
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), 0);
    assert_int_equal(seen.count, 2);
    free(path);
    path = make_gnu_tar(state, "short.tar", '0', "00000000001", none);
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
    assert_says(&error, "short.tar is damaged or cut off");
    free(path);
    path = make_gnu_tar(state, "holes.tar", 'S', "77777777777", behind);
    assert_int_equal(read_path(path, &options, &stats, &seen, &error), -1);
    assert_says(&error, "holes.tar holds a file with holes");
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
        TEST(packed_files),
        TEST(members_behind_each_other),
        TEST(archives),
        TEST(bad_archives),
        TEST(archives_with_holes),
        TEST(long_texts_are_cut_at_line_ends),
        TEST(too_long_lines_are_bad),
        TEST(records_are_filtered),
        TEST(duplicates_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
