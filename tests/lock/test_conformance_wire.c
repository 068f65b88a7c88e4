/*
 * What each verb leaves on the server, read with plain commands: section 2 of the wire contract,
 * and the rows about names, types and databases.
 *
 * One hash with the owner's count and a lease, one message `0` on the channel for each full release
 * and none otherwise, and no other key, whatever the name looks like. A foreign owner is written
 * here by hand, as a Java client would leave it.
 */
#include "support/world.h"

#define FOREIGN_OWNER "959df523-2140-467b-adfa-61ac37c187c5:1"

/* A name as bytes, with the key and channel it must lead to. */
struct named {
    const char *name;
    size_t name_len;
    const char *key;
    size_t key_len;
    const char *channel;
    size_t channel_len;
};

static long long field_count(struct server *server, const struct named *n, const char *owner) {
    own_reply *reply = cmd(server, "HGET %b %s", n->key, n->key_len, owner);
    assert_non_null(reply);
    long long count = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
    assert_true(reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL);
    return count;
}

/* The state while it is held: exactly this key, this field, and a lease. */
static void expect_held(struct server *server, const struct named *n, const char *owner,
                        long long count, long long lease_ms) {
    assert_int_equal(cmd_int(server, "DBSIZE"), 1);
    assert_int_equal(cmd_int(server, "HLEN %b", n->key, n->key_len), 1);
    assert_int_equal(field_count(server, n, owner), count);
    long long ttl_ms = cmd_int(server, "PTTL %b", n->key, n->key_len);
    assert_true(ttl_ms > 0 && ttl_ms <= lease_ms);
}

static redisContext *listen_on(struct server *server, const struct named *n) {
    redisContext *listener = server_connect(server);
    assert_non_null(listener);
    redisReply *reply = redisCommand(listener, "SUBSCRIBE %b mark", n->channel, n->channel_len);
    assert_non_null(reply);
    freeReplyObject(reply);
    void *any = NULL;
    assert_int_equal(redisGetReply(listener, &any), REDIS_OK);
    freeReplyObject(any);
    return listener;
}

/* How many messages came on the channel until now; each must be `0`. */
static int messages(struct server *server, redisContext *listener, const struct named *n) {
    cmd_ok(server, "PUBLISH mark now");
    for (int count = 0;; count++) {
        void *any = NULL;
        assert_int_equal(redisGetReply(listener, &any), REDIS_OK);
        redisReply *reply = any;
        assert_int_equal(reply->elements, 3);
        bool mark = strcmp(reply->element[1]->str, "mark") == 0;
        if (!mark) {
            assert_int_equal(reply->element[1]->len, n->channel_len);
            assert_memory_equal(reply->element[1]->str, n->channel, n->channel_len);
            assert_string_equal(reply->element[2]->str, "0");
        }
        freeReplyObject(reply);
        if (mark)
            return count;
    }
}

/* The whole life of a lock, with every step's state. */
static void live_through(struct world *w, hf_client *client, const struct named *n) {
    struct server *server = w->server;
    char owner[64];
    world_owner_text(client, hf_owner_self(), owner);
    own_context *listener = listen_on(server, n);
    own_lock *lock = made(new_lock, client, HF_PLAIN, n->name, n->name_len);
    size_t len = 0;
    assert_memory_equal(hf_lock_name(lock, &len), n->name, n->name_len);
    assert_int_equal(len, n->name_len);

    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    expect_held(server, n, owner, 1, 60000);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    expect_held(server, n, owner, 2, 60000);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    expect_held(server, n, owner, 1, 60000);
    assert_int_equal(messages(server, listener, n), 0);
    assert_int_equal(hf_lock_extend(lock, 90000), HF_OK);
    assert_true(cmd_int(server, "PTTL %b", n->key, n->key_len) > 60000);
    expect_held(server, n, owner, 1, 90000);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(world_keys(server), 0);
    assert_int_equal(messages(server, listener, n), 1);

    assert_int_equal(hf_lock_release(lock), HF_ENOTOWNER);
    assert_int_equal(messages(server, listener, n), 0);
    bool broken = false;
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_break(lock, &broken), HF_OK);
    assert_true(broken);
    assert_int_equal(world_keys(server), 0);
    assert_int_equal(messages(server, listener, n), 1);
    assert_int_equal(hf_lock_break(lock, &broken), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    assert_int_equal(messages(server, listener, n), 0);
    assert_int_equal(world_keys(server), 0);
}

