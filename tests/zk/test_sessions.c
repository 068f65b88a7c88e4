/*
 * The session that a hold lives by: it ends when its process is stopped or killed, or the server has forgotten it;
 * it outlives a server that comes back. Closing and forking, and what they leave.
 */
#include "support/case.h"
#include "zk/scene.h"

#include <dlfcn.h>
#include <netdb.h>
#include <signal.h>

/* ---- A holder in another process ------------------------------------------------------------- */

struct holder {
    const char *name;
    int64_t session_ms;
    atomic_int holds, lost, may_go;
};

static void note_loss(hf_lock *lock, const hf_event *event, void *arg) {
    struct holder *holder = arg;
    (void)lock;
    if (event->kind == HF_EVENT_LOST)
        atomic_store(&holder->lost, 1);
}

static bool is_lost(void *arg) {
    struct holder *holder = arg;
    return atomic_load(&holder->lost) != 0;
}

static bool may_go(void *arg) {
    struct holder *holder = arg;
    return atomic_load(&holder->may_go) != 0;
}

/* Holds until it is notified of a loss; then the hold must be over. It stays for as long as it may
 * have to be stopped. */
static int hold_until_lost(void *arg) {
    struct holder *holder = arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    hf_lock *lock = NULL;
    options.watchdog_ms = holder->session_ms;
    options.cmd_timeout_ms = 20000;
    options.connect_timeout_ms = HANG_MS;
    if (hf_open(zk_url(scene.zk), &options, &client) != HF_OK ||
        hf_lock_new(client, holder->name, &lock) != HF_OK ||
        hf_lock_on_lost(lock, note_loss, holder) != HF_OK || hf_lock_acquire(lock) != HF_OK)
        return 1;
    atomic_store(&holder->holds, 1);
    if (!wait_until(is_lost, holder, HANG_MS))
        return 2;
    if (hf_lock_remaining_ms(lock) != 0)
        return 3;
    if (hf_lock_release(lock) != HF_ELOST)
        return 4;
    if (!wait_until(may_go, holder, HANG_MS))
        return 5;
    hf_lock_free(lock);
    hf_close(client);
    return 0;
}

static bool has_begun(void *arg) {
    struct holder *holder = arg;
    return atomic_load(&holder->holds) != 0;
}

static pid_t start_holder(struct holder *holder) {
    pid_t pid = run_child(hold_until_lost, holder);
    assert_true(wait_until(has_begun, holder, HANG_MS));
    return pid;
}

/* False: it had lost what it held before it was stopped. */
static bool stop_a_holder(hf_lock *lock) {
    struct holder *holder = shared_new(sizeof *holder);
    holder->name = "stopped";
    holder->session_ms = SHORT_MS;
    pid_t pid = start_holder(holder);
    stop_process(pid);
    bool held = !is_lost(holder);
    assert_hf(HF_OK, hf_lock_acquire_for(lock, HANG_MS));
    atomic_store(&holder->may_go, 1);
    kill(pid, SIGCONT);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_int_equal(zk_count(scene.eyes, "/stopped"), 1);
    assert_hf(HF_OK, hf_lock_release(lock));
    shared_free(holder, sizeof *holder);
    return held;
}

CASE_AROUND(stopped_for_longer_than_its_session, scene_heal, NULL) {
    int rounds = 1;
    own_client *client = scene_direct(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "stopped");
    while (!stop_a_holder(lock))
        assert_true(rounds++ < SCENE_ROUNDS);
    print_message("stopped while it held in round %d\n", rounds);
}

CASE_AROUND(killed, scene_heal, NULL) {
    struct holder *holder = shared_new(sizeof *holder);
    holder->name = "killed";
    holder->session_ms = ENDURING_MS;
    pid_t pid = start_holder(holder);
    hf_client *client = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "killed");
    hf_op *op = scene_acquire_start(lock);
    assert_true(scene_wait_behind("/killed", op));
    kill_child(pid);
    hf_owner owner = scene_acquired(op);
    assert_hf(HF_OK, hf_lock_release_as(lock, owner));
    hf_lock_free(lock);
    hf_close(client);
    shared_free(holder, sizeof *holder);
}

