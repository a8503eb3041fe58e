// base/: files, folders, names, JSON, progress.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/expand.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/rng.h"

static char folder[256];

// A path in the tests' folder; the last few stay valid.
static const char *at(const char *name)
{
    static char paths[8][512];
    static size_t next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    Error error;
    assert_int_equal(file_write_atomic(at(name), text, strlen(text), &error), 0);
}

static int make_folder(void **state)
{
    (void)state;
    Error error;
    return folder_temporary(folder, sizeof folder, &error);
}

// Where it cannot be made, the error tells the folder and what to set. Other tests read TMPDIR: it is put back.
static void test_folder_temporary(void **state)
{
    (void)state;
    Error error;
    char before[256] = "", path[256];
    bool was_set = getenv("TMPDIR") != NULL;
    snprintf(before, sizeof before, "%s", was_set ? getenv("TMPDIR") : "");
    setenv("TMPDIR", folder, 1);
    assert_int_equal(folder_temporary(path, sizeof path, &error), 0);
    assert_memory_equal(path, folder, strlen(folder));
    assert_true(file_is_folder(path));
    assert_int_equal(folder_remove(path, &error), 0);
    assert_int_equal(folder_temporary(path, strlen(folder) + 5, &error), -1);
    assert_non_null(strstr(error.text, "too long: set TMPDIR to another"));
    setenv("TMPDIR", at("nowhere"), 1);
    assert_int_equal(folder_temporary(path, sizeof path, &error), -1);
    assert_non_null(strstr(error.text, "/nowhere: "));
    assert_non_null(strstr(error.text, "set TMPDIR to another"));
    if (was_set) {
        setenv("TMPDIR", before, 1);
    } else {
        unsetenv("TMPDIR");
    }
}

static int drop_folder(void **state)
{
    (void)state;
    Error error;
    return folder_remove(folder, &error);
}

// ---- files ----

static void test_file_read(void **state)
{
    (void)state;
    Error error;
    size_t size = 0;
    put("hello.txt", "hello");
    char *text = file_read(at("hello.txt"), 5, &size, &error);
    assert_non_null(text);
    assert_int_equal(size, 5);
    assert_string_equal(text, "hello");
    free(text);
    assert_null(file_read(at("hello.txt"), 4, &size, &error));
    assert_non_null(strstr(error.text, "larger than 4 bytes"));
    assert_null(file_read(at("missing"), 4, &size, &error));
    assert_non_null(strstr(error.text, "missing: No such file"));
    assert_null(file_read(folder, 4, &size, &error));
    put("empty", "");
    text = file_read(at("empty"), SIZE_MAX, &size, &error);
    assert_non_null(text);
    assert_int_equal(size, 0);
    free(text);
    // A file whose size is not known beforehand.
    if (file_exists("/proc/self/status")) {
        text = file_read("/proc/self/status", 1 << 20, &size, &error);
        assert_non_null(text);
        assert_int_equal(strlen(text), size);
        assert_non_null(strstr(text, "VmRSS"));
        free(text);
    }
    int fd = open(at("hello.txt"), O_RDONLY);
    char part[4] = "";
    assert_int_equal(file_read_at(fd, part, 3, 1, "hello.txt", &error), 0);
    assert_string_equal(part, "ell");
    assert_int_equal(file_read_at(fd, part, 3, 3, "hello.txt", &error), -1);
    assert_non_null(strstr(error.text, "ends 1 bytes too early"));
    assert_int_equal(file_read_at(fd, part, 3, UINT64_MAX, "hello.txt", &error), -1);
    close(fd);
}

static void on_alarm(int signal_number) { (void)signal_number; }

// A pipe's reader that is slow, and signals that interrupt: all bytes must arrive.
static void test_write_interrupted(void **state)
{
    (void)state;
    enum { TOTAL = 1 << 20 };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[1]);
        unsigned char block[4096];
        size_t total = 0;
        unsigned sum = 0;
        for (ssize_t n; (n = read(ends[0], block, sizeof block)) > 0; total += (size_t)n) {
            for (ssize_t i = 0; i < n; i++) {
                sum = sum * 31u + block[i];
            }
            if (total % (1 << 18) == 0) {
                usleep(20000);
            }
        }
        unsigned expected = 0;
        for (size_t i = 0; i < TOTAL; i++) {
            expected = expected * 31u + (unsigned char)(i * 7);
        }
        _exit(total == TOTAL && sum == expected ? 0 : 1);
    }
    close(ends[0]);
    struct sigaction action = {.sa_handler = on_alarm};   // without SA_RESTART
    sigaction(SIGALRM, &action, NULL);
    unsigned char *data = malloc(TOTAL);
    assert_non_null(data);
    for (size_t i = 0; i < TOTAL; i++) {
        data[i] = (unsigned char)(i * 7);
    }
    ualarm(3000, 3000);
    Error error;
    int status = file_write_all(ends[1], data, TOTAL, "pipe", &error);
    ualarm(0, 0);
    close(ends[1]);
    free(data);
    assert_int_equal(status, 0);
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

