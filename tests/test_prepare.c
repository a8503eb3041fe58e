// Preparing documents: the split, the folder's state, the order of tokens, and that the number of threads changes nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/lock.h"
#include "data/prepare.h"
#include "data/shards.h"
#include "data/split.h"
#include "data/story.h"
#include "tests/parquet_writer.h"
#include "tokenizer/bpe.h"

typedef struct Fixture {
    char folder[256];
} Fixture;

static int setup(void **state)
{
    Fixture *fixture = calloc(1, sizeof *fixture);
    const char *base = getenv("TMPDIR");
    snprintf(fixture->folder, sizeof fixture->folder, "%s/test_prepare_XXXXXX", base != NULL && strlen(base) < 200 ? base : "/tmp");
    *state = fixture;
    return mkdtemp(fixture->folder) == NULL;
}

static int teardown(void **state)
{
    Fixture *fixture = *state;
    Error error;
    int result = folder_remove(fixture->folder, &error);
    free(fixture);
    return result;
}

static char *in_folder(void **state, const char *name)
{
    char *path = path_join(((Fixture *)*state)->folder, name);
    assert_non_null(path);
    return path;
}

static void make_file(void **state, const char *name, const void *data, size_t size)
{
    char *path = in_folder(state, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(path);
}

static void put_story(FILE *file, uint64_t index)
{
    static Story story;
    story_tell(&story, 11, index);
    fputs("{\"text\": \"", file);
    for (const char *p = story.text; *p != 0; p++) {
        fprintf(file, *p == '\n' ? "\\n" : *p == '"' ? "\\\"" : "%c", *p);
    }
    fputs("\"}\n", file);
}

// Stories `from` … `to`−1 as .jsonl.
static void make_stories(void **state, const char *name, uint64_t from, uint64_t to)
{
    char *path = in_folder(state, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (uint64_t i = from; i < to; i++) {
        put_story(file, i);
    }
    assert_int_equal(fclose(file), 0);
    free(path);
}

static PrepareOptions small_options(void)
{
    PrepareOptions options;
    prepare_defaults(&options);
    options.vocab_size = 400;
    options.quiet = true;
    options.threads = 2;
    return options;
}

// Prepares the named files into the named folder.
static int prepare(void **state, const char *out, const PrepareOptions *options, Error *error, size_t n_names, const char *const *names)
{
    PathList list = {0};
    for (size_t i = 0; i < n_names; i++) {
        char *path = in_folder(state, names[i]);
        assert_int_equal(path_list_add(&list, path, error), 0);
        free(path);
    }
    char *folder = in_folder(state, out);
    int result = prepare_documents(&list, folder, options, error);
    free(folder);
    path_list_free(&list);
    return result;
}

#define PREPARE(out, options, ...)                                                                                           \
    prepare(state, out, options, &error, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), (const char *const[]){__VA_ARGS__})

static void assert_says(const Error *error, const char *words)
{
    if (strstr(error->text, words) == NULL) {
        fail_msg("the error \"%s\" does not say \"%s\"", error->text, words);
    }
}

static void assert_prepared(int result, const Error *error)
{
    if (result != 0) {
        fail_msg("%s", error->text);
    }
}

static void assert_same_folders(void **state, const char *first, const char *second)
{
    Error error;
    PathList a = {0}, b = {0};
    char *first_path = in_folder(state, first), *second_path = in_folder(state, second);
    assert_int_equal(folder_list(&a, first_path, &error), 0);
    assert_int_equal(folder_list(&b, second_path, &error), 0);
    assert_int_equal(a.count, b.count);
    for (size_t i = 0; i < a.count; i++) {
        assert_string_equal(a.items[i], b.items[i]);
        char *p = path_join(first_path, a.items[i]), *q = path_join(second_path, a.items[i]);
        size_t p_size, q_size;
        char *p_bytes = file_read(p, 1 << 26, &p_size, &error), *q_bytes = file_read(q, 1 << 26, &q_size, &error);
        assert_int_equal(p_size, q_size);
        assert_memory_equal(p_bytes, q_bytes, p_size);
        free(p_bytes);
        free(q_bytes);
        free(p);
        free(q);
    }
    free(first_path);
    free(second_path);
    path_list_free(&a);
    path_list_free(&b);
}

static int64_t count_of(void **state, const char *out, const char *split, const char *key)
{
    Error error;
    char *folder = in_folder(state, out), *path = path_join(folder, "prepare.json");
    cJSON *json = json_read_file(path, 1 << 20, &error);
    assert_non_null(json);
    int64_t value;
    assert_int_equal(json_get_int(split != NULL ? cJSON_GetObjectItem(json, split) : json, key, 0, INT64_MAX / 2, &value, &error), 0);
    cJSON_Delete(json);
    free(path);
    free(folder);
    return value;
}

// The text of a split, decoded, with '\1' for each <|endoftext|>. Buffer to free.
static char *decode_split(void **state, const char *out, const char *prefix, size_t *length)
{
    Error error;
    char *folder = in_folder(state, out), *path = path_join(folder, "tokenizer.json");
    Tokenizer *tokenizer = tokenizer_load(path, &error);
    assert_non_null(tokenizer);
    PathList shards = {0};
    assert_int_equal(prepare_list_shards(&shards, folder, prefix, &error), 0);
    char *text = NULL;
    FILE *stream = open_memstream(&text, length);
    for (size_t s = 0; s < shards.count; s++) {
        Shard shard;
        assert_int_equal(shard_open(&shard, shards.items[s], &error), 0);
        assert_int_equal(shard.tokenizer_hash, tokenizer_hash(tokenizer));
        for (uint64_t i = 0; i < shard.count; i++) {
            int32_t id;
            size_t size;
            shard_read(&shard, &id, i, 1);
            const char *bytes = tokenizer_token(tokenizer, id, &size);
            assert_non_null(bytes);
            if (id == tokenizer_end_of_text(tokenizer)) {
                fputc(1, stream);
            } else {
                fwrite(bytes, 1, size, stream);
            }
        }
        shard_close(&shard);
    }
    fclose(stream);
    path_list_free(&shards);
    tokenizer_free(tokenizer);
    free(path);
    free(folder);
    return text;
}

static void threads_change_nothing(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 150);
    make_stories(state, "b.jsonl", 150, 170);
    PrepareOptions options = small_options();
    options.shard_tokens = 20000;   // documents are cut across shards
    const char *names[] = {"one", "two", "eight"};
    const int64_t threads[] = {1, 2, 8};
    for (int i = 0; i < 3; i++) {
        options.threads = threads[i];
        assert_prepared(PREPARE(names[i], &options, "a.jsonl", "b.jsonl"), &error);
    }
    assert_same_folders(state, "one", "two");
    assert_same_folders(state, "one", "eight");
    assert_true(count_of(state, "one", "train", "shards") >= 3);
    assert_true(count_of(state, "one", "validation", "documents") >= 1);
    assert_int_equal(count_of(state, "one", "train", "documents") + count_of(state, "one", "validation", "documents"), 170);
}

