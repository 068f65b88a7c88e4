/*
 * The check of a synchronous wait: called every 50 ms and after a signal, it ends the wait with
 * HF_ECANCELED and nothing is left behind, whatever the wait is for: every kind of lock, a
 * semaphore, permits, a latch, a server that does not answer.
 */
#include "support/world.h"

#include <signal.h>

struct checks {
    int calls, end_at; /* true at this call */
    hf_lock *calls_on; /* a lock that it tries to acquire; or NULL */
    int refused;       /* how often that was HF_EDEADLK */
    hf_op *op;         /* of what it starts there */
    atomic_int seen;   /* the same as `calls`, for other threads */
};

static bool check(void *user) {
    struct checks *checks = user;
    checks->calls++;
    atomic_fetch_add(&checks->seen, 1);
    if (checks->calls_on != NULL && hf_lock_try(checks->calls_on) == HF_EDEADLK)
        checks->refused++;
    return checks->calls == checks->end_at;
}

static hf_acquire_options checked(struct checks *checks) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.check = check;
    options.check_user = checks;
    return options;
}

/* ---- Each kind ---- */

struct kind_row {
    const char *name;
    any_kind kind;
};
static const struct kind_row kinds[] = {
    {"plain", HF_PLAIN},   {"fair", HF_FAIR},     {"spin", HF_SPIN},
    {"fenced", HF_FENCED}, {"read", HF_READ},     {"write", HF_WRITE},
    {"string", HF_STRING}, {"cohort", HF_COHORT}, {"fair_cohort", (any_kind)HF_FAIR | HF_COHORT},
};

/* Behind another client; a reader behind a writer. */
ROW_CASES(T08_a_check_ends_the_wait_for, row, kinds) {
    OWN(world_end) struct world w;
    struct checks checks = {.end_at = 3};
    any_kind against = row->kind == HF_READ ? HF_WRITE : row->kind;
    world_begin(&w, NULL);
    own_lock *mine = made(new_lock, w.client, row->kind, "behind", 6);
    own_lock *theirs = made(new_lock, w.rival, against, "behind", 6);
    assert_int_equal(hf_lock_acquire(theirs), HF_OK);
    hf_acquire_options options = checked(&checks);
    int64_t begun_ms = now_ms();
    assert_int_equal(hf_lock_acquire_with(mine, &options, NULL), HF_ECANCELED);
    assert_true(now_ms() - begun_ms >= 3 * (int64_t)HF_CHECK_MS - 1);
    assert_int_equal(checks.calls, 3);
    assert_int_equal(hf_lock_release(theirs), HF_OK);
    assert_true(WAIT_FOR(!server_has(w.server, "behind"), HANG_MS));
    checks.end_at = 0;
    checks.calls = 0; /* and the next acquire is as ever */
    assert_int_equal(hf_lock_acquire_with(mine, &options, NULL), HF_OK);
    assert_int_equal(hf_lock_release(mine), HF_OK);
}

