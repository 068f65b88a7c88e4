/*
 * The server's half of a survey: SCAN in small steps, and a script that looks at some names at a time.
 *
 * Steps of survey.c, on the thread of the call's executor. Every command is short for the server, however
 * many keys it has. SCAN may tell a name twice; whoever joins the halves has each once. A hash is a lock if
 * all of its fields are owners with a count, but for `mode`; others are none of ours. When the time of
 * the call is nearly over it stops, and what was found so far is told, with a word.
 */
#include "base/clock.h"
#include "base/glob.h"
#include "redis/survey.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SCAN_COUNT "500"
#define OWNERS_MAX 100 /* holders of one lock, and as many in line: the rest is counted */
#define LOCKS_MAX 100000
#define LAST_MS 100 /* so long before its end nothing is begun any more */
#define UUID_LEN 36

static void scan(struct hfi_call *call);
static void look(struct hfi_call *call);

static void out_of_memory(struct hfi_call *call) {
    hfi_call_fail(call, HF_ENOMEM, "out of memory");
}

static void cut(struct hfi_call *call, const char *words) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    survey->findings->cut = true;
    snprintf(survey->findings->words, sizeof survey->findings->words, "%s", words);
    survey->next(call);
}

static bool is_late(const struct hfi_call *call) {
    return call->deadline_ms != HFI_NEVER && hfi_now_ms() >= call->deadline_ms - LAST_MS;
}

/* ---- What is a lock ---- */

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_uuid(const char *at) {
    for (int i = 0; i < UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? at[i] != '-' : !is_hex(at[i]))
            return false;
    }
    return true;
}

/* "uuid:number", perhaps with ":write" behind it, which is not a part of the owner. */
static bool read_owner(const redisReply *field, struct hfi_found_owner *ret) {
    static const char write[] = ":write";
    if (field->type != REDIS_REPLY_STRING)
        return false;
    size_t len = field->len, write_len = sizeof write - 1;
    ret->writes = len > write_len && memcmp(field->str + len - write_len, write, write_len) == 0;
    len -= ret->writes ? write_len : 0;
    if (len < UUID_LEN + 2 || len >= sizeof ret->owner || !is_uuid(field->str) ||
        field->str[UUID_LEN] != ':')
        return false;
    for (size_t i = UUID_LEN + 1; i < len; i++)
        if (field->str[i] < '0' || field->str[i] > '9')
            return false;
    memcpy(ret->owner, field->str, len);
    ret->owner[len] = '\0';
    return true;
}

static bool read_count(const redisReply *value, int64_t *ret) {
    char *end;
    if (value->type != REDIS_REPLY_STRING)
        return false;
    errno = 0;
    *ret = strtoll(value->str, &end, 10);
    return errno == 0 && end != value->str && end == value->str + value->len && *ret > 0;
}

static bool is_mode(const redisReply *field) {
    return field->type == REDIS_REPLY_STRING && field->len == 4 &&
           memcmp(field->str, "mode", 4) == 0;
}

/* False: this is no lock. */
static bool read_holders(const redisReply *fields, struct hfi_found_lock *lock) {
    for (size_t i = 0; i + 1 < fields->elements && lock->owners_len < OWNERS_MAX; i += 2) {
        const redisReply *field = fields->element[i], *value = fields->element[i + 1];
        struct hfi_found_owner *owner = &lock->owners[lock->owners_len];
        if (is_mode(field)) {
            if (value->type != REDIS_REPLY_STRING)
                return false;
            lock->kind = strcmp(value->str, "write") == 0 ? HFI_FOUND_WRITE : HFI_FOUND_READ;
            continue;
        }
        if (!read_owner(field, owner) || !read_count(value, &owner->count))
            return false;
        lock->owners_len++;
    }
    return lock->owners_len > 0;
}

static void read_line(const redisReply *line, struct hfi_found_lock *lock) {
    for (size_t i = 0; i < line->elements && i < OWNERS_MAX; i++) {
        struct hfi_found_owner *owner = &lock->owners[lock->owners_len];
        if (!read_owner(line->element[i], owner))
            continue;
        owner->count = 0;
        lock->owners_len++;
        lock->kind = HFI_FOUND_FAIR;
    }
}

