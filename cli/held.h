/* What `run` and `hold` hold: a lock of some kind, or one of several slots. They differ in a table
 * of functions and in nothing that their users see. */
#ifndef CLI_HELD_H
#define CLI_HELD_H

#include "cli.h"

struct held;

/* How to get, keep and give back. Functions return HF_OK when they have started; then `acquired` or
 * `released` is called once, from hf_dispatch(). */
struct held_ops {
    const char *noun;                  /* for messages: "lock", "slot" */
    const char *busy, *timed_out;      /* why it was not acquired */
    int (*acquire)(struct held *held); /* sets `owner` and `token` when it succeeds */
    int (*release)(struct held *held);
    int64_t (*remaining_ms)(const struct held *held);
    void (*free)(struct held *held);
};

struct held_kind {
    const char *name; /* for HOLDFAST_KIND and the line of `hold` */
    const struct held_ops *ops;
    bool exclusive; /* no other holds it at the same time */
    hf_kind lock;   /* for locks, as are the flags */
    unsigned flags;
};

/* The locks of -m. */
struct names {
    char **of; /* words of argv */
    size_t len;
    char *joined; /* by spaces; owned. NULL: -m was not given */
};

/* How far --verbose is with telling of a wait. */
enum telling { TELL_NOTHING, TELL_ASKED, TELL_ANSWERED, TELL_DONE };

struct held {
    /* Set by the user before held_acquire(). */
    const struct held_kind *kind;
    hf_client *client;         /* with manual dispatch */
    const char *name;          /* of several: how they are called together */
    const struct names *names; /* of several; else NULL */
    int64_t slots;
    int64_t wait_ms, lease_ms; /* as in hf_acquire_options */
    int64_t ttl_ms;            /* the watchdog's lease */
    void (*acquired)(void *user, const hf_result *result);
    void (*released)(void *user, const hf_result *result);
    void (*trouble)(void *user, const hf_event *event); /* only once it is acquired */
    void *user;

    /* Set when it is acquired. */
    char owner[64];
    int64_t token;          /* 0: none */
    int64_t votes, servers; /* of a quorum; 0: it is none */
    int64_t acked;          /* so many replicas have confirmed it */

    /* Private. */
    hf_lock *lock;
    hf_owner number; /* 0 before it is acquired: any */
    hf_permits *permits;
    hf_permit_id id;
    hf_op *op; /* what is on its way */
    hf_result failure;
    int64_t began_ms;
    enum telling telling;
    bool canceled;
    bool is_held;
};

int held_acquire(struct held *held);
/* Ends the wait. `acquired` is called all the same, perhaps with success. */
void held_cancel(struct held *held);
int held_release(struct held *held);
/* How long it can still be trusted, from memory. */
int64_t held_remaining_ms(const struct held *held);
/* Before the client is closed; half-made ones too. */
void held_free(struct held *held);

/* For a loop that waits for `acquired`: tells of the wait, if that is wanted. Returns for how long
 * it may sleep; -1: until something happens. */
int held_watch_wait(struct held *held);
/* With --verbose: that it was acquired, and after how long; that it was released. */
void held_tell_acquired(const struct held *held);
void held_tell_released(const struct held *held);
/* The release has failed with HF_ELOST: says when it was lost ("while the command ran"). */
void held_tell_lost(const struct held *held, const char *when, const hf_error *error);

/* Says why it was not acquired, and returns the exit status for it. `busy_status` is that of -E. */
int held_failed(const struct held *held, const hf_result *result, int busy_status);
/* Of several, which one it was; the library's words begin with its name. Else the name, or what they are
 * called together. */
const char *held_failed_name(const struct held *held, const hf_error *error);
/* Asks the server what a name is that is in use for something else, and says which option is for
 * it. */
void held_explain(hf_client *client, const char *name);

/* For the two: a release has ended; `user` is the held. */
void held_on_released(hf_op *op, const hf_result *result, void *user);

extern const struct held_ops held_lock_ops, held_slot_ops;

/* ---- names.c: which locks --------------------------------------------------------------------- */

/* Takes the words of -m. Returns 0 or an exit status. */
int names_take(struct names *names, const char *subcommand, char **words, size_t len);
void names_free(struct names *names);

/* ---- cmd_handle.c ----------------------------------------------------------------------------- */

/* After connection_resolve(): 0, or STATUS_USAGE where there are no handles. */
int handle_check_servers(const struct connection *connection, const char *subcommand);

/* ---- choice.c: which kind, by options -------------------------------------------------------- */

struct choice {
    const struct held_kind *kind; /* NULL: not given yet */
    int64_t slots;
    char shown[32]; /* the option that chose it */
    bool by_flag;   /* on the command line, not in the environment */
    bool exclusive; /* -x was given */
    bool several;   /* -m was */
};

enum { CHOICE_ID_FIRST = 2000 };
#define CHOICE_ID_SLOTS (CHOICE_ID_FIRST + 5)
#define CHOICE_ID_EXCLUSIVE (CHOICE_ID_FIRST + 6)
#define CHOICE_ID_SEVERAL (CHOICE_ID_FIRST + 7)

/* In the order of the kinds in choice.c. */
#define CHOICE_OPTIONS                                                                             \
    {OPTION_FLAG, CHOICE_ID_FIRST, 's', "shared", false},                                          \
        {OPTION_FLAG, CHOICE_ID_FIRST + 1, 'W', "write", false},                                   \
        {OPTION_FLAG, CHOICE_ID_FIRST + 2, 0, "fair", false},                                      \
        {OPTION_FLAG, CHOICE_ID_FIRST + 3, 0, "fenced", false},                                    \
        {OPTION_FLAG, CHOICE_ID_FIRST + 4, 0, "spin", false},                                      \
        {OPTION_VALUE, CHOICE_ID_SLOTS, 'N', "slots", false},                                      \
        {OPTION_FLAG, CHOICE_ID_SEVERAL, 'm', "multi", true},                                      \
        {OPTION_FLAG, CHOICE_ID_EXCLUSIVE, 'x', "exclusive", true}, {                              \
        OPTION_FLAG, CHOICE_ID_EXCLUSIVE, 'e', NULL, true                                          \
    }

/* Whether an option is one of these, and then takes it: *ret_status is 0 or an exit status. */
bool choice_option(struct choice *choice, const char *subcommand, int id, const char *value,
                   const char *shown, int *ret_status);
/* When all options are read: returns 0 or an exit status, and `kind` is set. */
int choice_settle(struct choice *choice, const char *subcommand);
/* After connection_resolve(): does a quorum offer that kind? */
int choice_check_servers(const struct choice *choice, const struct connection *connection,
                         const char *subcommand);

#endif
