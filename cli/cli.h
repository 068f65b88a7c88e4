/* Shared by all parts of the tool: exit statuses, messages, values, options, the connection, and
 * the table of subcommands. The tool uses the library like any other program: it includes only
 * <holdfast/holdfast.h>. */
#ifndef CLI_H
#define CLI_H

#include <holdfast/holdfast.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses, as in the manual. After a signal n it is 128 + n. */
enum status {
    STATUS_OK = 0,
    STATUS_NO = 1,           /* the answer is no */
    STATUS_USAGE = 64,       /* the command line is wrong */
    STATUS_DATA = 65,        /* the name is in use by another kind of object */
    STATUS_UNAVAILABLE = 69, /* the server cannot be reached, cannot serve, or is not Redis */
    STATUS_INTERNAL = 70,    /* a bug of ours */
    STATUS_OS = 71,          /* a system call failed */
    STATUS_BUSY = 75,        /* not acquired; -E overrides it */
    STATUS_DENIED = 77,      /* password, user or access list */
    STATUS_LOST = 79,        /* the lock was lost while it was held */
    STATUS_TIMED_OUT = 124,  /* the command ran into --timeout */
    STATUS_NOT_RUNNABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128
};

/* ---- message.c: messages, always on stderr --------------------------------------------------- */

enum level { LEVEL_ERROR, LEVEL_NOTICE, LEVEL_INFO, LEVEL_DEBUG };

