#include "base/args.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/program.h"

enum {
    HELP_WIDTH = 110,       // columns of --help
    HELP_LEFT_MAX = 34,     // wider flags put their text on the next line
    MAX_NAME = 64,          // characters of a flag's name that are compared for suggestions
};

// ---- names ----

static char dash(char c) { return c == '_' ? '-' : c; }

// Compares text[0 .. length) with a flag's name; '_' and '-' are the same on the command line.
static bool name_is(const char *text, size_t length, const char *name)
{
    if (strlen(name) != length) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (dash(text[i]) != dash(name[i])) {
            return false;
        }
    }
    return true;
}

static ArgSpec *find_long(const ArgProgram *program, const char *text, size_t length)
{
    for (size_t i = 0; i < program->n_specs; i++) {
        if (name_is(text, length, program->specs[i].name)) {
            return &program->specs[i];
        }
    }
    return NULL;
}

static ArgSpec *find_short(const ArgProgram *program, char letter)
{
    for (size_t i = 0; i < program->n_specs; i++) {
        if (letter != 0 && program->specs[i].short_name == letter) {
            return &program->specs[i];
        }
    }
    return NULL;
}

static bool is_help(const ArgProgram *program, const char *argument)
{
    return strcmp(argument, "--help") == 0 || (strcmp(argument, "-h") == 0 && find_short(program, 'h') == NULL);
}

// Whether the whole argument is a flag of this program, so that it is no value of the flag before it.
static bool is_flag(const ArgProgram *program, const char *argument)
{
    if (is_help(program, argument)) {
        return true;
    }
    if (strncmp(argument, "--", 2) == 0) {
        size_t length = strcspn(argument + 2, "=");
        return find_long(program, argument + 2, length) != NULL ||
               (strncmp(argument + 2, "no-", 3) == 0 && find_long(program, argument + 5, strlen(argument + 5)) != NULL);
    }
    return argument[0] == '-' && argument[1] != 0 && argument[2] == 0 && find_short(program, argument[1]) != NULL;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static size_t edit_distance(const char *a, size_t n, const char *b)
{
    size_t m = strlen(b);
    if (n > MAX_NAME || m > MAX_NAME) {
        return SIZE_MAX;
    }
    size_t row[MAX_NAME + 1];
    for (size_t j = 0; j <= m; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t substitute = diagonal + (dash(a[i - 1]) != dash(b[j - 1]));
            diagonal = row[j];
            row[j] = smaller(substitute, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}

// The flag whose name is nearest to the text, or NULL when none is near enough to be meant.
static const char *nearest_name(const ArgProgram *program, const char *text, size_t length)
{
    const char *best = NULL;
    size_t best_distance = smaller(length / 3 + 1, 3) + 1;
    for (size_t i = 0; i < program->n_specs; i++) {
        size_t distance = edit_distance(text, length, program->specs[i].name);
        if (distance < best_distance) {
            best_distance = distance;
            best = program->specs[i].name;
        }
    }
    return best;
}

// ---- values ----

static int suffix_power(char suffix)
{
    switch (suffix) {
    case 'k': case 'K': return 1;
    case 'm': case 'M': return 2;
    case 'g': case 'G': return 3;
    default: return 0;
    }
}

int args_size(const char *text, int thousand, int64_t *value, Error *error)
{
    size_t length = strlen(text);
    int power = length > 0 ? suffix_power(text[length - 1]) : 0;
    size_t digits = length - (power > 0);
    bool fraction = false, usable = digits > 0 && digits < MAX_NAME;
    for (size_t i = 0; i < digits && usable; i++) {
        bool sign = (text[i] == '-' || text[i] == '+') && (i == 0 || text[i - 1] == 'e');
        usable = sign || (text[i] >= '0' && text[i] <= '9') || text[i] == '.' || text[i] == 'e';
        fraction = fraction || text[i] == '.' || text[i] == 'e';
    }
    if (!usable) {
        return error_set(error, "'%s' is not a size: write digits with k, m or g behind them, such as 512k or 1.5m", text);
    }
    char number[MAX_NAME];
    memcpy(number, text, digits);
    number[digits] = 0;
    char *end = NULL;
    int64_t factor = 1;
    for (int i = 0; i < power; i++) {
        factor *= thousand;
    }
    errno = 0;
    if (!fraction) {
        long long whole = strtoll(number, &end, 10);
        bool overflow = errno != 0 || whole > INT64_MAX / factor || whole < -(INT64_MAX / factor);
        if (*end == 0 && end != number && !overflow) {
            *value = (int64_t)whole * factor;
            return 0;
        }
        return error_set(error, "'%s' is not a size%s", text, overflow ? ": it is too large" : "");
    }
    double real = strtod(number, &end) * (double)factor;
    if (*end != 0 || end == number) {
        return error_set(error, "'%s' is not a size", text);
    }
    // 1.1m is not exact in binary: what is whole but for rounding counts as whole.
    if (!(fabs(real) < 0x1p53) || fabs(real - round(real)) > 1e-9 * fmax(1.0, fabs(real) * 1e-6)) {
        return error_set(error, "'%s' is not a whole number below 2^53", text);
    }
    *value = (int64_t)round(real);
    return 0;
}

static int parse_real(const char *text, double *value, Error *error)
{
    char *end = NULL;
    double real = strtod(text, &end);
    if (end == text || *end != 0 || !isfinite(real)) {
        return error_set(error, "'%s' is not a number", text);
    }
    *value = real;
    return 0;
}

static int parse_bool(const char *text, bool *value, Error *error)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0) {
        *value = true;
    } else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0) {
        *value = false;
    } else {
        return error_set(error, "'%s' is neither true nor false", text);
    }
    return 0;
}