/* ---- Servers --------------------------------------------------------------------------------- */

/* False: there was a loss without a warning, as if nobody had looked in the quarter of a session between them. */
static bool fall_silent(void) {
    struct scene_events events = {0};
    hf_client *client = scene_direct(ENDURING_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "silent");
    assert_hf(HF_OK, hf_lock_on_lost(lock, scene_on_event, &events));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    zk_freeze(scene.zk);
    bool notified = scene_wait_losses(&events, 1); /* while nobody can have said so */
    zk_unfreeze(scene.zk);
    assert_true(notified);
    assert_hf(HF_ELOST, hf_lock_release(lock));
    assert_nodes("silent", 0);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
    return atomic_load(&events.warnings) >= 1;
}

CASE_AROUND(a_server_that_says_nothing, scene_heal, NULL) {
    int rounds = 1;
    while (!fall_silent())
        assert_true(rounds++ < SCENE_ROUNDS);
    print_message("warned in round %d\n", rounds);
}

/* A server that has just begun may take a connection, and forget about it; here nobody comes before it serves. */
CASE_AROUND(a_server_that_comes_back, scene_heal, NULL) {
    hf_client *client = scene_proxied(SURVIVES_MS), *rival = scene_proxied(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "back"),
            *wanted = scene_lock(rival, HF_PLAIN, "back");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    hf_op *op = scene_acquire_start(wanted);
    assert_nodes("back", 2);
    proxy_refuse(scene.proxy, true);
    zk_restart(scene.zk);
    proxy_refuse(scene.proxy, false);
    assert_int_equal(zk_count(scene.eyes, "/back"), 2);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_hf(HF_OK, hf_lock_release_as(wanted, scene_acquired(op)));
    assert_int_equal(scene_stats(client).losses, 0);
    hf_lock_free(lock);
    hf_lock_free(wanted);
    hf_close(client);
    hf_close(rival);
}

static atomic_bool resolves;
static atomic_int failed_lookups;

/* The library's resolver, but for one name. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (node == NULL || strcmp(node, "sometimes.invalid") != 0)
        return real(node, service, hints, ret);
    if (atomic_load(&resolves))
        return real("127.0.0.1", service, hints, ret);
    atomic_fetch_add(&failed_lookups, 1);
    return EAI_NONAME;
}

static bool have_lookups_failed(void *unused) {
    (void)unused;
    return atomic_load(&failed_lookups) >= 3;
}

/* A name that has led to a server may do so again, so its absence ends no wait. */
CASE_AROUND(U91_a_name_that_goes_away_is_waited_for, scene_heal, NULL) {
    own_text *url = text_of("zk://sometimes.invalid:%d", proxy_port(scene.proxy));
    atomic_store(&resolves, true);
    own_client *client = scene_client(url, SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "sometimes");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    atomic_store(&resolves, false);
    (void)proxy_cut_all(scene.proxy);
    hf_op *op = scene_acquire_start(lock);
    assert_true(wait_until(have_lookups_failed, NULL, HANG_MS));
    atomic_store(&resolves, true);
    assert_hf(HF_OK, hf_lock_release_as(lock, scene_acquired(op)));
}

/* The holder learns that its session is gone, at its end: a server that knows less than we have seen says nothing. Who
 * waited waits in the queue anew, and gets it. */
