#include "infer/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/kernels/simd.h"

void sampler_defaults(SamplerOptions *options)
{
    *options = (SamplerOptions){.temperature = 0.8, .top_k = 0, .top_p = 1.0, .min_p = 0.0, .repeat_penalty = 1.0};
}

static int check_options(const SamplerOptions *options, Error *error)
{
    if (!(options->temperature >= 0.0 && isfinite(options->temperature))) {
        return error_set(error, "temperature %g: it must be 0 (greedy) or above", options->temperature);
    }
    if (options->top_k < 0) {
        return error_set(error, "top-k %" PRId64 ": it must be 0 (off) or above", options->top_k);
    }
    if (!(options->top_p > 0.0 && options->top_p <= 1.0)) {
        return error_set(error, "top-p %g: it must be above 0 and at most 1 (off)", options->top_p);
    }
    if (!(options->min_p >= 0.0 && options->min_p <= 1.0)) {
        return error_set(error, "min-p %g: it must be from 0 (off) to 1", options->min_p);
    }
    if (!(options->repeat_penalty > 0.0 && isfinite(options->repeat_penalty))) {
        return error_set(error, "repeat-penalty %g: it must be above 0 (1: off)", options->repeat_penalty);
    }
    return 0;
}

int sampler_create(Sampler *sampler, const SamplerOptions *options, size_t vocab_size, uint64_t seed, uint64_t stream, Error *error)
{
    if (check_options(options, error) != 0) {
        return -1;
    }
    *sampler = (Sampler){.options = *options, .vocab_size = vocab_size};
    if (vocab_size == 0 || vocab_size > INT32_MAX || vocab_size > SIZE_MAX / sizeof(SamplerCandidate)) {
        return error_set(error, "cannot sample from a vocabulary of %zu tokens", vocab_size);
    }
    sampler->candidates = malloc(vocab_size * sizeof *sampler->candidates);
    sampler->weights = malloc(vocab_size * sizeof *sampler->weights);
    if (sampler->candidates == NULL || sampler->weights == NULL) {
        sampler_free(sampler);
        return error_set(error, "out of memory for sampling from %zu tokens", vocab_size);
    }
    rng_seed(&sampler->rng, seed, stream);
    return 0;
}

void sampler_free(Sampler *sampler)
{
    free(sampler->candidates);
    free(sampler->weights);
    sampler->candidates = NULL;
    sampler->weights = NULL;
}

void sampler_accept(Sampler *sampler, int32_t token)
{
    sampler->recent[sampler->n_seen % SAMPLER_WINDOW] = token;
    sampler->n_seen++;
}

static size_t n_recent(const Sampler *sampler) { return sampler->n_seen < SAMPLER_WINDOW ? (size_t)sampler->n_seen : SAMPLER_WINDOW; }

// Copies the logits to the candidates, with the repeat penalty.
static int fill_candidates(Sampler *sampler, const float *logits, Error *error)
{
    bool any = false;
    for (size_t i = 0; i < sampler->vocab_size; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) {
            return error_set(error, "the model's logit of token %zu is %s: the weights or the state are damaged", i,
                             isnan(logits[i]) ? "NaN" : "infinite");
        }
        any = any || logits[i] != -INFINITY;
        sampler->candidates[i] = (SamplerCandidate){logits[i], (int32_t)i};
    }
    if (!any) {
        return error_set(error, "all logits of the model are -infinity: the weights or the state are damaged");
    }
    float penalty = (float)sampler->options.repeat_penalty;
    for (size_t i = 0; penalty != 1.0f && i < n_recent(sampler); i++) {
        // From the caller's logits, not from the candidate: a token that stands twice in the window is penalised once.
        size_t id = (size_t)sampler->recent[i];
        if (id < sampler->vocab_size) {
            sampler->candidates[id].logit = logits[id] > 0.0f ? logits[id] / penalty : logits[id] * penalty;
        }
    }
    return 0;
}