static void documents_by_hash_begin_with_end_of_text(void **state)
{
    Error error;
    static Story story;
    make_stories(state, "a.jsonl", 0, 120);
    PrepareOptions options = small_options();
    options.val_fraction = 0.1;
    assert_prepared(PREPARE("out", &options, "a.jsonl"), &error);
    size_t length[2], at[2] = {0, 0};
    char *text[2] = {decode_split(state, "out", "train", &length[0]), decode_split(state, "out", "val", &length[1])};
    size_t documents[2] = {0, 0};
    for (uint64_t i = 0; i < 120; i++) {
        story_tell(&story, 11, i);
        int side = (double)XXH3_64bits(story.text, story.length) * 0x1p-64 < 0.1;
        assert_true(at[side] + 1 + story.length <= length[side]);
        assert_int_equal(text[side][at[side]], 1);
        assert_memory_equal(text[side] + at[side] + 1, story.text, story.length);
        at[side] += 1 + story.length;
        documents[side]++;
    }
    assert_int_equal(at[0], length[0]);
    assert_int_equal(at[1], length[1]);
    assert_true(documents[1] >= 4 && documents[1] <= 24);
    assert_int_equal(count_of(state, "out", "train", "documents"), documents[0]);
    assert_int_equal(count_of(state, "out", "validation", "documents"), documents[1]);
    assert_int_equal(count_of(state, "out", "train", "bytes"), length[0] - documents[0]);
    free(text[0]);
    free(text[1]);
}

