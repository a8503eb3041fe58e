// Files of results, what reports make of them, and the names that runs have in them.
#include <math.h>

#include "experiments/cells.h"
#include "experiments/describe.h"
#include "experiments/recall_row.h"
#include "experiments/text_row.h"
#include "tests/scratch.h"

static void rows_survive_the_file(void **state)
{
    char *path = in_folder(state, "rows.csv");
    Error error;
    ResultRows rows;
    RecallRow row = {.mixer = "lattice objective=encode", .pairs = 16, .length = 128, .vocab = 64, .d_model = 64, .d_head = 32, .n_slot = 48, .steps = 1000,
                     .batch = 8, .optimizer = "muon", .lr = 1.0 / 3.0, .seed = 2, .state = 2048, .parameters = 12345, .steps_run = 700, .accuracy = 0.75, .loss = 1.5, .seconds = 9};
    assert_int_equal(rows_read(&rows, &recall_layout, path, &error), 0);
    assert_int_equal(rows.count, 0);
    assert_int_equal(rows_append(&recall_layout, path, &row, &error), 0);
    row.seed = 3;
    row.accuracy = NAN;
    assert_int_equal(rows_append(&recall_layout, path, &row, &error), 0);
    assert_int_equal(rows_read(&rows, &recall_layout, path, &error), 0);
    assert_int_equal(rows.count, 2);
    const RecallRow *first = rows_at(&rows, 0), *second = rows_at(&rows, 1);
    assert_true(first->accuracy == 0.75 && first->steps_run == 700 && isnan(second->accuracy));
    assert_ptr_equal(rows_find(&rows, &row), rows_at(&rows, 1));
    row.lr = 0.3;
    assert_null(rows_find(&rows, &row));
    assert_true(rows_agree(&recall_layout, rows_at(&rows, 0), &row, ROLE_SETTING));
    row.n_slot = 32;
    assert_false(rows_agree(&recall_layout, rows_at(&rows, 0), &row, ROLE_SETTING));
    rows_free(&rows);
    assert_int_equal(file_write_atomic(path, "mixer,pairs\n", 12, &error), 0);
    assert_int_equal(rows_read(&rows, &recall_layout, path, &error), -1);
    assert_non_null(strstr(error.text, "first line"));
    char text[2 * ROW_LINE_BYTES];
    size_t size = strlen(rows_header(text, &recall_layout));
    size += (size_t)snprintf(text + size, sizeof text - size, "\ndelta,16,128,64,64,32,32,1000,8,0,adamw,2,2,x,1,1,1,1,1,1,1\n");
    assert_int_equal(file_write_atomic(path, text, size, &error), 0);
    assert_int_equal(rows_read(&rows, &recall_layout, path, &error), -1);
    assert_non_null(strstr(error.text, "line 2: no good value for lr"));
    free(path);
}

static double accuracy_of(const void *row) { return ((const RecallRow *)row)->accuracy; }
static double steps_of(const void *row) { return (double)((const RecallRow *)row)->steps_run; }

static RecallRow run_of(const char *mixer, int64_t pairs, double lr, int64_t seed, double accuracy)
{
    RecallRow row = {.optimizer = "adamw", .pairs = pairs, .length = 8 * pairs, .lr = lr, .seed = seed, .accuracy = accuracy, .steps_run = 100 * seed};
    snprintf(row.mixer, sizeof row.mixer, "%s", mixer);
    return row;
}

// The best rate by the mean over seeds, settings by their columns, in each the best first, what is not a number last.
static void cells_hold_the_best_rates(void **state)
{
    (void)state;
    RecallRow items[] = {
        run_of("lattice", 8, 0.1, 1, NAN),   run_of("delta", 8, 0.1, 1, 0.5),   run_of("gla", 4, 0.1, 1, 0.9),    run_of("delta", 4, 0.1, 1, 0.2),
        run_of("delta", 8, 0.01, 1, 0.9),    run_of("delta", 8, 0.01, 2, 0.7),  run_of("delta", 8, 0.1, 2, 0.98), run_of("linear", 8, 0.1, 1, 0.1),
    };
    ResultRows rows = {&recall_layout, (char *)items, sizeof items / sizeof items[0]};
    Cells cells;
    Error error;
    assert_int_equal(cells_collect(&cells, &rows, accuracy_of, true, &error), 0);
    static const size_t expected[] = {2, 3, 4, 7, 0};   // rows that begin the best cells, in order
    assert_int_equal(cells.n_best, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_ptr_equal(cells.best[i].first, &items[expected[i]]);
        assert_int_equal(cells_begin_setting(&cells, i), i == 0 || i == 2);
    }
    assert_true(fabs(cells.best[2].mean - 0.8) < 1e-12 && cells.best[2].least == 0.7 && cells.best[2].most == 0.9 && cells.best[2].seeds == 2);
    assert_true(cells_mean(&cells, &cells.best[2], steps_of) == 150.0);
    cells_free(&cells);
    // Where less is better, delta's other rate comes first: 0.74 against 0.8.
    assert_int_equal(cells_collect(&cells, &rows, accuracy_of, false, &error), 0);
    assert_ptr_equal(cells.best[0].first, &items[3]);
    assert_ptr_equal(cells.best[2].first, &items[7]);
    assert_ptr_equal(cells.best[3].first, &items[1]);
    cells_free(&cells);
}

