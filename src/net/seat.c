/*
 * The driver's seat of a connection that callers drive.
 *
 * A synchronous caller that waits for its reply reads for everybody if nobody else does; the others
 * sleep, and are woken through their executors. Leaving the seat and naming a successor is one step
 * under the connection's mutex. A follower that has to leave checks under the same mutex whether
 * the seat was offered to it, and passes it on. When the last caller has left and replies are still
 * to come (to requests that were abandoned), the keeper takes the seat. One that is stuck in the
 * seat loses it (relief.c).
 *
 * Messages are waited for in the same way, but when the last listener has left, the next is often
 * about to come. So the keeper takes the seat only when nobody has used it for a while, and the
 * first to listen again asks it to leave; until then nobody is woken for a seat that is left and
 * taken. Whoever listens and cannot read (the task of another thread) is a ward of the keeper,
 * which then stays.
 */
#include "net/impl.h"

#include <assert.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

/* Nobody has come to listen for so long, at most twice: the keeper reads. */
#define EMPTY_MS 50

/* Takes a follower off its list, if it is on one. */
void hfi_seat_excuse_locked(struct hfi_attendant *attendant) {
    if (!atomic_load_explicit(&attendant->following, memory_order_relaxed))
        return;
    hfi_list_remove(&attendant->link);
    atomic_store_explicit(&attendant->following, false, memory_order_release);
}

static void seat_keeper_locked(struct hfi_conn *conn) {
    conn->driver = hfi_keeper_exec(conn->target->keeper);
    hfi_exec_nudge(conn->driver);
}

static void look_later_locked(struct hfi_conn *conn) {
    if (conn->adopt_is_set)
        return;
    conn->adopt_is_set = true;
    hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->adopt, hfi_now_ms() + EMPTY_MS);
}

void hfi_seat_leave_locked(struct hfi_conn *conn) {
    conn->driver = NULL;
    if (conn->state != CONN_READY)
        return;
    if (conn->wards > 0) {
        seat_keeper_locked(conn);
        return;
    }
    for (struct hfi_link *link = conn->followers.next; link != &conn->followers;
         link = link->next) {
        struct hfi_exec *follower = HFI_CONTAINER(link, struct hfi_attendant, link)->exec;
        if (hfi_exec_has_work(follower))
            continue; /* it is about to go */
        conn->driver = follower;
        hfi_exec_nudge(follower);
        hfi_seat_watch_locked(conn);
        return;
    }
    if (conn->in_flight > 0 && conn->attendants == 0)
        hfi_exec_nudge(hfi_keeper_exec(conn->target->keeper));
    if (conn->seat == HFI_SEAT_LISTENERS) {
        conn->left_lately = true;
        look_later_locked(conn);
    }
}

/* Is there something to do that cannot wait for a caller? */
static bool needs_keeper(const struct hfi_conn *conn) {
    return (conn->in_flight > 0 && conn->attendants == 0) || conn->wards > 0 ||
           atomic_load(&conn->broken) ||
           (conn->seat == HFI_SEAT_LISTENERS && atomic_load(&conn->blocked));
}

bool hfi_seat_adopt_locked(struct hfi_conn *conn) {
    bool wanted = conn->state == CONN_READY && conn->driver == NULL && needs_keeper(conn);
    if (wanted)
        conn->driver = hfi_keeper_exec(conn->target->keeper);
    return wanted;
}

void hfi_seat_adopt_fired(struct hfi_alarm *alarm) {
    struct hfi_conn *conn = HFI_CONTAINER(alarm, struct hfi_conn, adopt);
    pthread_mutex_lock(&conn->mtx);
    conn->adopt_is_set = false;
    if (conn->left_lately) /* set from here, it wakes nobody */
        look_later_locked(conn);
    else if (conn->state == CONN_READY && conn->driver == NULL)
        conn->driver = hfi_keeper_exec(conn->target->keeper);
    conn->left_lately = false;
    pthread_mutex_unlock(&conn->mtx);
}

bool hfi_seat_yield_locked(struct hfi_conn *conn) {
    bool yields = conn->seat == HFI_SEAT_CALLERS ||
                  (conn->seat == HFI_SEAT_LISTENERS && !hfi_list_empty(&conn->followers));
    if (!yields || needs_keeper(conn))
        return false;
    hfi_seat_leave_locked(conn);
    return true;
}

/* Waits beside the seat. True: it was offered to us, and we have nothing else to do. One whose
 * reply has come was excused by the driver and does not need the mutex, which the driver may be
 * about to need again. */