static void text_of_a_special_token_is_plain_text(void **state)
{
    Error error;
    make_file(state, "a.txt", "one <|endoftext|> two", 21);
    PrepareOptions options = small_options();
    options.val_fraction = 0;
    assert_prepared(PREPARE("out", &options, "a.txt"), &error);
    size_t length;
    char *text = decode_split(state, "out", "train", &length);
    assert_int_equal(length, 22);
    assert_memory_equal(text, "\1one <|endoftext|> two", 22);
    free(text);
    assert_int_equal(count_of(state, "out", "validation", "tokens"), 0);
    assert_int_equal(count_of(state, "out", "validation", "shards"), 0);
}

// A long document is encoded in pieces; its ids must be those of the whole.
static void long_documents_are_encoded_as_a_whole(void **state)
{
    Error error;
    size_t size = 3000000;
    char *text = malloc(size);
    uint64_t random = 1;
    for (size_t i = 0; i < size; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        text[i] = "etaoin  shrd\n\n'.,0\t"[(random >> 33) % 19];
    }
    make_file(state, "long.txt", text, size);
    PrepareOptions options = small_options();
    options.val_fraction = 0;
    assert_prepared(PREPARE("out", &options, "long.txt"), &error);
    char *tokenizer_path = in_folder(state, "out/tokenizer.json"), *shard_path = in_folder(state, "out/train_000000.bin");
    Tokenizer *tokenizer = tokenizer_load(tokenizer_path, &error);
    Encoder *encoder = encoder_create(tokenizer, &error);
    TokenList list = {0};
    assert_int_equal(encoder_encode(encoder, &list, text, size, 0, &error), 0);
    Shard shard;
    assert_int_equal(shard_open(&shard, shard_path, &error), 0);
    assert_int_equal(shard.count, list.count + 1);
    int32_t *ids = malloc(shard.count * sizeof *ids);
    shard_read(&shard, ids, 0, shard.count);
    assert_int_equal(ids[0], tokenizer_end_of_text(tokenizer));
    assert_memory_equal(ids + 1, list.ids, list.count * sizeof *ids);
    shard_close(&shard);
    token_list_free(&list);
    encoder_free(encoder);
    tokenizer_free(tokenizer);
    free(ids);
    free(shard_path);
    free(tokenizer_path);
    free(text);
}

