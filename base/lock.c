#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"

// An open that failed for want of permission is mended elsewhere than other ones. Returns -1.
static int cannot_open(const char *path, const char *folder, Error *error)
{
    bool forbidden = errno == EACCES || errno == EPERM || errno == EROFS;
    if (!forbidden) {
        return error_set(error, "%s: cannot be made: %s", path, strerror(errno));
    }
    return error_set(error, "%s cannot be opened for writing (%s): this user needs permission to write to the file and to %s; change their permissions "
                     "or owner, or give another --out", path, strerror(errno), folder);
}

int folder_lock(const char *folder, const char *what, Error *error)
{
    char *path = path_join(folder, ".lock");
    if (path == NULL) {
        return error_set(error, "out of memory");
    }
    int fd = file_open(path, O_RDWR | O_CREAT);
    if (fd < 0) {
        cannot_open(path, folder, error);
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
            close(fd);
            fd = error_set(error, "another process %s %s: wait for it, or give another --out", what, folder);
        } else {
            fprintf(stderr, "warning: %s cannot be locked (%s): take care that no other process %s it\n", folder, strerror(errno), what);
        }
    }
    free(path);
    return fd;
}
