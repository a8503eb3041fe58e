#include "benchmarks/encode.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "data/story.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_train.h"

enum { STORIES = 4000, STORIES_VOCAB = 2048, MIXED_BYTES = 4000000, LETTERS = 1000000 };
#define MOST_TEXT ((size_t)1 << 30)

typedef struct EncodeContext {
    Encoder *encoder;
    const char *text;
    size_t length, repeats;
    TokenList list;
    int failed;
    Error error;
} EncodeContext;

static void run_encode(void *context)
{
    EncodeContext *c = context;
    for (size_t i = 0; i < c->repeats; i++) {
        c->list.count = 0;
        c->failed |= encoder_encode(c->encoder, &c->list, c->text, c->length, 0, &c->error);
    }
}

// Text to free; NULL when out of memory.
static char *make_stories(size_t *length)
{
    Story *story = malloc(sizeof *story);
    char *text = malloc((size_t)STORIES * STORY_BYTES);
    *length = 0;
    for (size_t i = 0; i < STORIES && story != NULL && text != NULL; i++) {
        story_tell(story, 1, i);
        memcpy(text + *length, story->text, story->length);
        *length += story->length;
    }
    if (story == NULL) {
        free(text);
        text = NULL;
    }
    free(story);
    return text;
}

// Words of one to eight letters of some script, each behind a space; to free, NULL when out of memory.
static char *make_mixed(size_t *length)
{
    // Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, Kana, Han, Hangul, emoji.
    static const uint32_t firsts[] = {0x61, 0xc0, 0x3b1, 0x430, 0x5d0, 0x628, 0x905, 0xe01, 0x3041, 0x4e00, 0xac00, 0x1f600};
    char *text = malloc(MIXED_BYTES + 64);
    Rng rng;
    rng_seed(&rng, 1, 7);
    for (*length = 0; text != NULL && *length < MIXED_BYTES;) {
        uint32_t first = firsts[rng_below(&rng, sizeof firsts / sizeof *firsts)];
        text[(*length)++] = ' ';
        for (uint64_t n = 1 + rng_below(&rng, 8); n > 0; n--) {
            uint32_t c = first + (uint32_t)rng_below(&rng, 26);
            unsigned extra = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
            static const unsigned char marks[] = {0, 0xc0, 0xe0, 0xf0};
            text[(*length)++] = (char)(marks[extra] | c >> 6 * extra);
            while (extra > 0) {
                text[(*length)++] = (char)(0x80 | (c >> 6 * --extra & 0x3f));
            }
        }
    }
    return text;
}

static Spread measure(EncodeContext *c, const char *text, size_t length, size_t repeats, size_t runs)
{
    c->text = text;
    c->length = length;
    c->repeats = repeats;
    return rate_of(time_runs(runs, run_encode, c), (double)(length * repeats) / 1e6);
}

static Tokenizer *learn(const char *text, size_t length, Error *error)
{
    BpeTrainer *trainer = bpe_trainer_create(error);
    Tokenizer *tokenizer = trainer != NULL && bpe_trainer_add(trainer, 0, text, length, error) == 0 ? bpe_trainer_finish(trainer, STORIES_VOCAB, error) : NULL;
    bpe_trainer_free(trainer);
    return tokenizer;
}

static int report_own(Report *report, EncodeContext *c, const char *stories, size_t length, size_t runs, Error *error)
{
    size_t mixed_length;
    char *mixed = make_mixed(&mixed_length), *letters = malloc(LETTERS);
    if (mixed == NULL || letters == NULL) {
        free(mixed);
        free(letters);
        return error_set(error, "no memory for the texts that the tokenizer's benchmark reads");
    }
    memset(letters, 'a', LETTERS);
    report_line(report, "tokenizer encode, one thread", measure(c, stories, length, 1, runs), "MB/s", 30.0, 1.0);
    report_line(report, "tokenizer encode, mixed scripts", measure(c, mixed, mixed_length, 1, runs), "MB/s", 10.0, 1.0);
    double shorter = measure(c, letters, LETTERS / 10, 10, runs).median;
    report_line(report, "tokenizer encode, 1 MB of one letter", measure(c, letters, LETTERS, 1, runs), "MB/s", shorter, 0.5);
    free(mixed);
    free(letters);
    return 0;
}

char *bench_text(const char *path, size_t *length, Error *error)
{
    char *text = path != NULL ? file_read(path, MOST_TEXT, length, error) : make_stories(length);
    if (text == NULL && path == NULL) {
        error_set(error, "no memory for the texts that the tokenizer's benchmark reads");
    }
    return text;
}

Tokenizer *bench_text_tokenizer(const char *path, const char *text, size_t length, Error *error)
{
    return path != NULL ? tokenizer_load(path, error) : learn(text, length, error);
}

int bench_encode(Report *report, const char *tokenizer_path, const char *text_path, size_t runs, Error *error)
{
    size_t length;
    char *text = bench_text(text_path, &length, error);
    if (text == NULL) {
        return -1;
    }
    Tokenizer *tokenizer = bench_text_tokenizer(tokenizer_path, text, length, error);
    EncodeContext c = {.encoder = tokenizer != NULL ? encoder_create(tokenizer, error) : NULL};
    int failed = c.encoder == NULL ? -1 : 0;
    if (failed == 0 && text_path != NULL) {
        report_line(report, "tokenizer encode, the text given", measure(&c, text, length, 1, runs), "MB/s", 0.0, 0.0);
    } else if (failed == 0) {
        failed = report_own(report, &c, text, length, runs, error);
    }
    if (c.failed != 0) {
        *error = c.error;
        failed = -1;
    }
    token_list_free(&c.list);
    encoder_free(c.encoder);
    tokenizer_free(tokenizer);
    free(text);
    return failed;
}
