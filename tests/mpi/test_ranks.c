// Sums and agreements of ranks; to be started with mpirun, with any number of ranks.
//
//     mpirun -n 3 test_ranks                     runs the tests
//     test_ranks --difference CHECKPOINT OTHER   prints the largest relative RMS difference of a weight between two checkpoints (for test_mpi.sh)
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "training/ranks.h"

#include "tests/training.h"

static Ranks ranks;

// What a rank brings: numbers of very different sizes, whose sum depends on the order.
static void fill(float *numbers, size_t count, int rank)
{
    Rng rng;
    rng_seed(&rng, 7, (uint64_t)rank);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (float)rng_below(&rng, 2000001) * (i % 3 == 0 ? 1e-3f : 1e4f) - 1e3f;
    }
}

// Onto numbers that are there, or in place.
static void check_sum(size_t count, int among, bool onto)
{
    float *own = malloc((count + 1) * sizeof *own), *expected = malloc((count + 1) * sizeof *expected), *sum = malloc((count + 1) * sizeof *sum);
    assert_true(own != NULL && sum != NULL && expected != NULL);
    fill(sum, count, onto ? 99 : 0);
    for (int r = onto ? 0 : 1; r < among; r++) {
        fill(own, count, r);
        for (size_t i = 0; i < count; i++) {
            sum[i] += own[i];
        }
    }
    memcpy(expected, sum, count * sizeof *sum);
    fill(own, count, ranks.rank);
    fill(sum, count, 99);
    own[count] = sum[count] = 12345.0f;
    float *result = onto ? sum : own;
    ranks_add_floats(&ranks, result, own, count, among, onto);
    assert_memory_equal(result, expected, count * sizeof *result);
    assert_true(own[count] == 12345.0f && sum[count] == 12345.0f);
    free(own);
    free(sum);
    free(expected);
}

// One count is longer than what is moved at once, and nothing divides it.
static void test_add_floats(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, 3, 1000, (1 << 22) + 4099};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int among = 1; among <= ranks.count; among++) {
            check_sum(counts[i], among, false);
            check_sum(counts[i], among, true);
        }
    }
}

static void test_add(void **state)
{
    (void)state;
    double numbers[3] = {1.0, (double)ranks.rank, 1e300 * (ranks.rank == 0)}, sums[3] = {0.0, 0.5, 0.0}, n = (double)ranks.count;
    ranks_add(&ranks, sums, numbers, 3);
    assert_true(sums[0] == n && sums[1] == n * (n - 1.0) / 2.0 + 0.5 && sums[2] == 1e300);
    double nan = ranks.rank == ranks.count - 1 ? NAN : 1.0;
    ranks_add(&ranks, sums, &nan, 1);
    assert_true(isnan(sums[0]));
}

// Of two ranks that fail the first one's error is everybody's.
static void test_agree(void **state)
{
    (void)state;
    int last = ranks.count - 1;
    Error error = {"mine"};
    assert_int_equal(ranks_agree(&ranks, 0, &error), 0);
    assert_int_equal(ranks_agree(&ranks, ranks.rank == last ? 15 : 0, &error), 15);
    assert_string_equal(error.text, "mine");
    for (int first = 0; first <= last; first++) {
        bool fails = ranks.rank == first || ranks.rank == last;
        Error own = {"nothing"};
        int status = fails ? error_set(&own, "trouble in %d", ranks.rank) : ranks.rank % 2;
        assert_int_equal(ranks_agree(&ranks, status, &own), -1);
        char expected[64];
        snprintf(expected, sizeof expected, first > 0 ? "rank %d: trouble in %d" : "trouble in 0", first, first);
        assert_string_equal(own.text, expected);
    }
}

static void test_same(void **state)
{
    (void)state;
    int last = ranks.count - 1;
    Error error = {"mine"};
    assert_int_equal(ranks_same(&ranks, UINT64_C(1) << 63, "other shoes", &error), 0);
    assert_string_equal(error.text, "mine");
    if (ranks.count > 1) {
        assert_int_equal(ranks_same(&ranks, ranks.rank == last, "other shoes", &error), -1);
        char expected[64];
        snprintf(expected, sizeof expected, "rank %d has other shoes than rank 0:", last);
        assert_memory_equal(error.text, expected, strlen(expected));
    }
}

// Every piece of work is done once, and no rank does two more than another.
static void test_shares(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 40; n++) {
        uint64_t next = 0;
        for (int r = 0; r < ranks.count; r++) {
            Ranks one = {.rank = r, .count = ranks.count};
            assert_int_equal(ranks_from(&one, n), next);
            next = ranks_to(&one, n);
            assert_in_range(next - ranks_from(&one, n), n / (uint64_t)ranks.count, (n + (uint64_t)ranks.count - 1) / (uint64_t)ranks.count);
        }
        assert_int_equal(next, n);
        assert_true(ranks_from(NULL, n) == 0 && ranks_to(NULL, n) == n);
    }
}

static void test_start(void **state)
{
    (void)state;
    assert_in_range(ranks.local, 1, ranks.count);
    assert_in_range(ranks.sharing, 1, ranks.local);
    assert_in_range(ranks.rank, 0, ranks.count - 1);
    assert_true(ranks_first(&ranks) == (ranks.rank == 0) && ranks_first(NULL));
}

static int print_difference(const char *a, const char *b)
{
    Error error;
    Model one, other;
    const Kernels *found = kernels_select(&error);
    if (found == NULL || checkpoint_load_model(&one, found, a, &error) || checkpoint_load_model(&other, found, b, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    double most = 0.0;
    for (size_t i = 0; i < one.table.count; i++) {
        const Tensor *tensor = &one.table.items[i];
        double difference = relative_rms(one.params + tensor->offset, other.params + tensor->offset, tensor->count);
        most = difference <= most ? most : difference;
    }
    printf("%.3g\n", most);
    model_free(&one);
    model_free(&other);
    return 0;
}

int main(int argc, char **argv)
{
    Error error;
    if (argc == 4 && strcmp(argv[1], "--difference") == 0) {
        return print_difference(argv[2], argv[3]);
    }
    if (ranks_start(&ranks, &error)) {
        fprintf(stderr, "%s\n", error.text);
        ranks_finish(&ranks);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start), cmocka_unit_test(test_add_floats), cmocka_unit_test(test_add),
        cmocka_unit_test(test_agree), cmocka_unit_test(test_same),       cmocka_unit_test(test_shares),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ranks_finish(&ranks);
    return failed;
}
