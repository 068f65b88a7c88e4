/*
 * Rows C108 to C110, and everything at once for the thread sanitizer: threads of several clients
 * that read, write, nest, downgrade, wait and give up, with numbers guarded by the lock.
 *
 * The numbers are ordinary integers: a writer beside anybody else loses an increment or shows a
 * reader two that differ, and a sanitizer sees the race. Choices come from a seed, which is
 * printed; HF_SEED repeats one. HF_SOAK makes it a minute.
 */
#include "lock/readwrite.h"
#include "support/crowd.h"
#include "support/random.h"

enum { CLIENTS = 4, THREADS = 16 };

struct arena {
    hf_client *clients[CLIENTS];
    hf_lock *reads[CLIENTS], *writes[CLIENTS];
    int64_t first, second; /* guarded: always the same */
    atomic_int torn;       /* readers that saw them differ */
    _Atomic int64_t written, read, timed_out, failed;
    int64_t end_ms;
    int rounds; /* at most; 0: until end_ms */
};

struct fighter {
    struct arena *arena;
    int client;
    unsigned seed;
};

static void look(struct arena *arena) {
    int64_t first = arena->first;
    sched_yield();
    if (first != arena->second)
        atomic_fetch_add(&arena->torn, 1);
    atomic_fetch_add(&arena->read, 1);
}

static void change(struct arena *arena) {
    int64_t seen = arena->first;
    arena->first = seen + 1;
    sched_yield();
    arena->second = seen + 1;
    atomic_fetch_add(&arena->written, 1);
}

static void expect(struct arena *arena, int err) {
    if (err != HF_OK)
        atomic_fetch_add(&arena->failed, 1);
}

/* True: it is in. */
static bool enter(struct arena *arena, hf_lock *lock, int64_t wait_ms) {
    int err = hf_lock_acquire_for(lock, wait_ms);
    if (err == HF_ETIMEDOUT || err == HF_EBUSY)
        atomic_fetch_add(&arena->timed_out, 1);
    else
        expect(arena, err);
    return err == HF_OK;
}

static void read_once(struct fighter *f, int64_t wait_ms, bool nest) {
    hf_lock *lock = f->arena->reads[f->client];
    if (!enter(f->arena, lock, wait_ms))
        return;
    look(f->arena);
    if (nest && enter(f->arena, lock, 0)) {
        look(f->arena);
        expect(f->arena, hf_lock_release(lock));
    }
    look(f->arena);
    expect(f->arena, hf_lock_release(lock));
}

static void write_once(struct fighter *f, int64_t wait_ms, bool downgrade) {
    hf_lock *read = f->arena->reads[f->client], *write = f->arena->writes[f->client];
    if (!enter(f->arena, write, wait_ms))
        return;
    change(f->arena);
    bool reads = downgrade && enter(f->arena, read, 0);
    change(f->arena);
    expect(f->arena, hf_lock_release(write));
    if (reads) {
        look(f->arena);
        expect(f->arena, hf_lock_release(read));
    }
}

static void *fight(void *arg) {
    struct fighter *f = arg;
    struct arena *arena = f->arena;
    for (int round = 0; arena->rounds > 0 ? round < arena->rounds : now_ms() < arena->end_ms;
         round++) {
        int draw = rand_r(&f->seed) % 100;
        int64_t wait_ms = arena->rounds > 0 || draw % 3 > 0 ? HF_FOREVER : rand_r(&f->seed) % 20;
        if (draw < 50)
            read_once(f, wait_ms, draw % 2);
        else
            write_once(f, wait_ms, draw % 2);
    }
    return NULL;
}

static void open_arena(struct arena *arena, int clients) {
    hf_options options = world_options();
    memset(arena, 0, sizeof *arena);
    cmd_ok(world_server(), "FLUSHALL");
    for (int i = 0; i < clients; i++) {
        assert_int_equal(hf_open(server_url(world_server()), &options, &arena->clients[i]), HF_OK);
        arena->reads[i] = rw_handle(arena->clients[i], HF_READ);
        arena->writes[i] = rw_handle(arena->clients[i], HF_WRITE);
    }
}

/* Nothing was lost, torn or left behind. */
static void close_arena(struct arena *arena, int clients) {
    assert_int_equal(atomic_load(&arena->torn), 0);
    assert_int_equal(atomic_load(&arena->failed), 0);
    assert_int_equal(arena->first, atomic_load(&arena->written));
    assert_int_equal(arena->second, arena->first);
    for (int i = 0; i < clients; i++) {
        assert_int_equal(world_stats(arena->clients[i]).holds, 0);
        assert_int_equal(world_stats(arena->clients[i]).losses, 0);
        hf_lock_free(arena->reads[i]);
        hf_lock_free(arena->writes[i]);
        assert_int_equal(hf_close(arena->clients[i]), HF_OK);
    }
    assert_int_equal(world_keys(world_server()), 0);
}

static void fight_all(struct arena *arena, int threads, int clients) {
    struct fighter fighters[THREADS];
    struct crowd crowd = {0};
    unsigned seed = (unsigned)random_seed();
    for (int i = 0; i < threads; i++) {
        fighters[i] = (struct fighter){
            .arena = arena, .client = i % clients, .seed = seed + 977u * (unsigned)i};
        crowd_add(&crowd, fight, &fighters[i]);
    }
    crowd_join(&crowd);
    print_message("%lld writes, %lld reads, %lld given up\n", (long long)arena->written,
                  (long long)arena->read, (long long)arena->timed_out);
}

CASE(C108_threads_of_one_client) {
    struct arena arena;
    open_arena(&arena, 1);
    arena.rounds = 10;
    fight_all(&arena, THREADS, 1);
    close_arena(&arena, 1);
}

CASE(C109_C110_many_clients) {
    struct arena arena;
    open_arena(&arena, CLIENTS);
    arena.rounds = 25;
    fight_all(&arena, THREADS, CLIENTS);
    close_arena(&arena, CLIENTS);
}

CASE(everything_at_once) {
    struct arena arena;
    open_arena(&arena, CLIENTS);
    arena.end_ms = now_ms() + (getenv("HF_SOAK") != NULL ? 60000 : 4000);
    fight_all(&arena, THREADS, CLIENTS);
    assert_true(arena.written > 0 && arena.read > 0 && arena.timed_out > 0);
    close_arena(&arena, CLIENTS);
}

RUN_CASES(world_start_server, world_stop_server)
