// Token shards: reading through a map whose pages are given back after use, writing under a temporary name.
#include "data/shards.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { HEADER_BYTES = 256 * 4, BUFFER_BYTES = 1 << 18 };

// So much is handed to the disk at a time while a shard is written.
#define WRITE_SOON_BYTES ((size_t)8 << 20)

// The kernel maps pages around a touched one as well, at most one huge page: what is given back is rounded to that.
#define RELEASE_BYTES ((size_t)2 << 20)

typedef struct ShardForm {
    uint32_t magic, version;
    unsigned width;
} ShardForm;

static const ShardForm forms[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static const ShardForm *form_of_width(unsigned width) { return width == 2 ? &forms[0] : &forms[1]; }

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_u32(unsigned char *p, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (unsigned char)(value >> (8 * i));
    }
}

// Fills width, count and hash from the header and holds them against the size of the file.
static int parse_header(Shard *shard, const unsigned char *header, uint64_t file_bytes, Error *error)
{
    uint32_t magic = load_u32(header), version = load_u32(header + 4);
    const ShardForm *form = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (forms[i].magic == magic) {
            form = &forms[i];
        }
    }
    if (form == NULL) {
        return error_set(error,
                         "%s is no token shard: it begins with %" PRIu32 ", expected 20240520 (uint16 tokens) or 20240801 (uint32 tokens); "
                         "make shards with ./prepare", shard->path, magic);
    }
    if (version != form->version) {
        return error_set(error, "%s: shard version %" PRIu32 ", expected %" PRIu32 " with magic %" PRIu32 "; make it again with ./prepare",
                         shard->path, version, form->version, magic);
    }
    shard->width = form->width;
    shard->count = (uint64_t)load_u32(header + 12) << 32 | load_u32(header + 8);
    shard->tokenizer_hash = load_u32(header + 16);
    uint64_t held = (file_bytes - HEADER_BYTES) / form->width;
    if (shard->count != held || (file_bytes - HEADER_BYTES) % form->width != 0) {
        return error_set(error,
                         "%s: the header promises %" PRIu64 " tokens of %u bytes, but the file has %" PRIu64 " bytes behind its header of %d; "
                         "it is cut or damaged: copy or make it again", shard->path, shard->count, form->width, file_bytes - HEADER_BYTES,
                         (int)HEADER_BYTES);
    }
    return 0;
}

static int map_file(Shard *shard, int fd, Error *error)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return error_set(error, "cannot read %s: %s", shard->path, strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return error_set(error, "%s is not a regular file; name a token shard (.bin)", shard->path);
    }
    if (status.st_size < HEADER_BYTES) {
        return error_set(error, "%s is no token shard: %jd bytes, but the header alone has %d; make shards with ./prepare", shard->path,
                         (intmax_t)status.st_size, (int)HEADER_BYTES);
    }
    if ((uintmax_t)status.st_size > SIZE_MAX) {
        return error_set(error, "%s is too large for this machine's address space; make smaller shards with --shard-tokens", shard->path);
    }
    unsigned char header[HEADER_BYTES];
    if (file_read_at(fd, header, sizeof header, 0, shard->path, error) != 0 ||
        parse_header(shard, header, (uint64_t)status.st_size, error) != 0) {
        return -1;
    }
    shard->map_bytes = (size_t)status.st_size;
    void *map = mmap(NULL, shard->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return error_set(error, "cannot map %s (%zu bytes): %s", shard->path, shard->map_bytes, strerror(errno));
    }
    // Windows are drawn in random order: reading ahead would fetch what nobody asked for. A kernel that refuses is only slower.
    (void)madvise(map, shard->map_bytes, MADV_RANDOM);
    shard->map = map;
    return 0;
}

int shard_open(Shard *shard, const char *path, Error *error)
{
    memset(shard, 0, sizeof *shard);
    shard->path = strdup(path);
    if (shard->path == NULL) {
        return error_set(error, "out of memory while opening %s", path);
    }
    int fd = file_open(path, O_RDONLY | O_NONBLOCK);
    int result = fd < 0 ? error_set(error, "cannot read %s: %s", path, strerror(errno)) : map_file(shard, fd, error);
    if (fd >= 0) {
        close(fd);
    }
    if (result != 0) {
        shard_close(shard);
    }
    return result;
}

