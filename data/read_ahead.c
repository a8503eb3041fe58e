// Several files, or row groups of a Parquet file, read at the same time and handed on in order.
//
// A unit is a file or a row group. Threads claim units in order and queue what they find in chunks; the caller's thread takes the chunks
// of the first unit until that is finished, then those of the next. A unit may queue UNIT_BYTES and all together ALL_BYTES, but for the
// first one, which always goes on, and for documents that are larger than that.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "data/form.h"
#include "data/reader.h"

#define CHUNK_BYTES ((size_t)256 << 10)
#define UNIT_BYTES ((size_t)2 << 20)
#define ALL_BYTES ((size_t)64 << 20)

enum { MAX_READERS = 16, MAX_UNITS = 2 * MAX_READERS };

// Documents and bad records, each behind a header.
typedef struct Chunk {
    struct Chunk *next;
    size_t used, capacity;
    uint64_t filtered, bytes_read;   // found or read since the chunk before
    char data[];
} Chunk;

typedef struct RecordHeader {
    size_t length;
    bool bad;   // a message with its NUL instead of a document
} RecordHeader;

// A Parquet file that several units read.
typedef struct SharedTable {
    ParquetTable *table;
    size_t users;
} SharedTable;

typedef struct Unit {
    uint64_t number;
    const char *path;
    SharedTable *table;      // NULL: the whole file
    size_t group;
    Chunk *first, *last;     // queued
    size_t queued;           // bytes
    bool finished;           // then the rest is set
    int result;
    Error error;
    uint64_t filtered, bytes_read;   // since the last chunk
} Unit;

typedef struct ReadAhead {
    const CorpusReader *reader;   // for its options and condition
    const PathList *files;

    pthread_mutex_t claim_lock;   // taken before `lock`; guards the next three
    size_t next_file, next_group;
    SharedTable *table;           // whose groups are claimed; NULL: none

    pthread_mutex_t lock;         // guards the rest
    pthread_cond_t more, room;    // for the caller's thread, for the readers
    Unit units[MAX_UNITS];        // unit n at n % n_units
    size_t n_units;
    uint64_t claimed, taken;      // units
    size_t queued;                // bytes of all
    bool exhausted, stop;
} ReadAhead;

// What one thread collects of its unit.
typedef struct Lane {
    ReadAhead *ahead;
    Unit *unit;
    Chunk *chunk;        // being filled; NULL: none
    CorpusStats stats;   // of the unit
    uint64_t filtered_sent, bytes_sent;
} Lane;

// ---- a reader's side ----

static void close_table(ReadAhead *ahead, SharedTable *table)
{
    pthread_mutex_lock(&ahead->lock);
    size_t users = --table->users;
    pthread_mutex_unlock(&ahead->lock);
    if (users == 0) {
        parquet_table_close(table->table);
        free(table);
    }
}

static bool must_wait(const ReadAhead *ahead, const Unit *unit)
{
    return unit->queued >= UNIT_BYTES || (unit->number != ahead->taken && ahead->queued >= ALL_BYTES);
}

// Queues the chunk of a lane when there is room. Returns 0, or -1 when the reading is given up.
static int push(Lane *lane)
{
    ReadAhead *ahead = lane->ahead;
    Unit *unit = lane->unit;
    Chunk *chunk = lane->chunk;
    lane->chunk = NULL;
    chunk->filtered = lane->stats.filtered - lane->filtered_sent;
    chunk->bytes_read = lane->stats.bytes_read - lane->bytes_sent;
    lane->filtered_sent = lane->stats.filtered;
    lane->bytes_sent = lane->stats.bytes_read;
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->stop && must_wait(ahead, unit)) {
        pthread_cond_wait(&ahead->room, &ahead->lock);
    }
    if (ahead->stop) {
        pthread_mutex_unlock(&ahead->lock);
        free(chunk);
        return -1;
    }
    *(unit->first == NULL ? &unit->first : &unit->last->next) = chunk;
    unit->last = chunk;
    unit->queued += chunk->capacity;
    ahead->queued += chunk->capacity;
    pthread_cond_signal(&ahead->more);
    pthread_mutex_unlock(&ahead->lock);
    return 0;
}

