// Prepares documents in up to two passes over them: one counts the pre-tokens for a new tokenizer, one encodes. Both work in batches: the
// reader (with threads of its own that unpack and parse ahead, data/read_ahead.c) fills them, all threads work on their pieces, and what they
// made is taken in order, so that nothing depends on the number of threads.
#include "data/prepare.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/progress.h"
#include "data/batch.h"
#include "data/prepare_folder.h"
#include "data/shards.h"
#include "data/split.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_train.h"

#define KEPT_IDS ((size_t)1 << 20)   // that a thread's list may have room for when its piece is done

// A piece's tokens as they stand in shards.
typedef struct Encoded {
    unsigned char *bytes;
    size_t count;
} Encoded;

typedef struct Preparation {
    const PathList *files;
    const char *folder;
    const PrepareOptions *options;
    CorpusOptions corpus;
    size_t threads;
    const cJSON *request;
    PrepareState state;
    PrepareResult result;

    // Pass over the documents.
    const char *what;
    Batch *batch;
    bool training_only;
    Progress progress;
    CorpusStats stats;
    uint64_t total_bytes, first_byte;   // bytes of the files; those that were passed over at the start
    double started;

    BpeTrainer *trainer;
    Tokenizer *tokenizer;
    Encoder *encoders[BATCH_THREADS];
    TokenList ids[BATCH_THREADS];   // of the piece that a thread encodes
    Encoded *encoded;               // [BATCH_SLOTS]
    ShardWriter *train_writer, *validation_writer;
} Preparation;

void prepare_defaults(PrepareOptions *options)
{
    memset(options, 0, sizeof *options);
    options->vocab_size = 8192;
    options->val_fraction = 0.01;
    options->shard_tokens = 100000000;
}

static void show_progress(Preparation *p, bool force)
{
    if (p->options->quiet) {
        return;
    }
    char done[32], total[32], documents[32], rate[32], left[32];
    if (batch_skipping(p->batch)) {
        p->started = seconds_now();
        p->first_byte = p->stats.bytes_read;
    }
    double seconds = seconds_now() - p->started, read = (double)p->stats.bytes_read, all = (double)p->total_bytes;
    double speed = (read - (double)p->first_byte) / (seconds > 1e-3 ? seconds : 1e-3);
    progress_show(&p->progress, force, "%s: %s of %s, %s documents, %s/s, %s left",
                  batch_skipping(p->batch) ? "finding the place to go on" : p->what, format_bytes(done, read),
                  format_bytes(total, all),
                  format_count(documents, (double)p->stats.documents), format_bytes(rate, speed),
                  format_duration(left, speed > 0 && all > read ? (all - read) / speed : 0));
}

// Notes the state: what is written so far is on the disk before.
static int note_state(Preparation *p, Error *error)
{
    if (shard_writer_sync(p->train_writer, &p->state.train_at, error) != 0 ||
        shard_writer_sync(p->validation_writer, &p->state.validation_at, error) != 0) {
        return -1;
    }
    p->state.resumable = true;
    p->state.train = p->result.train;
    p->state.validation = p->result.validation;
    return prepare_folder_note(p->folder, p->request, &p->state, error);
}

static bool must_stop(const Preparation *p) { return p->options->stop != NULL && *p->options->stop != 0; }

static int stop(Preparation *p, Error *error)
{
    if (p->train_writer != NULL && !batch_skipping(p->batch) && note_state(p, error) != 0) {
        return -1;
    }
    return error_set(error, "stopped while preparing %s; the same command goes on from here", p->folder);
}

static int add_document(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    (void)index;
    Preparation *p = context;
    size_t cut = split_cut(&p->state.split, text, length);
    show_progress(p, false);
    if (must_stop(p)) {
        return stop(p, error);
    }
    if (batch_add(p->batch, text, cut, false, error) != 0) {
        return -1;
    }
    return p->training_only ? 0 : batch_add(p->batch, text + cut, length - cut, true, error);
}

