// text_run: trains one small language model by ./train, evaluates it by ./eval_ppl, and adds one row to a CSV file (main). scripts/compare_text runs many.
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/args.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "experiments/describe.h"
#include "experiments/launch.h"
#include "experiments/text_row.h"
#include "training/optimizer.h"

#define MAX_FLAGS 64
#define MAX_ARGUMENTS (2 * MAX_FLAGS)
#define FLAG_BYTES DESCRIBED_BYTES
#define MAX_JSON_BYTES ((size_t)16 << 20)

typedef struct Options {
    const char *data, *csv, *runs, *programs, *contexts, *optimizer, *dtype;
    int64_t tokens, seq_len, batch_tokens, eval_tokens, seed, threads;
    double lr;
    bool keep;
    bool wanted[TEXT_CONTEXTS];   // of text_contexts, by --contexts
    ModelConfig asked, usual;   // what flags say of the model, and what it is without them
    bool relative_read;         // of the model
    ArgSpec specs[MAX_FLAGS], usual_specs[MAX_FLAGS];
    size_t n_specs, first_model_spec;
} Options;

// A command line under construction; the first failure sticks.
typedef struct Command {
    char text[MAX_ARGUMENTS][FLAG_BYTES];
    char *argv[MAX_ARGUMENTS + 1];
    size_t count;
    bool failed;
} Command;

static void add(Options *o, ArgSpec spec) { o->specs[o->n_specs++] = spec; }

static void add_string(Options *o, const char *name, const char **target, const char *value, const char *help)
{
    add(o, (ArgSpec){.name = name, .kind = ARG_STRING, .target = target, .value = value, .help = help});
}

static void add_size(Options *o, const char *name, int64_t *target, double min, double max, bool binary, const char *help)
{
    add(o, (ArgSpec){.name = name, .kind = ARG_SIZE, .target = target, .value = "N", .help = help, .min = min, .max = max, .binary = binary});
}

static void add_flags(Options *o)
{
    *o = (Options){.runs = "text-runs", .programs = ".", .contexts = "512,1k,2k,4k,8k", .optimizer = "adamw", .dtype = "f32",
                   .tokens = 1000000, .seq_len = 512, .batch_tokens = 4096, .eval_tokens = 65536, .seed = 1, .threads = 1, .lr = 3e-3, .asked = o->asked, .usual = o->asked};
    add_string(o, "data", &o->data, "DIR", "folder that ./prepare made; perplexity is measured on its validation split");
    add_string(o, "csv", &o->csv, "FILE", "add the row to this file; a run that stands there is not run again");
    add_string(o, "runs", &o->runs, "DIR", "folder for the run while it is under way, and for what ./train and ./eval_ppl say");
    add(o, (ArgSpec){.name = "keep", .kind = ARG_SWITCH, .target = &o->keep, .help = "keep the checkpoint of the trained model"});
    add_string(o, "programs", &o->programs, "DIR", "where train and eval_ppl are");
    add_size(o, "tokens", &o->tokens, 1, 1e15, false, "length of the training");
    add_size(o, "seq-len", &o->seq_len, 1, 1 << 24, true, "tokens in a sequence");
    add_size(o, "batch-tokens", &o->batch_tokens, 1, 1 << 30, true, "tokens in a step");
    add(o, (ArgSpec){.name = "lr", .kind = ARG_REAL, .target = &o->lr, .value = "X", .help = "peak learning rate; the rest of the schedule is ./train's",
                     .min = 1e-9, .max = 10});
    add_string(o, "optimizer", &o->optimizer, "NAME", "adamw or muon");
    add_string(o, "dtype", &o->dtype, "NAME", "of the training's matrix products: f32 or bf16");
    add_size(o, "seed", &o->seed, 0, 9e15, false, "of start values and of the order of the data");
    add_string(o, "contexts", &o->contexts, "LIST", "powers of two from 64 to 16k at which perplexity is measured");
    o->specs[o->n_specs - 1].binary = true;
    add_size(o, "eval-tokens", &o->eval_tokens, 0, 1e15, true, "on the first N tokens of the validation split; 0 all");
    add_size(o, "threads", &o->threads, 1, 1024, false, "several runs at once are faster than one with several");
    o->first_model_spec = o->n_specs;
    o->n_specs += config_arg_specs(o->specs + o->n_specs, MAX_FLAGS - o->n_specs, &o->asked);
    config_arg_specs(o->usual_specs, MAX_FLAGS, &o->usual);
}

static const ArgSpec *model_specs(const Options *o) { return o->specs + o->first_model_spec; }
static size_t n_model_specs(const Options *o) { return o->n_specs - o->first_model_spec; }

