/*
 * Where callbacks run: on a thread of ours, started when first needed, or inside hf_dispatch().
 *
 * With manual dispatch, asynchronous operations have their own executor and connections, which
 * hf_dispatch() drives through the engine. So no other thread is involved between a callback and
 * the next command. Between two calls wake-ups of the executor go to an eventfd. That, a timer and
 * the engine's sockets are in one epoll set, which is the descriptor the application may poll.
 */
#include "api/client.h"
#include "base/poll.h"
#include "task/thread.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define ROUND_MOST 1024 /* most callbacks per hf_dispatch() */

int hfi_dispatcher_init(hf_client *client, bool manual, hf_error *error) {
    struct hfi_dispatcher *d = &client->dispatcher;
    d->manual = manual;
    d->epoll_fd = d->wake_fd = d->timer_fd = -1;
    d->timer_ms = HFI_NEVER;
    d->fds = d->few_fds;
    d->fds_cap = sizeof d->few_fds / sizeof d->few_fds[0];
    hfi_list_init(&d->notices);
    pthread_mutex_init(&d->mtx, NULL);
    pthread_cond_init(&d->cond, NULL);
    hfi_exec_init(&d->exec);
    if (!manual)
        return HF_OK;
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    d->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    d->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event readable = {.events = EPOLLIN};
    if (d->epoll_fd < 0 || d->wake_fd < 0 || d->timer_fd < 0 ||
        epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->wake_fd, &readable) != 0 ||
        epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->timer_fd, &readable) != 0)
        return hfi_fail_errno(error, HF_ESYS, errno,
                              "cannot open a file descriptor for hf_dispatch()");
    int64_t at_ms;
    d->polling = hfi_exec_poll_begin(&d->exec, d->wake_fd, &at_ms);
    return HF_OK;
}