static void few_documents_have_validation(void **state)
{
    Error error;
    PrepareOptions options = small_options();
    static char book[60000];
    for (size_t i = 0; i < sizeof book; i++) {
        book[i] = "a quiet line of a book\n"[i % 23];
    }
    make_file(state, "a.txt", book, sizeof book);
    make_file(state, "b.txt", book + 5, 50000);
    make_file(state, "same.txt", book, sizeof book);
    // One book, two books, one book twice: the tails, of which training has nothing. At least a tenth here: 6,000 and 5,000 bytes, from a
    // line's start.
    assert_prepared(PREPARE("one", &options, "a.txt"), &error);
    assert_prepared(PREPARE("two", &options, "a.txt", "b.txt"), &error);
    assert_prepared(PREPARE("same", &options, "a.txt", "same.txt"), &error);
    assert_int_equal(count_of(state, "one", "train", "bytes") + count_of(state, "one", "validation", "bytes"), 60000);
    assert_in_range(count_of(state, "one", "validation", "bytes"), 5970, 6000);
    assert_int_equal(count_of(state, "two", "train", "bytes") + count_of(state, "two", "validation", "bytes"), 110000);
    assert_in_range(count_of(state, "two", "validation", "bytes"), 10940, 11000);
    assert_in_range(count_of(state, "same", "validation", "bytes"), 11940, 12000);
    size_t length, train_length;
    char *text = decode_split(state, "two", "val", &length), *train = decode_split(state, "two", "train", &train_length);
    assert_memory_equal(text, "\1a quiet line", 13);
    assert_int_equal(text[length - 1], book[5 + 49999]);
    assert_int_equal(train[train_length - 1], '\n');
    free(text);
    free(train);
    // Thirty short documents, of which the plain rule at a thousandth would take none: the one with the least hash.
    make_stories(state, "thirty.jsonl", 0, 30);
    options.val_fraction = 0.001;
    assert_prepared(PREPARE("thirty", &options, "thirty.jsonl"), &error);
    assert_int_equal(count_of(state, "thirty", "validation", "documents"), 1);
    assert_int_equal(count_of(state, "thirty", "train", "documents"), 29);
}

static void split_never_takes_all(void **state)
{
    Error error;
    PathList list = {0};
    Split split;
    CorpusOptions options = {.quiet = true};
    make_stories(state, "a.jsonl", 0, 3);
    char *path = in_folder(state, "a.jsonl");
    assert_int_equal(path_list_add(&list, path, &error), 0);
    free(path);
    size_t for_training = 0, all = 0;
    static Story story;
    assert_int_equal(split_choose(&split, &list, &options, 0.9, &error), 0);
    for (uint64_t i = 0; i < 3; i++) {
        story_tell(&story, 11, i);
        for_training += split_cut(&split, story.text, story.length);
        all += story.length;
    }
    assert_true(for_training > 0 && for_training < all);
    // No character is cut in two where no line ends near.
    split = (Split){.tail = true, .fraction = 0.1};
    for (size_t length = 3; length < 300; length += 3) {
        char text[300];
        for (size_t i = 0; i < length; i++) {
            text[i] = "\xe2\x82\xac"[i % 3];
        }
        assert_int_equal(split_cut(&split, text, length) % 3, 0);
    }
    path_list_free(&list);
}

static struct timespec time_of(void **state, const char *name)
{
    struct stat status;
    char *path = in_folder(state, name);
    assert_int_equal(stat(path, &status), 0);
    free(path);
    return status.st_mtim;
}

static void complete_folders_are_kept(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 20);
    make_stories(state, "b.jsonl", 20, 40);
    PrepareOptions options = small_options();
    assert_prepared(PREPARE("out", &options, "a.jsonl"), &error);
    struct timespec before = time_of(state, "out/prepare.json");
    options.threads = 1;
    assert_prepared(PREPARE("out", &options, "a.jsonl"), &error);
    struct timespec after = time_of(state, "out/prepare.json");
    assert_memory_equal(&before, &after, sizeof before);

    options.vocab_size = 401;
    assert_int_equal(PREPARE("out", &options, "a.jsonl"), -1);
    assert_says(&error, "already prepared from other inputs or options (vocab_size)");
    options.vocab_size = 400;
    options.corpus.text_key = "text";
    assert_int_equal(PREPARE("out", &options, "a.jsonl", "b.jsonl"), -1);
    assert_says(&error, "(files, inputs, text_key)");
    options.corpus.text_key = NULL;
    // The same name and size, but changed since.
    make_stories(state, "a.jsonl", 0, 20);
    char *a = in_folder(state, "a.jsonl");
    const struct timespec later[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, a, later, 0), 0);
    free(a);
    assert_int_equal(PREPARE("out", &options, "a.jsonl"), -1);
    assert_says(&error, "(inputs)");

    assert_prepared(PREPARE("fresh", &options, "a.jsonl"), &error);
    char *shard = in_folder(state, "fresh/train_000000.bin");
    assert_int_equal(truncate(shard, 2000), 0);
    assert_int_equal(PREPARE("fresh", &options, "a.jsonl"), -1);
    assert_says(&error, "damaged, remove it and prepare it again");
    assert_int_equal(unlink(shard), 0);
    assert_int_equal(PREPARE("fresh", &options, "a.jsonl"), -1);
    assert_says(&error, "found 0 with 0");
    free(shard);
}

