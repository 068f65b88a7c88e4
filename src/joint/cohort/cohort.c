/*
 * Cohorts (cohort.h): the thread inside, the queue, passing on, and the hold at the server.
 *
 * Calls run on their own executors; replies and the alarm run on the keeper. They meet under the
 * cohort's mutex. A call that is let in gets an event. Until it picks up its grant, the grant can
 * be taken back: its thread may be stuck. At any time exactly one of these moves the cohort on: a
 * queued call, the call inside, or the operation at the server. So nothing polls.
 *
 * A hold is passed on only while more of it is left than the warning threshold, and within the
 * limits. Then it is released, and remote waiters go first: the server queues them (fair), or the
 * engine knows how many it notified and yields to them. If it does not, the cohort pauses before it
 * acquires again: the waiters get a pub/sub message and need a moment.
 */
#include "joint/cohort/cohort.h"

#include <string.h>

#define GRACE_MS 500          /* a thread this late to pick up its grant is not stuck yet */
#define PAUSE_MIN_MS 2        /* alarms have millisecond resolution */
#define PAUSE_MAX_MS 20       /* however long the server took to answer */
#define NO_SUBSCRIBER_PAUSE 8 /* every n-th tenure pauses if there is no remote subscriber */

static struct hfi_core *core_of(const struct hfi_cohort *cohort) {
    return cohort->parts->of[0].core;
}

static bool is_closing(const struct hfi_cohort *cohort) {
    return atomic_load(&core_of(cohort)->closing);
}

static struct hf_op *op_of(struct hfi_call *call) {
    return hfi_op_of_call(call);
}

static struct hfi_call *first_waiter(const struct hfi_cohort *cohort) {
    if (hfi_list_empty(&cohort->queue))
        return NULL;
    return HFI_CONTAINER(cohort->queue.next, struct hfi_cohort_call, link)->call;
}

/* ---- Tenures and shares ---- */

static void tenure_unref(struct hfi_tenure *tenure) {
    if (tenure == NULL || atomic_fetch_sub_explicit(&tenure->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (tenure->give_back != NULL)
        hfi_task_unref(&tenure->give_back->task);
    hfi_stake_unref(tenure->stake);
    hfi_free(tenure->mem, tenure);
}

static void on_released(void *user, const hf_result *result);

static struct hf_op *new_op(struct hfi_cohort *cohort, const struct hfi_tenure *tenure,
                            struct hfi_op_args *args) {
    const struct hfi_part *part = &cohort->parts->of[0];
    args->kind = part->kind;
    args->name = part->name;
    args->name_len = part->name_len;
    args->owner = cohort->owner;
    args->spin = &part->spin;
    args->lane = HFI_LANE_KEEPER;
    args->exec = part->core->keeper;
    args->stake = tenure->stake;
    args->inner = true;
    args->user = cohort;
    return hfi_op_new(part->core, args);
}

/* With its give-back operation, so that giving back needs no memory. */
static struct hfi_tenure *tenure_new(struct hfi_cohort *cohort) {
    struct hfi_core *core = core_of(cohort);
    struct hfi_op_args args = {.verb = &hfi_verb_give_back, .on_result = on_released};
    struct hfi_tenure *tenure = hfi_zalloc(core->mem, sizeof *tenure);
    if (tenure == NULL)
        return NULL;
    atomic_init(&tenure->refs, 1);
    tenure->mem = core->mem;
    tenure->stake = hfi_stake_new(&cohort->parts->of[0], core);
    if (tenure->stake != NULL)
        tenure->give_back = new_op(cohort, tenure, &args);
    if (tenure->give_back == NULL) {
        tenure_unref(tenure);
        return NULL;
    }
    return tenure;
}

static bool is_lost(const struct hfi_tenure *tenure) {
    return atomic_load(&tenure->stake->lost) != NULL;
}

static void give_share_locked(const struct hfi_cohort *cohort, struct hfi_cohort_share *share) {
    struct hfi_tenure *tenure = cohort->tenure;
    atomic_fetch_add_explicit(&tenure->refs, 1, memory_order_relaxed);
    share->tenure = tenure;
    share->share.len = 1;
    share->share.stakes = &tenure->stake;
}

void hfi_cohort_share_free(struct hfi_cohort_share *share) {
    if (share == NULL)
        return;
    struct hfi_parts *parts = share->parts;
    tenure_unref(share->tenure);
    hfi_free(parts->mem, share);
    hfi_parts_unref(parts);
}

/* ---- The alarm: a pause is over, or a grant was not picked up ---- */

static void set_alarm_locked(struct hfi_cohort *cohort, int64_t at_ms) {
    if (cohort->alarm_set)
        return;
    cohort->alarm_set = true;
    hfi_parts_ref(cohort->parts);
    hfi_alarm_set(core_of(cohort)->keeper, &cohort->alarm, at_ms);
}

bool hfi_cohort_clear_alarm_locked(struct hfi_cohort *cohort) {
    if (!cohort->alarm_set || !hfi_alarm_clear(core_of(cohort)->keeper, &cohort->alarm))
        return false;
    cohort->alarm_set = false;
    return true;
}

/* ---- Notifying calls ---- */

static void set_phase_locked(struct hfi_call *call, enum hfi_cohort_phase phase,
                             struct hfi_wakes *wakes) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    hfi_list_remove(&state->link);
    state->phase = phase;
    hfi_task_post_gathered(call->task, HFI_COHORT_EVENT, wakes);
}

static void set_error_locked(struct hfi_call *call, enum hfi_cohort_phase phase, int err,
                             const hf_error *error, struct hfi_wakes *wakes) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    state->err = err;
    if (error != NULL)
        state->error = *error;
    set_phase_locked(call, phase, wakes);
}

