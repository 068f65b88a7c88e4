/*
 * A server that is down, refuses or does not answer: each call returns the true reason. Each state is logged once, and
 * a call fails at once where waiting cannot help. With real servers.
 */
#include <holdfast/holdfast.h>

#include "support/case.h"
#include "support/new_lock.h"
#include "support/server.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <sys/socket.h>

/* How often something was logged, and how loudly. */
struct lines {
    const char *words;
    atomic_int all, warnings;
};

struct journal {
    struct lines failed, renewals, again, held_up, lookups;
    pthread_mutex_t mtx;
    char text[512]; /* of the last that says that a wait is held up */
};

static void note(struct lines *lines, hf_log_level level, const char *message) {
    if (strstr(message, lines->words) == NULL)
        return;
    atomic_fetch_add(&lines->warnings, level <= HF_LOG_WARN);
    atomic_fetch_add(&lines->all, 1);
}

static void write_journal(hf_log_level level, const char *message, void *user) {
    struct journal *journal = user;
    if (strstr(message, "is held up") != NULL) {
        pthread_mutex_lock(&journal->mtx);
        snprintf(journal->text, sizeof journal->text, "%s", message);
        pthread_mutex_unlock(&journal->mtx);
    }
    if (strstr(message, "renewal of") == NULL)
        note(&journal->failed, level, message);
    note(&journal->renewals, level, message);
    note(&journal->again, level, message);
    note(&journal->held_up, level, message);
    note(&journal->lookups, level, message);
}

static void begin_journal(struct journal *journal, hf_options *options) {
    *journal = (struct journal){.failed.words = "cannot connect",
                                .renewals.words = "renewal of",
                                .again.words = "reachable again",
                                .held_up.words = "is held up",
                                .lookups.words = "looking up host",
                                .mtx = PTHREAD_MUTEX_INITIALIZER};
    options->log = write_journal;
    options->log_user = journal;
}

struct count {
    atomic_int *number;
    int at_least;
};

static bool has_come(void *arg) {
    const struct count *count = arg;
    return atomic_load(count->number) >= count->at_least;
}

static bool wait_lines(struct lines *lines, int at_least) {
    struct count count = {&lines->all, at_least};
    return wait_until(has_come, &count, HANG_MS);
}

static hf_lock *lock_on(hf_client *client, const char *name) {
    return made(hf_lock_new, client, name);
}

/* ---- Once ---- */

CASE(U92_an_outage_is_reported_once) {
    const struct server_options tcp = {.tcp = true};
    own_server *server = server_start(&tcp);
    struct journal journal;
    hf_options options = HF_OPTIONS_INIT;
    begin_journal(&journal, &options);
    options.watchdog_ms = 3000;
    own_client *client = made(hf_open, server_tcp_url(server), &options);
    own_lock *lock = lock_on(client, "outage");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    server_kill(server);
    assert_true(wait_lines(&journal.failed, 6));
    assert_true(wait_lines(&journal.renewals, 3));
    assert_int_equal(atomic_load(&journal.failed.warnings), 1);
    assert_int_equal(atomic_load(&journal.renewals.warnings), 1);
    server_restart(server);
    assert_int_equal(hf_ping(client), HF_OK);
    assert_true(wait_lines(&journal.again, 1));
}

/* ---- At once ---- */

/* Ten minutes would help as little as one attempt does. The name is reserved for this (RFC 6761). */
static void a_host_that_does_not_exist(const char *url, int code, const char *words) {
    struct journal journal;
    hf_options options = HF_OPTIONS_INIT;
    begin_journal(&journal, &options);
    options.connect_timeout_ms = 10 * HANG_MS;
    hf_client *client = made(hf_open, url, &options);
    hf_lock *lock = lock_on(client, "nowhere");
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(lock), code);
    assert_true(now_ms() - start_ms < HANG_MS);
    assert_non_null(strstr(hf_last_error()->text, words));
    assert_int_equal(atomic_load(&journal.held_up.all), 0);
    hf_lock_free(lock);
    hf_close(client);
}

CASE(U91_a_name_that_does_not_exist_ends_a_wait_at_once) {
    const char *const words = "looking up host 'nowhere.invalid'";
    a_host_that_does_not_exist("redis://nowhere.invalid", HF_EUNREACH, words);
    a_host_that_does_not_exist("redis-sentinel://nowhere.invalid/name", HF_EUNREACH, words);
    a_host_that_does_not_exist("redis-cluster://nowhere.invalid", HF_EUNREACH, words);
    a_host_that_does_not_exist("zk://nowhere.invalid", HF_EUNREACH, words);
}

