/*
 * This client's report for a survey (hf_survey()): what it holds and waits for.
 *
 * The engine calls it on the keeper's thread when a survey request has come, and sends the text
 * that src/fleet/report.c makes of it. Holds and operations are visited shard by shard, under its
 * mutex, so the report is consistent only within a shard. A loss is announced without being asked,
 * because its client may end before it is. A wait is an operation that may wait and
 * has not completed for its caller. An operation queued behind its own owner is reported as well,
 * since that owner waits.
 */
#include "core/op/op.h"
#include "fleet/report.h"

#include <string.h>

#define NAMES_MAX 64 /* thread names read per report: some ten microseconds each */

/* -1: there is no such time. */
static int64_t left_of_ms(int64_t until_ms) {
    return until_ms == HFI_NEVER ? -1 : hfi_left_ms(until_ms);
}

/* The receiver of the report. */
struct listener {
    hfi_survey_entry_fn *visit;
    void *arg;
    int64_t now_ms;
    int may_ask; /* how many more thread names it may read */
};

static void name_thread(struct hfi_thread_record *self, struct listener *listener,
                        char name[HFI_THREAD_NAME_SIZE]) {
    name[0] = '\0';
    if (self != NULL)
        hfi_thread_record_name(self, &listener->may_ask, name);
}

static void visit_hold(const struct hfi_hold *hold, struct listener *listener) {
    char thread[HFI_THREAD_NAME_SIZE];
    if (hold->count == 0 || !hfi_kind_is_reported(hold->kind))
        return;
    name_thread(hold->self, listener, thread);
    const struct hfi_survey_entry entry = {
        .kind = hold->held_as != NULL ? hold->held_as : hold->kind,
        .name = hold->name,
        .name_len = hfi_kind_stem_len(hold->kind, hold->name, hold->name_len),
        .owner = hold->owner,
        .owner_len = hold->owner_len,
        .count = hold->count,
        .for_ms = listener->now_ms - hold->since_us / 1000,
        .left_ms = left_of_ms(hfi_hold_deadline_ms(hold)),
        .renewed = hfi_hold_is_watched(hold) && !hfi_hold_has_no_lease(hold),
        .thread = thread,
    };
    listener->visit(listener->arg, &entry);
}

/* One that settles has completed for its caller. */
static bool is_wait(const struct hf_op *op) {
    return op->verb->waits && op->wait_ms != 0 && !op->over && !op->inner &&
           hfi_kind_is_reported(op->kind) && op->verb != &hfi_verb_survey;
}

static void visit_wait(const struct hf_op *op, struct listener *listener) {
    char thread[HFI_THREAD_NAME_SIZE];
    if (!is_wait(op))
        return;
    name_thread(op->compact ? NULL : op->work->self, listener, thread);
    char owner[HFI_OWNER_MAX];
    const struct hfi_survey_entry entry = {
        .waits = true,
        .kind = op->kind,
        .name = op->name,
        .name_len = hfi_kind_stem_len(op->kind, op->name, op->name_len),
        .owner = owner,
        .owner_len = hfi_owner_text(op->core, op->owner, owner),
        .for_ms = listener->now_ms - hfi_op_start_ms(op),
        .left_ms = left_of_ms(op->deadline_ms),
        .thread = thread,
    };
    listener->visit(listener->arg, &entry);
}

static void visit_shard(struct hfi_shard *shard, struct listener *listener) {
    listener->now_ms = hfi_now_ms();
    pthread_mutex_lock(&shard->mtx);
    for (struct hfi_hold *hold = hfi_hold_first_locked(shard); hold != NULL;
         hold = hfi_hold_next_locked(hold))
        visit_hold(hold, listener);
    for (struct hfi_link *link = shard->ops.next; link != &shard->ops; link = link->next)
        visit_wait(HFI_CONTAINER(link, struct hf_op, shard_link), listener);
    pthread_mutex_unlock(&shard->mtx);
}

