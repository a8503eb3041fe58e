// The list of memory that products ask for: every line of every row once, in order, and then the line at hand for ever.
#include "tests/check.h"
#include "model/mixers/ahead.h"

static void test_lines(void **state)
{
    (void)state;
    static float memory[512], near[LINE_FLOATS];
    // Three rows of 40 numbers (three lines each), 64 apart; nothing; a row of one line; rows that stand one behind the other.
    const size_t expected[] = {0, 16, 32, 64, 80, 96, 128, 144, 160, 300, 400, 416};
    Ahead ahead = {.n = 0};
    add_ahead(&ahead, memory, 64, 40, 3);
    add_ahead(&ahead, memory + 200, 64, 0, 3);
    add_ahead(&ahead, memory + 200, 64, 40, 0);
    add_ahead(&ahead, memory + 300, 0, 1, 1);
    add_ahead(&ahead, memory + 400, 16, 16, 2);
    begin_ahead(&ahead, near);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_ptr_equal(ahead.line.at, memory + expected[i]);
        assert_true(ahead.place < ahead.n);
        ask_line(&ahead.line, &ahead);
    }
    for (size_t i = 0; i < 5; i++) {
        assert_ptr_equal(ahead.line.at, near);
        assert_int_equal(ahead.place, ahead.n);
        ask_line(&ahead.line, &ahead);
    }
}

// What has no place in the list is left out, what has is all asked for.
static void test_rest(void **state)
{
    (void)state;
    static float memory[AHEAD_MOST + 4][LINE_FLOATS];
    Ahead ahead = {.n = 0};
    for (size_t i = 0; i < AHEAD_MOST + 4; i++) {
        add_ahead(&ahead, memory[i], LINE_FLOATS, LINE_FLOATS, 1);
    }
    begin_ahead(&ahead, memory[AHEAD_MOST + 3]);
    ask_line(&ahead.line, &ahead);
    assert_ptr_equal(ahead.line.at, memory[1]);
    ask_rest(&ahead);
    assert_int_equal(ahead.place, AHEAD_MOST - 1);
    assert_ptr_equal(ahead.line.at, memory[AHEAD_MOST + 3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines), cmocka_unit_test(test_rest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
