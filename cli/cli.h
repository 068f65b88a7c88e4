/* What every part of the tool shares: exit statuses, messages, values, options, the connection, and
 * the table of subcommands. The tool is a user of the library like any other: of holdfast it sees
 * only <holdfast/holdfast.h>. */
#ifndef CLI_H
#define CLI_H

#include <holdfast/holdfast.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The statuses of the manual. 128 + n is added where a signal was the reason. */
enum status {
    STATUS_OK = 0,
    STATUS_NO = 1,           /* a question was answered with no */
    STATUS_USAGE = 64,       /* the command line is wrong */
    STATUS_DATA = 65,        /* the name is in use for something that is no such lock */
    STATUS_UNAVAILABLE = 69, /* the server cannot be reached, cannot serve, or is no Redis */
    STATUS_INTERNAL = 70,    /* our bug */
    STATUS_OS = 71,          /* the operating system refused */
    STATUS_BUSY = 75,        /* not acquired; -E overrides it */
    STATUS_DENIED = 77,      /* password, user or access list */
    STATUS_LOST = 79,        /* the lock was lost while it was needed */
    STATUS_TIMED_OUT = 124,  /* the command exceeded its time */
    STATUS_NOT_RUNNABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128
};

/* ---- message.c: what the tool says, always on stderr ----------------------------------------- */

enum level { LEVEL_ERROR, LEVEL_NOTICE, LEVEL_INFO, LEVEL_DEBUG };

