/*
 * The holder: the process of `holdfast run` that has the lock, and the parent of the command.
 *
 * Forked by cmd_run.c before there is any thread. Everything here runs on its main thread: the loop
 * at the end waits for notes of the guard, signals, and callbacks of the library (manual dispatch).
 * It goes through
 *
 *     WAITING --acquired--> HELD --the guard agrees--> RUNNING --nothing is left--> LINGERING
 *        |                    |                                                        | --hold-for
 *        +--failed--> DONE <--+----------------------- RELEASING <--------------------+
 *
 * Invariants: the lock is released only when nothing is left of the command; the shared deadline is
 * never later than what the library says; a command that is doomed (the hold is lost or about to
 * end, or the guard is gone or stopped) stays doomed until nothing is left of it.
 */
#include "holder.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void finish(struct holder *h, int status) {
    h->status = status;
    h->phase = DONE;
}

/* ---- Losing it ------------------------------------------------------------------------------- */

void holder_doom(struct holder *h, const char *reason) {
    char buffer[SHOWN_NAME_SIZE];
    if (h->doomed)
        return;
    h->doomed = true;
    say(LEVEL_ERROR, "'%s': %s; %s", shown_name(h->options->name, buffer), reason,
        h->phase == HELD ? "the command is not started" : fate_of_command(h->options));
}

static void on_trouble(void *user, const hf_event *event) {
    struct holder *h = user;
    if (event->kind == HF_EVENT_WARNING) {
        say(LEVEL_INFO, "%" PRId64 " ms are left: %s", event->remaining_ms, event->reason);
        return;
    }
    char reason[256];
    snprintf(reason, sizeof reason, "the %s is lost: %s", h->options->kind->ops->noun,
             event->reason);
    h->over = true;
    if (h->phase == HELD || h->phase == RUNNING)
        holder_doom(h, reason);
}

/* Copies the library's deadline to where the guard sees it. */
static void watch_hold(struct holder *h) {
    if (h->phase != HELD && h->phase != RUNNING)
        return;
    int64_t remaining_ms = held_remaining_ms(&h->held);
    if (remaining_ms > 0) {
        atomic_store(&h->shared->deadline_ms, now_ms() + remaining_ms);
    } else if (!h->over) {
        static const hf_event ran_out = {.kind = HF_EVENT_LOST, .reason = "its lease has run out"};
        on_trouble(h, &ran_out);
    }
}

/* ---- Acquiring and releasing ----------------------------------------------------------------- */

static const char *when_lost(const struct holder *h) {
    if (h->interrupted != 0 || h->start_status != 0)
        return "before it was released";
    return h->lingered ? "after the command had ended" : "while the command ran";
}

static void on_released(void *user, const hf_result *result) {
    struct holder *h = user;
    if (result->code == HF_OK)
        held_tell_released(&h->held);
    else if (result->code == HF_ELOST && !h->doomed)
        held_tell_lost(&h->held, when_lost(h), &result->error);
    else if (!h->doomed)
        library_error(result->code, &result->error, "release", h->options->name);
    /* Lost, perhaps before the command ended. Any other failure is harmless: the command has run to
     * its end under the lock, and the lease frees what we could not. */
    if (result->code == HF_ELOST && h->interrupted == 0 && h->start_status == 0 && !h->lingered &&
        !h->options->preserve_status)
        h->status = STATUS_LOST;
    finish(h, h->status);
}

void holder_release(struct holder *h) {
    atomic_store(&h->shared->deadline_ms, 0);
    h->phase = RELEASING;
    if (h->over) {
        finish(h, h->status);
        return;
    }
    int code = held_release(&h->held);
    if (code != HF_OK) {
        library_error(code, hf_last_error(), "release", h->options->name);
        finish(h, h->status);
    }
}