/* Fails the waiters that have waited since `since_ms` or longer. */
static void fail_waiters_locked(struct hfi_cohort *cohort, int err, const hf_error *error,
                                int64_t since_ms, struct hfi_wakes *wakes) {
    struct hfi_link *next;
    for (struct hfi_link *link = cohort->queue.next; link != &cohort->queue; link = next) {
        struct hfi_call *call = HFI_CONTAINER(link, struct hfi_cohort_call, link)->call;
        next = link->next;
        if (call->start_ms <= since_ms)
            set_error_locked(call, HFI_COHORT_FAILED, err, error, wakes);
    }
}

/* ---- At the server ---- */

static void on_granted(void *user, const hf_result *result);

static void post_begin_locked(struct hfi_cohort *cohort, struct hf_op *op,
                              enum hfi_cohort_state state) {
    cohort->op = op;
    cohort->state = state;
    hfi_parts_ref(cohort->parts);
    hfi_task_post(&op->task, HFI_OP_BEGIN);
}

/* On the keeper, while the operation is in progress. */
static void note_stall(struct hfi_call_status *call_status, const hf_error *reason) {
    struct hf_op *op = HFI_CONTAINER(call_status, struct hf_op, call_status);
    struct hfi_cohort *cohort = op->user;
    pthread_mutex_lock(&cohort->mtx);
    if (cohort->op == op)
        cohort->stall_error = *reason;
    pthread_mutex_unlock(&cohort->mtx);
}

/* Acquires for the queue; a single attempt at its head gets one of its own. */
static void acquire_locked(struct hfi_cohort *cohort, struct hfi_wakes *wakes) {
    struct hfi_call *first = first_waiter(cohort);
    cohort->state = HFI_COHORT_FREE;
    if (first == NULL)
        return;
    struct hfi_op_args args = {.verb = &hfi_verb_acquire,
                               .wait_ms = hfi_cohort_call_of(first)->one_attempt ? 0 : HF_FOREVER,
                               .lease_ms = HF_WATCHDOG,
                               .on_result = on_granted};
    struct hf_op *op = NULL;
    cohort->tenure = tenure_new(cohort);
    if (cohort->tenure != NULL)
        op = new_op(cohort, cohort->tenure, &args);
    if (op != NULL) {
        op->call->yields_to_all = true;
        op->call_status.on_stall = note_stall;
        hfi_error_clear(&cohort->stall_error);
        /* its grant may have to be given back although no call waits any more */
        atomic_fetch_add(&core_of(cohort)->returns, 1);
        post_begin_locked(cohort, op, HFI_COHORT_ACQUIRING);
        return;
    }
    tenure_unref(cohort->tenure);
    cohort->tenure = NULL;
    fail_waiters_locked(cohort, HF_ENOMEM, NULL, HFI_NEVER, wakes);
}

/* True: drop a reference after unlocking the cohort. */
static bool release_locked(struct hfi_cohort *cohort) {
    struct hf_op *op = cohort->tenure->give_back;
    cohort->tenure->give_back = NULL;
    cohort->in_the_way = !hfi_list_empty(&cohort->queue);
    cohort->release_us = hfi_now_us();
    cohort->count = 0;
    cohort->granted = NULL;
    atomic_fetch_add(&core_of(cohort)->returns, 1);
    hfi_op_set_off(op);
    post_begin_locked(cohort, op, HFI_COHORT_RELEASING);
    return hfi_cohort_clear_alarm_locked(cohort);
}