static const char *const own_columns[] = {"mixer", "vocab-size", "d-model", "n-layer", "n-head", "mlp-hidden", NULL};

// The contexts asked for, each of which must have a column: it would be measured in vain.
static int read_contexts(bool wanted[TEXT_CONTEXTS], const char *list, Error *error)
{
    for (const char *at = list; at == list || at[-1] == ','; at++) {
        char item[16];
        int64_t context = 0;
        size_t length = strcspn(at, ","), i = 0;
        snprintf(item, sizeof item, "%.*s", (int)length, at);
        bool is_size = length < sizeof item && args_size(item, 1024, &context, NULL) == 0;
        while (i < TEXT_CONTEXTS && text_contexts[i] != context) {
            i++;
        }
        if (!is_size || i == TEXT_CONTEXTS) {
            return error_set(error, "--contexts %s: give powers of two from 64 to 16k, with commas between them", list);
        }
        wanted[i] = true;
        at += length;
    }
    return 0;
}

// What was prepared, told by what the folder says of itself.
static int read_data(TextRow *row, const Options *o, Error *error)
{
    static const char *const splits[2] = {"train", "validation"};
    char text[256], *path = path_join(o->data, "prepare.json");
    int64_t numbers[4] = {0}, hash = 0;
    cJSON *json = path != NULL ? json_read_file(path, MAX_JSON_BYTES, error) : NULL;
    int result = json == NULL || json_get_int(json, "vocab_size", 1, INT32_MAX, &row->vocab, error) != 0 ||
                         json_get_int(json, "tokenizer_hash", 0, UINT32_MAX, &hash, error) != 0
                     ? -1
                     : 0;
    for (size_t i = 0; i < 2 && result == 0; i++) {
        const cJSON *split = cJSON_GetObjectItemCaseSensitive(json, splits[i]);
        result = json_get_int(split, "documents", 0, INT64_MAX / 2, &numbers[2 * i], error) != 0 ? -1
                                                                                                 : json_get_int(split, "tokens", 0, INT64_MAX / 2, &numbers[2 * i + 1], error);
    }
    if (result != 0 && path != NULL) {
        Error cause = *error;
        error_set(error, "--data %s is no folder that ./prepare made: %s", o->data, cause.text);
    }
    int length = snprintf(text, sizeof text, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, hash, numbers[0], numbers[1], numbers[2], numbers[3]);
    snprintf(row->data_hash, sizeof row->data_hash, "%016" PRIx64, (uint64_t)XXH3_64bits(text, (size_t)length));
    cJSON_Delete(json);
    free(path);
    return path != NULL ? result : error_set(error, "out of memory");
}

// What the model is without the flags that name it: sizes that follow from the width follow from the width asked for.
static int settle_usual(Options *o, Error *error)
{
    ArgSpec sizes[MAX_FLAGS];
    for (size_t i = 0; i < n_model_specs(o); i++) {
        sizes[i] = model_specs(o)[i];
        sizes[i].given = sizes[i].given && (strcmp(sizes[i].name, "d-model") == 0 || strcmp(sizes[i].name, "n-head") == 0);
    }
    return config_apply_flags(&o->usual, sizes, n_model_specs(o), error);
}

// The row, results missing, from what the flags say.
static int plan(TextRow *row, Options *o, Error *error)
{
    ModelConfig config;
    OptimizerKind optimizer;
    if (read_contexts(o->wanted, o->contexts, error) != 0 || optimizer_kind(&optimizer, o->optimizer, error) != 0 || config_preset(&config, "nano", error) != 0 ||
        config_apply_flags(&config, model_specs(o), n_model_specs(o), error) != 0) {
        return -1;
    }
    config_settle_new(&config, model_specs(o), n_model_specs(o));
    config_settle_length(&config, o->seq_len);
    o->relative_read = config.relative_read;
    *row = (TextRow){.seq_len = o->seq_len, .tokens = o->tokens, .batch_tokens = o->batch_tokens, .d_model = config.d_model, .n_layer = config.n_layer,
                     .n_head = config.n_head, .mlp_hidden = config.mlp_hidden, .eval_tokens = o->eval_tokens, .lr = o->lr, .seed = o->seed};
    for (size_t i = 0; i < TEXT_CONTEXTS; i++) {
        row->perplexity[i] = NAN;
    }
    snprintf(row->optimizer, sizeof row->optimizer, "%s", o->optimizer);
    snprintf(row->dtype, sizeof row->dtype, "%s", o->dtype);
    const char *data = path_base(o->data);
    if (data[0] == '\0' || strlen(data) >= sizeof row->data || strpbrk(data, ",\n") != NULL) {
        return error_set(error, "--data %s: its last part names the data in the file, so it must be there, short and without a comma", o->data);
    }
    snprintf(row->data, sizeof row->data, "%s", data);
    return config_validate(&config, error) != 0 || read_data(row, o, error) != 0 || settle_usual(o, error) != 0
               ? -1
               : describe_mixer(row->mixer, sizeof row->mixer, config.mixer, model_specs(o), o->usual_specs, n_model_specs(o), own_columns, error);
}

