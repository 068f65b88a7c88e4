/*
 * Queries that are one command without a script: is it locked, how often, for how long, and ping.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor, which owns
 * the state. A query changes nothing, so it may be sent twice.
 */
#include "redis/kinds/kind.h"
#include "redis/ops/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool read_integer(const struct hfi_reply *reply, int64_t min, int64_t *ret) {
    if (reply->type != HFI_REPLY_INTEGER || reply->integer < min)
        return false;
    *ret = reply->integer;
    return true;
}

/* Reply to HGET. Nil is 0; a string that is not a number was not written by a lock. */
static int read_count(const struct hfi_reply *reply, int64_t *ret) {
    if (reply->type == HFI_REPLY_NIL) {
        *ret = 0;
        return HF_OK;
    }
    if (reply->type != HFI_REPLY_STRING)
        return HF_EPROTO;
    char *end;
    errno = 0;
    long long count = strtoll(reply->str, &end, 10);
    if (errno != 0 || end == reply->str || end != reply->str + reply->len || count < 0)
        return HF_EWRONGTYPE;
    *ret = count;
    return HF_OK;
}

static int read_locked(const struct hfi_reply *reply, int64_t *ret) {
    return read_integer(reply, 0, ret) && *ret <= 1 ? HF_OK : HF_EPROTO;
}

static int read_ttl(const struct hfi_reply *reply, int64_t *ret) {
    return read_integer(reply, -2, ret) ? HF_OK : HF_EPROTO;
}

static int read_pong(const struct hfi_reply *reply, int64_t *ret) {
    *ret = 0;
    return reply->type == HFI_REPLY_STATUS && strcmp(reply->str, "PONG") == 0 ? HF_OK : HF_EPROTO;
}

static const struct {
    const char *verb;
    bool key, field;
    int (*read)(const struct hfi_reply *reply, int64_t *ret);
} questions[] = {
    [HFI_QUERY_LOCKED] = {"EXISTS", true, false, read_locked},
    [HFI_QUERY_COUNT] = {"HGET", true, true, read_count},
    [HFI_QUERY_TTL] = {"PTTL", true, false, read_ttl},
    [HFI_QUERY_PING] = {"PING", false, false, read_pong},
};

static void write_question(struct hfi_exchange *x, int64_t not_after_ms,
                           struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    const struct hfi_call *call = state->call;
    (void)not_after_ms;
    hfi_command_text(command, questions[call->query].verb);
    if (questions[call->query].key)
        hfi_name_key(&x->redis->names, call->name, call->name_len, command);
    if (questions[call->query].field)
        hfi_command_pair(command, call->owner, call->owner_len, state->kind->field_suffix,
                         strlen(state->kind->field_suffix));
}

static void answered(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    int64_t value = 0;
    int err = questions[call->query].read(hfi_answer_of(call), &value);
    if (err == HF_OK) {
        call->value = value;
        hfi_call_finish(call, HF_OK);
    } else if (err == HF_EWRONGTYPE) {
        hfi_call_fail(call, err, "the hold count is not a number");
    } else {
        hfi_call_fail_proto(call);
    }
}

void hfi_ask(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    if (call->query == HFI_QUERY_LOCKED && state->kind->ask_locked != NULL)
        state->kind->ask_locked(call);
    else
        hfi_call_send(call, NULL, write_question, answered);
}
