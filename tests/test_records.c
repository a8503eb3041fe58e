// Single records: the scanner of JSON lines, and conditions on numbers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/json_record.h"
#include "data/where.h"
#include "tests/scratch.h"

static void conditions_are_understood(void **state)
{
    (void)state;
    Error error;
    Where where;
    assert_int_equal(where_parse(&where, " int score >= 3 ", &error), 0);
    assert_string_equal(where.column, "int score");
    assert_true(where_integer(&where, 3) && where_integer(&where, INT64_MAX) && !where_integer(&where, 2));
    assert_true(where_real(&where, 3.0) && !where_real(&where, 2.9) && !where_real(&where, NAN));
    assert_true(where_unsigned(&where, UINT64_MAX));
    const struct {
        const char *text;
        bool below, same, above;
    } cases[] = {{"x<-1.5", true, false, false}, {"x<=-1.5", true, true, false}, {"x==-1.5", false, true, false},
                 {"x!=-1.5", true, false, true}, {"x>=-1.5", false, true, true}, {"x>-1.5e0", false, false, true}};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(where_parse(&where, cases[i].text, &error), 0);
        assert_int_equal(where_real(&where, -1.75), cases[i].below);
        assert_int_equal(where_real(&where, -1.5), cases[i].same);
        assert_int_equal(where_real(&where, -1.25), cases[i].above);
        assert_int_equal(where_integer(&where, -2), cases[i].below);
        assert_int_equal(where_integer(&where, -1), cases[i].above);
    }
    // Beyond 2^53 doubles are too coarse for whole numbers.
    assert_int_equal(where_parse(&where, "x>9007199254740992", &error), 0);
    assert_true(where_integer(&where, INT64_C(9007199254740993)) && !where_integer(&where, INT64_C(9007199254740992)));
    const char *bad[] = {"", "x", "x>", ">3", "x=3", "x>>3", "x>3 4", "x>y", "x>nan", "x>inf", "x><3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(where_parse(&where, bad[i], &error), -1);
        assert_says(&error, "is not understood: write NAME OPERATOR NUMBER");
    }
}

static void json_is_checked(void **state)
{
    (void)state;
    const struct {
        const char *line;
        bool good;
    } cases[] = {
        {"{\"text\":\"\\b\\f\\n\\r\\t\\/\\\\\\\"\",\"a\":[1,-0.5e-7,true,false,null,{},[],{\"b\":[[\"\\u00e9\"]]}]}", true},
        {" { \"text\" : \"x\" , \"n\" : -Infinity } ", true},
        {"{\"text\":\"x\",}", false},
        {"{\"text\":\"x\" \"a\":1}", false},
        {"{\"text\":\"x\",\"a\":01}", false},
        {"{\"text\":\"x\",\"a\":1.}", false},
        {"{\"text\":\"x\",\"a\":.5}", false},
        {"{\"text\":\"x\",\"a\":1e}", false},
        {"{\"text\":\"x\",\"a\":tru}", false},
        {"{\"text\":\"x\",\"a\":[1,]}", false},
        {"{\"text\":\"x\",\"a\":[1}", false},
        {"{\"text\":\"x\",\"a\":\"\\x\"}", false},
        {"{\"text\":\"x\",\"a\":\"\\u12g4\"}", false},
        {"{\"text\":\"\\udc00\\ud800\"}", false},
        {"{\"text\":\"\\ud800x\"}", false},
        {"{\"text\":\"x\\", false},
        {"{text:\"x\"}", false},
        {"{\"text\":\"x\"}}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s", cases[i].line);
        JsonRecord record;
        const char *problem = json_record_read(&record, line, strlen(line), NULL, NULL);
        if ((problem == NULL) != cases[i].good) {
            fail_msg("%s: %s", cases[i].line, problem != NULL ? problem : "taken as good");
        }
        if (i == 0) {
            assert_int_equal(record.length, 8);
            assert_memory_equal(record.text, "\b\f\n\r\t/\\\"", 8);
        }
    }
    // Nesting is bounded, and does not take the stack.
    for (size_t depth = 900; depth <= 100000; depth = depth == 900 ? 100000 : depth + 1) {
        char *line = malloc(2 * depth + 64);
        size_t at = (size_t)sprintf(line, "{\"text\":\"x\",\"a\":");
        memset(line + at, '[', depth);
        memset(line + at + depth, ']', depth);
        strcpy(line + at + 2 * depth, "}");
        JsonRecord record;
        const char *problem = json_record_read(&record, line, strlen(line), NULL, NULL);
        assert_int_equal(problem == NULL, depth == 900);
        free(line);
    }
    // The escaped key is the key; of one that stands twice, the first string.
    char line[] = "{\"te\\u0078t\":\"one\",\"text\":\"two\",\"n\":\"x\"}";
    JsonRecord record;
    assert_null(json_record_read(&record, line, strlen(line), NULL, "n"));
    assert_int_equal(record.length, 3);
    assert_memory_equal(record.text, "one", 3);
    assert_int_equal(record.number_state, JSON_NUMBER_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(conditions_are_understood),
        TEST(json_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
