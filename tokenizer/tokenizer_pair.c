// GPT-2's pair of files: an object from names to ids (vocab.json, encoder.json), and lines of two names that merge (merges.txt, vocab.bpe).
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tokenizer/bpe_internal.h"
#include "tokenizer/text_builder.h"

// Names that are special where a vocabulary has them, beside <|...|>.
static bool is_special(const char *name)
{
    static const char *const names[] = {"<s>", "</s>", "<unk>", "<pad>", "<mask>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    size_t length = strlen(name);
    return length > 4 && strncmp(name, "<|", 2) == 0 && strcmp(name + length - 2, "|>") == 0;
}

static int add_specials(TextBuilder *out, const char *vocab, size_t vocab_length, Error *error)
{
    cJSON *root = cJSON_ParseWithLength(vocab, vocab_length);
    const cJSON *item;
    const char *comma = "";
    if (!cJSON_IsObject(root)) {
        cJSON_Delete(root);
        return error_set(error, "the vocabulary is no JSON object from tokens to ids");
    }
    cJSON_ArrayForEach(item, root) {
        if (is_special(item->string) && cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < MAX_VOCAB) {
            text_format(out, "%s{\"id\":%.0f,\"content\":", comma, item->valuedouble);
            text_add_string(out, item->string, strlen(item->string));
            text_format(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
            comma = ",";
        }
    }
    cJSON_Delete(root);
    return 0;
}

static int add_merges(TextBuilder *out, const char *merges, Error *error)
{
    size_t number = 0;
    const char *comma = "";
    for (const char *line = merges; *line != 0;) {
        size_t length = strcspn(line, "\n"), visible = length;
        const char *next = line + length + (line[length] == '\n');
        number++;
        visible -= visible > 0 && line[visible - 1] == '\r';
        bool is_version = number == 1 && strncmp(line, "#version", 8) == 0;
        if (visible > 0 && !is_version) {
            if (memchr(line, ' ', visible) == NULL || utf8_valid_length(line, visible) != visible) {
                return error_set(error, "line %zu of the merges is not two tokens with a space between them", number);
            }
            text_add(out, comma, strlen(comma));
            text_add_string(out, line, visible);
            comma = ",\n";
        }
        line = next;
    }
    return 0;
}

char *convert_pair(const char *vocab, size_t vocab_length, const char *merges, size_t *out_length, Error *error)
{
    static const char byte_level[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}";
    TextBuilder out = {0};
    text_format(&out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[");
    int status = add_specials(&out, vocab, vocab_length, error);
    text_format(&out, "],\n\"normalizer\":null,\n\"pre_tokenizer\":%s,\n\"post_processor\":%s,\n\"decoder\":%s,\n", byte_level, byte_level,
                byte_level);
    text_format(&out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\","
                      "\"fuse_unk\":false,\n\"vocab\":");
    text_add(&out, vocab, vocab_length);
    text_format(&out, ",\n\"merges\":[");
    status = status == 0 ? add_merges(&out, merges, error) : status;
    text_format(&out, "]}}\n");
    if (status == 0 && out.failed) {
        status = error_set(error, "out of memory");
    }
    *out_length = out.used;
    if (status != 0) {
        free(out.bytes);
        return NULL;
    }
    return out.bytes;
}