static uint64_t read_counter(atomic_ullong *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static bool describe_client(void *arg, struct hfi_survey_client *ret) {
    struct hfi_core *core = arg;
    struct hfi_counters *counters = &core->counters;
    if (core->report_after_ms < 0)
        return false;
    *ret = (struct hfi_survey_client){.id = core->id,
                                      .up_ms = hfi_now_ms() - core->since_ms,
                                      .under = core->under[0] != '\0' ? core->under : NULL,
                                      .acquired = read_counter(&counters->acquired),
                                      .contended = read_counter(&counters->contended),
                                      .timed_out = read_counter(&counters->timed_out),
                                      .released = read_counter(&counters->released),
                                      .renewals = read_counter(&counters->renewals),
                                      .losses = read_counter(&counters->losses),
                                      .renew_failures = read_counter(&counters->renew_failures)};
    hfi_times_read(&core->wait, &ret->wait);
    hfi_times_read(&core->hold, &ret->hold);
    hfi_times_read(&core->hand_over, &ret->hand_over);
    return true;
}

static void visit_entries(void *arg, hfi_survey_entry_fn *visit, void *visit_arg) {
    struct hfi_core *core = arg;
    struct listener listener = {.visit = visit, .arg = visit_arg, .may_ask = NAMES_MAX};
    for (int i = 0; i < HFI_SHARDS; i++)
        visit_shard(&core->shards[i], &listener);
}

static void visit_times(void *arg, hfi_named_times_fn *visit, void *visit_arg) {
    const struct hfi_core *core = arg;
    if (core->stats_table != NULL)
        hfi_name_stats_table_report(core->stats_table, visit, visit_arg);
}

static bool report(void *arg, const struct hfi_report_request *request, struct hfi_json *json) {
    const struct hfi_report_source source = {
        .client = describe_client, .entries = visit_entries, .times = visit_times, .arg = arg};
    return hfi_report_write(request, &source, json);
}

/* A core without handles is a part of another, which counts the loss. */
void hfi_announce_loss(struct hfi_core *core) {
    const struct hfi_observe_ops *observe = core->engine->ops->observe;
    if (core->report_after_ms >= 0 && core->stats_table != NULL && observe->announce != NULL)
        observe->announce(core->engine);
}

bool hfi_is_announcing_loss(const struct hfi_core *core) {
    const struct hfi_observe_ops *observe = core->engine->ops->observe;
    return observe->is_announcing != NULL && observe->is_announcing(core->engine);
}

static void waits(void *arg) {
    hfi_listen_for_waits(arg);
}

const struct hfi_reporter hfi_core_reporter = {.report = report, .waits = waits};

/* In each shard operations behind the first have begun later; they are only counted. */
static struct hfi_waits measure_waits(struct hfi_core *core, bool count) {
    struct hfi_waits waits = {.since_ms = HFI_NEVER};
    for (int i = 0; i < HFI_SHARDS; i++) {
        struct hfi_shard *shard = &core->shards[i];
        uint64_t len_before = waits.len;
        pthread_mutex_lock(&shard->mtx);
        for (struct hfi_link *link = shard->ops.next; link != &shard->ops; link = link->next) {
            const struct hf_op *op = HFI_CONTAINER(link, struct hf_op, shard_link);
            if (!is_wait(op))
                continue;
            if (waits.len++ == len_before)
                waits.since_ms = hfi_min_ms(waits.since_ms, hfi_op_start_ms(op));
            if (!count)
                break;
        }
        pthread_mutex_unlock(&shard->mtx);
    }
    return waits;
}

struct hfi_waits hfi_survey_entry_waits(struct hfi_core *core) {
    return measure_waits(core, true);
}

int64_t hfi_survey_entry_oldest_wait_ms(struct hfi_core *core) {
    return measure_waits(core, false).since_ms;
}
