/*
 * Values of a group between C and Java: getMultiLock(group, values) of a client with StringCodec.
 *
 * Redisson ends leases of values by the wall clock of its machine, and we by the server's; here they
 * are the same clock, and ends are measured by it. Holds outlive BY_MESSAGE_MS unless a row is about
 * their end.
 */
#include "interop.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GROUP "team"
#define LEASE_MS ENDURING_MS /* it ends by itself, but not before the other side has tried */
#define WATCHDOG_MS ENDURING_MS
#define BOTH GROUP "|jack|mary"

/* C's handle on words of a text. */
static hf_lock *values_of(hf_client *client, const char *text) {
    hf_bytes values[8];
    size_t len = 0;
    hf_lock *lock;
    for (const char *at = text; *at != '\0'; len++) {
        values[len] = (hf_bytes){.bytes = at, .len = strcspn(at, " ")};
        at += values[len].len;
        at += *at == ' ';
    }
    assert_hf(HF_OK, hf_lock_new_group(client, GROUP, strlen(GROUP), values, len, &lock));
    return lock;
}

/* Java's clients with StringCodec, unless they are there. */
static void java_string_clients(void) {
    char options[64];
    if (strncmp(java_call(suite.java, "ids jg"), "ok ", 3) == 0)
        return;
    snprintf(options, sizeof options, "codec=string watchdog=%d", WATCHDOG_MS);
    java_client("jg", "codec=string");
    java_client("jgshort", options);
}

/* Both sides on jack and mary; Java's handle is called "team". */
struct pair {
    hf_client *client;
    hf_lock *lock;
    int thread;
};

static struct pair begin(int64_t watchdog_ms, const char *java) {
    java_string_clients();
    java_open(java, "group", BOTH, "team");
    struct pair pair = {.client = c_client(watchdog_ms), .thread = java_thread()};
    pair.lock = values_of(pair.client, "mary jack");
    return pair;
}

static void end(struct pair *pair) {
    assert_server_empty();
    hf_lock_free(pair->lock);
    hf_close(pair->client);
}

#define assert_java(answer, ...) assert_string_equal(java_call(suite.java, __VA_ARGS__), answer)

static void assert_java_not_owner(const char *handle, int thread) {
    const char *answer = java_call(suite.java, "unlock %s thread=%d", handle, thread);
    if (strncmp(answer, "err IllegalMonitorStateException", 32) != 0)
        fail_msg("unlock: %s", answer);
}

static void assert_woken(hf_op *op) {
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, NULL));
    hf_op_free(op);
}

/* ---- What a value is called ------------------------------------------------------------------ */

/* Java locks the value, and C finds it, and nothing else. */
static void assert_same_field(struct pair *pair, const char *value) {
    char *name = NULL;
    bool locked;
    own_lock *lock;
    const hf_bytes bytes = {value, strlen(value)};
    assert_true(asprintf(&name, GROUP "|%s", value) > 0);
    java_open("jg", "group", name, "one");
    free(name);
    assert_java("ok", "lock one thread=%d lease=60000", pair->thread);
    assert_hf(HF_OK, hf_lock_new_group(pair->client, GROUP, strlen(GROUP), &bytes, 1, &lock));
    assert_hf(HF_OK, hf_lock_is_locked(lock, &locked));
    assert_true(locked);
    assert_int_equal(cmd_int(suite.server, "HLEN " GROUP), 3);
    assert_java("ok", "unlock one thread=%d", pair->thread);
    assert_hf(HF_OK, hf_lock_is_locked(lock, &locked));
    assert_false(locked);
}

void group_fields_of_every_length(void **state) {
    (void)state;
    enum { LONGEST = 100 };
    struct pair pair = begin(0, "jg");
    char value[LONGEST + 1] = "";
    for (size_t len = 0; len <= LONGEST; len++) {
        assert_same_field(&pair, value);
        value[len < LONGEST ? len : 0] = (char)('!' + (len * 31) % 90); /* there is no bar in it */
    }
    assert_same_field(&pair, "\xc3\xa9t\xc3\xa9");                      /* two bytes a letter */
    assert_same_field(&pair, "\xf0\x9f\x94\x92 \xe2\x82\xac \xdf\xbf"); /* four, three, two */
    end(&pair);
}

/* ---- Exclusion and hand-over ----------------------------------------------------------------- */

void group_java_waits_for_c(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    java_open("jg", "group", GROUP "|mary|paul", "across");
    java_open("jg", "group", GROUP "|paul", "beside");
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_java("ok false", "try team thread=%d", pair.thread);
    assert_java("ok false", "try across thread=%d", pair.thread);
    assert_java("ok true", "try beside thread=%d", pair.thread);
    assert_java("ok true", "isLocked team");
    assert_java("ok", "unlock beside thread=%d", pair.thread);
    int waiting = java_wait_start("jg", "across", pair.thread);
    assert_false(java_answered(suite.java, waiting));
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_string_equal(java_answer_within(suite.java, waiting, BY_MESSAGE_MS), "ok");
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_java("ok", "unlock across thread=%d", pair.thread);
    end(&pair);
}

