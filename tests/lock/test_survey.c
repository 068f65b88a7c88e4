/*
 * A survey: what the server and the clients say of who holds and who waits, joined; and deadlocks.
 *
 * Clients here report at once, unless a test is about that, and every test waits until those it asks
 * about listen.
 */
#include "support/world.h"

#include <errno.h>
#include <semaphore.h>

static hf_options telling(void) {
    hf_options options = world_options();
    options.report_after_ms = 0;
    return options;
}

static hf_fleet *survey(hf_client *client, const char *pattern) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.pattern = pattern;
    assert_int_equal(hf_survey(client, &options, &fleet), HF_OK);
    return fleet;
}

static const hf_fleet_lock *find(const hf_fleet *fleet, const char *name) {
    for (size_t i = 0; i < fleet->locks_len; i++)
        if (strcmp(fleet->locks[i]->name, name) == 0)
            return fleet->locks[i];
    return NULL;
}

/* Until everybody tells: so many owners hold the lock or wait for it, and each is known to its client. Who
 * waits tells so a moment before it listens for the release. */
struct reported {
    hf_client *client;
    const char *name;
    size_t parties;
    int64_t listeners; /* at least */
    hf_fleet *fleet;
};

static size_t reported_by_clients(const hf_fleet_party *const *all, size_t len) {
    size_t reported = 0;
    for (size_t i = 0; i < len; i++)
        reported += (all[i]->seen_by & HF_SEEN_BY_CLIENT) != 0;
    return reported;
}

static bool is_reported(void *arg) {
    struct reported *reported = arg;
    hf_fleet_free(reported->fleet);
    reported->fleet = survey(reported->client, NULL);
    const hf_fleet_lock *lock = find(reported->fleet, reported->name);
    return lock != NULL && lock->listeners >= reported->listeners &&
           reported_by_clients(lock->holders, lock->holders_len) +
                   reported_by_clients(lock->waiters, lock->waiters_len) ==
               reported->parties;
}

static hf_fleet *survey_until_reported(hf_client *client, const char *name, size_t parties) {
    struct reported reported = {.client = client, .name = name, .parties = parties};
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    return reported.fleet;
}

static hf_client *open_one(struct server *server, const hf_options *options) {
    return made(hf_open, server_url(server), options);
}

WORLD_CASE(an_empty_server_has_an_empty_survey) {
    own_fleet *fleet = survey(w->rival, NULL);
    assert_int_equal(fleet->locks_len, 0);
    assert_int_equal(fleet->missing, 0);
    assert_string_equal(fleet->missing_text, "");
}

CASE(a_holder_and_a_waiter_are_reported_in_full) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    hf_options options = telling();
    world_begin(&w, &options);
    own_client *other = open_one(w.server, &options);
    own_lock *wanted = made(hf_lock_new, other, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    world_call_acquire(&waiter, wanted, world_wait_for(HF_FOREVER, HF_WATCHDOG));

    struct reported reported = {
        .client = w.rival, .name = WORLD_NAME, .parties = 2, .listeners = 1};
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    hf_fleet *fleet = reported.fleet;
    assert_int_equal(fleet->missing, 0);
    const hf_fleet_lock *lock = find(fleet, WORLD_NAME);
    assert_non_null(lock);
    assert_string_equal(lock->kind, "plain");
    assert_true(lock->ttl_ms > 0);
    assert_false(lock->disputed);
    assert_int_equal(lock->holders_len, 1);
    const hf_fleet_party *holder = lock->holders[0];
    assert_string_equal(holder->owner, w.owner);
    assert_int_equal(holder->count, 1);
    assert_int_equal(holder->presence, HF_PRESENCE_ALIVE);
    assert_int_equal(holder->seen_by, HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT);
    assert_true(holder->renewed);
    assert_true(holder->for_ms >= 0);
    assert_non_null(holder->client);
    assert_string_equal(holder->client->id, hf_client_id(w.client));
    assert_int_equal(holder->client->pid, getpid());
    assert_string_equal(holder->client->program, program_invocation_short_name);
    assert_string_equal(holder->client->version, hf_version());
    assert_int_equal(lock->waiters_len, 1);
    assert_string_equal(lock->waiters[0]->client->id, hf_client_id(other));
    assert_int_equal(lock->waiters[0]->presence, HF_PRESENCE_ALIVE);
    assert_int_equal(lock->waiters[0]->remaining_ms, -1);
    assert_int_equal(lock->listeners, 1);
    hf_fleet_free(fleet);

    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
}