static void interrupted_runs_are_made_anew(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 40);
    PrepareOptions options = small_options();
    options.shard_tokens = 5000;
    assert_prepared(PREPARE("whole", &options, "a.jsonl"), &error);
    // What a run that was killed leaves: its mark, some shards (more than there will be), no prepare.json. Others' files stay.
    assert_prepared(PREPARE("cut", &options, "a.jsonl"), &error);
    char *json = in_folder(state, "cut/prepare.json");
    assert_int_equal(unlink(json), 0);
    free(json);
    make_file(state, "cut/prepare.unfinished", "", 0);
    make_file(state, "cut/train_000099.bin", "x", 1);
    make_file(state, "cut/val_000000.bin.tmp", "x", 1);
    assert_prepared(PREPARE("cut", &options, "a.jsonl"), &error);
    assert_same_folders(state, "whole", "cut");
}

// ---- forms

static const char *text_of_story(size_t row, size_t *length)
{
    static Story stories[2];   // the writer still looks at the row before
    Story *story = &stories[row % 2];
    story_tell(story, 11, row);
    *length = story->length;
    return story->text;
}

static int64_t score_of_story(size_t row) { return (int64_t)(row % 5); }

static void assert_same_file(void **state, const char *first, const char *second, const char *name)
{
    Error error;
    uint64_t hashes[2];
    const char *folders[] = {first, second};
    for (int i = 0; i < 2; i++) {
        char *folder = in_folder(state, folders[i]), *path = path_join(folder, name);
        assert_int_equal(file_hash(path, &hashes[i], &error), 0);
        free(path);
        free(folder);
    }
    if (hashes[0] != hashes[1]) {
        fail_msg("%s/%s and %s/%s differ", first, name, second, name);
    }
}

// The same documents as .jsonl, packed, as Parquet and as .txt files give the same tokens.
static void the_form_changes_nothing(void **state)
{
    Error error;
    enum { STORIES = 120 };
    make_stories(state, "a.jsonl", 0, STORIES);
    char *path = in_folder(state, "a.jsonl");
    size_t size;
    char *lines = file_read(path, 1 << 26, &size, &error);
    free(path);
    char *packed = malloc(ZSTD_compressBound(size));
    size_t packed_size = ZSTD_compress(packed, ZSTD_compressBound(size), lines, size, 3);
    make_file(state, "b.jsonl.zst", packed, packed_size);
    // Plain text, uncompressed and packed, in pages of both forms; and text as what follows the text before it.
    const WriterOptions writers[] = {
        {.text_encoding = 0, .codec = 0, .number = WRITE_INT64, .rows = STORIES, .page_rows = STORIES, .group_rows = STORIES},
        {.text_encoding = 0, .codec = 6, .number = WRITE_DOUBLE, .rows = STORIES, .page_rows = 31, .group_rows = 13, .version_2 = true},
        {.text_encoding = 7, .codec = 6, .number = WRITE_INT32, .rows = STORIES, .page_rows = 9, .group_rows = 50},
    };
    enum { WRITERS = sizeof writers / sizeof writers[0] };
    const char *tables[] = {"0.parquet", "1.parquet", "2.parquet"}, *from_tables[] = {"from_0", "from_1", "from_2"};
    for (size_t i = 0; i < WRITERS; i++) {
        Output parquet = write_parquet(&writers[i], text_of_story, score_of_story);
        make_file(state, tables[i], parquet.data, parquet.size);
        free(parquet.data);
    }
    char names[STORIES][16];
    const char *list[STORIES];
    for (size_t i = 0; i < STORIES; i++) {
        size_t length;
        const char *text = text_of_story(i, &length);
        snprintf(names[i], sizeof names[i], "%03zu.txt", i);
        make_file(state, names[i], text, length);
        list[i] = names[i];
    }
    PrepareOptions options = small_options();
    options.shard_tokens = 5000;
    options.val_fraction = 0.1;
    assert_prepared(PREPARE("lines", &options, "a.jsonl"), &error);
    assert_prepared(PREPARE("packed", &options, "b.jsonl.zst"), &error);
    for (size_t i = 0; i < WRITERS; i++) {
        assert_prepared(PREPARE(from_tables[i], &options, tables[i]), &error);
    }
    assert_prepared(prepare(state, "texts", &options, &error, STORIES, list), &error);
    const char *others[] = {"packed", "texts", "from_0", "from_1", "from_2"};
    const char *files[] = {"tokenizer.json", "train_000000.bin", "train_000001.bin", "val_000000.bin"};
    for (int i = 0; i < 5; i++) {
        for (int f = 0; f < 4; f++) {
            assert_same_file(state, "lines", others[i], files[f]);
        }
        assert_int_equal(count_of(state, others[i], "train", "tokens"), count_of(state, "lines", "train", "tokens"));
        assert_int_equal(count_of(state, others[i], "validation", "tokens"), count_of(state, "lines", "validation", "tokens"));
    }
    free(lines);
    free(packed);
}

