/*
 * A fair lock whose queue begins with clients that are dead: Java clients that count for minutes, crowds of
 * more than one call passes over. A client that lives gets in within seconds of the release, and a Java
 * client that only did not hear at once is not taken for dead.
 *
 * The dead and the Java clients are entries in the keys of the queue, as Redisson writes them; a Java client
 * that lives is a subscriber that takes the lock with Redisson's own steps.
 */
#include "lock/fair.h"

#include <time.h>

#define FIRST 100      /* owners of waiters */
#define GRACE_MS 2000  /* that a Java client has, if nobody hears for it */
#define SOON_MS 7000   /* less than any poll or deadline of the waiters here */
#define LONG_MS 600000 /* until then the dead are believed to be alive */
#define HAND_OVER hfi_script_fair_hand_over.sha1

static long long in_ms(int64_t ms) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* time() may still be in the last second */
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000 + ms;
}

/* A waiter of a Java client, at the end of the queue. */
static void queue_java(struct server *server, const char *owner, int64_t until_ms) {
    cmd_ok(server, "RPUSH " FAIR_QUEUE " %s", owner);
    cmd_ok(server, "ZADD " FAIR_DEADLINES " %lld %s", in_ms(until_ms), owner);
}

static const char queue_many_lua[] =
    "for i = 1, tonumber(ARGV[1]) do local w = ARGV[2] .. ':' .. i\n"
    "redis.call('rpush', KEYS[1], w) redis.call('zadd', KEYS[2], ARGV[3], w)\n"
    "if ARGV[4] == '1' then redis.call('hset', KEYS[3], w, '3000 ' .. i .. ' ' .. ARGV[3]) end end";

/* `len` of them, with records if they are ours. */
static void queue_many(struct server *server, const char *who, int len, int64_t until_ms,
                       bool are_ours) {
    cmd_ok(server, "EVAL %s 3 " FAIR_QUEUE " " FAIR_DEADLINES " " FAIR_RECORDS " %d %s %lld %d",
           queue_many_lua, len, who, in_ms(until_ms), are_ours ? 1 : 0);
}

/* The rival holds it; somebody of ours waits behind the client that is in the queue already. */
static void begin_behind(struct world *w, struct world_caller *waiter,
                         void (*queue)(struct server *server)) {
    fair_begin(w, NULL);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue(w->server);
    queue_up(waiter, w->server, w->client, w->lock, FIRST, world_wait_for(HF_FOREVER, HF_WATCHDOG));
}

/* It comes in between these times after `start_ms`, and nothing stays behind. */
static void assert_comes_in(struct world *w, struct world_caller *waiter, int64_t start_ms,
                            int64_t least_ms, int64_t most_ms) {
    assert_int_equal(world_join(waiter), HF_OK);
    int64_t took_ms = now_ms() - start_ms;
    assert_in_range(took_ms, least_ms, most_ms);
    assert_int_equal(queue_len(w->server), 0);
    assert_int_equal(hf_lock_release_as(w->lock, waiter->owner), HF_OK);
    assert_true(wait_no_keys(w->server));
    world_end(w);
}

/* ---- Java clients that do not hear ---- */

static void one_java(struct server *server) {
    queue_java(server, "java:1", LONG_MS);
}

/* And while that runs, nobody asks in a tight loop. */
CASE(a_dead_java_client_costs_its_grace) {
    struct world w;
    struct world_caller waiter;
    begin_behind(&w, &waiter, one_java);
    long long before = server_calls(w.server, "evalsha");
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_comes_in(&w, &waiter, start_ms, GRACE_MS - 100, SOON_MS);
    assert_in_range(server_calls(w.server, "evalsha") - before, 3, 24);
}

/* Only dead waiters are queued when the lock becomes free: a client that comes later waits no
 * longer than for them. */
FAIR_CASE(a_dead_java_client_costs_a_newcomer_its_grace) {
    one_java(w->server);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_in_range(now_ms() - start_ms, GRACE_MS - 100, SOON_MS);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(wait_no_keys(w->server));
}

static void many_javas(struct server *server) {
    queue_many(server, "java", 1500, LONG_MS, false);
}

CASE(a_dead_crowd_of_java_clients_costs_one_grace_per_thousand) {
    struct world w;
    struct world_caller waiter;
    begin_behind(&w, &waiter, many_javas);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_comes_in(&w, &waiter, start_ms, 2 * GRACE_MS - 100, SOON_MS);
}

