/*
 * Waiting in the seat: how whoever drives a connection learns that something has come.
 *
 * In general it polls the socket and its eventfd, and then reads. A caller that is alone, with one
 * command in flight, does without the poll: it waits in recv(), and that returns with the answer. What
 * ends that wait is the answer, the end of the connection, or a tick of the kernel's clock, after which
 * it polls. So it is only for a caller whom nobody can cancel, and whose own timers are far. What is
 * left is a close, or that somebody else gives the connection up: noticed with the next tick. And it is
 * not for a connection where callers have met of late, since there others depend on whoever is in the
 * seat, and one that polls can be relieved without a loss.
 *
 * Where the answer is often there before a sleeping thread would have been woken, it looks for it for
 * a moment before it sleeps. That takes a processor that nobody else wants, so it stops when it does
 * not pay: when the answer did not come in that time, or another thread got the processor meanwhile.
 * Each failure doubles the number of commands before it tries again, each success halves it.
 *
 * One that reads for others looks, too, but by polling, so that it can be kicked and relieved as ever, and
 * it yields the processor between two looks: to those whom it has just woken, whose next commands then go
 * out together, and to anybody else. So no processor falls asleep between the answers to some and the
 * commands of others, from which it would have to be woken again for each. Whether that pays cannot be told
 * from a single look, since who yields to strangers comes back late, and who yields to its own kind, too. So it is
 * tried: time is cut into periods; of each cycle one is spent looking, one is not, and the others like the one in which
 * more was answered. All connections of a node do the same, as what one does with a processor concerns the others.
 *
 * Called by seat.c, with no mutex held. What a recv() has taken from the socket is known only to its
 * thread, so one that is stuck here when somebody comes costs the connection, a second later (relief.c).
 */
#include "net/impl.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK 1024 /* an answer, and what TLS adds; what is longer is polled for */
#define FAR_MS 20  /* more than any tick */

/* A wait in recv() that ended without anything counts as so many that did not. */
#define TICK_COST 8
#define TICKS_MAX 24 /* more than that, and it does not pay for now */

#define LOOK_US 100
#define TAKEN_US 25 /* so long between two looks: somebody else had the processor */
/* The same for one that reads for others. */
#define LOOK_TOGETHER_US 100
#define PERIOD_US 10000
#define CYCLE 16       /* periods */
#define ANSWERS_MIN 20 /* in a period; else there is not enough going on */
#define SCALE 16       /* of rates */
#define SMOOTH 4       /* the last so many periods of a kind count */
#define LEAD 16        /* by this part looking must be ahead */

#define PAUSES 16
#define SKIP_MIN 16
#define SKIP_MAX 4096

static int poll_timeout(int64_t at_ms) {
    if (at_ms == HFI_NEVER)
        return -1;
    int64_t left_ms = at_ms - hfi_now_ms();
    if (left_ms < 0)
        return 0;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

/* ---- Looking before sleeping ---- */

static bool has_several_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) > 1;
}

/* Is it worth looking this time? */
static bool may_look(struct hfi_conn *conn) {
    struct looking *looking = &conn->looking;
    if (conn->target->sleeps_at_once)
        return false;
    if (looking->skip > 0) {
        looking->skip--;
        return false;
    }
    if (looking->until_check-- == 0) {
        looking->until_check = SKIP_MAX;
        if (!has_several_processors())
            looking->skip = SKIP_MAX;
    }
    return looking->skip == 0;
}

static void note_look(struct looking *looking, bool paid) {
    if (paid) {
        looking->next_skip = looking->next_skip / 2;
        return;
    }
    looking->next_skip = looking->next_skip < SKIP_MIN ? SKIP_MIN : 2 * looking->next_skip;
    if (looking->next_skip > SKIP_MAX)
        looking->next_skip = SKIP_MAX;
    looking->skip = looking->next_skip;
}

