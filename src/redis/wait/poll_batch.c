/*
 * Poll batches: one script checks whether the locks of many parked acquires are still held.
 *
 * A message may be lost, so no waiter sleeps longer than ten seconds without a check. If each of a
 * hundred thousand waiters attempted, the server would be busy refusing them. So one script polls
 * up to BATCH_MAX locks. Its reply lists those that are gone, never expire or expire soon; their
 * waiters attempt, each by itself, as after a message.
 *
 * A poll acquires nothing and does not affect the order of waiters. If it fails, or its reply makes
 * no sense, all waiters in it attempt. A waiter whose lock is still there attempts after 15 to 30
 * polls, since only an attempt sees what is under the key.
 *
 * Only for kinds whose key alone tells whether they are held. Not in a cluster, where all keys of a
 * script must be in one slot.
 *
 * Waiters are added and removed on their own executor, under `mtx`; all else is the keeper's. Lock
 * order: `mtx`, then a task.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/jitter.h"
#include "net/driver/keeper.h"
#include "redis/kinds/kind.h"
#include "redis/wait/park.h"

#include <string.h>

#define BATCH_MAX 100         /* locks in one poll */
#define BATCH_BYTES_MAX 16384 /* of their names */
#define RUNNING_MAX 16        /* polls in flight */
#define GATHER_MS 200         /* a waiter due this soon joins a poll that is due now */
/* leaves time for gathering, and for polls that go first */
#define EVERY_MS (HFI_POLL_MAX_MS - 700)
#define ANSWER_MS 3000 /* then an attempt may know more */
#define POLLS_MAX 30   /* in a row, less jitter; then the waiter attempts */

struct hfi_poll_batch {
    struct hfi_task task; /* on the keeper; freed with its last reference */
    struct hfi_redis *redis;
    struct hfi_alarm alarm;
    struct hfi_link running; /* the keeper's, like the next two */
    unsigned running_len;
    bool stopped;

    pthread_mutex_t mtx;     /* guards below, and the parked acquires in it */
    struct hfi_link waiting; /* struct hfi_parked, the least recently polled first */
};

struct hfi_poll_entry {
    struct hfi_task task; /* on the keeper; freed with its last reference */
    struct hfi_link link;
    struct hfi_poll_batch *poll_batch; /* NULL: done */
    const struct hfi_mem *mem;
    struct hfi_exchange exchange;
    struct hfi_node *home; /* the node that is polled, with a reference */
    hf_error error;        /* not reported: an attempt gives a better one */
    size_t len;
    struct {
        struct hfi_parked *parked; /* NULL: it was removed. Guarded by the batch's mtx */
        size_t name_end;           /* in `names` */
    } items[BATCH_MAX];
    char names[];
};

/* ---- Parked acquires ---- */

static int64_t due_ms(const struct hfi_parked *parked) {
    return parked->until_ms;
}

static void wait_locked(struct hfi_poll_batch *poll_batch, struct hfi_parked *parked) {
    int64_t now_ms = hfi_now_ms();
    parked->until_ms = now_ms + EVERY_MS;
    atomic_store_explicit(&parked->call_status->due_ms, now_ms + HFI_POLL_MAX_MS,
                          memory_order_relaxed);
    hfi_list_push_back(&poll_batch->waiting, &parked->link);
}

static void wake_locked(struct hfi_parked *parked) {
    parked->due = true;
    atomic_store_explicit(&parked->call_status->due_ms, hfi_now_ms(), memory_order_relaxed);
    hfi_task_post(parked->waiter.task, HFI_EVENT_TIMER);
}

void hfi_poll_batch_add(struct hfi_poll_batch *poll_batch, struct hfi_parked *parked) {
    pthread_mutex_lock(&poll_batch->mtx);
    bool first = hfi_list_empty(&poll_batch->waiting);
    parked->in_poll_batch = true;
    parked->polls_left = (uint8_t)(POLLS_MAX - hfi_jitter_bits(parked) % (POLLS_MAX / 2));
    wait_locked(poll_batch, parked);
    pthread_mutex_unlock(&poll_batch->mtx);
    if (first)
        hfi_task_post(&poll_batch->task, HFI_EVENT_READY);
}

void hfi_poll_batch_remove(struct hfi_poll_batch *poll_batch, struct hfi_parked *parked) {
    pthread_mutex_lock(&poll_batch->mtx);
    hfi_list_remove(&parked->link);
    if (parked->poll_entry != NULL)
        parked->poll_entry->items[parked->poll_index].parked = NULL;
    parked->poll_entry = NULL;
    pthread_mutex_unlock(&poll_batch->mtx);
}

/* ---- One poll ---- */

static void gather(struct hfi_poll_batch *poll_batch);

static void end_poll(struct hfi_poll_entry *entry) {
    struct hfi_poll_batch *poll_batch = entry->poll_batch;
    hfi_exchange_end(&entry->exchange);
    hfi_list_remove(&entry->link);
    poll_batch->running_len--;
    hfi_node_unref(entry->home);
    entry->home = NULL;
    entry->poll_batch = NULL;
    hfi_task_unref(&entry->task);
}

