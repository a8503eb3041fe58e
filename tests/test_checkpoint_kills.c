// Saves that are cut short: kills in the middle, limits and full disks. What was good before is still there.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/checkpoint.h"

// No folder with a complete one's name may be broken, and one must be there.
static void assert_store_whole(const char *out)
{
    Error error = {""}, note;
    char *folder = checkpoint_resolve(out, &note, &error);
    if (folder == NULL || note.text[0] != 0) {
        fail_msg("%s%s", error.text, note.text);
    }
    free(folder);
}

static void test_kills(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    make_model(&model, &config, 8);
    char out[512];
    snprintf(out, sizeof out, "%s", at("killed"));
    save(&model, out, 1);
    Rng rng;
    rng_seed(&rng, 11, 0);
    CheckpointSource source = {.model = &model};
    Error error;
    int caught = 0;   // kills that left something unfinished
    for (int round = 0; round < 40; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            for (int64_t step = 1;; step = 1 + step % 3) {
                if (checkpoint_save(&source, out, step, &error) || checkpoint_prune(out, 1 + (size_t)step % 2, &error)) {
                    _exit(1);
                }
            }
        }
        usleep((useconds_t)rng_below(&rng, 40000));
        kill(child, SIGKILL);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_store_whole(out);
        for (int step = 1; step <= 3; step++) {
            caught += file_exists(at("killed/step_%08d.tmp", step));
        }
    }
    assert_true(caught > 0);
    assert_loads(out, &model);
    assert_int_equal(checkpoint_prune(out, 1, &error), 0);
    PathList names = {0};
    assert_int_equal(folder_list(&names, out, &error), 0);
    assert_int_equal(names.count, 1);
    path_list_free(&names);
    model_free(&model);
}

// Every write fails at some byte: the save must fail, say so, clean up and leave the older checkpoint.
static void test_write_limit(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    make_model(&model, &config, 9);
    save(&model, at("limit"), 1);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const rlim_t sizes[] = {0, 100, 1000, 10000};
    for (size_t i = 0; i < 4; i++) {
        limit = (struct rlimit){sizes[i], old.rlim_max};
        CheckpointSource source = {.model = &model};
        Error error = {""};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        int status = checkpoint_save(&source, at("limit"), i % 2 ? 1 : 2, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, -1);
        assert_non_null(strstr(error.text, "model.safetensors"));
        assert_false(file_exists(at("limit/step_00000001.tmp")) || file_exists(at("limit/step_00000002.tmp")));
        assert_resolves_to(at("limit"), "step_00000001", NULL);
        assert_loads(at("limit"), &model);
    }
    signal(SIGXFSZ, SIG_DFL);
    model_free(&model);
}

enum { NO_MOUNT = 99 };

// Runs in a child with mounts of its own: a file system of 1 MB that holds one checkpoint, but not two.
static int on_full_disk(const Model *model, const char *place)
{
    int flags = CLONE_NEWNS | (geteuid() != 0 ? CLONE_NEWUSER : 0);
    if (unshare(flags) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", place, "tmpfs", 0, "size=1m") != 0) {
        return NO_MOUNT;
    }
    CheckpointSource source = {.model = model};
    Error error = {""}, note;
    if (checkpoint_save(&source, place, 1, &error)) {
        return 1;
    }
    for (int64_t step = 1; step <= 2; step++) {   // replacing, and beside it
        if (checkpoint_save(&source, place, step, &error) == 0 || strstr(error.text, "the disk is full") == NULL) {
            return 2;
        }
        char *folder = checkpoint_resolve(place, &note, &error);
        if (folder == NULL || strcmp(path_base(folder), "step_00000001") != 0 || note.text[0] != 0) {
            return 3;
        }
        free(folder);
    }
    PathList names = {0};
    int status = folder_list(&names, place, &error) == 0 && names.count == 1 ? 0 : 4;
    path_list_free(&names);
    return status;
}

static void test_full_disk(void **state)
{
    (void)state;
    Model model;
    ModelConfig config = tiny_config(true);
    config.vocab_size = 12000;   // 576 kB of weights
    make_model(&model, &config, 10);
    Error error;
    assert_int_equal(folder_make(at("full"), &error), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(on_full_disk(&model, at("full")));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    model_free(&model);
    if (WEXITSTATUS(status) == NO_MOUNT) {
        print_message("a file system of 1 MB cannot be mounted here (it needs root or user namespaces): the full disk is not tried\n");
        return;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kills),
        cmocka_unit_test(test_write_limit),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, make_root, drop_root);
}
