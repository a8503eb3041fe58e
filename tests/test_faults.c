// Faults on purpose (tests/fault/fault.h): every n-th allocation, open, read, write, fsync, close and rename of saving, loading, preparing and
// tokenizing fails. What comes out is an error or a retry: never a crash, a wrong file, or the loss of what was good before.
//
// Long sweeps are thinned out; with FAULT_ALL=1 in the environment no call is left out.
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/scratch.h"

#ifndef WITHOUT_FAULTS

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/json.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "data/shards.h"
#include "infer/session.h"
#include "tests/fault/fault.h"
#include "tokenizer/bpe_train.h"
#include "training/log.h"
#include "training/snapshot.h"
#include "training/trainer.h"

enum { VOCAB = 24, DENSE = 250, STRIDE = 13 };

typedef struct Fault {
    const char *name;
    FaultKind kind;
    int effect;
    long count;
    bool harmless;   // the code must come through
} Fault;

static const Fault faults[] = {
    {"an allocation fails", FAULT_MEMORY, ENOMEM, 1, false},
    {"no memory from here on", FAULT_MEMORY, ENOMEM, LONG_MAX, false},
    {"no descriptor", FAULT_OPEN, EMFILE, 1, false},
    {"an open is interrupted", FAULT_OPEN, EINTR, 1, true},
    {"short reads", FAULT_READ, FAULT_SHORT, LONG_MAX, true},
    {"a read is interrupted", FAULT_READ, EINTR, 1, true},
    {"a read fails", FAULT_READ, EIO, 1, false},
    {"short writes", FAULT_WRITE, FAULT_SHORT, LONG_MAX, true},
    {"a write is interrupted", FAULT_WRITE, EINTR, 1, true},
    {"a write fails", FAULT_WRITE, EIO, 1, false},
    {"the disk is full", FAULT_WRITE, ENOSPC, LONG_MAX, false},
    {"fsync is interrupted", FAULT_SYNC, EINTR, 1, true},
    {"fsync fails", FAULT_SYNC, EIO, 1, false},
    {"close fails", FAULT_CLOSE, EIO, 1, false},
    {"a name cannot be changed", FAULT_NAMES, EIO, 1, false},
    {"no name can be changed", FAULT_NAMES, ENOSPC, LONG_MAX, false},
};

// What is done under faults. `before` makes the state anew, `run` is the code in question, `after` holds the state against what is allowed;
// all get the test's context.
typedef struct Case {
    const char *name;
    void *context;
    void (*before)(void *context);
    int (*run)(void *context, Error *error);
    void (*after)(void *context, int status, const Fault *fault);
} Case;

static int next_descriptor(void)
{
    int fd = dup(STDIN_FILENO);
    close(fd);
    return fd;
}

// Fails the calls from number n on. Returns whether there was such a call.
static bool try_one(const Case *c, const Fault *fault, long n)
{
    Error error = {""};
    c->before(c->context);
    int descriptor = next_descriptor();
    fault_arm(fault->kind, fault->effect, n, fault->count);
    int status = c->run(c->context, &error);
    bool fired = fault_disarm() > 0;
    if (status != 0 && (!fired || fault->harmless)) {
        fail_msg("%s, %s at call %ld: fails for no reason: %s", c->name, fault->name, n, error.text);
    }
    if (status != 0 && error.text[0] == 0) {
        fail_msg("%s, %s at call %ld: an error without words", c->name, fault->name, n);
    }
    if (next_descriptor() != descriptor) {
        fail_msg("%s, %s at call %ld: a file stays open", c->name, fault->name, n);
    }
    c->after(c->context, status, fault);
    return fired;
}

// Every call of every kind. At least `least` allocations must have been met, so that the test tests something.
static void sweep(const Case *c, long least)
{
    bool all = getenv("FAULT_ALL") != NULL;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        long n = 1;
        while (try_one(c, &faults[i], n)) {
            n += n < DENSE || all ? 1 : STRIDE;
        }
        if (faults[i].kind == FAULT_MEMORY && n <= least) {
            fail_msg("%s: only %ld allocations were met", c->name, n);
        }
    }
}

