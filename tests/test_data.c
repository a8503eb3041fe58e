// Corpus, shards, loader.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "data/shards.h"

typedef struct Fixture {
    char folder[256];
} Fixture;

static int setup(void **state)
{
    Fixture *fixture = calloc(1, sizeof *fixture);
    const char *base = getenv("TMPDIR");
    snprintf(fixture->folder, sizeof fixture->folder, "%s/test_data_XXXXXX", base != NULL && strlen(base) < 200 ? base : "/tmp");
    *state = fixture;
    return mkdtemp(fixture->folder) == NULL;
}

static int teardown(void **state)
{
    Fixture *fixture = *state;
    Error error;
    int result = folder_remove(fixture->folder, &error);
    free(fixture);
    return result;
}

static char *in_folder(void **state, const char *name)
{
    char *path = path_join(((Fixture *)*state)->folder, name);
    assert_non_null(path);
    return path;
}

// Makes a file and gives its path (to free).
static char *make_file(void **state, const char *name, const void *data, size_t size)
{
    char *path = in_folder(state, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void assert_says(const Error *error, const char *words)
{
    if (strstr(error->text, words) == NULL) {
        fail_msg("the error \"%s\" does not say \"%s\"", error->text, words);
    }
}

// ---- shards

static void put_u32(unsigned char *p, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (unsigned char)(value >> (8 * i));
    }
}

// A header as others' scripts write it.
static void make_header(unsigned char header[1024], uint32_t magic, uint32_t version, uint32_t low, uint32_t high)
{
    memset(header, 0, 1024);
    put_u32(header, magic);
    put_u32(header + 4, version);
    put_u32(header + 8, low);
    put_u32(header + 12, high);
}

static void write_and_read_width(void **state, size_t vocab_size, unsigned width)
{
    Error error;
    Fixture *fixture = *state;
    int32_t ids[1000];
    for (int i = 0; i < 1000; i++) {
        ids[i] = (int32_t)((size_t)i * 7919 % vocab_size);
    }
    ids[999] = (int32_t)vocab_size - 1;
    ShardWriter *writer = shard_writer_create(fixture->folder, "train", 300, vocab_size, 0xdeadbeef, &error);
    assert_non_null(writer);
    for (size_t at = 0; at < 1000; at += 125) {
        assert_int_equal(shard_writer_add(writer, ids + at, 125, &error), 0);
    }
    uint64_t total;
    size_t n_shards;
    assert_int_equal(shard_writer_close(writer, &total, &n_shards, &error), 0);
    assert_int_equal(total, 1000);
    assert_int_equal(n_shards, 4);
    PathList names = {0};
    assert_int_equal(folder_list(&names, fixture->folder, &error), 0);
    assert_int_equal(names.count, 4);
    path_list_free(&names);
    for (size_t s = 0; s < 4; s++) {
        char name[32];
        snprintf(name, sizeof name, "train_%06zu.bin", s);
        char *path = in_folder(state, name);
        size_t count = s < 3 ? 300 : 100, size;
        unsigned char *bytes = (unsigned char *)file_read(path, 1 << 20, &size, &error), header[1024];
        assert_non_null(bytes);
        assert_int_equal(size, 1024 + count * width);
        make_header(header, width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7, (uint32_t)count, 0);
        put_u32(header + 16, 0xdeadbeef);
        assert_memory_equal(bytes, header, 1024);
        free(bytes);
        Shard shard;
        int32_t back[300];
        assert_int_equal(shard_open(&shard, path, &error), 0);
        assert_int_equal(shard.count, count);
        assert_int_equal(shard.width, width);
        assert_int_equal(shard.tokenizer_hash, 0xdeadbeef);
        shard_read(&shard, back, 0, count);
        assert_memory_equal(back, ids + 300 * s, count * sizeof *back);
        shard_read(&shard, back, 17, 3);
        assert_memory_equal(back, ids + 300 * s + 17, 3 * sizeof *back);
        shard_close(&shard);
        free(path);
    }
}

static void shards_round_trip_uint16(void **state) { write_and_read_width(state, 65536, 2); }
static void shards_round_trip_uint32(void **state) { write_and_read_width(state, 65537, 4); }

static void writer_refuses_ids_outside_and_leaves_nothing(void **state)
{
    Error error;
    Fixture *fixture = *state;
    const int32_t good[] = {0, 1, 99}, outside[] = {100}, negative[] = {-1};
    const int32_t *bad[] = {outside, negative};
    for (int i = 0; i < 2; i++) {
        ShardWriter *writer = shard_writer_create(fixture->folder, "train", 300, 100, 0, &error);
        assert_int_equal(shard_writer_add(writer, good, 3, &error), 0);
        assert_int_equal(shard_writer_add(writer, bad[i], 1, &error), -1);
        assert_says(&error, "vocabulary of 100");
        shard_writer_abort(writer);
    }
    ShardWriter *empty = shard_writer_create(fixture->folder, "val", 300, 100, 0, &error);
    size_t n_shards = 7;
    assert_int_equal(shard_writer_close(empty, NULL, &n_shards, &error), 0);
    assert_int_equal(n_shards, 0);
    PathList names = {0};
    assert_int_equal(folder_list(&names, fixture->folder, &error), 0);
    assert_int_equal(names.count, 0);
    path_list_free(&names);
}

static void refuse(void **state, const unsigned char *bytes, size_t size, const char *words)
{
    Error error;
    Shard shard;
    char *path = make_file(state, "hostile.bin", bytes, size);
    assert_int_equal(shard_open(&shard, path, &error), -1);
    assert_says(&error, path);
    assert_says(&error, words);
    free(path);
}

static void hostile_shards_are_refused(void **state)
{
    unsigned char bytes[1024 + 64];
    memset(bytes, 1, sizeof bytes);
    refuse(state, bytes, 0, "0 bytes, but the header alone has 1024");
    refuse(state, bytes, 1023, "1023 bytes");
    refuse(state, bytes, sizeof bytes, "expected 20240520");
    make_header(bytes, 20240520, 2, 32, 0);
    refuse(state, bytes, sizeof bytes, "version 2, expected 1");
    make_header(bytes, 20240801, 1, 16, 0);
    refuse(state, bytes, sizeof bytes, "version 1, expected 7");
    make_header(bytes, 20240520, 1, 33, 0);
    refuse(state, bytes, sizeof bytes, "33 tokens of 2 bytes, but the file has 64 bytes");
    make_header(bytes, 20240520, 1, 31, 0);
    refuse(state, bytes, sizeof bytes, "31 tokens");
    make_header(bytes, 20240520, 1, 32, 1);
    refuse(state, bytes, sizeof bytes, "4294967328 tokens");
    make_header(bytes, 20240520, 1, 32, UINT32_MAX);
    refuse(state, bytes, sizeof bytes, "18446744069414584352 tokens");
    // Times four it would be 64 again in 64 bits.
    make_header(bytes, 20240801, 7, 16, 1u << 30);
    refuse(state, bytes, sizeof bytes, "4611686018427387920 tokens of 4 bytes");
    make_header(bytes, 20240801, 7, 15, 0);
    refuse(state, bytes, sizeof bytes - 1, "63 bytes");

    Error error;
    Shard shard;
    char *missing = in_folder(state, "missing.bin");
    assert_int_equal(shard_open(&shard, missing, &error), -1);
    assert_says(&error, missing);
    free(missing);
    assert_int_equal(shard_open(&shard, ((Fixture *)*state)->folder, &error), -1);
    assert_says(&error, "not a regular file");
}

static void shards_of_others_load(void **state)
{
    Error error;
    Shard shard;
    unsigned char bytes[1024 + 6] = {0};
    make_header(bytes, 20240520, 1, 3, 0);
    memcpy(bytes + 1024, "\x50\xc4\x01\x00\xff\xff", 6);
    char *path = make_file(state, "tiny_shakespeare_val.bin", bytes, sizeof bytes);
    assert_int_equal(shard_open(&shard, path, &error), 0);
    int32_t ids[3];
    shard_read(&shard, ids, 0, 3);
    assert_int_equal(ids[0], 50256);
    assert_int_equal(ids[1], 1);
    assert_int_equal(ids[2], 65535);
    assert_int_equal(shard.tokenizer_hash, 0);
    shard_close(&shard);
    free(path);
}

// A file of `tokens` zeros that takes no room. False when the file system cannot.
static bool make_sparse(const char *path, uint64_t tokens)
{
    unsigned char header[1024];
    make_header(header, 20240520, 1, (uint32_t)tokens, (uint32_t)(tokens >> 32));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    bool good = write(fd, header, sizeof header) == (ssize_t)sizeof header && ftruncate(fd, (off_t)(1024 + 2 * tokens)) == 0;
    close(fd);
    if (!good) {
        print_message("skipped: the file system of the temporary folder takes no sparse file of %llu tokens\n", (unsigned long long)tokens);
    }
    return good;
}

static void ten_billion_tokens(void **state)
{
    Error error;
    const uint64_t tokens = 10000000000;
    char *path = in_folder(state, "large_train.bin");
    if (make_sparse(path, tokens)) {
        int fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, "\x39\x30", 2, (off_t)(1024 + 2 * (tokens - 1))), 2);
        close(fd);
        PathList list = {0};
        assert_int_equal(path_list_add(&list, path, &error), 0);
        Loader *loader = loader_create(&list, 369, 1, 0, 0, &error);
        assert_non_null(loader);
        assert_true(loader_tokens(loader) == tokens);
        assert_true(loader_windows(loader) == (tokens - 1) / 369);
        int32_t inputs[369], targets[369];
        // 9,999,999,999 is a multiple of 369, so the last target is the last token.
        assert_int_equal(loader_window_in_order(loader, inputs, targets, loader_windows(loader) - 1, &error), 0);
        assert_int_equal(targets[368], 12345);
        assert_int_equal(targets[367], 0);
        assert_int_equal(loader_window(loader, inputs, targets, UINT64_C(1) << 40, &error), 0);
        loader_free(loader);
        path_list_free(&list);
    }
    free(path);
}

