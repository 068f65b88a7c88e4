/*
 * Borrowed loop: a synchronous caller runs the keeper's loop itself.
 *
 * The loop owner runs the keeper's executor, maintains the connections and polls. A call on several
 * servers, or of several locks, is work of the keeper from beginning to end. A synchronous caller
 * would wake the keeper to begin it, and be woken by it at the end; both cost more than a round
 * trip. So the caller borrows the loop while it waits. All state of "the keeper's thread" belongs
 * to the loop owner. Ownership passes under the keeper's mutex.
 *
 * - A borrower takes the loop if it has no owner, or from the keeper while that polls. The keeper
 *   is woken, finds that it lost the loop, touches nothing and idles. Otherwise the borrower
 *   queues.
 * - A borrower returns the loop when its call is over, to the next borrower in the queue. If there
 *   is none the loop has no owner for now, since the same thread often comes again. The keeper
 *   checks soon, and takes the loop back if nobody used it since its last check. Until then replies
 *   that no caller waits for stay in their sockets; a post to the keeper wakes it at once.
 * - A borrower is a thread of the application and may stall (see driver_stall.c). While one owns
 *   the loop, the keeper checks it now and then. It preempts a borrower that has something to do
 *   and does not come back from its poll, and one that was named and does not come. Elsewhere a
 *   borrower cannot be preempted. So signal handlers, which need not return, run only while it
 *   polls.
 */
#include "net/driver/keeper_impl.h"

#include "base/poll.h"

#include <sys/eventfd.h>
#include <unistd.h>

#define CHECK_SOON_MS 2
#define CHECK_MS 200
#define STUCK_MS 100
#define RUN_MOST 64 /* keeper tasks, before a borrower checks its own executor */

/* ---- Signals ---- */

/* Synchronous signals, which a thread raises by its own fault, are not blocked. */
static void shield(struct hfi_borrower *borrower) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t all;
    if (borrower->shielded)
        return;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&all, own[i]);
    borrower->shielded = pthread_sigmask(SIG_BLOCK, &all, &borrower->signals) == 0;
}

static void unshield(struct hfi_borrower *borrower) {
    if (borrower->shielded)
        pthread_sigmask(SIG_SETMASK, &borrower->signals, NULL);
    borrower->shielded = false;
}

/* ---- Borrowers ---- */

static void drive_locked(struct hfi_keeper *keeper, const struct hfi_borrower *borrower) {
    keeper->loop_owner = borrower;
    keeper->turns++;
    atomic_store_explicit(&keeper->owner_thread, 0, memory_order_relaxed); /* until it comes */
    hfi_exec_set_borrowed(&keeper->exec, true);
}

/* False: it is not the owner, or there is no eventfd to wake it by. */
static bool comes_locked(struct hfi_keeper *keeper, struct hfi_borrower *borrower) {
    if (keeper->loop_owner != borrower)
        return false;
    if (keeper->borrower_fd < 0)
        keeper->borrower_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    borrower->wake_fd = keeper->borrower_fd;
    hfi_list_remove(&borrower->link);
    atomic_store_explicit(&keeper->owner_thread, (uintptr_t)pthread_self(), memory_order_relaxed);
    return borrower->wake_fd >= 0;
}

/* False: the keeper polls more connections than a borrower has room for, or its thread is not
 * running to take the loop back. */
static bool has_room_locked(const struct hfi_keeper *keeper) {
    return keeper->started && keeper->conns_room + 2 <= LOOP_OWNER_FDS;
}

static bool borrow_locked(struct hfi_keeper *keeper, struct hfi_borrower *borrower) {
    bool free = keeper->loop_owner == NULL ||
                (keeper->loop_owner == &keeper->exec && hfi_exec_evict(&keeper->exec));
    if (free)
        drive_locked(keeper, borrower);
    return comes_locked(keeper, borrower);
}

/* Passes the loop to the first borrower in the queue whose executor has no work; if there is
 * none, it has no owner. */
static void pass_on_locked(struct hfi_keeper *keeper) {
    for (struct hfi_link *link = keeper->borrowers.next; link != &keeper->borrowers;
         link = link->next) {
        const struct hfi_borrower *next = HFI_CONTAINER(link, struct hfi_borrower, link);
        if (hfi_exec_has_work(next->exec))
            continue; /* it has work and is about to leave */
        drive_locked(keeper, next);
        hfi_exec_wake(next->exec);
        return;
    }
    keeper->loop_owner = NULL;
    atomic_store_explicit(&keeper->owner_thread, 0, memory_order_relaxed);
    hfi_exec_set_borrowed(&keeper->exec, false);
    if (hfi_exec_has_work(&keeper->exec) || keeper->checks_at_ms > hfi_now_ms() + CHECK_SOON_MS)
        hfi_exec_wake(&keeper->exec);
}

