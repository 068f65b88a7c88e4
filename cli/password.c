/*
 * Where a password comes from when it is not in the url: a file, the terminal, or the variables
 * that redis-cli and valkey-cli read; and how one that was written on the command line is hidden
 * again.
 *
 * Called by connect.c before there is any other thread or process. A password never appears in a
 * message.
 */
#include "password.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int password_from_terminal(char **ret_password) {
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    struct termios before;
    if (fd < 0 || tcgetattr(fd, &before) != 0) {
        if (fd >= 0)
            close(fd);
        return usage_error(NULL, "cannot ask for a password: there is no terminal");
    }

    struct termios silent = before;
    silent.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
    tcsetattr(fd, TCSAFLUSH, &silent);
    char line[512];
    ssize_t len = -1;
    if (write(fd, "Password: ", 10) == 10)
        len = read(fd, line, sizeof line - 1); /* The terminal gives whole lines. */
    tcsetattr(fd, TCSAFLUSH, &before);
    bool ended = write(fd, "\n", 1) == 1 && len > 0;
    close(fd);
    if (!ended)
        return usage_error(NULL, "no password was given");

    line[len] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    *ret_password = strdup(line);
    explicit_bzero(line, sizeof line);
    return *ret_password != NULL ? 0 : STATUS_OS;
}

const char *password_of_redis_cli(void) {
    static const char *const variables[] = {"REDISCLI_AUTH", "VALKEYCLI_AUTH"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value != NULL && *value != '\0')
            return value;
    }
    return NULL;
}

bool password_in_url(const char *url, size_t *ret_start, size_t *ret_len) {
    const char *authority = strstr(url, "://");
    if (authority == NULL)
        return false;
    authority += 3;
    size_t len = strcspn(authority, "/?#");
    const char *at = memrchr(authority, '@', len);
    if (at == NULL)
        return false;
    *ret_start = (size_t)(authority - url);
    *ret_len = (size_t)(at - authority);
    return true;
}

void password_hide(char *password) {
    memset(password, '*', strlen(password));
}

void password_hide_in_url(char *url) {
    size_t start, len;
    if (password_in_url(url, &start, &len))
        memset(url + start, '*', len);
}
