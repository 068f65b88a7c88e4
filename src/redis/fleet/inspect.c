/*
 * The holders and waiters of one lock. The commands: TYPE, then HGETALL for a hash or GET for a
 * string, PTTL, LRANGE for the fair queue, CLIENT LIST for the owners' connections.
 *
 * Called by src/core through the fleet view's door, on the thread of the call's executor. The replies
 * are from different moments, so a lock that changes hands meanwhile may be shown with the lease of
 * its next holder. Nothing is decided by it. The result is allocated with malloc, since it is freed
 * without a client. If CLIENT LIST is refused or fails, only the names of connections are missing.
 */
#include "redis/fleet/observe.h"

#include "base/error.h"
#include "redis/kinds/string.h"
#include "redis/ops/call.h"
#include "redis/pubsub/track.h"
#include "redis/wait/fair_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UUID_LEN 36
#define OUR_NAME "holdfast:"

static void free_holder(hf_holder *holder) {
    if (holder == NULL)
        return;
    free(holder->owner);
    free(holder->connection);
    free(holder);
}

static void free_owners(hf_holder **list, size_t len) {
    for (size_t i = 0; i < len; i++)
        free_holder(list[i]);
}

static void free_list(hf_holder **list, size_t len) {
    free_owners(list, len);
    free(list);
}

static void free_info(hf_lock_info *info) {
    free_list(info->holders, info->holders_len);
    free_list(info->waiters, info->waiters_len);
    free(info);
}

static void drop_info(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    hf_lock_info *info = state->u.inspect.info;
    if (info == NULL)
        return;
    free_info(info);
    state->u.inspect.info = NULL;
}

static void succeed(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    call->info = state->u.inspect.info;
    state->u.inspect.info = NULL;
    if (call->info->kind != HF_FOUND_OTHER)
        call->info->type_name = NULL;
    hfi_error_clear(&call->error);
    hfi_call_finish(call, HF_OK);
}

/* The reply of a step; NULL: the call is over. */
static const struct hfi_reply *step_reply(struct hfi_call *call, enum hfi_reply_type type) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return NULL;
    }
    const struct hfi_reply *reply = hfi_exchange_reply(x);
    if (reply->type != type) {
        hfi_call_fail_proto(call);
        return NULL;
    }
    return reply;
}

static void write_on_key(struct hfi_exchange *x, const char *verb, struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    hfi_command_text(command, verb);
    hfi_name_key(&x->redis->names, call->name, call->name_len, command);
}

/* ---- CLIENT LIST ---- */

/* The value of `field` ("name=") in one line, up to a blank. */
static const char *field_of(const char *line, size_t len, const char *field, size_t *ret_len) {
    size_t field_len = strlen(field);
    const char *end = line + len;
    for (const char *at = line; at != NULL && (size_t)(end - at) >= field_len;) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        if (memcmp(at, field, field_len) == 0) {
            *ret_len = (size_t)((blank != NULL ? blank : end) - at) - field_len;
            return at + field_len;
        }
        at = blank != NULL ? blank + 1 : NULL;
    }
    return NULL;
}

/* The description of a connection, from its name, malloc'ed. Our own names are
 * "holdfast:uuid:host:pid:program". */
static char *describe(const char *name, size_t len, const char *uuid_in_name) {
    const char *rest = uuid_in_name + UUID_LEN;
    bool ours = len > strlen(OUR_NAME) && memcmp(name, OUR_NAME, strlen(OUR_NAME)) == 0 &&
                rest < name + len && *rest == ':';
    const char *from = ours ? rest + 1 : name;
    char *text = strndup(from, (size_t)(name + len - from));
    if (text == NULL || !ours)
        return text;
    char *colon = strchr(text, ':');
    for (int i = 0; i < 2 && colon != NULL; i++) {
        *colon = ' ';
        colon = strchr(colon, ':');
    }
    return text;
}

/* The first connection whose name contains the uuid; NULL: none. */
static char *find_connection(const struct hfi_reply *list, const char *uuid) {
    const char *line = list->str, *end = list->str + list->len;
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t len = (size_t)((newline != NULL ? newline : end) - line), name_len = 0;
        const char *name = field_of(line, len, "name=", &name_len);
        const char *found = name != NULL ? memmem(name, name_len, uuid, UUID_LEN) : NULL;
        if (found != NULL)
            return describe(name, name_len, found);
        line += len + 1;
    }
    return NULL;
}

