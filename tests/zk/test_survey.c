/*
 * A survey of ZooKeeper's tree: who holds, who waits and in which order, of every kind of queue,
 * ours and Curator's; names, prefixes and patterns; deadlocks; and that nothing is written, and a
 * lost connection is made up for.
 */
#include "support/case.h"
#include "zk/scene.h"

#include <errno.h>

static hf_fleet *survey(hf_client *client, const char *pattern) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.pattern = pattern;
    options.limit_ms = HANG_MS;
    assert_hf(HF_OK, hf_survey(client, &options, &fleet));
    assert_int_equal(fleet->missing, 0);
    assert_string_equal(fleet->missing_text, "");
    return fleet;
}

static const hf_fleet_lock *find(const hf_fleet *fleet, const char *name) {
    for (size_t i = 0; i < fleet->locks_len; i++)
        if (strcmp(fleet->locks[i]->name, name) == 0)
            return fleet->locks[i];
    return NULL;
}

/* The one lock that a pattern tells of. */
static const hf_fleet_lock *only(const hf_fleet *fleet, const char *name) {
    assert_int_equal(fleet->locks_len, 1);
    assert_string_equal(fleet->locks[0]->name, name);
    return fleet->locks[0];
}

static bool is_of(const hf_fleet_party *party, const hf_client *client) {
    return strncmp(party->owner, hf_client_id(client), 36) == 0;
}

/* A client, its lock, and an acquire of an owner of its own that waits or has it. */
struct member {
    hf_client *client;
    hf_lock *lock;
    hf_op *op;
};

static struct member join_line(any_kind kind, const char *name) {
    struct member member = {.client = scene_direct(SURVIVES_MS)};
    member.lock = scene_lock(member.client, kind, name);
    member.op = scene_acquire_start(member.lock);
    return member;
}

static struct member hold(any_kind kind, const char *name) {
    struct member member = join_line(kind, name);
    assert_hf(HF_OK, hf_op_wait(member.op, HANG_MS, NULL));
    return member;
}

static void leave(struct member *member) {
    hf_op_cancel(member->op);
    hf_op_free(member->op);
    hf_lock_free(member->lock);
    hf_close(member->client);
}

CASE_AROUND(nothing_is_there, scene_heal, NULL) {
    own_client *client = scene_direct(SURVIVES_MS);
    own_fleet *fleet = survey(client, "nobody-*");
    assert_int_equal(fleet->locks_len, 0);
}

CASE_AROUND(a_queue_is_reported_in_order, scene_heal, NULL) {
    struct member line[4];
    for (int i = 0; i < 4; i++) {
        line[i] = i == 0 ? hold(HF_PLAIN, "order") : join_line(HF_PLAIN, "order");
        assert_nodes("order", i + 1);
    }
    hf_fleet *fleet = survey(line[3].client, "order");
    const hf_fleet_lock *lock = only(fleet, "order");
    assert_string_equal(lock->kind, "plain");
    assert_int_equal(lock->ttl_ms, -1);
    assert_int_equal(lock->listeners, 3);
    assert_false(lock->disputed);
    assert_int_equal(lock->holders_len, 1);
    assert_int_equal(lock->waiters_len, 3);
    const hf_fleet_party *holder = lock->holders[0];
    assert_true(is_of(holder, line[0].client));
    assert_int_equal(holder->count, 1);
    assert_int_equal(holder->presence, HF_PRESENCE_CONNECTED);
    assert_int_equal(holder->seen_by, HF_SEEN_BY_SERVER);
    assert_true(holder->for_ms > 0);
    assert_int_equal(holder->client->pid, getpid());
    assert_string_equal(holder->client->program, program_invocation_short_name);
    for (int i = 0; i < 3; i++) {
        assert_true(is_of(lock->waiters[i], line[i + 1].client));
        assert_int_equal(lock->waiters[i]->place, i + 1);
        assert_int_equal(lock->waiters[i]->count, 0);
        assert_true(lock->waiters[i]->for_ms > 0);
    }
    hf_fleet_free(fleet);
    for (int i = 3; i >= 0; i--)
        leave(&line[i]);
}

