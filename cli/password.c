/*
 * Where a password comes from when it is not in the url: a file, the terminal, or the variables
 * that redis-cli and valkey-cli read; and how one that was written on the command line is hidden
 * again.
 *
 * Called by connect.c before there is any other thread or process. A password never appears in a
 * message. While one is typed, whatever ends or stops us finds the terminal's echo on again.
 */
#include "password.h"

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
                           saved != 0 ? strerror(saved) : "it is empty");
    }
    line[strcspn(line, "\r\n")] = '\0';
    *ret_password = line;
    return 0;
}

/* ---- The terminal ---------------------------------------------------------------------------- */

struct asking {
    int fd;
    struct termios before, silent;
    sigset_t watched; /* signals that would end or stop us, unless they are ignored */
    int signals;
};

static bool asking_begin(struct asking *asking) {
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGALRM, SIGPIPE};
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
    sigemptyset(&asking->watched);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        struct sigaction action;
        if (sigaction(ending[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&asking->watched, ending[i]);
    }
    asking->signals = signalfd(-1, &asking->watched, SFD_CLOEXEC | SFD_NONBLOCK);
    return true;
}

/* Gives the terminal back as it was, also from the background, where TTOU would stop us. */
static void restore_echo(const struct asking *asking) {
    sigset_t only, mask;
    sigemptyset(&only);
    sigaddset(&only, SIGTTOU);
    sigprocmask(SIG_BLOCK, &only, &mask);
    tcsetattr(asking->fd, TCSAFLUSH, &asking->before);
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

/* Reads a line without echo. Returns its length, 0 at the end of input, or minus the signal that
 * came instead of a line. The echo is back in any case. */
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
            len = read(asking->fd, line, size); /* The terminal gives whole lines. */
    }
    restore_echo(asking);
    if (write(asking->fd, "\n", 1) != 1)
        len = len > 0 ? 0 : len;
    if (len < 0)
        raise((int)-len);
    sigprocmask(SIG_SETMASK, &mask, NULL); /* Here we end, or stop until we are continued. */
    return len;
}

int password_from_terminal(char **ret_password) {
    struct asking asking;
    char line[512];
    ssize_t len;
    if (!asking_begin(&asking))
        return usage_error(NULL, "cannot ask for a password: there is no terminal");
    do
        len = read_silently(&asking, line, sizeof line - 1);
    while (len == -SIGTSTP);
    close(asking.fd);
    close(asking.signals);
    if (len <= 0)
        return usage_error(NULL, "no password was given");

    line[len] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    *ret_password = strdup(line);
    explicit_bzero(line, sizeof line);
    return *ret_password != NULL ? 0 : STATUS_OS;
}

/* ---- Others ---------------------------------------------------------------------------------- */

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
    /* As the library reads it, to the last `@` before the options: a password may have a `/`. */
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
