/*
 * holdfast hold NAME: holds a lock without running anything, until a signal or the end of standard input.
 *
 * Prints one JSON line when the lock is held, so a script can wait for it, and releases on TERM, INT, HUP,
 * QUIT or end of input. One process; a poll loop on its main thread over signals, input and the library's
 * callbacks (manual dispatch). There is no command to guard, so a loss is told by the exit status alone.
 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { ID_NONBLOCK = 1, ID_WAIT, ID_BUSY_STATUS, ID_LEASE, ID_TTL, ID_NO_STDIN };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_NONBLOCK, 'n', "nonblock", false},
    {OPTION_FLAG, ID_NONBLOCK, 0, "nb", true},
    {OPTION_VALUE, ID_WAIT, 'w', "wait", false},
    {OPTION_VALUE, ID_BUSY_STATUS, 'E', "conflict-exit-code", false},
    {OPTION_VALUE, ID_LEASE, 0, "lease", false},
    {OPTION_VALUE, ID_TTL, 0, "ttl", false},
    {OPTION_FLAG, ID_NO_STDIN, 0, "no-stdin", false},
    COMMON_OPTIONS,
    {OPTION_LATER, 0, 's', "shared", false},
    {OPTION_LATER, 0, 0, "fair", false},
    {OPTION_LATER, 0, 0, "spin", false},
    {OPTION_LATER, 0, 0, "fenced", false},
    {OPTION_END, 0, 0, NULL, false},
};

enum phase { WAITING, HELD, RELEASING, DONE };

struct hold {
    struct connection *connection;
    const char *name;
    int64_t wait_ms, lease_ms, ttl_ms;
    int busy_status;
    int input; /* -1: not watched */
    int signals;
    hf_client *client;
    hf_lock *lock;
    hf_op *acquiring;
    hf_owner owner;
    enum phase phase;
    int interrupted;
    int status;
};

static int take_duration(const char *value, const char *shown, bool zero, int64_t *ret) {
    int64_t ms;
    if (!parse_duration(value, &ms) || (ms == 0 && !zero))
        return usage_error("hold", "%s: '%s' is no duration", shown, value);
    *ret = ms;
    return 0;
}

static int take(void *user, int id, char *value, const char *shown) {
    struct hold *hold = user;
    long number;
    switch (id) {
    case ID_WAIT:
        return take_duration(value, shown, true, &hold->wait_ms);
    case ID_LEASE:
        return take_duration(value, shown, false, &hold->lease_ms);
    case ID_TTL:
        return take_duration(value, shown, false, &hold->ttl_ms);
    case ID_BUSY_STATUS:
        if (!parse_number(value, 0, 255, &number))
            return usage_error("hold", "%s: '%s' is no exit status", shown, value);
        hold->busy_status = (int)number;
        return 0;
    case ID_NONBLOCK:
        hold->wait_ms = 0;
        return 0;
    case ID_NO_STDIN:
        hold->input = -1;
        return 0;
    default:
        common_option(hold->connection, id);
        return 0;
    }
}

static void finish(struct hold *hold, int status) {
    hold->status = status;
    hold->phase = DONE;
}

static void on_released(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    struct hold *hold = user;
    if (hold->phase == DONE)
        return;
    if (result->code != HF_OK)
        hold->status = library_error(result->code, &result->error, "release", hold->name);
    finish(hold, hold->status);
}

static void release(struct hold *hold) {
    hold->phase = RELEASING;
    int code = hf_lock_release_start(hold->lock, hold->owner, on_released, hold, NULL);
    if (code != HF_OK)
        finish(hold, library_error(code, hf_last_error(), "release", hold->name));
}

static void lose(struct hold *hold, const char *reason) {
    char buffer[SHOWN_NAME_SIZE];
    if (hold->phase != HELD && hold->phase != RELEASING)
        return;
    say(LEVEL_ERROR, "'%s': the lock is lost: %s", shown_name(hold->name, buffer), reason);
    finish(hold, STATUS_LOST);
}

static void on_trouble(hf_lock *lock, const hf_event *event, void *user) {
    (void)lock;
    struct hold *hold = user;
    if (event->owner != hold->owner)
        return;
    if (event->kind == HF_EVENT_WARNING)
        say(LEVEL_NOTICE, "%" PRId64 " ms are left: %s", event->remaining_ms, event->reason);
    else
        lose(hold, event->reason);
}

static int announce(const struct hold *hold, const hf_result *result) {
    char *owner = NULL;
    if (asprintf(&owner, "%s:%" PRIu64, hf_client_id(hold->client), result->owner) < 0)
        return STATUS_OS;
    json_int_t remaining_ms = result->remaining_ms, deadline_ms = now_ms() + remaining_ms;
    json_t *object = json_pack("{s:o, s:s, s:s, s:I, s:I, s:i}", "name", json_text(hold->name),
                               "kind", "plain", "owner", owner, "remaining_ms", remaining_ms,
                               "deadline_ms", deadline_ms, "pid", (int)getpid());
    free(owner);
    if (object != NULL && result->token != 0)
        json_object_set_new(object, "token", json_integer(result->token));
    return print_json(object);
}

