/*
 * The end of a client: hf_close() on the calling thread, hf_close_start() on one of its own.
 *
 * Both do the same steps. With manual dispatch they differ: callbacks run in hf_dispatch(), on the
 * application's thread, and so does everything that touches its executor and, until the engine
 * stops, the connections. So the closing thread only waits for hf_dispatch() to have done it
 * (`closing.phase`):
 *   OPEN      the client is open, or hf_close() closes it
 *   SETTLING  hf_dispatch() works as before, while operations end and settle
 *   DETACHED  no call of hf_dispatch() touches the engine any more: it can stop
 *   ENDED     all is done; the next hf_dispatch() frees the client, and calls back
 */
#include "api/client.h"
#include "api/listen.h"
#include "base/clock.h"
#include "joint/quorum/quorum.h"
#include "net/driver/keeper.h"
#include "task/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- Waiting ---- */

static void stop_engine(void *arg) {
    struct hfi_engine *engine = ((hf_client *)arg)->core.engine;
    engine->ops->stop(engine);
}

/* Everything that was unfinished when the client began to close has ended. */
static bool is_settled(hf_client *client) {
    return hfi_core_is_idle(&client->core) &&
           (client->quorum == NULL || hfi_quorum_is_settled(client->quorum));
}

static bool is_idle(hf_client *client) {
    return hfi_core_is_idle(&client->core) && !hfi_is_announcing_loss(&client->core) &&
           (client->quorum == NULL || hfi_quorum_is_idle(client->quorum));
}

/* HFI_NEVER: without a limit. */
static void sleep_until(hf_client *client, bool (*what)(hf_client *client), int64_t until_ms) {
    struct timespec until; /* on the condition's clock */
    int failure = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t wait_ms = until_ms == HFI_NEVER ? INT32_MAX : hfi_left_ms(until_ms);
    int64_t end_ns = until.tv_nsec + wait_ms % 1000 * 1000000;
    until.tv_sec += wait_ms / 1000 + end_ns / 1000000000;
    until.tv_nsec = end_ns % 1000000000;
    pthread_mutex_lock(&client->close_mtx);
    while (!what(client) && (failure == 0 || until_ms == HFI_NEVER))
        failure = pthread_cond_timedwait(&client->close_cond, &client->close_mtx, &until);
    pthread_mutex_unlock(&client->close_mtx);
}

static bool is_started(const hf_client *client) {
    return atomic_load(&client->closing.phase) != HFI_CLOSE_OPEN;
}

static bool leaves_to_dispatch(const hf_client *client) {
    return client->dispatcher.manual && is_started(client);
}

/* With manual dispatch a reply may come on a connection that no other thread reads any more. */
static void wait_until(hf_client *client, bool (*what)(hf_client *client), int64_t until_ms) {
    if (client->dispatcher.manual && !leaves_to_dispatch(client))
        while (!hfi_core_is_idle(&client->core) && hfi_now_ms() < until_ms)
            hfi_dispatcher_serve(client, until_ms);
    sleep_until(client, what, until_ms);
}

static bool has_no_callers(hf_client *client) {
    return atomic_load(&client->callers) == 0;
}

static bool is_drained(hf_client *client) {
    return hfi_dispatcher_is_drained(client);
}

/* Runs what is due with manual dispatch, or lets hf_dispatch() do it. */
static void drain(hf_client *client) {
    if (!leaves_to_dispatch(client)) {
        hfi_dispatcher_drain(client);
        return;
    }
    hfi_exec_wake(&client->dispatcher.exec);
    sleep_until(client, is_drained, HFI_NEVER);
}

/* A cancelled acquire that may have got the lock is worth waiting one exchange for. Otherwise the
 * lock would be blocked, without a holder, until its lease ends. */
static void wait_until_settled(hf_client *client) {
    if (client->core.watchdog == NULL)
        return;
    int64_t until_ms = hfi_now_ms() + client->core.cmd_timeout_ms;
    wait_until(client, is_idle, until_ms);
    if (client->quorum != NULL) {
        hfi_quorum_close_ops(client->quorum);
        wait_until(client, is_settled, until_ms);
        hfi_quorum_abandon(client->quorum);
    }
    atomic_store(&client->core.abandoning, true);
    hfi_core_close_ops(&client->core);
}

/* ---- The steps ---- */

static void enter_phase(hf_client *client, enum hfi_close_phase phase) {
    if (!leaves_to_dispatch(client))
        return;
    pthread_mutex_lock(&client->close_mtx);
    atomic_store(&client->closing.phase, phase);
    pthread_mutex_unlock(&client->close_mtx);
    hfi_exec_wake(&client->dispatcher.exec);
}

