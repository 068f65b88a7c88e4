/*
 * The notice that no server is configured: to somebody who sits at a terminal, and to each user
 * once a day at most, since whoever has read it knows.
 *
 * When it was last said is remembered by the time of a file in the directory of `local:` itself,
 * which is the user's alone. Where that cannot be written, nothing is said: better no notice than
 * one with every command.
 *
 * Called by connect.c before there is any other thread or process.
 */
#include "cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DAY_S 86400

/* The directory, made as the library would make it; negative: it is not ours alone. */
static int open_own_directory(void) {
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/tmp/holdfast-%u", (unsigned)geteuid());
    (void)mkdir(path, 0700); /* If it fails, opening it does, too, or it is there. */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
        (status.st_mode & 0777) == 0700)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Whether it is time to say it, and if so, notes that it was said. */
static bool note_time(int fd) {
    struct stat status;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &status) != 0)
        return false; /* Another command is just saying it. */
    bool recent = status.st_size > 0 && llabs((long long)time(NULL) - status.st_mtime) < DAY_S;
    return !recent && pwrite(fd, "\n", 1, 0) == 1;
}

void tell_of_default(void) {
    if (!message_wanted(LEVEL_NOTICE) || !isatty(STDERR_FILENO))
        return;
    int directory = open_own_directory();
    if (directory < 0)
        return;
    int fd = openat(directory, "noticed", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    close(directory);
    if (fd >= 0 && note_time(fd))
        say(LEVEL_NOTICE, "no server is configured: using local:, a private one on this machine");
    if (fd >= 0)
        close(fd);
}
