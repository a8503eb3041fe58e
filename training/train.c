// ./train: from data and flags to checkpoints. Puts the parts together, in this order: folder and checkpoint, data and tokenizer,
// shape, numbers of the run, memory, model, loop.
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/file.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/program.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "training/dataset.h"
#include "training/memory.h"
#include "training/mix.h"
#include "training/outdir.h"
#include "training/run.h"
#include "training/settings.h"
#include "training/snapshot.h"
#include "training/trainer.h"


// The signal that asked to stop; 0: none.
static volatile sig_atomic_t stop_signal;

// Everything that a run holds from start to end.
typedef struct Job {
    TrainSettings settings;
    const Kernels *kernels;
    int lock;
    char *checkpoint;          // folder to resume from; NULL: a new run
    cJSON *saved;              // its trainer.json
    int64_t saved_step;
    char **saved_arguments;    // DATA from the checkpoint
    uint32_t *parts;           // [n_sources] shares of the sources; NULL: DATA is one source
    DataSource *sources;       // [n_sources]
    size_t n_sources;
    char **prepared;           // [n_sources] folder of OUT when resuming a run that prepared documents into it
    char *prepared_val;        // OUT/val_data, the same
    DataSource val_source;
    bool has_val;
    Dataset dataset;
    char *tokenizer_copy;      // OUT/tokenizer.json
    DataIdentity identity;
    ModelConfig config;
    Loader *train, *val;
    Model model;
    Trainer trainer;
} Job;

static void on_signal(int number)
{
    // A terminal that is closed may send SIGHUP twice; the others twice mean: at once.
    if (stop_signal != 0 && number != SIGHUP) {
        _exit(128 + number);
    }
    stop_signal = number;
}

static void set_threads(int64_t threads)
{
#ifdef _OPENMP
    if (threads > omp_get_num_procs()) {
        fprintf(stderr, "warning: --threads %" PRId64 " is more than the %d processors there are, which is slower\n", threads, omp_get_num_procs());
    }
    if (threads > 0) {
        omp_set_num_threads((int)threads);
    }
#else
    if (threads > 1) {
        fprintf(stderr, "warning: built without OpenMP: one thread is used\n");
    }
#endif
}

// ---- folder and checkpoint ----

static int lock_out(Job *job, Error *error)
{
    if (job->lock >= 0) {
        return 0;
    }
    if (folder_make(job->settings.out, error)) {
        return -1;
    }
    job->lock = folder_lock(job->settings.out, "trains into", error);
    return job->lock >= 0 ? 0 : -1;
}

static int open_checkpoint(Job *job, Error *error)
{
    TrainSettings *settings = &job->settings;
    Error note = {""};
    if (lock_out(job, error)) {
        return -1;
    }
    job->checkpoint = checkpoint_resolve(settings->out, &note, error);
    if (job->checkpoint == NULL) {
        return -1;
    }
    if (note.text[0] != 0) {
        fprintf(stderr, "warning: %s\n", note.text);
    }
    job->saved = checkpoint_load_trainer(job->checkpoint, error);
    if (job->saved == NULL || snapshot_step(&job->saved_step, job->saved, error) || settings_restore(settings, job->saved, error)) {
        return -1;
    }
    fprintf(stderr, "resume: from %s\n", job->checkpoint);
    return outdir_set_aside(settings->out, job->saved_step, error);
}

// Decides between a new run and a resumed one. A resume that finds no checkpoint but knows its data begins anew, so that one command
// line can be repeated until the run is done.
static int find_checkpoint(Job *job, Error *error)
{
    const TrainSettings *settings = &job->settings;
    size_t count;
    char *inside = path_join(settings->out, "trainer.json");
    bool is_checkpoint = inside != NULL && file_exists(inside);
    free(inside);
    if (is_checkpoint) {
        return error_set(error, "--out %s is a checkpoint: give the folder of the run, where the checkpoints lie", settings->out);
    }
    if (outdir_checkpoints(&count, settings->out, error)) {
        return -1;
    }
    if (count > 0 && !settings->resume) {
        return error_set(error, "%s already holds the checkpoints of a run: add --resume to go on with it, or give another --out", settings->out);
    }
    if (count > 0) {
        return open_checkpoint(job, error);
    }
    if (settings->resume && settings->n_data == 0) {
        return error_set(error, "%s holds no checkpoint to resume: give DATA to begin a run", settings->out);
    }
    if (settings->resume) {
        fprintf(stderr, "resume: %s holds no checkpoint yet, the run begins anew\n", settings->out);
    }
    return 0;
}

