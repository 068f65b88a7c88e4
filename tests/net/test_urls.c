/*
 * Urls end to end: login, database and name prefix; and no password ever appears in a log.
 *
 * unit.url tests the parser; here a real server shows whether the url was understood. The tests
 * collect logs of every level and search them for the passwords.
 */
#include "net/scene.h"
#include "support/case.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define PASSWORD "s3:cr@t/p w?d#%25&="
#define USER "an:user@x"
#define USER_PASSWORD "an0ther/s@cret"

static struct server *guarded;

static int start_servers(void **state) {
    const struct server_options options = {.tcp = true, .password = PASSWORD};
    guarded = server_start(&options);
    cmd_ok(guarded, "ACL SETUSER %s on >%s ~* &* +@all", USER, USER_PASSWORD);
    return scene_start_server(state);
}

static int stop_servers(void **state) {
    server_free(guarded);
    return scene_stop_server(state);
}

/* Opens, pings, closes; nothing that is said on the way may contain a secret. */
static int try_url(const char *url, const char *user, const char *password) {
    struct scene_log log;
    hf_options options = scene_options();
    hf_client *client = NULL;
    options.user = user;
    options.password = password;
    scene_log_start(&log, &options);
    int err = hf_open(url, &options, &client);
    if (err == HF_OK)
        err = hf_ping(client);
    hf_error error = *hf_last_error();
    assert_int_equal(hf_close(client), HF_OK);
    static const char *const secrets[] = {"s3:cr", "s3%3A", "an0ther", "wr0ng"};
    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++) {
        assert_null(strstr(error.text, secrets[i]));
        assert_null(strstr(error.node, secrets[i]));
        assert_false(scene_log_contains(&log, secrets[i]));
    }
    scene_log_end(&log);
    return err;
}

/* A url for the guarded server: "redis://" userinfo "127.0.0.1:port". */
static int try_userinfo(const char *userinfo) {
    char url[512];
    snprintf(url, sizeof url, "redis://%s127.0.0.1:%d", userinfo, server_port(guarded));
    int err = try_url(url, NULL, NULL);
    snprintf(url, sizeof url, "unix://%s%s", userinfo, server_socket(guarded));
    assert_int_equal(try_url(url, NULL, NULL), err);
    return err;
}

CASE(U44_every_form_of_a_password) {
    char text[256], *password = support_escape(PASSWORD, "%"), *user = support_escape(USER, "%"),
                    *user_password = support_escape(USER_PASSWORD, "%");
    snprintf(text, sizeof text, ":%s@", password);
    assert_int_equal(try_userinfo(text), HF_OK);
    snprintf(text, sizeof text, "%s@", password);
    assert_int_equal(try_userinfo(text), HF_OK);
    snprintf(text, sizeof text, "default:%s@", password);
    assert_int_equal(try_userinfo(text), HF_OK);
    snprintf(text, sizeof text, "%s:%s@", user, user_password);
    assert_int_equal(try_userinfo(text), HF_OK);
    free(password);
    free(user);
    free(user_password);
    snprintf(text, sizeof text, "redis://127.0.0.1:%d", server_port(guarded));
    assert_int_equal(try_url(text, NULL, PASSWORD), HF_OK);
    assert_int_equal(try_url(text, USER, USER_PASSWORD), HF_OK);
    snprintf(text, sizeof text, "redis://:wr0ng@127.0.0.1:%d", server_port(guarded));
    assert_int_equal(try_url(text, NULL, PASSWORD), HF_OK); /* the options win */
}

CASE(U44_wrong_and_missing_passwords) {
    char url[256], *user = support_escape(USER, "%");
    assert_int_equal(try_userinfo(":wr0ng@"), HF_EPERM);
    assert_non_null(strstr(hf_last_error()->text, "WRONGPASS"));
    assert_int_equal(try_userinfo("nobody:wr0ng@"), HF_EPERM);
    snprintf(url, sizeof url, "%s:wr0ng@", user);
    assert_int_equal(try_userinfo(url), HF_EPERM);
    assert_int_equal(try_userinfo(""), HF_EPERM);
    assert_non_null(strstr(hf_last_error()->text, "NOAUTH"));
    assert_string_equal(hf_last_error()->node, server_socket(guarded));
    /* A password that a server without one does not expect. */
    snprintf(url, sizeof url, "redis://someone:wr0ng@127.0.0.1:%d", server_port(scene_server()));
    assert_int_equal(try_url(url, NULL, NULL), HF_EPERM);
    free(user);
}

/* Not waited for, however long the caller would. */
CASE(U44_a_wrong_password_ends_a_wait) {
    hf_options options = scene_options();
    options.password = "wr0ng";
    own_client *client = scene_open(server_url(guarded), &options);
    own_lock *lock = scene_lock(client, "guarded");
    assert_int_equal(hf_lock_acquire(lock), HF_EPERM);
}

