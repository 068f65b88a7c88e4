/*
 * Older versions beside this build: fleets are upgraded one process at a time, so for a while both
 * are on one server and on the same names.
 *
 * Every case runs once for each older version (fleet_old_versions). It has processes of both; each
 * has to see what the other does, in both directions. Most cases go through all kinds at once, step by
 * step, each kind on names of its own. The older versions are built from the repository's history
 * (build.sh); a version that is not in the history is skipped.
 */
#include "books.h"
#include "fleet.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The kind of the holder and that of its waiter, which subscribes to a channel or queues. */
static const struct couple {
    const char *holds, *waits;
    const char *channel; /* with %s for the name; NULL: it does not subscribe */
    bool fair, nests;
} couples[] = {
    {.holds = "plain", .waits = "plain", .channel = "redisson_lock__channel:{%s}", .nests = true},
    {.holds = "nonreentrant", .waits = "nonreentrant", .channel = "redisson_lock__channel:{%s}"},
    {.holds = "spin", .waits = "spin", .nests = true},
    {.holds = "fenced", .waits = "fenced", .channel = "redisson_lock__channel:{%s}", .nests = true},
    {.holds = "fair", .waits = "fair", .fair = true, .nests = true},
    {.holds = "nonreentrantfair", .waits = "nonreentrantfair", .fair = true},
    {.holds = "write", .waits = "write", .channel = "redisson_rwlock:{%s}", .nests = true},
    {.holds = "write", .waits = "read", .channel = "redisson_rwlock:{%s}", .nests = true},
    {.holds = "read", .waits = "write", .channel = "redisson_rwlock:{%s}", .nests = true},
};
static const char *const version_words[] = {[OLD] = "old", [NEW] = "new"};

enum { COUPLES = sizeof couples / sizeof *couples, DIRECTIONS = 2 };

/* A couple in one direction: the older version holds and this build waits, or the other way round. */
struct pairing {
    const struct couple *couple;
    char name[64];
    struct member *holder, *waiter;
    int wait; /* the id of the waiter's command */
};

struct cast {
    struct pairing pairings[COUPLES * DIRECTIONS];
    size_t len;
};

/* The holders of one direction are one process; its waiters, too. */
static void set_up(struct cast *cast, const char *title) {
    struct member *holders[] = {member_new(OLD), member_new(NEW)};
    struct member *waiters[] = {member_new(NEW), member_new(OLD)};
    cast->len = 0;
    for (int i = 0; i < COUPLES; i++) {
        for (int direction = 0; direction < DIRECTIONS; direction++) {
            struct pairing *pairing = &cast->pairings[cast->len++];
            *pairing = (struct pairing){
                .couple = &couples[i], .holder = holders[direction], .waiter = waiters[direction]};
            snprintf(pairing->name, sizeof pairing->name, "%s-%s-%s-%s", title, couples[i].holds,
                     couples[i].waits, version_words[pairing->holder->version]);
        }
    }
}

static void begin_wait(struct pairing *pairing) {
    char place[128];
    pairing->wait = later(pairing->waiter, "acquire %s %s", pairing->couple->waits, pairing->name);
    if (pairing->couple->channel != NULL) {
        char *at = strchr(pairing->couple->channel, '%');
        snprintf(place, sizeof place, "%.*s%s}", (int)(at - pairing->couple->channel),
                 pairing->couple->channel, pairing->name);
        until_subscribed(place, 1);
    }
    if (pairing->couple->fair) {
        snprintf(place, sizeof place, "redisson_lock_queue:{%s}", pairing->name);
        until_length(place, 1);
    }
}

/* NOLINTBEGIN(bugprone-macro-parentheses): one of the arguments is declared */
#define FOR_EACH(cast, pairing)                                                                    \
    for (struct pairing *pairing = (cast).pairings; pairing < (cast).pairings + (cast).len;        \
         pairing++)
/* NOLINTEND(bugprone-macro-parentheses) */

/* ---- Every kind ------------------------------------------------------------------------------ */