static int check_range(const ArgSpec *spec, double value, const char *text, Error *error)
{
    bool bounded = spec->min != 0.0 || spec->max != 0.0;
    if (!bounded || (value >= spec->min && value <= spec->max)) {
        return 0;
    }
    // %g would write the bounds of sizes as 9e+15.
    return error_set(error, spec->kind == ARG_SIZE ? "%s is out of range: it must be from %.0f to %.0f"
                                                   : "%s is out of range: it must be from %.15g to %.15g", text, spec->min, spec->max);
}

static int set_value(ArgSpec *spec, const char *text, Error *error)
{
    int64_t size = 0;
    double real = 0.0;
    switch (spec->kind) {
    case ARG_SWITCH:
        return parse_bool(text, (bool *)spec->target, error);
    case ARG_SIZE:
        if (args_size(text, spec->binary ? 1024 : 1000, &size, error) || check_range(spec, (double)size, text, error)) {
            return -1;
        }
        *(int64_t *)spec->target = size;
        return 0;
    case ARG_REAL:
        if (parse_real(text, &real, error) || check_range(spec, real, text, error)) {
            return -1;
        }
        *(double *)spec->target = real;
        return 0;
    case ARG_STRING:
        *(const char **)spec->target = text;
        return 0;
    case ARG_TEXT:
        if (strlen(text) >= (size_t)spec->max) {
            return error_set(error, "'%.40s…' is too long: at most %zu bytes", text, (size_t)spec->max - 1);
        }
        memcpy(spec->target, text, strlen(text) + 1);
        return 0;
    }
    return -1;
}

// ---- parsing ----

static const char *value_name(const ArgSpec *spec) { return spec->value != NULL ? spec->value : "VALUE"; }

static void give(const ArgProgram *program, ArgSpec *spec, const char *text)
{
    Error error;
    if (text == NULL) {
        args_usage_error(program, "--%s needs a value: --%s %s", spec->name, spec->name, value_name(spec));
    }
    if (set_value(spec, text, &error)) {
        args_usage_error(program, "--%s: %s", spec->name, error.text);
    }
    if (spec->list != NULL && path_list_add(spec->list, text, &error)) {
        args_usage_error(program, "--%s: %s", spec->name, error.text);
    }
    spec->given = true;
}

// The argument behind argv[*i] if it can be a value: anything that is not itself a flag, so that negative numbers and
// texts that begin with a dash work.
static const char *next_value(const ArgProgram *program, int argc, char **argv, int *i)
{
    if (*i + 1 >= argc || is_flag(program, argv[*i + 1])) {
        return NULL;
    }
    *i += 1;
    return argv[*i];
}

