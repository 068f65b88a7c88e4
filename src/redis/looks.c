/*
 * Looks: whether the locks of those who sleep are still held, many in one script.
 *
 * A message may be lost, so nobody sleeps for longer than ten seconds without asking. If each asked
 * by an attempt, a hundred thousand who wait would keep a server busy with saying no. So the locks of
 * up to a hundred are looked at together: the answer names those that are gone, or end soon, and
 * these attempt, each by itself, as if they had been told. A look acquires nothing, says nothing
 * about whose turn it is, and is believed only so far: whatever goes wrong with it, or makes no sense,
 * has all that it was about attempt. So does every now and then one that was still there, since only
 * an attempt sees what is under the key.
 *
 * Only for kinds whose key alone tells whether they are held, and where names of all kinds may be in
 * one script: not in a cluster.
 *
 * Whoever parks or goes on does so on its own executor, under `mtx`; the rest is the keeper's. Lock
 * order: `mtx`, then a task.
 */
#include "base/chance.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/keeper.h"
#include "redis/kind.h"
#include "redis/park.h"

#include <string.h>

#define LOOK_MAX 100                     /* locks in one look */
#define LOOK_BYTES_MAX 16384             /* of their names */
#define RUNNING_MAX 16                   /* looks under way at once */
#define GATHER_MS 200                    /* who is due so soon goes with who is due */
#define EVERY_MS (HFI_POLL_MAX_MS - 700) /* leaves time for gathering, and for others before it */
#define ANSWER_MS 3000                   /* then an attempt may know more */
#define LOOKS_MAX 30                     /* in a row: then it attempts, or a little earlier */

struct hfi_looks {
    struct hfi_task task; /* on the keeper; freed when its last reference goes */
    struct hfi_redis *redis;
    struct hfi_alarm alarm;
    struct hfi_link running; /* the keeper's, like the next two */
    unsigned running_len;
    bool stopped;

    pthread_mutex_t mtx;     /* guards below, and those who are in it */
    struct hfi_link waiting; /* struct hfi_parked: whoever was looked at last is last */
};

struct hfi_look {
    struct hfi_task task; /* on the keeper; freed when its last reference goes */
    struct hfi_link link;
    struct hfi_looks *looks; /* NULL: done */
    const struct hfi_mem *mem;
    struct hfi_exchange exchange;
    struct hfi_node *home; /* whom it is about, with a reference */
    hf_error error;        /* nobody's: an attempt tells better */
    size_t len;
    struct {
        struct hfi_parked *parked; /* NULL: it has gone on. Guarded by the looks */
        size_t name_end;           /* in `names` */
    } items[LOOK_MAX];
    char names[];
};

/* ---- Those who sleep ---- */

static int64_t due_ms(const struct hfi_parked *parked) {
    return parked->until_ms;
}

static void wait_locked(struct hfi_looks *looks, struct hfi_parked *parked) {
    int64_t now_ms = hfi_now_ms();
    parked->until_ms = now_ms + EVERY_MS;
    atomic_store_explicit(&parked->signs->due_ms, now_ms + HFI_POLL_MAX_MS, memory_order_relaxed);
    hfi_list_push_back(&looks->waiting, &parked->link);
}

static void wake_locked(struct hfi_parked *parked) {
    parked->due = true;
    atomic_store_explicit(&parked->signs->due_ms, hfi_now_ms(), memory_order_relaxed);
    hfi_task_post(parked->waiter.task, HFI_EVENT_TIMER);
}

void hfi_looks_add(struct hfi_looks *looks, struct hfi_parked *parked) {
    pthread_mutex_lock(&looks->mtx);
    bool first = hfi_list_empty(&looks->waiting);
    parked->looks = true;
    parked->looks_left = (uint8_t)(LOOKS_MAX - hfi_throw_dice(parked) % (LOOKS_MAX / 2));
    wait_locked(looks, parked);
    pthread_mutex_unlock(&looks->mtx);
    if (first)
        hfi_task_post(&looks->task, HFI_EVENT_READY);
}

void hfi_looks_remove(struct hfi_looks *looks, struct hfi_parked *parked) {
    pthread_mutex_lock(&looks->mtx);
    hfi_list_remove(&parked->link);
    if (parked->look != NULL)
        parked->look->items[parked->look_index].parked = NULL;
    parked->look = NULL;
    pthread_mutex_unlock(&looks->mtx);
}

/* ---- A look ---- */

