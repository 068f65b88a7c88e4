/*
 * Poll batches (src/redis/wait/poll_batch.c): sleeping waiters are polled together. So a lost
 * message delays no waiter by more than ten seconds, and many waiters cost the server next to
 * nothing.
 *
 * A lock that is gone without a message, or another type under its name, wakes its own waiter and
 * no other. If a poll fails, or gets an invalid reply, all its waiters attempt. A fork, or memory
 * that fails, in the middle of it harms no other waiter. Each test takes as long as the poll
 * interval, so they are few, and each covers many waiters.
 */
#include "lock/sleepers.h"

#define MANY 120 /* more than go into one look */
#define FEW 4
#define GONE 50     /* the first of them go without a message */
#define REPLACED 10 /* the next are something else then */
#define LOOK hfi_script_poll_batch.sha1
#define GATHER_MS 200    /* who is due within it goes into the same look */
#define INTERVAL_MS 9300 /* and is due again after that */

WORLD_CASE(a_lost_message_costs_ten_seconds_at_most) {
    OWN(sleepers_end) struct sleepers s;
    int64_t start_ms = now_ms();
    sleepers_begin(&s, w, MANY, HF_FOREVER, NULL);
    int64_t begun_ms = now_ms() - start_ms;
    for (size_t i = 0; i < GONE + REPLACED; i++) {
        char name[64];
        sleepers_name(&s, i, name);
        cmd_ok(w->server, "DEL %s", name);
        if (i >= GONE)
            cmd_ok(w->server, "SET %s something", name);
    }
    for (size_t i = 0; i < GONE + REPLACED; i++)
        assert_int_equal(hf_op_wait(s.all[i].op, HANG_MS, NULL), i < GONE ? HF_OK : HF_EWRONGTYPE);
    assert_true(proxy_wait_answered(s.proxy, HANG_MS));
    for (size_t i = GONE + REPLACED; i < MANY; i++)
        assert_int_equal(hf_op_wait(s.all[i].op, 0, NULL), HF_EPENDING);
    /* who was not concerned has slept on */
    assert_int_equal(proxy_seen_in_time(s.proxy, WORLD_ACQUIRE), 2 * MANY + GONE + REPLACED);
    /* the client that came much later than others is looked at by itself, each time */
    int64_t rounds = (now_ms() - start_ms) / INTERVAL_MS + 1;
    assert_in_range(proxy_seen_in_time(s.proxy, LOOK), 1, 8 + rounds * (begun_ms / GATHER_MS));
    /* and is as awake as ever */
    assert_int_equal(hf_lock_release(s.all[MANY - 1].rival), HF_OK);
    assert_int_equal(hf_op_wait(s.all[MANY - 1].op, HANG_MS, NULL), HF_OK);
}

/* What a hostile server may say; each is for a look at FEW. */
static const char *const nonsense[] = {
    "*2\r\n:7\r\n:1790000000000\r\n",                               /* of another number of locks */
    "*3\r\n:4\r\n:5\r\n:1790000000000\r\n",                         /* of one that is not there */
    "*3\r\n:4\r\n:-1\r\n:1790000000000\r\n",                        /* the same */
    "*2\r\n$1\r\n4\r\n:1790000000000\r\n",                          /* no number */
    "$-1\r\n",                                                      /* nothing */
    "-NOPERM no permissions to run this\r\n",                       /* it does not let us */
    "*7\r\n:4\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1790000000000\r\n", /* too many */
};
#define KINDS (sizeof nonsense / sizeof nonsense[0])

