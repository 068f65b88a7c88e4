/*
 * Somebody in the seat who does not come back.
 *
 * The threads that drive are the application's: one can be in a signal handler that does not
 * return, be stopped by a debugger, or get no processor. Others depend on it as long as it has the
 * seat. So while they do, the keeper, whose thread has all signals blocked, looks now and then: a
 * driver that has something to do (the socket has news, or it was kicked) and has done nothing
 * between two looks is relieved, as is one to whom the seat was offered and who did not come. It is
 * no harm to relieve one that is only slow.
 *
 * A driver is relieved only while it polls, where it holds no mutex and has read nothing yet. In
 * that state its executor says so under its own mutex, which the driver takes anyway when it begins
 * and ends a poll; so being relieved costs those who are not nothing. It keeps the eventfd that it
 * polls, which is made readable, and finds out before it touches anything else.
 *
 * One that waits in recv() (await.c) may have taken what it waited for, so nobody can go on where it is:
 * the connection is given up, and the descriptor that it waits on is left to it as well. That does harm
 * one that is only slow, so it gets more time; a healthy one is there for a moment.
 *
 * What remains: a driver that is stopped while it reads, completes requests or names a successor
 * keeps the seat. Commands on its connection then time out, and it is not used until that thread
 * goes on; the other command connections are. One stopped in send() loses the connection to the same
 * time limit, and another is made.
 */
#include "net/impl.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_MS 200
#define LOOK_AGAIN_MS 100
#define LOOKS_AT_RECEIVING                                                                         \
    10 /* so often, 100 ms apart: nobody is so long in recv() on a busy machine */

/* Is a synchronous caller in the seat, or expected there? */
static bool is_callers(const struct hfi_conn *conn) {
    return (conn->seat == HFI_SEAT_CALLERS || conn->seat == HFI_SEAT_LISTENERS) &&
           conn->driver != NULL && conn->driver != hfi_keeper_exec(conn->target->keeper);
}

void hfi_seat_watch_locked(struct hfi_conn *conn) {
    if (conn->relief_is_set || !is_callers(conn))
        return;
    conn->relief_is_set = true;
    conn->idler = NULL;
    hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->relief, hfi_now_ms() + LOOK_MS);
}

/* It was named, and has not come to take the seat. */
static bool is_expected(const struct hfi_conn *conn) {
    for (struct hfi_link *link = conn->followers.next; link != &conn->followers; link = link->next)
        if (HFI_CONTAINER(link, struct hfi_attendant, link)->exec == conn->driver)
            return true;
    return false;
}

static bool has_news(const struct hfi_conn *conn) {
    struct pollfd fd = {.fd = conn->fd, .events = POLLIN};
    if (atomic_load(&conn->blocked))
        fd.events |= POLLOUT;
    return poll(&fd, 1, 0) > 0;
}

/* Is there something that the driver could do right now? */
static bool is_idling(const struct hfi_conn *conn, unsigned *ret_polls) {
    bool kicked;
    *ret_polls = 0;
    if (is_expected(conn))
        return true;
    return hfi_exec_is_polling(conn->driver, ret_polls, &kicked) &&
           (kicked || hfi_exec_is_receiving(conn->driver) || has_news(conn));
}

/* Nobody can read on: the keeper is in the seat, and gives the connection up. */
static void leave_for_lost(struct hfi_conn *conn) {
    conn->receive_fd = -1; /* the driver's now */
    conn->driver = hfi_keeper_exec(conn->target->keeper);
    hfi_conn_break_locked(conn);
}

/* False: it has come back, or there is nothing to make its successor kickable with. */
static bool relieve(struct hfi_conn *conn, unsigned polls, bool receiving) {
    if (!is_expected(conn)) {
        int kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (kick_fd < 0)
            return false;
        if (!hfi_exec_relieve(conn->driver, polls, receiving)) {
            close(kick_fd);
            return false;
        }
        conn->kick_fd = kick_fd; /* the old one is the driver's now */
    }
    if (receiving)
        leave_for_lost(conn);
    else
        hfi_seat_leave_locked(conn);
    return true;
}

/* True: the one in the seat has been relieved. */
static bool look(struct hfi_conn *conn) {
    unsigned polls;
    bool receiving = !is_expected(conn) && hfi_exec_is_receiving(conn->driver);
    bool idling = is_idling(conn, &polls);
    bool still = idling && conn->idler == conn->driver && conn->idler_polls == polls;
    conn->idler_looks = still ? conn->idler_looks + 1 : 0;
    bool stuck = still && (!receiving || conn->idler_looks >= LOOKS_AT_RECEIVING);
    bool relieved = stuck && relieve(conn, polls, receiving);
    conn->idler = idling && !relieved ? conn->driver : NULL;
    conn->idler_polls = polls;
    return relieved;
}

void hfi_seat_relief_fired(struct hfi_alarm *alarm) {
    struct hfi_conn *conn = HFI_CONTAINER(alarm, struct hfi_conn, relief);
    pthread_mutex_lock(&conn->mtx);
    conn->relief_is_set = false;
    bool matters =
        conn->state == CONN_READY && (!hfi_list_empty(&conn->followers) || conn->wards > 0 ||
                                      conn->overhearers > 0 || atomic_load(&conn->broken));
    bool relieved = matters && is_callers(conn) && look(conn);
    if (matters && is_callers(conn) && !conn->relief_is_set) {
        conn->relief_is_set = true; /* set from here, it wakes nobody */
        hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->relief,
                      hfi_now_ms() + (conn->idler != NULL ? LOOK_AGAIN_MS : LOOK_MS));
    }
    pthread_mutex_unlock(&conn->mtx);
    if (relieved)
        hfi_log(conn->target->log, HF_LOG_INFO,
                "%s: the thread that reads for others is stuck; another goes on",
                conn->target->node);
}
