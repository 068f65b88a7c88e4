/*
 * Hearing what is said of a name: its channels, at the server that has it, for whoever listens (hf_listen()).
 *
 * A hearing is begun and ended on any thread. In between it is a task on the keeper, which finds the server of the name,
 * joins the channels there, and follows when another server has the name. What is said comes on the thread of whoever
 * reads the connection, under the mutex of the registry of channels, and is passed on at once; so does whether a channel is
 * heard, in the same order. `mtx` guards what both sides need: whom to tell, and how it stands.
 *
 * It listens when each of its channels is heard or refused, and one at least is heard; that is told then, and again
 * whenever a channel was lost and is there again, since something may have been missed meanwhile.
 *
 * Nothing is heard of fair locks. They tell each waiter on a channel of its own, and how many hear that decides who gets the
 * lock: with one who listened there, too, even by a pattern, a waiter who has died would seem to be alive.
 *
 * Lock order: the registry of channels, then `mtx`, then whatever the hearer has.
 */
#include "redis/hear.h"

#include "base/backoff.h"
#include "base/chance.h"
#include "base/clock.h"
#include "net/keeper.h"
#include "redis/internal.h"
#include "redis/kind.h"

#include <string.h>

#define PAYLOAD_DIGITS 18

enum { OF_LOCK, OF_READWRITE, OF_PERMITS, OF_LATCH, CHANNELS };

struct ear {
    struct hfi_waiter waiter;
    struct hfi_hearing *hearing;
    bool joined;                  /* the keeper's */
    enum hfi_hearing_state state; /* guarded by the hearing's `mtx` */
    bool silent;                  /* the same: there is nothing to hear at all */
};

struct hfi_hearing {
    struct hfi_task task; /* on the keeper; a reference for who listens, and one for the list */
    struct hfi_redis *redis;

    /* The keeper's. */
    struct hfi_link link;  /* in redis->hearings, from its first run to its end */
    struct hfi_node *home; /* where it listens, with a reference; NULL: nowhere */
    struct hfi_want want;
    bool wants; /* a server */
    struct hfi_alarm alarm;
    unsigned looks; /* in vain, in a row */
    bool ended;
    struct ear ears[CHANNELS];

    pthread_mutex_t mtx;       /* guards below */
    struct hfi_hearer *hearer; /* NULL: nobody listens any more */
    enum { TOLD_NOTHING, TOLD_LISTENING, TOLD_UNREACHED, TOLD_REFUSED } told;
    bool anew; /* a channel is heard since that was told */

    size_t name_len;
    char name[];
};

/* Writes the name of a channel unless `to` is NULL; returns its length. */
static size_t channel_name(const struct hfi_hearing *hearing, size_t which, char *to) {
    static const struct hfi_kind *const kinds[CHANNELS] = {
        [OF_LOCK] = &hfi_kind_plain,
        [OF_READWRITE] = &hfi_kind_read,
        [OF_PERMITS] = &hfi_thing_semaphore,
        [OF_LATCH] = &hfi_thing_latch,
    };
    const struct hfi_call call = {.name = hearing->name, .name_len = hearing->name_len};
    return hfi_redis_kind_of(kinds[which])->channel(hearing->redis, &call, to);
}

/* ---- What is said ---- */

static void tell_locked(const struct hfi_hearing *hearing, const struct hfi_tidings *tidings) {
    if (hearing->hearer != NULL)
        hearing->hearer->hear(hearing->hearer, tidings);
}

static void tell(struct hfi_hearing *hearing, const struct hfi_tidings *tidings) {
    pthread_mutex_lock(&hearing->mtx);
    tell_locked(hearing, tidings);
    pthread_mutex_unlock(&hearing->mtx);
}

/* As scripts publish them, in plain decimal; -1: it is something else. */
static int64_t number_of(const char *message, size_t len) {
    int64_t number = 0;
    if (len == 0 || len > PAYLOAD_DIGITS)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (message[i] < '0' || message[i] > '9')
            return -1;
        number = number * 10 + (message[i] - '0');
    }
    return number;
}

static void hear(struct hfi_waiter *waiter, const char *message, size_t len) {
    static const struct {
        hf_news_kind zero, one, more; /* what a number means; 0: nothing */
    } meanings[CHANNELS] = {
        [OF_LOCK] = {HF_NEWS_RELEASED, HF_NEWS_RELEASED, HF_NEWS_RELEASED},
        [OF_READWRITE] = {HF_NEWS_READ_RELEASED, HF_NEWS_WRITE_RELEASED, 0},
        [OF_PERMITS] = {0, HF_NEWS_PERMITS, HF_NEWS_PERMITS},
        [OF_LATCH] = {HF_NEWS_OPENED, HF_NEWS_CLOSED, 0},
    };
    struct ear *ear = HFI_CONTAINER(waiter, struct ear, waiter);
    size_t which = (size_t)(ear - ear->hearing->ears);
    int64_t number = number_of(message, len);
    struct hfi_tidings tidings = {.kind = number == 0   ? meanings[which].zero
                                          : number == 1 ? meanings[which].one
                                          : number > 1  ? meanings[which].more
                                                        : 0};
    if (tidings.kind == HF_NEWS_PERMITS)
        tidings.number = number;
    if (tidings.kind != 0)
        tell(ear->hearing, &tidings);
}

