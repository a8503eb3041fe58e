// ./eval_ppl: perplexity and bits per byte across context lengths and by position; as a table, JSON, CSV and a chart.

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/expand.h"
#include "base/file.h"
#include "base/json.h"
#include "base/plot.h"
#include "base/progress.h"
#include "data/prepare.h"
#include "infer/output.h"
#include "infer/perplexity.h"
#include "infer/runtime.h"

#define MAX_CONTEXTS 64

static const char STRIDE_TEXT[] = "the context: consecutive windows, each from the model's start state; the last, shorter window counts";
static const char START_TEXT[] =
    "<|endoftext|> before each document; a document's closing <|endoftext|> is a target where another document follows";
static const char RESET_START_TEXT[] =
    "<|endoftext|> before each document, where the model starts anew; a document's closing <|endoftext|> is a target where another document follows";
static const char BARE_START_TEXT[] = "the shards' first token: without a tokenizer nothing is put before it";
static const char POSITION_TEXT[] = "each document read once with carried state; <|endoftext|> is read at position 0 and is no target";

typedef struct Options {
    const char *contexts, *tokenizer, *dtype, *json, *csv, *plot;
    WeightType weights;   // what `dtype` names
    int64_t max_tokens, threads;
    bool by_position, reset_at_document;
} Options;

typedef struct Report {
    const char *checkpoint;
    TokenStream stream;
    size_t contexts[MAX_CONTEXTS], n_contexts;   // asked for
    size_t skipped[MAX_CONTEXTS], n_skipped;     // longer than the text
    Score scores[MAX_CONTEXTS];
    size_t n_scores;
    Score positions[SCORE_MAX_BUCKETS];
    size_t n_positions;
    bool by_position, reset_at_document;
    bool has_tokenizer;   // else documents and bytes are unknown
} Report;

typedef struct Watch {
    Progress line;
    const char *what;
    double start;
} Watch;

static void show_progress(void *context, uint64_t done, uint64_t total)
{
    Watch *watch = context;
    double seconds = seconds_now() - watch->start;
    char left[32];
    progress_show(&watch->line, false, "%s: %.0f %% of %" PRIu64 " tokens, %.0f tokens/s, %s left", watch->what,
                  100.0 * (double)done / (double)total, total, (double)done / (seconds > 0.0 ? seconds : 1e-9),
                  format_duration(left, seconds / (double)done * (double)(total - done)));
}

static int parse_contexts(Report *report, const char *text, Error *error)
{
    char item[32];
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        int64_t value = 0;
        if (length == 0 || length >= sizeof item) {
            return error_set(error, "--contexts %s: write lengths with commas between them, such as 512,1k,2k", text);
        }
        memcpy(item, at, length);
        item[length] = '\0';
        if (args_size(item, 1024, &value, error) != 0) {
            return error_prefix(error, "--contexts");
        }
        if (value < 1) {
            return error_set(error, "--contexts %s: a context has at least 1 token", text);
        }
        if (report->n_contexts == MAX_CONTEXTS) {
            return error_set(error, "--contexts: at most %d lengths", MAX_CONTEXTS);
        }
        report->contexts[report->n_contexts++] = (size_t)value;
        at += length;
        if (*at == '\0') {
            return 0;
        }
    }
}

// Lists the files. Of a folder made by ./prepare only the validation part is meant: the rest is what the model was trained on.
static int list_data(PathList *files, char *const *arguments, size_t count, Error *error)
{
    for (size_t i = 0; i < count; i++) {
        char *shards = path_join(arguments[i], "val_*.bin");
        int result = shards != NULL ? prepare_check_finished(arguments[i], error) : error_set(error, "out of memory");
        if (result == 0 && folder_holds(arguments[i], "prepare.json")) {
            fprintf(stderr, "%s was made by ./prepare: its validation shards are used\n", arguments[i]);
            result = folder_holds(arguments[i], "val_000000.bin")
                         ? path_expand(files, &shards, 1, stream_accepts, error)
                         : error_set(error, "%s has no validation split: give other text, or prepare it again with --val-fraction", arguments[i]);
        } else if (result == 0) {
            result = path_expand(files, &arguments[i], 1, stream_accepts, error);
        }
        free(shards);
        if (result != 0) {
            return -1;
        }
    }
    return 0;
}

