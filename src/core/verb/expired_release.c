/*
 * Releases at the server what this client gave up without a release.
 *
 * A hold whose deadline has passed is over for us. Its lease ends at the server a moment later,
 * since it began there a moment later, unless another client has lengthened it. A Java reader's
 * watchdog lengthens everything left in a read/write lock; an unanswered renewal of ours may have
 * lengthened the lease, too. So after that moment the hold is released in the background. Other
 * waiters need not wait for its lease to end a second time. If a verb notices the passed deadline,
 * the verb releases the residue when it completes (hfi_op_complete). What the keeper notices is
 * listed here. Each hold gets an operation that takes its turn and settles a release; their number
 * is limited. The residue of a hold that was lost, but not by its lease, is released at once.
 *
 * The same owner may acquire again meanwhile: the operation then yields, like any settlement, and
 * the acquire takes over what is there. An acquire of an overlapping lock cannot take it over. It
 * waits for the release, which then begins at once. A renewal that arrives after the release finds
 * nothing, so there is nothing to wait for. Permits have no turns, and their ids are never used
 * again.
 *
 * Everything here runs on the keeper's thread; a hold's state belongs to its shard.
 */
#include "core/op/op.h"

#include <string.h>

/* By then a lease that no client lengthens has expired at the server, unless the server does not
 * know the lease. */
#define MOMENT_MS 500
#define RUNNING_MAX 64 /* at a time */
#define AGAIN_MS 1000  /* retry when there was no memory for an operation */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_expired_release_begin(HFI_CONTAINER(alarm, struct hfi_core, expired_release.alarm));
}

void hfi_expired_release_init(struct hfi_core *core) {
    hfi_list_init(&core->expired_release.holds);
    core->expired_release.alarm.fire = alarm_fired;
}

void hfi_expired_release_stop(struct hfi_core *core) {
    struct hfi_link *link;
    hfi_alarm_clear(core->keeper, &core->expired_release.alarm);
    while ((link = hfi_list_pop_front(&core->expired_release.holds)) != NULL)
        hfi_hold_unref(HFI_CONTAINER(link, struct hfi_hold, expired_link));
}

void hfi_expired_release_locked(struct hfi_hold *hold) {
    if (!hfi_hold_has_residue(hold) || hold->releasing_expired || hold->active != NULL)
        return; /* the operation in progress handles it */
    bool at_once = hold->ended != HFI_RAN_OUT || hold->kind->ends_with_session;
    hfi_hold_expired_release_at_locked(hold, hfi_now_ms() + (at_once ? 0 : MOMENT_MS));
    hfi_hold_ref(hold);
    if (at_once)
        hfi_list_push_front(&hold->core->expired_release.holds, &hold->expired_link);
    else
        hfi_list_push_back(&hold->core->expired_release.holds, &hold->expired_link);
}

void hfi_expired_release_check(struct hfi_core *core) {
    hfi_for_each_hold(core, hfi_expired_release_locked);
    hfi_expired_release_begin(core);
}

void hfi_expired_release_rest_locked(struct hfi_hold *hold) {
    hfi_expired_release_locked(hold);
    if (hold->releasing_expired)
        hfi_alarm_set(hold->core->keeper, &hold->core->expired_release.alarm, hfi_now_ms());
}

static void stop_releasing(struct hfi_hold *hold) {
    pthread_mutex_lock(&hold->shard->mtx);
    hfi_hold_expired_release_ended_locked(hold);
    hfi_hold_tidy_locked(hold);
    pthread_mutex_unlock(&hold->shard->mtx);
}

/* No operation works on it meanwhile. *ret_kind: how it was held. */
static bool is_wanted(struct hfi_hold *hold, const struct hfi_kind **ret_kind) {
    pthread_mutex_lock(&hold->shard->mtx);
    bool wanted = hfi_hold_has_residue(hold) && hold->count == 0 && hold->active == NULL;
    *ret_kind = hold->held_as;
    pthread_mutex_unlock(&hold->shard->mtx);
    return wanted;
}

/* ---- Locks ---- */

/* An unanswered renewal may have lengthened the lease. What others keep alive for longer is theirs
 * to end. */
static void settle_release(struct hf_op *op) {
    op->call->settle_release = op->brief = true;
    hfi_op_complete_unsettled(op, HF_OK, NULL, op->core->watchdog_ms);
}

