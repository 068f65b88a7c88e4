/*
 * Leader/followers: which thread drives a connection that callers share.
 *
 * The driver polls, reads, and completes the requests of all callers. If a connection has no
 * driver, the next synchronous caller that waits becomes it. Later callers are followers: they
 * sleep, and the driver wakes them through their executors. A driver leaves and names its successor
 * in one step under the connection's mutex. A follower that has to leave checks under the same
 * mutex whether it was named, and passes the role on. If the last caller leaves while replies to
 * abandoned requests are outstanding, the keeper becomes the driver. A stalled driver is preempted
 * (driver_stall.c).
 *
 * Pub/sub connections work the same way. But when the last listener leaves, the next one is often
 * about to come. So the keeper takes over only after the connection had no driver for a while, and
 * the first new listener asks it to yield. Until then no thread is woken for that hand-over. A
 * listener without a thread of its own to read with (the task of another thread) counts in
 * `keeper_listeners`; the keeper then stays the driver.
 */
#include "net/conn/conn_impl.h"

#include <assert.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

/* If a pub/sub connection had no driver for 50 to 100 ms, the keeper reads it. */
#define EMPTY_MS 50

void hfi_follower_remove_locked(struct hfi_sync_caller *sync_caller) {
    if (!atomic_load_explicit(&sync_caller->following, memory_order_relaxed))
        return;
    hfi_list_remove(&sync_caller->link);
    atomic_store_explicit(&sync_caller->following, false, memory_order_release);
}

static void drive_by_keeper_locked(struct hfi_conn *conn) {
    conn->driver = hfi_keeper_exec(conn->target->keeper);
    hfi_exec_wake(conn->driver);
}

static void check_later_locked(struct hfi_conn *conn) {
    if (conn->adopt_is_set)
        return;
    conn->adopt_is_set = true;
    hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->adopt, hfi_now_ms() + EMPTY_MS);
}

void hfi_driver_release_locked(struct hfi_conn *conn) {
    conn->driver = NULL;
    if (conn->state != CONN_READY)
        return;
    if (conn->keeper_listeners > 0) {
        drive_by_keeper_locked(conn);
        return;
    }
    for (struct hfi_link *link = conn->followers.next; link != &conn->followers;
         link = link->next) {
        struct hfi_exec *follower = HFI_CONTAINER(link, struct hfi_sync_caller, link)->exec;
        if (hfi_exec_has_work(follower))
            continue; /* it has work and is about to leave */
        conn->driver = follower;
        hfi_exec_wake(follower);
        hfi_driver_watch_locked(conn);
        return;
    }
    if (conn->in_flight > 0 && conn->sync_callers == 0)
        hfi_exec_wake(hfi_keeper_exec(conn->target->keeper));
    if (conn->driver_policy == HFI_DRIVER_LISTENERS) {
        conn->left_lately = true;
        check_later_locked(conn);
    }
}

/* Is there work that cannot wait for a synchronous caller? */
static bool needs_keeper(const struct hfi_conn *conn) {
    return (conn->in_flight > 0 && conn->sync_callers == 0) || conn->keeper_listeners > 0 ||
           atomic_load(&conn->broken) ||
           (conn->driver_policy == HFI_DRIVER_LISTENERS && atomic_load(&conn->blocked));
}

bool hfi_driver_adopt_locked(struct hfi_conn *conn) {
    bool wanted = conn->state == CONN_READY && conn->driver == NULL && needs_keeper(conn);
    if (wanted)
        conn->driver = hfi_keeper_exec(conn->target->keeper);
    return wanted;
}

void hfi_driver_adopt_fired(struct hfi_alarm *alarm) {
    struct hfi_conn *conn = HFI_CONTAINER(alarm, struct hfi_conn, adopt);
    pthread_mutex_lock(&conn->mtx);
    conn->adopt_is_set = false;
    if (conn->left_lately) /* set on the keeper's thread, so it wakes nobody */
        check_later_locked(conn);
    else if (conn->state == CONN_READY && conn->driver == NULL)
        conn->driver = hfi_keeper_exec(conn->target->keeper);
    conn->left_lately = false;
    pthread_mutex_unlock(&conn->mtx);
}

bool hfi_driver_yield_locked(struct hfi_conn *conn) {
    bool yields =
        conn->driver_policy == HFI_DRIVER_CALLERS ||
        (conn->driver_policy == HFI_DRIVER_LISTENERS && !hfi_list_empty(&conn->followers));
    if (!yields || needs_keeper(conn))
        return false;
    hfi_driver_release_locked(conn);
    return true;
}

/* Sleeps as a follower. True: we were named driver and our executor has no work. When a reply
 * arrives, the driver removes its caller from the followers. That caller then skips the mutex,
 * which the driver may be about to need again. */
static bool follow(struct hfi_conn *conn, struct hfi_sync_caller *sync_caller,
                   struct hfi_exec *exec) {
    hfi_exec_sleep(exec);
    if (!atomic_load_explicit(&sync_caller->following, memory_order_acquire))
        return false;
    pthread_mutex_lock(&conn->mtx);
    hfi_follower_remove_locked(sync_caller);
    bool offered = conn->driver == exec;
    if (offered && hfi_exec_take_wake(exec)) {
        hfi_driver_release_locked(conn);
        offered = false;
    }
    pthread_mutex_unlock(&conn->mtx);
    return offered;
}

/* Does nothing if the connection was lost or its driver preempted. */
static void release_driver(struct hfi_conn *conn, const struct hfi_exec *exec) {
    pthread_mutex_lock(&conn->mtx);
    if (conn->driver == exec)
        hfi_driver_release_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
}

