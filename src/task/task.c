/*
 * Tasks and executors (see task.h).
 *
 * Lock order: task, then executor. No callback runs under either. A queued task holds a reference
 * to itself. So posting to a task is safe while the poster has a reference of its own.
 *
 * A thread sleeps on a futex in its executor. It is woken after all mutexes are unlocked. By then
 * it may have woken by itself and the executor may be gone. That is fine: the waker uses only the
 * address, as unlocking a mutex does. At worst another thread that waits on a futex there wakes
 * spuriously.
 *
 * Waking costs a system call only when the thread really sleeps: a running thread checks its queue
 * before it sleeps or polls. Clearing a timer wakes nobody. Setting one wakes the thread only if it
 * would sleep past it. So a lock taken and released a million times a second does not touch the
 * keeper.
 */
#include "task/task.h"

#include "base/clock.h"
#include "task/futex.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

/* The values of `asleep`, for the executor's own thread. */
enum { AWAKE, ASLEEP, BORROWED /* it sleeps, and a borrower runs the executor */ };

void hfi_exec_init(struct hfi_exec *exec) {
    *exec =
        (struct hfi_exec){.mtx = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1, .armed_ms = HFI_NEVER};
    hfi_list_init(&exec->ready);
}

void hfi_exec_destroy(struct hfi_exec *exec) {
    assert(hfi_list_empty(&exec->ready) && hfi_timers_first(&exec->timers) == NULL);
    pthread_mutex_destroy(&exec->mtx);
}

/* Signals work to the executor's thread. Returns the futex to wake once no mutex is held, or
 * NULL. */
static atomic_uint *wake_locked(struct hfi_exec *exec) {
    if (exec->wake_fd >= 0) {
        if (exec->wake_sent)
            return NULL;
        exec->wake_sent = true;
        uint64_t one = 1;
        ssize_t written = write(exec->wake_fd, &one, sizeof one);
        (void)written; /* an eventfd refuses only when it is readable already */
        return NULL;
    }
    if (atomic_load_explicit(&exec->asleep, memory_order_relaxed) != ASLEEP)
        return NULL;
    atomic_store_explicit(&exec->asleep, AWAKE, memory_order_relaxed);
    return &exec->asleep;
}

static void wake(atomic_uint *sleeper) {
    if (sleeper != NULL)
        hfi_futex_wake(sleeper, 1);
}

void hfi_wakes_flush(struct hfi_wakes *wakes) {
    for (unsigned i = 0; i < wakes->len; i++)
        wake(wakes->sleepers[i]);
    wakes->len = 0;
}

static int64_t first_timer_ms(const struct hfi_exec *exec) {
    const struct hfi_timer *first = hfi_timers_first(&exec->timers);
    return first != NULL ? first->at_ms : HFI_NEVER;
}

static bool timer_is_due(const struct hfi_exec *exec) {
    int64_t at_ms = first_timer_ms(exec);
    return at_ms != HFI_NEVER && at_ms <= hfi_now_ms();
}

static bool has_work_locked(const struct hfi_exec *exec) {
    return exec->woken || !hfi_list_empty(&exec->ready) || timer_is_due(exec);
}

bool hfi_exec_has_work(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    bool work = has_work_locked(exec);
    pthread_mutex_unlock(&exec->mtx);
    return work;
}

static void run_one(struct hfi_task *task) {
    pthread_mutex_lock(&task->mtx);
    unsigned events = task->events;
    task->events = 0;
    task->queued = false;
    pthread_mutex_unlock(&task->mtx);
    if (events != 0)
        task->run(task, events);
    hfi_task_unref(task); /* the queue's reference */
}

bool hfi_exec_run(struct hfi_exec *exec) {
    return hfi_exec_run_some(exec, UINT_MAX);
}

bool hfi_exec_run_some(struct hfi_exec *exec, unsigned most) {
    bool any = false, timers = true;
    pthread_mutex_lock(&exec->mtx);
    for (; most-- > 0; any = true) {
        if (timers && (timers = timer_is_due(exec))) {
            struct hfi_timer *first = hfi_timers_first(&exec->timers);
            hfi_timers_remove(&exec->timers, first);
            pthread_mutex_unlock(&exec->mtx);
            struct hfi_alarm *alarm = HFI_CONTAINER(first, struct hfi_alarm, timer);
            alarm->fire(alarm);
        } else {
            exec->woken = false;
            struct hfi_link *link = hfi_list_pop_front(&exec->ready);
            if (link == NULL)
                break;
            pthread_mutex_unlock(&exec->mtx);
            run_one(HFI_CONTAINER(link, struct hfi_task, link));
        }
        pthread_mutex_lock(&exec->mtx);
    }
    pthread_mutex_unlock(&exec->mtx);
    return any;
}

void hfi_exec_interrupted(struct hfi_exec *exec) {
    if (exec->on_signal != NULL)
        hfi_alarm_set(exec, exec->on_signal, hfi_now_ms());
}

