#include "infer/session.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "infer/states.h"

#define STATE_FORMAT "lattice-state"
#define STATE_VERSION "1"
#define MAX_POSITION ((uint64_t)1 << 53)   // far beyond any run; keeps sums of positions from overflowing

// Memory beside the states; SIZE_MAX: more than can be told.
static size_t session_bytes(const Session *session)
{
    const Model *model = session->model;
    size_t prompt = workspace_bytes(&model->config, 1, session->piece, WORKSPACE_INFERENCE, false), logits;
    size_t step = workspace_bytes(&model->config, session->capacity, 1, WORKSPACE_INFERENCE, false);
    bool overflow = __builtin_mul_overflow(session->capacity, (size_t)model->config.vocab_size * sizeof(float), &logits);
    return overflow || prompt > SIZE_MAX / 4 || step > SIZE_MAX / 4 || logits > SIZE_MAX / 4 ? SIZE_MAX : prompt + step + logits;
}

Session *session_create(const Model *model, size_t capacity, size_t piece, Error *error)
{
    Session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        error_set(error, "out of memory for a session");
        return NULL;
    }
    session->model = model;
    session->capacity = capacity > 0 ? capacity : 1;
    session->piece = piece > 0 ? piece : SESSION_PIECE;
    size_t beside = session_bytes(session);
    if (state_layout_create(&session->layout, &model->config, 1, error) != 0 ||
        (session->states = states_create(&session->layout, session->capacity, beside, error)) == NULL) {
        session_free(session);
        return NULL;
    }
    session->logits = beside != SIZE_MAX ? malloc(session->capacity * (size_t)model->config.vocab_size * sizeof(float)) : NULL;
    if (session->logits == NULL) {
        error_set(error, "out of memory for the logits of %zu sequences: decode fewer at once", session->capacity);
        session_free(session);
        return NULL;
    }
    session->prompt_workspace = workspace_create(model, 1, session->piece, WORKSPACE_INFERENCE, error);
    if (session->prompt_workspace != NULL) {
        session->step_workspace = workspace_create(model, session->capacity, 1, WORKSPACE_INFERENCE, error);
    }
    if (session->step_workspace == NULL) {
        session_free(session);
        return NULL;
    }
    workspace_lay_out_states(session->prompt_workspace, &session->layout);
    workspace_lay_out_states(session->step_workspace, &session->layout);
    session_reset(session);
    return session;
}

void session_free(Session *session)
{
    if (session == NULL) {
        return;
    }
    workspace_free(session->prompt_workspace);
    workspace_free(session->step_workspace);
    free(session->states);
    free(session->logits);
    state_layout_free(&session->layout);
    free(session);
}

// The states anew, for sequences of up to `longest` tokens where they were for fewer. Returns 0, or -1 with `error` set and the session as it was.
static int make_room(Session *session, size_t longest, Error *error)
{
    StateLayout layout;
    if (longest <= session->layout.longest) {
        return 0;
    }
    if (state_layout_create(&layout, &session->model->config, longest, error) != 0) {
        return -1;
    }
    float *states = states_create(&layout, session->capacity, 0, error);
    if (states == NULL) {
        state_layout_free(&layout);
        return -1;
    }
    for (size_t i = 0; i < session->batch; i++) {
        state_layout_move(states + i * layout.table.total, &layout, session->states + i * session->layout.table.total, &session->layout);
    }
    state_layout_free(&session->layout);
    free(session->states);
    session->layout = layout;
    session->states = states;
    return 0;
}

int session_reserve(Session *session, size_t count, Error *error)
{
    return make_room(session, count < SIZE_MAX - session->position ? session->position + count : SIZE_MAX, error);
}

void session_reset(Session *session)
{
    session->batch = 1;
    session->position = 0;
    model_state_init(session->model, &session->layout, session->states);
}

