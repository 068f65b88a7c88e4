/* holdfast acquire --lease DUR NAME: acquires a lock or a slot, prints a handle for it and exits
 * without releasing. It is for pipelines whose steps are processes. `extend` and `release` take the
 * handle (cmd_handle.c), and so does hf_lock_adopt().
 *
 * The hold is not renewed after the exit, so it needs a lease. If the handle cannot be printed, the
 * hold is released again. One process; a poll loop on its main thread over signals and the
 * library's callbacks (manual dispatch). */
#include "hold/held.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { ID_NONBLOCK = 1, ID_WAIT, ID_BUSY_STATUS, ID_LEASE };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_NONBLOCK, 'n', "nonblock", false},
    {OPTION_FLAG, ID_NONBLOCK, 0, "nb", true},
    {OPTION_VALUE, ID_WAIT, 'w', "wait", false},
    {OPTION_VALUE, ID_BUSY_STATUS, 'E', "conflict-exit-code", false},
    {OPTION_VALUE, ID_LEASE, 0, "lease", false},
    CHOICE_OPTIONS,
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct acquire {
    struct connection *connection;
    struct choice choice;
    struct held held;
    struct either waiting; /* -n or -w */
    int busy_status;
    int signals;
    int interrupted; /* the signal that ended the wait; 0: none */
    bool wrong_name; /* the name is in use by another kind of object */
    bool done;
    int status;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct acquire *acquire = user;
    long number;
    int status;
    if (choice_option(&acquire->choice, "acquire", id, value, shown, &status))
        return status;
    switch (id) {
    case ID_WAIT:
        return take_wait(&acquire->waiting, "acquire", value, shown, &acquire->held.wait_ms);
    case ID_LEASE:
        return parse_lease(value, &acquire->held.lease_ms) && acquire->held.lease_ms != 0
                   ? 0
                   : duration_error("acquire", shown, value);
    case ID_BUSY_STATUS:
        if (!parse_number(value, 0, 255, &number))
            return usage_error("acquire", "%s: '%s' is not an exit status (0 to 255)", shown,
                               value);
        acquire->busy_status = (int)number;
        return 0;
    case ID_NONBLOCK:
        return take_wait(&acquire->waiting, "acquire", NULL, shown, &acquire->held.wait_ms);
    default:
        common_option(acquire->connection, id);
        return 0;
    }
}

/* A fixed owner number, so that a survey does not take the exited owner for a dead one. */
#define HANDLE_OWNER ((hf_owner)0x68616e64) /* "hand" */

static void finish(struct acquire *acquire, int status) {
    acquire->status = status;
    acquire->done = true;
}

/* ---- Printing the handle, or releasing ------------------------------------------------------- */

static void on_released(void *user, const hf_result *result) {
    struct acquire *acquire = user;
    (void)result; /* If the release failed, the lease will expire. */
    acquire->done = true;
}

static void give_back(struct acquire *acquire) {
    if (held_release(&acquire->held) != HF_OK)
        acquire->done = true;
}

static int report_plain(const struct held *held) {
    if (printf("%s\n", held->owner) > 0 && fflush(stdout) == 0)
        return STATUS_OK;
    say(LEVEL_ERROR, "cannot write to the standard output: %s", strerror(errno));
    return STATUS_OS;
}

static int report_json(const struct held *held) {
    json_t *object = json_pack("{s:o, s:s, s:s, s:o}", "name", json_text(held->name), "kind",
                               held->kind->name, "handle", held->owner, "lease_ms",
                               held->lease_ms > 0 ? json_integer(held->lease_ms) : json_null());
    if (object != NULL && held->token != 0)
        json_object_set_new(object, "token", json_integer(held->token));
    return print_json(object);
}

static void on_acquired(void *user, const hf_result *result) {
    struct acquire *acquire = user;
    struct held *held = &acquire->held;
    acquire->wrong_name = result->code == HF_EWRONGTYPE;
    if (result->code != HF_OK) {
        bool interrupted = acquire->interrupted != 0;
        finish(acquire,
               interrupted ? acquire->status : held_failed(held, result, acquire->busy_status));
        return;
    }
    held_report_acquired(held);
    if (acquire->interrupted == 0)
        acquire->status = acquire->connection->json ? report_json(held) : report_plain(held);
    if (acquire->interrupted != 0 || acquire->status != STATUS_OK)
        give_back(acquire);
    else
        acquire->done = true;
}