static void one_excludes_the_other_and_its_release_notifies(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "over");
    FOR_EACH(cast, pairing) {
        say(pairing->holder, "ok", "acquire %s %s", pairing->couple->holds, pairing->name);
        say(pairing->waiter, "err HF_EBUSY", "acquire %s %s wait=0", pairing->couple->waits,
            pairing->name);
        say(pairing->waiter, "err HF_ETIMEDOUT", "acquire %s %s wait=100", pairing->couple->waits,
            pairing->name);
        begin_wait(pairing);
    }
    FOR_EACH(cast, pairing) {
        still_waits(pairing->waiter, pairing->wait);
        say(pairing->holder, "ok", "release %s %s", pairing->couple->holds, pairing->name);
        answered(pairing->waiter, pairing->wait, "ok");
        say(pairing->holder, "err HF_ENOTOWNER", "release %s %s", pairing->couple->holds,
            pairing->name);
        say(pairing->waiter, "ok", "release %s %s", pairing->couple->waits, pairing->name);
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

static void nested_holds_count_for_the_other(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "nest");
    FOR_EACH(cast, pairing) {
        if (!pairing->couple->nests)
            continue;
        for (int i = 0; i < 3; i++)
            say(pairing->holder, "ok", "acquire %s %s", pairing->couple->holds, pairing->name);
        begin_wait(pairing);
        for (int i = 0; i < 2; i++)
            say(pairing->holder, "ok", "release %s %s", pairing->couple->holds, pairing->name);
        say(pairing->holder, "ok 1", "count %s %s", pairing->couple->holds, pairing->name);
        say(pairing->waiter, "ok 0", "count %s %s", pairing->couple->holds, pairing->name);
        still_waits(pairing->waiter, pairing->wait);
        say(pairing->holder, "ok", "release %s %s", pairing->couple->holds, pairing->name);
        answered(pairing->waiter, pairing->wait, "ok");
        say(pairing->waiter, "ok", "release %s %s", pairing->couple->waits, pairing->name);
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

static void a_killed_holder_is_succeeded_when_its_lease_ends(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "kill");
    FOR_EACH(cast, pairing) {
        say(pairing->holder, "ok", "acquire %s %s", pairing->couple->holds, pairing->name);
        begin_wait(pairing);
    }
    member_kill(cast.pairings[0].holder);
    member_kill(cast.pairings[1].holder);
    FOR_EACH(cast, pairing)
    still_waits(pairing->waiter, pairing->wait);
    FOR_EACH(cast, pairing) {
        answered_after_lease(pairing->waiter, pairing->wait, "ok");
        say(pairing->waiter, "ok", "release %s %s", pairing->couple->waits, pairing->name);
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void killed_waiters_delay_nobody(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "late");
    FOR_EACH(cast, pairing) {
        say(pairing->holder, "ok", "acquire %s %s", pairing->couple->holds, pairing->name);
        begin_wait(pairing);
    }
    member_kill(cast.pairings[0].waiter);
    member_kill(cast.pairings[1].waiter);
    struct member *next[] = {member_new(OLD), member_new(NEW)};
    FOR_EACH(cast, pairing) {
        struct member *member = next[(pairing - cast.pairings) % DIRECTIONS];
        int wait = later(member, "acquire %s %s", pairing->couple->waits, pairing->name);
        say(pairing->holder, "ok", "release %s %s", pairing->couple->holds, pairing->name);
        answered(member, wait, "ok");
        say(member, "ok", "release %s %s", pairing->couple->waits, pairing->name);
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void either_breaks_a_hold_of_the_other(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "break");
    FOR_EACH(cast, pairing) {
        say(pairing->holder, "ok", "acquire %s %s", pairing->couple->holds, pairing->name);
        begin_wait(pairing);
        say(pairing->waiter, "ok broken", "break %s %s", pairing->couple->holds, pairing->name);
        answered(pairing->waiter, pairing->wait, "ok");
        say(pairing->waiter, "ok 1", "count %s %s", pairing->couple->waits, pairing->name);
        say(pairing->holder, "err HF_ELOST", "release %s %s", pairing->couple->holds,
            pairing->name);
        say(pairing->waiter, "ok 1", "count %s %s", pairing->couple->waits, pairing->name);
        say(pairing->waiter, "ok", "release %s %s", pairing->couple->waits, pairing->name);
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

static void tokens_of_both_are_one_rising_sequence(void **state) {
    (void)state;
    struct member *pair[] = {member_new(OLD), member_new(NEW)};
    long long last = 0;
    for (int i = 0; i < 6; i++) {
        struct member *member = pair[i % 2];
        long long token = atoll(say(member, "ok ", "acquire fenced tokens") + 3);
        assert_true(token > last);
        last = token;
        say(member, "ok", "release fenced tokens");
    }
}

/* ---- The fair queue -------------------------------------------------------------------------- */

enum { QUEUED = 8 };

struct queue {
    char name[16], key[64];
    struct member *holder, *members[QUEUED];
    int waits[QUEUED];
};

/* Versions take turns in the queue, so each waits before and behind the other. */
static void fill_queue(struct queue *queue, enum version first) {
    snprintf(queue->name, sizeof queue->name, "queue-%s", version_words[first]);
    snprintf(queue->key, sizeof queue->key, "redisson_lock_queue:{%s}", queue->name);
    queue->holder = member_new(first);
    say(queue->holder, "ok", "acquire fair %s", queue->name);
    for (int i = 0; i < QUEUED; i++) {
        queue->members[i] = member_new((first == OLD) == (i % 2 == 0) ? OLD : NEW);
        queue->waits[i] = later(queue->members[i], "acquire fair %s", queue->name);
        until_length(queue->key, i + 1);
    }
}

/* This member gets the lock, and no member that waits behind it. */
static void comes_to(const struct queue *queue, int at, int64_t limit_ms) {
    answered_at(queue->members[at], queue->waits[at], "ok", limit_ms, __FILE__, __LINE__);
    for (int i = at + 1; i < QUEUED; i++) {
        if (!queue->members[i]->dead)
            still_waits(queue->members[i], queue->waits[i]);
    }
}

/* A release of either version makes the next waiter the holder at once, so the lock is never free. */
static void passes_on(const struct queue *queue, int from, int to) {
    say(queue->members[from], "ok", "release fair %s", queue->name);
    assert_true(key_exists(fleet_server, queue->name));
    comes_to(queue, to, BY_MESSAGE_MS);
}

/* In each queue one member of each version dies while it waits, and the fourth while it holds: that is
 * one of this build in the queue that the older version heads, and one of the older in the other. */
static void mixed_fair_queues_keep_their_order_over_kills(void **state) {
    (void)state;
    struct queue queues[2];
    fill_queue(&queues[0], OLD);
    fill_queue(&queues[1], NEW);
    for (int i = 0; i < 2; i++) {
        struct queue *queue = &queues[i];
        member_kill(queue->members[1]);
        member_kill(queue->members[4]);
        say(queue->holder, "ok", "release fair %s", queue->name);
        comes_to(queue, 0, BY_MESSAGE_MS);
        passes_on(queue, 0, 2);
        passes_on(queue, 2, 3);
        member_kill(queue->members[3]);
    }
    for (int i = 0; i < 2; i++) {
        struct queue *queue = &queues[i];
        comes_to(queue, 5, BY_LEASE_MS);
        passes_on(queue, 5, 6);
        passes_on(queue, 6, 7);
        say(queue->members[7], "ok", "release fair %s", queue->name);
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void fair_timeouts_of_either_keep_the_order(void **state) {
    (void)state;
    struct member *pair[] = {member_new(OLD), member_new(NEW)};
    for (int i = 0; i < 2; i++) {
        struct member *one = pair[i];
        struct member *other = pair[1 - i];
        say(one, "ok", "acquire fair ups owner=1");
        int first = later(other, "acquire fair ups owner=2 wait=300");
        until_length("redisson_lock_queue:{ups}", 1);
        int second = later(one, "acquire fair ups owner=3");
        until_length("redisson_lock_queue:{ups}", 2);
        answered(other, first, "err HF_ETIMEDOUT");
        int third = later(other, "acquire fair ups owner=4");
        until_length("redisson_lock_queue:{ups}", 2);
        say(one, "ok", "release fair ups owner=1");
        answered(one, second, "ok");
        still_waits(other, third);
        say(one, "ok", "release fair ups owner=3");
        answered(other, third, "ok");
        say(other, "ok", "release fair ups owner=4");
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

/* ---- Readers and writers --------------------------------------------------------------------- */

static void readers_of_both_exclude_writers_of_both(void **state) {
    (void)state;
    struct member *readers[] = {member_new(OLD), member_new(NEW)};
    struct member *writers[] = {member_new(OLD), member_new(NEW)};
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "rw-o" : "rw-n";
        own_text *channel = text_of("redisson_rwlock:{%s}", name);
        for (int r = 0; r < 2; r++) {
            say(readers[r], "ok", "acquire read %s", name);
            say(readers[r], "ok", "acquire read %s", name);
        }
        int wait = later(writers[i], "acquire write %s", name);
        until_subscribed(channel, 1);
        say(readers[0], "ok", "release read %s", name);
        say(readers[1], "ok", "release read %s", name);
        say(readers[1 - i], "ok", "release read %s", name);
        say(writers[1 - i], "err HF_EBUSY", "acquire write %s wait=0", name);
        still_waits(writers[i], wait);
        say(readers[i], "ok", "release read %s", name);
        answered(writers[i], wait, "ok");

        /* Downgrade: readers of the other version get in, writers do not. */
        int reader = later(readers[1 - i], "acquire read %s", name);
        until_subscribed(channel, 1);
        say(writers[i], "ok", "acquire read %s", name);
        say(writers[i], "ok", "release write %s", name);
        answered(readers[1 - i], reader, "ok");
        say(writers[1 - i], "err HF_EBUSY", "acquire write %s wait=0", name);
        say(writers[i], "ok", "release read %s", name);
        say(readers[1 - i], "ok", "release read %s", name);
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

#define DEAD_LEASE_MS ENDURING_MS /* long enough to be granted */

static void a_killed_reader_ends_beside_a_live_one_of_the_other(void **state) {
    (void)state;
    const char *const names[] = {"dead-o", "dead-n"};
    struct member *dead[] = {member_new(OLD), member_new(NEW)};
    struct member *alive[] = {member_new(NEW), member_new(OLD)};
    struct member *writers[] = {member_new(OLD), member_new(NEW)};
    int waits[2];
    for (int i = 0; i < 2; i++) {
        own_text *channel = text_of("redisson_rwlock:{%s}", names[i]);
        say(dead[i], "ok", "acquire read %s lease=%d", names[i], DEAD_LEASE_MS);
        say(alive[i], "ok", "acquire read %s", names[i]);
        waits[i] = later(writers[i], "acquire write %s", names[i]);
        until_subscribed(channel, 1);
    }
    member_kill(dead[0]);
    member_kill(dead[1]);
    for (int i = 0; i < 2; i++) {
        /* The live reader is renewed, the dead one is not. */
        assert_true(WAIT_FOR(cmd_int(fleet_server, "EVAL %s 0 {%s}:*rwlock_timeout*",
                                     "return #redis.call('keys', ARGV[1])", names[i]) == 1,
                             BY_LEASE_MS));
        still_waits(writers[i], waits[i]);
        say(alive[i], "ok", "release read %s", names[i]);
        answered(writers[i], waits[i], "ok");
        say(writers[i], "ok", "release write %s", names[i]);
    }
    assert_nothing_left(BY_LEASE_MS);
}

/* ---- Permits, semaphores, latches ------------------------------------------------------------ */

static void permits_pass_from_one_to_the_other(void **state) {
    (void)state;
    struct member *pair[] = {member_new(OLD), member_new(NEW)};
    for (int i = 0; i < 2; i++) {
        struct member *one = pair[i];
        struct member *other = pair[1 - i];
        char two[128];
        char third[64];
        say(one, "ok", "set permits pass count=3");
        snprintf(two, sizeof two, "%s", say(one, "ok ", "acquire permits pass count=2") + 3);
        snprintf(third, sizeof third, "%s", say(other, "ok ", "acquire permits pass") + 3);
        say(one, "ok 0", "available permits pass");
        say(other, "err HF_EBUSY", "acquire permits pass wait=0");

        /* Notified, and either releases an id of the other. */
        int wait = later(other, "acquire permits pass count=2");
        until_subscribed("redisson_sc:{pass}", 1);
        say(other, "ok", "release permits pass %s", two);
        snprintf(two, sizeof two, "%s", answered(other, wait, "ok ") + 3);
        say(one, "ok", "release permits pass %s", third);
        say(other, "ok", "release permits pass %s", two);

        /* A lease that ends, and is long enough to be granted. */
        say(one, "ok", "acquire permits pass count=3 lease=%d", ENDURING_MS);
        answered_after_lease(
            other, later(other, "acquire permits pass count=3 lease=%d", ENDURING_MS), "ok");
        answered_after_lease(one, later(one, "acquire permits pass count=3 lease=60000"), "ok");
        say(other, "ok", "delete permits pass");
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void permits_of_a_killed_client_return_to_the_other(void **state) {
    (void)state;
    const char *const names[] = {"back-o", "back-n"};
    struct member *dead[] = {member_new(OLD), member_new(NEW)};
    struct member *alive[] = {member_new(NEW), member_new(OLD)};
    int waits[2];
    for (int i = 0; i < 2; i++) {
        own_text *channel = text_of("redisson_sc:{%s}", names[i]);
        say(alive[i], "ok", "set permits %s count=3", names[i]);
        say(dead[i], "ok", "acquire permits %s count=2", names[i]);
        say(alive[i], "ok", "acquire permits %s", names[i]);
        waits[i] = later(alive[i], "acquire permits %s count=2", names[i]);
        until_subscribed(channel, 1);
    }
    member_kill(dead[0]);
    member_kill(dead[1]);
    for (int i = 0; i < 2; i++) {
        answered_after_lease(alive[i], waits[i], "ok");
        say(alive[i], "ok 0", "available permits %s", names[i]);
        say(alive[i], "ok", "delete permits %s", names[i]);
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void semaphores_and_latches_wake_the_other(void **state) {
    (void)state;
    struct member *pair[] = {member_new(OLD), member_new(NEW)};
    for (int i = 0; i < 2; i++) {
        struct member *one = pair[i];
        struct member *other = pair[1 - i];
        say(one, "ok", "set semaphore sem count=2");
        say(one, "ok", "acquire semaphore sem count=2");
        int wait = later(other, "acquire semaphore sem");
        until_subscribed("redisson_sc:{sem}", 1);
        say(one, "ok", "release semaphore sem");
        answered(other, wait, "ok");
        say(other, "ok", "release semaphore sem");
        say(one, "ok 1", "available semaphore sem");
        say(one, "ok", "delete semaphore sem");

        say(one, "ok", "set latch gate count=2");
        wait = later(other, "acquire latch gate");
        until_subscribed("redisson_countdownlatch__channel__{gate}", 1);
        say(other, "ok", "down latch gate");
        still_waits(other, wait);
        say(one, "ok", "down latch gate");
        answered(other, wait, "ok");
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

/* ---- All at once ----------------------------------------------------------------------------- */

enum { STORM_MEMBERS = 6, STORM_KILLS = 4 };

struct storm {
    struct books *books;
    char path[256];
    struct member *members[BOOKS_MEMBERS];
    int waits[BOOKS_MEMBERS];
    int len;
    long seed;
};

static void join(struct storm *storm, enum version version) {
    int number = storm->len++;
    storm->members[number] = member_in_storm(version, storm->path, number);
    storm->waits[number] = later(storm->members[number], "storm - - count=%ld", storm->seed);
}

static void storm_kill(struct storm *storm, int number) {
    member_kill(storm->members[number]);
    for (int place = 0; place < BOOKS_PLACES; place++) {
        for (int i = 0; i < BOOKS_WORKERS; i++)
            atomic_store(&storm->books->inside[place][number * BOOKS_WORKERS + i], 0);
    }
}

static bool all_have_worked(void *arg) {
    struct storm *storm = arg;
    for (int i = 0; i < storm->len; i++) {
        if (!storm->members[i]->dead && atomic_load(&storm->books->sections[i]) < 20)
            return false;
    }
    return true;
}

static void open_books(struct storm *storm, const char *dir) {
    snprintf(storm->path, sizeof storm->path, "%s/books", dir);
    int fd = open(storm->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *storm->books) != 0)
        support_die("cannot write %s", storm->path);
    storm->books = mmap(NULL, sizeof *storm->books, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (storm->books == MAP_FAILED)
        support_die("cannot map %s", storm->path);
}

/* A dead member that is still queued, or has a permit, is removed by the next visitor or by its lease. */
static void visit_all(struct member *member) {
    say(member, "ok", "acquire plain storm-plain");
    say(member, "ok", "release plain storm-plain");
    say(member, "ok", "acquire fair storm-fair");
    say(member, "ok", "release fair storm-fair");
    say(member, "ok", "acquire write storm-readwrite");
    say(member, "ok", "release write storm-readwrite");
    say(member, "ok", "acquire permits storm-permits count=3");
    say(member, "ok", "delete permits storm-permits");
}

static void storm_with_kills_keeps_mutual_exclusion(void **state) {
    (void)state;
    own_text *dir = temp_dir();
    const char *seed = getenv("HF_SEED");
    struct storm storm = {.seed = seed != NULL ? atol(seed) : now_ms()};
    open_books(&storm, dir);
    struct member *visitor = member_new(NEW);
    say(visitor, "ok", "set permits storm-permits count=3");
    for (int i = 0; i < STORM_MEMBERS; i++)
        join(&storm, i % 2 == 0 ? OLD : NEW);
    for (int i = 0; i < STORM_KILLS; i++) {
        assert_true(wait_until(all_have_worked, &storm, REMOTE_LIMIT_MS));
        storm_kill(&storm, i);
        join(&storm, i % 2 == 0 ? NEW : OLD);
    }
    assert_true(wait_until(all_have_worked, &storm, REMOTE_LIMIT_MS));
    atomic_store(&storm.books->over, 1);
    for (int i = 0; i < storm.len; i++) {
        if (storm.members[i]->dead)
            continue;
        const char *answer = remote_answer(storm.members[i]->remote, storm.waits[i]);
        print_message("%s %s\n", version_words[storm.members[i]->version], answer);
        assert_int_equal(strncmp(answer, "ok longest=", 11), 0);
    }
    visit_all(visitor);
    int violations = atomic_load(&storm.books->violations);
    if (violations != 0)
        fail_msg("%d violations; HF_SEED=%ld", violations, storm.seed);
    munmap(storm.books, sizeof *storm.books);
    assert_nothing_left(BY_LEASE_MS);
    temp_dir_remove(dir);
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, fleet_begin, fleet_end)

static int start_server(void **state) {
    (void)state;
    fleet_server = server_start(NULL);
    return 0;
}

static int end_server(void **state) {
    (void)state;
    server_free(fleet_server);
    return 0;
}

int main(void) {
    const struct CMUnitTest rows[] = {
        ROW(one_excludes_the_other_and_its_release_notifies),
        ROW(nested_holds_count_for_the_other),
        ROW(a_killed_holder_is_succeeded_when_its_lease_ends),
        ROW(killed_waiters_delay_nobody),
        ROW(either_breaks_a_hold_of_the_other),
        ROW(tokens_of_both_are_one_rising_sequence),
        ROW(mixed_fair_queues_keep_their_order_over_kills),
        ROW(fair_timeouts_of_either_keep_the_order),
        ROW(readers_of_both_exclude_writers_of_both),
        ROW(a_killed_reader_ends_beside_a_live_one_of_the_other),
        ROW(permits_pass_from_one_to_the_other),
        ROW(permits_of_a_killed_client_return_to_the_other),
        ROW(semaphores_and_latches_wake_the_other),
        ROW(storm_with_kills_keeps_mutual_exclusion),
    };
    bool skipped = false;
    bool failed = false;
    for (size_t i = 0; i < fleet_old_versions_len; i++) {
        const struct old_version *old = &fleet_old_versions[i];
        if (!fleet_build(old))
            skipped = true;
        else if (cmocka_run_group_tests_name(old->name, rows, start_server, end_server) != 0)
            failed = true;
    }
    if (failed)
        return 1;
    return skipped ? EXIT_SKIPPED : 0;
}
