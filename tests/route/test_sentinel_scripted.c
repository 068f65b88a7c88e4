/*
 * Sentinels with answers that real ones give only by accident: outdated state, a replica, an
 * address that is reachable only elsewhere, another server every moment. The servers are real.
 */
#include "route/scripted.h"

#include "route/scene.h"
#include "support/crowd.h"
#include "support/proxy.h"

static void url_of(struct scripted *const *sentinels, size_t len, char *url, size_t size) {
    int at = snprintf(url, size, "redis-sentinel://");
    for (size_t i = 0; i < len; i++)
        at += snprintf(url + at, size - (size_t)at, "%s" LOCALHOST ":%d", i > 0 ? "," : "",
                       scripted_port(sentinels[i]));
    snprintf(url + at, size - (size_t)at, "/" SCRIPTED_NAME);
}

static hf_client *open_on(struct scripted *const *sentinels, size_t len) {
    char url[256];
    hf_options options = scene_options();
    options.cmd_timeout_ms = HANG_MS;
    url_of(sentinels, len, url, sizeof url);
    return made(hf_open, url, &options);
}

/* All connections of clients end. */
static void cut_off(struct server *server) {
    freeReplyObject(cmd(server, "CLIENT KILL TYPE normal"));
    freeReplyObject(cmd(server, "CLIENT KILL TYPE pubsub"));
}

/* ---- Out of date ---- */

CASE(an_older_epoch_is_ignored) {
    struct scripted *sentinels[] = {scripted_start(), scripted_start()};
    scripted_name(sentinels[0], LOCALHOST, server_port(scripted_servers[0]), 5);
    scripted_name(sentinels[1], LOCALHOST, server_port(scripted_servers[1]), 3);
    scripted_hide(sentinels[1], true); /* else it is asked if the other is slow, and believed */
    hf_client *client = open_on(sentinels, 2);
    assert_int_equal(hf_ping(client), HF_OK);
    scripted_hide(sentinels[1], false);
    long long before = server_calls(scripted_servers[1], "evalsha");
    scripted_hide(sentinels[0], true);
    cut_off(scripted_servers[0]); /* so that somebody is asked, who is the other now */
    assert_true(scripted_wait_asked(sentinels[1], 1, HANG_MS));
    hf_lock *lock = scene_lock(client, HF_PLAIN, "stale");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(key_exists(scripted_servers[0], "stale"));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(server_calls(scripted_servers[1], "evalsha"), before);
    assert_int_equal(scene_stats(client).failovers, 0);

    scripted_name(sentinels[1], LOCALHOST, server_port(scripted_servers[1]),
                  6); /* it has caught up */
    cut_off(scripted_servers[0]);
    assert_true(scene_wait_switches(client, 1));
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(key_exists(scripted_servers[1], "stale"));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinels[0]);
    scripted_free(sentinels[1]);
}

/* Not one of them, but all, and for a while: they were set up anew. Ten seconds, so only where there is time. */
CASE(all_that_begin_anew_are_believed) {
    if (getenv("HF_SOAK") == NULL)
        return;
    struct scripted *sentinels[] = {scripted_start(), scripted_start()};
    for (int i = 0; i < 2; i++)
        scripted_name(sentinels[i], LOCALHOST, server_port(scripted_servers[0]), 5);
    hf_client *client = open_on(sentinels, 2);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "anew");
    assert_int_equal(hf_lock_acquire(lock), HF_OK); /* so that somebody looks */
    int64_t start_ms = now_ms();
    for (int i = 0; i < 2; i++)
        scripted_name(sentinels[i], LOCALHOST, server_port(scripted_servers[1]), 0);
    assert_true(scene_wait_switches(client, 1));
    assert_true(now_ms() - start_ms >= 9000);
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinels[0]);
    scripted_free(sentinels[1]);
}

/* Some services have sentinels that tell no epoch. */
CASE(no_epoch_is_fine) {
    struct scripted *sentinel = scripted_start();
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[0]), -1);
    hf_client *client = open_on(&sentinel, 1);
    assert_int_equal(hf_ping(client), HF_OK);
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[1]), -1);
    cut_off(scripted_servers[0]);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "no-epoch");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(scene_wait_switches(client, 1));
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinel);
}

