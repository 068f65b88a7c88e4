/* What `run` and `hold` hold: a lock of some kind, or one of several slots. The two differ only in
 * their table of functions; callers see no difference. */
#ifndef CLI_HELD_H
#define CLI_HELD_H

#include "cli.h"

struct held;

/* Acquire, query, release. `acquire` and `release` return HF_OK when they have started; then
 * `acquired` or `released` is called once, from hf_dispatch(). */
struct held_ops {
    const char *noun;                  /* for messages: "lock", "slot" */
    const char *busy, *timed_out;      /* messages: why it was not acquired */
    int (*acquire)(struct held *held); /* sets `owner` and `token` on success */
    int (*release)(struct held *held);
    int64_t (*remaining_ms)(const struct held *held);
    void (*free)(struct held *held);
};

struct held_kind {
    const char *name; /* for HOLDFAST_KIND and the output line of `hold` */
    const struct held_ops *ops;
    bool exclusive; /* excludes every other holder */
    hf_kind lock;   /* of locks only, like `flags` */
    unsigned flags;
};

/* The locks of -m. */
struct names {
    char **of; /* point into argv */
    size_t len;
    char *joined; /* by spaces; owned. NULL: -m was not given */
};

/* How much of a wait --verbose has reported. */
enum holder_query {
    HOLDER_QUERY_NONE,
    HOLDER_QUERY_SENT,
    HOLDER_QUERY_ANSWERED,
    HOLDER_QUERY_DONE
};

struct held {
    /* Set by the caller before held_acquire(). */
    const struct held_kind *kind;
    hf_client *client;         /* with manual dispatch */
    const char *name;          /* with -m, the joined name */
    const struct names *names; /* with -m; else NULL */
    int64_t slots;
    int64_t wait_ms, lease_ms; /* as in hf_acquire_options */
    int64_t ttl_ms;            /* the watchdog's lease */
    void (*acquired)(void *user, const hf_result *result);
    void (*released)(void *user, const hf_result *result);
    void (*hold_event)(void *user, const hf_event *event); /* called only while it is held */
    void *user;

    /* Set when it is acquired. */
    char owner[96];         /* of a string lock its token */
    int64_t token;          /* 0: none */
    int64_t votes, servers; /* of a quorum; 0: not a quorum */
    int64_t acked;          /* number of replicas that acknowledged it */

    /* Private. */
    hf_lock *lock;
    hf_owner number; /* 0 (any owner) before it is acquired */
    hf_permits *permits;
    hf_permit_id id;
    hf_op *op; /* the operation in flight */
    hf_result failure;
    int64_t began_ms;
    enum holder_query holder_query;
    bool canceled;
    bool is_held;
    bool was_busy; /* not acquired because another holder has it */
};

int held_acquire(struct held *held);
/* Ends the wait. `acquired` is still called, perhaps with success. */
void held_cancel(struct held *held);
int held_release(struct held *held);
/* How long the hold is still valid, without asking the server. */
int64_t held_remaining_ms(const struct held *held);
/* Call before the client is closed. Accepts a partly initialised one. */
void held_free(struct held *held);

/* For a loop that waits for `acquired`: reports the wait, with --verbose. Returns for how long the
 * loop may sleep in ms; -1: no limit. */
int held_watch_wait(struct held *held);
/* With --verbose: reports the acquire and how long it took; reports the release. */
void held_report_acquired(const struct held *held);
void held_report_released(const struct held *held);
/* After a release that failed with HF_ELOST: says when the hold was lost ("while the command
 * ran"). */
void held_report_lost(const struct held *held, const char *when, const hf_error *error);

/* Says why the acquire failed, and returns the exit status. `busy_status` is the value of -E. */
int held_failed(struct held *held, const hf_result *result, int busy_status);
/* With --verbose, after the loop: shows the holders that were in the way, if there were any. */
void held_report_holder(const struct held *held);
/* The name that failed. With -m, the library's error text begins with it. Otherwise the one name,
 * or the joined name. */
const char *held_failed_name(const struct held *held, const hf_error *error);
/* For a name in use by another kind of object: asks the server which, and names the option for
 * it. */
