/*
 * Bundles (bundle.h).
 *
 * The executor of the bundle's call uses it, and the keepers of the parts' clients write its slots.
 * Its mutex guards both, and is taken before that of any task. Events go to calls of the core of
 * the whole; operations begin in the parts' cores.
 */
#include "joint/multi/bundle.h"

#include <string.h>

#define NAME_SHOWN 100 /* bytes of a name in an error text: the reason must fit, too */

/* ---- Life ---- */

void hfi_bundle_unref(struct hfi_bundle *bundle) {
    if (atomic_fetch_sub_explicit(&bundle->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct hfi_parts *parts = bundle->parts;
    for (size_t i = 0; i < parts->len; i++) {
        if (bundle->slots[i].give_back != NULL)
            hfi_task_unref(&bundle->slots[i].give_back->task);
        hfi_stake_unref(bundle->stakes[i]);
    }
    if (bundle->task != NULL)
        hfi_task_unref(bundle->task);
    pthread_mutex_destroy(&bundle->mtx);
    hfi_free(bundle->mem, bundle);
    hfi_parts_unref(parts); /* may free the clients' memory */
}

static struct hf_op *new_op(struct hfi_bundle *bundle, size_t i, struct hfi_op_args *args) {
    const struct hfi_part *part = &bundle->parts->of[i];
    args->kind = part->kind;
    args->name = part->name;
    args->name_len = part->name_len;
    args->name_stats = &bundle->parts->stats_table[i];
    args->lane = HFI_LANE_KEEPER;
    args->exec = part->core->keeper;
    args->stake = bundle->stakes[i];
    args->user = &bundle->slots[i];
    return hfi_op_new(part->core, args);
}

static void on_left(void *user, const hf_result *result);

static bool prepare_leaving(struct hfi_bundle *bundle, size_t i, hf_owner owner) {
    struct hfi_op_args args = {.verb = &hfi_verb_give_back, .owner = owner, .on_result = on_left};
    bundle->stakes[i] = hfi_stake_new(&bundle->parts->of[i], bundle->core);
    if (bundle->stakes[i] != NULL)
        bundle->slots[i].give_back = new_op(bundle, i, &args);
    return bundle->slots[i].give_back != NULL;
}

static void give_back_share(struct hfi_share *share);
static void let_run_out(struct hfi_share *share);

static struct hfi_bundle *allocate(const struct hf_op *op) {
    const struct hfi_mem *mem = op->core->mem;
    size_t len = op->call->parts->len, slots_size = len * sizeof(struct hfi_slot);
    struct hfi_bundle *bundle =
        hfi_zalloc(mem, sizeof(struct hfi_bundle) + slots_size + len * sizeof(struct hfi_stake *));
    if (bundle == NULL)
        return NULL;
    atomic_init(&bundle->refs, 1);
    bundle->mem = mem;
    bundle->core = op->core;
    pthread_mutex_init(&bundle->mtx, NULL);
    bundle->stakes = (struct hfi_stake **)(void *)((char *)bundle->slots + slots_size);
    bundle->share = (struct hfi_share){.len = len,
                                       .stakes = bundle->stakes,
                                       .give_back = give_back_share,
                                       .let_run_out = let_run_out};
    bundle->parts = op->call->parts;
    hfi_parts_ref(bundle->parts);
    return bundle;
}

struct hfi_bundle *hfi_bundle_new(struct hfi_call *call, bool holds) {
    const struct hf_op *op = hfi_op_of_call(call);
    struct hfi_bundle *bundle = allocate(op);
    if (bundle == NULL)
        return NULL;
    for (size_t i = 0; i < bundle->parts->len; i++) {
        bundle->slots[i].bundle = bundle;
        if (holds && !prepare_leaving(bundle, i, op->owner)) {
            hfi_bundle_unref(bundle);
            return NULL;
        }
    }
    hfi_bundle_report(bundle, call);
    return bundle;
}

/* ---- Operations ---- */

/* The client of the whole stays open while one of its calls, or its keeper, runs here. False: the
 * part's client is closed. */
static bool post_begin(const struct hfi_bundle *bundle, struct hfi_core *core, struct hf_op *op) {
    const struct hfi_core_hooks *hooks = &core->hooks;
    if (core != bundle->core && !hooks->enter(hooks->arg))
        return false;
    if (op->verb->gives_back)
        atomic_fetch_add(&core->returns, 1);
    hfi_task_post(&op->task, HFI_OP_BEGIN);
    if (core != bundle->core)
        hooks->leave(hooks->arg);
    return true;
}

/* With the bundle locked; the slot owns `op` from now on. False: it did not begin. */
static bool set_off_locked(struct hfi_slot *slot, struct hf_op *op) {
    struct hfi_bundle *bundle = slot->bundle;
    slot->op = op;
    if (!post_begin(bundle, op->core, op)) {
        slot->op = NULL;
        slot->code = HF_ECLOSED;
        hfi_fail(&slot->error, HF_ECLOSED, "%s", hf_strerror(HF_ECLOSED));
        hfi_task_unref(&op->task);
        return false;
    }
    bundle->under_way++;
    atomic_fetch_add_explicit(&bundle->refs, 1, memory_order_relaxed);
    return true;
}

/* The slot's operation has ended, and another may have begun. Unlocks the bundle. */
static void end_locked(struct hfi_slot *slot, struct hf_op *op) {
    struct hfi_bundle *bundle = slot->bundle;
    struct hfi_task *task = NULL;
    if (--bundle->under_way == 0 && bundle->task != NULL) {
        task = bundle->task;
        hfi_task_ref(task);
    }
    pthread_mutex_unlock(&bundle->mtx);
    if (task != NULL) {
        hfi_task_post(task, HFI_BUNDLE_EVENT);
        hfi_task_unref(task);
    }
    hfi_task_unref(&op->task);
    hfi_bundle_unref(bundle);
}

/* Writes the outcome to the slot. Returns the operation, whose reference the caller drops. */
static struct hf_op *take_outcome_locked(struct hfi_slot *slot, const hf_result *result) {
    struct hf_op *op = slot->op;
    slot->op = NULL;
    slot->code = result->code;
    slot->error = result->error;
    slot->value = result->value;
    return op;
}

static void leave_locked(struct hfi_slot *slot) {
    struct hf_op *op = slot->give_back;
    slot->give_back = NULL;
    hfi_op_set_off(op);
    slot->state = set_off_locked(slot, op) ? HFI_SLOT_LEAVING : HFI_SLOT_EMPTY;
}

static void on_granted(void *user, const hf_result *result) {
    struct hfi_slot *slot = user;
    struct hfi_bundle *bundle = slot->bundle;
    pthread_mutex_lock(&bundle->mtx);
    struct hf_op *op = take_outcome_locked(slot, result);
    slot->contended = op->call->contended;
    slot->state = slot->code == HF_OK ? HFI_SLOT_HELD : HFI_SLOT_FAILED;
    if (bundle->unwanted && slot->state == HFI_SLOT_HELD)
        leave_locked(slot);
    end_locked(slot, op);
}

static void on_left(void *user, const hf_result *result) {
    struct hfi_slot *slot = user;
    pthread_mutex_lock(&slot->bundle->mtx);
    struct hf_op *op = take_outcome_locked(slot, result);
    slot->state = HFI_SLOT_EMPTY;
    end_locked(slot, op);
}

static void on_part_done(void *user, const hf_result *result) {
    struct hfi_slot *slot = user;
    pthread_mutex_lock(&slot->bundle->mtx);
    struct hf_op *op = take_outcome_locked(slot, result);
    if (slot->bundle->unwanted && slot->state == HFI_SLOT_HELD)
        leave_locked(slot);
    end_locked(slot, op);
}

int hfi_bundle_begin(struct hfi_bundle *bundle, size_t i, struct hfi_op_args *args) {
    struct hfi_slot *slot = &bundle->slots[i];
    bool acquires = args->verb->acquires;
    args->spin = &bundle->parts->of[i].spin;
    args->on_result = acquires ? on_granted : on_part_done;
    struct hf_op *op = new_op(bundle, i, args);
    if (op == NULL)
        return HF_ENOMEM;
    pthread_mutex_lock(&bundle->mtx);
    bool begun = set_off_locked(slot, op);
    if (acquires)
        slot->state = begun ? HFI_SLOT_ASKED : HFI_SLOT_FAILED;
    pthread_mutex_unlock(&bundle->mtx);
    return HF_OK;
}

bool hfi_bundle_is_idle(struct hfi_bundle *bundle) {
    pthread_mutex_lock(&bundle->mtx);
    bool idle = bundle->under_way == 0;
    pthread_mutex_unlock(&bundle->mtx);
    return idle;
}

void hfi_bundle_give_back(struct hfi_bundle *bundle) {
    pthread_mutex_lock(&bundle->mtx);
    bundle->unwanted = true;
    for (size_t i = 0; i < bundle->parts->len; i++) {
        struct hfi_slot *slot = &bundle->slots[i];
        if (slot->state == HFI_SLOT_HELD && slot->op == NULL)
            leave_locked(slot);
        else if (slot->state == HFI_SLOT_ASKED)
            hfi_task_post(&slot->op->task, HFI_OP_CANCEL);
    }
    pthread_mutex_unlock(&bundle->mtx);
}

/* ---- Events ---- */

void hfi_bundle_report(struct hfi_bundle *bundle, struct hfi_call *call) {
    if (call != NULL)
        hfi_task_ref(call->task);
    pthread_mutex_lock(&bundle->mtx);
    struct hfi_task *old = bundle->task;
    bundle->task = call != NULL ? call->task : NULL;
    pthread_mutex_unlock(&bundle->mtx);
    if (old != NULL)
        hfi_task_unref(old);
}

void hfi_bundle_leave_alone(struct hfi_bundle *bundle) {
    hfi_bundle_report(bundle, NULL);
    hfi_bundle_unref(bundle);
}

/* ---- As a share ---- */

static void give_back_share(struct hfi_share *share) {
    struct hfi_bundle *bundle = hfi_bundle_of_share(share);
    hfi_bundle_give_back(bundle);
    hfi_bundle_leave_alone(bundle);
}

/* The closing client stops renewing its own parts; stop renewing the other clients' parts, too. */
static void let_run_out(struct hfi_share *share) {
    struct hfi_bundle *bundle = hfi_bundle_of_share(share);
    for (size_t i = 0; i < bundle->parts->len; i++) {
        struct hfi_slot *slot = &bundle->slots[i];
        if (slot->give_back->core == bundle->core)
            continue;
        slot->give_back->verb = &hfi_verb_run_out;
        pthread_mutex_lock(&bundle->mtx);
        leave_locked(slot);
        pthread_mutex_unlock(&bundle->mtx);
    }
    hfi_bundle_leave_alone(bundle);
}

/* ---- Outcome ---- */

int hfi_bundle_error(const struct hfi_bundle *bundle, size_t i, hf_error *error) {
    const struct hfi_part *part = &bundle->parts->of[i];
    const struct hfi_slot *slot = &bundle->slots[i];
    const char *text = slot->error.text[0] != '\0' ? slot->error.text : hf_strerror(slot->code);
    size_t len = hfi_kind_stem_len(part->kind, part->name, part->name_len);
    bool all = len <= NAME_SHOWN;
    *error = slot->error;
    hfi_fail(error, slot->code, "'");
    hfi_error_quote(error, part->name, all ? len : NAME_SHOWN);
    hfi_error_quote(error, all ? "': " : "...': ", all ? 3 : 6);
    hfi_error_quote(error, text, strlen(text));
    return slot->code;
}

static int badness(int code) {
    switch (code) {
    case HF_OK:
        return 0;
    case HF_ELOST:
        return 4;
    case HF_ENOTOWNER:
        return 3;
    case HF_EINDOUBT:
        return 2;
    default:
        return 1;
    }
}

int hfi_bundle_worst(const struct hfi_bundle *bundle, hf_error *error) {
    size_t worst = 0;
    for (size_t i = 1; i < bundle->parts->len; i++)
        if (badness(bundle->slots[i].code) > badness(bundle->slots[worst].code))
            worst = i;
    return bundle->slots[worst].code == HF_OK ? HF_OK : hfi_bundle_error(bundle, worst, error);
}
