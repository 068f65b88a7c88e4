/* The notice that no server is configured. Each user sees it once a day on a terminal, and once a
 * day elsewhere, such as in a log. With --verbose it is printed each time.
 *
 * The mtime of a file in the user's own `local:` directory records the last time. If the file
 * cannot be written, nothing is printed: better no notice than one with every command.
 *
 * Called by connect.c before other threads or processes exist. */
#include "cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DAY_S 86400

/* Opens the directory, created as the library would; negative: not owned by this user alone. */
static int open_own_directory(void) {
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/tmp/holdfast-%u", (unsigned)geteuid());
    (void)mkdir(path, 0700); /* On failure either it exists, or open() fails too. */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
        (status.st_mode & 0777) == 0700)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Whether the notice is due; if so, records the time. */
static bool note_time(int fd) {
    struct stat status;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &status) != 0)
        return false; /* Another command is printing it. */
    bool recent = status.st_size > 0 && llabs((long long)time(NULL) - status.st_mtime) < DAY_S;
    return !recent && pwrite(fd, "\n", 1, 0) == 1;
}

/* Once a day, counted separately for a terminal and for other outputs. */
static bool is_due(void) {
    int directory = open_own_directory();
    if (directory < 0)
        return false;
    const char *name = isatty(STDERR_FILENO) ? "noticed" : "logged";
    int fd = openat(directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    close(directory);
    bool due = fd >= 0 && note_time(fd);
    if (fd >= 0)
        close(fd);
    return due;
}

void notice_default_server(void) {
    if (!message_wanted(LEVEL_NOTICE) || (!message_wanted(LEVEL_INFO) && !is_due()))
        return;
    say(LEVEL_NOTICE,
        "no server is configured: using local:, a private server of this user on this machine; "
        "other users and machines do not share its locks (name a shared server with -u or "
        "HOLDFAST_URL)");
}