/* ---- Inside ---- */

static void let_in_locked(struct hfi_cohort *cohort, struct hfi_wakes *wakes) {
    struct hfi_call *call = first_waiter(cohort);
    cohort->inside = op_of(call)->owner;
    cohort->count = 1;
    cohort->granted = call;
    cohort->granted_ms = hfi_now_ms();
    give_share_locked(cohort, hfi_cohort_call_of(call)->share);
    set_alarm_locked(cohort, cohort->granted_ms + GRACE_MS);
    set_phase_locked(call, HFI_COHORT_GRANTED, wakes);
}

static bool may_pass_locked(const struct hfi_cohort *cohort) {
    int64_t now_ms = hfi_now_ms();
    const struct hfi_stake *stake = cohort->tenure->stake;
    return !hfi_list_empty(&cohort->queue) && cohort->passes < cohort->limits.passes &&
           now_ms < cohort->until_ms && !is_lost(cohort->tenure) &&
           now_ms < atomic_load(&stake->warn_at_ms) && !is_closing(cohort);
}

/* No thread is inside any more. True: drop a reference after unlocking the cohort. */
static bool move_on_locked(struct hfi_cohort *cohort, struct hfi_wakes *wakes) {
    if (!may_pass_locked(cohort))
        return release_locked(cohort);
    cohort->passes++;
    let_in_locked(cohort, wakes);
    return false;
}

/* ---- Replies, on the keeper ---- */

/* Takes the completed operation. */
static struct hf_op *take_op_locked(struct hfi_cohort *cohort) {
    struct hf_op *op = cohort->op;
    cohort->op = NULL;
    return op;
}

/* After unlocking. `alarm`: drop the alarm's reference, too. */
static void drop_after(const struct hfi_cohort *cohort, struct hf_op *op, struct hfi_wakes *wakes,
                       bool alarm) {
    struct hfi_parts *parts = cohort->parts;
    hfi_wakes_flush(wakes);
    hfi_task_unref(&op->task);
    if (alarm)
        hfi_parts_unref(parts);
    hfi_parts_unref(parts);
}

/* The outcome of a single attempt is for its caller alone: the others wait longer. */
static void not_granted_locked(struct hfi_cohort *cohort, struct hf_op *op, const hf_result *result,
                               struct hfi_wakes *wakes) {
    struct hfi_call *first = first_waiter(cohort);
    int64_t stalled_ms = atomic_load(&op->call_status.stalled_since_ms);
    int64_t since_ms = op->call->no_server && stalled_ms != 0 ? stalled_ms : HFI_NEVER;
    bool alone = op->wait_ms == 0, mute = result->code == HF_ECANCELED || result->code == HF_ELOST;
    tenure_unref(cohort->tenure);
    cohort->tenure = NULL;
    if (alone && !mute && first != NULL && hfi_cohort_call_of(first)->one_attempt)
        set_error_locked(first, HFI_COHORT_FAILED, result->code, &result->error, wakes);
    else if (!alone && !mute)
        fail_waiters_locked(cohort, result->code, &result->error, since_ms, wakes);
    acquire_locked(cohort, wakes);
}

/* The first operation after a lost hold reports that loss; the affected holders know it by their
 * stake. */
static void on_granted(void *user, const hf_result *result) {
    struct hfi_cohort *cohort = user;
    struct hfi_wakes wakes = {.len = 0};
    bool alarm = false;
    pthread_mutex_lock(&cohort->mtx);
    struct hf_op *op = take_op_locked(cohort);
    op->call_status.on_stall = NULL; /* the operation may outlive the cohort while it settles */
    if (result->code != HF_OK) {
        not_granted_locked(cohort, op, result, &wakes);
    } else if (is_closing(cohort) || hfi_list_empty(&cohort->queue)) {
        alarm = release_locked(cohort);
    } else {
        cohort->state = HFI_COHORT_HELD;
        cohort->passes = 0;
        cohort->until_ms = hfi_now_ms() + cohort->limits.ms;
        hfi_cohort_call_of(first_waiter(cohort))->contended |= op->call->contended;
        let_in_locked(cohort, &wakes);
    }
    pthread_mutex_unlock(&cohort->mtx);
    hfi_note_return(core_of(cohort));
    drop_after(cohort, op, &wakes, alarm);
}

/* Remote waiters need one such round trip to get the message, and another to ask. */
static int64_t pause_ms(const struct hfi_cohort *cohort) {
    int64_t round_us = hfi_now_us() - cohort->release_us;
    return hfi_min_ms(PAUSE_MIN_MS + 2 * round_us / 1000, PAUSE_MAX_MS);
}

