/*
 * holdfast watch NAME: a line whenever something happens to one name: who acquires it, releases it, hands it on or
 * lets it expire, who waits and who leaves, until it is told to end.
 *
 * It listens to the messages that wake those who wait (watch_ear.c): so no release that is published is missed, however brief the hold was.
 * But no message says who acquires, and none that a lease has ended. So it looks, too: when there was a message, when a
 * lease should be over, and every second (one look is some five small commands); four times as often while it hears nothing,
 * and where there is a line: nobody but the first in it hears of fair locks. Once a second the fleet is asked who waits.
 *
 * All of it is on the main thread, callbacks included (HF_MANUAL_DISPATCH). What takes long is started and looked at in
 * between, so that a signal ends it at once. A server that goes away is waited for.
 */
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { ID_FOR = 1, ID_COUNT, ID_EVERY };

#define EVERY_MS 1000     /* while it hears what happens; */
#define EVERY_DEAF_MS 250 /* while it does not */
#define EVERY_MIN_MS 10
#define LOOK_GAP_MS                                                                                \
    20 /* however many messages there are: they cost the server nothing, a look does */
#define SURVEY_EVERY_MS 1000
#define REST_MAX_MS 1000
#define COUNT_MAX 1000000000
#define PATTERN_MAX 256

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_FOR, 0, "for", false},
    {OPTION_VALUE, ID_COUNT, 'n', "count", false},
    {OPTION_VALUE, ID_EVERY, 0, "every", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct watch {
    struct connection *connection;
    const char *name;
    char pattern[PATTERN_MAX + 1]; /* that matches the name; "": it is too long to ask for */
    int64_t every_ms, for_ms;      /* -1: as it hears or does not; for good */
    long count;                    /* -1: no limit */
    hf_client *client;
    hf_lock *lock;
    int signals;
    int64_t end_ms; /* INT64_MAX: never */
    bool over;
    int status; /* when it is over */
    bool away;
    struct watch_view view;
    struct watch_ear ear;
    int64_t looked_ms; /* INT64_MIN: never */

    /* Written by operations, which may outlive a look: freed after hf_close(). */
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
            return usage_error("watch", "%s: '%s' is no duration%s", shown, value,
                               id == ID_EVERY ? " of 10ms or more" : "");
    } else if (id == ID_COUNT) {
        if (!parse_number(value, 1, COUNT_MAX, &watch->count))
            return usage_error("watch", "%s: '%s' is no number of events", shown, value);
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

static void told(void *user, const struct watch_event *event) {
    struct watch *watch = user;
    if (watch->over)
        return;
    errno = 0;
    if (!watch_print(watch->name, event, watch->connection->json)) {
        if (errno == EPIPE) /* nobody reads it any more: as if the signal had ended us */
            finish(watch, STATUS_SIGNAL + SIGPIPE);
        else
            say(LEVEL_ERROR, "cannot write to the standard output: %s", strerror(errno));
        finish(watch, STATUS_OS);
    }
    if (watch->count > 0 && --watch->count == 0)
        finish(watch, STATUS_OK);
}

/* ---- Waiting ---- */

/* Sleeps until that time, or less: there is something to do, a signal, nobody reads any more, or it is the end. */
static void rest_until(struct watch *watch, int64_t until_ms) {
    struct signalfd_siginfo info;
    struct pollfd fds[] = {{.fd = watch->signals, .events = POLLIN},
                           {.fd = STDOUT_FILENO},
                           {.fd = hf_dispatch_fd(watch->client), .events = POLLIN}};
    int64_t now = now_ms();
    until_ms = until_ms < watch->end_ms ? until_ms : watch->end_ms;
    int64_t left_ms = until_ms > now ? until_ms - now : 0;
    poll(fds, 3, warning_look(left_ms < REST_MAX_MS ? (int)left_ms : REST_MAX_MS));
    if (read(watch->signals, &info, sizeof info) == (ssize_t)sizeof info)
        finish(watch, STATUS_SIGNAL + (int)info.ssi_signo);
    if ((fds[1].revents & POLLERR) != 0)
        finish(watch, STATUS_SIGNAL + SIGPIPE);
    hf_dispatch(watch->client, 0);
    if (now_ms() >= watch->end_ms)
        finish(watch, STATUS_OK);
}

/* The result of an operation; HF_EPENDING: it is over before that. */
static int await(struct watch *watch, hf_op *op) {
    int code;
    while ((code = hf_op_wait(op, 0, NULL)) == HF_EPENDING && !watch->over)
        rest_until(watch, INT64_MAX);
    hf_dispatch(watch->client, 0); /* what was said before the answer is told before it */
    return code;
}

/* ---- Looking ---- */

static void tell_server(struct watch *watch, const char *word, const char *text) {
    const struct watch_event event = {.word = word, .for_ms = -1, .left_ms = -1, .text = text};
    told(watch, &event);
}

/* At first it is an error; later it is something that happens, and ends. */
static void failed(struct watch *watch, int code) {
    if (watch->over)
        return;
    if (!watch->view.begun)
        finish(watch, library_error(code, hf_last_error(), "watch", watch->name));
    else if (!watch->away)
        tell_server(watch, "away", hf_strerror(code));
    watch->away = true;
}

static void succeeded(struct watch *watch) {
    if (watch->away)
        tell_server(watch, "back", NULL);
    watch->away = false;
    if (watch->view.failed) {
        say(LEVEL_ERROR, "out of memory");
        finish(watch, STATUS_OS);
    }
}

static void look(struct watch *watch) {
    hf_op *op = NULL;
    struct numbers numbers = {0};
    hf_lock_info_free(watch->info);
    watch->info = NULL;
    watch->ear.stirred = false;
    unsigned heard = watch->view.heard;
    int64_t asked_ms = now_ms();
    int code = hf_lock_inspect_start(watch->lock, &watch->info, NULL, NULL, &op);
    if (code == HF_OK)
        code = await(watch, op);
    hf_op_free(op);
    watch->looked_ms = now_ms();
    if (watch->over)
        return;
    if (code == HF_OK)
        code = numbers_count(watch->client, watch->name, watch->info->kind, &numbers);
    if (code == HF_EWRONGTYPE)
        return; /* it has just become something else */
    if (code != HF_OK) {
        failed(watch, code);
        return;
    }
    succeeded(watch);
    watch_looked(&watch->view, watch->info, &numbers, asked_ms, watch->view.heard != heard);
}

static const hf_fleet_lock *find_lock(const struct watch *watch) {
    const hf_fleet_lock wanted = {.name = watch->name, .name_len = strlen(watch->name)};
    for (size_t i = 0; i < watch->fleet->locks_len; i++)
        if (fleet_order(watch->fleet->locks[i], &wanted) == 0)
            return watch->fleet->locks[i];
    return NULL;
}

static void surveyed(struct watch *watch, int code) {
    if (code == HF_ENOTSUP)
        watch->no_survey = true;
    else if (code == HF_OK) /* a server that is away is told of by the looks */
        watch_surveyed(&watch->view, watch->fleet, find_lock(watch), watch->survey_begun_ms);
}

/* INT64_MAX: there is none to come, or one is under way, whose end is heard of. */
static int64_t next_survey_ms(const struct watch *watch) {
    bool none = watch->survey != NULL || watch->no_survey || watch->pattern[0] == '\0';
    return none ? INT64_MAX : watch->survey_due_ms;
}

/* Begins one when it is time, and takes what the last one has found. */
static void tend_survey(struct watch *watch) {
    hf_survey_options options = HF_SURVEY_INIT;
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

static int64_t next_look_ms(const struct watch *watch) {
    if (watch->looked_ms == INT64_MIN)
        return INT64_MIN;
    int64_t pause_ms = watch->every_ms;
    bool hears = watch_ear_hears(&watch->ear) && !watch_is_in_line(&watch->view);
    if (pause_ms < 0)
        pause_ms = hears ? EVERY_MS : EVERY_DEAF_MS;
    int64_t ttl_ms = watch->view.ttl_ms;
    if (ttl_ms >= 0 && ttl_ms < pause_ms) /* then it is over, or was renewed */
        pause_ms = ttl_ms > LOOK_GAP_MS ? ttl_ms + 1 : LOOK_GAP_MS;
    if (watch->ear.stirred && pause_ms > LOOK_GAP_MS)
        pause_ms = LOOK_GAP_MS;
    return watch->looked_ms + pause_ms;
}

static void watch_on(struct watch *watch) {
    while (!watch->over) {
        if (now_ms() >= next_look_ms(watch))
            look(watch);
        if (!watch->over)
            tend_survey(watch);
        int64_t due_ms = next_look_ms(watch), survey_ms = next_survey_ms(watch);
        if (!watch->over)
            rest_until(watch, due_ms < survey_ms ? due_ms : survey_ms);
    }
}

/* ---- The command ---- */

/* The name as a pattern that matches nothing else. False: it is too long for one. */
static bool quote_pattern(const char *name, char *pattern) {
    size_t len = 0;
    for (; *name != '\0'; name++) {
        bool special = strchr("*?[]\\", *name) != NULL;
        if (len + 1 + special > PATTERN_MAX)
            return false;
        if (special)
            pattern[len++] = '\\';
        pattern[len++] = *name;
    }
    pattern[len] = '\0';
    return true;
}

static int open_and_watch(struct watch *watch) {
    hf_options options = HF_OPTIONS_INIT;
    options.report_after_ms = -1;
    options.flags = HF_MANUAL_DISPATCH;
    int status = connection_resolve(watch->connection);
    if (status == 0)
        status = connection_open(watch->connection, &options, &watch->client);
    if (status != 0)
        return status;
    int code = hf_lock_new(watch->client, watch->name, &watch->lock);
    if (code == HF_OK)
        code = watch_ear_begin(&watch->ear, watch->client, watch->name, &watch->view);
    if (code == HF_OK)
        watch_on(watch);
    else
        finish(watch, library_error(code, hf_last_error(), "watch", watch->name));
    hf_op_cancel(watch->survey);
    hf_op_free(watch->survey);
    watch_ear_end(&watch->ear);
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
                          .looked_ms = INT64_MIN};
    int first = command_options(&command_watch, specs, argc, argv, take, &watch);
    if (first <= 0)
        return -first;
    if (argc - first != 1 || argv[first][0] == '\0')
        return usage_error("watch", "one NAME is needed, after the options");
    watch.name = argv[first];
    if (!quote_pattern(watch.name, watch.pattern))
        watch.pattern[0] = '\0';
    watch.end_ms = watch.for_ms >= 0 ? now_ms() + watch.for_ms : INT64_MAX;
    watch.view.tell = told;
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
    .summary = "tell what happens to a name, as it happens",
    .usage =
        "[--for DUR] [-n COUNT] [--every DUR] [--json] NAME\n"
        "Prints a line with the time for everything that happens to NAME: who holds it, acquires it, has it\n"
        "handed on, releases it, who waits for it and leaves, until it is interrupted. Of a semaphore, a\n"
        "latch or slots it tells the numbers. It listens to what is published, so that of locks in one Redis,\n"
        "unless they are fair, no release is missed, and looks besides; who has it only between two looks is\n"
        "not seen.\n\n"
        "      --for DUR     end after this time\n"
        "  -n, --count N     end after so many lines\n"
        "      --every DUR   how often to look at the server (1s, 250ms while nothing can be heard)\n"
        "      --json        as JSON, one object for each\n"
        "\nEvents: held, free: how it was at first; acquired; handed: from another who had it; released: also\n"
        "if it was broken, and without a name if nobody saw whose it was; expired: its lease ended; lost: its\n"
        "client says so; count: it holds it more or fewer times; waits; left: it gave up, or had the lock\n"
        "between two looks; silent, gone, alive: the holder; opened, closed: the latch; numbers; deleted; other:\n"
        "something else has the name; missed: so many messages, since nobody read this fast enough; away, back:\n"
        "the server.\n"
        "Exit status: 0; 128 and the signal's number when it was interrupted.\n",
    .run = run,
};
