/*
 * The HTTP of `holdfast serve`, from the bytes of a connection to those of the answers:
 * libmicrohttpd, paths, hosts, tokens, JSON, live pages. The survey that it shows is made up, and
 * as new as it must be, so nothing is asked of a lock server; breaks are allowed, but no input has
 * the token.
 *
 * Input: two bits that say whether it listens beyond this machine and how it is cut into writes,
 * then what the client sends.
 */
#include "fuzz.h"

#include "serve/http.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RUNS_MAX 2000 /* turns of the loop; many more than an input of a megabyte needs */
#define QUIET_RUNS 3

static struct serve serve;
static const char token[] = "\x01 no input has this token \x02";

/* ---- What it shows ---- */

static const hf_fleet_client client = {.id = "5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d",
                                       .host = "host",
                                       .pid = 7,
                                       .program = "program",
                                       .version = "",
                                       .under = "",
                                       .presence = HF_PRESENCE_ALIVE,
                                       .up_ms = 1000};
static const hf_fleet_party holder = {.owner = "5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d:1",
                                      .client = &client,
                                      .presence = HF_PRESENCE_ALIVE,
                                      .seen_by = HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT,
                                      .kind = "plain",
                                      .count = 1,
                                      .for_ms = 1000,
                                      .remaining_ms = 29000,
                                      .thread = ""};
static const hf_fleet_party *const holders[] = {&holder};
static const hf_fleet_lock locks[] = {{.name = "a/b\xff",
                                       .name_len = 4,
                                       .kind = "plain",
                                       .ttl_ms = 1000,
                                       .listeners = -1,
                                       .holders_len = 1,
                                       .holders = holders,
                                       .available = -1},
                                      {.name = "name",
                                       .name_len = 4,
                                       .kind = "plain",
                                       .ttl_ms = 1000,
                                       .listeners = -1,
                                       .holders_len = 1,
                                       .holders = holders,
                                       .available = -1}};
static const hf_fleet_lock *const listed[] = {&locks[0], &locks[1]};
static const hf_fleet_client *const clients[] = {&client};
static hf_fleet fleet = {
    .missing_text = "", .locks_len = 2, .locks = listed, .clients_len = 1, .clients = clients};

static void record(const char *word, const char *name) {
    const struct history_event event = {.at_ms = 1795062652617,
                                        .within_ms = -1,
                                        .event = word,
                                        .name = name,
                                        .name_len = name != NULL ? strlen(name) : 0,
                                        .for_ms = -1};
    history_add(serve.history, &event);
}

static void changed(void *user) {
    (void)user;
}

int FUZZ_INITIALIZE(int *argc, char ***argv) {
    static const struct history_limits limits = {
        .events = 10, .bytes = 1 << 16, .events_of_lock = 10};
    static struct serve_settings settings = {.listen = "127.0.0.1:0",
                                             .every_ms = VIEW_PERIOD_MS,
                                             .allow_break = true,
                                             .metrics_locks = 10,
                                             .host_names = {"locks.example"},
                                             .host_names_len = 1,
                                             .long_wait_ms = 60000};
    (void)argc;
    (void)argv;
    message_setup(-1, false);
    serve.settings = &settings;
    serve.token = strdup(token);
    serve.facts = (struct frame_facts){.server = "server", .self = client.id, .allow_break = true};
    serve.history = history_new(&limits, NULL, NULL);
    FUZZ_CHECK(listener_open(settings.listen, &serve.listener) == 0);
    FUZZ_CHECK(serve.history != NULL && view_init(&serve.view, &settings, serve.history));
    FUZZ_CHECK(http_start(&serve) == 0);
    serve.view.changed = changed;
    serve.view.later = &fleet;
    serve.view.seq = 1;
    record("started", NULL);
    record("acquired", "name");
    record("broken", "a/b\xff");
    return 0;
}

/* ---- A connection ---- */

/* Where a request needs a survey, it is this one again. */
static void show_survey(void) {
    fleet.taken_ms = serve.view.started_ms = serve.view.good_ms = now_ms();
    serve.view.good_at_ms = unix_ms();
    serve.view.times_asked = true;
    if (http_is_watched(&serve))
        http_view_changed(&serve);
}

/* Takes what was answered. False: the connection has ended. */
static bool take_answers(int fd, char *head, size_t size, size_t *len) {
    char buffer[65536];
    ssize_t n;
    while ((n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
        size_t more = (size_t)n < size - *len ? (size_t)n : size - *len;
        memcpy(head + *len, buffer, more);
        *len += more;
    }
    return n != 0;
}

static void check_answer(const char *head, size_t len) {
    static const char status_line[] = "HTTP/1.";
    if (len >= sizeof status_line)
        FUZZ_CHECK(memcmp(head, status_line, sizeof status_line - 1) == 0);
    FUZZ_CHECK(len < 13 || memcmp(head + 9, "500", 3) != 0);
    FUZZ_CHECK(memmem(head, len, token, sizeof token - 1) == NULL);
    FUZZ_CHECK(memmem(head, len, "\"broken\":true", 13) == NULL);
}

static void send_cut(int fd, const uint8_t *data, size_t size, size_t part) {
    for (size_t sent = 0; sent < size;) {
        size_t left = size - sent, len = left < part ? left : part;
        ssize_t n = send(fd, data + sent, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
        FUZZ_CHECK(MHD_run(serve.daemon) == MHD_YES);
    }
    shutdown(fd, SHUT_WR);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct sockaddr_in from = {.sin_family = AF_INET};
    static char head[1 << 16];
    size_t len = 0, before = 0;
    int fds[2];
    if (size < 1)
        return 0;
    serve.listener.loopback = (data[0] & 1) == 0;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    FUZZ_CHECK(MHD_add_connection(serve.daemon, fds[0], (const struct sockaddr *)&from,
                                  sizeof from) == MHD_YES);
    show_survey();
    send_cut(fds[1], data + 1, size - 1, (data[0] & 2) != 0 ? 7 : size);
    bool open = true;
    for (int i = 0, quiet = 0; i < RUNS_MAX && open && quiet < QUIET_RUNS; i++) {
        show_survey();
        FUZZ_CHECK(MHD_run(serve.daemon) == MHD_YES);
        open = take_answers(fds[1], head, sizeof head, &len);
        quiet = len == before ? quiet + 1 : 0;
        before = len;
    }
    check_answer(head, len);
    close(fds[1]);
    /* A suspended connection does not see its end: it is woken, as after a survey. */
    for (int i = 0; i < RUNS_MAX && serve.visitors != NULL; i++) {
        serve.view.seq++;
        show_survey();
        http_view_changed(&serve);
        FUZZ_CHECK(MHD_run(serve.daemon) == MHD_YES);
    }
    FUZZ_CHECK(serve.visitors == NULL && serve.requests == NULL && serve.streams == 0);
    return 0;
}
