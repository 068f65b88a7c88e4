/*
 * Five servers, and Java's clients on them; see five.h.
 *
 * Used by the rows, on the test's one thread. Java's clients go with their JVM, so whether it has them is
 * asked at the beginning of each row.
 */
#include "five.h"

#include "state.h"

#include <stdio.h>
#include <string.h>

struct five five;

static struct server *lasting[FIVE];
static struct server *replacement; /* a row's own; NULL: none */
static char spare_client[24];      /* Java's, of a row's own; "": none */

/* ---- Their life ------------------------------------------------------------------------------ */

static struct server *start_server(void) {
    struct server_options options = {.tcp = true};
    return server_start(&options);
}

static void add_word(char *list, size_t room, const char *word, const char *between) {
    size_t len = strlen(list);
    snprintf(list + len, room - len, "%s%s", len > 0 ? between : "", word);
}

static void write_lists(void) {
    five.urls[0] = five.java[0] = '\0';
    for (int i = 0; i < FIVE; i++) {
        add_word(five.urls, sizeof five.urls, server_url(five.servers[i]), " ");
        add_word(five.java, sizeof five.java, five.names[i], ",");
    }
}

static void java_client_at(int i, const char *url, const char *options) {
    const char *answer = java_call(suite.java, "client %s %s %s", five.names[i], url, options);
    if (strncmp(answer, "ok ", 3) != 0)
        fail_msg("Redisson does not connect: %s", answer);
}

static void spare_client_at(int i, const char *url, int64_t timeout_ms) {
    static unsigned made = 0;
    char options[64];
    snprintf(spare_client, sizeof spare_client, "spare%u", ++made);
    snprintf(five.names[i], sizeof five.names[i], "%s", spare_client);
    snprintf(options, sizeof options, "retries=0 timeout=%lld", (long long)timeout_ms);
    java_client_at(i, url, options);
    write_lists();
}

static void restore(void) {
    if (spare_client[0] != '\0')
        java_call(suite.java, "shutdown %s", spare_client); /* it may be another JVM by now */
    spare_client[0] = '\0';
    server_free(replacement);
    replacement = NULL;
}

void five_begin(void) {
    restore();
    for (int i = 0; i < FIVE; i++) {
        if (lasting[i] == NULL)
            lasting[i] = start_server();
        five.servers[i] = lasting[i];
        snprintf(five.names[i], sizeof five.names[i], "q%d", i);
        cmd_ok(lasting[i], "FLUSHALL");
        if (strncmp(java_call(suite.java, "ids %s", five.names[i]), "ok ", 3) != 0)
            java_client_at(i, server_tcp_url(lasting[i]), "");
    }
    write_lists();
}

void five_stop(void) {
    server_free(replacement);
    replacement = NULL;
    for (int i = 0; i < FIVE; i++) {
        server_free(lasting[i]);
        lasting[i] = NULL;
    }
}

void five_replace(int i, int64_t java_timeout_ms) {
    replacement = five.servers[i] = start_server();
    spare_client_at(i, server_tcp_url(replacement), java_timeout_ms);
}

void five_reach_through(int i, const struct proxy *proxy) {
    spare_client_at(i, proxy_tcp_url(proxy), 60000);
}

static bool is_up(int i) {
    return server_pid(five.servers[i]) != 0;
}

/* ---- Both sides ------------------------------------------------------------------------------ */

struct five_pair five_pair(int64_t watchdog_ms) {
    hf_options options = HF_OPTIONS_INIT;
    struct five_pair pair = {.thread = java_thread()};
    options.restart_guard_ms = 0;
    if (watchdog_ms != 0)
        options.watchdog_ms = watchdog_ms;
    java_open(five.java, "redlock", FIVE_NAME, "Q");
    assert_hf(HF_OK, hf_open(five.urls, &options, &pair.client));
    pair.lock = c_lock(pair.client, FIVE_NAME);
    snprintf(pair.owner, sizeof pair.owner, "%s", c_owner(pair.client, 0));
    return pair;
}

void five_pair_end(struct five_pair *pair) {
    five_assert_empty();
    hf_lock_free(pair->lock);
    hf_close(pair->client);
}

