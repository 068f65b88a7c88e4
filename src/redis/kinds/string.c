/*
 * The string lock: `SET name token NX` with a lease, freed by compare-and-delete, as most
 * libraries do it. Exclusive, unfair; re-entry is counted here, since the server has no place for
 * it.
 *
 * On the server it is a string under the lock's name: the token of the hold. A token is the owner
 * and 64 random bits, drawn for each hold and never used again, or the caller's choice. All rules
 * for late copies rest on that:
 *
 *   acquire  all copies of a token end at one time of the server's clock (PXAT): a late one can
 *            occupy the lock until then, and late_copies.c deletes it. In front of a resend the
 *            server is asked to end the connections of lost copies (lost_conns.c): if it does, none
 *            is late. A reply is trusted from when the first copy was written. If half the lease
 *            has passed, or another server is to be asked, a new token is drawn.
 *   release  deletes its token and no other.
 *   renewal  raises the lease, and never shortens it: string_renew.lua. Without a lease
 *            (HF_NO_LEASE, ops/acquire_permanent.c) it sees to it that there is none.
 *
 * PXAT needs the server's clock. Its last reading is taken as the latest that it can be, plus the
 * drift since (clock_drift_ppm), so that the key does not end before we believe. A reading older
 * than a second, or of a clock whose readings have contradicted each other, is not trusted: TIME
 * goes in front, and its reply shows how long the lease really is. Then 1 ms for each second has to
 * do, since a long drift would make the key last too long. (PX would need no clock, but a late copy
 * could then take the lock at any time, for a whole lease.)
 *
 * Commands are chosen by what the node can do. It is asked once, in front of the first release
 * (COMMAND INFO), and what it refuses is remembered. Servers before 7.0 have no NX with GET: there
 * GET follows.
 *
 * The functions run on the threads of their exchanges' tasks; all state is theirs.
 */
#include "redis/kinds/string.h"

#include "base/clock.h"
#include "base/jitter.h"
#include "engine/observe.h"
#include "redis/kinds/lease_validity.h"
#include "redis/ops/late_copies.h"
#include "redis/pubsub/track.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CHANNEL "holdfast_string"
#define UUID_LEN 36
#define BITS_LEN 16        /* hexadecimal digits */
#define SAMPLE_OLD_MS 1000 /* the server's clock is read again after this long */
#define ROUNDING_MS 2      /* both clocks are read in whole milliseconds */

/* ---- Tokens ---- */

size_t hfi_string_token_len(const struct hfi_stamp *stamp, size_t owner_len) {
    if (stamp->text != NULL)
        return stamp->text->len;
    return stamp->bits != 0 ? owner_len + 1 + BITS_LEN : owner_len;
}

void hfi_string_write_token(const struct hfi_stamp *stamp, const char *owner, size_t owner_len,
                            char *to) {
    static const char digits[] = "0123456789abcdef";
    if (stamp->text != NULL) {
        memcpy(to, stamp->text->bytes, stamp->text->len);
        return;
    }
    memcpy(to, owner, owner_len);
    if (stamp->bits == 0)
        return;
    to[owner_len] = ':';
    for (size_t i = 0; i < BITS_LEN; i++)
        to[owner_len + 1 + i] = digits[stamp->bits >> (60 - 4 * i) & 15];
}

static void add_token(const struct hfi_stamp *stamp, const char *owner, size_t owner_len,
                      struct hfi_command *command) {
    char *room = hfi_command_room(command, hfi_string_token_len(stamp, owner_len));
    if (room != NULL)
        hfi_string_write_token(stamp, owner, owner_len, room);
}

static bool is_token(const struct hfi_call *call, const struct hfi_reply *reply) {
    char small[256], *token = small;
    size_t len = hfi_string_token_len(&call->stamp, call->owner_len);
    if (reply == NULL || reply->type != HFI_REPLY_STRING || reply->len != len)
        return false;
    if (call->stamp.text != NULL)
        token = call->stamp.text->bytes;
    else if (len > sizeof small)
        return false;
    else
        hfi_string_write_token(&call->stamp, call->owner, call->owner_len, token);
    return memcmp(token, reply->str, len) == 0;
}

/* "uuid:number:bits". */
bool hfi_string_is_ours(const struct hfi_reply *reply) {
    const char *text = reply->str, *end = reply->str + reply->len;
    if (reply->len < UUID_LEN + 2 + 1 + BITS_LEN || text[UUID_LEN] != ':' ||
        end[-1 - BITS_LEN] != ':')
        return false;
    for (size_t i = 0; i < UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (text[i] == '\0' || strchr(dash ? "-" : "0123456789abcdef", text[i]) == NULL)
            return false;
    }
    for (const char *at = text + UUID_LEN + 1; at < end - 1 - BITS_LEN; at++)
        if (*at < '0' || *at > '9')
            return false;
    for (const char *at = end - BITS_LEN; at < end; at++)
        if (*at == '\0' || strchr("0123456789abcdef", *at) == NULL)
            return false;
    return true;
}

/* Random, since a machine that was cloned repeats its uuid and its numbers. Without randomness the
 * clock and addresses have to do. */
static uint64_t draw_bits(const void *salt) {
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        bits = hfi_jitter_bits(salt) << 32 ^ hfi_jitter_bits(&bits) ^ (uint64_t)hfi_now_us();
    return bits != 0 ? bits : 1;
}