/* verbosity: -1 with --quiet (errors only), 0, and one more for each --verbose. */
void message_setup(int verbosity, bool json);
bool message_wanted(enum level level);
void say(enum level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a message is about. With --json these are separate fields. All are optional. */
struct subject {
    int code;           /* of the library; HF_OK: none */
    const char *lock;   /* the lock's name; NULL: that of message_lock() */
    const char *server; /* NULL: the server of message_server() */
    const char *hint;   /* what to do; without --json a line of its own. NULL: none */
};
void say_of(enum level level, const struct subject *subject, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets the server of later messages, without secrets; NULL: none. Call it before other threads
 * exist. */
void message_server(const char *shown);
/* Sets the lock of later messages: the one that the subcommand is about; NULL: none. Copies. Call it
 * before other threads exist. */
void message_lock(const char *name);

/* Says what is wrong with the command line, and how to get help. Returns STATUS_USAGE. */
int usage_error(const char *subcommand, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with the library's code, if that is not HF_EINVAL. */
int usage_error_of(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says which library call failed, and returns the exit status for it. `error` may be NULL. */
int library_error(int code, const hf_error *error, const char *doing, const char *name);
/* exit_codes.c: the exit status that an HF_E... code becomes. */
enum status status_of_error(int code);

/* Flushes stdout. Returns STATUS_OK, or STATUS_OS after a message. */
int finish_output(void);
/* Prints a JSON object on one line of stdout, and frees it. Returns STATUS_OK or STATUS_OS. */
struct json_t;
int print_json(struct json_t *object);
/* A JSON string of any bytes: bytes that are not UTF-8 become U+FFFD. */
struct json_t *json_text(const char *text);
struct json_t *json_bytes(const char *text, size_t len); /* may contain NUL */

/* ---- escape.c: untrusted text on a terminal -------------------------------------------------- */

/* Replaces terminal control characters and invalid UTF-8 by question marks. */
void text_disarm(char *text);

/* A name that is safe to show on a terminal, in `buffer`; truncated if it is long. */
#define SHOWN_NAME_SIZE 128
const char *shown_name(const char *name, char buffer[SHOWN_NAME_SIZE]);

/* Writes a line of JSON and a newline, with terminal control characters escaped. */
void text_write_json(FILE *out, const char *line);

/* ---- explain.c: a name in use by another kind of object -------------------------------------- */

struct explanation {
    hf_found kind;
    const char *words; /* "'NAME' is ..." */
};

/* Asks the server what kind of object has the name, and prints the text of `all` for it, or else
 * that it is not a `noun`. The table ends with `words` NULL. */
void explain_name(hf_client *client, const char *name, const char *noun,
                  const struct explanation *all);
/* "'NAME' is not a NOUN, but a TYPE": for an object of another program. */
void say_other(const char *name, const char *noun, const char *type);
/* The word for a kind of object. */
const char *found_text(hf_found kind);

/* ---- counts.c -------------------------------------------------------------------------------- */

/* Counts of an object that is not a lock. `name` is the row's label in text, and the key in
 * JSON. */
struct numbers {
    size_t len;
    struct {
        const char *name;
        int64_t value;
    } all[3];
};

/* Asks for the counts of an object of this kind; a lock has none. Returns HF_OK or an error
 * code. */
int numbers_count(hf_client *client, const char *name, hf_found kind, struct numbers *ret);

/* ---- parse.c: the values of options ---------------------------------------------------------- */

/* These return false if the text is not a valid value. */
bool parse_duration(const char *text,
                    int64_t *ret_ms);                /* float[ms|s|m|h|d]; seconds without a unit */
bool parse_lease(const char *text, int64_t *ret_ms); /* a duration, or `none`: HF_NO_LEASE */
bool parse_number(const char *text, long low, long high, long *ret);
bool parse_acks(const char *text, int *ret_acks);     /* off, report, all, or a number */
bool parse_signal(const char *text, int *ret_signal); /* TERM, SIGTERM or 15 */
bool parse_switch(const char *text,
                  bool *ret); /* of an environment variable: 1, yes, true, on, ... */

/* Says that a duration is invalid, or 0. Returns STATUS_USAGE. */
int duration_error(const char *subcommand, const char *shown, const char *value);

int64_t now_ms(void); /* CLOCK_BOOTTIME: like leases, it runs on during suspend */

/* ---- ending_signals.c ------------------------------------------------------------------------ */

/* Blocks INT, TERM, HUP and QUIT, except those that our parent ignores. Returns a non-blocking
 * signalfd for them; negative on failure. */
int ending_signals(void);

/* ---- poll_fds.c ------------------------------------------------------------------------------ */

/* poll() that also works when RLIMIT_NOFILE has been lowered below `len`, where poll() fails at
 * once. */
struct pollfd;
int await_fds(struct pollfd *fds, size_t len, int timeout_ms);

/* ---- options.c: the command line ------------------------------------------------------------- */

enum option_kind {
    OPTION_END = 0, /* ends a table */
    OPTION_FLAG,
    OPTION_VALUE
};

struct option_spec {
    enum option_kind kind;
    int id;           /* passed to the callback */
    char letter;      /* 0: none */
    const char *name; /* long name; NULL: none */
    bool no_env;      /* not read from the environment */
};

/* Takes one option. `shown` is how the user wrote it. The value points into argv or the environment
 * and may be overwritten. Returns 0, or an exit status after printing the error. */
typedef int (*option_fn)(void *user, int id, char *value, const char *shown);

/* Parses options up to the first operand or past `--`. Returns the index of the first operand, or
 * minus an exit status. `subcommand` is NULL for the options in front of it. */
int options_parse(const struct option_spec *specs, const char *subcommand, int argc, char **argv,
                  option_fn take, void *user);

/* Two mutually exclusive options. */
struct either {
    int id;         /* the given one; 0: none yet */
    char shown[32]; /* how the user wrote it */
};
/* Records one of the two. The command line overrides the environment. If both come from the same
 * source: prints `why` and returns STATUS_USAGE. */
int either_take(struct either *either, const char *subcommand, int id, const char *shown,
                const char *why);

/* -w and its value, or -n with none. Returns 0 or an exit status. */
int take_wait(struct either *either, const char *subcommand, const char *value, const char *shown,
              int64_t *ret_ms);

/* ---- suggest.c: "did you mean" --------------------------------------------------------------- */

/* Whether the words differ by one letter added, missing or wrong, by two letters swapped, or only
 * in case. */
bool one_typo_apart(const char *typed, size_t typed_len, const char *meant);
/* Says that a word is not a subcommand, and suggests one. Returns STATUS_USAGE. */
int no_subcommand(const char *word);
/* The long option that was probably meant; NULL: none. */
const char *option_meant(const struct option_spec *specs, const char *name, size_t name_len);

/* ---- connect.c: the server and the credentials ----------------------------------------------- */

struct setting {
    char *value; /* owned; NULL: not given */
    bool flag;   /* from the command line, not the environment */
};

struct connection {
    struct setting url, host, port, socket, db, user, password, password_file;
    struct setting limit;         /* -t */
    struct setting tls, insecure; /* given or not; the value is unused */
    struct setting cacert, cacertdir, cert, key, sni;
    struct setting sentinel; /* the primary's name; host and port are sentinels */
    struct setting sentinel_password_file;
    struct setting
        sentinel_confirm;   /* given or not: sentinels confirm the primary behind renewals */
    struct setting cluster; /* given or not: host and port are cluster nodes */
    struct setting acks, ack_timeout;
    bool askpass;
    bool no_local;     /* local: is not used as the default */
    bool service_link; /* HOLDFAST_PORT was set by Kubernetes */
    bool quiet;
    bool json;
    int verbosity;
    bool from_flags; /* while options are read: they come from the command line */

    /* Set by connection_resolve(). */
    char *target;            /* the url or urls, without a password from elsewhere */
    char *sentinel_password; /* NULL: none */
    bool by_default;
    const char *url_source; /* -u or a variable; NULL: the url was made of parts */

    bool opened; /* connection_open() has succeeded once */
};

/* address.c: the url for -h, -p, -s, -n, --sentinel and --cluster; NULL: out of memory. Also
 * whether a url uses TLS, or could with an `s` added to its scheme. */
char *connection_url_of_parts(const struct connection *connection);
bool url_has_tls(const char *url);
bool url_is_zk(const char *url);
bool url_is_cluster(const char *url);
bool url_can_have_tls(const char *url);
/* The value of a url's option, to be freed; NULL: not in the url. The library must have accepted
 * the url. */
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

/* True if it was one of the common options. */
bool common_option(struct connection *connection, int id);

/* servers.c: several urls form a quorum. Call these after connection_resolve(). */
bool connection_has_several(const struct connection *connection);
/* Returns 0, or STATUS_USAGE if there are several servers: a quorum does not offer `what`. */
int connection_refuse_several(const struct connection *connection, const char *subcommand,
                              const char *what);
/* Copies the next url of a list to one->target, to be freed by the caller. False: no more. */
bool connection_next_server(const char **list, struct connection *one);
/* The server's name in messages. */
void connection_shown_server(const struct connection *one, char *shown, size_t size);
/* The list with one more url, to be freed by the caller. NULL: out of memory. */
char *connection_add_server(const char *list, const char *url);

/* Decides on the url and gets the password; may prompt for it. Returns 0 or an exit status. */
int connection_resolve(struct connection *connection);
/* Sets the server of messages; connection_open() does. Call it only if the url is valid: else it may
 * contain a password anywhere. */
void connection_name_server(const struct connection *connection);

/* Opens the client. `options` may be preset; credentials, TLS and timeouts are filled in, and a
 * log function if `log` is NULL. Returns 0 or an exit status. */
int connection_open(struct connection *connection, hf_options *options, hf_client **ret_client);
void connection_free(struct connection *connection);

/* ---- environment.c: options from the environment, and what is wrong with it ------------------ */

/* Reads HOLDFAST_<NAME> for each option that has a long name. Returns 0 or an exit status. */
int environment_options(const struct option_spec *specs, const char *subcommand, option_fn take,
                        void *user);

/* These return 0, or an exit status after printing the error. */
int environment_check_empty(const char *variable);
/* Detects a misspelt HOLDFAST_URL. `other_url`: REDIS_URL is set, so only names are checked, not
 * values. */
int environment_check_typos(bool other_url);
/* Whether Kubernetes sets such a value in <SERVICE>_PORT. */
bool environment_is_service_link(const char *value);

/* ---- no_server_notice.c ---------------------------------------------------------------------- */

/* Says that no server is configured and local: is used. At most once a day; always with
 * --verbose. */
void notice_default_server(void);

/* ---- warning.c: warnings of the library ------------------------------------------------------ */

/* When the client is opened. It gives up if no server answers within `limit_ms`; 0: the default. */
void warning_begin(int64_t limit_ms);
void warning_take(const struct subject *subject, const char *text);
/* For a loop that is about to sleep for `limit_ms` (-1: no limit): prints due warnings, and returns
 * for how long it may sleep. */
int warning_print_due(int limit_ms);
/* At the end, or before an error with this text (NULL: none): prints warnings not printed yet. */
void warning_finish(const char *error_text);

/* ---- The subcommands ------------------------------------------------------------------------- */

struct command {
    const char *name;
    const char *summary;               /* one line */
    const char *usage;                 /* after the name: arguments, then one option per line */
    const struct option_spec *options; /* NULL: none */
    /* argv[0] is the subcommand. Returns the exit status. */
    int (*run)(struct connection *connection, int argc, char **argv);
};

extern const struct command command_run, command_elect, command_hold, command_acquire,
    command_extend, command_release, command_unlock, command_show, command_ls, command_watch,
    command_top, command_doctor, command_bench, command_serve, command_log, command_sem,
    command_latch, command_completion, command_version, command_help;

const struct command *command_find(const char *name);
const struct command *command_at(size_t index); /* NULL: no more */
void print_help(const struct command *command); /* on stdout; NULL: help for the whole tool */

/* Parses a subcommand's options, environment first. Returns the index of the first operand, or
 * minus an exit status; 0 after printing --help. */
int command_options(const struct command *command, const struct option_spec *specs, int argc,
                    char **argv, option_fn take, void *user);

#endif