static bool follow(struct hfi_conn *conn, struct hfi_attendant *attendant, struct hfi_exec *exec) {
    hfi_exec_sleep(exec);
    if (!atomic_load_explicit(&attendant->following, memory_order_acquire))
        return false;
    pthread_mutex_lock(&conn->mtx);
    hfi_seat_excuse_locked(attendant);
    bool offered = conn->driver == exec;
    if (offered && hfi_exec_unnudge(exec)) {
        hfi_seat_leave_locked(conn);
        offered = false;
    }
    pthread_mutex_unlock(&conn->mtx);
    return offered;
}

/* Unless the connection, and the seat with it, is lost, or the seat was taken away. */
static void stand_up(struct hfi_conn *conn, const struct hfi_exec *exec) {
    pthread_mutex_lock(&conn->mtx);
    if (conn->driver == exec)
        hfi_seat_leave_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
}

/* True: it is in the seat, at once or after a while. Else it has something to run. */
static bool takes_seat(struct hfi_conn *conn, struct hfi_attendant *attendant,
                       struct hfi_exec *exec, bool *ret_alone) {
    bool listens = attendant->asked == NULL;
    pthread_mutex_lock(&conn->mtx);
    if (!listens && (conn->state != CONN_READY || conn->in_flight == 0)) {
        pthread_mutex_unlock(&conn->mtx);
        hfi_exec_sleep(exec); /* our request has completed: there is work */
        return false;
    }
    bool seated = conn->state == CONN_READY && conn->driver == NULL;
    if (seated) {
        conn->driver = exec;
        *ret_alone = !listens && hfi_conn_is_alone_locked(conn);
        if (conn->overhearers > 0)
            hfi_seat_watch_locked(conn);
    } else {
        attendant->exec = exec;
        hfi_list_push_back(&conn->followers, &attendant->link);
        atomic_store_explicit(&attendant->following, true, memory_order_relaxed);
        conn->met = HFI_MET;
        if (listens && conn->driver == hfi_keeper_exec(conn->target->keeper) && !needs_keeper(conn))
            hfi_exec_nudge(conn->driver); /* it yields */
        hfi_seat_watch_locked(conn);
    }
    pthread_mutex_unlock(&conn->mtx);
    return seated || follow(conn, attendant, exec);
}

/* In the seat it reads until it has something else to do, or the connection, and the seat with it,
 * is lost. */
void hfi_conn_attend(struct hfi_attendant *attendant, struct hfi_exec *exec) {
    struct hfi_conn *conn = attendant->asked != NULL ? attendant->asked : attendant->listens_to;
    if (conn == NULL) {
        hfi_exec_sleep(exec);
        return;
    }
    bool alone = false;
    if (!takes_seat(conn, attendant, exec, &alone))
        return;
    enum hfi_awaited awaited = HFI_AWAITED_NEWS;
    if (alone)
        awaited = hfi_conn_await_alone(conn, exec);
    while (awaited == HFI_AWAITED_NEWS && !atomic_load(&conn->broken))
        awaited = hfi_conn_await(conn, exec);
    if (awaited != HFI_AWAITED_LOSS && atomic_load(&conn->broken))
        hfi_conn_service(conn, 0);
    stand_up(conn, exec);
}

void hfi_conn_listen(struct hfi_conn *conn, struct hfi_attendant *attendant) {
    if (attendant != NULL) {
        attendant->listens_to = conn;
        return;
    }
    pthread_mutex_lock(&conn->mtx);
    conn->wards++;
    if (conn->state == CONN_READY && conn->driver == NULL)
        seat_keeper_locked(conn);
    hfi_seat_watch_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
}

void hfi_conn_unlisten(struct hfi_conn *conn, struct hfi_attendant *attendant) {
    if (attendant != NULL) {
        attendant->listens_to = NULL;
        return;
    }
    pthread_mutex_lock(&conn->mtx);
    conn->wards--;
    pthread_mutex_unlock(&conn->mtx);
}

void hfi_conn_overhear(struct hfi_conn *conn, bool on) {
    pthread_mutex_lock(&conn->mtx);
    if (on) {
        conn->overhearers++;
        hfi_seat_watch_locked(conn);
    } else {
        conn->overhearers--;
    }
    pthread_mutex_unlock(&conn->mtx);
}

void hfi_conn_catch_up(struct hfi_conn *conn, struct hfi_exec *exec) {
    pthread_mutex_lock(&conn->mtx);
    bool seated = conn->state == CONN_READY && conn->driver == NULL;
    if (seated)
        conn->driver = exec;
    pthread_mutex_unlock(&conn->mtx);
    if (!seated)
        return;
    hfi_conn_service(conn, POLLIN);
    stand_up(conn, exec);
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
