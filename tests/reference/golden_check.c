#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/model.h"
#include "tests/reference/golden.h"

#define MAX_FILE ((size_t)64 << 20)

// The worst error seen under one label, over all implementations of a group.
typedef struct Finding {
    const char *label;
    char detail[112];       // which tensor or instruction set was worst
    bool fast;
    double error, tolerance;
} Finding;

typedef struct Report {
    Finding items[32];
    size_t count;
    const char *implementation;   // what is being compared now: "reference", "avx2", ...
    char implementations[128];    // the fast ones that were run
} Report;

static void report_add(Report *report, const char *label, const char *detail, bool is_gradient, double error)
{
    bool fast = strcmp(report->implementation, "reference") != 0;
    double tolerance = fast ? (is_gradient ? GOLDEN_FAST_GRADIENT : GOLDEN_FAST_OUTPUT) : GOLDEN_REFERENCE;
    size_t i = 0;
    while (i < report->count && (report->items[i].fast != fast || strcmp(report->items[i].label, label) != 0)) {
        i++;
    }
    if (i == sizeof report->items / sizeof report->items[0]) {
        return;
    }
    Finding *finding = &report->items[i];
    // Written so that NaN counts as worse than anything.
    if (i == report->count || !(error <= finding->error)) {
        *finding = (Finding){.label = label, .fast = fast, .error = error, .tolerance = tolerance};
        snprintf(finding->detail, sizeof finding->detail, "%s%s%s", report->implementation, detail[0] != '\0' ? ", " : "", detail);
        report->count += i == report->count;
    }
}

static void report_mixer(void *context, const char *name, bool is_gradient, double error) { report_add(context, name, "", is_gradient, error); }

static void report_fast(Report *report, const Kernels *kernels)
{
    size_t used = strlen(report->implementations);
    snprintf(report->implementations + used, sizeof report->implementations - used, " %s", kernels->name);
    report->implementation = kernels->name;
}

static int check_mixer(Report *report, const cJSON *json, Error *error)
{
    Pool pool = {0};
    GoldenMixer golden;
    int result = golden_read_mixer(&golden, &pool, json, error);
    if (result == 0) {
        const MixerCase *input = &golden.input;
        MixerResult reference = mixer_case_reference(&pool, input);
        report->implementation = "reference";
        mixer_result_compare(&reference, &golden.expected, input, report_mixer, report);
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL; kernels++) {
            if (mixer_find((*kernels)->mixers, mixer_case_fast_name(input)) != NULL) {
                report_fast(report, *kernels);
                MixerResult fast = mixer_case_fast(&pool, input, *kernels);
                mixer_result_compare(&fast, &golden.expected, input, report_mixer, report);
            }
        }
    }
    pool_free(&pool);
    return result;
}

// Compares loss (mean), logits and the gradient of every parameter.
static void compare_model(Report *report, double loss, const double *logits, const double *grads, const GoldenModel *golden)
{
    size_t n_logits = golden->batch * golden->length * (size_t)golden->config.vocab_size;
    report_add(report, "loss", "", false, relative_rms(&loss, &golden->loss, 1));
    report_add(report, "outputs", "", false, relative_rms(logits, golden->logits, n_logits));
    for (size_t i = 0; i < golden->table.count; i++) {
        const Tensor *tensor = &golden->table.items[i];
        report_add(report, "gradients", tensor->name, true, relative_rms(grads + tensor->offset, golden->grads + tensor->offset, tensor->count));
    }
}

static double *to_doubles(Pool *pool, const float *x, size_t n)
{
    double *out = pool_doubles(pool, n);
    for (size_t i = 0; i < n; i++) {
        out[i] = x[i];
    }
    return out;
}

