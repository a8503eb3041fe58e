#include "base/program.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

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
