#include "experiments/recall_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/progress.h"
#include "experiments/describe.h"
#include "experiments/recall.h"
#include "model/model.h"
#include "training/schedule.h"

#define WEIGHT_DECAY 0.1
#define CLIP 1.0
#define TESTS 20               // times that a run looks at its test set
#define TRAIN_STREAM 11        // of the run's seed
#define TEST_STREAM 12         // of seed 0
#define MAX_SIZES 32           // of sequences in a run that grows
#define GROW_LOSS 0.7          // nats a query: well below what guessing costs among four values
#define GROW_MEMORY 0.9        // of the mean of losses, a step

typedef struct Lab {
    const RecallRun *run;
    Model model;
    Optimizer optimizer;
    Workspace *workspace;
    Recall tasks[MAX_SIZES];        // [n_sizes] the task itself, then one of half the pairs and length after the other
    size_t n_sizes, size;           // the size that is trained on
    double recent;                  // mean loss of the last steps of this size
    Rng rng;                        // of the training sequences
    int32_t *tokens, *targets;      // [batch, length] at most
    int32_t *test_tokens, *test_targets;   // [n_test, length]
    float *gradients;               // [model.table.total]
    float *logits;                  // [vocab]
} Lab;

static void lab_free(Lab *lab)
{
    free(lab->tokens);
    free(lab->targets);
    free(lab->test_tokens);
    free(lab->test_targets);
    free(lab->gradients);
    free(lab->logits);
    workspace_free(lab->workspace);
    optimizer_free(&lab->optimizer);
    model_free(&lab->model);
    for (size_t i = 0; i < lab->n_sizes; i++) {
        recall_free(&lab->tasks[i]);
    }
}

static void draw(int32_t *tokens, int32_t *targets, Recall *task, size_t count, Rng *rng)
{
    for (size_t i = 0; i < count; i++) {
        recall_sequence(tokens + i * task->length, targets + i * task->length, task, rng);
    }
}

// The task and, of a run that grows, its halves, quarters and so on; training begins with the smallest.
static int create_tasks(Lab *lab, Error *error)
{
    const RecallRun *run = lab->run;
    if (run->grow_from > run->pairs) {
        return error_set(error, "sequences of %zu pairs cannot grow from %zu: begin with fewer", run->pairs, run->grow_from);
    }
    size_t pairs = run->pairs, length = run->length;
    bool more = true;
    while (more) {
        if (recall_create(&lab->tasks[lab->n_sizes], pairs, length, (size_t)run->config.vocab_size, error) != 0) {
            return -1;
        }
        lab->n_sizes++;
        more = run->grow_from > 0 && pairs % 2 == 0 && length % 2 == 0 && pairs / 2 >= run->grow_from && lab->n_sizes < MAX_SIZES;
        pairs /= 2;
        length /= 2;
    }
    lab->size = lab->n_sizes - 1;
    lab->recent = INFINITY;
    return 0;
}

// `lab` is zeroed; what it holds after a failure lab_free frees.
static int lab_open(Lab *lab, const RecallRun *run, Error *error)
{
    Rng test_rng;
    const Kernels *kernels = kernels_select(error);
    size_t row = run->length * sizeof(int32_t);
    lab->run = run;
    if (kernels == NULL || create_tasks(lab, error) != 0 ||
        model_create(&lab->model, &run->config, kernels, error) != 0 ||
        optimizer_create(&lab->optimizer, run->optimizer, &lab->model.table, WEIGHT_DECAY, error) != 0 ||
        (lab->workspace = workspace_create(&lab->model, run->batch, run->length, WORKSPACE_TRAINING, error)) == NULL) {
        return -1;
    }
    lab->tokens = calloc(run->batch, row);
    lab->targets = calloc(run->batch, row);
    lab->test_tokens = calloc(run->n_test, row);
    lab->test_targets = calloc(run->n_test, row);
    lab->gradients = memory_large(lab->model.table.total * sizeof(float));
    lab->logits = calloc((size_t)run->config.vocab_size, sizeof(float));
    if (lab->tokens == NULL || lab->targets == NULL || lab->test_tokens == NULL || lab->test_targets == NULL || lab->gradients == NULL ||
        lab->logits == NULL) {
        return error_set(error, "out of memory for %zu and %zu sequences of %zu tokens", run->batch, run->n_test, run->length);
    }
    model_init(&lab->model, run->seed, run->length);
    rng_seed(&lab->rng, run->seed, TRAIN_STREAM);
    rng_seed(&test_rng, 0, TEST_STREAM);
    draw(lab->test_tokens, lab->test_targets, &lab->tasks[0], run->n_test, &test_rng);
    return 0;
}