/* The wait, or the moment after it, was ended by a signal to us. */
void holder_give_up(struct holder *h, int signal) {
    if (h->interrupted != 0)
        return;
    h->interrupted = signal;
    h->status = STATUS_SIGNAL + signal;
    h->killed_by = signal;
    if (h->phase == WAITING)
        held_cancel(&h->held);
    else
        holder_release(h);
}

static void announce_ready(const struct holder *h) {
    int fd = h->options->ready_fd;
    if (fd < 0)
        return;
    if (write(fd, "\n", 1) != 1)
        say(LEVEL_NOTICE, "cannot write to descriptor %d: %s", fd, strerror(errno));
    close(fd);
}

static void not_acquired(struct holder *h, const hf_result *result) {
    /* Unless it was a signal, or the guard is gone. */
    if (h->interrupted == 0 && result->code != HF_ECANCELED)
        h->status = held_failed(&h->held, result, h->options->busy_status);
    if (result->code == HF_EWRONGTYPE)
        h->wrong_name = held_failed_name(&h->held, &result->error);
    finish(h, h->status);
}

static void on_acquired(void *user, const hf_result *result) {
    struct holder *h = user;
    if (result->code != HF_OK) {
        not_acquired(h, result);
        return;
    }

    h->phase = HELD;
    h->acquired_ms = now_ms();
    held_tell_acquired(&h->held);
    if (h->interrupted != 0 || h->notes < 0) {
        holder_release(h);
        return;
    }
    /* Only now, so that a server which the library starts while we wait is not adopted. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (url_is_zk(h->run->connection->target)) /* of a session, heartbeats keep three quarters */
        atomic_store(&h->shared->span_ms, held_remaining_ms(&h->held) / 4 * 3);
    watch_hold(h);
    announce_ready(h);
    note_send(h->notes, NOTE_ACQUIRED, 0, 0);
}

static void acquire(struct holder *h) {
    hf_options client_options = HF_OPTIONS_INIT;
    client_options.flags = HF_MANUAL_DISPATCH;
    client_options.watchdog_ms = h->options->ttl_ms;
    int status = connection_open(h->run->connection, &client_options, &h->client);
    if (status != 0) {
        finish(h, status);
        return;
    }

    h->held = (struct held){.kind = h->options->kind,
                            .client = h->client,
                            .name = h->options->name,
                            .names = h->options->names.joined != NULL ? &h->options->names : NULL,
                            .slots = h->options->slots,
                            .wait_ms = h->options->wait_ms,
                            .lease_ms = h->options->lease_ms,
                            .ttl_ms = h->options->ttl_ms,
                            .acquired = on_acquired,
                            .released = on_released,
                            .trouble = on_trouble,
                            .user = h};
    int code = held_acquire(&h->held);
    if (code != HF_OK)
        finish(h, library_error(code, hf_last_error(), "acquire", h->options->name));
}

/* ---- What happens ---------------------------------------------------------------------------- */

static void on_note(struct holder *h, const struct note *note) {
    if (note->kind == NOTE_START) {
        if (h->phase == HELD && !h->doomed)
            ward_start(h, note->value);
        return;
    }
    if (note->kind != NOTE_SIGNAL)
        return;
    if (h->phase == WAITING || h->phase == HELD)
        holder_give_up(h, note->value);
    else if (h->phase == RUNNING)
        ward_signal(h, note->value);
    else if (h->phase == LINGERING && note->value != SIGCONT && note->value != SIGWINCH)
        holder_release(h);
}

static void guard_gone(struct holder *h) {
    h->notes = -1;
    if (h->phase == WAITING)
        held_cancel(&h->held);
    else if (h->phase == HELD || h->phase == LINGERING)
        holder_release(h);
    else if (h->phase == RUNNING && h->options->on_lost != ON_LOST_IGNORE)
        holder_doom(h, "the guarding process has been killed");
}

