#include "infer/perplexity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/corpus.h"
#include "data/shards.h"
#include "infer/states.h"

#define BATCH_TOKENS 4096   // tokens that go through the model at once
#define PIECE_TOKENS 512    // longest piece of a window; longer ones go on with carried state
#define FIRST_BUCKET 64     // positions in the first bucket
#define SHARD_PIECE 65536   // tokens read from a shard at once

// ---- reading ----

bool stream_accepts(const char *path)
{
    size_t length = strlen(path);
    return (length > 4 && strcmp(path + length - 4, ".bin") == 0) || corpus_accepts(path);
}

static bool is_shard(const char *path) { return stream_accepts(path) && !corpus_accepts(path); }

static bool is_full(const TokenStream *stream) { return stream->count >= stream->max_count; }

// −1, which no token is, without a tokenizer.
static int32_t end_of_text_of(const Tokenizer *tokenizer) { return tokenizer != NULL ? tokenizer_end_of_text(tokenizer) : -1; }

// Bytes of text that a token stands for; 0 where that is unknown, and for <|endoftext|>.
static size_t bytes_of(const Tokenizer *tokenizer, int32_t id)
{
    size_t length = 0;
    bool known = tokenizer != NULL && id != tokenizer_end_of_text(tokenizer) && tokenizer_token(tokenizer, id, &length) != NULL;
    return known ? length : 0;
}

// Appends what still fits below max_count.
static int stream_append(TokenStream *stream, const int32_t *ids, size_t count, const Tokenizer *tokenizer, Error *error)
{
    if (count > stream->max_count - stream->count) {
        count = stream->max_count - stream->count;
    }
    if (count > stream->capacity - stream->count) {
        size_t capacity = stream->capacity * 2 > stream->count + count ? stream->capacity * 2 : stream->count + count + 1024;
        int32_t *grown = capacity <= SIZE_MAX / sizeof *grown ? realloc(stream->ids, capacity * sizeof *grown) : NULL;
        if (grown == NULL) {
            return error_set(error, "out of memory after %zu tokens of the text: --max-tokens reads less", stream->count);
        }
        stream->ids = grown;
        stream->capacity = capacity;
    }
    int32_t end_of_text = end_of_text_of(tokenizer);
    for (size_t i = 0; i < count; i++) {
        stream->documents += ids[i] == end_of_text;
        stream->bytes += bytes_of(tokenizer, ids[i]);
        stream->ids[stream->count++] = ids[i];
    }
    return 0;
}

typedef struct DocumentReader {
    TokenStream *stream;
    const Tokenizer *tokenizer;
    Encoder *encoder;
    TokenList list;
} DocumentReader;

static int add_document(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    (void)index;
    DocumentReader *reader = context;
    int32_t end_of_text = tokenizer_end_of_text(reader->tokenizer);
    reader->list.count = 0;
    if (stream_append(reader->stream, &end_of_text, 1, reader->tokenizer, error) != 0 ||
        encoder_encode(reader->encoder, &reader->list, text, length, 0, error) != 0 ||
        stream_append(reader->stream, reader->list.ids, reader->list.count, reader->tokenizer, error) != 0) {
        return -1;
    }
    return is_full(reader->stream) ? 1 : 0;
}

static int read_documents(TokenStream *stream, const char *path, const Tokenizer *tokenizer, Error *error)
{
    if (tokenizer == NULL) {
        return error_set(error, "%s: documents need a tokenizer and the checkpoint has none: give --tokenizer FILE, or token shards (.bin)",
                         path);
    }
    DocumentReader reader = {.stream = stream, .tokenizer = tokenizer, .encoder = encoder_create(tokenizer, error)};
    if (reader.encoder == NULL) {
        return -1;
    }
    PathList one = {0};
    CorpusOptions options = {.text_key = NULL, .strict = false};
    CorpusStats stats = {0};
    int result = path_list_add(&one, path, error);
    if (result == 0) {
        result = corpus_read(&one, &options, &stats, add_document, &reader, error);
        stream->skipped += stats.skipped;
        if (is_full(stream)) {
            result = 0;   // the reading was stopped from here, which is no failure
        }
    }
    path_list_free(&one);
    token_list_free(&reader.list);
    encoder_free(reader.encoder);
    return result;
}

