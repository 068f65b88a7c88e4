/* One process of the failover's benchmark, started by bench/failover/run: it holds a lock for the
 * whole time, and another that the run takes away from it, and acquires and releases a third every
 * 10 ms.
 *
 *     hf_bench_failover URL SECONDS
 *
 * Prints "ready" when both are held, then with times in microseconds of the epoch "call BEGAN ENDED
 * RESULT" for each pair and "lost TIME" when the loss of the second is reported. */
#include <holdfast/holdfast.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PAUSE_NS 10000000

static long long now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (long long)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void on_lost(hf_lock *lock, const hf_event *event, void *user) {
    (void)lock;
    (void)user;
    if (event->kind == HF_EVENT_LOST)
        printf("lost %lld\n", now_us());
}

static hf_lock *must_hold(hf_client *client, const char *name) {
    hf_lock *lock = NULL;
    int err = hf_lock_new(client, name, &lock);
    if (err == HF_OK)
        err = hf_lock_on_lost(lock, on_lost, NULL);
    if (err == HF_OK)
        err = hf_lock_acquire(lock);
    if (err != HF_OK) {
        fprintf(stderr, "%s: %s\n", name, hf_last_error()->text);
        exit(1);
    }
    return lock;
}

static void call_until(hf_lock *lock, long long end_us) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    while (now_us() < end_us) {
        long long began_us = now_us();
        int err = hf_lock_acquire(lock);
        if (err == HF_OK)
            err = hf_lock_release(lock);
        printf("call %lld %lld %s\n", began_us, now_us(), err == HF_OK ? "ok" : hf_error_name(err));
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv) {
    hf_client *client;
    hf_lock *calls;
    if (argc != 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (hf_open(argv[1], NULL, &client) != HF_OK ||
        hf_lock_new(client, "calls-holdfast", &calls) != HF_OK) {
        fprintf(stderr, "%s\n", hf_last_error()->text);
        return 1;
    }
    hf_lock *held = must_hold(client, "held-holdfast"), *lost = must_hold(client, "lost-holdfast");
    puts("ready");
    call_until(calls, now_us() + strtoll(argv[2], NULL, 10) * 1000000);
    hf_lock_free(held);
    hf_lock_free(lost);
    hf_lock_free(calls);
    hf_close(client);
    return 0;
}
