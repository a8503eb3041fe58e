// The folder that documents are prepared into: complete, stopped, damaged, another's; one process at a time.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "tests/prepare.h"

static struct timespec time_of(void **state, const char *name)
{
    struct stat status;
    char *path = in_folder(state, name);
    assert_int_equal(stat(path, &status), 0);
    free(path);
    return status.st_mtim;
}

static void complete_folders_are_kept(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 20);
    make_stories(state, "b.jsonl", 20, 40);
    PrepareOptions options = small_options();
    assert_prepared(PREPARE("out", &options, "a.jsonl"), &error);
    struct timespec before = time_of(state, "out/prepare.json");
    options.threads = 1;
    assert_prepared(PREPARE("out", &options, "a.jsonl"), &error);
    struct timespec after = time_of(state, "out/prepare.json");
    assert_memory_equal(&before, &after, sizeof before);

    options.vocab_size = 401;
    assert_int_equal(PREPARE("out", &options, "a.jsonl"), -1);
    assert_says(&error, "already prepared from other inputs or options (vocab_size)");
    options.vocab_size = 400;
    options.corpus.text_key = "text";
    assert_int_equal(PREPARE("out", &options, "a.jsonl", "b.jsonl"), -1);
    assert_says(&error, "(files, inputs, text_key)");
    options.corpus.text_key = NULL;
    // The same name and size, but changed since.
    make_stories(state, "a.jsonl", 0, 20);
    char *a = in_folder(state, "a.jsonl");
    const struct timespec later[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, a, later, 0), 0);
    free(a);
    assert_int_equal(PREPARE("out", &options, "a.jsonl"), -1);
    assert_says(&error, "(inputs)");

    assert_prepared(PREPARE("fresh", &options, "a.jsonl"), &error);
    char *shard = in_folder(state, "fresh/train_000000.bin");
    assert_int_equal(truncate(shard, 2000), 0);
    assert_int_equal(PREPARE("fresh", &options, "a.jsonl"), -1);
    assert_says(&error, "damaged, remove it and prepare it again");
    assert_int_equal(unlink(shard), 0);
    assert_int_equal(PREPARE("fresh", &options, "a.jsonl"), -1);
    assert_says(&error, "found 0 with 0");
    free(shard);
}

static void interrupted_runs_are_made_anew(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 40);
    PrepareOptions options = small_options();
    options.shard_tokens = 5000;
    assert_prepared(PREPARE("whole", &options, "a.jsonl"), &error);
    // What a run that was killed leaves: its mark, some shards (more than there will be), no prepare.json. Others' files stay.
    assert_prepared(PREPARE("cut", &options, "a.jsonl"), &error);
    char *json = in_folder(state, "cut/prepare.json");
    assert_int_equal(unlink(json), 0);
    free(json);
    free(make_file(state, "cut/prepare.unfinished", "", 0));
    free(make_file(state, "cut/train_000099.bin", "x", 1));
    free(make_file(state, "cut/val_000000.bin.tmp", "x", 1));
    assert_prepared(PREPARE("cut", &options, "a.jsonl"), &error);
    assert_same_folders(state, "whole", "cut");
}

