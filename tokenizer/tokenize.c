// ./tokenize: text to ids, ids to text, what a tokenizer file is, and training of a tokenizer.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/args.h"
#include "base/expand.h"
#include "base/progress.h"
#include "data/corpus.h"
#include "tokenizer/bpe_internal.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/byte_map.h"
#include "tokenizer/pretokenize.h"

enum {
    READ_BYTES = 1 << 23,     // text held at once while encoding, unless it cannot be cut
    BATCH_BYTES = 1 << 23,    // documents gathered before the threads count them
    PIECE_BYTES = 1 << 18,    // what a thread takes at a time
};

static int write_out(const char *text, size_t length, Error *error)
{
    if (fwrite(text, 1, length, stdout) != length) {
        return error_set(error, "cannot write to standard output: %s", strerror(errno));
    }
    return 0;
}

static int flush_out(Error *error)
{
    return fflush(stdout) == 0 ? 0 : error_set(error, "cannot write to standard output: %s", strerror(errno));
}

static int write_ids(const TokenList *list, Error *error)
{
    char text[4096] = {0};
    size_t used = 0;
    for (size_t i = 0; i < list->count; i++) {
        char digits[12];
        size_t n = sizeof digits;
        digits[--n] = '\n';
        uint32_t id = (uint32_t)list->ids[i];
        do {
            digits[--n] = (char)('0' + id % 10);
            id /= 10;
        } while (id > 0);
        if (used + sizeof digits > sizeof text) {
            if (write_out(text, used, error) != 0) {
                return -1;
            }
            used = 0;
        }
        memcpy(text + used, digits + n, sizeof digits - n);
        used += sizeof digits - n;
    }
    return write_out(text, used, error);
}

// Encodes standard input in pieces whose ids are those of the whole.
static int encode_stream(const Tokenizer *tokenizer, Encoder *encoder, bool specials, Error *error)
{
    char *text = NULL;
    size_t used = 0, capacity = 0;
    TokenList list = {0};
    int status = 0;
    bool end = false;
    while (status == 0 && !end) {
        if (array_reserve(&text, &capacity, used + READ_BYTES, 1) != 0) {
            status = error_set(error, "out of memory for %zu bytes of text without a place to cut", used + READ_BYTES);
            break;
        }
        used += fread(text + used, 1, capacity - used, stdin);
        end = used < capacity;
        if (ferror(stdin)) {
            status = error_set(error, "cannot read standard input: %s", strerror(errno));
            break;
        }
        size_t cut = end ? used : tokenizer_cut(tokenizer, text, used, used - 1);
        list.count = 0;
        status = encoder_encode(encoder, &list, text, cut, specials, error);
        status = status == 0 ? write_ids(&list, error) : status;
        memmove(text, text + cut, used - cut);
        used -= cut;
    }
    free(text);
    token_list_free(&list);
    return status == 0 ? flush_out(error) : status;
}

static int encode(const Tokenizer *tokenizer, bool specials, Error *error)
{
    Encoder *encoder = encoder_create(tokenizer, error);
    int status = encoder != NULL ? encode_stream(tokenizer, encoder, specials, error) : -1;
    encoder_free(encoder);
    return status;
}

// Parses a line that holds one id and nothing else. Returns the token's bytes, or NULL with `error` set.
static const char *token_of_line(const Tokenizer *tokenizer, const char *line, size_t length, uint64_t number, size_t *token_length,
                                 Error *error)
{
    size_t digits = strspn(line, "0123456789");
    bool whole = digits > 0 && digits == length;
    const char *token = NULL;
    if (whole && digits <= 9) {
        token = tokenizer_token(tokenizer, (int32_t)strtol(line, NULL, 10), token_length);
    }
    if (token == NULL) {
        error_set(error, "standard input: line %" PRIu64 ": \"%.40s\" is %s: ids go from 0 to %zu, one a line", number, line,
                  whole ? "out of range" : "no id", tokenizer_vocab_size(tokenizer) - 1);
    }
    return token;
}

static int decode(const Tokenizer *tokenizer, Error *error)
{
    char *line = NULL;
    size_t capacity = 0;
    uint64_t number = 0;
    int status = 0;
    ssize_t length;
    while (status == 0 && (length = getline(&line, &capacity, stdin)) >= 0) {
        number++;
        if (length > 0 && line[length - 1] == '\n') {
            line[--length] = 0;
        }
        size_t token_length = 0;
        const char *token = token_of_line(tokenizer, line, (size_t)length, number, &token_length, error);
        if (token != NULL && number == 1 && tokenizer_strips_first_space(tokenizer) && token_length > 0 && token[0] == ' ') {
            token++;
            token_length--;
        }
        status = token != NULL ? write_out(token, token_length, error) : -1;
    }
    free(line);
    if (status == 0 && ferror(stdin)) {
        status = error_set(error, "cannot read standard input: %s", strerror(errno));
    }
    return flush_out(status == 0 ? error : NULL) != 0 ? -1 : status;
}

