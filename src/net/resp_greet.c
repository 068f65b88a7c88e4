/*
 * RESP's greeting: what is said first on a new connection, and what the answers must be.
 *
 * Everything goes out in one write: AUTH and SELECT if the login needs them, INFO memory until it
 * was answered once (may it evict?), CLIENT SETNAME, INFO server (is it new enough, and what is it?),
 * ROLE where only a primary is of use, and TIME (the first sample of the server's clock, for
 * `not-after`). A sentinel knows neither databases nor the time.
 * The replies come back in that order; a greeting remembers what was said, and how far the replies
 * have come. The name and the version are a courtesy, so a server that refuses to hear or tell them
 * is used all the same. If it then ends the connection, that refusal was its reason.
 *
 * Called through the protocol's table, on the keeper's thread.
 */
#include "net/resp.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/conn.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

enum word {
    SAID_AUTH,
    SAID_SELECT,
    SAID_MEMORY,
    SAID_NAME,
    SAID_INFO,
    SAID_ROLE,
    SAID_TIME,
    WORDS
};

struct greeting {
    struct hfi_conn *conn;
    const struct hfi_target *target;
    struct hfi_resp_login *login;
    enum word said[WORDS]; /* what the replies still to come answer */
    unsigned said_len, answered;
    hf_error refusal; /* the last answer, if it was a refusal: why, if it ends now */
};

static bool say(struct greeting *greeting, enum word word, int argc, const char **argv) {
    char *command = NULL;
    int len = redisFormatCommandArgv(&command, argc, argv, NULL);
    if (len < 0)
        return false;
    bool ok = hfi_conn_say(greeting->conn, command, (size_t)len);
    explicit_bzero(command, (size_t)len); /* it may carry the password */
    redisFreeCommand(command);
    greeting->said[greeting->said_len++] = word;
    return ok;
}

static bool say_who_we_are(struct greeting *greeting) {
    const struct hfi_resp_login *login = greeting->login;
    bool named = login->user != NULL && login->user[0] != '\0';
    if (login->password == NULL && !named)
        return true;
    /* A user without a password has to be said, too: else we would be somebody else, the default
     * user. */
    const char *auth[] = {"AUTH", login->user, login->password != NULL ? login->password : ""};
    if (!named)
        auth[1] = login->password;
    return say(greeting, SAID_AUTH, named ? 3 : 2, auth);
}

static bool say_name(struct greeting *greeting) {
    const char *name[] = {"CLIENT", "SETNAME", greeting->login->client_name};
    const char *info[] = {"INFO", "server"};
    return say(greeting, SAID_NAME, 3, name) && say(greeting, SAID_INFO, 2, info);
}

static bool say_hello(struct greeting *greeting) {
    const struct hfi_resp_login *login = greeting->login;
    if (login->peer == HFI_PEER_SENTINEL)
        return say_who_we_are(greeting) && say_name(greeting);
    char db[16];
    snprintf(db, sizeof db, "%d", login->db);
    const char *select[] = {"SELECT", db};
    const char *memory[] = {"INFO", "memory"};
    const char *role[] = {"ROLE"};
    const char *time[] = {"TIME"};
    return say_who_we_are(greeting) && (login->db == 0 || say(greeting, SAID_SELECT, 2, select)) &&
           (atomic_load(&login->memory_known) || say(greeting, SAID_MEMORY, 2, memory)) &&
           say_name(greeting) &&
           (login->peer != HFI_PEER_PRIMARY || say(greeting, SAID_ROLE, 1, role)) &&
           say(greeting, SAID_TIME, 1, time);
}

void hfi_resp_greeting_free(void *arg) {
    struct greeting *greeting = arg;
    hfi_free(greeting->target->mem, greeting);
}

