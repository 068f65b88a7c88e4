/*
 * Semaphores, permits and latches in a slot that is half moved: of their several keys, some are at
 * the old server, some at the new one and some missing. A command sent meanwhile waits, and runs
 * once. With real slots, on three primaries without replicas.
 */
#include "route/ring.h"

struct move {
    struct shards *shards;
    unsigned slot;
    struct server *from, *to;
    long long refused; /* before it began */
};

static long long count_refused(struct server *server) {
    own_text *info = cmd_str(server, "INFO errorstats");
    const char *found = strstr(info, "errorstat_TRYAGAIN:count=");
    return found != NULL ? atoll(strchr(found, '=') + 1) : 0;
}

/* From here on the key is over there, and nothing else is. */
static struct move begin_move(struct ring *r, const char *key) {
    struct move move = {.shards = r->shards, .slot = shards_slot(r->shards, key)};
    move.from = shards_owner(r->shards, move.slot);
    move.to = shards_other(r->shards, move.from);
    move.refused = count_refused(move.from) + count_refused(move.to);
    shards_open_slot(r->shards, move.slot, move.from, move.to);
    shards_move_key(r->shards, move.from, move.to, key);
    return move;
}

static bool is_refused(void *arg) {
    const struct move *move = arg;
    return count_refused(move->from) + count_refused(move->to) > move->refused;
}

/* When a client was asked to come again. */
static void end_move(struct move *move) {
    assert_true(wait_until(is_refused, move, HANG_MS));
    shards_move_keys(move->shards, move->slot, move->from, move->to);
    shards_close_slot(move->shards, move->slot, move->from, move->to);
}

struct call {
    pthread_t thread;
    hf_sem *sem;
    hf_permits *permits;
    hf_latch *latch;
    hf_permit_id id;
    int result;
};

static void *take_from_sem(void *arg) {
    struct call *call = arg;
    call->result = hf_sem_acquire(call->sem, 1);
    return NULL;
}

static void *take_permit(void *arg) {
    struct call *call = arg;
    call->result = hf_permits_acquire(call->permits, &call->id);
    return NULL;
}

static void *count_down(void *arg) {
    struct call *call = arg;
    call->result = hf_latch_count_down(call->latch);
    return NULL;
}

static void begin_call(struct call *call, void *(*what)(void *arg)) {
    assert_int_equal(pthread_create(&call->thread, NULL, what, call), 0);
}

static void end_call(struct call *call) {
    pthread_join(call->thread, NULL);
    assert_int_equal(call->result, HF_OK);
}

RING_CASE(a_semaphore_counts_once) {
    struct call call = {.sem = NULL};
    int64_t left;
    bool set;
    assert_int_equal(hf_sem_new(r->client, "half-sem", &call.sem), HF_OK);
    assert_int_equal(hf_sem_try_set(call.sem, 3, 0, &set), HF_OK);
    struct move move = begin_move(r, "half-sem");
    begin_call(&call, take_from_sem);
    end_move(&move);
    end_call(&call);
    assert_int_equal(hf_sem_available(call.sem, &left), HF_OK);
    assert_int_equal(left, 2);
    assert_int_equal(hf_sem_release(call.sem, 1), HF_OK);
    assert_int_equal(hf_sem_available(call.sem, &left), HF_OK);
    assert_int_equal(left, 3);
    hf_sem_free(call.sem);
}

RING_CASE(a_permit_is_taken_once) {
    struct call call = {.sem = NULL};
    int64_t left;
    bool set;
    assert_int_equal(hf_permits_new(r->client, "half-permits", &call.permits), HF_OK);
    assert_int_equal(hf_permits_try_set(call.permits, 2, &set), HF_OK);
    struct move move = begin_move(r, "half-permits");
    begin_call(&call, take_permit);
    end_move(&move);
    end_call(&call);
    assert_int_equal(hf_permits_available(call.permits, &left), HF_OK);
    assert_int_equal(left, 1);
    assert_int_equal(hf_permits_release(call.permits, &call.id), HF_OK);
    assert_int_equal(hf_permits_available(call.permits, &left), HF_OK);
    assert_int_equal(left, 2);
    hf_permits_free(call.permits);
}

RING_CASE(a_latch_counts_once) {
    struct call call = {.sem = NULL};
    int64_t left;
    bool set;
    assert_int_equal(hf_latch_new(r->client, "half-latch", &call.latch), HF_OK);
    assert_int_equal(hf_latch_try_set(call.latch, 2, &set), HF_OK);
    struct move move = begin_move(r, "half-latch");
    begin_call(&call, count_down);
    end_move(&move);
    end_call(&call);
    assert_int_equal(hf_latch_count(call.latch, &left), HF_OK);
    assert_int_equal(left, 1);
    assert_int_equal(hf_latch_count_down(call.latch), HF_OK);
    assert_int_equal(hf_latch_await(call.latch), HF_OK);
    hf_latch_free(call.latch);
}

RUN_CASES(ring_start, ring_stop)