static bool better(const SamplerCandidate *a, const SamplerCandidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(SamplerCandidate *heap, size_t i, size_t count)
{
    SamplerCandidate moving = heap[i];
    for (size_t child = 2 * i + 1; child < count; child = 2 * i + 1) {
        if (child + 1 < count && better(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!better(&heap[child], &moving)) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

// The weight of each candidate, in vectors: e^x is most of what sampling costs. Returns their sum.
static double fill_weights(Sampler *sampler, float largest)
{
    const vfloat inverse = v_set((float)fmin(1.0 / sampler->options.temperature, 1e30)), none = {0}, least = v_set(-87.0f);
    double total = 0.0;
    for (size_t i = 0; i < sampler->vocab_size; i += VECTOR_FLOATS) {
        float logits[VECTOR_FLOATS];
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            logits[l] = i + l < sampler->vocab_size ? sampler->candidates[i + l].logit : -INFINITY;
        }
        vfloat x = (v_load(logits) - v_set(largest)) * inverse, weight = v_select(x > least, v_exp(x), none);
        v_store_n(sampler->weights + i, weight, sampler->vocab_size - i);
        total += (double)v_sum(weight);
    }
    return total;
}

static int32_t sample_all(Sampler *sampler, float largest)
{
    double rest = fill_weights(sampler, largest);
    rest *= rng_uniform(&sampler->rng);
    size_t last = 0;
    for (size_t i = 0; i < sampler->vocab_size; i++) {
        double weight = (double)sampler->weights[i];
        if (weight > 0.0) {
            last = i;
            rest -= weight;
            if (rest < 0.0) {
                break;
            }
        }
    }
    return sampler->candidates[last].id;   // rounding may leave a crumb: then the last possible token
}

// Draws from the best `count` candidates, the first one last in memory; weights exp((logit − largest)/T), whose sum is `total`.
static int32_t draw(Sampler *sampler, const SamplerCandidate *best, size_t count, double largest, double total)
{
    double rest = rng_uniform(&sampler->rng) * total;
    const SamplerCandidate *last = best;
    for (size_t i = 0; i < count; i++) {
        const SamplerCandidate *candidate = best - i;
        double weight = exp((candidate->logit - largest) / sampler->options.temperature);
        if (weight > 0.0) {
            last = candidate;
            rest -= weight;
            if (rest < 0.0) {
                break;
            }
        }
    }
    return last->id;
}

// The best candidates are taken from a heap one by one, for as long as the filters let them in: sorting the whole vocabulary would cost
// more than the model's last layer.
static int32_t sample_filtered(Sampler *sampler, float best)
{
    const SamplerOptions *options = &sampler->options;
    SamplerCandidate *heap = sampler->candidates;
    size_t vocab = sampler->vocab_size;
    size_t limit = options->top_k > 0 && (uint64_t)options->top_k < vocab ? (size_t)options->top_k : vocab;
    size_t taken = 0;
    double largest = best, temperature = options->temperature, total = limit == vocab ? fill_weights(sampler, best) : 0.0;
    for (size_t i = vocab / 2; i-- > 0;) {
        sift_down(heap, i, vocab);
    }
    if (limit < vocab) {
        for (; taken < limit; taken++) {
            SamplerCandidate top = heap[0];
            heap[0] = heap[vocab - 1 - taken];
            sift_down(heap, 0, vocab - 1 - taken);
            heap[vocab - 1 - taken] = top;
            total += exp((top.logit - largest) / temperature);
        }
    }
    double mass = 0.0, least = options->min_p;
    size_t kept = 0;
    while (kept < limit && mass < options->top_p * total) {
        if (kept == taken) {
            SamplerCandidate top = heap[0];
            heap[0] = heap[vocab - 1 - taken];
            sift_down(heap, 0, vocab - 1 - taken);
            heap[vocab - 1 - taken] = top;
            taken++;
        }
        double weight = exp((heap[vocab - 1 - kept].logit - largest) / temperature);
        if (kept > 0 && (weight < least || weight <= 0.0)) {
            break;
        }
        mass += weight;
        kept++;
    }
    return draw(sampler, heap + vocab - 1, kept, largest, mass);
}

int sampler_sample(Sampler *sampler, int32_t *token, const float *logits, Error *error)
{
    if (fill_candidates(sampler, logits, error) != 0) {
        return -1;
    }
    const SamplerOptions *options = &sampler->options;
    const SamplerCandidate *best = &sampler->candidates[0];
    for (size_t i = 1; i < sampler->vocab_size; i++) {
        if (sampler->candidates[i].logit > best->logit) {
            best = &sampler->candidates[i];
        }
    }
    if (options->temperature == 0.0) {
        *token = best->id;
    } else if (options->top_k == 0 && options->top_p == 1.0 && options->min_p == 0.0) {
        *token = sample_all(sampler, best->logit);
    } else {
        *token = sample_filtered(sampler, best->logit);
    }
    sampler_accept(sampler, *token);
    return 0;
}

char *sampler_to_text(const Sampler *sampler)
{
    size_t size = 4 * 17 + 24 + SAMPLER_WINDOW * 12, used = 0;
    char *text = malloc(size);
    if (text == NULL) {
        return NULL;
    }
    for (int i = 0; i < 4; i++) {
        used += (size_t)snprintf(text + used, size - used, "%016" PRIx64 " ", sampler->rng.state[i]);
    }
    size_t count = n_recent(sampler);
    used += (size_t)snprintf(text + used, size - used, "%zu", count);
    for (size_t i = 0; i < count; i++) {
        int32_t id = sampler->recent[(sampler->n_seen - count + i) % SAMPLER_WINDOW];
        used += (size_t)snprintf(text + used, size - used, " %" PRId32, id);
    }
    return text;
}

// Reads one number of the given base, of digits alone, and what parts it from the next.
static int read_number(const char **text, int base, uint64_t *value)
{
    char first = **text;
    bool digit = (first >= '0' && first <= '9') || (base == 16 && first >= 'a' && first <= 'f');
    if (!digit) {
        return -1;
    }
    char *end = NULL;
    *value = strtoull(*text, &end, base);
    if (*end != ' ' && *end != '\0') {
        return -1;
    }
    *text = *end == ' ' ? end + 1 : end;
    return 0;
}

int sampler_from_text(Sampler *sampler, const char *text, Error *error)
{
    Rng rng;
    uint64_t count = 0, id = 0;
    int32_t recent[SAMPLER_WINDOW] = {0};
    int result = 0;
    for (int i = 0; result == 0 && i < 4; i++) {
        result = read_number(&text, 16, &rng.state[i]);
    }
    if (result == 0) {
        result = read_number(&text, 10, &count);
    }
    for (uint64_t i = 0; result == 0 && i < count; i++) {
        result = i < SAMPLER_WINDOW ? read_number(&text, 10, &id) : -1;
        if (result == 0 && id < sampler->vocab_size) {
            recent[i] = (int32_t)id;
        } else {
            result = -1;
        }
    }
    // xoshiro never leaves the all-zero state.
    if (result != 0 || *text != '\0' || (rng.state[0] | rng.state[1] | rng.state[2] | rng.state[3]) == 0) {
        return error_set(error, "the random state in the file is not one that this program wrote");
    }
    sampler->rng = rng;
    memcpy(sampler->recent, recent, sizeof recent);
    sampler->n_seen = count;
    return 0;
}