static void add_connections(const struct hfi_reply *list, hf_holder **owners, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (strlen(owners[i]->owner) >= UUID_LEN)
            owners[i]->connection = find_connection(list, owners[i]->owner);
}

static void listed(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    const hf_lock_info *info = state->u.inspect.info;
    if (x->err == HF_OK && hfi_exchange_reply(x)->type == HFI_REPLY_STRING) {
        add_connections(hfi_exchange_reply(x), info->holders, info->holders_len);
        add_connections(hfi_exchange_reply(x), info->waiters, info->waiters_len);
    }
    succeed(call);
}

static void write_list(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    (void)x;
    (void)not_after_ms;
    hfi_command_text(command, "CLIENT");
    hfi_command_text(command, "LIST");
}

static void query_connections(struct hfi_call *call) {
    const hf_lock_info *info = hfi_state_of(call)->u.inspect.info;
    if (info->holders_len > 0 || info->waiters_len > 0)
        hfi_call_send(call, NULL, write_list, listed);
    else
        succeed(call);
}

/* ---- LRANGE ---- */

static bool may_have_queue(const hf_lock_info *info) {
    return info->kind == HF_FOUND_PLAIN || info->kind == HF_FOUND_FREE;
}

static char *copy_of(const struct hfi_reply *text) {
    char *copy = malloc(text->len + 1);
    if (copy != NULL) {
        memcpy(copy, text->str, text->len);
        copy[text->len] = '\0';
    }
    return copy;
}

/* NULL: out of memory. */
static hf_holder *new_holder(const struct hfi_reply *owner, int64_t count) {
    hf_holder *holder = calloc(1, sizeof *holder);
    if (holder == NULL)
        return NULL;
    holder->count = count;
    holder->owner = copy_of(owner);
    if (holder->owner != NULL)
        return holder;
    free(holder);
    return NULL;
}

/* HF_OK, HF_EPROTO, HF_ENOMEM. */
static int read_queue(const struct hfi_reply *line, hf_lock_info *info) {
    info->waiters = calloc(line->elements + 1, sizeof *info->waiters);
    if (info->waiters == NULL)
        return HF_ENOMEM;
    for (size_t i = 0; i < line->elements; i++) {
        if (line->element[i]->type != HFI_REPLY_STRING)
            return HF_EPROTO;
        hf_holder *waiter = new_holder(line->element[i], 0);
        if (waiter == NULL)
            return HF_ENOMEM;
        info->waiters[info->waiters_len++] = waiter;
    }
    return HF_OK;
}

/* Only its waiters tell a fair lock from a plain one; without any, the kind of the caller's handle
 * decides. If the queue cannot be read, only the names in it are missing. */
static void got_queue(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    hf_lock_info *info = state->u.inspect.info;
    int err = HF_OK;
    if (x->err == HF_OK && hfi_exchange_reply(x)->type == HFI_REPLY_ARRAY)
        err = read_queue(hfi_exchange_reply(x), info);
    if (err == HF_ENOMEM) {
        hfi_call_fail(call, err, "out of memory");
        return;
    }
    if (err != HF_OK) {
        hfi_call_fail_proto(call);
        return;
    }
    if (info->holders_len > 0 && (info->waiters_len > 0 || state->kind->waiting->has_queue))
        info->kind = HF_FOUND_FAIR;
    query_connections(call);
}

static void write_queue_query(struct hfi_exchange *x, int64_t not_after_ms,
                              struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    (void)not_after_ms;
    hfi_command_text(command, "LRANGE");
    char *room = hfi_command_room(command, hfi_fair_queue(x->redis, call, NULL));
    if (room != NULL)
        hfi_fair_queue(x->redis, call, room);
    hfi_command_text(command, "0");
    hfi_command_text(command, "-1");
}

/* ---- PTTL ---- */

static void timed(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_reply *reply = step_reply(call, HFI_REPLY_INTEGER);
    if (reply == NULL)
        return;
    state->u.inspect.info->ttl_ms = reply->integer;
    if (may_have_queue(state->u.inspect.info))
        hfi_call_send(call, NULL, write_queue_query, got_queue);
    else
        query_connections(call);
}

static void write_ttl(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    (void)not_after_ms;
    write_on_key(x, "PTTL", command);
}

/* ---- HGETALL ---- */

static bool is_mode(const struct hfi_reply *field) {
    return field->len == 4 && memcmp(field->str, "mode", 4) == 0;
}

