/* The holder's state, shared by its two files: holder.c has the lock, ward.c has the command.
 * Everything belongs to the holder's main thread. */
#ifndef CLI_HOLDER_H
#define CLI_HOLDER_H

#include "held.h"
#include "run.h"

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
    const char *wrong_name; /* it is in use for something else; NULL: none is */
    int interrupted;        /* the signal that ended the wait; 0: none */
    bool over;              /* the library says that the hold has ended */

    pid_t command;
    bool command_ended;
    bool child_changed; /* since it was last looked who has ended */
    int64_t looked_ms;  /* when that was */
    int wait_status;
    int start_status;                              /* not 0: the command could not be started */
    int64_t acquired_ms, started_ms, timed_out_ms; /* 0: not yet */
    bool lingered;                                 /* the hold was kept on for --hold-for */
    bool doomed;
    bool told;       /* the doomed command has been sent its TERM */
    bool endangered; /* it has been sent TERM because of its deadline */
    bool complained;
    int64_t guard_stopped_ms; /* since when the guard is stopped; 0: it is not */
    bool guard_stalled;

    int status, killed_by; /* for the guard */
};

/* Says why the command must end; it is ended from then on. */
void holder_doom(struct holder *h, const char *reason);
/* Gives the lock back, if it is still ours, and is done after that. */
void holder_release(struct holder *h);
/* Ends the wait for the lock, or what comes right after it, because of a signal. */
void holder_give_up(struct holder *h, int signal);

void ward_start(struct holder *h, bool give_terminal);
/* To the command as a shell would: to its group, or to all that is left when the group has lost its
 * head; continued, if it is to end. */
void ward_signal(struct holder *h, int signal);
/* Everything that is due by now: deadline, timeout, a stopped guard, and what has ended. */
void ward_look(struct holder *h);
void ward_watch_guard(struct holder *h);
/* The next time something is due, if it is before `next`. */
int64_t ward_due(const struct holder *h, int64_t now, int64_t next);

#endif