/* {ttl, holders, in line, listeners, fields and values, those in line} */
static bool is_look(const redisReply *reply) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 6)
        return false;
    for (int i = 0; i < 4; i++)
        if (reply->element[i]->type != REDIS_REPLY_INTEGER)
            return false;
    return reply->element[4]->type == REDIS_REPLY_ARRAY &&
           reply->element[5]->type == REDIS_REPLY_ARRAY;
}

/* NULL: out of memory. */
static struct hfi_found_lock *new_lock(const char *name, size_t name_len, size_t owners) {
    struct hfi_found_lock *lock = calloc(1, sizeof *lock + name_len + 1);
    if (lock == NULL)
        return NULL;
    lock->owners = calloc(owners + 1, sizeof *lock->owners);
    if (lock->owners == NULL) {
        free(lock);
        return NULL;
    }
    memcpy(lock->name, name, name_len);
    lock->name_len = name_len;
    return lock;
}

/* False: out of memory. */
static bool add_lock(struct hfi_redis_survey *survey, const char *name, size_t name_len,
                     const redisReply *reply) {
    if (!is_look(reply))
        return true; /* it is gone since, or may not be read */
    const redisReply *fields = reply->element[4], *line = reply->element[5];
    struct hfi_found_lock *lock = new_lock(name, name_len, fields->elements / 2 + line->elements);
    if (lock == NULL)
        return false;
    lock->ttl_ms = reply->element[0]->integer;
    lock->listeners = reply->element[3]->integer;
    if (!read_holders(fields, lock)) {
        free(lock->owners);
        free(lock);
        return true;
    }
    int64_t all = reply->element[1]->integer + reply->element[2]->integer;
    read_line(line, lock);
    int64_t modes = lock->kind == HFI_FOUND_READ || lock->kind == HFI_FOUND_WRITE;
    int64_t left_out = all - modes - (int64_t)lock->owners_len;
    lock->left_out = left_out > 0 ? left_out : 0;
    hfi_list_push_back(&survey->findings->locks, &lock->link);
    survey->looked++;
    return true;
}

/* ---- Looking at some names ---- */

/* The next of those that SCAN has found. */
static const char *next_name(const struct hfi_redis_survey *survey, size_t *at, size_t *ret_len) {
    memcpy(ret_len, survey->names + *at, sizeof *ret_len);
    const char *name = survey->names + *at + sizeof *ret_len;
    *at += sizeof *ret_len + *ret_len;
    return name;
}

static void looked(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis_survey *survey = state->u.survey;
    size_t prefix_len = state->exchange.redis->names.prefix_len;
    if (state->exchange.err != HF_OK) {
        hfi_survey_failed(call);
        return;
    }
    const redisReply *reply = hfi_answer_of(call);
    if (reply->type != REDIS_REPLY_ARRAY) {
        hfi_call_fail_proto(call);
        return;
    }
    for (size_t i = 0; survey->names_at < survey->batch_end; i++) {
        size_t len;
        const char *name = next_name(survey, &survey->names_at, &len);
        if (i < reply->elements &&
            !add_lock(survey, name + prefix_len, len - prefix_len, reply->element[i])) {
            out_of_memory(call);
            return;
        }
    }
    look(call);
}

static void write_look(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_redis_survey *survey = hfi_state_around(x)->u.survey;
    (void)not_after_ms;
    hfi_command_text(command, "EVAL");
    hfi_command_bytes(command, hfi_script_survey_look.body, hfi_script_survey_look.len);
    hfi_command_number(command, 0);
    hfi_command_number(command, OWNERS_MAX);
    hfi_command_text(command, hfi_redis_is_sharded(x->redis) ? "shardnumsub" : "numsub");
    for (size_t at = survey->names_at; at < survey->batch_end;) {
        size_t len;
        const char *name = next_name(survey, &at, &len);
        hfi_command_bytes(command, name, len);
    }
}

