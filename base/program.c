#include "base/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

// What products keep on the stack (model/kernels/gemm.c), with room to spare. The main thread's stack grows up to the limit that holds at the time.
#define STACK_BYTES ((rlim_t)8 << 20)

static void raise_stack_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < STACK_BYTES) {
        limit.rlim_cur = limit.rlim_max < STACK_BYTES ? limit.rlim_max : STACK_BYTES;
        setrlimit(RLIMIT_STACK, &limit);
    }
}

void program_start(void)
{
    raise_stack_limit();
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
    action.sa_flags = once ? 0 : SA_RESTART;
    sigaction(SIGUSR1, &action, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(SIGHUP, &action, NULL);
    }
}

bool program_stops_at_once(int number) { return number == SIGINT || number == SIGTERM; }
