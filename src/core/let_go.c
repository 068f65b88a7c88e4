/*
 * Letting go: what we gave up without a release is ended at the server too.
 *
 * A hold whose deadline has passed is over for us, and its lease ends at the server a moment later,
 * since it began there a moment later: unless somebody else has lengthened it. A Java reader's
 * watchdog does so with all that others have left in a read/write lock; a renewal of ours that was
 * not answered may have done it, too. So when that moment has passed, the hold is released all the
 * same, in the background, and nobody waits for its lease to end a second time. If a verb notices
 * that the deadline has passed, it sees to that itself when it completes (hfi_op_complete); what
 * the keeper notices is listed here, and each hold gets an operation that takes its turn and
 * settles a release, some at a time.
 *
 * The same owner may acquire again meanwhile: the operation then leaves, as any that settles, and
 * the acquire takes over what is there. A renewal that arrives after the release finds nothing, so
 * there is nothing to wait for. Permits have no turns, and their ids are never used again.
 *
 * Everything here runs on the keeper's thread; a hold's state is its shard's.
 */
#include "core/op.h"

#include <string.h>

#define MOMENT_MS                                                                                  \
    500                /* a lease that nobody lengthens ends by itself, and as a lease, unless the
                          server knows of none */
#define RUNNING_MAX 64 /* at a time */
#define AGAIN_MS 1000  /* without memory for an operation */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_let_go_begin(HFI_CONTAINER(alarm, struct hfi_core, let_go.alarm));
}

void hfi_let_go_init(struct hfi_core *core) {
    hfi_list_init(&core->let_go.holds);
    core->let_go.alarm.fire = alarm_fired;
}

void hfi_let_go_stop(struct hfi_core *core) {
    struct hfi_link *link;
    hfi_alarm_clear(core->keeper, &core->let_go.alarm);
    while ((link = hfi_list_pop_front(&core->let_go.holds)) != NULL)
        hfi_hold_unref(HFI_CONTAINER(link, struct hfi_hold, let_go_link));
}

void hfi_let_go_locked(struct hfi_hold *hold) {
    if (!hfi_hold_has_leftover(hold) || hold->letting_go || hold->active != NULL)
        return; /* whoever is at work on it sees to it */
    hfi_hold_let_go_at_locked(hold, hfi_now_ms() + (hold->kind->ends_with_session ? 0 : MOMENT_MS));
    hfi_hold_ref(hold);
    hfi_list_push_back(&hold->core->let_go.holds, &hold->let_go_link);
}

void hfi_let_go_rest_locked(struct hfi_hold *hold) {
    hfi_let_go_locked(hold);
    if (hold->letting_go)
        hfi_alarm_set(hold->core->keeper, &hold->core->let_go.alarm, hfi_now_ms());
}

static void stop_letting_go(struct hfi_hold *hold) {
    pthread_mutex_lock(&hold->shard->mtx);
    hfi_hold_let_go_ended_locked(hold);
    hfi_hold_tidy_locked(hold);
    pthread_mutex_unlock(&hold->shard->mtx);
}

/* Nobody has come to work on it meanwhile. *ret_kind: how it was held. */
static bool is_wanted(struct hfi_hold *hold, const struct hfi_kind **ret_kind) {
    pthread_mutex_lock(&hold->shard->mtx);
    bool wanted = hfi_hold_has_leftover(hold) && hold->count == 0 && hold->active == NULL;
    *ret_kind = hold->held_as;
    pthread_mutex_unlock(&hold->shard->mtx);
    return wanted;
}

/* ---- Locks ---- */

/* A renewal that was not answered may have lengthened the lease. What others keep alive for longer
 * is theirs to end. */
static void settle_release(struct hf_op *op) {
    op->call->settle_release = op->brief = true;
    hfi_op_complete_unsettled(op, HF_OK, NULL, op->core->watchdog_ms);
}

static void let_go_go(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    pthread_mutex_lock(&op->shard->mtx);
    /* whoever is next takes over what is left */
    bool wanted = hfi_hold_has_leftover(hold) && hold->count == 0 && hfi_list_empty(&hold->queue);
    if (wanted)
        hfi_hold_await_answer_locked(hold);
    pthread_mutex_unlock(&op->shard->mtx);
    op->call->count = 1;
    if (wanted)
        settle_release(op);
    else
        hfi_op_complete(op, HF_OK, NULL);
}