/* Redisson's acquire by the head of the queue of a free lock. */
static const char java_take_lua[] =
    "if redis.call('exists', KEYS[1]) == 1 or redis.call('lindex', KEYS[2], 0) ~= ARGV[1] then\n"
    "return 0 end redis.call('lpop', KEYS[2]) redis.call('zrem', KEYS[3], ARGV[1])\n"
    "redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 60000) return 1";

static long long java_takes(struct server *server, const char *owner) {
    return cmd_int(server, "EVAL %s 3 " WORLD_NAME " " FAIR_QUEUE " " FAIR_DEADLINES " %s",
                   java_take_lua, owner);
}

/* It was about to subscribe, or to connect again, when the lock became free. */
CASE(a_java_client_that_is_late_for_its_turn_gets_it) {
    struct world w;
    struct world_caller waiter;
    bool broken;
    begin_behind(&w, &waiter, one_java);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_true(HOLDS_FOR(!atomic_load(&waiter.done), GRACE_MS / 3));
    assert_int_equal(java_takes(w.server, "java:1"), 1);
    assert_false(atomic_load(&waiter.done));
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_break(w.rival_lock, &broken), HF_OK);
    assert_true(broken);
    assert_comes_in(&w, &waiter, start_ms, 0, SOON_MS);
}

static void two_javas(struct server *server) {
    queue_java(server, "java:1", LONG_MS);
    queue_java(server, "java:2", 2 * LONG_MS);
}

/* One of them is subscribed: it is notified, and gets its turn when the other's time is over, by
 * the deadline that Java reads. */
CASE(a_java_client_behind_a_dead_one_is_notified) {
    struct world w;
    struct world_caller waiter;
    begin_behind(&w, &waiter, two_javas);
    own_context *subscriber = redisConnectUnix(server_socket(w.server));
    redisReply *reply = redisCommand(subscriber, "SUBSCRIBE " WORLD_CHANNEL ":java:2");
    freeReplyObject(reply);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(redisGetReply(subscriber, (void **)&reply), REDIS_OK);
    assert_string_equal(reply->element[2]->str, "0");
    freeReplyObject(reply);
    long long deadline = cmd_int(w.server, "ZSCORE " FAIR_DEADLINES " java:1");
    assert_true(deadline <= in_ms(GRACE_MS + 1000));
    assert_true(cmd_int(w.server, "ZSCORE " FAIR_DEADLINES " java:2") > in_ms(LONG_MS));
    /* it looks in a loop, and passes over an entry whose deadline is over */
    assert_true(WAIT_FOR(in_ms(0) > deadline, HANG_MS));
    cmd_ok(w.server, "LREM " FAIR_QUEUE " 0 java:1");
    cmd_ok(w.server, "ZREM " FAIR_DEADLINES " java:1");
    assert_int_equal(java_takes(w.server, "java:2"), 1);
    assert_false(atomic_load(&waiter.done));
    bool broken;
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_break(w.rival_lock, &broken), HF_OK);
    assert_comes_in(&w, &waiter, start_ms, 0, SOON_MS);
}

/* It was notified just as its wait ended: Redisson's give-up removes it from the queue and notifies
 * no waiter. The next of our waiters finds the lock free at its poll. */
CASE(a_turn_that_java_lets_pass_is_found_by_a_poll) {
    struct world w;
    struct world_caller waiter;
    hf_options options = fair_options(4500); /* polls after three seconds */
    fair_begin(&w, &options);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    one_java(w.server);
    own_context *subscriber = redisConnectUnix(server_socket(w.server));
    redisReply *reply = redisCommand(subscriber, "SUBSCRIBE " WORLD_CHANNEL ":java:1");
    freeReplyObject(reply);
    queue_up(&waiter, w.server, w.client, w.lock, FIRST, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    cmd_ok(w.server, "ZREM " FAIR_DEADLINES " java:1");
    cmd_ok(w.server, "LREM " FAIR_QUEUE " 0 java:1");
    assert_comes_in(&w, &waiter, start_ms, 0, SOON_MS);
}

/* ---- Without a right to what is remembered ---- */

struct warnings {
    atomic_int count;
};

static void count_warnings(hf_log_level level, const char *message, void *user) {
    struct warnings *warnings = user;
    if (level == HF_LOG_WARN && strstr(message, "unheard notifications") != NULL)
        atomic_fetch_add(&warnings->count, 1);
}

/* An access list of version 0.1 that names the keys one by one: everything works, but for what the
 * key is for, and that is said once. */
FAIR_CASE(an_access_list_of_0_1_is_enough) {
    struct warnings warnings = {0};
    hf_options options = world_options();
    bool broken;
    cmd_ok(w->server, "ACL SETUSER app on >secret resetchannels &" WORLD_CHANNEL "* ~" WORLD_NAME
                      " ~" FAIR_QUEUE " ~" FAIR_DEADLINES " ~" FAIR_RECORDS " +@all");
    options.user = "app";
    options.password = "secret";
    options.log = count_warnings;
    options.log_user = &warnings;
    hf_client *client = made(hf_open, server_url(w->server), &options);
    hf_lock *lock = new_handle(client, HF_FAIR);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_break(lock, &broken), HF_OK);
    assert_true(broken);
    queue_java(w->server, "java:1", LONG_MS);
    queue_java(w->server, "java:2", LONG_MS);
    int64_t start_ms = now_ms();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_in_range(now_ms() - start_ms, 2 * GRACE_MS - 100, SOON_MS);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    assert_int_equal(atomic_load(&warnings.count), 1);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    assert_true(wait_no_keys(w->server));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_ELOST);
    cmd_ok(w->server, "ACL DELUSER app");
}