static int append_shard(TokenStream *stream, const Shard *shard, int32_t *piece, const Tokenizer *tokenizer, size_t vocab_size,
                        bool follows_shard, Error *error)
{
    int32_t end_of_text = end_of_text_of(tokenizer);
    for (uint64_t start = 0; start < shard->count && !is_full(stream);) {
        size_t count = shard->count - start < SHARD_PIECE ? (size_t)(shard->count - start) : SHARD_PIECE;
        shard_read(shard, piece, start, count);
        for (size_t i = 0; i < count; i++) {
            if (piece[i] < 0 || (uint64_t)piece[i] >= vocab_size) {
                return error_set(
                    error,
                    "%s: token %lld at place %llu is outside the model's vocabulary of %zu: the shard was made with another tokenizer",
                    shard->path, (long long)shard_token(shard, start + i), (unsigned long long)(start + i), vocab_size);
            }
        }
        if (start == 0 && tokenizer != NULL && !follows_shard && piece[0] != end_of_text &&
            stream_append(stream, &end_of_text, 1, tokenizer, error) != 0) {
            return -1;
        }
        if (stream_append(stream, piece, count, tokenizer, error) != 0) {
            return -1;
        }
        start += count;
    }
    return 0;
}

static int read_shard(TokenStream *stream, const char *path, const Tokenizer *tokenizer, size_t vocab_size, bool follows_shard,
                      Error *error)
{
    Shard shard;
    if (shard_open(&shard, path, error) != 0) {
        return -1;
    }
    int result = 0;
    if (tokenizer != NULL && shard.tokenizer_hash != 0 && shard.tokenizer_hash != tokenizer_hash(tokenizer)) {
        result = error_set(error,
                           "%s: the shard was made with another tokenizer than the checkpoint's: evaluate the documents themselves, or "
                           "shards made with its tokenizer.json",
                           path);
    }
    int32_t *piece = NULL;
    if (result == 0) {
        piece = malloc(SHARD_PIECE * sizeof *piece);
        result = piece == NULL ? error_set(error, "out of memory while reading %s", path)
                               : append_shard(stream, &shard, piece, tokenizer, vocab_size, follows_shard, error);
    }
    free(piece);
    shard_close(&shard);
    return result;
}

int stream_read(TokenStream *stream, const PathList *files, const Tokenizer *tokenizer, size_t vocab_size, uint64_t max_targets,
                Error *error)
{
    *stream = (TokenStream){.max_count = max_targets > 0 && max_targets < SIZE_MAX ? (size_t)max_targets + 1 : SIZE_MAX};
    bool follows_shard = false;
    for (size_t i = 0; i < files->count && !is_full(stream); i++) {
        const char *path = files->items[i];
        int result = is_shard(path) ? read_shard(stream, path, tokenizer, vocab_size, follows_shard, error)
                                    : read_documents(stream, path, tokenizer, error);
        if (result != 0) {
            stream_free(stream);
            return -1;
        }
        follows_shard = is_shard(path);
    }
    if (stream->count < 2) {
        stream_free(stream);
        return error_set(error, "%s: there is no text to evaluate in the data given", files->count > 0 ? files->items[0] : "data");
    }
    return 0;
}

void stream_free(TokenStream *stream)
{
    free(stream->ids);
    *stream = (TokenStream){0};
}

// ---- scores ----

double score_loss(const Score *score) { return score->nats / (double)score->tokens; }

double score_perplexity(const Score *score) { return exp(score_loss(score)); }

double score_bits_per_byte(const Score *score) { return score->bytes > 0 ? score->nats / log(2.0) / (double)score->bytes : NAN; }

// ---- running ----

// A run of inputs that is read from the start state: inputs ids[begin] … ids[begin + length − 1], targets one further.
typedef struct Segment {
    size_t begin, length;
} Segment;

