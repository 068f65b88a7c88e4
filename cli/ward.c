/*
 * The holder's ward: the command, and everything that came of it. Starts it, signals it, ends it
 * when its time is over or its lock is, and finds out when nothing is left of it.
 *
 * Part of the holder process, see holder.c, which calls these functions from its loop on its main
 * thread. Only this file signals or reaps while the holder lives; it decides the exit status.
 */
#include "holder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_AGAIN_MS 50   /* between two rounds of killing what is left */
#define LOOK_AGAIN_MS 2000 /* in case something changed and no SIGCHLD came of it */

void ward_start(struct holder *h, bool give_terminal) {
    char **envp = child_environment(h->run, h->held.owner, h->held.token);
    pid_t command = envp != NULL ? child_start(h->run, envp, give_terminal) : -ENOMEM;
    child_environment_free(envp);

    h->phase = RUNNING;
    h->started_ms = now_ms();
    if (command < 0) {
        say(LEVEL_ERROR, "cannot run '%s': %s", h->options->argv[0], strerror(-command));
        h->start_status = command == -ENOENT                         ? STATUS_NOT_FOUND
                          : command == -EAGAIN || command == -ENOMEM ? STATUS_OS
                                                                     : STATUS_NOT_RUNNABLE;
        h->command_ended = h->child_changed = true;
        atomic_store(&h->shared->command, 0);
        return;
    }
    h->command = command;
}

/* To the command as a shell would: to its group, or to all of it when it has none of its own any
 * more. */
static void signal_group(struct holder *h, int signal) {
    if (h->run->own_group && !h->command_ended)
        kill(-h->command, signal);
    else
        tree_signal(getpid(), signal, &h->run->filter, false);
}

void ward_signal(struct holder *h, int signal) {
    signal_group(h, signal);
    if (wakes_to_end(signal))
        signal_group(h, SIGCONT);
}

static void signal_everything(struct holder *h, int signal) {
    bool group_too = signal == SIGKILL && h->run->own_group && !h->command_ended;
    /* With --only-command what descends from the command is known by that alone, so it has to be
     * looked for while the command is there. */
    if (group_too && !h->options->only_command)
        kill(-h->command, signal);
    tree_signal(getpid(), signal, &h->run->filter, !h->complained);
    if (group_too && h->options->only_command)
        kill(-h->command, signal);
    h->complained = true;
}

/* A stopped process hears nothing but KILL and CONT. */
static void end_politely(struct holder *h, int signal) {
    signal_everything(h, signal);
    signal_everything(h, SIGCONT);
}

static void decide_status(struct holder *h) {
    bool signalled = !h->start_status && WIFSIGNALED(h->wait_status);
    h->endangered |= atomic_load(&h->shared->warned); /* The guard may have been faster. */
    h->killed_by = signalled ? WTERMSIG(h->wait_status) : 0;
    if (h->start_status != 0)
        h->status = h->start_status;
    else if ((h->doomed || h->endangered) && !h->options->preserve_status)
        h->status = STATUS_LOST;
    else if (h->timed_out_ms != 0 && h->killed_by != SIGKILL && !h->options->preserve_status)
        h->status = STATUS_TIMED_OUT; /* KILL is told from that, as timeout(1) does */
    else
        h->status = signalled ? STATUS_SIGNAL + h->killed_by : WEXITSTATUS(h->wait_status);
}

/* Nothing is left of the command. */
static void command_gone(struct holder *h) {
    decide_status(h);
    atomic_store(&h->shared->deadline_ms, 0);
    note_send(h->notes, NOTE_ENDED, h->status, h->killed_by);
    h->lingered =
        !h->doomed && h->start_status == 0 && now_ms() - h->acquired_ms < h->options->hold_for_ms;
    if (h->lingered)
        h->phase = LINGERING;
    else
        holder_release(h);
}

static void look_for_stop(struct holder *h) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)h->command, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0) {
        say(LEVEL_INFO, "the command has stopped");
        note_send(h->notes, NOTE_STOPPED, info.si_status, 0);
    }
}

/* With --only-command nothing is waited for after the command; unless it has to be ended, and all
 * that belongs to it with it. */
static bool is_to_be_killed(struct holder *h) {
    return h->doomed && h->options->on_lost == ON_LOST_KILL &&
           tree_signal(getpid(), 0, &h->run->filter, false) > 0;
}

/* Looks who has ended. The pid of the command is withdrawn from the guard's sight before it is
 * reaped, when it may come to mean somebody else. */
static void reap(struct holder *h) {
    siginfo_t info = {0};
    if (h->phase != RUNNING || (!h->child_changed && now_ms() - h->looked_ms < LOOK_AGAIN_MS))
        return;
    h->child_changed = false;
    h->looked_ms = now_ms();
    if (!h->command_ended) {
        look_for_stop(h);
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
        say(LEVEL_INFO, "the command has ended; waiting for what it left behind");
}

/* What must be done now because of the deadline. */
static void watch_deadline(struct holder *h) {
    int64_t deadline_ms = atomic_load(&h->shared->deadline_ms), now = now_ms();
    if (h->doomed || h->options->on_lost == ON_LOST_IGNORE)
        return;
    if (now >= kill_time(h->run, deadline_ms)) {
        holder_doom(h, "the lease is about to end");
    } else if (now < warn_time(h->run, deadline_ms)) {
        h->endangered |= atomic_exchange(&h->shared->warned, false);
    } else if (!atomic_exchange(&h->shared->warned, true)) {
        char buffer[SHOWN_NAME_SIZE];
        say(LEVEL_ERROR, "'%s': the lease ends in %" PRId64 " ms: ending the command",
            shown_name(h->options->name, buffer), deadline_ms - now);
        h->endangered = true;
        end_politely(h, SIGTERM);
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

/* A guard that somebody has stopped cannot do its duty. One that stopped itself, for a shell,
 * may. */
void ward_watch_guard(struct holder *h) {
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
        holder_doom(h, "the guarding process has been stopped");
}

static void end_doomed(struct holder *h) {
    if (!h->doomed || h->phase != RUNNING)
        return;
    if (h->options->on_lost == ON_LOST_KILL) {
        signal_everything(h, SIGKILL);
    } else if (h->options->on_lost == ON_LOST_SIGNAL && !h->told) {
        h->told = true;
        end_politely(h, SIGTERM);
    }
}

/* The earlier of `next` and a time that is still to come. */
static int64_t earlier(int64_t now, int64_t next, int64_t other) {
    return other > now && other < next ? other : next;
}

int64_t ward_due(const struct holder *h, int64_t now, int64_t next) {
    int64_t deadline_ms = atomic_load(&h->shared->deadline_ms);
    next = earlier(now, next, h->started_ms + h->options->timeout_ms);
    next = earlier(now, next, h->timed_out_ms + h->options->kill_after_ms);
    next = earlier(now, next, warn_time(h->run, deadline_ms));
    next = earlier(now, next, kill_time(h->run, deadline_ms));
    return h->doomed ? earlier(now, next, now + KILL_AGAIN_MS) : next;
}

void ward_look(struct holder *h) {
    watch_deadline(h);
    watch_timeout(h);
    end_doomed(h);
    reap(h);
}
