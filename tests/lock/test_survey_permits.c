/*
 * Permits in a survey, as the server has them: those of ours, of Java (written here by hand, as it does),
 * of clients that tell nothing or are stopped; and what only looks like them.
 */
#include "lock/surveys.h"

#define POOL "pool"
#define POOL_SET "{" POOL "}:timeout"
#define NEVER "922337203685477"

static const hf_fleet_party *holder_of(const hf_fleet_lock *lock, const char *owner) {
    for (size_t i = 0; i < lock->holders_len; i++)
        if (strcmp(lock->holders[i]->owner, owner) == 0)
            return lock->holders[i];
    return NULL;
}

static hf_permits *new_pool(hf_client *client, const char *name, int64_t number) {
    bool set;
    hf_permits *permits = made(hf_permits_new, client, name);
    assert_int_equal(hf_permits_try_set(permits, number, &set), HF_OK);
    return permits;
}

/* ---- Permits of ours ---- */

WORLD_CASE_WITH(a_permit_and_its_waiter, reporting(0)) {
    hf_permit_id id, wanted_id;
    own_op *op;
    own_permits *permits = new_pool(w->client, POOL, 1);
    own_permits *wanted = new_pool(w->rival, POOL, 1);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    assert_int_equal(hf_permits_acquire_start(wanted, NULL, &wanted_id, NULL, NULL, &op), HF_OK);
    struct reported reported = {
        .client = w->client, .name = POOL, .holders = 1, .waiters = 1, .listeners = 1};
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    const hf_fleet_lock *lock = find(reported.fleet, POOL);
    assert_string_equal(lock->kind, "permits");
    assert_int_equal(lock->available, 0);
    assert_false(lock->disputed);
    assert_int_equal(lock->holders_len, 1);
    const hf_fleet_party *holder = lock->holders[0];
    assert_string_equal(holder->owner, id.text);
    assert_int_equal(holder->seen_by, HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT);
    assert_string_equal(holder->client->id, hf_client_id(w->client));
    assert_int_equal(holder->presence, HF_PRESENCE_ALIVE);
    assert_true(holder->renewed && holder->for_ms >= 0);
    assert_true(holder->remaining_ms > 0 && holder->remaining_ms <= 60000);
    assert_true(lock->ttl_ms > 0 && lock->ttl_ms <= 60000);
    assert_string_equal(lock->waiters[0]->client->id, hf_client_id(w->rival));
    hf_fleet_free(reported.fleet);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_OK);
}

/* Nobody knows whose it is; but that it is taken. */
WORLD_CASE_WITH(a_permit_without_a_reporting_client, reporting(-1)) {
    hf_permit_id id;
    own_permits *permits = new_pool(w->client, POOL, 3);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    hf_fleet *fleet = survey(w->rival, NULL);
    const hf_fleet_lock *lock = find(fleet, POOL);
    assert_non_null(lock);
    assert_int_equal(lock->available, 2);
    assert_string_equal(lock->holders[0]->owner, id.text);
    assert_int_equal(lock->holders[0]->seen_by, HF_SEEN_BY_SERVER);
    assert_int_equal(lock->holders[0]->presence, HF_PRESENCE_UNKNOWN);
    assert_null(lock->holders[0]->client);
    hf_fleet_free(fleet);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
}

struct keeping {
    const char *url;
    struct barrier *begun, *taken;
};

static int keep_a_permit(void *arg) {
    const struct keeping *keeping = arg;
    hf_options options = reporting(0);
    hf_client *client;
    hf_permits *permits;
    hf_permit_id id;
    bool set;
    if (!barrier_wait(keeping->begun, HANG_MS) ||
        hf_open(keeping->url, &options, &client) != HF_OK ||
        hf_permits_new(client, POOL, &permits) != HF_OK ||
        hf_permits_try_set(permits, 2, &set) != HF_OK ||
        hf_permits_acquire(permits, &id) != HF_OK || !barrier_wait(keeping->taken, HANG_MS))
        return 1;
    return child_waits_for_ever(NULL);
}

