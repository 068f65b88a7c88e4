/*
 * Redis' handshake: what is said first on a new connection, and what the answers must be.
 *
 * Everything goes out in one write: AUTH and SELECT if the target needs them, INFO memory until it
 * was answered once (may it evict?), CLIENT SETNAME, INFO server (is it new enough?), and TIME (the
 * first sample of the server's clock, for `not-after`).
 * The replies come back in that order; `handshake` in struct hfi_conn remembers what was said, and
 * `handshake_step` how far the replies have come. The name and the version are a courtesy, so a
 * server that refuses to hear or tell them is used all the same. If it then ends the connection,
 * that refusal was its reason.
 *
 * Called by connect.c and conn.c on the keeper's thread.
 */
#include "net/impl.h"

#include <stdlib.h>
#include <string.h>

enum handshake_step { SAID_AUTH, SAID_SELECT, SAID_MEMORY, SAID_NAME, SAID_INFO, SAID_TIME };

static bool say(struct hfi_conn *conn, enum handshake_step step, int argc, const char **argv) {
    char *command = NULL;
    int len = redisFormatCommandArgv(&command, argc, argv, NULL);
    if (len < 0)
        return false;
    bool ok = hfi_buffer_append(conn->target->mem, &conn->out, command, (size_t)len);
    explicit_bzero(command, (size_t)len); /* it may carry the password */
    redisFreeCommand(command);
    conn->handshake[conn->handshake_len++] = (int)step;
    return ok;
}

bool hfi_conn_say_hello_locked(struct hfi_conn *conn) {
    const struct hfi_target *target = conn->target;
    bool ok = true;
    conn->handshake_step = conn->handshake_len = 0;
    hfi_error_clear(&conn->refusal);
    if (target->password != NULL) {
        const char *auth[] = {"AUTH", target->user, target->password};
        if (target->user == NULL || target->user[0] == '\0') {
            auth[1] = target->password;
            ok = say(conn, SAID_AUTH, 2, auth);
        } else {
            ok = say(conn, SAID_AUTH, 3, auth);
        }
    } else if (target->user != NULL && target->user[0] != '\0') {
        /* Without a word we would be somebody else: the default user. */
        const char *auth[] = {"AUTH", target->user, ""};
        ok = say(conn, SAID_AUTH, 3, auth);
    }
    if (target->db != 0) {
        char db[16];
        snprintf(db, sizeof db, "%d", target->db);
        const char *select[] = {"SELECT", db};
        ok = ok && say(conn, SAID_SELECT, 2, select);
    }
    const char *name[] = {"CLIENT", "SETNAME", target->client_name};
    const char *info[] = {"INFO", "server"};
    const char *memory[] = {"INFO", "memory"};
    const char *time[] = {"TIME"};
    if (!atomic_load(&target->memory_known))
        ok = ok && say(conn, SAID_MEMORY, 2, memory);
    return ok && say(conn, SAID_NAME, 3, name) && say(conn, SAID_INFO, 2, info) &&
           say(conn, SAID_TIME, 1, time);
}

static bool starts_with(const redisReply *reply, const char *word) {
    return strncmp(reply->str, word, strlen(word)) == 0;
}

static int refused(const redisReply *reply, int err, hf_error *error) {
    hfi_fail(error, err, "the server refused: ");
    hfi_error_quote(error, reply->str, reply->len);
    return err;
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

/* Locks have a lease, so every policy but one may evict them. Said once, by whichever connection
 * hears it first. */
static void look_at_memory(struct hfi_conn *conn, const redisReply *reply) {
    char limit[24], policy[32];
    if (atomic_exchange(&conn->target->memory_known, true) || reply->type != REDIS_REPLY_STRING ||
        !info_value(reply->str, "\nmaxmemory:", limit, sizeof limit) ||
        !info_value(reply->str, "\nmaxmemory_policy:", policy, sizeof policy) ||
        strcmp(limit, "0") == 0 || strcmp(policy, "noeviction") == 0)
        return;
    hfi_log(conn->target->log, HF_LOG_WARN,
            "%s may evict locks when its memory is full (maxmemory-policy %s): use noeviction",
            conn->target->node, policy);
}

/* A server that does not know the command repeats its arguments: that would be the password. */
static bool repeats_password(const struct hfi_conn *conn, const redisReply *reply) {
    const char *password = conn->target->password;
    return reply->type == REDIS_REPLY_ERROR && !starts_with(reply, "WRONGPASS") &&
           password != NULL && password[0] != '\0' && strstr(reply->str, password) != NULL;
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

int hfi_conn_handshake_reply(struct hfi_conn *conn, const redisReply *reply, hf_error *error) {
    if (conn->handshake_step == conn->handshake_len)
        return hfi_fail(error, HF_EPROTO, "a reply that nobody asked for");
    if (conn->handshake[conn->handshake_step] == SAID_AUTH && repeats_password(conn, reply))
        return hfi_fail(error, HF_EPERM, "the server does not know how to take a password");
    enum handshake_step step = (enum handshake_step)conn->handshake[conn->handshake_step++];
    int err = HF_OK;
    hfi_error_clear(&conn->refusal);
    if (reply->type == REDIS_REPLY_ERROR) {
        refused(reply, HF_EUNREACH, &conn->refusal);
        /* Not answers: these two are said to whoever connects, before the end. */
        if (starts_with(reply, "ERR max number of clients"))
            return refused(reply, HF_EUNREACH, error);
        if (starts_with(reply, "DENIED"))
            return refused(reply, HF_EPERM, error);
        bool auth = starts_with(reply, "NOAUTH") || starts_with(reply, "WRONGPASS") ||
                    starts_with(reply, "NOPERM");
        if (step == SAID_AUTH || starts_with(reply, "NOAUTH") || (step == SAID_SELECT && auth) ||
            (step == SAID_TIME && auth))
            return refused(reply, HF_EPERM, error);
        if (step == SAID_SELECT)
            return refused(reply, HF_EINVAL, error);
        if (step == SAID_TIME)
            return refused(reply, HF_EREFUSED, error);
        if (step == SAID_MEMORY)
            atomic_store(&conn->target->memory_known, true); /* as much as there is to know */
        return HF_OK; /* the name and the version are not worth a refusal */
    }
    if (step == SAID_MEMORY)
        look_at_memory(conn, reply);
    if (step == SAID_INFO)
        err = check_version(reply, error);
    if (step == SAID_TIME)
        err = read_time(conn, reply, error);
    return err;
}
