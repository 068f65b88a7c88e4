/* holdfast top: all locks, live, like top(1): one survey per interval, sorted and filtered by keys.
 *
 * The main thread waits for keys, signals and the running survey. So it reacts to keys at once,
 * even if the server does not respond. Without a terminal, or with -b, it prints the full list
 * again and again. */
#include "top/top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { ID_DELAY = 1, ID_BATCH, ID_COUNT, ID_SORT, ID_STUCK };

#define DELAY_MS 2000
#define DELAY_MIN_MS 100
#define SLICE_MS 20 /* how often a running survey is checked */
#define COUNT_MAX 1000000000
#define BATCH_WIDTH 512

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_DELAY, 'd', "delay", false},
    {OPTION_FLAG, ID_BATCH, 'b', "batch", false},
    {OPTION_VALUE, ID_COUNT, 'n', "count", false},
    {OPTION_VALUE, ID_SORT, 0, "sort", false},
    {OPTION_FLAG, ID_STUCK, 0, "stuck", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

/* What the typed text is for. */
enum prompt { PROMPT_NONE, PROMPT_FILTER, PROMPT_DELAY };

struct top {
    struct connection *connection;
    const char *pattern;
    int64_t delay_ms;
    bool batch;
    long count; /* screens left to show; -1: no limit */
    hf_client *client;
    int ending, others; /* signalfds */
    struct top_view view;
    struct top_layout layout;
    bool over;
    int status;
    bool dirty; /* the screen must be redrawn */

    enum prompt prompt;
    char typed[FILTER_SIZE];
    char message[FILTER_SIZE + 200];
    char trouble[200]; /* why the last survey failed; "": it did not */

    hf_fleet *fleet; /* written by the running survey; freed after hf_close() if no view took it */
    hf_op *survey;
    int64_t due_ms;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct top *top = user;
    if (id == ID_DELAY) {
        if (!parse_duration(value, &top->delay_ms) || top->delay_ms < DELAY_MIN_MS)
            return usage_error("top", "%s: '%s' is not a duration of 100ms or more", shown, value);
    } else if (id == ID_COUNT) {
        if (!parse_number(value, 1, COUNT_MAX, &top->count))
            return usage_error("top", "%s: '%s' is not a number", shown, value);
    } else if (id == ID_SORT) {
        if (!top_order_find(value, &top->view.order))
            return usage_error("top",
                               "%s: '%s' is not one of name, age, ttl, wait, waiters or hand-overs",
                               shown, value);
    } else if (id == ID_BATCH) {
        top->batch = true;
    } else if (id == ID_STUCK) {
        top->view.stuck_only = true;
    } else {
        common_option(top->connection, id);
    }
    return 0;
}

static void finish(struct top *top, int status) {
    if (!top->over)
        top->status = status;
    top->over = true;
}

/* ---- Drawing ---- */

static void write_message(struct top *top) {
    char shown[FILTER_SIZE];
    snprintf(shown, sizeof shown, "%s", top->typed);
    text_disarm(shown);
    top->message[0] = '\0';
    if (top->prompt == PROMPT_FILTER)
        snprintf(top->message, sizeof top->message, "only names or holders with: %s_", shown);
    else if (top->prompt == PROMPT_DELAY)
        snprintf(top->message, sizeof top->message, "survey every: %s_", shown);
    else if (top->trouble[0] != '\0')
        snprintf(top->message, sizeof top->message, "unchanged: %s", top->trouble);
    top->layout.message = top->message;
}

static void draw(struct top *top) {
    size_t len, room = top_rows_that_fit(&top->layout);
    size_t last = top->view.shown_len > room ? top->view.shown_len - room : 0;
    if (top->layout.scroll > last)
        top->layout.scroll = last;
    write_message(top);
    char *text = top_draw(&top->view, &top->layout, &len);
    top->dirty = false;
    if (text == NULL) {
        say(LEVEL_ERROR, "out of memory");
        finish(top, STATUS_OS);
    } else if (!top_terminal_write(text, len)) {
        int reason = errno;
        if (reason != EPIPE)
            say(LEVEL_ERROR, "cannot write to the standard output: %s", strerror(reason));
        finish(top, reason == EPIPE ? STATUS_SIGNAL + SIGPIPE : STATUS_OS);
    }
    free(text);
}

static void measure(struct top *top) {
    top_terminal_size(&top->layout.width, &top->layout.height);
    top->dirty = true;
}

/* ---- Keys ---- */

static void begin_prompt(struct top *top, enum prompt prompt) {
    top->prompt = prompt;
    snprintf(top->typed, sizeof top->typed, "%s", prompt == PROMPT_FILTER ? top->view.filter : "");
}

static void end_prompt(struct top *top, bool accepted) {
    int64_t delay_ms;
    if (top->prompt == PROMPT_FILTER && !accepted)
        top->view.filter[0] = '\0';
    if (top->prompt == PROMPT_DELAY && accepted && parse_duration(top->typed, &delay_ms) &&
        delay_ms >= DELAY_MIN_MS)
        top->delay_ms = delay_ms;
    top->prompt = PROMPT_NONE;
    top_view_choose(&top->view);
}

/* The filter applies while it is typed. */
static void prompt_key(struct top *top, char key) {
    size_t len = strlen(top->typed);
    if (key == '\n' || key == '\r' || key == '\x1b') {
        end_prompt(top, key != '\x1b');
        return;
    }
    if ((key == '\b' || key == '\x7f') && len > 0) {
        while (len > 1 && ((unsigned char)top->typed[len - 1] & 0xc0) == 0x80)
            len--;
        top->typed[len - 1] = '\0';
    } else if ((unsigned char)key >= ' ' && key != '\x7f' && len + 1 < sizeof top->typed) {
        top->typed[len] = key;
        top->typed[len + 1] = '\0';
    }
    if (top->prompt == PROMPT_FILTER) {
        snprintf(top->view.filter, sizeof top->view.filter, "%s", top->typed);
        top_view_choose(&top->view);
    }
}

static void scroll_by(struct top *top, int64_t rows) {
    int64_t scroll = (int64_t)top->layout.scroll + rows;
    top->layout.scroll = scroll > 0 ? (size_t)scroll : 0; /* draw() limits it */
}

static void order_by(struct top *top, enum top_order order) {
    top->view.order = order;
    top->layout.scroll = 0;
    top_view_choose(&top->view);
}

static void command_key(struct top *top, char key) {
    static const char orders[] = "natlwh";
    const char *order = strchr(orders, key);
    if (key != '\0' && order != NULL)
        order_by(top, (enum top_order)(order - orders));
    else if (key == 'q' || key == 'Q')
        finish(top, STATUS_OK);
    else if (key == '?')
        top->layout.help = true;
    else if (key == '/')
        begin_prompt(top, PROMPT_FILTER);
    else if (key == 'd')
        begin_prompt(top, PROMPT_DELAY);
    else if (key == ' ')
        top->due_ms = 0;
    else if (key == 'r' || key == 's') {
        bool *which = key == 'r' ? &top->view.reverse : &top->view.stuck_only;
        *which = !*which;
        top_view_choose(&top->view);
    } else if (key == 'j' || key == 'k')
        scroll_by(top, key == 'j' ? 1 : -1);
}

/* Handles a key of several bytes, such as "\x1b[A". Returns its length in bytes; 0: not such a
 * key. */
static size_t long_key(struct top *top, const char *keys, size_t len) {
    int64_t page = (int64_t)top_rows_that_fit(&top->layout);
    const struct {
        const char *bytes;
        int64_t rows;
    } known[] = {{"[A", -1},        {"OA", -1},        {"[B", 1},
                 {"OB", 1},         {"[5~", -page},    {"[6~", page},
                 {"[H", INT32_MIN}, {"OH", INT32_MIN}, {"[1~", INT32_MIN}};
    if (len < 2 || keys[0] != '\x1b' || (keys[1] != '[' && keys[1] != 'O'))
        return 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t size = strlen(known[i].bytes);
        if (len > size && memcmp(keys + 1, known[i].bytes, size) == 0) {
            scroll_by(top, known[i].rows);
            return size + 1;
        }
    }
    size_t size = 2; /* unknown sequence: skip it up to its final letter */
    while (size < len && keys[size] < '@')
        size++;
    return size < len ? size + 1 : len;
}