void hfi_keeper_borrow(struct hfi_keeper *keeper, struct hfi_borrower *borrower) {
    shield(borrower);
    pthread_mutex_lock(&keeper->mtx);
    bool driving = has_room_locked(keeper) && borrow_locked(keeper, borrower);
    if (!driving && keeper->loop_owner == borrower)
        pass_on_locked(keeper);
    pthread_mutex_unlock(&keeper->mtx);
    if (!driving)
        unshield(borrower);
}

/* Sleeps in the queue until this borrower has work or is named owner. */
static void wait_for_loop(struct hfi_keeper *keeper, struct hfi_borrower *borrower) {
    unshield(borrower);
    hfi_exec_sleep(borrower->exec);
    shield(borrower);
    pthread_mutex_lock(&keeper->mtx);
    hfi_list_remove(&borrower->link);
    bool named = keeper->loop_owner == borrower;
    if (named && !comes_locked(keeper, borrower))
        pass_on_locked(keeper);
    pthread_mutex_unlock(&keeper->mtx);
}

void hfi_keeper_run_borrowed(struct hfi_keeper *keeper, struct hfi_borrower *borrower) {
    struct pollfd fds[LOOP_OWNER_FDS];
    shield(borrower);
    pthread_mutex_lock(&keeper->mtx);
    bool room = has_room_locked(keeper);
    bool driving = room && (keeper->loop_owner == borrower || borrow_locked(keeper, borrower));
    if (!driving && keeper->loop_owner == borrower)
        pass_on_locked(keeper);
    else if (!driving && room)
        hfi_list_push_back(&keeper->borrowers, &borrower->link);
    pthread_mutex_unlock(&keeper->mtx);
    if (!driving) {
        wait_for_loop(keeper, borrower);
        return;
    }
    const struct loop_owner self = {.exec = borrower->exec,
                                    .wake_fd = borrower->wake_fd,
                                    .fds = fds,
                                    .signals = borrower->shielded ? &borrower->signals : NULL};
    do
        hfi_exec_run_some(&keeper->exec, RUN_MOST);
    while (!hfi_exec_has_work(borrower->exec) && hfi_keeper_run_once(keeper, &self));
}

void hfi_keeper_return(struct hfi_keeper *keeper, struct hfi_borrower *borrower) {
    pthread_mutex_lock(&keeper->mtx);
    bool driving = keeper->loop_owner == borrower;
    pthread_mutex_unlock(&keeper->mtx);
    if (driving) {
        hfi_exec_run_some(&keeper->exec, RUN_MOST); /* tasks posted by its last step */
        hfi_keeper_write_all(keeper);
        pthread_mutex_lock(&keeper->mtx);
        pass_on_locked(keeper);
        pthread_mutex_unlock(&keeper->mtx);
    }
    unshield(borrower);
}

/* Does the calling thread still own the loop? A borrower that lost the loop still owns its
 * wake-up eventfd and must close it. */
bool hfi_loop_is_owned_locked(struct hfi_keeper *keeper, const struct loop_owner *loop_owner) {
    uint64_t count;
    if (hfi_keeper_is_self(keeper))
        return true;
    ssize_t got = read(loop_owner->wake_fd, &count, sizeof count);
    (void)got; /* it was woken when it lost the loop */
    if (loop_owner->exec != NULL)
        close(loop_owner->wake_fd);
    return false;
}

/* ---- The keeper ---- */

static void take_locked(struct hfi_keeper *keeper) {
    keeper->loop_owner = &keeper->exec;
    keeper->stalled_since_ms = HFI_NEVER;
    atomic_store_explicit(&keeper->owner_thread, (uintptr_t)pthread_self(), memory_order_relaxed);
}

bool hfi_loop_is_wanted_locked(const struct hfi_keeper *keeper) {
    if (keeper->stopping)
        return false;
    for (struct hfi_link *link = keeper->borrowers.next; link != &keeper->borrowers;
         link = link->next)
        if (!hfi_exec_has_work(HFI_CONTAINER(link, struct hfi_borrower, link)->exec))
            return true; /* those with work are about to leave */
    return false;
}