// ---- data and tokenizer ----

// A folder of OUT when it holds prepared data, in *folder, a buffer to free; else *folder stays NULL. Returns 0, or -1 with `error` set.
static int find_prepared(char **folder, const char *out, const char *name, Error *error)
{
    char *path = path_join(out, name);
    char *mark = path != NULL ? path_join(path, "prepare.json") : NULL;
    int failed = mark == NULL ? error_set(error, "out of memory") : 0;
    if (failed == 0 && file_exists(mark)) {
        *folder = path;
        path = NULL;
    }
    free(path);
    free(mark);
    return failed;
}

// DATA of a run that is resumed: as given, or from the checkpoint.
static int find_saved_arguments(Job *job, Error *error)
{
    const TrainSettings *settings = &job->settings;
    if (settings->n_data > 0) {
        return snapshot_prepared(job->saved) ? snapshot_check_arguments(job->saved, settings->data, settings->n_data, error) : 0;
    }
    job->saved_arguments = snapshot_arguments(&job->identity.n_arguments, job->saved, error);
    job->identity.arguments = job->saved_arguments;
    return job->saved_arguments == NULL ? -1 : snapshot_parts(&job->parts, job->identity.n_arguments, job->saved, error);
}

// The documents of a run that is resumed need not be there any more: what was made of them is.
static int find_saved_data(Job *job, Error *error)
{
    const TrainSettings *settings = &job->settings;
    char name[32];
    for (size_t i = 0; i < job->n_sources && snapshot_prepared(job->saved); i++) {
        if (find_prepared(&job->prepared[i], settings->out, dataset_folder_name(name, i, job->n_sources), error)) {
            return -1;
        }
        if (job->prepared[i] != NULL) {
            fprintf(stderr, "resume: the documents are not read again, the data is %s\n", job->prepared[i]);
            job->identity.prepared = true;
        }
    }
    bool val_changes = settings_given(settings, "val") || settings->val == NULL;
    return val_changes ? 0 : find_prepared(&job->prepared_val, settings->out, "val_data", error);
}

// The log of the run must not take the place of a document.
static int check_log(const Job *job, const DataSource *source, Error *error)
{
    const PathList *files = &source->files;
    char *log = path_join(job->settings.out, "log.jsonl");
    int failed = log == NULL ? error_set(error, "out of memory") : 0;
    for (size_t i = 0; i < files->count && failed == 0 && job->saved == NULL; i++) {
        if (file_is_same(files->items[i], log)) {
            failed = error_set(error, "%s is DATA, but the run writes its log there: give another --out", log);
        }
    }
    free(log);
    return failed;
}

// One source for each value of --data, else one of all DATA.
static int make_sources(Job *job, Error *error)
{
    const double *weights = job->settings.weights;
    bool mixed = weights != NULL || job->parts != NULL;
    job->n_sources = mixed ? job->identity.n_arguments : 1;
    job->sources = calloc(job->n_sources, sizeof *job->sources);
    job->prepared = calloc(job->n_sources, sizeof *job->prepared);
    if (weights != NULL) {
        job->parts = calloc(job->n_sources, sizeof *job->parts);
    }
    if (job->sources == NULL || job->prepared == NULL || (mixed && job->parts == NULL)) {
        return error_set(error, "out of memory");
    }
    if (weights != NULL && weights[0] > 0.0) {
        mix_parts(job->parts, weights, job->n_sources);
    }
    return 0;
}

static int find_sources(Job *job, Error *error)
{
    for (size_t i = 0; i < job->n_sources; i++) {
        bool prepared = job->prepared[i] != NULL, all = !prepared && job->parts == NULL;
        char *const *arguments = prepared ? &job->prepared[i] : job->identity.arguments + (all ? 0 : i);
        if (data_source_find(&job->sources[i], arguments, all ? job->identity.n_arguments : 1, error) ||
            check_log(job, &job->sources[i], error)) {
            return -1;
        }
    }
    return 0;
}

static int find_data(Job *job, Error *error)
{
    TrainSettings *settings = &job->settings;
    job->identity.arguments = settings->data;
    job->identity.n_arguments = settings->n_data;
    if ((job->saved != NULL && find_saved_arguments(job, error)) || make_sources(job, error) ||
        (job->saved != NULL && find_saved_data(job, error)) || find_sources(job, error)) {
        return -1;
    }
    if (settings->val != NULL) {
        char *val = job->prepared_val != NULL ? job->prepared_val : (char *)(uintptr_t)settings->val;
        if (data_source_find(&job->val_source, &val, 1, error)) {
            return error_prefix(error, "--val");
        }
        job->has_val = true;
    }
    return 0;
}

