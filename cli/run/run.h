/* The parts of `holdfast run`.
 *
 * Two processes supervise the command:
 *
 *     guard    the process that the user started: forwards signals, owns the terminal's job
 *       |      control and the exit status
 *     holder   forked before any thread exists: has the library's client, acquires, renews and
 *       |      releases, and starts the command
 *     command  ... and all its descendants
 *
 * Both are subreapers. If either dies, the command and its descendants are children or descendants
 * of the other one. So each can kill and reap all of them alone. The holder is the lower one, so
 * job control (Ctrl-Z) can stop the guard as a shell expects, while the holder goes on renewing.
 *
 * They exchange notes over a socket pair; end of file tells one that the other has died. They share
 * a page with the deadline, so that the guard can act when the holder cannot. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "hold/held.h"
#include "run/terminal.h"
#include "run/tree.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

enum on_lost { ON_LOST_KILL, ON_LOST_SIGNAL, ON_LOST_IGNORE };

struct run_options {
    const char *name; /* with -m, the joined name */
    struct names names;
    const struct held_kind *kind;
    int64_t slots;
    char **argv;               /* of the command; NULL-terminated */
    const char *shell_command; /* -c */
    int64_t wait_ms;           /* HF_FOREVER; 0: one attempt */
    int64_t lease_ms;          /* 0: renewed by the watchdog; or HF_NO_LEASE */
    int64_t ttl_ms;            /* the watchdog's lease */
    int64_t timeout_ms;        /* 0: none */
    int64_t kill_after_ms;     /* 0: never */
    int64_t hold_for_ms;
    int busy_status;
    int signal; /* sent at --timeout */
    enum on_lost on_lost;
    bool foreground, preserve_status, no_stdin, close_fds, only_command;
    const char *env_prefix;
    const char *label; /* the holder's label at the server */
    int ready_fd;      /* -1: none */
};

/* ---- cmd_run.c: the command line ------------------------------------------------------------- */

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
    ID_LABEL,
    ID_RUN_END /* first id for the own options of other subcommands that run a command */
};

/* Options of every subcommand that runs a command. */
#define RUN_COMMAND_OPTIONS                                                                        \
    {OPTION_VALUE, ID_COMMAND, 'c', "command", true}, {OPTION_VALUE, ID_TTL, 0, "ttl", false},     \
        {OPTION_VALUE, ID_TIMEOUT, 't', "timeout", false},                                         \
        {OPTION_VALUE, ID_KILL_AFTER, 'k', "kill-after", false},                                   \
        {OPTION_VALUE, ID_SIGNAL, 0, "signal", false},                                             \
        {OPTION_FLAG, ID_FOREGROUND, 0, "foreground", false},                                      \
        {OPTION_FLAG, ID_NO_STDIN, 0, "no-stdin", false},                                          \
        {OPTION_FLAG, ID_CLOSE_FDS, 0, "close-fds", false},                                        \
        {OPTION_VALUE, ID_LABEL, 0, "label", false}, {OPTION_VALUE, ID_ENV, 0, "env", false}, {    \
        OPTION_FLAG, ID_ONLY_COMMAND, 0, "only-command", false                                     \
    }

#define LABEL_SIZE 65 /* the server gets at most 64 bytes */

/* The parsed command line of a subcommand that runs a command. */
struct run_args {
    const char *subcommand;
    struct connection *connection;
    struct run_options options;
    struct choice choice;
    struct either waiting, leasing; /* -n or -w, --ttl or --lease */
    char *shell[4];                 /* argv of -c */
    char label[LABEL_SIZE];         /* made from the command, if --label is not given */
};

/* label.c: a label for the command, without arguments that may be secret. */
void label_of_command(const struct run_options *options, char label[LABEL_SIZE]);

void run_args_init(struct run_args *args, const char *subcommand, struct connection *connection);
void run_args_free(struct run_args *args);
/* An option_fn; `user` is the line. */
int run_take(void *user, int id, char *value, const char *shown);
/* After the options: parses NAME and COMMAND, resolves the server. Returns 0 or an exit status. */
int run_args_finish(struct run_args *args, int argc, char **argv);
/* Runs the command under the lock, once. Returns its exit status, or dies of the same signal. */
int run_args_run(const struct run_args *args);