// A run that is asked to stop says how to go on; the next one gives what a whole run gives.
static void stopped_runs_go_on(void **state)
{
    Error error;
    volatile sig_atomic_t stop = SIGTERM;
    make_stories(state, "a.jsonl", 0, 60);
    PrepareOptions options = small_options();
    options.shard_tokens = 2000;
    assert_prepared(PREPARE("whole", &options, "a.jsonl"), &error);
    options.stop = &stop;
    assert_int_equal(PREPARE("stopped", &options, "a.jsonl"), -1);
    assert_says(&error, "stopped while preparing");
    stop = 0;
    assert_prepared(PREPARE("stopped", &options, "a.jsonl"), &error);
    assert_same_folders(state, "whole", "stopped");
    // The tokenizer is there, and the documents are to be read: it stops at the first one, and the tokenizer is not made again.
    char *tokenizer = in_folder(state, "whole/tokenizer.json");
    options.tokenizer_path = tokenizer;
    assert_prepared(PREPARE("given", &options, "a.jsonl"), &error);
    stop = SIGINT;
    assert_int_equal(PREPARE("again", &options, "a.jsonl"), -1);
    stop = 0;
    assert_prepared(PREPARE("again", &options, "a.jsonl"), &error);
    assert_same_folders(state, "given", "again");
    // A count of pieces that were cut by another rule means nothing: all is made anew.
    stop = SIGINT;
    assert_int_equal(PREPARE("older", &options, "a.jsonl"), -1);
    stop = 0;
    char *path = in_folder(state, "older/prepare.unfinished");
    cJSON *noted = json_read_file(path, 1 << 20, &error);
    assert_true(cJSON_HasObjectItem(noted, "cuts"));
    cJSON_SetNumberValue(cJSON_GetObjectItem(noted, "cuts"), 1);
    cJSON_SetNumberValue(cJSON_GetObjectItem(noted, "pieces"), 7);
    assert_int_equal(json_write_file(path, noted, true, &error), 0);
    cJSON_Delete(noted);
    free(path);
    assert_prepared(PREPARE("older", &options, "a.jsonl"), &error);
    assert_same_folders(state, "given", "older");
    free(tokenizer);
}

// One process at a time; what a killed one left locks nobody out.
static void one_process_at_a_time(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 20);
    PrepareOptions options = small_options();
    char *folder = in_folder(state, "out");
    assert_int_equal(folder_make(folder, &error), 0);
    pid_t child = fork();
    if (child == 0) {
        int held = folder_lock(folder, "prepares documents into", &error);
        raise(held >= 0 ? SIGSTOP : SIGABRT);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(PREPARE("out", &options, "a.jsonl"), -1);
    assert_says(&error, "another process prepares documents into");
    assert_says(&error, folder);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_prepared(PREPARE("out", &options, "a.jsonl"), &error);
    // A complete folder is read without the lock.
    int held = folder_lock(folder, "prepares documents into", &error);
    assert_true(held >= 0);
    assert_prepared(PREPARE("out", &options, "a.jsonl"), &error);
    close(held);
    free(folder);
}

static void foreign_files_are_not_overwritten(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 20);
    PrepareOptions options = small_options();
    char *folder = in_folder(state, "foreign");
    assert_int_equal(folder_make(folder, &error), 0);
    free(make_file(state, "foreign/train_000000.bin", "x", 1));
    assert_int_equal(PREPARE("foreign", &options, "a.jsonl"), -1);
    assert_says(&error, "holds the shard train_000000.bin but no prepare.json");
    char *shard = in_folder(state, "foreign/train_000000.bin");
    assert_int_equal(file_size(shard), 1);
    assert_int_equal(unlink(shard), 0);
    free(shard);

    free(make_file(state, "foreign/tokenizer.json", "{}", 2));
    assert_int_equal(PREPARE("foreign", &options, "a.jsonl"), -1);
    assert_says(&error, "tokenizer.json exists");
    assert_prepared(PREPARE("own", &options, "a.jsonl"), &error);
    char *own = in_folder(state, "own/tokenizer.json");
    options.tokenizer_path = own;
    assert_int_equal(PREPARE("foreign", &options, "a.jsonl"), -1);
    assert_says(&error, "is another tokenizer than");
    free(own);
    free(folder);
}