static void parse_long(const ArgProgram *program, int argc, char **argv, int *i)
{
    const char *text = argv[*i] + 2;
    size_t length = strcspn(text, "=");
    const char *value = text[length] == '=' ? text + length + 1 : NULL;
    ArgSpec *spec = find_long(program, text, length);
    if (spec == NULL && length > 3 && name_is(text, 3, "no-") && value == NULL) {
        ArgSpec *negated = find_long(program, text + 3, length - 3);
        if (negated != NULL && negated->kind == ARG_SWITCH) {
            give(program, negated, "false");
            return;
        }
    }
    if (spec == NULL) {
        const char *near = nearest_name(program, text, length);
        args_usage_error(program, "unknown flag --%.*s%s%s%s", (int)smaller(length, MAX_NAME), text,
                         near != NULL ? " (did you mean --" : "", near != NULL ? near : "", near != NULL ? "?)" : "");
    }
    if (spec->kind == ARG_SWITCH) {
        give(program, spec, value != NULL ? value : "true");
    } else {
        give(program, spec, value != NULL ? value : next_value(program, argc, argv, i));
    }
}

static void parse_short(const ArgProgram *program, int argc, char **argv, int *i)
{
    const char *text = argv[*i] + 1;
    ArgSpec *spec = find_short(program, text[0]);
    if (spec == NULL) {
        const char *near = nearest_name(program, text, strlen(text));
        args_usage_error(program, "unknown flag -%s%s%s%s", text, near != NULL ? " (did you mean --" : "", near != NULL ? near : "",
                         near != NULL ? "?)" : "");
    }
    if (spec->kind != ARG_SWITCH) {
        give(program, spec, text[1] != 0 ? text + 1 : next_value(program, argc, argv, i));
    } else if (text[1] == 0) {
        give(program, spec, "true");
    } else {
        args_usage_error(program, "-%c takes no value (-%s): write every flag by itself", text[0], text);
    }
}

static void print_help_and_exit(const ArgProgram *program)
{
    args_help(program, stdout);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        Error error;
        error_set(&error, "cannot write to standard output: %s", strerror(errno));
        exit(args_fail(&error));
    }
    exit(0);
}

void args_parse(const ArgProgram *program, int argc, char **argv, size_t *n_positional)
{
    program_start();
    // First, so that the defaults shown are not yet changed by flags before it.
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(program, argv[i])) {
            print_help_and_exit(program);
        }
    }
    size_t count = 0;
    bool flags_end = false;
    for (int i = 1; i < argc; i++) {
        if (flags_end || argv[i][0] != '-' || argv[i][1] == 0) {
            argv[++count] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            flags_end = true;
        } else if (argv[i][1] == '-') {
            parse_long(program, argc, argv, &i);
        } else {
            parse_short(program, argc, argv, &i);
        }
    }
    if (count < program->min_positional) {
        args_usage_error(program, "%s: ./%s %s", count == 0 ? "what to work on is missing" : "an argument is missing", program->name,
                         program->usage);
    }
    if (count > program->max_positional) {
        args_usage_error(program, "'%s' is one argument too many: ./%s %s", argv[program->max_positional + 1], program->name,
                         program->usage);
    }
    *n_positional = count;
}

// ---- help ----

// The shortest text of a size that reads back as the same number.
static void format_size(char text[32], int64_t value, bool binary)
{
    int64_t thousand = binary ? 1024 : 1000;
    const char *suffixes[] = {"", "k", "m", "g"};
    size_t power = 0;
    while (power < 3 && value != 0 && value % thousand == 0) {
        value /= thousand;
        power++;
    }
    snprintf(text, 32, "%" PRId64 "%s", value, suffixes[power]);
}

static void default_text(const ArgSpec *spec, char *text, size_t size)
{
    char number[32];
    text[0] = 0;
    switch (spec->kind) {
    case ARG_SWITCH:
        if (*(const bool *)spec->target) {
            snprintf(text, size, " (default on)");
        }
        break;
    case ARG_SIZE:
        format_size(number, *(const int64_t *)spec->target, spec->binary);
        snprintf(text, size, " (default %s)", number);
        break;
    case ARG_REAL:
        snprintf(text, size, " (default %.6g)", *(const double *)spec->target);
        break;
    case ARG_STRING:
        if (*(const char *const *)spec->target != NULL) {
            snprintf(text, size, " (default %s)", *(const char *const *)spec->target);
        }
        break;
    case ARG_TEXT:
        snprintf(text, size, " (default %s)", (const char *)spec->target);
        break;
    }
}

static int left_text(const ArgSpec *spec, char *text, size_t size)
{
    char letter[8] = "    ";
    if (spec->short_name != 0) {
        snprintf(letter, sizeof letter, "-%c, ", spec->short_name);
    }
    if (spec->kind == ARG_SWITCH) {
        return snprintf(text, size, "%s--%s%s", letter, *(const bool *)spec->target ? "[no-]" : "", spec->name);
    }
    return snprintf(text, size, "%s--%s %s", letter, spec->name, value_name(spec));
}

