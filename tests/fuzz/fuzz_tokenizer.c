// Any bytes as a tokenizer file of any form; the first byte, when it is '!', says that a line with a pattern for rank files comes first. A
// tokenizer that loads must encode, give the bytes back where it promises to, and load again after saving with the same hash and ids.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tokenizer/bpe_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static TokenList encode(const Tokenizer *tokenizer, const char *text, size_t length, int specials)
{
    Error error;
    TokenList list = {0};
    Encoder *encoder = encoder_create(tokenizer, &error);
    check(encoder != NULL);
    // A hostile pattern may need too long; then there is no list.
    if (encoder_encode(encoder, &list, text, length, specials, &error) != 0) {
        token_list_free(&list);
    }
    encoder_free(encoder);
    return list;
}

// Nothing normalises the text or drops parts of it.
static int keeps_text(const Tokenizer *t)
{
    int keeps = t->pipeline.n_edits == 0 && t->pipeline.n_prefixes == 0 && t->pipeline.space[0] == 0 && !t->lacks_bytes;
    for (size_t s = 0; s < t->pipeline.n_stages; s++) {
        keeps &= t->pipeline.stages[s].behavior != BEHAVIOR_REMOVED;
    }
    for (size_t i = 0; i < t->n_added; i++) {
        keeps &= !t->added[i].left_strip && !t->added[i].right_strip;
    }
    return keeps;
}

static void check_text(const Tokenizer *tokenizer, const Tokenizer *again, const char *text, size_t length)
{
    for (int specials = 0; specials < 2; specials++) {
        TokenList list = encode(tokenizer, text, length, specials), same = encode(again, text, length, specials);
        size_t done = 0, n = 0;
        check(list.count == same.count && (list.count == 0 || memcmp(list.ids, same.ids, list.count * sizeof *list.ids) == 0));
        for (size_t i = 0; i < list.count; i++) {
            const char *token = tokenizer_token(tokenizer, list.ids[i], &n);
            check(token != NULL);
            if (keeps_text(tokenizer)) {
                check(n <= length - done && memcmp(token, text + done, n) == 0);
                done += n;
            }
        }
        check(list.ids == NULL || !keeps_text(tokenizer) || done == length);
        token_list_free(&list);
        token_list_free(&same);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[FOLDER_BYTES];
    char path[64], saved[FOLDER_BYTES + 16], *pattern = NULL;
    Error error = {0};
    if (folder[0] == 0) {
        fuzz_folder(folder);
    }
    const uint8_t *line = size > 0 && data[0] == '!' ? memchr(data, '\n', size) : NULL;
    if (line != NULL) {
        size_t length = (size_t)(line - data);
        pattern = strndup((const char *)data + 1, length - 1);
        check(pattern != NULL);
        data += length + 1;
        size -= length + 1;
    }
    int file = memfd_create("tokenizer.json", 0);
    check(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    Tokenizer *tokenizer = tokenizer_load_as(path, pattern, &error);
    close(file);
    free(pattern);
    check(tokenizer != NULL || error.text[0] != 0);
    if (tokenizer == NULL) {
        return 0;
    }
    snprintf(saved, sizeof saved, "%s/saved.json", folder);
    check(tokenizer_save(tokenizer, saved, &error) == 0);
    Tokenizer *again = tokenizer_load(saved, &error);
    check(again != NULL && tokenizer_hash(again) == tokenizer_hash(tokenizer));
    unlink(saved);
    check_text(tokenizer, again, (const char *)data, size < 2048 ? size : 2048);
    tokenizer_free(again);
    tokenizer_free(tokenizer);
    return 0;
}
