#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

enum { BLOCK = 1 << 20 };

// "cannot DO PATH: why", with what to do where that is known.
static int fail(const char *action, const char *path, int code, Error *error)
{
    const char *advice = "";
    if (path[0] == 0) {
        return error_set(error, "cannot %s '': the name is empty", action);
    }
    if (code == EFBIG) {
        return error_set(error, "cannot %s %s: it would be larger than files may be here (%s): raise the limit with ulimit -f, or name "
                         "another disk", action, path, strerror(code));
    }
    if (code == ENOSPC || code == EDQUOT) {
        return error_set(error, "cannot %s %s: the disk is full (%s): free some space or name a folder on another disk", action, path,
                         strerror(code));
    }
    if (code == EACCES || code == EPERM) {
        advice = ": check who owns it";
    } else if (code == EROFS) {
        advice = ": name a folder that can be written";
    } else if (code == EMFILE || code == ENFILE) {
        advice = ": raise the limit with ulimit -n";
    }
    return error_set(error, "cannot %s %s: %s%s", action, path, strerror(code), advice);
}

int file_open(const char *path, int flags)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

// ---- reading ----

// One read that resumes after EINTR.
static ssize_t read_retry(int fd, void *data, size_t size)
{
    ssize_t n;
    do {
        n = read(fd, data, size);
    } while (n < 0 && errno == EINTR);
    return n;
}

static char *read_all(int fd, const char *path, size_t max, size_t capacity, size_t *size, Error *error)
{
    char *data = malloc(capacity + 1);
    size_t used = 0;
    while (data != NULL) {
        // One byte more than allowed is asked for, so that a file that is too large shows itself.
        ssize_t n = read_retry(fd, data + used, capacity - used);
        if (n < 0) {
            fail("read", path, errno, error);
            free(data);
            return NULL;
        }
        used += (size_t)n;
        if (used > max) {
            error_set(error, "%s is larger than %zu bytes: that cannot be the file that is meant here", path, max);
            free(data);
            return NULL;
        }
        if (n == 0) {
            data[used] = 0;
            *size = used;
            return data;
        }
        if (used == capacity) {
            capacity = capacity <= max / 2 ? 2 * capacity : max + 1;
            char *larger = realloc(data, capacity + 1);
            if (larger == NULL) {
                free(data);
            }
            data = larger;
        }
    }
    error_set(error, "cannot read %s: out of memory", path);
    return NULL;
}

char *file_read(const char *path, size_t max, size_t *size, Error *error)
{
    int fd = file_open(path, O_RDONLY);
    if (fd < 0) {
        fail("open", path, errno, error);
        return NULL;
    }
    struct stat info;
    if (fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
        fail("read", path, S_ISDIR(info.st_mode) ? EISDIR : errno, error);
        close(fd);
        return NULL;
    }
    if (max > SIZE_MAX - 2) {
        max = SIZE_MAX - 2;
    }
    // Pipes and /proc give no size: then the buffer grows.
    size_t capacity = S_ISREG(info.st_mode) && info.st_size > 0 ? (size_t)info.st_size + 1 : 4096;
    if (capacity > max) {
        capacity = max + 1;
    }
    char *data = read_all(fd, path, max, capacity, size, error);
    close(fd);
    return data;
}