void hfi_dispatcher_close_fds(hf_client *client) {
    struct hfi_dispatcher *d = &client->dispatcher;
    int fds[] = {d->epoll_fd, d->wake_fd, d->timer_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void free_fds(hf_client *client) {
    struct hfi_dispatcher *d = &client->dispatcher;
    if (d->fds != d->few_fds)
        hfi_free(&client->mem, d->fds);
}

void hfi_dispatcher_clear(hf_client *client) {
    struct hfi_dispatcher *d = &client->dispatcher;
    free_fds(client);
    if (d->polling)
        hfi_exec_poll_end(&d->exec);
    hfi_dispatcher_close_fds(client);
    hfi_exec_destroy(&d->exec);
    pthread_cond_destroy(&d->cond);
    pthread_mutex_destroy(&d->mtx);
}

/* ---- Running callbacks ---- */

void hfi_dispatch_notice(void *arg, struct hfi_notice *notice) {
    struct hfi_dispatcher *d = &((hf_client *)arg)->dispatcher;
    pthread_mutex_lock(&d->mtx);
    hfi_list_push_back(&d->notices, &notice->link);
    pthread_cond_signal(&d->cond);
    pthread_mutex_unlock(&d->mtx);
    if (d->manual)
        hfi_exec_wake(&d->exec);
}

static struct hfi_notice *take_notice(struct hfi_dispatcher *d) {
    pthread_mutex_lock(&d->mtx);
    struct hfi_link *link = hfi_list_pop_front(&d->notices);
    pthread_mutex_unlock(&d->mtx);
    return link != NULL ? HFI_CONTAINER(link, struct hfi_notice, link) : NULL;
}

/* Limited, since name listeners may have events without end. */
static int run_notices(hf_client *client, int most) {
    struct hfi_thread_record *self = hfi_thread_record();
    struct hfi_notice *notice;
    int ran = 0;
    while (ran < most && (notice = take_notice(&client->dispatcher)) != NULL) {
        if (self != NULL)
            self->in_callback = client;
        notice->run(notice);
        if (self != NULL)
            self->in_callback = NULL;
        ran++;
    }
    return ran;
}

static void *dispatcher_main(void *arg) {
    hf_client *client = arg;
    struct hfi_dispatcher *d = &client->dispatcher;
    pthread_setname_np(pthread_self(), "holdfast-calls");
    pthread_mutex_lock(&d->mtx);
    while (!d->stopping || !hfi_list_empty(&d->notices)) {
        if (hfi_list_empty(&d->notices)) {
            pthread_cond_wait(&d->cond, &d->mtx);
            continue;
        }
        pthread_mutex_unlock(&d->mtx);
        run_notices(client, INT_MAX);
        pthread_mutex_lock(&d->mtx);
    }
    pthread_mutex_unlock(&d->mtx);
    return NULL;
}

int hfi_dispatcher_ensure(hf_client *client) {
    struct hfi_dispatcher *d = &client->dispatcher;
    int failure = 0;
    if (d->manual)
        return HF_OK;
    pthread_mutex_lock(&d->mtx);
    if (!d->started) {
        failure = hfi_thread_start(&d->thread, dispatcher_main, client);
        d->started = failure == 0;
    }
    pthread_mutex_unlock(&d->mtx);
    return failure == 0 ? HF_OK : HF_ESYS;
}

void hfi_dispatcher_stop(hf_client *client) {
    struct hfi_dispatcher *d = &client->dispatcher;
    pthread_mutex_lock(&d->mtx);
    d->stopping = true;
    pthread_cond_signal(&d->cond);
    pthread_mutex_unlock(&d->mtx);
    if (d->started)
        pthread_join(d->thread, NULL);
    else
        run_notices(client, INT_MAX); /* manual */
}

/* ---- Manual dispatch ---- */

static void flush(hf_client *client) {
    struct hfi_engine *engine = client->core.engine;
    if (!client->dispatcher.detached)
        engine->ops->flush(engine);
}

static int phase_of(hf_client *client) {
    return atomic_load(&client->closing.phase);
}

static void notify_close(hf_client *client) {
    pthread_mutex_lock(&client->close_mtx);
    pthread_cond_broadcast(&client->close_cond);
    pthread_mutex_unlock(&client->close_mtx);
}

/* Runs what is due and sends the resulting commands, again while callbacks make more, up to a
 * limit. */
static int work(hf_client *client) {
    int ran = 0, more;
    atomic_store(&client->dispatcher.running, true);
    do {
        hfi_exec_run(&client->dispatcher.exec);
        more = run_notices(client, ROUND_MOST - ran);
        ran += more;
    } while (more > 0 && ran < ROUND_MOST && hfi_exec_has_work(&client->dispatcher.exec));
    flush(client);
    atomic_store(&client->dispatcher.running, false);
    if (phase_of(client) != HFI_CLOSE_OPEN)
        notify_close(client);
    return ran;
}

static int timeout_until(int64_t a_ms, int64_t b_ms) {
    int64_t at_ms = a_ms < b_ms ? a_ms : b_ms;
    if (at_ms == HFI_NEVER)
        return -1;
    int64_t left_ms = at_ms - hfi_now_ms();
    return left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

/* What to poll: wake-ups, and the engine's descriptors. There is room for `fds_cap`. What does not
 * fit for lack of memory is read a moment later, since the application's epoll set has it as
 * well. */
static size_t list_fds(hf_client *client) {
    struct hfi_dispatcher *d = &client->dispatcher;
    struct hfi_engine *engine = client->core.engine;
    d->fds[0] = (struct pollfd){.fd = d->wake_fd, .events = POLLIN};
    if (d->detached)
        return 0;
    size_t len = engine->ops->poll(engine, d->fds + 1, d->fds_cap - 1);
    if (len <= d->fds_cap - 1)
        return len;
    struct pollfd *more = hfi_alloc(&client->mem, (len + 1) * sizeof *more);
    if (more == NULL)
        return d->fds_cap - 1;
    more[0] = d->fds[0];
    free_fds(client);
    d->fds = more;
    d->fds_cap = len + 1;
    size_t now = engine->ops->poll(engine, d->fds + 1, len);
    return now < len ? now : len;
}

/* Waits for something to do, and reads what has arrived. */
static void wait_and_read(hf_client *client, int64_t until_ms) {
    struct hfi_dispatcher *d = &client->dispatcher;
    struct hfi_engine *engine = client->core.engine;
    size_t len = list_fds(client);
    int64_t at_ms;
    if (!hfi_exec_poll_begin(&d->exec, d->wake_fd, &at_ms))
        return;
    int ready = hfi_poll(d->fds, len + 1, timeout_until(at_ms, until_ms), NULL);
    hfi_exec_poll_end(&d->exec);
    if (ready > 0 && !d->detached)
        engine->ops->service(engine, d->fds + 1, len);
}

static bool has_notices(struct hfi_dispatcher *d) {
    pthread_mutex_lock(&d->mtx);
    bool any = !hfi_list_empty(&d->notices);
    pthread_mutex_unlock(&d->mtx);
    return any;
}

/* It is the same in most calls: a timer that has expired is never set again to the same time. */
static void set_timer(struct hfi_dispatcher *d, int64_t at_ms) {
    struct itimerspec spec = {{0, 0}, {0, 0}};
    if (at_ms == d->timer_ms)
        return;
    if (at_ms != HFI_NEVER) {
        int64_t when_ms = at_ms > 0 ? at_ms : 1;
        spec.it_value.tv_sec = when_ms / 1000;
        spec.it_value.tv_nsec = (when_ms % 1000) * 1000000;
    }
    if (timerfd_settime(d->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0)
        d->timer_ms = at_ms;
}

/* From here on the application polls for us. */
static void hand_over(hf_client *client) {
    struct hfi_dispatcher *d = &client->dispatcher;
    struct hfi_engine *engine = client->core.engine;
    /* notices beyond the limit; an end whose wake-up was taken by what has just run */
    if (has_notices(d) || phase_of(client) == HFI_CLOSE_ENDED)
        hfi_exec_wake(&d->exec);
    if (!d->detached)
        engine->ops->enlist(engine, d->epoll_fd);
    int64_t at_ms = HFI_NEVER;
    d->polling = hfi_exec_poll_begin(&d->exec, d->wake_fd, &at_ms);
    uint64_t one = 1;
    d->woken = !d->polling;
    if (d->woken && write(d->wake_fd, &one, sizeof one) < 0)
        return; /* readable already */
    set_timer(d, at_ms);
}

static void take_over(struct hfi_dispatcher *d) {
    uint64_t count;
    if (d->polling)
        hfi_exec_poll_end(&d->exec);
    d->polling = false;
    while (d->woken && read(d->wake_fd, &count, sizeof count) > 0)
        continue;
    d->woken = false;
}

/* `phase` as it was when it began: it ends when that changes, and when hf_close() wants it to. */
static int dispatch(hf_client *client, int64_t until_ms, int phase) {
    bool polled = false;
    int ran = work(client);
    while (ran == 0 && phase_of(client) == phase &&
           (phase != HFI_CLOSE_OPEN || !atomic_load(&client->core.closing)) &&
           (!polled || hfi_now_ms() < until_ms)) {
        wait_and_read(client, until_ms);
        polled = true;
        ran = work(client);
    }
    return ran;
}

/* With `busy` set by this thread. */
static int dispatch_alone(hf_client *client, int64_t until_ms, int phase) {
    take_over(&client->dispatcher);
    int ran = dispatch(client, until_ms, phase);
    hand_over(client);
    return ran;
}

/* True: this thread is the only one in hf_dispatch(). In one step with reading the phase, so that
 * the closing thread knows who may still use the engine. */
static bool come_in(hf_client *client, int *ret_phase) {
    struct hfi_dispatcher *d = &client->dispatcher;
    pthread_mutex_lock(&client->close_mtx);
    *ret_phase = phase_of(client);
    bool alone = !atomic_exchange(&d->busy, true);
    if (alone)
        d->detached = *ret_phase > HFI_CLOSE_SETTLING;
    pthread_mutex_unlock(&client->close_mtx);
    return alone;
}

static void go_out(hf_client *client) {
    pthread_mutex_lock(&client->close_mtx);
    atomic_store(&client->dispatcher.busy, false);
    pthread_cond_broadcast(&client->close_cond);
    pthread_mutex_unlock(&client->close_mtx);
}

/* After hf_close_start(): not a call that the closing thread would wait for. */
static int dispatch_closing(hf_client *client, int64_t until_ms) {
    int ran, phase;
    do {
        if (!come_in(client, &phase))
            return HF_EBUSY;
        if (phase == HFI_CLOSE_ENDED) {
            hfi_close_finish(client);
            return 1;
        }
        ran = dispatch_alone(client, until_ms, phase);
        go_out(client);
    } while (ran == 0 && hfi_now_ms() < until_ms);
    return ran;
}

static int dispatch_open(hf_client *client, int64_t until_ms) {
    struct hfi_entry entry;
    int err = hfi_enter(client, &entry);
    if (err != HF_OK)
        return err;
    int ran = HF_EBUSY;
    if (!atomic_exchange(&client->dispatcher.busy, true)) {
        ran = dispatch_alone(client, until_ms, HFI_CLOSE_OPEN);
        atomic_store(&client->dispatcher.busy, false);
    }
    hfi_leave(client, &entry);
    return ran;
}

int hf_dispatch(hf_client *client, int64_t wait_ms) {
    const struct hfi_thread_record *self = hfi_thread_record();
    if (client == NULL || wait_ms < HF_FOREVER || !client->dispatcher.manual)
        return hfi_remember(HF_EINVAL, NULL);
    if (self != NULL && self->in_callback != NULL)
        return hfi_remember(HF_EDEADLK, NULL);
    if (hfi_is_forked(client))
        return hfi_remember(HF_EFORKED, NULL);
    /* as for every wait: not too short by a fraction of a millisecond */
    int64_t until_ms = hfi_after_ms(hfi_now_ms() + (wait_ms > 0 ? 1 : 0), wait_ms);
    int state = hfi_thread_cancel_disable();
    bool open = phase_of(client) == HFI_CLOSE_OPEN;
    int ran = open ? dispatch_open(client, until_ms) : dispatch_closing(client, until_ms);
    if (open && (ran == HF_ECLOSED || (ran == 0 && hfi_now_ms() < until_ms)) &&
        phase_of(client) != HFI_CLOSE_OPEN)
        ran = dispatch_closing(client, until_ms);
    hfi_thread_cancel_restore(state);
    return ran >= 0 ? ran : hfi_remember(ran, NULL);
}

int hf_dispatch_fd(hf_client *client) {
    if (client != NULL && client->core.pid != getpid())
        return hfi_remember(HF_EFORKED, NULL);
    if (client == NULL || !client->dispatcher.manual)
        return hfi_remember(HF_EINVAL, NULL);
    return client->dispatcher.epoll_fd;
}

bool hfi_dispatcher_is_drained(hf_client *client) {
    struct hfi_dispatcher *d = &client->dispatcher;
    bool due = has_notices(d) || hfi_exec_has_work(&d->exec);
    return !due && !atomic_load(&d->running); /* in this order: it runs before it takes */
}

void hfi_dispatcher_drain(hf_client *client) {
    struct hfi_dispatcher *d = &client->dispatcher;
    if (!d->manual)
        return;
    take_over(d);
    while (hfi_exec_run(&d->exec) || run_notices(client, INT_MAX) > 0)
        continue;
}

void hfi_dispatcher_serve(hf_client *client, int64_t until_ms) {
    hfi_dispatcher_drain(client);
    flush(client);
    if (hfi_core_is_idle(&client->core))
        return; /* checked after draining, which consumes the wake-up that announces it */
    wait_and_read(client, until_ms);
    hfi_dispatcher_drain(client);
}
