/*
 * Bytes on the heap for each handle, hold and waiter: what malloc has handed out (its own headers
 * included) before and after making many of them, divided by how many.
 *
 * Two clients: the first holds the locks the second waits for. Everything runs while nothing else
 * of this process does, so the difference is theirs.
 */
#include "bench.h"

#include <malloc.h>
#include <stdlib.h>

#define MANY 5000

static size_t heap_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void print(const struct bench *bench, const char *what, size_t before, int wanted) {
    size_t bytes = (heap_bytes() - before) / MANY;
    char target[32] = "";
    if (wanted > 0)
        snprintf(target, sizeof target, "%d%s", wanted,
                 bytes <= (size_t)wanted ? "" : " (NOT REACHED)");
    printf("| %-42s | %5zu | %-17s |\n", what, bytes, target);
    if (bench->json != NULL)
        fprintf(bench->json, "{\"group\":\"memory\",\"row\":\"%s\",\"bytes\":%zu}\n", what, bytes);
}

static void make_handles(hf_client *client, hf_lock **locks) {
    for (int i = 0; i < MANY; i++) {
        char name[64];
        snprintf(name, sizeof name, "bench-memory-%05d", i);
        check(hf_lock_new(client, name, &locks[i]), "hf_lock_new");
    }
}

static void on_end(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    (void)result;
    (void)user;
}

/* Starts acquires that have to wait, and lets them all get as far as they can: until the heap has
 * been the same for a while. */
static void start_waiters(hf_client *client, hf_lock **locks, int stride) {
    for (int i = 0; i < MANY; i++)
        check(hf_lock_acquire_start(locks[i * stride], NULL, on_end, NULL, NULL), "acquire_start");
    size_t bytes = 0;
    int64_t quiet_ns = now_ns() + 500000000;
    while (now_ns() < quiet_ns) {
        if (hf_dispatch(client, 50) < 0)
            die("hf_dispatch: %s", hf_last_error()->text);
        size_t now = heap_bytes();
        if (now > bytes + MANY || now + MANY < bytes)
            quiet_ns = now_ns() + 500000000;
        bytes = now;
    }
}

/* A client that waits for what `holder` has: for many locks (stride 1) or for one. */
static void measure_waiters(const struct bench *bench, const char *what, int stride) {
    hf_options options = HF_OPTIONS_INIT;
    options.flags = HF_MANUAL_DISPATCH;
    hf_client *client;
    static hf_lock *locks[MANY];
    check(hf_open(bench->url, &options, &client), "hf_open");
    make_handles(client, locks);
    hf_op *ping; /* opens the connection, so that it does not count */
    check(hf_ping_start(client, NULL, NULL, &ping), "ping");
    while (hf_op_wait(ping, 0, NULL) == HF_EPENDING)
        hf_dispatch(client, 10);
    hf_op_free(ping);
    size_t before = heap_bytes();
    start_waiters(client, locks, stride);
    print(bench, what, before, stride == 0 ? 512 : 1024);
    hf_close(client);
    for (int i = 0; i < MANY; i++)
        hf_lock_free(locks[i]);
}

void report_memory(const struct bench *bench) {
    static hf_lock *locks[MANY];
    hf_client *holder;
    printf("\nBytes on the heap for each of %d (names of 18 bytes)\n\n", MANY);
    printf("| what                                       | bytes | at most           |\n");
    printf("|--------------------------------------------|------:|-------------------|\n");
    check(hf_open(bench->url, NULL, &holder), "hf_open");
    check(hf_ping(holder), "ping");
    size_t before = heap_bytes();
    make_handles(holder, locks);
    print(bench, "idle handle", before, 256);
    before = heap_bytes();
    for (int i = 0; i < MANY; i++)
        check(hf_lock_acquire(locks[i]), "acquire");
    print(bench, "hold", before, 0);
    measure_waiters(bench, "async waiter, all on one name", 0);
    measure_waiters(bench, "async waiter, each on a name of its own", 1);
    for (int i = 0; i < MANY; i++) {
        check(hf_lock_release(locks[i]), "release");
        hf_lock_free(locks[i]);
    }
    hf_close(holder);
    fflush(stdout);
}
