/* The guard's state, shared by its files: guard.c, and forward_signals.c for the signals. One thread
 * uses it. */
#ifndef CLI_RUN_GUARD_H
#define CLI_RUN_GUARD_H

#include "run/run.h"

struct guard {
    struct run *run;
    const struct run_options *options;
    struct shared *shared;
    int notes, signals, timer;
    pid_t holder;
    bool holder_reaped;
    int64_t holder_stopped_ms; /* when it was stopped; 0: it runs */
    bool started;              /* the command may be running */
    bool ended;                /* no process of the command is left; `status` is its status */
    bool done;
    int interrupted;         /* the signal that ended the wait */
    int64_t kill_holder_ms;  /* when a holder that should exit is killed; 0: it need not exit */
    bool terminal_interrupt; /* SIGINT came from the terminal, not from kill(2) */
    int status, killed_by;
};

/* ---- guard.c ---- */

/* Gives the terminal to the command, if it is ours. */
void guard_hand_over_terminal(struct guard *g);
/* Stops this process and the user's job, as the terminal would. Returns true when continued; false
 * if there was no shell to stop for, and nothing happened. */
bool guard_park(struct guard *g, int signal);

/* ---- forward_signals.c ---- */

/* Handles the signals that have come: forwards them to the command through the holder. */
void guard_read_signals(struct guard *g);
/* The same without a holder: signals the remaining processes. */
void guard_forward_alone(struct guard *g);

#endif
