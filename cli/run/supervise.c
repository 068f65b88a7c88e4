/* The command and its descendants, for the holder: starts it, signals it, kills it when its timeout
 * or its lease ends, and detects when no process is left.
 *
 * Called from the loop of holder.c, on the holder's main thread. While the holder lives, only this
 * file reaps. */
#include "run/holder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_AGAIN_MS 50 /* between two rounds of SIGKILL */
#define RECHECK_MS 2000  /* in case a SIGCHLD was missed */

void command_start(struct holder *h, bool give_terminal) {
    char **envp = child_environment(h->run, h->held.owner, h->held.token);
    pid_t command = envp != NULL ? child_start(h->run, envp, give_terminal) : -ENOMEM;
    child_environment_free(envp);

    h->phase = RUNNING;
    h->started_ms = now_ms();
    if (command < 0) {
        say(LEVEL_ERROR, "cannot run '%s': %s", h->options->argv[0], strerror(-command));
        h->start_status = exit_status_not_started(-command);
        h->command_ended = h->child_changed = true;
        atomic_store(&h->shared->command, 0);
        return;
    }
    h->command = command;
}

/* Signals the command as a shell would: its own process group. Without such a group, or once the
 * command has ended, all descendants. */
static void signal_group(struct holder *h, int signal) {
    if (h->run->own_group && !h->command_ended)
        kill(-h->command, signal);
    else
        tree_signal(getpid(), signal, &h->run->filter, false);
}

void command_signal(struct holder *h, int signal) {
    signal_group(h, signal);
    if (wakes_to_end(signal))
        signal_group(h, SIGCONT);
}

static void signal_everything(struct holder *h, int signal) {
    bool group_too = signal == SIGKILL && h->run->own_group && !h->command_ended;
    /* With --only-command, descendants are found only while the command exists. So kill the group
     * last. */
    if (group_too && !h->options->only_command)
        kill(-h->command, signal);
    bool found = tree_signal(getpid(), signal, &h->run->filter, !h->complained) >= 0;
    if (!found && !h->command_ended) /* /proc is unreadable */
        kill(h->run->own_group ? -h->command : h->command, signal);
    if (group_too && h->options->only_command)
        kill(-h->command, signal);
    h->complained = true;
}

/* A stopped process reacts only to SIGKILL and SIGCONT. */
static void end_with_signal(struct holder *h, int signal) {
    signal_everything(h, signal);
    signal_everything(h, SIGCONT);
}

/* No process of the command is left. */
static void command_gone(struct holder *h) {
    exit_status_decide(h);
    atomic_store(&h->shared->deadline_ms, 0);
    note_send(h->notes, NOTE_ENDED, h->status, h->killed_by);
    h->lingered =
        !h->doomed && h->start_status == 0 && now_ms() - h->acquired_ms < h->options->hold_for_ms;
    if (h->lingered)
        h->phase = LINGERING;
    else
        holder_release(h);
}

static void check_stopped(struct holder *h) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)h->command, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0) {
        say(LEVEL_INFO, "the command was stopped");
        note_send(h->notes, NOTE_STOPPED, info.si_status, 0);
    }
}

/* With --only-command we wait for nothing after the command, unless it must be killed together with
 * its descendants. */
static bool is_to_be_killed(struct holder *h) {
    return h->doomed && h->options->on_lost == ON_LOST_KILL &&
           tree_signal(getpid(), 0, &h->run->filter, false) > 0;
}

/* Reaps children. The command's pid is hidden from the guard before it is reaped, because then the
 * pid may be reused. */
