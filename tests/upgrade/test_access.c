/*
 * The access list that 0.1 printed is enough: a user that was set up for it stays as it is when the
 * fleet is upgraded.
 *
 * The text is that of docs/redisson.md in 0.1 and is not to be changed here: a later feature that
 * needs a further right does without it where it is missing. For each kind, a user has the common
 * part and that kind's line, nothing else; two clients of that user then do everything that the kind
 * can do. If a message was not allowed, its waiter does not wake and notify_failures counts it.
 */
#include "support/case.h"
#include "support/new_lock.h"
#include "support/server.h"

#include <holdfast/holdfast.h>

#define NAME "app:thing"

/* A waiter that wakes within this was notified: it polls only half as often. */
#define BY_MESSAGE_MS ((int64_t)5000)

static const char common[] =
    "on >secret resetchannels ~app:* &redisson_lock__channel:{app:* "
    "+eval +evalsha +time +exists +hexists +hmget +hset +pttl +pexpire +del +publish "
    "+subscribe +unsubscribe +ping +hget +hgetall +type +select +client|setname +client|list +info";

static const char for_strings[] = "&holdfast_string:{app:* +get +set +command|info "
                                  "+client|info +client|kill";
static const char for_fenced[] = "~redisson_lock_token:{app:* +get +incrby";
static const char for_fair[] =
    "~redisson_lock_queue:{app:* ~redisson_lock_timeout:{app:* ~holdfast_fair:{app:* "
    "+hget +hdel +hlen +hrandfield +zscore +zadd +zrem +zcard +lindex +llen +lrange +lpos +lpop "
    "+lrem +rpush +linsert";
static const char for_readwrite[] = "~{app:* &redisson_rwlock:{app:* +hgetall +hdel +hlen +set";
static const char for_semaphores[] = "~{app:* &redisson_sc:{app:* +get +set +incrby +decrby";
static const char for_latches[] =
    "~{app:* &redisson_countdownlatch__channel__{app:* +get +set +decr";
static const char for_permits[] =
    "~{app:* &redisson_sc:{app:* +get +set +incrby +decrby +persist +zadd +zrem +zscore +zrange "
    "+zcount +zcard +zremrangebyrank";

static struct server *server;

/* Two clients of a user with these rights. */
struct pair {
    hf_client *first, *second;
};

static hf_client *open_client(void) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    options.watchdog_ms = ENDURING_MS;
    options.user = "locks";
    options.password = "secret";
    assert_hf(HF_OK, hf_open(server_url(server), &options, &client));
    return client;
}

static struct pair begin(const char *rights) {
    char text[1024];
    redisReply *reply;
    redisContext *admin = server_connect(server);
    cmd_ok(server, "FLUSHALL");
    cmd_ok(server, "ACL LOG RESET");
    snprintf(text, sizeof text, "ACL SETUSER locks reset %s %s", common, rights);
    reply = redisCommand(admin, text);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_STATUS);
    freeReplyObject(reply);
    redisFree(admin);
    return (struct pair){open_client(), open_client()};
}

static void end_client(hf_client *client) {
    hf_stats stats = HF_STATS_INIT;
    assert_hf(HF_OK, hf_client_stats(client, &stats));
    assert_int_equal(stats.notify_failures, 0);
    assert_hf(HF_OK, hf_close(client));
}

static void end(struct pair *pair) {
    end_client(pair->first);
    end_client(pair->second);
}

static bool is_listening(void *arg) {
    own_reply *reply = cmd(server, "PUBSUB NUMSUB %s", arg);
    return reply->elements == 2 && reply->element[1]->integer > 0;
}

static bool is_queued(void *unused) {
    (void)unused;
    return cmd_int(server, "LLEN redisson_lock_queue:{" NAME "}") > 0;
}

static bool queue_is_empty(void *unused) {
    return !is_queued(unused);
}