/* -1 with --quiet (errors only), 0, and one more for each --verbose. */
void message_setup(int verbosity, bool json);
bool message_wanted(enum level level);
void say(enum level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says what is wrong with the command line, and where help is. Returns STATUS_USAGE. */
int usage_error(const char *subcommand, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Says that the library could not do something, and returns the exit status for it. `error` may be
 * NULL. */
int library_error(int code, const hf_error *error, const char *doing, const char *name);

/* Prints a JSON object on stdout, in one line, and frees it. Returns STATUS_OK or STATUS_OS. */
struct json_t;
int print_json(struct json_t *object);
/* A JSON string of any bytes: what is no UTF-8 becomes U+FFFD. */
struct json_t *json_text(const char *text);
struct json_t *json_bytes(const char *text, size_t len); /* with any NUL that is in it */

/* ---- text.c: what others wrote, on its way to a terminal -------------------------------------- */

/* Puts a question mark in place of everything a terminal would obey, and of what is no UTF-8. */
void text_disarm(char *text);

/* A name as it may be shown on a terminal. Into `buffer`; cut if it is long. */
#define SHOWN_NAME_SIZE 128
const char *shown_name(const char *name, char buffer[SHOWN_NAME_SIZE]);

/* A line of JSON, with escapes for everything a terminal would obey, and its newline. */
void text_write_json(FILE *out, const char *line);

/* ---- explain.c: what a name is, when it is not what was expected ----------------------------- */

struct explanation {
    hf_found kind;
    const char *words; /* "'NAME' is ..." */
};

/* Asks the server what is under the name, and says so: in the words of the table, which ends where
 * there are none, or else that it is no `noun`, but something of such a type. */
void explain_name(hf_client *client, const char *name, const char *noun,
                  const struct explanation *all);
/* "'NAME' is no NOUN, but a TYPE": for what is none of ours. */
void say_other(const char *name, const char *noun, const char *type);
/* A word for what was found. */
const char *found_word(hf_found kind);

/* ---- numbers.c ------------------------------------------------------------------------------- */

/* The numbers of things that are no locks. A name in the first column is a line and a key of
 * JSON. */
struct numbers {
    size_t len;
    struct {
        const char *name;
        int64_t value;
    } all[3];
};

/* What there is to count, by kind: nothing of a lock. HF_OK, or why it could not be asked. */
int numbers_count(hf_client *client, const char *name, hf_found kind, struct numbers *ret);

/* ---- values.c: the values of options --------------------------------------------------------- */

/* These return false for what is no such value. */
bool parse_duration(const char *text,
                    int64_t *ret_ms); /* float[ms|s|m|h|d]; seconds without a unit */
bool parse_number(const char *text, long low, long high, long *ret);
bool parse_acks(const char *text, int *ret_acks);     /* off, report, all, or a number */
bool parse_signal(const char *text, int *ret_signal); /* TERM, SIGTERM or 15 */
bool parse_switch(const char *text,
                  bool *ret); /* of an environment variable: 1, yes, true, on, ... */

int64_t now_ms(void); /* CLOCK_BOOTTIME: it goes on while the machine sleeps, as leases do */

/* ---- signals.c ------------------------------------------------------------------------------- */

/* Blocks INT, TERM, HUP and QUIT, but not those that our parent told us to ignore, and returns a
 * descriptor to read them from (struct signalfd_siginfo, without blocking). Negative: there is
 * none. */
int ending_signals(void);

/* ---- options.c: the command line and the environment ----------------------------------------- */

enum option_kind {
    OPTION_END = 0, /* ends a table */
    OPTION_FLAG,
    OPTION_VALUE
};

struct option_spec {
    enum option_kind kind;
    int id;           /* what the callback gets */
    char letter;      /* 0: has none */
    const char *name; /* long name; NULL: has none */
    bool no_env;      /* makes no sense in the environment */
};

/* Takes one option. `shown` is how the user wrote it. The value is part of argv or of the
 * environment and may be overwritten. Returns 0, or an exit status when it has said what is
 * wrong. */
typedef int (*option_fn)(void *user, int id, char *value, const char *shown);

/* Reads options up to the first operand or past `--`. Returns the index of the first operand, or
 * minus an exit status. `subcommand` is NULL for the options before it. */
int options_parse(const struct option_spec *specs, const char *subcommand, int argc, char **argv,
                  option_fn take, void *user);

/* Reads HOLDFAST_<NAME> for each option that has a long name. Returns 0 or an exit status. */
int options_environment(const struct option_spec *specs, const char *subcommand, option_fn take,
                        void *user);

/* ---- connect.c: which server, and as whom ---------------------------------------------------- */

struct setting {
    char *value; /* owned; NULL: not given */
    bool flag;   /* given on the command line, not by the environment */
};

struct connection {
    struct setting url, host, port, socket, db, user, password, password_file;
    struct setting limit;         /* -t */
    struct setting tls, insecure; /* given or not; the value means nothing */
    struct setting cacert, cacertdir, cert, key, sni;
    struct setting sentinel; /* the name of the primary: host and port are sentinels */
    struct setting sentinel_password_file;
    struct setting cluster; /* given or not: host and port are nodes of a cluster */
    struct setting acks, ack_timeout;
    bool askpass;
    bool no_local;     /* local: is not for want of anything else */
    bool service_link; /* HOLDFAST_PORT is Kubernetes' */
    bool quiet;
    bool json;
    int verbosity;
    bool from_flags; /* while options are read: are these flags? */

    /* Set by connection_resolve(). */
    char *target;            /* the url, without a password that came from elsewhere */
    char *sentinel_password; /* NULL: none */
    bool by_default;
};

/* address.c: the url for -h, -p, -s, -n, --sentinel and --cluster; NULL: out of memory. And whether one has TLS, or would have it with
 * an `s` behind its scheme. */
char *connection_url_of_parts(const struct connection *connection);
bool url_has_tls(const char *url);
bool url_is_zk(const char *url);
bool url_is_cluster(const char *url);
bool url_can_have_tls(const char *url);
/* An option of a url that the library has accepted, to be freed; NULL: it has none of that name. */
char *url_option(const char *url, const char *name);

extern const struct option_spec connection_options[];
int connection_option(void *user, int id, char *value, const char *shown);

/* Options that may also be given after the subcommand: --quiet, --verbose, --json. */
enum {
    OPTION_ID_QUIET = 1000,
    OPTION_ID_VERBOSE,
    OPTION_ID_JSON,
    OPTION_ID_HELP,
    OPTION_ID_VERSION
};
#define COMMON_OPTIONS                                                                             \
    {OPTION_FLAG, OPTION_ID_QUIET, 'q', "quiet", false},                                           \
        {OPTION_FLAG, OPTION_ID_VERBOSE, 'v', "verbose", false},                                   \
        {OPTION_FLAG, OPTION_ID_JSON, 0, "json", false}, {                                         \
        OPTION_FLAG, OPTION_ID_HELP, 0, "help", true                                               \
    }

/* True when it was one of the common options. */
bool common_option(struct connection *connection, int id);

/* servers.c: several urls, which are a quorum. After connection_resolve(). */
bool connection_has_several(const struct connection *connection);
/* 0, or STATUS_USAGE: `what` is not offered by a quorum. */
int connection_refuse_several(const struct connection *connection, const char *subcommand,
                              const char *what);
/* Takes the next url of a list into one->target, which the caller frees. False: there is none. */
bool connection_next_server(const char **list, struct connection *one);
/* How to call it in messages. */
void connection_shown_server(const struct connection *one, char *shown, size_t size);
/* The list with one more; the caller frees it. NULL: out of memory. */
char *connection_add_server(const char *list, const char *url);

/* Decides on the url and finds the password; may ask for it. Returns 0 or an exit status. */
int connection_resolve(struct connection *connection);

/* Opens the client; `options` may be preset, `user` and the like are filled in, and `log` if it is
 * NULL. Returns 0 or an exit status. */
int connection_open(struct connection *connection, hf_options *options, hf_client **ret_client);
void connection_free(struct connection *connection);

/* ---- environment.c: mistakes in the environment ---------------------------------------------- */

/* These return 0, or an exit status after saying what is wrong. */
int environment_check_empty(const char *variable);
/* For a variable that looks like HOLDFAST_URL and is not. `other_url`: REDIS_URL is there, so only
 * names count, not values. */
int environment_check_slips(bool other_url);
/* Whether a value is what Kubernetes puts into <SERVICE>_PORT. */
bool environment_is_service_link(const char *value);

/* ---- told.c ----------------------------------------------------------------------------------- */

/* Says that local: is used for want of anything else; on a terminal, and at most once a day. */
void tell_of_default(void);

/* ---- warning.c: the library's warnings -------------------------------------------------------- */

void warning_begin(void); /* when the client is opened */
void warning_take(const char *text);
/* For a loop that is about to sleep for `limit_ms` (-1: for ever): says what is due, and returns for
 * how long it may sleep. */
int warning_look(int limit_ms);
/* At the end, or before an error with this text (NULL: none): says what has not been said. */
void warning_finish(const char *error_text);

/* ---- The subcommands ------------------------------------------------------------------------- */

struct command {
    const char *name;
    const char *summary; /* one line */
    const char *usage;   /* what follows the name, then the options, one in a line */
    /* argv[0] is the subcommand. Returns the exit status. */
    int (*run)(struct connection *connection, int argc, char **argv);
};

extern const struct command command_run, command_elect, command_hold, command_acquire,
    command_extend, command_release, command_unlock, command_show, command_ls, command_watch,
    command_top, command_doctor, command_bench, command_serve, command_sem, command_latch,
    command_completion, command_version, command_help;

const struct command *command_find(const char *name);
const struct command *command_at(size_t index); /* NULL: there are no more */
void print_help(const struct command *command); /* on stdout; NULL: of the tool */

/* Parses the options of a subcommand, environment first. Returns the index of the first operand, or
 * minus an exit status; 0 after --help, which it has printed. */
int command_options(const struct command *command, const struct option_spec *specs, int argc,
                    char **argv, option_fn take, void *user);

#endif
