/* The parts of `holdfast run`.
 *
 * Two processes look after the command:
 *
 *     guard    the process that the user started: it forwards signals, owns the terminal's job
 *              control
 *       |      and the exit status
 *     holder   forked before there is any thread: it has the library's client, acquires, renews and
 *       |      releases, and starts the command
 *     command  ... and everything that comes of it
 *
 * Whichever of the two dies, what was below it is reparented to the other one or has been below it
 * all the time, since both are subreapers; so each can kill and wait for all that came of the
 * command, alone. The holder is the lower one, so that the guard can be stopped by job control
 * (Ctrl-Z) as a shell expects it, while the holder goes on renewing.
 *
 * They talk in notes over a socket pair, whose end is also how one learns of the other's death; and
 * they share a page with the deadline, so that the guard can act when the holder cannot. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "held.h"
#include "terminal.h"
#include "tree.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

enum on_lost { ON_LOST_KILL, ON_LOST_SIGNAL, ON_LOST_IGNORE };

struct run_options {
    const char *name; /* of several: how they are called together */
    struct names names;
    const struct held_kind *kind;
    int64_t slots;
    char **argv;               /* of the command; NULL at its end */
    const char *shell_command; /* -c */
    int64_t wait_ms;           /* HF_FOREVER, 0: one attempt */
    int64_t lease_ms;          /* 0: the watchdog's */
    int64_t ttl_ms;            /* the watchdog's lease */
    int64_t timeout_ms;        /* 0: none */
    int64_t kill_after_ms;     /* 0: never */
    int64_t hold_for_ms;
    int busy_status;
    int signal; /* of --timeout */
    enum on_lost on_lost;
    bool foreground, preserve_status, no_stdin, close_fds, only_command;
    const char *env_prefix;
    int ready_fd; /* -1: none */
};

/* ---- cmd_run.c: the words of the line -------------------------------------------------------- */

enum {
    ID_NONBLOCK = 1,
    ID_WAIT,
    ID_BUSY_STATUS,
    ID_COMMAND,
    ID_LEASE,
    ID_TTL,
    ID_TIMEOUT,
    ID_KILL_AFTER,
    ID_SIGNAL,
    ID_FOREGROUND,
    ID_PRESERVE,
    ID_ON_LOST,
    ID_HOLD_FOR,
    ID_NO_STDIN,
    ID_CLOSE_FDS,
    ID_ENV,
    ID_READY_FD,
    ID_ONLY_COMMAND,
    ID_RUN_END /* other subcommands that run commands have their own from here on */
};

/* How a command is run: the options of all subcommands that do. */
#define RUN_COMMAND_OPTIONS                                                                        \
    {OPTION_VALUE, ID_COMMAND, 'c', "command", true}, {OPTION_VALUE, ID_TTL, 0, "ttl", false},     \
        {OPTION_VALUE, ID_TIMEOUT, 't', "timeout", false},                                         \
        {OPTION_VALUE, ID_KILL_AFTER, 'k', "kill-after", false},                                   \
        {OPTION_VALUE, ID_SIGNAL, 0, "signal", false},                                             \
        {OPTION_FLAG, ID_FOREGROUND, 0, "foreground", false},                                      \
        {OPTION_FLAG, ID_NO_STDIN, 0, "no-stdin", false},                                          \
        {OPTION_FLAG, ID_CLOSE_FDS, 0, "close-fds", false},                                        \
        {OPTION_VALUE, ID_ENV, 0, "env", false}, {                                                 \
        OPTION_FLAG, ID_ONLY_COMMAND, 0, "only-command", false                                     \
    }

/* A command line that runs a command. */
struct run_line {
    const char *subcommand;
    struct connection *connection;
    struct run_options options;
    struct choice choice;
    char *shell[4]; /* the words of -c */
};