// The same with memory alone.
static void sweep_memory(const Case *c, long least)
{
    long n = 1;
    while (try_one(c, &faults[0], n)) {
        try_one(c, &faults[1], n++);
    }
    assert_true(n > least);
}

static void nothing_before(void *context) { (void)context; }

// ---- checkpoints ----

typedef struct Checkpoints {
    Model old, fresh;
    char *out, *tokenizer;
    Model loaded;
    bool is_loaded;
    Error note;
} Checkpoints;

static void make_model(Model *model, uint64_t seed)
{
    ModelConfig config;
    Error error;
    assert_int_equal(config_preset(&config, "nano", &error), 0);
    config.vocab_size = VOCAB;
    config.d_model = 8;
    config.n_layer = 1;
    config.n_head = 1;
    config.d_head = config.n_slot = 4;
    config.mlp_hidden = 0;
    const Kernels *kernels = kernels_select(&error);
    assert_non_null(kernels);
    assert_int_equal(model_create(model, &config, kernels, &error), 0);
    model_init(model, seed, 16);
}

static void open_checkpoints(void **state, Checkpoints *c)
{
    *c = (Checkpoints){.out = in_folder(state, "run"), .tokenizer = make_file(state, "tokenizer.json", "{}", 2)};
    make_model(&c->old, 1);
    make_model(&c->fresh, 2);
}

static void close_checkpoints(Checkpoints *c)
{
    model_free(&c->old);
    model_free(&c->fresh);
    free(c->out);
    free(c->tokenizer);
}

static int save(const Checkpoints *c, const Model *model, int64_t step, Error *error)
{
    TensorTable some = model->table;
    some.count = 2;
    const NamedArena moments[] = {{"m.", &some, model->params}};
    cJSON *trainer = cJSON_CreateObject();
    int status = cJSON_AddNumberToObject(trainer, "step", (double)step) != NULL ? 0 : error_set(error, "out of memory");
    CheckpointSource source = {model, c->tokenizer, moments, 1, trainer};
    status = status == 0 ? checkpoint_save(&source, c->out, step, error) : -1;
    cJSON_Delete(trainer);
    return status;
}

static void must_save(const Checkpoints *c, const Model *model, int64_t step)
{
    Error error;
    if (save(c, model, step, &error)) {
        fail_msg("%s", error.text);
    }
}

static bool same_weights(const Model *a, const Model *b)
{
    return a->table.total == b->table.total && memcmp(a->params, b->params, a->table.total * sizeof *a->params) == 0;
}

// Which of the two models the run's newest good checkpoint holds. There must be one, and none that looks whole may be broken.
static const Model *newest(const Checkpoints *c)
{
    Error error, note;
    Model model;
    char *folder = checkpoint_resolve(c->out, &note, &error);
    if (folder == NULL || note.text[0] != 0) {
        fail_msg("the good checkpoint is lost: %s%s", folder == NULL ? error.text : "", note.text);
    }
    assert_int_equal(checkpoint_load_model(&model, c->old.kernels, folder, &error), 0);
    const Model *found = same_weights(&model, &c->fresh) ? &c->fresh : same_weights(&model, &c->old) ? &c->old : NULL;
    model_free(&model);
    free(folder);
    assert_non_null(found);
    return found;
}

static void one_checkpoint(void *context)
{
    Checkpoints *c = context;
    Error error;
    assert_int_equal(folder_remove(c->out, &error), 0);
    must_save(c, &c->old, 1);
}

static void after_save(void *context, int status, const Fault *fault)
{
    (void)fault;
    Checkpoints *c = context;
    const Model *found = newest(c);
    assert_true(status != 0 || found == &c->fresh);
    Error error;
    assert_int_equal(checkpoint_prune(c->out, 1, &error), 0);
    PathList names = {0};
    assert_int_equal(folder_list(&names, c->out, &error), 0);
    assert_int_equal(names.count, 1);   // nothing unfinished stays
    path_list_free(&names);
    assert_ptr_equal(newest(c), found);
}