static bool is_out_of_engine(hf_client *client) {
    return !atomic_load(&client->dispatcher.busy) || client->dispatcher.detached;
}

/* From then on no hf_dispatch() uses the engine. */
static void detach(hf_client *client) {
    enter_phase(client, HFI_CLOSE_DETACHED);
    if (leaves_to_dispatch(client))
        sleep_until(client, is_out_of_engine, HFI_NEVER);
}

/* Ends what the executors and threads of the client still use. */
static void stop(hf_client *client) {
    atomic_store(&client->core.closing, true);
    if (client->core.watchdog != NULL)
        hfi_core_close_ops(&client->core);
    if (client->dispatcher.manual)
        hfi_exec_wake(&client->dispatcher.exec);
    sleep_until(client, has_no_callers, HFI_NEVER);
    hfi_listeners_end(client);
    drain(client);
    wait_until_settled(client);
    detach(client);
    if (client->core.engine != NULL)
        hfi_keeper_stop(client->keeper, stop_engine, client);
    drain(client);
    if (!leaves_to_dispatch(client))
        hfi_dispatcher_stop(client);
}

static void clear(hf_client *client) {
    if (client->core.watchdog != NULL)
        hfi_core_clear(&client->core);
    if (client->core.engine != NULL)
        client->core.engine->ops->free(client->core.engine);
    hfi_keeper_free(client->keeper);
}

void hfi_client_end(hf_client *client) {
    stop(client);
    clear(client);
    hfi_dispatcher_clear(client);
}

/* ---- hf_close() ---- */

static void close_descriptors(hf_client *client) {
    client->core.engine->ops->close_fds(client->core.engine);
    hfi_keeper_close_fds(client->keeper);
    hfi_dispatcher_close_fds(client);
}

int hf_close(hf_client *client) {
    if (client == NULL)
        return HF_OK;
    bool forked = getpid() != client->core.pid;
    const struct hfi_thread_record *self = hfi_thread_record();
    if (!forked && self != NULL && self->in_callback != NULL)
        return hfi_remember(HF_EDEADLK, NULL);
    int state = hfi_thread_cancel_disable();
    if (forked) {
        close_descriptors(client); /* the memory stays: its mutexes are in an unknown state */
    } else {
        hfi_client_end(client);
        hfi_client_unref(client);
    }
    hfi_thread_cancel_restore(state);
    return HF_OK;
}

/* ---- hf_close_start() ---- */

static void *close_main(void *arg) {
    hf_client *client = arg;
    const struct hfi_closing closing = {.callback = client->closing.callback,
                                        .user = client->closing.user};
    client->closing.thread = pthread_self(); /* pthread_create() may write it later */
    pthread_setname_np(pthread_self(), "holdfast-close");
    stop(client);
    clear(client);
    if (client->dispatcher.manual) {
        enter_phase(client, HFI_CLOSE_ENDED);
        return NULL;
    }
    hfi_dispatcher_clear(client);
    pthread_detach(pthread_self());
    hfi_client_unref(client);
    if (closing.callback != NULL)
        closing.callback(closing.user);
    return NULL;
}

void hfi_close_finish(hf_client *client) {
    const struct hfi_closing closing = {.callback = client->closing.callback,
                                        .user = client->closing.user};
    pthread_join(client->closing.thread, NULL);
    hfi_dispatcher_clear(client);
    hfi_client_unref(client);
    closing.callback(closing.user);
}

int hf_close_start(hf_client *client, hf_close_fn callback, void *user) {
    hf_error error;
    hfi_error_clear(&error);
    if (client == NULL || (callback == NULL && client->dispatcher.manual))
        return hfi_remember(HF_EINVAL, NULL);
    if (getpid() != client->core.pid)
        return hfi_remember(HF_EFORKED, NULL);
    int state = hfi_thread_cancel_disable(), open = HFI_CLOSE_OPEN, err = HF_ECLOSED;
    if (!atomic_load(&client->core.closing) &&
        atomic_compare_exchange_strong(&client->closing.phase, &open, HFI_CLOSE_SETTLING)) {
        client->closing.callback = callback;
        client->closing.user = user;
        pthread_t thread; /* the client may be gone when it is written */
        int failure = hfi_thread_start(&thread, close_main, client);
        err = failure == 0 ? HF_OK
                           : hfi_fail_errno(&error, HF_ESYS, failure,
                                            "cannot start a thread to close the client");
        if (failure != 0)
            atomic_store(&client->closing.phase, HFI_CLOSE_OPEN);
    }
    hfi_thread_cancel_restore(state);
    return hfi_remember(err, &error);
}