void shard_close(Shard *shard)
{
    if (shard->map != NULL) {
        munmap((void *)(uintptr_t)shard->map, shard->map_bytes);
    }
    free(shard->path);
    memset(shard, 0, sizeof *shard);
}

// Pages of a map count as resident until they are given back; the page cache keeps them, so that the next touch costs a minor fault.
static void release_pages(const Shard *shard, size_t start, size_t end)
{
    uintptr_t map = (uintptr_t)shard->map;
    uintptr_t first = (map + start) / RELEASE_BYTES * RELEASE_BYTES;
    uintptr_t last = (map + end + RELEASE_BYTES - 1) / RELEASE_BYTES * RELEASE_BYTES;
    if (first < map) {
        first = map;
    }
    if (last > map + shard->map_bytes) {
        last = map + shard->map_bytes;
    }
    (void)madvise((void *)first, last - first, MADV_DONTNEED);
}

void shard_read(const Shard *shard, int32_t *out, uint64_t start, size_t count)
{
    assert(start <= shard->count && count <= shard->count - start);
    if (count == 0) {
        return;
    }
    size_t offset = HEADER_BYTES + (size_t)start * shard->width;
    const unsigned char *p = shard->map + offset;
    if (shard->width == 2) {
        for (size_t i = 0; i < count; i++) {
            out[i] = (int32_t)((uint32_t)p[2 * i] | (uint32_t)p[2 * i + 1] << 8);
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            uint32_t value = load_u32(p + 4 * i);
            // No vocabulary is that large: -1 is outside of every one and is refused by whoever checks.
            out[i] = value > INT32_MAX ? -1 : (int32_t)value;
        }
    }
    release_pages(shard, offset, offset + count * shard->width);
}

uint32_t shard_token(const Shard *shard, uint64_t at)
{
    assert(at < shard->count);
    const unsigned char *p = shard->map + HEADER_BYTES + (size_t)at * shard->width;
    return shard->width == 2 ? (uint32_t)p[0] | (uint32_t)p[1] << 8 : load_u32(p);
}

struct ShardWriter {
    char *folder, *prefix;
    char *path, *temporary_path;   // of the shard that is open
    int fd;                        // -1 between shards
    unsigned width;
    uint32_t tokenizer_hash;
    uint64_t shard_tokens, shard_count, total;
    size_t n_shards, vocab_size;
    size_t buffered;
    size_t unsent;                 // bytes that file_write_soon has not seen
    unsigned char *buffer;         // [BUFFER_BYTES]
};

static void writer_free(ShardWriter *writer)
{
    if (writer->fd >= 0) {
        close(writer->fd);
    }
    free(writer->folder);
    free(writer->prefix);
    free(writer->path);
    free(writer->temporary_path);
    free(writer->buffer);
    free(writer);
}

ShardWriter *shard_writer_create(const char *folder, const char *prefix, uint64_t shard_tokens, size_t vocab_size, uint32_t tokenizer_hash,
                                 Error *error)
{
    assert(shard_tokens > 0);
    ShardWriter *writer = calloc(1, sizeof *writer);
    if (writer == NULL) {
        error_set(error, "out of memory for writing shards");
        return NULL;
    }
    writer->fd = -1;
    writer->folder = strdup(folder);
    writer->prefix = strdup(prefix);
    writer->buffer = malloc(BUFFER_BYTES);
    writer->shard_tokens = shard_tokens;
    writer->width = shard_token_width(vocab_size);
    writer->vocab_size = vocab_size;
    writer->tokenizer_hash = tokenizer_hash;
    if (writer->folder == NULL || writer->prefix == NULL || writer->buffer == NULL) {
        error_set(error, "out of memory for writing shards");
        writer_free(writer);
        return NULL;
    }
    return writer;
}

// The names of the shard that comes next.
static int set_names(ShardWriter *writer, Error *error)
{
    free(writer->path);
    free(writer->temporary_path);
    writer->temporary_path = NULL;
    if (asprintf(&writer->path, "%s/%s_%06zu.bin", writer->folder, writer->prefix, writer->n_shards) < 0) {
        writer->path = NULL;
        return error_set(error, "out of memory for writing shards");
    }
    if (asprintf(&writer->temporary_path, "%s.tmp", writer->path) < 0) {
        writer->temporary_path = NULL;
        return error_set(error, "out of memory for writing shards");
    }
    return 0;
}