static void test_write_atomic(void **state)
{
    (void)state;
    Error error;
    put("target", "old");
    put("target", "newer");
    assert_int_equal(file_size(at("target")), 5);
    assert_false(file_exists(at("target.tmp")));
    // A failure must leave what is there.
    assert_int_equal(mkdir(at("target.tmp"), 0777), 0);
    assert_int_equal(file_write_atomic(at("target"), "x", 1, &error), -1);
    assert_int_equal(file_size(at("target")), 5);
    assert_int_equal(rmdir(at("target.tmp")), 0);
    assert_int_equal(file_write_atomic(at("no/such/folder"), "x", 1, &error), -1);
    assert_non_null(strstr(error.text, "no/such/folder"));
    // A link is written through, not replaced.
    assert_int_equal(symlink("target", at("link")), 0);
    put("link", "through");
    assert_int_equal(file_size(at("target")), 7);
    struct stat info;
    assert_int_equal(lstat(at("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    if (file_exists("/dev/full")) {
        assert_int_equal(file_write_atomic("/dev/full", "x", 1, &error), -1);
        assert_non_null(strstr(error.text, "the disk is full"));
        assert_non_null(strstr(error.text, "free some space"));
    } else {
        print_message("no /dev/full here: the full disk is not tried\n");
    }
}

static void test_file_hash(void **state)
{
    (void)state;
    Error error;
    uint64_t a = 0, b = 0;
    put("h1", "");
    assert_int_equal(file_hash(at("h1"), &a, &error), 0);
    assert_true(a == 0x2d06800538d394c2u);   // XXH3-64 of nothing, from its specification
    put("h2", "lattice");
    put("h3", "lattIce");
    assert_int_equal(file_hash(at("h2"), &a, &error), 0);
    assert_int_equal(file_hash(at("h3"), &b, &error), 0);
    assert_true(a != b);
    assert_int_equal(file_hash(at("missing"), &a, &error), -1);
    assert_int_equal(file_hash(folder, &a, &error), -1);
}

// ---- folders and names ----

static void test_folders(void **state)
{
    (void)state;
    Error error;
    assert_int_equal(folder_make(at("a/b//c/"), &error), 0);
    assert_int_equal(folder_make(at("a/b/c"), &error), 0);
    assert_true(file_is_folder(at("a/b/c")));
    put("a/file", "x");
    assert_int_equal(folder_make(at("a/file/d"), &error), -1);
    assert_non_null(strstr(error.text, "is a file"));
    assert_int_equal(folder_make("", &error), -1);
    assert_int_equal(folder_remove(at("a/file"), &error), -1);

    // A link inside the folder goes, what it leads to stays.
    assert_int_equal(folder_make(at("outside"), &error), 0);
    put("outside/keep", "x");
    assert_int_equal(symlink("../outside", at("a/link")), 0);
    put("a/b/c/deep", "x");
    assert_int_equal(folder_remove(at("a"), &error), 0);
    assert_false(file_exists(at("a")));
    assert_true(file_exists(at("outside/keep")));
    assert_int_equal(symlink("outside", at("link2")), 0);
    assert_int_equal(folder_remove(at("link2"), &error), 0);
    assert_true(file_exists(at("outside/keep")));
    assert_int_equal(folder_remove(at("never"), &error), 0);
    assert_int_equal(folder_sync(at("outside"), &error), 0);
    assert_int_equal(folder_sync(at("never"), &error), -1);
}

static bool accept_txt(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".txt") == 0;
}

static size_t expand(PathList *list, const char *a, const char *b, Error *error)
{
    char *arguments[] = {(char *)a, (char *)b};
    *list = (PathList){0};
    return path_expand(list, arguments, b != NULL ? 2 : 1, accept_txt, error) == 0 ? list->count : 0;
}

static void test_path_expand(void **state)
{
    (void)state;
    Error error;
    PathList list;
    assert_int_equal(folder_make(at("data/sub/empty"), &error), 0);
    put("data/b.txt", "");
    put("data/a.txt", "");
    put("data/Z.txt", "");
    put("data/.hidden.txt", "");
    put("data/other.bin", "");
    put("data/sub/c.txt", "");
    assert_int_equal(symlink("..", at("data/sub/loop")), 0);

    assert_int_equal(expand(&list, at("data"), NULL, &error), 4);
    assert_string_equal(path_base(list.items[0]), "Z.txt");
    assert_string_equal(path_base(list.items[1]), "a.txt");
    assert_string_equal(path_base(list.items[2]), "b.txt");
    assert_string_equal(path_base(list.items[3]), "c.txt");
    path_list_free(&list);

    // Arguments keep their order; what is named itself is not filtered.
    assert_int_equal(expand(&list, at("data/other.bin"), at("data/*.txt"), &error), 4);
    assert_string_equal(path_base(list.items[0]), "other.bin");
    assert_string_equal(path_base(list.items[1]), "Z.txt");
    assert_string_equal(path_base(list.items[3]), "b.txt");
    path_list_free(&list);

    const struct {
        const char *name, *says;
    } wrong[] = {
        {"data/none.txt", "there is no file or folder"}, {"data/*.parquet", "nothing matches"}, {"data/sub/empty", "holds no file"},
    };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(expand(&list, at(wrong[i].name), NULL, &error), 0);
        assert_non_null(strstr(error.text, wrong[i].says));
        assert_non_null(strstr(error.text, wrong[i].name));
        path_list_free(&list);
    }
    char *joined = path_join("a/", "b");
    assert_string_equal(joined, "a/b");
    free(joined);
    joined = path_join("a", "b");
    assert_string_equal(joined, "a/b");
    assert_string_equal(path_base(joined), "b");
    free(joined);
}

