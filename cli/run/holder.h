/* The holder's state, shared by its files: holder.c owns the lock, supervise.c the command, and
 * exit_status.c decides the status. Only the holder's main thread uses it. */
#ifndef CLI_HOLDER_H
#define CLI_HOLDER_H

#include "hold/held.h"
#include "run/run.h"

enum phase { WAITING, HELD, RUNNING, LINGERING, RELEASING, DONE };

struct holder {
    struct run *run;
    const struct run_options *options;
    struct shared *shared;
    int notes; /* -1 once the guard is gone */
    int signals;
    hf_client *client;
    struct held held;
    enum phase phase;
    const char *wrong_name; /* a name in use by another kind of object; NULL: none */
    int interrupted;        /* the signal that ended the wait; 0: none */
    bool over;              /* the library reports that the hold has ended */

    pid_t command;
    bool command_ended;
    bool child_changed; /* SIGCHLD came since the last reap */
    int64_t reaped_ms;  /* time of the last reap */
    int wait_status;
    int start_status;                              /* not 0: the command could not be started */
    int64_t acquired_ms, started_ms, timed_out_ms; /* 0: not yet */
    bool lingered;                                 /* the hold was kept for --hold-for */
    bool doomed;
    bool sent_term;  /* the doomed command was sent SIGTERM */
    bool endangered; /* the command was sent SIGTERM because of its deadline */
    bool complained;
    int64_t guard_stopped_ms; /* when the guard was stopped; 0: it runs */
    bool guard_stalled;

    int status, killed_by; /* reported to the guard */
};

/* Says why the command must end, and marks it for killing. */
void holder_doom(struct holder *h, const char *reason);
/* Releases the lock if we still hold it, then finishes. */
void holder_release(struct holder *h);
/* A signal ends the wait for the lock, or the hold before the command has started. */
void holder_give_up(struct holder *h, int signal);

/* ---- exit_status.c ---- */

/* No process of the command is left: sets h->status and h->killed_by. */
void exit_status_decide(struct holder *h);
/* The release has ended with `code`: h->status may become STATUS_LOST. */
void exit_status_released(struct holder *h, int code);

/* ---- supervise.c ---- */

void command_start(struct holder *h, bool give_terminal);
/* Whether it is kill_time(): a running command would have to be ended now. */
bool command_is_late(const struct holder *h);
/* Signals the command as a shell would: its process group, or the remaining processes when the
 * group's leader has ended. A signal that ends the command is followed by SIGCONT. */
void command_signal(struct holder *h, int signal);
/* Does everything that is due: deadline, timeout, killing a doomed command, reaping. */
void command_poll(struct holder *h);
void command_watch_guard(struct holder *h);
/* The next time that something is due, if it is before `next`. */
int64_t command_due(const struct holder *h, int64_t now, int64_t next);

#endif