// ---- command lines ----

static void put(Command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(Command *command, const char *format, ...)
{
    command->failed |= command->count == MAX_ARGUMENTS;
    if (command->failed) {
        return;
    }
    va_list args;
    va_start(args, format);
    int size = vsnprintf(command->text[command->count], FLAG_BYTES, format, args);
    va_end(args);
    command->failed = size < 0 || size >= FLAG_BYTES;
    command->argv[command->count] = command->text[command->count];
    command->count++;
}

static int run_command(double *seconds, Command *command, const char *log, Error *error)
{
    command->argv[command->count] = NULL;
    return command->failed ? error_set(error, "the command line of %s becomes too long: give shorter names", command->text[0])
                           : launch(seconds, command->argv, log, error);
}

// --resume: after an interruption the same command goes on.
static int train(double *seconds, const Options *o, const char *out, const char *log, Error *error)
{
    Command command = {.count = 0};
    put(&command, "%s/train", o->programs);
    put(&command, "%s", o->data);
    put(&command, "--out=%s", out);
    put(&command, "--resume");
    put(&command, "--tokens=%" PRId64, o->tokens);
    put(&command, "--seq-len=%" PRId64, o->seq_len);
    put(&command, "--batch-tokens=%" PRId64, o->batch_tokens);
    put(&command, "--lr=%.9g", o->lr);
    put(&command, "--optimizer=%s", o->optimizer);
    put(&command, "--dtype=%s", o->dtype);
    put(&command, "--seed=%" PRId64, o->seed);
    put(&command, "--threads=%" PRId64, o->threads);
    put(&command, "--eval-every=0");
    put(&command, "--save-every=0");
    put(&command, "--keep=1");
    for (size_t i = 0; i < n_model_specs(o); i++) {
        char flag[FLAG_BYTES];
        if (model_specs(o)[i].given) {
            describe_flag(flag, sizeof flag, &model_specs(o)[i]);
            put(&command, "--%s", flag);
        }
    }
    if (o->relative_read) {   // a model of before that lies there would read otherwise: then ./train refuses
        put(&command, "--relative-read");
    }
    return run_command(seconds, &command, log, error);
}

static int evaluate(const Options *o, const char *out, const char *json, const char *log, Error *error)
{
    Command command = {.count = 0};
    double seconds;
    put(&command, "%s/eval_ppl", o->programs);
    put(&command, "%s", out);
    put(&command, "%s", o->data);
    put(&command, "--contexts=%s", o->contexts);
    put(&command, "--max-tokens=%" PRId64, o->eval_tokens);
    put(&command, "--threads=%" PRId64, o->threads);
    put(&command, "--json=%s", json);
    return run_command(&seconds, &command, log, error);
}

// ---- results ----

static int read_perplexity(TextRow *row, const char *path, Error *error)
{
    cJSON *json = json_read_file(path, MAX_JSON_BYTES, error);
    const cJSON *item;
    int result = json == NULL ? -1 : 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(json, "contexts")) {
        int64_t context = 0;
        double perplexity;
        if (json_get_int(item, "context", 1, INT64_MAX / 2, &context, error) != 0) {
            continue;
        }
        if (json_get_real(item, "perplexity", &perplexity, NULL) != 0) {   // the model went wrong
            perplexity = INFINITY;
        }
        for (size_t i = 0; i < TEXT_CONTEXTS; i++) {
            row->perplexity[i] = text_contexts[i] == context ? perplexity : row->perplexity[i];
        }
    }
    cJSON_Delete(json);
    return result;
}

static int read_sizes(TextRow *row, const char *out, Error *error)
{
    char *folder = checkpoint_resolve_model(out, NULL, error), *path = folder != NULL ? path_join(folder, "config.json") : NULL;
    cJSON *json = path != NULL ? json_read_file(path, MAX_JSON_BYTES, error) : NULL;
    ModelConfig config = {0};
    TensorTable params, state;
    int result = json == NULL || config_from_json(&config, json, error) != 0 || config_validate(&config, error) != 0 ? -1 : 0;
    if (result == 0 && (result = params_table(&params, &config, error)) == 0) {
        row->parameters = (int64_t)params.total;
        tensor_table_free(&params);
    }
    if (result == 0 && (result = params_state_table(&state, &config, SIZE_MAX, error)) == 0) {
        row->state_bytes = (int64_t)(describe_memory(&state) * sizeof(float));
        tensor_table_free(&state);
    }
    cJSON_Delete(json);
    free(path);
    free(folder);
    return result;
}

