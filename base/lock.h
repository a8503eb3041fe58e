// One process at a time in a folder.
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include "base/error.h"

// Takes the lock FOLDER/.lock, which the system gives back when the process ends, however it ends: a lock file that is left over locks
// nobody out. The folder must exist. Where the file system knows no locks, none is taken, and a warning names the folder. `what` stands in the
// message ("trains into").
// Returns the descriptor to close, or -1 with `error` set: another process has the lock, or the file cannot be made.
int folder_lock(const char *folder, const char *what, Error *error);

#endif
