/*
 * What a server reports about itself: INFO, some of CONFIG, its clock, its certificate. And for
 * each command that a client needs: whether this user may run it. And which commands the server has
 * that a client can do without.
 *
 * Called by src/core through the fleet view's door, on the thread of the call's executor. A refused
 * command is a field, too; only a server that does not answer ends the call. To test the right to
 * write, a script writes the given key, if that does not exist, and deletes it in the same step.
 * The result is allocated with malloc, since it is freed without a client.
 */
#include "redis/fleet/observe.h"

#include "base/clock.h"
#include "base/error.h"
#include "engine/server_info.h"
#include "redis/kinds/kind.h"
#include "redis/kinds/plain.h"
#include "redis/ops/call.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Calls each command as our scripts would. The order is that of `scripted`. Nothing is written
 * unless the key is known not to exist, and can be deleted. */
static const char acl_probe[] =
    "local key, reply = KEYS[1], {}\n"
    "local function try(...)\n"
    "  local answer = redis.pcall(...)\n"
    "  reply[#reply + 1] = type(answer) == 'table' and answer.err or ''\n"
    "  return answer\n"
    "end\n"
    "try('time')\n"
    "if try('exists', key) ~= 0 then return reply end\n"
    "try('hexists', key, 'f') try('hmget', key, 'f')\n"
    "try('pexpire', key, 1000) try('pttl', key)\n"
    "try('hget', key, 'f') try('hlen', key) try('hdel', key, 'f')\n"
    "try(ARGV[1], ARGV[2], '')\n"
    "if type(try('del', key)) == 'table' then return reply end\n"
    "try('hset', key, 'f', 1) redis.call('del', key)\n"
    "return reply\n";
static const char *const scripted[] = {"time", "exists", "hexists", "hmget",   "pexpire", "pttl",
                                       "hget", "hlen",   "hdel",    "publish", "del",     "hset"};

/* ---- Reading replies. False: out of memory ---- */

/* Lines of "field:value". */
static bool read_info(struct hfi_call *call, const struct hfi_reply *reply, const char *name,
                      hf_server_info *info) {
    const char *line = reply->str, *end = reply->str + reply->len;
    (void)call;
    (void)name;
    while (reply->type == HFI_REPLY_STRING && line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *stop = newline != NULL ? newline : end;
        const char *colon = memchr(line, ':', (size_t)(stop - line));
        const char *next = stop + 1;
        if (stop > line && stop[-1] == '\r')
            stop--;
        if (colon != NULL && colon < stop && *line != '#' &&
            !hfi_server_info_add(info, "info.", (hf_bytes){line, (size_t)(colon - line)},
                                 (hf_bytes){colon + 1, (size_t)(stop - colon - 1)}, NULL))
            return false;
        line = next;
    }
    return true;
}

/* A name and its value, or nothing: the server does not know the parameter. */
static bool read_config(struct hfi_call *call, const struct hfi_reply *reply, const char *name,
                        hf_server_info *info) {
    (void)call;
    bool known = reply->type == HFI_REPLY_ARRAY && reply->elements == 2 &&
                 reply->element[1]->type == HFI_REPLY_STRING;
    return hfi_server_info_add_text(info, "config.", name, known ? reply->element[1]->str : NULL,
                                    "the server does not know the parameter");
}

static int64_t wall_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* The server read its clock at some time after the command was sent. */
static bool read_clock(struct hfi_call *call, const struct hfi_reply *reply, const char *name,
                       hf_server_info *info) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    (void)name;
    if (reply->type != HFI_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != HFI_REPLY_STRING || reply->element[1]->type != HFI_REPLY_STRING)
        return true;
    int64_t took_ms = hfi_now_ms() - x->sent_ms;
    int64_t there_us = strtoll(reply->element[0]->str, NULL, 10) * 1000000 +
                       strtoll(reply->element[1]->str, NULL, 10);
    int64_t ahead_ms = (there_us - wall_us()) / 1000 + took_ms / 2;
    return hfi_server_info_add_number(info, "clock.ahead_ms", ahead_ms) &&
           hfi_server_info_add_number(info, "clock.uncertain_ms", took_ms / 2 + 1);
}

static bool read_may(struct hfi_call *call, const struct hfi_reply *reply, const char *name,
                     hf_server_info *info) {
    (void)call;
    (void)reply;
    return hfi_server_info_add_text(info, "may.", name, "yes", NULL);
}

static bool read_acl_probe(struct hfi_call *call, const struct hfi_reply *reply, const char *name,
                           hf_server_info *info) {
    bool fine = read_may(call, reply, name, info);
    size_t len = reply->type == HFI_REPLY_ARRAY ? reply->elements : 0;
    for (size_t i = 0; i < len && i < sizeof scripted / sizeof scripted[0] && fine; i++) {
        const struct hfi_reply *one = reply->element[i];
        bool may = one->type == HFI_REPLY_STRING && one->len == 0;
        fine = hfi_server_info_add_text(info, "may.script.", scripted[i], may ? "yes" : NULL,
                                        one->type == HFI_REPLY_STRING ? one->str : "no answer");
    }
    return fine;
}

static bool read_has(struct hfi_call *call, const struct hfi_reply *reply, const char *name,
                     hf_server_info *info) {
    (void)call;
    (void)reply;
    return hfi_server_info_add_text(info, "has.", name, "yes", NULL);
}

/* ---- The commands ---- */

#define NO_VALUE "holdfast: no key has this value" /* so nothing is compared equal */
#define KEY "\1"                                   /* stands for the key */
#define ACL_PROBE "\2" /* stands for the script, its key and arguments */

