// Reading with several threads: what is found, and in which order, is what one thread finds. Files that are skipped, by kind.
#ifdef _OPENMP
#include <omp.h>
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "base/expand.h"
#include "base/thread.h"
#include "data/corpus.h"
#include "data/story.h"
#include "tests/parquet_writer.h"
#include "tests/scratch.h"

// What a visit sees, as one text: every document behind its index and length.
typedef struct Seen {
    Output all;
    uint64_t stop_at;       // documents; 0: never
    uint64_t slow_every;    // documents between pauses; 0: none
} Seen;

static int see(void *context, uint64_t index, const char *text, size_t length, Error *error)
{
    Seen *seen = context;
    put_le(&seen->all, index, 8);
    put_le(&seen->all, length, 8);
    put(&seen->all, text, length);
    if (seen->slow_every > 0 && index % seen->slow_every == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return seen->stop_at > 0 && index + 1 == seen->stop_at ? error_set(error, "stopped by the visit") : 0;
}

static int read_all(const PathList *files, CorpusOptions options, size_t readers, CorpusStats *stats, Seen *seen, Error *error)
{
    options.quiet = true;
    options.readers = readers;
    seen->all.size = 0;
    error->text[0] = 0;
    return corpus_read(files, &options, stats, see, seen, error);
}

// Compares 1, 2, 3 and 16 readers with none.
static void check_all(const PathList *files, CorpusOptions options, uint64_t stop_at, uint64_t least_documents)
{
    static const size_t readers[] = {1, 2, 3, 16};
    Error error, wanted_error;
    CorpusStats stats, wanted_stats;
    Seen wanted = {.stop_at = stop_at}, seen = {.stop_at = stop_at};
    int result = read_all(files, options, 0, &wanted_stats, &wanted, &wanted_error);
    assert_true(wanted_stats.documents >= least_documents);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        seen.slow_every = i == 2 ? 50 : 0;
        assert_int_equal(read_all(files, options, readers[i], &stats, &seen, &error), result);
        assert_string_equal(error.text, wanted_error.text);
        assert_int_equal(seen.all.size, wanted.all.size);
        assert_memory_equal(seen.all.data, wanted.all.data, wanted.all.size);
        assert_int_equal(stats.documents, wanted_stats.documents);
        assert_int_equal(stats.bytes, wanted_stats.bytes);
        assert_int_equal(stats.skipped, wanted_stats.skipped);
        assert_int_equal(stats.duplicates, wanted_stats.duplicates);
        if (result == 0) {
            assert_int_equal(stats.filtered, wanted_stats.filtered);
            assert_int_equal(stats.bytes_read, wanted_stats.bytes_read);
        }
    }
    free(wanted.all.data);
    free(seen.all.data);
}

static void add(void **state, PathList *files, const char *name, const void *data, size_t size)
{
    Error error;
    char *path = make_file(state, name, data, size);
    assert_int_equal(path_list_add(files, path, &error), 0);
    free(path);
}

// Lines with a text and a score; every 17th is broken, every 13th has no text.
static Output make_lines(uint64_t seed, size_t count)
{
    static Story story;
    Output lines = {0};
    for (size_t i = 0; i < count; i++) {
        char head[64];
        story_tell(&story, seed, i % 40);
        snprintf(head, sizeof head, i % 17 == 5 ? "{\"score\": %zu, \"text\": " : "{\"score\": %zu, \"text\": \"", i % 7);
        put(&lines, head, strlen(head));
        for (size_t c = 0; c < story.length && i % 13 != 2; c++) {
            put_byte(&lines, story.text[c] == '\n' || story.text[c] == '"' ? ' ' : (unsigned char)story.text[c]);
        }
        put(&lines, "\"}\n", 3);
    }
    return lines;
}

static const char *text_of_story(size_t row, size_t *length)
{
    static Story stories[2];   // the writer still looks at the row before
    Story *story = &stories[row % 2];
    story_tell(story, 11, row);
    *length = story->length;
    return story->text;
}

static int64_t score_of_story(size_t row) { return (int64_t)(row % 7); }