static void on_hold_event(void *user, const hf_event *event) {
    (void)user; /* The user of the handle will notice. */
    (void)event;
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void interrupt(struct acquire *acquire, int signal) {
    if (acquire->interrupted != 0)
        return;
    acquire->interrupted = signal;
    acquire->status = STATUS_SIGNAL + signal;
    held_cancel(&acquire->held);
}

static void loop(struct acquire *acquire) {
    while (!acquire->done) {
        struct pollfd fds[] = {{.fd = acquire->signals, .events = POLLIN},
                               {.fd = hf_dispatch_fd(acquire->held.client), .events = POLLIN}};
        int limit_ms = warning_print_due(held_watch_wait(&acquire->held));
        if (await_fds(fds, 2, limit_ms) < 0 && errno != EINTR) {
            say(LEVEL_ERROR, "cannot wait for events: %s", strerror(errno));
            finish(acquire, STATUS_OS);
            return;
        }
        struct signalfd_siginfo info;
        if (read(acquire->signals, &info, sizeof info) == (ssize_t)sizeof info)
            interrupt(acquire, (int)info.ssi_signo);
        hf_dispatch(acquire->held.client, 0);
    }
}

static int begin(struct acquire *acquire) {
    hf_options options = HF_OPTIONS_INIT;
    char label[PARENT_LABEL_SIZE];
    options.flags = HF_MANUAL_DISPATCH;
    options.label = label_of_parent(label);
    signal(SIGPIPE, SIG_IGN); /* if the handle cannot be written, the lock is released */
    acquire->signals = ending_signals();
    int status = connection_open(acquire->connection, &options, &acquire->held.client);
    if (status != 0)
        return status;
    int code = held_acquire(&acquire->held);
    return code == HF_OK ? 0 : library_error(code, hf_last_error(), "acquire", acquire->held.name);
}

static int check(struct acquire *acquire, int argc, char **argv) {
    if (argc != 1 || argv[0][0] == '\0')
        return usage_error("acquire", "one NAME is needed, after the options");
    if (acquire->choice.several)
        return usage_error("acquire", "-m cannot be used here: acquire the locks one by one");
    if (acquire->held.lease_ms == 0)
        return usage_error("acquire",
                           "--lease is required: nothing renews the lock after this command exits");
    acquire->held.name = argv[0];
    int status = choice_settle(&acquire->choice, "acquire");
    if (status != 0)
        return status;
    return choice_check_lease(&acquire->choice, "acquire", acquire->held.lease_ms);
}

static int run(struct connection *connection, int argc, char **argv) {
    struct acquire acquire = {.connection = connection,
                              .held = {.wait_ms = HF_FOREVER,
                                       .number = HANDLE_OWNER,
                                       .acquired = on_acquired,
                                       .released = on_released,
                                       .hold_event = on_hold_event,
                                       .user = &acquire},
                              .busy_status = STATUS_BUSY};
    int first = command_options(&command_acquire, specs, argc, argv, take, &acquire);
    if (first <= 0)
        return -first;
    int status = check(&acquire, argc - first, argv + first);
    acquire.held.kind = acquire.choice.kind;
    acquire.held.slots = acquire.choice.slots;
    acquire.held.ttl_ms = acquire.held.lease_ms;
    if (status == 0)
        message_lock(acquire.held.name);
    if (status == 0)
        status = connection_resolve(connection);
    if (status == 0)
        status = handle_check_servers(connection, "acquire");
    if (status == 0)
        status = begin(&acquire);
    if (status == 0) {
        loop(&acquire);
        status = acquire.status;
    }
    if (acquire.wrong_name)
        held_explain(acquire.held.client, acquire.held.name);
    held_report_holder(&acquire.held);
    held_free(&acquire.held);
    hf_close(acquire.held.client);
    return status;
}

const struct command command_acquire = {
    .name = "acquire",
    .options = specs,
    .summary = "acquire a lock, print a handle and exit",
    .usage =
        "--lease DUR [OPTIONS] NAME\n"
        "Acquires the lock NAME, prints a handle for it and exits. The lock is held until 'release' gets\n"
        "the handle or the lease ends; 'extend' makes it last longer.\n\n"
        "      --lease DUR             how long to hold it (with --string, `none`: no lease; the lock\n"
        "                              stays held until it is released)\n"
        "  -x, -e, --exclusive         exclusively (the default)\n"
        "  -s, --shared                as a reader: beside other readers, without a writer\n"
        "  -W, --write                 as the writer beside -s: exclusively\n"
        "      --fair                  first come, first served\n"
        "      --fenced                with a fencing token, printed by --json\n"
        "      --spin                  wait by retrying\n"
        "      --string                as SET NX, shared with other libraries\n"
        "  -N, --slots N               one of N slots: at most N holders at once\n"
        "  -n, --nonblock, --nb        do not wait for the lock\n"
        "  -w, --wait DUR              wait at most this long; 0 is -n (default: for ever)\n"
        "  -E, --conflict-exit-code N  exit status if the lock was not free (75)\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nExit status: 0 held; 75 not acquired.\n",
    .run = run,
};