static int score_all(Report *report, const Runtime *runtime, Error *error)
{
    Watch watch = {.what = "", .start = 0.0};
    progress_init(&watch.line);
    size_t targets = report->stream.count - 1, n_run = 0, run[MAX_CONTEXTS];
    for (size_t i = 0; i < report->n_contexts; i++) {
        if (report->contexts[i] > targets) {
            fprintf(stderr, "context %zu is skipped: the text has only %zu tokens\n", report->contexts[i], targets);
            report->skipped[report->n_skipped++] = report->contexts[i];
        } else {
            run[n_run++] = report->contexts[i];
        }
    }
    if (n_run == 0) {
        fprintf(stderr, "no context fits into the text: all of it is scored as one window\n");
        run[n_run++] = targets;
    }
    int result = 0;
    char what[48];
    for (size_t i = 0; i < n_run && result == 0; i++) {
        snprintf(what, sizeof what, "context %zu", run[i]);
        watch.what = what;
        watch.start = seconds_now();
        result =
            score_context(&report->scores[i], &runtime->model, runtime->tokenizer, &report->stream, run[i], report->reset_at_document, show_progress,
                          &watch, error);
        report->n_scores = i + 1;
    }
    if (result == 0 && report->by_position) {
        watch.what = "by position";
        watch.start = seconds_now();
        result = score_positions(report->positions, &report->n_positions, &runtime->model, runtime->tokenizer, &report->stream,
                                 show_progress, &watch, error);
    }
    progress_break(&watch.line);
    return result;
}

static void print_text(const Report *report)
{
    const TokenStream *stream = &report->stream;
    if (!report->has_tokenizer) {
        printf("text    %zu tokens; bits per byte are unknown without a tokenizer\n", stream->count - 1);
        return;
    }
    printf("text    %" PRIu64 " documents, %zu tokens, %" PRIu64 " bytes", stream->documents, stream->count - 1, stream->bytes);
    if (stream->skipped > 0) {
        printf(", %" PRIu64 " unreadable or empty records skipped", stream->skipped);
    }
    putchar('\n');
}

static const char *start_text(const Report *report)
{
    return !report->has_tokenizer ? BARE_START_TEXT : report->reset_at_document ? RESET_START_TEXT : START_TEXT;
}

static void print_report(const Report *report)
{
    printf("model   %s\n", report->checkpoint);
    print_text(report);
    printf("stride  %s\nstart   %s\n\n", STRIDE_TEXT, start_text(report));
    printf("%10s %10s %12s %10s %12s%s\n", "context", "windows", "tokens", "loss", "perplexity", report->has_tokenizer ? "  bits/byte" : "");
    for (size_t i = 0; i < report->n_scores; i++) {
        const Score *score = &report->scores[i];
        printf("%10" PRIu64 " %10" PRIu64 " %12" PRIu64 " %10.5f %12.4f", score->last, score->windows, score->tokens, score_loss(score),
               score_perplexity(score));
        if (report->has_tokenizer) {
            printf(" %10.5f", score_bits_per_byte(score));
        }
        putchar('\n');
    }
    if (!report->by_position) {
        return;
    }
    printf("\nby position: %s\n\n%21s %10s %12s %10s %12s %10s\n", POSITION_TEXT, "position", "documents", "tokens", "loss", "perplexity",
           "bits/byte");
    for (size_t i = 0; i < report->n_positions; i++) {
        const Score *score = &report->positions[i];
        printf("%10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %12" PRIu64 " %10.5f %12.4f %10.5f\n", score->first, score->last, score->windows,
               score->tokens, score_loss(score), score_perplexity(score), score_bits_per_byte(score));
    }
}

// ---- JSON ----

static bool add_score(cJSON *list, const Score *score, bool position)
{
    cJSON *object = cJSON_CreateObject();
    if (object == NULL || !cJSON_AddItemToArray(list, object)) {
        cJSON_Delete(object);
        return false;
    }
    bool ok = position ? cJSON_AddNumberToObject(object, "first", (double)score->first) != NULL &&
                             cJSON_AddNumberToObject(object, "last", (double)score->last) != NULL
                       : cJSON_AddNumberToObject(object, "context", (double)score->last) != NULL;
    return ok && cJSON_AddNumberToObject(object, position ? "documents" : "windows", (double)score->windows) != NULL &&
           cJSON_AddNumberToObject(object, "tokens", (double)score->tokens) != NULL &&
           cJSON_AddNumberToObject(object, "bytes", (double)score->bytes) != NULL &&
           cJSON_AddNumberToObject(object, "loss", score_loss(score)) != NULL &&
           cJSON_AddNumberToObject(object, "perplexity", score_perplexity(score)) != NULL &&
           cJSON_AddNumberToObject(object, "bits_per_byte", score_bits_per_byte(score)) != NULL;
}

