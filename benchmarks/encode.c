#include "benchmarks/encode.h"

#include <stdlib.h>
#include <string.h>

#include "data/story.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_train.h"

typedef struct EncodeContext {
    Encoder *encoder;
    const char *text;
    size_t length;
    TokenList list;
    Error error;
} EncodeContext;

static void run_encode(void *context)
{
    EncodeContext *c = context;
    c->list.count = 0;
    encoder_encode(c->encoder, &c->list, c->text, c->length, 0, &c->error);
}

int bench_encode(Report *report, size_t runs, Error *error)
{
    enum { STORIES = 4000 };
    Story *story = malloc(sizeof *story);
    char *text = malloc((size_t)STORIES * STORY_BYTES);
    BpeTrainer *trainer = bpe_trainer_create(error);
    EncodeContext c = {.text = text};
    int failed = story == NULL || text == NULL ? error_set(error, "no memory for the texts that the tokenizer's benchmark reads") : trainer == NULL ? -1 : 0;
    for (size_t i = 0; i < STORIES && failed == 0; i++) {
        story_tell(story, 1, i);
        memcpy(text + c.length, story->text, story->length);
        c.length += story->length;
        failed = bpe_trainer_add(trainer, 0, story->text, story->length, error);
    }
    Tokenizer *tokenizer = failed == 0 ? bpe_trainer_finish(trainer, 2048, error) : NULL;
    c.encoder = tokenizer == NULL ? NULL : encoder_create(tokenizer, error);
    failed = c.encoder == NULL ? -1 : 0;
    if (failed == 0) {
        Spread rate = rate_of(time_runs(runs, run_encode, &c), (double)c.length / 1e6);
        report_line(report, "tokenizer encode, one thread", rate, "MB/s", 30.0, 1.0);
    }
    token_list_free(&c.list);
    encoder_free(c.encoder);
    tokenizer_free(tokenizer);
    bpe_trainer_free(trainer);
    free(text);
    free(story);
    return failed;
}