static void expired_release_go(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    pthread_mutex_lock(&op->shard->mtx);
    /* the next operation takes over what is left */
    bool wanted = hfi_hold_has_residue(hold) && hold->count == 0 && hfi_list_empty(&hold->queue);
    if (wanted)
        hfi_hold_await_answer_locked(hold);
    pthread_mutex_unlock(&op->shard->mtx);
    op->call->count = 1;
    if (wanted)
        settle_release(op);
    else
        hfi_op_complete(op, HF_OK, NULL);
}

static void release_next(struct hfi_core *core) {
    core->expired_release.running--;
    if (!hfi_list_empty(&core->expired_release.holds))
        hfi_alarm_set(core->keeper, &core->expired_release.alarm, hfi_now_ms());
}

static void expired_release_finished(struct hf_op *op) {
    if (op->hold != NULL)
        stop_releasing(op->hold);
    release_next(op->core);
}

const struct hfi_verb hfi_verb_expired_release = {.name = "expired release",
                                                  .takes_turn = true,
                                                  .lets_go = true,
                                                  .go = expired_release_go,
                                                  .finished = expired_release_finished};

/* ---- Permits ---- */

static void permits_finished(struct hf_op *op) {
    release_next(op->core);
}

const struct hfi_verb hfi_verb_permits_expired_release = {
    .name = "expired permit release", .go = settle_release, .finished = permits_finished};

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
    struct hfi_op_args args = {.verb = &hfi_verb_expired_release,
                               .kind = kind,
                               .name = hold->name,
                               .name_len = hold->name_len,
                               .owner = hold->number,
                               .lane = HFI_LANE_KEEPER,
                               .exec = hold->core->keeper};
    if (hfi_hold_is_permit(hold)) {
        read_id(hold, id);
        args.verb = &hfi_verb_permits_expired_release;
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
        stop_releasing(hold); /* a permit has no turn that would block other operations */
    hold->core->expired_release.running++;
    hfi_op_begin(op);
    hfi_task_unref(&op->task);
    return true;
}

/* The hold that has waited longest, if its time has come. */
static struct hfi_hold *next_hold(struct hfi_core *core) {
    if (hfi_list_empty(&core->expired_release.holds) ||
        core->expired_release.running >= RUNNING_MAX)
        return NULL;
    struct hfi_hold *hold =
        HFI_CONTAINER(core->expired_release.holds.next, struct hfi_hold, expired_link);
    if (hfi_now_ms() < hold->expired_release_at_ms) {
        hfi_alarm_set(core->keeper, &core->expired_release.alarm, hold->expired_release_at_ms);
        return NULL;
    }
    hfi_list_remove(&hold->expired_link);
    return hold;
}

static void put_off(struct hfi_hold *hold) {
    pthread_mutex_lock(&hold->shard->mtx);
    hfi_hold_expired_release_at_locked(hold, hfi_now_ms() + AGAIN_MS);
    pthread_mutex_unlock(&hold->shard->mtx);
    hfi_list_push_back(&hold->core->expired_release.holds, &hold->expired_link);
}

static bool is_awaited(struct hfi_hold *hold) {
    pthread_mutex_lock(&hold->shard->mtx);
    bool awaited = hold->release_awaited;
    if (awaited)
        hfi_hold_expired_release_at_locked(hold, hfi_now_ms());
    pthread_mutex_unlock(&hold->shard->mtx);
    return awaited;
}

void hfi_expired_release_hasten(struct hfi_core *core) {
    struct hfi_link *next, *link = core->expired_release.holds.next;
    for (; link != &core->expired_release.holds; link = next) {
        next = link->next;
        if (!is_awaited(HFI_CONTAINER(link, struct hfi_hold, expired_link)))
            continue;
        hfi_list_remove(link);
        hfi_list_push_front(&core->expired_release.holds, link);
    }
    hfi_expired_release_begin(core);
}

void hfi_expired_release_begin(struct hfi_core *core) {
    struct hfi_hold *hold;
    while ((hold = next_hold(core)) != NULL) {
        const struct hfi_kind *kind;
        if (!is_wanted(hold, &kind)) {
            stop_releasing(hold);
        } else if (!begin(hold, kind)) {
            put_off(hold);
            continue;
        }
        hfi_hold_unref(hold); /* the list's */
    }
}
