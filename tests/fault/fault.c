#include "tests/fault/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// What is to fail. The hooks have no argument through which it could come.
static struct {
    _Atomic int kind;
    int effect;
    long first, last;
    _Atomic long calls, failed;
} plan;

void fault_arm(FaultKind kind, int effect, long first, long count)
{
    plan.kind = FAULT_NONE;
    plan.effect = effect;
    plan.first = first;
    plan.last = count > LONG_MAX - first ? LONG_MAX : first + count - 1;
    plan.calls = plan.failed = 0;
    plan.kind = (int)kind;
}

long fault_disarm(void)
{
    plan.kind = FAULT_NONE;
    return plan.failed;
}

// Counts a call; whether it is one that fails. errno is set then.
static bool fails(FaultKind kind)
{
    if (plan.kind != (int)kind) {
        return false;
    }
    long call = ++plan.calls;
    if (call < plan.first || call > plan.last) {
        return false;
    }
    plan.failed++;
    errno = plan.effect > 0 ? plan.effect : 0;
    return true;
}

// How much of `size` bytes a call that fails still moves; 0: none, it is an error.
static size_t moved(size_t size) { return plan.effect == FAULT_SHORT ? (size + 1) / 2 : 0; }

// HOOK(f): the function that is called in place of f. REAL(f): f itself.
#ifdef FAULT_PRELOAD
#define HOOK(name) name
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REAL_MEMORY(name) __libc_##name   // dlsym may itself ask for memory
#define MEMORY_CALL(type, name, parameters) type __libc_##name parameters
#define REAL_CALL(type, name, parameters) type name parameters
#else
#define HOOK(name) __wrap_##name
#define REAL(name) __real_##name
#define REAL_MEMORY(name) __real_##name
#define MEMORY_CALL(type, name, parameters) REAL_CALL(type, name, parameters)
#define REAL_CALL(type, name, parameters) type __real_##name parameters; type __wrap_##name parameters
#endif

// ---- memory ----

MEMORY_CALL(void *, malloc, (size_t size));
MEMORY_CALL(void *, calloc, (size_t count, size_t size));
MEMORY_CALL(void *, realloc, (void *memory, size_t size));

void *HOOK(malloc)(size_t size) { return fails(FAULT_MEMORY) ? NULL : REAL_MEMORY(malloc)(size); }

void *HOOK(calloc)(size_t count, size_t size) { return fails(FAULT_MEMORY) ? NULL : REAL_MEMORY(calloc)(count, size); }

void *HOOK(realloc)(void *memory, size_t size) { return fails(FAULT_MEMORY) ? NULL : REAL_MEMORY(realloc)(memory, size); }

#ifndef FAULT_PRELOAD   // in a whole program these call the ones above
REAL_CALL(void *, aligned_alloc, (size_t alignment, size_t size));
REAL_CALL(char *, strdup, (const char *text));
REAL_CALL(char *, strndup, (const char *text, size_t size));
REAL_CALL(FILE *, open_memstream, (char **text, size_t *size));
int __wrap_asprintf(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));

void *__wrap_aligned_alloc(size_t alignment, size_t size) { return fails(FAULT_MEMORY) ? NULL : REAL(aligned_alloc)(alignment, size); }

char *__wrap_strdup(const char *text) { return fails(FAULT_MEMORY) ? NULL : REAL(strdup)(text); }

char *__wrap_strndup(const char *text, size_t size) { return fails(FAULT_MEMORY) ? NULL : REAL(strndup)(text, size); }

FILE *__wrap_open_memstream(char **text, size_t *size) { return fails(FAULT_MEMORY) ? NULL : REAL(open_memstream)(text, size); }

int __wrap_asprintf(char **text, const char *format, ...)
{
    if (fails(FAULT_MEMORY)) {
        return -1;
    }
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(text, format, arguments);
    va_end(arguments);
    return length;
}
#endif

REAL_CALL(void *, mmap, (void *place, size_t size, int protection, int flags, int fd, off_t offset));

void *HOOK(mmap)(void *place, size_t size, int protection, int flags, int fd, off_t offset)
{
    return fd >= 0 && fails(FAULT_MEMORY) ? MAP_FAILED : REAL(mmap)(place, size, protection, flags, fd, offset);
}

// ---- files ----