static long resident_pages(void)
{
    long total, resident = -1;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", &total, &resident) != 2) {
            resident = -1;
        }
        fclose(file);
    }
    return resident;
}

static void resident_memory_is_bounded(void **state)
{
    Error error;
    char *path = in_folder(state, "resident_train.bin");
    if (resident_pages() < 0) {
        print_message("skipped: no /proc/self/statm to read resident memory from\n");
    } else if (make_sparse(path, 200000000)) {
        PathList list = {0};
        assert_int_equal(path_list_add(&list, path, &error), 0);
        Loader *loader = loader_create(&list, 1024, 1, 0, 0, &error);
        assert_non_null(loader);
        int32_t inputs[1024], targets[1024];
        long before = 0, most = 0;
        for (uint64_t i = 0; i < 10000; i++) {
            assert_int_equal(loader_window(loader, inputs, targets, i, &error), 0);
            long now = i % 100 == 0 ? resident_pages() : 0;
            before = i == 0 ? now : before;
            most = now > most ? now : most;
        }
        // 10,000 windows touch 20 MB, and about 300 MB with what the kernel maps around them.
        assert_true((most - before) * sysconf(_SC_PAGESIZE) < 8 << 20);
        loader_free(loader);
        path_list_free(&list);
    }
    free(path);
}

