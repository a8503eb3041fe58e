// tiktoken's rank files: on each line a token in base64, a space and its rank, which is its id. A pair merges if the two joined are a token,
// the smallest rank first; a pre-token that is a token is taken whole.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/alphabet.h"
#include "tokenizer/bpe_internal.h"
#include "tokenizer/splits.h"
#include "tokenizer/text_builder.h"

enum { MAX_SPECIALS = 8, LLAMA3_SPECIALS = 256 };

typedef struct Special {
    const char *text;
    int32_t id;
} Special;

// The encodings that people have, told apart by their number of ranks.
typedef struct Encoding {
    const char *name, *also;
    size_t n_ranks;
    const char *pattern;
    bool nfc;
    Special specials[MAX_SPECIALS];
} Encoding;

static const Encoding encodings[] = {
    {"gpt2", "r50k_base", 50256, PATTERN_GPT2, false, {{END_OF_TEXT, 50256}}},
    {"p50k_base", NULL, 50280, PATTERN_GPT2, false, {{END_OF_TEXT, 50256}}},
    {"p50k_edit", NULL, 50280, PATTERN_GPT2, false,
     {{END_OF_TEXT, 50256}, {"<|fim_prefix|>", 50281}, {"<|fim_middle|>", 50282}, {"<|fim_suffix|>", 50283}}},
    {"cl100k_base", "gpt-4", 100256, PATTERN_LLAMA3, false,
     {{END_OF_TEXT, 100257}, {"<|fim_prefix|>", 100258}, {"<|fim_middle|>", 100259}, {"<|fim_suffix|>", 100260},
      {"<|endofprompt|>", 100276}}},
    {"o200k_base", "gpt-4o", 199998, PATTERN_GPT4O, false, {{END_OF_TEXT, 199999}, {"<|endofprompt|>", 200018}}},
    {"llama3", "llama-3", 128000, PATTERN_LLAMA3, false, {{"<|begin_of_text|>", 128000}}},
    {"qwen", "qwen2", 151643, PATTERN_QWEN2, true, {{END_OF_TEXT, 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}},
    {"gpt-neox", NULL, 50254, PATTERN_GPT2, false, {{NULL, 0}}},
};

// A file while it is converted.
typedef struct Ranks {
    ByteMap tokens;          // bytes → rank
    uint32_t *by_rank;       // places in the map
    const char *pattern;
    bool nfc;
    TextBuilder out, added, names;   // the tokenizer.json; its list of added tokens; those that have no rank as a part of "vocab"
    size_t n_added;
    uint64_t next_id;        // behind the largest rank
} Ranks;

static int base64_value(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

// Decodes base64 [length] into `bytes` (room for length). Returns the number of bytes, or -1.
static int64_t decode_base64(const char *text, size_t length, char *bytes)
{
    unsigned bits = 0;
    size_t n_bits = 0, used = 0, i = 0;
    for (; i < length && text[i] != '='; i++) {
        int value = base64_value(text[i]);
        if (value < 0) {
            return -1;
        }
        bits = (bits << 6 | (unsigned)value) & 0xFFFF;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            bytes[used++] = (char)(bits >> n_bits);
        }
    }
    return length % 4 == 0 && length - i <= 2 && strspn(text + i, "=") >= length - i ? (int64_t)used : -1;
}

static int read_line(Ranks *r, const char *line, size_t length, char *bytes, Error *error)
{
    const char *space = memchr(line, ' ', length);
    char number[16] = "";
    bool is_new;
    size_t digits = space != NULL ? length - (size_t)(space - line) - 1 : 0;
    int64_t n = space != NULL ? decode_base64(line, (size_t)(space - line), bytes) : -1;
    if (n <= 0 || digits == 0 || digits >= sizeof number || strspn(space + 1, "0123456789") < digits) {
        return error_set(error, "it must be a token in base64, a space and its rank");
    }
    memcpy(number, space + 1, digits);
    uint64_t rank = strtoull(number, NULL, 10);
    if (rank >= MAX_VOCAB) {
        return error_set(error, "the rank %s is too large", number);
    }
    ByteMapEntry *entry = byte_map_insert(&r->tokens, bytes, (size_t)n, &is_new);
    if (entry == NULL) {
        return error_set(error, "out of memory");
    }
    if (!is_new) {
        return error_set(error, "its token stands there twice");
    }
    entry->value = rank;
    r->next_id = rank >= r->next_id ? rank + 1 : r->next_id;
    return 0;
}

static int read_lines(Ranks *r, const char *text, size_t length, Error *error)
{
    char *bytes = malloc(length + 1);
    if (bytes == NULL) {
        return error_set(error, "out of memory");
    }
    size_t number = 0;
    int status = 0;
    for (const char *line = text, *end = text + length; line < end && status == 0;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const char *next = stop != NULL ? stop + 1 : end;
        stop = stop != NULL ? stop : end;
        number++;
        while (stop > line && (stop[-1] == '\r' || stop[-1] == ' ')) {
            stop--;
        }
        if (stop > line && read_line(r, line, (size_t)(stop - line), bytes, error) != 0) {
            status = error_prefix(error, "line %zu", number);
        }
        line = next;
    }
    free(bytes);
    return status;
}

static int sort_by_rank(Ranks *r, Error *error)
{
    if (r->next_id > 2 * r->tokens.count + 1000) {
        return error_set(error, "the ranks go up to %llu, but there are only %zu", (unsigned long long)r->next_id - 1, r->tokens.count);
    }
    r->by_rank = malloc((r->next_id + 1) * sizeof *r->by_rank);
    if (r->by_rank == NULL) {
        return error_set(error, "out of memory");
    }
    memset(r->by_rank, 0xFF, r->next_id * sizeof *r->by_rank);
    for (size_t i = 0; i < r->tokens.count; i++) {
        uint64_t rank = r->tokens.entries[i].value;
        if (r->by_rank[rank] != UINT32_MAX) {
            return error_set(error, "two tokens have the rank %llu", (unsigned long long)rank);
        }
        r->by_rank[rank] = (uint32_t)i;
    }
    return 0;
}

// A special token, which stands in "vocab" too: else readers would give it the next free id there.
static void add_special(Ranks *r, const char *text, size_t length, uint64_t id)
{
    if (byte_map_find(&r->tokens, text, length) == NULL) {
        text_add(&r->names, ",\n", 2);
        text_add_string(&r->names, text, length);
        text_format(&r->names, ":%llu", (unsigned long long)id);
    }
    text_format(&r->added, "%s{\"id\":%llu,\"content\":", r->n_added++ > 0 ? "," : "", (unsigned long long)id);
    text_add_string(&r->added, text, length);
    text_format(&r->added, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
    r->next_id = id >= r->next_id ? id + 1 : r->next_id;
}

static void add_llama3_specials(Ranks *r)
{
    static const struct {
        int at;
        const char *text;
    } named[] = {{0, "<|begin_of_text|>"}, {1, "<|end_of_text|>"}, {6, "<|start_header_id|>"}, {7, "<|end_header_id|>"}, {9, "<|eot_id|>"}};
    size_t next = 0;
    int reserved = 0;
    for (int i = 0; i < LLAMA3_SPECIALS; i++) {
        char text[64];
        if (next < sizeof named / sizeof *named && named[next].at == i) {
            snprintf(text, sizeof text, "%s", named[next++].text);
        } else {
            snprintf(text, sizeof text, "<|reserved_special_token_%d|>", reserved++);
        }
        add_special(r, text, strlen(text), r->next_id);
    }
}

// "<|...|>" of visible ASCII.
static bool is_like_special(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] < 33 || text[i] > 126) {
            return false;
        }
    }
    return length > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + length - 2, "|>", 2) == 0;
}

