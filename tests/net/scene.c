/*
 * What the tests of the connection share; see scene.h.
 *
 * Called by the tests on their main thread. The server lives from the group's setup to its
 * teardown. Connections are distinguished by the order in which they were made: a synchronous call
 * makes a command connection, an asynchronous one the control connection, a wait the one for
 * pub/sub; the name that each of them has set says whose it is.
 */
#include "net/scene.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct server *shared_server;

int scene_start_server(void **state) {
    (void)state;
    const struct server_options options = {.tcp = true};
    shared_server = server_start(&options);
    return 0;
}

int scene_stop_server(void **state) {
    (void)state;
    server_free(shared_server);
    return 0;
}

struct server *scene_server(void) {
    return shared_server;
}

hf_options scene_options(void) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 5000;
    options.connect_timeout_ms = 10000;
    options.watchdog_ms = 60000;
    return options;
}

hf_client *scene_open(const char *url, const hf_options *options) {
    hf_options defaults = scene_options();
    hf_client *client = NULL;
    assert_int_equal(hf_open(url, options != NULL ? options : &defaults, &client), HF_OK);
    return client;
}

hf_lock *scene_lock(hf_client *client, const char *name) {
    hf_lock *lock = NULL;
    assert_int_equal(hf_lock_new(client, name, &lock), HF_OK);
    return lock;
}

hf_stats scene_stats(hf_client *client) {
    hf_stats stats = HF_STATS_INIT;
    assert_int_equal(hf_client_stats(client, &stats), HF_OK);
    return stats;
}

void scene_owner(const hf_client *client, hf_owner owner, char text[64]) {
    snprintf(text, 64, "%s:%" PRIu64, hf_client_id(client), owner);
}

/* ---- Calls on threads of their own ---- */

static void *run_acquire(void *arg) {
    struct scene_call *call = arg;
    int64_t start_ms = now_ms();
    call->result = hf_lock_acquire_with(call->lock, &call->options, NULL);
    call->took_ms = now_ms() - start_ms;
    if (call->result != HF_OK)
        call->error = *hf_last_error();
    atomic_store(&call->done, true);
    return NULL;
}

void scene_acquire(struct scene_call *call, hf_lock *lock, int64_t wait_ms, hf_cancel *cancel) {
    memset(call, 0, sizeof *call);
    call->lock = lock;
    call->options = (hf_acquire_options)HF_ACQUIRE_OPTIONS_INIT;
    call->options.wait_ms = wait_ms;
    call->options.owner = hf_owner_new();
    call->options.cancel = cancel;
    assert_int_equal(pthread_create(&call->thread, NULL, run_acquire, call), 0);
}

void scene_join_thread(pthread_t thread) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANG_MS / 1000;
    assert_int_equal(pthread_timedjoin_np(thread, NULL, &until), 0);
}

int scene_join(struct scene_call *call) {
    scene_join_thread(call->thread);
    return call->result;
}

struct channel {
    struct server *server;
    char name[256];
};

static bool is_subscribed(void *arg) {
    struct channel *channel = arg;
    own_reply *reply = cmd(channel->server, "PUBSUB NUMSUB %s", channel->name);
    if (reply == NULL)
        return false;
    bool subscribed =
        reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[1]->integer > 0;
    return subscribed;
}

void scene_wait_subscribed(struct server *server, const char *name) {
    struct channel channel = {.server = server};
    snprintf(channel.name, sizeof channel.name, "redisson_lock__channel:{%s}", name);
    assert_true(wait_until(is_subscribed, &channel, HANG_MS));
}

int scene_ping_async(hf_client *client) {
    own_op *op = NULL;
    assert_int_equal(hf_ping_start(client, NULL, NULL, &op), HF_OK);
    return hf_op_wait(op, HANG_MS, NULL);
}

/* ---- Connections ---- */

size_t scene_conns(struct server *server, const hf_client *client, long long ids[SCENE_CONNS]) {
    char *list = cmd_str(server, "CLIENT LIST"), *rest = list, *line;
    size_t len = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (strstr(line, hf_client_id(client)) == NULL)
            continue;
        assert_true(len < SCENE_CONNS);
        assert_int_equal(sscanf(line, "id=%lld", &ids[len]), 1);
        len++;
    }
    free(list);
    return len;
}

long long scene_new_conn(struct server *server, const hf_client *client, const long long *known,
                         size_t known_len) {
    long long ids[SCENE_CONNS], found = 0;
    size_t len = scene_conns(server, client, ids);
    for (size_t i = 0; i < len; i++) {
        bool is_known = false;
        for (size_t k = 0; k < known_len; k++)
            is_known = is_known || known[k] == ids[i];
        if (is_known)
            continue;
        assert_int_equal(found, 0);
        found = ids[i];
    }
    assert_int_not_equal(found, 0);
    return found;
}

void scene_kill(struct server *server, long long id) {
    assert_int_equal(cmd_int(server, "CLIENT KILL ID %lld", id), 1);
}

/* ---- Logs ---- */

static void catch_log(hf_log_level level, const char *message, void *user) {
    struct scene_log *log = user;
    size_t length = strlen(message);
    (void)level;
    sync_lock(&log->sync);
    char *grown = realloc(log->text, log->length + length + 2);
    if (grown == NULL)
        support_die("no memory for a log");
    snprintf(grown + log->length, length + 2, "%s\n", message);
    log->text = grown;
    log->length += length + 1;
    sync_unlock(&log->sync);
}

void scene_log_start(struct scene_log *log, hf_options *options) {
    memset(log, 0, sizeof *log);
    sync_init(&log->sync);
    options->log = catch_log;
    options->log_user = log;
}

bool scene_log_contains(struct scene_log *log, const char *words) {
    sync_lock(&log->sync);
    bool found = log->text != NULL && strstr(log->text, words) != NULL;
    sync_unlock(&log->sync);
    return found;
}

void scene_log_end(struct scene_log *log) {
    free(log->text);
    sync_destroy(&log->sync);
}

/* ---- The process ---- */

static size_t entries(const char *path) {
    DIR *dir = opendir(path);
    size_t count = 0;
    if (dir == NULL)
        support_die("cannot read %s: %s", path, strerror(errno));
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

size_t scene_fds(void) {
    return entries("/proc/self/fd");
}

size_t scene_threads(void) {
    return entries("/proc/self/task");
}

static bool has_no_more_threads(void *most) {
    return scene_threads() <= *(size_t *)most;
}

void scene_wait_threads(size_t most) {
    assert_true(wait_until(has_no_more_threads, &most, HANG_MS));
}

size_t scene_rss(void) {
    unsigned long size, resident;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL || fscanf(file, "%lu %lu", &size, &resident) != 2)
        support_die("cannot read /proc/self/statm");
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

void scene_stay_idle(int64_t duration_ms) {
    sleep_ms(duration_ms); /* nothing happens on an idle connection that could be waited for */
}