int file_read_at(int fd, void *data, size_t size, uint64_t offset, const char *path, Error *error)
{
    char *place = data;
    if (offset > INT64_MAX || size > (uint64_t)INT64_MAX - offset) {
        return error_set(error, "cannot read %s: offset %llu is too large", path, (unsigned long long)offset);
    }
    while (size > 0) {
        ssize_t n = pread(fd, place, size, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail("read", path, errno, error);
        }
        if (n == 0) {
            return error_set(error, "%s ends %zu bytes too early: it was cut short", path, size);
        }
        place += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

int file_hash(const char *path, uint64_t *hash, Error *error)
{
    int fd = file_open(path, O_RDONLY);
    if (fd < 0) {
        return fail("open", path, errno, error);
    }
    XXH3_state_t *state = XXH3_createState();
    char *block = malloc(BLOCK);
    ssize_t n = -1;
    int status = -1;
    if (state == NULL || block == NULL || XXH3_64bits_reset(state) != XXH_OK) {
        error_set(error, "cannot read %s: out of memory", path);
    } else {
        while ((n = read_retry(fd, block, BLOCK)) > 0) {
            XXH3_64bits_update(state, block, (size_t)n);
        }
        status = n == 0 ? 0 : fail("read", path, errno, error);
        *hash = XXH3_64bits_digest(state);
    }
    free(block);
    XXH3_freeState(state);
    close(fd);
    return status;
}

// ---- writing ----

int file_write_all(int fd, const void *data, size_t size, const char *path, Error *error)
{
    const char *place = data;
    while (size > 0) {
        // Linux writes at most 2 GB at once; smaller pieces also let a signal be noticed.
        ssize_t n = write(fd, place, size < (1u << 30) ? size : (1u << 30));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return fail("write", path, n < 0 ? errno : EIO, error);
        }
        place += n;
        size -= (size_t)n;
    }
    return 0;
}

int file_sync(int fd, const char *path, Error *error)
{
    int status;
    do {
        status = fsync(fd);
    } while (status != 0 && errno == EINTR);
    // Some file systems and devices cannot sync; there is nothing to be done about that.
    return status == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : fail("write", path, errno, error);
}

void file_write_soon(int fd)
{
#ifdef SYNC_FILE_RANGE_WRITE
    sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
#else
    (void)fd;
#endif
}

static int write_file(const char *path, const void *data, size_t size, Error *error)
{
    int fd = file_open(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) {
        return fail("create", path, errno, error);
    }
    int status = file_write_all(fd, data, size, path, error);
    if (status == 0) {
        status = file_sync(fd, path, error);
    }
    if (close(fd) != 0 && status == 0) {
        status = fail("write", path, errno, error);
    }
    return status;
}

int file_write_atomic(const char *path, const void *data, size_t size, Error *error)
{
    struct stat info;
    // Links and devices (/dev/stdout, /dev/null) must not be replaced by a file: they are written through.
    if (lstat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return write_file(path, data, size, error);
    }
    size_t length = strlen(path);
    char *temporary = malloc(length + 5), *folder = malloc(length + 2);
    int status = -1;
    if (temporary == NULL || folder == NULL) {
        error_set(error, "cannot write %s: out of memory", path);
    } else {
        memcpy(temporary, path, length);
        memcpy(temporary + length, ".tmp", 5);
        size_t folder_length = (size_t)(path_base(path) - path);
        memcpy(folder, path, folder_length);
        memcpy(folder + folder_length, ".", 2);
        status = write_file(temporary, data, size, error);
        if (status == 0 && rename(temporary, path) != 0) {
            status = fail("write", path, errno, error);
        }
        if (status == 0) {
            status = folder_sync(folder, error);
        } else {
            unlink(temporary);
        }
    }
    free(temporary);
    free(folder);
    return status;
}

// ---- questions ----

bool file_shortage(void) { return errno == ENOMEM || errno == EMFILE || errno == ENFILE; }

bool file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool folder_holds(const char *folder, const char *name)
{
    char path[PATH_MAX];   // the system knows no longer ones
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path && file_exists(path);
}

bool file_is_missing(const char *path)
{
    struct stat info;
    return stat(path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

int file_check(const char *path, Error *error)
{
    struct stat info;
    if (stat(path, &info) == 0) {
        return 0;
    }
    if (path[0] != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return error_set(error, "there is no file or folder %s", path);
    }
    return fail("open", path, errno, error);
}

bool file_is_same(const char *a, const char *b)
{
    struct stat one, other;
    if (stat(a, &one) == 0 && stat(b, &other) == 0) {
        return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
    }
    char *a_folder = path_folder(a), *b_folder = path_folder(b);
    bool same = a_folder != NULL && b_folder != NULL && strcmp(path_base(a), path_base(b)) == 0 && stat(a_folder, &one) == 0 &&
                stat(b_folder, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
    free(a_folder);
    free(b_folder);
    return same;
}

int file_check_output(const char *path, Error *error)
{
    struct stat info;
    if (path_base(path)[0] == 0) {
        return fail("write", path, EISDIR, error);
    }
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        if (S_ISDIR(info.st_mode)) {
            return error_set(error, "cannot write %s: it is a folder: give the name of a file", path);
        }
        return access(path, W_OK) == 0 ? 0 : fail("write", path, errno, error);
    }
    char *folder = path_folder(path);
    if (folder == NULL) {
        return error_set(error, "cannot write %s: out of memory", path);
    }
    int code = access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    int status = code == 0        ? 0
                 : code == ENOENT ? error_set(error, "cannot write %s: there is no folder %s: make it first", path, folder)
                                  : fail("write", path, code, error);
    free(folder);
    return status;
}

bool file_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int64_t file_size(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
}

// ---- folders ----

// Brings a new folder's name to the disk, as far as the system lets us: files in it would vanish with it.
static void sync_parent(const char *path)
{
    char *parent = path_folder(path);
    if (parent != NULL) {
        folder_sync(parent, NULL);
    }
    free(parent);
}

int folder_make(const char *path, Error *error)
{
    size_t length = strlen(path);
    char *part = malloc(length + 1);
    if (part == NULL) {
        return error_set(error, "cannot create folder %s: out of memory", path);
    }
    int status = 0;
    for (size_t i = 1; i <= length && status == 0; i++) {
        if (path[i] != '/' && path[i] != 0) {
            continue;
        }
        memcpy(part, path, i);
        part[i] = 0;
        int code = mkdir(part, 0777) == 0 ? 0 : errno;
        if (code == 0) {
            sync_parent(part);
        } else if (!file_is_folder(part)) {
            status = code == EEXIST ? error_set(error, "cannot create folder %s: %s is a file", path, part)
                                    : fail("create folder", part, code, error);
        }
    }
    free(part);
    return length > 0 ? status : error_set(error, "cannot create a folder: its name is empty");
}

int folder_temporary(char *path, size_t size, Error *error)
{
    const char *parent = getenv("TMPDIR");
    parent = parent != NULL && *parent != 0 ? parent : "/tmp";
    int length = snprintf(path, size, "%s/lattice_XXXXXX", parent);
    if (length < 0 || (size_t)length >= size) {
        return error_set(error, "the name of the folder for temporary files is too long: set TMPDIR to another than %s", parent);
    }
    return mkdtemp(path) != NULL ? 0 : error_set(error, "cannot make a folder in %s: %s; set TMPDIR to another", parent, strerror(errno));
}

int folder_sync(const char *path, Error *error)
{
    int fd = file_open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        return fail("open folder", path, errno, error);
    }
    int status = file_sync(fd, path, error);
    close(fd);
    return status;
}

// Lists an open folder and closes it.
static int list_fd(PathList *list, int fd, const char *path, Error *error)
{
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        int code = errno;
        close(fd);
        return fail("read folder", path, code, error);
    }
    size_t first = list->count;
    int status = 0;
    const struct dirent *entry;
    while (status == 0 && (errno = 0, entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            status = path_list_add(list, entry->d_name, error);
        }
    }
    if (status == 0 && errno != 0) {
        status = fail("read folder", path, errno, error);
    }
    closedir(folder);
    if (list->count > first) {
        qsort(list->items + first, list->count - first, sizeof *list->items, path_compare);
    }
    return status;
}

int folder_list(PathList *list, const char *path, Error *error)
{
    int fd = file_open(path, O_RDONLY | O_DIRECTORY);
    return fd >= 0 ? list_fd(list, fd, path, error) : fail("open folder", path, errno, error);
}

// Removes `name` in the open folder `parent`; `path` is for messages. Every step is relative to an open folder and refuses links,
// so that a link put there meanwhile cannot lead elsewhere.
static int remove_at(int parent, const char *name, const char *path, Error *error)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP)) {
        return unlinkat(parent, name, 0) == 0 || errno == ENOENT ? 0 : fail("remove", path, errno, error);
    }
    if (fd < 0) {
        return errno == ENOENT ? 0 : fail("remove", path, errno, error);
    }
    PathList names = {0};
    int copy = dup(fd);
    int status = copy >= 0 ? list_fd(&names, copy, path, error) : fail("remove", path, errno, error);
    for (size_t i = 0; i < names.count && status == 0; i++) {
        status = remove_at(fd, names.items[i], path, error);
    }
    path_list_free(&names);
    close(fd);
    if (status == 0 && unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        status = fail("remove", path, errno, error);
    }
    return status;
}

int folder_remove(const char *path, Error *error)
{
    struct stat info;
    if (lstat(path, &info) == 0 && !S_ISDIR(info.st_mode) && !S_ISLNK(info.st_mode)) {
        return error_set(error, "cannot remove folder %s: it is a file", path);
    }
    return remove_at(AT_FDCWD, path, path, error);
}