static int show(const Tokenizer *tokenizer, const char *path, Error *error)
{
    size_t longest = 0, length = 0;
    for (size_t id = 0; id < tokenizer->vocab_size; id++) {
        tokenizer_token(tokenizer, (int32_t)id, &length);
        longest = length > longest ? length : longest;
    }
    printf("file            %s\n", path);
    printf("form            %s\n", tokenizer->form);
    printf("kind            %s BPE\n", tokenizer->pipeline.byte_level ? "byte-level" : "character");
    printf("text            %s\n", tokenizer->pipeline.description[0] != 0 ? tokenizer->pipeline.description : "as it is");
    printf("vocabulary      %zu tokens\n", tokenizer_vocab_size(tokenizer));
    printf("merges          %zu\n", tokenizer->n_merges);
    printf("longest token   %zu bytes\n", longest);
    const char *end = tokenizer_token(tokenizer, tokenizer_end_of_text(tokenizer), &length);
    printf("end of text     %" PRId32 " ", tokenizer_end_of_text(tokenizer));
    for (size_t i = 0; i < length; i++) {
        putchar((unsigned char)end[i] < 32 ? ' ' : end[i]);
    }
    printf("\n");
    printf("added tokens    %zu\n", tokenizer->n_added);
    printf("hash            %08" PRIx32 "\n", tokenizer_hash(tokenizer));
    return flush_out(error);
}

// Documents that wait to be counted, as pieces of one text.
typedef struct Batch {
    BpeTrainer *trainer;
    int threads;
    char *text;
    size_t used, capacity;
    size_t *ends;              // where each piece ends
    size_t n_pieces, ends_capacity;
    Progress progress;
    CorpusStats stats;
    uint64_t total_bytes;
} Batch;

static int count_batch(Batch *batch, Error *error)
{
    int failed = 0;
    Error first = {0};
#pragma omp parallel for schedule(dynamic) num_threads(batch->threads)
    for (size_t i = 0; i < batch->n_pieces; i++) {
        size_t start = i > 0 ? batch->ends[i - 1] : 0, slot = 0;
        Error own = {0};
#ifdef _OPENMP
        slot = (size_t)omp_get_thread_num();
#endif
        if (bpe_trainer_add(batch->trainer, slot, batch->text + start, batch->ends[i] - start, &own) != 0) {
#pragma omp critical
            {
                failed = 1;
                first = own;
            }
        }
    }
    batch->used = batch->n_pieces = 0;
    return failed ? error_set(error, "%s", first.text) : 0;
}

static int add_document(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    Batch *batch = context;
    (void)index;
    if (array_reserve(&batch->text, &batch->capacity, batch->used + length, 1) != 0) {
        return error_set(error, "out of memory for a document of %zu bytes", length);
    }
    memcpy(batch->text + batch->used, text, length);
    while (length > 0) {
        size_t piece = length > PIECE_BYTES ? pretokenize_cut(text, length, PIECE_BYTES) : 0;
        piece = piece > 0 ? piece : length;
        if (array_reserve(&batch->ends, &batch->ends_capacity, batch->n_pieces + 1, sizeof *batch->ends) != 0) {
            return error_set(error, "out of memory for a document of %zu bytes", length);
        }
        batch->used += piece;
        batch->ends[batch->n_pieces++] = batch->used;
        text += piece;
        length -= piece;
    }
    char done[32], all[32];
    progress_show(&batch->progress, false, "counting words: %s of %s", format_bytes(done, (double)batch->stats.bytes),
                  format_bytes(all, (double)batch->total_bytes));
    return batch->used >= BATCH_BYTES ? count_batch(batch, error) : 0;
}

static Tokenizer *learn(Batch *batch, const PathList *files, const CorpusOptions *options, size_t vocab_size, Error *error)
{
    Tokenizer *tokenizer = NULL;
    batch->trainer = bpe_trainer_create(error);
    if (batch->trainer != NULL && corpus_read(files, options, &batch->stats, add_document, batch, error) == 0
        && count_batch(batch, error) == 0) {
        progress_show(&batch->progress, true, "learning %zu tokens", vocab_size);
        tokenizer = bpe_trainer_finish(batch->trainer, vocab_size, error);
    }
    progress_break(&batch->progress);
    bpe_trainer_free(batch->trainer);
    free(batch->text);
    free(batch->ends);
    return tokenizer;
}

static int train(char *const *documents, size_t n_documents, const CorpusOptions *options, size_t vocab_size, const char *out, int threads,
                 Error *error)
{
    double start = seconds_now();
    PathList files = {0}, rest = {0};
    Batch batch = {.threads = threads};
    Tokenizer *tokenizer = NULL;
    progress_init(&batch.progress);
    if (path_expand_with_rest(&files, &rest, documents, n_documents, corpus_accepts, error) == 0) {
        char skipped[256];
        if (rest.count > 0) {
            fprintf(stderr, "%s\n", corpus_describe_rest(skipped, sizeof skipped, &rest));
        }
        batch.total_bytes = corpus_bytes(&files);
        tokenizer = learn(&batch, &files, options, vocab_size, error);
    }
    int status = tokenizer != NULL ? tokenizer_save(tokenizer, out, error) : -1;
    if (status == 0) {
        char bytes[32], duration[32];
        size_t learnt = tokenizer_vocab_size(tokenizer);
        fprintf(stderr, "%s: %zu tokens from %" PRIu64 " documents, %s, in %s\n", out, learnt, batch.stats.documents,
                format_bytes(bytes, (double)batch.stats.bytes), format_duration(duration, seconds_now() - start));
        if (learnt < vocab_size) {
            fprintf(stderr, "note: the text was too little for %zu tokens\n", vocab_size);
        }
    }
    tokenizer_free(tokenizer);
    path_list_free(&files);
    path_list_free(&rest);
    return status;
}