// ---- JSON ----

static void test_json_getters(void **state)
{
    (void)state;
    Error error;
    put("good.json", "{\"n\": 1e3, \"half\": 1.5, \"big\": 1e17, \"huge\": 1e999, \"text\": \"x\", \"flag\": true, \"list\": [1]}");
    cJSON *json = json_read_file(at("good.json"), 1000, &error);
    assert_non_null(json);
    int64_t n = 0;
    double real = 0;
    bool flag = false;
    const char *text = NULL;
    assert_int_equal(json_get_int(json, "n", 0, 1000, &n, &error), 0);
    assert_int_equal(n, 1000);
    assert_int_equal(json_get_int(json, "n", 0, 999, &n, &error), -1);
    assert_string_equal(error.text, "\"n\" is 1000: it must be from 0 to 999");
    assert_int_equal(json_get_int(json, "half", 0, 999, &n, &error), -1);
    assert_int_equal(json_get_int(json, "big", INT64_MIN, INT64_MAX, &n, &error), -1);
    assert_int_equal(json_get_int(json, "huge", INT64_MIN, INT64_MAX, &n, &error), -1);
    assert_int_equal(json_get_int(json, "text", 0, 999, &n, &error), -1);
    assert_non_null(strstr(error.text, "not a string"));
    assert_int_equal(json_get_int(json, "none", 0, 999, &n, &error), -1);
    assert_string_equal(error.text, "\"none\" is missing");
    assert_int_equal(json_get_real(json, "half", &real, &error), 0);
    assert_true(real == 1.5);
    assert_int_equal(json_get_real(json, "huge", &real, &error), -1);
    assert_int_equal(json_get_bool(json, "flag", &flag, &error), 0);
    assert_true(flag);
    assert_int_equal(json_get_bool(json, "n", &flag, &error), -1);
    assert_int_equal(json_get_string(json, "text", &text, &error), 0);
    assert_string_equal(text, "x");
    assert_int_equal(json_get_string(json, "list", &text, &error), -1);
    cJSON_Delete(json);
}