/* No pause is needed for waiters that the engine yields to. Waiters that only poll are invisible,
 * so there is a pause now and then for them, too. */
static bool must_pause_locked(struct hfi_cohort *cohort, enum hfi_others others) {
    if (!cohort->in_the_way || cohort->yields || hfi_list_empty(&cohort->queue))
        return false;
    if (others == HFI_OTHERS_NONE)
        return ++cohort->no_subscriber % NO_SUBSCRIBER_PAUSE == 0;
    return others == HFI_OTHERS_UNKNOWN;
}

static void come_again_locked(struct hfi_cohort *cohort, enum hfi_others others,
                              struct hfi_wakes *wakes) {
    cohort->state = HFI_COHORT_FREE;
    if (is_closing(cohort)) {
        fail_waiters_locked(cohort, HF_ECLOSED, NULL, HFI_NEVER, wakes);
    } else if (must_pause_locked(cohort, others)) {
        cohort->state = HFI_COHORT_PAUSING;
        set_alarm_locked(cohort, hfi_now_ms() + pause_ms(cohort));
    } else {
        acquire_locked(cohort, wakes);
    }
}

static void on_released(void *user, const hf_result *result) {
    struct hfi_cohort *cohort = user;
    struct hfi_wakes wakes = {.len = 0};
    pthread_mutex_lock(&cohort->mtx);
    struct hf_op *op = take_op_locked(cohort);
    struct hfi_call *releaser = cohort->releaser;
    cohort->releaser = NULL;
    tenure_unref(cohort->tenure);
    cohort->tenure = NULL;
    if (releaser != NULL)
        set_error_locked(releaser, HFI_COHORT_LEFT, result->code, &result->error, &wakes);
    come_again_locked(cohort, op->call->others, &wakes);
    pthread_mutex_unlock(&cohort->mtx);
    drop_after(cohort, op, &wakes, false);
}

/* ---- On the keeper: the alarm ---- */

/* The call joins the queue again when it runs. */
static void take_back_locked(struct hfi_cohort *cohort) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(cohort->granted);
    state->phase = HFI_COHORT_PARKED;
    tenure_unref(state->share->tenure);
    state->share->tenure = NULL;
    cohort->granted = NULL;
    cohort->count = 0;
}

/* True: drop a reference. */
static bool check_locked(struct hfi_cohort *cohort, struct hfi_wakes *wakes) {
    bool stuck = cohort->granted != NULL && hfi_now_ms() - cohort->granted_ms >= GRACE_MS;
    if (stuck)
        take_back_locked(cohort);
    if (stuck && move_on_locked(cohort, wakes))
        return true;
    int64_t since_ms = cohort->granted != NULL ? cohort->granted_ms : hfi_now_ms();
    if (cohort->state == HFI_COHORT_HELD)
        set_alarm_locked(cohort, since_ms + GRACE_MS);
    return false;
}

void hfi_cohort_alarm_fired(struct hfi_alarm *alarm) {
    struct hfi_cohort *cohort = HFI_CONTAINER(alarm, struct hfi_cohort, alarm);
    struct hfi_parts *parts = cohort->parts;
    struct hfi_wakes wakes = {.len = 0};
    bool unref = false;
    pthread_mutex_lock(&cohort->mtx);
    cohort->alarm_set = false;
    if (cohort->state == HFI_COHORT_PAUSING)
        acquire_locked(cohort, &wakes);
    else if (cohort->state == HFI_COHORT_HELD)
        unref = check_locked(cohort, &wakes);
    pthread_mutex_unlock(&cohort->mtx);
    hfi_wakes_flush(&wakes);
    if (unref)
        hfi_parts_unref(parts);
    hfi_parts_unref(parts);
}

/* ---- For the calls ---- */

static void enqueue_locked(struct hfi_cohort *cohort, struct hfi_call *call,
                           struct hfi_wakes *wakes) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    state->phase = HFI_COHORT_WAITING;
    hfi_list_push_back(&cohort->queue, &state->link);
    if (cohort->state == HFI_COHORT_FREE)
        acquire_locked(cohort, wakes);
    else
        state->contended = true;
}

static void fail_here_locked(struct hfi_cohort_call *state, int err, const char *text) {
    state->phase = HFI_COHORT_FAILED;
    state->err = hfi_fail(&state->error, err, "%s", text);
}