CASE(a_permit_of_a_stopped_client) {
    OWN(world_end) struct world w;
    struct keeping keeping = {
        .url = server_url(world_server()), .begun = barrier_new(2), .taken = barrier_new(2)};
    pid_t keeper = run_child(keep_a_permit, &keeping);
    world_begin(&w, NULL);
    assert_true(barrier_wait(keeping.begun, HANG_MS));
    assert_true(barrier_wait(keeping.taken, HANG_MS));
    struct reported reported = {.client = w.rival, .name = POOL, .holders = 1};
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    stop_process(keeper);
    reported.holders = 0; /* nobody says so any more, */
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    const hf_fleet_lock *lock = find(reported.fleet, POOL);
    assert_int_equal(lock->holders_len, 1); /* and it is taken all the same */
    assert_int_equal(lock->available, 1);
    hf_fleet_free(reported.fleet);
    kill_child(keeper);
    barrier_free(keeping.begun);
    barrier_free(keeping.taken);
}

/* The server has lost it, and its client does not know yet. */
CASE(a_permit_that_the_server_does_not_have_is_disputed) {
    OWN(world_end) struct world w;
    hf_permit_id ids[2];
    hf_permits_options two = HF_PERMITS_OPTIONS_INIT;
    two.count = 2;
    hf_options options = reporting(0);
    world_begin(&w, &options);
    own_permits *permits = new_pool(w.client, POOL, 2);
    assert_int_equal(hf_permits_acquire_with(permits, &two, ids), HF_OK);
    struct reported reported = {.client = w.rival, .name = POOL, .holders = 2, .listeners = -1};
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    assert_false(find(reported.fleet, POOL)->disputed);
    assert_int_equal(cmd_int(w.server, "ZREMRANGEBYRANK " POOL_SET " 0 0"), 1);
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    assert_true(find(reported.fleet, POOL)->disputed);
    assert_int_equal(cmd_int(w.server, "DEL " POOL_SET), 1);
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    assert_true(find(reported.fleet, POOL)->disputed);
    assert_int_equal(find(reported.fleet, POOL)->ttl_ms, -2);
    hf_fleet_free(reported.fleet);
}

/* A user without the right to read them does not dispute the clients' claims, and sees the rest. */
CASE(without_rights_nothing_is_disputed) {
    OWN(world_end) struct world w;
    static const struct {
        const char *rights;
        bool sees_locks;
    } users[] = {{"~* -zrange", true}, {"~* -zcount", true}, {"~* -strlen", true}, {"~x*", false}};
    hf_permit_id id;
    hf_options options = reporting(0), as = world_options();
    world_begin(&w, &options);
    own_permits *permits = new_pool(w.client, POOL, 2);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    as.user = "less";
    as.password = "secret";
    for (size_t i = 0; i < sizeof users / sizeof users[0]; i++) {
        hf_client *less;
        own_text *command =
            text_of("ACL SETUSER less reset on >secret +@all allchannels %s", users[i].rights);
        cmd_ok(w.server, command);
        assert_int_equal(hf_open(server_url(w.server), &as, &less), HF_OK);
        struct reported reported = {.client = less, .name = POOL, .holders = 1, .listeners = -1};
        assert_true(wait_until(is_reported, &reported, HANG_MS));
        const hf_fleet_lock *pool = find(reported.fleet, POOL),
                            *lock = find(reported.fleet, WORLD_NAME);
        assert_int_equal(pool->ttl_ms, -2);
        assert_int_equal(pool->available, -1);
        assert_false(pool->disputed);
        assert_non_null(lock);
        assert_false(lock->disputed);
        assert_int_equal(lock->ttl_ms != -2, users[i].sees_locks);
        hf_fleet_free(reported.fleet);
        assert_int_equal(hf_close(less), HF_OK);
        cmd_ok(w.server, "ACL DELUSER less");
    }
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
}

