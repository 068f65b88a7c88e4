/*
 * Visits to semaphores, permits and latches: numbers that nobody owns, and permits with an id each.
 *
 * Called by the threads of process.c. The owner that is written down is the thread, for the reader
 * only; the models do not look at it.
 */
#include "kinds.h"

#include "support/new_lock.h"

#include <inttypes.h>
#include <stdio.h>

static struct subject subject_of(const struct player *player, const char *name) {
    return (struct subject){
        .name = name, .kind = player->kind->name, .owner = player->record->process};
}

static int64_t some_wait_ms(struct player *player) {
    return play_chance(player, 40) ? 0 : 1 + play_pick(player, PLAY_WAIT_MS);
}

/* ---- Semaphores ------------------------------------------------------------------------------ */

static int acquire_sem(struct player *player, hf_sem *sem, int64_t permits, int64_t wait_ms,
                       bool cancelled) {
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    hf_op *op;
    options.wait_ms = wait_ms;
    if (!cancelled)
        return hf_sem_acquire_with(sem, permits, &options);
    int err = hf_sem_acquire_start(sem, permits, &options, NULL, NULL, &op);
    if (err != HF_OK)
        return err;
    play_pause(player, 4);
    hf_op_cancel(op);
    err = hf_op_wait(op, HF_FOREVER, NULL);
    hf_op_free(op);
    return err;
}

static void release_sem(struct player *player, hf_sem *sem, const struct subject *subject,
                        int64_t permits) {
    struct operation operation =
        record_call(player->record, subject, "release", "permits=%" PRId64, permits);
    record_return(&operation, hf_sem_release(sem, permits), " ");
}

static void use_sem(struct player *player, hf_sem *sem, const struct subject *subject) {
    int64_t permits = 1 + play_pick(player, 2);
    int64_t wait_ms = some_wait_ms(player);
    bool cancelled = wait_ms > 0 && play_chance(player, 15);
    struct operation operation = record_call(player->record, subject, "acquire",
                                             "permits=%" PRId64 " wait=%" PRId64, permits, wait_ms);
    int err = acquire_sem(player, sem, permits, wait_ms, cancelled);
    record_return(&operation, err, " ");
    if (err != HF_OK)
        return;
    play_pause(player, 4);
    release_sem(player, sem, subject, permits);
}

static void count_sem(struct player *player, hf_sem *sem, const struct subject *subject) {
    int64_t number = 0;
    bool drains = play_chance(player, 10);
    struct operation operation =
        record_call(player->record, subject, drains ? "drain" : "available", " ");
    int err = drains ? hf_sem_drain(sem, &number) : hf_sem_available(sem, &number);
    record_return(&operation, err, "value=%" PRId64, number);
    if (drains && err == HF_OK && number > 0)
        release_sem(player, sem, subject, number);
}

void visit_semaphore(struct player *player, const char *name) {
    struct subject subject = subject_of(player, name);
    own_sem *sem;
    if (hf_sem_new(player->client, name, &sem) != HF_OK)
        support_die("no handle for %s", name);
    unsigned draw = play_pick(player, 100);
    if (draw < 15) {
        bool set = false;
        struct operation operation =
            record_call(player->record, &subject, "try_set", "permits=%d", PLAY_PERMITS);
        int err = hf_sem_try_set(sem, PLAY_PERMITS, 0, &set);
        record_return(&operation, err, "value=%d", set);
    } else if (draw < 30) {
        count_sem(player, sem, &subject);
    } else {
        use_sem(player, sem, &subject);
    }
}

/* ---- Permits --------------------------------------------------------------------------------- */

struct taken {
    struct player *player;
    hf_permits *permits;
    struct subject subject;
    hf_permit_id ids[2];
    int64_t len;
    int64_t lease_ms; /* 0: the watchdog's */
};

static const char *ids_of(const struct taken *taken) {
    static _Thread_local char text[80];
    snprintf(text, sizeof text, "%s%s%s", taken->ids[0].text, taken->len > 1 ? "," : "",
             taken->len > 1 ? taken->ids[1].text : "");
    return text;
}

static void be_sure(const struct taken *taken) {
    for (int64_t i = 0; i < taken->len; i++) {
        int64_t asked_ns = record_now_ns();
        record_sure(taken->player->record, taken->ids[i].text, asked_ns,
                    hf_permits_remaining_ms(taken->permits, &taken->ids[i]));
    }
}

static int acquire_permits(struct taken *taken) {
    struct player *player = taken->player;
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    hf_op *op;
    options.count = taken->len;
    options.wait_ms = some_wait_ms(player);
    options.lease_ms = taken->lease_ms;
    if (options.wait_ms == 0 || !play_chance(player, 15))
        return hf_permits_acquire_with(taken->permits, &options, taken->ids);
    int err = hf_permits_acquire_start(taken->permits, &options, taken->ids, NULL, NULL, &op);
    if (err != HF_OK)
        return err;
    play_pause(player, 4);
    hf_op_cancel(op);
    err = hf_op_wait(op, HF_FOREVER, NULL);
    hf_op_free(op);
    return err;
}

/* The new lease may be shorter: from here on no more than that is promised. */
static void extend_permit(struct taken *taken) {
    int64_t lease_ms = 2 * (int64_t)PLAY_LEASE_MS;
    int64_t asked_ns = record_now_ns();
    int64_t remaining_ms = hf_permits_remaining_ms(taken->permits, &taken->ids[0]);
    record_sure(taken->player->record, taken->ids[0].text, asked_ns,
                remaining_ms < lease_ms ? remaining_ms : lease_ms);
    struct operation operation =
        record_call(taken->player->record, &taken->subject, "extend", "ids=%s", taken->ids[0].text);
    int err = hf_permits_extend(taken->permits, &taken->ids[0], lease_ms);
    record_return(&operation, err, " ");
}