/* ---- Errors ---- */

/* Cuts the next primary off as soon as the client has switched to it. */
static void cut_off_next(hf_log_level level, const char *message, void *next) {
    (void)level;
    if (strstr(message, "the primary is now") != NULL)
        proxy_blackhole(next, true, true);
}

/* The last error is the old server's; the new one does not finish a handshake. */
CASE(an_error_keeps_the_name_of_its_server) {
    static const char readonly[] = "-READONLY You can't write against a read only replica.\r\n";
    char url[256], node[64];
    struct scripted *sentinel = scripted_start();
    struct proxy *former = proxy_start_tcp(server_port(scripted_servers[0]), PROXY_RESP);
    struct proxy *next = proxy_start_tcp(server_port(scripted_servers[1]), PROXY_RESP);
    hf_options options = scene_options();
    options.log = cut_off_next;
    options.log_user = next;
    scripted_name(sentinel, LOCALHOST, proxy_port(former), 5);
    url_of(&sentinel, 1, url, sizeof url);
    hf_client *client = made(hf_open, url, &options);
    assert_int_equal(hf_ping(client), HF_OK);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "named");
    for (int i = 0; i < 100; i++)
        proxy_answer_instead(former, "EVAL", readonly, strlen(readonly));
    scripted_name(sentinel, LOCALHOST, proxy_port(next), 6);
    assert_int_equal(hf_lock_acquire_for(lock, 3000), HF_EUNAVAILABLE);
    assert_int_equal(scene_stats(client).failovers, 1);
    assert_non_null(strstr(hf_last_error()->text, "READONLY"));
    snprintf(node, sizeof node, LOCALHOST ":%d", proxy_port(former));
    assert_string_equal(hf_last_error()->node, node);
    proxy_heal(next);
    hf_lock_free(lock);
    hf_close(client);
    proxy_free(former);
    proxy_free(next);
    scripted_free(sentinel);
}

/* ---- Confirmed by most ---- */

struct renewed {
    hf_client *client;
    uint64_t at_least;
};

static bool was_renewed(void *arg) {
    const struct renewed *renewed = arg;
    return scene_stats(renewed->client).renewals >= renewed->at_least;
}

static bool wait_renewed(hf_client *client, uint64_t more) {
    struct renewed renewed = {client, scene_stats(client).renewals + more};
    return wait_until(was_renewed, &renewed, HANG_MS);
}

struct confirmed {
    struct scripted *sentinels[3];
    hf_client *client;
};

static void begin_confirmed(struct confirmed *confirmed, int64_t watchdog_ms) {
    hf_options options = scene_options();
    char url[256];
    options.watchdog_ms = watchdog_ms;
    options.sentinel_confirm = 1;
    for (int i = 0; i < 3; i++) {
        confirmed->sentinels[i] = scripted_start();
        scripted_name(confirmed->sentinels[i], LOCALHOST, server_port(scripted_servers[0]), 5);
    }
    url_of(confirmed->sentinels, 3, url, sizeof url);
    assert_int_equal(hf_open(url, &options, &confirmed->client), HF_OK);
}

static void end_confirmed(struct confirmed *confirmed) {
    hf_close(confirmed->client);
    for (int i = 0; i < 3; i++)
        scripted_free(confirmed->sentinels[i]);
}

