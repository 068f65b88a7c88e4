/*
 * Stall detection: preempts a driver that does not come back.
 *
 * Drivers are threads of the application. One may be in a signal handler that does not return,
 * stopped by a debugger, or get no processor, while followers and listeners depend on it. While
 * they do, the keeper, whose thread blocks all signals, checks it every 200 ms. A driver is stalled
 * if it has something to do (its socket is ready, or it was woken) and did nothing between two
 * checks. So is a follower that was named driver and did not come. Preempting a driver that is
 * merely slow does no harm.
 *
 * A driver can be preempted only while it polls: there it holds no mutex and has read nothing yet.
 * A driver marks itself as polling under its executor's mutex, which it takes around each poll
 * anyway, so healthy drivers pay nothing for this check. The preempted driver keeps its wake-up
 * eventfd, which is made readable. It finds out before it touches anything else.
 *
 * A driver in recv() (driver_wait.c) may already have taken the bytes it waited for, so no other
 * thread can read on. The connection is given up, and the driver keeps the descriptor it receives
 * on. That harms a driver that is merely slow, so it gets more time; a healthy one stays in recv()
 * only for a moment.
 *
 * Not covered: a driver stopped while it reads, completes requests or names a successor stays the
 * driver. Commands on its connection time out, and callers use the other command connections until
 * that thread goes on. A thread stopped in send() loses the connection to the same timeout, and the
 * keeper reconnects.
 */
#include "base/poll.h"
#include "net/conn/conn_impl.h"

#include <sys/eventfd.h>
#include <unistd.h>

#define CHECK_MS 200
#define RECHECK_MS 100
#define CHECKS_WHILE_RECEIVING 10 /* 100 ms apart; no healthy driver is in recv() that long */

/* Is the driver a synchronous caller, or a follower that was named and has not come yet? */
static bool is_callers(const struct hfi_conn *conn) {
    return (conn->driver_policy == HFI_DRIVER_CALLERS ||
            conn->driver_policy == HFI_DRIVER_LISTENERS) &&
           conn->driver != NULL && conn->driver != hfi_keeper_exec(conn->target->keeper);
}

void hfi_driver_watch_locked(struct hfi_conn *conn) {
    if (conn->stall_check_is_set || !is_callers(conn))
        return;
    conn->stall_check_is_set = true;
    conn->stalled = NULL;
    hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->stall_check,
                  hfi_now_ms() + CHECK_MS);
}

/* The driver was named and has not come yet. */
static bool is_expected(const struct hfi_conn *conn) {
    for (struct hfi_link *link = conn->followers.next; link != &conn->followers; link = link->next)
        if (HFI_CONTAINER(link, struct hfi_sync_caller, link)->exec == conn->driver)
            return true;
    return false;
}

static bool is_readable(const struct hfi_conn *conn) {
    struct pollfd fd = {.fd = conn->fd, .events = POLLIN};
    if (atomic_load(&conn->blocked))
        fd.events |= POLLOUT;
    return hfi_poll(&fd, 1, 0, NULL) > 0;
}

/* Does the driver have something to do that it is not doing? */
static bool is_stalled(const struct hfi_conn *conn, unsigned *ret_polls) {
    bool wake_sent;
    *ret_polls = 0;
    if (is_expected(conn))
        return true;
    return hfi_exec_is_polling(conn->driver, ret_polls, &wake_sent) &&
           (wake_sent || hfi_exec_is_receiving(conn->driver) || is_readable(conn));
}

/* No other thread can read on: the keeper becomes the driver and gives the connection up. */
static void leave_for_lost(struct hfi_conn *conn) {
    conn->receive_fd = -1; /* owned by the preempted driver */
    conn->driver = hfi_keeper_exec(conn->target->keeper);
    hfi_conn_break_locked(conn);
}

/* False: the driver came back, or there is no eventfd for its successor. */
static bool preempt(struct hfi_conn *conn, unsigned polls, bool receiving) {
    if (!is_expected(conn)) {
        int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (wake_fd < 0)
            return false;
        if (!hfi_exec_preempt(conn->driver, polls, receiving)) {
            close(wake_fd);
            return false;
        }
        conn->wake_fd = wake_fd; /* the preempted driver keeps the old one */
    }
    if (receiving)
        leave_for_lost(conn);
    else
        hfi_driver_release_locked(conn);
    return true;
}

/* True: the driver was preempted. */
static bool check_driver(struct hfi_conn *conn) {
    unsigned polls;
    bool receiving = !is_expected(conn) && hfi_exec_is_receiving(conn->driver);
    bool idling = is_stalled(conn, &polls);
    bool still = idling && conn->stalled == conn->driver && conn->stalled_polls == polls;
    conn->stalled_checks = still ? conn->stalled_checks + 1 : 0;
    bool stuck = still && (!receiving || conn->stalled_checks >= CHECKS_WHILE_RECEIVING);
    bool preempted = stuck && preempt(conn, polls, receiving);
    conn->stalled = idling && !preempted ? conn->driver : NULL;
    conn->stalled_polls = polls;
    return preempted;
}

void hfi_driver_stall_fired(struct hfi_alarm *alarm) {
    struct hfi_conn *conn = HFI_CONTAINER(alarm, struct hfi_conn, stall_check);
    pthread_mutex_lock(&conn->mtx);
    conn->stall_check_is_set = false;
    bool matters = conn->state == CONN_READY &&
                   (!hfi_list_empty(&conn->followers) || conn->keeper_listeners > 0 ||
                    conn->lazy_listeners > 0 || atomic_load(&conn->broken));
    bool preempted = matters && is_callers(conn) && check_driver(conn);
    if (matters && is_callers(conn) && !conn->stall_check_is_set) {
        conn->stall_check_is_set = true; /* set on the keeper's thread, so it wakes nobody */
        hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->stall_check,
                      hfi_now_ms() + (conn->stalled != NULL ? RECHECK_MS : CHECK_MS));
    }
    pthread_mutex_unlock(&conn->mtx);
    if (preempted)
        hfi_log(conn->target->log, HF_LOG_INFO, HFI_ABOUT(.server = conn->target->node),
                "%s: the thread that drives the connection is stalled; another takes over",
                conn->target->node);
}
