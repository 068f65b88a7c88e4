/*
 * The watchdog: renewals, deadlines, warnings, and threads that ended while holding.
 *
 * Every hold has one alarm on the keeper, set to the next moment anything is to be done for it.
 * Renewals that come due together are gathered and sent in batches. The next is planned from when
 * the last was sent, not from its answer, since the lease counts from there too. A failed renewal
 * is tried again soon, and the sooner the less is left, until the deadline: no error ends the
 * watchdog but the hold's own end. A hold has one renewal under way at a time; another on the same
 * connection would only wait behind it, and a connection that answers nothing is given up by the
 * engine. Times of renewal are rounded down to a sixteenth of the period, so that ten thousand
 * holds make a hundred batches and not ten thousand.
 *
 * Alarms, the gathering and the answers all run on the keeper's thread; a hold's state is the
 * shard's. An armed alarm, a place in `due` and a place in a batch each keep the hold alive.
 */
#include "core/core.h"
#include "core/op.h"

#include <assert.h>
#include <string.h>

#define EVENT_GATHER 0x01u
#define EVENT_RECONNECTED 0x02u
#define ROUNDING_MS 2 /* the clocks of both sides are read in whole milliseconds */

struct batch {
    struct hfi_renewal renewal;
    struct hfi_core *core;
    struct hfi_hold *holds[HFI_RENEWAL_MAX];
    uint64_t generations[HFI_RENEWAL_MAX];
};

static int64_t period_ms(const struct hfi_core *core) {
    return core->watchdog_ms / 3;
}

/* Is the hold to be renewed? To lengthen its lease, because others may have shortened what is left
 * of it, or once, to get its lease in the first place. */
static bool is_renewed(const struct hfi_hold *hold) {
    return hold->watchdog || hold->kept_fresh || hold->provisional_ms > 0;
}

/* The lease to renew it with. One that is only kept fresh never gets more than it was promised, and
 * one that is only asked about nothing at all. */
static int64_t renewal_lease_ms(const struct hfi_hold *hold, int64_t now_ms) {
    if (!is_renewed(hold))
        return hold->verify_at_ms != 0;
    int64_t left_ms = hold->kept_fresh ? hold->deadline_ms - now_ms : 0;
    if (hold->provisional_ms > 0)
        left_ms = hold->promised_until_ms - now_ms;
    int64_t lease_ms = hold->watchdog ? hold->core->watchdog_ms : 0;
    return lease_ms > left_ms ? lease_ms : left_ms;
}

/* When to warn: half the lease for one that should have been renewed by now, a quarter for a fixed
 * one. */
static int64_t warn_at_ms(const struct hfi_hold *hold) {
    int64_t lease_ms = hold->watchdog ? hold->core->watchdog_ms : hold->lease_ms;
    if (hold->provisional_ms > 0)
        return hold->deadline_ms - hold->provisional_ms / 4;
    return hold->deadline_ms - (hold->watchdog ? lease_ms / 2 : lease_ms / 4);
}