/* One sentinel may be cut off together with an old primary, and names it for ever. The server is well all the time. */
CASE_IN(a_renewal_counts_while_most_sentinels_name_its_server, struct confirmed, confirmed,
        begin_confirmed, end_confirmed, 6000) {
    struct scene_events events = {0};
    hf_client *client = confirmed->client;
    own_lock *lock = scene_watched_lock(client, HF_PLAIN, "most", &events);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_extend(lock, 6000), HF_OK);
    scripted_hide(confirmed->sentinels[0], true);
    assert_true(wait_renewed(client, 2)); /* the first may have been under way */
    assert_int_equal(atomic_load(&events.losses), 0);

    scripted_hide(confirmed->sentinels[1], true);
    assert_int_equal(hf_lock_extend(lock, 6000), HF_EUNREACH);
    assert_non_null(strstr(hf_last_error()->text, "1 of 3 sentinels confirm the primary"));
    assert_true(scene_wait_losses(&events, 1));
    assert_true(scene_stats(client).renew_failures > 0);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    scripted_hide(confirmed->sentinels[1], false);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(wait_renewed(client, 1));
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* The server has shortened the lease, though the extension does not count. */
CASE_IN(a_shorter_lease_is_not_trusted_longer_without_confirmation, struct confirmed, confirmed,
        begin_confirmed, end_confirmed, 30000) {
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    hf_permit_id id, rival_id;
    own_client *other = made(hf_open, server_url(scripted_servers[0]), NULL);
    own_permits *permits = made(hf_permits_new, confirmed->client, "shorter");
    own_permits *rival = made(hf_permits_new, other, "shorter");
    assert_int_equal(hf_permits_set(permits, 1), HF_OK);
    options.lease_ms = 30000;
    assert_int_equal(hf_permits_acquire_with(permits, &options, &id), HF_OK);
    for (int i = 0; i < 3; i++)
        scripted_hide(confirmed->sentinels[i], true);
    assert_int_equal(hf_permits_extend(permits, &id, HF_NO_LEASE), HF_EUNREACH);
    assert_true(hf_permits_remaining_ms(permits, &id) > 10000); /* it can only last longer */
    assert_int_equal(hf_permits_extend(permits, &id, 1500), HF_EUNREACH);
    assert_true(hf_permits_remaining_ms(permits, &id) <= 1500);
    assert_int_equal(hf_permits_acquire(rival, &rival_id), HF_OK);
    assert_int_equal(hf_permits_remaining_ms(permits, &id), 0);
    assert_int_equal(hf_permits_release(rival, &rival_id), HF_OK);
}

/* It would extend the trust in the hold. */
CASE_IN(a_nested_acquire_counts_while_most_sentinels_name_its_server, struct confirmed, confirmed,
        begin_confirmed, end_confirmed, 30000) {
    own_client *other = made(hf_open, server_url(scripted_servers[0]), NULL);
    own_lock *lock = scene_lock(confirmed->client, HF_PLAIN, "nested");
    own_lock *rival = scene_lock(other, HF_PLAIN, "nested");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 30000;
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_OK);
    for (int i = 0; i < 2; i++)
        scripted_hide(confirmed->sentinels[i], true);
    options.lease_ms = 60000;
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_EUNREACH);
    assert_non_null(strstr(hf_last_error()->text, "1 of 3 sentinels confirm the primary"));
    assert_true(hf_lock_remaining_ms(lock) <= 30000);
    for (int i = 0; i < 2; i++)
        scripted_hide(confirmed->sentinels[i], false);
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_OK);
    assert_true(hf_lock_remaining_ms(lock) > 30000);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_release(lock), HF_OK); /* the one that did not count was undone */
    assert_int_equal(hf_lock_try(rival), HF_OK);
    assert_int_equal(hf_lock_release(rival), HF_OK);
}

/* Twelve renewals and five extensions of a lease of a second, each confirmed. False: it was lost, as it may be if the
 * machine pauses. */
static bool is_kept(struct confirmed *confirmed, hf_lock *lock, struct scene_events *events) {
    int losses = atomic_load(&events->losses);
    uint64_t renewals = scene_stats(confirmed->client).renewals;
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(WAIT_FOR(scene_stats(confirmed->client).renewals >= renewals + 12 ||
                             atomic_load(&events->losses) > losses,
                         HANG_MS));
    bool kept = true;
    for (int i = 0; i < 5 && kept; i++)
        kept = hf_lock_extend(lock, 1000) == HF_OK;
    return hf_lock_release(lock) == HF_OK && kept;
}

/* A confirmation does not wait until the next search is due: then none would come in time. */
CASE_IN(a_short_lease_is_confirmed_in_time, struct confirmed, confirmed, begin_confirmed,
        end_confirmed, 1000) {
    struct scene_events events = {0};
    own_lock *lock = scene_watched_lock(confirmed->client, HF_PLAIN, "short", &events);
    assert_true(WAIT_FOR(is_kept(confirmed, lock, &events), HANG_MS));
}