static void test_json_files(void **state)
{
    (void)state;
    Error error;
    char deep[3000];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    const char *bad[] = {"", "  \n", "{", "{} x", "{\"a\": 1,}", "nul", deep};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put("bad.json", bad[i]);
        assert_null(json_read_file(at("bad.json"), 1 << 20, &error));
        assert_non_null(strstr(error.text, "bad.json"));
    }
    put("bad.json", "{\n\n\"a\": ?}");
    assert_null(json_read_file(at("bad.json"), 1000, &error));
    assert_non_null(strstr(error.text, "line 3"));
    assert_null(json_read_file(at("bad.json"), 3, &error));
    assert_int_equal(file_write_atomic(at("nul.json"), "{}\0{}", 5, &error), 0);
    assert_null(json_read_file(at("nul.json"), 1000, &error));

    // Numbers come back with the same bits.
    Rng rng;
    rng_seed(&rng, 5, 0);
    cJSON *list = cJSON_CreateArray();
    double numbers[200];
    for (size_t i = 0; i < 200; i++) {
        numbers[i] = i == 0 ? 0.1 + 0.2 : i == 1 ? 9007199254740993.0 : ldexp(rng_normal(&rng), (int)rng_below(&rng, 200) - 100);
        cJSON_AddItemToArray(list, cJSON_CreateNumber(numbers[i]));
    }
    assert_int_equal(json_write_file(at("numbers.json"), list, true, &error), 0);
    cJSON *back = json_read_file(at("numbers.json"), 1 << 20, &error);
    assert_non_null(back);
    for (int i = 0; i < 200; i++) {
        assert_true(cJSON_GetArrayItem(back, i)->valuedouble == numbers[i]);
        assert_true(cJSON_IsNumber(cJSON_GetArrayItem(list, i)));
    }
    cJSON_Delete(list);
    cJSON_Delete(back);
}

// ---- progress ----

static void test_formats(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(format_duration(text, 7), "0:07");
    assert_string_equal(format_duration(text, 725), "12:05");
    assert_string_equal(format_duration(text, 3599.6), "1h 0m");
    assert_string_equal(format_duration(text, 12000), "3h 20m");
    assert_string_equal(format_duration(text, 2 * 86400 + 4 * 3600), "2d 4h");
    assert_string_equal(format_duration(text, NAN), "?");
    assert_string_equal(format_duration(text, INFINITY), "?");
    assert_string_equal(format_bytes(text, 512), "512 B");
    assert_string_equal(format_bytes(text, 1500), "1.5 kB");
    assert_string_equal(format_bytes(text, 999960), "1.0 MB");
    assert_string_equal(format_bytes(text, 1.1e9), "1.1 GB");
    assert_string_equal(format_count(text, 950), "950");
    assert_string_equal(format_count(text, 12345), "12.3k");
    assert_string_equal(format_count(text, 4.56e6), "4.56M");
    assert_string_equal(format_count(text, 1.2e9), "1.2G");
    assert_string_equal(format_count(text, 999999), "1M");
}

// Standard error goes to a file while `progress` prints.
static char *captured(bool terminal)
{
    const char *path = at("progress.txt");
    fflush(stderr);
    int saved = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(fd, STDERR_FILENO);
    Progress progress;
    progress_init(&progress);
    progress.terminal = terminal;   // the file has no size, so 80 columns are taken
    progress_show(&progress, false, "step %d\n", 1);
    progress_show(&progress, false, "too soon");
    progress_show(&progress, true, "%0100d", 2);
    progress_show(&progress, true, "short");
    progress_break(&progress);
    progress_break(&progress);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fd);
    Error error;
    size_t size;
    return file_read(path, 1 << 16, &size, &error);
}

static void test_progress(void **state)
{
    (void)state;
    char expected[512];
    char *text = captured(false);
    assert_non_null(text);
    snprintf(expected, sizeof expected, "step 1?\n%0100d\nshort\n", 2);
    assert_string_equal(text, expected);
    free(text);
    text = captured(true);
    assert_non_null(text);
    snprintf(expected, sizeof expected, "\rstep 1?\r%079d\rshort%74s\n", 0, "");
    assert_string_equal(text, expected);
    free(text);
}

static void test_error(void **state)
{
    (void)state;
    Error error;
    assert_int_equal(error_set(&error, "bad \"%s\"", "a\nb\x1b[2J"), -1);
    assert_string_equal(error.text, "bad \"a?b?[2J\"");
    assert_int_equal(error_prefix(&error, "file %d", 3), -1);
    assert_string_equal(error.text, "file 3: bad \"a?b?[2J\"");
    assert_int_equal(error_set(NULL, "nothing to fill"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_folder_temporary), cmocka_unit_test(test_file_read),
        cmocka_unit_test(test_write_interrupted),
        cmocka_unit_test(test_write_atomic),
        cmocka_unit_test(test_file_hash),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_path_expand),
        cmocka_unit_test(test_json_getters),
        cmocka_unit_test(test_json_files),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