/* True: this caller is the driver, at once or after following. False: its executor has work. */
static bool become_driver(struct hfi_conn *conn, struct hfi_sync_caller *sync_caller,
                          struct hfi_exec *exec, bool *ret_alone) {
    bool listens = sync_caller->asked == NULL;
    pthread_mutex_lock(&conn->mtx);
    if (!listens && (conn->state != CONN_READY || conn->in_flight == 0)) {
        pthread_mutex_unlock(&conn->mtx);
        hfi_exec_sleep(exec); /* our request has completed: there is work */
        return false;
    }
    bool driving = conn->state == CONN_READY && conn->driver == NULL;
    if (driving) {
        conn->driver = exec;
        *ret_alone = !listens && hfi_conn_is_alone_locked(conn);
        if (conn->lazy_listeners > 0)
            hfi_driver_watch_locked(conn);
    } else {
        sync_caller->exec = exec;
        hfi_list_push_back(&conn->followers, &sync_caller->link);
        atomic_store_explicit(&sync_caller->following, true, memory_order_relaxed);
        conn->contended_left = HFI_CONTENDED_COMMANDS;
        if (listens && conn->driver == hfi_keeper_exec(conn->target->keeper) && !needs_keeper(conn))
            hfi_exec_wake(conn->driver); /* the keeper yields */
        hfi_driver_watch_locked(conn);
    }
    pthread_mutex_unlock(&conn->mtx);
    return driving || follow(conn, sync_caller, exec);
}

/* A driver reads until its executor has work, it is preempted, or the connection is lost. */
void hfi_conn_drive(struct hfi_sync_caller *sync_caller, struct hfi_exec *exec) {
    struct hfi_conn *conn =
        sync_caller->asked != NULL ? sync_caller->asked : sync_caller->listens_to;
    if (conn == NULL) {
        hfi_exec_sleep(exec);
        return;
    }
    bool alone = false;
    if (!become_driver(conn, sync_caller, exec, &alone))
        return;
    enum hfi_driver_wake wake_reason = HFI_DRIVER_READY;
    if (alone)
        wake_reason = hfi_driver_wait_alone(conn, exec);
    while (wake_reason == HFI_DRIVER_READY && !atomic_load(&conn->broken))
        wake_reason = hfi_driver_wait(conn, exec);
    if (wake_reason != HFI_DRIVER_REPLACED && atomic_load(&conn->broken))
        hfi_conn_on_ready(conn, 0);
    release_driver(conn, exec);
}

void hfi_conn_listen(struct hfi_conn *conn, struct hfi_sync_caller *sync_caller) {
    if (sync_caller != NULL) {
        sync_caller->listens_to = conn;
        return;
    }
    pthread_mutex_lock(&conn->mtx);
    conn->keeper_listeners++;
    if (conn->state == CONN_READY && conn->driver == NULL)
        drive_by_keeper_locked(conn);
    hfi_driver_watch_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
}

void hfi_conn_unlisten(struct hfi_conn *conn, struct hfi_sync_caller *sync_caller) {
    if (sync_caller != NULL) {
        sync_caller->listens_to = NULL;
        return;
    }
    pthread_mutex_lock(&conn->mtx);
    conn->keeper_listeners--;
    pthread_mutex_unlock(&conn->mtx);
}

void hfi_conn_listen_lazily(struct hfi_conn *conn, bool on) {
    pthread_mutex_lock(&conn->mtx);
    if (on) {
        conn->lazy_listeners++;
        hfi_driver_watch_locked(conn);
    } else {
        conn->lazy_listeners--;
    }
    pthread_mutex_unlock(&conn->mtx);
}

void hfi_conn_catch_up(struct hfi_conn *conn, struct hfi_exec *exec) {
    pthread_mutex_lock(&conn->mtx);
    bool driving = conn->state == CONN_READY && conn->driver == NULL;
    if (driving)
        conn->driver = exec;
    pthread_mutex_unlock(&conn->mtx);
    if (!driving)
        return;
    hfi_conn_on_ready(conn, POLLIN);
    release_driver(conn, exec);
}

int hfi_conn_poll_fd(struct hfi_conn *conn, short *ret_events) {
    *ret_events = POLLIN;
    if (conn->state == CONN_CONNECTING || atomic_load(&conn->blocked))
        *ret_events |= POLLOUT;
    return conn->fd;
}

int hfi_conn_dispatch_fd(struct hfi_conn *conn, short *ret_events) {
    pthread_mutex_lock(&conn->mtx);
    bool ours = conn->state == CONN_READY && conn->driver == conn->target->dispatch;
    bool broken = atomic_load(&conn->broken);
    pthread_mutex_unlock(&conn->mtx);
    if (ours && broken)
        hfi_conn_on_ready(conn, 0);
    return ours && !broken ? hfi_conn_poll_fd(conn, ret_events) : -1;
}

void hfi_conn_enlist(struct hfi_conn *conn, int epoll_fd) {
    short events = 0;
    if (hfi_conn_dispatch_fd(conn, &events) < 0)
        return;
    struct epoll_event event = {.events = (events & POLLOUT) ? EPOLLIN | EPOLLOUT : EPOLLIN};
    pthread_mutex_lock(&conn->mtx);
    bool listed = conn->poll_set >= 0 && conn->poll_events == event.events;
    if (conn->fd >= 0 && !listed &&
        epoll_ctl(epoll_fd, conn->poll_set >= 0 ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, conn->fd,
                  &event) == 0) {
        conn->poll_set = epoll_fd;
        conn->poll_events = event.events;
    }
    pthread_mutex_unlock(&conn->mtx);
}
