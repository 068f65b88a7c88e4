/*
 * Everything at once on a network that fails: threads of three clients acquire, try, wait, cancel and start operations
 * on a few names, clients come and are closed in the middle of it, somebody asks who waits, while replies and messages
 * are lost, connections are cut, commands arrive late and nothing passes for a while.
 *
 * Leases are so long that no hold may be lost, so what is judged is simple: nobody is ever inside
 * with another, no matter who got in can get out, every call ends with what the header says, every
 * callback runs once, and in the end nothing is left: no hold, no key, no subscription, no memory.
 * Waiters are parked and resumed all the time, releasers stand back for others, and each client has
 * several command connections. In the long form (HF_SOAK: a quarter of an hour) one lock is held
 * for so long that the waiters for it are looked at (src/redis/wait/poll_batch.c).
 *
 * Choices come from a seed, which is printed; HF_SEED repeats them, though not their timing.
 */
#include "lock/cohort.h"
#include "support/memory.h"
#include "support/random.h"

#include <inttypes.h>

enum { PARTIES = 3, SLOTS = 24, BRIEF_OPS = 12 };
#define STORM_MS (getenv("HF_SOAK") != NULL ? 900000 : 3000)
#define SLOW_MS (getenv("HF_SOAK") != NULL ? 12000 : 400)
#define LEASE_MS 600000 /* longer than the storm's worst hold could ever wait to be released */
#define BRIEF_LEASE_MS 300
#define EXCHANGE_MS 400
#define SILENCE_MS 1500

/* The last is held for long by one thread of each party. */
static const struct {
    const char *name;
    hf_kind kind;
    unsigned flags;
} things[] = {{"storm-a", HF_PLAIN, 0},
              {"storm-b", HF_PLAIN, 0},
              {"storm-fair", HF_FAIR, 0},
              {"storm-cohort", HF_PLAIN, HF_COHORT},
              {"storm-slow", HF_PLAIN, 0}};
enum { THINGS = sizeof things / sizeof things[0], SLOW = THINGS - 1 };

struct storm {
    struct server *server;
    atomic_int inside[THINGS];
    atomic_long entered[THINGS];
    atomic_long failures; /* of which the first was printed */
    atomic_long codes[64];
    atomic_int running; /* threads */
    int64_t end_ms;
};

/* A client, and its way to the server. */
struct party {
    struct storm *storm;
    struct proxy *proxy;
    struct memory memory;
    hf_client *client;
    hf_lock *locks[THINGS];
};

struct actor {
    struct party *party;
    unsigned random;
    pthread_t thread;
};

static unsigned pick(struct actor *actor, unsigned below) {
    return (unsigned)rand_r(&actor->random) % below;
}

static bool is_over(const struct storm *storm) {
    return now_ms() >= storm->end_ms;
}

/* ---- What is judged ---- */

static void wrong(struct storm *storm, const char *what, int err) {
    if (atomic_fetch_add(&storm->failures, 1) == 0)
        print_error("%s: %s\n", what, hf_error_name(err));
}

/* How an acquire may end that did not get the lock, on servers that forget nothing. */
static bool may_fail_with(int err) {
    return err == HF_EBUSY || err == HF_ETIMEDOUT || err == HF_ECANCELED || err == HF_EUNREACH;
}

static bool judge_acquire(struct storm *storm, int err) {
    atomic_fetch_add(&storm->codes[-err], 1);
    if (err != HF_OK && !may_fail_with(err))
        wrong(storm, "an acquire", err);
    return err == HF_OK;
}

/* A reply may be lost, but no hold. */
static void judge_release(struct storm *storm, int err) {
    if (err != HF_OK && err != HF_EINDOUBT && err != HF_EUNREACH)
        wrong(storm, "a release", err);
}

static void be_inside(struct storm *storm, int thing) {
    if (atomic_fetch_add(&storm->inside[thing], 1) != 0)
        wrong(storm, things[thing].name, HF_EBUSY);
    sched_yield();
    atomic_fetch_add(&storm->entered[thing], 1);
    atomic_fetch_sub(&storm->inside[thing], 1);
}