static void destroy_poll(struct hfi_task *task) {
    struct hfi_poll_entry *entry = HFI_CONTAINER(task, struct hfi_poll_entry, task);
    hfi_free(entry->mem, entry);
}

/* Writes all names, also of waiters that were removed meanwhile: the reply goes by index. */
static void write_poll(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_poll_entry *entry = HFI_CONTAINER(x, struct hfi_poll_entry, exchange);
    size_t begin = 0;
    hfi_command_number(command, (int64_t)entry->len);
    for (size_t i = 0; i < entry->len; i++) {
        hfi_name_key(&x->redis->names, entry->names + begin, entry->items[i].name_end - begin,
                     command);
        begin = entry->items[i].name_end;
    }
    hfi_command_number(command, not_after_ms);
    hfi_command_number(command, HFI_POLL_MAX_MS);
}

/* Marks the items that the reply lists. False: the reply is malformed. */
static bool read_poll(const struct hfi_poll_entry *entry, bool named[BATCH_MAX]) {
    const struct hfi_reply *reply = hfi_exchange_reply(&entry->exchange);
    if (reply->type != HFI_REPLY_ARRAY || reply->elements < 2 || reply->elements > entry->len + 2 ||
        reply->element[0]->integer != (long long)entry->len)
        return false;
    for (size_t i = 1; i + 1 < reply->elements; i++) {
        long long index = reply->element[i]->integer;
        if (index < 1 || index > (long long)entry->len)
            return false;
        named[index - 1] = true;
    }
    return true;
}

static void poll_ended(struct hfi_poll_entry *entry) {
    struct hfi_poll_batch *poll_batch = entry->poll_batch;
    const struct hfi_exchange *x = &entry->exchange;
    bool named[BATCH_MAX] = {false};
    /* a reply from another node says nothing about the home of these waiters */
    bool known = x->err == HF_OK && x->node == entry->home && read_poll(entry, named);
    pthread_mutex_lock(&poll_batch->mtx);
    for (size_t i = 0; i < entry->len; i++) {
        struct hfi_parked *parked = entry->items[i].parked;
        if (parked == NULL)
            continue;
        parked->poll_entry = NULL;
        if (!known || named[i] || --parked->polls_left == 0)
            wake_locked(parked);
        else
            wait_locked(poll_batch, parked);
    }
    pthread_mutex_unlock(&poll_batch->mtx);
    end_poll(entry);
    gather(poll_batch);
}

static void run_poll(struct hfi_task *task, unsigned events) {
    struct hfi_poll_entry *entry = HFI_CONTAINER(task, struct hfi_poll_entry, task);
    if (entry->poll_batch != NULL && hfi_exchange_step(&entry->exchange, events) == HFI_FINISHED)
        poll_ended(entry);
}

static void start_poll(struct hfi_poll_entry *entry) {
    struct hfi_exchange *x = &entry->exchange;
    x->redis = entry->poll_batch->redis;
    x->task = &entry->task;
    x->lane = HFI_LANE_KEEPER;
    x->retry = HFI_RETRY_NONE;
    x->script = &hfi_script_poll_batch;
    x->asks = true;
    x->write = write_poll;
    x->limit_ms = hfi_now_ms() + hfi_min_ms(ANSWER_MS, x->redis->cmd_timeout_ms);
    x->reach_until_ms = x->limit_ms;
    x->silence_ms = HFI_NEVER;
    x->limit_err = HF_EUNREACH;
    x->error = &entry->error;
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        poll_ended(entry);
}

/* ---- Gathering ---- */

/* How many waiters at the head of the list go into one poll, and the length of their names. */
static size_t count_locked(struct hfi_poll_batch *poll_batch, int64_t until_ms, size_t *ret_bytes) {
    size_t len = 0;
    const struct hfi_node *home = NULL;
    *ret_bytes = 0;
    for (struct hfi_link *link = poll_batch->waiting.next;
         link != &poll_batch->waiting && len < BATCH_MAX; link = link->next, len++) {
        const struct hfi_parked *parked = HFI_CONTAINER(link, struct hfi_parked, link);
        if (due_ms(parked) > until_ms || (home != NULL && parked->home != home) ||
            (len > 0 && *ret_bytes + parked->name_len > BATCH_BYTES_MAX))
            break;
        home = parked->home;
        *ret_bytes += parked->name_len;
    }
    return len;
}

static void take_locked(struct hfi_poll_batch *poll_batch, struct hfi_poll_entry *entry) {
    struct hfi_link *link = hfi_list_pop_front(&poll_batch->waiting);
    struct hfi_parked *parked = HFI_CONTAINER(link, struct hfi_parked, link);
    size_t begin = entry->len > 0 ? entry->items[entry->len - 1].name_end : 0;
    if (entry->home == NULL)
        entry->home = hfi_node_ref(parked->home);
    memcpy(entry->names + begin, parked->name, parked->name_len);
    entry->items[entry->len].parked = parked;
    entry->items[entry->len].name_end = begin + parked->name_len;
    parked->poll_entry = entry;
    parked->poll_index = (uint8_t)entry->len++;
}

