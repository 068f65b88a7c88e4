/* The terminal of `holdfast top`: single keys and the alternate screen.
 *
 * It uses only ECMA-48 sequences and xterm's alternate screen, which every screen terminal
 * supports, so no terminal library is needed. TERM=dumb has no screen and gets batch mode.
 *
 * The state is global, because every kind of exit must restore the terminal: exit() through an
 * atexit handler, a fault through a signal handler that uses only async-signal-safe calls. The
 * signals that end or stop the process are read by the command's loop and do not come here. */
#include "top/top.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ENTER "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H" /* alternate screen, no cursor, cleared */
#define LEAVE "\x1b[0m\x1b[?25h\x1b[?1049l"

static struct termios before;
static volatile sig_atomic_t entered;

bool top_terminal_is_there(void) {
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term != NULL && term[0] != '\0' &&
           strcmp(term, "dumb") != 0;
}

bool top_terminal_write(const char *text, size_t len) {
    while (len > 0) {
        ssize_t written = write(STDOUT_FILENO, text, len);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        text += written;
        len -= (size_t)written;
    }
    return true;
}

/* Also called by a signal handler. */
void top_terminal_leave(void) {
    if (!entered)
        return;
    entered = 0;
    (void)top_terminal_write(LEAVE, sizeof LEAVE - 1);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void fault(int signal_number) {
    top_terminal_leave();
    raise(signal_number); /* the default action is in place again */
}

static void restore_at_the_end(void) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static bool done;
    struct sigaction action = {.sa_handler = fault, .sa_flags = (int)SA_RESETHAND};
    if (done)
        return;
    done = true;
    (void)atexit(top_terminal_leave);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigaction(faults[i], &action, NULL);
}

/* Ctrl-C and Ctrl-Z stay signals. The first time, earlier input is discarded: it was not meant for
 * us. After a stop, input typed meanwhile is kept. */
bool top_terminal_enter(void) {
    static bool again;
    if (entered)
        return true;
    if (tcgetattr(STDIN_FILENO, &before) != 0)
        return false;
    struct termios keys = before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    restore_at_the_end();
    entered = 1;
    int when = again ? TCSADRAIN : TCSAFLUSH;
    again = true;
    if (tcsetattr(STDIN_FILENO, when, &keys) == 0 && top_terminal_write(ENTER, sizeof ENTER - 1))
        return true;
    top_terminal_leave();
    return false;
}

static int from_environment(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    long number;
    return text != NULL && parse_number(text, 1, 10000, &number) ? (int)number : otherwise;
}

void top_terminal_size(int *ret_width, int *ret_height) {
    struct winsize size = {0};
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    *ret_width = known && size.ws_col > 0 ? size.ws_col : from_environment("COLUMNS", 80);
    *ret_height = known && size.ws_row > 0 ? size.ws_row : from_environment("LINES", 24);
}
