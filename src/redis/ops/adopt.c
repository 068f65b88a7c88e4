/*
 * Adopting a hold that another client has acquired. Queries whether it is there, its kind and its
 * count; then extends its lease.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor. The replies
 * are from different moments. If the hold ends in between, the extension does not find it. If its
 * count changes, two clients use the handle at the same time, and have to prevent that themselves.
 */
#include "redis/kinds/kind.h"
#include "redis/ops/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MODE "mode" /* only the hash of a read/write lock has this field */
#define NOT_THERE "nobody holds the lock by this handle any more"

/* The reply, a string or nil; NULL: the call is over. */
static const struct hfi_reply *field_reply(struct hfi_call *call) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return NULL;
    }
    const struct hfi_reply *reply = hfi_exchange_reply(x);
    if (reply->type != HFI_REPLY_STRING && reply->type != HFI_REPLY_NIL) {
        hfi_call_fail_proto(call);
        return NULL;
    }
    return reply;
}

static bool read_count(const struct hfi_reply *reply, int64_t *ret) {
    char *end;
    errno = 0;
    long long count = strtoll(reply->str, &end, 10);
    *ret = count;
    return errno == 0 && end != reply->str && end == reply->str + reply->len && count > 0;
}

static void counted(struct hfi_call *call) {
    const struct hfi_reply *reply = field_reply(call);
    int64_t count = 0;
    if (reply == NULL)
        return;
    if (reply->type == HFI_REPLY_NIL) {
        hfi_call_fail(call, HF_ENOTOWNER, NOT_THERE);
    } else if (!read_count(reply, &count)) {
        hfi_call_fail(call, HF_EWRONGTYPE, "the hold count is not a number");
    } else {
        call->count = count;
        hfi_extend(call);
    }
}

static void counted_without_mode(struct hfi_call *call) {
    const struct hfi_reply *reply = field_reply(call);
    if (reply != NULL && reply->type == HFI_REPLY_STRING)
        hfi_call_fail(call, HF_EWRONGTYPE, "the name is not that of a read/write lock");
    else if (reply != NULL)
        hfi_call_fail(call, HF_ENOTOWNER, NOT_THERE);
}

static void write_count(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_call_state *state = hfi_state_around(x);
    const struct hfi_call *call = state->call;
    (void)not_after_ms;
    hfi_command_text(command, "HGET");
    hfi_name_key(&x->redis->names, call->name, call->name_len, command);
    hfi_command_pair(command, call->owner, call->owner_len, state->kind->field_suffix,
                     strlen(state->kind->field_suffix));
}

/* The two sides of a read/write lock have parts; all other kinds have one part only. */
static void got_mode(struct hfi_call *call) {
    const struct hfi_reply *reply = field_reply(call);
    if (reply == NULL)
        return;
    bool has_mode = reply->type == HFI_REPLY_STRING, has_sides = call->kind->part != NULL;
    if (has_mode && !has_sides)
        hfi_call_fail(call, HF_EWRONGTYPE, "the name is that of a read/write lock");
    else
        hfi_call_send(call, NULL, write_count,
                      has_mode == has_sides ? counted : counted_without_mode);
}

static void write_mode(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    (void)not_after_ms;
    hfi_command_text(command, "HGET");
    hfi_name_key(&x->redis->names, call->name, call->name_len, command);
    hfi_command_text(command, MODE);
}

void hfi_adopt(struct hfi_call *call) {
    hfi_call_begin(call);
    hfi_call_send(call, NULL, write_mode, got_mode);
}