CASE_AROUND(a_server_that_returns_empty, scene_heal, NULL) {
    struct scene_events events = {0};
    hf_client *client = scene_direct(ENDURING_MS), *rival = scene_direct(ENDURING_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "empty"),
            *wanted = scene_lock(rival, HF_PLAIN, "empty");
    assert_hf(HF_OK, hf_lock_on_lost(lock, scene_on_event, &events));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    hf_op *op = scene_acquire_start(wanted);
    assert_nodes("empty", 2);
    zk_restart_empty(scene.zk);
    assert_true(scene_wait_losses(&events, 1));
    hf_owner owner = scene_acquired(op);
    assert_int_equal(zk_count(scene.eyes, "/empty"), 1);
    assert_hf(HF_ELOST, hf_lock_release(lock));
    assert_hf(HF_OK, hf_lock_release_as(wanted, owner));
    hf_lock_free(lock);
    hf_lock_free(wanted);
    hf_close(client);
    hf_close(rival);
}

/* The n-th node under the path, and the session that it belongs to. */
struct in_line {
    char node[512];
    int64_t session;
};

static struct in_line find_queued(const char *path, size_t n) {
    struct zk_children *line = zk_children(scene.eyes, path);
    struct in_line found;
    assert_non_null(line);
    assert_true(line->count > n);
    snprintf(found.node, sizeof found.node, "%s/%s", path, line->names[n]);
    zk_children_free(line);
    found.session = zk_owner(scene.eyes, found.node);
    assert_true(found.session != 0 && found.session != -1);
    return found;
}

static bool is_closed(void *arg) {
    const struct in_line *of = arg;
    zk_close_session(zk_port(scene.zk), of->session);
    return zk_exists(scene.eyes, of->node) == ZK_NO_NODE;
}

/* Somebody else ends the sessions of a holder and of one who waits. The first is notified, the second
 * waits in the queue anew. */
CASE_AROUND(closed_from_outside, scene_heal, NULL) {
    struct scene_events events = {0};
    hf_client *client = scene_direct(SURVIVES_MS), *rival = scene_direct(SURVIVES_MS),
              *third = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "outside"),
            *wanted = scene_lock(rival, HF_PLAIN, "outside"),
            *last = scene_lock(third, HF_PLAIN, "outside");
    assert_hf(HF_OK, hf_lock_on_lost(lock, scene_on_event, &events));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    hf_op *second = scene_acquire_start(wanted);
    assert_nodes("outside", 2);
    hf_op *op = scene_acquire_start(last);
    assert_nodes("outside", 3);
    struct in_line holds = find_queued("/outside", 0), waits = find_queued("/outside", 1);
    assert_true(wait_until(is_closed, &waits, HANG_MS));
    assert_true(wait_until(is_closed, &holds, HANG_MS));
    hf_owner owner = scene_acquired(op); /* who waited behind them has it now */
    assert_true(scene_wait_losses(&events, 1));
    assert_hf(HF_ELOST, hf_lock_release(lock));
    assert_nodes("outside", 2); /* the other has come again, in a session that is new */
    assert_true(find_queued("/outside", 1).session != waits.session);
    assert_int_equal(hf_op_wait(second, 0, NULL), HF_EPENDING);
    assert_hf(HF_OK, hf_lock_release_as(last, owner));
    assert_hf(HF_OK, hf_lock_release_as(wanted, scene_acquired(second)));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_lock_free(wanted);
    hf_lock_free(last);
    hf_close(client);
    hf_close(rival);
    hf_close(third);
}

/* Somebody deletes the node of one who waits. It waits in the queue anew: what was before it is
 * gone then, and so is its place. */
CASE_AROUND(a_place_deleted_from_outside, scene_heal, NULL) {
    hf_client *client = scene_direct(SURVIVES_MS), *rival = scene_direct(SURVIVES_MS),
              *third = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "place"),
            *wanted = scene_lock(rival, HF_PLAIN, "place"),
            *last = scene_lock(third, HF_PLAIN, "place");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    hf_op *second = scene_acquire_start(wanted);
    assert_nodes("place", 2);
    hf_op *op = scene_acquire_start(last);
    assert_nodes("place", 3);
    struct in_line waits = find_queued("/place", 1);
    assert_int_equal(zk_delete(scene.eyes, waits.node), 0);
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_owner owner = scene_acquired(op);
    assert_nodes("place", 2);
    assert_int_equal(hf_op_wait(second, 0, NULL), HF_EPENDING);
    assert_hf(HF_OK, hf_lock_release_as(last, owner));
    assert_hf(HF_OK, hf_lock_release_as(wanted, scene_acquired(second)));
    hf_lock_free(lock);
    hf_lock_free(wanted);
    hf_lock_free(last);
    hf_close(client);
    hf_close(rival);
    hf_close(third);
}