/* Whatever the third server does. */
CASE(U91_without_the_names_of_a_majority_a_wait_ends_at_once) {
    own_server *server = server_start(NULL);
    own_text *urls =
        text_of("redis://nowhere.invalid redis://neither.invalid %s", server_url(server));
    a_host_that_does_not_exist(urls, HF_ENOQUORUM,
                               "no such host: nowhere.invalid:6379 neither.invalid:6379");
    a_host_that_does_not_exist("redis://nowhere.invalid redis://neither.invalid redis://a.invalid",
                               HF_ENOQUORUM, "no such host: nowhere.invalid:6379 neither");
}

/* ---- A name that has led to a server ---- */

static atomic_bool resolves;

/* The libraries' resolver, but for one name. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (node == NULL || strcmp(node, "sometimes.invalid") != 0)
        return real(node, service, hints, ret);
    return atomic_load(&resolves) ? real("127.0.0.1", service, hints, ret) : EAI_NONAME;
}

static void *acquire_and_release(void *lock) {
    return hf_lock_acquire(lock) == HF_OK && hf_lock_release(lock) == HF_OK ? lock : NULL;
}

/* The servers stop, and with them goes their name: who waits gets the lock when they are back. */
static void a_name_that_goes_away(int count) {
    const struct server_options tcp = {.tcp = true};
    struct server *servers[3];
    struct journal journal;
    hf_options options = HF_OPTIONS_INIT;
    void *acquired;
    char urls[512] = "";
    for (int i = 0; i < count; i++) {
        servers[i] = server_start(&tcp);
        size_t len = strlen(urls);
        snprintf(urls + len, sizeof urls - len, "%sredis://sometimes.invalid:%d", i > 0 ? " " : "",
                 server_port(servers[i]));
    }
    begin_journal(&journal, &options);
    options.connect_timeout_ms = 10 * HANG_MS;
    options.restart_guard_ms = count > 1 ? 0 : options.restart_guard_ms;
    atomic_store(&resolves, true);
    hf_client *client = made(hf_open, urls, &options);
    hf_lock *lock = lock_on(client, "sometimes");
    assert_non_null(acquire_and_release(lock));
    atomic_store(&resolves, false);
    for (int i = 0; i < count; i++)
        server_kill(servers[i]);
    pthread_t thread = started(acquire_and_release, lock);
    assert_true(wait_lines(&journal.lookups, 2 * count));
    for (int i = 0; i < count; i++)
        server_restart(servers[i]);
    atomic_store(&resolves, true);
    pthread_join(thread, &acquired);
    assert_ptr_equal(acquired, lock);
    hf_lock_free(lock);
    hf_close(client);
    for (int i = 0; i < count; i++)
        server_free(servers[i]);
}

CASE(U91_a_name_that_was_there_is_waited_for) {
    a_name_that_goes_away(1);
    a_name_that_goes_away(3);
}

/* ---- In true words ---- */

/* The kernel accepts; nobody reads. */
CASE(a_server_that_is_mute_is_not_unreachable) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    hf_options options = HF_OPTIONS_INIT;
    char url[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    options.cmd_timeout_ms = 300;
    options.connect_timeout_ms = 1000;
    hf_client *client = made(hf_open, url, &options);
    hf_lock *lock = lock_on(client, "mute");
    assert_int_equal(hf_lock_acquire(lock), HF_EUNREACH);
    assert_null(strstr(hf_last_error()->text, "cannot connect"));
    assert_non_null(strstr(hf_last_error()->text, "does not answer"));
    hf_lock_free(lock);
    hf_close(client);
    close(fd);
}

/* The server answers at once; it is replicas that are not there. */
CASE(without_replicas_the_error_names_them) {
    own_server *server = server_start(NULL);
    struct journal journal;
    hf_options options = HF_OPTIONS_INIT;
    begin_journal(&journal, &options);
    options.acks = 1;
    options.ack_timeout_ms = 4000;
    options.cmd_timeout_ms = 20000;
    options.watchdog_ms = 60000;
    options.connect_timeout_ms = 6000;
    own_client *client = made(hf_open, server_url(server), &options);
    own_lock *lock = lock_on(client, "alone");
    assert_int_equal(hf_lock_acquire(lock), HF_ENOREPLICA);
    assert_true(wait_lines(&journal.held_up, 1));
    assert_non_null(strstr(journal.text, "too few of its replicas confirm"));
    assert_null(strstr(journal.text, "does not answer"));
}

RUN_CASES(NULL, NULL)
