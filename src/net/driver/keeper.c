/*
 * The keeper's thread: a poll loop over the connections it drives, its executor's tasks and its
 * timers.
 *
 * A synchronous caller may borrow the loop (keeper_borrow.c); then that caller is "this thread"
 * here.
 *
 * Timers use CLOCK_BOOTTIME through a timerfd: poll()'s own timeout stops while the machine is
 * suspended, and leases do not. `mtx` guards the list of connections. Connections are freed only on
 * this thread or after it has ended, so a round of the loop uses them without `mtx`.
 * hfi_keeper_add() also makes room in the keeper's table, so a round never needs memory.
 */
#include "net/driver/keeper_impl.h"

#include "base/poll.h"
#include "task/thread.h"

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
    hfi_free(keeper->mem, keeper->larger); /* no round has used it yet */
    keeper->larger = larger;
    return true;
}

int hfi_keeper_new(const struct hfi_mem *mem, struct hfi_keeper **ret, hf_error *error) {
    struct hfi_keeper *keeper = hfi_zalloc(mem, sizeof *keeper);
    if (keeper == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    keeper->mem = mem;
    keeper->timer_at_ms = HFI_NEVER;
    keeper->borrower_fd = -1;
    keeper->loop_owner = &keeper->exec;
    keeper->stalled_since_ms = HFI_NEVER;
    hfi_list_init(&keeper->borrowers);
    hfi_list_init(&keeper->gathered);
    hfi_exec_init(&keeper->exec);
    pthread_mutex_init(&keeper->mtx, NULL);
    make_room_locked(keeper); /* no other thread knows it yet */
    keeper->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    keeper->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (keeper->wake_fd < 0 || keeper->timer_fd < 0) {
        int sys_errno = errno;
        hfi_keeper_free(keeper);
        return hfi_fail_errno(error, HF_ESYS, sys_errno,
                              "cannot open a file descriptor for the client");
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
    if (keeper->wake_fd >= 0)
        close(keeper->wake_fd);
    if (keeper->timer_fd >= 0)
        close(keeper->timer_fd);
    if (keeper->borrower_fd >= 0)
        close(keeper->borrower_fd);
}

struct hfi_exec *hfi_keeper_exec(struct hfi_keeper *keeper) {
    return &keeper->exec;
}

bool hfi_keeper_is_self(struct hfi_keeper *keeper) {
    return atomic_load_explicit(&keeper->owner_thread, memory_order_relaxed) ==
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

/* Handling one connection may free another in the middle of a round. */
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

/* Copies the list of connections into the table for this round. */
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

/* Must the keeper poll this connection's socket? */
static bool is_ours(struct hfi_keeper *keeper, struct hfi_conn *conn) {
    pthread_mutex_lock(&conn->mtx);
    bool ours = conn->state == CONN_CONNECTING || conn->state == CONN_TLS ||
                conn->state == CONN_GREETING ||
                (conn->state == CONN_READY && conn->driver == &keeper->exec);
    if (ours && conn->state == CONN_READY && hfi_driver_yield_locked(conn))
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

/* Maintains all connections, and collects those that the keeper drives. */
static void maintain_all(struct hfi_keeper *keeper) {
    lay_table(keeper);
    struct table *table = keeper->table;
    for (size_t i = 0; i < table->conns_len; i++) {
        struct hfi_conn *conn = table->conns[i];
        if (conn == NULL)
            continue;
        hfi_conn_maintain(conn);
        if (!is_ours(keeper, conn))
            continue;
        hfi_conn_flush(conn);
        table->polled[table->polled_len++] = conn;
    }
}

/* In the order of the commands: an operation that gives back on several servers starts with the one
 * where others wait. */
void hfi_keeper_write_all(struct hfi_keeper *keeper) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&keeper->gathered)) != NULL)
        hfi_conn_flush(HFI_CONTAINER(link, struct hfi_conn, gathered));
}

static void fill_fds(const struct table *table, int wake_fd, int timer_fd, struct pollfd *fds) {
    fds[0] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = timer_fd, .events = POLLIN};
    for (size_t i = 0; i < table->polled_len; i++) {
        fds[2 + i] = (struct pollfd){.fd = -1};
        if (table->polled[i] != NULL)
            fds[2 + i].fd = hfi_conn_poll_fd(table->polled[i], &fds[2 + i].events);
    }
}

