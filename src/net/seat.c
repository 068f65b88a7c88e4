/*
 * The driver's seat of a command connection.
 *
 * A synchronous caller that waits for its reply reads for everybody if nobody else does; the others
 * sleep, and are woken through their executors. Leaving the seat and naming a successor is one step
 * under the connection's mutex. A follower that has to leave checks under the same mutex whether
 * the seat was offered to it, and passes it on. When the last caller has left and replies are still
 * to come (to requests that were abandoned), the keeper takes the seat.
 */
#include "net/impl.h"

#include <assert.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

/* Takes a follower off its list, if it is on one. */
void hfi_seat_excuse_locked(struct hfi_exec *exec) {
    if (!atomic_load_explicit(&exec->following, memory_order_relaxed))
        return;
    hfi_list_remove(&exec->seat_link);
    atomic_store_explicit(&exec->following, false, memory_order_release);
}

void hfi_seat_leave_locked(struct hfi_conn *conn) {
    conn->driver = NULL;
    if (conn->state != CONN_READY)
        return;
    for (struct hfi_link *link = conn->followers.next; link != &conn->followers;
         link = link->next) {
        struct hfi_exec *follower = HFI_CONTAINER(link, struct hfi_exec, seat_link);
        if (hfi_exec_has_work(follower))
            continue; /* it is about to go */
        conn->driver = follower;
        hfi_exec_nudge(follower);
        return;
    }
    if (conn->in_flight > 0 && conn->attendants == 0)
        hfi_exec_nudge(hfi_keeper_exec(conn->target->keeper));
}

bool hfi_seat_adopt_locked(struct hfi_conn *conn) {
    bool wanted = conn->state == CONN_READY && conn->driver == NULL &&
                  ((conn->in_flight > 0 && conn->attendants == 0) || atomic_load(&conn->broken));
    if (wanted)
        conn->driver = hfi_keeper_exec(conn->target->keeper);
    return wanted;
}

static int poll_timeout(int64_t at_ms) {
    if (at_ms == HFI_NEVER)
        return -1;
    int64_t left_ms = at_ms - hfi_now_ms();
    if (left_ms < 0)
        return 0;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

/* In the seat: reads until this caller has something else to do, or the connection (and the seat)
 * is lost. */
static void drive(struct hfi_conn *conn, struct hfi_exec *exec) {
    while (!atomic_load(&conn->broken)) {
        int64_t at_ms;
        struct pollfd fds[2] = {{.fd = conn->fd, .events = POLLIN},
                                {.fd = conn->kick_fd, .events = POLLIN}};
        if (atomic_load(&conn->blocked))
            fds[0].events |= POLLOUT;
        if (!hfi_exec_poll_begin(exec, conn->kick_fd, &at_ms))
            break;
        poll(fds, 2, poll_timeout(at_ms));
        hfi_exec_poll_end(exec);
        if (fds[0].revents != 0 && !hfi_conn_service(conn, fds[0].revents))
            return;
    }
    if (atomic_load(&conn->broken))
        hfi_conn_service(conn, 0);
}

/* Waits beside the seat. True: it was offered to us, and we have nothing else to do. One whose
 * reply has come was excused by the driver and does not need the mutex, which the driver may be
 * about to need again. */
static bool follow(struct hfi_conn *conn, struct hfi_exec *exec) {
    hfi_exec_sleep(exec);
    if (!atomic_load_explicit(&exec->following, memory_order_acquire))
        return false;
    pthread_mutex_lock(&conn->mtx);
    hfi_seat_excuse_locked(exec);
    bool offered = conn->driver == exec;
    if (offered && hfi_exec_unnudge(exec)) {
        hfi_seat_leave_locked(conn);
        offered = false;
    }
    pthread_mutex_unlock(&conn->mtx);
    return offered;
}

void hfi_conn_attend(struct hfi_exec *exec) {
    struct hfi_conn *conn = exec->lane;
    if (conn == NULL) {
        hfi_exec_sleep(exec);
        return;
    }
    pthread_mutex_lock(&conn->mtx);
    if (conn->state != CONN_READY || conn->in_flight == 0) {
        pthread_mutex_unlock(&conn->mtx);
        hfi_exec_sleep(exec); /* our request has completed: there is work */
        return;
    }
    bool seated = conn->driver == NULL;
    if (seated) {
        conn->driver = exec;
    } else {
        hfi_list_push_back(&conn->followers, &exec->seat_link);
        atomic_store_explicit(&exec->following, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&conn->mtx);
    if (!seated && !follow(conn, exec))
        return;

    drive(conn, exec);

    pthread_mutex_lock(&conn->mtx);
    if (conn->driver == exec)
        hfi_seat_leave_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
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
        hfi_conn_service(conn, 0);
    return ours && !broken ? hfi_conn_poll_fd(conn, ret_events) : -1;
}
