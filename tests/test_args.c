// base/args.h: all forms of flags, refusals, help, sizes, JSON.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/args.h"
#include "base/file.h"
#include "base/json.h"

typedef struct Flags {
    bool quiet, tied;
    int64_t steps, context;
    double rate;
    const char *out, *prompt;
    ArgSpec specs[7];
    ArgProgram program;
} Flags;

static void init_flags(Flags *f)
{
    *f = (Flags){.tied = true, .steps = 524288, .context = 1024, .rate = 0.001};
    ArgSpec specs[] = {
        {.name = "quiet", .short_name = 'q', .kind = ARG_SWITCH, .target = &f->quiet, .help = "say less"},
        {.name = "tied", .kind = ARG_SWITCH, .target = &f->tied, .help = "on at the start"},
        {.name = "max-steps", .short_name = 'n', .kind = ARG_SIZE, .target = &f->steps, .value = "N", .help = "steps", .min = -1, .max = 9e15},
        {.name = "context", .kind = ARG_SIZE, .target = &f->context, .value = "N", .help = "length", .min = 1, .max = 1e9, .binary = true},
        {.name = "rate", .kind = ARG_REAL, .target = &f->rate, .value = "X", .help = "rate", .min = -10, .max = 10},
        {.name = "out", .kind = ARG_STRING, .target = &f->out, .value = "DIR", .help = "where the results go"},
        {.name = "prompt", .short_name = 'p', .kind = ARG_STRING, .target = &f->prompt, .value = "TEXT", .help = "text"},
    };
    memcpy(f->specs, specs, sizeof specs);
    f->program = (ArgProgram){"demo", "DATA... [flags]", "Does what a demonstration does.", f->specs, 7, 1, 3};
}

enum { MAX_ARGUMENTS = 16 };

// Parses "demo" and the arguments up to NULL. Returns how many positionals there were, which then stand in argv[1..].
static size_t parse(Flags *f, char **argv, ...)
{
    int argc = 1;
    argv[0] = (char *)"demo";
    va_list list;
    va_start(list, argv);
    for (char *text; (text = va_arg(list, char *)) != NULL;) {
        assert_true(argc < MAX_ARGUMENTS);
        argv[argc++] = text;
    }
    va_end(list);
    size_t n = 0;
    args_parse(&f->program, argc, argv, &n);
    return n;
}

// A flag that may be given several times keeps all its values.
static void test_args_list(void **state)
{
    (void)state;
    Flags f;
    PathList all = {0};
    char *argv[MAX_ARGUMENTS];
    init_flags(&f);
    f.specs[6].list = &all;
    assert_int_equal(parse(&f, argv, "-p", "one", "a", "--prompt=two", "--out", "x", "--prompt", "three", NULL), 1);
    assert_int_equal(all.count, 3);
    assert_string_equal(all.items[0], "one");
    assert_string_equal(all.items[1], "two");
    assert_string_equal(all.items[2], "three");
    assert_string_equal(f.prompt, "three");
    path_list_free(&all);
}

static void test_args_forms(void **state)
{
    (void)state;
    Flags f;
    char *argv[MAX_ARGUMENTS];
    init_flags(&f);
    size_t n = parse(&f, argv, "a", "--max-steps", "1.5m", "-q", "b", "--out=x=y", "--no-tied", "-p", "- hello", "--", "--out", NULL);
    assert_int_equal(n, 3);
    assert_string_equal(argv[1], "a");
    assert_string_equal(argv[2], "b");
    assert_string_equal(argv[3], "--out");
    assert_int_equal(f.steps, 1500000);
    assert_true(f.quiet);
    assert_false(f.tied);
    assert_string_equal(f.out, "x=y");
    assert_string_equal(f.prompt, "- hello");
    assert_true(f.specs[2].given && f.specs[0].given && f.specs[1].given);
    assert_false(f.specs[3].given || f.specs[4].given);

    init_flags(&f);
    n = parse(&f, argv, "--max_steps=-1", "--rate", "-2.5e-3", "--context", "4k", "-", "--tied=false", "--quiet=1", "--out", "", "-n7", NULL);
    assert_int_equal(n, 1);
    assert_string_equal(argv[1], "-");
    assert_int_equal(f.steps, 7);
    assert_true(f.rate == -2.5e-3);
    assert_int_equal(f.context, 4096);
    assert_false(f.tied);
    assert_true(f.quiet);
    assert_string_equal(f.out, "");
}

