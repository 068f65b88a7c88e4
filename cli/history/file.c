/* The history in a file: one event per line, appended. Nothing is synced, so a crash of the machine
 * may lose the last seconds; a torn last line is skipped by readers and ended by the next writer.
 *
 * `serve` has the file open, and locked against a second one. Readers need no lock. */
#include "history/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct history_file {
    int fd;
    char *path, *older; /* `older`: FILE.1 */
    int64_t size, size_max;
    bool torn; /* the last line has no end */
    bool said;
    int64_t missed; /* events that were not written */
};

/* ---- Opening --------------------------------------------------------------------------------- */

/* Takes the lock of the file that has the path. Returns the descriptor, or minus an errno value. */
static int open_locked(const char *path) {
    struct stat opened, named;
    for (;;) {
        int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
        if (fd < 0)
            return -errno;
        int code = fstat(fd, &opened) != 0             ? errno
                   : !S_ISREG(opened.st_mode)          ? EINVAL
                   : flock(fd, LOCK_EX | LOCK_NB) != 0 ? errno
                                                       : 0;
        if (code != 0) {
            close(fd);
            return -code;
        }
        if (stat(path, &named) == 0 && named.st_ino == opened.st_ino &&
            named.st_dev == opened.st_dev)
            return fd;
        close(fd); /* renamed meanwhile */
    }
}

static bool ends_torn(int fd, int64_t size) {
    char last = '\n';
    return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

static int reopen(struct history_file *file) {
    struct stat about;
    int fd = open_locked(file->path);
    if (fd < 0)
        return -fd;
    if (file->fd >= 0)
        close(file->fd);
    file->fd = fd;
    file->size = fstat(fd, &about) == 0 ? about.st_size : 0;
    file->torn = ends_torn(fd, file->size);
    return 0;
}

int history_file_open(const char *path, int64_t size, struct history_file **ret) {
    struct history_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return STATUS_OS;
    file->fd = -1;
    file->size_max = size;
    file->path = strdup(path);
    if (asprintf(&file->older, "%s.1", path) < 0)
        file->older = NULL;
    int code = file->path != NULL && file->older != NULL ? reopen(file) : ENOMEM;
    if (code == 0) {
        *ret = file;
        return 0;
    }
    const char *why = code == EWOULDBLOCK ? "another holdfast serve writes to it"
                      : code == EINVAL    ? "it is not a regular file"
                                          : strerror(code);
    say(LEVEL_ERROR, "cannot use the history file %s: %s", path, why);
    history_file_close(file);
    return code == EINVAL ? STATUS_USAGE : STATUS_OS;
}

void history_file_close(struct history_file *file) {
    if (file == NULL)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file->older);
    free(file);
}

/* ---- Appending ------------------------------------------------------------------------------- */

/* Returns 0 or an errno value. */
static int write_line(struct history_file *file, const char *line) {
    char *text = NULL;
    int len = asprintf(&text, "%s%s\n", file->torn ? "\n" : "", line);
    if (len < 0)
        return ENOMEM;
    ssize_t n = write(file->fd, text, (size_t)len);
    int code = n == len ? 0 : n < 0 ? errno : ENOSPC;
    free(text);
    if (n > 0) {
        file->size += n;
        file->torn = n < len;
    }
    return code;
}

static int rotate_if_full(struct history_file *file, size_t more) {
    if (file->size == 0 || file->size + (int64_t)more + 2 <= file->size_max)
        return 0;
    if (rename(file->path, file->older) != 0)
        return errno;
    return reopen(file);
}

static int write_missed(struct history_file *file) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const struct history_event event = {.at_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000,
                                        .within_ms = -1,
                                        .event = "missed",
                                        .for_ms = -1,
                                        .count = file->missed};
    char *line = history_event_line(&event);
    int code = line != NULL ? write_line(file, line) : ENOMEM;
    free(line);
    if (code == 0)
        file->missed = 0;
    return code;
}

void history_file_append(struct history_file *file, const char *line) {
    int code = rotate_if_full(file, strlen(line));
    if (code == 0 && file->missed > 0)
        code = write_missed(file);
    if (code == 0)
        code = write_line(file, line);
    if (code == 0) {
        file->said = false;
        return;
    }
    file->missed++;
    if (!file->said)
        say(LEVEL_ERROR, "cannot write to the history file %s: %s", file->path, strerror(code));
    file->said = true;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Returns false if `visit` did. */
static bool read_lines(FILE *file, history_visit_fn visit, void *user) {
    char *text = NULL;
    size_t size = 0;
    ssize_t len;
    bool more = true;
    while (more && (len = getline(&text, &size, file)) >= 0) {
        struct history_line line;
        if (len > 0 && text[len - 1] == '\n')
            len--;
        if (!history_line_read(text, (size_t)len, &line))
            continue;
        more = visit(user, &line.event);
        history_line_free(&line);
    }
    free(text);
    return more;
}

static int read_file(const char *path, history_visit_fn visit, void *user, bool *ret_more) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return errno;
    FILE *file = fstat(fd, &about) == 0 && !S_ISDIR(about.st_mode) ? fdopen(fd, "r") : NULL;
    if (file == NULL) {
        close(fd);
        return EISDIR;
    }
    *ret_more = read_lines(file, visit, user);
    int code = ferror(file) ? EIO : 0;
    fclose(file);
    return code;
}

int history_file_read(const char *path, history_visit_fn visit, void *user) {
    char *older = NULL;
    bool more = true;
    if (asprintf(&older, "%s.1", path) < 0)
        return ENOMEM;
    int before = read_file(older, visit, user, &more);
    free(older);
    if (!more)
        return 0;
    int code = read_file(path, visit, user, &more);
    if (code == ENOENT && before == 0) /* just rotated */
        return 0;
    return code == 0 && before != ENOENT ? before : code;
}