static void read_keys(struct top *top) {
    char keys[64];
    ssize_t len = read(STDIN_FILENO, keys, sizeof keys);
    if (len == 0 || (len < 0 && errno != EINTR && errno != EAGAIN))
        finish(top, STATUS_OK); /* the terminal is gone */
    for (size_t i = 0; len > 0 && i < (size_t)len && !top->over; i++) {
        size_t size = long_key(top, keys + i, (size_t)len - i);
        top->dirty = true;
        if (size > 0) {
            top->layout.help = false;
            i += size - 1;
        } else if (top->layout.help) {
            top->layout.help = false;
        } else if (top->prompt != PROMPT_NONE) {
            prompt_key(top, keys[i]);
        } else {
            command_key(top, keys[i]);
        }
    }
}

/* ---- Signals ---- */

/* Restores the terminal, stops, and continues later. Uses SIGTSTP, because the kernel drops it if
 * no shell could continue us; SIGSTOP would stop us for good. */
static void stop(struct top *top) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    if (top->layout.full)
        top_terminal_leave();
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(SIGTSTP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (top->layout.full && !top_terminal_enter())
        finish(top, STATUS_OS);
    if (top->layout.full)
        measure(top);
}

static void read_signals(struct top *top) {
    struct signalfd_siginfo info;
    while (read(top->ending, &info, sizeof info) == (ssize_t)sizeof info)
        finish(top, STATUS_SIGNAL + (int)info.ssi_signo);
    while (!top->over && read(top->others, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            stop(top);
        else if (top->layout.full)
            measure(top);
    }
}

static int open_signals(struct top *top) {
    sigset_t set;
    struct sigaction action;
    sigemptyset(&set);
    if (sigaction(SIGTSTP, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
        sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGWINCH);
    top->ending = ending_signals();
    sigprocmask(SIG_BLOCK, &set, NULL);
    top->others = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (top->ending >= 0 && top->others >= 0)
        return STATUS_OK;
    say(LEVEL_ERROR, "cannot wait for signals: %s", strerror(errno));
    return STATUS_OS;
}

/* ---- Surveys ---- */

static void begin_survey(struct top *top) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    options.pattern = top->pattern;
    int code = hf_survey_start(top->client, &options, &top->fleet, NULL, NULL, &top->survey);
    if (code != HF_OK)
        finish(top, library_error(code, hf_last_error(), "list", top->pattern));
}

/* A survey has ended: takes its result, or its error. The first survey must succeed. */
static void end_survey(struct top *top, int code, const hf_result *result) {
    hf_fleet *fleet = top->fleet;
    top->fleet = NULL;
    hf_op_free(top->survey);
    top->survey = NULL;
    if (code == HF_OK && !top_view_take(&top->view, fleet)) {
        say(LEVEL_ERROR, "out of memory");
        finish(top, STATUS_OS);
    } else if (code != HF_OK && top->view.fleet == NULL) {
        finish(top, library_error(code, &result->error, "list", top->pattern));
    }
    snprintf(top->trouble, sizeof top->trouble, "%s", code != HF_OK ? hf_strerror(code) : "");
    top->dirty = true;
}

/* Whether a survey has ended. It may begin and end in the same step. */
static bool step_survey(struct top *top) {
    hf_result result = HF_RESULT_INIT;
    if (top->survey == NULL && now_ms() >= top->due_ms) {
        top->due_ms = now_ms() + top->delay_ms;
        begin_survey(top);
    }
    if (top->survey == NULL)
        return false;
    int code = hf_op_wait(top->survey, 0, &result);
    if (code == HF_EPENDING)
        return false;
    end_survey(top, code, &result);
    return true;
}

/* ---- The loop ---- */

static int poll_timeout_ms(const struct top *top) {
    int64_t left_ms = top->due_ms - now_ms();
    if (top->survey != NULL)
        return SLICE_MS;
    return left_ms <= 0 ? 0 : left_ms < 1000 ? (int)left_ms : 1000;
}

static void rest(struct top *top) {
    struct pollfd fds[] = {{.fd = top->ending, .events = POLLIN},
                           {.fd = top->others, .events = POLLIN},
                           {.fd = top->layout.full ? STDIN_FILENO : -1, .events = POLLIN},
                           {.fd = STDOUT_FILENO}};
    await_fds(fds, 4,
              top->layout.full ? poll_timeout_ms(top) : warning_print_due(poll_timeout_ms(top)));
    read_signals(top);
    if (!top->over && fds[2].revents != 0)
        read_keys(top);
    if ((fds[3].revents & (POLLERR | POLLHUP)) != 0)
        finish(top, STATUS_SIGNAL + SIGPIPE);
}

static void show_picture(struct top *top) {
    draw(top);
    if (top->count > 0 && --top->count == 0)
        finish(top, STATUS_OK);
    if (!top->layout.full && !top->over)
        (void)top_terminal_write("\n", 1);
}

/* The screen is taken only when there is something to show, so that earlier errors stay visible. */
static void enter(struct top *top) {
    top->layout.full = !top->batch;
    if (top->batch)
        return;
    if (!top_terminal_enter()) {
        say(LEVEL_ERROR, "cannot use the terminal: %s", strerror(errno));
        finish(top, STATUS_OS);
    }
    measure(top);
}

static void loop(struct top *top) {
    while (!top->over) {
        bool had = top->view.fleet != NULL, surveyed = step_survey(top);
        if (!had && top->view.fleet != NULL && !top->over)
            enter(top);
        if (top->dirty && top->view.fleet != NULL && !top->over) {
            if (surveyed)
                show_picture(top);
            else
                draw(top); /* redraw after a key or a resize: does not count for -n */
        }
        if (!top->over)
            rest(top);
    }
    top_terminal_leave();
}

/* Log messages would corrupt the screen, which shows the server's state itself. */
static void say_nothing(hf_log_level level, const char *message, void *user) {
    (void)level;
    (void)message;
    (void)user;
}

static int open_and_show(struct top *top) {
    hf_options options = HF_OPTIONS_INIT;
    options.report_after_ms = -1;
    if (!top->batch)
        options.log = say_nothing;
    int status = connection_resolve(top->connection);
    if (status == 0)
        status = connection_open(top->connection, &options, &top->client);
    if (status == 0)
        status = open_signals(top);
    if (status == 0) {
        loop(top);
        status = top->status;
    }
    hf_op_cancel(top->survey);
    hf_op_free(top->survey);
    if (top->client != NULL)
        hf_close(top->client);
    hf_fleet_free(top->fleet);
    top_view_free(&top->view);
    return status;
}

static bool has_colour(void) {
    const char *no_colour = getenv("NO_COLOR");
    return no_colour == NULL || no_colour[0] == '\0';
}

static int run(struct connection *connection, int argc, char **argv) {
    struct top top = {.connection = connection,
                      .delay_ms = DELAY_MS,
                      .count = -1,
                      .ending = -1,
                      .others = -1,
                      .view.order = TOP_BY_WAITERS};
    int first = command_options(&command_top, specs, argc, argv, take, &top);
    if (first <= 0)
        return -first;
    if (argc - first > 1)
        return usage_error(
            "top", "too many arguments: give one PATTERN after the options, quoted for the shell");
    if (connection->json)
        return usage_error("top", "top has no JSON output: use ls --json");
    top.pattern = argc - first == 1 ? argv[first] : NULL;
    top.batch = top.batch || !top_terminal_is_there();
    top.layout.colour = has_colour();
    top.layout.width = BATCH_WIDTH;
    return open_and_show(&top);
}

const struct command command_top = {
    .name = "top",
    .options = specs,
    .summary = "show all locks, updated live",
    .usage =
        "[-d DUR] [-b] [-n COUNT] [--sort WHAT] [--stuck] [PATTERN]\n"
        "Shows what 'ls' lists on the whole screen, updated: holders, waiters, how often locks change\n"
        "hands, and deadlocks. Keys sort and filter; ? shows them.\n\n"
        "  -d, --delay DUR    time between two surveys (2s)\n"
        "  -b, --batch        print one survey after the other; the default without a terminal\n"
        "  -n, --count COUNT  exit after this many surveys\n"
        "      --sort WHAT    by name, age, ttl, wait, waiters or hand-overs (waiters)\n"
        "      --stuck        only locks whose holder is silent or gone, with a long wait, or in a deadlock\n"
        "\nStates are those of 'ls', and deadlock. Without colours if NO_COLOR is set.\n"
        "Exit status: 0; 128 plus the signal's number if interrupted.\n",
    .run = run,
};