/* ---- Names ---- */

static size_t channel(const struct hfi_redis *redis, const struct hfi_call *call, char *to) {
    return hfi_name_prefixed(&redis->names, CHANNEL, call->name, call->name_len, to);
}

static void add_channel_of(const struct hfi_redis *redis, const char *name, size_t name_len,
                           struct hfi_command *command) {
    char *room =
        hfi_command_room(command, hfi_name_prefixed(&redis->names, CHANNEL, name, name_len, NULL));
    if (room != NULL)
        hfi_name_prefixed(&redis->names, CHANNEL, name, name_len, room);
}

static void next_command(struct hfi_command *command) {
    hfi_command_close(command);
    hfi_command_open(command);
}

/* ---- Acquire: choosing ---- */

/* Without a lease the hold begins with this one, too (ops/acquire_permanent.c). */
static int64_t first_lease_ms(const struct hfi_redis *redis, const struct hfi_call *call) {
    return call->lease_ms == HF_NO_LEASE ? redis->watchdog_ms : call->lease_ms;
}

/* The reading of the server's clock is fresh, and the clock was not stepped lately. */
static bool trusts_clock(const struct hfi_exchange *x, int64_t now_ms) {
    int64_t ahead_ms;
    return now_ms - hfi_conn_clock_limit(x->conn, &ahead_ms) <= SAMPLE_OLD_MS &&
           !hfi_conn_clock_is_stepped(x->conn, now_ms);
}

static void draw(struct hfi_call *call, struct hfi_string_attempt *attempt,
                 const struct hfi_exchange *x, int64_t now_ms) {
    int64_t ahead_ms, server_ms = 0, received_ms = 0;
    int64_t read_ms = hfi_conn_clock_limit(x->conn, &ahead_ms);
    int64_t age_ms = hfi_max_ms(now_ms - read_ms, 0);
    hfi_conn_ready(x->conn, &server_ms, &received_ms);
    int64_t spread_ms = hfi_max_ms(ahead_ms - (server_ms - received_ms), 0);
    int64_t drift_ppm = x->redis->clock_drift_ppm, stray_ms = hfi_drift(age_ms, drift_ppm) + 1;
    bool reads_time = !trusts_clock(x, now_ms) && !x->asking;
    int64_t late_ms = reads_time ? age_ms / 1000 + 1 : stray_ms;
    int64_t lease_ms = first_lease_ms(x->redis, call);
    if (call->stamp.text == NULL)
        call->stamp.bits = draw_bits(call);
    *attempt = (struct hfi_string_attempt){
        .first_ms = now_ms,
        .ends_ms = now_ms + ahead_ms + late_ms + lease_ms,
        .until_ms = now_ms + ROUNDING_MS +
                    hfi_lease_for_ms(lease_ms + spread_ms + late_ms + stray_ms, drift_ppm),
        .node = x->node,
        .foreign = attempt->foreign,
        .tracked = attempt->tracked,
        .own_bits = attempt->own_bits,
    };
}

/* A copy of the last token may still act, and nobody will hold it. */
static void give_up_token(struct hfi_call *call, struct hfi_string_attempt *attempt, bool now) {
    const struct hfi_late_token token = {
        .stamp = &call->stamp,
        .until_ms = attempt->until_ms,
        .lease_ms = call->lease_ms,
        .first_ms = now ? 0 : attempt->until_ms,
        .lost_conns = &attempt->lost_conns,
    };
    hfi_late_copies_add(hfi_redis_of(call->engine), call->name, call->name_len, call->owner,
                        call->owner_len, &token);
    attempt->lost = false;
    attempt->lost_conns.len = 0;
    attempt->lost_conns.incomplete = false;
}

/* The same token and the same end, if this is another copy and there is time to use it. A token of
 * the caller's choice cannot be drawn anew: it keeps its end as long as an earlier copy can act. */
static bool may_resend(const struct hfi_exchange *x, const struct hfi_call *call,
                       const struct hfi_string_attempt *attempt, int64_t now_ms) {
    bool fixed = call->stamp.text != NULL && now_ms < attempt->until_ms;
    return x->resent && attempt->copies > 0 && attempt->node == x->node &&
           (fixed || now_ms - attempt->first_ms <= first_lease_ms(x->redis, call) / 2);
}

static void copy_lost(struct hfi_exchange *x) {
    struct hfi_string_attempt *attempt = &hfi_state_around(x)->u.acquire.string;
    attempt->lost = true;
    hfi_lost_conns_add(&attempt->lost_conns, x);
}

/* In front of the script, which reads the lease that is left by itself. */
static void write_acquire_fronts(struct hfi_exchange *x, struct hfi_command *command) {
    const struct hfi_string_attempt *attempt = &hfi_state_around(x)->u.acquire.string;
    if (attempt->asks_time) {
        hfi_command_open(command);
        hfi_command_text(command, "TIME");
        hfi_command_close(command);
    }
    for (unsigned i = 0; attempt->ends_conns && i < attempt->lost_conns.len; i++) {
        hfi_command_open(command);
        hfi_lost_conns_write(&attempt->lost_conns, i, command);
        hfi_command_close(command);
    }
}