static void a_given_tokenizer_is_used_as_it_is(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 30);
    PrepareOptions options = small_options();
    assert_prepared(PREPARE("trained", &options, "a.jsonl"), &error);
    char *path = in_folder(state, "trained/tokenizer.json"), *copy = in_folder(state, "given/tokenizer.json");
    options.tokenizer_path = path;
    options.vocab_size = 999;   // does not count
    assert_prepared(PREPARE("given", &options, "a.jsonl"), &error);
    uint64_t first, second;
    assert_int_equal(file_hash(path, &first, &error), 0);
    assert_int_equal(file_hash(copy, &second, &error), 0);
    assert_true(first == second);
    free(path);
    free(copy);
    path = in_folder(state, "trained/train_000000.bin");
    copy = in_folder(state, "given/train_000000.bin");
    assert_int_equal(file_hash(path, &first, &error), 0);
    assert_int_equal(file_hash(copy, &second, &error), 0);
    assert_true(first == second);
    free(path);
    free(copy);
}

static void bad_inputs(void **state)
{
    Error error;
    PrepareOptions options = small_options();
    free(make_file(state, "none.jsonl", "{\"text\": \"\"}\n[]\n", 16));
    assert_int_equal(PREPARE("none", &options, "none.jsonl"), -1);
    assert_says(&error, "no documents in the 1 files given");
    assert_says(&error, "(2 records skipped)");
    options.val_fraction = 0;
    assert_int_equal(PREPARE("none", &options, "none.jsonl"), -1);
    assert_says(&error, "no documents in the 1 files given");
    // Empty files, found by the choice of the split and, without one, by the first pass.
    free(make_file(state, "empty.txt", "", 0));
    for (int i = 0; i < 2; i++) {
        options.val_fraction = 0.1 * i;
        assert_int_equal(PREPARE("none", &options, "empty.txt"), -1);
        assert_says(&error, "empty.txt is empty: name files with text");
        assert_int_equal(PREPARE("none", &options, "empty.txt", "empty.txt"), -1);
        assert_says(&error, "all 2 files given are empty, the first ");
    }
    options.val_fraction = 0;
    options.corpus.strict = true;
    assert_int_equal(PREPARE("none", &options, "none.jsonl"), -1);
    assert_says(&error, "none.jsonl:2: not a JSON object");
    assert_int_equal(PREPARE("none", &options, "missing.txt"), -1);
    assert_says(&error, "missing.txt");
    options.corpus.strict = false;
    // After all those failures the folder still works.
    make_stories(state, "a.jsonl", 0, 5);
    assert_prepared(PREPARE("none", &options, "a.jsonl", "none.jsonl"), &error);
    assert_int_equal(count_of(state, "none", "train", "documents"), 5);
}

static void lists_of_shards(void **state)
{
    Error error;
    Fixture *fixture = *state;
    const char *names[] = {"train_000001.bin", "train_000000.bin", "val_000000.bin", "tiny_shakespeare_val.bin", "fineweb-train-3.bin",
                           "training_1.bin",
                           "interval.bin", "train_000002.bin.tmp", "train.txt"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        free(make_file(state, names[i], "", 0));
    }
    PathList train = {0}, val = {0};
    assert_int_equal(prepare_list_shards(&train, fixture->folder, "train", &error), 0);
    assert_int_equal(train.count, 3);
    assert_string_equal(path_base(train.items[0]), "fineweb-train-3.bin");
    assert_string_equal(path_base(train.items[1]), "train_000000.bin");
    assert_string_equal(path_base(train.items[2]), "train_000001.bin");
    assert_int_equal(prepare_list_shards(&val, fixture->folder, "val", &error), 0);
    assert_int_equal(val.count, 2);
    char *file = in_folder(state, "val_000000.bin");
    assert_int_equal(prepare_list_shards(&train, file, "train", &error), 0);
    assert_int_equal(train.count, 3);
    assert_int_equal(prepare_list_shards(&val, file, "val", &error), 0);
    assert_int_equal(val.count, 3);
    free(file);
    path_list_free(&train);
    path_list_free(&val);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(complete_folders_are_kept),
        TEST(interrupted_runs_are_made_anew),
        TEST(stopped_runs_go_on),
        TEST(one_process_at_a_time),
        TEST(foreign_files_are_not_overwritten),
        TEST(a_given_tokenizer_is_used_as_it_is),
        TEST(bad_inputs),
        TEST(lists_of_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
