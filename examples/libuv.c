/*
 * Locks in a libuv program: one uv_poll_t on hf_dispatch_fd(), and callbacks run on the loop's
 * thread.
 *
 *     cc libuv.c $(pkg-config --cflags --libs holdfast libuv)
 *     ./libuv redis://localhost              (without a url: HOLDFAST_URL)
 *
 * While the lock is waited for, the loop goes on with its other work: here, a timer that ticks.
 */
#include <holdfast/holdfast.h>

#include <stdio.h>
#include <uv.h>

enum { TICK_MS = 100 };

struct program {
    uv_loop_t loop;
    uv_poll_t dispatch;
    uv_timer_t timer;
    hf_client *client;
    hf_lock *lock;
    long ticks;
    int err;
};

/* Without handles the loop ends. */
static void finish(struct program *p, int err) {
    p->err = err;
    uv_close((uv_handle_t *)&p->dispatch, NULL);
    uv_close((uv_handle_t *)&p->timer, NULL);
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

static void on_dispatch(uv_poll_t *handle, int status, int events) {
    struct program *p = handle->data;
    (void)events;
    int ran = status == 0 ? hf_dispatch(p->client, 0) : HF_ESYS;
    if (ran < 0)
        finish(p, ran);
}

static void on_tick(uv_timer_t *handle) {
    struct program *p = handle->data;
    printf("tick %ld\n", ++p->ticks);
    fflush(stdout);
}

static int run(struct program *p) {
    uv_loop_init(&p->loop);
    uv_poll_init(&p->loop, &p->dispatch, hf_dispatch_fd(p->client));
    uv_timer_init(&p->loop, &p->timer);
    p->dispatch.data = p->timer.data = p;
    uv_poll_start(&p->dispatch, UV_READABLE, on_dispatch);
    uv_timer_start(&p->timer, on_tick, TICK_MS, TICK_MS);
    uv_run(&p->loop, UV_RUN_DEFAULT);
    uv_loop_close(&p->loop);
    return p->err;
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
    if (err == HF_OK)
        err = run(&p);
    else
        fprintf(stderr, "%s\n", hf_error_format(NULL, text, sizeof text));
    hf_lock_free(p.lock);
    hf_close(p.client); /* after the loop, which polls its descriptor */
    return err == HF_OK ? 0 : 1;
}