static void choose_acquire(struct hfi_exchange *x) {
    struct hfi_call_state *state = hfi_state_around(x);
    struct hfi_call *call = state->call;
    struct hfi_string_attempt *attempt = &state->u.acquire.string;
    int64_t now_ms = hfi_now_ms();
    attempt->lost = attempt->lost || x->resent;
    if (!may_resend(x, call, attempt, now_ms)) {
        if (attempt->lost && attempt->copies > 0)
            give_up_token(call, attempt, true);
        draw(call, attempt, x, now_ms);
    }
    attempt->copies++;
    attempt->asks_time = (!trusts_clock(x, now_ms) || attempt->copies > 1) && !x->asking;
    attempt->ends_conns = hfi_lost_conns_can_end(&attempt->lost_conns, x);
    x->script = hfi_exchange_is_acked(x) ? &hfi_script_string_acquire : NULL;
    x->write_fronts = write_acquire_fronts;
    attempt->asks_ttl = call->contended && !x->asking && x->script == NULL;
    bool get_behind =
        x->script == NULL && !x->asking &&
        atomic_load_explicit(&hfi_node_learnt(x->node)->no_nx_get, memory_order_relaxed);
    /* PTTL has it tracked; SET with GET would not */
    attempt->track_target = attempt->asks_ttl && attempt->foreign
                                ? hfi_tracker_target(hfi_node_learnt(x->node)->tracker)
                                : 0;
    x->fronts = (unsigned)attempt->asks_time + (unsigned)attempt->asks_ttl + (unsigned)get_behind;
    if (attempt->track_target != 0)
        x->fronts += HFI_TRACK_FRONTS;
    if (attempt->ends_conns)
        x->fronts += attempt->lost_conns.len;
    x->reply_at = get_behind;
}

/* The own token at the server was set by an earlier copy. The first copy finds it only if a stranger
 * uses the same. */
static bool finds_itself(const struct hfi_string_attempt *attempt) {
    return attempt->copies > 1;
}

/* ---- Acquire: writing ---- */

static void write_ttl(const struct hfi_redis *redis, const struct hfi_call *call,
                      struct hfi_command *command) {
    hfi_command_text(command, "PTTL");
    hfi_name_key(&redis->names, call->name, call->name_len, command);
}

static void write_acquire_script(const struct hfi_redis *redis, const struct hfi_call *call,
                                 const struct hfi_string_attempt *attempt,
                                 struct hfi_command *command) {
    hfi_command_bytes(command, "1", 1);
    hfi_name_key(&redis->names, call->name, call->name_len, command);
    add_token(&call->stamp, call->owner, call->owner_len, command);
    hfi_command_number(command, attempt->ends_ms);
    hfi_command_bytes(command, finds_itself(attempt) ? "1" : "0", 1);
}

static void write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_call_state *state = call->state;
    const struct hfi_string_attempt *attempt = &state->u.acquire.string;
    struct hfi_exchange *x = &state->exchange;
    (void)not_after_ms;
    if (x->script != NULL) {
        write_acquire_script(redis, call, attempt, command);
        return;
    }
    if (attempt->asks_time) {
        hfi_command_text(command, "TIME");
        next_command(command);
    }
    for (unsigned i = 0; attempt->ends_conns && i < attempt->lost_conns.len; i++) {
        hfi_lost_conns_write(&attempt->lost_conns, i, command);
        next_command(command);
    }
    if (attempt->track_target != 0) {
        hfi_track_on(command, attempt->track_target);
        hfi_track_next(command);
    }
    if (attempt->asks_ttl) {
        write_ttl(redis, call, command);
        next_command(command);
    }
    hfi_command_bytes(command, "SET", 3);
    hfi_name_key(&redis->names, call->name, call->name_len, command);
    add_token(&call->stamp, call->owner, call->owner_len, command);
    hfi_command_bytes(command, "NX", 2);
    bool refused = atomic_load_explicit(&hfi_node_learnt(x->node)->no_nx_get, memory_order_relaxed);
    if (!refused)
        hfi_command_bytes(command, "GET", 3);
    hfi_command_bytes(command, "PXAT", 4);
    hfi_command_number(command, attempt->ends_ms);
    if (x->reply_at == 0)
        return;
    next_command(command);
    hfi_command_text(command, "GET");
    hfi_name_key(&redis->names, call->name, call->name_len, command);
}

/* ---- Acquire: reading ---- */

static bool read_time(const struct hfi_reply *reply, int64_t *ret_ms) {
    if (reply == NULL || reply->type != HFI_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != HFI_REPLY_STRING || reply->element[1]->type != HFI_REPLY_STRING)
        return false;
    *ret_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
              strtoll(reply->element[1]->str, NULL, 10) / 1000;
    return *ret_ms > 0;
}

/* The reply to TIME in front of the last copy, if there was one. */
static bool read_server_time(const struct hfi_call_state *state, int64_t *ret_ms) {
    const struct hfi_exchange *x = &state->exchange;
    return state->u.acquire.string.asks_time &&
           read_time(hfi_exchange_reply_of(x, x->fronts), ret_ms);
}

/* The server reports the next change of what the last copy has found. */
static bool is_tracked(const struct hfi_exchange *x, const struct hfi_string_attempt *attempt) {
    if (attempt->track_target == 0)
        return false;
    struct hfi_tracker *tracker = hfi_node_learnt(x->node)->tracker;
    unsigned ttl = x->reply_at + 1;
    const struct hfi_reply *next = hfi_exchange_reply_of(x, ttl + 1);
    const struct hfi_reply *on = hfi_exchange_reply_of(x, ttl + 2);
    return hfi_tracker_is_on(tracker, attempt->track_target, on) &&
           hfi_tracker_is_next(tracker, next);
}

