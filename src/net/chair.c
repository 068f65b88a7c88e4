/*
 * The keeper's chair: who runs the keeper's executor, tends the connections and polls.
 *
 * A call on several servers, or of several locks, is work of the keeper from beginning to end. A synchronous
 * caller would wake the keeper to begin it, and be woken by it at the end, and both cost more than a round
 * trip. So it stands in for the keeper while it waits. Everything that belongs to the keeper's
 * thread belongs to whoever has the chair, and passes on with it under the keeper's mutex.
 *
 *   - A guest takes the chair if it is empty, or from the keeper while that polls. The keeper is kicked,
 *     finds that the chair is another's, touches nothing and lies down. Otherwise the guest waits in line.
 *   - It leaves when its call is over: to the next in line; else the chair is empty, since the same thread
 *     often comes again. The keeper looks at it soon, and takes it if nobody has used it since the last
 *     look. Until then answers that nobody waits for lie in their sockets; whatever is posted to the
 *     keeper wakes it at once.
 *   - A guest is a thread of the application, and may be stopped (see relief.c). While one has the chair
 *     the keeper looks now and then, and takes it away from one that has something to do and does not come
 *     back from its poll, or was named and does not come. Elsewhere it cannot be relieved, so handlers of
 *     signals, which need not return, run only while it polls.
 */
#include "net/keeper_impl.h"

#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_SOON_MS 2
#define LOOK_MS 200
#define STUCK_MS 100
#define RUN_MOST 64 /* of the keeper's tasks, before a guest looks after its own */

/* ---- Signals ---- */

/* What a thread brings upon itself is not put off. */
static void shield(struct hfi_guest *guest) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t all;
    if (guest->shielded)
        return;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&all, own[i]);
    guest->shielded = pthread_sigmask(SIG_BLOCK, &all, &guest->signals) == 0;
}

static void unshield(struct hfi_guest *guest) {
    if (guest->shielded)
        pthread_sigmask(SIG_SETMASK, &guest->signals, NULL);
    guest->shielded = false;
}

/* ---- Guests ---- */

static void seat_locked(struct hfi_keeper *keeper, const struct hfi_guest *guest) {
    keeper->sitter = guest;
    keeper->turns++;
    atomic_store_explicit(&keeper->sitting, 0, memory_order_relaxed); /* until it comes */
    hfi_exec_stand_in(&keeper->exec, true);
}

/* False: it has not got it, or has nothing that it could be kicked by. */
static bool comes_locked(struct hfi_keeper *keeper, struct hfi_guest *guest) {
    if (keeper->sitter != guest)
        return false;
    if (keeper->guest_fd < 0)
        keeper->guest_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    guest->kick_fd = keeper->guest_fd;
    hfi_list_remove(&guest->link);
    atomic_store_explicit(&keeper->sitting, (uintptr_t)pthread_self(), memory_order_relaxed);
    return guest->kick_fd >= 0;
}

/* The keeper polls more than a guest has room for, or is not there yet to take it back. */
static bool has_room_locked(const struct hfi_keeper *keeper) {
    return keeper->started && keeper->conns_room + 2 <= SITTER_FDS;
}

static bool sit_locked(struct hfi_keeper *keeper, struct hfi_guest *guest) {
    bool free = keeper->sitter == NULL ||
                (keeper->sitter == &keeper->exec && hfi_exec_displace(&keeper->exec));
    if (free)
        seat_locked(keeper, guest);
    return comes_locked(keeper, guest);
}

/* The chair goes to the next in line who has nothing else to do; or stays empty. */
static void pass_on_locked(struct hfi_keeper *keeper) {
    for (struct hfi_link *link = keeper->guests.next; link != &keeper->guests; link = link->next) {
        const struct hfi_guest *next = HFI_CONTAINER(link, struct hfi_guest, link);
        if (hfi_exec_has_work(next->exec))
            continue; /* it is about to go */
        seat_locked(keeper, next);
        hfi_exec_nudge(next->exec);
        return;
    }
    keeper->sitter = NULL;
    atomic_store_explicit(&keeper->sitting, 0, memory_order_relaxed);
    hfi_exec_stand_in(&keeper->exec, false);
    if (hfi_exec_has_work(&keeper->exec) || keeper->looks_at_ms > hfi_now_ms() + LOOK_SOON_MS)
        hfi_exec_nudge(&keeper->exec);
}

