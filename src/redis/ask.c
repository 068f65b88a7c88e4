/*
 * The channel of holdfast clients (ask.h): hearing that a hold was broken, and saying so.
 *
 * Messages come on the thread of whoever reads the pub/sub connection, and are only noted there,
 * under `mtx`: which name, if it is one of ours by database and prefix. A task on the keeper tells
 * the core, at once, and no more often than every 100 ms. So many names are noted at most; beyond
 * that, or without memory, it is said that any hold may be gone. Joining and leaving the channel is
 * the keeper's too. Lock order: the registry of channels, then `mtx`.
 *
 * Whoever begins to listen, or listens again after the connection was lost, may have missed
 * something. So then, too, any hold may be gone.
 */
#include "redis/ask.h"

#include "base/clock.h"
#include "net/keeper.h"
#include "redis/internal.h"

#include <stdio.h>
#include <string.h>

#define BROKEN "broken 1 " /* and the database, a space, the key */
#define GAP_MS 100
#define NOTED_MAX 64

struct note {
    struct hfi_link link;
    size_t len;
    char name[];
};

struct hfi_ask {
    struct hfi_task task; /* on the keeper */
    struct hfi_redis *redis;
    struct hfi_waiter waiter;
    struct hfi_alarm alarm;
    bool joined, stopped; /* the keeper's, like the next */
    int64_t told_ms;

    pthread_mutex_t mtx; /* guards below */
    struct hfi_link notes;
    unsigned notes_len;
    bool any; /* all holds are meant */
};

/* ---- Hearing ---- */

static bool takes(const char **at, const char *end, const char *text, size_t len) {
    if ((size_t)(end - *at) < len || memcmp(*at, text, len) != 0)
        return false;
    *at += len;
    return true;
}

/* The name, if the message tells of a break, in our database, under our prefix. */
static const char *name_in(const struct hfi_redis *redis, const char *message, size_t len,
                           size_t *ret_len) {
    const char *at = message, *end = message + len;
    char head[48];
    int head_len = snprintf(head, sizeof head, BROKEN "%d ", redis->db);
    if (!takes(&at, end, head, (size_t)head_len) ||
        !takes(&at, end, redis->names.prefix, redis->names.prefix_len) || at == end)
        return NULL;
    *ret_len = (size_t)(end - at);
    return at;
}

static void note_locked(struct hfi_ask *ask, const char *name, size_t len) {
    struct note *note = NULL;
    if (ask->notes_len < NOTED_MAX && len <= HFI_NAME_MAX)
        note = hfi_alloc(ask->redis->mem, sizeof *note + len);
    if (note == NULL) {
        ask->any = true;
        return;
    }
    *note = (struct note){.len = len};
    memcpy(note->name, name, len);
    hfi_list_push_back(&ask->notes, &note->link);
    ask->notes_len++;
}

static void hear(struct hfi_waiter *waiter, const char *message, size_t len) {
    struct hfi_ask *ask = HFI_CONTAINER(waiter, struct hfi_ask, waiter);
    size_t name_len;
    const char *name = name_in(ask->redis, message, len, &name_len);
    if (name == NULL)
        return;
    pthread_mutex_lock(&ask->mtx);
    note_locked(ask, name, name_len);
    pthread_mutex_unlock(&ask->mtx);
}

/* ---- Telling the core ---- */

static void clear_notes(struct hfi_ask *ask) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&ask->notes)) != NULL)
        hfi_free(ask->redis->mem, HFI_CONTAINER(link, struct note, link));
    ask->notes_len = 0;
}