// The same for texts that stand in a dictionary, in pages of both forms.
static void dictionaries_change_nothing(void **state)
{
    Error error;
    enum { ROWS = 100 };
    char *path = in_folder(state, "a.jsonl");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t row = 0; row < ROWS; row++) {
        put_story(file, dictionary_row(row));
    }
    assert_int_equal(fclose(file), 0);
    free(path);
    PrepareOptions options = small_options();
    options.val_fraction = 0.0;
    options.shard_tokens = 5000;
    assert_prepared(PREPARE("lines", &options, "a.jsonl"), &error);
    const char *names[] = {"0.parquet", "1.parquet"}, *folders[] = {"from_0", "from_1"};
    for (int i = 0; i < 2; i++) {
        WriterOptions writer = {.text_encoding = 8, .codec = 6 * i, .number = WRITE_INT32, .rows = ROWS, .page_rows = 9, .group_rows = 40,
                                .version_2 = i == 1};
        Output parquet = write_parquet(&writer, text_of_story, score_of_story);
        make_file(state, names[i], parquet.data, parquet.size);
        free(parquet.data);
        assert_prepared(PREPARE(folders[i], &options, names[i]), &error);
        assert_same_file(state, "lines", folders[i], "tokenizer.json");
        assert_same_file(state, "lines", folders[i], "train_000000.bin");
        assert_int_equal(count_of(state, folders[i], "train", "tokens"), count_of(state, "lines", "train", "tokens"));
    }
}

static void filtered_and_duplicate_documents_are_counted(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 60);
    make_stories(state, "b.jsonl", 40, 100);
    WriterOptions writer = {.number = WRITE_DOUBLE, .rows = 100, .page_rows = 9, .group_rows = 50};
    Output parquet = write_parquet(&writer, text_of_story, score_of_story);
    make_file(state, "c.parquet", parquet.data, parquet.size);
    free(parquet.data);
    PrepareOptions options = small_options();
    options.corpus.dedup = true;
    assert_prepared(PREPARE("dedup", &options, "a.jsonl", "b.jsonl"), &error);
    assert_int_equal(count_of(state, "dedup", "train", "documents") + count_of(state, "dedup", "validation", "documents"), 100);
    assert_int_equal(count_of(state, "dedup", NULL, "duplicates"), 20);
    options.corpus.dedup = false;
    options.corpus.where = "score>=3";
    assert_prepared(PREPARE("where", &options, "c.parquet"), &error);
    assert_int_equal(count_of(state, "where", "train", "documents") + count_of(state, "where", "validation", "documents"), 40);
    assert_int_equal(count_of(state, "where", NULL, "filtered"), 60);
    options.corpus.where = "score>=4";
    assert_int_equal(PREPARE("where", &options, "c.parquet"), -1);
    assert_says(&error, "(where)");
}

