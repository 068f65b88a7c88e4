/* holdfast watch NAME: prints a line for every event on one name: acquire, release, hand-over,
 * expiry, a waiter that comes or leaves; until it is ended.
 *
 * It subscribes to the messages that wake waiters (listener.c), so it sees every published release,
 * however short the hold was. No message announces an acquire, an expiry or a deletion. So it also
 * polls the server (some five small commands): after a message, when the server reports that the
 * key has changed since the last poll, when a lease should have expired, and every second. It polls
 * four times as often while the subscription is down. It does so for a fair queue, too, because a
 * fair lock notifies only its first waiter. Once a second a survey asks the fleet for waiters.
 *
 * Everything runs on the main thread, callbacks included (HF_MANUAL_DISPATCH). Long operations are
 * started and checked later, so that a signal ends it at once. If the server goes away, it waits
 * for it. */
#include "watch/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { ID_FOR = 1, ID_COUNT, ID_EVERY, ID_STRING };

#define EVERY_MS 1000          /* polling interval while the subscription is up; */
#define EVERY_POLL_ONLY_MS 250 /* while it is down */
#define EVERY_MIN_MS 10
#define POLL_GAP_MS 20 /* between polls, however many messages come: a poll loads the server */
#define SURVEY_EVERY_MS 1000
#define REST_MAX_MS 1000
#define COUNT_MAX 1000000000

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_FOR, 0, "for", false},
    {OPTION_VALUE, ID_COUNT, 'n', "count", false},
    {OPTION_VALUE, ID_EVERY, 0, "every", false},
    {OPTION_FLAG, ID_STRING, 0, "string", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct watch {
    struct connection *connection;
    const char *name;
    char pattern[FLEET_PATTERN_SIZE]; /* matches the name; "": the name is too long */
    int64_t every_ms, for_ms;         /* -1: every_ms automatic; for_ms no limit */
    long count;                       /* -1: no limit */
    bool string;                      /* any string is a lock */
    hf_client *client;
    hf_lock *lock;
    int signals;
    int64_t end_ms; /* INT64_MAX: never */
    bool over;
    int status; /* valid when `over` */
    bool away;
    struct watch_view view;
    struct watch_events events;
    int64_t polled_ms; /* last poll; INT64_MIN: never */

    /* Written by operations that may outlive a poll: freed after hf_close(). */
    hf_lock_info *info;
    hf_fleet *fleet;
    hf_op *survey;
    int64_t survey_begun_ms, survey_due_ms;
    bool no_survey;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct watch *watch = user;
    if (id == ID_FOR || id == ID_EVERY) {
        int64_t *ms = id == ID_FOR ? &watch->for_ms : &watch->every_ms;
        if (!parse_duration(value, ms) || (id == ID_EVERY && *ms < EVERY_MIN_MS))
            return usage_error("watch", "%s: '%s' is not a duration%s", shown, value,
                               id == ID_EVERY ? " of 10ms or more" : "");
    } else if (id == ID_STRING) {
        watch->string = true;
    } else if (id == ID_COUNT) {
        if (!parse_number(value, 1, COUNT_MAX, &watch->count))
            return usage_error("watch", "%s: '%s' is not a number of events", shown, value);
    } else {
        common_option(watch->connection, id);
    }
    return 0;
}

static void finish(struct watch *watch, int status) {
    if (!watch->over)
        watch->status = status;
    watch->over = true;
}

static void print_event(void *user, const struct watch_event *event) {
    struct watch *watch = user;
    if (watch->over)
        return;
    errno = 0;
    if (!watch_print(watch->name, event, watch->connection->json)) {
        if (errno == EPIPE) /* the reader is gone: exit as if SIGPIPE had ended us */
            finish(watch, STATUS_SIGNAL + SIGPIPE);
        else
            say(LEVEL_ERROR, "cannot write to the standard output: %s", strerror(errno));
        finish(watch, STATUS_OS);
    }
    if (watch->count > 0 && --watch->count == 0)
        finish(watch, STATUS_OK);
}

/* ---- Waiting ---- */

/* Sleeps until that time at most. Wakes up for callbacks, a signal, a closed stdout, or the end of
 * --for. */
static void rest_until(struct watch *watch, int64_t until_ms) {
    struct signalfd_siginfo info;
    struct pollfd fds[] = {{.fd = watch->signals, .events = POLLIN},
                           {.fd = STDOUT_FILENO},
                           {.fd = hf_dispatch_fd(watch->client), .events = POLLIN}};
    int64_t now = now_ms();
    until_ms = until_ms < watch->end_ms ? until_ms : watch->end_ms;
    int64_t left_ms = until_ms > now ? until_ms - now : 0;
    await_fds(fds, 3, warning_print_due(left_ms < REST_MAX_MS ? (int)left_ms : REST_MAX_MS));
    if (read(watch->signals, &info, sizeof info) == (ssize_t)sizeof info)
        finish(watch, STATUS_SIGNAL + (int)info.ssi_signo);
    if ((fds[1].revents & POLLERR) != 0)
        finish(watch, STATUS_SIGNAL + SIGPIPE);
    hf_dispatch(watch->client, 0);
    if (now_ms() >= watch->end_ms)
        finish(watch, STATUS_OK);
}

/* The result of an operation; HF_EPENDING: the watch ended first. */
static int await(struct watch *watch, hf_op *op) {
    int code;
    while ((code = hf_op_wait(op, 0, NULL)) == HF_EPENDING && !watch->over)
        rest_until(watch, INT64_MAX);
    hf_dispatch(watch->client, 0); /* deliver messages published before the reply first */
    return code;
}

/* ---- Polling ---- */

static void report_server(struct watch *watch, const char *verb, const char *text) {
    const struct watch_event event = {.verb = verb, .for_ms = -1, .remaining_ms = -1, .text = text};
    print_event(watch, &event);
}

/* Before the first event it is an error; later it is an event, and watching goes on. */
static void failed(struct watch *watch, int code) {
    if (watch->over)
        return;
    if (!watch->view.begun)
        finish(watch, library_error(code, hf_last_error(), "watch", watch->name));
    else if (!watch->away)
        report_server(watch, "away", hf_strerror(code));
    watch->away = true;
}

static void succeeded(struct watch *watch) {
    if (watch->away)
        report_server(watch, "back", NULL);
    watch->away = false;
    if (watch->view.failed) {
        say(LEVEL_ERROR, "out of memory");
        finish(watch, STATUS_OS);
    }
}

static void poll_server(struct watch *watch) {
    hf_op *op = NULL;
    struct numbers numbers = {0};
    hf_lock_info_free(watch->info);
    watch->info = NULL;
    bool quiet = watch_events_are_subscribed(&watch->events) && !watch->events.poll_due;
    watch->events.poll_due = watch->events.changed = false;
    unsigned messages = watch->view.messages;
    int64_t asked_ms = now_ms();
    int code = hf_lock_inspect_start(watch->lock, &watch->info, NULL, NULL, &op);
    if (code == HF_OK)
        code = await(watch, op);
    hf_op_free(op);
    watch->polled_ms = now_ms();
    if (watch->over)
        return;
    if (code == HF_OK)
        code = numbers_count(watch->client, watch->name, watch->info->kind, &numbers);
    if (code == HF_EWRONGTYPE)
        return; /* its kind has just changed */
    if (code != HF_OK) {
        failed(watch, code);
        return;
    }
    succeeded(watch);
    watch_polled(&watch->view, watch->info, &numbers, asked_ms, watch->view.messages != messages,
                 quiet);
}

static void surveyed(struct watch *watch, int code) {
    if (code == HF_ENOTSUP)
        watch->no_survey = true;
    else if (code == HF_OK) /* polls report a server that is away */
        watch_surveyed(&watch->view, watch->fleet, fleet_find(watch->fleet, watch->name),
                       watch->survey_begun_ms);
}

/* INT64_MAX: none will come, or one is running and its completion wakes the loop. */
static int64_t next_survey_ms(const struct watch *watch) {
    bool none = watch->survey != NULL || watch->no_survey || watch->pattern[0] == '\0';
    return none ? INT64_MAX : watch->survey_due_ms;
}

/* Starts a survey when it is due, and takes the result of a finished one. */
static void step_survey(struct watch *watch) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    if (watch->survey != NULL) {
        int code = hf_op_wait(watch->survey, 0, NULL);
        if (code == HF_EPENDING)
            return;
        hf_op_free(watch->survey);
        watch->survey = NULL;
        watch->survey_due_ms = watch->survey_begun_ms + SURVEY_EVERY_MS;
        surveyed(watch, code);
        return;
    }
    if (now_ms() < next_survey_ms(watch))
        return;
    hf_fleet_free(watch->fleet);
    watch->fleet = NULL;
    watch->survey_begun_ms = now_ms();
    options.pattern = watch->pattern;
    int code = hf_survey_start(watch->client, &options, &watch->fleet, NULL, NULL, &watch->survey);
    if (code != HF_OK)
        surveyed(watch, code);
}