// Tokens of the file that are written like special ones can be nothing else: a pattern would cut them.
static void add_specials_of_file(Ranks *r)
{
    bool has_end = false;
    for (size_t rank = 0, n = r->next_id; rank < n; rank++) {
        if (r->by_rank[rank] == UINT32_MAX) {
            continue;
        }
        const ByteMapEntry *entry = &r->tokens.entries[r->by_rank[rank]];
        const char *text = r->tokens.bytes + entry->offset;
        size_t length = entry->length;
        if (is_like_special(text, length)) {
            add_special(r, text, length, rank);
            has_end |= length == strlen(END_OF_TEXT) && memcmp(text, END_OF_TEXT, length) == 0;
        }
    }
    if (!has_end) {
        add_special(r, END_OF_TEXT, strlen(END_OF_TEXT), r->next_id);
    }
}

static int choose_encoding(Ranks *r, const char *pattern, Error *error)
{
    const Encoding *found = NULL;
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings && found == NULL; i++) {
        const Encoding *e = &encodings[i];
        bool named = pattern != NULL && (strcmp(pattern, e->name) == 0 || (e->also != NULL && strcmp(pattern, e->also) == 0));
        found = named || (pattern == NULL && r->tokens.count == e->n_ranks) ? e : NULL;
    }
    if (found == NULL && pattern == NULL) {
        return error_set(error, "%zu ranks are those of no encoding known here: name it, or its regular expression (./tokenize --pattern)",
                         r->tokens.count);
    }
    if (found == NULL && strpbrk(pattern, "\\[(|+*?") == NULL) {
        return error_set(error, "the pattern \"%.100s\" is no encoding that is known here (gpt2, p50k_base, cl100k_base, o200k_base, llama3, "
                                "qwen, gpt-neox) and no regular expression", pattern);
    }
    r->pattern = found != NULL ? found->pattern : pattern;
    r->nfc = found != NULL && found->nfc;
    if (found == NULL || found->n_ranks != r->tokens.count || found->specials[0].text == NULL) {
        add_specials_of_file(r);
    } else if (strcmp(found->name, "llama3") == 0) {
        add_llama3_specials(r);
    } else {
        for (size_t i = 0; i < MAX_SPECIALS && found->specials[i].text != NULL; i++) {
            add_special(r, found->specials[i].text, strlen(found->specials[i].text), (uint64_t)found->specials[i].id);
        }
    }
    return 0;
}