/* Adds one field. False: its value is not a count, so this is not a lock. */
static bool add_holder(hf_lock_info *info, const struct hfi_reply *field,
                       const struct hfi_reply *value, bool *ret_failed) {
    char *end;
    long long count = strtoll(value->str, &end, 10);
    if (end == value->str || end != value->str + value->len || count < 0)
        return false;
    hf_holder *holder = new_holder(field, count);
    *ret_failed = holder == NULL;
    if (holder != NULL)
        info->holders[info->holders_len++] = holder;
    return true;
}

/* HF_OK, HF_EPROTO, HF_ENOMEM; info->kind says what was found. */
static int read_fields(const struct hfi_reply *fields, hf_lock_info *info) {
    if (fields->elements % 2 != 0)
        return HF_EPROTO;
    info->kind = fields->elements == 0 ? HF_FOUND_FREE : HF_FOUND_PLAIN;
    info->holders = calloc(fields->elements / 2 + 1, sizeof *info->holders);
    if (info->holders == NULL)
        return HF_ENOMEM;
    for (size_t i = 0; i < fields->elements; i += 2) {
        const struct hfi_reply *field = fields->element[i], *value = fields->element[i + 1];
        bool failed = false;
        if (field->type != HFI_REPLY_STRING || value->type != HFI_REPLY_STRING)
            return HF_EPROTO;
        if (is_mode(field))
            info->kind = strcmp(value->str, "write") == 0 ? HF_FOUND_WRITE : HF_FOUND_READ;
        else if (!add_holder(info, field, value, &failed))
            info->kind = HF_FOUND_OTHER;
        if (failed)
            return HF_ENOMEM;
        if (info->kind == HF_FOUND_OTHER)
            break;
    }
    return HF_OK;
}

static void got_fields(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    hf_lock_info *info = state->u.inspect.info;
    const struct hfi_reply *reply = step_reply(call, HFI_REPLY_ARRAY);
    if (reply == NULL)
        return;
    int err = read_fields(reply, info);
    if (err == HF_ENOMEM) {
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
        return;
    }
    if (err != HF_OK) {
        hfi_call_fail_proto(call);
        return;
    }
    if (info->kind == HF_FOUND_OTHER) { /* the fields read so far are not holders */
        free_owners(info->holders, info->holders_len);
        info->holders_len = 0;
    }
    hfi_call_send(call, NULL, write_ttl, timed);
}

static void write_fields(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    (void)not_after_ms;
    write_on_key(x, "HGETALL", command);
}

/* ---- GET, and EXISTS of the leases of permits ---- */

/* If some permits are taken, there is a set of leases. Without it, or if it cannot be read, permits
 * look like a semaphore or a latch. */
static void got_leases(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    const struct hfi_reply *reply = x->err == HF_OK ? hfi_exchange_reply(x) : NULL;
    if (reply != NULL && reply->type == HFI_REPLY_INTEGER && reply->integer == 1)
        state->u.inspect.info->kind = HF_FOUND_PERMITS;
    hfi_call_send(call, NULL, write_ttl, timed);
}

static void write_leases(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    (void)not_after_ms;
    hfi_command_text(command, "EXISTS");
    hfi_name_taken_permits(&x->redis->names, call->name, call->name_len, command);
}

static bool is_integer(const struct hfi_reply *reply) {
    if (reply->type != HFI_REPLY_STRING)
        return false;
    char *end;
    errno = 0;
    strtoll(reply->str, &end, 10);
    return errno == 0 && end != reply->str && end == reply->str + reply->len;
}

/* Any string is the token of a string lock, if that is what the caller looks for. */
static bool is_string_lock(const struct hfi_call_state *state, const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_STRING &&
           (state->call->kind->stamped || hfi_string_is_ours(reply));
}

/* Other libraries' tokens may be any bytes. */
static char *printable(const struct hfi_reply *token) {
    static const char digits[] = "0123456789abcdef";
    char *text = malloc(4 * token->len + 1), *to = text;
    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < token->len; i++) {
        unsigned char byte = (unsigned char)token->str[i];
        if (byte > ' ' && byte < 0x7f && byte != '\\') {
            *to++ = (char)byte;
            continue;
        }
        *to++ = '\\';
        *to++ = 'x';
        *to++ = digits[byte >> 4];
        *to++ = digits[byte & 15];
    }
    *to = '\0';
    return text;
}

