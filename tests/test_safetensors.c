// checkpoint/safetensors: round trips, an independent reader, hostile headers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

static char folder[256], path[320];

static int make_folder(void **state)
{
    (void)state;
    Error error;
    if (folder_temporary(folder, sizeof folder, &error) != 0) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    Error error;
    return folder_remove(folder, &error);
}

static const float numbers[24] = {1.5f, -2.0f, 3.25f, 0.0f, -0.0f, 1e-40f, INFINITY, -INFINITY, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};

static void test_round_trip(void **state)
{
    (void)state;
    // Names of growing length: every remainder of the header's length by 8 occurs.
    char name[] = "tensor.\"quoted\".\xc3\xa9.xxxxxxxxxxxxxxxx";
    size_t full = strlen(name);
    for (size_t cut = 0; cut < 9; cut++) {
        name[full - cut] = 0;
        const size_t shape[] = {2, 3, 4}, one[] = {8}, none[] = {0, 5};
        const SafeTensorOut tensors[] = {
            {name, 3, shape, numbers}, {"b", 1, one, numbers}, {"empty", 2, none, numbers}, {"a.scalar", 0, NULL, numbers + 2},
        };
        const char *metadata[] = {"format", "pt", "note", "line\nbreak", NULL};
        Error error;
        assert_int_equal(safetensors_write(path, tensors, 4, metadata, &error), 0);

        unsigned char *bytes;
        size_t size;
        bytes = (unsigned char *)file_read(path, 1 << 20, &size, &error);
        assert_non_null(bytes);
        size_t length = bytes[0] + 256u * bytes[1];
        assert_int_equal(length % 8, 0);
        assert_int_equal(bytes[8], '{');
        assert_int_equal(size, 8 + length + 33 * sizeof(float));
        assert_memory_equal(bytes + 8 + length, numbers, sizeof numbers);
        free(bytes);

        SafeFile file;
        assert_int_equal(safetensors_open(&file, path, &error), 0);
        assert_int_equal(file.count, 4);
        assert_int_equal(file.data_start, 8 + length);
        assert_string_equal(safetensors_metadata(&file, "note"), "line\nbreak");
        assert_null(safetensors_metadata(&file, "other"));
        assert_null(safetensors_find(&file, "c"));
        const SafeTensor *found = safetensors_find(&file, name);
        assert_non_null(found);
        assert_true(found->n_dims == 3 && found->shape[0] == 2 && found->shape[1] == 3 && found->shape[2] == 4 && found->count == 24);
        assert_string_equal(found->dtype, "F32");
        float out[24] = {0}, scalar = 0;
        assert_int_equal(safetensors_read_f32(out, &file, name, 3, shape, &error), 0);
        assert_memory_equal(out, numbers, sizeof numbers);
        assert_int_equal(safetensors_read_f32(&scalar, &file, "a.scalar", 0, NULL, &error), 0);
        assert_true(scalar == 3.25f);
        assert_int_equal(safetensors_read_f32(out, &file, "empty", 2, none, &error), 0);

        const size_t other[] = {4, 3, 2};
        assert_int_equal(safetensors_read_f32(out, &file, name, 3, other, &error), -1);
        assert_non_null(strstr(error.text, "has shape [2, 3, 4], expected [4, 3, 2]"));
        assert_int_equal(safetensors_read_f32(out, &file, "b", 3, shape, &error), -1);
        assert_non_null(strstr(error.text, "tensor b has shape [8], expected [2, 3, 4]"));
        assert_int_equal(safetensors_read_f32(out, &file, "none", 1, one, &error), -1);
        assert_non_null(strstr(error.text, "tensor none is missing"));
        safetensors_close(&file);
    }
}

static void test_write_failures(void **state)
{
    (void)state;
    Error error;
    const size_t shape[] = {24}, absurd[] = {SIZE_MAX / 2, 3};
    const SafeTensorOut good = {"a", 1, shape, numbers}, large = {"a", 2, absurd, numbers};
    if (file_exists("/dev/full")) {
        assert_int_equal(safetensors_write("/dev/full", &good, 1, NULL, &error), -1);
        assert_non_null(strstr(error.text, "the disk is full"));
    } else {
        print_message("no /dev/full here: the full disk is not tried\n");
    }
    assert_int_equal(safetensors_write(path, &large, 1, NULL, &error), -1);
    assert_int_equal(safetensors_write("/no/such/folder/x", &good, 1, NULL, &error), -1);
    assert_non_null(strstr(error.text, "/no/such/folder/x"));
}