static int run_save(void *context, Error *error)
{
    Checkpoints *c = context;
    return save(c, &c->fresh, 2, error);
}

static int run_replace(void *context, Error *error)
{
    Checkpoints *c = context;
    return save(c, &c->fresh, 1, error);
}

static void saving(void **state)
{
    Checkpoints c;
    open_checkpoints(state, &c);
    sweep(&(Case){"save", &c, one_checkpoint, run_save, after_save}, 200);
    sweep(&(Case){"replace", &c, one_checkpoint, run_replace, after_save}, 200);
    close_checkpoints(&c);
}

static void two_checkpoints(void *context)
{
    Checkpoints *c = context;
    one_checkpoint(context);
    must_save(c, &c->fresh, 2);
}

// As a kill between the two renames of a save leaves it where folders cannot be exchanged.
static void newest_aside(void *context)
{
    Checkpoints *c = context;
    two_checkpoints(context);
    char *from = path_join(c->out, "step_00000002"), *to = path_join(c->out, "step_00000002.old");
    assert_int_equal(rename(from, to), 0);
    free(from);
    free(to);
}

static int run_prune(void *context, Error *error)
{
    Checkpoints *c = context;
    return checkpoint_prune(c->out, 1, error);
}

static void after_prune(void *context, int status, const Fault *fault)
{
    (void)status, (void)fault;
    assert_ptr_equal(newest(context), &((Checkpoints *)context)->fresh);
}

static void pruning(void **state)
{
    Checkpoints c;
    open_checkpoints(state, &c);
    sweep(&(Case){"prune", &c, two_checkpoints, run_prune, after_prune}, 20);
    sweep(&(Case){"prune with a checkpoint aside", &c, newest_aside, run_prune, after_prune}, 20);
    close_checkpoints(&c);
}

static int run_load(void *context, Error *error)
{
    Checkpoints *c = context;
    char *folder = checkpoint_resolve(c->out, &c->note, error);
    c->is_loaded = folder != NULL && checkpoint_load_model(&c->loaded, c->old.kernels, folder, error) == 0;
    cJSON *trainer = c->is_loaded ? checkpoint_load_trainer(folder, error) : NULL;
    int status = trainer != NULL ? 0 : -1;
    if (status == 0) {
        float *values = malloc(c->old.table.total * sizeof *values);
        TensorTable some = c->old.table;
        some.count = 2;
        const NamedArena moments[] = {{"m.", &some, values}};
        status = values != NULL ? checkpoint_load_moments(moments, 1, folder, error) : error_set(error, "out of memory");
        free(values);
    }
    cJSON_Delete(trainer);
    free(folder);
    return status;
}

// What is passed over without need would be set aside by a run that goes on.
static void after_load(void *context, int status, const Fault *fault)
{
    Checkpoints *c = context;
    if (status == 0 && !same_weights(&c->loaded, &c->fresh)) {
        assert_true(fault->kind == FAULT_READ && fault->effect == EIO && c->note.text[0] != 0);
    }
    if (c->is_loaded) {
        model_free(&c->loaded);
    }
}

static void loading(void **state)
{
    Checkpoints c;
    open_checkpoints(state, &c);
    two_checkpoints(&c);
    sweep(&(Case){"load", &c, nothing_before, run_load, after_load}, 200);
    close_checkpoints(&c);
}

// ---- state files ----

typedef struct States {
    Model model;
    Session *old, *fresh, *other;
    char *path;
} States;

static const int32_t some_tokens[] = {1, 5, 3, 2, 8, 13, 21};

static Session *make_session(const Model *model, size_t tokens)
{
    Error error;
    Session *session = session_create(model, 1, 4, &error);
    assert_non_null(session);
    session_feed(session, some_tokens, tokens);
    return session;
}