/* False: there is something to run. */
static bool begin_poll(struct hfi_keeper *keeper, const struct loop_owner *loop_owner) {
    int64_t at_ms, own_at_ms = HFI_NEVER;
    pthread_mutex_lock(&keeper->mtx);
    bool yields = loop_owner->exec == NULL &&
                  hfi_loop_is_wanted_locked(keeper); /* by a borrower that has just come */
    bool begun = !yields && hfi_exec_poll_begin(&keeper->exec, loop_owner->wake_fd, &at_ms);
    if (begun && loop_owner->exec != NULL &&
        !hfi_exec_poll_begin(loop_owner->exec, loop_owner->wake_fd, &own_at_ms)) {
        hfi_exec_poll_end(&keeper->exec);
        begun = false;
    }
    if (begun) { /* before another thread can take the loop */
        arm_timer(keeper, hfi_min_ms(at_ms, own_at_ms));
        keeper->unpolled = 0;
    }
    pthread_mutex_unlock(&keeper->mtx);
    return begun;
}

static bool end_poll(struct hfi_keeper *keeper, const struct loop_owner *loop_owner) {
    if (loop_owner->exec != NULL)
        hfi_exec_poll_end(loop_owner->exec);
    pthread_mutex_lock(&keeper->mtx);
    bool kept = hfi_loop_is_owned_locked(keeper, loop_owner);
    if (kept)
        hfi_exec_poll_end(&keeper->exec);
    pthread_mutex_unlock(&keeper->mtx);
    return kept;
}

static void serve(struct table *table, const struct pollfd *fds, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (fds[i + 2].revents != 0 && table->polled[i] != NULL)
            hfi_conn_on_ready(table->polled[i], fds[i + 2].revents);
}

/* The executor has work, so this round does not wait. Work may arrive as fast as it is run, so
 * every UNPOLLED_MOST rounds poll without waiting: replies, of renewals for instance, must not
 * starve. */
static void poll_now_and_then(struct hfi_keeper *keeper, struct pollfd *fds, size_t len) {
    if (++keeper->unpolled < UNPOLLED_MOST)
        return;
    keeper->unpolled = 0;
    if (hfi_poll(fds, len + 2, 0, NULL) > 0)
        serve(keeper->table, fds, len);
}

bool hfi_keeper_run_once(struct hfi_keeper *keeper, const struct loop_owner *loop_owner) {
    hfi_keeper_write_all(keeper);
    maintain_all(keeper);
    struct table *table = keeper->table;
    bool room = table->room + 2 <= LOOP_OWNER_FDS;
    if (!room && loop_owner->exec != NULL)
        return false; /* more connections than when it borrowed the loop */
    struct pollfd *fds = room ? loop_owner->fds : table->fds;
    size_t len = table->polled_len;
    fill_fds(table, loop_owner->wake_fd, keeper->timer_fd, fds);
    if (!begin_poll(keeper, loop_owner)) {
        poll_now_and_then(keeper, fds, len);
        return true;
    }
    if (hfi_poll(fds, len + 2, -1, loop_owner->signals) < 0 && errno == EINTR &&
        loop_owner->exec != NULL)
        hfi_exec_interrupted(loop_owner->exec);
    if (!end_poll(keeper, loop_owner))
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
    struct pollfd fds[LOOP_OWNER_FDS];
    const struct loop_owner self = {.wake_fd = keeper->wake_fd, .fds = fds};
    pthread_setname_np(pthread_self(), "holdfast-keeper");
    atomic_store(&keeper->owner_thread, (uintptr_t)pthread_self());
    for (;;) {
        /* Running the tasks consumes the wake-up of hfi_keeper_stop(), so check for it in
         * between. */
        hfi_exec_run_some(&keeper->exec, RUN_MOST);
        if (should_stop(keeper))
            break;
        if (hfi_loop_lend(keeper) || !hfi_keeper_run_once(keeper, &self))
            hfi_loop_take_back(keeper);
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
    return failure == 0
               ? HF_OK
               : hfi_fail_errno(error, HF_ESYS, failure, "cannot start a thread for the client");
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
    hfi_exec_wake(&keeper->exec);
    pthread_join(keeper->thread, NULL);
}
