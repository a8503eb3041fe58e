// What every program stands on: standard descriptors that are closed, files that grow too large, names of outputs, reasons of refusals.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/args.h"
#include "base/expand.h"
#include "base/lock.h"
#include "base/program.h"
#include "infer/output.h"
#include "tests/scratch.h"

// Runs a check in a process of its own, which may close and limit what it likes; the check returns 0 when all is well.
static void in_child(int (*check)(const char *folder), const char *folder)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        _exit(check(folder));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int descriptors(const char *folder)
{
    (void)folder;
    close(0);
    close(1);
    close(2);
    program_start();
    int next = open("/dev/null", O_RDONLY);
    char byte;
    bool fine = next > 2 && read(0, &byte, 1) == 0 && write(1, "x", 1) < 0 && errno == EBADF && write(2, "x", 1) == 1;
    return fine ? 0 : 1;
}

static int only_error_closed(const char *folder)
{
    (void)folder;
    struct stat before, after;
    close(2);
    fstat(0, &before);
    program_start();
    fstat(0, &after);
    return before.st_ino == after.st_ino && write(2, "x", 1) == 1 ? 0 : 1;
}

static void test_descriptors(void **state)
{
    (void)state;
    in_child(descriptors, NULL);
    in_child(only_error_closed, NULL);
}

static int file_limit(const char *folder)
{
    Error error = {""};
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    char *path = path_join(folder, "large"), *temporary = path_join(folder, "large.tmp"), *data = calloc(1, 8192);
    program_start();
    setrlimit(RLIMIT_FSIZE, &limit);
    bool fine = file_write_atomic(path, data, 8192, &error) == -1 && strstr(error.text, "ulimit -f") != NULL && !file_exists(temporary) &&
                !file_exists(path);
    free(path);
    free(temporary);
    free(data);
    return fine ? 0 : 1;
}

static void test_file_limit(void **state) { in_child(file_limit, ((Fixture *)*state)->folder); }

// As an ordinary user, for whom permissions count.
static int no_permission(const char *folder)
{
    if (geteuid() == 0 && setuid(65534) != 0) {
        return 1;
    }
    Error error = {""};
    PathList list = {0};
    char *closed = path_join(folder, "closed"), *inside = path_join(folder, "closed/x"), *below = path_join(folder, "plain/new/deep");
    bool fine = folder_make(inside, &error) == -1 && strstr(error.text, "Permission denied") != NULL;
    fine = fine && folder_make(below, &error) == -1 && strstr(error.text, "Permission denied") != NULL;
    fine = fine && path_expand(&list, &inside, 1, NULL, &error) == -1 && strstr(error.text, "Permission denied") != NULL;
    fine = fine && file_check_output(inside, &error) == -1 && strstr(error.text, "Permission denied") != NULL;
    char *plain = path_join(folder, "plain");
    fine = fine && folder_lock(plain, "trains into", &error) == -1 &&
           strstr(error.text, "plain/.lock cannot be opened for writing (Permission denied)") != NULL &&
           strstr(error.text, "change their permissions or owner, or give another --out") != NULL;
    free(plain);
    fine = fine && !file_is_missing(inside) && file_is_missing(below);
    if (!fine) {
        fprintf(stderr, "the last error: %s\n", error.text);
    }
    free(closed);
    free(inside);
    free(below);
    return fine ? 0 : 1;
}

static void test_no_permission(void **state)
{
    char *closed = in_folder(state, "closed"), *plain = in_folder(state, "plain");
    assert_int_equal(chmod(((Fixture *)*state)->folder, 0755), 0);
    assert_int_equal(mkdir(closed, 0000), 0);
    assert_int_equal(mkdir(plain, 0555), 0);
    in_child(no_permission, ((Fixture *)*state)->folder);
    assert_int_equal(chmod(closed, 0700), 0);
    assert_int_equal(chmod(plain, 0700), 0);
    free(closed);
    free(plain);
}

static void test_read_only(void **state)
{
#ifdef __linux__
    Error error;
    char *mount_point = in_folder(state, "mounted"), *deep = in_folder(state, "mounted/a/b"), *file = in_folder(state, "mounted/x.csv");
    assert_int_equal(folder_make(mount_point, &error), 0);
    if (mount("none", mount_point, "tmpfs", MS_RDONLY, "size=64k") != 0) {
        print_message("skipped: a read-only file system, because one cannot be mounted here\n");
    } else {
        int made = folder_make(deep, &error);
        Error other;
        int checked = file_check_output(file, &other);
        umount(mount_point);
        assert_int_equal(made, -1);
        assert_says(&error, "Read-only file system");
        assert_int_equal(checked, -1);
        assert_says(&other, "Read-only file system");
    }
    free(mount_point);
    free(deep);
    free(file);
#else
    (void)state;
    print_message("skipped: a read-only file system\n");
#endif
}

static void test_empty_names(void **state)
{
    (void)state;
    Error error;
    size_t size;
    PathList list = {0};
    char *empty = (char[]){""};
    assert_int_equal(path_expand(&list, &empty, 1, NULL, &error), -1);
    assert_says(&error, "'': the name is empty");
    assert_null(file_read("", 10, &size, &error));
    assert_says(&error, "'': the name is empty");
    assert_int_equal(folder_make("", &error), -1);
    assert_says(&error, "empty");
    assert_int_equal(file_check_output("", &error), -1);
    assert_says(&error, "empty");
}