struct beats {
    hf_lock *lock;
    int64_t seen_ms; /* the most that remained after a heartbeat, on this clock */
    int raised;
};

static bool is_raised_twice(void *arg) {
    struct beats *beats = arg;
    int64_t until_ms = now_ms() + hf_lock_remaining_ms(beats->lock);
    if (until_ms > beats->seen_ms + ENDURING_MS / 8) {
        beats->seen_ms = until_ms;
        beats->raised++;
    }
    return beats->raised >= 3; /* the first look is one of them */
}

/* Thirty seconds are asked for, and less is got: what counts is the server's word. */
CASE_AROUND(a_server_that_grants_less, scene_heal, NULL) {
    own_text *line = text_of("maxSessionTimeout=%d", ENDURING_MS);
    struct zk_options options = {.config = (const char *const[]){line, NULL}};
    struct zk *zk = zk_start(&options);
    hf_client *client = scene_client(zk_url(zk), 30000);
    struct beats beats = {.lock = scene_lock(client, HF_PLAIN, "less")};
    assert_hf(HF_OK, hf_lock_acquire(beats.lock));
    assert_true(hf_lock_remaining_ms(beats.lock) > 0);
    assert_true(hf_lock_remaining_ms(beats.lock) <= ENDURING_MS);
    assert_true(wait_until(is_raised_twice, &beats, HANG_MS));
    assert_int_equal(scene_stats(client).losses, 0);
    assert_hf(HF_OK, hf_lock_release(beats.lock));
    hf_lock_free(beats.lock);
    hf_close(client);
    zk_free(zk);
}

/* ---- A thread of the application that is stuck ------------------------------------------------ */

static atomic_int stuck, may_leave;

/* A handler that does not return before it is allowed to. */
static void get_stuck(int number) {
    (void)number;
    atomic_store(&stuck, 1);
    while (atomic_load(&may_leave) == 0)
        (void)wait_a_moment();
}

static bool is_stuck(void *unused) {
    (void)unused;
    return atomic_load(&stuck) != 0;
}

static void *wait_queued(void *lock) {
    return hf_lock_acquire(lock) == HF_OK && hf_lock_release(lock) == HF_OK ? lock : NULL;
}

/* While it waits it does the keeper's work, and the keeper takes it back: what others hold is kept. */
CASE_AROUND(a_caller_that_is_stuck_stops_nothing, scene_heal, NULL) {
    struct scene_events events = {0};
    hf_client *client = scene_direct(2 * ENDURING_MS), *rival = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "kept"),
            *wanted = scene_lock(client, HF_PLAIN, "wanted"),
            *theirs = scene_lock(rival, HF_PLAIN, "wanted");
    struct sigaction action = {.sa_handler = get_stuck}, before;
    void *got = NULL;
    assert_hf(HF_OK, hf_lock_on_lost(lock, scene_on_event, &events));
    assert_hf(HF_OK, hf_lock_acquire(theirs));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    pthread_t thread = started(wait_queued, wanted);
    assert_nodes("wanted", 2);
    assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
    assert_true(wait_until(is_stuck, NULL, HANG_MS));
    /* longer than the session lasts without heartbeats */
    assert_true(HOLDS_FOR(hf_lock_remaining_ms(lock) > 0, 2 * ENDURING_MS + 1000));
    assert_int_equal(atomic_load(&events.losses), 0);
    atomic_store(&may_leave, 1);
    assert_hf(HF_OK, hf_lock_release(theirs));
    assert_int_equal(pthread_join(thread, &got), 0);
    assert_ptr_equal(got, wanted);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    hf_lock_free(lock);
    hf_lock_free(wanted);
    hf_lock_free(theirs);
    hf_close(client);
    hf_close(rival);
}