/* One that locks and releases quickly pays for no subscription. */
/* The server gets it, and so does a survey. What a name of a connection cannot have becomes `_`; a long one is cut. */
CASE(a_label_stands_for_the_program) {
    const struct {
        const char *label, *shown;
    } all[] = {
        {"nightly backup:\xc3\xa4\n", "nightly_backup:___"},
        {"0123456789012345678901234567890123456789012345678901234567890123456789",
         "0123456789012345678901234567890123456789012345678901234567890123"},
        {"", program_invocation_short_name},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct world w;
        hf_options options = telling();
        options.label = all[i].label;
        world_begin(&w, &options);
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        hf_fleet *fleet = survey_until_reported(w.rival, WORLD_NAME, 1);
        assert_string_equal(find(fleet, WORLD_NAME)->holders[0]->client->program, all[i].shown);
        hf_fleet_free(fleet);
        hf_lock_info *info;
        assert_int_equal(hf_lock_inspect(w.lock, &info), HF_OK);
        assert_int_equal(info->holders_len, 1);
        const char *last = strrchr(info->holders[0]->connection, ' ');
        assert_string_equal(last + 1, all[i].shown);
        hf_lock_info_free(info);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
        world_end(&w);
    }
}

WORLD_CASE(a_quick_client_never_listens) {
    long long before = server_calls(w->server, "subscribe");
    int64_t longest_ms = 0;
    for (int i = 0; i < 100; i++) {
        int64_t start_ms = now_ms();
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        int64_t took_ms = now_ms() - start_ms;
        longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
    }
    if (longest_ms < 749) /* else the machine paused, and it was not quick */
        assert_int_equal(server_calls(w->server, "subscribe"), before);
}