/* Those in docs/redisson.md, and what it takes to connect. */
WORLD_CASE_WITH(the_documented_rights_are_enough, reporting(-1)) {
    hf_options as = world_options();
    hf_permit_id id;
    hf_client *client;
    hf_lock *group;
    const hf_bytes values[] = {{"one", 3}};
    cmd_ok(
        w->server,
        "ACL SETUSER looks reset on >secret ~* resetchannels &holdfast_ask &holdfast_tell:* +@connection "
        "+time +info +role +subscribe +unsubscribe +scan +eval +hlen +hrandfield +hgetall +hscan +pttl +llen "
        "+lrange +pubsub|numsub +client|list +publish +strlen +get +zcount +zrange +hmget");
    hf_permits *permits = new_pool(w->client, POOL, 2);
    assert_int_equal(hf_lock_new_group(w->client, "group", 5, values, 1, &group), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    assert_int_equal(hf_lock_acquire(group), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    as.user = "looks";
    as.password = "secret";
    assert_int_equal(hf_open(server_url(w->server), &as, &client), HF_OK);
    hf_fleet *fleet = survey(client, NULL);
    assert_int_equal(fleet->missing, 0);
    assert_int_equal(fleet->locks_len, 3);
    for (size_t i = 0; i < fleet->locks_len; i++) {
        assert_int_equal(fleet->locks[i]->holders_len, 1);
        assert_true(fleet->locks[i]->ttl_ms > 0);
        assert_int_equal(fleet->locks[i]->listeners, 0);
    }
    hf_fleet_free(fleet);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(group), HF_OK);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    hf_lock_free(group);
    hf_permits_free(permits);
    cmd_ok(w->server, "ACL DELUSER looks");
}

/* ---- As Java writes them ---- */

static void add_taken(struct server *server, const char *set, const char *score, const char *id,
                      size_t len) {
    assert_int_equal(cmd_int(server, "ZADD %s %s %b", set, score, id, len), 1);
}

WORLD_CASE(permits_of_java) {
    static const char id[] = "\x00\x01\xfe\xff{}\"\n01234567";
    char score[32];
    cmd_ok(w->server, "SET " POOL " 2");
    add_taken(w->server, POOL_SET, score_after(w->server, 50000, score), id, 16);
    add_taken(w->server, POOL_SET, NEVER, "neverends1234567", 16);
    add_taken(w->server, POOL_SET, score_after(w->server, 40000, score),
              "0123456789abcdef0123456789abcdef", 32); /* before 3.17 */
    add_taken(w->server, POOL_SET, score_after(w->server, -5000, score), "hasended12345678", 16);
    own_fleet *fleet = survey(w->rival, NULL);
    assert_int_equal(fleet->locks_len, 1);
    const hf_fleet_lock *lock = find(fleet, POOL);
    assert_string_equal(lock->kind, "permits");
    assert_int_equal(lock->available, 3);
    assert_int_equal(lock->ttl_ms, -1);
    assert_int_equal(lock->left_out, 0);
    assert_int_equal(lock->holders_len, 3);
    const hf_fleet_party *holder = holder_of(lock, "0001feff7b7d220a3031323334353637");
    assert_non_null(holder);
    assert_true(holder->remaining_ms > 40000 && holder->remaining_ms <= 50000);
    holder = holder_of(lock, "6e65766572656e647331323334353637");
    assert_non_null(holder);
    assert_int_equal(holder->remaining_ms, -1);
    assert_non_null(holder_of(lock, "0123456789abcdef0123456789abcdef"));
}

WORLD_CASE(foreign_members_are_no_permits) {
    char score[32];
    score_after(w->server, 50000, score);
    cmd_ok(w->server, "MSET a 1 b 1 d word e 1 f 1 g 1");
    add_taken(w->server, "a:timeout", score, "0123456789abcdef", 16);
    add_taken(w->server, "{b}:timeout", score, "joe", 3);
    add_taken(w->server, "{c}:timeout", score, "0123456789abcdef", 16);
    add_taken(w->server, "{d}:timeout", score, "0123456789abcdef", 16);
    add_taken(w->server, "{e}:timeout", "99999999999999.5", "0123456789abcdef", 16);
    add_taken(w->server, "{f}:timeout", "12", "0123456789abcdef", 16);
    add_taken(w->server, "{g}:timeouts", score, "0123456789abcdef", 16);
    add_taken(w->server, ":timeout", score, "0123456789abcdef", 16);
    add_taken(w->server, "{}:timeout", score, "0123456789abcdef", 16);
    assert_int_equal(cmd_int(w->server, "HSET {h} a b"), 1);
    add_taken(w->server, "{h}:timeout", score, "0123456789abcdef", 16);
    own_fleet *fleet = survey(w->rival, NULL);
    assert_int_equal(fleet->locks_len, 0);
    assert_int_equal(fleet->missing, 0);
}

/* A hundred of each are reported, and no script has to read them all. */
WORLD_CASE(many_permits_of_many_names) {
    enum { POOLS = 30, TAKEN = 1000 };
    static const char fill[] =
        "for i = 1, 30 do redis.call('set', 'pool' .. i, 7) for k = 1, 1000 do redis.call('zadd', "
        "'{pool' .. i .. '}:timeout', 4102444800000 + k, string.format('%08d%08d', i, k)) end end "
        "return 1";
    assert_int_equal(cmd_int(w->server, "EVAL %s 0", fill), 1);
    long long scripts = server_calls(w->server, "eval");
    own_fleet *fleet = survey(w->rival, "pool*");
    assert_true(server_calls(w->server, "eval") - scripts >= POOLS / 2);
    assert_int_equal(fleet->missing, 0);
    assert_int_equal(fleet->locks_len, POOLS);
    for (size_t i = 0; i < POOLS; i++) {
        assert_int_equal(fleet->locks[i]->holders_len, 100);
        assert_int_equal(fleet->locks[i]->left_out, TAKEN - 100);
        assert_int_equal(fleet->locks[i]->available, 7);
        assert_true(fleet->locks[i]->ttl_ms > fleet->locks[i]->holders[0]->remaining_ms);
    }
}

/* "{b}" and "b" have one set, and are two names. */
WORLD_CASE(names_prefixes_and_databases_are_kept_apart) {
    static const char *const names[] = {"plain", "a{b}c", "{", "a:timeout", "b}", "x\n\xff*"};
    enum { NAMES = sizeof names / sizeof names[0] };
    char url[512];
    hf_permits *permits[NAMES];
    hf_options options = reporting(-1);
    options.name_prefix = "app*:";
    snprintf(url, sizeof url, "%s?db=3", server_url(w->server));
    own_client *client = made(hf_open, url, &options);
    options.name_prefix = "{tag}";
    own_client *other = made(hf_open, url, &options);
    hf_permit_id id;
    for (int i = 0; i < NAMES; i++) {
        permits[i] = new_pool(client, names[i], 2);
        assert_int_equal(hf_permits_acquire(permits[i], &id), HF_OK);
    }
    own_permits *tagged = new_pool(other, "plain", 2);
    assert_int_equal(hf_permits_acquire(tagged, &id), HF_OK);
    hf_fleet *fleet = survey(client, NULL);
    assert_int_equal(fleet->locks_len, NAMES);
    for (int i = 0; i < NAMES; i++)
        assert_int_equal(find(fleet, names[i])->available, 1);
    hf_fleet_free(fleet);
    fleet = survey(client, "pl*n");
    assert_int_equal(fleet->locks_len, 1);
    hf_fleet_free(fleet);
    fleet = survey(other, NULL);
    assert_int_equal(fleet->locks_len, 1);
    assert_non_null(find(fleet, "plain"));
    hf_fleet_free(fleet);
    fleet = survey(w->rival, NULL);
    assert_int_equal(fleet->locks_len, 0);
    hf_fleet_free(fleet);
    for (int i = 0; i < NAMES; i++)
        hf_permits_free(permits[i]);
}

RUN_CASES(world_start_server, world_stop_server)