// ---- loader

enum { LENGTH = 16 };
static const size_t shard_sizes[] = {1000, 37, 16, 0, 2049, 500};   // 62, 2, 0, 0, 128 and 31 windows
enum { SHARDS = 6, WINDOWS = 223 };

// Shards whose tokens are their number in all, so that a window tells where it comes from.
static PathList make_shards(void **state)
{
    Error error;
    PathList list = {0};
    uint32_t next = 0;
    for (size_t s = 0; s < SHARDS; s++) {
        unsigned char bytes[1024 + 2 * 2049];
        make_header(bytes, 20240520, 1, (uint32_t)shard_sizes[s], 0);
        for (size_t i = 0; i < shard_sizes[s]; i++, next++) {
            bytes[1024 + 2 * i] = (unsigned char)next;
            bytes[1025 + 2 * i] = (unsigned char)(next >> 8);
        }
        char name[32];
        snprintf(name, sizeof name, "t_%zu.bin", s);
        char *path = make_file(state, name, bytes, 1024 + 2 * shard_sizes[s]);
        assert_int_equal(path_list_add(&list, path, &error), 0);
        free(path);
    }
    return list;
}

// Number of the window, counted through the shards in order, that `loader` gives at `index`.
static int window_number(const Loader *loader, uint64_t index)
{
    Error error;
    int32_t tokens[LENGTH], targets[LENGTH];
    assert_int_equal(loader_window(loader, tokens, targets, index, &error), 0);
    for (int i = 0; i < LENGTH; i++) {
        assert_int_equal(tokens[i], tokens[0] + i);
        assert_int_equal(targets[i], tokens[0] + i + 1);
    }
    int32_t start = tokens[0];
    int number = 0;
    for (size_t s = 0; s < SHARDS; s++) {
        int32_t size = (int32_t)shard_sizes[s];
        if (start < size) {
            assert_int_equal(start % LENGTH, 0);
            assert_true(start + LENGTH < size);
            return number + start / LENGTH;
        }
        start -= size;
        number += size > 0 ? (size - 1) / LENGTH : 0;
    }
    fail_msg("window outside of the shards");
    return -1;
}