void held_explain(hf_client *client, const char *name);

/* Completion of a release, for held_lock.c and held_slot.c; `user` is the struct held. */
void held_on_released(hf_op *op, const hf_result *result, void *user);

extern const struct held_ops held_lock_ops, held_slot_ops;

/* Why --ttl and --lease exclude each other, for the error message. */
#define EXCLUSIVE_LEASES "a lease is either renewed (--ttl) or fixed (--lease); give one"

/* Takes the value of --label. Returns 0 or an exit status. */
int take_label(const char *subcommand, const char *value, const char *shown, const char **ret);

/* ---- parent_label.c ------------------------------------------------------------------------- */

#define PARENT_LABEL_SIZE 65 /* the server gets at most 64 bytes */

/* The name of the parent process, without its arguments, in `label`; NULL: not known. */
const char *label_of_parent(char label[PARENT_LABEL_SIZE]);

/* ---- names.c: the lock names ----------------------------------------------------------------- */

/* Takes the words of -m. Returns 0 or an exit status. */
int names_take(struct names *names, const char *subcommand, char **words, size_t len);
void names_free(struct names *names);

/* ---- cmd_handle.c ---------------------------------------------------------------------------- */

/* After connection_resolve(): returns 0, or STATUS_USAGE if this kind of server has no handles. */
int handle_check_servers(const struct connection *connection, const char *subcommand);

/* ---- lock_kind.c: the kind, from the options ------------------------------------------------- */

struct choice {
    const struct held_kind *kind; /* NULL: not given yet */
    int64_t slots;
    char shown[32]; /* the option that chose it */
    bool by_flag;   /* from the command line, not the environment */
    bool exclusive; /* -x was given */
    bool several;   /* -m was given */
    bool no_lease;  /* --lease none */
};

enum { CHOICE_ID_FIRST = 2000 };
#define CHOICE_ID_SLOTS (CHOICE_ID_FIRST + 6)
#define CHOICE_ID_EXCLUSIVE (CHOICE_ID_FIRST + 7)
#define CHOICE_ID_SEVERAL (CHOICE_ID_FIRST + 8)

/* In the order of the kinds in lock_kind.c. */
#define CHOICE_OPTIONS                                                                             \
    {OPTION_FLAG, CHOICE_ID_FIRST, 's', "shared", false},                                          \
        {OPTION_FLAG, CHOICE_ID_FIRST + 1, 'W', "write", false},                                   \
        {OPTION_FLAG, CHOICE_ID_FIRST + 2, 0, "fair", false},                                      \
        {OPTION_FLAG, CHOICE_ID_FIRST + 3, 0, "fenced", false},                                    \
        {OPTION_FLAG, CHOICE_ID_FIRST + 4, 0, "spin", false},                                      \
        {OPTION_FLAG, CHOICE_ID_FIRST + 5, 0, "string", false},                                    \
        {OPTION_VALUE, CHOICE_ID_SLOTS, 'N', "slots", false},                                      \
        {OPTION_FLAG, CHOICE_ID_SEVERAL, 'm', "multi", true},                                      \
        {OPTION_FLAG, CHOICE_ID_EXCLUSIVE, 'x', "exclusive", true}, {                              \
        OPTION_FLAG, CHOICE_ID_EXCLUSIVE, 'e', NULL, true                                          \
    }

/* If `id` is one of CHOICE_OPTIONS: takes it, sets *ret_status to 0 or an exit status, and returns
 * true. */
bool choice_option(struct choice *choice, const char *subcommand, int id, const char *value,
                   const char *shown, int *ret_status);
/* After all options are read: sets `kind`. Returns 0 or an exit status. */
int choice_settle(struct choice *choice, const char *subcommand);
/* Then: notes the lease. Returns 0, or an exit status if that kind cannot be without one. */
int choice_check_lease(struct choice *choice, const char *subcommand, int64_t lease_ms);
/* After connection_resolve(): returns 0, or an exit status if a quorum does not offer that kind. */
int choice_check_servers(const struct choice *choice, const struct connection *connection,
                         const char *subcommand);

#endif