WORLD_CASE(T08_a_check_ends_the_wait_for_all_of_two) {
    struct checks checks = {.end_at = 2};
    hf_lock *members[2] = {w->lock, NULL}, *all;
    bool locked;
    assert_int_equal(hf_lock_new(w->client, "second", &members[1]), HF_OK);
    assert_int_equal(hf_lock_new_multi(members, 2, &all), HF_OK);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_acquire_options options = checked(&checks);
    assert_int_equal(hf_lock_acquire_with(all, &options, NULL), HF_ECANCELED);
    assert_int_equal(checks.calls, 2);
    assert_true(WAIT_FOR(hf_lock_is_locked(members[1], &locked) == HF_OK && !locked, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    hf_lock_free(all);
    hf_lock_free(members[1]);
}

WORLD_CASE(T08_a_check_ends_the_wait_for_a_semaphore_permits_and_a_latch) {
    struct checks checks = {.end_at = 2};
    hf_wait_options wait = HF_WAIT_OPTIONS_INIT;
    hf_permits_options permits = HF_PERMITS_OPTIONS_INIT;
    hf_permit_id id;
    wait.check = permits.check = check;
    wait.check_user = permits.check_user = &checks;
    assert_int_equal(hf_sem_try_set(w->sem, 0, 0, NULL), HF_OK);
    assert_int_equal(hf_sem_acquire_with(w->sem, 1, &wait), HF_ECANCELED);
    assert_int_equal(checks.calls, 2);
    assert_int_equal(hf_permits_try_set(w->permits, 0, NULL), HF_OK);
    checks.calls = 0;
    assert_int_equal(hf_permits_acquire_with(w->permits, &permits, &id), HF_ECANCELED);
    assert_int_equal(checks.calls, 2);
    assert_int_equal(hf_latch_try_set(w->latch, 1, NULL), HF_OK);
    checks.calls = 0;
    assert_int_equal(hf_latch_await_with(w->latch, &wait), HF_ECANCELED);
    assert_int_equal(checks.calls, 2);
}

/* ---- Servers that do not answer ---- */

/* The acquire may have run: it is undone. */
WORLD_CASE_WITH(T08_a_check_ends_a_wait_for_the_answer, world_options(),
                options.cmd_timeout_ms = HANG_MS) {
    struct checks checks = {.end_at = 2};
    hf_acquire_options options = checked(&checks);
    proxy_mute_replies_after(w->proxy, WORLD_ACQUIRE);
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_ECANCELED);
    assert_int_equal(checks.calls, 2);
    proxy_heal(w->proxy);
    proxy_cut_all(w->proxy);
    assert_true(world_wait_free(w, HANG_MS));
}

CASE(T08_a_check_ends_a_wait_while_connecting) {
    struct checks checks = {.end_at = 2};
    hf_options options = world_options();
    own_server *server = server_start(NULL);
    options.cmd_timeout_ms = options.connect_timeout_ms = HANG_MS;
    server_freeze(server); /* it accepts, and does not greet */
    own_client *client = made(hf_open, server_url(server), &options);
    own_lock *lock = made(hf_lock_new, client, "frozen");
    hf_acquire_options acquire = checked(&checks);
    assert_int_equal(hf_lock_acquire_with(lock, &acquire, NULL), HF_ECANCELED);
    assert_int_equal(checks.calls, 2);
}

CASE(T08_a_check_ends_the_wait_for_a_quorum) {
    struct checks checks = {.end_at = 2};
    struct server *servers[3];
    char urls[1024] = "";
    for (int i = 0; i < 3; i++) {
        servers[i] = server_start(NULL);
        snprintf(urls + strlen(urls), sizeof urls - strlen(urls), "%s ", server_url(servers[i]));
    }
    hf_options options = world_options();
    options.restart_guard_ms = 0;
    hf_client *client = made(hf_open, urls, &options);
    hf_client *rival = made(hf_open, urls, &options);
    hf_lock *lock = made(hf_lock_new, client, "voted");
    hf_lock *theirs = made(hf_lock_new, rival, "voted");
    assert_int_equal(hf_lock_acquire(theirs), HF_OK);
    hf_acquire_options acquire = checked(&checks);
    assert_int_equal(hf_lock_acquire_with(lock, &acquire, NULL), HF_ECANCELED);
    assert_int_equal(checks.calls, 2);
    assert_int_equal(hf_lock_release(theirs), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(theirs);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_close(rival), HF_OK);
    for (int i = 0; i < 3; i++)
        server_free(servers[i]);
}

/* ---- Signals ---- */

static void ignore_signal(int number) {
    (void)number;
}

struct signalled {
    pthread_t waiter;
    struct checks *checks;
    atomic_bool over;
};

/* A hundred of them, each as soon as the check of the last was called. */
static void *send_signals(void *arg) {
    struct signalled *signalled = arg;
    while (!atomic_load(&signalled->over)) {
        pthread_kill(signalled->waiter, SIGUSR1);
        usleep(200); /* the waiter has to sleep again: nothing tells when it does */
    }
    return NULL;
}

/* With SA_RESTART as without: a hundred checks would take 5 s otherwise. */
struct signal_row {
    const char *name;
    any_kind kind;
    int flags;
};
static const struct signal_row signals[] = {
    {"plain", HF_PLAIN, 0},
    {"restarted", HF_PLAIN, SA_RESTART},
    {"fair", HF_FAIR, 0},
    {"cohort", HF_COHORT, SA_RESTART},
};

ROW_CASES(T09_a_signal_calls_the_check_at_once, row, signals) {
    OWN(world_end) struct world w;
    struct checks checks = {.end_at = 100};
    struct signalled signalled = {.waiter = pthread_self(), .checks = &checks};
    struct sigaction action = {.sa_handler = ignore_signal, .sa_flags = row->flags}, before;
    world_begin(&w, NULL);
    own_lock *mine = made(new_lock, w.client, row->kind, "behind", 6);
    own_lock *theirs = made(new_lock, w.rival, row->kind, "behind", 6);
    assert_int_equal(hf_lock_acquire(theirs), HF_OK);
    sigaction(SIGUSR1, &action, &before);
    hf_acquire_options options = checked(&checks);
    int64_t begun_ms = now_ms();
    pthread_t thread = started(send_signals, &signalled);
    assert_int_equal(hf_lock_acquire_with(mine, &options, NULL), HF_ECANCELED);
    int64_t took_ms = now_ms() - begun_ms;
    atomic_store(&signalled.over, true);
    pthread_join(thread, NULL);
    sigaction(SIGUSR1, &before, NULL);
    assert_int_equal(checks.calls, 100);
    assert_true(took_ms < 100 * (int64_t)HF_CHECK_MS);
    assert_int_equal(hf_lock_release(theirs), HF_OK);
}

/* ---- In the check ---- */

/* Others drive the connection meanwhile: a check that does not return keeps nobody from a lock. */
struct slow {
    struct world *w;
    atomic_bool others_done;
    atomic_bool in_check;
};

static bool wait_for_others(void *user) {
    struct slow *slow = user;
    atomic_store(&slow->in_check, true);
    return WAIT_FOR(atomic_load(&slow->others_done), HANG_MS);
}

static void *lock_and_unlock(void *arg) {
    struct slow *slow = arg;
    assert_true(WAIT_FOR(atomic_load(&slow->in_check), HANG_MS));
    hf_lock *lock = made(hf_lock_new, slow->w->client, "other");
    for (int i = 0; i < 100; i++) {
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    hf_lock_free(lock);
    atomic_store(&slow->others_done, true);
    return NULL;
}

WORLD_CASE(T10_a_slow_check_keeps_no_other_thread_waiting) {
    struct slow slow = {.w = w};
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.check = wait_for_others;
    options.check_user = &slow;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    pthread_t thread = started(lock_and_unlock, &slow);
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_ECANCELED);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&slow.others_done));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