/* The page that guard and holder share; the command's process also writes it before exec. Each
 * field has one writer at a time, except `warned`. */
struct shared {
    _Atomic int64_t deadline_ms; /* holder: end of the hold, CLOCK_BOOTTIME; 0: no command */
    /* holder: warn and kill times are a fraction of this; 0: of the lease */
    _Atomic int64_t span_ms;
    _Atomic pid_t command; /* command before exec: its pid; holder: 0 just before reaping it */
    _Atomic pid_t group;   /* command before exec: its process group; never reset */
    atomic_bool parked;    /* guard: it stops itself on purpose */
    atomic_bool warned;    /* guard or holder: SIGTERM was sent because of the deadline */
};

struct run {
    const struct run_options *options;
    struct connection *connection;
    struct shared *shared;
    struct terminal terminal;
    struct tree_filter filter;
    bool own_group; /* the command gets a process group of its own */
    pid_t guard, guard_group;
    sigset_t watched;       /* signals that guard and holder read from signalfds */
    sigset_t original_mask; /* restored for the command */
    bool ignored_children;  /* SIGCHLD was ignored when we started */
};

/* ---- ipc.c ----------------------------------------------------------------------------------- */

enum note_kind {
    NOTE_ACQUIRED = 1, /* holder: acquired; may I start the command? */
    NOTE_START,        /* guard: yes. value: give it the terminal */
    NOTE_SIGNAL,       /* guard: forward signal `value`; before NOTE_START: give up */
    NOTE_STOPPED,      /* holder: the command has stopped. value: by which signal */
    NOTE_ENDED,        /* holder: no process is left. value: exit status, signal: what killed it */
    NOTE_DONE          /* holder: the lock is released, exiting. value, signal: as above */
};

struct note {
    enum note_kind kind;
    int value;
    int signal;
};

/* Creates the page and the socket pair, and blocks the watched signals. Returns 0 or an exit
 * status. */
int pair_prepare(struct run *run, int ret_sockets[2]);
int pair_signalfd(const struct run *run);
void note_send(int socket, enum note_kind kind, int value, int signal);
/* Returns 1: received; 0: none now; -1: the other process is gone. */
int note_receive(int socket, struct note *ret);

/* What --on-lost does to the command, for messages: "the command ...". */
const char *text_of_on_lost(const struct run_options *options);

/* ---- deadline.c: when the command is warned and killed --------------------------------------- */

/* The lease of the hold. */
int64_t hold_ttl(const struct run_options *options);
/* When the command must be warned and when it must be dead, if the hold ends at `deadline_ms`. */
int64_t warn_time(const struct run *run, int64_t deadline_ms);
int64_t kill_time(const struct run *run, int64_t deadline_ms);
/* How long the guard or the holder may be stopped before the other acts. */
int64_t stall_limit(const struct run *run);

/* ---- forward_signals.c ----------------------------------------------------------------------- */

/* Every catchable signal that would end us, and those of job control. Not those that our parent
 * ignores (nohup), and not those that a bug of ours would raise. */
void watched_signals(sigset_t *ret);
/* Whether a signal is meant to end the command. A stopped command then also needs SIGCONT. */
bool wakes_to_end(int signal);

/* ---- exit_status.c --------------------------------------------------------------------------- */

/* Of a command that could not be started, for this errno value. */
int exit_status_not_started(int error);
/* If the guard had to end the command without the holder. `ended`: wait_status is the command's. */
int exit_status_without_holder(const struct run_options *options, bool ended, int wait_status);

/* ---- spawn.c --------------------------------------------------------------------------------- */

/* Starts the command. Returns its pid, or minus an errno value. */
pid_t child_start(const struct run *run, char *const envp[], bool give_terminal);
/* The command's environment, owned by the caller; NULL: out of memory. */
char **child_environment(const struct run *run, const char *owner, int64_t token);
void child_environment_free(char **envp);

/* ---- holder.c, guard.c ----------------------------------------------------------------------- */

/* Main function of the holder process; returns when it may exit. */
void holder_run(struct run *run, int socket);
/* Main function of the guard. Returns the exit status, or dies of SIGINT. */
int guard_run(struct run *run, int socket, pid_t holder);

#endif