/* NULL: no memory; then the first waiter attempts by itself. */
static struct hfi_poll_entry *make_locked(struct hfi_poll_batch *poll_batch, size_t len,
                                          size_t bytes) {
    struct hfi_poll_entry *entry = hfi_zalloc(poll_batch->redis->mem, sizeof *entry + bytes);
    if (entry == NULL) {
        struct hfi_link *first = hfi_list_pop_front(&poll_batch->waiting);
        wake_locked(HFI_CONTAINER(first, struct hfi_parked, link));
        return NULL;
    }
    hfi_task_init(&entry->task, poll_batch->task.exec, run_poll, destroy_poll);
    hfi_list_push_back(&poll_batch->running, &entry->link);
    poll_batch->running_len++;
    entry->poll_batch = poll_batch;
    entry->mem = poll_batch->redis->mem;
    for (size_t i = 0; i < len; i++)
        take_locked(poll_batch, entry);
    return entry;
}

/* Starts the polls that are due, and sets the alarm for the next. */
static void gather(struct hfi_poll_batch *poll_batch) {
    int64_t now_ms = hfi_now_ms(), next_ms = HFI_NEVER;
    while (poll_batch->running_len < RUNNING_MAX && !poll_batch->stopped) {
        struct hfi_poll_entry *entry = NULL;
        size_t bytes;
        pthread_mutex_lock(&poll_batch->mtx);
        bool any = !hfi_list_empty(&poll_batch->waiting);
        int64_t first_ms =
            any ? due_ms(HFI_CONTAINER(poll_batch->waiting.next, struct hfi_parked, link))
                : HFI_NEVER;
        if (first_ms <= now_ms) {
            size_t len = count_locked(poll_batch, now_ms + GATHER_MS, &bytes);
            entry = make_locked(poll_batch, len, bytes);
        } else {
            next_ms = first_ms;
        }
        pthread_mutex_unlock(&poll_batch->mtx);
        if (entry != NULL)
            start_poll(entry);
        else if (first_ms > now_ms)
            break;
    }
    hfi_alarm_set(poll_batch->task.exec, &poll_batch->alarm,
                  poll_batch->stopped ? HFI_NEVER : next_ms);
}

/* ---- Life ---- */

static void run(struct hfi_task *task, unsigned events) {
    (void)events;
    gather(HFI_CONTAINER(task, struct hfi_poll_batch, task));
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_poll_batch, alarm)->task, HFI_EVENT_TIMER);
}

static void destroy(struct hfi_task *task) {
    struct hfi_poll_batch *poll_batch = HFI_CONTAINER(task, struct hfi_poll_batch, task);
    pthread_mutex_destroy(&poll_batch->mtx);
    hfi_free(poll_batch->redis->mem, poll_batch);
}

int hfi_poll_batch_new(struct hfi_redis *redis, struct hfi_poll_batch **ret) {
    struct hfi_poll_batch *poll_batch = hfi_zalloc(redis->mem, sizeof *poll_batch);
    if (poll_batch == NULL)
        return HF_ENOMEM;
    poll_batch->redis = redis;
    poll_batch->alarm.fire = alarm_fired;
    hfi_list_init(&poll_batch->running);
    hfi_list_init(&poll_batch->waiting);
    pthread_mutex_init(&poll_batch->mtx, NULL);
    hfi_task_init(&poll_batch->task, hfi_keeper_exec(redis->keeper), run, destroy);
    *ret = poll_batch;
    return HF_OK;
}

void hfi_poll_batch_stop(struct hfi_poll_batch *poll_batch) {
    if (poll_batch == NULL)
        return;
    poll_batch->stopped = true;
    hfi_alarm_clear(poll_batch->task.exec, &poll_batch->alarm);
    pthread_mutex_lock(&poll_batch->mtx);
    for (struct hfi_link *link = poll_batch->running.next; link != &poll_batch->running;
         link = link->next) {
        struct hfi_poll_entry *entry = HFI_CONTAINER(link, struct hfi_poll_entry, link);
        for (size_t i = 0; i < entry->len; i++)
            if (entry->items[i].parked != NULL)
                entry->items[i].parked->poll_entry = NULL;
    }
    pthread_mutex_unlock(&poll_batch->mtx);
    while (!hfi_list_empty(&poll_batch->running))
        end_poll(HFI_CONTAINER(poll_batch->running.next, struct hfi_poll_entry, link));
}

void hfi_poll_batch_free(struct hfi_poll_batch *poll_batch) {
    if (poll_batch != NULL)
        hfi_task_unref(&poll_batch->task);
}