bool hfi_loop_lend(struct hfi_keeper *keeper) {
    pthread_mutex_lock(&keeper->mtx);
    if (hfi_loop_is_wanted_locked(keeper))
        pass_on_locked(keeper);
    if (keeper->loop_owner == NULL) /* all borrowers are about to leave */
        take_locked(keeper);
    bool yielded = keeper->loop_owner != &keeper->exec;
    pthread_mutex_unlock(&keeper->mtx);
    return yielded;
}

static bool is_readable(const struct hfi_keeper *keeper) {
    struct pollfd fds[LOOP_OWNER_FDS];
    const struct table *table = keeper->table;
    size_t len = 0;
    fds[len++] = (struct pollfd){.fd = keeper->timer_fd, .events = POLLIN};
    for (size_t i = 0; i < table->polled_len; i++)
        if (table->polled[i] != NULL) {
            fds[len].fd = hfi_conn_poll_fd(table->polled[i], &fds[len].events);
            len++;
        }
    return hfi_poll(fds, len, 0, NULL) > 0;
}

/* The owner was named and has not come yet. */
static bool is_expected_locked(const struct hfi_keeper *keeper) {
    for (struct hfi_link *link = keeper->borrowers.next; link != &keeper->borrowers;
         link = link->next)
        if (HFI_CONTAINER(link, struct hfi_borrower, link) == keeper->loop_owner)
            return true;
    return false;
}

/* Has the borrower had something to do for STUCK_MS and not done it? */
static bool is_stuck_locked(struct hfi_keeper *keeper, int64_t now_ms) {
    unsigned polls = 0;
    bool wake_sent;
    bool idles =
        is_expected_locked(keeper) || (hfi_exec_is_polling(&keeper->exec, &polls, &wake_sent) &&
                                       (wake_sent || is_readable(keeper)));
    if (idles && keeper->stalled_since_ms != HFI_NEVER && keeper->stalled_polls == polls)
        return now_ms - keeper->stalled_since_ms >= STUCK_MS;
    keeper->stalled_polls = polls;
    keeper->stalled_since_ms = idles ? now_ms : HFI_NEVER;
    return false;
}

/* False: the borrower came back from its poll meanwhile, and keeps the loop. */
static bool preempt_locked(struct hfi_keeper *keeper) {
    if (!is_expected_locked(keeper)) {
        if (!hfi_exec_evict(&keeper->exec))
            return false;
        keeper->borrower_fd = -1; /* the preempted borrower owns it */
    }
    take_locked(keeper);
    return true;
}

static void idle_wait_locked(struct hfi_keeper *keeper, int64_t pause_ms) {
    struct hfi_exec *exec = &keeper->exec;
    keeper->checks_at_ms = hfi_now_ms() + pause_ms;
    int64_t until_ms = keeper->checks_at_ms;
    bool lies = hfi_exec_idle_begin(exec, keeper->loop_owner != NULL);
    pthread_mutex_unlock(&keeper->mtx);
    if (lies)
        hfi_exec_idle_wait(exec, until_ms);
    pthread_mutex_lock(&keeper->mtx);
    hfi_exec_idle_end(exec);
}

static int64_t pause_ms_locked(const struct hfi_keeper *keeper) {
    return keeper->stalled_since_ms != HFI_NEVER ? STUCK_MS : CHECK_MS;
}

/* While borrowers come and go the keeper checks every CHECK_SOON_MS; one that stays is checked
 * every CHECK_MS, because it wakes the keeper when it returns the loop. */
void hfi_loop_take_back(struct hfi_keeper *keeper) {
    pthread_mutex_lock(&keeper->mtx);
    unsigned seen = keeper->turns - 1;
    while (keeper->loop_owner != &keeper->exec) {
        bool quiet = seen == keeper->turns; /* no borrower took it since the last check */
        seen = keeper->turns;
        if (keeper->loop_owner == NULL &&
            (quiet || keeper->stopping || hfi_exec_has_work(&keeper->exec)))
            take_locked(keeper);
        else if (keeper->loop_owner == NULL || !is_stuck_locked(keeper, hfi_now_ms()) ||
                 !preempt_locked(keeper))
            idle_wait_locked(keeper, !quiet ? CHECK_SOON_MS : pause_ms_locked(keeper));
    }
    pthread_mutex_unlock(&keeper->mtx);
}
