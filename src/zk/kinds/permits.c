/*
 * Permits with leases, as Curator's InterProcessSemaphoreV2. A lease is a node beneath /leases. A
 * client counts them under a lock, whose queue is beneath /locks. /permits stores the total.
 *
 *   queued ─▶ head: read leases and total ─▶ enough: create all leases, delete the lock's node,
 *                        ▲                           in one transaction                      done
 *                        └─ either changes ◀─ too few: asleep
 *
 * Only the lock's holder creates leases, so their count can only fall meanwhile. The transaction
 * fails if the lock's node is gone, so an expired session takes nothing. It is atomic: after a lost
 * reply the client looks for the ids, behind a sync.
 *
 * Runs on the thread of the call's executor.
 */
#include "zk/kinds/permits.h"

#include "base/clock.h"

#include <string.h>

#define STATUS_EVERY_MS 10000
#define UNKNOWN_TOKEN (-1) /* 0 would match any */

static void count(struct hfi_zk_call *c);

/* ---- Names ---- */

void hfi_zk_permits_path(const struct hfi_zk_call *c, const char *beneath,
                         char to[HFI_ZK_PATH_MAX]) {
    size_t len = hfi_zk_call_path(c, to);
    memcpy(to + len, beneath, strlen(beneath) + 1);
}

struct hfi_zk_place hfi_zk_permit_place(const struct hfi_call *call, size_t id,
                                        struct hfi_zk_permit_owner *owner) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = call->ids + id * HFI_ID_LEN;
    for (size_t i = 0; i < HFI_ID_LEN; i++) {
        owner->text[2 * i] = digits[bytes[i] >> 4];
        owner->text[2 * i + 1] = digits[bytes[i] & 15];
    }
    struct hfi_zk_place place = hfi_zk_place_of(call);
    place.owner = owner->text;
    place.owner_len = sizeof owner->text;
    return place;
}

