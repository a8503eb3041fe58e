// ./generate: continues a prompt, or talks in a loop; saves and restores the memory.
//
// One Job holds all: the session (what the model remembers), a sampler and a text buffer for each sample. The text goes read_prompt -> feed
// -> decode; decode keeps the session one step ahead, so that it can be saved, or fed the next line, at any point.

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/file.h"
#include "base/program.h"
#include "base/progress.h"
#include "infer/output.h"
#include "infer/runtime.h"
#include "infer/sampler.h"
#include "infer/session.h"
#include "infer/utf8.h"

#define MAX_PROMPT_BYTES ((size_t)1 << 30)
#define PROGRESS_TOKENS (4 * (size_t)SESSION_PIECE)   // longer prompts show how far they are

typedef struct Options {
    const char *prompt, *file, *tokenizer, *save_state, *load_state, *dtype;
    int64_t n_tokens, seed, n_samples, threads;
    WeightType weights;   // what `dtype` names
    SamplerOptions sampling;
    bool greedy, interactive, seed_given;
} Options;

typedef struct Text {
    char *bytes;
    size_t length, capacity;
} Text;

typedef struct Job {
    Options options;
    Runtime runtime;
    Session *session;
    Encoder *encoder;
    size_t n_samples;
    Sampler *samplers;   // [n_samples]
    Text *texts;         // [n_samples] decoded and not yet printed
    int32_t *tokens;     // [n_samples] the last ones
    bool *finished;      // [n_samples]
    uint64_t prompt_tokens, decoded_tokens;
    double prompt_seconds, decode_seconds;
} Job;

static volatile sig_atomic_t stop_signal = 0;

static void on_signal(int number) { stop_signal = number; }

static int text_append(Text *text, const char *bytes, size_t length, Error *error)
{
    if (length > text->capacity - text->length) {
        size_t capacity = text->capacity * 2 > text->length + length ? text->capacity * 2 : text->length + length + 256;
        char *grown = realloc(text->bytes, capacity);
        if (grown == NULL) {
            return error_set(error, "out of memory for the text");
        }
        text->bytes = grown;
        text->capacity = capacity;
    }
    if (length > 0) {
        memcpy(text->bytes + text->length, bytes, length);
        text->length += length;
    }
    return 0;
}

// Prints the first bytes of the text and drops them.
static int text_print(Text *text, size_t length, Error *error)
{
    if (length > 0 && (fwrite(text->bytes, 1, length, stdout) != length || fflush(stdout) != 0)) {
        return error_set(error, "cannot write to standard output: %s", strerror(errno));
    }
    if (length > 0) {
        memmove(text->bytes, text->bytes + length, text->length - length);
        text->length -= length;
    }
    return 0;
}

static int read_standard_input(Text *text, Error *error)
{
    char buffer[65536];
    for (;;) {
        ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR && stop_signal == 0) {
            continue;
        }
        if (n < 0) {
            return error_set(error, "cannot read the prompt from standard input: %s", strerror(errno));
        }
        if (n == 0) {
            return 0;
        }
        if ((size_t)n > MAX_PROMPT_BYTES - text->length) {
            return error_set(error, "the prompt on standard input is longer than %zu bytes", MAX_PROMPT_BYTES);
        }
        if (text_append(text, buffer, (size_t)n, error) != 0) {
            return -1;
        }
    }
}

// The prompt's bytes. A newline at the very end of a file or of standard input ends the last line and is no part of the prompt.
static int read_prompt(Text *text, const Options *options, Error *error)
{
    if (options->prompt != NULL) {
        return text_append(text, options->prompt, strlen(options->prompt), error);
    }
    if (options->file != NULL) {
        text->bytes = file_read(options->file, MAX_PROMPT_BYTES, &text->length, error);
        text->capacity = text->length;
        if (text->bytes == NULL) {
            return -1;
        }
    } else if (!options->interactive && !isatty(STDIN_FILENO) && read_standard_input(text, error) != 0) {
        return -1;
    }
    if (text->length > 0 && text->bytes[text->length - 1] == '\n') {
        text->length--;
    }
    return 0;
}

