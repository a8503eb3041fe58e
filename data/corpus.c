// Documents out of files, one after another or read ahead.
#include "data/corpus.h"

#include <inttypes.h>
#include <string.h>

#include "data/form.h"
#include "data/reader.h"

bool corpus_accepts(const char *path) { return form_of(path).kind != FORM_UNKNOWN; }

static int read_files(CorpusReader *reader, const PathList *files, Error *error)
{
    if (reader->options->readers > 0 && read_ahead(reader, files, error) != 0) {
        return -1;
    }
    for (size_t i = 0; i < files->count && reader->options->readers == 0; i++) {
        if (read_file(reader, files->items[i], error) != 0) {
            return -1;
        }
    }
    reader_sum_up(reader);
    return 0;
}

int corpus_read(const PathList *files, const CorpusOptions *options, CorpusStats *stats, CorpusVisit visit, void *context, Error *error)
{
    memset(stats, 0, sizeof *stats);
    for (size_t i = 0; i < files->count; i++) {
        if (!corpus_accepts(files->items[i])) {
            return error_set(error, "%s has no form of documents that is known; there are " CORPUS_FORMS, files->items[i]);
        }
    }
    Where where;
    if (options->where != NULL && where_parse(&where, options->where, error) != 0) {
        return -1;
    }
    CorpusReader reader = {.options = options, .stats = stats, .visit = visit, .context = context,
                           .where = options->where != NULL ? &where : NULL};
    if (options->dedup) {
        reader.seen = text_set_create(error);
        if (reader.seen == NULL) {
            return -1;
        }
    }
    int result = read_files(&reader, files, error);
    text_set_free(reader.seen);
    return result;
}

uint64_t corpus_bytes(const PathList *files)
{
    uint64_t total = 0;
    for (size_t i = 0; i < files->count; i++) {
        int64_t size = file_size(files->items[i]);
        total += size > 0 ? (uint64_t)size : 0;
    }
    return total;
}

int corpus_no_documents(const PathList *files, const CorpusStats *stats, Error *error)
{
    const char *first = files->count > 0 ? files->items[0] : "missing";
    if (corpus_bytes(files) > 0 || files->count == 0) {
        return error_set(error, "no documents in the %zu files given, the first %s (%" PRIu64 " records skipped); name files with text, and its key with "
                         "--text-key", files->count, first, stats->skipped);
    }
    return files->count == 1 ? error_set(error, "%s is empty: name files with text", first)
                             : error_set(error, "all %zu files given are empty, the first %s: name files with text", files->count, first);
}
