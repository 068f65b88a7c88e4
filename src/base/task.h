/*
 * Tasks and executors: how everything that takes time is written.
 *
 * A task is a state machine with a mailbox of event bits. An executor is a thread's run queue.
 * Whoever has news for a task posts bits to it, from any thread; the task's `run` is called with
 * them on its executor's thread, never at the same time as itself. So a state machine needs no
 * locks for its own state.
 *
 * Executors: the calling thread of a synchronous verb (a `struct hfi_exec` on its stack), the
 * client's keeper thread, and the dispatcher of asynchronous operations. A task can be moved, e.g.
 * to the keeper when its caller stops waiting.
 */
#ifndef HFI_BASE_TASK_H
#define HFI_BASE_TASK_H

#include "base/list.h"
#include "base/timer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct hfi_exec {
    pthread_mutex_t mtx; /* guards everything below */
    /* a futex: 1 while its thread is in hfi_exec_sleep() and nobody has woken it; 2 while another
     * stands in for it */
    atomic_uint asleep;
    struct hfi_link ready;
    struct hfi_timers timers;
    int64_t armed_ms; /* its thread is sure to look at the timers by then */
    int kick_fd;      /* an eventfd its thread polls right now, else -1 */
    bool kicked;      /* kick_fd has been written to since */
    bool nudged;      /* hfi_exec_nudge() was called since its thread last looked */
    bool relieved;    /* hfi_exec_relieve() was called during this poll */
    bool receiving;   /* it is no poll: its thread takes what comes at once, and hears no kick */
    bool undisturbed; /* its tasks are told of nothing but what they wait for, and of the end */
    unsigned polls;   /* begun so far */
};

/* Threads to wake: gathered while the caller holds a mutex, and woken when it is free again.
 * Otherwise each would wake up only to wait for that mutex. */
#define HFI_WAKES_MAX 64
struct hfi_wakes {
    unsigned len;
    atomic_uint *sleepers[HFI_WAKES_MAX];
};

struct hfi_task {
    atomic_int refs;     /* whoever made it, an executor while it is queued, requests and wants that
                        will post to it, threads whose end it is told of */
    bool queued;         /* in exec->ready */
    unsigned events;     /* the mailbox */
    pthread_mutex_t mtx; /* guards exec, events and queued */
    struct hfi_exec *_Atomic exec; /* also read without it, to see if the task has moved away */
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

/* Runs what is due, timers first, until nothing is. Only on the executor's thread. Returns whether
 * anything ran. */
bool hfi_exec_run(struct hfi_exec *exec);
/* The same, but no more than so many. */
bool hfi_exec_run_some(struct hfi_exec *exec, unsigned most);

/* Whether hfi_exec_run() would do something. */
bool hfi_exec_has_work(struct hfi_exec *exec);

/* Sleeps until there is something to run, or a nudge. */
void hfi_exec_sleep(struct hfi_exec *exec);

/* Before and after a poll() that includes `kick_fd`: after begin, posts write to it. begin returns
 * false if there is work already, and then there is nothing to poll for; otherwise *ret_at_ms is
 * when the next timer is due. */
bool hfi_exec_poll_begin(struct hfi_exec *exec, int kick_fd, int64_t *ret_at_ms);
/* The same before a wait of a moment that no kick ends. Also false if it may be disturbed, or has a timer
 * that is due in less than `far_ms`; then it has to poll. */
bool hfi_exec_receive_begin(struct hfi_exec *exec, int kick_fd, int64_t far_ms);
/* False: its thread was relieved meanwhile, and must leave alone what it has polled. */
bool hfi_exec_poll_end(struct hfi_exec *exec);

/* Is its thread between begin and end? Then *ret_polls counts the polls, this one included, and
 * *ret_kicked tells if it has been kicked in vain. Any thread; also false if that cannot be found
 * out without waiting, since the thread may be stopped anywhere. */
bool hfi_exec_is_polling(struct hfi_exec *exec, unsigned *ret_polls, bool *ret_kicked);
/* The same of a wait that was begun by hfi_exec_receive_begin(). */
bool hfi_exec_is_receiving(struct hfi_exec *exec);
/* Its thread does not come back from that poll: somebody else polls in its place from now on. It
 * keeps the `kick_fd` and closes it when it comes. `receiving`: it is no poll, so its thread may have taken
 * something. False: it has come, or that is not so. */
bool hfi_exec_relieve(struct hfi_exec *exec, unsigned polls, bool receiving);

/* ---- For an executor that others may run in its thread's place (net/chair.c) ----
 * Who that is, is their affair, and a mutex of theirs is held during all of these but doze. */

/* Whoever is between begin and end is no longer: it is kicked, and must not call end. False: nobody
 * is. */
bool hfi_exec_displace(struct hfi_exec *exec);
/* Its own thread is about to doze: until it is woken, which posts do unless somebody stands in for it, or
 * until then. lie_down returns false if there is work already. */
bool hfi_exec_lie_down(struct hfi_exec *exec, bool stood_in_for);
void hfi_exec_doze(struct hfi_exec *exec, int64_t until_ms);
void hfi_exec_get_up(struct hfi_exec *exec);
/* From now on somebody stands in for it, if it dozes; or nobody any more. */
void hfi_exec_stand_in(struct hfi_exec *exec, bool on);

/* Makes the thread return from its sleep or poll even without work. Any thread. */
void hfi_exec_nudge(struct hfi_exec *exec);
/* Forgets nudges, and tells whether there is work all the same. On the executor's thread. */
bool hfi_exec_unnudge(struct hfi_exec *exec);

void hfi_task_init(struct hfi_task *task, struct hfi_exec *exec,
                   void (*run)(struct hfi_task *, unsigned), void (*destroy)(struct hfi_task *));
void hfi_task_ref(struct hfi_task *task);
void hfi_task_unref(struct hfi_task *task);
void hfi_task_post(struct hfi_task *task, unsigned events); /* any thread */
/* The same, but a sleeping thread is woken by hfi_wakes_flush(). */
void hfi_task_post_gathered(struct hfi_task *task, unsigned events, struct hfi_wakes *wakes);
void hfi_wakes_flush(struct hfi_wakes *wakes);
/* on its executor's thread */
void hfi_task_move(struct hfi_task *task, struct hfi_exec *exec);
/* it has no executor any more: posts are ignored from now on */
void hfi_task_retire(struct hfi_task *task);

/* Sets (again) or clears an alarm. Any thread; clear returns whether it was set, i.e. will not
 * fire. HFI_NEVER as a time clears. */
void hfi_alarm_set(struct hfi_exec *exec, struct hfi_alarm *alarm, int64_t at_ms);
bool hfi_alarm_clear(struct hfi_exec *exec, struct hfi_alarm *alarm);

#endif