static void tell(struct hfi_ask *ask) {
    struct hfi_link notes, *link;
    hfi_list_init(&notes);
    pthread_mutex_lock(&ask->mtx);
    bool any = ask->any;
    bool anything = any || ask->notes_len > 0;
    ask->any = false;
    if (any)
        clear_notes(ask);
    hfi_list_splice(&notes, &ask->notes);
    ask->notes_len = 0;
    pthread_mutex_unlock(&ask->mtx);
    if (anything)
        ask->told_ms = hfi_now_ms();
    const struct hfi_news *news = ask->redis->news;
    if (any)
        news->doubted(news->arg, &(struct hfi_scope){0});
    while ((link = hfi_list_pop_front(&notes)) != NULL) {
        struct note *note = HFI_CONTAINER(link, struct note, link);
        news->doubted(news->arg, &(struct hfi_scope){.name = note->name, .name_len = note->len});
        hfi_free(ask->redis->mem, note);
    }
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_ask, alarm)->task, HFI_EVENT_TIMER);
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_ask *ask = HFI_CONTAINER(task, struct hfi_ask, task);
    if (ask->stopped || ask->redis->news == NULL)
        return;
    if ((events & HFI_EVENT_SUBSCRIBED) != 0) {
        pthread_mutex_lock(&ask->mtx);
        ask->any = true;
        pthread_mutex_unlock(&ask->mtx);
    }
    int64_t at_ms = ask->told_ms + GAP_MS;
    if (hfi_now_ms() < at_ms)
        hfi_alarm_set(task->exec, &ask->alarm, at_ms);
    else
        tell(ask);
}

void hfi_ask_changed(struct hfi_redis *redis) {
    struct hfi_ask *ask = redis->ask;
    pthread_mutex_lock(&ask->mtx);
    ask->any = true;
    pthread_mutex_unlock(&ask->mtx);
    hfi_task_post(&ask->task, HFI_EVENT_MESSAGE);
}

void hfi_ask_listen(struct hfi_engine *engine, bool on) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    struct hfi_ask *ask = redis->ask;
    if (ask->stopped || ask->joined == on)
        return;
    bool heard = false;
    if (!on)
        hfi_pubsub_leave(redis->pubsub, &ask->waiter);
    else if (hfi_pubsub_join(redis->pubsub, &ask->waiter, &ask->task, HFI_ASK_CHANNEL,
                             strlen(HFI_ASK_CHANNEL), &heard) != HF_OK)
        return; /* no memory: then it is heard of at the next renewal */
    ask->joined = on;
}

/* ---- Saying ---- */

void hfi_ask_say_broken(const struct hfi_redis *redis, struct hfi_command *command) {
    char head[48];
    snprintf(head, sizeof head, BROKEN "%d ", redis->db);
    hfi_command_text(command, HFI_ASK_CHANNEL);
    hfi_command_text(command, head);
}

void hfi_ask_refused(struct hfi_redis *redis) {
    if (!atomic_exchange(&redis->ask_warned, true))
        hfi_log(redis->log, HF_LOG_WARN,
                "a lock was broken, but this user may not publish on " HFI_ASK_CHANNEL
                ": its holder will notice late");
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_ask *ask = HFI_CONTAINER(task, struct hfi_ask, task);
    clear_notes(ask);
    pthread_mutex_destroy(&ask->mtx);
    hfi_free(ask->redis->mem, ask);
}

int hfi_ask_new(struct hfi_redis *redis, struct hfi_ask **ret) {
    struct hfi_ask *ask = hfi_zalloc(redis->mem, sizeof *ask);
    if (ask == NULL)
        return HF_ENOMEM;
    ask->redis = redis;
    ask->waiter.hear = hear;
    ask->waiter.deaf = "the server refuses to tell of broken locks, so they are noticed late";
    ask->alarm.fire = alarm_fired;
    ask->told_ms = -GAP_MS;
    hfi_list_init(&ask->notes);
    pthread_mutex_init(&ask->mtx, NULL);
    hfi_task_init(&ask->task, hfi_keeper_exec(redis->keeper), run, destroy);
    *ret = ask;
    return HF_OK;
}

void hfi_ask_stop(struct hfi_ask *ask) {
    if (ask->joined)
        hfi_pubsub_leave(ask->redis->pubsub, &ask->waiter);
    ask->joined = false;
    ask->stopped = true;
    hfi_alarm_clear(ask->task.exec, &ask->alarm);
}

void hfi_ask_free(struct hfi_ask *ask) {
    if (ask != NULL)
        hfi_task_unref(&ask->task);
}