void group_c_waits_for_java(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    hf_lock *across = values_of(pair.client, "mary paul"), *beside = values_of(pair.client, "paul");
    hf_lock *jack = values_of(pair.client, "jack");
    assert_java("ok", "lock team thread=%d", pair.thread);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_hf(HF_EBUSY, hf_lock_try(across));
    assert_hf(HF_OK, hf_lock_try(beside));
    assert_hf(HF_OK, hf_lock_release(beside));
    hf_op *first = c_wait_start(pair.client, across, 77);
    hf_op *second = c_wait_start(pair.client, jack, 78);
    assert_java("ok", "unlock team thread=%d", pair.thread);
    assert_woken(first); /* one message wakes both */
    assert_woken(second);
    assert_java("ok false", "try team thread=%d wait=50", pair.thread);
    assert_hf(HF_OK, hf_lock_release_as(across, 77));
    assert_hf(HF_OK, hf_lock_release_as(jack, 78));
    hf_lock_free(across);
    hf_lock_free(beside);
    hf_lock_free(jack);
    end(&pair);
}

/* One of each side waits for one of the values each. */
void group_waiters_of_both_sides(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    hf_lock *mary = values_of(pair.client, "mary");
    java_open("jg", "group", GROUP "|jack", "jack");
    for (int by_java = 0; by_java < 2; by_java++) {
        int holder = java_thread(), waiter = java_thread();
        if (by_java)
            assert_java("ok", "lock team thread=%d", holder);
        else
            assert_hf(HF_OK, hf_lock_acquire(pair.lock));
        int java = java_wait_start("jg", "jack", waiter);
        hf_op *c = c_wait_start(pair.client, mary, 77);
        if (by_java)
            assert_java("ok", "unlock team thread=%d", holder);
        else
            assert_hf(HF_OK, hf_lock_release(pair.lock));
        assert_string_equal(java_answer_within(suite.java, java, BY_MESSAGE_MS), "ok");
        assert_woken(c);
        assert_java("ok", "unlock jack thread=%d", waiter);
        assert_hf(HF_OK, hf_lock_release_as(mary, 77));
    }
    hf_lock_free(mary);
    end(&pair);
}

void group_timed_waits_give_up(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_java("ok false", "try team thread=%d wait=200", pair.thread);
    assert_java("ok false", "try team thread=%d wait=200 lease=60000", pair.thread);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_java("ok true", "try team thread=%d wait=200 lease=60000", pair.thread);
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(pair.lock, 200));
    assert_java("ok", "unlock team thread=%d", pair.thread);
    end(&pair);
}

/* ---- Nesting, breaking, not the owner -------------------------------------------------------- */

void group_nests_on_either_side(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_java("ok false", "try team thread=%d", pair.thread);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_java("ok", "lock team thread=%d", pair.thread);
    assert_java("ok", "lock team thread=%d", pair.thread);
    assert_java("ok", "unlock team thread=%d", pair.thread);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_java("ok", "unlock team thread=%d", pair.thread);
    assert_hf(HF_OK, hf_lock_try(pair.lock));
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    end(&pair);
}

void group_forced_and_not_owner_on_either_side(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    bool broken = false;
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_java_not_owner("team", pair.thread);
    java_call(suite.java, "force team thread=%d", pair.thread); /* true for one value only */
    assert_hf(HF_ELOST, hf_lock_release(pair.lock));

    assert_java("ok", "lock team thread=%d", pair.thread);
    assert_hf(HF_ENOTOWNER, hf_lock_release(pair.lock));
    assert_hf(HF_OK, hf_lock_break(pair.lock, &broken));
    assert_true(broken);
    assert_java_not_owner("team", pair.thread);
    end(&pair);
}