/* Who waits for a second listens too, without holding anything. */
WORLD_CASE(a_long_wait_listens) {
    struct world_caller waiter;
    hf_options silent = world_options();
    silent.report_after_ms = -1;
    own_client *holder = open_one(w->server, &silent);
    own_lock *held = made(hf_lock_new, holder, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    /* the holder listens for breaks, but does not answer */
    hf_fleet *fleet = survey_until_reported(w->rival, WORLD_NAME, 1);
    const hf_fleet_lock *lock = find(fleet, WORLD_NAME);
    assert_non_null(lock);
    assert_int_equal(lock->waiters_len, 1);
    assert_true(lock->waiters[0]->for_ms >= 999);
    assert_int_equal(lock->holders[0]->seen_by, HF_SEEN_BY_SERVER);
    assert_int_not_equal(lock->holders[0]->presence, HF_PRESENCE_ALIVE);
    hf_fleet_free(fleet);
    assert_int_equal(hf_lock_release(held), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
}

struct named {
    hf_lock *lock;
    sem_t enough;
};

static void *hold_by_name(void *arg) {
    struct named *named = arg;
    assert_int_equal(pthread_setname_np(pthread_self(), "a holder"), 0);
    assert_int_equal(hf_lock_acquire(named->lock), HF_OK);
    assert_int_equal(sem_wait(&named->enough), 0);
    assert_int_equal(hf_lock_release(named->lock), HF_OK);
    return NULL;
}

static void *wait_by_name(void *arg) {
    assert_int_equal(pthread_setname_np(pthread_self(), "a waiter"), 0);
    assert_int_equal(hf_lock_acquire(arg), HF_OK);
    assert_int_equal(hf_lock_release(arg), HF_OK);
    return NULL;
}

/* One that has the name of its process has none of its own. */
WORLD_CASE_WITH(threads_are_reported_by_name, telling()) {
    pthread_t threads[2];
    own_lock *unnamed;
    struct named holder;
    holder.lock = w->lock;
    assert_int_equal(sem_init(&holder.enough, 0, 0), 0);
    assert_int_equal(hf_lock_new(w->client, "unnamed", &unnamed), HF_OK);
    assert_int_equal(hf_lock_acquire(unnamed), HF_OK);
    assert_int_equal(pthread_create(&threads[0], NULL, hold_by_name, &holder), 0);
    hf_fleet *fleet = survey_until_reported(w->rival, WORLD_NAME, 1);
    assert_string_equal(find(fleet, "unnamed")->holders[0]->thread, "");
    hf_fleet_free(fleet);
    assert_int_equal(pthread_create(&threads[1], NULL, wait_by_name, w->lock), 0);
    fleet = survey_until_reported(w->rival, WORLD_NAME, 2);
    const hf_fleet_lock *lock = find(fleet, WORLD_NAME);
    assert_string_equal(lock->holders[0]->thread, "a holder");
    assert_string_equal(lock->waiters[0]->thread, "a waiter");
    hf_fleet_free(fleet);
    assert_int_equal(sem_post(&holder.enough), 0);
    assert_int_equal(pthread_join(threads[0], NULL), 0);
    assert_int_equal(pthread_join(threads[1], NULL), 0);
    sem_destroy(&holder.enough);
}

CASE(kinds_are_distinguished) {
    OWN(world_end) struct world w;
    static const struct {
        const char *name;
        any_kind kind;
        const char *reported;
    } kinds[] = {{"k-plain", HF_PLAIN, "plain"},
                 {"k-fenced", HF_FENCED, "fenced"},
                 {"k-fair", HF_FAIR, "fair"},
                 {"k-read", HF_READ, "read"},
                 {"k-write", HF_WRITE, "write"}};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    hf_lock *locks[KINDS];
    hf_options options = telling();
    world_begin(&w, &options);
    for (int i = 0; i < KINDS; i++) {
        assert_int_equal(
            new_lock(w.client, kinds[i].kind, kinds[i].name, strlen(kinds[i].name), &locks[i]),
            HF_OK);
        assert_int_equal(hf_lock_acquire(locks[i]), HF_OK);
    }
    hf_fleet *fleet = survey_until_reported(w.rival, kinds[KINDS - 1].name, 1);
    assert_int_equal(fleet->locks_len, KINDS);
    for (int i = 0; i < KINDS; i++) {
        const hf_fleet_lock *lock = find(fleet, kinds[i].name);
        assert_non_null(lock);
        assert_string_equal(lock->kind, kinds[i].reported);
        assert_int_equal(lock->holders_len, 1);
        assert_false(lock->disputed);
        assert_int_equal(lock->holders[0]->seen_by, HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT);
    }
    hf_fleet_free(fleet);
    fleet = survey(w.rival, "k-[fr]*");
    assert_int_equal(fleet->locks_len, 3);
    hf_fleet_free(fleet);
    for (int i = 0; i < KINDS; i++) {
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
}

/* Channels know neither databases nor prefixes; names are any bytes. */
WORLD_CASE(names_prefixes_and_databases_are_kept_apart) {
    static const char odd[] = "a \"b\"\\\n\xff{c}";
    char url[512];
    hf_options options = telling();
    options.name_prefix = "app*:";
    snprintf(url, sizeof url, "%s?db=3", server_url(w->server));
    own_client *holder = made(hf_open, url, &options);
    own_client *asker = made(hf_open, url, &options);
    own_lock *lock = made(hf_lock_new, holder, odd);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    hf_fleet *fleet = survey_until_reported(asker, odd, 1);
    assert_int_equal(fleet->locks_len, 1);
    assert_string_equal(fleet->locks[0]->name, odd);
    assert_int_equal(fleet->locks[0]->holders[0]->seen_by, HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT);
    hf_fleet_free(fleet);
    fleet = survey(w->rival, NULL); /* another database */
    assert_int_equal(fleet->locks_len, 0);
    hf_fleet_free(fleet);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

WORLD_CASE(other_keys_are_none_of_ours) {
    cmd_ok(w->server, "HSET user:1 name joe age 3");
    cmd_ok(w->server, "HSET half 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:7 1 name joe");
    cmd_ok(w->server, "SET number 5");
    cmd_ok(w->server, "HSET java 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:7 2");
    cmd_ok(w->server, "HSET dead 5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:4294967297 1");
    own_fleet *fleet = survey(w->rival, NULL);
    assert_int_equal(fleet->locks_len, 2);
    const hf_fleet_lock *java = find(fleet, "java"), *dead = find(fleet, "dead");
    assert_int_equal(java->holders[0]->count, 2);
    assert_int_equal(java->ttl_ms, -1);
    /* its number may be a thread of Java, whose connections do not say whose they are */
    assert_int_equal(java->holders[0]->presence, HF_PRESENCE_UNKNOWN);
    assert_int_equal(dead->holders[0]->presence, HF_PRESENCE_GONE);
}

/* ---- Processes: forked before the parent has threads, and begun when its world has ---- */

struct pair {
    const char *url;
    const char *first, *second; /* locks, in the order in which it wants them */
    struct barrier *begun, *met;
};

/* Holds one and wants the other. */
static int entangle(void *arg) {
    const struct pair *pair = arg;
    hf_options options = telling();
    hf_client *client;
    hf_lock *first, *second;
    if (!barrier_wait(pair->begun, HANG_MS) || hf_open(pair->url, &options, &client) != HF_OK ||
        hf_lock_new(client, pair->first, &first) != HF_OK ||
        hf_lock_new(client, pair->second, &second) != HF_OK || hf_lock_acquire(first) != HF_OK ||
        !barrier_wait(pair->met, HANG_MS))
        return 1;
    hf_lock_acquire(second);
    return 2; /* it is killed meanwhile */
}

struct seen {
    hf_client *client;
    hf_fleet *earlier, *later;
    hf_deadlocks *deadlocks;
};

static bool is_deadlocked(void *arg) {
    struct seen *seen = arg;
    hf_deadlocks_free(seen->deadlocks);
    hf_fleet_free(seen->earlier);
    seen->deadlocks = NULL;
    seen->earlier = seen->later;
    seen->later = survey(seen->client, NULL);
    if (seen->earlier == NULL)
        return false;
    assert_int_equal(hf_fleet_deadlocks(seen->earlier, seen->later, &seen->deadlocks), HF_OK);
    return seen->deadlocks->len > 0;
}

CASE(a_deadlock_of_two_processes_is_found_and_named) {
    OWN(world_end) struct world w;
    struct barrier *begun = barrier_new(3), *met = barrier_new(2);
    struct pair one = {server_url(world_server()), "left", "right", begun, met};
    struct pair two = {server_url(world_server()), "right", "left", begun, met};
    pid_t first = run_child(entangle, &one), second = run_child(entangle, &two);
    world_begin(&w, NULL);
    assert_true(barrier_wait(begun, HANG_MS));
    struct seen seen = {.client = w.rival};
    assert_true(wait_until(is_deadlocked, &seen, HANG_MS));
    assert_int_equal(seen.deadlocks->len, 1);
    const hf_deadlock *deadlock = &seen.deadlocks->all[0];
    assert_int_equal(deadlock->steps_len, 2);
    for (int i = 0; i < 2; i++) {
        const hf_deadlock_step *step = &deadlock->steps[i], *next = &deadlock->steps[1 - i];
        assert_string_equal(step->holder->owner, next->waiter->owner);
        assert_non_null(step->waiter->client);
        assert_true(step->waiter->client->pid == first || step->waiter->client->pid == second);
        assert_string_equal(step->lock->name,
                            step->waiter->client->pid == first ? "right" : "left");
    }
    hf_deadlocks_free(seen.deadlocks);
    hf_fleet_free(seen.earlier);
    hf_fleet_free(seen.later);
    kill_child(first);
    kill_child(second);
    barrier_free(begun);
    barrier_free(met);
}

static int hold_for_ever(void *arg) {
    const struct pair *pair = arg;
    hf_options options = telling();
    hf_client *client;
    hf_lock *lock;
    if (!barrier_wait(pair->begun, HANG_MS) || hf_open(pair->url, &options, &client) != HF_OK ||
        hf_lock_new(client, pair->first, &lock) != HF_OK || hf_lock_acquire(lock) != HF_OK)
        return 1;
    return child_waits_for_ever(NULL);
}

struct wanted {
    hf_client *client;
    hf_presence presence;
};

static bool holder_is(void *arg) {
    const struct wanted *wanted = arg;
    own_fleet *fleet = survey(wanted->client, "kept");
    const hf_fleet_lock *lock = find(fleet, "kept");
    bool is =
        lock != NULL && lock->holders_len == 1 && lock->holders[0]->presence == wanted->presence;
    return is;
}

CASE(a_stopped_holder_is_silent_and_a_dead_one_gone) {
    OWN(world_end) struct world w;
    own_barrier *begun = barrier_new(2);
    struct pair pair = {.url = server_url(world_server()), .first = "kept", .begun = begun};
    pid_t holder = run_child(hold_for_ever, &pair);
    world_begin(&w, NULL);
    assert_true(barrier_wait(begun, HANG_MS));
    struct wanted wanted = {.client = w.rival, .presence = HF_PRESENCE_ALIVE};
    assert_true(wait_until(holder_is, &wanted, HANG_MS));
    stop_process(holder);
    wanted.presence = HF_PRESENCE_SILENT;
    assert_true(wait_until(holder_is, &wanted, HANG_MS));
    kill_child(holder);
    wanted.presence = HF_PRESENCE_GONE;
    assert_true(wait_until(holder_is, &wanted, HANG_MS));
}

static hf_presence presence_in(const hf_fleet *fleet, const hf_client *client) {
    for (size_t i = 0; i < fleet->clients_len; i++)
        if (strcmp(fleet->clients[i]->id, hf_client_id(client)) == 0)
            return fleet->clients[i]->presence;
    return HF_PRESENCE_UNKNOWN;
}

static bool listens_for_a_release(void *arg) {
    own_reply *reply = cmd(arg, "PUBSUB NUMSUB redisson_lock__channel:{" WORLD_NAME "}");
    return reply != NULL && reply->element[1]->integer > 0;
}

/* One hanging client does not make others seem to hang: neither new ones nor those on other
 * servers. */
CASE(only_a_client_that_should_answer_is_silent) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    struct barrier *begun = barrier_new(2);
    struct pair pair = {.url = server_url(world_server()), .first = "kept", .begun = begun};
    pid_t hangs = run_child(hold_for_ever, &pair);
    hf_options young = world_options(), options = telling();
    char url[512];
    young.report_after_ms = 3600000;
    world_begin(&w, &young);
    hf_lock *far;
    hf_client *other = made(hf_open, server_url(w.server), &young);
    hf_lock *wanted = made(hf_lock_new, other, WORLD_NAME);
    snprintf(url, sizeof url, "%s?db=3", server_url(w.server));
    hf_client *elsewhere = made(hf_open, url, &options);
    assert_int_equal(hf_lock_new(elsewhere, "far", &far), HF_OK);
    assert_int_equal(hf_lock_acquire(far), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    world_call_acquire(&waiter, wanted, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(barrier_wait(begun, HANG_MS));
    assert_true(wait_until(listens_for_a_release, w.server, HANG_MS));
    hf_fleet_free(survey_until_reported(elsewhere, "far", 1));
    struct wanted silent = {.client = w.rival, .presence = HF_PRESENCE_ALIVE};
    assert_true(wait_until(holder_is, &silent, HANG_MS));
    stop_process(hangs);
    silent.presence = HF_PRESENCE_SILENT;
    assert_true(wait_until(holder_is, &silent, HANG_MS));

    hf_fleet *fleet = survey(w.rival, NULL);
    assert_int_equal(presence_in(fleet, other), HF_PRESENCE_CONNECTED);
    assert_int_equal(presence_in(fleet, elsewhere), HF_PRESENCE_CONNECTED);
    hf_fleet_free(fleet);
    kill_child(hangs);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    hf_lock_free(wanted);
    hf_lock_free(far);
    assert_int_equal(hf_close(other), HF_OK);
    assert_int_equal(hf_close(elsewhere), HF_OK);
    barrier_free(begun);
}

/* ---- As an operation ---- */

WORLD_CASE(a_survey_can_be_started) {
    hf_op *op;
    hf_fleet *fleet = NULL;
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_survey_start(w->rival, NULL, &fleet, NULL, NULL, &op), HF_OK);
    assert_int_equal(joined(op, &result), HF_OK);
    assert_non_null(find(fleet, WORLD_NAME));
    hf_fleet_free(fleet);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

WORLD_CASE(wrong_arguments_are_refused) {
    hf_fleet *fleet = NULL;
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    char pattern[300];
    memset(pattern, 'a', sizeof pattern - 1);
    pattern[sizeof pattern - 1] = '\0';
    assert_int_equal(hf_survey(w->rival, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_survey(NULL, NULL, &fleet), HF_EINVAL);
    options.pattern = pattern;
    assert_int_equal(hf_survey(w->rival, &options, &fleet), HF_EINVAL);
    options.pattern = NULL;
    options.limit_ms = 0;
    assert_int_equal(hf_survey(w->rival, &options, &fleet), HF_EINVAL);
    assert_int_equal(hf_survey_start(w->rival, NULL, &fleet, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_fleet_deadlocks(NULL, NULL, NULL), HF_EINVAL);
    hf_fleet_free(NULL);
    hf_deadlocks_free(NULL);
    assert_null(fleet);
}

RUN_CASES(world_start_server, world_stop_server)