/* If the server has ended the connections of all lost copies, none of these acts any more, except
 * what it did before. */
static void note_ended_conns(struct hfi_call_state *state) {
    struct hfi_string_attempt *attempt = &state->u.acquire.string;
    const struct hfi_exchange *x = &state->exchange;
    if (!attempt->ends_conns ||
        !hfi_lost_conns_have_ended(&attempt->lost_conns, x, x->fronts - attempt->asks_time))
        return;
    attempt->lost = attempt->ends_conns = false;
    attempt->lost_conns.len = 0;
}

/* The bits of a token of this owner; 0: it is another's. */
static uint64_t own_bits(const struct hfi_call *call, const struct hfi_reply *there) {
    if (!hfi_string_is_ours(there) || there->len != call->owner_len + 1 + BITS_LEN ||
        memcmp(there->str, call->owner, call->owner_len) != 0)
        return 0;
    return strtoull(there->str + call->owner_len + 1, NULL, 16);
}

/* This owner's earlier attempt, or the last copy of this one, has taken the lock and was given up.
 * Its release is on another connection, and may be behind others. One that has come since this
 * attempt was answered is not known any more; then the next attempt does not find it. */
static bool finds_given_up(struct hfi_call *call, const struct hfi_reply *there) {
    struct hfi_call_state *state = call->state;
    struct hfi_string_attempt *attempt = &state->u.acquire.string;
    uint64_t bits = there != NULL ? own_bits(call, there) : 0;
    bool is_new = bits != attempt->own_bits;
    if (bits == 0)
        return false;
    attempt->own_bits = bits;
    return hfi_late_copies_hurry(hfi_redis_of(call->engine), call->name, call->name_len, there->str,
                                 there->len, state->exchange.sent_ms) ||
           is_new;
}

/* Another token is there. */
static int taken(struct hfi_call *call, const struct hfi_reply *there,
                 struct hfi_acquire_answer *ret) {
    struct hfi_call_state *state = call->state;
    struct hfi_string_attempt *attempt = &state->u.acquire.string;
    const struct hfi_exchange *x = &state->exchange;
    if (attempt->lost)
        give_up_token(call, attempt, false);
    ret->verdict = HFI_TAKEN;
    ret->ttl_ms = -1;
    ret->foreign = there != NULL && !hfi_string_is_ours(there);
    ret->tracked = is_tracked(x, attempt);
    ret->given_up = finds_given_up(call, there);
    const struct hfi_reply *ttl =
        attempt->asks_ttl ? hfi_exchange_reply_of(x, x->reply_at + 1) : NULL;
    if (ttl != NULL && ttl->type == HFI_REPLY_INTEGER && ttl->integer >= 0)
        ret->ttl_ms = ttl->integer;
    return HF_OK;
}

static int read_script_acquire(struct hfi_call *call, const struct hfi_reply *reply,
                               struct hfi_acquire_answer *ret) {
    if (reply->type != HFI_REPLY_ARRAY || reply->elements < 2 ||
        reply->element[0]->type != HFI_REPLY_INTEGER ||
        reply->element[1]->type != HFI_REPLY_INTEGER)
        return HF_EPROTO;
    if (reply->element[0]->integer == 1) {
        ret->verdict = HFI_ACQUIRED;
        return HF_OK;
    }
    if (reply->elements != 3 || reply->element[2]->type != HFI_REPLY_STRING)
        return HF_EPROTO;
    int err = taken(call, reply->element[2], ret);
    if (reply->element[1]->integer >= 0)
        ret->ttl_ms = reply->element[1]->integer;
    return err;
}

/* The reply of SET NX without GET, and of the GET behind it, if there is one. */
static int read_old_acquire(struct hfi_call *call, const struct hfi_reply *reply,
                            const struct hfi_reply *there, struct hfi_acquire_answer *ret) {
    if (reply->type == HFI_REPLY_STATUS) {
        ret->verdict = HFI_ACQUIRED;
        return HF_OK;
    }
    if (reply->type != HFI_REPLY_NIL)
        return HF_EPROTO;
    if (there != NULL && there->type == HFI_REPLY_ERROR) {
        enum hfi_remedy remedy;
        return hfi_error_of_reply(there, NULL, &remedy) == HF_EWRONGTYPE ? HF_EWRONGTYPE
                                                                         : HF_EPROTO;
    }
    bool known = there != NULL && there->type == HFI_REPLY_STRING;
    return taken(call, known ? there : NULL, ret);
}

static int read_acquire(const struct hfi_call *const_call, const struct hfi_reply *reply,
                        struct hfi_acquire_answer *ret) {
    struct hfi_call_state *state = const_call->state;
    struct hfi_call *call = state->call;
    const struct hfi_exchange *x = &state->exchange;
    int64_t server_ms;
    *ret = (struct hfi_acquire_answer){.count = 1};
    if (read_server_time(state, &server_ms))
        hfi_conn_clock(x->conn, server_ms, x->sent_ms, hfi_now_ms());
    note_ended_conns(state);
    if (x->script != NULL)
        return read_script_acquire(call, reply, ret);
    bool old = atomic_load_explicit(&hfi_node_learnt(x->node)->no_nx_get, memory_order_relaxed);
    const struct hfi_reply *there = !old ? reply : x->reply_at > 0 ? x->req->reply : NULL;
    bool ours = is_token(call, there) && finds_itself(&state->u.acquire.string);
    if (ours || (!old && reply->type == HFI_REPLY_NIL)) {
        ret->verdict = HFI_ACQUIRED;
        return HF_OK;
    }
    if (old)
        return read_old_acquire(call, reply, there, ret);
    return reply->type == HFI_REPLY_STRING ? taken(call, reply, ret) : HF_EPROTO;
}