/* ---- No hosts ---- */

#define HOST_WITH_NUL "$11\r\n127.0.0.1\0x\r\n"

static size_t with_port(char *bytes, size_t size, const char *head, size_t head_len, int port) {
    char text[16];
    int len = snprintf(text, sizeof text, "%d", port);
    memcpy(bytes, head, head_len);
    return head_len +
           (size_t)snprintf(bytes + head_len, size - head_len, "$%d\r\n%s\r\n", len, text);
}

static hf_client *open_through(struct proxy *proxy) {
    own_text *url = text_of("redis-sentinel://" LOCALHOST ":%d/" SCRIPTED_NAME, proxy_port(proxy));
    return made(hf_open, url, NULL);
}

/* What is behind a NUL would be cut off, and the rest is the address of a real server. */
CASE(a_host_with_a_nul_is_none) {
    static const char head[] = "*2\r\n" HOST_WITH_NUL;
    struct scripted *sentinel = scripted_start();
    struct proxy *proxy = proxy_start(scripted_socket(sentinel));
    char bytes[128];
    size_t len =
        with_port(bytes, sizeof bytes, head, sizeof head - 1, server_port(scripted_servers[0]));
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[0]), 5);
    proxy_answer_instead(proxy, "GET-MASTER-ADDR-BY-NAME", bytes, len);
    hf_client *client = open_through(proxy);
    assert_int_equal(hf_ping(client), HF_EUNREACH);
    assert_non_null(strstr(hf_last_error()->text, "the sentinel returned no address"));
    hf_close(client);
    proxy_free(proxy);
    scripted_free(sentinel);
}

/* The sentinel that such an address would lead to is not asked, though the only other one is of no help. */
CASE(a_sentinel_whose_host_has_a_nul_is_none) {
    static const char head[] = "*1\r\n*4\r\n$2\r\nip\r\n" HOST_WITH_NUL "$4\r\nport\r\n";
    struct scripted *sentinel = scripted_start(), *other = scripted_start();
    struct proxy *proxy = proxy_start(scripted_socket(sentinel));
    char bytes[128];
    size_t len = with_port(bytes, sizeof bytes, head, sizeof head - 1, scripted_port(other));
    scripted_name(sentinel, LOCALHOST, 1, 5); /* where no server is */
    scripted_name(other, LOCALHOST, server_port(scripted_servers[0]), 5);
    proxy_answer_instead(proxy, "\r\nSENTINELS\r\n", bytes, len);
    hf_client *client = open_through(proxy);
    assert_int_equal(hf_ping(client), HF_EUNREACH);
    assert_int_equal(proxy_fired(proxy), 1);
    assert_int_equal(scripted_asked(other), 0);
    hf_close(client);
    proxy_free(proxy);
    scripted_free(sentinel);
    scripted_free(other);
}

/* ---- A replica ---- */

CASE(a_replica_gets_nothing_but_a_greeting) {
    const struct server_options options = {.tcp = true};
    own_server *replica = server_start(&options);
    own_text *port = text_of("%d", server_port(scripted_servers[0]));
    cmd_ok(replica, "REPLICAOF " LOCALHOST " %s", port);
    struct monitor *monitor = monitor_start(replica);
    struct scripted *sentinel = scripted_start();
    scripted_name(sentinel, LOCALHOST, server_port(replica), 1);
    hf_client *client = open_on(&sentinel, 1);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "replica");
    struct scene_waiter waiter;
    scene_wait_for(&waiter, lock);
    assert_true(scripted_wait_asked(sentinel, scripted_asked(sentinel) + 2, HANG_MS));
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[0]), 1);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(lock, waiter.owner), HF_OK);
    assert_int_equal(monitor_count(monitor, "EVALSHA"), 0);
    assert_int_equal(monitor_count(monitor, "UBSCRIBE"), 0);
    monitor_stop(monitor);
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinel);
}

