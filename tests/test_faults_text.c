// Faults on purpose (tests/faults.h): tokenizers of every form, and preparing documents.
#include "tests/faults.h"

#ifndef WITHOUT_FAULTS

#include <sys/stat.h>

#include "data/prepare.h"
#include "tokenizer/bpe_train.h"

// ---- tokenizers ----

static const char TEXT[] = "the fox and the hen and the fox went to the river, and the river ran to the sea; the sea, the fox said, is near the end";

typedef struct Tokenizers {
    char *path;
    const char *pattern;
    uint32_t hash;   // of the tokenizer that there should be
} Tokenizers;

static int train_and_save(void *context, Error *error)
{
    Tokenizers *t = context;
    BpeTrainer *trainer = bpe_trainer_create(error);
    Tokenizer *tokenizer = trainer != NULL && bpe_trainer_add(trainer, 0, TEXT, strlen(TEXT), error) == 0 ? bpe_trainer_finish(trainer, 264, error) : NULL;
    int status = tokenizer != NULL ? tokenizer_save(tokenizer, t->path, error) : -1;
    tokenizer_free(tokenizer);
    bpe_trainer_free(trainer);
    return status;
}

static int load_tokenizer(void *context, Error *error)
{
    Tokenizers *t = context;
    Tokenizer *tokenizer = tokenizer_load_as(t->path, t->pattern, error);
    if (tokenizer != NULL && t->hash != 0) {
        assert_int_equal(tokenizer_hash(tokenizer), t->hash);
    }
    t->hash = tokenizer != NULL ? tokenizer_hash(tokenizer) : t->hash;
    tokenizer_free(tokenizer);
    return tokenizer != NULL ? 0 : -1;
}

static void no_file(void *context) { unlink(((Tokenizers *)context)->path); }

// The file is there as a whole or not at all.
static void after_training(void *context, int status, const Fault *fault)
{
    (void)fault;
    Tokenizers *t = context;
    Error error;
    assert_true(status != 0 || file_exists(t->path));
    if (file_exists(t->path) && load_tokenizer(t, &error)) {
        fail_msg("%s", error.text);
    }
}

static void sweep_form(Tokenizers t, const char *name)
{
    Error error;
    if (load_tokenizer(&t, &error)) {
        fail_msg("%s", error.text);
    }
    sweep(&(Case){name, &t, nothing_before, load_tokenizer, nothing_after}, 5);
}