/* ---- Threads that call ---- */

static void visit(struct actor *actor, int thing, const hf_acquire_options *options) {
    struct storm *storm = actor->party->storm;
    hf_lock *lock = actor->party->locks[thing];
    if (!judge_acquire(storm, hf_lock_acquire_with(lock, options, NULL)))
        return;
    be_inside(storm, thing);
    if (pick(actor, 5) == 0 && judge_acquire(storm, hf_lock_try(lock)))
        judge_release(storm, hf_lock_release(lock));
    judge_release(storm, hf_lock_release(lock));
}

static void visit_with_a_switch(struct actor *actor, int thing) {
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    pthread_t thread;
    if (hf_cancel_new(&options.cancel) != HF_OK ||
        pthread_create(&thread, NULL, world_fire, options.cancel) != 0)
        abort();
    visit(actor, thing, &options);
    pthread_join(thread, NULL);
    hf_cancel_free(options.cancel);
}

static void *call_all_the_time(void *arg) {
    struct actor *actor = arg;
    static const int64_t waits_ms[] = {HF_FOREVER, HF_FOREVER, 0, 3, 30, 300};
    while (!is_over(actor->party->storm)) {
        int thing = (int)pick(actor, SLOW);
        if (pick(actor, 6) == 0) {
            visit_with_a_switch(actor, thing);
            continue;
        }
        hf_acquire_options options = world_wait_for(
            waits_ms[pick(actor, sizeof waits_ms / sizeof waits_ms[0])], HF_WATCHDOG);
        visit(actor, thing, &options);
    }
    return NULL;
}

/* Nobody waits on the slow lock but operations, which sleep for long. */
static void *hold_for_long(void *arg) {
    struct actor *actor = arg;
    struct storm *storm = actor->party->storm;
    hf_lock *lock = actor->party->locks[SLOW];
    while (!is_over(storm)) {
        if (!judge_acquire(storm, hf_lock_acquire_for(lock, 100)))
            continue;
        int64_t until_ms = now_ms() + SLOW_MS;
        while (now_ms() < until_ms && !is_over(storm))
            (void)wait_a_moment();
        be_inside(storm, SLOW);
        judge_release(storm, hf_lock_release(lock));
    }
    return NULL;
}

/* ---- Operations ---- */

enum slot_state { SLOT_FREE, SLOT_ACQUIRES, SLOT_RELEASES, SLOT_DONE };

/* One operation at a time. Its callback belongs to the dispatch thread, and the rest to its actor. */
struct slot {
    struct party *party;
    int thing;
    hf_op *op;
    _Atomic enum slot_state state;
};

static void advance(struct slot *slot, enum slot_state from, enum slot_state to) {
    if (atomic_exchange(&slot->state, to) != from)
        wrong(slot->party->storm, "a callback ran twice", HF_EINVAL);
}

static void released(hf_op *op, const hf_result *result, void *user) {
    struct slot *slot = user;
    (void)op;
    judge_release(slot->party->storm, result->code);
    advance(slot, SLOT_RELEASES, SLOT_DONE);
}

static void acquired(hf_op *op, const hf_result *result, void *user) {
    struct slot *slot = user;
    struct storm *storm = slot->party->storm;
    (void)op;
    if (!judge_acquire(storm, result->code)) {
        advance(slot, SLOT_ACQUIRES, SLOT_DONE);
        return;
    }
    be_inside(storm, slot->thing);
    advance(slot, SLOT_ACQUIRES, SLOT_RELEASES);
    int err =
        hf_lock_release_start(slot->party->locks[slot->thing], result->owner, released, slot, NULL);
    if (err != HF_OK)
        wrong(storm, "a release that was to be started", err);
}

