/*
 * Operations on existing permits: release, queries, delete; and the total.
 *
 * Called by src/core through the table in permits.c, on the thread of the call's executor. A
 * lease's id is its uuid and is never reused, so a release is idempotent. The total is a counter of
 * its own (counter.c).
 */
#include "zk/kinds/permits.h"

#include "base/clock.h"

#include <string.h>

#define PIECE_LEASES 400 /* deleted in one multi: a server accepts requests of 1 MiB */

static void list_leases(struct hfi_zk_call *c, const struct hfi_zk_step *step) {
    c->number = 0;
    hfi_zk_ask_for(c, step);
}

static void write_list(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_permits_path(c, HFI_ZK_LEASES, path);
    hfi_zk_put_sync(out, 0, path);
    hfi_zk_put_get_children(out, 0, path, false);
}

/* ---- The total ---- */

static struct hfi_zk_change change_total(const struct hfi_call *call,
                                         const struct hfi_zk_count *found) {
    if (found->there && !found->is_number)
        return hfi_zk_refuse(HF_EWRONGTYPE, "the name has no number of permits");
    if (call->object_op == HFI_OBJECT_SET && found->there)
        return hfi_zk_leave(0);
    if (call->object_op == HFI_OBJECT_ADD)
        return hfi_zk_store((int64_t)found->number + call->amount, 1);
    return call->object_op == HFI_OBJECT_TOTAL ? hfi_zk_leave(found->number)
                                               : hfi_zk_store(call->amount, 1);
}

static const struct hfi_zk_counter total = {.beneath = HFI_ZK_TOTAL, .object_op = change_total};

/* ---- Release ---- */

static void ended(struct hfi_zk_call *c, int64_t value) {
    hfi_zk_permits_forget(c);
    c->settling = c->leaves = false;
    c->call->value = value;
    hfi_zk_call_finish(c, HF_OK);
}

static void not_there(struct hfi_zk_call *c) {
    if (c->u.permits.maybe_done || c->settling) {
        ended(c, 0); /* an earlier delete of ours has done it */
        return;
    }
    c->leaves = false;
    hfi_zk_permits_forget(c);
    hfi_zk_call_fail(c, HF_ENOTOWNER, "there is no such permit any more");
}

/* Deleting all of them goes in batches, the first of which deletes the total, too: so no client
 * takes a permit that was freed meanwhile. */
static void write_deletes(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    struct hfi_zk_children leases = c->u.permits.leases;
    struct hfi_zk_text name;
    char path[HFI_ZK_PATH_MAX];
    size_t which;
    size_t room = c->u.permits.all ? PIECE_LEASES : leases.len;
    hfi_zk_multi_begin(out, 0);
    if (c->u.permits.all && c->u.permits.has_total) {
        hfi_zk_permits_path(c, HFI_ZK_TOTAL, path);
        hfi_zk_multi_delete(out, path, HFI_ZK_ANY_VERSION);
    }
    hfi_zk_permits_path(c, HFI_ZK_LEASES "/", path);
    char *end = path + strlen(path);
    while (room > 0 && hfi_zk_next_child(&leases, &name)) {
        const struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        if (!c->u.permits.all && !hfi_zk_permit_is_of(c->call, &node, &which))
            continue;
        if (name.len >= HFI_ZK_NODE_TEXT)
            continue;
        memcpy(end, name.bytes, name.len);
        end[name.len] = '\0';
        hfi_zk_multi_delete(out, path, HFI_ZK_ANY_VERSION);
        room--;
    }
    hfi_zk_multi_end(out);
}

static void give_back(struct hfi_zk_call *c);
static void delete_all(struct hfi_zk_call *c);

static void list_again(struct hfi_zk_call *c) {
    if (c->u.permits.all)
        delete_all(c);
    else
        give_back(c);
}

/* The reply was lost, or more batches follow: list again to see what is left. */
static void see_what_is_left(struct hfi_zk_call *c) {
    c->u.permits.maybe_done = true;
    list_again(c);
}

static bool has_more_pieces(const struct hfi_zk_call *c, const struct hfi_zk_results *deleted) {
    return c->u.permits.all && c->u.permits.leases.len > PIECE_LEASES && deleted->len > 0;
}

static void deleted(struct hfi_zk_call *c) {
    struct hfi_zk_results results;
    if (c->answers[0].err != HFI_ZK_OK)
        hfi_zk_call_refused(c, c->answers[0].err);
    else if (hfi_zk_get_results(&c->answers[0].body, &results) != HF_OK)
        hfi_zk_call_fail_proto(c);
    else if (results.err == HFI_ZK_OK && has_more_pieces(c, &results))
        see_what_is_left(c);
    else if (results.err == HFI_ZK_OK)
        ended(c, c->u.permits.all ? 1 : (int64_t)c->call->ids_len);
    else if (results.err == HFI_ZK_NO_NODE)
        list_again(c); /* one of them was deleted meanwhile */
    else
        hfi_zk_call_refused(c, results.err);
}

static void listed(struct hfi_zk_call *c) {
    static const struct hfi_zk_step deletes = {.frames = 1,
                                               .commits = 1,
                                               .leaves = true,
                                               .write = write_deletes,
                                               .answered = deleted,
                                               .lost = see_what_is_left};
    if (hfi_zk_permits_leases(&c->answers[1], &c->u.permits.leases) != HF_OK) {
        hfi_zk_call_fail_proto(c);
        return;
    }
    hfi_zk_keep_answer(c, 1);
    size_t found = hfi_zk_permits_found(c->call, c->u.permits.leases);
    if (found == 0 || (found < c->call->ids_len && !c->settling && !c->u.permits.maybe_done))
        not_there(c);
    else
        hfi_zk_ask_for(c, &deletes);
}

