/*
 * Tasks and executors. See the header for what they are.
 *
 * Lock order: task, then executor. No callback runs under either. A queued task holds a reference
 * to itself, so posting to a task that is about to go is safe as long as the poster has a reference
 * of its own.
 *
 * A thread sleeps on a futex in its executor and is woken after all mutexes are free. By then it
 * may have woken by itself and the executor may be gone; that is fine, because the waker uses its
 * address only, as unlocking a mutex does: at worst somebody else who waits on a futex there wakes
 * for nothing.
 *
 * Waking costs a system call only when the thread really sleeps: a thread that is running looks at
 * its queue before it sleeps or polls. Clearing a timer wakes nobody, and setting one wakes the
 * thread only if it would sleep past it; so a lock taken and released a million times a second does
 * not touch the keeper.
 */
#include "base/task.h"

#include "base/clock.h"
#include "base/futex.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

/* What `asleep` says of the executor's own thread. */
enum { AWAKE, ASLEEP, STOOD_IN_FOR /* it sleeps, and another runs what there is */ };

void hfi_exec_init(struct hfi_exec *exec) {
    *exec =
        (struct hfi_exec){.mtx = PTHREAD_MUTEX_INITIALIZER, .kick_fd = -1, .armed_ms = HFI_NEVER};
    hfi_list_init(&exec->ready);
}

void hfi_exec_destroy(struct hfi_exec *exec) {
    assert(hfi_list_empty(&exec->ready) && hfi_timers_first(&exec->timers) == NULL);
    pthread_mutex_destroy(&exec->mtx);
}

/* Tells the executor's thread that there is something to do. Returns whom to wake once no mutex is
 * held any more, or NULL. */