/* The lease counts from the first copy. If the server's clock was read just now, the lease is not
 * longer than that clock says. */
static void prove(struct hfi_call *call, struct hfi_proof *proof) {
    const struct hfi_call_state *state = call->state;
    const struct hfi_string_attempt *attempt = &state->u.acquire.string;
    const struct hfi_exchange *x = &state->exchange;
    int64_t server_ms;
    if (call->count > 0)
        return;
    *proof = hfi_proof_of(x->redis, call->kind, attempt->first_ms, first_lease_ms(x->redis, call));
    if (read_server_time(state, &server_ms)) {
        int64_t left_ms =
            hfi_trusted_ms(hfi_max_ms(attempt->ends_ms - server_ms, 0), x->redis->clock_drift_ppm);
        proof->valid_until_ms = hfi_min_ms(proof->valid_until_ms, x->sent_ms + left_ms);
        proof->promised_until_ms = proof->valid_until_ms;
    }
}

/* ---- Release ---- */

static bool deletes_natively(const struct hfi_exchange *x) {
    int by = atomic_load_explicit(&hfi_node_learnt(x->node)->delete_by, memory_order_relaxed);
    return !x->asking && (by == HFI_DELETE_IFEQ || by == HFI_DELETE_EX_IFEQ);
}

static void write_delete_question(struct hfi_exchange *x, struct hfi_command *command) {
    static const char *const words[] = {"COMMAND", "INFO", "DELIFEQ", "DELEX"};
    (void)x;
    hfi_command_open(command);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        hfi_command_text(command, words[i]);
    hfi_command_close(command);
}

/* `behind`: so many commands follow the delete. */
static void choose_delete(struct hfi_exchange *x, const struct hfi_script *script,
                          unsigned behind) {
    bool native = deletes_natively(x);
    int by = atomic_load_explicit(&hfi_node_learnt(x->node)->delete_by, memory_order_relaxed);
    x->script = native ? NULL : script;
    x->write_fronts = write_delete_question;
    x->fronts = native ? behind : by == HFI_DELETE_UNKNOWN && !x->asking;
    x->reply_at = native ? behind : 0;
}

void hfi_string_choose_release(struct hfi_exchange *x) {
    choose_delete(x, &hfi_script_string_release, 1);
}

static void choose_break(struct hfi_exchange *x) {
    choose_delete(x, &hfi_script_string_break, 2);
}

static void write_delete(const struct hfi_exchange *x, const char *name, size_t name_len,
                         struct hfi_command *command) {
    int by = atomic_load_explicit(&hfi_node_learnt(x->node)->delete_by, memory_order_relaxed);
    hfi_command_text(command, by == HFI_DELETE_IFEQ ? "DELIFEQ" : "DELEX");
    hfi_name_key(&x->redis->names, name, name_len, command);
    if (by == HFI_DELETE_EX_IFEQ)
        hfi_command_text(command, "IFEQ");
}

static void write_wake_up(const struct hfi_exchange *x, const char *name, size_t name_len,
                          struct hfi_command *command) {
    next_command(command);
    hfi_redis_write_publish(x->redis, command);
    add_channel_of(x->redis, name, name_len, command);
    hfi_command_text(command, "0");
}

void hfi_string_write_release_of(const struct hfi_exchange *x, const char *name, size_t name_len,
                                 const char *token, size_t token_len, struct hfi_command *command) {
    if (x->script == NULL) {
        write_delete(x, name, name_len, command);
        hfi_command_bytes(command, token, token_len);
        write_wake_up(x, name, name_len, command);
        return;
    }
    hfi_command_bytes(command, "1", 1);
    hfi_name_key(&x->redis->names, name, name_len, command);
    hfi_command_bytes(command, token, token_len);
    if (x->script == &hfi_script_string_break)
        hfi_redis_write_publish(x->redis, command);
    add_channel_of(x->redis, name, name_len, command);
    if (x->script != &hfi_script_string_break && hfi_redis_is_sharded(x->redis))
        hfi_redis_write_publish(x->redis, command);
}

static void write_release(const struct hfi_redis *redis, const struct hfi_call *call, int64_t count,
                          int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_call_state *state = call->state;
    char token[HFI_STAMP_TEXT_MAX];
    size_t len = hfi_string_token_len(&call->stamp, call->owner_len);
    (void)redis;
    (void)count;
    (void)not_after_ms;
    assert(len <= sizeof token);
    hfi_string_write_token(&call->stamp, call->owner, call->owner_len, token);
    hfi_string_write_release_of(&state->exchange, call->name, call->name_len, token, len, command);
}

/* The number of subscribers that the command in front of the last one has reached; -1: refused. */
static int64_t notified_by(const struct hfi_reply *reply) {
    return reply != NULL && reply->type == HFI_REPLY_INTEGER && reply->integer >= 0 ? reply->integer
                                                                                    : -1;
}

