/*
 * Turns the replies of survey scripts into findings: hashes into locks and groups of values, sorted
 * sets into permits.
 *
 * Called by survey_scan.c for each name, on the thread of the call's executor. A hash is a lock if
 * all fields but `mode` are owners with a count. It is a group if each field is of a value. Other
 * hashes are not ours. The scripts have checked that before, but a server's reply is not trusted.
 */
#include "redis/fleet/survey.h"

#include <errno.h>
#include <string.h>

#define UUID_LEN 36
#define ID_LEN 16 /* of a permit; as text it is twice as long */
/* owners, or ms: a century, small enough to add to */
#define MOST (100 * 366 * INT64_C(86400000))

/* ---- Owners ---- */

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

/* "uuid:number", perhaps followed by ":write", which is not a part of the owner. */
static bool read_owner(const struct hfi_reply *field, struct hfi_found_owner *ret) {
    static const char write[] = ":write";
    if (field->type != HFI_REPLY_STRING)
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

static bool read_count(const struct hfi_reply *value, int64_t *ret) {
    char *end;
    if (value->type != HFI_REPLY_STRING)
        return false;
    errno = 0;
    *ret = strtoll(value->str, &end, 10);
    return errno == 0 && end != value->str && end == value->str + value->len && *ret > 0;
}

static bool is_mode(const struct hfi_reply *field) {
    return field->type == HFI_REPLY_STRING && field->len == 4 && memcmp(field->str, "mode", 4) == 0;
}

/* False: not a lock. */
static bool read_holders(const struct hfi_reply *fields, struct hfi_found_lock *lock) {
    for (size_t i = 0; i + 1 < fields->elements && lock->owners_len < HFI_SURVEY_OWNERS_MAX;
         i += 2) {
        const struct hfi_reply *field = fields->element[i], *value = fields->element[i + 1];
        struct hfi_found_owner *owner = &lock->owners[lock->owners_len];
        if (is_mode(field)) {
            if (value->type != HFI_REPLY_STRING)
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

static void read_queue(const struct hfi_reply *queue, struct hfi_found_lock *lock) {
    for (size_t i = 0; i < queue->elements && i < HFI_SURVEY_OWNERS_MAX; i++) {
        struct hfi_found_owner *owner = &lock->owners[lock->owners_len];
        if (!read_owner(queue->element[i], owner))
            continue;
        owner->count = 0;
        lock->owners_len++;
        lock->kind = HFI_FOUND_FAIR;
    }
}

/* NULL: out of memory. */
static struct hfi_found_lock *new_lock(struct hfi_survey_name name, enum hfi_found_kind kind,
                                       size_t owners) {
    struct hfi_found_lock *lock = calloc(1, sizeof *lock + name.len + 1);
    if (lock == NULL)
        return NULL;
    lock->owners = calloc(owners + 1, sizeof *lock->owners);
    if (lock->owners == NULL) {
        free(lock);
        return NULL;
    }
    memcpy(lock->name, name.bytes, name.len);
    lock->name_len = name.len;
    lock->kind = kind;
    lock->available = -1;
    return lock;
}

/* Names without holders are dropped. */
static void keep_or_drop(struct hfi_redis_survey *survey, struct hfi_found_lock *lock, bool good) {
    if (good && lock->owners_len > 0) {
        hfi_list_push_back(&survey->findings->locks, &lock->link);
        survey->locks_found++;
        return;
    }
    free(lock->owners);
    free(lock);
}

static bool are_integers(const struct hfi_reply *reply, size_t len) {
    if (reply->type != HFI_REPLY_ARRAY || reply->elements < len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (reply->element[i]->type != HFI_REPLY_INTEGER)
            return false;
    return true;
}

static int64_t between(int64_t least, int64_t number, int64_t most) {
    return number < least ? least : number < most ? number : most;
}

/* -1: it never ends, or the server does not say. */
static int64_t time_in(const struct hfi_reply *integer) {
    return between(-1, integer->integer, MOST);
}

static int64_t number_in(const struct hfi_reply *integer) {
    return between(0, integer->integer, MOST);
}

/* ---- Locks ---- */

/* {ttl, holders, queued, subscribers, fields and values, fair queue} */
enum { LOCK_TTL, LOCK_HOLDERS, LOCK_QUEUED, LOCK_LISTENERS, LOCK_FIELDS, LOCK_QUEUE, LOCK_LEN };

static bool is_lock(const struct hfi_reply *reply) {
    return are_integers(reply, LOCK_FIELDS) && reply->elements == LOCK_LEN &&
           reply->element[LOCK_FIELDS]->type == HFI_REPLY_ARRAY &&
           reply->element[LOCK_QUEUE]->type == HFI_REPLY_ARRAY;
}

/* False: out of memory. */
static bool add_lock(struct hfi_redis_survey *survey, struct hfi_survey_name name,
                     const struct hfi_reply *reply) {
    const struct hfi_reply *fields = reply->element[LOCK_FIELDS],
                           *queue = reply->element[LOCK_QUEUE];
    struct hfi_found_lock *lock =
        new_lock(name, HFI_FOUND_PLAIN, fields->elements / 2 + queue->elements);
    if (lock == NULL)
        return false;
    lock->ttl_ms = time_in(reply->element[LOCK_TTL]);
    lock->listeners = reply->element[LOCK_LISTENERS]->integer;
    bool good = read_holders(fields, lock);
    if (good)
        read_queue(queue, lock);
    for (size_t i = 0; i < lock->owners_len; i++)
        lock->owners[i].left_ms = lock->owners[i].count > 0 ? lock->ttl_ms : -1;
    int64_t modes = lock->kind == HFI_FOUND_READ || lock->kind == HFI_FOUND_WRITE;
    int64_t all = number_in(reply->element[LOCK_HOLDERS]) + number_in(reply->element[LOCK_QUEUED]);
    lock->left_out = between(0, all - modes - (int64_t)lock->owners_len, MOST);
    keep_or_drop(survey, lock, good);
    return true;
}

/* ---- Groups and permits ---- */

/* {ttl, subscribers, omitted, available, owner, count, ms left, ...} */
enum { REPLY_TTL, REPLY_LISTENERS, REPLY_LEFT_OUT, REPLY_AVAILABLE, REPLY_OWNERS };
enum { OWNER, OWNER_COUNT, OWNER_LEFT_MS, OWNER_LEN };

static bool is_owners_reply(const struct hfi_reply *reply) {
    if (!are_integers(reply, REPLY_OWNERS) || (reply->elements - REPLY_OWNERS) % OWNER_LEN != 0)
        return false;
    for (size_t i = REPLY_OWNERS; i < reply->elements; i += OWNER_LEN)
        if (reply->element[i + OWNER]->type != HFI_REPLY_STRING ||
            reply->element[i + OWNER_COUNT]->type != HFI_REPLY_INTEGER ||
            reply->element[i + OWNER_COUNT]->integer <= 0 ||
            reply->element[i + OWNER_LEFT_MS]->type != HFI_REPLY_INTEGER)
            return false;
    return true;
}

/* As clients report it: 32 digits. */
static bool read_id(const struct hfi_reply *member, struct hfi_found_owner *ret) {
    static const char digits[] = "0123456789abcdef";
    bool text = member->len == 2 * (size_t)ID_LEN;
    if (!text && member->len != ID_LEN)
        return false;
    for (size_t i = 0; i < 2 * (size_t)ID_LEN; i++) {
        unsigned char byte = (unsigned char)member->str[text ? i : i / 2];
        if (text && !is_hex((char)byte))
            return false;
        ret->owner[i] = text ? (char)byte : digits[i % 2 == 0 ? byte >> 4 : byte & 15];
    }
    ret->owner[2 * (size_t)ID_LEN] = '\0';
    return true;
}

/* False: out of memory. */
static bool add_owners_reply(struct hfi_redis_survey *survey, struct hfi_survey_name name,
                             enum hfi_found_kind kind,
                             bool (*read_name)(const struct hfi_reply *, struct hfi_found_owner *),
                             const struct hfi_reply *reply) {
    size_t len = (reply->elements - REPLY_OWNERS) / OWNER_LEN;
    struct hfi_found_lock *lock = new_lock(name, kind, len);
    if (lock == NULL)
        return false;
    lock->ttl_ms = time_in(reply->element[REPLY_TTL]);
    lock->listeners = reply->element[REPLY_LISTENERS]->integer;
    lock->left_out = number_in(reply->element[REPLY_LEFT_OUT]);
    lock->available = between(-1, reply->element[REPLY_AVAILABLE]->integer, INT64_MAX);
    bool good = true;
    for (size_t i = 0; i < len && i < HFI_SURVEY_OWNERS_MAX && good; i++) {
        struct hfi_reply *const *fields = reply->element + REPLY_OWNERS + i * OWNER_LEN;
        struct hfi_found_owner *owner = &lock->owners[lock->owners_len++];
        good = read_name(fields[OWNER], owner);
        owner->count = fields[OWNER_COUNT]->integer;
        owner->left_ms = time_in(fields[OWNER_LEFT_MS]);
    }
    keep_or_drop(survey, lock, good);
    return true;
}

/* ---- Any name ---- */

bool hfi_survey_read_hash(struct hfi_redis_survey *survey, struct hfi_survey_name name,
                          const struct hfi_reply *reply) {
    if (is_lock(reply))
        return add_lock(survey, name, reply);
    if (is_owners_reply(reply))
        return add_owners_reply(survey, name, HFI_FOUND_GROUP, read_owner, reply);
    return true; /* deleted since, or may not be read */
}

bool hfi_survey_read_permits(struct hfi_redis_survey *survey, struct hfi_survey_name name,
                             const struct hfi_reply *reply) {
    return !is_owners_reply(reply) ||
           add_owners_reply(survey, name, HFI_FOUND_PERMITS, read_id, reply);
}