static void each_window_once_an_epoch(void **state)
{
    Error error;
    PathList list = make_shards(state);
    Loader *loader = loader_create(&list, LENGTH, 42, 0, 5000, &error), *other = loader_create(&list, LENGTH, 43, 0, 0, &error);
    assert_non_null(loader);
    assert_int_equal(loader_tokens(loader), 3602);
    assert_int_equal(loader_windows(loader), WINDOWS);
    int order[3][WINDOWS], same_epoch = 0, same_seed = 0, in_place = 0;
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[WINDOWS] = {0};
        for (int i = 0; i < WINDOWS; i++) {
            order[epoch][i] = window_number(loader, (uint64_t)(epoch * WINDOWS + i));
            seen[order[epoch][i]]++;
        }
        for (int i = 0; i < WINDOWS; i++) {
            assert_int_equal(seen[i], 1);
        }
    }
    for (int i = 0; i < WINDOWS; i++) {
        same_epoch += order[0][i] == order[1][i];
        same_seed += order[0][i] == window_number(other, (uint64_t)i);
        in_place += order[0][i] == i;
    }
    // About one is expected by chance.
    assert_true(same_epoch < 8 && same_seed < 8 && in_place < 8);
    loader_free(loader);
    loader_free(other);
    path_list_free(&list);
}

static void shards_are_mixed(void **state)
{
    Error error;
    PathList list = make_shards(state);
    Loader *loader = loader_create(&list, LENGTH, 7, 0, 0, &error);
    // Of a quarter of an epoch about a quarter of each shard's windows: 15.5 of the first 62, 32 of 128.
    int first = 0, large = 0;
    for (uint64_t i = 0; i < WINDOWS / 4; i++) {
        int number = window_number(loader, i);
        first += number < 62;
        large += number >= 64 && number < 192;
    }
    assert_true(first >= 6 && first <= 26);
    assert_true(large >= 20 && large <= 44);
    loader_free(loader);
    path_list_free(&list);
}

static void windows_are_a_pure_function_of_their_index(void **state)
{
    Error error;
    PathList list = make_shards(state);
    Loader *loader = loader_create(&list, LENGTH, 7, 0, 0, &error), *resumed = loader_create(&list, LENGTH, 7, 0, 0, &error);
    int order[2 * WINDOWS];
    for (int i = 0; i < 2 * WINDOWS; i++) {
        order[i] = window_number(loader, (uint64_t)i);
    }
    for (int i = 2 * WINDOWS - 1; i >= 100; i--) {
        assert_int_equal(window_number(resumed, (uint64_t)i), order[i]);
    }
    // Three ranks, each its own windows: together the epoch.
    int seen[WINDOWS] = {0};
    for (uint64_t rank = 0; rank < 3; rank++) {
        for (uint64_t step = 0; step * 3 + rank < WINDOWS; step++) {
            seen[window_number(resumed, step * 3 + rank)]++;
        }
    }
    for (int i = 0; i < WINDOWS; i++) {
        assert_int_equal(seen[i], 1);
    }
    loader_free(loader);
    loader_free(resumed);
    path_list_free(&list);
}