// Keeps the tokenizer in OUT, so that checkpoints do not depend on a file that may change while the run goes on.
static int keep_tokenizer(Job *job, Error *error)
{
    if (job->dataset.tokenizer_path == NULL) {
        fprintf(stderr, "warning: no tokenizer: checkpoints will hold none; ./generate and ./eval_ppl then need --tokenizer FILE\n");
        return 0;
    }
    job->tokenizer_copy = path_join(job->settings.out, "tokenizer.json");
    if (job->tokenizer_copy == NULL) {
        return error_set(error, "out of memory");
    }
    // Whatever form it came in, checkpoints hold a tokenizer.json.
    return tokenizer_save(job->dataset.tokenizer, job->tokenizer_copy, error);
}

// Returns 0, TRAINER_STOPPED when a signal stopped the preparation of documents (and that is told), or -1 with `error` set.
static int open_data(Job *job, Error *error)
{
    const TrainSettings *settings = &job->settings;
    char *own = job->checkpoint != NULL ? path_join(job->checkpoint, "tokenizer.json") : NULL;
    DatasetRequest request = {.out = settings->out, .tokenizer = settings->tokenizer, .vocab_size = job->config.vocab_size,
                              .val_fraction = settings->val_fraction, .threads = settings->threads, .stop = &stop_signal,
                              .documents = {.text_key = settings->text_key, .where = settings->where, .dedup = settings->dedup, .strict = settings->strict},
                              .train = job->sources, .n_train = job->n_sources, .val = job->has_val ? &job->val_source : NULL};
    if (request.tokenizer == NULL && own != NULL && file_exists(own)) {
        request.tokenizer = own;
    }
    int failed = dataset_open(&job->dataset, &request, error);
    free(own);
    if (failed && stop_signal != 0) {
        fprintf(stderr, "%s\n", error->text);
        return TRAINER_STOPPED;
    }
    if (failed) {
        return -1;
    }
    job->identity.prepared = job->identity.prepared || job->dataset.prepared;
    job->identity.tokenizer_hash = job->dataset.tokenizer != NULL ? tokenizer_hash(job->dataset.tokenizer) : 0;
    return 0;
}

// A loader of the training or of the validation shards of some sources, in the shares that they have; `chosen` tells which, NULL: all.
static Loader *open_mix(const Job *job, bool validation, const bool *chosen, Error *error)
{
    const TrainSettings *settings = &job->settings;
    LoaderSource *sources = calloc(job->n_sources, sizeof *sources);
    Loader *loader = NULL;
    size_t n = 0;
    for (size_t i = 0; i < job->n_sources && sources != NULL; i++) {
        if (chosen == NULL || chosen[i]) {
            const DatasetShards *shards = &job->dataset.sources[i];
            // Without shares (one source, or shares by sizes that are not known yet) any will do.
            sources[n++] = (LoaderSource){.name = job->parts != NULL ? job->identity.arguments[i] : "the data",
                                          .shards = validation ? &shards->val : &shards->train,
                                          .parts = job->parts != NULL && job->parts[i] > 0 ? job->parts[i] : 1};
        }
    }
    if (sources == NULL) {
        error_set(error, "out of memory");
    } else {
        loader = loader_create_mix(sources, n, (size_t)settings->seq_len, (uint64_t)settings->seed, job->identity.tokenizer_hash,
                                   (size_t)job->config.vocab_size, error);
    }
    free(sources);
    return loader;
}

// Shares that were left to the sizes: the sources then come to their ends together.
static int size_shares(Job *job, Error *error)
{
    Loader *loader = open_mix(job, false, NULL, error);
    double *sizes = calloc(job->n_sources, sizeof *sizes);
    int failed = loader == NULL ? -1 : sizes == NULL ? error_set(error, "out of memory") : 0;
    if (failed == 0) {
        for (size_t i = 0; i < job->n_sources; i++) {
            sizes[i] = (double)loader_source_windows(loader, i);
        }
        mix_parts(job->parts, sizes, job->n_sources);
    }
    free(sizes);
    loader_free(loader);
    return failed;
}

