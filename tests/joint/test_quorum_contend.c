/* Many processes want one quorum lock: nobody is inside with another, nobody starves, and whatever they
 * divide among them is resolved. Each writes the urls in an order of its own. */
#include "joint/fleet.h"

#define MANY 20

struct arena {
    atomic_int inside, broken, ready, go, stop;
    atomic_int rounds[MANY];
    _Atomic int64_t longest_ms;
    char urls[FLEET][512];
};

struct contender {
    struct arena *arena;
    int number;
};

static void write_urls(const struct arena *arena, int first, char urls[4096]) {
    urls[0] = '\0';
    for (int i = 0; i < FLEET; i++) {
        size_t len = strlen(urls);
        snprintf(urls + len, 4096 - len, " %s", arena->urls[(first + i) % FLEET]);
    }
}

static void enter(struct arena *arena, int number, int64_t waited_ms) {
    if (atomic_fetch_add(&arena->inside, 1) != 0)
        atomic_store(&arena->broken, 1);
    (void)wait_a_moment(); /* for others to come, too */
    atomic_fetch_sub(&arena->inside, 1);
    atomic_fetch_add(&arena->rounds[number], 1);
    int64_t longest_ms = atomic_load(&arena->longest_ms);
    while (waited_ms > longest_ms &&
           !atomic_compare_exchange_weak(&arena->longest_ms, &longest_ms, waited_ms))
        continue;
}

static int contend(void *arg) {
    const struct contender *contender = arg;
    struct arena *arena = contender->arena;
    char urls[4096];
    hf_options options = fleet_options();
    hf_client *client;
    hf_lock *lock;
    write_urls(arena, contender->number, urls);
    if (hf_open(urls, &options, &client) != HF_OK ||
        hf_lock_new(client, FLEET_NAME, &lock) != HF_OK || hf_ping(client) != HF_OK)
        return 1;
    atomic_fetch_add(&arena->ready, 1);
    while (atomic_load(&arena->go) == 0)
        (void)wait_a_moment();
    while (atomic_load(&arena->stop) == 0) {
        int64_t start_ms = now_ms();
        if (hf_lock_acquire(lock) != HF_OK)
            return 2;
        enter(arena, contender->number, now_ms() - start_ms);
        if (hf_lock_release(lock) != HF_OK)
            return 3;
        linger(5); /* others come in between */
    }
    hf_lock_free(lock);
    return hf_close(client) == HF_OK ? 0 : 4;
}

static bool all_have_been_inside(void *arg) {
    const struct contender *last = arg;
    for (int i = 0; i <= last->number; i++)
        if (atomic_load(&last->arena->rounds[i]) == 0)
            return false;
    return true;
}

static void compete(int count, int64_t run_ms) {
    struct arena *arena = shared_new(sizeof *arena);
    struct contender contenders[MANY];
    struct server *servers[FLEET];
    pid_t pids[MANY];
    for (int i = 0; i < FLEET; i++) {
        servers[i] = server_start(NULL);
        snprintf(arena->urls[i], sizeof arena->urls[i], "%s", server_url(servers[i]));
    }
    for (int i = 0; i < count; i++) {
        contenders[i] = (struct contender){arena, i};
        pids[i] = run_child(contend, &contenders[i]);
    }
    assert_true(fleet_wait_atomic(&arena->ready, count, HANG_MS));
    atomic_store(&arena->go, 1);
    int64_t start_ms = now_ms();
    assert_true(wait_until(all_have_been_inside, &contenders[count - 1], HANG_MS));
    int64_t left_ms = run_ms - (now_ms() - start_ms);
    assert_true(HOLDS_FOR(atomic_load(&arena->broken) == 0, left_ms > 0 ? left_ms : 1));
    atomic_store(&arena->stop, 1);
    int rounds = 0;
    long long scripts = 0;
    for (int i = 0; i < count; i++) {
        assert_true(expect_exit(pids[i], 0, HANG_MS));
        rounds += atomic_load(&arena->rounds[i]);
    }
    for (int i = 0; i < FLEET; i++)
        scripts += server_calls(servers[i], "evalsha");
    print_message("%d processes: %d rounds in %lld ms, %lld commands each, longest wait %lld ms\n",
                  count, rounds, (long long)(now_ms() - start_ms), scripts / rounds,
                  (long long)atomic_load(&arena->longest_ms));
    assert_int_equal(atomic_load(&arena->broken), 0);
    assert_true(scripts / rounds < 150);
    for (int i = 0; i < FLEET; i++) {
        assert_false(key_exists(servers[i], FLEET_NAME));
        server_free(servers[i]);
    }
    shared_free(arena, sizeof *arena);
}

CASE(C317_C320_two_processes) {
    compete(2, 3000);
}

CASE(C317_C320_five_processes) {
    compete(5, 4000);
}

CASE(C317_C320_twenty_processes) {
    compete(MANY, 6000);
}

RUN_CASES(NULL, NULL)
