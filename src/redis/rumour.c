/*
 * The channel of holdfast clients (rumour.h) at one server: hearing that a hold was broken, and
 * saying so.
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
#include "redis/rumour.h"

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

struct hfi_rumours {
    struct hfi_task task; /* on the keeper */
    struct hfi_redis *redis;
    struct hfi_node *node; /* which owns it */
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

static void note_locked(struct hfi_rumours *rumours, const char *name, size_t len) {
    struct note *note = NULL;
    if (rumours->notes_len < NOTED_MAX && len <= HFI_NAME_MAX)
        note = hfi_alloc(rumours->redis->mem, sizeof *note + len);
    if (note == NULL) {
        rumours->any = true;
        return;
    }
    *note = (struct note){.len = len};
    memcpy(note->name, name, len);
    hfi_list_push_back(&rumours->notes, &note->link);
    rumours->notes_len++;
}

static void hear(struct hfi_waiter *waiter, const char *message, size_t len) {
    struct hfi_rumours *rumours = HFI_CONTAINER(waiter, struct hfi_rumours, waiter);
    size_t name_len;
    hfi_answers_hear(hfi_node_learnt(rumours->node)->answers, message, len);
    const char *name = name_in(rumours->redis, message, len, &name_len);
    if (name == NULL)
        return;
    pthread_mutex_lock(&rumours->mtx);
    note_locked(rumours, name, name_len);
    pthread_mutex_unlock(&rumours->mtx);
}

static const struct hfi_listener listener = {
    .hear = hear,
    .deaf = "the server refuses to tell of broken locks and of questions, so these are noticed "
            "late, and surveys do not show what is held here"};

/* ---- Telling the core ---- */

static void clear_notes(struct hfi_rumours *rumours) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&rumours->notes)) != NULL)
        hfi_free(rumours->redis->mem, HFI_CONTAINER(link, struct note, link));
    rumours->notes_len = 0;
}

static void tell(struct hfi_rumours *rumours) {
    struct hfi_link notes, *link;
    hfi_list_init(&notes);
    pthread_mutex_lock(&rumours->mtx);
    bool any = rumours->any;
    bool anything = any || rumours->notes_len > 0;
    rumours->any = false;
    if (any)
        clear_notes(rumours);
    hfi_list_splice(&notes, &rumours->notes);
    rumours->notes_len = 0;
    pthread_mutex_unlock(&rumours->mtx);
    if (anything)
        rumours->told_ms = hfi_now_ms();
    const struct hfi_news *news = rumours->redis->news;
    struct hfi_scope scope = {.node = rumours->node};
    if (any)
        news->doubted(news->arg, &scope);
    while ((link = hfi_list_pop_front(&notes)) != NULL) {
        struct note *note = HFI_CONTAINER(link, struct note, link);
        scope.name = note->name;
        scope.name_len = note->len;
        news->doubted(news->arg, &scope);
        hfi_free(rumours->redis->mem, note);
    }
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_rumours, alarm)->task, HFI_EVENT_TIMER);
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_rumours *rumours = HFI_CONTAINER(task, struct hfi_rumours, task);
    if (rumours->stopped || rumours->redis->news == NULL)
        return;
    if ((events & HFI_EVENT_SUBSCRIBED) != 0) {
        pthread_mutex_lock(&rumours->mtx);
        rumours->any = true;
        pthread_mutex_unlock(&rumours->mtx);
    }
    int64_t at_ms = rumours->told_ms + GAP_MS;
    if (hfi_now_ms() < at_ms)
        hfi_alarm_set(task->exec, &rumours->alarm, at_ms);
    else
        tell(rumours);
}

void hfi_rumours_changed(struct hfi_rumours *rumours) {
    pthread_mutex_lock(&rumours->mtx);
    rumours->any = true;
    pthread_mutex_unlock(&rumours->mtx);
    hfi_task_post(&rumours->task, HFI_EVENT_MESSAGE);
}

static void listen_at(struct hfi_node *node, void *arg) {
    struct hfi_rumours *rumours = hfi_node_learnt(node)->rumours;
    const bool on = *(const bool *)arg;
    if (rumours->stopped || rumours->joined == on)
        return;
    if (on && hfi_node_last_answer_ms(node) == 0)
        return; /* nothing is held where nobody has answered yet */
    bool heard = false;
    if (!on)
        hfi_pubsub_leave(&rumours->waiter);
    else if (hfi_pubsub_join(hfi_node_learnt(node)->pubsub, &rumours->waiter, &rumours->task,
                             HFI_RUMOUR_CHANNEL, strlen(HFI_RUMOUR_CHANNEL), &heard) != HF_OK)
        return; /* no memory: then it is heard of at the next renewal */
    rumours->joined = on;
    hfi_answers_listen(hfi_node_learnt(node)->answers, on);
}

void hfi_rumours_listen(struct hfi_engine *engine, bool on) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    redis->listens = on;
    redis->route->ops->each(redis->route, listen_at, &on);
    hfi_redis_watch_route(redis);
}

void hfi_rumours_join(struct hfi_redis *redis, struct hfi_node *node) {
    listen_at(node, &redis->listens);
}

/* ---- Saying ---- */

void hfi_rumours_say_broken(const struct hfi_redis *redis, struct hfi_command *command) {
    char head[48];
    snprintf(head, sizeof head, BROKEN "%d ", redis->db);
    hfi_command_text(command, HFI_RUMOUR_CHANNEL);
    hfi_command_text(command, head);
}

void hfi_rumours_refused(struct hfi_exchange *x) {
    if (!atomic_exchange(&hfi_node_learnt(x->node)->rumours_warned, true))
        hfi_log(x->redis->log, HF_LOG_WARN,
                "a lock was broken, but this user may not publish on " HFI_RUMOUR_CHANNEL
                ": its holder will notice late");
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_rumours *rumours = HFI_CONTAINER(task, struct hfi_rumours, task);
    clear_notes(rumours);
    pthread_mutex_destroy(&rumours->mtx);
    hfi_free(rumours->redis->mem, rumours);
}

int hfi_rumours_new(struct hfi_redis *redis, struct hfi_node *node, struct hfi_rumours **ret) {
    struct hfi_rumours *rumours = hfi_zalloc(redis->mem, sizeof *rumours);
    if (rumours == NULL)
        return HF_ENOMEM;
    rumours->redis = redis;
    rumours->node = node;
    rumours->waiter.listener = &listener;
    rumours->waiter.idly = true;
    rumours->alarm.fire = alarm_fired;
    rumours->told_ms = -GAP_MS;
    hfi_list_init(&rumours->notes);
    pthread_mutex_init(&rumours->mtx, NULL);
    hfi_task_init(&rumours->task, hfi_keeper_exec(redis->keeper), run, destroy);
    *ret = rumours;
    return HF_OK;
}

void hfi_rumours_stop(struct hfi_rumours *rumours) {
    if (rumours == NULL)
        return;
    if (rumours->joined)
        hfi_pubsub_leave(&rumours->waiter);
    rumours->joined = false;
    rumours->stopped = true;
    hfi_alarm_clear(rumours->task.exec, &rumours->alarm);
}

void hfi_rumours_free(struct hfi_rumours *rumours) {
    if (rumours != NULL)
        hfi_task_unref(&rumours->task);
}