// Validation data without --val: the splits of those sources that have enough.
static void open_val_splits(Job *job)
{
    Error error = {""};
    bool *chosen = calloc(job->n_sources, sizeof *chosen);
    size_t n_chosen = 0;
    for (size_t i = 0; i < job->n_sources && chosen != NULL; i++) {
        if (job->dataset.sources[i].val.count == 0) {
            continue;
        }
        chosen[i] = true;
        Loader *alone = open_mix(job, true, chosen, &error);
        chosen[i] = alone != NULL;
        loader_free(alone);
        n_chosen += chosen[i];
        if (!chosen[i]) {
            fprintf(stderr, "no validation%s%s: %s\n", job->parts != NULL ? " on " : "", job->parts != NULL ? job->identity.arguments[i] : "",
                    error.text);
        }
    }
    job->val = n_chosen > 0 ? open_mix(job, true, chosen, &error) : NULL;
    free(chosen);
}

static int open_loaders(Job *job, Error *error)
{
    const TrainSettings *settings = &job->settings;
    size_t length = (size_t)settings->seq_len;
    if (job->parts != NULL && job->parts[0] == 0 && size_shares(job, error)) {
        return -1;
    }
    job->identity.parts = job->parts;
    job->train = open_mix(job, false, NULL, error);
    if (job->train == NULL) {
        return -1;
    }
    job->identity.tokens = loader_tokens(job->train);
    job->identity.windows = loader_windows(job->train);
    if (snapshot_fingerprint(&job->identity.fingerprint, job->train, length, error) ||
        (job->saved != NULL && snapshot_check_data(job->saved, &job->identity, error))) {
        return -1;
    }
    if (!job->has_val) {
        open_val_splits(job);
        return 0;
    }
    job->val = loader_create(&job->dataset.val, length, (uint64_t)settings->seed, job->identity.tokenizer_hash, (size_t)job->config.vocab_size, error);
    return job->val != NULL ? 0 : error_prefix(error, "--val");
}

// ---- shape ----

// The vocabulary is the tokenizer's. What the command line or a file says must agree, except where it was a wish for a tokenizer to be
// trained.
static int settle_vocabulary(Job *job, bool vocab_is_asked, Error *error)
{
    const Dataset *dataset = &job->dataset;
    int64_t asked = job->config.vocab_size;
    if (dataset->tokenizer == NULL) {
        return vocab_is_asked ? 0 : error_set(error, "%s: token shards need --tokenizer FILE, or --vocab-size N to train without one",
                                              dataset->sources[0].train.items[0]);
    }
    int64_t actual = (int64_t)tokenizer_vocab_size(dataset->tokenizer);
    bool wish = dataset->prepared && job->settings.tokenizer == NULL && job->saved == NULL && actual < asked;
    if (actual != asked && vocab_is_asked && !wish) {
        return error_set(error, "the tokenizer %s has %" PRId64 " ids, but vocab_size is %" PRId64 ": leave --vocab-size out, or change it",
                         dataset->tokenizer_path, actual, asked);
    }
    if (wish) {
        fprintf(stderr, "vocabulary: %" PRId64 " ids instead of %" PRId64 ", more could not be learned from these documents\n", actual, asked);
    }
    job->config.vocab_size = actual;
    return 0;
}

static int find_shape(Job *job, bool *vocab_is_asked, Error *error)
{
    if (job->checkpoint == NULL) {
        if (settings_model(&job->config, vocab_is_asked, &job->settings, error)) {
            return -1;
        }
        return config_validate(&job->config, error);
    }
    if (checkpoint_load_model(&job->model, job->kernels, job->checkpoint, error)) {
        return -1;
    }
    job->config = job->model.config;
    *vocab_is_asked = true;
    return settings_same_model(&job->settings, &job->config, error);
}

// ---- numbers of the run, memory ----

// One line for each source of several: its share, and how often the run goes through it.
static void print_sources(const Job *job)
{
    const Loader *loader = job->train;
    uint64_t windows = (uint64_t)(job->settings.steps * (job->settings.batch_tokens / job->settings.seq_len));
    for (size_t i = 0; i < job->n_sources && job->parts != NULL; i++) {
        char tokens[32];
        uint64_t dealt = loader_dealt(loader, i, windows), epoch = loader_source_windows(loader, i);
        fprintf(stderr, "source      %s: %.4g %% of the tokens, %s tokens, %" PRIu64 " windows, %.3g epochs\n", job->identity.arguments[i],
                100.0 * loader_share(loader, i), format_count(tokens, (double)loader_source_tokens(loader, i)), epoch,
                (double)dealt / (double)epoch);
    }
}