void run_line_init(struct run_line *line, const char *subcommand, struct connection *connection);
void run_line_free(struct run_line *line);
/* An option_fn; its user is the line. */
int run_take(void *user, int id, char *value, const char *shown);
/* After the options: NAME and COMMAND, and which server. Returns 0 or an exit status. */
int run_line_finish(struct run_line *line, int argc, char **argv);
/* Runs the command under the lock, once; returns its exit status, or dies of its signal. */
int run_line_run(const struct run_line *line);

/* The page both processes see, and the command's until it becomes the command. Each field has one
 * writer at a time, but for the last. */
struct shared {
    _Atomic int64_t deadline_ms; /* holder: of the hold, CLOCK_BOOTTIME; 0: nothing runs under it */
    /* holder: what the times before the deadline are a share of, if that is not the lease; 0: it is */
    _Atomic int64_t span_ms;
    _Atomic pid_t command; /* its own: its pid; holder: 0 once it is about to be reaped */
    _Atomic pid_t group;   /* its own: the command's process group, for good */
    atomic_bool parked;    /* guard: stops itself on purpose */
    atomic_bool warned;    /* either: the command has been sent TERM for its deadline */
};

struct run {
    const struct run_options *options;
    struct connection *connection;
    struct shared *shared;
    struct terminal terminal;
    struct tree_filter filter;
    bool own_group; /* the command gets a process group of its own */
    pid_t guard, guard_group;
    sigset_t watched;       /* what the two read from signalfds */
    sigset_t original_mask; /* what the command gets back */
    bool ignored_children;  /* SIGCHLD was ignored when we started */
};

/* ---- pair.c ---------------------------------------------------------------------------------- */

enum note_kind {
    NOTE_ACQUIRED = 1, /* holder: may I start the command? */
    NOTE_START,        /* guard: yes. value: hand it the terminal */
    NOTE_SIGNAL,       /* guard: for the command; before NOTE_START: give up. value: which */
    NOTE_STOPPED,      /* holder: the command has stopped. value: by which signal */
    NOTE_ENDED, /* holder: nothing is left of the command. value: status, signal: what killed it */
    NOTE_DONE   /* holder: the lock is released, exit. value, signal: likewise */
};

struct note {
    enum note_kind kind;
    int value;
    int signal;
};

/* Makes the page, the socket pair and the signal set, and blocks the set. Returns 0 or an exit
 * status. */
int pair_prepare(struct run *run, int ret_sockets[2]);
int pair_signalfd(const struct run *run);
void note_send(int socket, enum note_kind kind, int value, int signal);
/* 1: there is one; 0: none now; -1: the other side is gone. */
int note_receive(int socket, struct note *ret);

/* When the command must be warned and when it must be dead, for a hold that ends at
 * `deadline_ms`. */
int64_t hold_ttl(const struct run_options *options);
int64_t warn_time(const struct run *run, int64_t deadline_ms);
int64_t kill_time(const struct run *run, int64_t deadline_ms);
/* For how long one of the two may be stopped before the other acts. */
int64_t stall_limit(const struct run *run);
/* What --on-lost does to the command, for messages: "the command ...". */
const char *fate_of_command(const struct run_options *options);

/* Whether a signal is to end the command, so that one that is stopped has to be continued to hear
 * it. */
bool wakes_to_end(int signal);

/* ---- child.c --------------------------------------------------------------------------------- */

/* Starts the command. Returns its pid; or minus an errno value if it cannot be run. */
pid_t child_start(const struct run *run, char *const envp[], bool give_terminal);
/* The environment of the command, owned by the caller; NULL: out of memory. */
char **child_environment(const struct run *run, const char *owner, int64_t token);
void child_environment_free(char **envp);

/* ---- holder.c, guard.c ----------------------------------------------------------------------- */

/* The whole life of the holder process; returns when it may exit. */
void holder_run(struct run *run, int socket);
/* The whole life of the guard; returns the exit status, or does not return. */
int guard_run(struct run *run, int socket, pid_t holder);

#endif