static int by_length(const void *a, const void *b)
{
    const Segment *x = a, *y = b;
    if (x->length != y->length) {
        return x->length > y->length ? -1 : 1;
    }
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

typedef struct Run {
    const Model *model;
    const Tokenizer *tokenizer;
    const TokenStream *stream;
    Workspace *workspace;
    size_t batch, piece;         // what the workspace holds
    StateLayout layout;          // of a state, for the longest segment
    float *states;               // [batch, layout.table.total]
    int32_t *tokens, *targets;   // [batch, piece]
    float *losses;               // [batch, piece]
    Score *scores;               // one, or the buckets
    bool by_position;
    uint64_t done, total;
    ScoreProgress progress;
    void *progress_context;
} Run;

static void run_close(Run *run)
{
    workspace_free(run->workspace);
    state_layout_free(&run->layout);
    free(run->states);
    free(run->tokens);
    free(run->targets);
    free(run->losses);
}

static int run_open(Run *run, size_t longest, size_t n_segments, Error *error)
{
    run->piece = longest < PIECE_TOKENS ? longest : PIECE_TOKENS;
    run->batch = BATCH_TOKENS / run->piece;
    if (run->batch > n_segments) {
        run->batch = n_segments;
    }
    size_t rows = run->batch * run->piece, beside = workspace_bytes(&run->model->config, run->batch, run->piece, WORKSPACE_INFERENCE, false);
    run->tokens = malloc(rows * sizeof *run->tokens);
    run->targets = malloc(rows * sizeof *run->targets);
    run->losses = malloc(rows * sizeof *run->losses);
    if (run->tokens == NULL || run->targets == NULL || run->losses == NULL) {
        run_close(run);
        return error_set(error, "out of memory for evaluating %zu sequences at once", run->batch);
    }
    if (state_layout_create(&run->layout, &run->model->config, longest, error) != 0 ||
        (run->states = states_create(&run->layout, run->batch, beside, error)) == NULL) {
        run_close(run);
        return -1;
    }
    run->workspace = workspace_create(run->model, run->batch, run->piece, WORKSPACE_INFERENCE, error);
    if (run->workspace == NULL) {
        run_close(run);
        return -1;
    }
    workspace_lay_out_states(run->workspace, &run->layout);
    return 0;
}

static size_t bucket_of(size_t position)
{
    size_t bucket = 0;
    for (size_t rest = position / FIRST_BUCKET; rest > 0; rest /= 2) {
        bucket++;
    }
    return bucket;
}

static void count_loss(Run *run, size_t position, int32_t target, float loss)
{
    Score *score = &run->scores[run->by_position ? bucket_of(position) : 0];
    score->bytes += bytes_of(run->tokenizer, target);
    score->tokens++;
    score->nats += loss;
}

// Reads up to `batch` segments, sorted by falling length, side by side: the longer ones go on alone when the shorter ones are done.
static int run_group(Run *run, const Segment *segments, size_t count, Error *error)
{
    const int32_t *ids = run->stream->ids;
    for (size_t i = 0; i < count; i++) {
        model_state_init(run->model, &run->layout, run->states + i * run->layout.table.total);
    }
    for (size_t start = 0; start < segments[0].length; start += run->piece) {
        size_t length = segments[0].length - start < run->piece ? segments[0].length - start : run->piece;
        while (segments[count - 1].length <= start) {
            count--;
        }
        for (size_t i = 0; i < count; i++) {
            for (size_t t = 0; t < length; t++) {
                bool inside = start + t < segments[i].length;
                size_t place = segments[i].begin + start + t;
                run->tokens[i * length + t] = inside ? ids[place] : 0;   // padding is behind the last target: it changes nothing
                run->targets[i * length + t] = inside ? ids[place + 1] : -1;
            }
        }
        model_forward(run->model, run->workspace, run->states, start, run->tokens, count, length);
        double sum = model_loss(run->losses, NULL, run->model, run->workspace, run->targets, 0.0f);
        if (!isfinite(sum)) {
            return error_set(error,
                             "the loss is not finite at token %zu of the text: the model's weights are damaged or its training went wrong",
                             segments[0].begin + start);
        }
        for (size_t i = 0; i < count; i++) {
            for (size_t t = 0; t < length && start + t < segments[i].length; t++) {
                count_loss(run, start + t, run->targets[i * length + t], run->losses[i * length + t]);
                run->done++;
            }
        }
        if (run->progress != NULL) {
            run->progress(run->progress_context, run->done, run->total);
        }
    }
    return 0;
}

static int run_segments(Run *run, Segment *segments, size_t count, Error *error)
{
    qsort(segments, count, sizeof *segments, by_length);
    for (size_t i = 0; i < count; i++) {
        run->total += segments[i].length;
    }
    if (run_open(run, segments[0].length, count, error) != 0) {
        return -1;
    }
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i += run->batch) {
        result = run_group(run, segments + i, count - i < run->batch ? count - i : run->batch, error);
    }
    run_close(run);
    return result;
}

