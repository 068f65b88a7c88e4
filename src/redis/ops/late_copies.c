/*
 * Releases of tokens that nobody holds, but that a lost copy of an acquire may still bring to life.
 *
 * A copy stuck on a dead connection can act until its PXAT has passed. If it does, the lock is
 * taken by nobody, for at most a lease; a stuck renewal may then lengthen that. So a token with a
 * lost copy is released once more, by a command that is sent when that time has surely passed: no
 * copy can bring it back from then on. A token is never used again, so an additional release does
 * no harm.
 *
 * If an attempt of the same owner finds such a token, it is released at once: nobody else is in the
 * way.
 *
 * If the server ends the connections of the lost copies (lost_conns.c), the release behind that is
 * the last, and need not wait.
 *
 * Any thread adds an entry, under the mutex. All else runs on the keeper's thread as one task, one
 * release at a time.
 */
#include "redis/ops/late_copies.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/driver/keeper.h"
#include "redis/kinds/string.h"
#include "redis/ops/call.h"

#include <string.h>

#define AGAIN_MS 500 /* after a release that failed */

struct entry {
    struct hfi_link link;
    int64_t at_ms;                    /* when to release it */
    int64_t until_ms;                 /* a release that is sent after this is the last */
    int64_t end_ms;                   /* by then its lease has ended */
    struct hfi_lost_conns lost_conns; /* none: unknown */
    bool conns_ended;
    bool hurried; /* its token was found, and its release before its time is not answered */
    size_t name_len, token_len;
    char bytes[]; /* the name, and the token */
};

struct hfi_late_copies {
    struct hfi_task task; /* on the keeper; freed with its last reference */
    struct hfi_redis *redis;
    const struct hfi_mem *mem;
    struct hfi_alarm alarm;
    struct hfi_exchange exchange;
    hf_error error;
    struct entry *running; /* what is done about it now; NULL: none */
    bool ending;           /* its connections are being ended, not yet its release sent */
    bool ends_conns;       /* the last command asks for that */
    bool stopped;

    pthread_mutex_t mtx; /* guards what follows, and changes of `running` */
    struct hfi_link entries;
    int64_t released_ms; /* when a release was answered last */
    bool closed;
};

/* ---- One release ---- */

static void write_release(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    const struct entry *entry = HFI_CONTAINER(x, struct hfi_late_copies, exchange)->running;
    (void)not_after_ms;
    hfi_string_write_release_of(x, entry->bytes, entry->name_len, entry->bytes + entry->name_len,
                                entry->token_len, command);
}

static void run_next(struct hfi_late_copies *late_copies);

static void drop(struct hfi_late_copies *late_copies, struct entry *entry) {
    hfi_free(late_copies->mem, entry);
}

/* The running one, which is looked at again, or not. */
static void end_running(struct hfi_late_copies *late_copies, bool again) {
    struct entry *entry = late_copies->running;
    pthread_mutex_lock(&late_copies->mtx);
    late_copies->running = NULL;
    late_copies->released_ms = hfi_now_ms();
    if (again)
        hfi_list_push_back(&late_copies->entries, &entry->link);
    pthread_mutex_unlock(&late_copies->mtx);
    if (!again)
        drop(late_copies, entry);
}

static void release(struct hfi_late_copies *late_copies);

static void released(struct hfi_late_copies *late_copies) {
    struct hfi_exchange *x = &late_copies->exchange;
    struct entry *entry = late_copies->running;
    struct hfi_release_answer answer;
    if (hfi_string_learn(x)) {
        if (hfi_exchange_begin(x) != HFI_FINISHED)
            return;
    }
    /* another type is there: no token */
    bool answered = x->err == HF_EWRONGTYPE ||
                    (x->err == HF_OK && hfi_string_read_release(x, &answer) == HF_OK);
    bool last = answered && (entry->conns_ended || x->sent_ms >= entry->until_ms);
    hfi_exchange_end(x);
    int64_t now_ms = hfi_now_ms();
    entry->at_ms = answered ? entry->until_ms : now_ms + AGAIN_MS;
    entry->hurried = entry->hurried && !answered;
    end_running(late_copies, !last && now_ms < entry->end_ms);
    run_next(late_copies);
}