struct progress {
    hf_client *client;
    uint64_t renewals, failures;
};

static bool has_progressed(void *arg) {
    struct progress *wanted = arg;
    hf_stats stats = scene_stats(wanted->client);
    return stats.renewals >= wanted->renewals && stats.renew_failures >= wanted->failures;
}

static void wait_progress(hf_client *client, uint64_t renewals, uint64_t failures) {
    hf_stats stats = scene_stats(client);
    struct progress wanted = {client, stats.renewals + renewals, stats.renew_failures + failures};
    assert_true(wait_until(has_progressed, &wanted, HANG_MS));
}

CASE(U44_password_changed_during_a_hold) {
    own_server *server = server_start(NULL);
    cmd_ok(server, "ACL SETUSER rotated on >first ~* &* +@all");
    hf_options options = scene_options();
    options.watchdog_ms = 4500; /* much longer than the longest pause between two connects */
    options.user = "rotated";
    options.password = "first";
    own_client *client = scene_open(server_url(server), &options);
    hf_lock *lock = scene_lock(client, "guarded"), *other = scene_lock(client, "other");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(scene_ping_async(client), HF_OK); /* the connection that renews is in */
    cmd_ok(server, "ACL SETUSER rotated resetpass >second");
    wait_progress(client, 1, 0); /* a logged-in client stays in */
    long long ids[SCENE_CONNS];
    size_t len = scene_conns(server, client, ids);
    for (size_t i = 0; i < len; i++)
        scene_kill(server, ids[i]);
    wait_progress(client, 0, 1); /* a client that was disconnected is not let in again */
    assert_int_equal(hf_lock_try(other), HF_EPERM);
    cmd_ok(server, "ACL SETUSER rotated >first"); /* both are valid: as one rotates */
    wait_progress(client, 1, 0);
    assert_int_equal(scene_stats(client).losses, 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(other);
}

/* ---- Database and name ---- */

static bool in_client_list(struct server *server, const char *id, const char *words) {
    char *list = cmd_str(server, "CLIENT LIST"), *rest = list, *line;
    bool found = false;
    while ((line = strsep(&rest, "\n")) != NULL)
        found = found || (strstr(line, id) != NULL && strstr(line, words) != NULL);
    free(list);
    return found;
}

CASE(select_and_setname) {
    char url[256], words[16];
    for (int db = 0; db <= 15; db += 5) {
        for (int form = 0; form < 3; form++) {
            if (form == 0)
                snprintf(url, sizeof url, "redis://127.0.0.1:%d/%d", server_port(scene_server()),
                         db);
            else if (form == 1)
                snprintf(url, sizeof url, "%s?db=%d", server_url(scene_server()), db);
            else
                snprintf(url, sizeof url, "valkey://localhost:%d?db=%d",
                         server_port(scene_server()), db);
            own_client *client = scene_open(url, NULL);
            assert_int_equal(hf_ping(client), HF_OK);
            snprintf(words, sizeof words, " db=%d ", db);
            assert_true(in_client_list(scene_server(), hf_client_id(client), words));
            assert_int_equal(strlen(hf_client_id(client)), 36);
        }
    }
    snprintf(url, sizeof url, "redis://127.0.0.1:%d/99", server_port(scene_server()));
    assert_int_equal(try_url(url, NULL, NULL), HF_EINVAL);
}

CASE(U66_two_databases) {
    own_text *url = text_of("%s?db=1", server_url(scene_server()));
    hf_client *zero = scene_open(server_url(scene_server()), NULL), *one = scene_open(url, NULL);
    own_client *waiting = scene_open(server_url(scene_server()), NULL);
    hf_lock *lock_zero = scene_lock(zero, "both"), *lock_one = scene_lock(one, "both");
    hf_lock *lock_waiting = scene_lock(waiting, "both");
    struct scene_call call;
    assert_int_equal(hf_lock_try(lock_zero), HF_OK);
    assert_int_equal(hf_lock_try(lock_one), HF_OK);
    scene_acquire(&call, lock_waiting, HF_FOREVER, NULL);
    scene_wait_subscribed(scene_server(), "both");
    uint64_t before = scene_stats(waiting).commands;
    assert_int_equal(hf_lock_release(lock_one), HF_OK); /* the channel is one for all databases */
    assert_true(WAIT_FOR(scene_stats(waiting).commands != before, HANG_MS));
    assert_int_equal(scene_ping_async(waiting), HF_OK);
    assert_false(atomic_load(&call.done)); /* woken for nothing, and waits on */
    assert_int_equal(hf_lock_release(lock_zero), HF_OK);
    assert_int_equal(scene_join(&call), HF_OK);
    assert_int_equal(hf_lock_release_as(lock_waiting, call.options.owner), HF_OK);
    hf_lock_free(lock_zero);
    hf_lock_free(lock_one);
    hf_lock_free(lock_waiting);
    assert_int_equal(hf_close(zero), HF_OK);
    assert_int_equal(hf_close(one), HF_OK);
}

/* Rights by database (Valkey 9.1). */
CASE(U66_a_user_of_one_database) {
    char url[256];
    redisReply *reply = cmd(scene_server(), "ACL SETUSER third on >third ~* &* +@all db=3");
    bool known = reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    if (!known) /* this server has no such rights */
        skip();
    snprintf(url, sizeof url, "redis://third:third@127.0.0.1:%d/", server_port(scene_server()));
    hf_client *zero = scene_open(url, NULL);
    hf_lock *refused = scene_lock(zero, "theirs");
    assert_int_equal(hf_lock_try(refused), HF_EPERM);
    assert_non_null(strstr(hf_last_error()->text, "database"));
    hf_lock_free(refused);
    assert_int_equal(hf_close(zero), HF_OK);
    strcat(url, "2");
    assert_int_equal(try_url(url, NULL, NULL), HF_EPERM);
    url[strlen(url) - 1] = '3';
    hf_client *one = scene_open(url, NULL), *other = scene_open(url, NULL);
    hf_lock *lock = scene_lock(one, "theirs"), *waiting = scene_lock(other, "theirs");
    struct scene_call call;
    assert_int_equal(hf_lock_try(lock), HF_OK);
    scene_acquire(&call, waiting, HF_FOREVER, NULL);
    scene_wait_subscribed(scene_server(), "theirs");
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&call), HF_OK);
    assert_int_equal(hf_lock_release_as(waiting, call.options.owner), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(waiting);
    assert_int_equal(hf_close(one), HF_OK);
    assert_int_equal(hf_close(other), HF_OK);
    cmd_ok(scene_server(), "ACL DELUSER third");
}

