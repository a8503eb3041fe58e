// Other programs, run to their end.
#ifndef EXPERIMENTS_LAUNCH_H
#define EXPERIMENTS_LAUNCH_H

#include "base/error.h"

// Runs argv[0] with the arguments behind it (NULL-terminated); what it prints is added to the file `log`. *seconds: of the processor, threads together.
// Returns 0, or -1 with `error` set: it cannot be run, or it ended otherwise than with exit code 0.
int launch(double *seconds, char *const *argv, const char *log, Error *error);

#endif