static void print_plan(const Job *job, size_t params, double needed, double available)
{
    const TrainSettings *s = &job->settings;
    const ModelConfig *config = &job->config;
    char kernels[96], a[32], b[32], c[32];
    double total = (double)s->steps * (double)s->batch_tokens;
    double epoch = (double)job->identity.windows * (double)s->seq_len;
    fprintf(stderr, "processor   %s; products in %s%s\n", kernels_describe(kernels, job->kernels), s->dtype,
            settings_bf16(s) && !job->kernels->fast_bf16 ? " (slower than f32 here: this processor has no bf16 products)" : "");
    fprintf(stderr, "data        %s tokens, %" PRIu64 " windows of %" PRId64 "; validation on %s\n", format_count(a, (double)job->identity.tokens),
            job->identity.windows, s->seq_len, job->val != NULL ? format_count(b, (double)loader_tokens(job->val)) : "nothing");
    print_sources(job);
    fprintf(stderr, "model       %zu parameters: %s, %" PRId64 " layers, d_model %" PRId64 ", vocabulary %" PRId64 "\n", params, config->mixer,
            config->n_layer, config->d_model, config->vocab_size);
    fprintf(stderr, "batch       %" PRId64 " tokens a step = %" PRId64 " × micro-batch %" PRId64 " × length %" PRId64 "\n", s->batch_tokens,
            s->batch_tokens / (s->micro_batch * s->seq_len), s->micro_batch, s->seq_len);
    fprintf(stderr, "run         %" PRId64 " steps, %s tokens, %.3g epochs; %s, rate %g to %g, %s, warm-up %" PRId64 "\n", s->steps,
            format_count(a, total), total / epoch, s->optimizer, s->lr, s->min_lr, s->schedule, s->warmup);
    fprintf(stderr, "memory      %s needed, %s available\n", format_bytes(b, needed),
            available > 0.0 ? format_bytes(c, available) : "unknown how much");
}

static int find_options(Job *job, TrainerOptions *options, const TensorTable *table, Error *error)
{
    TrainSettings *settings = &job->settings;
    RunSize size = {.params = table->total, .windows = job->identity.windows};
    if (settings_resolve(settings, &size, error)) {
        return -1;
    }
    *options = (TrainerOptions){.micro_batch = (size_t)settings->micro_batch, .seq_len = (size_t)settings->seq_len,
                                .n_micro = (size_t)(settings->batch_tokens / (settings->micro_batch * settings->seq_len)),
                                .weight_decay = settings->weight_decay, .clip = settings->clip, .seed = (uint64_t)settings->seed,
                                .schedule = {.lr = settings->lr, .min_lr = settings->min_lr, .warmup = settings->warmup, .steps = settings->steps}};
    return schedule_kind(&options->schedule.kind, settings->schedule, error) || optimizer_kind(&options->optimizer, settings->optimizer, error) ? -1 : 0;
}

static int check_memory(const Job *job, const TrainerOptions *options, const TensorTable *table, Error *error)
{
    double needed = trainer_bytes(&job->config, table, options), available = memory_available();
    print_plan(job, table->total, needed, available);
    if (available > 0.0 && needed > available) {
        char a[32], b[32];
        return error_set(error, "the run needs %s of memory and %s are available: lower --micro-batch or --seq-len, or take a smaller --preset",
                         format_bytes(a, needed), format_bytes(b, available));
    }
    return 0;
}

static int plan(Job *job, TrainerOptions *options, Error *error)
{
    TensorTable table;
    if (params_table(&table, &job->config, error)) {
        return -1;
    }
    int failed = find_options(job, options, &table, error) || check_memory(job, options, &table, error);
    tensor_table_free(&table);
    return failed ? -1 : 0;
}

// ---- model ----

static int restore_trainer(Job *job, Error *error)
{
    NamedArena moments[OPTIMIZER_ARENAS];
    optimizer_arenas(moments, &job->trainer.optimizer, &job->trainer.model.table);
    if (snapshot_restore(&job->trainer, job->saved, error) || checkpoint_load_moments(moments, OPTIMIZER_ARENAS, job->checkpoint, error) ||
        trainer_check_weights(&job->trainer, error)) {
        return error_prefix(error, "%s", job->checkpoint);
    }
    return 0;
}