CASE_AROUND(readers_and_writers_are_distinguished, scene_heal, NULL) {
    struct member one = hold(HF_READ, "rw"), two = hold(HF_READ, "rw");
    struct member writer = join_line(HF_WRITE, "rw");
    assert_nodes("rw", 3);
    struct member late = join_line(HF_READ, "rw");
    assert_nodes("rw", 4);
    hf_fleet *fleet = survey(one.client, "rw");
    const hf_fleet_lock *lock = only(fleet, "rw");
    assert_string_equal(lock->kind, "read");
    assert_int_equal(lock->holders_len, 2);
    assert_int_equal(lock->waiters_len, 2);
    assert_true(is_of(lock->waiters[0], writer.client));
    assert_string_equal(lock->waiters[0]->kind, "write");
    assert_true(is_of(lock->waiters[1], late.client));
    assert_string_equal(lock->waiters[1]->kind, "read");
    hf_fleet_free(fleet);
    leave(&late);
    leave(&writer);
    leave(&two);
    leave(&one);
}

CASE_AROUND(a_writer_that_reads_holds_both, scene_heal, NULL) {
    own_client *client = scene_direct(SURVIVES_MS);
    hf_lock *write = scene_lock(client, HF_WRITE, "both"),
            *read = scene_lock(client, HF_READ, "both");
    assert_hf(HF_OK, hf_lock_acquire(write));
    assert_hf(HF_OK, hf_lock_acquire(read));
    struct member other = join_line(HF_READ, "both");
    assert_nodes("both", 3);
    hf_fleet *fleet = survey(client, "both");
    const hf_fleet_lock *lock = only(fleet, "both");
    assert_int_equal(lock->holders_len, 2);
    assert_true(is_of(lock->holders[0], client) && is_of(lock->holders[1], client));
    assert_string_not_equal(lock->holders[0]->kind, lock->holders[1]->kind);
    assert_int_equal(lock->waiters_len, 1);
    hf_fleet_free(fleet);
    leave(&other);
    hf_lock_free(read);
    hf_lock_free(write);
}

CASE_AROUND(permits_and_their_waiters, scene_heal, NULL) {
    hf_client *client = scene_direct(SURVIVES_MS), *other = scene_direct(SURVIVES_MS);
    hf_permits *permits = NULL, *wanted = NULL;
    hf_permit_id id, awaited;
    hf_op *op = NULL;
    bool set;
    assert_hf(HF_OK, hf_permits_new(client, "slots/all", &permits));
    assert_hf(HF_OK, hf_permits_new(other, "slots/all", &wanted));
    assert_hf(HF_OK, hf_permits_try_set(permits, 2, &set));
    assert_hf(HF_OK, hf_permits_acquire(permits, &id));
    assert_hf(HF_OK, hf_permits_acquire(permits, &id));
    assert_hf(HF_OK, hf_permits_acquire_start(wanted, NULL, &awaited, NULL, NULL, &op));
    assert_nodes("slots/all/locks", 1);
    hf_fleet *fleet = survey(client, "slots/*");
    const hf_fleet_lock *lock = only(fleet, "slots/all");
    assert_string_equal(lock->kind, "permits");
    assert_false(lock->disputed);
    int64_t count = 0;
    for (size_t i = 0; i < lock->holders_len; i++) {
        assert_true(is_of(lock->holders[i], client));
        count += lock->holders[i]->count;
    }
    assert_int_equal(count, 2);
    assert_int_equal(lock->waiters_len, 1);
    assert_true(is_of(lock->waiters[0], other));
    assert_int_equal(lock->listeners, 1);
    hf_fleet_free(fleet);
    hf_op_cancel(op);
    hf_op_free(op);
    hf_permits_free(wanted);
    hf_permits_free(permits);
    hf_close(other);
    hf_close(client);
}