/* ---- Hosts ---- */

CASE(no_server_is_EUNREACH) {
    char url[512], *dir = temp_dir();
    snprintf(url, sizeof url, "unix://%s/none.sock", dir);
    assert_int_equal(try_url(url, NULL, NULL), HF_EUNREACH);
    /* A port that is bound but not listened on, so nobody else can have it. */
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(addr.sin_port));
    assert_int_equal(try_url(url, NULL, NULL), HF_EUNREACH);
    snprintf(url, sizeof url, "redis://localhost:%d", ntohs(addr.sin_port));
    assert_int_equal(try_url(url, NULL, NULL), HF_EUNREACH);
    close(fd);
    temp_dir_remove(dir);
    free(dir);
}

CASE(numbers_and_names) {
    char url[128];
    static const char *const hosts[] = {"127.0.0.1", "localhost", "LOCALHOST",
                                        "[::ffff:127.0.0.1]"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        snprintf(url, sizeof url, "redis://%s:%d", hosts[i], server_port(scene_server()));
        assert_int_equal(try_url(url, NULL, NULL), HF_OK);
    }
}

CASE(ipv6) {
    static const char *const config[] = {"bind ::1", NULL};
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool usable = fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof addr) == 0;
    if (fd >= 0)
        close(fd);
    if (!usable)
        skip(); /* a machine without IPv6 */
    const struct server_options options = {.tcp = true, .config = config};
    own_server *server = server_start(&options);
    own_text *url = text_of("redis://[::1]:%d", server_port(server));
    assert_int_equal(try_url(url, NULL, NULL), HF_OK);
}

/* What is set but empty was meant to name a server, and no other one is taken for it. */
CASE(from_the_environment) {
    own_text *url = text_of("redis://127.0.0.1:%d", server_port(scene_server()));
    unsetenv("HOLDFAST_URL");
    unsetenv("REDIS_URL");
    assert_int_equal(try_url(NULL, NULL, NULL), HF_EINVAL);
    setenv("REDIS_URL", url, 1);
    assert_int_equal(try_url(NULL, NULL, NULL), HF_OK);
    setenv("HOLDFAST_URL", "", 1);
    assert_int_equal(try_url(NULL, NULL, NULL), HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "HOLDFAST_URL is empty"));
    setenv("HOLDFAST_URL", url, 1);
    setenv("REDIS_URL", "", 1);
    assert_int_equal(try_url(NULL, NULL, NULL), HF_OK);
    unsetenv("HOLDFAST_URL");
    assert_int_equal(try_url(NULL, NULL, NULL), HF_EINVAL);
    unsetenv("REDIS_URL");
}

RUN_CASES(start_servers, stop_servers)
