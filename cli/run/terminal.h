/* The controlling terminal and its foreground process group, as a job-control shell uses them. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

struct terminal {
    int fd;     /* -1: no terminal */
    pid_t home; /* our process group */
    struct termios modes;
    bool have_modes;
};

void terminal_open(struct terminal *terminal);
/* Whether our group is in the foreground. */
bool terminal_is_ours(const struct terminal *terminal);
bool terminal_is_of(const struct terminal *terminal, pid_t group);
/* Puts a group into the foreground. SIGTTOU must be blocked. */
void terminal_give(const struct terminal *terminal, pid_t group);
/* Takes the terminal back if `group` has it. `died`: also restores the saved modes. */
void terminal_take(const struct terminal *terminal, pid_t group, bool died);

#endif