static bool fill_json(cJSON *root, const Report *report)
{
    bool ok = cJSON_AddStringToObject(root, "checkpoint", report->checkpoint) != NULL &&
              cJSON_AddNumberToObject(root, "documents", (double)report->stream.documents) != NULL &&
              cJSON_AddNumberToObject(root, "tokens", (double)(report->stream.count - 1)) != NULL &&
              cJSON_AddNumberToObject(root, "bytes", (double)report->stream.bytes) != NULL &&
              cJSON_AddStringToObject(root, "stride", STRIDE_TEXT) != NULL && cJSON_AddStringToObject(root, "start", start_text(report)) != NULL;
    cJSON *contexts = ok ? cJSON_AddArrayToObject(root, "contexts") : NULL;
    ok = contexts != NULL;
    for (size_t i = 0; i < report->n_scores && ok; i++) {
        ok = add_score(contexts, &report->scores[i], false);
    }
    cJSON *skipped = ok ? cJSON_AddArrayToObject(root, "skipped_contexts") : NULL;
    ok = skipped != NULL;
    for (size_t i = 0; i < report->n_skipped && ok; i++) {
        ok = cJSON_AddItemToArray(skipped, cJSON_CreateNumber((double)report->skipped[i]));
    }
    cJSON *positions = ok && report->by_position ? cJSON_AddArrayToObject(root, "positions") : NULL;
    for (size_t i = 0; i < report->n_positions && positions != NULL && ok; i++) {
        ok = add_score(positions, &report->positions[i], true);
    }
    return ok && (positions != NULL) == report->by_position;
}

static int write_json(const Report *report, const char *path, Error *error)
{
    cJSON *root = cJSON_CreateObject();
    int result = root != NULL && fill_json(root, report) ? json_write_file(path, root, true, error)
                                                         : error_set(error, "out of memory while writing %s", path);
    cJSON_Delete(root);
    return result;
}

// ---- CSV and chart ----

static void add_csv_rows(FILE *out, const char *kind, const Score *scores, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const Score *score = &scores[i];
        fprintf(out, "%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.9g,%.9g,", kind, score->first, score->last,
                score->windows, score->tokens, score->bytes, score_loss(score), score_perplexity(score));
        if (score->bytes > 0) {
            fprintf(out, "%.9g", score_bits_per_byte(score));
        }
        fputc('\n', out);
    }
}

static int write_csv(const Report *report, const char *path, Error *error)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return error_set(error, "out of memory while writing %s", path);
    }
    fprintf(out, "kind,first,last,windows,tokens,bytes,loss,perplexity,bits_per_byte\n");
    add_csv_rows(out, "context", report->scores, report->n_scores);
    add_csv_rows(out, "position", report->positions, report->n_positions);
    bool failed = ferror(out) != 0;
    failed = fclose(out) != 0 || failed;
    int result = failed ? error_set(error, "out of memory while writing %s", path) : file_write_atomic(path, text, size, error);
    free(text);
    return result;
}

static int write_plot(const Report *report, const char *path, Error *error)
{
    double x[2][MAX_CONTEXTS], y[2][MAX_CONTEXTS];
    for (size_t i = 0; i < report->n_scores; i++) {
        x[0][i] = (double)report->scores[i].last;
        y[0][i] = score_perplexity(&report->scores[i]);
    }
    for (size_t i = 0; i < report->n_positions; i++) {
        x[1][i] = (double)(report->positions[i].last + 1);
        y[1][i] = score_perplexity(&report->positions[i]);
    }
    PlotSeries series[] = {
        {"windows of this context", x[0], y[0], report->n_scores},
        {"by position (end of bucket)", x[1], y[1], report->n_positions},
    };
    char title[128];
    snprintf(title, sizeof title, "Perplexity, %s", path_base(report->checkpoint));
    Plot plot = {title, report->by_position ? "context length, or position, in tokens" : "context length in tokens", "perplexity", series,
                 report->by_position ? 2 : 1};
    return plot_write_png(&plot, path, error);
}

static int write_files(const Report *report, const Options *options, Error *error)
{
    if (options->json != NULL && write_json(report, options->json, error) != 0) {
        return -1;
    }
    if (options->csv != NULL && write_csv(report, options->csv, error) != 0) {
        return -1;
    }
    return options->plot != NULL ? write_plot(report, options->plot, error) : 0;
}

static int check_files(const Options *options, const PathList *data, Error *error)
{
    const OutputFile outputs[] = {{"--json", options->json}, {"--csv", options->csv}, {"--plot", options->plot}};
    return output_check(outputs, sizeof outputs / sizeof outputs[0], data->items, data->count, error);
}