static void on_acquired(hf_op *op, const hf_result *result, void *user) {
    struct hold *hold = user;
    char buffer[SHOWN_NAME_SIZE];
    hf_op_free(op);
    hold->acquiring = NULL;
    if (result->code == HF_OK) {
        hold->phase = HELD;
        if (hold->interrupted == 0)
            hold->status = announce(hold, result);
        if (hold->interrupted != 0 || hold->status != STATUS_OK)
            release(hold);
    } else if (hold->interrupted != 0) {
        finish(hold, hold->status);
    } else if (result->code == HF_EBUSY || result->code == HF_ETIMEDOUT) {
        say(hold->busy_status == 0 ? LEVEL_INFO : LEVEL_NOTICE, "'%s': %s",
            shown_name(hold->name, buffer), hf_strerror(result->code));
        finish(hold, hold->busy_status);
    } else {
        finish(hold, library_error(result->code, &result->error, "acquire", hold->name));
    }
}

/* A signal ends the wait with a status of its own, and a hold with success. */
static void end(struct hold *hold, int signal) {
    if (hold->phase == HELD) {
        release(hold);
    } else if (hold->phase == WAITING && hold->interrupted == 0) {
        hold->interrupted = signal;
        hold->status = STATUS_SIGNAL + signal;
        hf_op_cancel(hold->acquiring);
    }
}

static void read_input(struct hold *hold) {
    char buffer[4096];
    ssize_t n = read(hold->input, buffer, sizeof buffer);
    if (n == 0)
        release(hold);
    /* EIO: a terminal that is not ours any more. Nothing will come, but that is no end either. */
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        hold->input = -1;
}

static void loop(struct hold *hold) {
    while (hold->phase != DONE) {
        /* The end of input is for a hold: who pipes nothing in may still try to get one. */
        int input = hold->phase == HELD ? hold->input : -1;
        struct pollfd fds[] = {{.fd = input, .events = POLLIN},
                               {.fd = hold->signals, .events = POLLIN},
                               {.fd = hf_dispatch_fd(hold->client), .events = POLLIN}};
        if (poll(fds, 3, -1) < 0 && errno != EINTR) {
            say(LEVEL_ERROR, "cannot wait for events: %s", strerror(errno));
            finish(hold, STATUS_OS);
            return;
        }
        struct signalfd_siginfo info;
        if (read(hold->signals, &info, sizeof info) == (ssize_t)sizeof info)
            end(hold, (int)info.ssi_signo);
        if ((fds[0].revents & POLLNVAL) != 0)
            hold->input = -1; /* There is no standard input. */
        else if (fds[0].revents != 0 && hold->phase == HELD)
            read_input(hold);
        hf_dispatch(hold->client, 0);
        if (hold->phase == HELD && hf_lock_remaining_ms(hold->lock, hold->owner) <= 0)
            lose(hold, "its lease has run out");
    }
}

/* INT, TERM, HUP and QUIT, but not what our parent told us to ignore. */
static int watch_signals(void) {
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        struct sigaction action;
        if (sigaction(ending[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&set, ending[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGTTIN, &ignore, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int acquire(struct hold *hold) {
    hf_options client_options = HF_OPTIONS_INIT;
    client_options.flags = HF_MANUAL_DISPATCH;
    client_options.watchdog_ms = hold->ttl_ms;
    hold->signals = watch_signals();
    int status = connection_open(hold->connection, &client_options, &hold->client);
    if (status != 0)
        return status;

    hf_acquire_options options = HF_ACQUIRE_INIT;
    hold->owner = options.owner = hf_owner_new();
    options.wait_ms = hold->wait_ms;
    options.lease_ms = hold->lease_ms > 0 ? hold->lease_ms : HF_WATCHDOG;
    int code = hf_lock_new(hold->client, hold->name, &hold->lock);
    if (code == HF_OK)
        code = hf_lock_on_lost(hold->lock, on_trouble, hold);
    if (code == HF_OK)
        code = hf_lock_acquire_start(hold->lock, &options, on_acquired, hold, &hold->acquiring);
    return code == HF_OK ? 0 : library_error(code, hf_last_error(), "acquire", hold->name);
}

static int run(struct connection *connection, int argc, char **argv) {
    struct hold hold = {.connection = connection,
                        .wait_ms = HF_FOREVER,
                        .ttl_ms = 30000,
                        .busy_status = STATUS_BUSY,
                        .input = STDIN_FILENO};
    int first = command_options(&command_hold, specs, argc, argv, take, &hold);
    if (first <= 0)
        return -first;
    if (argc - first != 1 || argv[first][0] == '\0')
        return usage_error("hold", "one NAME is needed, after the options");
    hold.name = argv[first];
    int status = connection_resolve(connection);
    if (status == 0)
        status = acquire(&hold);
    if (status == 0) {
        loop(&hold);
        status = hold.status;
    }
    hf_lock_free(hold.lock);
    hf_close(hold.client);
    return status;
}

const struct command command_hold = {
    .name = "hold",
    .summary = "hold a lock until told to let go",
    .usage =
        "[OPTIONS] NAME\n"
        "Holds the lock NAME until TERM, INT, HUP or QUIT comes or standard input ends. Prints one\n"
        "line of JSON when it is held.\n\n"
        "  -n, --nonblock              do not wait for the lock\n"
        "  -w, --wait DUR              wait no longer than this; 0 is -n (default: for ever)\n"
        "  -E, --conflict-exit-code N  exit with this when the lock was not free (75)\n"
        "      --ttl DUR               lease, renewed for as long as the lock is held (30s)\n"
        "      --lease DUR             fixed lease, not renewed\n"
        "      --no-stdin              do not watch standard input\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nExit status: 0 released; 75 not acquired; 79 the lock was lost.\n",
    .run = run,
};
