#include "base/program.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

void program_start(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) {
            continue;
        }
        // Results must not vanish silently: standard output is opened for reading only.
        int got = open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
        if (got != fd) {
            _exit(1);
        }
    }
    signal(SIGXFSZ, SIG_IGN);
#ifdef __GLIBC__
    // A matrix product allocates some megabytes for its time. Given back to the system each time, they cost a tenth of a training step.
    mallopt(M_MMAP_THRESHOLD, 20 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

void program_catch_stop(void (*handler)(int number), bool once)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = once ? (int)SA_RESETHAND : SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        action.sa_flags = once ? 0 : SA_RESTART;
        sigaction(SIGHUP, &action, NULL);
    }
}
