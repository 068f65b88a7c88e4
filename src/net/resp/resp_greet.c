/*
 * RESP's greeting: the first commands on a new connection, and the checks of their replies.
 *
 * All go out in one write:
 *   AUTH, SELECT    if the login needs them
 *   INFO memory     until it was answered once: may the server evict?
 *   CLIENT SETNAME
 *   INFO server     is it new enough, and what is it?
 *   CLIENT INFO     what it calls this connection, to have it killed when it is lost
 *   ROLE            where only a primary is of use
 *   TIME            the first sample of the server's clock, for `not-after`
 * A sentinel gets neither SELECT, INFO memory, CLIENT INFO, ROLE nor TIME. Replies come in that
 * order; a greeting records what was sent, and how many replies have come. CLIENT and INFO are
 * optional: a server that refuses them is used all the same, and not asked for CLIENT INFO again.
 * If it then closes the connection, that refusal was its reason.
 *
 * Called through the protocol's table, on the keeper's thread.
 */
#include "net/resp/resp.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/conn/conn.h"
#include "net/resp/wire/command.h"
#include "net/resp/wire/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UP_ROUNDING_MS 2000 /* the uptime's rounding: `since_ms` may be this much too late */

enum sent_command {
    SENT_AUTH,
    SENT_SELECT,
    SENT_MEMORY,
    SENT_NAME,
    SENT_INFO,
    SENT_CLIENT_INFO,
    SENT_ROLE,
    SENT_TIME,
    SENT_COMMANDS
};

struct greeting {
    struct hfi_conn *conn;
    const struct hfi_target *target;
    struct hfi_resp_login *login;
    enum sent_command sent[SENT_COMMANDS]; /* what the replies still to come answer */
    unsigned sent_len, answered;
    int64_t sent_ms;
    hf_error refusal; /* the last reply, if an error: why the server closes, if it does */
};

static bool send_command(struct greeting *greeting, enum sent_command sent_command, int argc,
                         const char **argv) {
    struct hfi_command command;
    hfi_command_init(&command, greeting->target->mem);
    hfi_command_open(&command);
    for (int i = 0; i < argc; i++)
        hfi_command_text(&command, argv[i]);
    hfi_command_close(&command);
    bool ok = !command.failed && hfi_conn_send_greeting(greeting->conn, command.bytes, command.len);
    explicit_bzero(command.bytes, command.len); /* it may carry the password */
    explicit_bzero(command.small, sizeof command.small);
    hfi_command_clear(&command);
    greeting->sent[greeting->sent_len++] = sent_command;
    return ok;
}

static bool send_auth(struct greeting *greeting) {
    const struct hfi_resp_login *login = greeting->login;
    bool named = login->user != NULL && login->user[0] != '\0';
    if (login->password == NULL && !named)
        return true;
    /* A user without a password needs AUTH, too; else the server would take us for the default
     * user. */
    const char *auth[] = {"AUTH", login->user, login->password != NULL ? login->password : ""};
    if (!named)
        auth[1] = login->password;
    return send_command(greeting, SENT_AUTH, named ? 3 : 2, auth);
}

static bool send_client_name(struct greeting *greeting) {
    const char *name[] = {"CLIENT", "SETNAME", greeting->login->client_name};
    const char *info[] = {"INFO", "server"};
    return send_command(greeting, SENT_NAME, 3, name) && send_command(greeting, SENT_INFO, 2, info);
}

static bool send_hello(struct greeting *greeting) {
    const struct hfi_resp_login *login = greeting->login;
    if (login->peer == HFI_PEER_SENTINEL)
        return send_auth(greeting) && send_client_name(greeting);
    char db[16];
    snprintf(db, sizeof db, "%d", login->db);
    const char *select[] = {"SELECT", db};
    const char *memory[] = {"INFO", "memory"};
    const char *client_info[] = {"CLIENT", "INFO"};
    const char *role[] = {"ROLE"};
    const char *time[] = {"TIME"};
    return send_auth(greeting) &&
           (login->db == 0 || send_command(greeting, SENT_SELECT, 2, select)) &&
           (atomic_load(&login->memory_known) || send_command(greeting, SENT_MEMORY, 2, memory)) &&
           send_client_name(greeting) &&
           (atomic_load(&login->no_client_info) ||
            send_command(greeting, SENT_CLIENT_INFO, 2, client_info)) &&
           (login->peer != HFI_PEER_PRIMARY || send_command(greeting, SENT_ROLE, 1, role)) &&
           send_command(greeting, SENT_TIME, 1, time);
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
    greeting->sent_ms = hfi_now_ms();
    if (!send_hello(greeting)) {
        hfi_resp_greeting_free(greeting);
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    }
    *ret_greeting = greeting;
    return HF_OK;
}