// A chart shows the setting, but for the pairs, that most was run in.
static void the_main_setting_has_most_cells(void **state)
{
    (void)state;
    RecallRow items[] = {run_of("delta", 4, 0.1, 1, 0.5), run_of("delta", 8, 0.1, 1, 0.5), run_of("gla", 8, 0.1, 1, 0.5), run_of("delta", 8, 0.1, 1, 0.5)};
    for (size_t i = 0; i < 4; i++) {
        items[i].length = 64;
    }
    items[0].steps = 9;
    items[3].n_slot = 5;
    ResultRows rows = {&recall_layout, (char *)items, 4};
    Cells cells;
    Error error;
    assert_int_equal(cells_collect(&cells, &rows, accuracy_of, true, &error), 0);
    assert_ptr_equal(cells_main_setting(&cells, "pairs"), &items[1]);
    assert_true(rows_agree_but(&recall_layout, &items[0], &items[1], ROLE_SUBJECT, "steps") == false);
    items[1].pairs = 4;
    assert_true(rows_agree_but(&recall_layout, &items[0], &items[1], ROLE_SUBJECT, "steps") && !rows_agree(&recall_layout, &items[0], &items[1], ROLE_SUBJECT));
    cells_free(&cells);
}

// ResultRows of text: the same file, other columns; ranked by the longest context that was trained for.
static void text_rows_have_their_own_columns(void **state)
{
    char *path = in_folder(state, "text.csv");
    Error error;
    ResultRows rows;
    TextRow row = {.mixer = "attention:512", .data = "books", .optimizer = "muon", .dtype = "bf16", .seq_len = 512, .tokens = 1000, .lr = 3e-3, .seed = 1, .parameters = 5, .cpu_seconds = NAN,
                   .perplexity = {NAN, 64.5, NAN, NAN, NAN, 30.25, NAN, NAN, 29.0}};
    assert_int_equal(rows_append(&text_layout, path, &row, &error), 0);
    assert_int_equal(rows_have(&text_layout, path, &row, &error), 1);
    assert_int_equal(rows_read(&rows, &text_layout, path, &error), 0);
    const TextRow *back = rows_at(&rows, 0);
    assert_string_equal(back->data, "books");
    assert_string_equal(back->optimizer, "muon");
    assert_true(back->parameters == 5 && isnan(back->cpu_seconds) && back->perplexity[5] == 30.25 && isnan(back->perplexity[7]) && back->perplexity[8] == 29.0);
    assert_int_equal(text_contexts[text_main_context(back)], 128);
    row.seq_len = 2048;
    assert_int_equal(text_contexts[text_main_context(&row)], 2048);
    row.seq_len = 32;
    assert_int_equal(text_contexts[text_main_context(&row)], 128);
    for (size_t i = 0; i < TEXT_CONTEXTS; i++) {
        row.perplexity[i] = NAN;
    }
    assert_int_equal(text_main_context(&row), TEXT_CONTEXTS);
    assert_int_equal(rows_have(&text_layout, path, &row, &error), 0);   // another setting
    rows_free(&rows);
    // A file of another kind of rows is refused.
    assert_int_equal(rows_have(&recall_layout, path, &(RecallRow){0}, &error), -1);
    assert_non_null(strstr(error.text, "give a file that mqar has written"));
    free(path);
}

static void mixers_are_named_by_their_flags(void **state)
{
    (void)state;
    static const char *const columns[] = {"mixer", NULL};
    bool plain = true, gate = false;
    int64_t chunk = 4, slots = 9, one = 1;
    double shift = -0.5;
    const char *form = "gated";
    ArgSpec specs[] = {
        {.name = "mixer", .kind = ARG_STRING, .target = &form, .given = true},
        {.name = "plain-codes", .kind = ARG_SWITCH, .target = &plain, .given = true},
        {.name = "wide-gate", .kind = ARG_SWITCH, .target = &gate, .given = true},
        {.name = "chunk", .kind = ARG_SIZE, .target = &chunk, .given = true},
        {.name = "n-slot", .kind = ARG_SIZE, .target = &slots},
        {.name = "gate-shift", .kind = ARG_REAL, .target = &shift, .given = true},
        {.name = "chunk-form", .kind = ARG_STRING, .target = &form, .given = true},
    };
    bool off = false;
    double none = 0.0;
    const char *frozen = "frozen";
    ArgSpec usual[] = {
        {.name = "mixer", .kind = ARG_STRING, .target = &frozen},
        {.name = "plain-codes", .kind = ARG_SWITCH, .target = &off},
        {.name = "wide-gate", .kind = ARG_SWITCH, .target = &plain},
        {.name = "chunk", .kind = ARG_SIZE, .target = &one},
        {.name = "n-slot", .kind = ARG_SIZE, .target = &one},
        {.name = "gate-shift", .kind = ARG_REAL, .target = &none},
        {.name = "chunk-form", .kind = ARG_STRING, .target = &frozen},
    };
    static const char expected[] = "lattice+delta plain-codes wide-gate=false chunk=4 gate-shift=-0.5 chunk-form=gated";
    char text[128];
    Error error;
    assert_int_equal(describe_mixer(text, sizeof text, "lattice,delta", specs, usual, 7, columns, &error), 0);
    assert_string_equal(text, expected);
    for (size_t size = 1; size < sizeof expected; size++) {
        assert_int_equal(describe_mixer(text, size, "lattice,delta", specs, usual, 7, columns, &error), -1);
    }
    assert_non_null(strstr(error.text, "give fewer"));
    // What is usual anyway names nothing; a number is told exactly, in as few digits as do.
    chunk = 1;
    shift = 0.1 + 1e-9;
    assert_int_equal(describe_mixer(text, sizeof text, "gla", specs, usual, 7, columns, &error), 0);
    assert_string_equal(text, "gla plain-codes wide-gate=false gate-shift=0.100000001 chunk-form=gated");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_survive_the_file),
        cmocka_unit_test(cells_hold_the_best_rates),
        cmocka_unit_test(the_main_setting_has_most_cells),
        TEST(text_rows_have_their_own_columns),
        cmocka_unit_test(mixers_are_named_by_their_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