static void in_order_for_validation(void **state)
{
    Error error;
    PathList list = make_shards(state);
    Loader *loader = loader_create(&list, LENGTH, 7, 0, 0, &error);
    int32_t tokens[LENGTH], targets[LENGTH];
    const struct {
        uint64_t index;
        int32_t first;
    } cases[] = {{0, 0}, {1, 16}, {61, 976}, {62, 1000}, {63, 1016}, {64, 1053}, {191, 1053 + 127 * 16}, {192, 3102},
                 {222, 3102 + 30 * 16}, {223, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(loader_window_in_order(loader, tokens, targets, cases[i].index, &error), 0);
        assert_int_equal(tokens[0], cases[i].first);
        assert_int_equal(targets[LENGTH - 1], cases[i].first + LENGTH);
    }
    loader_free(loader);
    path_list_free(&list);
}

static void loader_refuses(void **state)
{
    Error error;
    PathList list = make_shards(state), empty = {0};
    int32_t tokens[LENGTH], targets[LENGTH];
    assert_null(loader_create(&list, 4096, 1, 0, 0, &error));
    assert_says(&error, "3602 tokens");
    assert_says(&error, "length 4096");
    assert_null(loader_create(&empty, LENGTH, 1, 0, 0, &error));
    assert_says(&error, "0 tokens");
    // Token 3000 stands in shard t_4 at offset 3000 - 1053, in window 64 + 121.
    Loader *loader = loader_create(&list, LENGTH, 1, 0, 3000, &error);
    assert_int_equal(loader_window_in_order(loader, tokens, targets, 64 + 120, &error), 0);
    assert_int_equal(loader_window_in_order(loader, tokens, targets, 64 + 121, &error), -1);
    assert_says(&error, "t_4.bin: token 3000 at offset 1947");
    loader_free(loader);

    unsigned char bytes[1024 + 40] = {0};
    make_header(bytes, 20240520, 1, 20, 0);
    put_u32(bytes + 16, 77);
    char *path = make_file(state, "hash_77.bin", bytes, sizeof bytes);
    assert_int_equal(path_list_add(&list, path, &error), 0);
    free(path);
    loader = loader_create(&list, LENGTH, 1, 77, 0, &error);
    assert_non_null(loader);   // the others have no hash
    loader_free(loader);
    assert_null(loader_create(&list, LENGTH, 1, 78, 0, &error));
    assert_says(&error, "hash_77.bin was made with another tokenizer");
    put_u32(bytes + 16, 79);
    path = make_file(state, "hash_79.bin", bytes, sizeof bytes);
    assert_int_equal(path_list_add(&list, path, &error), 0);
    free(path);
    assert_null(loader_create(&list, LENGTH, 1, 0, 0, &error));
    assert_says(&error, "hash_79.bin was made with another tokenizer");
    path_list_free(&list);
}

// ---- corpus

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
    assert_int_equal(read_one(state, "binary.txt", "ab\0c", 4, &options, &stats, &seen, &error), -1);
    assert_says(&error, "binary.txt is not text: it has a NUL byte at offset 2");
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
        "{\"text\": \"a\\u0000b\"}\n"              // bad
        "{\"a\": \"x\", \"b\": \"y\"}\n"           // bad: which?
        "{\"text\": [\"x\"]}\n"                    // bad
        "[\"text\"]\n"                             // bad
        "{\"text\": \"cut\n"                       // bad
        "{\"text\": \"x\"} {\"text\": \"y\"}\n"    // bad
        "{\"text\": \"\\ud83d\\ude00\"}\n"
        "{\"text\": \"no line end\"}";
    assert_int_equal(read_one(state, "a.jsonl", lines, sizeof lines - 1, &options, &stats, &seen, &error), 0);
    assert_int_equal(seen.count, 7);
    assert_document(&seen, 0, "first \xc3\xa9\n\"q\"", 12);
    assert_document(&seen, 1, "second", 6);
    assert_document(&seen, 2, "third", 5);
    assert_document(&seen, 3, "bad\xff\xfe bytes", 11);
    assert_document(&seen, 4, "a back\\u0000slash", 17);
    assert_document(&seen, 5, "\xf0\x9f\x98\x80", 4);
    assert_document(&seen, 6, "no line end", 11);
    assert_int_equal(stats.documents, 7);
    assert_int_equal(stats.skipped, 7);
    assert_int_equal(stats.bytes, 12 + 6 + 5 + 11 + 17 + 4 + 11);
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
    const char *bad[] = {"{\"text\": 1}", "{", "{\"text\": \"\\u0000\"}", "nothing"};
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
    size_t size = (size_t)24 << 20;
    char *line = malloc(size);
    memset(line, 'z', size);
    memcpy(line, "{\"text\": \"", 10);
    memcpy(line + size - 3, "\"}\n", 3);
    assert_int_equal(read_one(state, "long.jsonl", line, size, &options, &stats, &seen, &error), 0);
    assert_int_equal(seen.count, 1);
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

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(shards_round_trip_uint16),
        TEST(shards_round_trip_uint32),
        TEST(writer_refuses_ids_outside_and_leaves_nothing),
        TEST(hostile_shards_are_refused),
        TEST(shards_of_others_load),
        TEST(ten_billion_tokens),
        TEST(resident_memory_is_bounded),
        TEST(each_window_once_an_epoch),
        TEST(shards_are_mixed),
        TEST(windows_are_a_pure_function_of_their_index),
        TEST(in_order_for_validation),
        TEST(loader_refuses),
        TEST(text_files),
        TEST(json_lines),
        TEST(strict_names_file_and_line),
        TEST(long_lines),
        TEST(files_in_order_and_stop),
        TEST(warnings_name_the_first_and_count_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
