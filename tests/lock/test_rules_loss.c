/*
 * R06: no loss is silent, and each is reported once.
 *
 * A held key is taken away behind the holder's back in every way a server knows (deleted, flushed,
 * evicted, broken, replaced), and each time the holder must hear of it by callback, descriptor, the
 * next call and the counter: once each. And nothing puts the key back.
 */
#include "support/world.h"

#include <errno.h>

struct listener {
    struct world_events events;
    int fd;
};

static void listen_to(struct listener *listener, hf_lock *lock) {
    memset(listener, 0, sizeof *listener);
    assert_int_equal(hf_lock_on_lost(lock, world_on_event, &listener->events), HF_OK);
    listener->fd = hf_lock_lost_fd(lock);
    assert_true(listener->fd >= 0);
}

/* Lost, and everybody knows: exactly once. */
static void assert_notified_once(struct world *w, struct listener *listener, uint64_t losses) {
    uint64_t count = 0;
    assert_true(world_wait_atomic(&listener->events.losses, 1, HANG_MS));
    assert_int_equal(read(listener->fd, &count, sizeof count), (int)sizeof count);
    assert_int_equal(count, 1);
    assert_true(hf_lock_remaining_ms(w->lock) == 0);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    assert_int_equal(atomic_load(&listener->events.losses), 1);
    assert_int_equal(read(listener->fd, &count, sizeof count), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(world_stats(w->client).losses, losses);
    assert_int_equal(world_stats(w->client).holds, 0);
}

static void take_away_del(struct world *w) {
    server_drop(w->server, WORLD_NAME);
}

static void take_away_flush(struct world *w) {
    server_empty(w->server);
}

static void take_away_expire(struct world *w) {
    cmd_ok(w->server, "PEXPIRE %s 0", WORLD_NAME);
}

static void take_away_field(struct world *w) {
    cmd_ok(w->server, "HDEL %s %s", WORLD_NAME, w->owner);
}

static void take_away_steal(struct world *w) {
    cmd_ok(w->server, "DEL %s", WORLD_NAME);
    cmd_ok(w->server, "HSET %s thief 1", WORLD_NAME);
}

static void take_away_replace(struct world *w) {
    cmd_ok(w->server, "SET %s text", WORLD_NAME);
}

static void take_away_break(struct world *w) {
    bool broken = false;
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_true(broken);
}

static void (*const ways[])(struct world *w) = {take_away_del,    take_away_flush, take_away_break,
                                                take_away_expire, take_away_field, take_away_steal,
                                                take_away_replace};
/* The first of them need no keys. */
#define WAYS (server_is_other(world_server()) ? 3 : sizeof ways / sizeof ways[0])

CASE(R06_renewal_finds_the_loss) {
    for (size_t i = 0; i < WAYS; i++) {
        struct world w;
        struct listener listener;
        hf_options options = world_options();
        options.watchdog_ms = ENDURING_MS; /* else the lease might be what ends it */
        world_begin(&w, &options);
        listen_to(&listener, w.lock);
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        ways[i](&w);
        assert_notified_once(&w, &listener, 1);
        assert_true(world_free(&w) || ways[i] == take_away_steal || ways[i] == take_away_replace);
        server_drop(w.server, WORLD_NAME);
        world_end(&w);
    }
}

/* The watchdog is far away: the next call is first to know. */
CASE(R06_next_call_finds_the_loss) {
    server_redis_only(world_server(), "a thief in the hash");
    for (int call = 0; call < 3; call++) {
        struct world w;
        struct listener listener;
        world_begin(&w, NULL);
        listen_to(&listener, w.lock);
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        take_away_steal(&w);
        int err = call == 0   ? hf_lock_release(w.lock)
                  : call == 1 ? hf_lock_acquire_for(w.lock, 1000)
                              : hf_lock_extend(w.lock, 5000);
        assert_int_equal(err, HF_ELOST);
        assert_true(world_wait_atomic(&listener.events.losses, 1, HANG_MS));
        assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
        assert_int_equal(atomic_load(&listener.events.losses), 1);
        assert_int_equal(world_stats(w.client).losses, 1);
        assert_int_equal(world_count(&w, "thief"), 1);
        assert_int_equal(pttl(w.server, WORLD_NAME), -1);
        cmd_ok(w.server, "DEL %s", WORLD_NAME);
        world_end(&w);
    }
}

WORLD_CASE(R06_deadline_of_a_fixed_lease) {
    struct listener listener;
    listen_to(&listener, w->lock);
    hf_acquire_options fixed = world_wait_for(0, 4000); /* warned a second before */
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_with(w->lock, &fixed, NULL), HF_OK);
    assert_true(world_wait_atomic(&listener.events.warnings, 1, HANG_MS));
    assert_int_equal(atomic_load(&listener.events.lost_when_warned), 0); /* it comes before */
    int64_t left_ms = atomic_load(&listener.events.warned_with_ms);
    assert_true(left_ms > 0 && left_ms <= 1000);
    assert_true(world_wait_atomic(&listener.events.losses, 1, HANG_MS));
    assert_true(now_ms() - start_ms >= trusted_ms(4000));
    assert_notified_once(w, &listener, 1);
}

/* Both directions dead: a warning with time left, then the loss, no later than the lease. */
WORLD_CASE_WITH(R06_warned_before_the_deadline, world_options(),
                options.watchdog_ms = ENDURING_MS) {
    struct listener listener;
    listen_to(&listener, w->lock);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    proxy_blackhole(w->proxy, true, true);
    assert_true(world_wait_atomic(&listener.events.warnings, 1, HANG_MS));
    assert_int_equal(atomic_load(&listener.events.lost_when_warned), 0);
    int64_t left_ms = atomic_load(&listener.events.warned_with_ms);
    assert_true(left_ms > 0 && left_ms <= ENDURING_MS / 2);
    assert_true(hf_lock_remaining_ms(w->lock) > 0);
    assert_true(world_wait_atomic(&listener.events.losses, 1, HANG_MS));
    assert_true(hf_lock_remaining_ms(w->lock) == 0);
    assert_true(world_wait_free(w, HANG_MS)); /* at the server too; ours was never later */
    assert_notified_once(w, &listener, 1);
    assert_int_equal(atomic_load(&listener.events.warnings), 1);
}

CASE(U37_evicted) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "nothing is evicted there");
    struct listener listener;
    /* Of all keys only the lock has a lease, so it is the first to go. */
    static const char *const config[] = {"maxmemory 4mb", "maxmemory-policy volatile-ttl", NULL};
    own_server *server = server_start(&(struct server_options){.config = config});
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    world_begin_on(&w, server, &options);
    listen_to(&listener, w.lock);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    for (int i = 0; i < 20000 && !world_free(&w); i++)
        freeReplyObject(cmd(server, "SET filler-%d %1024d", i, i)); /* the last may be refused */
    assert_true(world_free(&w));
    cmd_ok(server, "CONFIG SET maxmemory 0");
    assert_notified_once(&w, &listener, 1);
    assert_true(world_free(&w));
}

RUN_CASES(world_start_server, world_stop_server)