static bool same_session(const Session *a, const Session *b)
{
    return a->position == b->position && memcmp(a->states, b->states, a->model->state.total * sizeof *a->states) == 0;
}

static void old_state_file(void *context)
{
    States *s = context;
    Error error;
    assert_int_equal(session_save(s->old, s->path, "note", &error), 0);
}

static int run_save_state(void *context, Error *error)
{
    States *s = context;
    return session_save(s->fresh, s->path, "note", error);
}

static void after_save_state(void *context, int status, const Fault *fault)
{
    (void)fault;
    States *s = context;
    Error error;
    char *note = NULL, *left = malloc(strlen(s->path) + 5);
    if (session_load(s->other, s->path, &note, &error)) {
        fail_msg("the state is lost: %s", error.text);
    }
    assert_true(same_session(s->other, s->fresh) || (status != 0 && same_session(s->other, s->old)));
    assert_string_equal(note, "note");
    sprintf(left, "%s.tmp", s->path);
    assert_true(fault->kind == FAULT_NAMES || !file_exists(left));
    free(left);
    free(note);
}

static int run_load_state(void *context, Error *error)
{
    States *s = context;
    char *note = NULL;
    int status = session_load(s->other, s->path, &note, error);
    free(note);
    return status;
}

static void fresh_session(void *context)
{
    States *s = context;
    session_reset(s->other);
    session_feed(s->other, some_tokens, 7);
}

static void after_load_state(void *context, int status, const Fault *fault)
{
    (void)fault;
    States *s = context;
    assert_true(same_session(s->other, status == 0 ? s->old : s->fresh));
}

static void state_files(void **state)
{
    States s = {.path = in_folder(state, "state")};
    make_model(&s.model, 3);
    s.old = make_session(&s.model, 3);
    s.fresh = make_session(&s.model, 7);
    s.other = make_session(&s.model, 1);
    sweep(&(Case){"save a state", &s, old_state_file, run_save_state, after_save_state}, 30);
    old_state_file(&s);
    sweep(&(Case){"load a state", &s, fresh_session, run_load_state, after_load_state}, 30);
    session_free(s.old);
    session_free(s.fresh);
    session_free(s.other);
    model_free(&s.model);
    free(s.path);
}

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

static void nothing_after(void *context, int status, const Fault *fault) { (void)context, (void)status, (void)fault; }

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

// ---- the log ----

static const char five_lines[] = "{\"step\":1,\"x\":1}\n{\"step\":2,\"x\":1}\n{\"step\":3,\"x\":1}\n{\"step\":4,\"x\":1}\n{\"step\":5,\"x\":";
enum { THREE_LINES = 3 * 17 };

static void write_lines(void *context)
{
    Error error;
    char *path = path_join(context, "log.jsonl");
    assert_int_equal(file_write_atomic(path, five_lines, sizeof five_lines - 1, &error), 0);
    free(path);
}

static int run_log(void *context, Error *error)
{
    TrainLog log;
    if (train_log_open(&log, context, 3, error)) {
        return -1;
    }
    int status = train_log_write(&log, &(LogRecord){.step = 4, .val_loss = 1.0}, error) || train_log_sync(&log, error) ? -1 : 0;
    train_log_close(&log);
    return status;
}

// The records that were good stay, and none is torn but the one that was.
static void after_log(void *context, int status, const Fault *fault)
{
    (void)fault;
    Error error;
    size_t size = 0;
    char *path = path_join(context, "log.jsonl"), *text = file_read(path, 10000, &size, &error);
    assert_non_null(text);
    assert_true(size >= THREE_LINES);
    assert_memory_equal(text, five_lines, THREE_LINES);
    if (status == 0) {
        assert_true(text[size - 1] == '\n' && strchr(text + THREE_LINES, '\n') == text + size - 1);
        assert_memory_equal(text + THREE_LINES, "{\"step\":4,\"tokens\":", 19);
    }
    free(text);
    free(path);
}