// A run that is asked to stop says how to go on; the next one gives what a whole run gives.
static void stopped_runs_go_on(void **state)
{
    Error error;
    volatile sig_atomic_t stop = SIGTERM;
    make_stories(state, "a.jsonl", 0, 60);
    PrepareOptions options = small_options();
    options.shard_tokens = 2000;
    assert_prepared(PREPARE("whole", &options, "a.jsonl"), &error);
    options.stop = &stop;
    assert_int_equal(PREPARE("stopped", &options, "a.jsonl"), -1);
    assert_says(&error, "stopped while preparing");
    stop = 0;
    assert_prepared(PREPARE("stopped", &options, "a.jsonl"), &error);
    assert_same_folders(state, "whole", "stopped");
    // The tokenizer is there, and the documents are to be read: it stops at the first one, and the tokenizer is not made again.
    char *tokenizer = in_folder(state, "whole/tokenizer.json");
    options.tokenizer_path = tokenizer;
    assert_prepared(PREPARE("given", &options, "a.jsonl"), &error);
    stop = SIGINT;
    assert_int_equal(PREPARE("again", &options, "a.jsonl"), -1);
    stop = 0;
    assert_prepared(PREPARE("again", &options, "a.jsonl"), &error);
    assert_same_folders(state, "given", "again");
    free(tokenizer);
}

// One process at a time; what a killed one left locks nobody out.
static void one_process_at_a_time(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 20);
    PrepareOptions options = small_options();
    char *folder = in_folder(state, "out");
    assert_int_equal(folder_make(folder, &error), 0);
    pid_t child = fork();
    if (child == 0) {
        int held = folder_lock(folder, "prepares documents into", &error);
        raise(held >= 0 ? SIGSTOP : SIGABRT);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(PREPARE("out", &options, "a.jsonl"), -1);
    assert_says(&error, "another process prepares documents into");
    assert_says(&error, folder);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_prepared(PREPARE("out", &options, "a.jsonl"), &error);
    // A complete folder is read without the lock.
    int held = folder_lock(folder, "prepares documents into", &error);
    assert_true(held >= 0);
    assert_prepared(PREPARE("out", &options, "a.jsonl"), &error);
    close(held);
    free(folder);
}

static void foreign_files_are_not_overwritten(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 20);
    PrepareOptions options = small_options();
    char *folder = in_folder(state, "foreign");
    assert_int_equal(folder_make(folder, &error), 0);
    make_file(state, "foreign/train_000000.bin", "x", 1);
    assert_int_equal(PREPARE("foreign", &options, "a.jsonl"), -1);
    assert_says(&error, "holds the shard train_000000.bin but no prepare.json");
    char *shard = in_folder(state, "foreign/train_000000.bin");
    assert_int_equal(file_size(shard), 1);
    assert_int_equal(unlink(shard), 0);
    free(shard);

    make_file(state, "foreign/tokenizer.json", "{}", 2);
    assert_int_equal(PREPARE("foreign", &options, "a.jsonl"), -1);
    assert_says(&error, "tokenizer.json exists");
    assert_prepared(PREPARE("own", &options, "a.jsonl"), &error);
    char *own = in_folder(state, "own/tokenizer.json");
    options.tokenizer_path = own;
    assert_int_equal(PREPARE("foreign", &options, "a.jsonl"), -1);
    assert_says(&error, "is another tokenizer than");
    free(own);
    free(folder);
}