static int collect(Lane *lane, const char *data, size_t length, bool bad, Error *error)
{
    RecordHeader header = {.length = length, .bad = bad};
    size_t size = sizeof header + length;
    if (lane->chunk != NULL && size > lane->chunk->capacity - lane->chunk->used && push(lane) != 0) {
        return -1;
    }
    if (lane->chunk == NULL) {
        size_t capacity = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        lane->chunk = malloc(sizeof *lane->chunk + capacity);
        if (lane->chunk == NULL) {
            return error_set(error, "out of memory for a document of %zu bytes in %s", length, lane->unit->path);
        }
        *lane->chunk = (Chunk){.capacity = capacity};
    }
    memcpy(lane->chunk->data + lane->chunk->used, &header, sizeof header);
    if (length > 0) {
        memcpy(lane->chunk->data + lane->chunk->used + sizeof header, data, length);
    }
    lane->chunk->used += size;
    return 0;
}

static int collect_document(void *context, const char *text, size_t length, Error *error) { return collect(context, text, length, false, error); }

static int collect_bad_record(void *context, const char *message, Error *error)
{
    return collect(context, message, strlen(message) + 1, true, error);
}

// The group that is claimed next, or with *unit->table NULL a whole file. Returns 1, 0 when all is claimed, or -1 with unit->error set when
// the file cannot be opened.
static int next_unit(ReadAhead *ahead, Unit *unit)
{
    if (ahead->table != NULL && ahead->next_group == parquet_table_groups(ahead->table->table)) {
        close_table(ahead, ahead->table);
        ahead->table = NULL;
    }
    if (ahead->table == NULL) {
        if (ahead->next_file == ahead->files->count) {
            return 0;
        }
        unit->path = ahead->files->items[ahead->next_file++];
        if (form_of(unit->path).kind != FORM_PARQUET) {
            return 1;
        }
        SharedTable *shared = calloc(1, sizeof *shared);
        ParquetTable *table = shared != NULL ? parquet_table_open(ahead->reader, unit->path, &unit->error) : NULL;
        if (table == NULL) {
            if (shared == NULL) {
                error_set(&unit->error, "out of memory for reading %s", unit->path);
            }
            free(shared);
            return -1;
        }
        *shared = (SharedTable){.table = table, .users = 1};
        ahead->table = shared;
        ahead->next_group = 0;
        if (parquet_table_groups(table) == 0) {
            return next_unit(ahead, unit);
        }
    }
    unit->path = ahead->files->items[ahead->next_file - 1];
    unit->table = ahead->table;
    unit->group = ahead->next_group++;
    pthread_mutex_lock(&ahead->lock);
    unit->table->users++;
    pthread_mutex_unlock(&ahead->lock);
    return 1;
}

// Claims the next unit for the calling thread. NULL: there is none, or the reading is given up.
static Unit *claim(ReadAhead *ahead)
{
    Unit *place = NULL;
    pthread_mutex_lock(&ahead->claim_lock);
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->stop && ahead->claimed - ahead->taken == ahead->n_units) {
        pthread_cond_wait(&ahead->room, &ahead->lock);
    }
    bool go_on = !ahead->stop && !ahead->exhausted;
    pthread_mutex_unlock(&ahead->lock);
    if (go_on) {
        Unit unit = {.path = NULL};
        int found = next_unit(ahead, &unit);
        pthread_mutex_lock(&ahead->lock);
        if (found != 0) {
            place = &ahead->units[ahead->claimed % ahead->n_units];
            unit.number = ahead->claimed++;
            unit.finished = found < 0;
            unit.result = found < 0 ? -1 : 0;
            *place = unit;
        }
        // Behind a file that cannot be read nothing will be asked for.
        ahead->exhausted = found <= 0;
        pthread_cond_signal(&ahead->more);
        pthread_mutex_unlock(&ahead->lock);
        place = found > 0 ? place : NULL;
    }
    pthread_mutex_unlock(&ahead->claim_lock);
    return place;
}

static void read_unit(ReadAhead *ahead, Unit *unit)
{
    Lane lane = {.ahead = ahead, .unit = unit};
    Error error = {""};
    const ReaderSink sink = {collect_document, collect_bad_record, &lane};
    CorpusReader reader = {.options = ahead->reader->options, .stats = &lane.stats, .where = ahead->reader->where, .sink = &sink};
    int result = unit->table != NULL ? parquet_table_read(unit->table->table, &reader, unit->group, &error)
                                     : read_file(&reader, unit->path, &error);
    if (lane.chunk != NULL && push(&lane) != 0) {
        result = -1;
    }
    if (unit->table != NULL) {
        close_table(ahead, unit->table);
    }
    pthread_mutex_lock(&ahead->lock);
    unit->filtered = lane.stats.filtered - lane.filtered_sent;
    unit->bytes_read = lane.stats.bytes_read - lane.bytes_sent;
    unit->result = result;
    unit->error = error;
    unit->finished = true;
    pthread_cond_signal(&ahead->more);
    pthread_mutex_unlock(&ahead->lock);
}