void five_c_takes_all(struct five_pair *pair) {
    assert_hf(HF_OK, hf_lock_acquire(pair->lock));
    assert_true(five_wait_held(pair->owner, FIVE));
}

int five_java_waits(const char *handle, int thread) {
    int command = java_send(suite.java, "try %s thread=%d wait=%d", handle, thread, FIVE_WAIT_MS);
    wait_until_java_sleeps(thread);
    return command;
}

hf_op *five_c_waits(const struct five_pair *pair, hf_owner owner) {
    struct server *up[FIVE];
    hf_client *clients[FIVE];
    size_t up_len = 0; /* and not frozen */
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    for (int i = 0; i < FIVE; i++) {
        clients[i] = pair->client;
        if (is_up(i) && process_state(server_pid(five.servers[i])) != 'T')
            up[up_len++] = five.servers[i];
    }
    struct watched_wait *wait = c_watch_at(up, clients, up_len, owner);
    options.owner = owner;
    assert_hf(HF_OK, hf_lock_acquire_start(pair->lock, &options, NULL, NULL, &op));
    wait_until_asleep(wait);
    return op;
}

void five_assert_java_woken(int command) {
    assert_string_equal(java_answer_within(suite.java, command, BY_MESSAGE_MS), "ok true");
}

void five_assert_c_woken(hf_op *op) {
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, NULL));
    hf_op_free(op);
}

void five_assert_java_holds(const char *handle, int thread, bool yes) {
    const char *answer = java_call(suite.java, "heldBy %s thread=%d", handle, thread);
    if (strncmp(answer, "err UnsupportedOperationException", 33) != 0)
        assert_string_equal(answer, yes ? "ok true" : "ok false");
}

/* ---- What they know -------------------------------------------------------------------------- */

int five_locked(void) {
    int count = 0;
    for (int i = 0; i < FIVE; i++)
        count += is_up(i) && key_exists(five.servers[i], FIVE_NAME);
    return count;
}

int five_held(const char *owner) {
    int count = 0;
    for (int i = 0; i < FIVE; i++)
        count += is_up(i) && cmd_int(five.servers[i], "HEXISTS %s %s", FIVE_NAME, owner) == 1;
    return count;
}

struct expected {
    const char *owner;
    int servers;
};

static bool is_held(void *arg) {
    const struct expected *expected = arg;
    return five_held(expected->owner) == expected->servers;
}

bool five_wait_held(const char *owner, int servers) {
    struct expected expected = {owner, servers};
    return wait_until(is_held, &expected, JAVA_LIMIT_MS);
}

static bool all_are_empty(void *arg) {
    bool empty = true;
    (void)arg;
    for (int i = 0; i < FIVE; i++)
        empty = empty && (!is_up(i) || cmd_int(five.servers[i], "DBSIZE") == 0);
    return empty;
}

/* A release goes on in the background when a majority has answered. */
void five_assert_empty(void) {
    if (wait_until(all_are_empty, NULL, JAVA_LIMIT_MS))
        return;
    for (int i = 0; i < FIVE; i++) {
        own_text *left = is_up(i) ? state_dump(five.servers[i], NULL, 0) : NULL;
        print_error("left at server %d: %s\n", i, left != NULL ? left : "");
    }
    fail();
}

static int by_time(const void *a, const void *b) {
    int64_t first = *(const int64_t *)a, second = *(const int64_t *)b;
    return (first > second) - (first < second);
}

int64_t five_free_at(void) {
    int64_t ends[FIVE];
    for (int i = 0; i < FIVE; i++) {
        int64_t at = wall_ms();
        ends[i] = at + pttl(five.servers[i], FIVE_NAME);
    }
    qsort(ends, FIVE, sizeof ends[0], by_time);
    return ends[FIVE_MAJORITY - 1];
}

void five_occupy(int server) {
    cmd_ok(five.servers[server], "HSET " FIVE_NAME " another:1 1");
    cmd_ok(five.servers[server], "PEXPIRE " FIVE_NAME " 60000");
}

void five_vacate(int server) {
    cmd_ok(five.servers[server], "DEL " FIVE_NAME);
    cmd_ok(five.servers[server], "PUBLISH redisson_lock__channel:{" FIVE_NAME "} 0");
}
