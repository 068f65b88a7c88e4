/*
 * The keeper's thread: a poll loop over the connections whose seat it holds, its executor's tasks
 * and timers. A caller may run the loop in its place (chair.c); then that is "this thread" here.
 *
 * Timers are on CLOCK_BOOTTIME through a timerfd, because poll()'s own timeout stops while the
 * machine sleeps and leases do not. The list of connections is guarded by `mtx`; connections are
 * freed only on this thread or after it has ended, so a round of the loop can use them without it.
 * Whoever adds one makes room for it on the keeper's table, too, so a round never lacks memory.
 */
#include "net/keeper_impl.h"

#include "base/thread.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define RUN_MOST 1000   /* tasks and alarms in one round */
#define UNPOLLED_MOST 8 /* rounds */
#define FIRST_ROOM 8

static struct table *new_table(const struct hfi_mem *mem, size_t room) {
    struct table *table = hfi_alloc(mem, sizeof *table + 2 * room * sizeof(struct hfi_conn *) +
                                             (room + 2) * sizeof(struct pollfd));
    if (table == NULL)
        return NULL;
    table->room = room;
    table->conns_len = table->polled_len = 0;
    table->conns = (struct hfi_conn **)(table + 1);
    table->polled = table->conns + room;
    table->fds = (struct pollfd *)(table->polled + room);
    return table;
}

/* False: out of memory, and nothing has changed. */
static bool make_room_locked(struct hfi_keeper *keeper) {
    if (keeper->conns_len < keeper->conns_room)
        return true;
    size_t room = keeper->conns_room == 0 ? FIRST_ROOM : 2 * keeper->conns_room;
    struct table *larger = new_table(keeper->mem, room);
    struct hfi_conn **conns =
        larger != NULL ? hfi_realloc(keeper->mem, keeper->conns, room * sizeof(struct hfi_conn *))
                       : NULL;
    if (conns == NULL) {
        hfi_free(keeper->mem, larger);
        return false;
    }
    keeper->conns = conns;
    keeper->conns_room = room;
    hfi_free(keeper->mem, keeper->larger); /* of which no round has known */
    keeper->larger = larger;
    return true;
}