static int64_t next_poll_ms(const struct watch *watch) {
    if (watch->polled_ms == INT64_MIN)
        return INT64_MIN;
    int64_t pause_ms = watch->every_ms;
    bool subscribed = watch_events_are_subscribed(&watch->events) && !watch_is_queued(&watch->view);
    if (pause_ms < 0)
        pause_ms = subscribed ? EVERY_MS : EVERY_POLL_ONLY_MS;
    int64_t ttl_ms = watch->view.ttl_ms;
    if (ttl_ms >= 0 && ttl_ms < pause_ms) /* then it has expired, or was renewed */
        pause_ms = ttl_ms > POLL_GAP_MS ? ttl_ms + 1 : POLL_GAP_MS;
    bool due = watch->events.poll_due || watch->events.changed;
    if (due && pause_ms > POLL_GAP_MS)
        pause_ms = POLL_GAP_MS;
    int64_t due_ms = watch->polled_ms + pause_ms;
    int64_t doubt_ends_ms = watch_doubt_ends_ms(&watch->view);
    return doubt_ends_ms != 0 && !watch->events.poll_due ? doubt_ends_ms : due_ms;
}

static void watch_on(struct watch *watch) {
    while (!watch->over) {
        if (now_ms() >= next_poll_ms(watch))
            poll_server(watch);
        if (!watch->over)
            step_survey(watch);
        int64_t due_ms = next_poll_ms(watch), survey_ms = next_survey_ms(watch);
        if (!watch->over)
            rest_until(watch, due_ms < survey_ms ? due_ms : survey_ms);
    }
}