// Reads tokens into the memory, with progress on long prompts. Returns how many were read: fewer when a signal came.
static size_t feed_tokens(Job *job, const int32_t *ids, size_t count)
{
    Progress progress;
    progress_init(&progress);
    double start = seconds_now();
    size_t done = 0;
    while (done < count && stop_signal == 0) {
        size_t length = count - done < PROGRESS_TOKENS ? count - done : PROGRESS_TOKENS;
        session_feed(job->session, ids + done, length);
        done += length;
        if (count > PROGRESS_TOKENS) {
            progress_show(&progress, false, "prompt: %zu of %zu tokens, %.0f tokens/s", done, count,
                          (double)done / (seconds_now() - start));
        }
    }
    progress_break(&progress);
    job->prompt_tokens += done;
    job->prompt_seconds += seconds_now() - start;
    return done;
}

// Reads text into the memory; at the start of everything <|endoftext|> goes before it, as in the training data. On an error nothing was read, unless a signal
// came.
static int feed(Job *job, const char *text, size_t length, Error *error)
{
    TokenList list = {0};
    if (encoder_encode(job->encoder, &list, text, length, 0, error) != 0) {
        token_list_free(&list);
        return -1;
    }
    size_t before = job->session->position == 0 ? 1 : 0, count = list.count + before;
    int32_t *ids = malloc((count + 1) * sizeof *ids);
    int result = ids == NULL ? error_set(error, "out of memory for a prompt of %zu tokens", count)
                             : session_reserve(job->session, count + (size_t)job->options.n_tokens, error);
    if (result != 0) {
        token_list_free(&list);
        free(ids);
        return -1;
    }
    for (size_t i = list.count > SAMPLER_WINDOW ? list.count - SAMPLER_WINDOW : 0; i < list.count; i++) {
        for (size_t s = 0; s < job->n_samples; s++) {
            sampler_accept(&job->samplers[s], list.ids[i]);
        }
    }
    ids[0] = tokenizer_end_of_text(job->runtime.tokenizer);
    if (list.count > 0) {
        memcpy(ids + before, list.ids, list.count * sizeof *ids);
    }
    token_list_free(&list);
    size_t done = feed_tokens(job, ids, count);
    free(ids);
    return done == count ? 0 : error_set(error, "stopped while reading the prompt: nothing was generated or saved");
}

// Samples the next token of every sequence that goes on. Returns how many do, or -1.
static int64_t sample_tokens(Job *job, Error *error)
{
    int32_t end_of_text = tokenizer_end_of_text(job->runtime.tokenizer);
    int64_t going_on = 0;
    for (size_t i = 0; i < job->n_samples; i++) {
        if (job->finished[i]) {
            continue;
        }
        if (sampler_sample(&job->samplers[i], &job->tokens[i], session_logits(job->session, i), error) != 0) {
            return -1;
        }
        if (job->tokens[i] == end_of_text) {
            job->finished[i] = true;   // the sequence idles at <|endoftext|> until the others are done
            continue;
        }
        size_t length = 0;
        const char *bytes = tokenizer_token(job->runtime.tokenizer, job->tokens[i], &length);
        if (bytes != NULL && text_append(&job->texts[i], bytes, length, error) != 0) {
            return -1;
        }
        job->decoded_tokens++;
        going_on++;
    }
    return going_on;
}

// Generates up to n_tokens for each sequence. A single one is printed as it comes.
static int decode(Job *job, Error *error)
{
    double start = seconds_now();
    memset(job->finished, 0, job->n_samples * sizeof *job->finished);
    int64_t going_on = 1;
    for (int64_t n = 0; n < job->options.n_tokens && going_on > 0 && stop_signal == 0; n++) {
        going_on = sample_tokens(job, error);
        if (going_on < 0) {
            return -1;
        }
        Text *first = &job->texts[0];
        if (job->n_samples == 1 && text_print(first, utf8_showable(first->bytes, first->length), error) != 0) {
            return -1;
        }
        session_step(job->session, job->tokens);
    }
    job->decode_seconds += seconds_now() - start;
    if (job->n_samples == 1) {
        return text_print(&job->texts[0], job->texts[0].length, error);
    }
    for (size_t i = 0; i < job->n_samples; i++) {
        printf("--- sample %zu of %zu ---\n", i + 1, job->n_samples);
        if (text_append(&job->texts[i], "\n", 1, error) != 0 || text_print(&job->texts[i], job->texts[i].length, error) != 0) {
            return -1;
        }
    }
    return 0;
}

