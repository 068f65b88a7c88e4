/*
 * Some values of a group, all or none: Redisson's getMultiLock(group, values).
 *
 * On the server a group is one hash, in which each held value has three fields (group_common.lua).
 * A field is named by the hash of the value's bytes (highwayhash.c). One script acquires any number
 * of values in one step, so there is nothing to roll back. All values share one channel: a message
 * says that something in the group is free again, and wakes all waiters of the group.
 *
 * A lock's name in the core is the group, a zero byte and the fields, sorted and without
 * duplicates. So the same values are the same lock in any order. The stem of the name is the group
 * alone, which is all that keys, channels and other clients use. Stateless; any thread.
 */
#include "base/error.h"
#include "engine/observe.h"
#include "redis/kinds/plain.h"
#include "redis/wire/highwayhash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BREAK_ROUNDS_MAX 10

/* ---- Names ---- */

/* Fields contain no zero byte, so they begin after the last one. */
static size_t stem_len(const char *name, size_t name_len) {
    const char *zero = memrchr(name, '\0', name_len);
    assert(zero != NULL);
    return (size_t)(zero - name);
}

struct values {
    const char *group;
    size_t group_len;
    const char *fields;
    size_t len; /* how many */
};

static struct values values_in(const char *name, size_t name_len) {
    size_t group_len = stem_len(name, name_len);
    return (struct values){.group = name,
                           .group_len = group_len,
                           .fields = name + group_len + 1,
                           .len = (name_len - group_len - 1) / HFI_FIELD_LEN};
}

static struct values values_of(const struct hfi_call *call) {
    return values_in(call->name, call->name_len);
}

static const char *field_at(const struct values *values, size_t i) {
    return values->fields + i * HFI_FIELD_LEN;
}

static int compare_fields(const void *a, const void *b) {
    return memcmp(a, b, HFI_FIELD_LEN);
}

/* Sorts the fields, removes duplicates, and returns how many are left. */
static size_t put_in_order(char *fields, size_t len) {
    size_t kept = 0;
    qsort(fields, len, HFI_FIELD_LEN, compare_fields);
    for (size_t i = 0; i < len; i++) {
        const char *field = fields + i * HFI_FIELD_LEN;
        if (kept == 0 || memcmp(field, fields + (kept - 1) * HFI_FIELD_LEN, HFI_FIELD_LEN) != 0)
            memmove(fields + kept++ * HFI_FIELD_LEN, field, HFI_FIELD_LEN);
    }
    return kept;
}

static size_t name_values(const void *group, size_t group_len, const hf_bytes *values, size_t len,
                          char *to) {
    if (to == NULL)
        return group_len + 1 + len * HFI_FIELD_LEN;
    char *fields = to + group_len + 1;
    memcpy(to, group, group_len);
    to[group_len] = '\0';
    for (size_t i = 0; i < len; i++)
        hfi_highwayhash_field(values[i].bytes, values[i].len, fields + i * HFI_FIELD_LEN);
    return group_len + 1 + put_in_order(fields, len) * HFI_FIELD_LEN;
}

/* Both are sorted, so one pass over both is enough. */
static bool overlap(const char *a_name, size_t a_len, const char *b_name, size_t b_len) {
    const struct values a = values_in(a_name, a_len), b = values_in(b_name, b_len);
    for (size_t i = 0, j = 0; i < a.len && j < b.len;) {
        int order = compare_fields(field_at(&a, i), field_at(&b, j));
        if (order == 0)
            return true;
        i += order < 0;
        j += order > 0;
    }
    return false;
}

/* ---- Arguments ---- */

static size_t channel(const struct hfi_redis *redis, const struct hfi_call *call, char *to) {
    struct hfi_call group = {.name = call->name, .name_len = stem_len(call->name, call->name_len)};
    return hfi_plain_channel(redis, &group, to);
}

static void add_channel(const struct hfi_redis *redis, const struct hfi_call *call,
                        struct hfi_command *command) {
    hfi_redis_write_publish(redis, command);
    char *room = hfi_command_room(command, channel(redis, call, NULL));
    if (room != NULL)
        channel(redis, call, room);
}

static void add_key(const struct hfi_redis *redis, const struct values *values,
                    struct hfi_command *command) {
    hfi_name_key(&redis->names, values->group, values->group_len, command);
}

