/*
 * Times by name: which names are counted, and what hf_client_metrics() reports of them. On both
 * engines. test_survey_wanted.c tests the fleet's view, unit/test_name_stats.c the table behind it.
 */
#include "lock/cohort.h"
#include "support/memory.h"

#include <inttypes.h>
#include <sys/wait.h>

/* ---- What is reported ---- */

/* The number behind a sample; -1: there is none. */
static long long sample(hf_client *client, const char *family, const char *labels) {
    char *text = NULL, wanted[3000];
    long long value = -1;
    assert_int_equal(hf_client_metrics(client, &text), HF_OK);
    snprintf(wanted, sizeof wanted, "\nholdfast_client_lock_%s{%s} ", family, labels);
    const char *line = strstr(text, wanted);
    if (line != NULL)
        value = strtoll(line + strlen(wanted), NULL, 10);
    hf_text_free(text);
    return value;
}

struct counts {
    long long wait, hold;
};

static struct counts counts_of(hf_client *client, const char *name) {
    own_text *label = text_of("lock=\"%s\"", name);
    return (struct counts){.wait = sample(client, "wait_seconds_count", label),
                           .hold = sample(client, "hold_seconds_count", label)};
}

static void expect_counts(hf_client *client, const char *name, long long wait, long long hold) {
    struct counts counts = counts_of(client, name);
    if (counts.wait != wait || counts.hold != hold)
        fail_msg("%s: %lld waits and %lld holds, not %lld and %lld", name, counts.wait, counts.hold,
                 wait, hold);
}

static size_t lines_with(hf_client *client, const char *words) {
    char *text = NULL;
    size_t lines = 0;
    assert_int_equal(hf_client_metrics(client, &text), HF_OK);
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        lines++;
    hf_text_free(text);
    return lines;
}

