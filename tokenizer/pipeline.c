#include "tokenizer/pipeline.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/json_fields.h"

enum { MAX_DEPTH = 4 };

// Patterns in which a '\n' behind an ASCII letter or digit always begins a pre-token, and that leave no character out.
static const struct {
    const char *source, *name;
    int by_hand;   // a PretokenPattern, or -1
} known_patterns[] = {
    {PATTERN_GPT2, "GPT-2's pattern", PRETOKENIZE_GPT2},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "GPT-2's pattern", PRETOKENIZE_GPT2},
    {PATTERN_LLAMA3, "Llama-3's pattern", PRETOKENIZE_LLAMA3},
    {PATTERN_QWEN2, "Qwen-2's pattern", PRETOKENIZE_QWEN2},
    {PATTERN_GPT4O, "GPT-4o's pattern", -1},
};

// Adds to the description that --info shows and that is hashed.
static void describe(Pipeline *p, const char *what, const char *detail)
{
    size_t used = strlen(p->description);
    snprintf(p->description + used, sizeof p->description - used, "%s%s%s", used > 0 ? ", " : "", what, detail);
    p->hash = XXH3_64bits_withSeed(what, strlen(what) + 1, p->hash);
    p->hash = XXH3_64bits_withSeed(detail, strlen(detail) + 1, p->hash);
}

static int copy_text(const char *key, const char *text, size_t max, char *out, size_t *length, Error *error)
{
    *length = strlen(text);
    if (*length == 0 || *length > max) {
        return error_set(error, "\"%s\" must be a string of 1 to %zu bytes", key, max);
    }
    memcpy(out, text, *length);
    return 0;
}

static Edit *new_edit(Edit *edits, size_t *count, EditKind kind, Error *error)
{
    if (*count == MAX_EDITS) {
        error_set(error, "more than %d steps are not supported", MAX_EDITS);
        return NULL;
    }
    edits[*count] = (Edit){.kind = kind};
    return &edits[(*count)++];
}

static int read_replace(Pipeline *p, const cJSON *json, Error *error)
{
    static const char *const known[] = {"type", "pattern", "content", NULL};
    static const char *const in_pattern[] = {"String", NULL};
    const cJSON *pattern = field(json, "pattern");
    Edit *edit = new_edit(p->edits, &p->n_edits, EDIT_REPLACE, error);
    if (edit == NULL || fields_check(json, "\"Replace\"", known, error) != 0
        || fields_check(pattern, "\"Replace\": \"pattern\"", in_pattern, error) != 0
        || copy_text("String", field_text(pattern, "String"), sizeof edit->from, edit->from, &edit->from_length, error) != 0
        || copy_text("content", field_text(json, "content"), sizeof edit->to, edit->to, &edit->to_length, error) != 0) {
        return -1;
    }
    if (edit->to_length > 4 * edit->from_length) {
        return error_set(error, "\"Replace\": \"content\" is more than four times as long as \"pattern\", which is not supported");
    }
    describe(p, "replaces ", field_text(pattern, "String"));
    describe(p, "by ", field_text(json, "content"));
    return 0;
}

static int read_normalizer(Pipeline *p, const cJSON *json, int depth, Error *error)
{
    static const char *const sequence[] = {"type", "normalizers", NULL};
    static const char *const nfc[] = {"type", NULL};
    static const char *const prepend[] = {"type", "prepend", NULL};
    Edit *edit;
    if (has_type(json, "NFC")) {
        describe(p, "NFC", "");
        return fields_check(json, "\"NFC\"", nfc, error) != 0 || new_edit(p->edits, &p->n_edits, EDIT_NFC, error) == NULL ? -1 : 0;
    }
    if (has_type(json, "Prepend")) {
        edit = new_edit(p->edits, &p->n_edits, EDIT_PREPEND, error);
        describe(p, "puts in front ", field_text(json, "prepend"));
        return edit == NULL || fields_check(json, "\"Prepend\"", prepend, error) != 0
                       || copy_text("prepend", field_text(json, "prepend"), sizeof edit->to, edit->to, &edit->to_length, error) != 0
                   ? -1
                   : 0;
    }
    if (has_type(json, "Replace")) {
        return read_replace(p, json, error);
    }
    const cJSON *list = field(json, "normalizers"), *item;
    if (!has_type(json, "Sequence") || !cJSON_IsArray(list) || depth == MAX_DEPTH) {
        return error_set(error, "the type \"%.50s\" is not supported (NFC, Prepend, Replace and Sequence are)", field_text(json, "type"));
    }
    if (fields_check(json, "\"Sequence\"", sequence, error) != 0) {
        return -1;
    }
    cJSON_ArrayForEach(item, list) {
        if (read_normalizer(p, item, depth + 1, error) != 0) {
            return -1;
        }
    }
    return 0;
}