void hfi_exec_sleep(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    while (!has_work_locked(exec)) {
        int64_t at_ms = first_timer_ms(exec);
        exec->armed_ms = at_ms;
        atomic_store_explicit(&exec->asleep, ASLEEP, memory_order_relaxed);
        pthread_mutex_unlock(&exec->mtx);
        if (hfi_futex_wait(&exec->asleep, ASLEEP, at_ms))
            hfi_exec_interrupted(exec);
        pthread_mutex_lock(&exec->mtx);
        atomic_store_explicit(&exec->asleep, AWAKE, memory_order_relaxed);
    }
    pthread_mutex_unlock(&exec->mtx);
}

/* Keeps an armed time even if its timer was cleared: the next timer is likely to be due at about
 * the same time, and then setting it wakes nobody. The thread wakes in vain at most once. */
static void arm_locked(struct hfi_exec *exec) {
    int64_t at_ms = first_timer_ms(exec);
    if (at_ms < exec->armed_ms || exec->armed_ms <= hfi_now_ms())
        exec->armed_ms = at_ms;
}

bool hfi_exec_poll_begin(struct hfi_exec *exec, int wake_fd, int64_t *ret_at_ms) {
    pthread_mutex_lock(&exec->mtx);
    bool poll = !has_work_locked(exec);
    if (poll) {
        exec->wake_fd = wake_fd;
        exec->wake_sent = false;
        exec->polls++;
        arm_locked(exec);
        *ret_at_ms = exec->armed_ms;
    }
    pthread_mutex_unlock(&exec->mtx);
    return poll;
}

bool hfi_exec_receive_begin(struct hfi_exec *exec, int wake_fd, int64_t far_ms) {
    if (!exec->undisturbed)
        return false;
    pthread_mutex_lock(&exec->mtx);
    int64_t at_ms = first_timer_ms(exec);
    bool begun = !exec->woken && hfi_list_empty(&exec->ready) &&
                 (at_ms == HFI_NEVER || at_ms - hfi_now_ms() >= far_ms);
    if (begun) {
        exec->wake_fd = wake_fd;
        exec->wake_sent = false;
        exec->receiving = true;
        exec->polls++;
        exec->armed_ms = at_ms;
    }
    pthread_mutex_unlock(&exec->mtx);
    return begun;
}

bool hfi_exec_poll_end(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    bool preempted = exec->preempted;
    if (preempted) {
        close(exec->wake_fd);
    } else if (exec->wake_sent) {
        uint64_t count;
        ssize_t got = read(exec->wake_fd, &count, sizeof count);
        (void)got; /* empty only if another thread drained it: nothing to do */
    }
    exec->wake_sent = exec->preempted = exec->receiving = false;
    exec->wake_fd = -1;
    pthread_mutex_unlock(&exec->mtx);
    return !preempted;
}

bool hfi_exec_is_polling(struct hfi_exec *exec, unsigned *ret_polls, bool *ret_wake_sent) {
    if (pthread_mutex_trylock(&exec->mtx) != 0)
        return false;
    bool polling = exec->wake_fd >= 0;
    *ret_polls = exec->polls;
    *ret_wake_sent = exec->wake_sent;
    pthread_mutex_unlock(&exec->mtx);
    return polling;
}

bool hfi_exec_is_receiving(struct hfi_exec *exec) {
    if (pthread_mutex_trylock(&exec->mtx) != 0)
        return false;
    bool receiving = exec->wake_fd >= 0 && exec->receiving;
    pthread_mutex_unlock(&exec->mtx);
    return receiving;
}

bool hfi_exec_preempt(struct hfi_exec *exec, unsigned polls, bool receiving) {
    if (pthread_mutex_trylock(&exec->mtx) != 0)
        return false;
    bool preempted = exec->wake_fd >= 0 && exec->polls == polls && exec->receiving == receiving;
    if (preempted) {
        exec->preempted = true;
        wake_locked(exec); /* if it is merely slow, it need not wait any longer */
    }
    pthread_mutex_unlock(&exec->mtx);
    return preempted;
}

bool hfi_exec_evict(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    bool polling = exec->wake_fd >= 0;
    if (polling)
        wake_locked(exec);
    exec->wake_sent = false;
    exec->wake_fd = -1;
    pthread_mutex_unlock(&exec->mtx);
    return polling;
}

bool hfi_exec_idle_begin(struct hfi_exec *exec, bool borrowed) {
    pthread_mutex_lock(&exec->mtx);
    bool lies = borrowed || !has_work_locked(exec);
    if (lies)
        atomic_store_explicit(&exec->asleep, borrowed ? BORROWED : ASLEEP, memory_order_relaxed);
    pthread_mutex_unlock(&exec->mtx);
    return lies;
}

void hfi_exec_idle_wait(struct hfi_exec *exec, int64_t until_ms) {
    unsigned how = atomic_load_explicit(&exec->asleep, memory_order_relaxed);
    if (how != AWAKE)
        hfi_futex_wait(&exec->asleep, how, until_ms);
}