// Prints text in columns from `left` on, broken at spaces.
static void print_wrapped(FILE *out, const char *text, size_t left)
{
    size_t column = left;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > left && column + 1 + word > HELP_WIDTH) {
            fprintf(out, "\n%*s", (int)left, "");
            column = left;
        } else if (column > left) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

// One line on what k, m and g mean.
static void help_sizes(const ArgProgram *program, FILE *out)
{
    char binary[512] = "";
    bool decimal = false;
    for (size_t i = 0; i < program->n_specs; i++) {
        const ArgSpec *spec = &program->specs[i];
        decimal = decimal || (spec->kind == ARG_SIZE && !spec->binary);
        if (spec->binary) {
            size_t used = strlen(binary);
            snprintf(binary + used, sizeof binary - used, "%s--%s", used > 0 ? ", " : "", spec->name);
        }
    }
    if (binary[0] != 0) {
        fprintf(out, "\nSizes may end in k, m, g: 1,024-fold in %s (2k = 2,048)%s.\n", binary,
                decimal ? ", else 1,000-fold (16k = 16,000)" : "");
    } else if (decimal) {
        fprintf(out, "\nSizes may end in k, m, g, all 1,000-fold (16k = 16,000).\n");
    }
}

void args_help(const ArgProgram *program, FILE *out)
{
    char left[128], text[1024], value[128];
    size_t width = strlen("-h, --help");
    for (size_t i = 0; i < program->n_specs; i++) {
        size_t length = (size_t)left_text(&program->specs[i], left, sizeof left);
        if (length > width && length <= HELP_LEFT_MAX) {
            width = length;
        }
    }
    fprintf(out, "usage: ./%s %s\n\n%s\n\nflags:\n", program->name, program->usage, program->description);
    for (size_t i = 0; i < program->n_specs; i++) {
        const ArgSpec *spec = &program->specs[i];
        size_t length = (size_t)left_text(spec, left, sizeof left);
        fprintf(out, "  %-*s  ", (int)width, left);
        if (length > width) {
            fprintf(out, "\n%*s", (int)width + 4, "");
        }
        default_text(spec, value, sizeof value);
        char choices[256] = "";
        if (spec->choices != NULL) {
            spec->choices(choices, sizeof choices);
        }
        snprintf(text, sizeof text, "%s%s%s%s", spec->help, choices[0] != 0 ? ": " : "", choices, value);
        print_wrapped(out, text, width + 4);
    }
    fprintf(out, "  %-*s  this text\n", (int)width, find_short(program, 'h') == NULL ? "-h, --help" : "    --help");
    help_sizes(program, out);
}

// ---- results ----

static cJSON *value_json(const ArgSpec *spec)
{
    switch (spec->kind) {
    case ARG_SWITCH:
        return cJSON_CreateBool(*(const bool *)spec->target);
    case ARG_SIZE:
        return cJSON_CreateNumber((double)*(const int64_t *)spec->target);
    case ARG_REAL:
        return cJSON_CreateNumber(*(const double *)spec->target);
    case ARG_STRING:
        return *(const char *const *)spec->target != NULL ? cJSON_CreateString(*(const char *const *)spec->target) : cJSON_CreateNull();
    case ARG_TEXT:
        return cJSON_CreateString((const char *)spec->target);
    }
    return NULL;
}

struct cJSON *args_to_json(const ArgProgram *program)
{
    cJSON *object = cJSON_CreateObject();
    for (size_t i = 0; i < program->n_specs && object != NULL; i++) {
        char key[MAX_NAME + 1];
        snprintf(key, sizeof key, "%s", program->specs[i].name);
        for (char *c = key; *c; c++) {
            if (*c == '-') {
                *c = '_';
            }
        }
        cJSON *value = value_json(&program->specs[i]);
        if (value == NULL || !cJSON_AddItemToObject(object, key, value)) {
            cJSON_Delete(value);
            cJSON_Delete(object);
            object = NULL;
        }
    }
    return object;
}

int args_fail(const Error *error)
{
    fprintf(stderr, "error: %s\n", error->text);
    return 1;
}

void args_usage_error(const ArgProgram *program, const char *format, ...)
{
    Error error;
    char text[sizeof error.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(&error, "%s", text);
    fprintf(stderr, "error: %s\n(./%s --help lists the flags)\n", error.text, program->name);
    exit(2);
}