static Stage *new_stage(Pipeline *p, Error *error)
{
    if (p->byte_level) {
        error_set(error, "a step behind \"ByteLevel\" is not supported");
        return NULL;
    }
    if (p->n_stages == MAX_STAGES) {
        error_set(error, "more than %d steps are not supported", MAX_STAGES);
        return NULL;
    }
    p->stages[p->n_stages] = (Stage){0};
    return &p->stages[p->n_stages++];
}

static int read_behavior(const cJSON *json, Stage *stage, Error *error)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = field_text(json, "behavior");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            stage->behavior = (Behavior)i;
            return 0;
        }
    }
    return error_set(error, "\"Split\": \"behavior\": \"%.50s\" is not known", name);
}

// Cuts at a pattern. Known ones that keep all text are matched by hand.
static int set_pattern(Pipeline *p, Stage *stage, const char *source, bool literal, Error *error)
{
    bool keeps_all = (stage->behavior == BEHAVIOR_ISOLATED && !stage->invert) || (stage->behavior == BEHAVIOR_REMOVED && stage->invert);
    for (size_t i = 0; !literal && keeps_all && i < sizeof known_patterns / sizeof *known_patterns; i++) {
        if (strcmp(source, known_patterns[i].source) == 0) {
            describe(p, known_patterns[i].name, "");
            p->may_cut = p->n_stages == 1;
            if (known_patterns[i].by_hand >= 0) {
                stage->by_hand = (PretokenPattern)known_patterns[i].by_hand;
                return 0;
            }
            stage->pattern = pattern_create(source, false, error);
            return stage->pattern != NULL ? 0 : -1;
        }
    }
    char how[16];
    snprintf(how, sizeof how, "%s%d%d ", "cuts ", stage->behavior, stage->invert);
    describe(p, how, source);
    p->may_cut = false;
    stage->pattern = pattern_create(source, literal, error);
    return stage->pattern != NULL ? 0 : -1;
}

static int read_split(Pipeline *p, const cJSON *json, Error *error)
{
    static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const in_pattern[] = {"String", "Regex", NULL};
    const cJSON *pattern = field(json, "pattern");
    Stage *stage = new_stage(p, error);
    if (stage == NULL || fields_check(json, "\"Split\"", known, error) != 0
        || fields_check(pattern, "\"Split\": \"pattern\"", in_pattern, error) != 0 || read_behavior(json, stage, error) != 0
        || field_switch(json, "invert", false, &stage->invert, error) != 0) {
        return -1;
    }
    bool literal = field(pattern, "Regex") == NULL;
    const char *source = field_text(pattern, literal ? "String" : "Regex");
    if (source[0] == 0 || cJSON_GetArraySize(pattern) != 1) {
        return error_set(error, "\"Split\": \"pattern\" must have one of \"Regex\" and \"String\", which is not empty");
    }
    return set_pattern(p, stage, source, literal, error);
}

static int read_digits(Pipeline *p, const cJSON *json, Error *error)
{
    static const char *const known[] = {"type", "individual_digits", NULL};
    bool individual;
    Stage *stage = new_stage(p, error);
    if (stage == NULL || fields_check(json, "\"Digits\"", known, error) != 0
        || field_switch(json, "individual_digits", false, &individual, error) != 0) {
        return -1;
    }
    stage->behavior = individual ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS;
    return set_pattern(p, stage, "\\p{N}", false, error);
}

static int read_byte_level(Pipeline *p, const cJSON *json, Error *error)
{
    static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
    bool prefix_space, use_regex;
    if (fields_check(json, "\"ByteLevel\"", known, error) != 0 || json_get_bool(json, "add_prefix_space", &prefix_space, error) != 0
        || field_switch(json, "use_regex", true, &use_regex, error) != 0) {
        return -1;
    }
    if (p->byte_level) {
        return error_set(error, "a step behind \"ByteLevel\" is not supported");
    }
    if (prefix_space) {
        Edit *edit = new_edit(p->prefixes, &p->n_prefixes, EDIT_PREPEND, error);
        if (edit == NULL || p->n_stages > 0) {
            return error_set(error, "\"ByteLevel\": \"add_prefix_space\" is not supported behind another step");
        }
        edit->unless_there = true;
        edit->to[0] = ' ';
        edit->to_length = 1;
        describe(p, "space in front", "");
    }
    if (use_regex) {
        Stage *stage = new_stage(p, error);
        if (stage == NULL || set_pattern(p, stage, known_patterns[0].source, false, error) != 0) {
            return -1;
        }
    }
    p->byte_level = true;
    return 0;
}