// What scripts/read_safetensors.py says of a file of ours.
static void test_independent_reader(void **state)
{
    (void)state;
    if (access("scripts/read_safetensors.py", R_OK) != 0 || system("python3 -c '' 2>/dev/null") != 0) {
        print_message("no python3, or not started in the project's folder: the independent reader is not tried\n");
        return;
    }
    Error error;
    const size_t shape[] = {3, 4}, one[] = {2};
    const SafeTensorOut tensors[] = {{"second.weight", 2, shape, numbers + 8}, {"first", 1, one, numbers}, {"s", 0, NULL, numbers + 2}};
    const char *metadata[] = {"format", "pt", NULL};
    assert_int_equal(safetensors_write(path, tensors, 3, metadata, &error), 0);
    char command[512], text[512];
    snprintf(command, sizeof command, "python3 scripts/read_safetensors.py %s", path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(text, 1, sizeof text - 1, pipe);
    text[n] = 0;
    assert_int_equal(pclose(pipe), 0);
    assert_string_equal(text, "# format = pt\nsecond.weight F32 [3,4] 174.0\nfirst F32 [2] -0.5\ns F32 [] 3.25\n");
}

// Writes a file from a header and a number of data bytes; `length` 0 means the header's own.
static void put(const char *header, uint64_t length, size_t data_bytes)
{
    size_t n = strlen(header);
    uint64_t stated = length != 0 ? length : n;
    char *bytes = calloc(1, 8 + n + data_bytes + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < 8; i++) {
        bytes[i] = (char)(unsigned char)(stated >> (8 * i));
    }
    memcpy(bytes + 8, header, n);
    Error error;
    assert_int_equal(file_write_atomic(path, bytes, 8 + n + data_bytes, &error), 0);
    free(bytes);
}

static int open_it(Error *error)
{
    SafeFile file;
    int status = safetensors_open(&file, path, error);
    if (status == 0) {
        safetensors_close(&file);
    } else {
        assert_int_equal(file.fd, -1);
        assert_non_null(strstr(error->text, "x.safetensors"));
    }
    return status;
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_others_files(void **state)
{
    (void)state;
    Error error;
    const struct {
        const char *header;
        size_t data;
    } good[] = {
        {"{}", 0},
        {"{}      ", 0},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0},
        {"{\"a\":" T("BF16", "[3]", "[0,6]") "}", 6},
        {"{\"z\":" T("I64", "[1]", "[2,10]") ",\"a\":" T("F16", "[1]", "[0,2]") "}", 10},
        {"{\"a\":" T("F32", "[0]", "[0,0]") ",\"b\":" T("F32", "[1]", "[0,4]") ",\"c\":" T("F32", "[0,7]", "[4,4]") "}", 4},
        {"{\"a\":" T("F8_E4M3", "[1,1,1,1,1,1,1,1]", "[0,1]") "}", 1},
        {"{\"a\":{\"shape\":[],\"data_offsets\":[0,1],\"dtype\":\"BOOL\"}}", 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        put(good[i].header, 0, good[i].data);
        assert_int_equal(open_it(&error), 0);
    }
    // A dtype that is fine in the format is no weight of ours.
    put(good[3].header, 0, good[3].data);
    SafeFile file;
    float out[3];
    const size_t shape[] = {3};
    assert_int_equal(safetensors_open(&file, path, &error), 0);
    assert_int_equal(safetensors_read_f32(out, &file, "a", 1, shape, &error), -1);
    assert_non_null(strstr(error.text, "has dtype BF16, expected F32"));
    safetensors_close(&file);
}

static void test_hostile_headers(void **state)
{
    (void)state;
    Error error;
    const struct {
        const char *header;
        uint64_t length;
        size_t data;
        const char *says;
    } bad[] = {
        {"", 0, 0, "too few"},
        {"{}", UINT64_MAX, 0, "header's length 18446744073709551615"},
        {"{}", 1ull << 63, 0, "header's length"},
        {"{}", 3, 0, "header's length"},
        {"{}", 1, 0, "header's length"},
        {"[]", 0, 0, "not a JSON object"},
        {" {}", 0, 0, "not a JSON object"},
        {"{} x", 0, 0, "not a JSON object"},
        {"{\"a\":", 0, 8, "not a JSON object"},
        {"{}", 0, 4, "4 bytes stand behind the last tensor"},
        {"{\"a\":1}", 0, 0, "unknown dtype"},
        {"{\"a\":[]}", 0, 0, "unknown dtype"},
        {"{\"a\":null}", 0, 0, "unknown dtype"},
        {"{\"a\":" T("F31", "[1]", "[0,4]") "}", 0, 4, "unknown dtype \"F31\""},
        {"{\"a\":" T("A_VERY_LONG_DTYPE", "[1]", "[0,4]") "}", 0, 4, "unknown dtype"},
        {"{\"a\":" T("F32", "1", "[0,4]") "}", 0, 4, "no list \"shape\""},
        {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", 0, 4, "negative"},
        {"{\"a\":" T("F32", "[1.5]", "[0,4]") "}", 0, 4, "fractional"},
        {"{\"a\":" T("F32", "[\"1\"]", "[0,4]") "}", 0, 4, "negative, fractional or too large"},
        {"{\"a\":" T("F32", "[1e999]", "[0,4]") "}", 0, 4, "too large"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 0, 4, "more than 8 dimensions"},
        {"{\"a\":" T("F32", "[4294967296,4294967296]", "[0,0]") "}", 0, 0, "too large"},
        {"{\"a\":" T("F64", "[2305843009213693952]", "[0,0]") "}", 0, 0, "too large"},
        {"{\"a\":" T("F64", "[4503599627370496,512]", "[0,0]") "}", 0, 0, "not what its shape"},
        {"{\"a\":" T("F32", "[1]", "[0,8]") "}", 0, 8, "not what its shape"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") "}", 0, 4, "do not lie within the file"},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", 0, 4, "do not lie within"},
        {"{\"a\":" T("F32", "[1]", "[-4,0]") "}", 0, 4, "do not lie within"},
        {"{\"a\":" T("F32", "[1]", "[0]") "}", 0, 4, "do not lie within"},
        {"{\"a\":" T("F32", "[1]", "[0,4,8]") "}", 0, 4, "do not lie within"},
        {"{\"a\":" T("F32", "[1]", "{\"x\":0,\"y\":4}") "}", 0, 4, "do not lie within"},
        {"{\"a\":" T("F32", "[1]", "[1e300,1e301]") "}", 0, 4, "do not lie within"},
        {"{\"a\":" T("F32", "[1]", "[18446744073709551612,18446744073709551616]") "}", 0, 4, "do not lie within"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[1]", "[4,8]") "}", 0, 8, "tensor b overlaps"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", 0, 4, "overlaps"},
        {"{\"a\":" T("F32", "[1]", "[4,8]") "}", 0, 8, "tensor a leaves a hole behind"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", 0, 12, "tensor b leaves a hole"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", 0, 5, "1 bytes stand behind"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", 0, 8, "tensor a stands in the header twice"},
        {"{\"__metadata__\":[]}", 0, 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, 0, "__metadata__ \"a\" is not a string"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, 0, "__metadata__ stands in the header twice"},
        {"{\"a\\nb\":1}", 0, 0, "tensor a?b has"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put(bad[i].header, bad[i].length, bad[i].data);
        if (open_it(&error) != -1 || strstr(error.text, bad[i].says) == NULL) {
            fail_msg("header %zu: %s gave: %s", i, bad[i].header, error.text);
        }
    }
    // Nested too deeply for a recursive parser.
    enum { DEPTH = 200000 };
    char *deep = malloc(DEPTH + 6);
    assert_non_null(deep);
    memcpy(deep, "{\"a\":", 5);
    memset(deep + 5, '[', DEPTH);
    deep[DEPTH + 5] = 0;
    put(deep, 0, 0);
    assert_int_equal(open_it(&error), -1);
    free(deep);

    assert_int_equal(file_write_atomic(path, "12345678", 8, &error), 0);
    assert_int_equal(open_it(&error), -1);
    SafeFile file;
    assert_int_equal(safetensors_open(&file, folder, &error), -1);
    assert_non_null(strstr(error.text, "not a regular file"));
    assert_int_equal(safetensors_open(&file, "/no/such/file", &error), -1);
    assert_non_null(strstr(error.text, "/no/such/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_write_failures), cmocka_unit_test(test_independent_reader),
        cmocka_unit_test(test_others_files), cmocka_unit_test(test_hostile_headers),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