static int open_next(ShardWriter *writer, Error *error)
{
    if (set_names(writer, error) != 0) {
        return -1;
    }
    writer->fd = file_open(writer->temporary_path, O_WRONLY | O_CREAT | O_TRUNC);
    if (writer->fd < 0) {
        return error_set(error, "cannot write %s: %s", writer->temporary_path, strerror(errno));
    }
    writer->shard_count = 0;
    // Zeros hold the place of the header, which is known at the end.
    memset(writer->buffer, 0, HEADER_BYTES);
    writer->buffered = HEADER_BYTES;
    return 0;
}

static int write_out(ShardWriter *writer, const unsigned char *bytes, size_t size, Error *error)
{
    if (file_write_all(writer->fd, bytes, size, writer->temporary_path, error) != 0) {
        return -1;
    }
    writer->unsent += size;
    if (writer->unsent >= WRITE_SOON_BYTES) {
        file_write_soon(writer->fd);
        writer->unsent = 0;
    }
    return 0;
}

static int flush(ShardWriter *writer, Error *error)
{
    if (write_out(writer, writer->buffer, writer->buffered, error) != 0) {
        return -1;
    }
    writer->buffered = 0;
    return 0;
}

static int write_header(ShardWriter *writer, Error *error)
{
    const ShardForm *form = form_of_width(writer->width);
    unsigned char header[HEADER_BYTES] = {0};
    store_u32(header, form->magic);
    store_u32(header + 4, form->version);
    store_u32(header + 8, (uint32_t)writer->shard_count);
    store_u32(header + 12, (uint32_t)(writer->shard_count >> 32));
    store_u32(header + 16, writer->tokenizer_hash);
    if (lseek(writer->fd, 0, SEEK_SET) != 0) {
        return error_set(error, "cannot write %s: %s", writer->temporary_path, strerror(errno));
    }
    return file_write_all(writer->fd, header, sizeof header, writer->temporary_path, error);
}

static int finish_shard(ShardWriter *writer, Error *error)
{
    if (flush(writer, error) != 0 || write_header(writer, error) != 0) {
        return -1;
    }
    if (file_sync(writer->fd, writer->temporary_path, error) != 0) {
        return -1;
    }
    int closed = close(writer->fd);
    writer->fd = -1;
    if (closed != 0 || rename(writer->temporary_path, writer->path) != 0) {
        return error_set(error, "cannot write %s: %s", writer->path, strerror(errno));
    }
    writer->n_shards++;
    return folder_sync(writer->folder, error);
}