WORLD_CASE(whatever_is_answered_they_attempt) {
    struct sleepers s[KINDS + 1];
    struct sleepers *silent = &s[KINDS];
    for (size_t i = 0; i < KINDS; i++) {
        sleepers_begin(&s[i], w, FEW, HF_FOREVER, NULL);
        /* who fell asleep much later than others is looked at by itself */
        for (size_t k = 0; k < FEW; k++)
            proxy_answer_instead(s[i].proxy, LOOK, nonsense[i], strlen(nonsense[i]));
    }
    sleepers_begin(silent, w, FEW, HF_FOREVER, NULL);
    proxy_mute_replies_after(silent->proxy, LOOK); /* and one that is not answered at all */
    for (size_t i = 0; i <= KINDS; i++) {
        assert_true(proxy_wait_seen(s[i].proxy, LOOK, 1, HANG_MS));
        assert_true(proxy_wait_seen(s[i].proxy, WORLD_ACQUIRE, 3 * FEW, HANG_MS));
        for (size_t k = 0; k < FEW; k++)
            assert_int_equal(hf_op_wait(s[i].all[k].op, 0, NULL), HF_EPENDING);
    }
    proxy_heal(silent->proxy);
    for (size_t i = 0; i <= KINDS; i++)
        sleepers_end(&s[i]);
}

/* ---- In the middle of it ---- */

/* In the child nothing is sent, and in the parent the look goes on. */
static void fork_during_look(struct sleepers *s) {
    assert_true(proxy_wait_held(s->proxy, HANG_MS));
    size_t sent = proxy_seen(s->proxy, "");
    assert_true(expect_exit(run_child(sleepers_forked, s), 0, HANG_MS));
    assert_int_equal(proxy_seen(s->proxy, ""), sent);
    /* clients that fell asleep later may have a look of their own behind it */
    assert_true(proxy_release_held(s->proxy) >= 1);
    sleepers_settle(s);
    assert_int_equal(proxy_seen_in_time(s->proxy, WORLD_ACQUIRE), 2 * FEW); /* all is as it was */
}

static bool has_looked_or_attempted(void *arg) {
    struct sleepers *s = arg;
    return proxy_seen(s->proxy, LOOK) > 0 || proxy_seen(s->proxy, WORLD_ACQUIRE) > 2 * FEW ||
           atomic_load(&s->all[0].calls) > 0;
}

/* Somebody may have had to end, and nobody sleeps on for ever. How many have. */
static int wake_after_a_failure(struct sleepers *s) {
    int ended = 0;
    assert_true(wait_until(has_looked_or_attempted, s, HANG_MS));
    for (size_t i = 0; i < FEW; i++)
        assert_int_equal(hf_lock_release(s->all[i].rival), HF_OK);
    for (size_t i = 0; i < FEW; i++)
        assert_true(world_wait_atomic(&s->all[i].calls, 1, HANG_MS));
    atomic_store(&s->memory.fail_at, 0);
    atomic_store(&s->memory.fail_from, 0);
    for (size_t i = 0; i < FEW; i++) {
        int err = sleepers_join(s, i);
        assert_true(err == HF_OK || err == HF_ENOMEM);
        ended += err == HF_ENOMEM;
    }
    return ended;
}

CASE(forks_and_failures_in_the_middle_of_it) {
    OWN(world_end) struct world w;
    enum { STEPS = 10, STARVED = STEPS, FORKED, ALL };
    struct sleepers s[ALL];
    hf_options quiet = world_options();
    quiet.ping_interval_ms = 10 * HANG_MS; /* who is idle sends nothing */
    world_begin(&w, NULL);
    for (size_t i = 0; i < ALL; i++)
        sleepers_begin(&s[i], &w, FEW, HF_FOREVER, i == FORKED ? &quiet : NULL);
    for (size_t i = 0; i < STEPS; i++)
        atomic_store(&s[i].memory.fail_at, atomic_load(&s[i].memory.calls) + 1 + (long)i);
    atomic_store(&s[STARVED].memory.fail_from, 1);
    proxy_stall_request(s[FORKED].proxy, LOOK);
    fork_during_look(&s[FORKED]);      /* first, since a look is given up after three seconds */
    for (size_t i = 0; i < STEPS; i++) /* one allocation of a look, or of what comes of it, fails */
        assert_in_range(wake_after_a_failure(&s[i]), 0, 1);
    assert_true(wake_after_a_failure(&s[STARVED]) > 0); /* all fail: who has kept some goes on */
    for (size_t i = 0; i < ALL; i++)
        sleepers_end(&s[i]);
}

RUN_CASES(world_start_server, world_stop_server)