static void add_fields(const struct values *values, struct hfi_command *command) {
    for (size_t i = 0; i < values->len; i++)
        hfi_command_bytes(command, field_at(values, i), HFI_FIELD_LEN);
}

/* The scripts need a positive lease, even if it is not used. */
static int64_t positive(int64_t lease_ms) {
    return lease_ms > 0 ? lease_ms : 1;
}

/* The arguments of an acquire and of a release. */
static void write_turn(const struct hfi_redis *redis, const struct hfi_call *call, int64_t count,
                       int64_t not_after_ms, struct hfi_command *command) {
    const struct values values = values_of(call);
    hfi_command_text(command, "1");
    add_key(redis, &values, command);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, call->owner, call->owner_len);
    hfi_command_number(command, positive(call->lease_ms));
    hfi_command_number(command, count);
    add_channel(redis, call, command);
    add_fields(&values, command);
}

static void write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    write_turn(redis, call, call->count, not_after_ms, command);
}

static void write_renewal(const struct hfi_redis *redis,
                          const struct hfi_renewal_item *const *items, size_t len,
                          int64_t not_after_ms, struct hfi_command *command) {
    hfi_command_number(command, (int64_t)len);
    for (size_t i = 0; i < len; i++) {
        const struct values values = values_in(items[i]->name, items[i]->name_len);
        add_key(redis, &values, command);
    }
    hfi_command_number(command, not_after_ms);
    for (size_t i = 0; i < len; i++) {
        const struct values values = values_in(items[i]->name, items[i]->name_len);
        hfi_command_number(command, positive(items[i]->lease_ms));
        hfi_command_bytes(command, items[i]->owner, items[i]->owner_len);
        hfi_command_number(command, (int64_t)values.len);
        add_fields(&values, command);
    }
}

static void write_probe(const struct hfi_redis *redis, const struct hfi_renewal_item *item,
                        struct hfi_command *command) {
    const struct values values = values_in(item->name, item->name_len);
    hfi_command_text(command, "HMGET");
    add_key(redis, &values, command);
    add_fields(&values, command);
}

/* A field has its holder. */
static bool is_there(const struct hfi_renewal_item *item, const struct hfi_reply *reply) {
    if (reply->type != HFI_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->type != HFI_REPLY_STRING ||
            reply->element[i]->len != item->owner_len ||
            memcmp(reply->element[i]->str, item->owner, item->owner_len) != 0)
            return false;
    return true;
}

static const struct hfi_renewer renewer = {
    .script = &hfi_script_group_renew,
    .write = write_renewal,
    .write_probe = write_probe,
    .is_there = is_there,
};

/* ---- Break ---- */

/* A break first reads the owners of the values, and then breaks the holds of these owners only, not
 * those of the next holders. */

static void query_holders(struct hfi_call *call);

static void drop_seen(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_req_unref(state->u.break_holds.seen);
    state->u.break_holds.seen = NULL;
}

static void write_break(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_call_state *state = hfi_state_around(x);
    const struct values values = values_of(state->call);
    const struct hfi_reply *seen = state->u.break_holds.seen->reply;
    hfi_command_text(command, "1");
    add_key(x->redis, &values, command);
    hfi_command_number(command, not_after_ms);
    add_channel(x->redis, state->call, command);
    hfi_break_channel_publish(x->redis, command);
    for (size_t i = 0; i < values.len; i++) {
        const struct hfi_reply *owner = seen->element[i];
        if (owner->type != HFI_REPLY_STRING)
            continue;
        hfi_command_bytes(command, field_at(&values, i), HFI_FIELD_LEN);
        hfi_command_bytes(command, owner->str, owner->len);
    }
}

static void broken(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    struct hfi_break_reply answer = {0};
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    if (hfi_plain_read_break(hfi_exchange_reply(x), &answer) != HF_OK) {
        hfi_call_fail_proto(call);
        return;
    }
    if (answer.waiters_unnotified)
        hfi_redis_notify_failed(x);
    if (answer.holder_unnotified)
        hfi_break_channel_refused(x);
    if (answer.broken || x->resent) {
        call->value = 1;
        hfi_call_finish(call, HF_OK);
        return;
    }
    drop_seen(call);
    if (++state->u.break_holds.rounds >= BREAK_ROUNDS_MAX)
        hfi_call_fail(call, HF_EBUSY,
                      "the values changed owners faster than they could be broken; try again");
    else
        query_holders(call);
}