/* Curator's recipes write an address. A node of no session is nobody's, and stays. */
CASE_AROUND(nodes_of_others_are_named_by_their_session, scene_heal, NULL) {
    own_client *client = scene_direct(SURVIVES_MS);
    struct zk_client *java = zk_client_open(zk_port(scene.zk));
    char expected[80];
    assert_int_equal(zk_make(scene.eyes, "/java", "", 0), 0);
    assert_int_equal(
        zk_make_ephemeral(java, "/java/_c_0a1b2c3d-0000-4000-8000-000000000001-lock-0000000003",
                          "10.1.2.3", 8),
        0);
    assert_int_equal(zk_make_ephemeral(java, "/java/lock-0000000004", "\x01\x02", 2), 0);
    assert_int_equal(zk_make(scene.eyes, "/java/lock-0000000005", "by hand", 7), 0);
    hf_fleet *fleet = survey(client, "java");
    const hf_fleet_lock *lock = only(fleet, "java");
    snprintf(expected, sizeof expected, "session 0x%llx 10.1.2.3",
             (unsigned long long)zk_owner(
                 scene.eyes, "/java/_c_0a1b2c3d-0000-4000-8000-000000000001-lock-0000000003"));
    assert_int_equal(lock->holders_len, 1);
    assert_string_equal(lock->holders[0]->owner, expected);
    assert_int_equal(lock->holders[0]->presence, HF_PRESENCE_CONNECTED);
    assert_null(lock->holders[0]->client);
    assert_int_equal(lock->waiters_len, 2);
    expected[strlen(expected) - strlen("10.1.2.3")] = '\0';
    assert_string_equal(lock->waiters[0]->owner, expected);
    assert_string_equal(lock->waiters[1]->owner, "no session by hand");
    assert_int_equal(lock->waiters[1]->presence, HF_PRESENCE_GONE);
    hf_fleet_free(fleet);
    assert_int_equal(zk_delete(scene.eyes, "/java/lock-0000000005"), 0);
    zk_client_close(java);
}

/* Names are paths, so locks may be beneath each other; what is no lock is no lock. */
CASE_AROUND(names_are_found_wherever_they_are, scene_heal, NULL) {
    struct member outer = hold(HF_PLAIN, "deep/er"), inner = hold(HF_PLAIN, "deep/er/most"),
                  odd = hold(HF_PLAIN, "deep/lock-7x");
    assert_int_equal(zk_make(scene.eyes, "/deep/data", "some", 4), 0);
    hf_fleet *fleet = survey(outer.client, "deep*");
    assert_int_equal(fleet->locks_len, 3);
    assert_non_null(find(fleet, "deep/er"));
    assert_non_null(find(fleet, "deep/er/most"));
    assert_non_null(find(fleet, "deep/lock-7x"));
    hf_fleet_free(fleet);
    fleet = survey(outer.client, "deep/er/[k-m]*");
    only(fleet, "deep/er/most");
    hf_fleet_free(fleet);
    leave(&odd);
    leave(&inner);
    leave(&outer);
}

static hf_fleet *survey_at(const char *path, const char *prefix, const char *pattern) {
    char url[256];
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    snprintf(url, sizeof url, "%s%s", zk_url(scene.zk), path);
    options.name_prefix = prefix;
    options.connect_timeout_ms = HANG_MS;
    assert_hf(HF_OK, hf_open(url, &options, &client));
    hf_fleet *fleet = survey(client, pattern);
    hf_close(client);
    return fleet;
}

