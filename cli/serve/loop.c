/* The main loop of `holdfast serve`: one thread, one poll over libmicrohttpd's descriptors, the
 * library's callbacks and signals.
 *
 * Without connections it sleeps and sends no requests, unless it writes a history file or runs
 * commands on events. */
#include "serve/http.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SWEEP_MS 1000
#define KEEP_ALIVE_MS 2000 /* streams without events are poked so often, to detect closed pages */

static const struct history_limits history_limits = {
    .events = 20000, .bytes = (size_t)16 * 1024 * 1024, .events_of_lock = 2000};

bool serve_always_watches(const struct serve_settings *settings) {
    return settings->history_file != NULL || settings->on_event != NULL;
}

static void changed(void *user) {
    http_view_changed(user);
}

static void recorded(void *user, const struct history_event *event, const char *line) {
    struct serve *serve = user;
    if (serve->history_file != NULL)
        history_file_append(serve->history_file, line);
    hook_push(serve->hook, event, line);
}

static bool keep(void *user, const struct history_event *event) {
    history_keep(user, event);
    return true;
}

/* Reads what an earlier process has written, and begins. Returns 0 or an exit status. */
static int open_history(struct serve *serve) {
    const struct serve_settings *settings = serve->settings;
    serve->history = history_new(&history_limits, recorded, serve);
    if (serve->history == NULL)
        return STATUS_OS;
    if (settings->on_event != NULL &&
        (serve->hook = hook_new(settings->on_event, settings->on_event_limit_ms)) == NULL)
        return STATUS_OS;
    if (settings->history_file == NULL)
        return 0;
    int status =
        history_file_open(settings->history_file, settings->history_size, &serve->history_file);
    int code = status == 0 ? history_file_read(settings->history_file, keep, serve->history) : 0;
    if (code != 0)
        say(LEVEL_ERROR, "cannot read the history file %s: %s", settings->history_file,
            strerror(code));
    return status;
}

static int least(int a, int b) {
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

/* How long the loop may sleep; -1: no limit. */
static int next_ms(struct serve *serve) {
    MHD_UNSIGNED_LONG_LONG http_ms;
    int wait_ms = serve->visitors != NULL ? SWEEP_MS : -1;
    wait_ms = least(wait_ms, hook_run(serve->hook));
    if (http_is_watched(serve) || serve_always_watches(serve->settings))
        wait_ms = least(wait_ms, view_tick(&serve->view));
    else
        view_rest(&serve->view);
    if (MHD_get_timeout(serve->daemon, &http_ms) == MHD_YES)
        wait_ms = least(wait_ms, http_ms > SWEEP_MS ? SWEEP_MS : (int)http_ms);
    return warning_print_due(wait_ms);
}

static void keep_alive_if_slow(struct serve *serve, int64_t *kept_alive_ms) {
    int64_t now = now_ms();
    int64_t since =
        *kept_alive_ms > serve->view.started_ms ? *kept_alive_ms : serve->view.started_ms;
    if (now - since < KEEP_ALIVE_MS)
        return;
    *kept_alive_ms = now;
    streams_keep_alive(serve);
}

static unsigned connections(const struct serve *serve) {
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(serve->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    return info != NULL ? info->num_connections : 0;
}

/* At its connection limit libmicrohttpd stops accepting, and resumes only in its next run. So run
 * it again after connections have ended; otherwise new clients might wait for ever. */
static bool run_http(struct serve *serve) {
    unsigned before;
    do {
        before = connections(serve);
        if (MHD_run(serve->daemon) != MHD_YES)
            return false;
    } while (connections(serve) < before);
    return true;
}

static int loop(struct serve *serve, int signals) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(serve->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN},
                           {.fd = hf_dispatch_fd(serve->client), .events = POLLIN},
                           {.fd = info != NULL ? info->epoll_fd : -1, .events = POLLIN},
                           {.fd = hook_fd(serve->hook), .events = POLLIN}};
    int64_t kept_alive_ms = 0;
    for (;;) {
        int n = await_fds(fds, 4, next_ms(serve));
        if (n < 0 && errno != EINTR) {
            say(LEVEL_ERROR, "cannot wait for requests: %s", strerror(errno));
            return STATUS_OS;
        }
        if (n > 0 && fds[0].revents != 0)
            return STATUS_OK;
        int code = hf_dispatch(serve->client, 0);
        if (code < 0)
            return library_error(code, hf_last_error(), "continue", NULL);
        keep_alive_if_slow(serve, &kept_alive_ms);
        http_sweep(serve);
        if (!run_http(serve)) {
            say(LEVEL_ERROR, "cannot continue serving HTTP: %s", strerror(errno));
            return STATUS_OS;
        }
    }
}

static void print_address(const struct serve *serve) {
    say(LEVEL_NOTICE, "the page is at %s", serve->listener.url);
    if (serve->listener.loopback)
        return;
    if (serve->token == NULL)
        say(LEVEL_ERROR,
            "WARNING: anyone who reaches %s sees all names and holders; restrict access with "
            "--token-file, or with a proxy that asks for a password",
            serve->listener.url);
    else
        say(LEVEL_NOTICE,
            "no TLS: everything, including the token, can be read on the network; put a TLS proxy in front");
}

static int run(struct serve *serve, struct connection *connection, int signals) {
    hf_options options = HF_OPTIONS_INIT;
    options.flags |= HF_MANUAL_DISPATCH;
    int status = connection_open(connection, &options, &serve->client);
    if (status != 0)
        return status;
    serve->view.client = serve->client;
    serve->facts.self = hf_client_id(serve->client);
    status = http_start(serve);
    if (status == 0) {
        print_address(serve);
        record_server(&serve->view.recorder, "started", NULL);
        status = loop(serve, signals);
        record_server(&serve->view.recorder, "stopped", NULL);
    }
    http_stop(serve);
    hf_op_cancel(serve->view.op);
    hf_close(serve->client);
    return status;
}

int serve_run(struct connection *connection, const struct serve_settings *settings) {
    struct serve *serve = calloc(1, sizeof *serve);
    char server[256];
    if (serve == NULL)
        return STATUS_OS;
    serve->settings = settings;
    serve->listener.fd = -1;
    serve->view.changed = changed;
    serve->view.user = serve;
    connection_shown_server(connection, server, sizeof server);
    int status = open_history(serve); /* before signals are blocked, which commands would inherit */
    int signals = ending_signals();
    if (status == 0 && (signals < 0 || !view_init(&serve->view, settings, serve->history)))
        status = STATUS_OS;
    if (status == 0 && settings->token_file != NULL)
        status = token_read(settings->token_file, &serve->token);
    if (status == 0)
        status = listener_open(settings->listen, &serve->listener);
    serve->facts =
        (struct frame_facts){.server = server,
                             .allow_break = settings->allow_break,
                             .beyond_loopback = !serve->listener.loopback && serve->token == NULL};
    if (status == 0)
        status = run(serve, connection, signals);
    if (serve->token != NULL)
        explicit_bzero(serve->token, strlen(serve->token));
    free(serve->token);
    view_free(&serve->view);
    hook_free(serve->hook);
    history_file_close(serve->history_file);
    history_free(serve->history);
    free(serve);
    close(signals);
    return status;
}
