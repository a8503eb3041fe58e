// State files from anywhere: session_load refuses what it does not know, and never crashes. Inputs are tried as they are, and (so that the
// fuzzer gets past the checksum and the model's hash) written over a good file from a place that the first two bytes name.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "infer/sampler.h"
#include "infer/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Fixture {
    Model model;
    Session *session;
    char *good;   // a valid state file
    size_t good_size;
} Fixture;

static void require(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "fuzz_state: %s\n", what);
        abort();
    }
}

// Sets `path` to a name under which the bytes can be read; returns the descriptor to close.
static int memory_file(char path[64], const void *data, size_t size)
{
    Error error;
    int fd = memfd_create("state", 0);
    require(fd >= 0, "memfd_create failed");
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    require(file_write_all(fd, data, size, path, &error) == 0, "cannot write the input");
    return fd;
}

static void make_fixture(Fixture *fixture)
{
    Error error;
    ModelConfig config;
    require(config_preset(&config, "nano", &error) == 0, "no preset");
    config.vocab_size = 16;
    config.d_model = 4;
    config.n_layer = 1;
    config.n_head = 1;
    config.d_head = 4;
    config.n_slot = 4;
    config.mlp_hidden = 0;
    const Kernels *kernels = kernels_select(&error);
    require(kernels != NULL && model_create(&fixture->model, &config, kernels, &error) == 0, "no model");
    model_init(&fixture->model, 1, 16);
    fixture->session = session_create(&fixture->model, 1, 8, &error);
    require(fixture->session != NULL, "no session");
    const int32_t tokens[] = {1, 2, 3};
    session_feed(fixture->session, tokens, 3);
    char folder[256];
    require(folder_temporary(folder, sizeof folder, &error) == 0, "no temporary folder");
    char *path = path_join(folder, "state");
    require(path != NULL && session_save(fixture->session, path, "1 2 3 4 2 5 6", &error) == 0, "cannot save");
    fixture->good = file_read(path, 1 << 20, &fixture->good_size, &error);
    require(fixture->good != NULL && folder_remove(folder, &error) == 0, "cannot read back");
    free(path);
}

static void try_bytes(Fixture *fixture, const void *data, size_t size)
{
    char path[64], *note = NULL;
    Error error = {""};
    int fd = memory_file(path, data, size);
    if (session_load(fixture->session, path, &note, &error) == 0) {
        // What is accepted is the file that was saved: the checksum covers everything else.
        require(fixture->session->position == 3, "an altered state was accepted");
        free(note);
    } else {
        require(error.text[0] != '\0' && note == NULL, "refused without a message");
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Fixture fixture;
    if (fixture.session == NULL) {
        make_fixture(&fixture);
    }
    try_bytes(&fixture, data, size);
    if (size > 2) {
        char *changed = malloc(fixture.good_size);
        require(changed != NULL, "out of memory");
        memcpy(changed, fixture.good, fixture.good_size);
        size_t at = (data[0] | (size_t)data[1] << 8) % fixture.good_size;
        size_t count = size - 2 < fixture.good_size - at ? size - 2 : fixture.good_size - at;
        memcpy(changed + at, data + 2, count);
        try_bytes(&fixture, changed, fixture.good_size);
        free(changed);
    }
    char *text = malloc(size + 1);
    require(text != NULL, "out of memory");
    memcpy(text, data, size);
    text[size] = '\0';
    Sampler sampler;
    SamplerOptions options;
    Error error;
    sampler_defaults(&options);
    require(sampler_create(&sampler, &options, 16, 1, 0, &error) == 0, "no sampler");
    if (sampler_from_text(&sampler, text, &error) == 0) {
        require(sampler.n_seen <= SAMPLER_WINDOW, "too many remembered tokens");
    }
    sampler_free(&sampler);
    free(text);
    return 0;
}