/* Ends what was begun by an event: it has to come by message. */
static int woken(hf_op *op) {
    int err = hf_op_wait(op, BY_MESSAGE_MS, NULL);
    hf_op_free(op);
    return err;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

struct sides {
    hf_lock *holds, *waits; /* of the first and of the second client */
    const char *channel;    /* NULL: a queue, or nothing at all */
    bool in_line;
};

static hf_lock *lock_of(hf_client *client, any_kind kind) {
    hf_lock *lock;
    assert_hf(HF_OK, new_lock(client, kind, NAME, strlen(NAME), &lock));
    return lock;
}

static int acquire_as(hf_lock *lock, hf_owner owner, int64_t wait_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = owner;
    options.wait_ms = wait_ms;
    return hf_lock_acquire_with(lock, &options, NULL);
}

static hf_op *begin_wait(const struct sides *sides) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    options.owner = 2;
    assert_hf(HF_OK, hf_lock_acquire_start(sides->waits, &options, NULL, NULL, &op));
    if (sides->channel != NULL)
        assert_true(wait_until(is_listening, (void *)(uintptr_t)sides->channel, BY_MESSAGE_MS));
    if (sides->in_line)
        assert_true(wait_until(is_queued, NULL, BY_MESSAGE_MS));
    return op;
}

static void ask(hf_lock *lock) {
    bool yes;
    int64_t number;
    own_info *info;
    assert_hf(HF_OK, hf_lock_is_locked(lock, &yes));
    assert_true(yes);
    assert_hf(HF_OK, hf_lock_is_mine_as(lock, 1, &yes));
    assert_true(yes);
    assert_hf(HF_OK, hf_lock_hold_count_as(lock, 1, &number));
    assert_int_equal(number, 1);
    assert_hf(HF_OK, hf_lock_ttl_ms(lock, &number));
    assert_true(number > 0);
    assert_hf(HF_OK, hf_lock_inspect(lock, &info));
    assert_int_equal(info->holders_len, 1);
    assert_non_null(info->holders[0]->connection);
}

static bool is_renewed(void *arg) {
    hf_stats stats = HF_STATS_INIT;
    return hf_client_stats(arg, &stats) == HF_OK && stats.renewals > 0;
}

static void use_lock(struct pair *pair, const struct sides *sides, bool nests) {
    assert_hf(HF_OK, acquire_as(sides->holds, 1, HF_FOREVER));
    if (nests) {
        assert_hf(HF_OK, acquire_as(sides->holds, 1, HF_FOREVER));
        assert_hf(HF_OK, hf_lock_release_as(sides->holds, 1));
    }
    ask(sides->holds);
    assert_true(wait_until(is_renewed, pair->first, ENDURING_MS));
    assert_hf(HF_OK, hf_lock_extend_as(sides->holds, 1, 20000));

    assert_hf(HF_EBUSY, acquire_as(sides->waits, 2, 0));
    assert_hf(HF_ETIMEDOUT, acquire_as(sides->waits, 2, 100));
    hf_op *op = begin_wait(sides);
    hf_op_cancel(op);
    assert_hf(HF_ECANCELED, woken(op));
    assert_true(wait_until(queue_is_empty, NULL, BY_MESSAGE_MS));
    op = begin_wait(sides);
    assert_hf(HF_OK, hf_lock_release_as(sides->holds, 1));
    assert_hf(HF_OK, woken(op));
    assert_hf(HF_OK, hf_lock_release_as(sides->waits, 2));

    bool broken;
    assert_hf(HF_OK, acquire_as(sides->holds, 1, HF_FOREVER));
    op = begin_wait(sides);
    assert_hf(HF_OK, hf_lock_break(sides->holds, &broken));
    assert_true(broken);
    assert_hf(HF_OK, woken(op));
    assert_hf(HF_ELOST, hf_lock_release_as(sides->holds, 1));
    assert_hf(HF_OK, hf_lock_release_as(sides->waits, 2));
}

static void try_locks(const char *rights, any_kind holds, any_kind waits, struct sides sides,
                      bool nests) {
    struct pair pair = begin(rights);
    sides.holds = lock_of(pair.first, holds);
    sides.waits = lock_of(pair.second, waits);
    use_lock(&pair, &sides, nests);
    hf_lock_free(sides.holds);
    hf_lock_free(sides.waits);
    end(&pair);
}

static const struct sides by_lock_channel = {.channel = "redisson_lock__channel:{" NAME "}"};
static const struct sides by_string_channel = {.channel = "holdfast_string:{" NAME "}"};
static const struct sides by_rw_channel = {.channel = "redisson_rwlock:{" NAME "}"};
static const struct sides by_line = {.in_line = true};
static const struct sides by_asking = {.channel = NULL};