// ' ' becomes the replacement, which is put in front too, and each word begins with it.
static int read_metaspace(Pipeline *p, const cJSON *json, Error *error)
{
    static const char *const known[] = {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split", NULL};
    const char *replacement = field_text(json, "replacement"), *scheme = field_text(json, "prepend_scheme");
    bool prefix, split;
    Edit *replace = new_edit(p->prefixes, &p->n_prefixes, EDIT_REPLACE, error), *prepend = NULL;
    if (replace == NULL || fields_check(json, "\"Metaspace\"", known, error) != 0
        || copy_text("replacement", replacement, 4, replace->to, &replace->to_length, error) != 0
        || field_switch(json, "add_prefix_space", true, &prefix, error) != 0 || field_switch(json, "split", true, &split, error) != 0) {
        return -1;
    }
    if (p->n_stages > 0 || p->byte_level || p->n_prefixes > 1) {
        return error_set(error, "\"Metaspace\" is not supported behind another step");
    }
    replace->from[0] = ' ';
    replace->from_length = 1;
    if (scheme[0] == 0) {
        scheme = prefix ? "always" : "never";
    }
    bool first = strcmp(scheme, "first") == 0;
    if (!first && strcmp(scheme, "always") != 0 && strcmp(scheme, "never") != 0) {
        return error_set(error, "\"Metaspace\": \"prepend_scheme\": \"%.50s\" is not known", scheme);
    }
    if (first || strcmp(scheme, "always") == 0) {
        prepend = new_edit(p->prefixes, &p->n_prefixes, EDIT_PREPEND, error);
        if (prepend == NULL) {
            return -1;
        }
        prepend->unless_there = true;
        prepend->only_at_start = first;
        memcpy(prepend->to, replace->to, replace->to_length);
        prepend->to_length = replace->to_length;
    }
    describe(p, "spaces as ", replacement);
    describe(p, "in front: ", scheme);
    if (!split) {
        return 0;
    }
    Stage *stage = new_stage(p, error);
    if (stage == NULL) {
        return -1;
    }
    stage->behavior = BEHAVIOR_NEXT;
    return set_pattern(p, stage, replacement, true, error);
}

static int read_pre_tokenizer(Pipeline *p, const cJSON *json, int depth, Error *error)
{
    static const char *const sequence[] = {"type", "pretokenizers", NULL};
    static const struct {
        const char *type;
        int (*read)(Pipeline *p, const cJSON *json, Error *error);
    } types[] = {{"ByteLevel", read_byte_level}, {"Split", read_split}, {"Digits", read_digits}, {"Metaspace", read_metaspace}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (has_type(json, types[i].type)) {
            return types[i].read(p, json, error);
        }
    }
    const cJSON *list = field(json, "pretokenizers"), *item;
    if (!has_type(json, "Sequence") || !cJSON_IsArray(list) || depth == MAX_DEPTH) {
        return error_set(error, "the type \"%.50s\" is not supported (ByteLevel, Split, Digits, Metaspace and Sequence are)",
                         field_text(json, "type"));
    }
    if (fields_check(json, "\"Sequence\"", sequence, error) != 0) {
        return -1;
    }
    cJSON_ArrayForEach(item, list) {
        if (read_pre_tokenizer(p, item, depth + 1, error) != 0) {
            return -1;
        }
    }
    return 0;
}

// Special tokens around a text are the caller's affair, so these have no effect.
static int check_post_processor(const cJSON *json, int depth, Error *error)
{
    static const char *const types[] = {"ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (has_type(json, types[i])) {
            return 0;
        }
    }
    const cJSON *list = field(json, "processors"), *item;
    if (!has_type(json, "Sequence") || !cJSON_IsArray(list) || depth == MAX_DEPTH) {
        return error_set(error, "the type \"%.50s\" is not supported", field_text(json, "type"));
    }
    cJSON_ArrayForEach(item, list) {
        if (check_post_processor(item, depth + 1, error) != 0) {
            return -1;
        }
    }
    return 0;
}

