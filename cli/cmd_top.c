/*
 * holdfast top: all locks, live, in the manner of top(1): one survey in each interval, sorted and filtered by keys.
 *
 * The main thread waits for keys, signals and the survey, which runs meanwhile; so a key is answered at once, even
 * while the server is not. Without a terminal, or with -b, the same is printed again and again, as long as it gets.
 */
#include "top.h"

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
#define SLICE_MS 20 /* so soon it is seen that a survey is over */
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

/* What is typed, and for what. */
enum prompt { PROMPT_NONE, PROMPT_FILTER, PROMPT_DELAY };

struct top {
    struct connection *connection;
    const char *pattern;
    int64_t delay_ms;
    bool batch;
    long count; /* of pictures; -1: no limit */
    hf_client *client;
    int ending, others; /* signals */
    struct top_view view;
    struct top_look look;
    bool over;
    int status;
    bool dirty; /* what is shown is not what is there */

    enum prompt prompt;
    char typed[FILTER_SIZE];
    char message[FILTER_SIZE + 200];
    char trouble[200]; /* why the last survey failed; "" */

    hf_fleet *fleet; /* written by the survey that runs; freed after hf_close() if nobody took it */
    hf_op *survey;
    int64_t due_ms;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct top *top = user;
    if (id == ID_DELAY) {
        if (!parse_duration(value, &top->delay_ms) || top->delay_ms < DELAY_MIN_MS)
            return usage_error("top", "%s: '%s' is no duration of 100ms or more", shown, value);
    } else if (id == ID_COUNT) {
        if (!parse_number(value, 1, COUNT_MAX, &top->count))
            return usage_error("top", "%s: '%s' is no number", shown, value);
    } else if (id == ID_SORT) {
        if (!top_order_find(value, &top->view.order))
            return usage_error("top", "%s is name, age, ttl, wait, waiters or hand-overs", shown);
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

/* ---- The picture ---- */

static void write_message(struct top *top) {
    char shown[FILTER_SIZE];
    snprintf(shown, sizeof shown, "%s", top->typed);
    text_disarm(shown);
    top->message[0] = '\0';
    if (top->prompt == PROMPT_FILTER)
        snprintf(top->message, sizeof top->message, "only with: %s_", shown);
    else if (top->prompt == PROMPT_DELAY)
        snprintf(top->message, sizeof top->message, "ask every: %s_", shown);
    else if (top->trouble[0] != '\0')
        snprintf(top->message, sizeof top->message, "as it was: %s", top->trouble);
    top->look.message = top->message;
}

static void draw(struct top *top) {
    size_t len, room = top_rows_that_fit(&top->look);
    size_t last = top->view.shown_len > room ? top->view.shown_len - room : 0;
    if (top->look.scroll > last)
        top->look.scroll = last;
    write_message(top);
    char *text = top_draw(&top->view, &top->look, &len);
    top->dirty = false;
    if (text == NULL) {
        say(LEVEL_ERROR, "out of memory");
        finish(top, STATUS_OS);
    } else if (!top_terminal_write(text, len)) {
        finish(top, errno == EPIPE ? STATUS_SIGNAL + SIGPIPE : STATUS_OS);
    }
    free(text);
}

static void measure(struct top *top) {
    top_terminal_size(&top->look.width, &top->look.height);
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

/* A filter counts while it is typed. */
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
    int64_t scroll = (int64_t)top->look.scroll + rows;
    top->look.scroll = scroll > 0 ? (size_t)scroll : 0; /* draw() knows the end */
}

static void order_by(struct top *top, enum top_order order) {
    top->view.order = order;
    top->look.scroll = 0;
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
        top->look.help = true;
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

/* Keys that send more than one byte: "\x1b[A" and the like. Returns how many bytes it was; 0: it is none. */
static size_t long_key(struct top *top, const char *keys, size_t len) {
    int64_t page = (int64_t)top_rows_that_fit(&top->look);
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
    size_t size = 2; /* another: up to its letter */
    while (size < len && keys[size] < '@')
        size++;
    return size < len ? size + 1 : len;
}

static void read_keys(struct top *top) {
    char keys[64];
    ssize_t len = read(STDIN_FILENO, keys, sizeof keys);
    if (len == 0 || (len < 0 && errno != EINTR && errno != EAGAIN))
        finish(top, STATUS_OK); /* nobody is there any more */
    for (size_t i = 0; len > 0 && i < (size_t)len && !top->over; i++) {
        size_t size = long_key(top, keys + i, (size_t)len - i);
        top->dirty = true;
        if (size > 0) {
            top->look.help = false;
            i += size - 1;
        } else if (top->look.help) {
            top->look.help = false;
        } else if (top->prompt != PROMPT_NONE) {
            prompt_key(top, keys[i]);
        } else {
            command_key(top, keys[i]);
        }
    }
}

/* ---- Signals ---- */

/* Gives the terminal back, stops as anybody would, and goes on where it was. By SIGTSTP itself, which the kernel drops
 * where no shell is above us that could wake us again; SIGSTOP would be for good there. */
static void stop(struct top *top) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    if (top->look.full)
        top_terminal_leave();
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(SIGTSTP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (top->look.full && !top_terminal_enter())
        finish(top, STATUS_OS);
    if (top->look.full)
        measure(top);
}

static void read_signals(struct top *top) {
    struct signalfd_siginfo info;
    while (read(top->ending, &info, sizeof info) == (ssize_t)sizeof info)
        finish(top, STATUS_SIGNAL + (int)info.ssi_signo);
    while (!top->over && read(top->others, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            stop(top);
        else if (top->look.full)
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
    hf_survey_options options = HF_SURVEY_INIT;
    options.pattern = top->pattern;
    int code = hf_survey_start(top->client, &options, &top->fleet, NULL, NULL, &top->survey);
    if (code != HF_OK)
        finish(top, library_error(code, hf_last_error(), "list", top->pattern));
}

/* A survey is over: what it found, or why it found nothing. The first must succeed. */
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

static void tend_survey(struct top *top) {
    hf_result result = HF_RESULT_INIT;
    if (top->survey == NULL && now_ms() >= top->due_ms) {
        top->due_ms = now_ms() + top->delay_ms;
        begin_survey(top);
    }
    if (top->survey == NULL)
        return;
    int code = hf_op_wait(top->survey, 0, &result);
    if (code != HF_EPENDING)
        end_survey(top, code, &result);
}

/* ---- The loop ---- */

static int patience_ms(const struct top *top) {
    int64_t left_ms = top->due_ms - now_ms();
    if (top->survey != NULL)
        return SLICE_MS;
    return left_ms <= 0 ? 0 : left_ms < 1000 ? (int)left_ms : 1000;
}

static void rest(struct top *top) {
    struct pollfd fds[] = {{.fd = top->ending, .events = POLLIN},
                           {.fd = top->others, .events = POLLIN},
                           {.fd = top->look.full ? STDIN_FILENO : -1, .events = POLLIN},
                           {.fd = STDOUT_FILENO}};
    poll(fds, 4, top->look.full ? patience_ms(top) : warning_look(patience_ms(top)));
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
    if (!top->look.full && !top->over)
        (void)top_terminal_write("\n", 1);
}

/* The screen is taken when there is something to show, so that an error before that is seen where it should be. */
static void enter(struct top *top) {
    top->look.full = !top->batch;
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
        bool had = top->view.fleet != NULL, surveyed = top->survey != NULL;
        tend_survey(top);
        surveyed = surveyed && top->survey == NULL;
        if (!had && top->view.fleet != NULL && !top->over)
            enter(top);
        if (top->dirty && top->view.fleet != NULL && !top->over) {
            if (surveyed || !had)
                show_picture(top);
            else
                draw(top); /* by a key, or a new size: that does not count */
        }
        if (!top->over)
            rest(top);
    }
    top_terminal_leave();
}

/* What the library says would be in the middle of the picture, which tells of the server itself. */
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
        return usage_error("top", "one PATTERN at most, after the options; quote it for the shell");
    if (connection->json)
        return usage_error("top", "there is no JSON of it: use ls --json");
    top.pattern = argc - first == 1 ? argv[first] : NULL;
    top.batch = top.batch || !top_terminal_is_there();
    top.look.colour = has_colour();
    top.look.width = BATCH_WIDTH;
    return open_and_show(&top);
}

const struct command command_top = {
    .name = "top",
    .summary = "show all locks, live",
    .usage =
        "[-d DUR] [-b] [-n COUNT] [--sort WHAT] [--stuck] [PATTERN]\n"
        "Shows what 'ls' lists, again and again, on the whole screen: who holds what, who waits, how often\n"
        "locks change hands, and who waits for each other for good. Keys sort and filter; ? tells which.\n\n"
        "  -d, --delay DUR    how often to ask the fleet (2s)\n"
        "  -b, --batch        print it, one after the other; also if there is no terminal\n"
        "  -n, --count COUNT  end after so many surveys\n"
        "      --sort WHAT    by name, age, ttl, wait, waiters or hand-overs (waiters)\n"
        "      --stuck        only those whose holder is silent or gone, with a long wait, or in a deadlock\n"
        "\nStates are those of 'ls', and deadlock. Without colours if NO_COLOR is set.\n"
        "Exit status: 0; 128 and the signal's number when it was interrupted.\n",
    .run = run,
};