static void plain_and_its_kin(void **state) {
    (void)state;
    try_locks("", HF_PLAIN, HF_PLAIN, by_lock_channel, true);
    try_locks("", HF_NONREENTRANT, HF_NONREENTRANT, by_lock_channel, false);
    try_locks("", HF_SPIN, HF_SPIN, by_asking, true);
}

/* Where the server has a native delete, its right is not listed here: it is refused, and the script runs. */
static void strings(void **state) {
    (void)state;
    try_locks(for_strings, HF_STRING, HF_STRING, by_string_channel, true);
    try_locks(for_strings, HF_STRING | HF_SPIN, HF_STRING | HF_SPIN, by_asking, true);
}

static void fenced(void **state) {
    (void)state;
    try_locks(for_fenced, HF_FENCED, HF_FENCED, by_lock_channel, true);
}

static void fair(void **state) {
    (void)state;
    try_locks(for_fair, HF_FAIR, HF_FAIR, by_line, true);
    try_locks(for_fair, HF_FAIR | HF_NONREENTRANT, HF_FAIR | HF_NONREENTRANT, by_line, false);
}

static void read_and_write(void **state) {
    (void)state;
    try_locks(for_readwrite, HF_READ, HF_WRITE, by_rw_channel, true);
    try_locks(for_readwrite, HF_WRITE, HF_READ, by_rw_channel, true);
    try_locks(for_readwrite, HF_WRITE, HF_WRITE, by_rw_channel, true);
}

/* ---- The others ------------------------------------------------------------------------------ */

static void semaphore(void **state) {
    (void)state;
    struct pair pair = begin(for_semaphores);
    hf_sem *one;
    hf_sem *other;
    hf_op *op;
    bool yes;
    int64_t number;
    assert_hf(HF_OK, hf_sem_new_bytes(pair.first, NAME, strlen(NAME), &one));
    assert_hf(HF_OK, hf_sem_new_bytes(pair.second, NAME, strlen(NAME), &other));
    assert_hf(HF_OK, hf_sem_try_set(one, 3, 60000, &yes));
    assert_true(yes);
    assert_hf(HF_OK, hf_sem_acquire(one, 3));
    assert_hf(HF_EBUSY, hf_sem_try(other, 1));
    assert_hf(HF_ETIMEDOUT, hf_sem_acquire_for(other, 1, 100));
    assert_hf(HF_OK, hf_sem_acquire_start(other, 2, NULL, NULL, NULL, &op));
    assert_true(
        wait_until(is_listening, (void *)(uintptr_t) "redisson_sc:{" NAME "}", BY_MESSAGE_MS));
    assert_hf(HF_OK, hf_sem_release(one, 2));
    assert_hf(HF_OK, woken(op));
    assert_hf(HF_OK, hf_sem_release_if_exists(one, 1, &yes));
    assert_true(yes);
    assert_hf(HF_OK, hf_sem_add(one, 2));
    assert_hf(HF_OK, hf_sem_add(one, -1));
    assert_hf(HF_OK, hf_sem_available(other, &number));
    assert_int_equal(number, 2);
    assert_hf(HF_OK, hf_sem_drain(one, &number));
    assert_int_equal(number, 2);
    assert_hf(HF_OK, hf_sem_delete(one, &yes));
    assert_true(yes);
    hf_sem_free(one);
    hf_sem_free(other);
    end(&pair);
}

static void latch(void **state) {
    (void)state;
    struct pair pair = begin(for_latches);
    hf_latch *one;
    hf_latch *other;
    hf_op *op;
    bool yes;
    int64_t number;
    assert_hf(HF_OK, hf_latch_new_bytes(pair.first, NAME, strlen(NAME), &one));
    assert_hf(HF_OK, hf_latch_new_bytes(pair.second, NAME, strlen(NAME), &other));
    for (int round = 0; round < 2; round++) {
        assert_hf(HF_OK, hf_latch_try_set(one, 2, &yes));
        assert_true(yes);
        assert_hf(HF_OK, hf_latch_count_down(one));
        assert_hf(HF_OK, hf_latch_count(other, &number));
        assert_int_equal(number, 1);
        assert_hf(HF_ETIMEDOUT, hf_latch_await_for(other, 100));
        assert_hf(HF_OK, hf_latch_await_start(other, NULL, NULL, NULL, &op));
        assert_true(wait_until(is_listening,
                               (void *)(uintptr_t) "redisson_countdownlatch__channel__{" NAME "}",
                               BY_MESSAGE_MS));
        assert_hf(HF_OK, round == 0 ? hf_latch_count_down(one) : hf_latch_delete(one, &yes));
        assert_hf(HF_OK, woken(op));
        assert_hf(HF_OK, hf_latch_await(one));
    }
    hf_latch_free(one);
    hf_latch_free(other);
    end(&pair);
}

