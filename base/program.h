// What every program sets up before its work: standard descriptors and signals.
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include <stdbool.h>

// Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed, so that no file of the program's own takes their numbers and
// receives its messages: input is then empty, messages are lost, and results fail to be written, which is an error that is told. Also
// ignores SIGXFSZ: a write beyond ulimit -f fails instead of ending the program, and raises a soft limit on the stack to the 8 MB that products
// count on where that is allowed. Ends the program with exit code 1 where there is no
// /dev/null. args_parse calls it, so that every program has it; a program that opens files before that calls it first.
void program_start(void);

// Calls `handler` on SIGINT, SIGTERM, SIGUSR1 (which mpirun passes on, and schedulers send ahead of the end) and SIGHUP; the last not where it is
// ignored, as under nohup. With `once` a second SIGINT or SIGTERM ends the program at once, and system calls that wait are interrupted.
void program_catch_stop(void (*handler)(int number), bool once);

// Whether this signal, after another that asked to stop, means: at once. SIGHUP comes twice by itself when a terminal is closed, and SIGUSR1 when both
// a scheduler and mpirun send it.
bool program_stops_at_once(int number);

#endif