int hfi_keeper_new(const struct hfi_mem *mem, struct hfi_keeper **ret, hf_error *error) {
    struct hfi_keeper *keeper = hfi_zalloc(mem, sizeof *keeper);
    if (keeper == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    keeper->mem = mem;
    keeper->timer_at_ms = HFI_NEVER;
    keeper->guest_fd = -1;
    keeper->sitter = &keeper->exec;
    keeper->idler_since_ms = HFI_NEVER;
    hfi_list_init(&keeper->guests);
    hfi_list_init(&keeper->gathered);
    hfi_exec_init(&keeper->exec);
    pthread_mutex_init(&keeper->mtx, NULL);
    make_room_locked(keeper); /* nobody else knows it yet */
    keeper->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    keeper->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (keeper->kick_fd < 0 || keeper->timer_fd < 0) {
        int sys_errno = errno;
        hfi_keeper_free(keeper);
        return hfi_fail_errno(error, HF_ESYS, sys_errno, "no descriptors for a client");
    }
    if (keeper->larger == NULL) {
        hfi_keeper_free(keeper);
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    }
    *ret = keeper;
    return HF_OK;
}

void hfi_keeper_free(struct hfi_keeper *keeper) {
    if (keeper == NULL)
        return;
    hfi_keeper_close_fds(keeper);
    hfi_exec_destroy(&keeper->exec);
    pthread_mutex_destroy(&keeper->mtx);
    hfi_free(keeper->mem, keeper->conns);
    hfi_free(keeper->mem, keeper->larger);
    hfi_free(keeper->mem, keeper->table);
    hfi_free(keeper->mem, keeper);
}

void hfi_keeper_close_fds(struct hfi_keeper *keeper) {
    if (keeper->kick_fd >= 0)
        close(keeper->kick_fd);
    if (keeper->timer_fd >= 0)
        close(keeper->timer_fd);
    if (keeper->guest_fd >= 0)
        close(keeper->guest_fd);
}

struct hfi_exec *hfi_keeper_exec(struct hfi_keeper *keeper) {
    return &keeper->exec;
}

bool hfi_keeper_is_self(struct hfi_keeper *keeper) {
    return atomic_load_explicit(&keeper->sitting, memory_order_relaxed) ==
           (uintptr_t)pthread_self();
}

void hfi_keeper_gathers(struct hfi_keeper *keeper, struct hfi_conn *conn) {
    if (!hfi_linked(&conn->gathered))
        hfi_list_push_back(&keeper->gathered, &conn->gathered);
}

bool hfi_keeper_add(struct hfi_keeper *keeper, struct hfi_conn *conn) {
    pthread_mutex_lock(&keeper->mtx);
    bool added = make_room_locked(keeper);
    if (added)
        keeper->conns[keeper->conns_len++] = conn;
    pthread_mutex_unlock(&keeper->mtx);
    return added;
}

/* What happens to one connection may end another, and this round is not over. */
static void clear_from_table(struct table *table, const struct hfi_conn *conn) {
    for (size_t i = 0; i < table->conns_len; i++)
        if (table->conns[i] == conn)
            table->conns[i] = NULL;
    for (size_t i = 0; i < table->polled_len; i++)
        if (table->polled[i] == conn)
            table->polled[i] = NULL;
}

void hfi_keeper_remove(struct hfi_keeper *keeper, struct hfi_conn *conn) {
    pthread_mutex_lock(&keeper->mtx);
    for (size_t i = 0; i < keeper->conns_len; i++)
        if (keeper->conns[i] == conn) {
            keeper->conns[i] = keeper->conns[--keeper->conns_len];
            break;
        }
    pthread_mutex_unlock(&keeper->mtx);
    hfi_list_remove(&conn->gathered);
    if (keeper->table != NULL)
        clear_from_table(keeper->table, conn);
}

/* Puts all connections on the table, of which there may be more than in the last round. */
static void lay_table(struct hfi_keeper *keeper) {
    pthread_mutex_lock(&keeper->mtx);
    if (keeper->larger != NULL) {
        hfi_free(keeper->mem, keeper->table);
        keeper->table = keeper->larger;
        keeper->larger = NULL;
    }
    struct table *table = keeper->table;
    table->conns_len = keeper->conns_len;
    table->polled_len = 0;
    memcpy(table->conns, keeper->conns, table->conns_len * sizeof(struct hfi_conn *));
    pthread_mutex_unlock(&keeper->mtx);
}

/* Does the keeper have to watch this connection's socket? */
static bool is_ours(struct hfi_keeper *keeper, struct hfi_conn *conn) {
    pthread_mutex_lock(&conn->mtx);
    bool ours = conn->state == CONN_CONNECTING || conn->state == CONN_TLS ||
                conn->state == CONN_GREETING ||
                (conn->state == CONN_READY && conn->driver == &keeper->exec);
    if (ours && conn->state == CONN_READY && hfi_seat_yield_locked(conn))
        ours = false;
    pthread_mutex_unlock(&conn->mtx);
    return ours;
}

static void arm_timer(struct hfi_keeper *keeper, int64_t at_ms) {
    if (at_ms == keeper->timer_at_ms)
        return;
    struct itimerspec spec = {{0, 0}, {0, 0}};
    if (at_ms != HFI_NEVER) {
        int64_t when_ms = at_ms > 0 ? at_ms : 1;
        spec.it_value.tv_sec = when_ms / 1000;
        spec.it_value.tv_nsec = (when_ms % 1000) * 1000000;
    }
    timerfd_settime(keeper->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
    keeper->timer_at_ms = at_ms;
}

/* Tends all connections, and finds those that are the keeper's to drive. */
static void tend_all(struct hfi_keeper *keeper) {
    lay_table(keeper);
    struct table *table = keeper->table;
    for (size_t i = 0; i < table->conns_len; i++) {
        struct hfi_conn *conn = table->conns[i];
        if (conn == NULL)
            continue;
        hfi_conn_tend(conn);
        if (!is_ours(keeper, conn))
            continue;
        hfi_conn_flush(conn);
        table->polled[table->polled_len++] = conn;
    }
}

/* In the order in which they were made: who gives something back begins where others wait for it. */
void hfi_keeper_write_all(struct hfi_keeper *keeper) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&keeper->gathered)) != NULL)
        hfi_conn_flush(HFI_CONTAINER(link, struct hfi_conn, gathered));
}

static void fill_fds(const struct table *table, int kick_fd, int timer_fd, struct pollfd *fds) {
    fds[0] = (struct pollfd){.fd = kick_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = timer_fd, .events = POLLIN};
    for (size_t i = 0; i < table->polled_len; i++) {
        fds[2 + i] = (struct pollfd){.fd = -1};
        if (table->polled[i] != NULL)
            fds[2 + i].fd = hfi_conn_poll_fd(table->polled[i], &fds[2 + i].events);
    }
}

/* False: there is something to run. */
static bool begin_poll(struct hfi_keeper *keeper, const struct sitter *sitter) {
    int64_t at_ms, own_at_ms = HFI_NEVER;
    pthread_mutex_lock(&keeper->mtx);
    bool yields =
        sitter->exec == NULL && hfi_chair_is_wanted_locked(keeper); /* by one who has just come */
    bool begun = !yields && hfi_exec_poll_begin(&keeper->exec, sitter->kick_fd, &at_ms);
    if (begun && sitter->exec != NULL &&
        !hfi_exec_poll_begin(sitter->exec, sitter->kick_fd, &own_at_ms)) {
        hfi_exec_poll_end(&keeper->exec);
        begun = false;
    }
    if (begun) { /* before the chair can be another's */
        arm_timer(keeper, hfi_min_ms(at_ms, own_at_ms));
        keeper->unpolled = 0;
    }
    pthread_mutex_unlock(&keeper->mtx);
    return begun;
}

