// Preparing documents: the split, the order of tokens, forms of files, and that the number of threads changes nothing.
#include <xxhash.h>

#include "data/shards.h"
#include "data/split.h"
#include "tests/parquet_writer.h"
#include "tests/prepare.h"
#include "tokenizer/bpe.h"

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
    free(make_file(state, "a.txt", "one <|endoftext|> two", 21));
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
    free(make_file(state, "long.txt", text, size));
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
    free(make_file(state, "a.txt", book, sizeof book));
    free(make_file(state, "b.txt", book + 5, 50000));
    free(make_file(state, "same.txt", book, sizeof book));
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
    free(make_file(state, "b.jsonl.zst", packed, packed_size));
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
        free(make_file(state, tables[i], parquet.data, parquet.size));
        free(parquet.data);
    }
    char names[STORIES][16];
    const char *list[STORIES];
    for (size_t i = 0; i < STORIES; i++) {
        size_t length;
        const char *text = text_of_story(i, &length);
        snprintf(names[i], sizeof names[i], "%03zu.txt", i);
        free(make_file(state, names[i], text, length));
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
        free(make_file(state, names[i], parquet.data, parquet.size));
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
    free(make_file(state, "c.parquet", parquet.data, parquet.size));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_change_nothing),
        TEST(documents_by_hash_begin_with_end_of_text),
        TEST(text_of_a_special_token_is_plain_text),
        TEST(long_documents_are_encoded_as_a_whole),
        TEST(few_documents_have_validation),
        TEST(split_never_takes_all),
        TEST(the_form_changes_nothing),
        TEST(dictionaries_change_nothing),
        TEST(filtered_and_duplicate_documents_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
