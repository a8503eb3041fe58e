// ./train: from data and flags to checkpoints. Puts the parts together, in this order: folder and checkpoint, data and tokenizer,
// shape, numbers of the run, memory, model, loop. Several ranks go through these stages together (training/ranks.h): where a stage writes
// files the first does it and the others find it done; an error in one ends all.
#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/program.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "training/outdir.h"
#include "training/ranks.h"
#include "training/run.h"
#include "training/run_data.h"
#include "training/settings.h"
#include "training/snapshot.h"
#include "training/trainer.h"

// The signal that asked to stop; 0: none.
static volatile sig_atomic_t stop_signal;

// Everything that a run holds from start to end.
typedef struct Job {
    TrainSettings settings;
    Ranks ranks;
    const Kernels *kernels;
    int lock;                  // of the first rank
    char *checkpoint;          // folder to resume from; NULL: a new run
    cJSON *saved;              // its trainer.json
    int64_t saved_step;
    RunData data;
    char *tokenizer_copy;      // OUT/tokenizer.json
    ModelConfig config;
    bool vocab_is_asked;       // the command line or a file says how large the vocabulary is
    TrainerOptions options;
    Model model;
    Trainer trainer;
} Job;

static void on_signal(int number)
{
    if (stop_signal != 0 && program_stops_at_once(number)) {
        _exit(128 + number);
    }
    stop_signal = number;
}

// Ranks that share processors share them evenly.
static void set_threads(int64_t threads, const Ranks *ranks)
{
#ifdef _OPENMP
    int processors = omp_get_num_procs() / ranks->sharing > 0 ? omp_get_num_procs() / ranks->sharing : 1;
    if (threads > processors) {
        fprintf(stderr, "warning: --threads %" PRId64 " is more than the %d processors there are%s, which is slower\n", threads, processors,
                ranks->sharing > 1 ? " for each rank" : "");
    }
    if (threads > 0) {
        omp_set_num_threads((int)threads);
    } else if (ranks->sharing > 1 && getenv("OMP_NUM_THREADS") == NULL) {
        omp_set_num_threads(processors);
    }
#else
    (void)ranks;
    if (threads > 1) {
        fprintf(stderr, "warning: built without OpenMP: one thread is used\n");
    }
#endif
}

// ---- folder and checkpoint ----