REAL_CALL(int, open, (const char *path, int flags, ...));
REAL_CALL(FILE *, fopen, (const char *path, const char *mode));
REAL_CALL(ssize_t, read, (int fd, void *data, size_t size));
REAL_CALL(ssize_t, pread, (int fd, void *data, size_t size, off_t offset));
REAL_CALL(ssize_t, write, (int fd, const void *data, size_t size));
REAL_CALL(int, fsync, (int fd));
REAL_CALL(int, close, (int fd));

int HOOK(open)(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fails(FAULT_OPEN) ? -1 : REAL(open)(path, flags, mode);
}

FILE *HOOK(fopen)(const char *path, const char *mode) { return fails(FAULT_OPEN) ? NULL : REAL(fopen)(path, mode); }

ssize_t HOOK(read)(int fd, void *data, size_t size)
{
    if (fails(FAULT_READ) && (size = moved(size)) == 0) {
        return -1;
    }
    return REAL(read)(fd, data, size);
}

ssize_t HOOK(pread)(int fd, void *data, size_t size, off_t offset)
{
    if (fails(FAULT_READ) && (size = moved(size)) == 0) {
        return -1;
    }
    return REAL(pread)(fd, data, size, offset);
}

ssize_t HOOK(write)(int fd, const void *data, size_t size)
{
    if (fd != STDOUT_FILENO && fd != STDERR_FILENO && fails(FAULT_WRITE) && (size = moved(size)) == 0) {
        return -1;
    }
    return REAL(write)(fd, data, size);
}

int HOOK(fsync)(int fd)
{
    (void)fd;
    return fails(FAULT_SYNC) ? -1 : 0;
}

int HOOK(close)(int fd)
{
    int status = REAL(close)(fd);
    return fails(FAULT_CLOSE) ? -1 : status;
}

// ---- names ----

REAL_CALL(int, rename, (const char *from, const char *to));
REAL_CALL(int, renameat2, (int from_folder, const char *from, int to_folder, const char *to, unsigned flags));
REAL_CALL(int, mkdir, (const char *path, mode_t mode));
REAL_CALL(int, unlink, (const char *path));
REAL_CALL(int, ftruncate, (int fd, off_t size));

int HOOK(rename)(const char *from, const char *to) { return fails(FAULT_NAMES) ? -1 : REAL(rename)(from, to); }

int HOOK(renameat2)(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return fails(FAULT_NAMES) ? -1 : REAL(renameat2)(from_folder, from, to_folder, to, flags);
}

int HOOK(mkdir)(const char *path, mode_t mode) { return fails(FAULT_NAMES) ? -1 : REAL(mkdir)(path, mode); }

int HOOK(unlink)(const char *path) { return fails(FAULT_NAMES) ? -1 : REAL(unlink)(path); }

int HOOK(ftruncate)(int fd, off_t size) { return fails(FAULT_NAMES) ? -1 : REAL(ftruncate)(fd, size); }

REAL_CALL(int, flock, (int fd, int operation));

int HOOK(flock)(int fd, int operation) { return fails(FAULT_LOCKS) ? -1 : REAL(flock)(fd, operation); }

// ---- a whole program ----

#ifdef FAULT_PRELOAD
static int number_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return (int)i;
        }
    }
    fprintf(stderr, "FAULT: %s is unknown\n", name);
    _exit(99);
}

static void arm_from_environment(void) __attribute__((constructor));
static void arm_from_environment(void)
{
    static const char *const kinds[] = {"none", "memory", "open", "read", "write", "sync", "close", "names", "locks"};
    static const char *const effects[] = {"short", "ENOSPC", "EIO", "EINTR", "EMFILE", "ENOMEM", "EINVAL", "ENOLCK"};
    static const int numbers[] = {FAULT_SHORT, ENOSPC, EIO, EINTR, EMFILE, ENOMEM, EINVAL, ENOLCK};
    const char *text = getenv("FAULT");
    char kind[16], effect[16];
    long first, count;
    if (text == NULL) {
        return;
    }
    if (sscanf(text, "%15[a-z]:%15[a-zA-Z]:%ld:%ld", kind, effect, &first, &count) != 4) {
        fprintf(stderr, "FAULT=%s is not KIND:EFFECT:FIRST:COUNT\n", text);
        _exit(99);
    }
    int at = number_of(effect, effects, sizeof effects / sizeof effects[0]);
    fault_arm((FaultKind)number_of(kind, kinds, sizeof kinds / sizeof kinds[0]), numbers[at], first, count);
}
#endif