static void give_back(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {.frames = 2, .write = write_list, .answered = listed};
    list_leases(c, &step);
}

void hfi_zk_permits_give_back(struct hfi_zk_call *c) {
    give_back(c);
}

/* ---- Queries ---- */

static void write_counts(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_permits_path(c, HFI_ZK_TOTAL, path);
    hfi_zk_put_get_data(out, 0, path, false);
    hfi_zk_permits_path(c, HFI_ZK_LEASES, path);
    hfi_zk_put_get_children(out, 0, path, false);
}

static bool read_counts(struct hfi_zk_call *c, struct hfi_zk_count *ret_total) {
    if (hfi_zk_read_count(&c->answers[0], ret_total) == HF_OK &&
        hfi_zk_permits_leases(&c->answers[1], &c->u.permits.leases) == HF_OK)
        return true;
    hfi_zk_call_fail_proto(c);
    return false;
}

static void got_counts(struct hfi_zk_call *c) {
    struct hfi_zk_count number;
    if (!read_counts(c, &number))
        return;
    int64_t taken = (int64_t)c->u.permits.leases.len;
    c->call->value = c->call->object_op == HFI_OBJECT_TAKEN ? taken
                     : number.there                         ? number.number - taken
                                                            : 0;
    hfi_zk_call_finish(c, HF_OK);
}

static void ask_counts(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {
        .frames = 2, .write = write_counts, .answered = got_counts};
    hfi_zk_ask_for(c, &step);
}

/* ---- Leases ---- */

static void foreign_lease(struct hfi_zk_call *c) {
    if (hfi_zk_permits_leases(&c->answers[1], &c->u.permits.leases) != HF_OK)
        hfi_zk_call_fail_proto(c);
    else if (hfi_zk_permits_found(c->call, c->u.permits.leases) == 0)
        hfi_zk_call_fail(c, HF_ENOTOWNER, "there is no such permit any more");
    else
        hfi_zk_call_fail(c, HF_ENOTSUP,
                         "in ZooKeeper, only a permit's own client knows and changes its lease");
}

static void own_lease(struct hfi_zk_call *c, const struct hfi_zk_place *place) {
    struct hfi_call *call = c->call;
    const struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    if (credit.number != c->held.number) {
        hfi_zk_forget(c->zk, place);
        hfi_zk_call_fail(c, HF_ENOTOWNER, "the permit ended with its session");
    } else if (call->object_op == HFI_OBJECT_LEASE) {
        call->value = hfi_left_ms(hfi_min_ms(credit.good_until_ms, c->held.promised_until_ms));
        hfi_zk_call_finish(c, HF_OK);
    } else if (call->lease_ms == HF_NO_LEASE) {
        hfi_zk_call_fail(c, HF_ENOTSUP, "in ZooKeeper, a permit cannot be extended to HF_NO_LEASE");
    } else {
        call->proof = hfi_zk_proof(&credit, call->lease_ms);
        c->held.promised_until_ms = call->proof.promised_until_ms;
        hfi_zk_remember(c->zk, place, &c->held); /* the entry exists, so this needs no memory */
        call->value = 1;
        hfi_zk_call_finish(c, HF_OK);
    }
}

static void ask_lease(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {
        .frames = 2, .write = write_list, .answered = foreign_lease};
    struct hfi_zk_permit_owner owner;
    const struct hfi_zk_place place = hfi_zk_permit_place(c->call, 0, &owner);
    if (hfi_zk_nodes_find(c->zk->nodes, &place, &c->held))
        own_lease(c, &place);
    else
        list_leases(c, &step);
}

/* ---- Deleting ---- */

static void got_all(struct hfi_zk_call *c) {
    static const struct hfi_zk_step deletes = {.frames = 1,
                                               .commits = 1,
                                               .write = write_deletes,
                                               .answered = deleted,
                                               .lost = see_what_is_left};
    struct hfi_zk_count number;
    if (!read_counts(c, &number))
        return;
    hfi_zk_keep_answer(c, 1);
    c->u.permits.all = true;
    c->u.permits.has_total = number.there; /* Java may do without a total */
    if (number.there || c->u.permits.leases.len > 0)
        hfi_zk_ask_for(c, &deletes);
    else
        ended(c, c->u.permits.maybe_done);
}

static void delete_all(struct hfi_zk_call *c) {
    static const struct hfi_zk_step step = {
        .frames = 2, .write = write_counts, .answered = got_all};
    hfi_zk_ask_for(c, &step);
}

/* ---- The table ---- */

static void begin_anew(struct hfi_zk_call *c) {
    c->number = 0;
    hfi_zk_ask_for(c, c->step);
}

void hfi_zk_permits_object_op(struct hfi_call *call) {
    static void (*const acts[HFI_OBJECT_OPS])(struct hfi_zk_call *) = {
        [HFI_OBJECT_PUT] = give_back,    [HFI_OBJECT_AVAILABLE] = ask_counts,
        [HFI_OBJECT_TAKEN] = ask_counts, [HFI_OBJECT_EXTEND] = ask_lease,
        [HFI_OBJECT_LEASE] = ask_lease,  [HFI_OBJECT_DELETE] = delete_all,
    };
    bool is_total = call->object_op == HFI_OBJECT_SET || call->object_op == HFI_OBJECT_RESET ||
                    call->object_op == HFI_OBJECT_ADD || call->object_op == HFI_OBJECT_TOTAL;
    if (is_total) {
        hfi_zk_counter_object_op(call, &total);
        return;
    }
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->session_over = begin_anew;
    if (acts[call->object_op] != NULL)
        acts[call->object_op](c);
    else
        hfi_zk_call_fail(c, HF_ENOTSUP, "in ZooKeeper, permits cannot expire as a whole");
}