/* It was the primary, becomes a replica while we are connected, and says so when it is written to. */
CASE(one_that_becomes_a_replica_is_left) {
    struct scripted *sentinel = scripted_start();
    char port[16];
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[1]), 1);
    hf_client *client = open_on(&sentinel, 1);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "demoted");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    snprintf(port, sizeof port, "%d", server_port(scripted_servers[0]));
    cmd_ok(scripted_servers[1], "REPLICAOF " LOCALHOST " %s", port);
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[0]), 2);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_stats(client).failovers, 1);
    cmd_ok(scripted_servers[1], "REPLICAOF NO ONE");
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinel);
}

/* ---- Addresses ---- */

CASE(announced_addresses_are_mapped) {
    struct scripted *sentinel = scripted_start();
    char url[256];
    hf_options options = scene_options();
    scripted_name(sentinel, "inside.invalid", 6379, 1);
    snprintf(url, sizeof url,
             "redis-sentinel://" LOCALHOST ":%d/" SCRIPTED_NAME
             "?address_map=inside.invalid:6379=" LOCALHOST ":%d",
             scripted_port(sentinel), server_port(scripted_servers[0]));
    hf_client *client = made(hf_open, url, &options);
    assert_int_equal(hf_ping(client), HF_OK);
    hf_close(client);

    *strchr(url, '?') = '\0';
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    assert_int_equal(hf_ping(client), HF_EUNREACH); /* at once: there never was a server */
    assert_non_null(strstr(hf_last_error()->text, "map"));
    hf_close(client);
    scripted_free(sentinel);
}

static bool map_inside(const char *host, uint16_t port, char *ret_host, uint16_t *ret_port,
                       void *user) {
    if (strcmp(host, "inside.invalid") != 0 || port != 6379)
        return false;
    snprintf(ret_host, HF_HOST_SIZE, "%s", LOCALHOST);
    *ret_port = *(const uint16_t *)user;
    return true;
}

/* The application is asked about what the url does not have, and need not know everything. */
CASE(the_application_maps_addresses) {
    struct scripted *sentinel = scripted_start();
    uint16_t real_port = (uint16_t)server_port(scripted_servers[0]);
    char url[256];
    hf_options options = scene_options();
    scripted_name(sentinel, "inside.invalid", 6379, 1);
    url_of(&sentinel, 1, url, sizeof url);
    options.address_map = map_inside;
    options.address_map_user = &real_port;
    hf_client *client = made(hf_open, url, &options);
    assert_int_equal(hf_ping(client), HF_OK);
    assert_int_equal(scene_stats(client).failovers, 0);

    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[1]),
                  2); /* which it leaves alone */
    cut_off(scripted_servers[0]);
    assert_true(scene_wait_switches(client, 1));
    assert_int_equal(hf_ping(client), HF_OK);
    hf_close(client);
    scripted_free(sentinel);
}

/* ---- Another every moment ---- */

struct busy {
    struct crowd *crowd;
    hf_client *client;
    const char *name;
    int rounds, wrong;
};

/* Each server has its own idea of who holds what, so a hold may be lost, or be over before its
 * answer is there; but nothing else happens. */
static void *be_busy(void *arg) {
    struct busy *busy = arg;
    hf_lock *lock;
    if (hf_lock_new(busy->client, busy->name, &lock) != HF_OK)
        return NULL;
    for (; !atomic_load(&busy->crowd->over) && busy->wrong == HF_OK; busy->rounds++) {
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        options.wait_ms = busy->rounds % 3 == 0 ? 50 : HF_FOREVER;
        options.lease_ms = 2000; /* what a server keeps of a hold that was lost ends soon */
        int err = hf_lock_acquire_with(lock, &options, NULL);
        if (err == HF_OK)
            err = hf_lock_release(lock);
        bool late = err == HF_ETIMEDOUT || (options.wait_ms > 0 && err == HF_EUNREACH);
        if (err != HF_OK && err != HF_ELOST && !late)
            busy->wrong = err;
    }
    hf_lock_free(lock);
    return NULL;
}