// Reads all documents of some files through a batch of its own.
static int run_pass(Preparation *p, const char *what, const PathList *files, BatchWork work, BatchDone done, Error *error)
{
    p->what = what;
    p->total_bytes = corpus_bytes(files);
    p->started = seconds_now();
    p->first_byte = 0;
    p->batch = batch_create(p->threads, p->tokenizer, work, done, p, error);
    if (p->batch == NULL) {
        return -1;
    }
    batch_skip(p->batch, p->training_only ? 0 : p->state.pieces);
    progress_init(&p->progress);
    p->progress.last = p->started;   // nothing to tell at the start
    p->corpus.progress = &p->progress;
    int result = corpus_read(files, &p->corpus, &p->stats, add_document, p, error);
    if (result == 0) {
        result = batch_run(p->batch, error);
    }
    if (result == 0 && p->stats.documents == 0) {
        result = corpus_no_documents(files, &p->stats, error);
    }
    show_progress(p, result == 0);
    if (!p->options->quiet) {
        progress_break(&p->progress);
    }
    p->corpus.quiet = true;   // bad records were named in the first pass
    batch_free(p->batch);
    p->batch = NULL;
    return result;
}

static int count_piece(void *context, size_t thread, size_t slot, const char *text, size_t length, Error *error)
{
    (void)slot;
    Preparation *p = context;
    return bpe_trainer_add(p->trainer, thread, text, length, error);
}

static int train_tokenizer(Preparation *p, const char *path, Error *error)
{
    p->trainer = bpe_trainer_create(error);
    if (p->trainer == NULL) {
        return -1;
    }
    p->training_only = true;
    const PathList *files = p->options->tokenizer_files != NULL ? p->options->tokenizer_files : p->files;
    int result = run_pass(p, "counting words for the tokenizer", files, count_piece, NULL, error);
    p->training_only = false;
    if (result == 0) {
        p->tokenizer = bpe_trainer_finish(p->trainer, (size_t)p->options->vocab_size, error);
        result = p->tokenizer == NULL ? -1 : tokenizer_save(p->tokenizer, path, error);
    }
    bpe_trainer_free(p->trainer);
    p->trainer = NULL;
    if (result == 0 && !p->options->quiet && tokenizer_vocab_size(p->tokenizer) < (size_t)p->options->vocab_size) {
        fprintf(stderr, "note: the text gave only %zu of the %" PRId64 " ids asked for\n", tokenizer_vocab_size(p->tokenizer),
                p->options->vocab_size);
    }
    return result;
}

// Whatever form the file has, a tokenizer.json goes with the shards.
static int copy_tokenizer(Preparation *p, const char *path, Error *error)
{
    p->tokenizer = tokenizer_load(p->options->tokenizer_path, error);
    if (p->tokenizer == NULL) {
        return -1;
    }
    return tokenizer_save(p->tokenizer, path, error);
}

static int make_tokenizer(Preparation *p, Error *error)
{
    char *path = path_join(p->folder, "tokenizer.json");
    if (path == NULL) {
        return error_set(error, "out of memory while preparing");
    }
    int result;
    if (p->state.resumable) {
        p->tokenizer = tokenizer_load(path, error);
        result = p->tokenizer != NULL ? 0 : -1;
    } else {
        result = p->options->tokenizer_path != NULL ? copy_tokenizer(p, path, error) : train_tokenizer(p, path, error);
    }
    free(path);
    if (result == 0 && tokenizer_end_of_text(p->tokenizer) < 0) {
        result = error_set(error, "%s has no token <|endoftext|>, which separates documents; use a tokenizer that has it",
                           p->options->tokenizer_path);
    }
    return result;
}

static int encode_piece(void *context, size_t thread, size_t slot, const char *text, size_t length, Error *error)
{
    Preparation *p = context;
    // Its count changes with every token: in the array it would share a cache line with the lists that other threads fill.
    TokenList list = p->ids[thread];
    list.count = 0;
    int result = encoder_encode(p->encoders[thread], &list, text, length, 0, error);
    if (result == 0) {
        size_t vocab = p->result.vocab_size;
        Encoded *encoded = &p->encoded[slot];
        *encoded = (Encoded){malloc(list.count * shard_token_width(vocab) + 1), list.count};
        result = encoded->bytes == NULL ? error_set(error, "out of memory for %zu tokens", list.count)
                                        : shard_put_tokens(encoded->bytes, list.ids, list.count, vocab, error);
    }
    if (list.capacity > KEPT_IDS) {
        token_list_free(&list);
    }
    p->ids[thread] = list;
    return result;
}

