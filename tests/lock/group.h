/* Values of a group, for tests: handles on them, and what the server has of them.
 *
 * Included by test_group*.c alone. */
#ifndef HF_TEST_LOCK_GROUP_H
#define HF_TEST_LOCK_GROUP_H

#include "redis/wire/highwayhash.h"
#include "support/world.h"

#define GROUP_ACQUIRE hfi_script_group_acquire.sha1
#define GROUP_RELEASE hfi_script_group_release.sha1
#define GROUP_RENEW hfi_script_group_renew.sha1
#define GROUP_FORCE hfi_script_group_break.sha1

/* A handle on values that are words of a text, in the group WORLD_NAME. */
static inline hf_lock *new_values(hf_client *client, const char *text) {
    hf_bytes values[16];
    size_t len = 0;
    hf_lock *lock;
    for (const char *at = text; *at != '\0'; len++) {
        assert_true(len < sizeof values / sizeof *values);
        values[len] = (hf_bytes){.bytes = at, .len = strcspn(at, " ")};
        at += values[len].len;
        at += *at == ' ';
    }
    assert_int_equal(hf_lock_new_group(client, WORLD_NAME, strlen(WORLD_NAME), values, len, &lock),
                     HF_OK);
    return lock;
}

/* As world_begin, with handles of both clients on "jack mary"; all scripts are known to the
 * server. */
static inline void group_begin(struct world *w, const hf_options *options) {
    bool broken;
    world_begin(w, options);
    hf_lock_free(w->lock);
    hf_lock_free(w->rival_lock);
    w->lock = new_values(w->client, "jack mary");
    w->rival_lock = new_values(w->rival, "jack mary");
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 60000);
    world_warm_up(w->lock);
    assert_int_equal(hf_lock_acquire_with(w->rival_lock, &leased, NULL), HF_OK);
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_ELOST);
    cmd_ok(w->server, "FLUSHALL");
}
#define GROUP_CASE(name) CASE_IN(name, struct world, w, group_begin, world_end, NULL)
#define GROUP_CASE_WITH(name, ...)                                                                 \
    CASE_WITH(name, struct world, w, group_begin, world_end, __VA_ARGS__)

static inline void group_field(const char *value, char field[HFI_FIELD_LEN + 1]) {
    hfi_highwayhash_field(value, strlen(value), field);
    field[HFI_FIELD_LEN] = '\0';
}

/* Whose the value is; "" if it is nobody's. */
static inline void group_holder(struct server *server, const char *value, char owner[64]) {
    char field[HFI_FIELD_LEN + 1];
    group_field(value, field);
    redisReply *reply = cmd(server, "HGET %s %s", WORLD_NAME, field);
    snprintf(owner, 64, "%s", reply->type == REDIS_REPLY_STRING ? reply->str : "");
    freeReplyObject(reply);
}

static inline bool group_held_by(struct server *server, const char *value, const char *owner) {
    char holder[64];
    group_holder(server, value, holder);
    return strcmp(holder, owner) == 0;
}

/* One of the numbers beside a value: "lock_count" or "expire_time". -1: it is not there. */
static inline long long group_number(struct server *server, const char *value, const char *owner,
                                     const char *what) {
    char field[HFI_FIELD_LEN + 1];
    group_field(value, field);
    redisReply *reply = cmd(server, "HGET %s %s:%s:%s", WORLD_NAME, field, owner, what);
    long long number = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : -1;
    freeReplyObject(reply);
    return number;
}

/* The server's clock in ms. */
static inline long long group_now_ms(struct server *server) {
    redisReply *reply = cmd(server, "TIME");
    long long ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                   strtoll(reply->element[1]->str, NULL, 10) / 1000;
    freeReplyObject(reply);
    return ms;
}

#endif
