/* The common part of `holdfast sem` and `holdfast latch`; see counter.h. Each verb is one library
 * operation. The main thread starts it, then waits for signals and for its completion, on an
 * eventfd. Only the callback, counter_done(), runs on a library thread: it stores the result before
 * it writes the eventfd.
 *
 * A signal cancels the operation and leaves nothing behind: permits acquired anyway are released,
 * and closing the client settles requests in flight. */
#include "common/counter.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { ID_NONBLOCK = 1, ID_WAIT, ID_BUSY_STATUS, ID_TTL };

const struct option_spec counter_options[] = {
    {OPTION_FLAG, ID_NONBLOCK, 'n', "nonblock", false},
    {OPTION_FLAG, ID_NONBLOCK, 0, "nb", true},
    {OPTION_VALUE, ID_WAIT, 'w', "wait", false},
    {OPTION_VALUE, ID_BUSY_STATUS, 'E', "conflict-exit-code", false},
    {OPTION_VALUE, ID_TTL, 0, "ttl", true},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

/* ---- The command line ------------------------------------------------------------------------ */

/* Records a flag that not every verb takes. From the environment it is ignored by verbs that do not
 * take it. */
static void note_flag(char flag[32], const char *shown) {
    if (shown[0] == '-')
        snprintf(flag, 32, "%s", shown);
}

static int take_waiting(struct counter *counter, int id, const char *value, const char *shown) {
    const char *subcommand = counter->kind->command->name;
    long number;
    note_flag(counter->wait_flag, shown);
    if (id != ID_BUSY_STATUS)
        return take_wait(&counter->waiting, subcommand, value, shown, &counter->wait_ms);
    if (!parse_number(value, 0, 255, &number))
        return usage_error(subcommand, "%s: '%s' is not an exit status (0 to 255)", shown, value);
    counter->busy_status = (int)number;
    return 0;
}

static int take(void *user, int id, char *value, const char *shown) {
    struct counter *counter = user;
    if (id == ID_NONBLOCK || id == ID_WAIT || id == ID_BUSY_STATUS)
        return take_waiting(counter, id, value, shown);
    if (id == ID_TTL) {
        note_flag(counter->ttl_flag, shown);
        if (!parse_duration(value, &counter->ttl_ms) || counter->ttl_ms == 0)
            return duration_error(counter->kind->command->name, shown, value);
    } else if (id == OPTION_ID_HELP) {
        counter->help = true;
    } else {
        common_option(counter->connection, id);
    }
    return 0;
}

static bool is_number(const char *word, int64_t low, int64_t *ret) {
    long number;
    bool negative = word[0] == '-';
    if (!parse_number(word + negative, 0, HF_PERMITS_MAX, &number))
        return false;
    *ret = negative ? -number : number;
    return *ret >= low;
}

/* "set, down, wait, count or delete" */
static const char *list_verbs(const struct counter_verb *verb, char *buffer, size_t size) {
    size_t len = 0;
    for (; verb->name != NULL && len < size; verb++) {
        const char *before = len == 0 ? "" : verb[1].name != NULL ? ", " : " or ";
        len += (size_t)snprintf(buffer + len, size - len, "%s%s", before, verb->name);
    }
    return buffer;
}

static int take_verb(struct counter *counter, const char *word) {
    char verbs[128];
    for (const struct counter_verb *verb = counter->kind->verbs; verb->name != NULL; verb++) {
        if (strcmp(word, verb->name) == 0)
            counter->verb = verb;
    }
    if (counter->verb == NULL)
        return usage_error(counter->kind->command->name, "unknown VERB '%s': use %s", word,
                           list_verbs(counter->kind->verbs, verbs, sizeof verbs));
    counter->number = 1;
    return 0;
}

/* Takes one operand of NAME VERB [NUMBER], by its index. */
static int take_word(struct counter *counter, int index, const char *word) {
    const char *subcommand = counter->kind->command->name;
    if (index == 0) {
        counter->name = word;
        return *word != '\0' ? 0 : usage_error(subcommand, "a NAME is needed");
    }
    if (index == 1)
        return take_verb(counter, word);
    if (index > 2 || !counter->verb->number)
        return usage_error(subcommand, "'%s' takes %s number: unexpected argument '%s'",
                           counter->verb->name, counter->verb->number ? "one" : "no", word);
    if (!is_number(word, counter->verb->lowest, &counter->number))
        return usage_error(subcommand, "'%s' is not a number for '%s'", word, counter->verb->name);
    return 0;
}

static int check(const struct counter *counter, int words) {
    const char *subcommand = counter->kind->command->name;
    char verbs[128];
    if (words == 0)
        return usage_error(subcommand, "a NAME is needed");
    if (words == 1)
        return usage_error(subcommand, "a VERB is needed: %s",
                           list_verbs(counter->kind->verbs, verbs, sizeof verbs));
    const struct counter_verb *verb = counter->verb;
    if (words == 2 && verb->number && !verb->number_or_1)
        return usage_error(subcommand, "a number is needed after '%s'", verb->name);
    if (!verb->waits && counter->wait_flag[0] != '\0')
        return usage_error(subcommand, "%s cannot be used with '%s', which does not wait",
                           counter->wait_flag, verb->name);
    if (!verb->ttl && counter->ttl_flag[0] != '\0')
        return usage_error(subcommand, "%s cannot be used with '%s'", counter->ttl_flag,
                           verb->name);
    return 0;
}

/* Options may stand anywhere, and a number may be negative. Returns 0 or an exit status. */
static int parse(struct counter *counter, int argc, char **argv) {
    const char *subcommand = counter->kind->command->name;
    int words = 0;
    int index = command_options(counter->kind->command, counter_options, argc, argv, take, counter);
    if (index <= 0) {
        counter->help = index == 0;
        return -index;
    }
    while (index < argc) {
        const char *word = argv[index];
        bool number = words == 2 && isdigit((unsigned char)word[1]);
        if (words == 0 || word[0] != '-' || word[1] == '\0' || number) {
            int status = take_word(counter, words++, word);
            if (status != 0)
                return status;
            index++;
            continue;
        }
        int read = options_parse(counter_options, subcommand, argc - index + 1, argv + index - 1,
                                 take, counter);
        if (read < 0)
            return -read;
        index += read - 1;
    }
    if (counter->help)
        print_help(counter->kind->command);
    return counter->help ? 0 : check(counter, words);
}

/* ---- The operation --------------------------------------------------------------------------- */

void counter_done(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    struct counter *counter = user;
    const uint64_t one = 1;
    counter->result = *result;
    while (write(counter->ended, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

static void read_signal(struct counter *counter) {
    struct signalfd_siginfo info;
    if (read(counter->signals, &info, sizeof info) == (ssize_t)sizeof info &&
        counter->interrupted == 0) {
        counter->interrupted = (int)info.ssi_signo;
        hf_op_cancel(counter->op);
    }
}

/* Waits for the completion. False: poll failed. */
static bool await_end(struct counter *counter) {
    uint64_t ended;
    do {
        struct pollfd fds[] = {{.fd = counter->signals, .events = POLLIN},
                               {.fd = counter->ended, .events = POLLIN}};
        if (await_fds(fds, 2, warning_print_due(-1)) < 0 && errno != EINTR)
            return false;
        read_signal(counter);
    } while (read(counter->ended, &ended, sizeof ended) != (ssize_t)sizeof ended);
    return true;
}

/* Starts an operation and waits for its completion. Returns its code. */
static int carry_out(struct counter *counter, int (*start)(struct counter *counter)) {
    int code = start(counter);
    if (code != HF_OK) {
        counter->result = (hf_result){.code = code, .error = *hf_last_error()};
        return code;
    }
    bool ended = await_end(counter);
    hf_op_free(counter->op);
    if (ended)
        return counter->result.code;
    say(LEVEL_ERROR, "cannot wait for events: %s", strerror(errno));
    hf_close(counter->client); /* no callback runs after this */
    counter->client = NULL;
    counter->result = (hf_result){.code = HF_ESYS};
    return HF_ESYS;
}

static int print_answer(const struct counter *counter) {
    const struct counter_verb *verb = counter->verb;
    int64_t value = counter->result.value;
    char buffer[SHOWN_NAME_SIZE];
    int status = STATUS_OK;
    if (verb->answer == NULL)
        return STATUS_OK;
    if (counter->connection->json) {
        json_t *answer = verb->no != NULL ? json_boolean(value != 0) : json_integer(value);
        status = print_json(
            json_pack("{s:o, s:o}", "name", json_text(counter->name), verb->answer, answer));
    } else if (verb->no == NULL) {
        if (printf("%" PRId64 "\n", value) < 0 || fflush(stdout) != 0) {
            say(LEVEL_ERROR, "cannot write to the standard output: %s", strerror(errno));
            status = STATUS_OS;
        }
    } else if (value == 0) {
        say_of(LEVEL_NOTICE, &(struct subject){.lock = counter->name}, "'%s' %s",
               shown_name(counter->name, buffer), verb->no);
    }
    return status == STATUS_OK && verb->no != NULL && value == 0 ? STATUS_NO : status;
}

static int print_result(const struct counter *counter) {
    int code = counter->result.code;
    char buffer[SHOWN_NAME_SIZE];
    if (code == HF_OK)
        return print_answer(counter);
    if (code != HF_EBUSY && code != HF_ETIMEDOUT)
        return library_error(code, &counter->result.error, counter->verb->doing, counter->name);
    say_of(counter->busy_status == 0 ? LEVEL_INFO : LEVEL_NOTICE,
           &(struct subject){.code = code, .lock = counter->name}, "'%s': %s",
           shown_name(counter->name, buffer),
           code == HF_EBUSY ? counter->kind->busy : counter->kind->timed_out);
    return counter->busy_status;
}

/* Says what kind of object has the name, if it is not a counter. */
static void explain(const struct counter *counter) {
    static const char locked[] = "a lock: see 'holdfast show'";
    static const struct explanation all[] = {
        {HF_FOUND_PLAIN, locked},
        {HF_FOUND_FAIR, locked},
        {HF_FOUND_READ, locked},
        {HF_FOUND_WRITE, locked},
        {HF_FOUND_STRING, locked},
        {HF_FOUND_PERMITS, "a set of slots: see 'holdfast show'"},
        {HF_FOUND_FREE,
         "missing, but a key of its slots may be left over: delete '{NAME}:timeout' then"},
        {HF_FOUND_FREE, NULL},
    };
    explain_name(counter->client, counter->name, counter->kind->noun, all);
}

static int act(struct counter *counter) {
    int code = counter->kind->open(counter);
    if (code != HF_OK)
        return library_error(code, hf_last_error(), counter->verb->doing, counter->name);

    code = carry_out(counter, counter->verb->start);
    if (counter->interrupted == 0 || (code == HF_OK && counter->verb->undo == NULL))
        return print_result(counter);
    int signal = counter->interrupted;
    if (code == HF_OK && carry_out(counter, counter->verb->undo) != HF_OK)
        library_error(counter->result.code, &counter->result.error, "give back", counter->name);
    return STATUS_SIGNAL + signal;
}

int counter_run(const struct counter_kind *kind, struct connection *connection, int argc,
                char **argv) {
    struct counter counter = {
        .kind = kind, .connection = connection, .wait_ms = HF_FOREVER, .busy_status = STATUS_BUSY};
    int status = parse(&counter, argc, argv);
    if (status != 0 || counter.help)
        return status;
    message_lock(counter.name);
    status = connection_resolve(connection);
    if (status == 0)
        status = connection_refuse_several(connection, kind->command->name, kind->command->name);
    if (status != 0)
        return status;

    hf_options options = HF_OPTIONS_INIT;
    counter.signals = ending_signals();
    counter.ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = connection_open(connection, &options, &counter.client);
    if (status != 0)
        return status;
    status = act(&counter);
    if (status == STATUS_DATA)
        explain(&counter);
    kind->close(&counter);
    hf_close(counter.client);
    return status;
}