static int write_piece(void *context, size_t slot, const Piece *piece, Error *error)
{
    Preparation *p = context;
    Encoded *encoded = &p->encoded[slot];
    ShardWriter *writer = piece->validation ? p->validation_writer : p->train_writer;
    PrepareCounts *counts = piece->validation ? &p->result.validation : &p->result.train;
    int32_t end_of_text = tokenizer_end_of_text(p->tokenizer);
    size_t shards = shard_writer_shards(writer);
    int result = piece->starts_document ? shard_writer_add(writer, &end_of_text, 1, error) : 0;
    if (result == 0) {
        result = shard_writer_add_bytes(writer, encoded->bytes, encoded->count, error);
    }
    counts->documents += piece->starts_document;
    counts->bytes += piece->length;
    free(encoded->bytes);
    *encoded = (Encoded){0};
    p->state.pieces++;
    if (result == 0 && must_stop(p)) {
        return stop(p, error);
    }
    return result == 0 && shard_writer_shards(writer) > shards ? note_state(p, error) : result;
}

// Closes what open_writers opened. Unfinished shards stay: a later run goes on with them, or removes them.
static void close_files(Preparation *p)
{
    for (size_t i = 0; i < p->threads; i++) {
        encoder_free(p->encoders[i]);
        p->encoders[i] = NULL;
        token_list_free(&p->ids[i]);
    }
    for (size_t i = 0; p->encoded != NULL && i < BATCH_SLOTS; i++) {
        free(p->encoded[i].bytes);
    }
    free(p->encoded);
    shard_writer_leave(p->train_writer);
    shard_writer_leave(p->validation_writer);
    p->encoded = NULL;
    p->train_writer = p->validation_writer = NULL;
}

static int open_writers(Preparation *p, Error *error)
{
    size_t vocab = tokenizer_vocab_size(p->tokenizer);
    uint32_t hash = tokenizer_hash(p->tokenizer);
    uint64_t limit = (uint64_t)p->options->shard_tokens;
    p->train_writer = shard_writer_create(p->folder, "train", limit, vocab, hash, error);
    p->validation_writer = shard_writer_create(p->folder, "val", limit, vocab, hash, error);
    p->encoded = calloc(BATCH_SLOTS, sizeof *p->encoded);
    if (p->train_writer == NULL || p->validation_writer == NULL) {
        return -1;
    }
    if (p->encoded == NULL) {
        return error_set(error, "out of memory for encoding");
    }
    for (size_t i = 0; i < p->threads; i++) {
        p->encoders[i] = encoder_create(p->tokenizer, error);
        if (p->encoders[i] == NULL) {
            return -1;
        }
    }
    p->result.vocab_size = vocab;
    p->result.tokenizer_hash = hash;
    return 0;
}

static int close_writer(ShardWriter **writer, PrepareCounts *counts, Error *error)
{
    size_t shards;
    int result = shard_writer_close(*writer, &counts->tokens, &shards, error);
    *writer = NULL;
    counts->shards = shards;
    return result;
}

// Goes on from the state that was noted, if the shards are as it says; else all is written anew, but not because they cannot be read just now.
static int start_writing(Preparation *p, Error *error)
{
    Error problem;
    if (open_writers(p, error) != 0) {
        return -1;
    }
    if (p->state.pieces == 0) {
        return note_state(p, error);
    }
    p->result.train = p->state.train;
    p->result.validation = p->state.validation;
    errno = 0;
    if (shard_writer_resume(p->train_writer, &p->state.train_at, &problem) == 0 &&
        shard_writer_resume(p->validation_writer, &p->state.validation_at, &problem) == 0) {
        return 0;
    }
    if (file_shortage() || errno == EIO) {
        return error_set(error, "%s", problem.text);
    }
    if (!p->options->quiet) {
        fprintf(stderr, "warning: %s; the shards are written anew\n", problem.text);
    }
    close_files(p);
    p->state.pieces = 0;
    p->result.train = p->result.validation = (PrepareCounts){0};
    return prepare_folder_clear(p->folder, error) != 0 ? -1 : start_writing(p, error);
}