void session_feed(Session *session, const int32_t *tokens, size_t count)
{
    assert(session->batch == 1);
    for (size_t done = 0; done < count;) {
        size_t length = count - done < session->piece ? count - done : session->piece;
        model_forward(session->model, session->prompt_workspace, session->states, session->position, tokens + done, 1, length);
        done += length;
        session->position += length;
        if (done == count) {
            model_logits(session->logits, session->model, session->prompt_workspace, length - 1, 1);
        }
    }
}

void session_fork(Session *session, size_t batch)
{
    assert(session->batch == 1 && batch >= 1 && batch <= session->capacity);
    size_t state = session->layout.table.total, vocab = (size_t)session->model->config.vocab_size;
    for (size_t i = 1; i < batch; i++) {
        memcpy(session->states + i * state, session->states, state * sizeof(float));
        if (session->position > 0) {
            memcpy(session->logits + i * vocab, session->logits, vocab * sizeof(float));
        }
    }
    session->batch = batch;
}

void session_step(Session *session, const int32_t *tokens)
{
    model_forward(session->model, session->step_workspace, session->states, session->position, tokens, session->batch, 1);
    session->position++;
    model_logits(session->logits, session->model, session->step_workspace, 0, session->batch);
}

const float *session_logits(const Session *session, size_t sequence)
{
    assert(sequence < session->batch);
    return session->position > 0 ? session->logits + sequence * (size_t)session->model->config.vocab_size : NULL;
}

// Covers everything that decides how the text goes on, so that a flipped bit anywhere is seen.
static uint64_t state_checksum(const char *hash, const char *position, const char *note, const float *states, size_t n_states,
                               const float *logits, size_t n_logits)
{
    uint64_t sum = XXH3_64bits_withSeed(hash, strlen(hash), 1);
    sum = XXH3_64bits_withSeed(position, strlen(position), sum);
    sum = XXH3_64bits_withSeed(note, strlen(note), sum);
    sum = XXH3_64bits_withSeed(states, n_states * sizeof(float), sum);
    return XXH3_64bits_withSeed(logits, n_logits * sizeof(float), sum);
}

// The rename is only safe against power failure once the folder is synced too.
static int sync_folder_of(const char *path, Error *error)
{
    char *folder = path_folder(path);
    if (folder == NULL) {
        return error_set(error, "out of memory while saving %s", path);
    }
    int result = folder_sync(folder, error);
    free(folder);
    return result;
}

static int write_state_file(const char *path, const SafeTensorOut *tensors, size_t count, const char *const *metadata, Error *error)
{
    size_t size = strlen(path) + sizeof ".tmp";
    char *temporary = malloc(size);
    if (temporary == NULL) {
        return error_set(error, "out of memory while saving %s", path);
    }
    snprintf(temporary, size, "%s.tmp", path);
    int result = safetensors_write(temporary, tensors, count, metadata, error);
    if (result == 0 && rename(temporary, path) != 0) {
        result = error_set(error, "%s: cannot give the new state file its name: %s", path, strerror(errno));
    }
    if (result != 0) {
        unlink(temporary);
    } else {
        result = sync_folder_of(path, error);
    }
    free(temporary);
    return result;
}

// What stands in a state file: the first sequence's state, in tensors of the size that its tokens need.
static int write_states(const Session *session, const float *states, const StateLayout *layout, const char *path, const char *note, Error *error)
{
    const Model *model = session->model;
    size_t vocab = (size_t)model->config.vocab_size, count = layout->table.count + 1;
    uint64_t model_hash;
    if (checkpoint_model_hash(&model_hash, model, error) != 0) {
        return -1;
    }
    SafeTensorOut *tensors = calloc(count, sizeof *tensors);
    if (tensors == NULL) {
        return error_set(error, "out of memory while saving %s", path);
    }
    for (size_t i = 0; i + 1 < count; i++) {
        const Tensor *tensor = &layout->table.items[i];
        tensors[i] = (SafeTensorOut){tensor->name, tensor->n_dims, tensor->shape, states + tensor->offset};
    }
    tensors[count - 1] = (SafeTensorOut){"logits", 1, &vocab, session->logits};
    char hash[24], position[24], checksum[24];
    snprintf(hash, sizeof hash, "%016" PRIx64, model_hash);
    snprintf(position, sizeof position, "%zu", session->position);
    snprintf(checksum, sizeof checksum, "%016" PRIx64,
             state_checksum(hash, position, note, states, layout->table.total, session->logits, vocab));
    const char *metadata[] = {"format", STATE_FORMAT, "version", STATE_VERSION, "model_hash", hash, "position",
                              position, "checksum",   checksum,  "note",        note,         NULL};
    int result = write_state_file(path, tensors, count, metadata, error);
    free(tensors);
    return result;
}