static void read_notes(struct holder *h) {
    struct note note;
    int got;
    while (h->notes >= 0 && h->phase != DONE && (got = note_receive(h->notes, &note)) != 0) {
        if (got > 0)
            on_note(h, &note);
        else
            guard_gone(h);
    }
}

/* Signals are the guard's business: it knows about terminals. A user who finds our pid is heard as
 * well. */
static void read_signals(struct holder *h) {
    struct signalfd_siginfo info;
    while (read(h->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        h->child_changed |= info.ssi_signo == SIGCHLD;
        bool for_us = info.ssi_signo == SIGCHLD || info.ssi_signo == SIGCONT ||
                      info.ssi_signo == SIGWINCH || info.ssi_signo == SIGPIPE ||
                      info.ssi_signo == SIGTSTP || info.ssi_signo == SIGTTIN ||
                      info.ssi_signo == SIGTTOU;
        if (!for_us && getppid() == h->run->guard)
            kill(h->run->guard, (int)info.ssi_signo);
    }
}

/* How long the loop may sleep; -1: until something happens. */
static int sleep_time(const struct holder *h) {
    if (h->phase == RELEASING)
        return -1;
    int64_t now = now_ms(), tick = hold_ttl(h->options) / 20;
    int64_t next = now + (tick < 100 ? 100 : tick > 250 ? 250 : tick);
    int64_t linger_ends_ms = h->acquired_ms + h->options->hold_for_ms;
    if (h->phase == LINGERING && linger_ends_ms < next)
        next = linger_ends_ms;
    if (h->phase == RUNNING)
        next = ward_due(h, now, next);
    return next > now ? (int)(next - now) : 0;
}

static void look_after_everything(struct holder *h) {
    watch_hold(h);
    if (h->phase == HELD || h->phase == RUNNING)
        ward_watch_guard(h);
    if (h->phase == HELD && h->doomed)
        finish(h, STATUS_LOST);
    if (h->phase == RUNNING)
        ward_look(h);
    if (h->phase == LINGERING && (h->over || now_ms() - h->acquired_ms >= h->options->hold_for_ms))
        holder_release(h);
}

static void loop(struct holder *h) {
    while (h->phase != DONE) {
        struct pollfd fds[] = {{.fd = h->notes, .events = POLLIN},
                               {.fd = h->signals, .events = POLLIN},
                               {.fd = hf_dispatch_fd(h->client), .events = POLLIN}};
        int limit_ms = h->phase == WAITING ? held_watch_wait(&h->held) : sleep_time(h);
        if (poll(fds, 3, warning_look(limit_ms)) < 0 && errno != EINTR) {
            say(LEVEL_ERROR, "cannot wait for events: %s", strerror(errno));
            _exit(STATUS_OS); /* The guard takes over. */
        }
        read_signals(h);
        hf_dispatch(h->client, 0);
        read_notes(h);
        look_after_everything(h);
    }
}

void holder_run(struct run *run, int socket) {
    struct holder h = {.run = run, .options = run->options, .shared = run->shared, .notes = socket};
    /* A group of its own: what is sent to the user's job hits the guard, not both of us. */
    setpgid(0, 0);
    prctl(PR_SET_NAME, "holdfast-holder");
    h.signals = pair_signalfd(run);
    if (h.signals < 0) {
        say(LEVEL_ERROR, "cannot watch signals: %s", strerror(errno));
        finish(&h, STATUS_OS);
    } else {
        acquire(&h);
        loop(&h);
    }

    if (h.wrong_name != NULL)
        held_explain(h.client, h.wrong_name);
    /* Closing undoes an acquire that was given up while it was on its way; only then nothing of
     * ours is left at the server, and the guard may tell. */
    held_free(&h.held);
    hf_close(h.client);
    warning_finish(NULL);
    if (h.notes >= 0)
        note_send(h.notes, NOTE_DONE, h.status, h.killed_by);
    if (h.guard_stalled)
        kill(run->guard, SIGKILL);
}