static int lock_out(Job *job, Error *error)
{
    if (job->lock >= 0 || !ranks_first(&job->ranks)) {
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
    if (folder_holds(settings->out, "trainer.json")) {
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

static int find_data(Job *job, Error *error)
{
    job->data.settings = &job->settings;
    job->data.saved = job->saved;
    job->data.checkpoint = job->checkpoint;
    job->data.stop = &stop_signal;
    return run_data_find(&job->data, error);
}

// Returns 0, TRAINER_STOPPED when a signal stopped the preparation of documents (and that is told), or -1 with `error` set.
static int prepare_data(Job *job, Error *error)
{
    int failed = run_data_prepare(&job->data, job->config.vocab_size, error);
    if (failed && stop_signal != 0) {
        fprintf(stderr, "%s\n", error->text);
        return TRAINER_STOPPED;
    }
    return failed;
}

// Keeps the tokenizer in OUT, so that checkpoints do not depend on a file that may change while the run goes on.
static int keep_tokenizer(Job *job, Error *error)
{
    if (job->data.dataset.tokenizer_path == NULL) {
        fprintf(stderr, "warning: no tokenizer: checkpoints will hold none; ./generate and ./eval_ppl then need --tokenizer FILE\n");
        return 0;
    }
    job->tokenizer_copy = path_join(job->settings.out, "tokenizer.json");
    if (job->tokenizer_copy == NULL) {
        return error_set(error, "out of memory");
    }
    if (!ranks_first(&job->ranks)) {
        return 0;
    }
    // Whatever form it came in, checkpoints hold a tokenizer.json.
    return tokenizer_save(job->data.dataset.tokenizer, job->tokenizer_copy, error);
}

// ---- shape ----

// The vocabulary is the tokenizer's. What the command line or a file says must agree, except where it was a wish for a tokenizer to be
// trained.
static int settle_vocabulary(Job *job, Error *error)
{
    const Dataset *dataset = &job->data.dataset;
    int64_t asked = job->config.vocab_size;
    if (dataset->tokenizer == NULL) {
        return job->vocab_is_asked ? 0 : error_set(error, "%s: token shards need --tokenizer FILE, or --vocab-size N to train without one",
                                              dataset->sources[0].train.items[0]);
    }
    int64_t actual = (int64_t)tokenizer_vocab_size(dataset->tokenizer);
    bool wish = dataset->prepared && job->settings.tokenizer == NULL && job->saved == NULL && actual < asked;
    if (actual != asked && job->vocab_is_asked && !wish) {
        return error_set(error, "the tokenizer %s has %" PRId64 " ids, but vocab_size is %" PRId64 ": leave --vocab-size out, or change it",
                         dataset->tokenizer_path, actual, asked);
    }
    if (wish) {
        fprintf(stderr, "vocabulary: %" PRId64 " ids instead of %" PRId64 ", more could not be learned from these documents\n", actual, asked);
    }
    job->config.vocab_size = actual;
    return 0;
}

static int find_shape(Job *job, Error *error)
{
    if (job->checkpoint == NULL) {
        if (settings_model(&job->config, &job->vocab_is_asked, &job->settings, error)) {
            return -1;
        }
        config_settle_length(&job->config, job->settings.seq_len);
        return config_validate(&job->config, error);
    }
    if (checkpoint_load_model(&job->model, job->kernels, job->checkpoint, error)) {
        return -1;
    }
    job->config = job->model.config;
    job->vocab_is_asked = true;
    return settings_same_model(&job->settings, &job->config, error);
}

// ---- numbers of the run, memory ----

// Before documents are prepared, which takes long. How many ids there will be is not known yet: with one, only what no vocabulary could mend is refused.
static int check_rates(const Job *job, Error *error)
{
    ModelConfig least = job->config;
    TensorTable table;
    least.vocab_size = 1;
    if (params_table(&table, &least, error)) {
        return -1;
    }
    size_t params = table.total;
    tensor_table_free(&table);
    return settings_check_rates(&job->settings, params, error);
}

static void print_plan(const Job *job, size_t params, double needed, double available)
{
    const TrainSettings *s = &job->settings;
    const ModelConfig *config = &job->config;
    char kernels[96], a[32], b[32], c[32];
    double total = (double)s->steps * (double)s->batch_tokens;
    double epoch = (double)job->data.identity.windows * (double)s->seq_len;
    fprintf(stderr, "processor   %s; products in %s%s\n", kernels_describe(kernels, job->kernels), s->dtype,
            settings_bf16(s) && !job->kernels->fast_bf16 ? " (slower than f32 here: this processor has no bf16 products)" : "");
    fprintf(stderr, "data        %s tokens, %" PRIu64 " windows of %" PRId64 "; validation on %s\n", format_count(a, (double)job->data.identity.tokens),
            job->data.identity.windows, s->seq_len, job->data.val != NULL ? format_count(b, (double)loader_tokens(job->data.val)) : "nothing");
    run_data_print_sources(&job->data, (uint64_t)(s->steps * (s->batch_tokens / s->seq_len)));
    fprintf(stderr, "model       %zu parameters: %s, %" PRId64 " layers, d_model %" PRId64 ", vocabulary %" PRId64 "\n", params, config->mixer,
            config->n_layer, config->d_model, config->vocab_size);
    fprintf(stderr, "batch       %" PRId64 " tokens a step = %" PRId64 " × micro-batch %" PRId64 " × length %" PRId64 "%s\n", s->batch_tokens,
            s->batch_tokens / (s->micro_batch * s->seq_len), s->micro_batch, s->seq_len, s->reset_at_document ? ", states anew at each document" : "");
    if (job->ranks.count > 1) {
        fprintf(stderr, "ranks       %d, of them %d on this machine; %" PRId64 " shares of a step\n", job->ranks.count, job->ranks.local, s->shares);
    }
    fprintf(stderr, "run         %" PRId64 " steps, %s tokens, %.3g epochs; %s, rate %g to %g, %s, warm-up %" PRId64 "\n", s->steps,
            format_count(a, total), total / epoch, s->optimizer, s->lr, s->min_lr, s->schedule, s->warmup);
    fprintf(stderr, "memory      %s needed, %s available\n", format_bytes(b, needed),
            available > 0.0 ? format_bytes(c, available) : "unknown how much");
}

static int find_options(Job *job, const TensorTable *table, Error *error)
{
    TrainSettings *settings = &job->settings;
    RunSize size = {.params = table->total, .windows = job->data.identity.windows, .ranks = job->ranks.count};
    if (settings_resolve(settings, &size, error)) {
        return -1;
    }
    TrainerOptions *options = &job->options;
    *options = (TrainerOptions){.micro_batch = (size_t)settings->micro_batch, .seq_len = (size_t)settings->seq_len,
                                .n_micro = (size_t)(settings->batch_tokens / (settings->micro_batch * settings->seq_len)),
                                .shares = (size_t)settings->shares, .ranks = &job->ranks, .weight_decay = settings->weight_decay,
                                .clip = settings->clip, .bf16 = settings_bf16(settings), .recompute = settings->recompute,
                                .reset_at_document = settings->reset_at_document, .seed = (uint64_t)settings->seed,
                                .schedule = {.lr = settings->lr, .min_lr = settings->min_lr, .warmup = settings->warmup, .steps = settings->steps}};
    const Tokenizer *tokenizer = job->data.dataset.tokenizer;
    if (settings->reset_at_document && tokenizer == NULL) {
        return error_set(error, "--reset-at-document goes by <|endoftext|>, which only a tokenizer knows: give --tokenizer FILE");
    }
    options->end_of_text = tokenizer != NULL ? tokenizer_end_of_text(tokenizer) : -1;
    return schedule_kind(&options->schedule.kind, settings->schedule, error) || optimizer_kind(&options->optimizer, settings->optimizer, error) ? -1 : 0;
}

// Prints the plan; refuses what does not fit, and says which flag helps.
static int check_memory(const Job *job, const TensorTable *table, Error *error)
{
    const TrainerOptions *options = &job->options;
    double more = trainer_bytes(&job->config, table, options), available = memory_available();
    if (job->checkpoint != NULL) {   // the weights are loaded already
        more -= (double)table->total * sizeof(float);
    }
    more *= job->ranks.local;
    print_plan(job, table->total, job->ranks.local * memory_resident() + more, available);
    if (available > 0.0 && more > available) {
        char a[32], b[32];
        return error_set(error, "the run needs %s of memory and %s are available: %slower --micro-batch or --seq-len, or take a smaller --preset%s",
                         format_bytes(a, more), format_bytes(b, available), options->recompute ? "" : "add --recompute, ",
                         job->ranks.local > 1 ? " or fewer ranks on a machine" : "");
    }
    return 0;
}

static int plan(Job *job, Error *error)
{
    TensorTable table;
    if (params_table(&table, &job->config, error)) {
        return -1;
    }
    int failed = find_options(job, &table, error) || check_memory(job, &table, error);
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

static int make_trainer(Job *job, Error *error)
{
    const TrainerOptions *options = &job->options;
    if (job->checkpoint == NULL) {
        if (model_create(&job->model, &job->config, job->kernels, error)) {
            return -1;
        }
        model_init(&job->model, options->seed, options->seq_len);
    }
    if (trainer_create(&job->trainer, &job->model, options, error) || (job->checkpoint != NULL && restore_trainer(job, error))) {
        return -1;
    }
    job->trainer.train = job->data.train;
    job->trainer.val = job->data.val;
    if (job->data.val != NULL) {
        uint64_t all = loader_windows(job->data.val), asked = (uint64_t)(job->settings.eval_tokens / job->settings.seq_len);
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
        if (job->trainer.step == job->settings.steps) {
            fprintf(stderr, "all %" PRId64 " steps are done: give a larger --steps to go on\n", job->settings.steps);
        } else {
            fprintf(stderr, "the run has done %" PRId64 " steps already, more than the %" PRId64 " asked for: give --steps above %" PRId64 " to go on\n",
                    job->trainer.step, job->settings.steps, job->trainer.step);
        }
        return 0;
    }
    double own_peak = kernels_measure_peak(job->kernels, settings_bf16(&job->settings)), peak = 0.0;
    ranks_add(&job->ranks, &peak, &own_peak, 1);
    Run run = {.trainer = &job->trainer, .settings = &job->settings, .data = &job->data.identity, .tokenizer = job->data.dataset.tokenizer,
               .tokenizer_path = job->tokenizer_copy, .flops_per_token = flops_per_token(&job->trainer.model),
               .peak = peak, .saved_step = job->checkpoint != NULL ? job->saved_step : -1};
    fprintf(stderr, "peak        %.1f GFLOP/s\n", run.peak / 1e9);
    int status = run_loop(&run, error);
    if (status >= 0) {
        char most[32];
        fprintf(stderr, "memory      %s at the most\n", format_bytes(most, memory_peak()));
        const char *what = status == 0 ? "done:" : "stopped and saved, --resume goes on:";
        fprintf(stderr, "%s %s/step_%08" PRId64 "\n", what, job->settings.out, run.saved_step);
    }
    return status;
}

// ---- the whole ----

typedef int (*Stage)(Job *job, Error *error);

// A stage of all ranks at once, or of the first and then, when it has written what there is to write, of the others. Each returns 0, a
// number above 0 to stop without an error, or -1 with `error` set; and so do these, the same in all ranks.
static int run_together(Job *job, Stage stage, Error *error) { return ranks_agree(&job->ranks, stage(job, error), error); }

static int run_first(Job *job, Stage stage, Error *error)
{
    bool first = ranks_first(&job->ranks);
    int status = ranks_agree(&job->ranks, first ? stage(job, error) : 0, error);
    return status != 0 ? status : ranks_agree(&job->ranks, first ? 0 : stage(job, error), error);
}

static int choose_kernels(Job *job, Error *error)
{
    job->kernels = kernels_select(error);
    set_threads(job->settings.threads, &job->ranks);
    return job->kernels != NULL ? 0 : -1;
}

static int find_shape_and_data(Job *job, Error *error)
{
    return find_shape(job, error) || check_rates(job, error) || find_data(job, error) || lock_out(job, error) ? -1 : 0;
}

static int load_and_plan(Job *job, Error *error)
{
    return settle_vocabulary(job, error) || run_data_load(&job->data, job->config.vocab_size, error) || keep_tokenizer(job, error) ||
                   plan(job, error) ? -1 : 0;
}

static uint64_t hash_text(const char *text, uint64_t seed) { return XXH3_64bits_withSeed(text, strlen(text), seed); }

static int hash_settings(uint64_t *hash, const Job *job, Error *error)
{
    cJSON *settings = settings_to_json(&job->settings), *shape = config_to_json(&job->config);
    char *a = settings != NULL ? cJSON_PrintUnformatted(settings) : NULL, *b = shape != NULL ? cJSON_PrintUnformatted(shape) : NULL;
    int failed = a == NULL || b == NULL ? error_set(error, "out of memory") : 0;
    *hash = failed ? 0 : hash_text(a, hash_text(b, hash_text(job->settings.out, 0)));
    cJSON_free(a);
    cJSON_free(b);
    cJSON_Delete(settings);
    cJSON_Delete(shape);
    return failed;
}

// Ranks that are not set to the same work would train something else than what was asked, unnoticed.
static int check_same_work(Job *job, Error *error)
{
    uint64_t settings;
    const DataIdentity *data = &job->data.identity;
    const Trainer *trainer = &job->trainer;
    assert(job->kernels != NULL);
    if (ranks_agree(&job->ranks, hash_settings(&settings, job, error), error)) {
        return -1;
    }
    uint64_t windows[] = {data->fingerprint, data->tokens, data->windows, data->tokenizer_hash, trainer->eval_windows,
                          trainer->val != NULL ? loader_tokens(trainer->val) : 0};
    uint64_t start[] = {(uint64_t)trainer->step, trainer->window,
                        XXH3_64bits(trainer->model.params, trainer->model.table.total * sizeof *trainer->model.params)};
    return ranks_same(&job->ranks, hash_text(job->kernels->name, 0), "other kernels (see LATTICE_ISA)", error) ||
                   ranks_same(&job->ranks, settings, "other settings", error) ||
                   ranks_same(&job->ranks, XXH3_64bits(windows, sizeof windows), "other data", error) ||
                   ranks_same(&job->ranks, XXH3_64bits(start, sizeof start), "another checkpoint or other start values", error)
               ? -1 : 0;
}

static int run_job(Job *job, Error *error)
{
    int status = run_together(job, choose_kernels, error);
    status = status ? status : run_first(job, find_checkpoint, error);
    status = status ? status : run_together(job, find_shape_and_data, error);
    program_catch_stop(on_signal, false);
    status = status ? status : run_first(job, prepare_data, error);
    // All plan before one takes memory.
    status = status ? status : run_together(job, load_and_plan, error);
    status = status ? status : run_together(job, make_trainer, error);
    status = status ? status : check_same_work(job, error);
    return status ? status : train(job, error);
}

static void free_job(Job *job)
{
    trainer_free(&job->trainer);
    model_free(&job->model);
    run_data_free(&job->data);
    free(job->tokenizer_copy);
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
    program_start();
    ranks_hush();
    settings_init(&job.settings);
    settings_parse(&job.settings, argc, argv);
    signal(SIGPIPE, SIG_IGN);   // who reads the messages may leave: they are lost, the run goes on
    int status = ranks_start(&job.ranks, &error) ? -1 : run_job(&job, &error);
    // A signal may have reached one rank only.
    int code = status == TRAINER_STOPPED ? 128 + ranks_agree(&job.ranks, (int)stop_signal, &error) : 0;
    code = status < 0 ? args_fail(&error) : code;
    free_job(&job);
    // Starters of ranks end the others, and what they last wrote is lost, as soon as one fails: the rank that writes is the one to fail.
    bool first = ranks_first(&job.ranks);
    ranks_finish(&job.ranks);
    return first ? code : 0;
}
