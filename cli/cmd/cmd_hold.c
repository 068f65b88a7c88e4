/* holdfast hold NAME: holds a lock or a slot, without running a command, until a signal or the end
 * of standard input.
 *
 * Prints one JSON line when the lock is held, so that a script can wait for it. Releases on TERM,
 * INT, HUP, QUIT or end of input. One process; a poll loop on its main thread over signals, input
 * and the library's callbacks (manual dispatch). There is no command to kill, so a loss shows only
 * in the exit status. */
#include "hold/held.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { ID_NONBLOCK = 1, ID_WAIT, ID_BUSY_STATUS, ID_LEASE, ID_TTL, ID_NO_STDIN, ID_LABEL };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_NONBLOCK, 'n', "nonblock", false},
    {OPTION_FLAG, ID_NONBLOCK, 0, "nb", true},
    {OPTION_VALUE, ID_WAIT, 'w', "wait", false},
    {OPTION_VALUE, ID_BUSY_STATUS, 'E', "conflict-exit-code", false},
    {OPTION_VALUE, ID_LEASE, 0, "lease", false},
    {OPTION_VALUE, ID_TTL, 0, "ttl", false},
    {OPTION_FLAG, ID_NO_STDIN, 0, "no-stdin", false},
    {OPTION_VALUE, ID_LABEL, 0, "label", false},
    CHOICE_OPTIONS,
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

enum phase { WAITING, HELD, RELEASING, DONE };

struct hold {
    struct connection *connection;
    struct choice choice;
    struct names names;             /* with -m */
    struct either waiting, leasing; /* -n or -w, --ttl or --lease */
    const char *label;              /* NULL: the parent's name */
    int busy_status;
    int input; /* -1: not watched */
    int signals;
    struct held held;
    enum phase phase;
    const char *wrong_name; /* a name in use by another kind of object; NULL: none */
    int interrupted;
    int status;
};

/* The lease: renewed by the watchdog, or fixed. */
static int take_lease(struct hold *hold, int id, const char *value, const char *shown) {
    int64_t ms = 0;
    if (!(id == ID_LEASE ? parse_lease : parse_duration)(value, &ms) || ms == 0)
        return duration_error("hold", shown, value);
    int status = either_take(&hold->leasing, "hold", id, shown, EXCLUSIVE_LEASES);
    if (status != 0)
        return status;
    hold->held.lease_ms = id == ID_LEASE ? ms : 0;
    if (id == ID_TTL)
        hold->held.ttl_ms = ms;
    return 0;
}

