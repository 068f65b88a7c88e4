/*
 * Parked waiters (src/core/op/park.c) and faults: the server stops, restarts empty or drops a
 * listener; the process forks; a cancel or the end of the wait comes together with the message.
 * Each waiter gets its lock once, or ends with a documented error, and no lock stays granted to a
 * waiter that is gone.
 *
 * In the long form (HF_SOAK) the server stops for longer than any call waits for it.
 */
#include "lock/sleepers.h"

#include <sched.h>

#define MANY 1000
#define SOME 200
#define FEW 4
#define STOPPED_MS 40000

static bool is_long(void) {
    return getenv("HF_SOAK") != NULL;
}

/* The rival, who goes straight to the server, finds each lock free: nobody has it who did not get it. */
static void all_are_free(struct sleepers *s) {
    for (size_t i = 0; i < s->len; i++) {
        assert_int_equal(hf_lock_acquire_for(s->all[i].rival, HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(s->all[i].rival), HF_OK);
    }
}

static void release_all(struct sleepers *s) {
    for (size_t i = 0; i < s->len; i++)
        assert_int_equal(hf_lock_release(s->all[i].rival), HF_OK);
}

static void all_get_it(struct sleepers *s) {
    for (size_t i = 0; i < s->len; i++)
        assert_int_equal(sleepers_join(s, i), HF_OK);
    all_are_free(s);
}

/* ---- The server ---- */

struct noticed {
    struct proxy *proxy;
    size_t connections;
};

static bool connects_again(void *arg) {
    const struct noticed *noticed = arg;
    return proxy_connections(noticed->proxy) > noticed->connections;
}

/* Its connections stay, and say nothing; so all ask, which is not answered, either. */
CASE(the_server_stops_for_a_while) {
    OWN(world_end) struct world w;
    struct sleepers s;
    hf_options options = world_options();
    options.watchdog_ms = 4 * STOPPED_MS; /* nothing is lost meanwhile */
    world_begin(&w, &options);
    options.ping_interval_ms = 200;
    sleepers_begin(&s, &w, MANY, HF_FOREVER, &options);
    struct noticed noticed = {s.proxy, proxy_connections(s.proxy)};
    server_freeze(w.server);
    assert_true(wait_until(connects_again, &noticed, HANG_MS));
    if (is_long())
        sleep_ms(STOPPED_MS); /* the soak: nothing answers for so long */
    server_unfreeze(w.server);
    release_all(&s);
    for (size_t i = 0; i < MANY; i++) {
        int err = sleepers_join(&s, i);
        assert_true(err == HF_OK || err == HF_EUNREACH);
    }
    all_are_free(&s);
    sleepers_end(&s);
}

/* What they waited for is gone with everything else, and nobody is there to tell them. */
CASE(the_server_restarts_empty) {
    OWN(world_end) struct world w;
    struct sleepers s;
    own_server *server = server_start(NULL);
    world_begin_on(&w, server, NULL);
    sleepers_begin(&s, &w, MANY, HF_FOREVER, NULL);
    server_restart(server);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(sleepers_join(&s, i), HF_OK);
    sleepers_end(&s);
}

/* The releases are reported to nobody, since nobody listens at that moment. */
WORLD_CASE(messages_are_lost_with_their_connection) {
    OWN(sleepers_end) struct sleepers s;
    sleepers_begin(&s, w, MANY, HF_FOREVER, NULL);
    proxy_refuse(s.proxy, true);
    assert_true(cmd_int(w->server, "CLIENT KILL TYPE pubsub") >= 1);
    release_all(&s);
    proxy_refuse(s.proxy, false);
    all_get_it(&s);
}

/* ---- In the same instant ---- */

/* Whichever comes first: what was got is released, and what was cancelled leaves nothing. The
 * cancel comes a little later each time, so that it meets all there is between the message and the
 * lock. */
WORLD_CASE(a_cancel_meets_the_message) {
    OWN(sleepers_end) struct sleepers s;
    int cancelled = 0;
    sleepers_begin(&s, w, SOME, HF_FOREVER, NULL);
    for (size_t i = 0; i < SOME; i++) {
        assert_int_equal(hf_lock_release(s.all[i].rival), HF_OK);
        for (size_t moments = 0; moments < 2 * i; moments++)
            sched_yield();
        hf_op_cancel(s.all[i].op);
        int err = sleepers_join(&s, i);
        assert_true(err == HF_OK || err == HF_ECANCELED);
        cancelled += err == HF_ECANCELED;
    }
    print_message("%d of %d were cancelled\n", cancelled, SOME);
    all_are_free(&s);
}

/* Each lock becomes free within the few milliseconds in which its wait ends. */
WORLD_CASE(the_wait_ends_with_the_message) {
    OWN(sleepers_end) struct sleepers s;
    int late = 0;
    int64_t wait_ms = 1000;
    sleepers_begin(&s, w, SOME, wait_ms, NULL);
    for (size_t i = 0; i < SOME; i++) {
        while (now_ms() < s.all[i].start_ms + wait_ms - (int64_t)(i % 5))
            sched_yield();
        assert_int_equal(hf_lock_release(s.all[i].rival), HF_OK);
    }
    for (size_t i = 0; i < SOME; i++) {
        int err = sleepers_join(&s, i);
        assert_true(err == HF_OK || err == HF_ETIMEDOUT);
        late += err == HF_ETIMEDOUT;
    }
    print_message("%d of %d were too late\n", late, SOME);
    all_are_free(&s);
}

/* ---- Who waits ---- */

static bool has_answered(const hf_fleet *fleet, const hf_client *client) {
    for (size_t i = 0; i < fleet->clients_len; i++)
        if (strcmp(fleet->clients[i]->id, hf_client_id(client)) == 0)
            return fleet->clients[i]->presence == HF_PRESENCE_ALIVE;
    return false;
}

/* They wake for nothing and go to sleep again on one thread, while another tells of them, which a
 * sanitizer sees. Who has no processor in time is silent, and that is asked again. */
WORLD_CASE(they_are_reported_while_they_come_and_go) {
    OWN(sleepers_end) struct sleepers s;
    hf_options options = world_options();
    options.report_after_ms = 0;
    options.flags = HF_MANUAL_DISPATCH;
    sleepers_begin(&s, w, FEW, HF_FOREVER, &options);
    for (int answers = 0; answers < 20;) {
        own_fleet *fleet = NULL;
        hf_op *survey;
        assert_int_equal(hf_survey_start(w->rival, NULL, &fleet, NULL, NULL, &survey), HF_OK);
        while (hf_op_wait(survey, 0, NULL) == HF_EPENDING)
            for (size_t i = 0; i < FEW; i++) {
                char name[64];
                sleepers_name(&s, i, name);
                cmd_int(w->server, "PUBLISH redisson_lock__channel:{%s} 0", name);
            }
        assert_int_equal(hf_op_wait(survey, 0, NULL), HF_OK);
        hf_op_free(survey);
        size_t waiters = 0;
        for (size_t i = 0; i < fleet->locks_len; i++)
            waiters += fleet->locks[i]->waiters_len;
        bool answered = has_answered(fleet, s.client);
        assert_int_equal(waiters, answered ? FEW : 0);
        answers += answered;
    }
    release_all(&s);
    all_get_it(&s);
}

/* ---- fork ---- */

WORLD_CASE(a_fork_leaves_them_alone) {
    OWN(sleepers_end) struct sleepers s;
    hf_options options = world_options();
    options.ping_interval_ms = 10 * HANG_MS; /* who is idle sends nothing */
    sleepers_begin(&s, w, FEW, HF_FOREVER, &options);
    size_t sent = proxy_seen(s.proxy, "");
    assert_true(expect_exit(run_child(sleepers_forked, &s), 0, HANG_MS));
    assert_int_equal(proxy_seen(s.proxy, ""), sent);
    release_all(&s);
    all_get_it(&s);
    assert_int_equal(world_stats(s.client).reconnects, 0);
}

RUN_CASES(world_start_server, world_stop_server)