static void start_slot(struct actor *actor, struct slot *slot) {
    static const int64_t waits_ms[] = {HF_FOREVER, HF_FOREVER, HF_FOREVER, 0, 40, 1000};
    hf_acquire_options options =
        world_wait_for(waits_ms[pick(actor, sizeof waits_ms / sizeof waits_ms[0])], HF_WATCHDOG);
    slot->party = actor->party;
    slot->thing = (int)pick(actor, THINGS);
    atomic_store(&slot->state, SLOT_ACQUIRES);
    int err = hf_lock_acquire_start(actor->party->locks[slot->thing], &options, acquired, slot,
                                    &slot->op);
    if (err == HF_OK)
        return;
    wrong(actor->party->storm, "an acquire that was to be started", err);
    atomic_store(&slot->state, SLOT_FREE);
}

static void free_slot(struct slot *slot) {
    hf_op_free(slot->op);
    slot->op = NULL;
    atomic_store(&slot->state, SLOT_FREE);
}

static bool is_done(void *arg) {
    return atomic_load(&((struct slot *)arg)->state) == SLOT_DONE;
}

static void *start_all_the_time(void *arg) {
    struct actor *actor = arg;
    struct storm *storm = actor->party->storm;
    struct slot slots[SLOTS] = {0};
    while (!is_over(storm)) {
        struct slot *slot = &slots[pick(actor, SLOTS)];
        if (is_done(slot))
            free_slot(slot);
        if (atomic_load(&slot->state) == SLOT_FREE)
            start_slot(actor, slot);
        else if (pick(actor, 4) == 0)
            hf_op_cancel(slot->op);
        else
            hf_op_wait(slot->op, 1, NULL);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (atomic_load(&slots[i].state) == SLOT_FREE)
            continue;
        if (!wait_until(is_done, &slots[i], HANG_MS))
            wrong(storm, "an operation did not end", HF_EPENDING);
        free_slot(&slots[i]);
    }
    return NULL;
}

/* ---- Clients that do not stay ---- */

struct brief {
    atomic_int calls;
};

static void called(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    (void)result;
    atomic_fetch_add(&((struct brief *)user)->calls, 1);
}

/* It is closed whatever its operations are at. What it got goes with its lease, and it was never inside. */
static void come_and_go(struct actor *actor) {
    struct storm *storm = actor->party->storm;
    struct memory memory = {0};
    struct brief brief = {0};
    hf_options options = world_options();
    hf_client *client;
    hf_lock *lock;
    int started = 0;
    options.cmd_timeout_ms = EXCHANGE_MS;
    options.allocator = memory_allocator(&memory);
    if (hf_open(proxy_url(actor->party->proxy), &options, &client) != HF_OK ||
        hf_lock_new(client, things[pick(actor, 2)].name, &lock) != HF_OK)
        abort();
    for (int i = 0; i < BRIEF_OPS; i++) {
        hf_acquire_options acquire = world_wait_for(HF_FOREVER, BRIEF_LEASE_MS);
        started += hf_lock_acquire_start(lock, &acquire, called, &brief, NULL) == HF_OK;
    }
    linger(pick(actor, 40));
    hf_lock_free(lock);
    int err = hf_close(client);
    if (err != HF_OK || atomic_load(&brief.calls) != started)
        wrong(storm, "a close", err);
    if (atomic_load(&memory.live) != 0)
        wrong(storm, "a closed client's memory", HF_ENOMEM);
}

/* And asks, beside that, who waits. */
static void *come_and_go_and_ask(void *arg) {
    struct actor *actor = arg;
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    options.limit_ms = EXCHANGE_MS;
    while (!is_over(actor->party->storm)) {
        hf_fleet *fleet = NULL;
        come_and_go(actor);
        if (hf_survey(actor->party->client, &options, &fleet) == HF_OK)
            hf_fleet_free(fleet);
    }
    return NULL;
}

/* ---- Faults ---- */

static const char *some_command(struct actor *actor) {
    const char *const commands[] = {WORLD_ACQUIRE,
                                    WORLD_RELEASE,
                                    hfi_script_fair_acquire.sha1,
                                    hfi_script_fair_release.sha1,
                                    hfi_script_poll_batch.sha1,
                                    WORLD_SUBSCRIBE,
                                    ""};
    return commands[pick(actor, sizeof commands / sizeof commands[0])];
}