CASE_AROUND(a_prefix_and_a_chroot_are_left_out, scene_heal, NULL) {
    struct member a = hold(HF_PLAIN, "team/x-a"), b = hold(HF_PLAIN, "team/x-b/c"),
                  other = hold(HF_PLAIN, "team/y");
    hf_fleet *fleet = survey_at("/team", NULL, NULL);
    assert_int_equal(fleet->locks_len, 3);
    assert_non_null(find(fleet, "y"));
    hf_fleet_free(fleet);
    fleet = survey_at("", "team/x-", NULL);
    assert_int_equal(fleet->locks_len, 2);
    assert_non_null(find(fleet, "a"));
    assert_non_null(find(fleet, "b/c"));
    hf_fleet_free(fleet);
    fleet = survey_at("/team", "x-b/", "c");
    only(fleet, "c");
    hf_fleet_free(fleet);
    fleet = survey_at("/no/such/place", NULL, NULL);
    assert_int_equal(fleet->locks_len, 0);
    hf_fleet_free(fleet);
    leave(&other);
    leave(&b);
    leave(&a);
}

/* What does not fit is counted. */
CASE_AROUND(a_long_queue_is_cut, scene_heal, NULL) {
    enum { LEN = 130 };
    own_client *client = scene_direct(SURVIVES_MS);
    char path[64];
    assert_int_equal(zk_make(scene.eyes, "/long", "", 0), 0);
    for (int i = 0; i < LEN; i++) {
        snprintf(path, sizeof path, "/long/lock-%010d", i);
        assert_int_equal(zk_make(scene.eyes, path, "", 0), 0);
    }
    hf_fleet *fleet = survey(client, "long");
    const hf_fleet_lock *lock = only(fleet, "long");
    assert_int_equal(lock->listeners, LEN - 1);
    assert_int_equal(lock->left_out, LEN - 101);
    hf_fleet_free(fleet);
    for (int i = 0; i < LEN; i++) {
        snprintf(path, sizeof path, "/long/lock-%010d", i);
        assert_int_equal(zk_delete(scene.eyes, path), 0);
    }
}

/* ---- Deadlocks ---- */

static hf_deadlocks *deadlocks_of(hf_client *client, const char *pattern, hf_fleet **ret_later) {
    own_fleet *earlier = survey(client, pattern);
    hf_deadlocks *found = NULL;
    int64_t earlier_ms = now_ms(); /* a deadlock is what two surveys of different times have */
    assert_true(WAIT_FOR(now_ms() > earlier_ms, HANG_MS));
    *ret_later = survey(client, pattern);
    assert_hf(HF_OK, hf_fleet_deadlocks(earlier, *ret_later, &found));
    return found;
}

struct search {
    hf_client *client;
    const char *pattern;
    hf_fleet *fleet;
    hf_deadlocks *found;
};

static bool is_found(void *arg) {
    struct search *search = arg;
    hf_deadlocks_free(search->found);
    hf_fleet_free(search->fleet);
    search->found = deadlocks_of(search->client, search->pattern, &search->fleet);
    return search->found->len > 0;
}

/* Synchronous owners are threads; these are numbers of our own. */
static void acquire_as(hf_lock *lock, hf_owner owner, int64_t wait_ms, hf_op **ret_op) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = owner;
    options.wait_ms = wait_ms;
    assert_hf(HF_OK, hf_lock_acquire_start(lock, &options, NULL, NULL, ret_op));
}

CASE_AROUND(two_waiters_for_each_other, scene_heal, NULL) {
    hf_client *clients[2] = {scene_direct(SURVIVES_MS), scene_direct(SURVIVES_MS)};
    hf_lock *locks[2][2];
    hf_op *held[2], *waits[2];
    for (int i = 0; i < 2; i++) {
        locks[i][0] = scene_lock(clients[i], HF_PLAIN, "circle/a");
        locks[i][1] = scene_lock(clients[i], HF_PLAIN, "circle/b");
        acquire_as(locks[i][i], 7, HF_FOREVER, &held[i]);
        assert_hf(HF_OK, hf_op_wait(held[i], HANG_MS, NULL));
    }
    for (int i = 0; i < 2; i++)
        acquire_as(locks[i][1 - i], 7, HF_FOREVER, &waits[i]);
    struct search search = {.client = clients[0], .pattern = "circle/*"};
    assert_true(wait_until(is_found, &search, HANG_MS));
    assert_int_equal(search.found->len, 1);
    assert_int_equal(search.found->all[0].steps_len, 2);
    assert_int_equal(search.found->all[0].steps[0].waiter->client->pid, getpid());
    hf_deadlocks_free(search.found);
    hf_fleet_free(search.fleet);
    for (int i = 0; i < 2; i++) {
        hf_op_cancel(waits[i]);
        hf_op_free(waits[i]);
        hf_op_free(held[i]);
        hf_lock_free(locks[i][0]);
        hf_lock_free(locks[i][1]);
        hf_close(clients[i]);
    }
}