static void logging(void **state)
{
    sweep(&(Case){"log", ((Fixture *)*state)->folder, write_lines, run_log, after_log}, 2);
}

// ---- a training step ----

typedef struct Steps {
    PathList shards;
    float *expected;   // the weights after a step
    char *text;        // trainer.json after it
} Steps;

static int step_and_compare(Trainer *trainer, Steps *s, Error *error)
{
    StepResult result;
    TrainSettings settings;
    if (trainer_step(trainer, &result, error)) {
        return -1;
    }
    size_t bytes = trainer->model.table.total * sizeof(float);
    settings_init(&settings);
    cJSON *json = snapshot_to_json(trainer, &settings, &(DataIdentity){.arguments = s->shards.items, .n_arguments = 1});
    char *text = json != NULL ? json_to_text(json, false) : NULL;
    cJSON_Delete(json);
    settings_free(&settings);
    if (text == NULL) {
        return error_set(error, "out of memory");
    }
    if (s->expected == NULL) {
        s->expected = malloc(bytes);
        memcpy(s->expected, trainer->model.params, bytes);
        s->text = text;
        return 0;
    }
    assert_memory_equal(s->expected, trainer->model.params, bytes);
    assert_string_equal(s->text, text);
    free(text);
    return 0;
}

static int run_step(void *context, Error *error)
{
    Steps *s = context;
    Model model;
    Trainer trainer;
    ModelConfig config;
    const TrainerOptions options = {.micro_batch = 2, .n_micro = 2, .seq_len = 16, .clip = 1.0, .seed = 1,
                                    .schedule = {.kind = SCHEDULE_CONSTANT, .lr = 1e-2, .steps = 3}};
    Loader *loader = loader_create(&s->shards, 16, 1, 0, VOCAB, error);
    if (loader == NULL) {
        return -1;
    }
    int status = config_preset(&config, "nano", error);
    config.vocab_size = VOCAB;
    config.d_model = 16;
    config.n_layer = 1;
    status = status == 0 ? model_create(&model, &config, kernels_select(error), error) : status;
    if (status == 0) {
        model_init(&model, 1, 16);
        status = trainer_create(&trainer, &model, &options, error);
    }
    if (status == 0) {
        trainer.train = loader;
        status = step_and_compare(&trainer, s, error);
        trainer_free(&trainer);
    }
    loader_free(loader);
    return status;
}

static void training_step(void **state)
{
    Error error;
    Steps s = {0};
    ShardWriter *writer = shard_writer_create(((Fixture *)*state)->folder, "train", 1000, VOCAB, 0, &error);
    int32_t ids[400];
    for (int i = 0; i < 400; i++) {
        ids[i] = i * i % VOCAB;
    }
    assert_int_equal(shard_writer_add(writer, ids, 400, &error) | shard_writer_close(writer, NULL, NULL, &error), 0);
    char *path = in_folder(state, "train_000000.bin");
    assert_int_equal(path_list_add(&s.shards, path, &error), 0);
    free(path);
    if (run_step(&s, &error)) {
        fail_msg("%s", error.text);
    }
    sweep_memory(&(Case){"a step", &s, nothing_before, run_step, nothing_after}, 100);
    path_list_free(&s.shards);
    free(s.expected);
    free(s.text);
}

// Memory that cJSON asks for fails as well.
static void *faulty_malloc(size_t size) { return malloc(size); }

int main(void)
{
#ifdef _OPENMP
    omp_set_num_threads(1);   // the numbers are so few that threads would only wait for each other
#endif
    cJSON_InitHooks(&(cJSON_Hooks){faulty_malloc, free});
    const struct CMUnitTest tests[] = {
        TEST(saving), TEST(pruning), TEST(loading), TEST(state_files), TEST(counting_again_needs_no_memory),
        TEST(tokenizers), TEST(preparing), TEST(logging), TEST(training_step),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}

#else

int main(void)
{
    puts("skipped: faults, because this linker has no --wrap");
    return 0;
}

#endif
