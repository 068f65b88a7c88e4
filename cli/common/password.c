/* Passwords that are not in the url: from a file, the terminal, or the variables of redis-cli and
 * valkey-cli. Also hides a password given on the command line.
 *
 * Called by connect.c before other threads or processes exist. A password never appears in a
 * message. While one is typed, a signal that ends or stops us restores the terminal's echo
 * first. */
#include "common/password.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

int password_from_file(const char *path, char **ret_password) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return usage_error(NULL, "cannot read the password file %s: %s", path, strerror(errno));
    char *line = NULL;
    size_t size = 0;
    errno = 0;
    ssize_t len = getline(&line, &size, file);
    int saved = errno;
    fclose(file);
    if (len < 0) {
        free(line);
        return usage_error(NULL, "cannot read the password file %s: %s", path,
                           saved != 0 ? strerror(saved) : "the file is empty");
    }
    line[strcspn(line, "\r\n")] = '\0';
    *ret_password = line;
    return 0;
}

/* ---- The terminal ---------------------------------------------------------------------------- */

struct asking {
    int fd;
    struct termios before, silent;
    sigset_t watched; /* signals that would end or stop us, except ignored ones */
    int signals;
};

static bool asking_begin(struct asking *asking) {
    /* Not watched: they do not end us, or report our own bug, or the terminal must handle them. */
    static const int others[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGCONT, SIGWINCH,
                                 SIGURG,  SIGTTIN, SIGTTOU, SIGSEGV, SIGBUS,
                                 SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGABRT};
    *asking = (struct asking){.signals = -1};
    asking->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (asking->fd < 0)
        return false;
    if (tcgetattr(asking->fd, &asking->before) != 0) {
        close(asking->fd);
        return false;
    }
    asking->silent = asking->before;
    asking->silent.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
    sigfillset(&asking->watched);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        sigdelset(&asking->watched, others[i]);
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigdelset(&asking->watched, signal);
    }
    asking->signals = signalfd(-1, &asking->watched, SFD_CLOEXEC | SFD_NONBLOCK);
    return true;
}

/* Restores the terminal modes, also from the background, where SIGTTOU would stop us. */
static void restore_echo(const struct asking *asking) {
    sigset_t only, mask;
    sigemptyset(&only);
    sigaddset(&only, SIGTTOU);
    sigprocmask(SIG_BLOCK, &only, &mask);
    tcsetattr(asking->fd, TCSAFLUSH, &asking->before);
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

/* Reads a line without echo. Returns its length, 0 at end of input, or minus the signal that came
 * instead. Echo is restored in every case. */
static ssize_t read_silently(const struct asking *asking, char *line, size_t size) {
    struct pollfd fds[] = {{.fd = asking->fd, .events = POLLIN},
                           {.fd = asking->signals, .events = POLLIN}};
    struct signalfd_siginfo info;
    ssize_t len = 0;
    sigset_t mask;
    sigprocmask(SIG_BLOCK, &asking->watched, &mask);
    tcsetattr(asking->fd, TCSAFLUSH, &asking->silent);
    if (write(asking->fd, "Password: ", 10) == 10) {
        while (poll(fds, 2, -1) < 0 && errno == EINTR) {
        }
        if (read(asking->signals, &info, sizeof info) == (ssize_t)sizeof info)
            len = -(ssize_t)info.ssi_signo;
        else
            len = read(asking->fd, line, size); /* The terminal delivers whole lines. */
    }
    restore_echo(asking);
    if (write(asking->fd, "\n", 1) != 1)
        len = len > 0 ? 0 : len;
    if (len < 0)
        raise((int)-len);
    sigprocmask(SIG_SETMASK, &mask, NULL); /* The signal ends or stops us here. */
    return len;
}

int password_from_terminal(char **ret_password) {
    struct asking asking;
    char line[512];
    ssize_t len;
    if (!asking_begin(&asking))
        return usage_error(NULL, "--askpass needs a terminal");
    do
        len = read_silently(&asking, line, sizeof line - 1);
    while (len == -SIGTSTP);
    close(asking.fd);
    close(asking.signals);
    if (len <= 0)
        return usage_error(NULL, "no password was entered");

    line[len] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    *ret_password = strdup(line);
    explicit_bzero(line, sizeof line);
    return *ret_password != NULL ? 0 : STATUS_OS;
}

/* ---- Other sources
 * ----------------------------------------------------------------------------- */

const char *password_of_redis_cli(void) {
    static const char *const variables[] = {"REDISCLI_AUTH", "VALKEYCLI_AUTH"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value != NULL && *value != '\0')
            return value;
    }
    return NULL;
}

bool password_in_url(const char *url) {
    const char *authority = strstr(url, "://");
    const char *question = strchr(url, '?');
    if (question != NULL &&
        (strstr(question, "password=") != NULL || strstr(question, "user=") != NULL))
        return true;
    if (authority == NULL)
        return false;
    /* Like the library: up to the last `@` before the options, because a password may contain a
     * `/`. */
    authority += 3;
    return *authority != '/' && memrchr(authority, '@', strcspn(authority, "?")) != NULL;
}

void password_hide(char *password) {
    memset(password, '*', strlen(password));
}

void password_hide_in_url(char *url) {
    char *mark = strstr(url, "://");
    char *authority = mark != NULL ? mark + 3 : url;
    char *at = strrchr(authority, '@'), *question = strchr(authority, '?');
    if (at != NULL)
        memset(authority, '*', (size_t)(at - authority));
    if (question != NULL)
        memset(question + 1, '*', strlen(question + 1));
}