static int score_files(Report *report, const Runtime *runtime, const Options *options, const PathList *files, Error *error)
{
    report->checkpoint = runtime->folder;
    report->has_tokenizer = runtime->tokenizer != NULL;
    if ((report->by_position || report->reset_at_document) && !report->has_tokenizer) {
        return error_set(error, "--%s needs to know where documents begin, and the checkpoint has no tokenizer: give --tokenizer FILE",
                         report->by_position ? "by-position" : "reset-at-document");
    }
    int result = stream_read(&report->stream, files, runtime->tokenizer, (size_t)runtime->model.config.vocab_size,
                             (uint64_t)options->max_tokens, error);
    if (result == 0) {
        result = score_all(report, runtime, error);
    }
    if (result == 0) {
        print_report(report);
        result = fflush(stdout) == 0 && !ferror(stdout) ? write_files(report, options, error)
                                                        : error_set(error, "cannot write to standard output: %s", strerror(errno));
    }
    stream_free(&report->stream);
    return result;
}

static int evaluate(Report *report, const Options *options, char *const *arguments, size_t n_arguments, Error *error)
{
    Runtime runtime;
    PathList files = {0};
    int result = list_data(&files, arguments + 1, n_arguments - 1, error);
    if (result == 0) {
        result = check_files(options, &files, error);
    }
    if (result == 0 && (result = runtime_open(&runtime, arguments[0], options->tokenizer, options->weights, options->threads, error)) == 0) {
        result = score_files(report, &runtime, options, &files, error);
        runtime_close(&runtime);
    }
    path_list_free(&files);
    return result;
}

int main(int argc, char **argv)
{
    Options options = {.contexts = "512,1k,2k,4k,8k,16k", .dtype = "f32"};
    ArgSpec specs[] = {
        {.name = "contexts", .kind = ARG_STRING, .target = &options.contexts, .value = "LIST",
         .help = "lengths of windows in tokens", .binary = true},
        {.name = "tokenizer", .kind = ARG_STRING, .target = &options.tokenizer, .value = "FILE",
         .help = "tokenizer.json for a checkpoint without one (without either: shards only, no bits per byte)"},
        {.name = "max-tokens", .kind = ARG_SIZE, .target = &options.max_tokens, .value = "N",
         .help = "score only the first N tokens of the text; 0 all", .min = 0, .max = 1e15},
        {.name = "by-position", .kind = ARG_SWITCH, .target = &options.by_position,
         .help = "read each document once and score by position in it, too"},
        {.name = "reset-at-document", .kind = ARG_SWITCH, .target = &options.reset_at_document,
         .help = "the model forgets at each <|endoftext|> inside a window, before reading it, as in training with this flag"},
        {.name = "json", .kind = ARG_STRING, .target = &options.json, .value = "FILE", .help = "write all figures as JSON"},
        {.name = "csv", .kind = ARG_STRING, .target = &options.csv, .value = "FILE", .help = "write the table as CSV"},
        {.name = "plot", .kind = ARG_STRING, .target = &options.plot, .value = "FILE.png",
         .help = "draw perplexity against context length"},
        {.name = "dtype", .kind = ARG_STRING, .target = &options.dtype, .value = "TYPE", .help = "weights in f32, bf16 or int8, as ./generate has them"},
        {.name = "threads", .kind = ARG_SIZE, .target = &options.threads, .value = "N",
         .help = "threads; 0 all cores", .min = 0, .max = 1024},
    };
    ArgProgram program = {
        .name = "eval_ppl",
        .usage = "CKPT DATA... [flags]",
        .description = "Perplexity and bits per byte of a trained model on a text. CKPT is a checkpoint folder, or the folder of a\n"
                       "training run (its newest good checkpoint). DATA are documents or token shards (.bin), as files, folders or quoted\n"
                       "globs, or a folder that ./prepare made (its validation split); documents are\n"
                       CORPUS_FORMS ".\n"
                       "The text is cut into consecutive windows; every context length scores the same tokens.\n"
                       "Example: ./eval_ppl runs/nano book.txt --contexts 512,1k,2k --by-position --plot ppl.png",
        .specs = specs,
        .n_specs = sizeof specs / sizeof specs[0],
        .min_positional = 2,
        .max_positional = SIZE_MAX,
    };
    size_t n_positional = 0;
    args_parse(&program, argc, argv, &n_positional);
    Report report = {0};
    Error error;
    if (parse_contexts(&report, options.contexts, &error) != 0) {
        args_usage_error(&program, "%s", error.text);
    }
    if (weight_type_parse(&options.weights, options.dtype, &error) != 0) {
        args_usage_error(&program, "--dtype %s", error.text);
    }
    report.by_position = options.by_position;
    report.reset_at_document = options.reset_at_document;
    return evaluate(&report, &options, argv + 1, n_positional, &error) == 0 ? 0 : args_fail(&error);
}
