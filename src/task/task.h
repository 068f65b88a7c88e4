/*
 * Tasks and executors: all asynchronous work is written as tasks.
 *
 * A task is a state machine with a mailbox of event bits. An executor is a thread's run queue. Any
 * thread may post bits to a task. The task's `run` is called with them on its executor's thread,
 * never concurrently with itself. So a state machine needs no locks for its own state.
 *
 * Executors: the calling thread of a synchronous verb (a `struct hfi_exec` on its stack), the
 * client's keeper thread, and the dispatcher of asynchronous operations. A task can be moved, e.g.
 * to the keeper when its caller stops waiting.
 */
#ifndef HFI_TASK_TASK_H
#define HFI_TASK_TASK_H

#include "base/list.h"
#include "task/timer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct hfi_exec {
    pthread_mutex_t mtx; /* guards everything below */
    /* a futex: 1 while its thread sleeps and was not woken; 2 while it sleeps and a borrower
     * runs it */
    atomic_uint asleep;
    struct hfi_link ready;
    struct hfi_timers timers;
    int64_t armed_ms; /* its thread checks the timers by then at the latest */
    int wake_fd;      /* an eventfd its thread polls right now, else -1 */
    bool wake_sent;   /* wake_fd was written to since */
    bool woken;       /* hfi_exec_wake() was called since its thread last checked */
    bool preempted;   /* hfi_exec_preempt() was called during this poll */
    /* its thread is in recv() instead of a poll: no wake-up reaches it, and it may take bytes */
    bool receiving;
    /* nothing can cancel its tasks: only their results, timers and hf_close() reach them */
    bool undisturbed;
    unsigned polls; /* begun so far */
    /* fires at once when a signal interrupts its thread; NULL: none. Not guarded: its thread's */
    struct hfi_alarm *on_signal;
};

/* Threads to wake: collected while the caller holds a mutex, and woken after it is unlocked.
 * Otherwise each would wake up only to wait for that mutex. */
#define HFI_WAKES_MAX 64
struct hfi_wakes {
    unsigned len;
    atomic_uint *sleepers[HFI_WAKES_MAX];
};

struct hfi_task {
    /* its creator, an executor while it is queued, requests and wants that will post to it,
     * records of threads whose end it watches for */
    atomic_int refs;
    bool queued;                   /* in exec->ready */
    unsigned events;               /* the mailbox */
    pthread_mutex_t mtx;           /* guards exec, events and queued */
    struct hfi_exec *_Atomic exec; /* also read without it, to see if the task has moved */
    struct hfi_link link;
    void (*run)(struct hfi_task *task, unsigned events);
    void (*destroy)(struct hfi_task *task); /* when the last reference goes */
};

/* A timer that calls `fire` on its executor's thread, with no mutex held. */
struct hfi_alarm {
    struct hfi_timer timer;
    void (*fire)(struct hfi_alarm *alarm);
};

void hfi_exec_init(struct hfi_exec *exec);
void hfi_exec_destroy(struct hfi_exec *exec);

/* Runs all that is due, timers first. Only on the executor's thread. Returns whether anything
 * ran. */
bool hfi_exec_run(struct hfi_exec *exec);
/* The same, but at most so many. */
bool hfi_exec_run_some(struct hfi_exec *exec, unsigned most);

/* Whether hfi_exec_run() would do something. */
bool hfi_exec_has_work(struct hfi_exec *exec);

/* A signal has interrupted the sleep, poll or recv() of its thread. On that thread. */
void hfi_exec_interrupted(struct hfi_exec *exec);

/* Sleeps until there is something to run, or hfi_exec_wake(). */
void hfi_exec_sleep(struct hfi_exec *exec);

/* Before and after a poll() that includes `wake_fd`: after begin, posts write to it. begin
 * returns false if there is work already: do not poll. Otherwise *ret_at_ms is when the next
 * timer is due. */
bool hfi_exec_poll_begin(struct hfi_exec *exec, int wake_fd, int64_t *ret_at_ms);
/* The same before a short recv() that no wake-up ends. Also false if the executor is not
 * `undisturbed`, or has a timer due within `far_ms`; then poll instead. */
bool hfi_exec_receive_begin(struct hfi_exec *exec, int wake_fd, int64_t far_ms);
/* False: this thread was preempted meanwhile, and must not touch what it has polled. */
bool hfi_exec_poll_end(struct hfi_exec *exec);

/* Is its thread between begin and end? Then *ret_polls counts the polls, this one included, and
 * *ret_wake_sent tells whether it was woken and has not returned. Any thread. Also false if the
 * mutex is taken, since its thread may be stopped anywhere. */
bool hfi_exec_is_polling(struct hfi_exec *exec, unsigned *ret_polls, bool *ret_wake_sent);
/* The same for a wait that was begun by hfi_exec_receive_begin(). */
bool hfi_exec_is_receiving(struct hfi_exec *exec);
/* Its thread does not return from that poll: another thread polls in its place from now on. The
 * preempted thread keeps `wake_fd` and closes it when it returns. `receiving`: it is in recv()
 * instead, and may have taken bytes. False: it has returned, or `receiving` is wrong. */
bool hfi_exec_preempt(struct hfi_exec *exec, unsigned polls, bool receiving);

/* ---- For an executor that others may borrow (net/driver/keeper_borrow.c) ----
 * The borrowers' own mutex is held during all of these but idle_wait. They know which of them runs
 * the executor. */

/* Ends the poll between begin and end for its thread: it is woken, and must not call end. False:
 * no thread polls. */
bool hfi_exec_evict(struct hfi_exec *exec);
/* Its own thread idles until `until_ms` or until it is woken; posts wake it unless the executor
 * is borrowed. idle_begin returns false if there is work already and it is not borrowed. */
bool hfi_exec_idle_begin(struct hfi_exec *exec, bool borrowed);
void hfi_exec_idle_wait(struct hfi_exec *exec, int64_t until_ms);
void hfi_exec_idle_end(struct hfi_exec *exec);
/* If its thread idles: the executor is borrowed from now on, or no longer. */
void hfi_exec_set_borrowed(struct hfi_exec *exec, bool on);

/* Makes the thread return from its sleep or poll even without work. Any thread. */
void hfi_exec_wake(struct hfi_exec *exec);
/* Clears the wake-up, and tells whether there is work all the same. On the executor's thread. */
bool hfi_exec_take_wake(struct hfi_exec *exec);

void hfi_task_init(struct hfi_task *task, struct hfi_exec *exec,
                   void (*run)(struct hfi_task *, unsigned), void (*destroy)(struct hfi_task *));
void hfi_task_ref(struct hfi_task *task);
void hfi_task_unref(struct hfi_task *task);
void hfi_task_post(struct hfi_task *task, unsigned events); /* any thread */
/* The same, but a sleeping thread is woken by hfi_wakes_flush(). */
void hfi_task_post_gathered(struct hfi_task *task, unsigned events, struct hfi_wakes *wakes);
void hfi_wakes_flush(struct hfi_wakes *wakes);
/* On its executor's thread. */
void hfi_task_move(struct hfi_task *task, struct hfi_exec *exec);
/* Takes its executor away: posts are ignored from now on. */
void hfi_task_retire(struct hfi_task *task);

/* Sets (again) or clears an alarm. Any thread. clear returns whether it was set, i.e. will not
 * fire. HFI_NEVER as a time clears. */
void hfi_alarm_set(struct hfi_exec *exec, struct hfi_alarm *alarm, int64_t at_ms);
bool hfi_alarm_clear(struct hfi_exec *exec, struct hfi_alarm *alarm);

#endif
