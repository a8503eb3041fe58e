// mqar: trains one small model on multi-query associative recall and adds one row to a CSV file (main). scripts/mqar runs many.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/args.h"
#include "experiments/describe.h"
#include "experiments/recall_row.h"
#include "experiments/recall_run.h"

#define MAX_FLAGS 64

typedef struct Options {
    int64_t pairs, length, steps, batch, grow_from, n_test, seed, threads;
    double lr, until;
    const char *csv, *optimizer;
    ModelConfig asked, usual;   // what flags say of the model, and what it is without them
    ArgSpec specs[MAX_FLAGS], usual_specs[MAX_FLAGS];
    size_t n_specs, first_model_spec;
} Options;

static void add(Options *o, ArgSpec spec) { o->specs[o->n_specs++] = spec; }

// Two layers of width 64 with one head and nothing but the memory: what is recalled can have gone no other way.
static int default_config(ModelConfig *config, Error *error)
{
    if (config_preset(config, "nano", error) != 0) {
        return -1;
    }
    config->vocab_size = 512;
    config->d_model = config->d_head = config->n_slot = 64;
    config->n_layer = 2;
    config->n_head = 1;
    config->mlp_hidden = 0;
    config_settle_new(config, NULL, 0);
    return 0;
}

static void add_flags(Options *o)
{
    *o = (Options){.pairs = 16, .length = 128, .steps = 1000, .batch = 32, .n_test = 256, .seed = 1, .threads = 1, .optimizer = "adamw",
                   .lr = 3e-3, .until = 2.0, .asked = o->asked, .usual = o->asked};
    add(o, (ArgSpec){.name = "pairs", .kind = ARG_SIZE, .target = &o->pairs, .value = "N", .help = "keys with their values", .min = 1, .max = 1 << 22});
    add(o, (ArgSpec){.name = "length", .kind = ARG_SIZE, .target = &o->length, .value = "N", .help = "tokens of a sequence, at least four a pair", .min = 4,
                     .max = 1 << 24, .binary = true});
    add(o, (ArgSpec){.name = "steps", .kind = ARG_SIZE, .target = &o->steps, .value = "N", .help = "training steps", .min = 1, .max = 1e9});
    add(o, (ArgSpec){.name = "batch", .kind = ARG_SIZE, .target = &o->batch, .value = "N", .help = "fresh sequences a step", .min = 1, .max = 65536});
    add(o, (ArgSpec){.name = "grow-from", .kind = ARG_SIZE, .target = &o->grow_from, .value = "N", .min = 0, .max = 1 << 22,
                     .help = "begin with sequences of N pairs or a little more, as much shorter; they double when mostly answered. 0: all are whole"});
    add(o, (ArgSpec){.name = "test", .kind = ARG_SIZE, .target = &o->n_test, .value = "N", .help = "sequences of the test set", .min = 1, .max = 1 << 20});
    add(o, (ArgSpec){.name = "optimizer", .kind = ARG_STRING, .target = &o->optimizer, .value = "NAME", .help = "adamw or muon"});
    add(o, (ArgSpec){.name = "lr", .kind = ARG_REAL, .target = &o->lr, .value = "X", .help = "learning rate", .min = 1e-9, .max = 10});
    add(o, (ArgSpec){.name = "until", .kind = ARG_REAL, .target = &o->until, .value = "X", .help = "stop at this accuracy", .min = 0, .max = 2});
    add(o, (ArgSpec){.name = "seed", .kind = ARG_SIZE, .target = &o->seed, .value = "N", .help = "of weights and sequences", .min = 0, .max = 9e15});
    add(o, (ArgSpec){.name = "threads", .kind = ARG_SIZE, .target = &o->threads, .value = "N", .help = "several runs at once are faster than one with several",
                     .min = 1, .max = 1024});
    add(o, (ArgSpec){.name = "csv", .kind = ARG_STRING, .target = &o->csv, .value = "FILE",
                     .help = "add the row to this file; a run that stands there is not run again"});
    o->first_model_spec = o->n_specs;
    o->n_specs += config_arg_specs(o->specs + o->n_specs, MAX_FLAGS - o->n_specs, &o->asked);
    config_arg_specs(o->usual_specs, MAX_FLAGS, &o->usual);
}

