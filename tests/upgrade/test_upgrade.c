/*
 * 0.1 beside this build: fleets are upgraded one process at a time, so for a while both are on one
 * server and on the same names.
 *
 * Each row has processes of both versions; what one does the other has to see, in both directions.
 * Most rows go through all kinds at once, step by step, each kind on names of its own. 0.1 is built
 * from the repository's history (build.sh); where that is not there, the test is skipped.
 */
#include "books.h"
#include "fleet.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What holds, and what waits for it; they listen to a channel, or stand in a line. */
static const struct couple {
    const char *holds, *waits;
    const char *channel; /* with %s for the name; NULL: it does not listen */
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
enum { COUPLES = sizeof couples / sizeof *couples, DIRECTIONS = 2 };

/* A couple in one direction: 0.1 holds and this build waits, or the other way round. */
struct scene {
    const struct couple *couple;
    char name[64];
    struct member *holder, *waiter;
    int wait; /* what the waiter has begun */
};

struct cast {
    struct scene scenes[COUPLES * DIRECTIONS];
    size_t len;
};

/* The holders of one direction are one process; its waiters, too. */
static void set_up(struct cast *cast, const char *title) {
    struct member *holders[] = {member_new('O'), member_new('N')};
    struct member *waiters[] = {member_new('N'), member_new('O')};
    cast->len = 0;
    for (int i = 0; i < COUPLES; i++) {
        for (int direction = 0; direction < DIRECTIONS; direction++) {
            struct scene *scene = &cast->scenes[cast->len++];
            *scene = (struct scene){
                .couple = &couples[i], .holder = holders[direction], .waiter = waiters[direction]};
            snprintf(scene->name, sizeof scene->name, "%s-%s-%s-%c", title, couples[i].holds,
                     couples[i].waits, scene->holder->version);
        }
    }
}

static void begin_wait(struct scene *scene) {
    char place[128];
    scene->wait = later(scene->waiter, "acquire %s %s", scene->couple->waits, scene->name);
    if (scene->couple->channel != NULL) {
        char *at = strchr(scene->couple->channel, '%');
        snprintf(place, sizeof place, "%.*s%s}", (int)(at - scene->couple->channel),
                 scene->couple->channel, scene->name);
        until_listening(place, 1);
    }
    if (scene->couple->fair) {
        snprintf(place, sizeof place, "redisson_lock_queue:{%s}", scene->name);
        until_length(place, 1);
    }
}

/* NOLINTBEGIN(bugprone-macro-parentheses): one of the arguments is declared */
#define FOR_EACH(cast, scene)                                                                      \
    for (struct scene *scene = (cast).scenes; scene < (cast).scenes + (cast).len; scene++)
/* NOLINTEND(bugprone-macro-parentheses) */

/* ---- Every kind ------------------------------------------------------------------------------ */

static void one_excludes_the_other_and_hands_over_by_message(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "over");
    FOR_EACH(cast, scene) {
        say(scene->holder, "ok", "acquire %s %s", scene->couple->holds, scene->name);
        say(scene->waiter, "err HF_EBUSY", "acquire %s %s wait=0", scene->couple->waits,
            scene->name);
        say(scene->waiter, "err HF_ETIMEDOUT", "acquire %s %s wait=100", scene->couple->waits,
            scene->name);
        begin_wait(scene);
    }
    FOR_EACH(cast, scene) {
        still_waits(scene->waiter, scene->wait);
        say(scene->holder, "ok", "release %s %s", scene->couple->holds, scene->name);
        told(scene->waiter, scene->wait, "ok");
        say(scene->holder, "err HF_ENOTOWNER", "release %s %s", scene->couple->holds, scene->name);
        say(scene->waiter, "ok", "release %s %s", scene->couple->waits, scene->name);
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

static void nested_holds_count_for_the_other(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "nest");
    FOR_EACH(cast, scene) {
        if (!scene->couple->nests)
            continue;
        for (int i = 0; i < 3; i++)
            say(scene->holder, "ok", "acquire %s %s", scene->couple->holds, scene->name);
        begin_wait(scene);
        for (int i = 0; i < 2; i++)
            say(scene->holder, "ok", "release %s %s", scene->couple->holds, scene->name);
        say(scene->holder, "ok 1", "count %s %s", scene->couple->holds, scene->name);
        say(scene->waiter, "ok 0", "count %s %s", scene->couple->holds, scene->name);
        still_waits(scene->waiter, scene->wait);
        say(scene->holder, "ok", "release %s %s", scene->couple->holds, scene->name);
        told(scene->waiter, scene->wait, "ok");
        say(scene->waiter, "ok", "release %s %s", scene->couple->waits, scene->name);
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

static void killed_holders_are_followed_when_their_lease_ends(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "kill");
    FOR_EACH(cast, scene) {
        say(scene->holder, "ok", "acquire %s %s", scene->couple->holds, scene->name);
        begin_wait(scene);
    }
    member_kill(cast.scenes[0].holder);
    member_kill(cast.scenes[1].holder);
    FOR_EACH(cast, scene)
    still_waits(scene->waiter, scene->wait);
    FOR_EACH(cast, scene) {
        told_after_lease(scene->waiter, scene->wait, "ok");
        say(scene->waiter, "ok", "release %s %s", scene->couple->waits, scene->name);
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void killed_waiters_are_no_obstacle(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "late");
    FOR_EACH(cast, scene) {
        say(scene->holder, "ok", "acquire %s %s", scene->couple->holds, scene->name);
        begin_wait(scene);
    }
    member_kill(cast.scenes[0].waiter);
    member_kill(cast.scenes[1].waiter);
    struct member *next[] = {member_new('O'), member_new('N')};
    FOR_EACH(cast, scene) {
        struct member *member = next[(scene - cast.scenes) % DIRECTIONS];
        int wait = later(member, "acquire %s %s", scene->couple->waits, scene->name);
        say(scene->holder, "ok", "release %s %s", scene->couple->holds, scene->name);
        told(member, wait, "ok");
        say(member, "ok", "release %s %s", scene->couple->waits, scene->name);
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void either_breaks_what_the_other_holds(void **state) {
    (void)state;
    struct cast cast;
    set_up(&cast, "break");
    FOR_EACH(cast, scene) {
        say(scene->holder, "ok", "acquire %s %s", scene->couple->holds, scene->name);
        begin_wait(scene);
        say(scene->waiter, "ok broken", "break %s %s", scene->couple->holds, scene->name);
        told(scene->waiter, scene->wait, "ok");
        say(scene->waiter, "ok 1", "count %s %s", scene->couple->waits, scene->name);
        say(scene->holder, "err HF_ELOST", "release %s %s", scene->couple->holds, scene->name);
        say(scene->waiter, "ok 1", "count %s %s", scene->couple->waits, scene->name);
        say(scene->waiter, "ok", "release %s %s", scene->couple->waits, scene->name);
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

static void tokens_are_one_row_of_numbers(void **state) {
    (void)state;
    struct member *pair[] = {member_new('O'), member_new('N')};
    long long last = 0;
    for (int i = 0; i < 6; i++) {
        struct member *member = pair[i % 2];
        long long token = atoll(say(member, "ok ", "acquire fenced tokens") + 3);
        assert_true(token > last);
        last = token;
        say(member, "ok", "release fenced tokens");
    }
}

/* ---- The fair line --------------------------------------------------------------------------- */

enum { LINE = 8 };

struct line {
    char name[16], queue[64];
    struct member *holder, *members[LINE];
    int waits[LINE];
};

/* Versions take turns in the line, so each stands before and behind the other. */
static void line_up(struct line *line, char first) {
    snprintf(line->name, sizeof line->name, "line-%c", first);
    snprintf(line->queue, sizeof line->queue, "redisson_lock_queue:{%s}", line->name);
    line->holder = member_new(first);
    say(line->holder, "ok", "acquire fair %s", line->name);
    for (int i = 0; i < LINE; i++) {
        line->members[i] = member_new((first == 'O') == (i % 2 == 0) ? 'O' : 'N');
        line->waits[i] = later(line->members[i], "acquire fair %s", line->name);
        until_length(line->queue, i + 1);
    }
}

/* The lock comes to this one, and to nobody who waits behind it. */
static void comes_to(const struct line *line, int at, int64_t limit_ms) {
    told_at(line->members[at], line->waits[at], "ok", limit_ms, __FILE__, __LINE__);
    for (int i = at + 1; i < LINE; i++) {
        if (!line->members[i]->dead)
            still_waits(line->members[i], line->waits[i]);
    }
}

/* Either version makes a waiter of the other the holder in the release itself: there is no moment in
 * which the lock is free. */
static void passes_on(const struct line *line, int from, int to) {
    say(line->members[from], "ok", "release fair %s", line->name);
    assert_true(key_exists(fleet_server, line->name));
    comes_to(line, to, BY_MESSAGE_MS);
}

/* Of each line one of each version dies while it waits, and the fourth while it holds: that is one of
 * this build in the line that 0.1 heads, and one of 0.1 in the other. */
static void mixed_fair_lines_keep_their_order_over_kills(void **state) {
    (void)state;
    struct line lines[2];
    line_up(&lines[0], 'O');
    line_up(&lines[1], 'N');
    for (int i = 0; i < 2; i++) {
        struct line *line = &lines[i];
        member_kill(line->members[1]);
        member_kill(line->members[4]);
        say(line->holder, "ok", "release fair %s", line->name);
        comes_to(line, 0, BY_MESSAGE_MS);
        passes_on(line, 0, 2);
        passes_on(line, 2, 3);
        member_kill(line->members[3]);
    }
    for (int i = 0; i < 2; i++) {
        struct line *line = &lines[i];
        comes_to(line, 5, BY_LEASE_MS);
        passes_on(line, 5, 6);
        passes_on(line, 6, 7);
        say(line->members[7], "ok", "release fair %s", line->name);
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void fair_give_ups_of_either_keep_the_order(void **state) {
    (void)state;
    struct member *pair[] = {member_new('O'), member_new('N')};
    for (int i = 0; i < 2; i++) {
        struct member *one = pair[i];
        struct member *other = pair[1 - i];
        say(one, "ok", "acquire fair ups owner=1");
        int first = later(other, "acquire fair ups owner=2 wait=300");
        until_length("redisson_lock_queue:{ups}", 1);
        int second = later(one, "acquire fair ups owner=3");
        until_length("redisson_lock_queue:{ups}", 2);
        told(other, first, "err HF_ETIMEDOUT");
        int third = later(other, "acquire fair ups owner=4");
        until_length("redisson_lock_queue:{ups}", 2);
        say(one, "ok", "release fair ups owner=1");
        told(one, second, "ok");
        still_waits(other, third);
        say(one, "ok", "release fair ups owner=3");
        told(other, third, "ok");
        say(other, "ok", "release fair ups owner=4");
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

/* ---- Readers and writers --------------------------------------------------------------------- */

static void readers_of_both_keep_writers_of_both_out(void **state) {
    (void)state;
    struct member *readers[] = {member_new('O'), member_new('N')};
    struct member *writers[] = {member_new('O'), member_new('N')};
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "rw-o" : "rw-n";
        char channel[64];
        snprintf(channel, sizeof channel, "redisson_rwlock:{%s}", name);
        for (int r = 0; r < 2; r++) {
            say(readers[r], "ok", "acquire read %s", name);
            say(readers[r], "ok", "acquire read %s", name);
        }
        int wait = later(writers[i], "acquire write %s", name);
        until_listening(channel, 1);
        say(readers[0], "ok", "release read %s", name);
        say(readers[1], "ok", "release read %s", name);
        say(readers[1 - i], "ok", "release read %s", name);
        say(writers[1 - i], "err HF_EBUSY", "acquire write %s wait=0", name);
        still_waits(writers[i], wait);
        say(readers[i], "ok", "release read %s", name);
        told(writers[i], wait, "ok");

        /* Downgrade: readers of the other side come in, writers do not. */
        int reader = later(readers[1 - i], "acquire read %s", name);
        until_listening(channel, 1);
        say(writers[i], "ok", "acquire read %s", name);
        say(writers[i], "ok", "release write %s", name);
        told(readers[1 - i], reader, "ok");
        say(writers[1 - i], "err HF_EBUSY", "acquire write %s wait=0", name);
        say(writers[i], "ok", "release read %s", name);
        say(readers[1 - i], "ok", "release read %s", name);
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

#define DEAD_LEASE_MS ENDURING_MS /* long enough to be granted */

static void killed_readers_beside_a_living_one_of_the_other_version(void **state) {
    (void)state;
    const char *const names[] = {"dead-o", "dead-n"};
    struct member *dead[] = {member_new('O'), member_new('N')};
    struct member *alive[] = {member_new('N'), member_new('O')};
    struct member *writers[] = {member_new('O'), member_new('N')};
    int waits[2];
    for (int i = 0; i < 2; i++) {
        char channel[64];
        snprintf(channel, sizeof channel, "redisson_rwlock:{%s}", names[i]);
        say(dead[i], "ok", "acquire read %s lease=%d", names[i], DEAD_LEASE_MS);
        say(alive[i], "ok", "acquire read %s", names[i]);
        waits[i] = later(writers[i], "acquire write %s", names[i]);
        until_listening(channel, 1);
    }
    member_kill(dead[0]);
    member_kill(dead[1]);
    sleep_ms(DEAD_LEASE_MS); /* The living one is renewed, the dead one is not. */
    for (int i = 0; i < 2; i++) {
        still_waits(writers[i], waits[i]);
        say(alive[i], "ok", "release read %s", names[i]);
        told(writers[i], waits[i], "ok");
        say(writers[i], "ok", "release write %s", names[i]);
    }
    assert_nothing_left(BY_LEASE_MS);
}

/* ---- Permits, semaphores, latches ------------------------------------------------------------ */

static void permits_pass_from_one_to_the_other(void **state) {
    (void)state;
    struct member *pair[] = {member_new('O'), member_new('N')};
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

        /* By message, and an id of one is good for the other. */
        int wait = later(other, "acquire permits pass count=2");
        until_listening("redisson_sc:{pass}", 1);
        say(other, "ok", "release permits pass %s", two);
        snprintf(two, sizeof two, "%s", told(other, wait, "ok ") + 3);
        say(one, "ok", "release permits pass %s", third);
        say(other, "ok", "release permits pass %s", two);

        /* A lease that ends, and is long enough to be granted. */
        say(one, "ok", "acquire permits pass count=3 lease=%d", ENDURING_MS);
        told_after_lease(other, later(other, "acquire permits pass count=3 lease=%d", ENDURING_MS),
                         "ok");
        told_after_lease(one, later(one, "acquire permits pass count=3 lease=60000"), "ok");
        say(other, "ok", "delete permits pass");
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void permits_of_the_killed_come_back_to_the_other(void **state) {
    (void)state;
    const char *const names[] = {"back-o", "back-n"};
    struct member *dead[] = {member_new('O'), member_new('N')};
    struct member *alive[] = {member_new('N'), member_new('O')};
    int waits[2];
    for (int i = 0; i < 2; i++) {
        char channel[64];
        snprintf(channel, sizeof channel, "redisson_sc:{%s}", names[i]);
        say(alive[i], "ok", "set permits %s count=3", names[i]);
        say(dead[i], "ok", "acquire permits %s count=2", names[i]);
        say(alive[i], "ok", "acquire permits %s", names[i]);
        waits[i] = later(alive[i], "acquire permits %s count=2", names[i]);
        until_listening(channel, 1);
    }
    member_kill(dead[0]);
    member_kill(dead[1]);
    for (int i = 0; i < 2; i++) {
        told_after_lease(alive[i], waits[i], "ok");
        say(alive[i], "ok 0", "available permits %s", names[i]);
        say(alive[i], "ok", "delete permits %s", names[i]);
    }
    assert_nothing_left(BY_LEASE_MS);
}

static void semaphores_and_latches_wake_the_other(void **state) {
    (void)state;
    struct member *pair[] = {member_new('O'), member_new('N')};
    for (int i = 0; i < 2; i++) {
        struct member *one = pair[i];
        struct member *other = pair[1 - i];
        say(one, "ok", "set semaphore sem count=2");
        say(one, "ok", "acquire semaphore sem count=2");
        int wait = later(other, "acquire semaphore sem");
        until_listening("redisson_sc:{sem}", 1);
        say(one, "ok", "release semaphore sem");
        told(other, wait, "ok");
        say(other, "ok", "release semaphore sem");
        say(one, "ok 1", "available semaphore sem");
        say(one, "ok", "delete semaphore sem");

        say(one, "ok", "set latch gate count=2");
        wait = later(other, "acquire latch gate");
        until_listening("redisson_countdownlatch__channel__{gate}", 1);
        say(other, "ok", "down latch gate");
        still_waits(other, wait);
        say(one, "ok", "down latch gate");
        told(other, wait, "ok");
    }
    assert_nothing_left(BY_MESSAGE_MS);
}

/* ---- All at once ----------------------------------------------------------------------------- */

enum { STORM_SEATS = 6, STORM_KILLS = 4 };

struct storm {
    struct books *books;
    char path[256];
    struct member *seats[BOOKS_SEATS];
    int waits[BOOKS_SEATS];
    int len;
    long seed;
};

static void join(struct storm *storm, char version) {
    int seat = storm->len++;
    storm->seats[seat] = member_in_storm(version, storm->path, seat);
    storm->waits[seat] = later(storm->seats[seat], "storm - - count=%ld", storm->seed);
}

static void storm_kill(struct storm *storm, int seat) {
    member_kill(storm->seats[seat]);
    for (int place = 0; place < BOOKS_PLACES; place++) {
        for (int i = 0; i < BOOKS_WORKERS; i++)
            atomic_store(&storm->books->inside[place][seat * BOOKS_WORKERS + i], 0);
    }
}

static bool all_have_worked(void *arg) {
    struct storm *storm = arg;
    for (int i = 0; i < storm->len; i++) {
        if (!storm->seats[i]->dead && atomic_load(&storm->books->sections[i]) < 20)
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

/* Whoever is dead and still in a line, or has a permit, goes with the next visitor or by its lease. */
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

static void storm_with_kills_lets_nobody_in_beside_another(void **state) {
    (void)state;
    char *dir = temp_dir();
    const char *seed = getenv("HF_SEED");
    struct storm storm = {.seed = seed != NULL ? atol(seed) : now_ms()};
    open_books(&storm, dir);
    struct member *visitor = member_new('N');
    say(visitor, "ok", "set permits storm-permits count=3");
    for (int i = 0; i < STORM_SEATS; i++)
        join(&storm, i % 2 == 0 ? 'O' : 'N');
    for (int i = 0; i < STORM_KILLS; i++) {
        assert_true(wait_until(all_have_worked, &storm, REMOTE_LIMIT_MS));
        storm_kill(&storm, i);
        join(&storm, i % 2 == 0 ? 'N' : 'O');
    }
    assert_true(wait_until(all_have_worked, &storm, REMOTE_LIMIT_MS));
    atomic_store(&storm.books->over, 1);
    for (int i = 0; i < storm.len; i++) {
        if (storm.seats[i]->dead)
            continue;
        const char *answer = remote_answer(storm.seats[i]->remote, storm.waits[i]);
        print_message("%c %s\n", storm.seats[i]->version, answer);
        assert_int_equal(strncmp(answer, "ok longest=", 11), 0);
    }
    visit_all(visitor);
    int violations = atomic_load(&storm.books->violations);
    if (violations != 0)
        fail_msg("%d violations; HF_SEED=%ld", violations, storm.seed);
    munmap(storm.books, sizeof *storm.books);
    assert_nothing_left(BY_LEASE_MS);
    temp_dir_remove(dir);
    free(dir);
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
        ROW(one_excludes_the_other_and_hands_over_by_message),
        ROW(nested_holds_count_for_the_other),
        ROW(killed_holders_are_followed_when_their_lease_ends),
        ROW(killed_waiters_are_no_obstacle),
        ROW(either_breaks_what_the_other_holds),
        ROW(tokens_are_one_row_of_numbers),
        ROW(mixed_fair_lines_keep_their_order_over_kills),
        ROW(fair_give_ups_of_either_keep_the_order),
        ROW(readers_of_both_keep_writers_of_both_out),
        ROW(killed_readers_beside_a_living_one_of_the_other_version),
        ROW(permits_pass_from_one_to_the_other),
        ROW(permits_of_the_killed_come_back_to_the_other),
        ROW(semaphores_and_latches_wake_the_other),
        ROW(storm_with_kills_lets_nobody_in_beside_another),
    };
    fleet_build();
    return cmocka_run_group_tests_name("upgrade", rows, start_server, end_server) == 0 ? 0 : 1;
}
