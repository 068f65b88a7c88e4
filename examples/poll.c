/*
 * Locks in a program with a poll() loop of its own, without a second thread that runs its
 * callbacks.
 *
 *     cc poll.c $(pkg-config --cflags --libs holdfast)
 *     ./poll redis://localhost               (without a url: HOLDFAST_URL)
 *
 * With HF_MANUAL_DISPATCH callbacks run where the program calls hf_dispatch(). hf_dispatch_fd()
 * polls readable when there is a reason to. While the lock is waited for, the loop goes on with its
 * other work: here, ticking.
 */
#include <holdfast/holdfast.h>

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>

enum { TICK_MS = 100 };

struct program {
    hf_client *client;
    hf_lock *lock;
    long ticks;
    bool done;
    int err;
};

static void finish(struct program *p, int err) {
    p->err = err;
    p->done = true;
}

static void on_released(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    printf("released: %s\n", result->code == HF_OK ? "ok" : hf_strerror(result->code));
    finish(user, result->code);
}

static void on_acquired(hf_op *op, const hf_result *result, void *user) {
    struct program *p = user;
    (void)op;
    if (result->code != HF_OK) {
        fprintf(stderr, "%s: %s\n", hf_strerror(result->code), result->error.text);
        finish(p, result->code);
        return;
    }
    printf("acquired after %ld ticks\n", p->ticks);
    /* The hold belongs to the owner in the result, not to a thread. */
    int err = hf_lock_release_start(p->lock, result->owner, on_released, p, NULL);
    if (err != HF_OK)
        finish(p, err);
}

static void run(struct program *p) {
    struct pollfd dispatch = {.fd = hf_dispatch_fd(p->client), .events = POLLIN};
    while (!p->done) {
        int ready = poll(&dispatch, 1, TICK_MS);
        if (ready > 0) {
            int ran = hf_dispatch(p->client, 0);
            if (ran < 0)
                finish(p, ran);
        } else if (ready == 0) {
            printf("tick %ld\n", ++p->ticks);
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv) {
    char text[HF_ERROR_FORMAT_MAX];
    struct program p = {.client = NULL};
    hf_options options = HF_OPTIONS_INIT;
    options.flags = HF_MANUAL_DISPATCH;
    hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    acquire.wait_ms = 60000;

    int err = hf_open(argc > 1 ? argv[1] : NULL, &options, &p.client);
    if (err == HF_OK)
        err = hf_lock_new(p.client, "example", &p.lock);
    if (err == HF_OK)
        err = hf_lock_acquire_start(p.lock, &acquire, on_acquired, &p, NULL);
    if (err == HF_OK) {
        run(&p);
        err = p.err;
    } else {
        fprintf(stderr, "%s\n", hf_error_format(NULL, text, sizeof text));
    }
    hf_lock_free(p.lock);
    hf_close(p.client);
    return err == HF_OK ? 0 : 1;
}