/* ---- The command ---- */

static int open_and_watch(struct watch *watch) {
    hf_options options = HF_OPTIONS_INIT;
    options.report_after_ms = -1;
    options.flags = HF_MANUAL_DISPATCH;
    message_lock(watch->name);
    int status = connection_resolve(watch->connection);
    if (status == 0)
        status = connection_open(watch->connection, &options, &watch->client);
    if (status != 0)
        return status;
    hf_lock_options lock_options = HF_LOCK_OPTIONS_INIT;
    lock_options.kind = watch->string ? HF_STRING : HF_PLAIN;
    int code = hf_lock_new_with(watch->client, watch->name, strlen(watch->name), &lock_options,
                                &watch->lock);
    if (code == HF_OK)
        code = watch_events_begin(&watch->events, watch->client, watch->name, &watch->view);
    if (code == HF_OK)
        watch_on(watch);
    else
        finish(watch, library_error(code, hf_last_error(), "watch", watch->name));
    hf_op_cancel(watch->survey);
    hf_op_free(watch->survey);
    watch_events_end(&watch->events);
    hf_lock_free(watch->lock);
    hf_close(watch->client);
    hf_lock_info_free(watch->info);
    hf_fleet_free(watch->fleet);
    watch_view_free(&watch->view);
    return watch->status;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct watch watch = {.connection = connection,
                          .every_ms = -1,
                          .for_ms = -1,
                          .count = -1,
                          .polled_ms = INT64_MIN};
    int first = command_options(&command_watch, specs, argc, argv, take, &watch);
    if (first <= 0)
        return -first;
    if (argc - first != 1 || argv[first][0] == '\0')
        return usage_error("watch", "one NAME is needed, after the options");
    watch.name = argv[first];
    if (!fleet_quote_pattern(watch.name, watch.pattern))
        watch.pattern[0] = '\0';
    watch.end_ms = watch.for_ms >= 0 ? now_ms() + watch.for_ms : INT64_MAX;
    watch.view.report = print_event;
    watch.view.user = &watch;
    watch.signals = ending_signals();
    if (watch.signals < 0) {
        say(LEVEL_ERROR, "cannot wait for signals: %s", strerror(errno));
        return STATUS_OS;
    }
    int status = open_and_watch(&watch);
    close(watch.signals);
    return status;
}

const struct command command_watch = {
    .name = "watch",
    .options = specs,
    .summary = "print what happens to a lock, as it happens",
    .usage =
        "[--for DUR] [-n COUNT] [--every DUR] [--string] [--json] NAME\n"
        "Prints a line, with the time, for everything that happens to NAME until interrupted: holders,\n"
        "acquires, hand-overs, releases, waits and their ends; for a semaphore, a latch or slots the\n"
        "numbers. It receives release messages, so in one Redis it misses no release of a lock that\n"
        "is not fair. It also polls the server, at once if the server reports a change; an owner that holds\n"
        "the lock only between two polls is not seen.\n\n"
        "      --for DUR     exit after this time\n"
        "  -n, --count N     exit after this many lines\n"
        "      --every DUR   how often to poll the server (1s, 250ms while it sends no messages)\n"
        "      --string      a string lock: any string of that name, also another library's\n"
        "      --json        as JSON, one object per line\n"
        "\nEvents: held, free: at the start; acquired; handed: from another holder; released: without a\n"
        "name if its holder was not seen; broken: by a holdfast client; expired: its lease ended; lost:\n"
        "reported by its client; count: held more or fewer times; waits; left: it gave up, or had the\n"
        "lock between two polls; silent, gone, alive: the holder; opened, closed: the latch; numbers;\n"
        "deleted; other: the name is used for something else; missed: this many messages, since the\n"
        "output was read too slowly; away, back: the server.\n"
        "Exit status: 0; 128 plus the signal's number if interrupted.\n",
    .run = run,
};