/* Java breaks one value of two: the hold is over, and what is left of it goes with the release. */
void group_java_forces_one_value_of_ours(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    java_open("jg", "group", GROUP "|jack", "jack");
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    assert_java("ok true", "force jack thread=%d", pair.thread);
    assert_java("ok true", "try jack thread=%d", pair.thread);
    assert_hf(HF_ELOST, hf_lock_release(pair.lock));
    java_open("jg", "group", GROUP "|mary", "mary");
    assert_java("ok true", "try mary thread=%d", pair.thread);
    assert_java("ok", "unlock jack thread=%d", pair.thread);
    assert_java("ok", "unlock mary thread=%d", pair.thread);
    end(&pair);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Another value keeps the group's key, so it is the lease of the value that ends. */
void group_leases_end_for_the_other_side(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    hf_lock *beside = values_of(pair.client, "paul");
    hf_acquire_options leased = HF_ACQUIRE_OPTIONS_INIT;
    leased.lease_ms = LEASE_MS;
    assert_hf(HF_OK, hf_lock_acquire(beside));

    int64_t sent = wall_ms();
    assert_hf(HF_OK, hf_lock_acquire_with(pair.lock, &leased, NULL));
    assert_java("ok", "lock team thread=%d lease=%d", pair.thread, LEASE_MS);
    assert_true(wall_ms() - sent >= LEASE_MS);
    assert_hf(HF_ELOST, hf_lock_release(pair.lock));
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));

    assert_hf(HF_OK, hf_lock_acquire_for(pair.lock, JAVA_LIMIT_MS));
    assert_java_not_owner("team", pair.thread);
    assert_int_equal(cmd_int(suite.server, "HLEN " GROUP), 9); /* Java's leftovers are swept */
    assert_hf(HF_OK, hf_lock_release(pair.lock));

    sent = wall_ms();
    assert_java("ok", "lock team thread=%d lease=%d", pair.thread, LEASE_MS);
    assert_hf(HF_OK, hf_lock_acquire_for(pair.lock, JAVA_LIMIT_MS));
    assert_true(wall_ms() - sent >= LEASE_MS);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_hf(HF_OK, hf_lock_release(beside));
    hf_lock_free(beside);
    end(&pair);
}

static long long ends_at(const char *owner) {
    own_reply *all = cmd(suite.server, "HGETALL " GROUP);
    long long ends = 0;
    for (size_t i = 0; i + 1 < all->elements; i += 2)
        if (strstr(all->element[i]->str, owner) != NULL &&
            strstr(all->element[i]->str, ":expire_time") != NULL)
            ends = strtoll(all->element[i + 1]->str, NULL, 10);
    return ends;
}

struct end_of {
    const char *owner;
    long long later_than;
};

static bool ends_later(void *arg) {
    const struct end_of *end_of = arg;
    return ends_at(end_of->owner) > end_of->later_than;
}

void group_watchdogs_seen_by_the_other_side(void **state) {
    (void)state;
    struct pair pair = begin(WATCHDOG_MS, "jgshort");
    char owner[128];
    for (int by_java = 0; by_java < 2; by_java++) {
        if (by_java)
            assert_java("ok", "lock team thread=%d", pair.thread);
        else
            assert_hf(HF_OK, hf_lock_acquire(pair.lock));
        snprintf(owner, sizeof owner, "%s",
                 by_java ? java_owner("jgshort", pair.thread) : c_owner(pair.client, 0));
        /* longer than a lease after the first one: it was renewed all the time */
        struct end_of end_of = {owner, ends_at(owner) + WATCHDOG_MS};
        assert_true(wait_until(ends_later, &end_of, JAVA_LIMIT_MS));
        if (by_java) {
            assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
            assert_java("ok", "unlock team thread=%d", pair.thread);
        } else {
            assert_java("ok false", "try team thread=%d", pair.thread);
            assert_hf(HF_OK, hf_lock_release(pair.lock));
        }
    }
    end(&pair);
}

/* ---- Holders that are killed ----------------------------------------------------------------- */

static int hold_until_killed(void *arg) {
    int held = *(int *)arg;
    hf_options options = HF_OPTIONS_INIT;
    static const hf_bytes values[] = {{"jack", 4}, {"mary", 4}};
    hf_client *client;
    hf_lock *lock;
    options.watchdog_ms = WATCHDOG_MS;
    if (hf_open(server_url(suite.server), &options, &client) != HF_OK ||
        hf_lock_new_group(client, GROUP, strlen(GROUP), values, 2, &lock) != HF_OK ||
        hf_lock_acquire(lock) != HF_OK || write(held, "h", 1) != 1)
        return 1;
    for (;;)
        pause();
}

void group_killed_c_holder(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    int held[2];
    char byte;
    assert_int_equal(pipe(held), 0);
    pid_t pid = run_child(hold_until_killed, &held[1]);
    assert_int_equal(read(held[0], &byte, 1), 1);
    int waiting = java_wait_start("jg", "team", pair.thread);
    kill_child(pid);
    int64_t not_before = ends_at(""); /* nobody renews it any more */
    assert_string_equal(java_answer(suite.java, waiting), "ok");
    assert_true(wall_ms() >= not_before);
    assert_java("ok", "unlock team thread=%d", pair.thread);
    close(held[0]);
    close(held[1]);
    bool locked = true;
    assert_hf(HF_OK, hf_lock_is_locked(pair.lock, &locked));
    assert_false(locked);
    cmd_ok(suite.server, "DEL " GROUP); /* Redisson leaves fields of whom it took it over from */
    end(&pair);
}