static void gather(struct hfi_looks *looks);

static void end_look(struct hfi_look *look) {
    struct hfi_looks *looks = look->looks;
    hfi_exchange_end(&look->exchange);
    hfi_list_remove(&look->link);
    looks->running_len--;
    hfi_node_unref(look->home);
    look->home = NULL;
    look->looks = NULL;
    hfi_task_unref(&look->task);
}

static void destroy_look(struct hfi_task *task) {
    struct hfi_look *look = HFI_CONTAINER(task, struct hfi_look, task);
    hfi_free(look->mem, look);
}

/* Whose names it has, as it was sent: some may have gone on. */
static void write_look(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_look *look = HFI_CONTAINER(x, struct hfi_look, exchange);
    size_t begin = 0;
    hfi_command_number(command, (int64_t)look->len);
    for (size_t i = 0; i < look->len; i++) {
        hfi_name_key(&x->redis->names, look->names + begin, look->items[i].name_end - begin,
                     command);
        begin = look->items[i].name_end;
    }
    hfi_command_number(command, not_after_ms);
    hfi_command_number(command, HFI_POLL_MAX_MS);
}

/* Marks those that the answer names. False: it is none. */
static bool read_look(const struct hfi_look *look, bool named[LOOK_MAX]) {
    const redisReply *reply = hfi_exchange_reply(&look->exchange);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
        reply->elements > look->len + 2 || reply->element[0]->integer != (long long)look->len)
        return false;
    for (size_t i = 1; i + 1 < reply->elements; i++) {
        long long index = reply->element[i]->integer;
        if (index < 1 || index > (long long)look->len)
            return false;
        named[index - 1] = true;
    }
    return true;
}

static void look_ended(struct hfi_look *look) {
    struct hfi_looks *looks = look->looks;
    const struct hfi_exchange *x = &look->exchange;
    bool named[LOOK_MAX] = {false};
    /* what another server says is about nobody's home */
    bool known = x->err == HF_OK && x->node == look->home && read_look(look, named);
    pthread_mutex_lock(&looks->mtx);
    for (size_t i = 0; i < look->len; i++) {
        struct hfi_parked *parked = look->items[i].parked;
        if (parked == NULL)
            continue;
        parked->look = NULL;
        if (!known || named[i] || --parked->looks_left == 0)
            wake_locked(parked);
        else
            wait_locked(looks, parked);
    }
    pthread_mutex_unlock(&looks->mtx);
    end_look(look);
    gather(looks);
}

static void run_look(struct hfi_task *task, unsigned events) {
    struct hfi_look *look = HFI_CONTAINER(task, struct hfi_look, task);
    if (look->looks != NULL && hfi_exchange_step(&look->exchange, events) == HFI_FINISHED)
        look_ended(look);
}

static void start_look(struct hfi_look *look) {
    struct hfi_exchange *x = &look->exchange;
    x->redis = look->looks->redis;
    x->task = &look->task;
    x->lane = HFI_LANE_KEEPER;
    x->retry = HFI_RETRY_NONE;
    x->script = &hfi_script_look;
    x->asks = true;
    x->write = write_look;
    x->limit_ms = hfi_now_ms() + hfi_min_ms(ANSWER_MS, x->redis->cmd_timeout_ms);
    x->reach_until_ms = x->limit_ms;
    x->silence_ms = HFI_NEVER;
    x->limit_err = HF_EUNREACH;
    x->error = &look->error;
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        look_ended(look);
}

/* ---- Gathering ---- */

/* How many of those who wait go together, and how long their names are. */
static size_t count_locked(struct hfi_looks *looks, int64_t until_ms, size_t *ret_bytes) {
    size_t len = 0;
    const struct hfi_node *home = NULL;
    *ret_bytes = 0;
    for (struct hfi_link *link = looks->waiting.next; link != &looks->waiting && len < LOOK_MAX;
         link = link->next, len++) {
        const struct hfi_parked *parked = HFI_CONTAINER(link, struct hfi_parked, link);
        if (due_ms(parked) > until_ms || (home != NULL && parked->home != home) ||
            (len > 0 && *ret_bytes + parked->name_len > LOOK_BYTES_MAX))
            break;
        home = parked->home;
        *ret_bytes += parked->name_len;
    }
    return len;
}