static int default_threads(void)
{
#ifdef _OPENMP
    int threads = omp_get_max_threads();
    return threads < BPE_TRAINER_SLOTS ? threads : BPE_TRAINER_SLOTS;
#else
    return 1;
#endif
}

int main(int argc, char **argv)
{
    const char *tokenizer_path = NULL, *pattern = NULL, *out = NULL;
    bool decoding = false, info = false, training = false, specials = true;
    int64_t vocab_size = 8192, threads = 0;
    CorpusOptions options = {0};
    ArgSpec specs[] = {
        {.name = "tokenizer", .kind = ARG_STRING, .target = &tokenizer_path, .value = "FILE",
         .help = "tokenizer to use: tokenizer.json, tiktoken's ranks, vocab.json or vocab.bpe, tokenizer.bin"},
        {.name = "pattern", .kind = ARG_STRING, .target = &pattern, .value = "NAME",
         .help = "what cuts text for tiktoken's ranks: cl100k_base, llama3, ... or a regular expression"},
        {.name = "decode", .kind = ARG_SWITCH, .target = &decoding, .help = "ids, one a line, to text"},
        {.name = "info", .kind = ARG_SWITCH, .target = &info, .help = "say what the tokenizer file is"},
        {.name = "specials", .kind = ARG_SWITCH, .target = &specials, .help = "text of special tokens becomes their id (--no-specials: plain text)"},
        {.name = "train", .kind = ARG_SWITCH, .target = &training, .help = "train a tokenizer on DOCS"},
        {.name = "vocab-size", .kind = ARG_SIZE, .target = &vocab_size, .value = "N",
         .help = "--train: ids in all", .min = BPE_TRAINER_MIN_VOCAB, .max = MAX_VOCAB},
        {.name = "out", .kind = ARG_STRING, .target = &out, .value = "FILE",
         .help = "--train: file to write; without: write the tokenizer as a tokenizer.json"},
        {.name = "text-key", .kind = ARG_STRING, .target = &options.text_key, .value = "KEY", .help = "--train: key of the text in records"},
        {.name = "strict", .kind = ARG_SWITCH, .target = &options.strict, .help = "--train: a bad record is an error"},
        {.name = "threads", .kind = ARG_SIZE, .target = &threads, .value = "N",
         .help = "--train: threads, 0 = all", .min = 0, .max = BPE_TRAINER_SLOTS},
    };
    const ArgProgram program = {
        .name = "tokenize",
        .usage = "--tokenizer FILE [--decode | --info | --out tokenizer.json] < IN > OUT\n       ./tokenize --train DOCS... --vocab-size N --out tokenizer.json",
        .description = "Turns text from standard input into ids, one a line, or ids back into text; or trains a byte-level BPE tokenizer\n"
                       "(HuggingFace's tokenizer.json) on documents.",
        .specs = specs,
        .n_specs = sizeof specs / sizeof *specs,
        .max_positional = SIZE_MAX,
    };
    size_t n_documents = 0;
    args_parse(&program, argc, argv, &n_documents);
    if (training && (n_documents == 0 || out == NULL || tokenizer_path != NULL || pattern != NULL || decoding || info)) {
        args_usage_error(&program, "--train needs documents and --out FILE, and goes without --tokenizer, --pattern, --decode and --info");
    }
    if (!training && (tokenizer_path == NULL || n_documents > 0 || decoding + info + (out != NULL) > 1)) {
        args_usage_error(&program, "give --tokenizer FILE with at most one of --decode, --info and --out (text comes from standard input), or "
                                   "--train DOCS... --out FILE");
    }
    Error error = {0};
    if (training) {
        int used = threads > 0 ? (int)threads : default_threads();
        return train(argv + 1, n_documents, &options, (size_t)vocab_size, out, used, &error) == 0 ? 0 : args_fail(&error);
    }
    Tokenizer *tokenizer = tokenizer_load_as(tokenizer_path, pattern, &error);
    int status = tokenizer == NULL ? -1
                 : info            ? show(tokenizer, tokenizer_path, &error)
                 : out != NULL     ? tokenizer_save(tokenizer, out, &error)
                 : decoding        ? decode(tokenizer, &error)
                                   : encode(tokenizer, specials, &error);
    tokenizer_free(tokenizer);
    return status == 0 ? 0 : args_fail(&error);
}
