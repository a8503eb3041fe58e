// prepare: documents in, tokenizer and token shards out (main).
#include "data/prepare.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/expand.h"
#include "base/program.h"
#include "data/where.h"

// Writes one document as a JSON line. Bytes that are no valid UTF-8 go out as they came in.
static int print_document(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    (void)context;
    (void)index;
    fputs("{\"text\": \"", stdout);
    size_t plain = 0;   // bytes before `i` that go out as they are
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte >= 32 && byte != '"' && byte != '\\') {
            plain++;
            continue;
        }
        fwrite(text + i - plain, 1, plain, stdout);
        plain = 0;
        if (byte == '\n') {
            fputs("\\n", stdout);
        } else if (byte < 32) {
            printf("\\u%04x", byte);
        } else {
            printf("\\%c", byte);
        }
    }
    fwrite(text + length - plain, 1, plain, stdout);
    fputs("\"}\n", stdout);
    return ferror(stdout) ? error_set(error, "cannot write to standard output: %s", strerror(errno)) : 0;
}

static int print_documents(const PathList *files, const CorpusOptions *options, Error *error)
{
    CorpusStats stats;
    if (corpus_read(files, options, &stats, print_document, NULL, error) != 0) {
        return -1;
    }
    return fflush(stdout) != 0 ? error_set(error, "cannot write to standard output: %s", strerror(errno)) : 0;
}

// The signal that asked to stop; 0: none.
static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    if (stop_signal != 0 && program_stops_at_once(number)) {
        _exit(128 + number);
    }
    stop_signal = number;
}

int main(int argc, char **argv)
{
    PrepareOptions options;
    prepare_defaults(&options);
    const char *out = NULL;
    bool print = false;
    ArgSpec specs[] = {
        {.name = "out", .short_name = 'o', .kind = ARG_STRING, .target = &out, .value = "DIR", .help = "folder for tokenizer and shards"},
        {.name = "tokenizer", .kind = ARG_STRING, .target = &options.tokenizer_path, .value = "FILE",
         .help = "tokenizer.json to use; without it one is trained on the training documents"},
        {.name = "vocab-size", .kind = ARG_SIZE, .target = &options.vocab_size, .value = "N", .help = "ids of the tokenizer to train",
         .min = 257, .max = 1e6},
        {.name = "val-fraction", .kind = ARG_REAL, .target = &options.val_fraction, .value = "X",
         .help = "share of the documents kept for validation (0: none; with very few documents, of each one's tail)", .min = 0, .max = 0.9},
        {.name = "shard-tokens", .kind = ARG_SIZE, .target = &options.shard_tokens, .value = "N", .help = "most tokens in one shard",
         .min = 1, .max = 1e12},
        {.name = "text-key", .kind = ARG_STRING, .target = &options.corpus.text_key, .value = "KEY",
         .help = "JSON key or column of the text; else \"text\", \"content\", or the only string there is"},
        {.name = "where", .kind = ARG_STRING, .target = &options.corpus.where, .value = "COND",
         .help = "only records with such a number, as 'int_score>=3' (>= > <= < == !=)"},
        {.name = "dedup", .kind = ARG_SWITCH, .target = &options.corpus.dedup, .help = "of equal documents only the first is taken"},
        {.name = "strict", .kind = ARG_SWITCH, .target = &options.corpus.strict,
         .help = "a bad record, or a file of unknown kind in a folder, is an error instead of being skipped"},
        {.name = "threads", .kind = ARG_SIZE, .target = &options.threads, .value = "N",
         .help = "threads; 0: all (the output is the same)", .min = 0, .max = 1024},
        {.name = "print-documents", .kind = ARG_SWITCH, .target = &print,
         .help = "only write the documents read as JSON lines {\"text\": ...} to standard output"},
    };
    ArgProgram program = {
        .name = "prepare",
        .usage = "DOCS... --out DIR [flags]",
        .description = "Makes a tokenizer and token shards for ./train from documents: files, folders or quoted globs of .txt (one document\n"
                       "each), .jsonl (one a line) and .parquet (one a row). There are\n"
                       CORPUS_FORMS ".\n"
                       "A folder that is complete already is left as it is.\n"
                       "Example: ./prepare books/ 'web/*.jsonl' --out data --vocab-size 8192",
        .specs = specs,
        .n_specs = sizeof specs / sizeof specs[0],
        .min_positional = 1,
        .max_positional = SIZE_MAX,
    };
    size_t n_documents;
    args_parse(&program, argc, argv, &n_documents);
    if (!print && out == NULL) {
        args_usage_error(&program, "--out DIR is missing: name the folder for tokenizer and shards");
    }
    if (options.tokenizer_path != NULL && specs[2].given) {
        args_usage_error(&program, "--tokenizer and --vocab-size exclude each other: a given tokenizer has its size");
    }
    Error error;
    Where where;
    if (options.corpus.where != NULL && where_parse(&where, options.corpus.where, &error) != 0) {
        args_usage_error(&program, "--where: %s", error.text);
    }
    PathList files = {0}, rest = {0};
    options.rest = &rest;
    int result = path_expand_with_rest(&files, &rest, argv + 1, n_documents, corpus_accepts, &error);
    if (result == 0 && print) {
        result = corpus_check_rest(&rest, options.corpus.strict, &error) != 0 ? -1 : print_documents(&files, &options.corpus, &error);
    } else if (result == 0) {
        program_catch_stop(on_signal, false);
        options.stop = &stop_signal;
        result = prepare_documents(&files, out, &options, &error);
    }
    path_list_free(&files);
    path_list_free(&rest);
    if (result != 0 && stop_signal != 0) {
        fprintf(stderr, "%s\n", error.text);
        return 128 + stop_signal;
    }
    return result == 0 ? 0 : args_fail(&error);
}