static void refused(void **state, const char *first, const char *second, const char *input, const char *words)
{
    Error error = {""};
    char *paths[3] = {in_folder(state, first), in_folder(state, second), in_folder(state, input)};
    const OutputFile outputs[] = {{"--json", paths[0]}, {"--csv", NULL}, {"--plot", paths[1]}};
    int result = output_check(outputs, 3, &paths[2], 1, &error);
    assert_int_equal(result, words != NULL ? -1 : 0);
    if (words != NULL) {
        assert_says(&error, words);
    }
    for (size_t i = 0; i < 3; i++) {
        free(paths[i]);
    }
}

static void test_outputs(void **state)
{
    Error error;
    char *folders[] = {in_folder(state, "step"), in_folder(state, "data"), in_folder(state, "docs")};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(folder_make(folders[i], &error), 0);
    }
    char *files[] = {make_file(state, "step/trainer.json", "{}", 2), make_file(state, "data/prepare.json", "{}", 2),
                     make_file(state, "docs/a.txt", "text", 4), in_folder(state, "link"), in_folder(state, "hard"), in_folder(state, "into")};
    assert_int_equal(symlink("docs/a.txt", files[3]), 0);
    assert_int_equal(link(files[2], files[4]), 0);
    assert_int_equal(symlink("step/trainer.json", files[5]), 0);
    refused(state, "one", "docs/two", "docs/a.txt", NULL);
    refused(state, "one", "docs/../one", "docs/a.txt", "--json and --plot both name");
    refused(state, "one", "two", "one.tmp", "would overwrite the input");
    refused(state, "one.tmp", "one", "docs/a.txt", "both name");
    refused(state, "one", "docs/a.txt", "docs/a.txt", "--plot");
    refused(state, "docs/../docs//a.txt", "two", "docs/a.txt", "would overwrite the input");
    refused(state, "link", "two", "docs/a.txt", "would overwrite the input");
    refused(state, "hard", "two", "docs/a.txt", "would overwrite the input");
    refused(state, "step/model.safetensors", "two", "docs/a.txt", "into a checkpoint");
    refused(state, "into", "two", "docs/a.txt", "into a checkpoint");
    refused(state, "data/train_000000.bin", "two", "docs/a.txt", "into a folder of prepared data");
    refused(state, "docs", "two", "docs/a.txt", "it is a folder");
    refused(state, "none/one", "two", "docs/a.txt", "there is no folder");
    refused(state, "docs/a.txt/one", "two", "docs/a.txt", "Not a directory");
    assert_false(file_exists("one"));
    for (size_t i = 0; i < 6; i++) {
        free(files[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        free(folders[i]);
    }
}

// A text is copied where there is room for it; what is too long is wrong usage.
static void test_text_flag(void **state)
{
    (void)state;
    char target[8] = "before";
    size_t n = 0;
    ArgSpec specs[] = {{.name = "mixer", .kind = ARG_TEXT, .target = target, .max = sizeof target, .value = "NAME", .help = "what mixes"}};
    ArgProgram program = {.name = "x", .usage = "", .description = "", .specs = specs, .n_specs = 1};
    char *right[] = {(char *)"x", (char *)"--mixer", (char *)"1234567"}, *wrong[] = {(char *)"x", (char *)"--mixer=12345678"};
    args_parse(&program, 3, right, &n);
    assert_string_equal(target, "1234567");
    cJSON *json = args_to_json(&program);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(json, "mixer")), "1234567");
    cJSON_Delete(json);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        args_parse(&program, 2, wrong, &n);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    assert_string_equal(target, "1234567");
}

static void test_help_tells_factors(void **state)
{
    (void)state;
    int64_t size = 0, length = 0;
    const char *list = NULL;
    char *text = NULL;
    size_t bytes = 0;
    ArgSpec specs[] = {{.name = "vocab-size", .kind = ARG_SIZE, .target = &size, .help = "ids"},
                       {.name = "seq-len", .kind = ARG_SIZE, .target = &length, .help = "tokens", .binary = true},
                       {.name = "contexts", .kind = ARG_STRING, .target = &list, .help = "lengths", .binary = true}};
    ArgProgram program = {.name = "x", .usage = "", .description = "", .specs = specs, .n_specs = 3};
    for (size_t n = 1; n <= 3; n++) {
        program.n_specs = n;
        FILE *out = open_memstream(&text, &bytes);
        args_help(&program, out);
        fclose(out);
        const char *says = n == 1   ? "all 1,000-fold (16k = 16,000)"
                           : n == 2 ? "1,024-fold in --seq-len (2k = 2,048), else 1,000-fold (16k = 16,000)"
                                    : "1,024-fold in --seq-len, --contexts (2k = 2,048), else 1,000-fold";
        if (strstr(text, says) == NULL) {
            fail_msg("the help does not say \"%s\": %s", says, text);
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors), TEST(test_file_limit), TEST(test_no_permission), TEST(test_read_only),
        cmocka_unit_test(test_empty_names), TEST(test_outputs), cmocka_unit_test(test_help_tells_factors),
        cmocka_unit_test(test_text_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