int session_save(const Session *session, const char *path, const char *note, Error *error)
{
    if (session->position == 0) {
        return error_set(error, "%s: nothing has been read yet, so there is no memory to save", path);
    }
    StateLayout layout;
    if (state_layout_create(&layout, &session->model->config, session->position, error) != 0) {
        return -1;
    }
    float *states = states_create(&layout, 1, 0, error);
    int result = -1;
    if (states != NULL) {
        state_layout_move(states, &layout, session->states, &session->layout);
        result = write_states(session, states, &layout, path, note != NULL ? note : "", error);
    }
    free(states);
    state_layout_free(&layout);
    return result;
}

static int parse_position(const char *text, size_t *position, const char *path, Error *error)
{
    size_t length = strlen(text);
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || length > 16) {
            return error_set(error, "%s: the state's position is not a number: the file is damaged", path);
        }
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (value == 0 || value > MAX_POSITION) {
        return error_set(error, "%s: the state's position is out of range: the file is damaged", path);
    }
    *position = (size_t)value;
    return 0;
}

// What stands in the metadata, checked but for the checksum. The strings stay owned by the file.
static int check_metadata(const SafeFile *file, const Model *model, const char **note, size_t *position, Error *error)
{
    const char *format = safetensors_metadata(file, "format"), *version = safetensors_metadata(file, "version");
    const char *hash = safetensors_metadata(file, "model_hash"), *place = safetensors_metadata(file, "position");
    if (format == NULL || strcmp(format, STATE_FORMAT) != 0) {
        return error_set(error,
                         "%s: not a state file (a safetensors file without format \"" STATE_FORMAT "\"): give one written by --save-state",
                         file->path);
    }
    if (version == NULL || strcmp(version, STATE_VERSION) != 0) {
        return error_set(error,
                         "%s: state file of version %.20s, this program reads version " STATE_VERSION ": write it anew with --save-state",
                         file->path, version != NULL ? version : "(none)");
    }
    *note = safetensors_metadata(file, "note");
    if (hash == NULL || place == NULL || *note == NULL || safetensors_metadata(file, "checksum") == NULL) {
        return error_set(error, "%s: the state file's metadata is incomplete: the file is damaged", file->path);
    }
    char expected[24];
    uint64_t model_hash;
    if (checkpoint_model_hash(&model_hash, model, error) != 0) {
        return -1;
    }
    snprintf(expected, sizeof expected, "%016" PRIx64, model_hash);
    if (strcmp(hash, expected) != 0) {
        return error_set(
            error,
            "%s: the state belongs to another model (model hash %.16s, this checkpoint has %s): load it with the checkpoint that wrote it",
            file->path, hash, expected);
    }
    return parse_position(place, position, file->path, error);
}

// Whether the file has the tensors of the layout and no others.
static int check_tensors(const SafeFile *file, const StateLayout *layout, Error *error)
{
    const TensorTable *table = &layout->table;
    if (file->count != table->count + 1) {
        return error_set(error, "%s: %zu tensors where this model's state has %zu: the file is damaged", file->path, file->count, table->count + 1);
    }
    for (size_t i = 0; i < table->count; i++) {
        const Tensor *tensor = &table->items[i];
        if (safetensors_check_f32(file, tensor->name, tensor->n_dims, tensor->shape, error) != 0) {
            return -1;
        }
    }
    return 0;
}