static void *run_reader(void *argument)
{
    ReadAhead *ahead = argument;
    Unit *unit;
    while ((unit = claim(ahead)) != NULL) {
        read_unit(ahead, unit);
    }
    return NULL;
}

// ---- the caller's side ----

static int hand_on(CorpusReader *reader, const Chunk *chunk, Error *error)
{
    reader->stats->filtered += chunk->filtered;
    reader->stats->bytes_read += chunk->bytes_read;
    for (size_t at = 0; at < chunk->used;) {
        RecordHeader header;
        memcpy(&header, chunk->data + at, sizeof header);
        at += sizeof header;
        int result = header.bad ? reader_count_bad_record(reader, chunk->data + at, error)
                                : reader_document(reader, chunk->data + at, header.length, error);
        if (result != 0) {
            return -1;
        }
        at += header.length;
    }
    return 0;
}

// The next chunk of the first unit, or NULL when that is finished. The lock is held.
static Chunk *take_chunk(ReadAhead *ahead, Unit *unit)
{
    while (unit->first == NULL && !unit->finished) {
        pthread_cond_wait(&ahead->more, &ahead->lock);
    }
    Chunk *chunk = unit->first;
    if (chunk != NULL) {
        unit->first = chunk->next;
        unit->queued -= chunk->capacity;
        ahead->queued -= chunk->capacity;
        pthread_cond_broadcast(&ahead->room);
    }
    return chunk;
}

// Takes the next unit as a whole. Returns 1, behind the last one 0, or -1 with `error` set. The lock is held at the start and at the end.
static int take_unit(ReadAhead *ahead, CorpusReader *reader, Error *error)
{
    while (ahead->claimed == ahead->taken && !ahead->exhausted) {
        pthread_cond_wait(&ahead->more, &ahead->lock);
    }
    if (ahead->claimed == ahead->taken) {
        return 0;
    }
    Unit *unit = &ahead->units[ahead->taken % ahead->n_units];
    Chunk *chunk;
    int result = 0;
    while (result == 0 && (chunk = take_chunk(ahead, unit)) != NULL) {
        pthread_mutex_unlock(&ahead->lock);
        result = hand_on(reader, chunk, error);
        free(chunk);
        pthread_mutex_lock(&ahead->lock);
    }
    if (result != 0) {
        return -1;
    }
    reader->stats->filtered += unit->filtered;
    reader->stats->bytes_read += unit->bytes_read;
    if (unit->result != 0) {
        *error = unit->error;
        return -1;
    }
    ahead->taken++;
    pthread_cond_broadcast(&ahead->room);
    return 1;
}

static void free_units(ReadAhead *ahead)
{
    for (uint64_t n = ahead->taken; n < ahead->claimed; n++) {
        Unit *unit = &ahead->units[n % ahead->n_units];
        while (unit->first != NULL) {
            Chunk *chunk = unit->first;
            unit->first = chunk->next;
            free(chunk);
        }
    }
    if (ahead->table != NULL) {
        close_table(ahead, ahead->table);
    }
}

int read_ahead(CorpusReader *reader, const PathList *files, Error *error)
{
    pthread_t threads[MAX_READERS];
    size_t asked = reader->options->readers < MAX_READERS ? reader->options->readers : MAX_READERS, n_threads = 0;
    ReadAhead *ahead = calloc(1, sizeof *ahead);
    if (ahead == NULL) {
        return error_set(error, "out of memory for reading %zu files", files->count);
    }
    ahead->reader = reader;
    ahead->files = files;
    ahead->n_units = 2 * asked;
    pthread_mutex_init(&ahead->claim_lock, NULL);
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->more, NULL);
    pthread_cond_init(&ahead->room, NULL);
    while (n_threads < asked && thread_start(&threads[n_threads], run_reader, ahead) == 0) {
        n_threads++;
    }
    int result = n_threads > 0 ? 1 : error_set(error, "no thread can be started for reading: use --threads 1");
    pthread_mutex_lock(&ahead->lock);
    while (result > 0) {
        result = take_unit(ahead, reader, error);
    }
    ahead->stop = true;
    pthread_cond_broadcast(&ahead->room);
    pthread_mutex_unlock(&ahead->lock);
    for (size_t i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
    }
    free_units(ahead);
    pthread_cond_destroy(&ahead->room);
    pthread_cond_destroy(&ahead->more);
    pthread_mutex_destroy(&ahead->lock);
    pthread_mutex_destroy(&ahead->claim_lock);
    free(ahead);
    return result;
}