static int make_trainer(Job *job, const TrainerOptions *options, Error *error)
{
    if (job->checkpoint == NULL) {
        if (model_create(&job->model, &job->config, job->kernels, error)) {
            return -1;
        }
        model_init(&job->model, options->seed, options->seq_len);
    }
    job->model.bf16 = settings_bf16(&job->settings);
    if (trainer_create(&job->trainer, &job->model, options, error) || (job->checkpoint != NULL && restore_trainer(job, error))) {
        return -1;
    }
    job->trainer.train = job->train;
    job->trainer.val = job->val;
    if (job->val != NULL) {
        uint64_t all = loader_windows(job->val), asked = (uint64_t)(job->settings.eval_tokens / job->settings.seq_len);
        job->trainer.eval_windows = job->settings.eval_tokens == 0 || asked > all ? all : asked < 1 ? 1 : asked;
    }
    job->trainer.stop = &stop_signal;
    return 0;
}

// Multiply-adds of a training step: 6 floating-point operations a token and parameter; the embedding counts once, for the head.
static double flops_per_token(const Model *model)
{
    double params = (double)model->table.total;
    if (!model->config.tie_embeddings) {
        params -= (double)model->config.vocab_size * (double)model->config.d_model;
    }
    return 6.0 * params;
}

static int train(Job *job, Error *error)
{
    if (job->trainer.step >= job->settings.steps) {
        fprintf(stderr, "all %" PRId64 " steps are done: give a larger --steps to go on\n", job->settings.steps);
        return 0;
    }
    Run run = {.trainer = &job->trainer, .settings = &job->settings, .data = &job->identity, .tokenizer = job->dataset.tokenizer,
               .tokenizer_path = job->tokenizer_copy, .flops_per_token = flops_per_token(&job->trainer.model),
               .peak = kernels_measure_peak(job->kernels, settings_bf16(&job->settings)), .saved_step = job->checkpoint != NULL ? job->saved_step : -1};
    fprintf(stderr, "peak        %.1f GFLOP/s\n", run.peak / 1e9);
    int status = run_loop(&run, error);
    if (status >= 0) {
        const char *what = status == 0 ? "done:" : "stopped and saved, --resume goes on:";
        fprintf(stderr, "%s %s/step_%08" PRId64 "\n", what, job->settings.out, run.saved_step);
    }
    return status;
}

// ---- the whole ----

static int run_job(Job *job, Error *error)
{
    TrainerOptions options;
    bool vocab_is_asked = false;
    job->kernels = kernels_select(error);
    if (job->kernels == NULL || settings_check(&job->settings, error)) {
        return -1;
    }
    set_threads(job->settings.threads);
    if (find_checkpoint(job, error) || find_shape(job, &vocab_is_asked, error) || find_data(job, error) || lock_out(job, error)) {
        return -1;
    }
    program_catch_stop(on_signal, false);
    int status = open_data(job, error);
    if (status != 0) {
        return status;
    }
    if (settle_vocabulary(job, vocab_is_asked, error) || open_loaders(job, error) || keep_tokenizer(job, error) || plan(job, &options, error) ||
        make_trainer(job, &options, error)) {
        return -1;
    }
    return train(job, error);
}

static void free_job(Job *job)
{
    trainer_free(&job->trainer);
    model_free(&job->model);
    loader_free(job->train);
    loader_free(job->val);
    dataset_free(&job->dataset);
    for (size_t i = 0; i < job->n_sources; i++) {
        if (job->sources != NULL) {
            data_source_free(&job->sources[i]);
        }
        if (job->prepared != NULL) {
            free(job->prepared[i]);
        }
    }
    free(job->sources);
    free(job->prepared);
    free(job->parts);
    data_source_free(&job->val_source);
    free(job->saved_arguments);
    free(job->tokenizer_copy);
    free(job->prepared_val);
    cJSON_Delete(job->saved);
    free(job->checkpoint);
    settings_free(&job->settings);
    if (job->lock >= 0) {
        close(job->lock);
    }
}

int main(int argc, char **argv)
{
    static Job job = {.lock = -1};
    Error error = {""};
    settings_init(&job.settings);
    settings_parse(&job.settings, argc, argv);
    signal(SIGPIPE, SIG_IGN);   // who reads the messages may leave: they are lost, the run goes on
    int status = run_job(&job, &error);
    free_job(&job);
    if (status < 0) {
        return args_fail(&error);
    }
    return status == TRAINER_STOPPED ? 128 + (int)stop_signal : 0;
}