static FILE *open_in(void **state, const char *name)
{
    char *path = in_folder(state, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    free(path);
    return file;
}

// GPT-2's two files, of the 256 bytes and one merge. Bytes that cannot be seen stand there as the characters from 256 on.
static void make_pair(void **state)
{
    FILE *vocab = open_in(state, "vocab.json");
    for (int byte = 0, other = 256; byte < 256; byte++) {
        bool visible = (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
        int code = visible ? byte : other++;
        fprintf(vocab, "%s\"", byte > 0 ? "," : "{");
        if (code < 128) {
            fprintf(vocab, code == '"' || code == '\\' ? "\\%c" : "%c", code);
        } else {
            fprintf(vocab, "%c%c", 192 | code >> 6, 128 | (code & 63));
        }
        fprintf(vocab, "\":%d", byte);
    }
    fputs(",\"ab\":256,\"<|endoftext|>\":257}", vocab);
    assert_int_equal(fclose(vocab), 0);
    free(make_file(state, "merges.txt", "#version: 0.2\na b\n", 18));
}

// tiktoken's ranks of the same.
static void make_ranks(void **state)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    FILE *ranks = open_in(state, "ranks");
    for (int byte = 0; byte < 256; byte++) {
        fprintf(ranks, "%c%c== %d\n", digits[byte / 4], digits[byte % 4 * 16], byte);
    }
    fputs("YWI= 256\n", ranks);
    assert_int_equal(fclose(ranks), 0);
}

// llama2.c's file: the longest token's length, then score, length and text of each.
static void make_llama2c(void **state)
{
    FILE *file = open_in(state, "tokenizer.bin");
    const int32_t longest = 6;
    const float score = 0.0f;
    fwrite(&longest, sizeof longest, 1, file);
    for (int id = 0; id < 260; id++) {
        static const char *const names[] = {"<unk>", "\n<s>\n", "\n</s>\n"};
        char text[8];
        if (id < 3 || id == 259) {
            snprintf(text, sizeof text, "%s", id == 259 ? "a" : names[id]);
        } else {
            snprintf(text, sizeof text, "<0x%02X>", id - 3);
        }
        const int32_t length = (int32_t)strlen(text);
        fwrite(&score, sizeof score, 1, file);
        fwrite(&length, sizeof length, 1, file);
        fwrite(text, 1, (size_t)length, file);
    }
    assert_int_equal(fclose(file), 0);
}

// Memory grows with the distinct words, not with the text: what has been counted once needs none again.
static void counting_again_needs_no_memory(void **state)
{
    (void)state;
    Error error;
    BpeTrainer *trainer = bpe_trainer_create(&error);
    assert_int_equal(bpe_trainer_add(trainer, 0, TEXT, strlen(TEXT), &error), 0);
    fault_arm(FAULT_MEMORY, ENOMEM, 1, LONG_MAX);
    int status = 0;
    for (int i = 0; i < 1000 && status == 0; i++) {
        status = bpe_trainer_add(trainer, 0, TEXT, strlen(TEXT), &error);
    }
    assert_int_equal(fault_disarm(), 0);
    assert_int_equal(status, 0);
    bpe_trainer_free(trainer);
}

static void tokenizers(void **state)
{
    Tokenizers t = {.path = in_folder(state, "tokenizer.json")};
    sweep(&(Case){"train a tokenizer", &t, no_file, train_and_save, after_training}, 1000);
    Error error;
    assert_int_equal(train_and_save(&t, &error), 0);
    sweep_form(t, "load a tokenizer.json");
    free(t.path);
    make_pair(state);
    make_ranks(state);
    make_llama2c(state);
    static const char *const names[][2] = {{"vocab.json", NULL}, {"merges.txt", NULL}, {"ranks", "cl100k_base"}, {"tokenizer.bin", NULL}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        t = (Tokenizers){.path = in_folder(state, names[i][0]), .pattern = names[i][1]};
        sweep_form(t, names[i][0]);
        free(t.path);
    }
}

// ---- preparing ----

typedef struct Preparations {
    PathList files;
    PrepareOptions options;
    char *whole, *half, *out;   // folders: prepared without a fault, left by a full disk, being prepared
    ino_t first_shard;
} Preparations;

static int run_prepare(void *context, Error *error)
{
    Preparations *p = context;
    return prepare_documents(&p->files, p->out, &p->options, error);
}

static void copy_folder(const char *to, const char *from)
{
    Error error;
    PathList names = {0};
    assert_int_equal(folder_remove(to, &error), 0);
    assert_int_equal(folder_make(to, &error), 0);
    assert_int_equal(folder_list(&names, from, &error), 0);
    for (size_t i = 0; i < names.count; i++) {
        char *source = path_join(from, names.items[i]), *target = path_join(to, names.items[i]);
        size_t size = 0;
        char *data = file_read(source, 1 << 24, &size, &error);
        assert_non_null(data);
        assert_int_equal(file_write_atomic(target, data, size, &error), 0);
        free(data);
        free(source);
        free(target);
    }
    path_list_free(&names);
}

// Where `more` is set the other folder may hold more: what could not be removed.
static void assert_same_folders(const char *one, const char *other, bool more)
{
    Error error;
    PathList names = {0}, others = {0};
    assert_int_equal(folder_list(&names, one, &error), 0);
    assert_int_equal(folder_list(&others, other, &error), 0);
    for (size_t i = 0; i < others.count && !more; i++) {
        if (i >= names.count || strcmp(names.items[i], others.items[i]) != 0) {
            fail_msg("%s is there, but not without faults", others.items[i]);
        }
    }
    for (size_t i = 0; i < names.count; i++) {
        char *a = path_join(one, names.items[i]), *b = path_join(other, names.items[i]);
        uint64_t sums[2];
        assert_int_equal(file_hash(a, &sums[0], &error) | file_hash(b, &sums[1], &error), 0);
        if (sums[0] != sums[1]) {
            fail_msg("%s is another file than without faults", b);
        }
        free(a);
        free(b);
    }
    path_list_free(&names);
    path_list_free(&others);
}

static ino_t inode(const char *folder, const char *name)
{
    struct stat info;
    char *path = path_join(folder, name);
    assert_int_equal(stat(path, &info), 0);
    free(path);
    return info.st_ino;
}

static void no_folder(void *context)
{
    Error error;
    assert_int_equal(folder_remove(((Preparations *)context)->out, &error), 0);
}

static void half_folder(void *context)
{
    Preparations *p = context;
    copy_folder(p->out, p->half);
    p->first_shard = inode(p->out, "train_000000.bin");
}

// Where the first attempt ended with an error the same command goes on; in the end the files are those of a run without faults.
static void after_prepare(void *context, int status, const Fault *fault)
{
    Preparations *p = context;
    Error error;
    if (status != 0 && run_prepare(p, &error)) {
        fail_msg("after %s the same command does not go on: %s", fault->name, error.text);
    }
    assert_same_folders(p->whole, p->out, fault->kind == FAULT_NAMES);
}

static void after_going_on(void *context, int status, const Fault *fault)
{
    Preparations *p = context;
    after_prepare(context, status, fault);
    if (inode(p->out, "train_000000.bin") != p->first_shard) {
        fail_msg("after %s a shard that was complete is written again", fault->name);
    }
}

static void open_preparations(void **state, Preparations *p)
{
    Error error;
    *p = (Preparations){.whole = in_folder(state, "whole"), .half = in_folder(state, "half"), .out = in_folder(state, "out")};
    char text[2000] = "";
    for (int i = 0; i < 25; i++) {
        sprintf(text + strlen(text), "{\"text\": \"the fox number %d went to the river %d times\"}\n", i, i * i);
    }
    char *path = make_file(state, "documents.jsonl", text, strlen(text));
    assert_int_equal(path_list_add(&p->files, path, &error), 0);
    free(path);
    prepare_defaults(&p->options);
    p->options.vocab_size = 262;
    p->options.shard_tokens = 250;
    p->options.val_fraction = 0.1;
    p->options.threads = 1;
    p->options.quiet = true;
    char *out = p->out;
    p->out = p->whole;
    assert_int_equal(run_prepare(p, &error), 0);
    // The disk fills up on the way, when two shards are complete.
    p->out = p->half;
    char *second = path_join(p->half, "train_000001.bin");
    for (long n = 1; !file_exists(second); n++) {
        no_folder(p);
        fault_arm(FAULT_WRITE, ENOSPC, n, LONG_MAX);
        int status = run_prepare(p, &error);
        fault_disarm();
        assert_int_equal(status, -1);
    }
    free(second);
    p->out = out;
}

static void preparing(void **state)
{
    Preparations p;
    open_preparations(state, &p);
    sweep(&(Case){"prepare", &p, no_folder, run_prepare, after_prepare}, 1000);
    sweep(&(Case){"go on preparing", &p, half_folder, run_prepare, after_going_on}, 1000);
    path_list_free(&p.files);
    free(p.whole);
    free(p.half);
    free(p.out);
}

int main(void)
{
    faults_start();
    const struct CMUnitTest tests[] = {
        TEST(counting_again_needs_no_memory),
        TEST(tokenizers),
        TEST(preparing),
    };
    return cmocka_run_group_tests_name("faults in texts", tests, NULL, NULL);
}

#endif