// Consecutive windows, cut where a token is `border` (−1: nowhere). Returns how many segments that makes, at most one for each window and border.
static size_t find_windows(Segment *segments, const TokenStream *stream, size_t context, int32_t border)
{
    size_t targets = stream->count - 1, count = 0;
    for (size_t begin = 0, stop = 0, end; begin < targets; begin = end) {
        if (begin == stop) {
            stop = targets - begin < context ? targets : begin + context;
        }
        end = border < 0 ? stop : begin + 1;
        while (end < stop && stream->ids[end] != border) {
            end++;
        }
        segments[count++] = (Segment){begin, end - begin};
    }
    return count;
}

int score_context(Score *score, const Model *model, const Tokenizer *tokenizer, const TokenStream *stream, size_t context, bool reset_at_document,
                  ScoreProgress progress, void *progress_context, Error *error)
{
    size_t targets = stream->count - 1, windows = targets / context + (targets % context != 0);
    size_t most = windows + (reset_at_document ? (size_t)stream->documents : 0);   // no more than twice the tokens
    Segment *segments = most <= SIZE_MAX / sizeof *segments ? malloc(most * sizeof *segments) : NULL;
    if (segments == NULL) {
        return error_set(error, "out of memory for %zu windows", windows);
    }
    size_t count = find_windows(segments, stream, context, reset_at_document ? end_of_text_of(tokenizer) : -1);
    *score = (Score){.first = context, .last = context, .windows = windows};
    Run run = {.model = model,
               .tokenizer = tokenizer,
               .stream = stream,
               .scores = score,
               .progress = progress,
               .progress_context = progress_context};
    int result = run_segments(&run, segments, count, error);
    free(segments);
    return result;
}

// Documents begin at each <|endoftext|>; the next one's is no target. Returns how many have at least one token of text.
static size_t find_documents(Segment *segments, const TokenStream *stream, int32_t end_of_text)
{
    size_t count = 0;
    for (size_t begin = 0; begin < stream->count;) {
        size_t end = begin + 1;
        while (end < stream->count && stream->ids[end] != end_of_text) {
            end++;
        }
        if (end - begin > 1) {
            segments[count++] = (Segment){begin, end - begin - 1};
        }
        begin = end;
    }
    return count;
}

int score_positions(Score *buckets, size_t *n_buckets, const Model *model, const Tokenizer *tokenizer, const TokenStream *stream,
                    ScoreProgress progress, void *progress_context, Error *error)
{
    Segment *segments = malloc((stream->documents + 1) * sizeof *segments);
    if (segments == NULL) {
        return error_set(error, "out of memory for %llu documents", (unsigned long long)stream->documents);
    }
    size_t count = find_documents(segments, stream, tokenizer_end_of_text(tokenizer));
    if (count == 0) {
        free(segments);
        return error_set(error, "all documents are empty: nothing to evaluate by position");
    }
    memset(buckets, 0, SCORE_MAX_BUCKETS * sizeof *buckets);
    *n_buckets = 0;
    for (size_t i = 0; i < count; i++) {
        size_t last = bucket_of(segments[i].length - 1);
        for (size_t b = 0; b <= last; b++) {
            buckets[b].windows++;
        }
        *n_buckets = last + 1 > *n_buckets ? last + 1 : *n_buckets;
    }
    for (size_t b = 0; b < *n_buckets; b++) {
        buckets[b].first = b == 0 ? 0 : (uint64_t)FIRST_BUCKET << (b - 1);
        buckets[b].last = ((uint64_t)FIRST_BUCKET << b) - 1;
    }
    Run run = {.model = model,
               .tokenizer = tokenizer,
               .stream = stream,
               .scores = buckets,
               .by_position = true,
               .progress = progress,
               .progress_context = progress_context};
    int result = run_segments(&run, segments, count, error);
    free(segments);
    return result;
}