/* A command that runs under a hold waits for its owner: the node says so. */
CASE_AROUND(a_command_waits_for_the_hold_it_runs_under, scene_heal, NULL) {
    hf_client *outer[2], *inner[2];
    hf_lock *held[2], *wanted[2];
    hf_op *waits[2];
    static const char *const names[2] = {"nest/a", "nest/b"};
    for (int i = 0; i < 2; i++) {
        char owner[80];
        outer[i] = scene_direct(SURVIVES_MS);
        held[i] = scene_lock(outer[i], HF_PLAIN, names[i]);
        hf_op *op;
        acquire_as(held[i], 7, HF_FOREVER, &op);
        scene_acquired(op);
        snprintf(owner, sizeof owner, "%s:7", hf_client_id(outer[i]));
        assert_int_equal(setenv("HOLDFAST_OWNER", owner, 1), 0);
        inner[i] = scene_direct(SURVIVES_MS);
        assert_int_equal(unsetenv("HOLDFAST_OWNER"), 0);
        wanted[i] = scene_lock(inner[i], HF_PLAIN, names[1 - i]);
    }
    for (int i = 0; i < 2; i++)
        waits[i] = scene_acquire_start(wanted[i]);
    struct search search = {.client = outer[0], .pattern = "nest/*"};
    assert_true(wait_until(is_found, &search, HANG_MS));
    assert_int_equal(search.found->all[0].steps_len, 2);
    assert_string_equal(search.found->all[0].steps[0].waiter->client->program,
                        program_invocation_short_name);
    hf_deadlocks_free(search.found);
    hf_fleet_free(search.fleet);
    for (int i = 0; i < 2; i++) {
        hf_op_cancel(waits[i]);
        hf_op_free(waits[i]);
        hf_lock_free(wanted[i]);
        hf_lock_free(held[i]);
        hf_close(inner[i]);
        hf_close(outer[i]);
    }
}

/* Nodes as Java makes them: whose sessions wait for each other's. */
CASE_AROUND(sessions_of_others_wait_for_each_other, scene_heal, NULL) {
    own_client *client = scene_direct(SURVIVES_MS);
    struct zk_client *one = zk_client_open(zk_port(scene.zk)),
                     *two = zk_client_open(zk_port(scene.zk));
    assert_int_equal(zk_make(scene.eyes, "/jdead", "", 0), 0);
    assert_int_equal(zk_make(scene.eyes, "/jdead/a", "", 0), 0);
    assert_int_equal(zk_make(scene.eyes, "/jdead/b", "", 0), 0);
    assert_int_equal(zk_make_ephemeral(one, "/jdead/a/lock-0000000001", "10.0.0.1", 8), 0);
    assert_int_equal(zk_make_ephemeral(two, "/jdead/b/lock-0000000001", "10.0.0.2", 8), 0);
    assert_int_equal(zk_make_ephemeral(one, "/jdead/b/lock-0000000002", "10.0.0.1", 8), 0);
    assert_int_equal(zk_make_ephemeral(two, "/jdead/a/lock-0000000002", "10.0.0.2", 8), 0);
    struct search search = {.client = client, .pattern = "jdead/*"};
    assert_true(wait_until(is_found, &search, HANG_MS));
    assert_int_equal(search.found->all[0].steps_len, 2);
    hf_deadlocks_free(search.found);
    hf_fleet_free(search.fleet);
    zk_client_close(two);
    zk_client_close(one);
}