void hfi_exec_idle_end(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    atomic_store_explicit(&exec->asleep, AWAKE, memory_order_relaxed);
    pthread_mutex_unlock(&exec->mtx);
}

void hfi_exec_set_borrowed(struct hfi_exec *exec, bool on) {
    pthread_mutex_lock(&exec->mtx);
    if (atomic_load_explicit(&exec->asleep, memory_order_relaxed) != AWAKE)
        atomic_store_explicit(&exec->asleep, on ? BORROWED : ASLEEP, memory_order_relaxed);
    pthread_mutex_unlock(&exec->mtx);
}

void hfi_exec_wake(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    exec->woken = true;
    atomic_uint *sleeper = wake_locked(exec);
    pthread_mutex_unlock(&exec->mtx);
    wake(sleeper);
}

bool hfi_exec_take_wake(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    exec->woken = false;
    bool work = has_work_locked(exec);
    pthread_mutex_unlock(&exec->mtx);
    return work;
}

void hfi_task_init(struct hfi_task *task, struct hfi_exec *exec,
                   void (*run)(struct hfi_task *, unsigned), void (*destroy)(struct hfi_task *)) {
    *task = (struct hfi_task){
        .refs = 1, .mtx = PTHREAD_MUTEX_INITIALIZER, .exec = exec, .run = run, .destroy = destroy};
}

void hfi_task_ref(struct hfi_task *task) {
    atomic_fetch_add_explicit(&task->refs, 1, memory_order_relaxed);
}

void hfi_task_unref(struct hfi_task *task) {
    if (atomic_fetch_sub_explicit(&task->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&task->mtx);
    task->destroy(task);
}

static atomic_uint *enqueue(struct hfi_task *task) {
    struct hfi_exec *exec = task->exec;
    pthread_mutex_lock(&exec->mtx);
    hfi_list_push_back(&exec->ready, &task->link);
    atomic_uint *sleeper = wake_locked(exec);
    pthread_mutex_unlock(&exec->mtx);
    return sleeper;
}

static atomic_uint *post(struct hfi_task *task, unsigned events) {
    atomic_uint *sleeper = NULL;
    pthread_mutex_lock(&task->mtx);
    task->events |= events;
    if (!task->queued && task->exec != NULL) {
        task->queued = true;
        hfi_task_ref(task);
        sleeper = enqueue(task);
    }
    pthread_mutex_unlock(&task->mtx);
    return sleeper;
}

void hfi_task_post(struct hfi_task *task, unsigned events) {
    wake(post(task, events));
}

void hfi_task_post_gathered(struct hfi_task *task, unsigned events, struct hfi_wakes *wakes) {
    atomic_uint *sleeper = post(task, events);
    if (sleeper == NULL)
        return;
    if (wakes->len == HFI_WAKES_MAX)
        hfi_wakes_flush(wakes);
    wakes->sleepers[wakes->len++] = sleeper;
}

void hfi_task_move(struct hfi_task *task, struct hfi_exec *exec) {
    pthread_mutex_lock(&task->mtx);
    if (task->queued) {
        pthread_mutex_lock(&task->exec->mtx);
        hfi_list_remove(&task->link);
        pthread_mutex_unlock(&task->exec->mtx);
    }
    task->exec = exec;
    atomic_uint *sleeper = task->queued ? enqueue(task) : NULL;
    pthread_mutex_unlock(&task->mtx);
    wake(sleeper);
}

void hfi_task_retire(struct hfi_task *task) {
    pthread_mutex_lock(&task->mtx);
    bool queued = task->queued;
    if (queued) {
        pthread_mutex_lock(&task->exec->mtx);
        hfi_list_remove(&task->link);
        pthread_mutex_unlock(&task->exec->mtx);
    }
    task->queued = false;
    task->exec = NULL;
    pthread_mutex_unlock(&task->mtx);
    if (queued)
        hfi_task_unref(task);
}

void hfi_alarm_set(struct hfi_exec *exec, struct hfi_alarm *alarm, int64_t at_ms) {
    atomic_uint *sleeper = NULL;
    pthread_mutex_lock(&exec->mtx);
    hfi_timers_remove(&exec->timers, &alarm->timer);
    if (at_ms != HFI_NEVER) {
        hfi_timers_add(&exec->timers, &alarm->timer, at_ms);
        if (at_ms < exec->armed_ms) {
            exec->armed_ms = at_ms;
            sleeper = wake_locked(exec);
        }
    }
    pthread_mutex_unlock(&exec->mtx);
    wake(sleeper);
}

bool hfi_alarm_clear(struct hfi_exec *exec, struct hfi_alarm *alarm) {
    pthread_mutex_lock(&exec->mtx);
    bool was_set = alarm->timer.set;
    hfi_timers_remove(&exec->timers, &alarm->timer);
    pthread_mutex_unlock(&exec->mtx);
    return was_set;
}