static void lose_messages(struct actor *actor) {
    struct party *party = actor->party;
    if (pick(actor, 2) == 0) {
        redisReply *reply = cmd(party->storm->server, "CLIENT KILL TYPE pubsub");
        freeReplyObject(reply);
    } else {
        proxy_cut_connections(party->proxy, WORLD_SUBSCRIBE);
    }
}

/* For a moment, and then it is over. */
static void interrupt(struct actor *actor) {
    struct proxy *proxy = actor->party->proxy;
    unsigned how = pick(actor, 4);
    if (how == 0)
        proxy_blackhole(proxy, pick(actor, 2) == 0, true);
    else if (how == 1)
        proxy_refuse(proxy, true);
    else if (how == 2)
        proxy_delay(proxy, some_command(actor), 1 + pick(actor, 60));
    else
        proxy_freeze_connections(proxy, some_command(actor));
    linger(pick(actor, pick(actor, 10) == 0 ? 2 * SILENCE_MS : EXCHANGE_MS));
    proxy_heal(proxy);
}

static void *inject_faults(void *arg) {
    struct actor *actor = arg;
    struct proxy *proxy = actor->party->proxy;
    while (!is_over(actor->party->storm)) {
        switch (pick(actor, 8)) {
        case 0:
            proxy_cut_all(proxy);
            break;
        case 1:
            proxy_mute_replies_after(proxy, some_command(actor));
            break;
        case 2:
            proxy_hold_request(proxy, some_command(actor));
            break;
        case 3:
            proxy_release_held(proxy);
            break;
        case 4:
            interrupt(actor);
            break;
        case 5:
            lose_messages(actor);
            break;
        default:
            proxy_drop_replies_after(proxy, some_command(actor));
        }
        linger(pick(actor, 30));
    }
    proxy_heal(proxy);
    proxy_release_held(proxy);
    return NULL;
}

/* ---- The storm ---- */

static void begin_party(struct party *party, struct storm *storm) {
    hf_options options = world_options();
    memset(party, 0, sizeof *party);
    party->storm = storm;
    party->proxy = proxy_start(server_socket(storm->server));
    options.allocator = memory_allocator(&party->memory);
    options.cmd_timeout_ms = EXCHANGE_MS;
    options.connect_timeout_ms = SILENCE_MS;
    options.ping_interval_ms = EXCHANGE_MS;
    options.watchdog_ms = LEASE_MS;
    options.report_after_ms = 0;
    assert_int_equal(hf_open(proxy_url(party->proxy), &options, &party->client), HF_OK);
    for (int i = 0; i < THINGS; i++) {
        hf_lock_options lock = HF_LOCK_OPTIONS_INIT;
        lock.kind = things[i].kind;
        lock.flags = things[i].flags;
        assert_int_equal(hf_lock_new_with(party->client, things[i].name, strlen(things[i].name),
                                          &lock, &party->locks[i]),
                         HF_OK);
    }
}

static bool nothing_is_left(void *arg) {
    return world_keys(arg) == 0;
}

static void end_party(struct party *party) {
    assert_int_equal(world_stats(party->client).losses, 0);
    for (int i = 0; i < THINGS; i++)
        hf_lock_free(party->locks[i]);
    assert_int_equal(hf_close(party->client), HF_OK);
    assert_int_equal(atomic_load(&party->memory.live), 0);
    proxy_free(party->proxy);
}

typedef void *actor_fn(void *arg);
static actor_fn *const parts[] = {call_all_the_time,  call_all_the_time, call_all_the_time,
                                  start_all_the_time, hold_for_long,     come_and_go_and_ask,
                                  inject_faults};
enum { PARTS = sizeof parts / sizeof parts[0] };

struct played {
    struct actor actor;
    actor_fn *part;
};

static void *play(void *arg) {
    struct played *played = arg;
    played->part(&played->actor);
    atomic_fetch_sub(&played->actor.party->storm->running, 1);
    return NULL;
}