static const char *const own_columns[] = {"mixer", "vocab-size", "d-model", "d-head", "n-slot", NULL};

// The run and its row, results missing, from what the flags say.
static int plan(RecallRun *run, RecallRow *row, const Options *o, Error *error)
{
    *run = (RecallRun){.pairs = (size_t)o->pairs, .length = (size_t)o->length, .batch = (size_t)o->batch, .grow_from = (size_t)o->grow_from,
                       .n_test = (size_t)o->n_test, .steps = o->steps, .lr = o->lr, .until = o->until, .seed = (uint64_t)o->seed};
    if (default_config(&run->config, error) != 0 ||
        config_apply_flags(&run->config, o->specs + o->first_model_spec, o->n_specs - o->first_model_spec, error) != 0 ||
        optimizer_kind(&run->optimizer, o->optimizer, error) != 0) {
        return -1;
    }
    config_settle_new(&run->config, o->specs + o->first_model_spec, o->n_specs - o->first_model_spec);
    config_settle_length(&run->config, o->length);
    const ModelConfig *config = &run->config;
    *row = (RecallRow){.pairs = o->pairs, .length = o->length, .vocab = config->vocab_size, .d_model = config->d_model, .d_head = config->d_head,
                       .n_slot = config->n_slot, .steps = o->steps, .batch = o->batch, .grow_from = o->grow_from, .test = o->n_test, .until = o->until,
                       .lr = o->lr, .seed = o->seed};
    snprintf(row->optimizer, sizeof row->optimizer, "%s", o->optimizer);
    return config_validate(config, error) != 0
               ? -1
               : describe_mixer(row->mixer, sizeof row->mixer, config->mixer, o->specs + o->first_model_spec, o->usual_specs,
                                o->n_specs - o->first_model_spec, own_columns, error);
}

static int run_one(const Options *o, Error *error)
{
    RecallRun run;
    RecallRow row;
    RecallResult result;
    char text[ROW_LINE_BYTES];
    if (plan(&run, &row, o, error) != 0) {
        return -1;
    }
    int found = o->csv == NULL ? 0 : rows_have(&recall_layout, o->csv, &row, error);
    if (found != 0) {
        return found < 0 ? -1 : 0;
    }
    fprintf(stderr, "%s, %" PRId64 " pairs in %" PRId64 " tokens, lr %g, seed %" PRId64 "\n", row.mixer, row.pairs, row.length, row.lr, row.seed);
    if (recall_run(&result, &run, error) != 0) {
        return -1;
    }
    row.state = (int64_t)result.state;
    row.parameters = (int64_t)result.parameters;
    row.steps_run = result.steps;
    row.accuracy = result.accuracy;
    row.loss = result.loss;
    row.seconds = result.seconds;
    if (o->csv != NULL && rows_append(&recall_layout, o->csv, &row, error) != 0) {
        return -1;
    }
    printf("%s\n", rows_header(text, &recall_layout));
    printf("%s\n", rows_line(text, &recall_layout, &row));
    return fflush(stdout) == 0 ? 0 : error_set(error, "cannot write to standard output");
}

int main(int argc, char **argv)
{
    static Options options;
    Error error;
    if (default_config(&options.asked, &error) != 0) {
        return args_fail(&error);
    }
    add_flags(&options);
    ArgProgram program = {
        .name = "build/mqar",
        .usage = "[--pairs N] [--length N] [--mixer NAME] [flags]",
        .description = "Trains a small model on multi-query associative recall: pairs of keys and values, then each key once more, whose value is asked for.\n"
                       "Prints one CSV row: what was run, and how much of a fixed test set was answered.\n"
                       "Example: build/mqar --pairs 32 --length 128 --mixer delta --lr 3e-3 --csv recall.csv",
        .specs = options.specs,
        .n_specs = options.n_specs,
    };
    size_t n_positional;
    args_parse(&program, argc, argv, &n_positional);
#ifdef _OPENMP
    omp_set_num_threads((int)options.threads);
#endif
    return run_one(&options, &error) == 0 ? 0 : args_fail(&error);
}
