/* The controlling terminal, as a job-control shell sees it: which process group is in the
 * foreground. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

struct terminal {
    int fd;     /* -1: we have none */
    pid_t home; /* our process group */
    struct termios modes;
    bool have_modes;
};

void terminal_open(struct terminal *terminal);
/* Whether our group is the one in the foreground. */
bool terminal_is_ours(const struct terminal *terminal);
bool terminal_is_of(const struct terminal *terminal, pid_t group);
/* Puts a group into the foreground. Only with SIGTTOU blocked. */
void terminal_give(const struct terminal *terminal, pid_t group);
/* Takes the terminal back if `group` has it; `died`: with the modes it had before. */
void terminal_take(const struct terminal *terminal, pid_t group, bool died);

#endif