static int64_t min_ms(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Renewals due within so much time of each other go together. */
static int64_t slot_of(const struct hfi_hold *hold) {
    return hold->provisional_ms > 0 || hold->renews_exactly ? 1 : period_ms(hold->core) / 16;
}

static int64_t listen_at_ms(const struct hfi_hold *hold) {
    return hold->since_us / 1000 + HFI_REPORT_AFTER_MS;
}

static void alarm_fired(struct hfi_alarm *alarm);

static void set_alarm_locked(struct hfi_hold *hold, int64_t at_ms) {
    hold->alarm.fire = alarm_fired;
    hfi_hold_ref(hold);
    if (hfi_alarm_clear(hold->core->keeper, &hold->alarm))
        hfi_hold_unref(hold);
    hfi_alarm_set(hold->core->keeper, &hold->alarm, at_ms);
}

void hfi_watchdog_look_later_locked(struct hfi_hold *hold, int64_t at_ms) {
    set_alarm_locked(hold, at_ms);
}

void hfi_watchdog_arm_locked(struct hfi_hold *hold) {
    int64_t at_ms = hold->deadline_ms;
    if (is_renewed(hold) && !hold->renewing) {
        int64_t slot_ms = slot_of(hold);
        at_ms =
            min_ms(at_ms, slot_ms > 1 ? hold->renew_at_ms / slot_ms * slot_ms : hold->renew_at_ms);
    }
    if (hold->verify_at_ms != 0 && !hold->renewing)
        at_ms = min_ms(at_ms, hold->verify_at_ms);
    if (!hold->warned)
        at_ms = min_ms(at_ms, warn_at_ms(hold));
    if (!atomic_load_explicit(&hold->core->listening, memory_order_relaxed))
        at_ms = min_ms(at_ms, listen_at_ms(hold));
    set_alarm_locked(hold, at_ms);
}

void hfi_watchdog_disarm_locked(struct hfi_hold *hold) {
    if (hfi_alarm_clear(hold->core->keeper, &hold->alarm))
        hfi_hold_unref(hold);
}

static bool past_max_hold(const struct hfi_hold *hold, int64_t now_ms) {
    int64_t max_ms = hold->core->max_hold_ms;
    return max_ms > 0 && now_ms - hold->since_us / 1000 >= max_ms;
}

static void queue_renewal_locked(struct hfi_hold *hold) {
    hold->renewing = true;
    hfi_hold_ref(hold);
    hfi_list_push_back(&hold->core->due, &hold->due_link);
    hfi_task_post(hold->core->watchdog, EVENT_GATHER);
}

static bool is_due(const struct hfi_hold *hold, int64_t now_ms) {
    if (hold->renewing)
        return false;
    int64_t early_ms = hold->renews_exactly ? 0 : period_ms(hold->core) / 16;
    return (is_renewed(hold) && now_ms + early_ms >= hold->renew_at_ms) ||
           (hold->verify_at_ms != 0 && now_ms >= hold->verify_at_ms);
}

/* Looks after a hold that has time left. True: it is to be warned of. */
static bool attend_locked(struct hfi_hold *hold, int64_t now_ms) {
    if (hold->watchdog && past_max_hold(hold, now_ms))
        /* asked for by max_hold_ms: let it run out, with a warning */
        hold->watchdog = false;
    if (is_due(hold, now_ms))
        queue_renewal_locked(hold);
    bool warn = !hold->warned && now_ms >= warn_at_ms(hold);
    hold->warned |= warn;
    hfi_watchdog_arm_locked(hold);
    return warn;
}

/* Something is due for this hold. */
static void alarm_fired(struct hfi_alarm *alarm) {
    struct hfi_hold *hold = HFI_CONTAINER(alarm, struct hfi_hold, alarm);
    struct hfi_core *core = hold->core;
    int64_t now_ms = hfi_now_ms();
    bool lost = false, warn = false;
    pthread_mutex_lock(&hold->shard->mtx);
    bool old = hold->count > 0 && now_ms >= listen_at_ms(hold);
    if (hold->count > 0 && now_ms >= hold->deadline_ms) {
        lost = hfi_hold_run_out_locked(hold);
        hfi_let_go_locked(hold);
        old = false;
    } else if (hold->count > 0) {
        warn = attend_locked(hold, now_ms);
    }
    hfi_hold_tidy_locked(hold);
    pthread_mutex_unlock(&hold->shard->mtx);
    if (old)
        hfi_listen(core);
    if (warn)
        hfi_hold_report(hold, HFI_WARNING);
    if (lost)
        hfi_hold_report(hold, HFI_LOST);
    hfi_let_go_begin(core);
    hfi_hold_unref(hold); /* the alarm's */
}

/* The server has renewed it. */
static void keep_locked(struct hfi_hold *hold, const struct hfi_renewal_item *item) {
    if (!is_renewed(hold))
        return; /* it was only asked about */
    if (hold->watchdog || hold->provisional_ms > 0) {
        if (item->valid_until_ms > hold->deadline_ms)
            hold->deadline_ms = item->valid_until_ms;
        hold->warned = false;
    }
    hold->provisional_ms = 0;
    hold->renew_at_ms = item->sent_ms + period_ms(hold->core);
    hold->renews_exactly = false;
    hfi_count(&hold->core->counters.renewals);
}

/* It was not answered, or refused. The time between two attempts is a part of what is left, so that
 * there are always some to come. */
static void try_again_locked(struct hfi_hold *hold, int64_t now_ms) {
    int64_t pause_ms = min_ms(period_ms(hold->core) / 8, 1000);
    if (hold->provisional_ms > 0)
        pause_ms = min_ms(pause_ms, hold->provisional_ms / 8);
    pause_ms = min_ms(pause_ms, (hold->deadline_ms - now_ms) / 8);
    hold->renew_at_ms = now_ms + (pause_ms > 10 ? pause_ms : 10);
    hold->renews_exactly = true;
    if (hold->verifying)
        hold->verify_at_ms = hold->renew_at_ms;
    hfi_count(&hold->core->counters.renew_failures);
}

/* The server does not have it. True: it is lost, and that is news. */
static bool miss_locked(struct hfi_hold *hold, int answer, const char *why, int64_t now_ms) {
    if (hold->active != NULL) {
        /* Perhaps the command under way has just released it: that command will find out, or the
         * next renewal. */
        hold->renew_at_ms = now_ms + period_ms(hold->core) / 8;
        if (hold->verifying)
            hfi_verify_locked(hold);
        return false;
    }
    if (answer != 0)
        why = "something else is stored under its name";
    else if (why == NULL)
        why = "it is gone from the server (broken, deleted, or the server lost its data)";
    bool lost = hfi_hold_lose_locked(hold, why);
    if (answer == 0 && hold->kind->leaves_traces) {
        hold->leftover = true;
        hfi_let_go_locked(hold);
    }
    return lost;
}

/* A renewal has ended. What it left at the server, if it was not answered, may act until then. */
static void note_end_locked(struct hfi_hold *hold, bool answered, int64_t now_ms) {
    hold->renewing = false;
    if (!answered)
        hold->lost_renewal_until_ms = hold->renewal_until_ms;
    else if (hold->lost_renewal_until_ms > now_ms)
        hold->renewal_until_ms = hold->lost_renewal_until_ms;
    else
        hold->renewal_until_ms = 0;
    if (hold->renewal_until_ms == 0 && hold->renewal_awaited && hold->active != NULL)
        hfi_task_post(&hold->active->task, HFI_OP_TURN);
}

/* What the server said about one hold in a batch, or that it said nothing. */
static void renewed(struct hfi_hold *hold, uint64_t generation, int err,
                    const struct hfi_renewal_item *item, const char *gone) {
    bool lost = false;
    int64_t now_ms = hfi_now_ms();
    pthread_mutex_lock(&hold->shard->mtx);
    note_end_locked(hold, err == HF_OK, now_ms);
    if (hold->count > 0 && hold->generation == generation) {
        if (err != HF_OK)
            try_again_locked(hold, now_ms);
        else if (item->answer == 1)
            keep_locked(hold, item);
        else
            lost = miss_locked(hold, item->answer, gone, now_ms);
    }
    hold->verifying = false;
    if (hold->count > 0 && (is_renewed(hold) || hold->verify_at_ms != 0))
        hfi_watchdog_arm_locked(hold); /* also a possession that began meanwhile */
    hfi_hold_tidy_locked(hold);
    pthread_mutex_unlock(&hold->shard->mtx);
    if (lost)
        hfi_hold_report(hold, HFI_LOST);
    hfi_let_go_begin(hold->core);
}

static void batch_done(struct hfi_renewal *renewal) {
    struct batch *batch = HFI_CONTAINER(renewal, struct batch, renewal);
    struct hfi_core *core = batch->core;
    if (renewal->error.code != HF_OK && renewal->error.code != HF_ECLOSED)
        hfi_log(core->log, HF_LOG_WARN, "renewal of %s%zu holds failed: %s",
                renewal->err == HF_OK ? "some of " : "", renewal->len, renewal->error.text);
    for (size_t i = 0; i < renewal->len; i++) {
        const struct hfi_renewal_item *item = &renewal->items[i];
        bool answered = item->answer >= 0 || item->answer == HF_EWRONGTYPE;
        int err = renewal->err != HF_OK || answered ? renewal->err : item->answer;
        renewed(batch->holds[i], batch->generations[i], err, item, renewal->gone);
        hfi_hold_unref(batch->holds[i]);
    }
    hfi_free(core->mem, batch);
}

/* False: it has been released since it came due, so it is not renewed; its reference is dropped. */
static bool begin_renewal(struct hfi_hold *hold, int64_t deadline_ms, uint64_t *ret_generation,
                          int64_t *ret_lease_ms) {
    pthread_mutex_lock(&hold->shard->mtx);
    int64_t lease_ms = renewal_lease_ms(hold, hfi_now_ms());
    bool verify = hold->verify_at_ms != 0;
    bool wanted = hold->count > 0 && (is_renewed(hold) || verify) && lease_ms > 0;
    if (wanted) {
        if (deadline_ms + ROUNDING_MS > hold->renewal_until_ms)
            hold->renewal_until_ms = deadline_ms + ROUNDING_MS;
        hold->verifying = verify;
        hold->verify_at_ms = 0;
        if (verify)
            hold->verified_ms = hfi_now_ms();
        *ret_generation = hold->generation;
        *ret_lease_ms = lease_ms;
    } else {
        hold->renewing = false;
        hfi_hold_tidy_locked(hold);
    }
    pthread_mutex_unlock(&hold->shard->mtx);
    if (!wanted)
        hfi_hold_unref(hold);
    return wanted;
}

static void fill_batch(struct hfi_core *core, struct batch *batch) {
    struct hfi_renewal *renewal = &batch->renewal;
    struct hfi_link *link;
    while (renewal->len < HFI_RENEWAL_MAX && (link = hfi_list_pop_front(&core->due)) != NULL) {
        struct hfi_hold *hold = HFI_CONTAINER(link, struct hfi_hold, due_link);
        int64_t lease_ms;
        if (!begin_renewal(hold, renewal->deadline_ms, &batch->generations[renewal->len],
                           &lease_ms))
            continue;
        size_t i = renewal->len++;
        renewal->items[i] = (struct hfi_renewal_item){.kind = hold->kind,
                                                      .name = hold->name,
                                                      .name_len = hold->name_len,
                                                      .owner = hold->owner,
                                                      .owner_len = hold->owner_len,
                                                      .lease_ms = lease_ms};
        batch->holds[i] = hold;
    }
}

static void gather(struct hfi_core *core) {
    while (!hfi_list_empty(&core->due)) {
        struct batch *batch = hfi_zalloc(core->mem, sizeof *batch);
        if (batch == NULL) { /* try again soon: there is time until the deadlines */
            struct hfi_hold *hold =
                HFI_CONTAINER(hfi_list_pop_front(&core->due), struct hfi_hold, due_link);
            uint64_t generation;
            int64_t lease_ms;
            if (begin_renewal(hold, 0, &generation, &lease_ms)) {
                renewed(hold, generation, HF_ENOMEM, NULL, NULL);
                hfi_hold_unref(hold);
            }
            continue;
        }
        batch->core = core;
        batch->renewal.deadline_ms =
            hfi_now_ms() + min_ms(core->cmd_timeout_ms, core->watchdog_ms / 3);
        fill_batch(core, batch);
        batch->renewal.done = batch_done;
        core->engine->ops->renew(core->engine, &batch->renewal);
    }
}

void hfi_for_each_hold(struct hfi_core *core, void (*visit)(struct hfi_hold *hold)) {
    for (int i = 0; i < HFI_SHARDS; i++) {
        struct hfi_hold *hold, *next;
        pthread_mutex_lock(&core->shards[i].mtx);
        HASH_ITER(hh, core->shards[i].holds, hold, next) {
            visit(hold);
        }
        pthread_mutex_unlock(&core->shards[i].mtx);
    }
}

static void renew_now(struct hfi_hold *hold) {
    if (hold->count == 0 || !is_renewed(hold))
        return;
    hold->renew_at_ms = hfi_now_ms();
    hfi_watchdog_arm_locked(hold);
}

/* The hold of a thread that has ended is not renewed any more. */
static void orphan(struct hfi_hold *hold) {
    if (hold->self == NULL || !atomic_load(&hold->self->ended) || hold->orphaned)
        return;
    hold->orphaned = true;
    hold->watchdog = false;
    if (hold->count > 0) {
        hfi_watchdog_arm_locked(hold);
        hfi_hold_ref(hold);
        hfi_list_push_back(&hold->core->due, &hold->due_link); /* borrowed: to be reported below */
    } else {
        hfi_hold_tidy_locked(hold);
    }
}

static void find_orphans(struct hfi_core *core) {
    assert(hfi_list_empty(&core->due));
    hfi_for_each_hold(core, orphan);
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&core->due)) != NULL) {
        struct hfi_hold *hold = HFI_CONTAINER(link, struct hfi_hold, due_link);
        hfi_hold_report(hold, HFI_ORPHANED);
        hfi_hold_unref(hold);
    }
}

