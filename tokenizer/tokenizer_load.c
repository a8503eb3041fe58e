// Which form a tokenizer file has, told by its content.
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/bpe_internal.h"

typedef enum Form { FORM_JSON, FORM_VOCAB, FORM_MERGES, FORM_RANKS, FORM_LLAMA2C, FORM_SENTENCEPIECE } Form;

typedef struct Bytes {
    char *data;   // a NUL stands behind it
    size_t size;
} Bytes;

static bool is_rank_line(const char *text, size_t length)
{
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    size_t token = strspn(text, base64), digits = text[token] == ' ' ? strspn(text + token + 1, "0123456789") : 0;
    return token > 0 && token % 4 == 0 && digits > 0 && token + 1 + digits <= length
           && (text[token + 1 + digits] == 0 || strchr(" \r\n", text[token + 1 + digits]) != NULL);
}

static bool is_merge_line(const char *text)
{
    size_t length = strcspn(text, "\r\n");
    const char *space = memchr(text, ' ', length);
    return strncmp(text, "#version", 8) == 0
           || (space > text && space + 1 < text + length && memchr(space + 1, ' ', (size_t)(text + length - space - 1)) == NULL);
}

static bool is_llama2c(const char *data, size_t size)
{
    // Sizes are little-endian and small: the bytes that text would fill are zeros.
    return size >= 12 && data[2] == 0 && data[3] == 0 && data[10] == 0 && data[11] == 0 && (data[0] != 0 || data[1] != 0);
}

// A vocabulary maps names to numbers; a tokenizer.json has parts.
static bool is_vocabulary(const char *text)
{
    const char *p = text + strspn(text, " \t\r\n{");
    if (*p++ != '"') {
        return false;
    }
    while (*p != 0 && *p != '"') {
        p += *p == '\\' && p[1] != 0 ? 2 : 1;
    }
    p += *p == '"';
    p += strspn(p, " \t\r\n");
    p += *p == ':';
    p += strspn(p, " \t\r\n");
    return *p >= '0' && *p <= '9';
}

static Form form_of(const Bytes *file)
{
    const char *start = file->data + strspn(file->data, " \t\r\n");
    if (*start == '{') {
        return is_vocabulary(start) ? FORM_VOCAB : FORM_JSON;
    }
    if (is_rank_line(file->data, file->size)) {
        return FORM_RANKS;
    }
    if (is_llama2c(file->data, file->size)) {
        return FORM_LLAMA2C;
    }
    if (file->size > 2 && file->data[0] == '\n' && memmem(file->data, file->size < 64 ? file->size : 64, "<unk>", 5) != NULL) {
        return FORM_SENTENCEPIECE;
    }
    return is_merge_line(file->data) ? FORM_MERGES : FORM_JSON;
}

// The name of the other file of a pair: `path` with its last part changed. NULL when there is none (or no memory).
static char *find_partner(const char *path)
{
    static const char *const partners[][2] = {
        {"vocab.json", "merges.txt"},  {"encoder.json", "vocab.bpe"}, {"vocab.json", "vocab.bpe"},   {"encoder.json", "merges.txt"},
        {"merges.txt", "vocab.json"},  {"vocab.bpe", "encoder.json"}, {"merges.txt", "encoder.json"}, {"vocab.bpe", "vocab.json"},
    };
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof partners / sizeof *partners; i++) {
        size_t own = strlen(partners[i][0]), other = strlen(partners[i][1]);
        if (length < own || strcmp(path + length - own, partners[i][0]) != 0) {
            continue;
        }
        char *partner = malloc(length - own + other + 1);
        if (partner == NULL) {
            return NULL;
        }
        memcpy(partner, path, length - own);
        memcpy(partner + length - own, partners[i][1], other + 1);
        if (file_exists(partner)) {
            return partner;
        }
        free(partner);
    }
    return NULL;
}

static char *load_pair(const char *path, const Bytes *file, bool is_merges, size_t *length, Error *error)
{
    char *partner = find_partner(path), *out = NULL;
    if (partner == NULL) {
        error_set(error, is_merges ? "these are merges without their vocabulary: it must stand beside them as vocab.json or encoder.json"
                                   : "this is a vocabulary without its merges: they must stand beside it as merges.txt or vocab.bpe");
        return NULL;
    }
    Bytes other = {0};
    other.data = file_read(partner, MAX_TOKENIZER_FILE, &other.size, error);
    if (other.data != NULL) {
        const Bytes *vocab = is_merges ? &other : file;
        out = convert_pair(vocab->data, vocab->size, is_merges ? file->data : other.data, length, error);
    }
    free(other.data);
    free(partner);
    return out;
}

static Tokenizer *load_form(const char *path, Bytes *file, const char *pattern, Error *error)
{
    Form form = form_of(file);
    if (form != FORM_RANKS && pattern != NULL) {
        error_set(error, "%s: a pattern can be chosen for tiktoken's rank files only, and this is none", path);
        return NULL;
    }
    if (form == FORM_JSON) {
        char *text = file->data;
        file->data = NULL;
        return tokenizer_from_json(text, file->size, path, "HuggingFace's tokenizer.json", error);
    }
    const char *name = "";
    char *text = NULL;
    size_t length = 0;
    switch (form) {
    case FORM_RANKS:
        name = "tiktoken's ranks";
        text = convert_ranks(file->data, file->size, pattern, &length, error);
        break;
    case FORM_LLAMA2C:
        name = "llama2.c's tokenizer.bin";
        text = convert_llama2c(file->data, file->size, &length, error);
        break;
    case FORM_VOCAB:
    case FORM_MERGES:
        name = "GPT-2's vocabulary and merges";
        text = load_pair(path, file, form == FORM_MERGES, &length, error);
        break;
    case FORM_SENTENCEPIECE:
    case FORM_JSON:
        error_set(error, "this is a model of SentencePiece, which is not read: convert it to a tokenizer.json");
    }
    if (text == NULL) {
        error_prefix(error, "%s", path);
        return NULL;
    }
    return tokenizer_from_json(text, length, path, name, error);
}

Tokenizer *tokenizer_load_as(const char *path, const char *pattern, Error *error)
{
    Bytes file = {0};
    file.data = file_read(path, MAX_TOKENIZER_FILE, &file.size, error);
    Tokenizer *tokenizer = file.data != NULL ? load_form(path, &file, pattern, error) : NULL;
    free(file.data);
    return tokenizer;
}

Tokenizer *tokenizer_load(const char *path, Error *error)
{
    return tokenizer_load_as(path, NULL, error);
}