static void look(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->names_at == survey->names_len) {
        scan(call);
        return;
    }
    size_t len;
    survey->batch_end = survey->names_at;
    for (int i = 0; i < HFI_LOOK_MAX && survey->batch_end < survey->names_len; i++)
        next_name(survey, &survey->batch_end, &len);
    hfi_survey_send(call, write_look, looked);
}

/* ---- SCAN ---- */

static bool is_wanted(const struct hfi_call *call, const struct hfi_names *names,
                      const redisReply *key) {
    return key->type == REDIS_REPLY_STRING && key->len > names->prefix_len &&
           memcmp(key->str, names->prefix, names->prefix_len) == 0 &&
           hfi_glob(call->name, call->name_len, key->str + names->prefix_len,
                    key->len - names->prefix_len);
}

/* False: out of memory. */
static bool keep_names(struct hfi_call *call, const redisReply *keys) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    const struct hfi_names *names = &hfi_state_of(call)->exchange.redis->names;
    size_t room = 0;
    for (size_t i = 0; i < keys->elements; i++)
        room += is_wanted(call, names, keys->element[i]) ? sizeof room + keys->element[i]->len : 0;
    free(survey->names);
    survey->names_len = survey->names_at = 0;
    survey->names = malloc(room + 1);
    if (survey->names == NULL)
        return false;
    for (size_t i = 0; i < keys->elements; i++) {
        const redisReply *key = keys->element[i];
        size_t len = key->len;
        if (!is_wanted(call, names, key))
            continue;
        memcpy(survey->names + survey->names_len, &len, sizeof len);
        memcpy(survey->names + survey->names_len + sizeof len, key->str, len);
        survey->names_len += sizeof len + len;
    }
    return true;
}

static void scanned(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis_survey *survey = state->u.survey;
    if (state->exchange.err != HF_OK) {
        hfi_survey_failed(call);
        return;
    }
    const redisReply *reply = hfi_answer_of(call);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[0]->len >= sizeof survey->cursor ||
        reply->element[1]->type != REDIS_REPLY_ARRAY) {
        hfi_call_fail_proto(call);
        return;
    }
    memcpy(survey->cursor, reply->element[0]->str, reply->element[0]->len + 1);
    survey->scanned = strcmp(survey->cursor, "0") == 0;
    if (keep_names(call, reply->element[1]))
        look(call);
    else
        out_of_memory(call);
}

/* The prefix is taken for itself, whatever is in it; then the pattern. */
static void write_pattern(const struct hfi_names *names, const struct hfi_call *call,
                          struct hfi_command *command) {
    size_t pattern_len = call->name_len > 0 ? call->name_len : 1;
    char *room = hfi_command_room(command, 2 * names->prefix_len + pattern_len);
    if (room == NULL)
        return;
    for (size_t i = 0; i < names->prefix_len; i++) {
        *room++ = '\\';
        *room++ = names->prefix[i];
    }
    memcpy(room, call->name_len > 0 ? call->name : "*", pattern_len);
}

static void write_scan(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    (void)not_after_ms;
    hfi_command_text(command, "SCAN");
    hfi_command_text(command, hfi_state_around(x)->u.survey->cursor);
    hfi_command_text(command, "MATCH");
    write_pattern(&x->redis->names, hfi_state_around(x)->call, command);
    hfi_command_text(command, "COUNT");
    hfi_command_text(command, SCAN_COUNT);
    hfi_command_text(command, "TYPE");
    hfi_command_text(command, "hash");
}

static void scan(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->scanned)
        survey->next(call);
    else if (survey->looked >= LOCKS_MAX)
        cut(call, "there are more locks than a survey tells");
    else if (is_late(call))
        cut(call, "the time was over before all keys were read");
    else
        hfi_survey_send(call, write_scan, scanned);
}

void hfi_survey_look(struct hfi_call *call, hfi_survey_step *next) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    survey->next = next;
    survey->scanned = false;
    survey->names_len = survey->names_at = 0;
    memcpy(survey->cursor, "0", 2);
    scan(call);
}