struct watchdog {
    struct hfi_task task;
    const struct hfi_mem *mem;
    struct hfi_core *core;
};

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_core *core = HFI_CONTAINER(task, struct watchdog, task)->core;
    gather(core);
    if (events & EVENT_RECONNECTED)
        hfi_for_each_hold(core, renew_now);
    if (events & HFI_SELF_ENDED)
        find_orphans(core);
}

/* Threads may keep a reference to the task after the client is gone, so its memory must not come
 * from the client. */
static void destroy(struct hfi_task *task) {
    struct watchdog *watchdog = HFI_CONTAINER(task, struct watchdog, task);
    hfi_free(watchdog->mem, watchdog);
}

static void reconnected(void *arg) {
    struct hfi_core *core = arg;
    hfi_task_post(core->watchdog, EVENT_RECONNECTED);
}

int hfi_watchdog_init(struct hfi_core *core) {
    static const struct hfi_mem plain_malloc;
    struct watchdog *watchdog = hfi_zalloc(&plain_malloc, sizeof *watchdog);
    if (watchdog == NULL)
        return HF_ENOMEM;
    hfi_task_init(&watchdog->task, core->keeper, run, destroy);
    watchdog->mem = &plain_malloc;
    watchdog->core = core;
    core->watchdog = &watchdog->task;
    core->engine->ops->on_reconnect(core->engine, reconnected, core);
    return HF_OK;
}

void hfi_watchdog_stop(struct hfi_core *core) {
    if (core->watchdog == NULL)
        return;
    hfi_task_retire(core->watchdog);
    hfi_task_unref(core->watchdog);
    core->watchdog = NULL;
}