static void next_please(struct hfi_core *core) {
    core->let_go.running--;
    if (!hfi_list_empty(&core->let_go.holds))
        hfi_alarm_set(core->keeper, &core->let_go.alarm, hfi_now_ms());
}

static void let_go_finished(struct hf_op *op) {
    if (op->hold != NULL)
        stop_letting_go(op->hold);
    next_please(op->core);
}

const struct hfi_verb hfi_verb_let_go = {.name = "let go",
                                         .takes_turn = true,
                                         .lets_go = true,
                                         .go = let_go_go,
                                         .finished = let_go_finished};

/* ---- Permits ---- */

static void permits_finished(struct hf_op *op) {
    next_please(op->core);
}

const struct hfi_verb hfi_verb_permits_let_go = {
    .name = "let go of a permit", .go = settle_release, .finished = permits_finished};

static unsigned char digit(char hex) {
    return (unsigned char)(hex <= '9' ? hex - '0' : hex - 'a' + 10);
}

static void read_id(const struct hfi_hold *hold, unsigned char id[HFI_ID_LEN]) {
    for (size_t i = 0; i < HFI_ID_LEN; i++)
        id[i] = (unsigned char)(digit(hold->owner[2 * i]) << 4 | digit(hold->owner[2 * i + 1]));
}

/* ---- Both ---- */

static struct hf_op *new_op(struct hfi_hold *hold, const struct hfi_kind *kind) {
    unsigned char id[HFI_ID_LEN];
    struct hfi_op_args args = {.verb = &hfi_verb_let_go,
                               .kind = kind,
                               .name = hold->name,
                               .name_len = hold->name_len,
                               .owner = hold->number,
                               .lane = HFI_LANE_KEEPER,
                               .exec = hold->core->keeper};
    if (hfi_hold_is_permit(hold)) {
        read_id(hold, id);
        args.verb = &hfi_verb_permits_let_go;
        args.ids = id;
        args.ids_len = 1;
    }
    return hfi_op_new(hold->core, &args);
}

/* False: no memory. */
static bool begin(struct hfi_hold *hold, const struct hfi_kind *kind) {
    struct hf_op *op = new_op(hold, kind);
    if (op == NULL)
        return false;
    if (hfi_hold_is_permit(hold))
        stop_letting_go(hold); /* it has no turn to keep others from */
    hold->core->let_go.running++;
    hfi_op_begin(op);
    hfi_task_unref(&op->task);
    return true;
}

/* The one that has waited longest, if its time has come. */
static struct hfi_hold *next_hold(struct hfi_core *core) {
    if (hfi_list_empty(&core->let_go.holds) || core->let_go.running >= RUNNING_MAX)
        return NULL;
    struct hfi_hold *hold = HFI_CONTAINER(core->let_go.holds.next, struct hfi_hold, let_go_link);
    if (hfi_now_ms() < hold->let_go_at_ms) {
        hfi_alarm_set(core->keeper, &core->let_go.alarm, hold->let_go_at_ms);
        return NULL;
    }
    hfi_list_remove(&hold->let_go_link);
    return hold;
}

static void put_off(struct hfi_hold *hold) {
    pthread_mutex_lock(&hold->shard->mtx);
    hfi_hold_let_go_at_locked(hold, hfi_now_ms() + AGAIN_MS);
    pthread_mutex_unlock(&hold->shard->mtx);
    hfi_list_push_back(&hold->core->let_go.holds, &hold->let_go_link);
}

void hfi_let_go_begin(struct hfi_core *core) {
    struct hfi_hold *hold;
    while ((hold = next_hold(core)) != NULL) {
        const struct hfi_kind *kind;
        if (!is_wanted(hold, &kind)) {
            stop_letting_go(hold);
        } else if (!begin(hold, kind)) {
            put_off(hold);
            continue;
        }
        hfi_hold_unref(hold); /* the list's */
    }
}