static const struct step {
    const char *group, *name; /* of the field, if the command is refused */
    const char *args[6];
    bool (*read)(struct hfi_call *call, const struct hfi_reply *reply, const char *name,
                 hf_server_info *info);
    bool misspelt; /* on purpose: a server that has the command complains of the syntax only */
} steps[] = {
    {"may.", "info", {"INFO"}, read_info, false},
    {"may.", "time", {"TIME"}, read_clock, false},
#define CONFIG_STEP(name)                                                                          \
    { "config.", name, {"CONFIG", "GET", name}, read_config, false }
    CONFIG_STEP("maxmemory"),
    CONFIG_STEP("maxmemory-policy"),
    CONFIG_STEP("appendonly"),
    CONFIG_STEP("appendfsync"),
    CONFIG_STEP("save"),
    CONFIG_STEP("min-replicas-to-write"),
    CONFIG_STEP("timeout"),
    CONFIG_STEP("maxclients"),
    CONFIG_STEP("client-output-buffer-limit"),
    CONFIG_STEP("tracking-table-max-keys"),
#undef CONFIG_STEP
    {"may.", "eval", {"EVAL", ACL_PROBE}, read_acl_probe, false},
    {"may.", "exists", {"EXISTS", KEY}, read_may, false},
    {"may.", "hget", {"HGET", KEY, "f"}, read_may, false},
    {"may.", "pttl", {"PTTL", KEY}, read_may, false},
    {"may.", "type", {"TYPE", KEY}, read_may, false},
    {"may.", "hgetall", {"HGETALL", KEY}, read_may, false},
    {"may.", "get", {"GET", KEY}, read_may, false},
    {"may.", "ping", {"PING"}, read_may, false},
    {"may.", "client|list", {"CLIENT", "LIST", "TYPE", "master"}, read_may, false},
    {"may.", "pubsub|numsub", {"PUBSUB", "NUMSUB"}, read_may, false},
    {"may.", "scan", {"SCAN", "0", "COUNT", "1"}, read_may, false},
    {"may.", "role", {"ROLE"}, read_may, false},
    {"may.", "wait", {"WAIT", "0", "1"}, read_may, false},
    {"has.", "delifeq", {"DELIFEQ", KEY, NO_VALUE}, read_has, false},
    {"has.", "delex", {"DELEX", KEY, "IFEQ", NO_VALUE}, read_has, false},
    {"has.", "set-ifeq", {"SET", KEY, NO_VALUE, "IFEQ", NO_VALUE}, read_has, false},
    {"has.", "tracking", {"CLIENT", "TRACKING", "?"}, read_has, true},
};
#define STEPS (sizeof steps / sizeof steps[0])

static void write_acl_probe(struct hfi_exchange *x, struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    hfi_command_bytes(command, acl_probe, sizeof acl_probe - 1);
    hfi_command_text(command, "1");
    hfi_name_key(&x->redis->names, call->name, call->name_len, command);
    hfi_redis_write_publish(x->redis, command);
    char *room = hfi_command_room(command, hfi_plain_channel(x->redis, call, NULL));
    if (room != NULL)
        hfi_plain_channel(x->redis, call, room);
}

static void write_step(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_call_state *state = hfi_state_around(x);
    const struct hfi_call *call = state->call;
    const char *const *args = steps[state->u.server_info.step].args;
    (void)not_after_ms;
    for (; *args != NULL; args++) {
        if (strcmp(*args, KEY) == 0)
            hfi_name_key(&x->redis->names, call->name, call->name_len, command);
        else if (strcmp(*args, ACL_PROBE) == 0)
            write_acl_probe(x, command);
        else
            hfi_command_text(command, *args);
    }
}

/* ---- Life ---- */

static void drop(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_server_info_free(state->u.server_info.list);
    state->u.server_info.list = NULL;
}

static bool add_server(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    hf_server_info *info = state->u.server_info.list;
    info->node = strdup(x->node != NULL ? hfi_node_name(x->node) : "");
    int64_t until_s = x->conn != NULL ? hfi_conn_tls_until_s(x->conn) : 0;
    return info->node != NULL &&
           (until_s == 0 || hfi_server_info_add_number(info, "tls.until_s", until_s));
}

/* The server has answered, but with a refusal. */
static bool is_refusal(int err) {
    return hfi_is_withheld(err) || err == HF_EUNAVAILABLE || err == HF_EWRONGTYPE || err == HF_EOOM;
}

/* A misspelt command proves by the server's complaint that it exists and that this user may. */
static bool is_proof(const struct step *step, const hf_error *error) {
    return step->misspelt && strcasestr(error->text, "syntax error") != NULL;
}

static void next_step(struct hfi_call *call);

static void answered(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    const struct step *step = &steps[state->u.server_info.step];
    hf_server_info *info = state->u.server_info.list;
    bool fine;
    if (x->err != HF_OK && !is_refusal(x->err)) {
        hfi_call_finish(call, x->err);
        return;
    }
    if (x->err != HF_OK && !is_proof(step, &call->error))
        fine = hfi_server_info_add_text(info, step->group, step->name, NULL, call->error.text);
    else
        fine = step->read(call, hfi_answer_of(call), step->name, info);
    hfi_error_clear(&call->error);
    state->u.server_info.step++;
    if (fine && state->u.server_info.step == STEPS)
        fine = add_server(call);
    if (!fine)
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
    else
        next_step(call);
}

static void next_step(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->u.server_info.step < STEPS) {
        hfi_call_send(call, NULL, write_step, answered);
        return;
    }
    call->server_info = state->u.server_info.list;
    state->u.server_info.list = NULL;
    hfi_call_finish(call, HF_OK);
}

void hfi_server_info(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    state->u.server_info.list = calloc(1, sizeof *state->u.server_info.list);
    state->u.server_info.step = 0;
    state->cleanup = drop;
    if (state->u.server_info.list == NULL)
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
    else
        next_step(call);
}
