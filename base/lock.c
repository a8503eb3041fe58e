#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"

int folder_lock(const char *folder, const char *what, Error *error)
{
    char *path = path_join(folder, ".lock");
    if (path == NULL) {
        return error_set(error, "out of memory");
    }
    int fd = file_open(path, O_RDWR | O_CREAT);
    if (fd < 0) {
        error_set(error, "%s: cannot be made: %s", path, strerror(errno));
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