int hfi_string_read_release(const struct hfi_exchange *x, struct hfi_release_answer *ret) {
    const struct hfi_reply *reply = hfi_exchange_reply(x);
    if (reply->type != HFI_REPLY_INTEGER)
        return HF_EPROTO;
    int64_t answer = reply->integer, notified = answer;
    *ret = (struct hfi_release_answer){.verdict = HFI_RELEASED};
    if (x->script == NULL) {
        notified = notified_by(x->req->reply);
        answer = answer == 1 ? 0 : answer == 0 ? -1 : -3;
    }
    if (answer == -1)
        ret->verdict = HFI_RELEASE_GONE;
    else if (answer == -2 || (answer == 0 && notified < 0))
        ret->waiters_unnotified = true;
    else if (answer < 0)
        return HF_EPROTO;
    ret->waiters_notified_known = ret->verdict == HFI_RELEASED && !ret->waiters_unnotified;
    ret->waiters_notified = (int)hfi_min_ms(notified, 999);
    return HF_OK;
}

/* ---- Break ---- */

static int find_holder(const struct hfi_reply *reply, const struct hfi_reply **ret_owner) {
    if (reply->type != HFI_REPLY_STRING && reply->type != HFI_REPLY_NIL)
        return HF_EWRONGTYPE;
    *ret_owner = reply->type == HFI_REPLY_STRING ? reply : NULL;
    return HF_OK;
}

/* What the script publishes to holders, as a command. */
static void write_break_message(const struct hfi_redis *redis, const struct hfi_call *call,
                                struct hfi_command *command) {
    char head[48];
    next_command(command);
    hfi_command_text(command, "PUBLISH");
    size_t head_len = hfi_break_channel_head(redis, head, sizeof head);
    hfi_command_text(command, HFI_BREAK_CHANNEL);
    char *room = hfi_command_room(command, head_len + redis->names.prefix_len + call->name_len);
    if (room == NULL)
        return;
    memcpy(room, head, head_len);
    memcpy(room + head_len, redis->names.prefix, redis->names.prefix_len);
    memcpy(room + head_len + redis->names.prefix_len, call->name, call->name_len);
}

static void write_break(const struct hfi_redis *redis, const struct hfi_call *call,
                        const char *owner, size_t owner_len, int64_t not_after_ms,
                        struct hfi_command *command) {
    const struct hfi_exchange *x = &((const struct hfi_call_state *)call->state)->exchange;
    (void)not_after_ms;
    hfi_string_write_release_of(x, call->name, call->name_len, owner, owner_len, command);
    if (x->script == NULL)
        write_break_message(redis, call, command);
    else
        hfi_break_channel_publish(redis, command);
}

static int read_break(const struct hfi_exchange *x, struct hfi_break_reply *ret) {
    const struct hfi_reply *reply = hfi_exchange_reply(x);
    if (x->script == NULL) {
        if (reply->type != HFI_REPLY_INTEGER)
            return HF_EPROTO;
        ret->broken = reply->integer == 1;
        ret->holder_unnotified = ret->broken && notified_by(hfi_exchange_reply_of(x, 0)) < 0;
        ret->waiters_unnotified = ret->broken && notified_by(hfi_exchange_reply_of(x, 1)) < 0;
        return HF_OK;
    }
    if (reply->type != HFI_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != HFI_REPLY_INTEGER ||
        reply->element[1]->type != HFI_REPLY_INTEGER)
        return HF_EPROTO;
    ret->broken = reply->element[0]->integer != 0;
    ret->waiters_unnotified = reply->element[0]->integer == 2;
    ret->holder_unnotified = reply->element[1]->integer == -1;
    return HF_OK;
}

/* ---- What a node can do ---- */

static bool is_known_command(const struct hfi_reply *reply, size_t i) {
    return reply->type == HFI_REPLY_ARRAY && i < reply->elements &&
           reply->element[i]->type == HFI_REPLY_ARRAY && reply->element[i]->elements > 0;
}

/* Of a server that refuses the question no command is known. */
static void note_deletes(struct hfi_learnt *learnt, const struct hfi_reply *reply) {
    int by = is_known_command(reply, 0)   ? HFI_DELETE_IFEQ
             : is_known_command(reply, 1) ? HFI_DELETE_EX_IFEQ
                                          : HFI_DELETE_BY_SCRIPT;
    atomic_store_explicit(&learnt->delete_by, by, memory_order_relaxed);
}

static bool is_syntax_error(const struct hfi_exchange *x) {
    const struct hfi_reply *reply = x->req != NULL ? hfi_exchange_reply(x) : NULL;
    return reply != NULL && reply->type == HFI_REPLY_ERROR &&
           strstr(reply->str, "syntax error") != NULL;
}

bool hfi_string_learn(struct hfi_exchange *x) {
    if (x->node == NULL || x->req == NULL)
        return false;
    struct hfi_learnt *learnt = hfi_node_learnt(x->node);
    bool deletes = x->write_fronts == write_delete_question;
    bool withheld = x->err != HF_OK && hfi_is_withheld(x->err);
    if (deletes && x->script != NULL && x->fronts == 1) {
        const struct hfi_reply *reply = hfi_exchange_reply_of(x, 1);
        if (reply != NULL)
            note_deletes(learnt, reply);
        return withheld && deletes_natively(x);
    }
    if (deletes && x->script == NULL && withheld) {
        atomic_store_explicit(&learnt->delete_by, HFI_DELETE_BY_SCRIPT, memory_order_relaxed);
        return true;
    }
    if (deletes || x->script != NULL || !is_syntax_error(x))
        return false;
    /* another call may have learnt it since this one was written */
    bool had_get = x->reply_at == 0 && !x->asking;
    return !atomic_exchange(&learnt->no_nx_get, true) || had_get;
}