static int set_space(Pipeline *p, const char *text, Error *error)
{
    size_t length;
    char space[MAX_EDIT_TEXT] = "";
    if (p->space[0] != 0 || copy_text("space", text, sizeof space - 1, space, &length, error) != 0) {
        return error_set(error, "only one string in place of ' ', of 1 to %zu bytes, is supported", sizeof space - 1);
    }
    memcpy(p->space, space, sizeof space);
    return 0;
}

static int read_decoder(Pipeline *p, const cJSON *json, int depth, Error *error)
{
    bool prefix;
    const cJSON *list = field(json, "decoders"), *item, *start = field(json, "start"), *stop = field(json, "stop");
    if (has_type(json, "ByteLevel") || has_type(json, "ByteFallback") || has_type(json, "Fuse")) {
        return 0;
    }
    if (has_type(json, "Replace")) {
        return strcmp(field_text(json, "content"), " ") == 0 ? set_space(p, field_text(field(json, "pattern"), "String"), error)
                                                             : error_set(error, "\"Replace\" by anything but \" \" is not supported");
    }
    if (has_type(json, "Metaspace")) {
        if (field_switch(json, "add_prefix_space", true, &prefix, error) != 0) {
            return -1;
        }
        p->strip_first = prefix && strcmp(field_text(json, "prepend_scheme"), "never") != 0;
        return set_space(p, field_text(json, "replacement"), error);
    }
    if (has_type(json, "Strip")) {
        p->strip_first = cJSON_IsNumber(start) && start->valuedouble == 1;
        bool fits = (p->strip_first || (cJSON_IsNumber(start) && start->valuedouble == 0)) && cJSON_IsNumber(stop) && stop->valuedouble == 0
                    && strcmp(field_text(json, "content"), " ") == 0;
        return fits ? 0 : error_set(error, "\"Strip\" of anything but one space at the start is not supported");
    }
    if (!has_type(json, "Sequence") || !cJSON_IsArray(list) || depth == MAX_DEPTH) {
        return error_set(error, "the type \"%.50s\" is not supported", field_text(json, "type"));
    }
    cJSON_ArrayForEach(item, list) {
        if (read_decoder(p, item, depth + 1, error) != 0) {
            return -1;
        }
    }
    return 0;
}

void pipeline_gpt2(Pipeline *p)
{
    *p = (Pipeline){.n_stages = 1, .byte_level = true, .may_cut = true};
    p->stages[0].by_hand = PRETOKENIZE_GPT2;
    snprintf(p->description, sizeof p->description, "%s", known_patterns[0].name);
}

int pipeline_read(Pipeline *p, const cJSON *root, Error *error)
{
    const cJSON *normalizer = field(root, "normalizer"), *pre = field(root, "pre_tokenizer");
    const cJSON *post = field(root, "post_processor"), *decoder = field(root, "decoder");
    Pipeline plain;
    *p = (Pipeline){0};
    if (normalizer != NULL && read_normalizer(p, normalizer, 0, error) != 0) {
        return error_prefix(error, "\"normalizer\"");
    }
    if (pre != NULL && read_pre_tokenizer(p, pre, 0, error) != 0) {
        return error_prefix(error, "\"pre_tokenizer\"");
    }
    if (post != NULL && check_post_processor(post, 0, error) != 0) {
        return error_prefix(error, "\"post_processor\"");
    }
    if (decoder != NULL && read_decoder(p, decoder, 0, error) != 0) {
        return error_prefix(error, "\"decoder\"");
    }
    for (size_t i = 0; i < p->n_edits; i++) {
        p->may_cut &= p->edits[i].kind == EDIT_NFC;
    }
    p->may_cut &= p->n_prefixes == 0;
    // A token's bytes are what its name says; spaces in other clothes are for text of characters.
    if (p->byte_level) {
        p->space[0] = 0;
        p->strip_first = false;
    }
    pipeline_gpt2(&plain);
    if (p->byte_level && strcmp(p->description, plain.description) == 0) {
        p->hash = 0;
    }
    return 0;
}

void pipeline_free(Pipeline *p)
{
    for (size_t i = 0; i < p->n_stages; i++) {
        pattern_free(p->stages[i].pattern);
    }
    p->n_stages = 0;
}