void hfi_keeper_sit(struct hfi_keeper *keeper, struct hfi_guest *guest) {
    shield(guest);
    pthread_mutex_lock(&keeper->mtx);
    bool seated = has_room_locked(keeper) && sit_locked(keeper, guest);
    if (!seated && keeper->sitter == guest)
        pass_on_locked(keeper);
    pthread_mutex_unlock(&keeper->mtx);
    if (!seated)
        unshield(guest);
}

/* Waits in line until there is something to do. */
static void wait_for_chair(struct hfi_keeper *keeper, struct hfi_guest *guest) {
    unshield(guest);
    hfi_exec_sleep(guest->exec);
    shield(guest);
    pthread_mutex_lock(&keeper->mtx);
    hfi_list_remove(&guest->link);
    bool named = keeper->sitter == guest;
    if (named && !comes_locked(keeper, guest))
        pass_on_locked(keeper);
    pthread_mutex_unlock(&keeper->mtx);
}

void hfi_keeper_attend(struct hfi_keeper *keeper, struct hfi_guest *guest) {
    struct pollfd fds[SITTER_FDS];
    shield(guest);
    pthread_mutex_lock(&keeper->mtx);
    bool room = has_room_locked(keeper);
    bool seated = room && (keeper->sitter == guest || sit_locked(keeper, guest));
    if (!seated && keeper->sitter == guest)
        pass_on_locked(keeper);
    else if (!seated && room)
        hfi_list_push_back(&keeper->guests, &guest->link);
    pthread_mutex_unlock(&keeper->mtx);
    if (!seated) {
        wait_for_chair(keeper, guest);
        return;
    }
    const struct sitter self = {.exec = guest->exec,
                                .kick_fd = guest->kick_fd,
                                .fds = fds,
                                .signals = guest->shielded ? &guest->signals : NULL};
    do
        hfi_exec_run_some(&keeper->exec, RUN_MOST);
    while (!hfi_exec_has_work(guest->exec) && hfi_keeper_go_round(keeper, &self));
}

void hfi_keeper_stand_up(struct hfi_keeper *keeper, struct hfi_guest *guest) {
    pthread_mutex_lock(&keeper->mtx);
    bool seated = keeper->sitter == guest;
    pthread_mutex_unlock(&keeper->mtx);
    if (seated) {
        hfi_exec_run_some(&keeper->exec, RUN_MOST); /* what its last step has left to do */
        hfi_keeper_write_all(keeper);
        pthread_mutex_lock(&keeper->mtx);
        pass_on_locked(keeper);
        pthread_mutex_unlock(&keeper->mtx);
    }
    unshield(guest);
}

/* A guest that has lost it keeps what it is kicked by, and ends that. */
bool hfi_chair_is_kept_locked(struct hfi_keeper *keeper, const struct sitter *sitter) {
    uint64_t count;
    if (hfi_keeper_is_self(keeper))
        return true;
    ssize_t got = read(sitter->kick_fd, &count, sizeof count);
    (void)got; /* it was kicked when it lost the chair */
    if (sitter->exec != NULL)
        close(sitter->kick_fd);
    return false;
}

/* ---- The keeper ---- */

static void take_locked(struct hfi_keeper *keeper) {
    keeper->sitter = &keeper->exec;
    keeper->idler_since_ms = HFI_NEVER;
    atomic_store_explicit(&keeper->sitting, (uintptr_t)pthread_self(), memory_order_relaxed);
}

bool hfi_chair_is_wanted_locked(const struct hfi_keeper *keeper) {
    if (keeper->stopping)
        return false;
    for (struct hfi_link *link = keeper->guests.next; link != &keeper->guests; link = link->next)
        if (!hfi_exec_has_work(HFI_CONTAINER(link, struct hfi_guest, link)->exec))
            return true; /* others are about to go */
    return false;
}