static bool somebody_listens(void *server) {
    return world_channels(server) > 0;
}

#define LITERAL(text) (text), sizeof(text) - 1

CASE(wire_state_after_every_verb) {
    OWN(world_end) struct world w;
    static const struct named names[] = {
        {LITERAL("job"), LITERAL("job"), LITERAL("redisson_lock__channel:{job}")},
        {LITERAL("{t}job"), LITERAL("{t}job"), LITERAL("redisson_lock__channel:{t}job")},
        {LITERAL("a{b}c"), LITERAL("a{b}c"), LITERAL("redisson_lock__channel:a{b}c")},
        {LITERAL("odd{"), LITERAL("odd{"), LITERAL("redisson_lock__channel:odd{")},
        {LITERAL("odd}"), LITERAL("odd}"), LITERAL("redisson_lock__channel:{odd}}")},
        {LITERAL("grün %s %b"), LITERAL("grün %s %b"),
         LITERAL("redisson_lock__channel:{grün %s %b}")},
    };
    world_begin(&w, NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        live_through(&w, w.client, &names[i]);
}

CASE(U07_binary_names) {
    OWN(world_end) struct world w;
    static const struct named names[] = {
        {LITERAL("a\0b"), LITERAL("a\0b"), LITERAL("redisson_lock__channel:{a\0b}")},
        {LITERAL("\0"), LITERAL("\0"), LITERAL("redisson_lock__channel:{\0}")},
        {LITERAL("x\r\nFLUSHALL\r\n"), LITERAL("x\r\nFLUSHALL\r\n"),
         LITERAL("redisson_lock__channel:{x\r\nFLUSHALL\r\n}")},
        {LITERAL("$3\r\nfoo\r\n"), LITERAL("$3\r\nfoo\r\n"),
         LITERAL("redisson_lock__channel:{$3\r\nfoo\r\n}")},
        {LITERAL("\xff\xfe\xc0\x80"), LITERAL("\xff\xfe\xc0\x80"),
         LITERAL("redisson_lock__channel:{\xff\xfe\xc0\x80}")},
    };
    world_begin(&w, NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        live_through(&w, w.client, &names[i]);
}

/* Names that differ only behind a NUL are different locks, in the process and at the server. */
WORLD_CASE(U07_nothing_ends_at_a_nul) {
    own_lock *one = made(new_lock, w->client, HF_PLAIN, "n\0one", 5);
    own_lock *two = made(new_lock, w->client, HF_PLAIN, "n\0two", 5);
    assert_int_equal(hf_lock_acquire(one), HF_OK);
    assert_int_equal(hf_lock_release(two), HF_ENOTOWNER);
    assert_int_equal(hf_lock_remaining_ms(two), 0);
    assert_int_equal(hf_lock_try(two), HF_OK);
    assert_int_equal(world_keys(w->server), 2);
    assert_int_equal(hf_lock_release(one), HF_OK);
    assert_int_equal(hf_lock_release(two), HF_OK);
}

CASE(name_prefix_goes_before_key_and_channel) {
    OWN(world_end) struct world w;
    static const struct {
        const char *prefix;
        struct named named;
    } rows[] = {
        {"app:", {LITERAL("job"), LITERAL("app:job"), LITERAL("redisson_lock__channel:{app:job}")}},
        {"{app}:",
         {LITERAL("job"), LITERAL("{app}:job"), LITERAL("redisson_lock__channel:{app}:job")}},
        {"app:", {LITERAL("{j}"), LITERAL("app:{j}"), LITERAL("redisson_lock__channel:app:{j}")}},
    };
    world_begin(&w, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hf_options options = world_options();
        options.name_prefix = rows[i].prefix;
        own_client *client = made(hf_open, server_url(w.server), &options);
        live_through(&w, client, &rows[i].named);
    }
}

WORLD_CASE(U04_no_name_is_refused) {
    hf_lock *lock = w->lock;
    uint64_t commands = world_stats(w->client).commands;
    assert_int_equal(hf_lock_new(w->client, NULL, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new(w->client, "", &lock), HF_EINVAL);
    assert_int_equal(new_lock(w->client, HF_PLAIN, NULL, 5, &lock), HF_EINVAL);
    assert_int_equal(new_lock(w->client, HF_PLAIN, "x", 0, &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new(NULL, "x", &lock), HF_EINVAL);
    assert_int_equal(hf_lock_new(w->client, "x", NULL), HF_EINVAL);
    assert_ptr_equal(lock, w->lock);
    assert_int_equal(world_stats(w->client).commands, commands);
}

WORLD_CASE(U08_huge_names) {
    const size_t longest = 65535;
    own_text *name = malloc(1 << 20);
    assert_non_null(name);
    memset(name, 'n', 1 << 20);
    struct named n = {.name = name, .name_len = longest, .key = name, .key_len = longest};
    own_text *channel = malloc(longest + 64);
    assert_non_null(channel);
    n.channel = channel;
    n.channel_len = (size_t)sprintf(channel, "redisson_lock__channel:{");
    memcpy(channel + n.channel_len, name, longest);
    n.channel_len += longest;
    channel[n.channel_len++] = '}';
    live_through(w, w->client, &n);

    /* Contended too: waiting makes names of its own. */
    hf_lock *mine = made(new_lock, w->client, HF_PLAIN, name, longest);
    hf_lock *theirs = made(new_lock, w->rival, HF_PLAIN, name, longest);
    assert_int_equal(hf_lock_acquire(theirs), HF_OK);
    struct world_caller waiter;
    world_call_acquire(&waiter, mine, world_wait_for(5000, HF_WATCHDOG));
    assert_true(wait_until(somebody_listens, w->server, HANG_MS));
    assert_int_equal(hf_lock_release(theirs), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(mine, waiter.owner), HF_OK);
    hf_lock_free(mine);
    hf_lock_free(theirs);

    hf_lock *lock = NULL;
    assert_int_equal(new_lock(w->client, HF_PLAIN, name, longest + 1, &lock), HF_EINVAL);
    assert_int_equal(new_lock(w->client, HF_PLAIN, name, 1 << 20, &lock), HF_EINVAL);
    assert_null(lock);
}

/* ---- Leases ---- */

static void acquire_lease(hf_lock *lock, int64_t lease_ms) {
    hf_acquire_options options = world_wait_for(0, lease_ms);
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_OK);
}

WORLD_CASE(reentry_never_shortens) {
    acquire_lease(w->lock, 60000);
    acquire_lease(w->lock, 500);
    assert_true(pttl(w->server, WORLD_NAME) > 30000);
    assert_true(hf_lock_remaining_ms(w->lock) > 30000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(pttl(w->server, WORLD_NAME) > 30000);
    assert_int_equal(hf_lock_extend(w->lock, 100), HF_OK);
    assert_true(pttl(w->server, WORLD_NAME) > 30000);
    assert_true(hf_lock_remaining_ms(w->lock) > 30000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);

    acquire_lease(w->lock, 5000);
    acquire_lease(w->lock, 90000);
    assert_true(pttl(w->server, WORLD_NAME) > 60000);
    assert_true(hf_lock_remaining_ms(w->lock) > 60000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

static bool renewed(void *client) {
    return world_stats(client).renewals > 0;
}

/* The rule: renewed from the first acquire that asks for the watchdog, until the full release. */
CASE(U74_watchdog_then_lease_through_two_handles) {
    for (int watchdog_first = 0; watchdog_first <= 1; watchdog_first++) {
        struct world w;
        hf_options options = world_options();
        options.watchdog_ms = ENDURING_MS;
        world_begin(&w, &options);
        hf_lock *again = made(hf_lock_new, w.client, WORLD_NAME);
        acquire_lease(w.lock, watchdog_first ? HF_WATCHDOG : ENDURING_MS);
        acquire_lease(again, watchdog_first ? ENDURING_MS : HF_WATCHDOG);
        assert_int_equal(hf_lock_release(w.lock), HF_OK); /* the inner one, by whichever handle */
        /* longer than both leases */
        assert_true(HOLDS_FOR(hf_lock_remaining_ms(w.lock) > 0, ENDURING_MS + 1000));
        assert_int_equal(world_count(&w, w.owner), 1);
        assert_true(hf_lock_remaining_ms(w.lock) > 0);
        assert_true(renewed(w.client));
        assert_int_equal(hf_lock_release(again), HF_OK);
        assert_true(world_free(&w));
        hf_lock_free(again);
        world_end(&w);
    }
}

WORLD_CASE_WITH(U74_fixed_leases_are_never_renewed, world_options(), options.watchdog_ms = 900) {
    int64_t start_ms = now_ms();
    acquire_lease(w->lock, 3000); /* not over before the other is asked for */
    acquire_lease(w->lock, 100);
    assert_true(world_wait_free(w, HANG_MS));
    assert_true(now_ms() - start_ms >= 3000);
    assert_int_equal(world_stats(w->client).renewals, 0);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

/* ---- Others at the same name ---- */

WORLD_CASE(foreign_owner_is_respected) {
    cmd_ok(w->server, "HINCRBY %s %s 1", WORLD_NAME, FOREIGN_OWNER);
    cmd_ok(w->server, "PEXPIRE %s 50000", WORLD_NAME);
    bool locked = false, mine = true;
    int64_t count = -1;
    assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
    assert_int_equal(hf_lock_acquire_for(w->lock, 50), HF_ETIMEDOUT);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_extend(w->lock, 90000), HF_ENOTOWNER);
    assert_int_equal(hf_lock_is_locked(w->lock, &locked), HF_OK);
    assert_int_equal(hf_lock_is_mine(w->lock, &mine), HF_OK);
    assert_int_equal(hf_lock_hold_count(w->lock, &count), HF_OK);
    assert_true(locked && !mine && count == 0);
    assert_int_equal(world_count(w, FOREIGN_OWNER), 1);
    assert_true(pttl(w->server, WORLD_NAME) <= 50000);

    hf_lock_info *info = NULL;
    assert_int_equal(hf_lock_inspect(w->lock, &info), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_PLAIN);
    assert_int_equal(info->holders_len, 1);
    assert_string_equal(info->holders[0]->owner, FOREIGN_OWNER);
    assert_int_equal(info->holders[0]->count, 1);
    assert_null(info->holders[0]->connection);
    hf_lock_info_free(info);

    /* It unlocks as Redisson does: DEL and a message. */
    struct world_caller waiter;
    world_call_acquire(&waiter, w->lock, world_wait_for(5000, HF_WATCHDOG));
    assert_true(wait_until(somebody_listens, w->server, HANG_MS));
    cmd_ok(w->server, "DEL %s", WORLD_NAME);
    cmd_ok(w->server, "PUBLISH %s 0", WORLD_CHANNEL);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
}

/* Every verb on something that is no lock: its own error, and nothing is changed. */
static void expect_wrong_type(struct world *w) {
    bool broken = true;
    own_reply *before = cmd(w->server, "DUMP %s", WORLD_NAME);
    assert_int_equal(hf_lock_try(w->lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_acquire_for(w->lock, 5000), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_break(w->lock, &broken), HF_EWRONGTYPE);
    assert_true(broken);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    own_reply *after = cmd(w->server, "DUMP %s", WORLD_NAME);
    assert_int_equal(before->len, after->len);
    assert_memory_equal(before->str, after->str, before->len);
}

WORLD_CASE(U67_U68_other_keys_are_refused) {
    static const char *const makers[] = {
        "SET guarded text",
        "RPUSH guarded item",
        "SADD guarded item",
        "ZADD guarded 1 item",
        "HSET guarded mode read " FOREIGN_OWNER " 1",
        "HSET guarded mode write " FOREIGN_OWNER ":write 1",
    };
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        cmd_ok(w->server, makers[i]);
        expect_wrong_type(w);
        cmd_ok(w->server, "DEL %s", WORLD_NAME);
    }
    assert_int_equal(hf_lock_try(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

WORLD_CASE(U67_text_where_the_count_should_be) {
    int64_t count = -1;
    cmd_ok(w->server, "HSET %s %s text", WORLD_NAME, w->owner);
    assert_int_equal(hf_lock_try(w->lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_hold_count(w->lock, &count), HF_EWRONGTYPE);
    assert_int_equal(count, -1);
}

WORLD_CASE(U66_two_databases) {
    char url[256];
    hf_options options = world_options();
    snprintf(url, sizeof url, "%s?db=1", server_url(w->server));
    own_client *client = made(hf_open, url, &options);
    own_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_try(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);

    /* Databases share the channel: a release in the other database wakes a waiter here, which must
     * continue to wait. */
    struct world_caller waiter;
    world_call_acquire(&waiter, w->rival_lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(somebody_listens, w->server, HANG_MS));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(hf_lock_try(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w->rival_lock, waiter.owner), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
