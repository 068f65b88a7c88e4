/*
 * Locks in a libevent program: one persistent event on hf_dispatch_fd(), and callbacks run on the
 * base's thread.
 *
 *     cc libevent.c $(pkg-config --cflags --libs holdfast libevent)
 *     ./libevent redis://localhost           (without a url: HOLDFAST_URL)
 *
 * While the lock is waited for, the loop goes on with its other work: here, a timer that ticks.
 */
#include <holdfast/holdfast.h>

#include <event2/event.h>
#include <stdio.h>

enum { TICK_US = 100000 };

struct program {
    struct event_base *base;
    hf_client *client;
    hf_lock *lock;
    long ticks;
    int err;
};

static void finish(struct program *p, int err) {
    p->err = err;
    event_base_loopbreak(p->base);
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

static void on_dispatch(evutil_socket_t fd, short events, void *user) {
    struct program *p = user;
    (void)fd;
    (void)events;
    int ran = hf_dispatch(p->client, 0);
    if (ran < 0)
        finish(p, ran);
}

static void on_tick(evutil_socket_t fd, short events, void *user) {
    struct program *p = user;
    (void)fd;
    (void)events;
    printf("tick %ld\n", ++p->ticks);
    fflush(stdout);
}

static int run(struct program *p) {
    const struct timeval interval = {.tv_usec = TICK_US};
    struct event *dispatch =
        event_new(p->base, hf_dispatch_fd(p->client), EV_READ | EV_PERSIST, on_dispatch, p);
    struct event *timer = event_new(p->base, -1, EV_PERSIST, on_tick, p);
    event_add(dispatch, NULL);
    event_add(timer, &interval);
    event_base_dispatch(p->base);
    event_free(timer);
    event_free(dispatch);
    return p->err;
}

int main(int argc, char **argv) {
    char text[HF_ERROR_FORMAT_MAX];
    struct program p = {.base = event_base_new()};
    hf_options options = HF_OPTIONS_INIT;
    options.flags = HF_MANUAL_DISPATCH;
    hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    acquire.wait_ms = 60000;

    int err = hf_open(argc > 1 ? argv[1] : NULL, &options, &p.client);
    if (err == HF_OK)
        err = hf_lock_new(p.client, "example", &p.lock);
    if (err == HF_OK)
        err = hf_lock_acquire_start(p.lock, &acquire, on_acquired, &p, NULL);
    if (err == HF_OK)
        err = run(&p);
    else
        fprintf(stderr, "%s\n", hf_error_format(NULL, text, sizeof text));
    hf_lock_free(p.lock);
    hf_close(p.client); /* after the loop, which polls its descriptor */
    event_base_free(p.base);
    return err == HF_OK ? 0 : 1;
}