/* ---- Renewals ---- */

/* HF_NO_LEASE is written in any case, if replicas are to confirm it. */
static int64_t lease_argument(const struct hfi_renewal_item *item) {
    if (item->lease_ms == HF_NO_LEASE)
        return item->acks != 0 ? -2 : -1;
    return item->lease_ms > 0 ? item->lease_ms : 1;
}

static void write_renewal(const struct hfi_redis *redis,
                          const struct hfi_renewal_item *const *items, size_t len,
                          int64_t not_after_ms, struct hfi_command *command) {
    hfi_command_number(command, (int64_t)len);
    for (size_t i = 0; i < len; i++)
        hfi_name_key(&redis->names, items[i]->name, items[i]->name_len, command);
    hfi_command_number(command, not_after_ms);
    for (size_t i = 0; i < len; i++) {
        hfi_command_number(command, lease_argument(items[i]));
        add_token(&items[i]->stamp, items[i]->owner, items[i]->owner_len, command);
    }
}

/* SET IFEQ with a lease that is at least what is left, and at least the watchdog's (kind.h); or
 * without one, which takes the lease away. */
static void write_native_renewal(const struct hfi_redis *redis, const struct hfi_renewal_item *item,
                                 struct hfi_command *command) {
    int64_t leased_until_ms = item->stamp.leased_until_ms;
    hfi_command_text(command, "SET");
    hfi_name_key(&redis->names, item->name, item->name_len, command);
    add_token(&item->stamp, item->owner, item->owner_len, command);
    hfi_command_text(command, "IFEQ");
    add_token(&item->stamp, item->owner, item->owner_len, command);
    if (item->lease_ms == HF_NO_LEASE)
        return;
    if (item->lease_ms <= 1 || leased_until_ms == HFI_NEVER) {
        hfi_command_text(command, "KEEPTTL");
        return;
    }
    int64_t left_ms =
        hfi_lease_for_ms(hfi_max_ms(leased_until_ms - hfi_now_ms(), 0), redis->clock_drift_ppm);
    hfi_command_text(command, "PX");
    hfi_command_number(
        command, hfi_max_ms(hfi_max_ms(item->lease_ms, left_ms + ROUNDING_MS), redis->watchdog_ms));
}

static void write_renewal_probes(const struct hfi_redis *redis,
                                 const struct hfi_renewal_item *const *items, size_t len,
                                 struct hfi_command *command) {
    hfi_command_text(command, "MGET");
    for (size_t i = 0; i < len; i++)
        hfi_name_key(&redis->names, items[i]->name, items[i]->name_len, command);
}

static bool is_there(const struct hfi_renewal_item *item, const struct hfi_reply *reply) {
    char token[HFI_STAMP_TEXT_MAX];
    size_t len = hfi_string_token_len(&item->stamp, item->owner_len);
    if (reply->type != HFI_REPLY_STRING || reply->len != len || len > sizeof token)
        return false;
    hfi_string_write_token(&item->stamp, item->owner, item->owner_len, token);
    return memcmp(token, reply->str, len) == 0;
}

static const struct hfi_renewer renewer = {
    .script = &hfi_script_string_renew,
    .write = write_renewal,
    .write_native = write_native_renewal,
    .write_probes = write_renewal_probes,
    .is_there = is_there,
};

/* ---- Calls ---- */

/* What is left of a hold, or of an acquire that has failed, for late copies. A failed acquire, and
 * a failed release, are settled first, which comes here again. */
static void ended(struct hfi_call *call) {
    struct hfi_call_state *state = call->state;
    const struct hfi_exchange *x = &state->exchange;
    struct hfi_redis *redis = hfi_redis_of(call->engine);
    if (state->acquiring && call->count == 0) {
        struct hfi_string_attempt *attempt = &state->u.acquire.string;
        bool lost = attempt->lost || x->unanswered || state->unacked;
        call->stamp.until_ms = lost ? attempt->until_ms : 0;
        bool known = attempt->lost_conns.len > 0 && !attempt->lost_conns.incomplete;
        if (call->err != HF_OK && attempt->lost && known && call->stamp.text == NULL) {
            give_up_token(call, attempt, true);
            call->stamp.until_ms = 0;
        }
        return;
    }
    bool over = state->settling || (state->settles && call->err == HF_OK && call->count == 1);
    if (!over || (call->err == HF_OK && hfi_now_ms() >= call->stamp.until_ms))
        return;
    int64_t until_ms = hfi_max_ms(call->stamp.until_ms, hfi_now_ms());
    const struct hfi_late_token token = {
        .stamp = &call->stamp,
        .until_ms = until_ms,
        .lease_ms = call->lease_ms,
        .first_ms = call->err != HF_OK ? 0 : until_ms,
    };
    hfi_late_copies_add(redis, call->name, call->name_len, call->owner, call->owner_len, &token);
}

/* A nested acquire, and the release of one, renew the hold: the count is the core's. */
static void acquire(struct hfi_call *call) {
    if (call->count == 0)
        hfi_acquire(call);
    else
        hfi_extend_to(call, call->count + 1);
}

