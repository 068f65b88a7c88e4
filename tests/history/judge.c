/*
 * Running the checker in a child whose memory is bounded by the system, too.
 *
 * Used by the test programs, in their one thread.
 */
#include "judge.h"

#include "support/wait.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_MAX ((rlim_t)4 << 30) /* addresses: Go reserves more than it takes */
#define CHECK_LIMIT_MS ((int64_t)30 * 60 * 1000)

struct command {
    const char *const *argv;
    bool bounded;
};

static int run_command(void *arg) {
    const struct command *command = arg;
    struct rlimit memory = {.rlim_cur = MEMORY_MAX, .rlim_max = MEMORY_MAX};
    if (command->bounded && setrlimit(RLIMIT_AS, &memory) != 0)
        return 1;
    execv(command->argv[0], (char *const *)(uintptr_t)command->argv);
    return 127;
}

int judge_build(const char *script, const char *dir) {
    const char *const argv[] = {script, dir, NULL};
    struct command command = {.argv = argv};
    return wait_exit(run_child(run_command, &command), CHECK_LIMIT_MS);
}

int judge(const char *program, const char *option, const char *const *dirs, size_t dirs_len) {
    char path[512];
    const char *argv[JUDGE_DIRS_MAX + 3] = {path};
    size_t len = 1;
    snprintf(path, sizeof path, "%s/%s", HF_HISTORY_DIR, program);
    if (option != NULL)
        argv[len++] = option;
    for (size_t i = 0; i < dirs_len && i < JUDGE_DIRS_MAX; i++)
        argv[len++] = dirs[i];
    struct command command = {.argv = argv, .bounded = true};
    fflush(NULL);
    return wait_exit(run_child(run_command, &command), CHECK_LIMIT_MS);
}