static void acquire_and_release(hf_lock *lock) {
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

static void use_once(hf_client *client, const char *name) {
    own_lock *lock = made(hf_lock_new, client, name);
    acquire_and_release(lock);
}

/* A client that has done nothing yet, unlike the world's own. */
static hf_client *open_fresh(struct world *w, const hf_options *given) {
    hf_options options = given != NULL ? *given : world_options();
    return made(hf_open, server_url(w->server), &options);
}

/* ---- Which are counted ---- */

WORLD_CASE(acquires_and_holds_are_counted_by_name) {
    own_client *client = open_fresh(w, NULL);
    own_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    expect_counts(client, WORLD_NAME, -1, -1);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    expect_counts(client, WORLD_NAME, 1, -1);
    assert_int_equal(hf_lock_try(lock), HF_OK); /* nested: acquired once more, held once */
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    expect_counts(client, WORLD_NAME, 2, 1);
    use_once(client, "other");
    expect_counts(client, WORLD_NAME, 2, 1);
    expect_counts(client, "other", 1, 1);
    use_once(client, "other"); /* by another handle */
    expect_counts(client, "other", 2, 2);
    assert_int_equal(sample(client, "wait_seconds_bucket", "lock=\"other\",le=\"+Inf\""), 2);
    assert_int_equal(sample(client, "hand_over_seconds_count", "lock=\"other\""), -1);
    hf_stats stats = world_stats(client);
    assert_int_equal(stats.wait.count, 4);
    assert_int_equal(stats.hold.count, 3);
}

WORLD_CASE(failures_are_not_counted) {
    own_client *client = open_fresh(w, NULL);
    own_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_try(lock), HF_EBUSY);
    assert_int_equal(hf_lock_acquire_for(lock, 50), HF_ETIMEDOUT);
    expect_counts(client, WORLD_NAME, -1, -1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

WORLD_CASE(a_waiter_is_counted_with_its_hand_over) {
    struct world_caller waiter;
    struct counts before = counts_of(w->client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    size_t seen = proxy_seen(w->proxy, world_acquires(w));
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(world_wait_asleep(w, seen, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    expect_counts(w->client, WORLD_NAME, before.wait + 1, before.hold);
    assert_int_equal(sample(w->client, "hand_over_seconds_count", "lock=\"" WORLD_NAME "\""),
                     world_stats(w->client).hand_over.count);
}

/* The handle is gone before its lock is released, or even acquired. */
WORLD_CASE(a_hold_needs_no_handle) {
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    own_client *client = open_fresh(w, NULL);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    own_lock *other = made(hf_lock_new, client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, NULL, &op), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(joined(op, &result), HF_OK);
    expect_counts(client, WORLD_NAME, 1, -1);
    assert_int_equal(hf_lock_release_as(other, result.owner), HF_OK);
    expect_counts(client, WORLD_NAME, 1, 1);
}

WORLD_CASE(readers_and_writers_are_one_name) {
    own_lock *reader = made(new_lock, w->client, HF_READ, "both", 4);
    own_lock *writer = made(new_lock, w->client, HF_WRITE, "both", 4);
    acquire_and_release(reader);
    acquire_and_release(writer);
    expect_counts(w->client, "both", 2, 2);
}

WORLD_CASE(semaphores_are_acquired_and_permits_held) {
    hf_sem *sem;
    own_permits *permits;
    hf_permit_id id;
    assert_int_equal(hf_sem_new(w->client, "sem", &sem), HF_OK);
    assert_int_equal(hf_sem_try_set(sem, 1, 0, NULL), HF_OK);
    assert_int_equal(hf_sem_acquire(sem, 1), HF_OK);
    assert_int_equal(hf_sem_release(sem, 1), HF_OK);
    expect_counts(w->client, "sem", 1, -1);
    hf_sem_free(sem);
    assert_int_equal(hf_permits_new(w->client, "permits", &permits), HF_OK);
    assert_int_equal(hf_permits_try_set(permits, 1, NULL), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    expect_counts(w->client, "permits", 1, 1);
}

/* Each thread of a cohort counts for itself; what the cohort does at the server counts for none. */
CASE_IN(threads_of_a_cohort_are_counted, struct world, w, cohort_begin, world_end, NULL, 100,
        COHORT_LONG_MS) {
    hf_op *ops[3];
    struct counts before = counts_of(w->client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    for (hf_owner i = 0; i < 3; i++)
        ops[i] = cohort_start(w->lock, i + 1, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    for (hf_owner i = 0; i < 3; i++) {
        assert_int_equal(cohort_join(ops[i]), HF_OK);
        assert_int_equal(hf_lock_release_as(w->lock, i + 1), HF_OK);
    }
    expect_counts(w->client, WORLD_NAME, before.wait + 4, before.hold + 4);
}

/* By the names that others know, and each once. */
WORLD_CASE(members_of_a_lock_of_several_are_counted) {
    hf_lock *members[2], *outer;
    hf_client *client = open_fresh(w, NULL), *other = open_fresh(w, NULL);
    assert_int_equal(hf_lock_new(client, "one", &members[0]), HF_OK);
    assert_int_equal(hf_lock_new(other, "two", &members[1]), HF_OK);
    hf_lock *both = made(hf_lock_new_multi, members, 2);
    acquire_and_release(both);
    assert_int_equal(hf_lock_new_multi(&both, 1, &outer), HF_OK); /* which copies its members */
    acquire_and_release(outer);
    hf_lock_free(outer);
    acquire_and_release(both);
    expect_counts(client, "one", 3, 3);
    expect_counts(other, "two", 3, 3);
    assert_int_equal(lines_with(client, "lock_wait_seconds_count{"), 1);
    assert_int_equal(lines_with(other, "lock_wait_seconds_count{"), 1);
    for (int i = 0; i < 2; i++)
        hf_lock_free(members[i]);
    hf_lock_free(both);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_close(other), HF_OK);
}

WORLD_CASE(values_count_for_their_group) {
    const hf_bytes values[] = {{"a", 1}, {"b", 1}};
    server_redis_only(w->server, "groups are Redis'");
    hf_lock *lock = made(hf_lock_new_group, w->client, "group", 5, values, 2);
    acquire_and_release(lock);
    hf_lock_free(lock);
    assert_int_equal(hf_lock_new_group(w->client, "group", 5, values, 1, &lock), HF_OK);
    acquire_and_release(lock);
    hf_lock_free(lock);
    expect_counts(w->client, "group", 2, 2);
}

/* ---- How many ---- */

WORLD_CASE(no_more_than_there_may_be) {
    hf_options options = world_options();
    options.histogram_names = 3;
    own_client *client = open_fresh(w, &options);
    for (int i = 0; i < 50; i++) {
        own_text *name = text_of("n%d", i % 10);
        use_once(client, name);
    }
    for (int i = 0; i < 10; i++) {
        own_text *name = text_of("n%d", i);
        expect_counts(client, name, i < 3 ? 5 : -1, i < 3 ? 5 : -1);
    }
    assert_int_equal(world_stats(client).wait.count, 50);
}

CASE(none_if_none_are_wanted) {
    OWN(world_end) struct world w;
    char url[512];
    hf_client *client;
    hf_options options = world_options();
    options.histogram_names = 0;
    world_begin(&w, &options);
    use_once(w.client, "a");
    expect_counts(w.client, "a", -1, -1);
    snprintf(url, sizeof url, "%s?histogram_names=1", server_url(w.server));
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    use_once(client, "a");
    use_once(client, "b");
    expect_counts(client, "a", 1, 1);
    expect_counts(client, "b", -1, -1);
    assert_int_equal(hf_close(client), HF_OK);
    options.histogram_names = -1;
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_EINVAL);
    options.histogram_names = 10001;
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_EINVAL);
}

/* Handles that were never used take nobody's place. */
WORLD_CASE(only_acquired_names_take_room) {
    enum { IDLE = 20 };
    hf_lock *idle[IDLE];
    hf_options options = world_options();
    options.histogram_names = 1;
    own_client *client = open_fresh(w, &options);
    for (int i = 0; i < IDLE; i++) {
        own_text *name = text_of("idle%d", i);
        assert_int_equal(hf_lock_new(client, name, &idle[i]), HF_OK);
    }
    use_once(client, "used");
    expect_counts(client, "used", 1, 1);
    for (int i = 0; i < IDLE; i++)
        hf_lock_free(idle[i]);
}

CASE(many_names_cost_no_memory) {
    struct world w;
    struct memory memory = {0};
    hf_options options = world_options();
    options.allocator = memory_allocator(&memory);
    options.histogram_names = 16;
    world_begin(&w, &options);
    long before = 0;
    for (int i = 0; i < 2000; i++) {
        own_text *name = text_of("n%d", i);
        use_once(w.client, name);
        if (i == 100)
            before = memory.bytes;
    }
    assert_true(memory.bytes < before + 16384); /* connections have buffers that may grow */
    assert_int_equal(lines_with(w.client, "lock_wait_seconds_count{"), 16);
    world_end(&w);
    assert_int_equal(memory.live, 0);
}

/* ---- As a text ---- */

static void expect_well_formed(hf_client *client) {
    char *text = NULL;
    assert_int_equal(hf_client_metrics(client, &text), HF_OK);
    FILE *parser = popen(
        "/usr/bin/python3 " HF_SOURCE_DIR "/tests/support/openmetrics.py >/dev/null 2>&1", "w");
    assert_non_null(parser);
    fputs(text, parser);
    int status = pclose(parser);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 77 && WEXITSTATUS(status) != 127))
        assert_int_equal(status, 0);
    hf_text_free(text);
}

WORLD_CASE(names_are_labels_whatever_they_are_made_of) {
    static const struct {
        const char *name;
        size_t len;
        const char *label;
    } names[] = {
        {"quote\"d", 7, "lock=\"quote\\\"d\""},
        {"back\\slash", 10, "lock=\"back\\\\slash\""},
        {"new\nline", 8, "lock=\"new\\nline\""},
        {"\xc3\xbc", 2, "lock=\"\xc3\xbc\""},
        {"\xff\xfe", 2, "lock=\"\xef\xbf\xbd\xef\xbf\xbd\",lock_hex=\"fffe\""},
        {"nul\0a", 5, "lock=\"nul\\\\u0000a\",lock_hex=\"6e756c0061\""},
    };
    server_redis_only(w->server, "ZooKeeper takes fewer names");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        hf_lock *lock = made(hf_lock_new_bytes, w->client, names[i].name, names[i].len);
        acquire_and_release(lock);
        hf_lock_free(lock);
        assert_int_equal(sample(w->client, "wait_seconds_count", names[i].label), 1);
        assert_int_equal(sample(w->client, "hold_seconds_count", names[i].label), 1);
    }
    expect_well_formed(w->client);
}

/* ---- Ends ---- */

WORLD_CASE(a_handle_may_be_freed_after_its_client) {
    hf_lock *locks[2];
    hf_client *client = made(hf_open, server_url(w->server), NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_lock_new(client, i == 0 ? "a" : "b", &locks[i]), HF_OK);
        acquire_and_release(locks[i]);
    }
    own_lock *both = made(hf_lock_new_multi, locks, 2);
    acquire_and_release(both);
    assert_int_equal(hf_lock_acquire(locks[0]), HF_OK); /* and held when it closes */
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_lock_acquire(locks[1]), HF_ECLOSED);
    for (int i = 0; i < 2; i++)
        hf_lock_free(locks[i]);
}

WORLD_CASE(a_forked_child_touches_nothing) {
    hf_lock *fresh;
    char *text;
    own_client *client = open_fresh(w, NULL);
    own_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    acquire_and_release(lock);
    assert_int_equal(hf_lock_new(client, "fresh", &fresh), HF_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool right = hf_lock_acquire(fresh) == HF_EFORKED && hf_lock_acquire(lock) == HF_EFORKED &&
                     hf_client_metrics(client, &text) == HF_EFORKED;
        hf_lock_free(fresh);
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    acquire_and_release(fresh);
    expect_counts(client, "fresh", 1, 1);
    expect_counts(client, WORLD_NAME, 1, 1);
    hf_lock_free(fresh);
}

RUN_CASES(world_start_server, world_stop_server)