CASE(another_every_moment) {
    enum { THREADS = 6, CHANGES = 30 };
    struct scripted *sentinel = scripted_start();
    struct busy busy[THREADS];
    struct crowd crowd = {0};
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[0]), 1);
    hf_client *client = open_on(&sentinel, 1);
    hf_lock *held = scene_lock(client, HF_PLAIN, "held");
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    for (int i = 0; i < THREADS; i++) {
        busy[i] =
            (struct busy){.crowd = &crowd, .client = client, .name = i % 2 == 0 ? "even" : "odd"};
        crowd_add(&crowd, be_busy, &busy[i]);
    }
    for (int i = 1; i <= CHANGES; i++) {
        scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[i % 2]), 1 + i);
        cut_off(scripted_servers[(i + 1) % 2]);
        assert_true(scene_wait_switches(client, (uint64_t)i));
    }
    crowd_end(&crowd);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(busy[i].wrong, HF_OK);
    assert_int_equal(hf_lock_release(held), HF_ELOST); /* the other server never had it */
    hf_lock_free(held);
    hf_close(client);
    scripted_free(sentinel);
}

/* The same with callbacks on a thread of the application: its connections are that thread's to end. */
struct turns {
    hf_lock *lock;
    atomic_int done;
    atomic_bool stop;
    atomic_int wrong;
};

static void next_turn(struct turns *turns);

static void on_released(hf_op *op, const hf_result *result, void *user) {
    struct turns *turns = user;
    hf_op_free(op);
    if (result->code != HF_OK && result->code != HF_ELOST)
        turns->wrong = result->code;
    atomic_fetch_add(&turns->done, 1);
    next_turn(turns);
}

static void on_acquired(hf_op *op, const hf_result *result, void *user) {
    struct turns *turns = user;
    hf_op *release;
    hf_owner owner = result->owner;
    int err = result->code;
    hf_op_free(op);
    if (err == HF_OK)
        err = hf_lock_release_start(turns->lock, owner, on_released, turns, &release);
    else if (err == HF_ELOST || err == HF_ETIMEDOUT) /* its lease was over before its answer came */
        next_turn(turns);
    if (err != HF_OK && err != HF_ELOST && err != HF_ETIMEDOUT)
        turns->wrong = err;
}

static void next_turn(struct turns *turns) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    options.lease_ms = 2000;
    if (!atomic_load(&turns->stop) && turns->wrong == HF_OK)
        turns->wrong = hf_lock_acquire_start(turns->lock, &options, on_acquired, turns, &op);
}

static void *dispatch(void *arg) {
    while (hf_dispatch(arg, HF_FOREVER) >= 0)
        continue;
    return NULL;
}

static bool has_turned(void *arg) {
    return atomic_load(&((struct turns *)arg)->done) > 0 || ((struct turns *)arg)->wrong != HF_OK;
}

CASE(another_every_moment_with_manual_dispatch) {
    enum { CHANGES = 10 };
    struct scripted *sentinel = scripted_start();
    hf_options options = scene_options();
    char url[256];
    scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[0]), 1);
    url_of(&sentinel, 1, url, sizeof url);
    options.cmd_timeout_ms = HANG_MS; /* there are several changes in a row */
    options.flags = HF_MANUAL_DISPATCH;
    hf_client *client = made(hf_open, url, &options);
    struct turns turns = {.lock = scene_lock(client, HF_PLAIN, "turns")};
    next_turn(&turns);
    pthread_t thread = started(dispatch, client);
    for (int i = 1; i <= CHANGES; i++) {
        atomic_store(&turns.done, 0);
        assert_true(wait_until(has_turned, &turns, HANG_MS));
        scripted_name(sentinel, LOCALHOST, server_port(scripted_servers[i % 2]), 1 + i);
        cut_off(scripted_servers[(i + 1) % 2]);
        assert_true(scene_wait_switches(client, (uint64_t)i));
    }
    atomic_store(&turns.done, 0);
    assert_true(wait_until(has_turned, &turns, HANG_MS));
    atomic_store(&turns.stop, true);
    hf_close(client);
    pthread_join(thread, NULL);
    assert_int_equal(turns.wrong == HF_ECLOSED ? HF_OK : turns.wrong, HF_OK);
    hf_lock_free(turns.lock);
    scripted_free(sentinel);
}

RUN_CASES(scripted_start_servers, scripted_stop_servers)
