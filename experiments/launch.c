#include "experiments/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static double seconds_of(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec * 1e-6; }

// Returns 0 or an errno.
static int spawn(pid_t *child, char *const *argv, const char *log)
{
    posix_spawn_file_actions_t actions;
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0) {
        return code;
    }
    code = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    code = code != 0 ? code : posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    code = code != 0 ? code : posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    code = code != 0 ? code : posix_spawn(child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

int launch(double *seconds, char *const *argv, const char *log, Error *error)
{
    pid_t child;
    int status, code = spawn(&child, argv, log);
    struct rusage usage;
    if (code != 0) {
        return error_set(error, "cannot run %s with output to %s: %s", argv[0], log, strerror(code));
    }
    while (wait4(child, &status, 0, &usage) < 0) {
        if (errno != EINTR) {
            return error_set(error, "cannot wait for %s: %s", argv[0], strerror(errno));
        }
    }
    *seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    if (WIFSIGNALED(status)) {
        return error_set(error, "%s was ended by signal %d: what it said stands in %s", argv[0], WTERMSIG(status), log);
    }
    return WEXITSTATUS(status) == 0 ? 0 : error_set(error, "%s ended with exit code %d: what it said stands in %s", argv[0], WEXITSTATUS(status), log);
}