/* Begins an exchange about the running entry. True: it has finished. */
static bool begin(struct hfi_late_copies *late_copies, const struct hfi_script *script,
                  void (*choose)(struct hfi_exchange *x),
                  void (*write)(struct hfi_exchange *x, int64_t not_after_ms,
                                struct hfi_command *command)) {
    struct hfi_exchange *x = &late_copies->exchange;
    const struct entry *entry = late_copies->running;
    hfi_error_clear(&late_copies->error);
    *x = (struct hfi_exchange){
        .redis = late_copies->redis,
        .task = &late_copies->task,
        .lane = HFI_LANE_KEEPER,
        .retry = HFI_RETRY_NONE,
        .script = script,
        .name = entry->bytes,
        .name_len = entry->name_len,
        .write = write,
        .limit_ms = hfi_now_ms() + late_copies->redis->cmd_timeout_ms,
        .silence_ms = HFI_NEVER,
        .limit_err = HF_EINDOUBT,
        .error = &late_copies->error,
    };
    x->reach_until_ms = x->limit_ms;
    hfi_exchange_choose_by(x, choose);
    return hfi_exchange_begin(x) == HFI_FINISHED;
}

static void release(struct hfi_late_copies *late_copies) {
    late_copies->ending = false;
    if (begin(late_copies, &hfi_script_string_release, hfi_string_choose_release, write_release))
        released(late_copies);
}

/* ---- Ending the connections of lost copies ---- */

/* Without the right, or at another server, there is nothing to ask. */
static void choose_ends(struct hfi_exchange *x) {
    struct hfi_late_copies *late_copies = HFI_CONTAINER(x, struct hfi_late_copies, exchange);
    const struct hfi_lost_conns *lost_conns = &late_copies->running->lost_conns;
    late_copies->ends_conns = hfi_lost_conns_can_end(lost_conns, x);
    x->fronts = late_copies->ends_conns ? lost_conns->len - 1 : 0;
}

static void write_ends(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_late_copies *late_copies = HFI_CONTAINER(x, struct hfi_late_copies, exchange);
    const struct hfi_lost_conns *lost_conns = &late_copies->running->lost_conns;
    (void)not_after_ms;
    if (!late_copies->ends_conns) {
        hfi_command_text(command, "PING");
        return;
    }
    for (unsigned i = 0; i < lost_conns->len; i++) {
        if (i > 0) {
            hfi_command_close(command);
            hfi_command_open(command);
        }
        hfi_lost_conns_write(lost_conns, i, command);
    }
}

static void asked_for_ends(struct hfi_late_copies *late_copies) {
    struct hfi_exchange *x = &late_copies->exchange;
    struct entry *entry = late_copies->running;
    if (late_copies->ends_conns && x->req != NULL)
        entry->conns_ended = hfi_lost_conns_have_ended(&entry->lost_conns, x, x->fronts);
    hfi_exchange_end(x);
    release(late_copies);
}

static void begin_running(struct hfi_late_copies *late_copies) {
    const struct entry *entry = late_copies->running;
    if (entry->lost_conns.len == 0 || entry->conns_ended) {
        release(late_copies);
        return;
    }
    late_copies->ending = true;
    if (begin(late_copies, NULL, choose_ends, write_ends))
        asked_for_ends(late_copies);
}

/* ---- The list ---- */

/* The entry that is due first; NULL: none. */
static struct entry *first_locked(struct hfi_late_copies *late_copies) {
    struct entry *first = NULL;
    for (struct hfi_link *link = late_copies->entries.next; link != &late_copies->entries;
         link = link->next) {
        struct entry *entry = HFI_CONTAINER(link, struct entry, link);
        if (first == NULL || entry->at_ms < first->at_ms)
            first = entry;
    }
    return first;
}

static void run_next(struct hfi_late_copies *late_copies) {
    pthread_mutex_lock(&late_copies->mtx);
    struct entry *entry = first_locked(late_copies);
    bool due = entry != NULL && hfi_now_ms() >= entry->at_ms;
    int64_t at_ms = entry != NULL ? entry->at_ms : HFI_NEVER;
    if (due) {
        hfi_list_remove(&entry->link);
        late_copies->running = entry;
    }
    pthread_mutex_unlock(&late_copies->mtx);
    if (due)
        begin_running(late_copies);
    else if (at_ms != HFI_NEVER)
        hfi_alarm_set(late_copies->task.exec, &late_copies->alarm, at_ms);
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_late_copies, alarm)->task, HFI_EVENT_MESSAGE);
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_late_copies *late_copies = HFI_CONTAINER(task, struct hfi_late_copies, task);
    if (late_copies->stopped)
        return;
    if (late_copies->running == NULL)
        run_next(late_copies);
    else if (hfi_exchange_step(&late_copies->exchange, events) == HFI_FINISHED)
        (late_copies->ending ? asked_for_ends : released)(late_copies);
}