bool hfi_zk_permit_is_of(const struct hfi_call *call, const struct hfi_zk_node *node, size_t *ret) {
    if (node->label != HFI_ZK_LEASE || !node->has_uuid)
        return false;
    for (size_t i = 0; i < call->ids_len; i++)
        if (memcmp(call->ids + i * HFI_ID_LEN, node->uuid, HFI_ID_LEN) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

size_t hfi_zk_permits_found(const struct hfi_call *call, struct hfi_zk_children leases) {
    struct hfi_zk_text name;
    size_t found = 0, which;
    while (hfi_zk_next_child(&leases, &name)) {
        const struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        found += hfi_zk_permit_is_of(call, &node, &which);
    }
    return found;
}

int hfi_zk_permits_leases(struct hfi_zk_answer *answer, struct hfi_zk_children *ret) {
    *ret = (struct hfi_zk_children){0};
    if (answer->err == HFI_ZK_NO_NODE)
        return HF_OK;
    return answer->err == HFI_ZK_OK ? hfi_zk_get_children(&answer->body, ret) : HF_EPROTO;
}

void hfi_zk_permits_forget(struct hfi_zk_call *c) {
    struct hfi_zk_permit_owner owner;
    for (size_t i = 0; i < c->call->ids_len; i++) {
        const struct hfi_zk_place place = hfi_zk_permit_place(c->call, i, &owner);
        hfi_zk_forget(c->zk, &place);
    }
}

/* ---- Taking ---- */

static bool lasts(const struct hfi_call *call) {
    return call->lease_ms == HF_NO_LEASE;
}

static void write_take(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    const struct hfi_call *call = c->call;
    char path[HFI_ZK_PATH_MAX], data[HFI_ZK_DATA_MAX];
    size_t data_len = hfi_zk_data_write(call->owner, call->owner_len, c->zk->who, data);
    hfi_zk_permits_path(c, HFI_ZK_LEASES "/", path);
    char *name = path + strlen(path);
    hfi_zk_multi_begin(out, 0);
    for (size_t i = 0; i < call->ids_len; i++) {
        hfi_zk_node_stem(HFI_ZK_LEASE, call->ids + i * HFI_ID_LEN, name);
        hfi_zk_multi_create(
            out, path, data, data_len,
            lasts(call) ? HFI_ZK_PERSISTENT_SEQUENTIAL : HFI_ZK_EPHEMERAL_SEQUENTIAL, c->zk->acl);
    }
    hfi_zk_queue_node_path(c, &c->queue.node, path);
    hfi_zk_multi_delete(out, path, HFI_ZK_ANY_VERSION);
    hfi_zk_multi_end(out);
}

/* Adds a lease to the table. False: no memory. */
static bool remember(struct hfi_zk_call *c, const struct hfi_zk_node *node, int64_t token) {
    struct hfi_zk_permit_owner owner;
    size_t which;
    if (!hfi_zk_permit_is_of(c->call, node, &which))
        return true;
    const struct hfi_zk_place place = hfi_zk_permit_place(c->call, which, &owner);
    const struct hfi_zk_held held = {.number = c->number,
                                     .token = token,
                                     .count = 1,
                                     .promised_until_ms = c->call->proof.promised_until_ms,
                                     .node = *node,
                                     .beneath = HFI_ZK_LEASES "/"};
    return hfi_zk_remember(c->zk, &place, &held) == HF_OK;
}

static void taken(struct hfi_zk_call *c, bool remembered) {
    c->call->value = (int64_t)c->call->ids_len;
    if (!remembered) {
        hfi_zk_permits_forget(c);
        hfi_zk_call_fail(c, HF_ENOMEM, "out of memory");
        return;
    }
    c->leaves = false;
    hfi_zk_call_finish(c, HF_OK);
}

/* False: the leases went with their session. */
static bool prove(struct hfi_zk_call *c) {
    struct hfi_call *call = c->call;
    const struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    call->proof = hfi_zk_proof(&credit, call->lease_ms);
    if (lasts(call))
        call->proof = (struct hfi_proof){
            .valid_until_ms = HFI_NEVER, .renew_at_ms = HFI_NEVER, .promised_until_ms = HFI_NEVER};
    return lasts(call) || credit.number == c->number;
}

static struct hfi_zk_node node_of_path(struct hfi_zk_text path) {
    const char *slash = path.len > 0 ? memrchr(path.bytes, '/', path.len) : NULL;
    if (slash == NULL)
        return (struct hfi_zk_node){.label = HFI_ZK_NO_LABEL};
    return hfi_zk_node_parse(slash + 1, path.len - (size_t)(slash + 1 - path.bytes));
}

static void took(struct hfi_zk_call *c, struct hfi_zk_results *results) {
    struct hfi_zk_result result;
    bool remembered = true;
    if (!prove(c)) {
        hfi_zk_queue_restart(c);
        return;
    }
    while (!lasts(c->call) && hfi_zk_next_result(results, &result)) {
        const struct hfi_zk_node node = node_of_path(result.path);
        remembered = remembered && remember(c, &node, result.stat.czxid);
    }
    taken(c, remembered);
}

static void take_answered(struct hfi_zk_call *c) {
    struct hfi_zk_results results;
    if (c->answers[0].err != HFI_ZK_OK) {
        hfi_zk_call_refused(c, c->answers[0].err);
    } else if (hfi_zk_get_results(&c->answers[0].body, &results) != HF_OK) {
        hfi_zk_call_fail_proto(c);
    } else if (results.err == HFI_ZK_OK) {
        took(c, &results);
    } else if (results.err != HFI_ZK_NO_NODE) {
        hfi_zk_call_refused(c, results.err);
    } else if (results.failed_index < c->call->ids_len) {
        hfi_zk_make_parents(c, HFI_ZK_LEASES, count);
    } else {
        hfi_zk_queue_restart(c); /* the lock's node is gone */
    }
}

/* The reply was lost: all leases exist, or none. */
static void sought(struct hfi_zk_call *c) {
    struct hfi_zk_children leases;
    struct hfi_zk_text name;
    bool remembered = true;
    if (hfi_zk_permits_leases(&c->answers[1], &leases) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    bool found = hfi_zk_permits_found(c->call, leases) > 0;
    if (!found && c->queue.made) {
        hfi_zk_queue_check(c);
        return;
    }
    if (!found || !prove(c)) {
        hfi_zk_queue_restart(c);
        return;
    }
    while (!lasts(c->call) && hfi_zk_next_child(&leases, &name)) {
        const struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        remembered = remembered && remember(c, &node, UNKNOWN_TOKEN);
    }
    taken(c, remembered);
}

static void write_seek(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_permits_path(c, HFI_ZK_LEASES, path);
    hfi_zk_put_sync(out, 0, path);
    hfi_zk_put_get_children(out, 0, path, false);
}

static void seek(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {.frames = 2, .write = write_seek, .answered = sought};
    hfi_zk_ask_for(c, &step);
}

/* Our queue node went with the session, but permanent leases did not. */
static void seek_in_another_session(struct hfi_zk_call *c) {
    c->queue.made = false;
    c->number = 0;
    seek(c);
}

static void take_lost(struct hfi_zk_call *c) {
    if (lasts(c->call))
        c->session_over = seek_in_another_session;
    seek(c);
}

/* No `leaves` here: it is set since the queue, and a refusal must not clear it. */
static void take(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {.frames = 1,
                                            .commits = 1,
                                            .write = write_take,
                                            .answered = take_answered,
                                            .lost = take_lost};
    hfi_zk_ask_for(c, &step);
}

/* ---- Counting, with the lock ---- */

static void unwatch(struct hfi_zk_call *c) {
    hfi_zk_unwatch(c->zk->watches, &c->queue.watch);
    hfi_zk_unwatch(c->zk->watches, &c->u.permits.total_watch);
    hfi_zk_unwatch(c->zk->watches, &c->u.permits.name_watch);
}

static void woken(struct hfi_zk_call *c) {
    unsigned seen = hfi_zk_seen(&c->queue.watch) | hfi_zk_seen(&c->u.permits.total_watch) |
                    hfi_zk_seen(&c->u.permits.name_watch);
    if (seen != 0)
        count(c);
    else if (hfi_now_ms() >= c->end_ms)
        hfi_zk_call_fail(c, HF_ETIMEDOUT, "too few permits were available for the whole wait");
    else
        hfi_zk_sleep(c, hfi_min_ms(c->end_ms, hfi_now_ms() + STATUS_EVERY_MS));
}

static void await_change(struct hfi_zk_call *c) {
    c->call->contended = true;
    c->woken = woken;
    if (hfi_zk_tries_once(c->call))
        hfi_zk_call_fail(c, HF_EBUSY, "too few permits are available");
    else
        hfi_zk_sleep(c, hfi_now_ms()); /* an event may have come meanwhile */
}

static bool is_someone_elses(struct hfi_zk_answer *answer) {
    struct hfi_zk_children all;
    struct hfi_zk_text name;
    if (answer->err != HFI_ZK_OK || hfi_zk_get_children(&answer->body, &all) != HF_OK)
        return false;
    while (hfi_zk_next_child(&all, &name))
        if (hfi_zk_node_parse(name.bytes, name.len).label != HFI_ZK_NO_LABEL)
            return true;
    return false;
}

/* How many permits are free. False: the call is over. */
static bool read_room(struct hfi_zk_call *c, int64_t *ret_room) {
    struct hfi_zk_children leases;
    struct hfi_zk_count total;
    if (hfi_zk_permits_leases(&c->answers[0], &leases) != HF_OK ||
        hfi_zk_read_count(&c->answers[1], &total) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return false;
    }
    if (is_someone_elses(&c->answers[2])) {
        hfi_zk_call_fail(c, HF_EWRONGTYPE, "the name is that of a lock");
        return false;
    }
    *ret_room = (total.is_number ? total.number : 0) - (int64_t)leases.len;
    return true;
}

static void counted(struct hfi_zk_call *c) {
    int64_t room;
    if (!read_room(c, &room))
        return;
    if (room >= (int64_t)c->call->ids_len)
        take(c);
    else
        await_change(c);
}

static void write_count(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    bool watch = !hfi_zk_tries_once(c->call);
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_permits_path(c, HFI_ZK_LEASES, path);
    hfi_zk_put_get_children(out, 0, path, watch);
    hfi_zk_permits_path(c, HFI_ZK_TOTAL, path);
    hfi_zk_put_get_data(out, 0, path, watch);
    hfi_zk_call_path(c, path);
    hfi_zk_put_get_children(out, 0, path, watch); /* the total may be created */
}

static int watch(struct hfi_zk_call *c) {
    char path[HFI_ZK_PATH_MAX];
    size_t len = hfi_zk_call_path(c, path);
    unwatch(c);
    int err = hfi_zk_watch(c->zk->watches, &c->queue.watch, path, len, HFI_ZK_LEASES,
                           strlen(HFI_ZK_LEASES), c->call->task, HFI_ZK_EVENT_WATCH);
    if (err == HF_OK)
        err = hfi_zk_watch(c->zk->watches, &c->u.permits.total_watch, path, len, HFI_ZK_TOTAL,
                           strlen(HFI_ZK_TOTAL), c->call->task, HFI_ZK_EVENT_WATCH);
    if (err == HF_OK)
        err = hfi_zk_watch(c->zk->watches, &c->u.permits.name_watch, path, len, "", 0,
                           c->call->task, HFI_ZK_EVENT_WATCH);
    return err;
}

static void count(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {.frames = 3, .write = write_count, .answered = counted};
    if (hfi_zk_tries_once(c->call) || watch(c) == HF_OK)
        hfi_zk_ask_for(c, &step);
    else
        hfi_zk_call_fail(c, HF_ENOMEM, "out of memory");
}

/* ---- Acquire and settle ---- */

/* A single attempt creates nothing if there are too few anyway. */
static void peeked(struct hfi_zk_call *c) {
    int64_t room;
    if (!read_room(c, &room))
        return;
    c->number = 0;
    if (room >= (int64_t)c->call->ids_len)
        hfi_zk_enqueue(c);
    else
        await_change(c);
}

static void peek(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {.frames = 3, .write = write_count, .answered = peeked};
    c->number = 0;
    hfi_zk_ask_for(c, &step);
}

static void acquire(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->cleanup = unwatch;
    c->session_over = peek;
    c->waits = !hfi_zk_tries_once(call);
    if (c->waits) {
        hfi_zk_enqueue(c);
    } else {
        c->end_ms = hfi_after_ms(call->start_ms, c->zk->cmd_timeout_ms);
        peek(c);
    }
}

/* First our queue node, then the leases. */
static void settle(struct hfi_call *call) {
    bool queued = hfi_zk_call_of(call)->leaves && !call->settle_release;
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->settling = true;
    c->end_ms = HFI_NEVER; /* nothing else ends a permanent lease */
    c->session_over = hfi_zk_permits_give_back;
    c->on_left = hfi_zk_permits_give_back;
    if (queued && c->queue.drawn && c->number != 0)
        hfi_zk_queue_leave(c);
    else
        hfi_zk_permits_give_back(c);
}

static const struct hfi_zk_kind lock = {.label = HFI_ZK_LOCK,
                                        .beneath = "/locks",
                                        .read_queue = hfi_zk_read_lock_queue,
                                        .granted = count};

static const struct hfi_call_ops ops = {
    .call_size = sizeof(struct hfi_zk_call),
    .acquire = acquire,
    .object_op = hfi_zk_permits_object_op,
    .settle = settle,
    .step = hfi_zk_call_step,
    .cancel = hfi_zk_call_cancel,
};

const struct hfi_kind hfi_zk_permits = {.name = "permits",
                                        .ops = &ops,
                                        .part = "permits",
                                        .ends_with_session = true,
                                        .engine_private = &lock};