// How the file's state lies: for as many tokens as it has read; earlier versions wrote it for whole windows.
static int find_layout(StateLayout *layout, const SafeFile *file, const Model *model, size_t position, Error *error)
{
    if (state_layout_create(layout, &model->config, position, error) != 0) {
        return -1;
    }
    if (check_tensors(file, layout, error) == 0) {
        return 0;
    }
    bool whole = layout->longest == SIZE_MAX;
    state_layout_free(layout);
    Error again;
    if (whole || state_layout_create(layout, &model->config, SIZE_MAX, &again) != 0) {
        return -1;
    }
    if (check_tensors(file, layout, &again) != 0) {   // the first error stays: it tells what this program writes
        state_layout_free(layout);
        return -1;
    }
    return 0;
}

static int read_tensors(float *states, float *logits, const SafeFile *file, const Model *model, const StateLayout *layout, Error *error)
{
    for (size_t i = 0; i < layout->table.count; i++) {
        const Tensor *tensor = &layout->table.items[i];
        if (safetensors_read_f32(states + tensor->offset, file, tensor->name, tensor->n_dims, tensor->shape, error) != 0) {
            return -1;
        }
    }
    size_t vocab = (size_t)model->config.vocab_size;
    if (safetensors_read_f32(logits, file, "logits", 1, &vocab, error) != 0) {
        return -1;
    }
    const char *note = safetensors_metadata(file, "note");
    char expected[24];
    snprintf(expected, sizeof expected, "%016" PRIx64,
             state_checksum(safetensors_metadata(file, "model_hash"), safetensors_metadata(file, "position"), note, states,
                            layout->table.total, logits, vocab));
    if (strcmp(expected, safetensors_metadata(file, "checksum")) != 0) {
        return error_set(error, "%s: the checksum is wrong: the file was altered or damaged", file->path);
    }
    for (size_t i = 0; i < layout->table.total; i++) {
        if (!isfinite(states[i])) {
            return error_set(error, "%s: the state holds a value that is not finite", file->path);
        }
    }
    return 0;
}

// A state file's content, read and checked.
typedef struct Loaded {
    StateLayout layout;
    float *states, *logits;
    char *note;
    size_t position;
} Loaded;

static void loaded_free(Loaded *loaded)
{
    state_layout_free(&loaded->layout);
    free(loaded->states);
    free(loaded->logits);
    free(loaded->note);
}

static int load(Loaded *loaded, const SafeFile *file, const Model *model, Error *error)
{
    const char *note = NULL;
    if (check_metadata(file, model, &note, &loaded->position, error) != 0 || find_layout(&loaded->layout, file, model, loaded->position, error) != 0 ||
        (loaded->states = states_create(&loaded->layout, 1, 0, error)) == NULL) {
        return -1;
    }
    loaded->logits = malloc((size_t)model->config.vocab_size * sizeof(float));   // fits: session_create has allocated as much
    loaded->note = strdup(note);
    if (loaded->logits == NULL || loaded->note == NULL) {
        return error_set(error, "out of memory while loading %s", file->path);
    }
    return read_tensors(loaded->states, loaded->logits, file, model, &loaded->layout, error);
}

int session_load(Session *session, const char *path, char **note, Error *error)
{
    const Model *model = session->model;
    SafeFile file;
    if (safetensors_open(&file, path, error) != 0) {
        return -1;
    }
    Loaded loaded = {.position = 0};
    int result = load(&loaded, &file, model, error);
    safetensors_close(&file);
    if (result == 0) {
        result = make_room(session, loaded.position, error);
    }
    if (result == 0) {
        model_state_init(model, &session->layout, session->states);   // nothing of the text before, not even where it is not seen
        state_layout_move(session->states, &session->layout, loaded.states, &loaded.layout);
        memcpy(session->logits, loaded.logits, (size_t)model->config.vocab_size * sizeof(float));
        session->batch = 1;
        session->position = loaded.position;
        if (note != NULL) {
            *note = loaded.note;
            loaded.note = NULL;
        }
    }
    loaded_free(&loaded);
    return result;
}
