// Any bytes as tokenizer.json; a tokenizer that loads must encode and give the bytes back, and load again after saving with the same hash.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tokenizer/bpe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_round_trip(const Tokenizer *tokenizer, const char *text, size_t length)
{
    for (int specials = 0; specials < 2; specials++) {
        Error error;
        TokenList list = {0};
        Encoder *encoder = encoder_create(tokenizer, &error);
        check(encoder != NULL && encoder_encode(encoder, &list, text, length, specials, &error) == 0);
        size_t done = 0, n = 0;
        for (size_t i = 0; i < list.count; i++) {
            const char *token = tokenizer_token(tokenizer, list.ids[i], &n);
            check(token != NULL && n <= length - done && memcmp(token, text + done, n) == 0);
            done += n;
        }
        check(done == length);
        token_list_free(&list);
        encoder_free(encoder);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], saved[64];
    Error error = {0};
    int file = memfd_create("tokenizer.json", 0);
    check(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    Tokenizer *tokenizer = tokenizer_load(path, &error);
    close(file);
    check(tokenizer != NULL || error.text[0] != 0);
    if (tokenizer == NULL) {
        return 0;
    }
    check_round_trip(tokenizer, (const char *)data, size < 4096 ? size : 4096);
    snprintf(saved, sizeof saved, "/tmp/fuzz-tokenizer-%ld.json", (long)getpid());
    check(tokenizer_save(tokenizer, saved, &error) == 0);
    Tokenizer *again = tokenizer_load(saved, &error);
    check(again != NULL && tokenizer_hash(again) == tokenizer_hash(tokenizer));
    unlink(saved);
    tokenizer_free(again);
    tokenizer_free(tokenizer);
    return 0;
}