static int check_model_fast(Report *report, const GoldenModel *golden, const Kernels *kernels, Error *error)
{
    Model model;
    if (model_create(&model, &golden->config, kernels, error) < 0) {
        return -1;
    }
    Workspace *workspace = workspace_create(&model, golden->batch, golden->length, WORKSPACE_TRAINING, error);
    if (workspace == NULL) {
        model_free(&model);
        return -1;
    }
    Pool pool = {0};
    size_t n = golden->batch * golden->length, n_logits = n * (size_t)golden->config.vocab_size, total = golden->table.total;
    float *logits = pool_floats(&pool, n_logits), *grads = pool_floats(&pool, total);
    for (size_t i = 0; i < total; i++) {
        model.params[i] = (float)golden->params[i];
    }
    model_forward(&model, workspace, NULL, 0, golden->tokens, golden->batch, golden->length);
    model_logits(logits, &model, workspace, 0, n);
    double loss = model_loss(NULL, grads, &model, workspace, golden->targets, 1.0f / (float)n) / (double)n;
    model_backward(grads, &model, workspace, golden->tokens);
    report_fast(report, kernels);
    compare_model(report, loss, to_doubles(&pool, logits, n_logits), to_doubles(&pool, grads, total), golden);
    pool_free(&pool);
    workspace_free(workspace);
    model_free(&model);
    return 0;
}

static int check_model(Report *report, const cJSON *json, Error *error)
{
    Pool pool = {0};
    GoldenModel golden;
    int result = golden_read_model(&golden, &pool, json, error);
    if (result == 0) {
        size_t n = golden.batch * golden.length;
        double *logits = pool_doubles(&pool, n * (size_t)golden.config.vocab_size), *grads = pool_doubles(&pool, golden.table.total);
        double loss = reference_model(logits, grads, &golden.config, &golden.table, golden.params, golden.tokens, golden.targets, 1.0 / (double)n,
                                      golden.batch, golden.length) / (double)n;
        report->implementation = "reference";
        compare_model(report, loss, logits, grads, &golden);
        for (const Kernels *const *kernels = kernels_available(); *kernels != NULL && result == 0; kernels++) {
            result = check_model_fast(report, &golden, *kernels, error);
        }
        tensor_table_free(&golden.table);
    }
    pool_free(&pool);
    return result;
}

static void append(char *line, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void append(char *line, size_t size, const char *format, ...)
{
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, size - used, format, args);
    va_end(args);
}

static bool write_line(char *line, size_t size, const Report *report)
{
    bool ok = true;
    for (int fast = 0; fast < (report->implementations[0] != '\0' ? 2 : 1); fast++) {
        append(line, size, "%s%s:", fast ? "; fast" : " reference", fast ? report->implementations : "");
        for (size_t i = 0; i < report->count; i++) {
            if (report->items[i].fast == (fast == 1)) {
                append(line, size, " %s %.1e", report->items[i].label, report->items[i].error);
            }
        }
    }
    for (size_t i = 0; i < report->count; i++) {
        const Finding *finding = &report->items[i];
        if (!(finding->error <= finding->tolerance)) {
            append(line, size, "%s %s (%s) %.1e is above %.0e", ok ? ": FAILED:" : ",", finding->label, finding->detail, finding->error, finding->tolerance);
            ok = false;
        }
    }
    if (ok) {
        append(line, size, ": ok");
    }
    return ok;
}

bool golden_check(char *line, size_t line_size, const char *path)
{
    Error error = {""};
    Report report = {0};
    int result = -1;
    snprintf(line, line_size, "%s:", path_base(path));
    cJSON *json = json_read_file(path, MAX_FILE, &error);
    if (json != NULL) {
        const cJSON *meta = cJSON_GetObjectItemCaseSensitive(json, "meta");
        const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "kind"));
        result = kind != NULL && strcmp(kind, "model") == 0 ? check_model(&report, json, &error) : check_mixer(&report, json, &error);
        cJSON_Delete(json);
    }
    if (result < 0) {
        append(line, line_size, " FAILED: %s", error.text);
        return false;
    }
    return write_line(line, line_size, &report);
}