static int take(void *user, int id, char *value, const char *shown) {
    struct hold *hold = user;
    long number;
    int status;
    if (choice_option(&hold->choice, "hold", id, value, shown, &status))
        return status;
    switch (id) {
    case ID_WAIT:
    case ID_NONBLOCK:
        return take_wait(&hold->waiting, "hold", value, shown, &hold->held.wait_ms);
    case ID_LEASE:
    case ID_TTL:
        return take_lease(hold, id, value, shown);
    case ID_LABEL:
        return take_label("hold", value, shown, &hold->label);
    case ID_BUSY_STATUS:
        if (!parse_number(value, 0, 255, &number))
            return usage_error("hold", "%s: '%s' is not an exit status (0 to 255)", shown, value);
        hold->busy_status = (int)number;
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

static void on_released(void *user, const hf_result *result) {
    struct hold *hold = user;
    if (hold->phase == DONE)
        return;
    if (result->code == HF_OK) {
        held_report_released(&hold->held);
    } else if (result->code == HF_ELOST) {
        held_report_lost(&hold->held, "before it was released", &result->error);
        hold->status = STATUS_LOST;
    } else {
        hold->status = library_error(result->code, &result->error, "release", hold->held.name);
    }
    finish(hold, hold->status);
}

static void release(struct hold *hold) {
    hold->phase = RELEASING;
    int code = held_release(&hold->held);
    if (code != HF_OK)
        finish(hold, library_error(code, hf_last_error(), "release", hold->held.name));
}

static void lose(struct hold *hold, const char *reason) {
    char buffer[SHOWN_NAME_SIZE];
    if (hold->phase != HELD)
        return;
    say_of(LEVEL_ERROR, &(struct subject){.code = HF_ELOST, .lock = hold->held.name},
           "'%s': the %s is lost: %s", shown_name(hold->held.name, buffer),
           hold->held.kind->ops->noun, reason);
    finish(hold, STATUS_LOST);
}

static void on_hold_event(void *user, const hf_event *event) {
    struct hold *hold = user;
    if (event->kind == HF_EVENT_WARNING)
        say(LEVEL_NOTICE, "%" PRId64 " ms are left: %s", event->remaining_ms, event->reason);
    else
        lose(hold, event->reason);
}

static json_t *json_names(const struct names *names) {
    json_t *array = json_array();
    for (size_t i = 0; i < names->len; i++)
        json_array_append_new(array, json_text(names->of[i]));
    return array;
}

static int announce(const struct held *held) {
    bool ends = held->lease_ms != HF_NO_LEASE;
    json_int_t remaining_ms = held_remaining_ms(held), deadline_ms = now_ms() + remaining_ms;
    json_t *object = json_pack(
        "{s:o, s:s, s:s, s:o, s:o, s:i}", "name", json_text(held->name), "kind", held->kind->name,
        "owner", held->owner, "remaining_ms", ends ? json_integer(remaining_ms) : json_null(),
        "deadline_ms", ends ? json_integer(deadline_ms) : json_null(), "pid", (int)getpid());
    if (object != NULL && held->names != NULL)
        json_object_set_new(object, "names", json_names(held->names));
    if (object != NULL && held->token != 0)
        json_object_set_new(object, "token", json_integer(held->token));
    if (object != NULL && held->servers > 0) {
        json_object_set_new(object, "votes", json_integer(held->votes));
        json_object_set_new(object, "servers", json_integer(held->servers));
    }
    return print_json(object);
}

/* Warns if standard input has already ended, as /dev/null has: then the lock is released at once,
 * which is hardly intended. The content is discarded; it may be endless, so reads are limited. */
static void poll_input(struct hold *hold) {
    char buffer[4096];
    struct pollfd input = {.fd = hold->input, .events = POLLIN};
    for (int i = 0; i < 16 && hold->input >= 0 && poll(&input, 1, 0) > 0; i++) {
        ssize_t n = read(hold->input, buffer, sizeof buffer);
        if (n == 0)
            say(LEVEL_NOTICE,
                "standard input is at its end, so the %s is released at once; use --no-stdin to "
                "hold it until a signal",
                hold->held.kind->ops->noun);
        if (n <= 0)
            return;
    }
}

static void on_acquired(void *user, const hf_result *result) {
    struct hold *hold = user;
    if (result->code == HF_EWRONGTYPE)
        hold->wrong_name = held_failed_name(&hold->held, &result->error);
    if (result->code == HF_OK) {
        hold->phase = HELD;
        held_report_acquired(&hold->held);
        if (hold->interrupted == 0) {
            poll_input(hold);
            hold->status = announce(&hold->held);
        }
        if (hold->interrupted != 0 || hold->status != STATUS_OK)
            release(hold);
    } else if (hold->interrupted != 0) {
        finish(hold, hold->status);
    } else {
        finish(hold, held_failed(&hold->held, result, hold->busy_status));
    }
}

/* During the wait a signal is a failure (128 + n); during a hold it is a successful end. */
static void end(struct hold *hold, int signal) {
    if (hold->phase == HELD) {
        release(hold);
    } else if (hold->phase == WAITING && hold->interrupted == 0) {
        hold->interrupted = signal;
        hold->status = STATUS_SIGNAL + signal;
        held_cancel(&hold->held);
    }
}

static void read_input(struct hold *hold) {
    char buffer[4096];
    ssize_t n = read(hold->input, buffer, sizeof buffer);
    if (n == 0)
        release(hold);
    /* EIO: the terminal is no longer ours. No input will come, but it is not the end of input. */
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        hold->input = -1;
}

static void loop(struct hold *hold) {
    while (hold->phase != DONE) {
        /* The end of input counts only while holding: a caller without input may still wait for the
         * lock. */
        int input = hold->phase == HELD ? hold->input : -1;
        struct pollfd fds[] = {{.fd = input, .events = POLLIN},
                               {.fd = hold->signals, .events = POLLIN},
                               {.fd = hf_dispatch_fd(hold->held.client), .events = POLLIN}};
        int limit_ms = hold->phase == WAITING ? held_watch_wait(&hold->held) : -1;
        if (await_fds(fds, 3, warning_print_due(limit_ms)) < 0 && errno != EINTR) {
            say(LEVEL_ERROR, "cannot wait for events: %s", strerror(errno));
            finish(hold, STATUS_OS);
            return;
        }
        struct signalfd_siginfo info;
        if (read(hold->signals, &info, sizeof info) == (ssize_t)sizeof info)
            end(hold, (int)info.ssi_signo);
        if (fds[0].revents != 0 && hold->phase == HELD)
            read_input(hold);
        hf_dispatch(hold->held.client, 0);
        if (hold->phase == HELD && held_remaining_ms(&hold->held) <= 0)
            lose(hold, "its lease ended");
    }
}

static int acquire(struct hold *hold) {
    char label[PARENT_LABEL_SIZE];
    hf_options client_options = HF_OPTIONS_INIT;
    client_options.flags = HF_MANUAL_DISPATCH;
    client_options.watchdog_ms = hold->held.ttl_ms;
    client_options.label = hold->label != NULL ? hold->label : label_of_parent(label);
    hold->signals = ending_signals();
    int status = connection_open(hold->connection, &client_options, &hold->held.client);
    if (status != 0)
        return status;

    int code = held_acquire(&hold->held);
    return code == HF_OK ? 0 : library_error(code, hf_last_error(), "acquire", hold->held.name);
}

/* An input that was closed at start, or is write-only, has no end to wait for. */
static void check_input(struct hold *hold) {
    int flags = hold->input >= 0 ? fcntl(hold->input, F_GETFL) : O_RDONLY;
    if (flags >= 0 && (flags & O_ACCMODE) != O_WRONLY)
        return;
    hold->input = -1;
    say(LEVEL_NOTICE, "standard input is closed: the %s is held until a signal, as with --no-stdin",
        hold->held.kind->ops->noun);
}

static int take_names(struct hold *hold, int argc, char **argv) {
    if (!hold->choice.several && (argc != 1 || argv[0][0] == '\0'))
        return usage_error("hold", "one NAME is needed, after the options");
    if (argc == 0)
        return usage_error("hold", "a NAME is needed");
    hold->held.name = argv[0];
    if (!hold->choice.several)
        return 0;
    int status = names_take(&hold->names, "hold", argv, (size_t)argc);
    hold->held.name = hold->names.joined;
    hold->held.names = &hold->names;
    return status;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct hold hold = {.connection = connection,
                        .held = {.wait_ms = HF_FOREVER,
                                 .ttl_ms = 30000,
                                 .acquired = on_acquired,
                                 .released = on_released,
                                 .hold_event = on_hold_event,
                                 .user = &hold},
                        .busy_status = STATUS_BUSY,
                        .input = STDIN_FILENO};
    int first = command_options(&command_hold, specs, argc, argv, take, &hold);
    if (first <= 0)
        return -first;
    int status = choice_settle(&hold.choice, "hold");
    if (status == 0)
        status = choice_check_lease(&hold.choice, "hold", hold.held.lease_ms);
    if (status == 0)
        status = take_names(&hold, argc - first, argv + first);
    hold.held.kind = hold.choice.kind;
    hold.held.slots = hold.choice.slots;
    if (status == 0)
        message_lock(hold.held.name);
    if (status == 0)
        status = connection_resolve(connection);
    if (status == 0)
        status = choice_check_servers(&hold.choice, connection, "hold");
    if (status == 0)
        check_input(&hold);
    if (status == 0)
        status = acquire(&hold);
    if (status == 0) {
        loop(&hold);
        status = hold.status;
    }
    if (hold.wrong_name != NULL)
        held_explain(hold.held.client, hold.wrong_name);
    held_report_holder(&hold.held);
    held_free(&hold.held);
    hf_close(hold.held.client);
    names_free(&hold.names);
    return status;
}

const struct command command_hold = {
    .name = "hold",
    .options = specs,
    .summary = "hold a lock until a signal or the end of input",
    .usage =
        "[OPTIONS] NAME\n"
        "       holdfast [CONNECTION OPTIONS] hold [OPTIONS] -m NAME...\n"
        "Holds the lock NAME until TERM, INT, HUP or QUIT arrives or standard input ends. Prints one\n"
        "line of JSON once it is held.\n\n"
        "  -x, -e, --exclusive         exclusively (the default)\n"
        "  -s, --shared                as a reader: beside other readers, without a writer\n"
        "  -W, --write                 as the writer beside -s: exclusively\n"
        "      --fair                  first come, first served\n"
        "      --fenced                with a fencing token\n"
        "      --spin                  wait by retrying\n"
        "      --string                as SET NX, shared with other libraries\n"
        "  -N, --slots N               one of N slots: at most N holders at once\n"
        "  -m, --multi                 several locks, all or none: every word is a NAME\n"
        "  -n, --nonblock, --nb        do not wait for the lock\n"
        "  -w, --wait DUR              wait at most this long; 0 is -n (default: for ever)\n"
        "  -E, --conflict-exit-code N  exit status if the lock was not free (75)\n"
        "      --ttl DUR               lease, renewed while the lock is held (30s)\n"
        "      --lease DUR             fixed lease, not renewed (with --string, `none`: no lease; the\n"
        "                              lock stays held if holdfast dies)\n"
        "      --no-stdin              do not watch standard input\n"
        "      --label TEXT            the holder's name, as others see it (the process that\n"
        "                              started this, such as the script)\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nExit status: 0 released; 75 not acquired; 79 the lock was lost.\n",
    .run = run,
};