/* *ret_any: at least one of the values has an owner. False: malformed reply. */
static bool read_holders(const struct hfi_reply *reply, size_t len, bool *ret_any) {
    if (reply->type != HFI_REPLY_ARRAY || reply->elements != len)
        return false;
    *ret_any = false;
    for (size_t i = 0; i < len; i++) {
        if (reply->element[i]->type != HFI_REPLY_STRING && reply->element[i]->type != HFI_REPLY_NIL)
            return false;
        *ret_any |= reply->element[i]->type == HFI_REPLY_STRING;
    }
    return true;
}

static void seen_holders(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    bool any = false;
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
    } else if (!read_holders(hfi_exchange_reply(x), values_of(call).len, &any)) {
        hfi_call_fail_proto(call);
    } else if (!any) {
        hfi_call_finish(call, HF_OK); /* value 0: there was nothing to break */
    } else {
        state->u.break_holds.seen = x->req; /* the reply contains the owners */
        x->req = NULL;
        hfi_call_send(call, &hfi_script_group_break, write_break, broken);
    }
}

static void write_holders(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    const struct values values = values_of(hfi_state_around(x)->call);
    (void)not_after_ms;
    hfi_command_text(command, "HMGET");
    add_key(x->redis, &values, command);
    add_fields(&values, command);
}

static void query_holders(struct hfi_call *call) {
    hfi_call_send(call, NULL, write_holders, seen_holders);
}

static void break_holds(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    state->cleanup = drop_seen;
    query_holders(call);
}

/* ---- Queries ---- */

/* Only the server can say which leases have ended, so all queries use one script. */

static void write_inspect(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    const struct values values = values_of(call);
    hfi_command_text(command, "1");
    add_key(x->redis, &values, command);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, call->owner, call->owner_len);
    add_fields(&values, command);
}

static void got_inspected(struct hfi_call *call) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    enum { HELD, COUNT, LEFT_MS, NOW, ANSWERS };
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    const struct hfi_reply *reply = hfi_exchange_reply(x);
    if (reply->elements != ANSWERS || reply->element[HELD]->integer < 0 ||
        reply->element[COUNT]->integer < 0) {
        hfi_call_fail_proto(call);
        return;
    }
    if (call->query == HFI_QUERY_LOCKED)
        call->value = reply->element[HELD]->integer > 0;
    else
        call->value = reply->element[call->query == HFI_QUERY_COUNT ? COUNT : LEFT_MS]->integer;
    hfi_call_finish(call, HF_OK);
}

static void ask(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    state->exchange.asks = true;
    hfi_call_send(call, &hfi_script_group_inspect, write_inspect, got_inspected);
}

/* ---- The tables ---- */

static const struct hfi_redis_kind group = {
    .not_inspected = "a group lock cannot be inspected",
    .field_suffix = "",
    .acquire = &hfi_script_group_acquire,
    .release = &hfi_script_group_release,
    .write_acquire = write_acquire,
    .read_acquire = hfi_plain_read_acquire,
    .write_release = write_turn,
    .read_release = hfi_plain_read_release,
    .channel = channel,
    .waiting = &hfi_wait_subscribe,
    .renewer = &renewer,
    .ends_early_ms = 1,
};

static const struct hfi_call_ops group_ops = {
    .call_size = sizeof(struct hfi_call_state),
    .observes = HFI_OBSERVES_LOCK,
    .acquire = hfi_acquire,
    .release = hfi_release,
    .extend = hfi_extend,
    .break_holds = break_holds,
    .ask = ask,
    .settle = hfi_settle,
    .step = hfi_call_step,
    .cancel = hfi_call_cancel,
    .drive = hfi_call_drive,
};

const struct hfi_kind hfi_kind_group = {
    .name = "group",
    .ops = &group_ops,
    .part = "group",
    .reentrant = true,
    .exclusive = true,
    .leaves_traces = true,
    .stem_len = stem_len,
    .overlap = overlap,
    .name_values = name_values,
    .tracked = true,
    .engine_private = &group,
};