static int encode(Preparation *p, Error *error)
{
    if (start_writing(p, error) != 0 || run_pass(p, "encoding", p->files, encode_piece, write_piece, error) != 0) {
        return -1;
    }
    p->result.skipped = p->stats.skipped;
    p->result.filtered = p->stats.filtered;
    p->result.duplicates = p->stats.duplicates;
    p->result.tail = p->state.split.tail;
    if (close_writer(&p->train_writer, &p->result.train, error) != 0) {
        return -1;
    }
    return close_writer(&p->validation_writer, &p->result.validation, error);
}

static void print_row(const char *name, const PrepareCounts *counts)
{
    fprintf(stderr, "%-12s %12" PRIu64 " %15" PRIu64 " %14" PRIu64 " %12.3f %7" PRIu64 "\n", name, counts->documents, counts->bytes,
            counts->tokens,
            counts->tokens > 0 ? (double)counts->bytes / (double)counts->tokens : 0.0, counts->shards);
}

static void print_table(const Preparation *p)
{
    fprintf(stderr, "%-12s %12s %15s %14s %12s %7s\n", "", "documents", "bytes", "tokens", "bytes/token", "shards");
    print_row("training", &p->result.train);
    print_row("validation", &p->result.validation);
    fprintf(stderr, "%-12s %12" PRIu64 "\n", "skipped", p->result.skipped);
    if (p->options->corpus.where != NULL) {
        fprintf(stderr, "%-12s %12" PRIu64 "\n", "filtered", p->result.filtered);
    }
    if (p->options->corpus.dedup) {
        fprintf(stderr, "%-12s %12" PRIu64 "\n", "duplicates", p->result.duplicates);
    }
    if (p->options->rest != NULL && p->options->rest->count > 0) {
        char text[256];
        fprintf(stderr, "%s\n", corpus_describe_rest(text, sizeof text, p->options->rest));
    }
    if (p->result.tail) {
        fprintf(stderr, "note: there are so few documents that the validation data is the tail of each of them\n");
    }
}

static int prepare(Preparation *p, Error *error)
{
    if (!p->state.resumable && split_choose(&p->state.split, p->files, &p->corpus, p->options->val_fraction, error) != 0) {
        return -1;
    }
    if (make_tokenizer(p, error) != 0 || encode(p, error) != 0 ||
        prepare_folder_finish(p->folder, p->request, &p->result, error) != 0) {
        return -1;
    }
    if (!p->options->quiet) {
        print_table(p);
    }
    return 0;
}

int prepare_documents(const PathList *files, const char *folder, const PrepareOptions *options, Error *error)
{
    if (options->rest != NULL && corpus_check_rest(options->rest, options->corpus.strict, error) != 0) {
        return -1;
    }
    if (options->tokenizer_path == NULL && bpe_trainer_check_size((size_t)options->vocab_size, error) != 0) {
        return -1;
    }
    cJSON *request = prepare_request(files, options, error);
    if (request == NULL) {
        return -1;
    }
    bool done;
    int lock;
    Preparation p = {.files = files, .folder = folder, .options = options, .corpus = options->corpus, .request = request};
    int result = prepare_folder_open(folder, request, options, &p.state, &done, &lock, error);
    if (result == 0 && done && !options->quiet) {
        fprintf(stderr, "%s is already prepared from these documents\n", folder);
    } else if (result == 0 && !done) {
        p.threads = batch_threads((size_t)options->threads);
        p.corpus.quiet = options->quiet;
        // Where encoding is the slower part, readers that are ahead just wait.
        p.corpus.readers = p.threads / 2;
        result = prepare(&p, error);
        close_files(&p);
        tokenizer_free(p.tokenizer);
    }
    if (lock >= 0) {
        close(lock);
    }
    cJSON_Delete(request);
    return result;
}