// Whether the memory can be saved there without destroying something. A device would be replaced by the file, so it is refused.
static int check_state_file(const Job *job, const char *flag, const char *path, Error *error)
{
    const OutputFile output = {flag, path};
    const char *prompt = job->options.file;
    if (output_check(&output, 1, (char *const *)(uintptr_t)&prompt, prompt != NULL, error) != 0) {
        return -1;
    }
    return path == NULL || !file_exists(path) || file_size(path) >= 0
               ? 0
               : error_set(error, "%s %s is no regular file: name another", flag, path);
}

static int save_state(const Job *job, const char *path, Error *error)
{
    char *note = sampler_to_text(&job->samplers[0]);
    if (note == NULL) {
        return error_set(error, "out of memory while saving %s", path);
    }
    int result = session_save(job->session, path, note, error);
    free(note);
    if (result == 0) {
        fprintf(stderr, "state at position %zu saved to %s\n", job->session->position, path);
    }
    return result;
}

// The random numbers go on where the saved ones stopped, unless --seed asks for others.
static int load_state(Job *job, const char *path, Error *error)
{
    char *note = NULL;
    if (session_load(job->session, path, &note, error) != 0) {
        return -1;
    }
    int result = 0;
    for (size_t i = 0; i < job->n_samples && note[0] != '\0' && result == 0; i++) {
        Rng fresh = job->samplers[i].rng;
        result = sampler_from_text(&job->samplers[i], note, error);
        if (result == 0 && job->options.seed_given) {
            job->samplers[i].rng = fresh;
        } else if (result == 0 && i > 0) {
            rng_seed(&job->samplers[i].rng, job->samplers[0].rng.state[0], i);
        }
    }
    free(note);
    if (result == 0) {
        fprintf(stderr, "state at position %zu loaded from %s\n", job->session->position, path);
    }
    return result;
}

// What a line that starts with '/' asks for. Returns 1 to go on, 0 to quit. Failures are told and leave everything as it is.
static int run_command(Job *job, const char *line)
{
    Error error;
    int result = 0;
    if (strcmp(line, "/quit") == 0) {
        return 0;
    }
    if (strcmp(line, "/reset") == 0) {
        session_reset(job->session);
        job->samplers[0].n_seen = 0;
        fprintf(stderr, "the memory is empty\n");
    } else if (strncmp(line, "/save ", 6) == 0 && line[6] != '\0') {
        result = check_state_file(job, "/save", line + 6, &error) == 0 ? save_state(job, line + 6, &error) : -1;
    } else if (strncmp(line, "/load ", 6) == 0 && line[6] != '\0') {
        result = load_state(job, line + 6, &error);
    } else {
        fprintf(stderr, "unknown command; there are /save FILE, /load FILE, /reset, /quit\n");
    }
    if (result != 0) {
        args_fail(&error);
    }
    return 1;
}

static int interact(Job *job, Error *error)
{
    fprintf(stderr, "Write a line and the model continues it; the memory lasts from line to line. An empty line: just go on.\n"
                    "Commands: /save FILE, /load FILE, /reset, /quit.\n");
    char *line = NULL;
    size_t capacity = 0;
    int result = 0;
    while (result == 0 && stop_signal == 0) {
        if (isatty(STDIN_FILENO)) {
            fputs("> ", stderr);
        }
        ssize_t length = getline(&line, &capacity, stdin);
        if (length < 0) {
            break;
        }
        if (length > 0 && line[length - 1] == '\n') {
            line[--length] = '\0';
        }
        if (line[0] == '/') {
            if (run_command(job, line) == 0) {
                break;
            }
            continue;
        }
        if (feed(job, line, (size_t)length, error) != 0) {
            fprintf(stderr, "error: %s\n", error->text);   // the memory is as it was: another line may be shorter
            continue;
        }
        result = decode(job, error);
        if (result == 0 && (putchar('\n') == EOF || fflush(stdout) != 0)) {
            result = error_set(error, "cannot write to standard output: %s", strerror(errno));
        }
    }
    free(line);
    return result;
}

static void report_speed(const Job *job)
{
    if (job->prompt_tokens > 0) {
        fprintf(stderr, "prompt: %" PRIu64 " tokens in %.3f s, %.1f tokens/s\n", job->prompt_tokens, job->prompt_seconds,
                (double)job->prompt_tokens / (job->prompt_seconds > 0.0 ? job->prompt_seconds : 1e-9));
    }
    if (job->decoded_tokens > 0) {
        fprintf(stderr, "decode: %" PRIu64 " tokens in %.3f s, %.1f tokens/s\n", job->decoded_tokens, job->decode_seconds,
                (double)job->decoded_tokens / (job->decode_seconds > 0.0 ? job->decode_seconds : 1e-9));
    }
}

