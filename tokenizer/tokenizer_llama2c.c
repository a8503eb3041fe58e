// llama2.c's tokenizer.bin: int32 length of the longest token, then for each token float32 score, int32 length and its text. Text starts
// with a space; characters without a token are bytes ("<0x0A>"); of all neighbours that joined are a token the best score merges first.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/bpe_internal.h"
#include "tokenizer/splits.h"
#include "tokenizer/text_builder.h"

enum { N_SPECIALS = 3 };   // unknown, start, end

typedef struct Scored {
    float score;
    uint32_t id;
} Scored;

typedef struct Vocabulary {
    ByteMap tokens;    // in order of their ids
    Scored *by_score;
    size_t capacity;
} Vocabulary;

static uint32_t load_u32(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static int read_tokens(Vocabulary *v, const char *data, size_t size, Error *error)
{
    size_t at = 4;
    while (at < size) {
        uint32_t bits = size - at >= 8 ? load_u32(data + at) : 0, length = size - at >= 8 ? load_u32(data + at + 4) : 0;
        size_t id = v->tokens.count;
        float score;
        bool is_new;
        memcpy(&score, &bits, sizeof score);
        if (size - at < 8 || length == 0 || length > size - at - 8) {
            return error_set(error, "token %zu is cut off or empty: the file is damaged, or no tokenizer.bin of llama2.c", id);
        }
        const char *text = data + at + 8;
        if (!isfinite(score) || utf8_valid_length(text, length) != length || memchr(text, 0, length) != NULL) {
            return error_set(error, "token %zu has no finite score, or is no text", id);
        }
        ByteMapEntry *entry = byte_map_insert(&v->tokens, text, length, &is_new);
        if (entry == NULL || array_reserve(&v->by_score, &v->capacity, id + 1, sizeof *v->by_score) != 0) {
            return error_set(error, "out of memory");
        }
        if (!is_new) {
            return error_set(error, "tokens %llu and %zu are the same", (unsigned long long)entry->value, id);
        }
        entry->value = id;
        v->by_score[id] = (Scored){score, (uint32_t)id};
        at += 8 + (size_t)length;
    }
    return v->tokens.count > N_SPECIALS ? 0 : error_set(error, "there are only %zu tokens", v->tokens.count);
}

static int compare_scores(const void *a, const void *b)
{
    const Scored *left = a, *right = b;
    if (left->score != right->score) {
        return left->score > right->score ? -1 : 1;
    }
    return left->id < right->id ? -1 : left->id > right->id;
}

static void add_token(TextBuilder *out, const Vocabulary *v, size_t id)
{
    text_add_string(out, v->tokens.bytes + v->tokens.entries[id].offset, v->tokens.entries[id].length);
}

static void add_merges(TextBuilder *out, const Vocabulary *v)
{
    Split splits[MAX_SPLIT_LENGTH];
    const char *comma = "";
    for (size_t i = 0; i < v->tokens.count; i++) {
        size_t count = splits_of(&v->tokens, v->by_score[i].id, splits);
        for (size_t k = 0; k < count; k++) {
            text_format(out, "%s[", comma);
            add_token(out, v, splits[k].left);
            text_add(out, ",", 1);
            add_token(out, v, splits[k].right);
            text_add(out, "]", 1);
            comma = ",\n";
        }
    }
}

static void write_file(TextBuilder *out, const Vocabulary *v)
{
    text_format(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[");
    for (size_t id = 0; id < N_SPECIALS; id++) {
        text_format(out, "%s{\"id\":%zu,\"content\":", id > 0 ? "," : "", id);
        add_token(out, v, id);
        text_format(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
    }
    text_format(out, "],\n\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\" \"},\n\"pre_tokenizer\":null,\n\"post_processor\":null,\n"
                     "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
                     "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},\n");
    text_format(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
                     "\"end_of_word_suffix\":null,\"fuse_unk\":true,\"byte_fallback\":true,\n\"vocab\":{");
    for (size_t id = 0; id < v->tokens.count; id++) {
        text_format(out, "%s", id > 0 ? ",\n" : "");
        add_token(out, v, id);
        text_format(out, ":%zu", id);
    }
    text_format(out, "},\n\"merges\":[");
    add_merges(out, v);
    text_format(out, "]}}\n");
}

char *convert_llama2c(const char *data, size_t size, size_t *out_length, Error *error)
{
    Vocabulary v = {0};
    TextBuilder out = {0};
    int status = read_tokens(&v, data, size, error);
    if (status == 0) {
        qsort(v.by_score, v.tokens.count, sizeof *v.by_score, compare_scores);
        write_file(&out, &v);
        status = out.failed ? error_set(error, "out of memory") : 0;
    }
    byte_map_free(&v.tokens);
    free(v.by_score);
    *out_length = out.used;
    if (status != 0) {
        free(out.bytes);
        return NULL;
    }
    return out.bytes;
}