/* ---- Close and fork -------------------------------------------------------------------------- */

/* Its answer was read from one connection, and is looked at when there is another: what it proves is the first one's
 * handshake. */
CASE_AROUND(an_answer_is_looked_at_late, scene_heal, NULL) {
    enum { T_MS = 9000 };
    hf_options options = HF_OPTIONS_INIT;
    own_client *client = NULL;
    own_op *op = NULL;
    hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    options.watchdog_ms = T_MS;
    options.flags = HF_MANUAL_DISPATCH;
    scene_warm("late-answer");
    assert_hf(HF_OK, hf_open(proxy_tcp_url(scene.proxy), &options, &client));
    own_lock *held = scene_lock(client, HF_PLAIN, "kept"); /* so that the session is proved again */
    own_lock *late = scene_lock(client, HF_PLAIN, "late-answer");
    assert_hf(HF_OK, hf_lock_acquire(held));
    int64_t greeted_ms = now_ms(); /* or earlier */
    size_t greetings = proxy_seen(scene.proxy, "connect");
    acquire.owner = hf_owner_new();
    assert_hf(HF_OK, hf_lock_acquire_start(late, &acquire, NULL, NULL, &op));
    (void)hf_dispatch(client, 0);
    assert_nodes("late-answer", 1);
    assert_true(proxy_wait_answered(scene.proxy, HANG_MS));
    proxy_stall_request(scene.proxy, "multi");
    assert_true(proxy_wait_seen(scene.proxy, "connect", greetings + 1, HANG_MS));
    assert_true(proxy_wait_held(scene.proxy, HANG_MS)); /* nothing is committed on the new one */
    for (int64_t limit_ms = now_ms() + HANG_MS; hf_op_wait(op, 0, NULL) == HF_EPENDING;) {
        assert_true(hf_dispatch(client, 0) >= 0);
        assert_true(now_ms() < limit_ms);
        (void)wait_a_moment();
    }
    int64_t end_ms = greeted_ms + T_MS - now_ms();
    int64_t left_ms = hf_lock_remaining_ms_as(late, acquire.owner);
    /* on a busy machine a third connection may be there, and may have proved more */
    assert_true(left_ms <= (end_ms > 0 ? end_ms : 0) ||
                proxy_seen(scene.proxy, "connect") > greetings + 1);
}

CASE_AROUND(closed_without_holds, scene_heal, NULL) {
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "closed");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    size_t seen = proxy_seen(scene.proxy, "closeSession");
    hf_lock_free(lock);
    hf_close(client);
    assert_true(proxy_wait_seen(scene.proxy, "closeSession", seen + 1, HANG_MS));
}

CASE_AROUND(closed_with_a_hold, scene_heal, NULL) {
    hf_client *client = scene_proxied(ENDURING_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "left");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    size_t seen = proxy_seen(scene.proxy, "closeSession");
    hf_lock_free(lock);
    hf_close(client);
    assert_nodes("left", 0); /* when the session has run out */
    assert_int_equal(proxy_seen(scene.proxy, "closeSession"), seen);
}

static int exit_at_once(void *arg) {
    return hf_close(arg) == HF_OK ? 0 : 1;
}

CASE_AROUND(a_child_takes_nothing_along, scene_heal, NULL) {
    own_client *client = scene_proxied(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "forked");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    size_t seen = proxy_seen(scene.proxy, "closeSession");
    assert_true(expect_exit(run_child(exit_at_once, client), 0, HANG_MS));
    assert_hf(HF_OK, hf_ping(client));
    assert_int_equal(zk_count(scene.eyes, "/forked"), 1);
    assert_int_equal(proxy_seen(scene.proxy, "closeSession"), seen);
    assert_hf(HF_OK, hf_lock_release(lock));
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
