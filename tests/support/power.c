/* Servers that lose their power; see power.h.
 *
 * Called by tests. The server is killed, and each part of its log that grows is cut to the size
 * that it had when it was last synced. Snapshots, and the log's base, get their names when they are
 * synced, so these are left as they are. */
#include "support/power.h"

#include "support/wait.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SOON_MS = 5000 };

const char *const power_everysec[] = {"appendfsync everysec", NULL};
const char *const power_snapshots[] = {"save 1 1", NULL};

/* The log is one file, or since Redis 7 a directory of them. */
static bool grows(const char *name) {
    size_t len = strlen(name);
    return strcmp(name, "appendonly.aof") == 0 ||
           (len > 9 && strcmp(name + len - 9, ".incr.aof") == 0);
}

static int64_t synced_of(const char *path) {
    char note[600];
    int64_t size = 0;
    snprintf(note, sizeof note, "%s.synced", path);
    int fd = open(note, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, &size, sizeof size) != (ssize_t)sizeof size)
        size = 0;
    if (fd >= 0)
        close(fd);
    return size;
}

static int64_t cut_back(const char *dir) {
    int64_t lost = 0;
    DIR *files = opendir(dir);
    struct dirent *file;
    while (files != NULL && (file = readdir(files)) != NULL) {
        char path[512];
        struct stat now;
        snprintf(path, sizeof path, "%s/%s", dir, file->d_name);
        if (!grows(file->d_name) || stat(path, &now) != 0)
            continue;
        int64_t synced = synced_of(path);
        if (synced >= now.st_size)
            continue;
        lost += now.st_size - synced;
        if (truncate(path, synced) != 0)
            support_die("%s: %s", path, strerror(errno));
    }
    if (files != NULL)
        closedir(files);
    return lost;
}

int64_t power_loss(struct server *server) {
    char parts[512];
    server_kill(server);
    snprintf(parts, sizeof parts, "%s/appendonlydir", server_dir(server));
    int64_t lost = cut_back(server_dir(server)) + cut_back(parts);
    server_relaunch(server);
    return lost;
}

static bool has_synced(void *arg) {
    const char *dir = arg;
    char path[512];
    snprintf(path, sizeof path, "%s/appendonlydir/appendonly.aof.1.incr.aof", dir);
    if (synced_of(path) > 0)
        return true;
    snprintf(path, sizeof path, "%s/appendonly.aof", dir);
    return synced_of(path) > 0;
}

bool power_preload(const char *library) {
    const struct server_options options = {.aof = true};
    setenv("LD_PRELOAD", library, 1);
    struct server *server =
        server_start(&options); /* which starts the process that starts all others */
    unsetenv("LD_PRELOAD");
    cmd_ok(server, "SET synced 1");
    char dir[256];
    snprintf(dir, sizeof dir, "%s", server_dir(server));
    bool can = wait_until(has_synced, dir, SOON_MS);
    server_free(server);
    return can;
}