/* ---- How it stands ---- */

static void stands_locked(struct hfi_hearing *hearing) {
    size_t heard = 0;
    for (size_t i = 0; i < CHANNELS; i++) {
        const struct ear *ear = &hearing->ears[i];
        if (!ear->silent && ear->state == HFI_UNHEARD)
            return;
        heard += !ear->silent && ear->state == HFI_HEARD;
    }
    if (heard > 0 && (hearing->anew || hearing->told != TOLD_LISTENING)) {
        hearing->told = TOLD_LISTENING;
        hearing->anew = false;
        tell_locked(hearing, &(struct hfi_tidings){.kind = HF_NEWS_LISTENING});
    } else if (heard == 0 && hearing->told != TOLD_REFUSED) {
        hearing->told = TOLD_REFUSED;
        tell_locked(hearing, &(struct hfi_tidings){.kind = HF_NEWS_DEAF, .code = HF_EPERM});
    }
}

/* All of them are lost at once, and that is told once. */
static void stands(struct hfi_waiter *waiter, enum hfi_hearing_state state) {
    struct ear *ear = HFI_CONTAINER(waiter, struct ear, waiter);
    struct hfi_hearing *hearing = ear->hearing;
    pthread_mutex_lock(&hearing->mtx);
    hearing->anew = hearing->anew || state == HFI_HEARD;
    ear->state = state;
    if (state == HFI_UNHEARD && hearing->told == TOLD_LISTENING) {
        hearing->told = TOLD_UNREACHED;
        tell_locked(hearing, &(struct hfi_tidings){.kind = HF_NEWS_DEAF, .code = HF_EUNREACH});
    }
    stands_locked(hearing);
    pthread_mutex_unlock(&hearing->mtx);
}

static const struct hfi_listener listener = {
    .hear = hear,
    .stands = stands,
    .deaf = "the server refuses to tell what happens to a name that somebody listens to"};
/* ---- Where it listens ---- */

static void join(struct ear *ear) {
    struct hfi_hearing *hearing = ear->hearing;
    size_t which = (size_t)(ear - hearing->ears), len = channel_name(hearing, which, NULL);
    char *name = hfi_alloc(hearing->redis->mem, len);
    bool heard;
    if (name == NULL)
        return; /* and tries again */
    channel_name(hearing, which, name);
    ear->waiter.sharded = hfi_redis_is_sharded(hearing->redis);
    ear->joined = hfi_pubsub_join(hfi_node_learnt(hearing->home)->pubsub, &ear->waiter,
                                  &hearing->task, name, len, &heard) == HF_OK;
    hfi_free(hearing->redis->mem, name);
}

/* That of a latch whose name has braces is in another slot; there can be no such latch. */
static bool has_channel(const struct hfi_hearing *hearing, size_t which) {
    const struct hfi_redis *redis = hearing->redis;
    return which != OF_LATCH || !hfi_redis_is_sharded(redis) ||
           !hfi_name_has_brace(&redis->names, hearing->name, hearing->name_len);
}

static void join_all(struct hfi_hearing *hearing) {
    pthread_mutex_lock(&hearing->mtx);
    for (size_t i = 0; i < CHANNELS; i++)
        hearing->ears[i].silent = !has_channel(hearing, i);
    pthread_mutex_unlock(&hearing->mtx);
    for (size_t i = 0; i < CHANNELS; i++)
        if (!hearing->ears[i].joined && has_channel(hearing, i))
            join(&hearing->ears[i]);
}

static void leave_all(struct hfi_hearing *hearing) {
    for (size_t i = 0; i < CHANNELS; i++) {
        struct ear *ear = &hearing->ears[i];
        if (!ear->joined)
            continue;
        hfi_pubsub_leave(&ear->waiter);
        ear->joined = false;
        stands(&ear->waiter, HFI_UNHEARD);
    }
    hfi_node_unref(hearing->home);
    hearing->home = NULL;
}

/* ---- The task ---- */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_hearing, alarm)->task, HFI_EVENT_TIMER);
}

static void look_later(struct hfi_hearing *hearing) {
    static const struct hfi_backoff backoff = {.first_ms = 50, .max_ms = 1000, .factor = 2};
    int64_t pause_ms = hfi_backoff_spread_ms(&backoff, hearing->looks++, hfi_throw_dice(hearing));
    hfi_alarm_set(hearing->task.exec, &hearing->alarm, hfi_now_ms() + pause_ms);
}

static void drop_want(struct hfi_hearing *hearing) {
    struct hfi_route *route = hearing->redis->route;
    if (hearing->wants)
        route->ops->unwant(route, &hearing->want);
    hearing->wants = false;
}