int hfi_resp_greet(struct hfi_conn *conn, void **ret_greeting, hf_error *error) {
    const struct hfi_target *target = hfi_conn_target(conn);
    struct greeting *greeting = hfi_zalloc(target->mem, sizeof *greeting);
    if (greeting == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    greeting->conn = conn;
    greeting->target = target;
    greeting->login = target->login;
    if (!say_hello(greeting)) {
        hfi_resp_greeting_free(greeting);
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    }
    *ret_greeting = greeting;
    return HF_OK;
}

static bool starts_with(const redisReply *reply, const char *word) {
    return strncmp(reply->str, word, strlen(word)) == 0;
}

static int refused(const struct greeting *greeting, const redisReply *reply, int err,
                   hf_error *error) {
    if (greeting->login->peer != HFI_PEER_SENTINEL)
        hfi_fail(error, err, "the server refused: ");
    else if (err == HF_EPERM)
        hfi_fail(error, err,
                 "the sentinel refused (it has a password of its own: "
                 "sentinel_password): ");
    else
        hfi_fail(error, err, "the sentinel refused: ");
    hfi_error_quote(error, reply->str, reply->len);
    return err;
}

/* The value of a line `name:value` of INFO, of lower-case letters, digits and dashes. False: there
 * is none. */
static bool info_value(const char *info, const char *line, char *ret, size_t size) {
    const char *found = strstr(info, line);
    if (found == NULL)
        return false;
    found += strlen(line);
    size_t len = strspn(found, "abcdefghijklmnopqrstuvwxyz0123456789-");
    snprintf(ret, size, "%.*s", (int)len, found);
    return len > 0 && len < size;
}

/* Whoever hides what it is is taken at its word, here too. */
static int check_mode(const struct greeting *greeting, const redisReply *reply, hf_error *error) {
    char mode[16];
    if (!info_value(reply->str, "\nredis_mode:", mode, sizeof mode) &&
        !info_value(reply->str, "\nserver_mode:", mode, sizeof mode)) /* Valkey 8 */
        return HF_OK;
    bool expected = greeting->login->peer == HFI_PEER_SENTINEL;
    bool found = strcmp(mode, "sentinel") == 0;
    if (expected && !found)
        return hfi_fail(error, HF_EINVAL, "this is a server and no sentinel; write redis://");
    if (found && !expected)
        return hfi_fail(error, HF_EINVAL,
                        "this is a sentinel and no server; write redis-sentinel://HOST:PORT/NAME");
    return HF_OK;
}

static int check_version(const redisReply *reply, hf_error *error) {
    if (reply->type != REDIS_REPLY_STRING)
        return hfi_fail(error, HF_EPROTO, "INFO was not answered with text");
    const char *found = strstr(reply->str, "redis_version:");
    int major = 0, minor = 0;
    if (found == NULL || sscanf(found, "redis_version:%d.%d", &major, &minor) != 2)
        return HF_OK; /* a server that hides its version is taken at its word */
    if (major < 6 || (major == 6 && minor < 2))
        return hfi_fail(error, HF_ENOTSUP,
                        "needs Redis 6.2 or newer, or Valkey; this server is %d.%d", major, minor);
    return HF_OK;
}

/* The time a server has been up is told in whole seconds, and one of them may have just begun. So each
 * connection tells something else, and the longest is true: a server must not grow younger. */
static int64_t up_since_ms(const struct hfi_server *known, const char *run_id, int64_t up_s) {
    int64_t now_ms = hfi_now_ms(), since_ms = now_ms - (up_s - 1) * 1000;
    if (strcmp(known->run_id, run_id) == 0 && known->since_ms < since_ms)
        since_ms = known->since_ms;
    return since_ms < now_ms ? since_ms : now_ms;
}

/* A connection does not outlive its server, so what is told here is true of all that is sent on it. */
static void note_server(struct greeting *greeting, const redisReply *reply) {
    struct hfi_server *server = &greeting->login->server;
    struct hfi_server told;
    char up_s[24];
    if (reply->type != REDIS_REPLY_STRING ||
        !info_value(reply->str, "\nuptime_in_seconds:", up_s, sizeof up_s) ||
        !info_value(reply->str, "\nrun_id:", told.run_id, sizeof told.run_id)) {
        server->run_id[0] = '\0';
        return;
    }
    told.since_ms = up_since_ms(server, told.run_id, strtoll(up_s, NULL, 10));
    *server = told;
}

/* Locks have a lease, so every policy but one may evict them. Said once, by whichever connection
 * hears it first. */
static void look_at_memory(struct greeting *greeting, const redisReply *reply) {
    char limit[24], policy[32];
    if (atomic_exchange(&greeting->login->memory_known, true) ||
        reply->type != REDIS_REPLY_STRING ||
        !info_value(reply->str, "\nmaxmemory:", limit, sizeof limit) ||
        !info_value(reply->str, "\nmaxmemory_policy:", policy, sizeof policy) ||
        strcmp(limit, "0") == 0 || strcmp(policy, "noeviction") == 0)
        return;
    hfi_log(greeting->target->log, HF_LOG_WARN,
            "%s may evict locks when its memory is full (maxmemory-policy %s): use noeviction",
            greeting->target->node, policy);
}

/* A server that does not know the command repeats its arguments: that would be the password. */
static bool repeats_password(const struct greeting *greeting, const redisReply *reply) {
    const char *password = greeting->login->password;
    return reply->type == REDIS_REPLY_ERROR && !starts_with(reply, "WRONGPASS") &&
           password != NULL && password[0] != '\0' && strstr(reply->str, password) != NULL;
}

static int check_role(const redisReply *reply, hf_error *error) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 ||
        reply->element[0]->type != REDIS_REPLY_STRING)
        return hfi_fail(error, HF_EPROTO, "ROLE was not answered with a role");
    if (strcmp(reply->element[0]->str, "master") == 0)
        return HF_OK;
    return hfi_fail(error, HF_EREFUSED, "this is a replica's address, and not the primary's");
}

