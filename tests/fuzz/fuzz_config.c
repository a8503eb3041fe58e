// Fuzz target: any bytes as a config.json. What validates must survive a round trip through JSON.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Error error;
    int fd = memfd_create("input", 0);
    if (fd < 0 || file_write_all(fd, data, size, "input", &error)) {
        abort();
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    cJSON *json = json_read_file(path, 1 << 20, &error);
    ModelConfig config, back;
    if (json != NULL && config_preset(&config, "nano", &error) == 0 && config_from_json(&config, json, &error) == 0 &&
        config_validate(&config, &error) == 0) {
        cJSON *written = config_to_json(&config);
        char *text = written != NULL ? json_to_text(written, false) : NULL;
        cJSON *read = text != NULL ? cJSON_Parse(text) : NULL;
        if (read == NULL || config_preset(&back, "110m", &error) || config_from_json(&back, read, &error) || back.d_model != config.d_model ||
            back.norm_eps != config.norm_eps || strcmp(back.mixer, config.mixer) != 0) {
            abort();
        }
        cJSON_Delete(written);
        cJSON_Delete(read);
        free(text);
    }
    cJSON_Delete(json);
    close(fd);
    return 0;
}