/* A channel that is not heard, and of which nobody tells when it can be. */
static bool must_look_again(struct hfi_hearing *hearing) {
    bool again = false;
    for (size_t i = 0; i < CHANNELS; i++) {
        struct ear *ear = &hearing->ears[i];
        if (!has_channel(hearing, i))
            continue;
        pthread_mutex_lock(&hearing->mtx);
        bool unheard = ear->state == HFI_UNHEARD;
        pthread_mutex_unlock(&hearing->mtx);
        if (ear->joined && unheard)
            hfi_pubsub_again(&ear->waiter);
        again |= !ear->joined || (unheard && hfi_route_changes(hearing->redis->route));
    }
    return again;
}

/* Joins the channels where the name is now. */
static void look(struct hfi_hearing *hearing) {
    struct hfi_route *route = hearing->redis->route;
    struct hfi_node *node = hfi_redis_aim(hearing->redis, hearing->name, hearing->name_len);
    if (node == NULL && route->ops->want != NULL) {
        leave_all(hearing);
        hearing->wants = true;
        route->ops->want(route, hearing->name, hearing->name_len, &hearing->want, &hearing->task,
                         HFI_EVENT_READY);
        return;
    }
    if (node != hearing->home) {
        leave_all(hearing);
        hearing->home = node;
    } else {
        hfi_node_unref(node);
    }
    if (hearing->home != NULL)
        join_all(hearing);
    if (hearing->home == NULL || must_look_again(hearing))
        look_later(hearing);
    else
        hearing->looks = 0;
}

static void begin(struct hfi_hearing *hearing) {
    hfi_task_ref(&hearing->task);
    hfi_list_push_back(&hearing->redis->hearings, &hearing->link);
    hfi_redis_watch_route(hearing->redis);
}

static void end(struct hfi_hearing *hearing) {
    struct hfi_redis *redis = hearing->redis;
    hearing->ended = true;
    if (!hfi_linked(&hearing->link))
        return; /* it has not begun */
    drop_want(hearing);
    leave_all(hearing);
    hfi_alarm_clear(hearing->task.exec, &hearing->alarm);
    hfi_list_remove(&hearing->link);
    if (!atomic_load(&redis->stopped))
        hfi_redis_watch_route(redis);
    hfi_task_unref(&hearing->task);
}

static bool is_wanted(struct hfi_hearing *hearing) {
    pthread_mutex_lock(&hearing->mtx);
    bool wanted = hearing->hearer != NULL;
    pthread_mutex_unlock(&hearing->mtx);
    return wanted;
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_hearing *hearing = HFI_CONTAINER(task, struct hfi_hearing, task);
    if (hearing->ended)
        return;
    if (!is_wanted(hearing) || atomic_load(&hearing->redis->stopped)) {
        end(hearing);
        return;
    }
    if (!hfi_linked(&hearing->link))
        begin(hearing);
    /* a message, or that a channel is heard, was told already */
    const unsigned reasons = HFI_EVENT_READY | HFI_EVENT_TIMER | HFI_EVENT_DEAF;
    if ((events & reasons) == 0)
        return;
    bool wanted = hearing->wants;
    drop_want(hearing); /* takes the route's mutex, so that `err` is settled */
    if (wanted && hearing->want.err != HF_OK)
        look_later(hearing);
    else
        look(hearing);
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_hearing *hearing = HFI_CONTAINER(task, struct hfi_hearing, task);
    pthread_mutex_destroy(&hearing->mtx);
    hfi_free(hearing->redis->mem, hearing);
}

int hfi_hear(struct hfi_engine *engine, const char *name, size_t name_len,
             struct hfi_hearer *hearer, struct hfi_hearing **ret) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    struct hfi_hearing *hearing = hfi_zalloc(redis->mem, sizeof *hearing + name_len);
    if (hearing == NULL)
        return HF_ENOMEM;
    hearing->redis = redis;
    hearing->hearer = hearer;
    hearing->alarm.fire = alarm_fired;
    hearing->name_len = name_len;
    memcpy(hearing->name, name, name_len);
    for (size_t i = 0; i < CHANNELS; i++) {
        hearing->ears[i].hearing = hearing;
        hearing->ears[i].waiter.listener = &listener;
    }
    pthread_mutex_init(&hearing->mtx, NULL);
    hfi_task_init(&hearing->task, hfi_keeper_exec(redis->keeper), run, destroy);
    hfi_task_post(&hearing->task, HFI_EVENT_READY);
    *ret = hearing;
    return HF_OK;
}

void hfi_unhear(struct hfi_engine *engine, struct hfi_hearing *hearing) {
    (void)engine;
    pthread_mutex_lock(&hearing->mtx);
    hearing->hearer = NULL;
    pthread_mutex_unlock(&hearing->mtx);
    hfi_task_post(&hearing->task, HFI_EVENT_READY);
    hfi_task_unref(&hearing->task);
}

void hfi_hearings_look(struct hfi_redis *redis) {
    for (struct hfi_link *link = redis->hearings.next; link != &redis->hearings; link = link->next)
        hfi_task_post(&HFI_CONTAINER(link, struct hfi_hearing, link)->task, HFI_EVENT_TIMER);
}

void hfi_hearings_stop(struct hfi_redis *redis) {
    while (!hfi_list_empty(&redis->hearings))
        end(HFI_CONTAINER(redis->hearings.next, struct hfi_hearing, link));
}
