// Any bytes as vocab.json and merges.txt, cut at the first byte 30: what is made of them loads as a tokenizer and encodes, or is refused with
// a reason.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tokenizer/bpe_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_text(const char *path, const void *data, size_t size)
{
    Error error;
    check(file_write_atomic(path, data, size, &error) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[FOLDER_BYTES], *vocab, *merges;
    Error error = {""};
    if (vocab == NULL) {
        fuzz_folder(folder);
        vocab = path_join(folder, "vocab.json");
        merges = path_join(folder, "merges.txt");
        check(vocab != NULL && merges != NULL);
    }
    const uint8_t *border = size > 0 ? memchr(data, 30, size) : NULL;
    size_t first = border != NULL ? (size_t)(border - data) : size, second = border != NULL ? size - first - 1 : 0;
    write_text(vocab, data, first);
    write_text(merges, border != NULL ? border + 1 : data, second);
    for (int i = 0; i < 2; i++) {
        Tokenizer *tokenizer = tokenizer_load(i == 0 ? vocab : merges, &error);
        check(tokenizer != NULL || error.text[0] != 0);
        if (tokenizer != NULL) {
            TokenList list = {0};
            Encoder *encoder = encoder_create(tokenizer, &error);
            check(encoder != NULL && encoder_encode(encoder, &list, (const char *)data, size < 2048 ? size : 2048, 0, &error) == 0);
            for (size_t t = 0; t < list.count; t++) {
                check(list.ids[t] >= 0 && (size_t)list.ids[t] < tokenizer_vocab_size(tokenizer));
            }
            token_list_free(&list);
            encoder_free(encoder);
        }
        tokenizer_free(tokenizer);
    }
    return 0;
}