/* ---- Faults ---- */

/* The number of the last transaction. */
static unsigned long long zxid(void) {
    unsigned long long number = 0;
    char *words = zk_word(scene.zk, "srvr"), *at = words != NULL ? strstr(words, "Zxid: ") : NULL;
    assert_non_null(at);
    assert_int_equal(sscanf(at, "Zxid: %llx", &number), 1);
    free(words);
    return number;
}

CASE_AROUND(nothing_is_written, scene_heal, NULL) {
    struct member member = hold(HF_PLAIN, "unwritten");
    bool same = false;
    for (int i = 0; i < SCENE_ROUNDS && !same;
         i++) { /* a session of an earlier test may end just now */
        unsigned long long before = zxid();
        hf_fleet_free(survey(member.client, NULL));
        same = zxid() == before;
    }
    assert_true(same);
    leave(&member);
}

CASE_AROUND(a_lost_connection_is_made_up_for, scene_heal, NULL) {
    static const char *const at[] = {"sync /", "exists /cut", "getChildren2 /cut", "getData /cut/"};
    struct member member = hold(HF_PLAIN, "cut");
    hf_client *client = scene_proxied(SURVIVES_MS);
    assert_hf(HF_OK, hf_ping(client));
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        size_t fired = proxy_fired(scene.proxy);
        proxy_drop_replies_after(scene.proxy, at[i]);
        hf_fleet *fleet = survey(client, "cut");
        assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
        only(fleet, "cut");
        hf_fleet_free(fleet);
        proxy_heal(scene.proxy);
    }
    hf_close(client);
    leave(&member);
}

/* A server that greets and then ends each connection was not reached. */
CASE_AROUND(connections_that_keep_breaking_end_it, scene_heal, NULL) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    own_client *client = scene_proxied(SURVIVES_MS);
    options.limit_ms = HANG_MS;
    assert_hf(HF_OK, hf_ping(client));
    for (int i = 0; i < 100; i++)
        proxy_drop_replies_after(scene.proxy, "sync");
    assert_hf(HF_EUNREACH, hf_survey(client, &options, &fleet));
    assert_non_null(strstr(hf_last_error()->text, "keeps breaking"));
    assert_true(fleet == NULL);
    proxy_heal(scene.proxy);
    hf_fleet_free(survey(client, NULL));
}

CASE_AROUND(a_survey_can_be_cancelled, scene_heal, NULL) {
    own_client *client = scene_proxied(SURVIVES_MS);
    hf_op *op = NULL;
    hf_fleet *fleet = NULL;
    assert_hf(HF_OK, hf_ping(client));
    proxy_stall_request(scene.proxy, "exists /");
    assert_hf(HF_OK, hf_survey_start(client, NULL, &fleet, NULL, NULL, &op));
    assert_true(proxy_wait_held(scene.proxy, HANG_MS));
    hf_op_cancel(op);
    assert_hf(HF_ECANCELED, joined(op, NULL));
    assert_null(fleet);
    proxy_heal(scene.proxy);
}

/* What was not found by then is missing, also if that is all: none of it is an error. */
CASE_AROUND(the_limit_comes_before_an_answer, scene_heal, NULL) {
    static const char *const at[] = {"sync /", "exists /"};
    own_client *client = scene_proxied(SURVIVES_MS);
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    options.limit_ms = 400;
    assert_hf(HF_OK, hf_ping(client));
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        hf_fleet *fleet = NULL;
        proxy_stall_request(scene.proxy, at[i]);
        int64_t from_ms = now_ms();
        assert_hf(HF_OK, hf_survey(client, &options, &fleet));
        assert_true(now_ms() - from_ms >= options.limit_ms);
        assert_int_equal(fleet->missing, HF_MISSING_LOCKS);
        assert_string_not_equal(fleet->missing_text, "");
        hf_fleet_free(fleet);
        assert_true(proxy_release_held(scene.proxy) >= 1);
    }
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