// Runs the parser in a child with both outputs in a file. Returns the exit code; `text` receives what was printed.
static int parse_in_child(char *text, size_t size, const char *a, const char *b, const char *c)
{
    FILE *printed = tmpfile();
    assert_non_null(printed);
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(printed), STDOUT_FILENO);
        dup2(fileno(printed), STDERR_FILENO);
        Flags f;
        init_flags(&f);
        f.program.max_positional = 2;
        char *argv[] = {(char *)"demo", (char *)a, (char *)b, (char *)c, NULL};
        size_t n;
        args_parse(&f.program, a == NULL ? 1 : b == NULL ? 2 : c == NULL ? 3 : 4, argv, &n);
        _exit(77);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    rewind(printed);
    text[fread(text, 1, size - 1, printed)] = 0;
    fclose(printed);
    return WEXITSTATUS(status);
}

static void test_args_refusals(void **state)
{
    (void)state;
    const struct {
        const char *a, *b, *c, *says;
    } wrong[] = {
        {"--max-stps", "5", "data", "did you mean --max-steps?"},
        {"--ot", "x", "data", "did you mean --out?"},
        {"--zzzzzz", "5", "data", "error: unknown flag --zzzzzz\n"},
        {"data", "--out", NULL, "--out needs a value: --out DIR"},
        {"data", "--out", "--quiet", "--out needs a value"},
        {"data", "--max-steps", "many", "'many' is not a size"},
        {"data", "--max-steps", "1.2345k", "not a whole number"},
        {"data", "--max-steps", "9000001g", "9000001g is out of range: it must be from -1 to 9000000000000000"},
        {"data", "--max-steps", "99999999999999999999", "too large"},
        {"data", "--rate", "nan", "'nan' is not a number"},
        {"data", "--rate", "11", "out of range"},
        {"data", "--quiet=maybe", NULL, "neither true nor false"},
        {"data", "--no-rate", NULL, "unknown flag --no-rate"},
        {"data", "-x", NULL, "unknown flag -x"},
        {"data", "-qv", NULL, "takes no value"},
        {NULL, NULL, NULL, "what to work on is missing"},
        {"a", "b", "c", "'c' is one argument too many"},
        {"--out=a\nerror: b", "--fo\nrged", "c", "unknown flag --fo?rged"},
    };
    char text[4096];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(parse_in_child(text, sizeof text, wrong[i].a, wrong[i].b, wrong[i].c), 2);
        assert_int_equal(strncmp(text, "error: ", 7), 0);
        assert_non_null(strstr(text, wrong[i].says));
        assert_non_null(strstr(text, "--help"));
    }
}

static void test_args_help(void **state)
{
    (void)state;
    char text[4096];
    // A flag before --help must not change the defaults shown.
    assert_int_equal(parse_in_child(text, sizeof text, "--max-steps", "3", "--help"), 0);
    assert_int_equal(strncmp(text, "usage: ./demo DATA... [flags]\n", 30), 0);
    assert_non_null(strstr(text, "  -n, --max-steps N  steps (default 524288)\n"));
    assert_non_null(strstr(text, "      --context N    length (default 1k)\n"));
    assert_non_null(strstr(text, "      --[no-]tied    on at the start (default on)\n"));
    assert_non_null(strstr(text, "      --out DIR      where the results go\n"));
    assert_non_null(strstr(text, "  -q, --quiet        say less\n"));
    assert_non_null(strstr(text, "  -h, --help         this text\n"));
    assert_int_equal(parse_in_child(text, sizeof text, "-h", NULL, NULL), 0);
}

static void test_args_size(void **state)
{
    (void)state;
    const struct {
        const char *text;
        int thousand;
        int64_t value;
    } good[] = {
        {"0", 1000, 0}, {"512k", 1000, 512000}, {"512k", 1024, 524288}, {"1.1m", 1000, 1100000}, {"0.5k", 1024, 512}, {"1e6", 1000, 1000000},
        {"-3", 1000, -3}, {"10G", 1000, 10000000000}, {"9223372036854775807", 1000, INT64_MAX}, {"1.5g", 1024, 1610612736},
    };
    Error error;
    int64_t value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(args_size(good[i].text, good[i].thousand, &value, &error), 0);
        assert_true(value == good[i].value);
    }
    const char *bad[] = {"", "k", "-", ".", "1kk", "1 k", " 1", "0x10", "inf", "1.5", "9223372036854775808", "10000000000g", "1e400", "1e", "--3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(args_size(bad[i], 1000, &value, &error), -1);
    }
}

static void test_args_json(void **state)
{
    (void)state;
    Flags f;
    init_flags(&f);
    cJSON *json = args_to_json(&f.program);
    assert_non_null(json);
    char *text = cJSON_PrintUnformatted(json);
    assert_string_equal(text, "{\"quiet\":false,\"tied\":true,\"max_steps\":524288,\"context\":1024,\"rate\":0.001,\"out\":null,\"prompt\":null}");
    free(text);
    cJSON_Delete(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_args_forms),
        cmocka_unit_test(test_args_list),
        cmocka_unit_test(test_args_refusals),
        cmocka_unit_test(test_args_help),
        cmocka_unit_test(test_args_size),
        cmocka_unit_test(test_args_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