WORLD_CASE(T10_a_call_inside_a_check_is_refused) {
    own_lock *other;
    assert_int_equal(hf_lock_new(w->client, "other", &other), HF_OK);
    struct checks checks = {.end_at = 2, .calls_on = other};
    hf_acquire_options options = checked(&checks);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_ECANCELED);
    assert_int_equal(checks.refused, 2);
    assert_int_equal(hf_lock_acquire(other), HF_OK); /* not inside it any more */
    assert_int_equal(hf_lock_release(other), HF_OK);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

WORLD_CASE(T10_an_operation_with_a_check_is_refused) {
    struct checks checks = {.end_at = 1};
    hf_acquire_options options = checked(&checks);
    hf_wait_options wait = HF_WAIT_OPTIONS_INIT;
    hf_permits_options permits = HF_PERMITS_OPTIONS_INIT;
    hf_permit_id id;
    hf_op *op;
    wait.check = permits.check = check;
    assert_int_equal(hf_lock_acquire_start(w->lock, &options, NULL, NULL, &op), HF_EINVAL);
    assert_int_equal(hf_sem_acquire_start(w->sem, 1, &wait, NULL, NULL, &op), HF_EINVAL);
    assert_int_equal(hf_latch_await_start(w->latch, &wait, NULL, NULL, &op), HF_EINVAL);
    assert_int_equal(hf_permits_acquire_start(w->permits, &permits, &id, NULL, NULL, &op),
                     HF_EINVAL);
    assert_int_equal(checks.calls, 0);
}

/* A grant that comes first is kept. */
WORLD_CASE(T10_a_check_that_goes_on_changes_nothing) {
    struct checks checks = {.end_at = 0};
    struct world_caller caller;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_acquire_options options = checked(&checks);
    world_call_acquire(&caller, w->lock, options);
    assert_true(WAIT_FOR(atomic_load(&checks.seen) > 4, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&caller), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, caller.owner), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