static int job_open(Job *job, const char *checkpoint, Error *error)
{
    const Options *options = &job->options;
    if (check_state_file(job, "--save-state", options->save_state, error) != 0 ||
        runtime_open(&job->runtime, checkpoint, options->tokenizer, options->weights, options->threads, error) != 0) {
        return -1;
    }
    if (job->runtime.tokenizer == NULL) {
        return error_set(error, "%s holds no tokenizer.json: give the one it was trained with by --tokenizer FILE", job->runtime.folder);
    }
    size_t n = (size_t)job->options.n_samples;
    job->session = session_create(&job->runtime.model, n, 0, error);
    if (job->session == NULL) {
        return -1;
    }
    job->encoder = encoder_create(job->runtime.tokenizer, error);
    if (job->encoder == NULL) {
        return -1;
    }
    job->samplers = calloc(n, sizeof *job->samplers);
    job->texts = calloc(n, sizeof *job->texts);
    job->tokens = calloc(n, sizeof *job->tokens);
    job->finished = calloc(n, sizeof *job->finished);
    if (job->samplers == NULL || job->texts == NULL || job->tokens == NULL || job->finished == NULL) {
        return error_set(error, "out of memory for %zu samples", n);
    }
    for (; job->n_samples < n; job->n_samples++) {
        if (sampler_create(&job->samplers[job->n_samples], &job->options.sampling, (size_t)job->runtime.model.config.vocab_size,
                           (uint64_t)job->options.seed, job->n_samples, error) != 0) {
            return -1;
        }
    }
    return job->options.load_state != NULL ? load_state(job, job->options.load_state, error) : 0;
}

static void job_close(Job *job)
{
    for (size_t i = 0; i < job->n_samples; i++) {
        sampler_free(&job->samplers[i]);
        free(job->texts[i].bytes);
    }
    free(job->samplers);
    free(job->texts);
    free(job->tokens);
    free(job->finished);
    encoder_free(job->encoder);
    session_free(job->session);
    if (job->runtime.folder != NULL) {
        runtime_close(&job->runtime);
    }
}

static int job_run(Job *job, Error *error)
{
    const Options *options = &job->options;
    Text prompt = {0};
    int result = read_prompt(&prompt, options, error);
    bool ask_first = options->interactive && prompt.length == 0;
    if (result == 0 && !ask_first) {
        result = feed(job, prompt.bytes != NULL ? prompt.bytes : "", prompt.length, error);
    }
    free(prompt.bytes);
    if (result == 0 && !ask_first) {
        session_fork(job->session, job->n_samples);
        result = decode(job, error);
        // Into a pipe or file goes the continuation alone, byte for byte; a terminal gets its line ended.
        if (result == 0 && job->n_samples == 1 && (options->interactive || isatty(STDOUT_FILENO))) {
            putchar('\n');
            fflush(stdout);
        }
    }
    if (result == 0 && options->interactive) {
        result = interact(job, error);
    }
    if (result == 0) {
        report_speed(job);
    }
    if (result == 0 && options->save_state != NULL) {
        result = save_state(job, options->save_state, error);
    }
    return result;
}

static void check_options(const ArgProgram *program, Options *options)
{
    Error error;
    if (options->prompt != NULL && options->file != NULL) {
        args_usage_error(program, "give the prompt by --prompt or by --file, not both");
    }
    if (options->n_samples > 1 && options->interactive) {
        args_usage_error(program, "--interactive talks with one sequence: leave --num-samples out");
    }
    if (options->n_samples > 1 && options->save_state != NULL) {
        args_usage_error(program, "--save-state saves one sequence: leave --num-samples out");
    }
    if (options->greedy) {
        options->sampling.temperature = 0.0;
    }
    if (weight_type_parse(&options->weights, options->dtype, &error) != 0) {
        args_usage_error(program, "--dtype %s", error.text);
    }
}