bool hfi_chair_yield(struct hfi_keeper *keeper) {
    pthread_mutex_lock(&keeper->mtx);
    if (hfi_chair_is_wanted_locked(keeper))
        pass_on_locked(keeper);
    if (keeper->sitter == NULL) /* they are all about to go */
        take_locked(keeper);
    bool yielded = keeper->sitter != &keeper->exec;
    pthread_mutex_unlock(&keeper->mtx);
    return yielded;
}

static bool has_news(const struct hfi_keeper *keeper) {
    struct pollfd fds[SITTER_FDS];
    const struct table *table = keeper->table;
    size_t len = 0;
    fds[len++] = (struct pollfd){.fd = keeper->timer_fd, .events = POLLIN};
    for (size_t i = 0; i < table->polled_len; i++)
        if (table->polled[i] != NULL) {
            fds[len].fd = hfi_conn_poll_fd(table->polled[i], &fds[len].events);
            len++;
        }
    return poll(fds, (nfds_t)len, 0) > 0;
}

/* It was named, and has not come. */
static bool is_expected_locked(const struct hfi_keeper *keeper) {
    for (struct hfi_link *link = keeper->guests.next; link != &keeper->guests; link = link->next)
        if (HFI_CONTAINER(link, struct hfi_guest, link) == keeper->sitter)
            return true;
    return false;
}

/* Has the guest had something to do for too long, and done nothing about it? */
static bool is_stuck_locked(struct hfi_keeper *keeper, int64_t now_ms) {
    unsigned polls = 0;
    bool kicked;
    bool idles =
        is_expected_locked(keeper) ||
        (hfi_exec_is_polling(&keeper->exec, &polls, &kicked) && (kicked || has_news(keeper)));
    if (idles && keeper->idler_since_ms != HFI_NEVER && keeper->idler_polls == polls)
        return now_ms - keeper->idler_since_ms >= STUCK_MS;
    keeper->idler_polls = polls;
    keeper->idler_since_ms = idles ? now_ms : HFI_NEVER;
    return false;
}

/* It may come back in this moment: then it keeps the chair. */
static bool relieve_locked(struct hfi_keeper *keeper) {
    if (!is_expected_locked(keeper)) {
        if (!hfi_exec_displace(&keeper->exec))
            return false;
        keeper->guest_fd = -1; /* that is the guest's now */
    }
    take_locked(keeper);
    return true;
}

static void doze_locked(struct hfi_keeper *keeper, int64_t pause_ms) {
    struct hfi_exec *exec = &keeper->exec;
    keeper->looks_at_ms = hfi_now_ms() + pause_ms;
    int64_t until_ms = keeper->looks_at_ms;
    bool lies = hfi_exec_lie_down(exec, keeper->sitter != NULL);
    pthread_mutex_unlock(&keeper->mtx);
    if (lies)
        hfi_exec_doze(exec, until_ms);
    pthread_mutex_lock(&keeper->mtx);
    hfi_exec_get_up(exec);
}

static int64_t pause_ms_locked(const struct hfi_keeper *keeper) {
    return keeper->idler_since_ms != HFI_NEVER ? STUCK_MS : LOOK_MS;
}

/* Guests that come and go are looked after closely, and one that stays now and then: when it leaves, it says
 * so. */
void hfi_chair_take_back(struct hfi_keeper *keeper) {
    pthread_mutex_lock(&keeper->mtx);
    unsigned seen = keeper->turns - 1;
    while (keeper->sitter != &keeper->exec) {
        bool quiet = seen == keeper->turns; /* nobody has taken it since the last look */
        seen = keeper->turns;
        if (keeper->sitter == NULL &&
            (quiet || keeper->stopping || hfi_exec_has_work(&keeper->exec)))
            take_locked(keeper);
        else if (keeper->sitter == NULL || !is_stuck_locked(keeper, hfi_now_ms()) ||
                 !relieve_locked(keeper))
            doze_locked(keeper, !quiet ? LOOK_SOON_MS : pause_ms_locked(keeper));
    }
    pthread_mutex_unlock(&keeper->mtx);
}
