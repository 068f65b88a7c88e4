/*
 * What a semaphore and a latch share: a count in a string, and scripts that answer with two
 * integers and the time.
 *
 * Called by both while commands are written and replies read, on any thread; no state.
 */
#include "redis/kinds/counter.h"

#include <errno.h>
#include <stdlib.h>

enum { ANSWER_NO = 0, ANSWER_YES = 1, REPLY_WAITERS_UNNOTIFIED = 2 };

void hfi_counter_begin_beside(const struct hfi_redis *redis, const struct hfi_call *call,
                              const char *what, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_names *names = &redis->names;
    /* A cluster would refuse keys in two slots, and cannot have permits of such a name either. */
    bool keeps_slot = hfi_name_keeps_slot(names, call->name, call->name_len);
    hfi_command_number(command, !keeps_slot ? 1 : what == NULL ? 2 : 3);
    hfi_name_key(names, call->name, call->name_len, command);
    if (keeps_slot)
        hfi_name_taken_permits(names, call->name, call->name_len, command);
    if (keeps_slot && what != NULL)
        hfi_name_beside(names, what, call->name, call->name_len, command);
    hfi_command_number(command, not_after_ms);
}

void hfi_counter_begin(const struct hfi_redis *redis, const struct hfi_call *call,
                       int64_t not_after_ms, struct hfi_command *command) {
    hfi_counter_begin_beside(redis, call, NULL, not_after_ms, command);
}

void hfi_counter_add_channel(const struct hfi_redis *redis, const struct hfi_call *call,
                             struct hfi_command *command) {
    const struct hfi_redis_kind *kind = hfi_redis_kind_of(call->kind);
    hfi_redis_write_publish(redis, command);
    char *room = hfi_command_room(command, kind->channel(redis, call, NULL));
    if (room != NULL)
        kind->channel(redis, call, room);
}

void hfi_counter_write_get(const struct hfi_redis *redis, const struct hfi_call *call,
                           int64_t not_after_ms, struct hfi_command *command) {
    (void)not_after_ms;
    hfi_command_text(command, "GET");
    hfi_name_key(&redis->names, call->name, call->name_len, command);
}

int hfi_counter_read_get(const struct hfi_reply *reply, int64_t *ret_value) {
    if (reply->type == HFI_REPLY_NIL) {
        *ret_value = 0;
        return HF_OK;
    }
    if (reply->type != HFI_REPLY_STRING)
        return HF_EPROTO;
    if (reply->len == 0 || (reply->str[0] != '-' && (reply->str[0] < '0' || reply->str[0] > '9')))
        return HF_EWRONGTYPE;
    char *end;
    errno = 0;
    long long value = strtoll(reply->str, &end, 10);
    if (errno != 0 || end != reply->str + reply->len)
        return HF_EWRONGTYPE;
    *ret_value = value;
    return HF_OK;
}

int hfi_counter_read_pair(const struct hfi_reply *reply, int64_t *ret_code, int64_t *ret_number) {
    if (reply->elements != 3)
        return HF_EPROTO;
    int64_t code = reply->element[0]->integer;
    if (code < ANSWER_NO || code > REPLY_WAITERS_UNNOTIFIED)
        return HF_EPROTO;
    *ret_code = code;
    *ret_number = reply->element[1]->integer;
    return HF_OK;
}

int hfi_counter_read_done(const struct hfi_call *call, const struct hfi_reply *reply,
                          struct hfi_object_op_reply *ret) {
    int64_t code, number;
    (void)call;
    int err = hfi_counter_read_pair(reply, &code, &number);
    if (err != HF_OK)
        return err;
    ret->value = code != ANSWER_NO;
    ret->waiters_unnotified = code == REPLY_WAITERS_UNNOTIFIED;
    return HF_OK;
}

int hfi_counter_read_number(const struct hfi_call *call, const struct hfi_reply *reply,
                            struct hfi_object_op_reply *ret) {
    int64_t code;
    (void)call;
    return hfi_counter_read_pair(reply, &code, &ret->value);
}
