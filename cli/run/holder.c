/* The holder: the process of `holdfast run` that holds the lock, and the parent of the command.
 *
 * Forked by cmd_run.c before any thread exists. Everything here runs on its main thread: the loop
 * at the end waits for the guard's notes, signals, and the library's callbacks (manual dispatch).
 * Its phases:
 *
 *     WAITING --acquired--> HELD --the guard agrees--> RUNNING --no process left--> LINGERING
 *        |                    |                                                        | --hold-for
 *        +--failed--> DONE <--+----------------------- RELEASING <--------------------+
 *
 * Invariants: the lock is released only when no process of the command is left. The shared deadline
 * is never later than the library's. A doomed command stays doomed until no process of it is left.
 * Doomed: the hold is lost or about to end, or the guard is dead or stopped. */
#include "run/holder.h"

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

/* ---- Losing the hold ------------------------------------------------------------------------- */

void holder_doom(struct holder *h, const char *reason) {
    char buffer[SHOWN_NAME_SIZE];
    if (h->doomed)
        return;
    h->doomed = true;
    say_of(LEVEL_ERROR, &(struct subject){.code = HF_ELOST, .lock = h->options->name},
           "'%s': %s; %s", shown_name(h->options->name, buffer), reason,
           h->phase == HELD ? "the command is not started" : text_of_on_lost(h->options));
}

static void on_hold_event(void *user, const hf_event *event) {
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

/* Copies the library's deadline to the shared page. */
static void watch_hold(struct holder *h) {
    if (h->phase != HELD && h->phase != RUNNING)
        return;
    int64_t now = now_ms(); /* read first: a delay then makes the deadline earlier, never later */
    int64_t remaining_ms = held_remaining_ms(&h->held);
    if (remaining_ms > 0) {
        atomic_store(&h->shared->deadline_ms, now + remaining_ms);
    } else if (!h->over) {
        static const hf_event ran_out = {.kind = HF_EVENT_LOST, .reason = "its lease ended"};
        on_hold_event(h, &ran_out);
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
        held_report_released(&h->held);
    else if (result->code == HF_ELOST && !h->doomed)
        held_report_lost(&h->held, when_lost(h), &result->error);
    else if (!h->doomed)
        library_error(result->code, &result->error, "release", h->options->name);
    exit_status_released(h, result->code);
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

/* A signal ended the wait, or the hold before the command has started. */
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
    /* A signal or the guard's death is not reported as a failure. */
    if (h->interrupted == 0 && result->code != HF_ECANCELED)
        h->status = held_failed(&h->held, result, h->options->busy_status);
    if (result->code == HF_EWRONGTYPE)
        h->wrong_name = held_failed_name(&h->held, &result->error);
    finish(h, h->status);
}

/* ZooKeeper proves a hold for its session timeout, and a quorum for its restart guard, however long
 * the lease is. Both prove it again every third of that. */
static void note_span(struct holder *h) {
    int64_t proved_ms = held_remaining_ms(&h->held), ttl_ms = hold_ttl(h->options);
    if (url_is_zk(h->run->connection->target) || proved_ms < ttl_ms / 10 * 9)
        atomic_store(&h->shared->span_ms, proved_ms / 3 * 2);
}

static void on_acquired(void *user, const hf_result *result) {
    struct holder *h = user;
    if (result->code != HF_OK) {
        not_acquired(h, result);
        return;
    }

    h->phase = HELD;
    h->acquired_ms = now_ms();
    held_report_acquired(&h->held);
    if (h->interrupted != 0 || h->notes < 0) {
        holder_release(h);
        return;
    }
    /* Not earlier, so that a server which the library starts while we wait is not adopted. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    note_span(h);
    watch_hold(h);
    announce_ready(h);
    note_send(h->notes, NOTE_ACQUIRED, 0, 0);
}

static void acquire(struct holder *h) {
    hf_options client_options = HF_OPTIONS_INIT;
    client_options.flags = HF_MANUAL_DISPATCH;
    client_options.watchdog_ms = h->options->ttl_ms;
    client_options.label = h->options->label;
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
                            .hold_event = on_hold_event,
                            .user = h};
    int code = held_acquire(&h->held);
    if (code != HF_OK)
        finish(h, library_error(code, hf_last_error(), "acquire", h->options->name));
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* The machine may have been suspended since the acquire, so check the deadline again. */
static void start(struct holder *h, bool give_terminal) {
    watch_hold(h);
    if (!h->doomed && command_is_late(h))
        holder_doom(h, "the lease is about to end");
    if (!h->doomed)
        command_start(h, give_terminal);
}

static void on_note(struct holder *h, const struct note *note) {
    if (note->kind == NOTE_START) {
        if (h->phase == HELD && !h->doomed)
            start(h, note->value);
        return;
    }
    if (note->kind != NOTE_SIGNAL)
        return;
    if (h->phase == WAITING || h->phase == HELD)
        holder_give_up(h, note->value);
    else if (h->phase == RUNNING)
        command_signal(h, note->value);
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
        holder_doom(h, "the guard process was killed");
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

/* The guard handles signals, because it knows the terminal. One sent to our pid is forwarded to the
 * guard. */
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

/* How long the loop may sleep; -1: no limit. */
static int sleep_time(const struct holder *h) {
    if (h->phase == RELEASING)
        return -1;
    int64_t now = now_ms(), tick = hold_ttl(h->options) / 20;
    int64_t next = now + (tick < 100 ? 100 : tick > 250 ? 250 : tick);
    int64_t linger_ends_ms = h->acquired_ms + h->options->hold_for_ms;
    if (h->phase == LINGERING && linger_ends_ms < next)
        next = linger_ends_ms;
    if (h->phase == RUNNING)
        next = command_due(h, now, next);
    return next > now ? (int)(next - now) : 0;
}

static void check_everything(struct holder *h) {
    watch_hold(h);
    if (h->phase == HELD || h->phase == RUNNING)
        command_watch_guard(h);
    if (h->phase == HELD && h->doomed)
        finish(h, STATUS_LOST);
    if (h->phase == RUNNING)
        command_poll(h);
    if (h->phase == LINGERING && (h->over || now_ms() - h->acquired_ms >= h->options->hold_for_ms))
        holder_release(h);
}

static void loop(struct holder *h) {
    while (h->phase != DONE) {
        struct pollfd fds[] = {{.fd = h->notes, .events = POLLIN},
                               {.fd = h->signals, .events = POLLIN},
                               {.fd = hf_dispatch_fd(h->client), .events = POLLIN}};
        int limit_ms = h->phase == WAITING ? held_watch_wait(&h->held) : sleep_time(h);
        if (await_fds(fds, 3, warning_print_due(limit_ms)) < 0 && errno != EINTR) {
            say(LEVEL_ERROR, "cannot wait for events: %s", strerror(errno));
            _exit(STATUS_OS); /* The guard takes over. */
        }
        read_signals(h);
        hf_dispatch(h->client, 0);
        read_notes(h);
        check_everything(h);
    }
}

void holder_run(struct run *run, int socket) {
    struct holder h = {.run = run, .options = run->options, .shared = run->shared, .notes = socket};
    /* Its own process group: signals to the user's job reach the guard only. */
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
    held_report_holder(&h.held);
    /* Closing undoes an acquire that was canceled in flight. Only then nothing of ours is left at
     * the server, and the guard may be notified. */
    held_free(&h.held);
    hf_close(h.client);
    warning_finish(NULL);
    if (h.notes >= 0)
        note_send(h.notes, NOTE_DONE, h.status, h.killed_by);
    if (h.guard_stalled)
        kill(run->guard, SIGKILL);
}