/* ---- More than one call passes over ---- */

static void many_dead(struct server *server) {
    queue_many(server, "ours", 600, LONG_MS, true);
    queue_many(server, "java", 400, -1000, false);
    queue_many(server, "more", 600, LONG_MS, true);
}

CASE(a_dead_crowd_is_passed_over_by_a_release) {
    struct world w;
    struct world_caller waiter;
    begin_behind(&w, &waiter, many_dead);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_comes_in(&w, &waiter, start_ms, 0, SOON_MS);
}

CASE(a_dead_crowd_is_passed_over_by_a_break) {
    struct world w;
    struct world_caller waiter;
    bool broken;
    begin_behind(&w, &waiter, many_dead);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_break(w.lock, &broken), HF_OK);
    assert_true(broken);
    assert_comes_in(&w, &waiter, start_ms, 0, SOON_MS);
}

/* A waiter that gives up finds the lock free, and no live waiter at the head of the queue. */
CASE(a_dead_crowd_is_passed_over_by_a_give_up) {
    struct world w;
    struct world_caller waiter, other;
    begin_behind(&w, &waiter, many_dead);
    queue_up(&other, w.server, w.client, w.lock, FIRST + 1, world_wait_for(2000, HF_WATCHDOG));
    cmd_ok(w.server, "DEL " WORLD_NAME);
    int64_t start_ms = now_ms();
    assert_int_equal(world_join(&other), HF_ETIMEDOUT);
    assert_true(wait_queue(w.server, 0));
    assert_comes_in(&w, &waiter, start_ms, 0, SOON_MS);
}

FAIR_CASE(a_dead_crowd_does_not_make_a_free_lock_busy) {
    many_dead(w->server);
    assert_int_equal(hf_lock_try(w->lock), HF_OK);
    assert_int_equal(queue_len(w->server), 0);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(wait_no_keys(w->server));
}

/* The rest of a hand-over is lost on its way: it is sent again, as everything is. */
FAIR_CASE(a_lost_reply_does_not_leave_the_crowd_in_front) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    many_dead(w->server);
    queue_up(&waiter, w->server, w->rival, w->rival_lock, FIRST,
             world_wait_for(HF_FOREVER, HF_WATCHDOG));
    proxy_drop_replies_after(w->proxy, HAND_OVER);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(proxy_fired(w->proxy), 1);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_in_range(now_ms() - start_ms, 0, SOON_MS);
    assert_int_equal(hf_lock_release_as(w->rival_lock, FIRST), HF_OK);
    assert_true(wait_no_keys(w->server));
}

/* Whatever comes of the rest: the lock was released. Waiters look for themselves. */
CASE(a_release_that_cannot_go_on_is_a_release) {
    OWN(world_end) struct world w;
    static const char refusal[] = "-ERR not now\r\n";
    struct world_caller waiter;
    hf_options options = fair_options(4500); /* polls after three seconds */
    fair_begin(&w, &options);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    many_dead(w.server);
    queue_up(&waiter, w.server, w.rival, w.rival_lock, FIRST,
             world_wait_for(HF_FOREVER, HF_WATCHDOG));
    proxy_answer_instead(w.proxy, HAND_OVER, refusal, sizeof refusal - 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(proxy_fired(w.proxy), 1);
    assert_int_equal(world_stats(w.client).holds, 0);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w.rival_lock, FIRST), HF_OK);
    assert_true(wait_no_keys(w.server));
}

RUN_CASES(world_start_server, world_stop_server)