static void a_given_tokenizer_is_used_as_it_is(void **state)
{
    Error error;
    make_stories(state, "a.jsonl", 0, 30);
    PrepareOptions options = small_options();
    assert_prepared(PREPARE("trained", &options, "a.jsonl"), &error);
    char *path = in_folder(state, "trained/tokenizer.json"), *copy = in_folder(state, "given/tokenizer.json");
    options.tokenizer_path = path;
    options.vocab_size = 999;   // does not count
    assert_prepared(PREPARE("given", &options, "a.jsonl"), &error);
    uint64_t first, second;
    assert_int_equal(file_hash(path, &first, &error), 0);
    assert_int_equal(file_hash(copy, &second, &error), 0);
    assert_true(first == second);
    free(path);
    free(copy);
    path = in_folder(state, "trained/train_000000.bin");
    copy = in_folder(state, "given/train_000000.bin");
    assert_int_equal(file_hash(path, &first, &error), 0);
    assert_int_equal(file_hash(copy, &second, &error), 0);
    assert_true(first == second);
    free(path);
    free(copy);
}

static void bad_inputs(void **state)
{
    Error error;
    PrepareOptions options = small_options();
    make_file(state, "none.jsonl", "{\"text\": \"\"}\n[]\n", 16);
    assert_int_equal(PREPARE("none", &options, "none.jsonl"), -1);
    assert_says(&error, "no documents in the 1 files given");
    assert_says(&error, "(2 records skipped)");
    options.val_fraction = 0;
    assert_int_equal(PREPARE("none", &options, "none.jsonl"), -1);
    assert_says(&error, "no documents in the 1 files given");
    options.corpus.strict = true;
    assert_int_equal(PREPARE("none", &options, "none.jsonl"), -1);
    assert_says(&error, "none.jsonl:2: not a JSON object");
    assert_int_equal(PREPARE("none", &options, "missing.txt"), -1);
    assert_says(&error, "missing.txt");
    options.corpus.strict = false;
    // After all those failures the folder still works.
    make_stories(state, "a.jsonl", 0, 5);
    assert_prepared(PREPARE("none", &options, "a.jsonl", "none.jsonl"), &error);
    assert_int_equal(count_of(state, "none", "train", "documents"), 5);
}

static void lists_of_shards(void **state)
{
    Error error;
    Fixture *fixture = *state;
    const char *names[] = {"train_000001.bin", "train_000000.bin", "val_000000.bin", "tiny_shakespeare_val.bin", "fineweb-train-3.bin",
                           "training_1.bin",
                           "interval.bin", "train_000002.bin.tmp", "train.txt"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        make_file(state, names[i], "", 0);
    }
    PathList train = {0}, val = {0};
    assert_int_equal(prepare_list_shards(&train, fixture->folder, "train", &error), 0);
    assert_int_equal(train.count, 3);
    assert_string_equal(path_base(train.items[0]), "fineweb-train-3.bin");
    assert_string_equal(path_base(train.items[1]), "train_000000.bin");
    assert_string_equal(path_base(train.items[2]), "train_000001.bin");
    assert_int_equal(prepare_list_shards(&val, fixture->folder, "val", &error), 0);
    assert_int_equal(val.count, 2);
    char *file = in_folder(state, "val_000000.bin");
    assert_int_equal(prepare_list_shards(&train, file, "train", &error), 0);
    assert_int_equal(train.count, 3);
    assert_int_equal(prepare_list_shards(&val, file, "val", &error), 0);
    assert_int_equal(val.count, 3);
    free(file);
    path_list_free(&train);
    path_list_free(&val);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_change_nothing),
        TEST(documents_by_hash_begin_with_end_of_text),
        TEST(text_of_a_special_token_is_plain_text),
        TEST(long_documents_are_encoded_as_a_whole),
        TEST(few_documents_have_validation),
        TEST(split_never_takes_all),
        TEST(complete_folders_are_kept),
        TEST(interrupted_runs_are_made_anew),
        TEST(the_form_changes_nothing),
        TEST(dictionaries_change_nothing),
        TEST(filtered_and_duplicate_documents_are_counted),
        TEST(stopped_runs_go_on),
        TEST(one_process_at_a_time),
        TEST(foreign_files_are_not_overwritten),
        TEST(a_given_tokenizer_is_used_as_it_is),
        TEST(bad_inputs),
        TEST(lists_of_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