static void release_permits(struct taken *taken) {
    be_sure(taken);
    if (taken->len > 1 && play_chance(taken->player, 50)) {
        struct operation operation =
            record_call(taken->player->record, &taken->subject, "release", "ids=%s", ids_of(taken));
        record_return(&operation,
                      hf_permits_release_many(taken->permits, taken->ids, (size_t)taken->len), " ");
        return;
    }
    for (int64_t i = 0; i < taken->len; i++) {
        struct operation operation = record_call(taken->player->record, &taken->subject, "release",
                                                 "ids=%s", taken->ids[i].text);
        record_return(&operation, hf_permits_release(taken->permits, &taken->ids[i]), " ");
    }
}

static void use_permits(struct taken *taken) {
    struct player *player = taken->player;
    taken->len = 1 + play_pick(player, 2);
    taken->lease_ms =
        play_chance(player, 50) ? PLAY_LEASE_MS + play_pick(player, PLAY_LEASE_MS) : 0;
    struct operation operation =
        record_call(player->record, &taken->subject, "acquire",
                    "permits=%" PRId64 " lease=%" PRId64, taken->len, taken->lease_ms);
    int err = acquire_permits(taken);
    record_return(&operation, err, "ids=%s", err == HF_OK ? ids_of(taken) : "-");
    if (err != HF_OK)
        return;
    be_sure(taken);
    if (taken->lease_ms > 0 && play_chance(player, 4))
        linger(2 * PLAY_LEASE_MS + 50); /* it forgets its lease */
    else
        play_pause(player, 4);
    if (play_chance(player, 10))
        extend_permit(taken);
    release_permits(taken);
}

static void count_permits(struct taken *taken) {
    static const char *const verbs[] = {"available", "total", "taken"};
    int (*const questions[])(hf_permits *, int64_t *) = {hf_permits_available, hf_permits_total,
                                                         hf_permits_taken};
    unsigned i = play_pick(taken->player, 3);
    int64_t number = 0;
    struct operation operation = record_call(taken->player->record, &taken->subject, verbs[i], " ");
    int err = questions[i](taken->permits, &number);
    record_return(&operation, err, "value=%" PRId64, number);
}

void visit_permits(struct player *player, const char *name) {
    struct taken taken = {.player = player, .subject = subject_of(player, name)};
    if (hf_permits_new(player->client, name, &taken.permits) != HF_OK)
        support_die("no handle for %s", name);
    unsigned draw = play_pick(player, 100);
    if (draw < 15) {
        bool set = false;
        struct operation operation =
            record_call(player->record, &taken.subject, "try_set", "permits=%d", PLAY_PERMITS);
        int err = hf_permits_try_set(taken.permits, PLAY_PERMITS, &set);
        record_return(&operation, err, "value=%d", set);
    } else if (draw < 30) {
        count_permits(&taken);
    } else {
        use_permits(&taken);
    }
    hf_permits_free(taken.permits);
}

/* ---- Latches --------------------------------------------------------------------------------- */

static void await_latch(struct player *player, hf_latch *latch, const struct subject *subject) {
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    options.wait_ms = some_wait_ms(player);
    struct operation operation =
        record_call(player->record, subject, "await", "wait=%" PRId64, options.wait_ms);
    record_return(&operation, hf_latch_await_with(latch, &options), " ");
}

static void set_latch(struct player *player, hf_latch *latch, const struct subject *subject) {
    int64_t count = 1 + play_pick(player, 3);
    bool set = false;
    struct operation operation =
        record_call(player->record, subject, "try_set", "permits=%" PRId64, count);
    int err = hf_latch_try_set(latch, count, &set);
    record_return(&operation, err, "value=%d", set);
}

static void look_at_latch(struct player *player, hf_latch *latch, const struct subject *subject) {
    int64_t count = 0;
    struct operation operation = record_call(player->record, subject, "count", " ");
    int err = hf_latch_count(latch, &count);
    record_return(&operation, err, "value=%" PRId64, count);
}

static void delete_latch(struct player *player, hf_latch *latch, const struct subject *subject) {
    bool deleted = false;
    struct operation operation = record_call(player->record, subject, "delete", " ");
    int err = hf_latch_delete(latch, &deleted);
    record_return(&operation, err, "value=%d", deleted);
}

static void count_down(struct player *player, hf_latch *latch, const struct subject *subject) {
    struct operation operation = record_call(player->record, subject, "count_down", " ");
    record_return(&operation, hf_latch_count_down(latch), " ");
}

void visit_latch(struct player *player, const char *name) {
    struct subject subject = subject_of(player, name);
    own_latch *latch;
    if (hf_latch_new(player->client, name, &latch) != HF_OK)
        support_die("no handle for %s", name);
    unsigned draw = play_pick(player, 100);
    if (draw < 25)
        set_latch(player, latch, &subject);
    else if (draw < 60)
        count_down(player, latch, &subject);
    else if (draw < 75)
        look_at_latch(player, latch, &subject);
    else if (draw < 78)
        delete_latch(player, latch, &subject);
    else
        await_latch(player, latch, &subject);
    play_pause(player, 3);
}
