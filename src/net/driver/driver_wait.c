/*
 * How the driver of a connection waits for bytes: poll, recv(), or spin-then-park.
 *
 * conn_driver.c calls this on the driver's thread, with no mutex held.
 *
 * In general the driver polls the socket and its wake-up eventfd, then reads. A driver that is
 * alone, with the only command in flight, skips the poll and blocks in recv(). Only the reply, the
 * end of the connection, or SO_RCVTIMEO (one tick of the kernel's clock) ends that recv(). After a
 * tick the driver polls. So recv() is only for a caller that cannot be cancelled and has no timer
 * due soon. hf_close(), and another thread that gives the connection up, are noticed at the next
 * tick. A connection on which callers met within the last HFI_CONTENDED_COMMANDS commands does not
 * use recv(): followers depend on its driver, and a polling driver can be preempted without losing
 * the connection.
 *
 * Spinning alone: the reply often arrives before a sleeping thread could be woken. So the driver
 * spins on recv() for a moment before it blocks. That burns a processor, so it backs off when a
 * spin does not pay: no reply in that time, or another thread got the processor. Each failure
 * doubles the number of commands before the next spin; each success halves it.
 *
 * Spinning for followers: a driver with followers spins on poll(), so it can still be woken and
 * preempted. It calls sched_yield() between two polls. That runs the threads it has just woken, and
 * their next commands go out in one write. And no processor goes idle between the replies to some
 * callers and the commands of others. One spin tells us nothing: sched_yield() may run a stranger
 * or one of our own threads, and both delay us. So measure: of every 16 periods of 10 ms, spin in
 * one, do not in another, and spin in the rest if that completed a sixteenth more replies. All
 * connections of a node share this tuner, since they compete for the same processors.
 *
 * Only the receiving thread knows the bytes its recv() has taken. If that thread stalls while
 * followers wait, the connection is given up after a second (driver_stall.c).
 */
#include "base/poll.h"
#include "net/conn/conn_impl.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK 1024 /* a reply with TLS overhead; a longer one takes several reads */
#define FAR_MS 20  /* longer than any kernel tick */

/* One recv() that timed out weighs as much as this many that did not. */
#define TICK_COST 8
#define TICKS_MAX 24 /* above this, poll for now */

#define SPIN_US 100
#define TAKEN_US 25 /* a gap this long: another thread had the processor */
/* Tuner of a driver with followers. */
#define SPIN_TOGETHER_US 100
#define PERIOD_US 10000
#define CYCLE 16       /* periods */
#define ANSWERS_MIN 20 /* per period; below this there is too little load to measure */
#define SCALE 16       /* fixed point of the rates */
#define SMOOTH 4       /* moving average over this many periods of a mode */
#define LEAD 16        /* spinning must be ahead by 1/LEAD */

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

/* ---- Spinning alone ---- */

static bool has_several_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) > 1;
}

static bool may_spin(struct hfi_conn *conn) {
    struct spin_state *spin_state = &conn->spin_state;
    if (conn->target->sleeps_at_once)
        return false;
    if (spin_state->skip > 0) {
        spin_state->skip--;
        return false;
    }
    if (spin_state->until_check-- == 0) {
        spin_state->until_check = SKIP_MAX;
        if (!has_several_processors())
            spin_state->skip = SKIP_MAX;
    }
    return spin_state->skip == 0;
}

static void note_spin(struct spin_state *spin_state, bool paid) {
    if (paid) {
        spin_state->next_skip = spin_state->next_skip / 2;
        return;
    }
    spin_state->next_skip = spin_state->next_skip < SKIP_MIN ? SKIP_MIN : 2 * spin_state->next_skip;
    if (spin_state->next_skip > SKIP_MAX)
        spin_state->next_skip = SKIP_MAX;
    spin_state->skip = spin_state->next_skip;
}