static void pause_briefly(void) {
    for (int i = 0; i < PAUSES; i++)
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Like recv(). *ret_paid: something came in time, and nobody else wanted the processor. */
static ssize_t look(int fd, char *chunk, bool *ret_paid) {
    int64_t start_us = hfi_now_us(), before_us = start_us;
    for (;;) {
        ssize_t got = recv(fd, chunk, CHUNK, MSG_DONTWAIT);
        bool nothing = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        int64_t now_us = hfi_now_us();
        bool taken = now_us - before_us > TAKEN_US;
        *ret_paid = !nothing && !taken;
        if (!nothing || taken || now_us - start_us > LOOK_US)
            return got;
        before_us = now_us;
        pause_briefly();
    }
}

/* ---- For others, too ---- */

static bool chooses_to_look(const struct hfi_target *target, int64_t period) {
    int64_t looking = atomic_load_explicit(&target->trial.rates[true], memory_order_relaxed);
    int64_t sleeping = atomic_load_explicit(&target->trial.rates[false], memory_order_relaxed);
    if (!has_several_processors())
        return false;
    if (looking == 0 || period % CYCLE == 0)
        return true;
    return sleeping != 0 && period % CYCLE != 1 && looking > sleeping + sleeping / LEAD;
}

/* Notes how the period went that is over, and says how the next is spent. One thread at a time. */
static void end_period(struct hfi_target *target, int64_t before, int64_t now_us) {
    struct hfi_trial *trial = &target->trial;
    int64_t period = now_us / PERIOD_US;
    int64_t spent_us =
        now_us - atomic_exchange_explicit(&trial->since_us, now_us, memory_order_relaxed);
    unsigned answers = atomic_exchange_explicit(&trial->answers, 0, memory_order_relaxed);
    bool looked = atomic_load_explicit(&trial->looks, memory_order_relaxed);
    bool busy = answers >= ANSWERS_MIN && period <= before + 1 && spent_us > 0;
    if (busy) {
        int64_t old = atomic_load_explicit(&trial->rates[looked], memory_order_relaxed);
        int64_t rate = (int64_t)answers * PERIOD_US * SCALE / spent_us;
        atomic_store_explicit(&trial->rates[looked], old == 0 ? rate : old + (rate - old) / SMOOTH,
                              memory_order_relaxed);
    }
    atomic_store_explicit(&trial->looks, busy && chooses_to_look(target, period),
                          memory_order_relaxed);
}

static bool looks_together(struct hfi_conn *conn) {
    struct hfi_target *target = conn->target;
    if (target->sleeps_at_once || conn->seat != HFI_SEAT_CALLERS || conn->seal != NULL)
        return false;
    int64_t now_us = hfi_now_us();
    int64_t before = atomic_load_explicit(&target->trial.period, memory_order_relaxed);
    if (now_us / PERIOD_US > before &&
        atomic_compare_exchange_strong(&target->trial.period, &before, now_us / PERIOD_US))
        end_period(target, before, now_us);
    return atomic_load_explicit(&target->trial.looks, memory_order_relaxed);
}

/* Like poll(), for a moment. */
static int look_together(struct pollfd fds[2]) {
    int64_t start_us = hfi_now_us();
    int ready;
    while ((ready = poll(fds, 2, 0)) == 0 && hfi_now_us() - start_us < LOOK_TOGETHER_US)
        sched_yield();
    return ready;
}

enum hfi_awaited hfi_conn_await(struct hfi_conn *conn, struct hfi_exec *exec) {
    int64_t at_ms;
    struct pollfd fds[2] = {{.fd = conn->fd, .events = POLLIN},
                            {.fd = conn->kick_fd, .events = POLLIN}};
    if (atomic_load(&conn->blocked))
        fds[0].events |= POLLOUT;
    bool looks = looks_together(conn);
    if (!hfi_exec_poll_begin(exec, conn->kick_fd, &at_ms))
        return HFI_AWAITED_WORK;
    if (!looks || look_together(fds) == 0)
        poll(fds, 2, poll_timeout(at_ms));
    if (!hfi_exec_poll_end(exec)) /* relieved meanwhile: the seat is somebody else's */
        return HFI_AWAITED_LOSS;
    if (fds[0].revents != 0 && !hfi_conn_service(conn, fds[0].revents))
        return HFI_AWAITED_LOSS;
    return HFI_AWAITED_NEWS;
}

/* ---- Alone ---- */

bool hfi_conn_is_alone_locked(struct hfi_conn *conn) {
    if (conn->receive_fd < 0 || conn->in_flight != 1 || conn->attendants != 1 ||
        atomic_load(&conn->blocked))
        return false;
    if (conn->met > 0) {
        conn->met--;
        return false;
    }
    if (conn->ticks < TICKS_MAX)
        return true;
    conn->ticks--;
    return false;
}

static void note_tick(struct hfi_conn *conn, bool ticked) {
    if (ticked)
        conn->ticks += TICK_COST;
    else if (conn->ticks > 0)
        conn->ticks--;
}

static bool is_empty(ssize_t got, int sys_errno) {
    return got < 0 && (sys_errno == EAGAIN || sys_errno == EWOULDBLOCK || sys_errno == EINTR);
}

enum hfi_awaited hfi_conn_await_alone(struct hfi_conn *conn, struct hfi_exec *exec) {
    char chunk[CHUNK];
    int fd = conn->receive_fd; /* if it is relieved, this is its own, as the eventfd is */
    bool looks = may_look(conn), paid = false;
    if (!hfi_exec_receive_begin(exec, conn->kick_fd, FAR_MS))
        return HFI_AWAITED_NEWS;
    ssize_t got = looks ? look(fd, chunk, &paid) : -1;
    bool waits = !looks || is_empty(got, errno);
    if (waits)
        got = recv(fd, chunk, sizeof chunk, 0);
    int sys_errno = errno;
    if (!hfi_exec_poll_end(exec)) {
        close(fd);
        return HFI_AWAITED_LOSS;
    }
    if (looks)
        note_look(&conn->looking, paid);
    if (waits)
        note_tick(conn, is_empty(got, sys_errno));
    if (is_empty(got, sys_errno))
        return HFI_AWAITED_NEWS; /* from here on it polls */
    if (!hfi_conn_serve(conn, chunk, sizeof chunk, got, sys_errno))
        return HFI_AWAITED_LOSS;
    return atomic_load(&conn->in_flight) == 0 ? HFI_AWAITED_WORK : HFI_AWAITED_NEWS;
}
