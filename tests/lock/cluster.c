/*
 * A cluster of one server, and two clients on it; see cluster.h.
 *
 * Used by test_conformance_cluster.c, on its main thread. The server lives from the group's setup
 * to its teardown.
 */
#include "lock/cluster.h"

/* The lease is three times as long as the time between renewals: long enough that a busy machine
 * does not lose it. */
enum { SLOTS = 16384, WATCHDOG_MS = ENDURING_MS };

static struct server *cluster;

/* ---- A cluster of one ------------------------------------------------------------------------ */

/* CLUSTER ADDSLOTSRANGE would be shorter, but Redis 6.2 does not know it. */
static void add_all_slots(void) {
    enum { WORDS = 2 + SLOTS };
    static char numbers[SLOTS][8];
    static const char *words[WORDS] = {"CLUSTER", "ADDSLOTS"};
    for (int i = 0; i < SLOTS; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%d", i);
        words[2 + i] = numbers[i];
    }
    own_context *connection = server_connect(cluster);
    assert_non_null(connection);
    own_reply *reply = redisCommandArgv(connection, WORDS, words, NULL);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_STATUS);
}

static bool is_up(void *arg) {
    (void)arg;
    own_text *info = cmd_str(cluster, "CLUSTER INFO");
    return strstr(info, "cluster_state:ok") != NULL;
}

long long cluster_refusals(void) {
    static const char stat[] = "errorstat_CROSSSLOT:count=";
    own_text *info = cmd_str(cluster, "INFO errorstats");
    const char *found = strstr(info, stat);
    return found != NULL ? strtoll(found + strlen(stat), NULL, 10) : 0;
}

int cluster_start(void **state) {
    (void)state;
    static const char *const lines[] = {"cluster-enabled yes", "cluster-config-file nodes.conf",
                                        NULL};
    struct server_options options = {.tcp = true, .config = lines}; /* its bus wants a port */
    cluster = server_start(&options);
    add_all_slots();
    assert_true(wait_until(is_up, NULL, HANG_MS));
    return 0;
}

int cluster_stop(void **state) {
    (void)state;
    server_free(cluster);
    return 0;
}

struct server *cluster_server(void) {
    return cluster;
}

/* ---- Two clients ----------------------------------------------------------------------------- */

void pair_begin(struct pair *pair, const char *prefix) {
    hf_options options = world_options();
    options.watchdog_ms = WATCHDOG_MS;
    options.name_prefix = prefix;
    cmd_ok(cluster, "FLUSHALL");
    cmd_ok(cluster, "CONFIG RESETSTAT");
    *pair = (struct pair){.monitor = monitor_start(cluster)};
    snprintf(pair->full_name, sizeof pair->full_name, "%s" WORLD_NAME,
             prefix != NULL ? prefix : "");
    assert_int_equal(hf_open(server_url(cluster), &options, &pair->one), HF_OK);
    assert_int_equal(hf_open(server_url(cluster), &options, &pair->two), HF_OK);
}

void pair_close(struct pair *pair) {
    monitor_stop(pair->monitor);
    assert_int_equal(hf_close(pair->one), HF_OK);
    assert_int_equal(hf_close(pair->two), HF_OK);
}

static void assert_no_failure(hf_client *client, uint64_t losses) {
    hf_stats stats = world_stats(client);
    assert_int_equal(stats.losses, losses);
    assert_int_equal(stats.renew_failures, 0);
    assert_int_equal(stats.in_doubt, 0);
    assert_int_equal(stats.notify_failures, 0);
    assert_int_equal(stats.holds, 0);
}

void pair_end(struct pair *pair) {
    assert_no_failure(pair->one, pair->losses);
    assert_no_failure(pair->two, 0);
    assert_int_equal(cluster_refusals(), 0);
    pair_close(pair);
}

void cluster_play(void (*test)(struct pair *pair, void *arg), void *arg) {
    static const char *const prefixes[] = {NULL, "test::"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        struct pair pair;
        pair_begin(&pair, prefixes[i]);
        test(&pair, arg);
        pair_end(&pair);
    }
}

/* ---- What is on the server ------------------------------------------------------------------- */

static void assert_slots_of(const char *command, long long slot, size_t at_least) {
    own_reply *names = cmd(cluster, command);
    assert_true(names->elements >= at_least);
    for (size_t i = 0; i < names->elements; i++) {
        const char *name = names->element[i]->str;
        if (cmd_int(cluster, "CLUSTER KEYSLOT %s", name) != slot)
            fail_msg("%s is in another slot", name);
    }
}

/* Channels of string locks, on which somebody listens. */
static size_t channels_of_strings(void) {
    own_reply *names = cmd(cluster, "PUBSUB CHANNELS holdfast_string*");
    return names->elements;
}

void pair_assert_one_slot(const struct pair *pair, size_t channels) {
    long long slot = cmd_int(cluster, "CLUSTER KEYSLOT %s", pair->full_name);
    assert_slots_of("KEYS *", slot, 1);
    bool strings = channels_of_strings() > 0;
    assert_slots_of("PUBSUB CHANNELS holdfast_string*", slot, 0);
    assert_slots_of("PUBSUB CHANNELS redisson*", slot, strings ? 0 : channels);
}

struct wanted {
    hf_client *client;
    uint64_t number;
};

static bool has_renewed(void *arg) {
    const struct wanted *wanted = arg;
    return world_stats(wanted->client).renewals >= wanted->number;
}

void cluster_wait_renewed(hf_client *client, uint64_t times) {
    struct wanted wanted = {client, world_stats(client).renewals + times};
    assert_true(wait_until(has_renewed, &wanted, HANG_MS));
}

static bool has_listeners(void *arg) {
    (void)arg;
    return channels_of_strings() > 0 || world_channels(cluster) > 0;
}

void cluster_wait_listeners(void) {
    assert_true(wait_until(has_listeners, NULL, HANG_MS));
}
