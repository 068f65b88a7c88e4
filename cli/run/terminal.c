/* The controlling terminal. A command with its own process group must be the foreground group, or
 * it is stopped when it reads a password. The process that gave the terminal away must take it
 * back, or the shell is stopped.
 *
 * Called by the guard, and by the command's process before exec. SIGTTOU is blocked in both, so a
 * background process may do this. Without a terminal (cron, a service) nothing happens. */
#include "run/terminal.h"

#include <fcntl.h>
#include <unistd.h>

void terminal_open(struct terminal *terminal) {
    terminal->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    terminal->home = getpgrp();
    terminal->have_modes = terminal->fd >= 0 && tcgetattr(terminal->fd, &terminal->modes) == 0;
}

bool terminal_is_of(const struct terminal *terminal, pid_t group) {
    return terminal->fd >= 0 && tcgetpgrp(terminal->fd) == group;
}

bool terminal_is_ours(const struct terminal *terminal) {
    return terminal_is_of(terminal, terminal->home);
}

void terminal_give(const struct terminal *terminal, pid_t group) {
    if (terminal->fd >= 0)
        (void)tcsetpgrp(terminal->fd, group); /* Fails harmlessly if the group is gone. */
}

void terminal_take(const struct terminal *terminal, pid_t group, bool died) {
    if (group <= 0 || !terminal_is_of(terminal, group))
        return;
    (void)tcsetpgrp(terminal->fd, terminal->home);
    if (died && terminal->have_modes)
        (void)tcsetattr(terminal->fd, TCSADRAIN, &terminal->modes);
}