int main(int argc, char **argv)
{
    Job job = {.options = {.n_tokens = 256, .seed = 1, .n_samples = 1, .dtype = "f32"}};
    Options *options = &job.options;
    sampler_defaults(&options->sampling);
    SamplerOptions *sampling = &options->sampling;
    ArgSpec specs[] = {
        {.name = "prompt", .short_name = 'p', .kind = ARG_STRING, .target = &options->prompt, .value = "TEXT", .help = "text to continue"},
        {.name = "file", .short_name = 'f', .kind = ARG_STRING, .target = &options->file, .value = "FILE",
         .help = "file with the text to continue (one newline at its end is dropped)"},
        {.name = "tokens", .short_name = 'n', .kind = ARG_SIZE, .target = &options->n_tokens, .value = "N",
         .help = "most tokens to generate (a turn)", .min = 0, .max = 1e12},
        {.name = "temperature", .kind = ARG_REAL, .target = &sampling->temperature, .value = "X",
         .help = "below 1 safer, above 1 wilder, 0 greedy", .min = 0, .max = 1000},
        {.name = "top-k", .kind = ARG_SIZE, .target = &sampling->top_k, .value = "N",
         .help = "only the N likeliest tokens; 0 off", .min = 0, .max = 1e9},
        {.name = "top-p", .kind = ARG_REAL, .target = &sampling->top_p, .value = "X",
         .help = "only the likeliest tokens that together reach X; 1 off", .min = 1e-9, .max = 1},
        {.name = "min-p", .kind = ARG_REAL, .target = &sampling->min_p, .value = "X",
         .help = "only tokens at least X times as likely as the likeliest; 0 off", .min = 0, .max = 1},
        {.name = "repeat-penalty", .kind = ARG_REAL, .target = &sampling->repeat_penalty, .value = "X",
         .help = "above 1: the last 64 tokens become less likely; 1 off", .min = 1e-3, .max = 1e3},
        {.name = "greedy", .kind = ARG_SWITCH, .target = &options->greedy, .help = "always the likeliest token"},
        {.name = "seed", .kind = ARG_SIZE, .target = &options->seed, .value = "N", .help = "same seed, same text", .min = 0, .max = 9e15},
        {.name = "num-samples", .kind = ARG_SIZE, .target = &options->n_samples, .value = "N",
         .help = "continuations to decode together, printed one after the other (to 16: each the same, however many)", .min = 1, .max = 4096},
        {.name = "interactive", .short_name = 'i', .kind = ARG_SWITCH, .target = &options->interactive,
         .help = "read lines and continue each, keeping the memory"},
        {.name = "tokenizer", .kind = ARG_STRING, .target = &options->tokenizer, .value = "FILE",
         .help = "tokenizer.json for a checkpoint without one"},
        {.name = "save-state", .kind = ARG_STRING, .target = &options->save_state, .value = "FILE", .help = "write the memory at the end"},
        {.name = "load-state", .kind = ARG_STRING, .target = &options->load_state, .value = "FILE",
         .help = "go on from a saved memory; the prompt continues it"},
        {.name = "dtype", .kind = ARG_STRING, .target = &options->dtype, .value = "TYPE",
         .help = "weights in f32, bf16 or int8: these take half and a quarter of f32's memory, and decode faster"},
        {.name = "threads", .kind = ARG_SIZE, .target = &options->threads, .value = "N",
         .help = "threads; 0 all cores", .min = 0, .max = 1024},
    };
    ArgProgram program = {
        .name = "generate",
        .usage = "CKPT [-p TEXT | -f FILE | < FILE] [flags]",
        .description = "Continues a prompt with a trained model. CKPT is a checkpoint folder, or the folder of a training run\n"
                       "(its newest good checkpoint).\n"
                       "The continuation alone goes to standard output. Generation stops at the model's end of text or after -n tokens.\n"
                       "Example: ./generate runs/nano -p \"Once upon a time\" -n 100 --temperature 0.7 --top-p 0.9",
        .specs = specs,
        .n_specs = sizeof specs / sizeof specs[0],
        .min_positional = 1,
        .max_positional = 1,
    };
    size_t n_positional = 0;
    args_parse(&program, argc, argv, &n_positional);
    for (size_t i = 0; i < program.n_specs; i++) {
        options->seed_given = options->seed_given || (specs[i].target == &options->seed && specs[i].given);
    }
    check_options(&program, options);
    // A second signal ends the program at once; reading a line is interrupted.
    program_catch_stop(on_signal, true);
    Error error;
    int result = job_open(&job, argv[1], &error) == 0 ? job_run(&job, &error) : -1;
    job_close(&job);
    int code = result != 0 ? args_fail(&error) : 0;
    return stop_signal != 0 ? 128 + (int)stop_signal : code;
}