void group_killed_java_holder(void **state) {
    (void)state;
    struct pair pair = begin(0, "jg");
    struct remote *victim = java_start(JAVA_REDISSON);
    char *name = java_word(BOTH);
    assert_memory_equal(java_call(victim, "client v %s codec=string watchdog=%d",
                                  server_tcp_url(suite.server), WATCHDOG_MS),
                        "ok ", 3);
    assert_string_equal(java_call(victim, "open v group %s L", name), "ok");
    assert_string_equal(java_call(victim, "lock L"), "ok");
    free(name);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    java_kill(victim);
    int64_t not_before = ends_at("");
    assert_hf(HF_OK, hf_lock_acquire_for(pair.lock, JAVA_LIMIT_MS));
    assert_true(wall_ms() >= not_before);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    java_free(victim);
    end(&pair);
}

/* ---- State equality -------------------------------------------------------------------------- */

#define SPARE_MS 100 /* so much longer than the lease our key lasts */

/* What the values were locked with. */
struct leased {
    int64_t lease_ms;
    int64_t since_ms; /* on wall_ms()'s clock, before any of it */
    bool by_java;
};

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

/* All of the hash in order, with the owner as O. The ends are asserted, and no part of the text: by how
 * much they differ is how long the two sides took. */
static void take_down(const char *owner, const struct leased *leased, char *text, size_t room) {
    char lines[16][192];
    own_reply *all = cmd(suite.server, "HGETALL " GROUP);
    size_t count = all->elements / 2, used = 0;
    assert_true(count <= 16);
    int64_t at_ms = wall_ms();
    for (size_t i = 0; i < count; i++) {
        const char *field = all->element[2 * i]->str, *value = all->element[2 * i + 1]->str;
        const char *mine = strstr(field, owner);
        if (mine != NULL && strcmp(mine + strlen(owner), ":expire_time") == 0) {
            assert_left(strtoll(value, NULL, 10) - at_ms, leased->lease_ms, leased->since_ms);
            value = "later";
        }
        snprintf(lines[i], sizeof lines[i], "%.*s%s%s %s\n",
                 mine != NULL ? (int)(mine - field) : (int)strlen(field), field,
                 mine != NULL ? "O" : "", mine != NULL ? mine + strlen(owner) : "",
                 strcmp(value, owner) == 0 ? "O" : value);
    }
    qsort(lines, count, sizeof lines[0], by_text);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, room - used, "%s", lines[i]);
    if (count > 0)
        assert_left(pttl(suite.server, GROUP), leased->lease_ms + (leased->by_java ? 0 : SPARE_MS),
                    leased->since_ms);
}

static void do_step(struct pair *pair, bool by_java, const char *step) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    const char *lease = strstr(step, "lease=");
    if (by_java) {
        assert_java("ok", "%.*s team thread=%d %s", (int)strcspn(step, " "), step, pair->thread,
                    lease != NULL ? lease : "");
        return;
    }
    options.lease_ms = lease != NULL ? atoll(lease + strlen("lease=")) : HF_WATCHDOG;
    if (strncmp(step, "lock", 4) == 0)
        assert_hf(HF_OK, hf_lock_acquire_with(pair->lock, &options, NULL));
    else
        assert_hf(HF_OK, hf_lock_release(pair->lock));
}

/* Leases that do not become shorter: there ours differ on purpose, since we never shorten one. */
void group_leaves_the_same_state(void **state) {
    (void)state;
    static const char *const scenarios[][6] = {
        {"lock", "unlock"},
        {"lock", "lock", "unlock", "unlock"},
        {"lock lease=20000", "unlock"},
        {"lock lease=20000", "lock lease=40000", "unlock", "unlock"},
    };
    struct pair pair = begin(0, "jg");
    char c[2048], java[2048], owner[128];
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        char after[6][2048];
        for (int by_java = 0; by_java < 2; by_java++) {
            snprintf(owner, sizeof owner, "%s",
                     by_java ? java_owner("jg", pair.thread) : c_owner(pair.client, 0));
            struct leased leased = {.since_ms = wall_ms(), .by_java = by_java};
            for (size_t step = 0; step < 6 && scenarios[i][step] != NULL; step++) {
                int64_t lease_ms = lease_of_step(scenarios[i][step]);
                leased.lease_ms = lease_ms != 0 ? lease_ms : leased.lease_ms;
                do_step(&pair, by_java, scenarios[i][step]);
                take_down(owner, &leased, by_java ? java : c, sizeof c);
                if (by_java)
                    assert_string_equal(after[step], java);
                else
                    snprintf(after[step], sizeof after[step], "%s", c);
            }
            assert_server_empty();
        }
    }
    end(&pair);
}