static atomic_uint *rouse_locked(struct hfi_exec *exec) {
    if (exec->kick_fd >= 0) {
        if (exec->kicked)
            return NULL;
        exec->kicked = true;
        uint64_t one = 1;
        ssize_t written = write(exec->kick_fd, &one, sizeof one);
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
    return exec->nudged || !hfi_list_empty(&exec->ready) || timer_is_due(exec);
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
            exec->nudged = false;
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

void hfi_exec_sleep(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    while (!has_work_locked(exec)) {
        int64_t at_ms = first_timer_ms(exec);
        exec->armed_ms = at_ms;
        atomic_store_explicit(&exec->asleep, ASLEEP, memory_order_relaxed);
        pthread_mutex_unlock(&exec->mtx);
        hfi_futex_wait(&exec->asleep, ASLEEP, at_ms);
        pthread_mutex_lock(&exec->mtx);
        atomic_store_explicit(&exec->asleep, AWAKE, memory_order_relaxed);
    }
    pthread_mutex_unlock(&exec->mtx);
}

/* A time that was chosen stays, even if its timer was cleared: the next one is likely to be set for
 * about the same time again, and then nobody has to wake this thread to tell it. It wakes for
 * nothing at most once. */
static void arm_locked(struct hfi_exec *exec) {
    int64_t at_ms = first_timer_ms(exec);
    if (at_ms < exec->armed_ms || exec->armed_ms <= hfi_now_ms())
        exec->armed_ms = at_ms;
}

bool hfi_exec_poll_begin(struct hfi_exec *exec, int kick_fd, int64_t *ret_at_ms) {
    pthread_mutex_lock(&exec->mtx);
    bool poll = !has_work_locked(exec);
    if (poll) {
        exec->kick_fd = kick_fd;
        exec->kicked = false;
        exec->polls++;
        arm_locked(exec);
        *ret_at_ms = exec->armed_ms;
    }
    pthread_mutex_unlock(&exec->mtx);
    return poll;
}

bool hfi_exec_receive_begin(struct hfi_exec *exec, int kick_fd, int64_t far_ms) {
    if (!exec->undisturbed)
        return false;
    pthread_mutex_lock(&exec->mtx);
    int64_t at_ms = first_timer_ms(exec);
    bool begun = !exec->nudged && hfi_list_empty(&exec->ready) &&
                 (at_ms == HFI_NEVER || at_ms - hfi_now_ms() >= far_ms);
    if (begun) {
        exec->kick_fd = kick_fd;
        exec->kicked = false;
        exec->receiving = true;
        exec->polls++;
        exec->armed_ms = at_ms;
    }
    pthread_mutex_unlock(&exec->mtx);
    return begun;
}

bool hfi_exec_poll_end(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    bool relieved = exec->relieved;
    if (relieved) {
        close(exec->kick_fd);
    } else if (exec->kicked) {
        uint64_t count;
        ssize_t got = read(exec->kick_fd, &count, sizeof count);
        (void)got; /* empty only if somebody else drained it: nothing to do */
    }
    exec->kicked = exec->relieved = exec->receiving = false;
    exec->kick_fd = -1;
    pthread_mutex_unlock(&exec->mtx);
    return !relieved;
}

bool hfi_exec_is_polling(struct hfi_exec *exec, unsigned *ret_polls, bool *ret_kicked) {
    if (pthread_mutex_trylock(&exec->mtx) != 0)
        return false;
    bool polling = exec->kick_fd >= 0;
    *ret_polls = exec->polls;
    *ret_kicked = exec->kicked;
    pthread_mutex_unlock(&exec->mtx);
    return polling;
}

bool hfi_exec_is_receiving(struct hfi_exec *exec) {
    if (pthread_mutex_trylock(&exec->mtx) != 0)
        return false;
    bool receiving = exec->kick_fd >= 0 && exec->receiving;
    pthread_mutex_unlock(&exec->mtx);
    return receiving;
}

bool hfi_exec_relieve(struct hfi_exec *exec, unsigned polls, bool receiving) {
    if (pthread_mutex_trylock(&exec->mtx) != 0)
        return false;
    bool relieved = exec->kick_fd >= 0 && exec->polls == polls && exec->receiving == receiving;
    if (relieved) {
        exec->relieved = true;
        rouse_locked(exec); /* if it is only slow, it has nothing to wait for any more */
    }
    pthread_mutex_unlock(&exec->mtx);
    return relieved;
}

bool hfi_exec_displace(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    bool polling = exec->kick_fd >= 0;
    if (polling)
        rouse_locked(exec);
    exec->kicked = false;
    exec->kick_fd = -1;
    pthread_mutex_unlock(&exec->mtx);
    return polling;
}

bool hfi_exec_lie_down(struct hfi_exec *exec, bool stood_in_for) {
    pthread_mutex_lock(&exec->mtx);
    bool lies = stood_in_for || !has_work_locked(exec);
    if (lies)
        atomic_store_explicit(&exec->asleep, stood_in_for ? STOOD_IN_FOR : ASLEEP,
                              memory_order_relaxed);
    pthread_mutex_unlock(&exec->mtx);
    return lies;
}

void hfi_exec_doze(struct hfi_exec *exec, int64_t until_ms) {
    unsigned how = atomic_load_explicit(&exec->asleep, memory_order_relaxed);
    if (how != AWAKE)
        hfi_futex_wait(&exec->asleep, how, until_ms);
}

void hfi_exec_get_up(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    atomic_store_explicit(&exec->asleep, AWAKE, memory_order_relaxed);
    pthread_mutex_unlock(&exec->mtx);
}

void hfi_exec_stand_in(struct hfi_exec *exec, bool on) {
    pthread_mutex_lock(&exec->mtx);
    if (atomic_load_explicit(&exec->asleep, memory_order_relaxed) != AWAKE)
        atomic_store_explicit(&exec->asleep, on ? STOOD_IN_FOR : ASLEEP, memory_order_relaxed);
    pthread_mutex_unlock(&exec->mtx);
}

void hfi_exec_nudge(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    exec->nudged = true;
    atomic_uint *sleeper = rouse_locked(exec);
    pthread_mutex_unlock(&exec->mtx);
    wake(sleeper);
}

bool hfi_exec_unnudge(struct hfi_exec *exec) {
    pthread_mutex_lock(&exec->mtx);
    exec->nudged = false;
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
    atomic_uint *sleeper = rouse_locked(exec);
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
            sleeper = rouse_locked(exec);
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