static void take_locked(struct hfi_looks *looks, struct hfi_look *look) {
    struct hfi_link *link = hfi_list_pop_front(&looks->waiting);
    struct hfi_parked *parked = HFI_CONTAINER(link, struct hfi_parked, link);
    size_t begin = look->len > 0 ? look->items[look->len - 1].name_end : 0;
    if (look->home == NULL)
        look->home = hfi_node_ref(parked->home);
    memcpy(look->names + begin, parked->name, parked->name_len);
    look->items[look->len].parked = parked;
    look->items[look->len].name_end = begin + parked->name_len;
    parked->look = look;
    parked->look_index = (uint8_t)look->len++;
}

/* Without memory for a look the first attempts by itself. */
static struct hfi_look *make_locked(struct hfi_looks *looks, size_t len, size_t bytes) {
    struct hfi_look *look = hfi_zalloc(looks->redis->mem, sizeof *look + bytes);
    if (look == NULL) {
        struct hfi_link *first = hfi_list_pop_front(&looks->waiting);
        wake_locked(HFI_CONTAINER(first, struct hfi_parked, link));
        return NULL;
    }
    hfi_task_init(&look->task, looks->task.exec, run_look, destroy_look);
    hfi_list_push_back(&looks->running, &look->link);
    looks->running_len++;
    look->looks = looks;
    look->mem = looks->redis->mem;
    for (size_t i = 0; i < len; i++)
        take_locked(looks, look);
    return look;
}

/* Begins what is due, and finds out when to come again. */
static void gather(struct hfi_looks *looks) {
    int64_t now_ms = hfi_now_ms(), next_ms = HFI_NEVER;
    while (looks->running_len < RUNNING_MAX && !looks->stopped) {
        struct hfi_look *look = NULL;
        size_t bytes;
        pthread_mutex_lock(&looks->mtx);
        bool any = !hfi_list_empty(&looks->waiting);
        int64_t first_ms =
            any ? due_ms(HFI_CONTAINER(looks->waiting.next, struct hfi_parked, link)) : HFI_NEVER;
        if (first_ms <= now_ms) {
            size_t len = count_locked(looks, now_ms + GATHER_MS, &bytes);
            look = make_locked(looks, len, bytes);
        } else {
            next_ms = first_ms;
        }
        pthread_mutex_unlock(&looks->mtx);
        if (look != NULL)
            start_look(look);
        else if (first_ms > now_ms)
            break;
    }
    hfi_alarm_set(looks->task.exec, &looks->alarm, looks->stopped ? HFI_NEVER : next_ms);
}

/* ---- Life ---- */

static void run(struct hfi_task *task, unsigned events) {
    (void)events;
    gather(HFI_CONTAINER(task, struct hfi_looks, task));
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_looks, alarm)->task, HFI_EVENT_TIMER);
}

static void destroy(struct hfi_task *task) {
    struct hfi_looks *looks = HFI_CONTAINER(task, struct hfi_looks, task);
    pthread_mutex_destroy(&looks->mtx);
    hfi_free(looks->redis->mem, looks);
}

int hfi_looks_new(struct hfi_redis *redis, struct hfi_looks **ret) {
    struct hfi_looks *looks = hfi_zalloc(redis->mem, sizeof *looks);
    if (looks == NULL)
        return HF_ENOMEM;
    looks->redis = redis;
    looks->alarm.fire = alarm_fired;
    hfi_list_init(&looks->running);
    hfi_list_init(&looks->waiting);
    pthread_mutex_init(&looks->mtx, NULL);
    hfi_task_init(&looks->task, hfi_keeper_exec(redis->keeper), run, destroy);
    *ret = looks;
    return HF_OK;
}

void hfi_looks_stop(struct hfi_looks *looks) {
    if (looks == NULL)
        return;
    looks->stopped = true;
    hfi_alarm_clear(looks->task.exec, &looks->alarm);
    pthread_mutex_lock(&looks->mtx);
    for (struct hfi_link *link = looks->running.next; link != &looks->running; link = link->next) {
        struct hfi_look *look = HFI_CONTAINER(link, struct hfi_look, link);
        for (size_t i = 0; i < look->len; i++)
            if (look->items[i].parked != NULL)
                look->items[i].parked->look = NULL;
    }
    pthread_mutex_unlock(&looks->mtx);
    while (!hfi_list_empty(&looks->running))
        end_look(HFI_CONTAINER(looks->running.next, struct hfi_look, link));
}

void hfi_looks_free(struct hfi_looks *looks) {
    if (looks != NULL)
        hfi_task_unref(&looks->task);
}