static void ask_permits(hf_permits *permits, int64_t available, int64_t total, int64_t taken) {
    int64_t number;
    assert_hf(HF_OK, hf_permits_available(permits, &number));
    assert_int_equal(number, available);
    assert_hf(HF_OK, hf_permits_total(permits, &number));
    assert_int_equal(number, total);
    assert_hf(HF_OK, hf_permits_taken(permits, &number));
    assert_int_equal(number, taken);
}

static void use_permits(struct pair *pair, hf_permits *one, hf_permits *other) {
    hf_permits_options two = HF_PERMITS_OPTIONS_INIT;
    hf_permit_id ids[2];
    hf_permit_id woken_ids[2];
    hf_op *op;
    bool yes;
    int64_t number;
    two.count = 2;
    assert_hf(HF_OK, hf_permits_try_set(one, 1, &yes));
    assert_true(yes);
    assert_hf(HF_OK, hf_permits_add(one, 2));
    assert_hf(HF_OK, hf_permits_set(one, 2));
    assert_hf(HF_OK, hf_permits_acquire_with(one, &two, ids));
    ask_permits(other, 0, 2, 2);
    assert_true(wait_until(is_renewed, pair->first, ENDURING_MS));
    assert_hf(HF_OK, hf_permits_extend(one, &ids[0], 20000));
    assert_hf(HF_OK, hf_permits_ttl_ms(other, &ids[0], &number));
    assert_true(number > 10000);
    assert_hf(HF_EBUSY, hf_permits_try(other, woken_ids));
    assert_hf(HF_ETIMEDOUT, hf_permits_acquire_for(other, 100, woken_ids));
    assert_hf(HF_OK, hf_permits_acquire_start(other, &two, woken_ids, NULL, NULL, &op));
    assert_true(
        wait_until(is_listening, (void *)(uintptr_t) "redisson_sc:{" NAME "}", BY_MESSAGE_MS));
    assert_hf(HF_OK, hf_permits_release(one, &ids[0]));
    assert_hf(HF_OK, hf_permits_release(one, &ids[1]));
    assert_hf(HF_OK, woken(op));
    assert_hf(HF_OK, hf_permits_release_many(other, woken_ids, 2));

    /* Leases that end: what is gone is given back by the client that looks next. */
    two.lease_ms = ENDURING_MS; /* long enough to be granted */
    assert_hf(HF_OK, hf_permits_acquire_with(one, &two, ids));
    two.lease_ms = HF_NO_LEASE;
    assert_hf(HF_OK, hf_permits_acquire_with(other, &two, ids));
    assert_hf(HF_OK, hf_permits_expire(one, 60000, &yes));
    assert_true(yes);
    assert_hf(HF_OK, hf_permits_delete(one, &yes));
    assert_true(yes);
}

static void permits(void **state) {
    (void)state;
    struct pair pair = begin(for_permits);
    hf_permits *one;
    hf_permits *other;
    assert_hf(HF_OK, hf_permits_new_bytes(pair.first, NAME, strlen(NAME), &one));
    assert_hf(HF_OK, hf_permits_new_bytes(pair.second, NAME, strlen(NAME), &other));
    use_permits(&pair, one, other);
    hf_permits_free(one);
    hf_permits_free(other);
    end(&pair);
}

static int start_server(void **state) {
    (void)state;
    server = server_start(NULL);
    return 0;
}

static int end_server(void **state) {
    (void)state;
    server_free(server);
    return 0;
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(plain_and_its_kin),
        cmocka_unit_test(strings),
        cmocka_unit_test(fenced),
        cmocka_unit_test(fair),
        cmocka_unit_test(read_and_write),
        cmocka_unit_test(semaphore),
        cmocka_unit_test(latch),
        cmocka_unit_test(permits),
    };
    return cmocka_run_group_tests_name("access", rows, start_server, end_server) == 0 ? 0 : 1;
}