// Records of every kind: plain and packed lines, tables with several groups, one without rows.
static PathList make_records(void **state)
{
    PathList files = {0};
    for (uint64_t i = 0; i < 4; i++) {
        char name[32];
        Output lines = make_lines(i, i == 1 ? 3000 : 30 + 100 * i);
        size_t bound = ZSTD_compressBound(lines.size);
        char *packed = malloc(bound);
        size_t size = ZSTD_compress(packed, bound, lines.data, lines.size, 1);
        snprintf(name, sizeof name, i % 2 == 0 ? "l%d.jsonl" : "l%d.jsonl.zst", (int)i);
        add(state, &files, name, i % 2 == 0 ? lines.data : (unsigned char *)packed, i % 2 == 0 ? lines.size : size);
        free(packed);
        free(lines.data);
        WriterOptions writer = {.codec = 6, .number = WRITE_INT64, .rows = 40 * (size_t)i, .page_rows = 9, .group_rows = 25};
        Output table = write_parquet(&writer, text_of_story, score_of_story);
        snprintf(name, sizeof name, "t%d.parquet", (int)i);
        add(state, &files, name, table.data, table.size);
        free(table.data);
    }
    return files;
}

static void order_and_counts_stay(void **state)
{
    PathList files = make_records(state);
    check_all(&files, (CorpusOptions){0}, 0, 2500);
    check_all(&files, (CorpusOptions){.dedup = true}, 0, 100);
    check_all(&files, (CorpusOptions){.where = "score>=3"}, 0, 1000);
    check_all(&files, (CorpusOptions){.where = "score>=100"}, 0, 0);
    path_list_free(&files);
}

static void stops_and_errors_come_in_order(void **state)
{
    Error error;
    PathList files = make_records(state);
    check_all(&files, (CorpusOptions){0}, 1, 1);
    check_all(&files, (CorpusOptions){0}, 777, 777);
    check_all(&files, (CorpusOptions){.strict = true}, 0, 4);
    // A file that is cut off, and behind it others.
    char *path = in_folder(state, "t2.parquet");
    size_t size;
    char *bytes = file_read(path, 1 << 26, &size, &error);
    assert_non_null(bytes);
    PathList broken = {0};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(path_list_add(&broken, files.items[i], &error), 0);
    }
    add(state, &broken, "cut.parquet", bytes, size / 2);
    assert_int_equal(path_list_add(&broken, files.items[3], &error), 0);
    check_all(&broken, (CorpusOptions){0}, 0, 2500);
    check_all(&broken, (CorpusOptions){.text_key = "missing"}, 0, 0);
    // A page in the middle of a table.
    memset(bytes + size / 2, 0x5a, 64);
    add(state, &files, "damaged.parquet", bytes, size);
    check_all(&files, (CorpusOptions){0}, 0, 2500);
    free(bytes);
    free(path);
    path_list_free(&broken);
    path_list_free(&files);
}

static void many_little_files(void **state)
{
    Error error;
    PathList files = {0};
    for (int i = 0; i < 400; i++) {
        char name[32], text[32];
        snprintf(name, sizeof name, "%03d.txt", i);
        snprintf(text, sizeof text, "text %d", i);
        add(state, &files, name, text, i % 9 == 0 ? 0 : strlen(text));
    }
    check_all(&files, (CorpusOptions){0}, 0, 350);
    assert_int_equal(path_list_add(&files, "/nonexistent/x.txt", &error), 0);
    check_all(&files, (CorpusOptions){0}, 0, 350);
    path_list_free(&files);
    check_all(&files, (CorpusOptions){0}, 0, 0);
}

// Documents as large as they get, which is more than a file may queue, and two of them all that may be queued.
static void large_documents(void **state)
{
    PathList files = {0};
    size_t size = CORPUS_MAX_DOCUMENT;
    char *text = malloc(size);
    assert_non_null(text);
    for (int i = 0; i < 3; i++) {
        char name[32];
        memset(text, 'a' + i, size);
        snprintf(name, sizeof name, "%d.txt", i);
        add(state, &files, name, text, i == 1 ? 10 : size);
    }
    free(text);
    Error error;
    CorpusStats stats;
    Seen seen = {.stop_at = 0};
    assert_int_equal(read_all(&files, (CorpusOptions){0}, 3, &stats, &seen, &error), 0);
    assert_int_equal(stats.documents, 3);
    assert_int_equal(seen.all.size, 2 * size + 10 + 3 * 16);
    assert_true(seen.all.data[16] == 'a' && seen.all.data[16 + size + 16] == 'b' && seen.all.data[seen.all.size - 1] == 'c');
    free(seen.all.data);
    path_list_free(&files);
}