static int read_time(struct hfi_conn *conn, const redisReply *reply, hf_error *error) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return hfi_fail(error, HF_EPROTO, "TIME was not answered with a time");
    long long seconds = strtoll(reply->element[0]->str, NULL, 10);
    long long micros = strtoll(reply->element[1]->str, NULL, 10);
    if (seconds <= 0 || seconds > INT64_MAX / 2000 || micros < 0 || micros > 999999)
        return hfi_fail(error, HF_EPROTO, "TIME was not answered with a time");
    hfi_conn_clock(conn, seconds * 1000 + micros / 1000, hfi_now_ms());
    return HF_OK;
}

/* Not what a server says that is busy. */
static bool is_unheard_of(const redisReply *reply) {
    static const char *const words[] = {"unknown command", "unsupported", "not supported",
                                        "invalid request"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasestr(reply->str, words[i]) != NULL)
            return true;
    return false;
}

/* HF_OK: the name and the version are not worth a refusal. */
static int weigh_refusal(struct greeting *greeting, enum word word, const redisReply *reply,
                         hf_error *error) {
    /* Not answers: these two are said to whoever connects, before the end. */
    if (starts_with(reply, "ERR max number of clients"))
        return refused(greeting, reply, HF_EUNREACH, error);
    if (starts_with(reply, "DENIED"))
        return refused(greeting, reply, HF_EPERM, error);
    bool auth = starts_with(reply, "NOAUTH") || starts_with(reply, "WRONGPASS") ||
                starts_with(reply, "NOPERM");
    if (word == SAID_AUTH || starts_with(reply, "NOAUTH") || (word == SAID_SELECT && auth) ||
        (word == SAID_TIME && auth))
        return refused(greeting, reply, HF_EPERM, error);
    if (word == SAID_SELECT)
        return refused(greeting, reply, HF_EINVAL, error);
    if (word == SAID_TIME && is_unheard_of(reply)) {
        hfi_fail(error, HF_ENOTSUP, "a proxy that does not pass TIME; connect to the servers: ");
        hfi_error_quote(error, reply->str, reply->len);
        return HF_ENOTSUP;
    }
    if (word == SAID_TIME)
        return refused(greeting, reply, HF_EREFUSED, error);
    if (word == SAID_MEMORY)
        atomic_store(&greeting->login->memory_known, true); /* as much as there is to know */
    return HF_OK;
}

int hfi_resp_greeted(void *arg, const void *message, bool *ret_done, hf_error *error) {
    struct greeting *greeting = arg;
    const redisReply *reply = message;
    enum word word = greeting->said[greeting->answered];
    if (word == SAID_AUTH && repeats_password(greeting, reply))
        return hfi_fail(error, HF_EPERM, "the server does not know how to take a password");
    *ret_done = ++greeting->answered == greeting->said_len;
    hfi_error_clear(&greeting->refusal);
    if (reply->type == REDIS_REPLY_ERROR) {
        refused(greeting, reply, HF_EUNREACH, &greeting->refusal);
        return weigh_refusal(greeting, word, reply, error);
    }
    if (word == SAID_MEMORY)
        look_at_memory(greeting, reply);
    if (word == SAID_INFO) {
        note_server(greeting, reply);
        int err = check_version(reply, error);
        return err == HF_OK ? check_mode(greeting, reply, error) : err;
    }
    if (word == SAID_ROLE)
        return check_role(reply, error);
    return word == SAID_TIME ? read_time(greeting->conn, reply, error) : HF_OK;
}

bool hfi_resp_explain_end(const void *arg, hf_error *error) {
    const struct greeting *greeting = arg;
    if (greeting->refusal.code == HF_OK)
        return false;
    *error = greeting->refusal;
    return true;
}