/* Re-entry of the owner inside. */
static void nest_locked(struct hfi_cohort *cohort, struct hfi_call *call) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    if (cohort->state != HFI_COHORT_HELD || cohort->inside != op_of(call)->owner ||
        cohort->count == 0 || is_lost(cohort->tenure)) {
        fail_here_locked(state, HF_ELOST, "the lock was lost before it was re-acquired");
        return;
    }
    cohort->count++;
    give_share_locked(cohort, state->share);
    state->phase = HFI_COHORT_GRANTED;
}

/* Whether a thread here holds it or waits for it. An acquire without waiters is being given up, and
 * a release is in progress: a single attempt waits for either. */
static bool is_wanted_locked(const struct hfi_cohort *cohort) {
    return cohort->state == HFI_COHORT_HELD || !hfi_list_empty(&cohort->queue);
}

void hfi_cohort_come(struct hfi_cohort *cohort, struct hfi_call *call) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    struct hfi_wakes wakes = {.len = 0};
    pthread_mutex_lock(&cohort->mtx);
    if (call->count > 0)
        nest_locked(cohort, call);
    else if (state->one_attempt && is_wanted_locked(cohort))
        fail_here_locked(state, HF_EBUSY,
                         "another thread of this process holds the lock or "
                         "waits for it");
    else
        enqueue_locked(cohort, call, &wakes);
    pthread_mutex_unlock(&cohort->mtx);
    hfi_wakes_flush(&wakes);
}

enum hfi_cohort_phase hfi_cohort_check(struct hfi_cohort *cohort, struct hfi_call *call) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    struct hfi_wakes wakes = {.len = 0};
    pthread_mutex_lock(&cohort->mtx);
    if (cohort->granted == call)
        cohort->granted = NULL;
    if (state->phase == HFI_COHORT_PARKED)
        enqueue_locked(cohort, call, &wakes);
    enum hfi_cohort_phase phase = state->phase;
    pthread_mutex_unlock(&cohort->mtx);
    hfi_wakes_flush(&wakes);
    return phase;
}

/* The last share's call waits for the release's reply, unless the lock is passed on. */
static bool last_leaves_locked(struct hfi_cohort *cohort, struct hfi_call *call,
                               struct hfi_wakes *wakes) {
    bool unref = move_on_locked(cohort, wakes);
    if (call != NULL && cohort->state == HFI_COHORT_RELEASING) {
        cohort->releaser = call;
        hfi_cohort_call_of(call)->phase = HFI_COHORT_LEAVING;
    }
    return unref;
}

void hfi_cohort_leave(struct hfi_cohort_share *share, struct hfi_call *call) {
    struct hfi_cohort *cohort = share->parts->cohort;
    struct hfi_wakes wakes = {.len = 0};
    bool unref = false;
    pthread_mutex_lock(&cohort->mtx);
    /* a share of a lost tenure may come back during the next one */
    bool current = cohort->state == HFI_COHORT_HELD && share->tenure == cohort->tenure;
    if (call != NULL) {
        hfi_cohort_call_of(call)->phase = HFI_COHORT_LEFT;
        hfi_cohort_call_of(call)->err = current ? HF_OK : HF_ELOST;
    }
    if (current && --cohort->count == 0)
        unref = last_leaves_locked(cohort, call, &wakes);
    pthread_mutex_unlock(&cohort->mtx);
    hfi_wakes_flush(&wakes);
    if (unref)
        hfi_parts_unref(share->parts);
    hfi_cohort_share_free(share);
}

void hfi_cohort_run_out(struct hfi_cohort_share *share) {
    struct hfi_cohort *cohort = share->parts->cohort;
    pthread_mutex_lock(&cohort->mtx);
    bool unref = hfi_cohort_clear_alarm_locked(cohort);
    struct hfi_tenure *tenure = cohort->tenure == share->tenure ? cohort->tenure : NULL;
    if (tenure != NULL) {
        cohort->tenure = NULL;
        cohort->state = HFI_COHORT_FREE;
    }
    pthread_mutex_unlock(&cohort->mtx);
    tenure_unref(tenure);
    if (unref)
        hfi_parts_unref(share->parts);
    hfi_cohort_share_free(share);
}

int64_t hfi_cohort_count(struct hfi_cohort *cohort, hf_owner owner) {
    pthread_mutex_lock(&cohort->mtx);
    bool inside = cohort->state == HFI_COHORT_HELD && cohort->inside == owner &&
                  cohort->granted == NULL && !is_lost(cohort->tenure);
    int64_t count = inside ? cohort->count : 0;
    pthread_mutex_unlock(&cohort->mtx);
    return count;
}