/* Who has what, and who waits in the queue, as the server knows it. */
static void show_server(struct storm *storm) {
    static const char dump[] =
        "local words = {} "
        "for _, key in ipairs(redis.call('keys', '*')) do "
        "local kind, rest = redis.call('type', key).ok, {} "
        "if kind == 'hash' then rest = redis.call('hgetall', key) end "
        "if kind == 'list' then rest = redis.call('lrange', key, 0, -1) end "
        "if kind == 'zset' then rest = redis.call('zrange', key, 0, -1, 'withscores') end "
        "if kind == 'string' then rest = {redis.call('get', key)} end "
        "words[#words + 1] = key .. ' for ' .. redis.call('pttl', key) .. ' ms: ' .. "
        "table.concat(rest, ' ') end "
        "local now = redis.call('time') "
        "return table.concat(words, '\\n') .. '\\nat ' .. now[1] .. ' s'";
    own_text *words = cmd_str(storm->server, "EVAL %s 0", dump);
    fprintf(stderr, "%s\n", words); /* longer than cmocka lets it be */
}

/* Every lock goes from hand to hand until the storm is over, and all threads end then. */
struct progress {
    struct storm *storm;
    long entered[THINGS];
    int64_t since_ms[THINGS];
};

static bool has_ended_or_hangs(void *arg) {
    struct progress *progress = arg;
    struct storm *storm = progress->storm;
    bool hangs = false;
    for (int i = 0; i < THINGS; i++) {
        long entered = atomic_load(&storm->entered[i]);
        if (entered != progress->entered[i] || entered == 0)
            progress->since_ms[i] = now_ms();
        progress->entered[i] = entered;
        if (now_ms() > progress->since_ms[i] + 2 * HANG_MS) {
            print_error("nobody gets %s\n", things[i].name);
            hangs = true;
        }
    }
    return hangs || atomic_load(&storm->running) == 0;
}

static void wait_for_the_end(struct storm *storm) {
    struct progress progress = {.storm = storm};
    wait_until(has_ended_or_hangs, &progress, STORM_MS + 3 * HANG_MS);
    if (atomic_load(&storm->running) == 0)
        return;
    show_server(storm);
    support_die("%d threads hang", atomic_load(&storm->running));
}

static void play_all(struct storm *storm, struct party parties[PARTIES], unsigned seed) {
    static struct played played[PARTIES * PARTS];
    atomic_store(&storm->running, PARTIES * PARTS);
    storm->end_ms = now_ms() + STORM_MS;
    for (size_t i = 0; i < PARTIES * PARTS; i++) {
        played[i] = (struct played){{.party = &parties[i / PARTS], .random = seed + (unsigned)i},
                                    parts[i % PARTS]};
        assert_int_equal(pthread_create(&played[i].actor.thread, NULL, play, &played[i]), 0);
    }
    wait_for_the_end(storm);
    for (size_t i = 0; i < PARTIES * PARTS; i++)
        pthread_join(played[i].actor.thread, NULL);
}

CASE(no_overlap_no_hang_nothing_left) {
    struct storm storm = {.server = world_server()};
    struct party parties[PARTIES];
    for (int i = 0; i < PARTIES; i++)
        begin_party(&parties[i], &storm);
    play_all(&storm, parties, (unsigned)random_seed());
    assert_int_equal(atomic_load(&storm.failures), 0);
    assert_true(wait_until(nothing_is_left, storm.server, HANG_MS));
    for (int i = 0; i < PARTIES; i++)
        end_party(&parties[i]);
    assert_true(world_wait_no_channels(storm.server, HANG_MS));
    long entered = 0;
    for (int i = 0; i < THINGS; i++)
        entered += atomic_load(&storm.entered[i]);
    print_message("%ld times inside; %ld timed out, %ld out of reach, %ld cancelled\n", entered,
                  atomic_load(&storm.codes[-HF_ETIMEDOUT]), atomic_load(&storm.codes[-HF_EUNREACH]),
                  atomic_load(&storm.codes[-HF_ECANCELED]));
    assert_true(entered > 0);
}

RUN_CASES(world_start_server, world_stop_server)