void hfi_late_copies_add(struct hfi_redis *redis, const char *name, size_t name_len,
                         const char *owner, size_t owner_len, const struct hfi_late_token *token) {
    struct hfi_late_copies *late_copies = redis->late_copies;
    const struct hfi_stamp *stamp = token->stamp;
    if (stamp->text != NULL)
        return; /* the caller's choice may be in use again by then */
    size_t token_len = hfi_string_token_len(stamp, owner_len);
    struct entry *entry = hfi_zalloc(redis->mem, sizeof *entry + name_len + token_len);
    if (entry == NULL)
        return;
    entry->at_ms = token->first_ms;
    entry->until_ms = token->until_ms;
    entry->end_ms = hfi_after_ms(hfi_max_ms(token->until_ms, hfi_now_ms()), token->lease_ms);
    if (token->lost_conns != NULL && !token->lost_conns->incomplete)
        entry->lost_conns = *token->lost_conns;
    entry->name_len = name_len;
    entry->token_len = token_len;
    memcpy(entry->bytes, name, name_len);
    hfi_string_write_token(stamp, owner, owner_len, entry->bytes + name_len);
    pthread_mutex_lock(&late_copies->mtx);
    bool closed = late_copies->closed;
    if (!closed)
        hfi_list_push_back(&late_copies->entries, &entry->link);
    pthread_mutex_unlock(&late_copies->mtx);
    if (closed)
        drop(late_copies, entry);
    else
        hfi_task_post(&late_copies->task, HFI_EVENT_MESSAGE);
}

static bool is_about(const struct entry *entry, const char *name, size_t name_len,
                     const char *token, size_t token_len) {
    return entry->name_len == name_len && entry->token_len == token_len &&
           memcmp(entry->bytes, name, name_len) == 0 &&
           memcmp(entry->bytes + name_len, token, token_len) == 0;
}

/* One that is due stays so: its turn comes. */
static bool hurry_locked(struct entry *entry) {
    int64_t now_ms = hfi_now_ms();
    if (entry->at_ms <= now_ms)
        return true;
    bool in_vain = entry->hurried;
    entry->hurried = true;
    if (!in_vain)
        entry->at_ms = now_ms;
    return !in_vain;
}

bool hfi_late_copies_hurry(struct hfi_redis *redis, const char *name, size_t name_len,
                           const char *token, size_t token_len, int64_t asked_ms) {
    struct hfi_late_copies *late_copies = redis->late_copies;
    bool comes = false;
    pthread_mutex_lock(&late_copies->mtx);
    const struct entry *running = late_copies->running;
    if (running != NULL && is_about(running, name, name_len, token, token_len))
        comes = true;
    for (struct hfi_link *link = late_copies->entries.next; !comes && link != &late_copies->entries;
         link = link->next) {
        struct entry *entry = HFI_CONTAINER(link, struct entry, link);
        if (is_about(entry, name, name_len, token, token_len))
            comes = hurry_locked(entry);
    }
    comes = comes || late_copies->released_ms >= asked_ms; /* found before it was released */
    bool closed = late_copies->closed;
    pthread_mutex_unlock(&late_copies->mtx);
    if (comes && !closed)
        hfi_task_post(&late_copies->task, HFI_EVENT_MESSAGE);
    return comes;
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_late_copies *late_copies = HFI_CONTAINER(task, struct hfi_late_copies, task);
    pthread_mutex_destroy(&late_copies->mtx);
    hfi_free(late_copies->mem, late_copies);
}

struct hfi_late_copies *hfi_late_copies_new(struct hfi_redis *redis) {
    struct hfi_late_copies *late_copies = hfi_zalloc(redis->mem, sizeof *late_copies);
    if (late_copies == NULL)
        return NULL;
    late_copies->redis = redis;
    late_copies->mem = redis->mem;
    late_copies->alarm.fire = alarm_fired;
    hfi_list_init(&late_copies->entries);
    pthread_mutex_init(&late_copies->mtx, NULL);
    hfi_task_init(&late_copies->task, hfi_keeper_exec(redis->keeper), run, destroy);
    return late_copies;
}

void hfi_late_copies_stop(struct hfi_late_copies *late_copies) {
    struct hfi_link *link;
    late_copies->stopped = true;
    pthread_mutex_lock(&late_copies->mtx);
    late_copies->closed = true;
    while ((link = hfi_list_pop_front(&late_copies->entries)) != NULL)
        drop(late_copies, HFI_CONTAINER(link, struct entry, link));
    pthread_mutex_unlock(&late_copies->mtx);
    hfi_alarm_clear(late_copies->task.exec, &late_copies->alarm);
    if (late_copies->running == NULL)
        return;
    hfi_exchange_end(&late_copies->exchange);
    end_running(late_copies, false);
}

void hfi_late_copies_free(struct hfi_late_copies *late_copies) {
    if (late_copies != NULL)
        hfi_task_unref(&late_copies->task);
}