static bool starts_with(const struct hfi_reply *reply, const char *prefix) {
    return strncmp(reply->str, prefix, strlen(prefix)) == 0;
}

static int refused(const struct greeting *greeting, const struct hfi_reply *reply, int err,
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

/* The value of a line `name:value` of INFO, of lower-case letters, digits and dashes. False:
 * there is none. */
static bool info_value(const char *info, const char *line, char *ret, size_t size) {
    const char *found = strstr(info, line);
    if (found == NULL)
        return false;
    found += strlen(line);
    size_t len = strspn(found, "abcdefghijklmnopqrstuvwxyz0123456789-");
    snprintf(ret, size, "%.*s", (int)len, found);
    return len > 0 && len < size;
}

/* A server that hides its mode is accepted. */
static int check_mode(const struct greeting *greeting, const struct hfi_reply *reply,
                      hf_error *error) {
    char mode[16];
    if (!info_value(reply->str, "\nredis_mode:", mode, sizeof mode) &&
        !info_value(reply->str, "\nserver_mode:", mode, sizeof mode)) /* Valkey 8 */
        return HF_OK;
    bool expected = greeting->login->peer == HFI_PEER_SENTINEL;
    bool found = strcmp(mode, "sentinel") == 0;
    if (expected && !found)
        return hfi_fail(error, HF_EINVAL, "this is a server, not a sentinel; use redis://");
    if (found && !expected)
        return hfi_fail(error, HF_EINVAL,
                        "this is a sentinel, not a server; use redis-sentinel://HOST:PORT/NAME");
    return HF_OK;
}

static int check_version(const struct hfi_reply *reply, hf_error *error) {
    if (reply->type != HFI_REPLY_STRING)
        return hfi_fail(error, HF_EPROTO, "invalid reply to INFO");
    const char *found = strstr(reply->str, "redis_version:");
    int major = 0, minor = 0;
    if (found == NULL || sscanf(found, "redis_version:%d.%d", &major, &minor) != 2)
        return HF_OK; /* a server that hides its version is accepted */
    if (major < 6 || (major == 6 && minor < 2))
        return hfi_fail(error, HF_ENOTSUP,
                        "needs Redis 6.2 or newer, or Valkey; this server is %d.%d", major, minor);
    return HF_OK;
}

/* Uptime is in whole seconds, and the last may have just begun. So connections compute different
 * start times. Keep the earliest: a server must not grow younger. */
static int64_t up_since_ms(const struct hfi_server *known, const char *run_id, int64_t up_s) {
    int64_t now_ms = hfi_now_ms(), since_ms = now_ms - (up_s - 1) * 1000;
    if (strcmp(known->run_id, run_id) == 0)
        since_ms = hfi_min_ms(known->since_ms, since_ms);
    return hfi_min_ms(since_ms, now_ms);
}

/* A server that was already up while another answered here has replaced it (a failover behind
 * one address). It may lack that one's data, so it counts as started when it was first found
 * here. */
static void note_take_over(const struct greeting *greeting, struct hfi_server *found) {
    struct hfi_resp_login *login = greeting->login;
    int64_t answered_ms =
        hfi_max_ms(login->learnt_ms, atomic_load(&greeting->target->last_answer_ms));
    if (strcmp(login->server.run_id, found->run_id) != 0) {
        bool in_its_place =
            login->server.run_id[0] != '\0' && found->since_ms - UP_ROUNDING_MS <= answered_ms;
        login->took_over_ms = in_its_place ? hfi_now_ms() : 0;
    }
    if (login->took_over_ms != 0)
        found->since_ms = login->took_over_ms;
}

/* A connection does not outlive its server, so this holds for every command sent on it. */
static void note_server(struct greeting *greeting, const struct hfi_reply *reply) {
    struct hfi_server *server = &greeting->login->server;
    struct hfi_server found;
    char up_s[24];
    if (reply->type != HFI_REPLY_STRING ||
        !info_value(reply->str, "\nuptime_in_seconds:", up_s, sizeof up_s) ||
        !info_value(reply->str, "\nrun_id:", found.run_id, sizeof found.run_id)) {
        server->run_id[0] = '\0';
        return;
    }
    found.since_ms = up_since_ms(server, found.run_id, strtoll(up_s, NULL, 10));
    note_take_over(greeting, &found);
    *server = found;
    greeting->login->learnt_ms = hfi_now_ms();
}

/* A line of CLIENT INFO: "id=7 addr=127.0.0.1:4711 laddr=... ". The id alone would be another
 * connection's in another process of the server, so without a run id it is of no use. */
static void note_client_info(const struct greeting *greeting, const struct hfi_reply *reply) {
    const char *run_id = greeting->login->server.run_id;
    struct hfi_conn_id found = {0};
    char run[17] = "";
    if (reply->type != HFI_REPLY_STRING || strlen(run_id) < sizeof run - 1)
        return;
    memcpy(run, run_id, sizeof run - 1);
    found.run = strtoull(run, NULL, 16);
    const char *addr = strstr(reply->str, " addr=");
    if (strncmp(reply->str, "id=", 3) != 0 || addr == NULL || found.run == 0)
        return;
    found.id = strtoll(reply->str + 3, NULL, 10);
    addr += strlen(" addr=");
    size_t len = strcspn(addr, " \n");
    if (found.id <= 0 || len == 0 || len >= sizeof found.addr)
        return;
    memcpy(found.addr, addr, len);
    hfi_conn_identify(greeting->conn, &found);
}

/* Locks have a lease, so every policy but noeviction may evict them. Logged once per login. */
static void check_memory(struct greeting *greeting, const struct hfi_reply *reply) {
    char limit[24], policy[32];
    if (atomic_exchange(&greeting->login->memory_known, true) || reply->type != HFI_REPLY_STRING ||
        !info_value(reply->str, "\nmaxmemory:", limit, sizeof limit) ||
        !info_value(reply->str, "\nmaxmemory_policy:", policy, sizeof policy) ||
        strcmp(limit, "0") == 0 || strcmp(policy, "noeviction") == 0)
        return;
    hfi_log(greeting->target->log, HF_LOG_WARN, HFI_ABOUT(.server = greeting->target->node),
            "%s may evict locks when its memory is full (maxmemory-policy %s): set it to "
            "noeviction",
            greeting->target->node, policy);
}

/* A server that does not know AUTH repeats its arguments: that would print the password. */
static bool repeats_password(const struct greeting *greeting, const struct hfi_reply *reply) {
    const char *password = greeting->login->password;
    return reply->type == HFI_REPLY_ERROR && !starts_with(reply, "WRONGPASS") && password != NULL &&
           password[0] != '\0' && strstr(reply->str, password) != NULL;
}

static int check_role(const struct hfi_reply *reply, hf_error *error) {
    if (reply->type != HFI_REPLY_ARRAY || reply->elements == 0 ||
        reply->element[0]->type != HFI_REPLY_STRING)
        return hfi_fail(error, HF_EPROTO, "invalid reply to ROLE");
    if (strcmp(reply->element[0]->str, "master") == 0)
        return HF_OK;
    return hfi_fail(error, HF_EUNAVAILABLE, "this is a replica, not the primary");
}

static int read_time(struct hfi_conn *conn, const struct hfi_reply *reply, int64_t sent_ms,
                     hf_error *error) {
    if (reply->type != HFI_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != HFI_REPLY_STRING || reply->element[1]->type != HFI_REPLY_STRING)
        return hfi_fail(error, HF_EPROTO, "invalid reply to TIME");
    long long seconds = strtoll(reply->element[0]->str, NULL, 10);
    long long micros = strtoll(reply->element[1]->str, NULL, 10);
    if (seconds <= 0 || seconds > INT64_MAX / 2000 || micros < 0 || micros > 999999)
        return hfi_fail(error, HF_EPROTO, "invalid reply to TIME");
    hfi_conn_clock(conn, seconds * 1000 + micros / 1000, sent_ms, hfi_now_ms());
    return HF_OK;
}

/* Refreshes the server's clock on an idle connection. */
void hfi_resp_queried(struct hfi_conn *conn, const void *message, int64_t sent_ms) {
    read_time(conn, message, sent_ms, NULL); /* any answer proves that the server is alive */
}

/* Errors of a proxy, not of a busy server. */
static bool is_unknown_command(const struct hfi_reply *reply) {
    static const char *const words[] = {"unknown command", "unsupported", "not supported",
                                        "invalid request"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasestr(reply->str, words[i]) != NULL)
            return true;
    return false;
}

/* HF_OK: the greeting goes on without this command. */
static int weigh_refusal(struct greeting *greeting, enum sent_command sent_command,
                         const struct hfi_reply *reply, hf_error *error) {
    /* Not replies: servers send these two to any new connection before they close it. */
    if (starts_with(reply, "ERR max number of clients"))
        return refused(greeting, reply, HF_EUNREACH, error);
    if (starts_with(reply, "DENIED"))
        return refused(greeting, reply, HF_EPERM, error);
    bool auth = starts_with(reply, "NOAUTH") || starts_with(reply, "WRONGPASS") ||
                starts_with(reply, "NOPERM");
    if (sent_command == SENT_AUTH || starts_with(reply, "NOAUTH") ||
        (sent_command == SENT_SELECT && auth) || (sent_command == SENT_TIME && auth))
        return refused(greeting, reply, HF_EPERM, error);
    if (sent_command == SENT_SELECT) {
        hfi_fail(error, HF_EINVAL, "this server has no database %d: ", greeting->login->db);
        hfi_error_quote(error, reply->str, reply->len);
        return HF_EINVAL;
    }
    if (sent_command == SENT_TIME && is_unknown_command(reply)) {
        hfi_fail(error, HF_ENOTSUP,
                 "a proxy in between does not support TIME; connect to the "
                 "server itself: ");
        hfi_error_quote(error, reply->str, reply->len);
        return HF_ENOTSUP;
    }
    if (sent_command == SENT_TIME)
        return refused(greeting, reply, HF_EUNAVAILABLE, error);
    if (sent_command == SENT_MEMORY)
        atomic_store(&greeting->login->memory_known, true); /* there is no more to learn */
    if (sent_command == SENT_CLIENT_INFO)
        atomic_store(&greeting->login->no_client_info, true);
    return HF_OK;
}

int hfi_resp_greeted(void *arg, const void *message, bool *ret_done, hf_error *error) {
    struct greeting *greeting = arg;
    const struct hfi_reply *reply = message;
    enum sent_command sent_command = greeting->sent[greeting->answered];
    if (sent_command == SENT_AUTH && repeats_password(greeting, reply))
        return hfi_fail(error, HF_EPERM, "the server does not support passwords (AUTH)");
    *ret_done = ++greeting->answered == greeting->sent_len;
    hfi_error_clear(&greeting->refusal);
    if (reply->type == HFI_REPLY_ERROR) {
        refused(greeting, reply, HF_EUNREACH, &greeting->refusal);
        return weigh_refusal(greeting, sent_command, reply, error);
    }
    if (sent_command == SENT_MEMORY)
        check_memory(greeting, reply);
    if (sent_command == SENT_INFO) {
        note_server(greeting, reply);
        int err = check_version(reply, error);
        return err == HF_OK ? check_mode(greeting, reply, error) : err;
    }
    if (sent_command == SENT_CLIENT_INFO)
        note_client_info(greeting, reply);
    if (sent_command == SENT_ROLE)
        return check_role(reply, error);
    if (sent_command != SENT_TIME)
        return HF_OK;
    return read_time(greeting->conn, reply, greeting->sent_ms, error);
}

bool hfi_resp_explain_end(const void *arg, hf_error *error) {
    const struct greeting *greeting = arg;
    if (greeting->refusal.code == HF_OK)
        return false;
    *error = greeting->refusal;
    return true;
}