unsigned shard_token_width(size_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

int shard_put_tokens(unsigned char *out, const int32_t *ids, size_t count, size_t vocab_size, Error *error)
{
    uint32_t greatest = 0;
    for (size_t i = 0; i < count; i++) {
        greatest = (uint32_t)ids[i] > greatest ? (uint32_t)ids[i] : greatest;
    }
    if (greatest >= vocab_size && count > 0) {
        return error_set(error, "token %" PRId32 " is outside the vocabulary of %zu", (int32_t)greatest, vocab_size);
    }
    if (shard_token_width(vocab_size) == 4) {
        for (size_t i = 0; i < count; i++) {
            store_u32(out + 4 * i, (uint32_t)ids[i]);
        }
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t id = (uint16_t)ids[i];
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        id = (uint16_t)(id << 8 | id >> 8);
#endif
        memcpy(out + 2 * i, &id, sizeof id);
    }
    return 0;
}

// Appends to the open shard, which has room.
static int append(ShardWriter *writer, const unsigned char *bytes, size_t size, Error *error)
{
    if (size > BUFFER_BYTES - writer->buffered && flush(writer, error) != 0) {
        return -1;
    }
    if (size > BUFFER_BYTES) {
        return write_out(writer, bytes, size, error);
    }
    memcpy(writer->buffer + writer->buffered, bytes, size);
    writer->buffered += size;
    return 0;
}

int shard_writer_add_bytes(ShardWriter *writer, const unsigned char *bytes, size_t count, Error *error)
{
    while (count > 0) {
        if (writer->fd < 0 && open_next(writer, error) != 0) {
            return -1;
        }
        uint64_t room = writer->shard_tokens - writer->shard_count;
        size_t now = count < room ? count : (size_t)room;
        if (append(writer, bytes, now * writer->width, error) != 0) {
            return -1;
        }
        writer->shard_count += now;
        writer->total += now;
        bytes += now * writer->width;
        count -= now;
        if (writer->shard_count == writer->shard_tokens && finish_shard(writer, error) != 0) {
            return -1;
        }
    }
    return 0;
}

int shard_writer_add(ShardWriter *writer, const int32_t *ids, size_t count, Error *error)
{
    enum { SOME = 4096 };
    unsigned char bytes[SOME * 4];
    for (size_t done = 0; done < count; done += SOME) {
        size_t now = count - done < SOME ? count - done : SOME;
        if (shard_put_tokens(bytes, ids + done, now, writer->vocab_size, error) != 0) {
            return error_prefix(error, "writing the shards %s of %s", writer->prefix, writer->folder);
        }
        if (shard_writer_add_bytes(writer, bytes, now, error) != 0) {
            return -1;
        }
    }
    return 0;
}

size_t shard_writer_shards(const ShardWriter *writer) { return writer->n_shards; }

int shard_writer_sync(ShardWriter *writer, ShardPosition *position, Error *error)
{
    *position = (ShardPosition){.shards = writer->n_shards};
    if (writer->fd < 0) {
        return 0;
    }
    position->tokens = writer->shard_count;
    return flush(writer, error) != 0 ? -1 : file_sync(writer->fd, writer->temporary_path, error);
}

// The complete shards must be there, full.
static int check_complete_shards(ShardWriter *writer, uint64_t shards, Error *error)
{
    for (uint64_t i = 0; i < shards; i++) {
        Shard shard;
        writer->n_shards = (size_t)i;
        if (set_names(writer, error) != 0 || shard_open(&shard, writer->path, error) != 0) {
            return -1;
        }
        bool good = shard.count == writer->shard_tokens && shard.width == writer->width && shard.tokenizer_hash == writer->tokenizer_hash;
        shard_close(&shard);
        if (!good) {
            return error_set(error, "%s is not as it was written", writer->path);
        }
    }
    writer->n_shards = (size_t)shards;
    return 0;
}

int shard_writer_resume(ShardWriter *writer, const ShardPosition *position, Error *error)
{
    if (position->tokens >= writer->shard_tokens) {
        return error_set(error, "a shard cannot have %" PRIu64 " tokens and be unfinished", position->tokens);
    }
    if (check_complete_shards(writer, position->shards, error) != 0) {
        return -1;
    }
    writer->total = position->shards * writer->shard_tokens + position->tokens;
    if (position->tokens == 0) {
        return 0;
    }
    if (set_names(writer, error) != 0) {
        return -1;
    }
    // It may have been completed after the position was noted.
    if (!file_exists(writer->temporary_path) && file_exists(writer->path) && rename(writer->path, writer->temporary_path) != 0) {
        return error_set(error, "cannot rename %s: %s", writer->path, strerror(errno));
    }
    int64_t size = file_size(writer->temporary_path);
    off_t wanted = (off_t)(HEADER_BYTES + position->tokens * writer->width);
    if (size < wanted) {
        return error_set(error, "%s is shorter than it was written", writer->temporary_path);
    }
    writer->fd = file_open(writer->temporary_path, O_WRONLY);
    if (writer->fd < 0 || ftruncate(writer->fd, wanted) != 0 || lseek(writer->fd, 0, SEEK_END) != wanted) {
        return error_set(error, "cannot write %s: %s", writer->temporary_path, strerror(errno));
    }
    writer->shard_count = position->tokens;
    writer->buffered = 0;
    return 0;
}

void shard_writer_leave(ShardWriter *writer)
{
    if (writer != NULL) {
        writer_free(writer);
    }
}

int shard_writer_close(ShardWriter *writer, uint64_t *total_tokens, size_t *n_shards, Error *error)
{
    int result = writer->fd < 0 ? 0 : finish_shard(writer, error);
    if (total_tokens != NULL) {
        *total_tokens = writer->total;
    }
    if (n_shards != NULL) {
        *n_shards = writer->n_shards;
    }
    writer_free(writer);
    return result;
}

void shard_writer_abort(ShardWriter *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->fd >= 0) {
        unlink(writer->temporary_path);
    }
    writer_free(writer);
}