// A name for the run's folder that other runs do not have: of all that tells rows apart.
static char *run_folder(const Options *o, const TextRow *row)
{
    char line[ROW_LINE_BYTES], name[64];
    TextRow plain = *row;
    snprintf(name, sizeof name, "%.40s-%016" PRIx64, row->mixer, (uint64_t)XXH3_64bits(line, strlen(rows_line(line, &text_layout, &plain))));
    for (char *at = name; *at != '\0'; at++) {
        *at = *at == ' ' || *at == '/' || *at == ':' ? '_' : *at;
    }
    return path_join(o->runs, name);
}

// The first context asked for that a row does not have; 0: it has them all.
static int64_t missing_context(const TextRow *row, const Options *o)
{
    for (size_t i = 0; i < TEXT_CONTEXTS; i++) {
        if (o->wanted[i] && isnan(row->perplexity[i])) {
            return text_contexts[i];
        }
    }
    return 0;
}

static int measure(TextRow *row, const Options *o, const char *out, Error *error)
{
    char log[1024], json[1024];
    double seconds = NAN;
    bool fresh = !file_exists(out);
    if (snprintf(log, sizeof log, "%s.log", out) >= (int)sizeof log || snprintf(json, sizeof json, "%s.json", out) >= (int)sizeof json) {
        return error_set(error, "--runs %s: the name is too long", o->runs);
    }
    if (folder_make(o->runs, error) != 0 || train(&seconds, o, out, log, error) != 0 || evaluate(o, out, json, log, error) != 0 ||
        read_perplexity(row, json, error) != 0 || read_sizes(row, out, error) != 0) {
        return -1;
    }
    int64_t missing = missing_context(row, o);
    if (missing != 0) {
        return error_set(error, "%s has no perplexity at context %" PRId64 ": remove %s and run again", json, missing, out);
    }
    row->cpu_seconds = fresh ? seconds : NAN;
    return 0;
}

static int run_one(Options *o, Error *error)
{
    TextRow row;
    char text[ROW_LINE_BYTES];
    if (plan(&row, o, error) != 0) {
        return -1;
    }
    int found = o->csv == NULL ? 0 : rows_have(&text_layout, o->csv, &row, error);
    int64_t missing = found > 0 ? missing_context(&row, o) : 0;
    if (missing != 0) {
        return error_set(error, "%s has this run without context %" PRId64 ": remove the row, or give another file", o->csv, missing);
    }
    if (found != 0) {
        return found < 0 ? -1 : 0;
    }
    char *out = run_folder(o, &row);
    if (out == NULL) {
        return error_set(error, "out of memory");
    }
    fprintf(stderr, "%s, lr %g, seed %" PRId64 ": %s\n", row.mixer, row.lr, row.seed, out);
    int result = measure(&row, o, out, error);
    if (result == 0 && o->csv != NULL) {
        result = rows_append(&text_layout, o->csv, &row, error);
    }
    if (result == 0 && !o->keep) {   // only now: what cannot be written down can be measured again
        result = folder_remove(out, error);
    }
    free(out);
    if (result != 0) {
        return -1;
    }
    printf("%s\n", rows_header(text, &text_layout));
    printf("%s\n", rows_line(text, &text_layout, &row));
    return fflush(stdout) == 0 ? 0 : error_set(error, "cannot write to standard output");
}

int main(int argc, char **argv)
{
    static Options options;
    Error error;
    if (config_preset(&options.asked, "nano", &error) != 0) {
        return args_fail(&error);
    }
    config_settle_new(&options.asked, NULL, 0);
    add_flags(&options);
    ArgProgram program = {
        .name = "build/text_run",
        .usage = "--data DIR [--mixer NAME] [flags]",
        .description = "Trains a small language model on prepared text, measures its perplexity on the validation split at several context lengths,\n"
                       "and prints one CSV row: what was run, and what came out. Shape flags that are not given are those of the preset nano.\n"
                       "Example: build/text_run --data books-data --mixer delta --lr 3e-3 --csv text.csv",
        .specs = options.specs,
        .n_specs = options.n_specs,
    };
    size_t n_positional;
    args_parse(&program, argc, argv, &n_positional);
    if (options.data == NULL) {
        args_usage_error(&program, "--data is missing");
    }
    return run_one(&options, &error) == 0 ? 0 : args_fail(&error);
}