// Sequences become twice as long once those of this size are mostly answered.
static void grow(Lab *lab, double loss)
{
    lab->recent = isfinite(lab->recent) ? GROW_MEMORY * lab->recent + (1.0 - GROW_MEMORY) * loss : loss;
    if (lab->size > 0 && lab->recent < GROW_LOSS) {
        lab->size--;
        lab->recent = INFINITY;
    }
}

// One step on fresh sequences. Returns false, with the weights as they were, when loss or gradient are not finite.
static bool train_step(Lab *lab, double lr)
{
    Model *model = &lab->model;
    Recall *task = &lab->tasks[lab->size];
    size_t batch = lab->run->batch, queries = batch * task->pairs;
    draw(lab->tokens, lab->targets, task, batch, &lab->rng);
    memset(lab->gradients, 0, model->table.total * sizeof(float));
    model_forward(model, lab->workspace, NULL, 0, lab->tokens, batch, task->length);
    double loss = model_loss(NULL, lab->gradients, model, lab->workspace, lab->targets, 1.0f / (float)queries);
    model_backward(lab->gradients, model, lab->workspace, lab->tokens);
    double norm = sqrt(arena_sum_squares(model, lab->gradients));
    if (!isfinite(loss) || !isfinite(norm)) {
        return false;
    }
    optimizer_step(&lab->optimizer, model, lab->gradients, norm > CLIP ? CLIP / norm : 1.0, lr);
    grow(lab, loss / (double)queries);
    return true;
}

// Whether the target alone has the highest logit in a row of the sequences that the workspace holds.
static bool answered(Lab *lab, size_t row, int32_t target)
{
    model_logits(lab->logits, &lab->model, lab->workspace, row, 1);
    for (int64_t i = 0; i < lab->run->config.vocab_size; i++) {
        if (i != target && !(lab->logits[i] < lab->logits[target])) {
            return false;
        }
    }
    return true;
}

static void test(RecallResult *result, Lab *lab)
{
    const RecallRun *run = lab->run;
    size_t right = 0, length = run->length;
    double loss = 0.0;
    for (size_t first = 0; first < run->n_test; first += run->batch) {
        size_t count = run->n_test - first < run->batch ? run->n_test - first : run->batch;
        const int32_t *targets = lab->test_targets + first * length;
        model_forward(&lab->model, lab->workspace, NULL, 0, lab->test_tokens + first * length, count, length);
        for (size_t row = 0; row < count * length; row++) {
            right += targets[row] >= 0 && answered(lab, row, targets[row]);
        }
        loss += model_loss(NULL, NULL, &lab->model, lab->workspace, targets, 0.0f);
    }
    result->accuracy = (double)right / (double)(run->n_test * run->pairs);
    result->loss = loss / (double)(run->n_test * run->pairs);
}

static void train(RecallResult *result, Lab *lab)
{
    const RecallRun *run = lab->run;
    Schedule schedule = {.kind = SCHEDULE_COSINE, .lr = run->lr, .min_lr = 0.0, .warmup = run->steps / 20 + 1, .steps = run->steps};
    int64_t every = run->steps / TESTS + 1;
    Progress progress;
    progress_init(&progress);
    bool finite = true, done = false;
    while (finite && !done && result->steps < run->steps) {
        finite = train_step(lab, schedule_rate(&schedule, result->steps));
        result->steps += finite;
        if (!finite || result->steps % every == 0 || result->steps == run->steps) {
            test(result, lab);
            done = result->accuracy >= run->until;
            progress_show(&progress, !finite || done || result->steps == run->steps,
                          "step %" PRId64 " of %" PRId64 " (%zu pairs): loss %.4f, accuracy %.4f%s", result->steps, run->steps, lab->tasks[lab->size].pairs,
                          result->loss, result->accuracy, finite ? "" : "; the next loss or gradient was not finite");
        }
    }
    progress_break(&progress);
}

// Of the processor: other programs take none of it.
static double cpu_seconds(void)
{
    struct timespec now;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0 ? (double)now.tv_sec + (double)now.tv_nsec * 1e-9 : 0.0;
}

int recall_run(RecallResult *result, const RecallRun *run, Error *error)
{
    Lab lab = {0};
    double start = cpu_seconds();
    *result = (RecallResult){0};
    int status = lab_open(&lab, run, error);
    if (status == 0) {
        result->parameters = lab.model.table.total;
        result->state = describe_memory(&lab.model.state.table);
        train(result, &lab);
        result->pairs = lab.tasks[lab.size].pairs;
        result->seconds = cpu_seconds() - start;
    }
    lab_free(&lab);
    return status;
}