static void pause_briefly(void) {
    for (int i = 0; i < PAUSES; i++)
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Like recv(). *ret_paid: bytes came in time, and no other thread took the processor. */
static ssize_t spin(int fd, char *chunk, bool *ret_paid) {
    int64_t start_us = hfi_now_us(), before_us = start_us;
    for (;;) {
        ssize_t got = recv(fd, chunk, CHUNK, MSG_DONTWAIT);
        bool nothing = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        int64_t now_us = hfi_now_us();
        bool taken = now_us - before_us > TAKEN_US;
        *ret_paid = !nothing && !taken;
        if (!nothing || taken || now_us - start_us > SPIN_US)
            return got;
        before_us = now_us;
        pause_briefly();
    }
}

/* ---- Spinning for followers ---- */

static bool chooses_to_spin(const struct hfi_target *target, int64_t period) {
    int64_t spin_state =
        atomic_load_explicit(&target->spin_tuner.rates[true], memory_order_relaxed);
    int64_t sleeping = atomic_load_explicit(&target->spin_tuner.rates[false], memory_order_relaxed);
    if (!has_several_processors())
        return false;
    if (spin_state == 0 || period % CYCLE == 0)
        return true;
    return sleeping != 0 && period % CYCLE != 1 && spin_state > sleeping + sleeping / LEAD;
}

/* Records the rate of the finished period and picks the mode of the next. The compare-and-swap
 * on `period` admits one thread at a time. */
static void end_period(struct hfi_target *target, int64_t before, int64_t now_us) {
    struct hfi_spin_tuner *spin_tuner = &target->spin_tuner;
    int64_t period = now_us / PERIOD_US;
    int64_t spent_us =
        now_us - atomic_exchange_explicit(&spin_tuner->since_us, now_us, memory_order_relaxed);
    unsigned answers = atomic_exchange_explicit(&spin_tuner->answers, 0, memory_order_relaxed);
    bool spun = atomic_load_explicit(&spin_tuner->spins, memory_order_relaxed);
    bool busy = answers >= ANSWERS_MIN && period <= before + 1 && spent_us > 0;
    if (busy) {
        int64_t old = atomic_load_explicit(&spin_tuner->rates[spun], memory_order_relaxed);
        int64_t rate = (int64_t)answers * PERIOD_US * SCALE / spent_us;
        atomic_store_explicit(&spin_tuner->rates[spun],
                              old == 0 ? rate : old + (rate - old) / SMOOTH, memory_order_relaxed);
    }
    atomic_store_explicit(&spin_tuner->spins, busy && chooses_to_spin(target, period),
                          memory_order_relaxed);
}

static bool spins_together(struct hfi_conn *conn) {
    struct hfi_target *target = conn->target;
    if (target->sleeps_at_once || conn->driver_policy != HFI_DRIVER_CALLERS ||
        conn->ack_batch != NULL)
        return false;
    int64_t now_us = hfi_now_us();
    int64_t before = atomic_load_explicit(&target->spin_tuner.period, memory_order_relaxed);
    if (now_us / PERIOD_US > before &&
        atomic_compare_exchange_strong(&target->spin_tuner.period, &before, now_us / PERIOD_US))
        end_period(target, before, now_us);
    return atomic_load_explicit(&target->spin_tuner.spins, memory_order_relaxed);
}

/* Like poll(), but spins for at most SPIN_TOGETHER_US. */
static int spin_together(struct pollfd fds[2]) {
    int64_t start_us = hfi_now_us();
    int ready;
    while ((ready = hfi_poll(fds, 2, 0, NULL)) == 0 && hfi_now_us() - start_us < SPIN_TOGETHER_US)
        sched_yield();
    return ready;
}

enum hfi_driver_wake hfi_driver_wait(struct hfi_conn *conn, struct hfi_exec *exec) {
    int64_t at_ms;
    struct pollfd fds[2] = {{.fd = conn->fd, .events = POLLIN},
                            {.fd = conn->wake_fd, .events = POLLIN}};
    if (atomic_load(&conn->blocked))
        fds[0].events |= POLLOUT;
    bool spins = spins_together(conn);
    if (!hfi_exec_poll_begin(exec, conn->wake_fd, &at_ms))
        return HFI_DRIVER_HAS_WORK;
    if (!spins || spin_together(fds) == 0)
        if (hfi_poll(fds, 2, poll_timeout(at_ms), NULL) < 0 && errno == EINTR)
            hfi_exec_interrupted(exec);
    if (!hfi_exec_poll_end(exec)) /* preempted: another thread drives now */
        return HFI_DRIVER_REPLACED;
    if (fds[0].revents != 0 && !hfi_conn_on_ready(conn, fds[0].revents))
        return HFI_DRIVER_REPLACED;
    return HFI_DRIVER_READY;
}

/* ---- Alone: recv() without a poll ---- */

bool hfi_conn_is_alone_locked(struct hfi_conn *conn) {
    if (conn->receive_fd < 0 || conn->in_flight != 1 || conn->sync_callers != 1 ||
        atomic_load(&conn->blocked))
        return false;
    if (conn->contended_left > 0) {
        conn->contended_left--;
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

enum hfi_driver_wake hfi_driver_wait_alone(struct hfi_conn *conn, struct hfi_exec *exec) {
    char chunk[CHUNK];
    int fd = conn->receive_fd; /* if preempted, this thread owns it and closes it */
    bool spins = may_spin(conn), paid = false;
    if (!hfi_exec_receive_begin(exec, conn->wake_fd, FAR_MS))
        return HFI_DRIVER_READY;
    ssize_t got = spins ? spin(fd, chunk, &paid) : -1;
    bool waits = !spins || is_empty(got, errno);
    if (waits)
        got = recv(fd, chunk, sizeof chunk, 0);
    int sys_errno = errno;
    if (!hfi_exec_poll_end(exec)) {
        close(fd);
        return HFI_DRIVER_REPLACED;
    }
    if (spins)
        note_spin(&conn->spin_state, paid);
    if (waits && got < 0 && sys_errno == EINTR)
        hfi_exec_interrupted(exec);
    if (waits)
        note_tick(conn, is_empty(got, sys_errno));
    if (is_empty(got, sys_errno))
        return HFI_DRIVER_READY; /* poll from here on */
    if (!hfi_conn_consume(conn, chunk, sizeof chunk, got, sys_errno))
        return HFI_DRIVER_REPLACED;
    return atomic_load(&conn->in_flight) == 0 ? HFI_DRIVER_HAS_WORK : HFI_DRIVER_READY;
}