static void release(struct hfi_call *call) {
    if (call->count == 1)
        hfi_release(call);
    else
        hfi_extend_to(call, call->count - 1);
}

/* Of a nested hold nothing is to be undone at the server. */
static void settle(struct hfi_call *call) {
    if (call->settle_release ? call->count == 1 : call->count == 0) {
        hfi_settle(call);
        return;
    }
    memset(call->state, 0, sizeof(struct hfi_call_state));
    hfi_call_begin(call);
    hfi_call_finish(call, HF_OK);
}

/* Whether the token is there; the core knows how often it is held. */
static void counted(struct hfi_call *call) {
    const struct hfi_call_state *state = call->state;
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    call->value = call->count > 0 && is_token(call, hfi_answer_of(call)) ? call->count : 0;
    hfi_call_finish(call, HF_OK);
}

static void write_get(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    (void)not_after_ms;
    hfi_command_text(command, "GET");
    hfi_name_key(&x->redis->names, call->name, call->name_len, command);
}

static void ask(struct hfi_call *call) {
    if (call->query != HFI_QUERY_COUNT) {
        hfi_ask(call);
        return;
    }
    hfi_call_begin(call);
    hfi_call_send(call, NULL, write_get, counted);
}

static void found(struct hfi_call *call) {
    const struct hfi_call_state *state = call->state;
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
    } else if (!is_token(call, hfi_answer_of(call))) {
        hfi_call_fail(call, HF_ENOTOWNER, "nobody holds the lock by this token any more");
    } else {
        const struct hfi_reply *ttl = hfi_exchange_reply_of(&state->exchange, 1);
        bool permanent = ttl != NULL && ttl->type == HFI_REPLY_INTEGER && ttl->integer == -1;
        bool timed = ttl != NULL && ttl->type == HFI_REPLY_INTEGER && ttl->integer >= 0;
        call->stamp.leased_until_ms = permanent ? HFI_NEVER
                                      : timed   ? hfi_after_ms(hfi_now_ms(), ttl->integer)
                                                : 0;
        call->count = 1;
        hfi_extend(call);
    }
}

static void choose_read(struct hfi_exchange *x) {
    x->repeatable = false; /* it only reads */
    x->fronts = !x->asking;
}

static void write_read(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    if (x->fronts > 0) {
        write_ttl(x->redis, hfi_state_around(x)->call, command);
        next_command(command);
    }
    write_get(x, not_after_ms, command);
}

static void adopt(struct hfi_call *call) {
    hfi_call_begin(call);
    hfi_call_send_chosen(call, choose_read, NULL, write_read, found);
}

const struct hfi_call_ops hfi_redis_string_ops = {
    .call_size = sizeof(struct hfi_call_state),
    .observes = HFI_OBSERVES_LOCK | HFI_OBSERVES_SERVER,
    .acquire = acquire,
    .release = release,
    .extend = hfi_extend,
    .set_lease = hfi_set_lease,
    .adopt = adopt,
    .break_holds = hfi_break,
    .ask = ask,
    .settle = settle,
    .step = hfi_call_step,
    .cancel = hfi_call_cancel,
    .drive = hfi_call_drive,
};

/* ---- The tables ---- */

#define STRING_LOCK                                                                                \
    .field_suffix = "", .choose_acquire = choose_acquire,                                          \
    .choose_release = hfi_string_choose_release, .choose_break = choose_break,                     \
    .copy_lost = copy_lost, .learn = hfi_string_learn, .prove = prove, .ended = ended,             \
    .acquire = &hfi_script_string_acquire, .release = &hfi_script_string_release,                  \
    .break_holds = &hfi_script_string_break, .write_acquire = write_acquire,                       \
    .read_acquire = read_acquire, .write_release = write_release,                                  \
    .read_chosen_release = hfi_string_read_release, .find_holder = find_holder,                    \
    .holder_query = "GET", .write_break = write_break, .read_chosen_break = read_break,            \
    .channel = channel, .renewer = &renewer, .lease = &hfi_script_string_lease

static const struct hfi_redis_kind string = {
    STRING_LOCK,
    .waiting = &hfi_wait_string,
    .yields_after_release = true,
};

static const struct hfi_redis_kind spin = {
    STRING_LOCK,
    .waiting = &hfi_wait_spin,
};

const struct hfi_kind hfi_kind_string = {
    .name = "string",
    .part = "string",
    .ops = &hfi_redis_string_ops,
    .reentrant = true,
    .exclusive = true,
    .stamped = true,
    .takes_stamp = true,
    .takes_no_lease = true,
    .tracked = true,
    .engine_private = &string,
};

const struct hfi_kind hfi_kind_string_nonreentrant = {
    .name = "non-reentrant string",
    .part = "string",
    .ops = &hfi_redis_string_ops,
    .exclusive = true,
    .stamped = true,
    .takes_stamp = true,
    .takes_no_lease = true,
    .tracked = true,
    .engine_private = &string,
};

const struct hfi_kind hfi_kind_string_spin = {
    .name = "spin string",
    .part = "string",
    .ops = &hfi_redis_string_ops,
    .reentrant = true,
    .exclusive = true,
    .spins = true,
    .stamped = true,
    .takes_stamp = true,
    .takes_no_lease = true,
    .tracked = true,
    .engine_private = &spin,
};