static void got_token(struct hfi_call *call, const struct hfi_reply *token) {
    hf_lock_info *info = hfi_state_of(call)->u.inspect.info;
    info->kind = HF_FOUND_STRING;
    info->holders = calloc(1, sizeof *info->holders);
    hf_holder *holder = calloc(1, sizeof *holder);
    if (holder != NULL) {
        holder->count = 1;
        holder->owner = printable(token);
    }
    if (info->holders == NULL || holder == NULL || holder->owner == NULL) {
        free_holder(holder);
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
        return;
    }
    info->holders[info->holders_len++] = holder;
    hfi_call_send(call, NULL, write_ttl, timed);
}

static void got_value(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    /* A user with rights to locks only may not read it, but still learns that it is not a lock. */
    if (x->err != HF_OK && !hfi_is_withheld(x->err)) {
        hfi_call_finish(call, x->err);
        return;
    }
    if (x->err == HF_OK && is_string_lock(state, hfi_exchange_reply(x))) {
        got_token(call, hfi_exchange_reply(x));
        return;
    }
    bool counts =
        x->err == HF_OK && is_integer(hfi_exchange_reply(x)); /* not if it was deleted since */
    state->u.inspect.info->kind = counts ? HF_FOUND_COUNTER : HF_FOUND_OTHER;
    if (counts)
        hfi_call_send(call, NULL, write_leases, got_leases);
    else
        hfi_call_send(call, NULL, write_ttl, timed);
}

static void write_value(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    (void)not_after_ms;
    write_on_key(x, "GET", command);
}

/* ---- TYPE ---- */

/* The server's name of a type, as a constant. */
static const char *type_of(const char *reply) {
    static const char *const types[] = {"none", "string", "hash", "list", "set", "zset", "stream"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(reply, types[i]) == 0)
            return types[i];
    return "unknown";
}

/* A client that listens to names has what it inspects tracked (name_listener.c). */
static void choose_tracking(struct hfi_exchange *x) {
    struct hfi_tracker *tracker = hfi_node_learnt(x->node)->tracker;
    bool has_listener = atomic_load_explicit(&x->redis->names_subscribed, memory_order_relaxed) > 0;
    int64_t target = has_listener && !x->asking ? hfi_tracker_target(tracker) : 0;
    hfi_state_around(x)->u.inspect.track_target = target;
    x->fronts = target != 0 ? HFI_TRACK_FRONTS : 0;
}

/* Remembers what the server refuses. */
static void note_tracking(const struct hfi_call_state *state) {
    const struct hfi_exchange *x = &state->exchange;
    struct hfi_tracker *tracker = hfi_node_learnt(x->node)->tracker;
    int64_t target = state->u.inspect.track_target;
    if (target != 0 && hfi_tracker_is_on(tracker, target, hfi_exchange_reply_of(x, 2)))
        hfi_tracker_is_next(tracker, hfi_exchange_reply_of(x, 1));
}

static void got_type(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    hf_lock_info *info = state->u.inspect.info;
    const struct hfi_reply *reply = step_reply(call, HFI_REPLY_STATUS);
    if (reply == NULL)
        return;
    note_tracking(state);
    info->type_name = type_of(reply->str);
    info->kind = strcmp(info->type_name, "none") == 0 ? HF_FOUND_FREE : HF_FOUND_OTHER;
    if (strcmp(info->type_name, "hash") == 0)
        hfi_call_send(call, NULL, write_fields, got_fields);
    else if (strcmp(info->type_name, "string") == 0)
        hfi_call_send(call, NULL, write_value, got_value);
    else
        hfi_call_send(call, NULL, write_ttl, timed);
}

static void write_type(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    int64_t target = hfi_state_around(x)->u.inspect.track_target;
    (void)not_after_ms;
    if (target != 0) {
        hfi_track_on(command, target);
        hfi_track_next(command);
    }
    write_on_key(x, "TYPE", command);
}

void hfi_inspect(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    if (state->kind->not_inspected != NULL) {
        hfi_call_fail(call, HF_ENOTSUP, state->kind->not_inspected);
        return;
    }
    state->cleanup = drop_info;
    state->u.inspect.info = calloc(1, sizeof *state->u.inspect.info);
    if (state->u.inspect.info == NULL) {
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
        return;
    }
    state->exchange.asks = true;
    hfi_call_send_chosen(call, choose_tracking, NULL, write_type, got_type);
}
