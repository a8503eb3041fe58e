// Documents out of packed files and archives, good and bad.
#include <archive.h>
#include <archive_entry.h>

#include "tests/corpus.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(packed_files),
        TEST(members_behind_each_other),
        TEST(archives),
        TEST(bad_archives),
        TEST(archives_with_holes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