static void other_files_are_counted_by_kind(void **state)
{
    static const char *const names[] = {"a.txt", "b.pdf", "c.PDF", "d.doc", "README", ".hidden.xls", "e.txt.", "f.a_very_long_ending"};
    PathList files = {0}, rest = {0};
    Error error;
    char text[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        free(make_file(state, names[i], "x", 1));
    }
    char *folder = in_folder(state, "");
    assert_int_equal(path_expand_with_rest(&files, &rest, &folder, 1, corpus_accepts, &error), 0);
    assert_int_equal(files.count, 1);
    assert_int_equal(rest.count, 6);
    assert_string_equal(corpus_describe_rest(text, sizeof text, &rest), "6 files skipped: no extension 2, .pdf 2, . 1, .doc 1");
    assert_int_equal(corpus_check_rest(&rest, false, &error), 0);
    assert_int_equal(corpus_check_rest(&rest, true, &error), -1);
    assert_says(&error, "is no document that can be read (6 files skipped");
    path_list_free(&rest);
    assert_int_equal(corpus_check_rest(&rest, true, &error), 0);
    assert_string_equal(corpus_describe_rest(text, sizeof text, &rest), "");
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "x.%c%d", i == 1 ? '\n' : 'a', i);
        assert_int_equal(path_list_add(&rest, name, &error), 0);
    }
    assert_int_equal(path_list_add(&rest, "y.a7", &error), 0);
    assert_string_equal(corpus_describe_rest(text, sizeof text, &rest),
                        "101 files skipped: .a7 2, .?1 1, .a0 1, .a10 1, .a11 1, .a12 1, .a13 1, .a14 1, others 92");
    assert_string_equal(corpus_describe_rest(text, 24, &rest), "101 files skipped: .a7 ");
    path_list_free(&rest);
    path_list_free(&files);
    free(folder);
}

#ifdef _OPENMP
static void *count_processors(void *context)
{
    cpu_set_t set;
    *(int *)context = pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
    return NULL;
}

// A program with OMP_PROC_BIND whose main thread is bound to one processor, as GNU's OpenMP does at once and LLVM's later; it exits with 0 when a thread of its
// own may use as many as said.
static int bound_program(const char *processors)
{
    pthread_t thread;
    int count = 0, first = 0;
    cpu_set_t set;
    if (omp_get_num_places() == 0 || pthread_getaffinity_np(pthread_self(), sizeof set, &set) != 0) {
        return 2;
    }
    while (!CPU_ISSET(first, &set)) {
        first++;
    }
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0 || thread_start(&thread, count_processors, &count) != 0 ||
        pthread_join(thread, NULL) != 0) {
        return 3;
    }
    return count == atoi(processors) ? 0 : 1;
}
#endif

// Threads that read and encode are not held to the one processor that OMP_PROC_BIND gives the main thread.
static void bound_threads(void **state)
{
    (void)state;
#ifdef _OPENMP
    int processors = 0, status = 0;
    char text[16];
    count_processors(&processors);
    snprintf(text, sizeof text, "%d", processors);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("OMP_PROC_BIND", "true", 1);
        setenv("OMP_PLACES", "threads", 1);
        execl("/proc/self/exe", "test_read_ahead", text, (char *)NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
#else
    puts("bound_threads: skipped: OpenMP is off in this build, so no thread is bound");
#endif
}

int main(int argc, char **argv)
{
#ifdef _OPENMP
    if (argc > 1) {
        return bound_program(argv[1]);
    }
#else
    (void)argc;
    (void)argv;
#endif
    const struct CMUnitTest tests[] = {
        TEST(order_and_counts_stay), TEST(stops_and_errors_come_in_order), TEST(many_little_files),
        TEST(large_documents),       TEST(other_files_are_counted_by_kind),
        TEST(bound_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