static void reap(struct holder *h) {
    siginfo_t info = {0};
    if (h->phase != RUNNING || (!h->child_changed && now_ms() - h->reaped_ms < RECHECK_MS))
        return;
    h->child_changed = false;
    h->reaped_ms = now_ms();
    if (!h->command_ended) {
        check_stopped(h);
        if (waitid(P_PID, (id_t)h->command, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid != 0)
            atomic_store(&h->shared->command, 0);
    }
    bool ended_before = h->command_ended;
    bool gone = tree_reap(&h->run->filter, ended_before ? 0 : h->command, &h->command_ended,
                          &h->wait_status);
    if (gone && !(h->options->only_command && is_to_be_killed(h)))
        command_gone(h);
    else if (h->command_ended && !ended_before)
        say(LEVEL_INFO, "the command has ended; waiting for its remaining processes");
}

bool command_is_late(const struct holder *h) {
    return h->options->on_lost != ON_LOST_IGNORE &&
           now_ms() >= kill_time(h->run, atomic_load(&h->shared->deadline_ms));
}

/* Warns or dooms the command when its deadline is near. */
static void watch_deadline(struct holder *h) {
    int64_t deadline_ms = atomic_load(&h->shared->deadline_ms), now = now_ms();
    if (h->doomed || h->options->on_lost == ON_LOST_IGNORE)
        return;
    if (command_is_late(h)) {
        holder_doom(h, "the lease is about to end");
    } else if (now < warn_time(h->run, deadline_ms)) {
        h->endangered |= atomic_exchange(&h->shared->warned, false);
    } else if (!atomic_exchange(&h->shared->warned, true)) {
        char buffer[SHOWN_NAME_SIZE];
        say_of(LEVEL_ERROR, &(struct subject){.code = HF_ELOST, .lock = h->options->name},
               "'%s': the lease ends in %" PRId64 " ms: ending the command",
               shown_name(h->options->name, buffer), deadline_ms - now);
        h->endangered = true;
        end_with_signal(h, SIGTERM);
    }
}

static void watch_timeout(struct holder *h) {
    int64_t now = now_ms();
    if (h->options->timeout_ms == 0)
        return;
    if (h->timed_out_ms == 0 && now - h->started_ms >= h->options->timeout_ms) {
        h->timed_out_ms = now;
        say(LEVEL_INFO, "the command has taken too long");
        signal_group(h, h->options->signal);
        signal_group(h, SIGCONT);
    } else if (h->timed_out_ms != 0 && h->options->kill_after_ms != 0 &&
               now - h->timed_out_ms >= h->options->kill_after_ms) {
        signal_everything(h, SIGKILL);
    }
}

/* A guard stopped by a signal cannot do its work. A guard that stopped itself for job control is
 * fine. */
void command_watch_guard(struct holder *h) {
    if (h->notes < 0 || atomic_load(&h->shared->parked) || process_state(h->run->guard) != 'T') {
        h->guard_stopped_ms = 0;
        return;
    }
    if (h->guard_stopped_ms == 0)
        h->guard_stopped_ms = now_ms();
    if (now_ms() - h->guard_stopped_ms < stall_limit(h->run) || h->guard_stalled ||
        h->options->on_lost == ON_LOST_IGNORE)
        return;
    h->guard_stalled = true;
    if (h->phase == HELD)
        holder_give_up(h, SIGSTOP);
    else
        holder_doom(h, "the guard process was stopped");
}

static void end_doomed(struct holder *h) {
    if (!h->doomed || h->phase != RUNNING)
        return;
    if (h->options->on_lost == ON_LOST_KILL) {
        signal_everything(h, SIGKILL);
    } else if (h->options->on_lost == ON_LOST_SIGNAL && !h->sent_term) {
        h->sent_term = true;
        end_with_signal(h, SIGTERM);
    }
}

/* The earlier of `next` and a time that is still to come. */
static int64_t earlier(int64_t now, int64_t next, int64_t other) {
    return other > now && other < next ? other : next;
}

int64_t command_due(const struct holder *h, int64_t now, int64_t next) {
    int64_t deadline_ms = atomic_load(&h->shared->deadline_ms);
    next = earlier(now, next, h->started_ms + h->options->timeout_ms);
    next = earlier(now, next, h->timed_out_ms + h->options->kill_after_ms);
    next = earlier(now, next, warn_time(h->run, deadline_ms));
    next = earlier(now, next, kill_time(h->run, deadline_ms));
    return h->doomed ? earlier(now, next, now + KILL_AGAIN_MS) : next;
}

void command_poll(struct holder *h) {
    watch_deadline(h);
    watch_timeout(h);
    end_doomed(h);
    reap(h);
}
