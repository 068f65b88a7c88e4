/*
 * What a test asks of its server whichever engine it is for; see either.h.
 *
 * Called by tests and by their worlds, from any thread. With HF_TEST_ENGINE=zk the eyes that look at the tree are
 * the server's, made when they are first needed and guarded by its `helper`, as the helpers' connection is.
 */
#include "support/either.h"
#include "support/case.h"

#include "support/server_internal.h"
#include "support/wait.h"
#include "support/zk_client.h"
#include "support/zk_internal.h"

enum { PATH_SIZE = 2048, NUMBER_LEN = 4 };

static struct zk_client *eyes_of(struct server *server) {
    if (server->eyes == NULL)
        server->eyes = zk_client_open(zk_port(server->zk));
    return server->eyes;
}

static void write_path(char to[PATH_SIZE], const char *name) {
    snprintf(to, PATH_SIZE, "/%s", name[0] == '/' ? name + 1 : name);
}

/* Of each node beneath a path, itself last; what is not there has none. */
static void visit(struct zk_client *eyes, const char *path,
                  void (*each)(struct zk_client *eyes, const char *path, void *arg), void *arg) {
    struct zk_children *children = zk_children(eyes, path);
    for (size_t i = 0; children != NULL && i < children->count; i++) {
        own_text *child = text_of("%s/%s", strcmp(path, "/") == 0 ? "" : path, children->names[i]);
        if (strcmp(child, "/zookeeper") != 0)
            visit(eyes, child, each, arg);
    }
    zk_children_free(children);
    if (strcmp(path, "/") != 0)
        each(eyes, path, arg);
}

/* What was made to be a parent has no data. */
static void count_it(struct zk_client *eyes, const char *path, void *arg) {
    size_t len = 0;
    own_text *data = zk_data(eyes, path, &len);
    *(long long *)arg += data != NULL && len > 0;
}

static void delete_it(struct zk_client *eyes, const char *path, void *arg) {
    (void)arg;
    zk_delete(eyes, path); /* or somebody else has */
}

static long long count_beneath(struct server *server, const char *path) {
    long long count = 0;
    sync_lock(&server->helper);
    visit(eyes_of(server), path, count_it, &count);
    sync_unlock(&server->helper);
    return count;
}

static void delete_beneath(struct server *server, const char *path) {
    sync_lock(&server->helper);
    visit(eyes_of(server), path, delete_it, NULL);
    sync_unlock(&server->helper);
}

void server_empty(struct server *server) {
    cmd_ok(server, "FLUSHALL");
    if (server_is_other(server))
        delete_beneath(server, "/");
}

bool server_has(struct server *server, const char *name) {
    char path[PATH_SIZE];
    write_path(path, name);
    return server_is_other(server) ? count_beneath(server, path) > 0 : key_exists(server, name);
}

long long server_things(struct server *server) {
    return server_is_other(server) ? count_beneath(server, "/") : cmd_int(server, "DBSIZE");
}

void server_drop(struct server *server, const char *name) {
    char path[PATH_SIZE];
    write_path(path, name);
    if (server_is_other(server))
        delete_beneath(server, path);
    else
        cmd_ok(server, "DEL %s", name);
}

static char *data_of(struct server *server, const char *path, size_t *ret_len) {
    sync_lock(&server->helper);
    char *data = zk_data(eyes_of(server), path, ret_len);
    sync_unlock(&server->helper);
    return data;
}

long long server_value(struct server *server, const char *name) {
    char path[PATH_SIZE];
    size_t len = 0;
    uint32_t number = 0;
    if (!server_is_other(server))
        return cmd_int(server, "GET %s", name);
    write_path(path, name);
    char *data = data_of(server, path, &len);
    if (data == NULL || len != NUMBER_LEN)
        support_die("%s is no number", path);
    for (size_t i = 0; i < NUMBER_LEN; i++)
        number = number << 8 | (unsigned char)data[i];
    free(data);
    return (int32_t)number;
}

bool server_first_is(struct server *server, const char *name, const char *who) {
    char path[PATH_SIZE];
    bool is_first = false;
    write_path(path, name);
    sync_lock(&server->helper);
    struct zk_children *children = zk_children(eyes_of(server), path);
    if (children != NULL && children->count > 0) {
        own_text *child = text_of("%s/%s", path, children->names[0]);
        own_text *wanted = text_of("holdfast:%s ", who);
        own_text *data = zk_data(eyes_of(server), child, NULL);
        is_first = data != NULL && strncmp(data, wanted, strlen(wanted)) == 0;
    }
    zk_children_free(children);
    sync_unlock(&server->helper);
    return is_first;
}

int server_queued(struct server *server, const char *name) {
    char path[PATH_SIZE];
    write_path(path, name);
    sync_lock(&server->helper);
    int count = zk_count(eyes_of(server), path);
    sync_unlock(&server->helper);
    return count > 0 ? count : 0;
}

long long server_watches(const struct server *server) {
    return zk_number(server->zk, "zk_watch_count");
}

void server_redis_only(const struct server *server, const char *why) {
    if (!server_is_other(server))
        return;
    print_message("for Redis alone: %s\n", why);
    skip();
}