static bool end_poll(struct hfi_keeper *keeper, const struct sitter *sitter) {
    if (sitter->exec != NULL)
        hfi_exec_poll_end(sitter->exec);
    pthread_mutex_lock(&keeper->mtx);
    bool kept = hfi_chair_is_kept_locked(keeper, sitter);
    if (kept)
        hfi_exec_poll_end(&keeper->exec);
    pthread_mutex_unlock(&keeper->mtx);
    return kept;
}

static void serve(struct table *table, const struct pollfd *fds, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (fds[i + 2].revents != 0 && table->polled[i] != NULL)
            hfi_conn_service(table->polled[i], fds[i + 2].revents);
}

/* There is something to run, and so nothing to wait for. But that may never end, if it comes as fast as it is
 * run: answers that lie there, of renewals for instance, must not wait for it. */
static void look_now_and_then(struct hfi_keeper *keeper, struct pollfd *fds, size_t len) {
    if (++keeper->unpolled < UNPOLLED_MOST)
        return;
    keeper->unpolled = 0;
    if (poll(fds, (nfds_t)len + 2, 0) > 0)
        serve(keeper->table, fds, len);
}

bool hfi_keeper_go_round(struct hfi_keeper *keeper, const struct sitter *sitter) {
    hfi_keeper_write_all(keeper);
    tend_all(keeper);
    struct table *table = keeper->table;
    bool room = table->room + 2 <= SITTER_FDS;
    if (!room && sitter->exec != NULL)
        return false; /* there are more of them than when it sat down */
    struct pollfd *fds = room ? sitter->fds : table->fds;
    size_t len = table->polled_len;
    fill_fds(table, sitter->kick_fd, keeper->timer_fd, fds);
    if (!begin_poll(keeper, sitter)) {
        look_now_and_then(keeper, fds, len);
        return true;
    }
    ppoll(fds, (nfds_t)len + 2, NULL, sitter->signals);
    if (!end_poll(keeper, sitter))
        return false;
    if (fds[1].revents != 0) {
        uint64_t expirations;
        ssize_t got = read(keeper->timer_fd, &expirations, sizeof expirations);
        (void)got;
        keeper->timer_at_ms = HFI_NEVER;
    }
    serve(table, fds, len);
    return true;
}

static bool should_stop(struct hfi_keeper *keeper) {
    pthread_mutex_lock(&keeper->mtx);
    bool stop = keeper->stopping;
    pthread_mutex_unlock(&keeper->mtx);
    return stop;
}

static void *keeper_main(void *arg) {
    struct hfi_keeper *keeper = arg;
    struct pollfd fds[SITTER_FDS];
    const struct sitter self = {.kick_fd = keeper->kick_fd, .fds = fds};
    pthread_setname_np(pthread_self(), "holdfast-keeper");
    atomic_store(&keeper->sitting, (uintptr_t)pthread_self());
    for (;;) {
        /* Running the tasks consumes the nudge that tells us to stop, so this is checked in
         * between. */
        hfi_exec_run_some(&keeper->exec, RUN_MOST);
        if (should_stop(keeper))
            break;
        if (hfi_chair_yield(keeper) || !hfi_keeper_go_round(keeper, &self))
            hfi_chair_take_back(keeper);
    }
    if (keeper->last != NULL)
        keeper->last(keeper->last_arg);
    hfi_exec_run(&keeper->exec);
    return NULL;
}

int hfi_keeper_start(struct hfi_keeper *keeper, hf_error *error) {
    int failure = 0;
    pthread_mutex_lock(&keeper->mtx);
    if (!keeper->started) {
        keeper->started = true;
        failure = hfi_thread_start(&keeper->thread, keeper_main, keeper);
        if (failure != 0)
            keeper->started = false;
    }
    pthread_mutex_unlock(&keeper->mtx);
    return failure == 0 ? HF_OK : hfi_fail_errno(error, HF_ESYS, failure, "no thread for a client");
}

void hfi_keeper_stop(struct hfi_keeper *keeper, void (*last)(void *arg), void *arg) {
    pthread_mutex_lock(&keeper->mtx);
    bool started = keeper->started;
    keeper->stopping = true;
    keeper->last = last;
    keeper->last_arg = arg;
    pthread_mutex_unlock(&keeper->mtx);
    if (!started) {
        if (last != NULL)
            last(arg);
        return;
    }
    hfi_exec_nudge(&keeper->exec);
    pthread_join(keeper->thread, NULL);
}