static void add_name(Ranks *r, const Alphabet *alphabet, const ByteMapEntry *entry)
{
    for (size_t i = 0; i < entry->length; i++) {
        char character[2];
        int n = alphabet_put(alphabet, (unsigned char)r->tokens.bytes[entry->offset + i], character);
        if (n == 1 && (character[0] == '"' || character[0] == '\\')) {
            text_add(&r->out, "\\", 1);
        }
        text_add(&r->out, character, (size_t)n);
    }
}

static void write_tables(Ranks *r, size_t n_ranks)
{
    Alphabet alphabet;
    Split splits[MAX_SPLIT_LENGTH];
    alphabet_make(&alphabet);
    const char *comma = "";
    text_format(&r->out, "\"vocab\":{");
    for (size_t rank = 0; rank < n_ranks; rank++) {
        if (r->by_rank[rank] != UINT32_MAX) {
            text_format(&r->out, "%s\"", comma);
            add_name(r, &alphabet, &r->tokens.entries[r->by_rank[rank]]);
            text_format(&r->out, "\":%zu", rank);
            comma = ",\n";
        }
    }
    text_add(&r->out, r->names.bytes != NULL ? r->names.bytes : "", r->names.used);
    text_format(&r->out, "},\n\"merges\":[");
    comma = "";
    for (size_t rank = 0; rank < n_ranks; rank++) {
        size_t count = r->by_rank[rank] != UINT32_MAX ? splits_of(&r->tokens, r->by_rank[rank], splits) : 0;
        for (size_t i = 0; i < count; i++) {
            text_format(&r->out, "%s\"", comma);
            add_name(r, &alphabet, &r->tokens.entries[splits[i].left]);
            text_add(&r->out, " ", 1);
            add_name(r, &alphabet, &r->tokens.entries[splits[i].right]);
            text_add(&r->out, "\"", 1);
            comma = ",\n";
        }
    }
    text_format(&r->out, "]");
}

static void write_file(Ranks *r, size_t n_ranks)
{
    static const char byte_level[] = "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}";
    text_format(&r->out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[");
    text_add(&r->out, r->added.bytes != NULL ? r->added.bytes : "", r->added.used);
    text_format(&r->out, "],\n\"normalizer\":%s,\n"
                         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":",
                r->nfc ? "{\"type\":\"NFC\"}" : "null");
    text_add_string(&r->out, r->pattern, strlen(r->pattern));
    text_format(&r->out, "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",%s]},\n", byte_level);
    text_format(&r->out, "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",%s,\n", byte_level);
    text_format(&r->out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
                         "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":true,\n");
    write_tables(r, n_ranks);
    text_format(&r->out, "}}\n");
    r->out.failed |= r->added.failed || r->names.failed;
}

char *convert_ranks(const char *text, size_t length, const char *pattern, size_t *out_length, Error *error)
{
    Ranks r = {0};
    int status = read_lines(&r, text, length, error) != 0 || sort_by_rank(&r, error) != 0 ? -1 : 0;
    size_t n_ranks = r.next_id;
    if (status == 0 && choose_encoding(&r, pattern, error) == 0) {
        write_file(&r, n_ranks);
        status = r.out.failed ? error_set(error, "out of memory") : 0;
    } else {
        status = -1;
    }
    byte_map_free(&r.tokens);
    free(r.by_rank);
    free(r.added.bytes);
    free(r.names.bytes);
    *out_length = r.out.used;
    if (status != 0) {
        free(r.out.bytes);
        return NULL;
    }
    return r.out.bytes;
}
