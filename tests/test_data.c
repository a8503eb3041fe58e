// Token shards and the loader of training windows.
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
#include "data/loader.h"
#include "data/shards.h"
#include "tests/scratch.h"

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

// A writer that goes on from a noted position gives the bytes of one that was never stopped, whatever was written behind the position.
static void writers_go_on(void **state)
{
    Error error;
    enum { N = 2500, LIMIT = 1000 };
    const size_t stops[] = {0, 1, 700, 999, 1000, 1001, 1999, 2000, 2300};
    const size_t vocabularies[] = {1000, 100000};
    int32_t ids[N];
    for (size_t i = 0; i < N; i++) {
        ids[i] = (int32_t)(i * 7 % 1000);
    }
    for (size_t v = 0; v < 2; v++) {
        for (size_t s = 0; s < sizeof stops / sizeof stops[0]; s++) {
            ShardPosition position, other;
            uint64_t total;
            size_t shards;
            const char *folder = ((Fixture *)*state)->folder;
            ShardWriter *writer = shard_writer_create(folder, "train", LIMIT, vocabularies[v], 5, &error);
            assert_int_equal(shard_writer_add(writer, ids, stops[s], &error), 0);
            assert_int_equal(shard_writer_sync(writer, &position, &error), 0);
            assert_int_equal(position.shards, stops[s] / LIMIT);
            assert_int_equal(position.tokens, stops[s] % LIMIT);
            assert_int_equal(shard_writer_shards(writer), stops[s] / LIMIT);
            // More is written, even whole shards, and lost.
            assert_int_equal(shard_writer_add(writer, ids, 1200, &error), 0);
            shard_writer_leave(writer);
            writer = shard_writer_create(folder, "train", LIMIT, vocabularies[v], 5, &error);
            if (shard_writer_resume(writer, &position, &error) != 0) {
                fail_msg("%s", error.text);
            }
            assert_int_equal(shard_writer_sync(writer, &other, &error), 0);
            assert_memory_equal(&position, &other, sizeof other);
            assert_int_equal(shard_writer_add(writer, ids + stops[s], N - stops[s], &error), 0);
            assert_int_equal(shard_writer_close(writer, &total, &shards, &error), 0);
            assert_int_equal(total, N);
            assert_int_equal(shards, 3);
            for (size_t i = 0; i < 3; i++) {
                char name[32];
                Shard shard;
                int32_t read[LIMIT];
                snprintf(name, sizeof name, "train_%06zu.bin", i);
                char *path = in_folder(state, name);
                assert_int_equal(shard_open(&shard, path, &error), 0);
                assert_int_equal(shard.count, i < 2 ? LIMIT : N - 2 * LIMIT);
                shard_read(&shard, read, 0, shard.count);
                assert_memory_equal(read, ids + i * LIMIT, shard.count * sizeof *read);
                shard_close(&shard);
                assert_int_equal(unlink(path), 0);
                free(path);
            }
        }
    }
    // Where the files do not reach so far, it says so.
    const ShardPosition nowhere[] = {{1, 0}, {0, 5}, {0, LIMIT}};
    for (size_t i = 0; i < 3; i++) {
        ShardWriter *writer = shard_writer_create(((Fixture *)*state)->folder, "train", LIMIT, 1000, 5, &error);
        assert_int_equal(shard_writer_resume(writer, &nowhere[i], &error), -1);
        shard_writer_abort(writer);
    }
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

    // What no int32 holds is shown as it stands in the file.
    unsigned char wide[1024 + 4 * (LENGTH + 1)] = {0};
    PathList one = {0};
    make_header(wide, 20240801, 7, LENGTH + 1, 0);
    put_u32(wide + 1024 + 4 * 5, 3000000000u);
    char *path = make_file(state, "wide.bin", wide, sizeof wide);
    assert_int_equal(path_list_add(&one, path, &error), 0);
    free(path);
    loader = loader_create(&one, LENGTH, 1, 0, 0, &error);
    assert_non_null(loader);
    assert_int_equal(loader_window(loader, tokens, targets, 0, &error), -1);
    assert_says(&error, "wide.bin: token 3000000000 at offset 5 ");
    loader_free(loader);
    path_list_free(&one);

    unsigned char bytes[1024 + 40] = {0};
    make_header(bytes, 20240520, 1, 20, 0);
    put_u32(bytes + 16, 77);
    path = make_file(state, "hash_77.bin", bytes, sizeof bytes);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(shards_round_trip_uint16),
        TEST(shards_round_trip_uint32),
        TEST(writer_refuses_ids_outside_and_leaves_nothing),
        TEST(writers_go_on),
        TEST(hostile_shards_are_refused),
        TEST(shards_of_others_load),
        TEST(ten_billion_tokens),
        TEST(resident_memory_is_bounded),
        TEST(each_window_once_an_epoch),
        TEST(shards_are_mixed),
        TEST(windows_are_a_pure_function_of_their_index),
        TEST(in_order_for_validation),
        TEST(loader_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
