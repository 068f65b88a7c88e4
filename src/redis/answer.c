/*
 * Answering questions of others (answer.h) at one server.
 *
 * Questions come on the thread of whoever reads the pub/sub connection, and are only noted there, under
 * `mtx`: a few at most, since more cannot be answered in time. A task on the keeper answers them, one
 * after the other: each after a chance time, so that a thousand clients do not answer in one instant,
 * and no two within GAP_MS. What is told is the core's (struct hfi_news); it is written down here, and
 * published on the keeper's connection. An answer that fails is not tried again: the asker has gone on.
 */
#include "redis/answer.h"

#include "base/chance.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/glob.h"
#include "base/json.h"
#include "net/keeper.h"
#include "redis/internal.h"

#include <stdio.h>
#include <string.h>

#define GAP_MS 100
#define SPREAD_MS 50
#define NOTED_MAX 4
#define LIMIT_MIN 1024   /* less has no room for the client itself */
#define TAIL_ROOM 64     /* the end of the lists, and how much was left out */
#define QUESTION_MAX 512 /* prefix and pattern */
#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define VERSION STRING(HF_VERSION_MAJOR) "." STRING(HF_VERSION_MINOR) "." STRING(HF_VERSION_PATCH)

struct question {
    int64_t due_ms;
    size_t limit;
    char number[HFI_ASK_NUMBER_LEN];
    size_t prefix_len, pattern_len;
    char text[QUESTION_MAX]; /* prefix and pattern */
};

struct hfi_answers {
    struct hfi_task task; /* on the keeper */
    struct hfi_redis *redis;
    struct hfi_node *node; /* which owns it */
    /* The keeper's. */
    struct hfi_exchange exchange;
    struct hfi_alarm alarm;
    struct hfi_json json;
    struct question current;
    hf_error error;
    struct hfi_waiter here; /* on the channel of its own */
    bool telling, stopped, warned, shown;

    pthread_mutex_t mtx; /* guards below */
    struct question notes[NOTED_MAX];
    unsigned notes_len;
};

/* ---- Hearing ---- */

/* A number and the blank behind it. */
static bool read_number(const char **at, const char *end, long *ret) {
    *ret = 0;
    const char *from = *at;
    while (*at < end && **at >= '0' && **at <= '9' && *at - from < 9)
        *ret = *ret * 10 + (*(*at)++ - '0');
    return *at > from && *at < end && *(*at)++ == ' ';
}

static bool is_number(const char *at) {
    for (int i = 0; i < HFI_ASK_NUMBER_LEN; i++)
        if (!((at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'f')))
            return false;
    return at[HFI_ASK_NUMBER_LEN] == ' ';
}

/* False: it is no question, or none for us. */
static bool read_question(const struct hfi_redis *redis, const char *message, size_t len,
                          struct question *ret) {
    const char *at = message, *end = message + len;
    size_t head = strlen(HFI_ASK);
    long limit, db, prefix_len;
    if (len < head + HFI_ASK_NUMBER_LEN + 1 || memcmp(at, HFI_ASK, head) != 0 ||
        !is_number(at + head))
        return false;
    memcpy(ret->number, at + head, HFI_ASK_NUMBER_LEN);
    at += head + HFI_ASK_NUMBER_LEN + 1;
    if (!read_number(&at, end, &limit) || !read_number(&at, end, &db) ||
        !read_number(&at, end, &prefix_len) || db != redis->db || prefix_len > end - at ||
        end - at > QUESTION_MAX || limit < LIMIT_MIN)
        return false;
    ret->limit = limit < HFI_ANSWER_MAX ? (size_t)limit : HFI_ANSWER_MAX;
    ret->prefix_len = (size_t)prefix_len;
    ret->pattern_len = (size_t)(end - at) - ret->prefix_len;
    memcpy(ret->text, at, (size_t)(end - at));
    return true;
}

void hfi_answers_hear(struct hfi_answers *answers, const char *message, size_t len) {
    struct question question;
    if (!read_question(answers->redis, message, len, &question))
        return;
    question.due_ms =
        hfi_now_ms() + (int64_t)(hfi_throw_dice(answers->redis) % (uint64_t)(SPREAD_MS + 1));
    pthread_mutex_lock(&answers->mtx);
    bool room = answers->notes_len < NOTED_MAX;
    if (room)
        answers->notes[answers->notes_len++] = question;
    pthread_mutex_unlock(&answers->mtx);
    if (room)
        hfi_task_post(&answers->task, HFI_EVENT_MESSAGE);
}

/* ---- Being there ---- */

size_t hfi_answers_here(const struct hfi_redis *redis, const char *id, char to[HFI_HERE_SIZE]) {
    return (size_t)snprintf(to, HFI_HERE_SIZE, HFI_TELL_CHANNEL "%d:%.36s", redis->db, id);
}

/* Nobody has anything to say there. */
static void hear_nothing(struct hfi_waiter *waiter, const char *message, size_t len) {
    (void)waiter;
    (void)message;
    (void)len;
}

void hfi_answers_listen(struct hfi_answers *answers, bool on) {
    const char *id = answers->redis->client_name + strlen("holdfast:");
    char channel[HFI_HERE_SIZE];
    bool heard = false;
    if (answers->stopped || answers->shown == on)
        return;
    if (!on)
        hfi_pubsub_leave(&answers->here);
    else if (hfi_pubsub_join(hfi_node_learnt(answers->node)->pubsub, &answers->here, &answers->task,
                             channel, hfi_answers_here(answers->redis, id, channel),
                             &heard) != HF_OK)
        return; /* no memory: if it hangs, it will look as if it were new */
    answers->shown = on;
}

/* ---- What is told ---- */

struct telling {
    struct hfi_answers *answers;
    bool waits;
    int64_t left_out;
};

/* The name as the asker knows it: NULL if it is none of those it asks for. The key is made in `room`. */
static const char *asked_name(const struct hfi_answers *answers, const struct hfi_standing *it,
                              char *room, size_t *ret_len) {
    const struct hfi_names *names = &answers->redis->names;
    const struct question *question = &answers->current;
    size_t len = names->prefix_len + it->name_len;
    memcpy(room, names->prefix, names->prefix_len);
    memcpy(room + names->prefix_len, it->name, it->name_len);
    if (len < question->prefix_len || memcmp(room, question->text, question->prefix_len) != 0)
        return NULL;
    *ret_len = len - question->prefix_len;
    const char *name = room + question->prefix_len;
    bool matches =
        hfi_glob(question->text + question->prefix_len, question->pattern_len, name, *ret_len);
    return matches ? name : NULL;
}

static void write_standing(struct hfi_json *json, const struct hfi_standing *it, const char *name,
                           size_t name_len) {
    hfi_json_open(json, '{');
    hfi_json_bytes(json, "name", name, name_len);
    hfi_json_bytes(json, "kind", it->kind->name, strlen(it->kind->name));
    hfi_json_bytes(json, "owner", it->owner, it->owner_len);
    hfi_json_pair(json, "for_ms", it->for_ms);
    hfi_json_pair(json, "left_ms", it->left_ms);
    if (!it->waits) {
        hfi_json_pair(json, "count", it->count);
        hfi_json_pair(json, "renewed", it->renewed);
    }
    if (it->thread[0] != '\0')
        hfi_json_bytes(json, "thread", it->thread, strlen(it->thread));
    hfi_json_close(json, '}');
}

/* Under a shard. */
static void tell_standing(void *arg, const struct hfi_standing *it) {
    struct telling *telling = arg;
    struct hfi_json *json = &telling->answers->json;
    char room[HFI_NAME_MAX + 1];
    size_t len;
    if (it->waits != telling->waits ||
        telling->answers->redis->names.prefix_len + it->name_len > sizeof room)
        return;
    const char *name = asked_name(telling->answers, it, room, &len);
    if (name == NULL)
        return;
    struct hfi_json_mark mark = hfi_json_mark(json);
    if (telling->left_out == 0)
        write_standing(json, it, name, len);
    if (telling->left_out > 0 || json->full) {
        hfi_json_back(json, mark);
        telling->left_out++;
    }
}

/* Nothing if there was nothing; without the zeros at the end. How many there were is the sum of them. */
static void write_times(struct hfi_json *json, const char *key, const hf_times *times) {
    size_t len = sizeof times->buckets / sizeof times->buckets[0];
    while (len > 0 && times->buckets[len - 1] == 0)
        len--;
    if (len == 0)
        return;
    hfi_json_key(json, key);
    hfi_json_open(json, '{');
    hfi_json_pair(json, "sum_us", (int64_t)times->sum_us);
    hfi_json_pair(json, "max_us", (int64_t)times->max_us);
    hfi_json_key(json, "buckets");
    hfi_json_open(json, '[');
    for (size_t i = 0; i < len; i++)
        hfi_json_number(json, (int64_t)times->buckets[i]);
    hfi_json_close(json, ']');
    hfi_json_close(json, '}');
}

static void write_self(struct hfi_json *json, const struct hfi_redis *redis,
                       const struct hfi_bearing *self) {
    hfi_json_pair(json, "v", 1);
    hfi_json_bytes(json, "id", self->id, strlen(self->id));
    hfi_json_bytes(json, "name", redis->client_name, strlen(redis->client_name));
    hfi_json_bytes(json, "version", VERSION, strlen(VERSION));
    hfi_json_pair(json, "up_ms", self->up_ms);
    if (self->under != NULL)
        hfi_json_bytes(json, "under", self->under, strlen(self->under));
    hfi_json_pair(json, "acquired", (int64_t)self->acquired);
    hfi_json_pair(json, "contended", (int64_t)self->contended);
    hfi_json_pair(json, "timed_out", (int64_t)self->timed_out);
    hfi_json_pair(json, "losses", (int64_t)self->losses);
    hfi_json_pair(json, "renew_failures", (int64_t)self->renew_failures);
    hfi_json_pair(json, "released", (int64_t)self->released);
    hfi_json_pair(json, "renewals", (int64_t)self->renewals);
}

/* Left out where they would take the room of what is held and waited for. */
static void write_all_times(struct hfi_json *json, const struct hfi_bearing *self) {
    struct hfi_json_mark mark = hfi_json_mark(json);
    write_times(json, "wait", &self->wait);
    write_times(json, "hold", &self->hold);
    write_times(json, "hand_over", &self->hand_over);
    if (json->full || json->len > json->limit / 2)
        hfi_json_back(json, mark);
}

static void tell_nothing(void *arg, const struct hfi_standing *it) {
    (void)arg;
    (void)it;
}

/* One of the two lists. What it ends with has room in any case. */
static void write_list(struct telling *telling, const char *key, bool waits) {
    struct hfi_answers *answers = telling->answers;
    const struct hfi_news *news = answers->redis->news;
    struct hfi_json *json = &answers->json;
    struct hfi_bearing self;
    telling->waits = waits;
    hfi_json_key(json, key);
    hfi_json_open(json, '[');
    json->limit -= TAIL_ROOM;
    news->asked(news->arg, &self, tell_standing, telling);
    json->limit += TAIL_ROOM;
    hfi_json_close(json, ']');
}

/* Who tells nothing says that much, lest it be taken for one that hangs. */
static bool write_refusal(struct hfi_answers *answers) {
    const struct hfi_redis *redis = answers->redis;
    struct hfi_json *json = &answers->json;
    size_t head = strlen("holdfast:"), uuid = 36;
    if (strlen(redis->client_name) < head + uuid)
        return false;
    hfi_json_begin(json, redis->mem, answers->current.limit);
    hfi_json_open(json, '{');
    hfi_json_pair(json, "v", 1);
    hfi_json_bytes(json, "id", redis->client_name + head, uuid);
    hfi_json_pair(json, "tells_nothing", 1);
    hfi_json_close(json, '}');
    return !json->full;
}

/* False: there is nothing to send. Waits come first: there are fewer of them, and they tell more. */
static bool write_answer(struct hfi_answers *answers) {
    const struct hfi_news *news = answers->redis->news;
    struct hfi_json *json = &answers->json;
    struct telling telling = {.answers = answers};
    struct hfi_bearing self;
    if (news == NULL)
        return false;
    if (!news->asked(news->arg, &self, tell_nothing, NULL))
        return write_refusal(answers);
    hfi_json_begin(json, answers->redis->mem, answers->current.limit);
    hfi_json_open(json, '{');
    write_self(json, answers->redis, &self);
    if (json->full || json->len + TAIL_ROOM > json->limit)
        return false;
    write_all_times(json, &self);
    write_list(&telling, "waits", true);
    write_list(&telling, "holds", false);
    if (telling.left_out > 0)
        hfi_json_pair(json, "left_out", telling.left_out);
    hfi_json_close(json, '}');
    return !json->full;
}

/* ---- Sending ---- */

static void write_publish(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    const struct hfi_answers *answers = HFI_CONTAINER(x, struct hfi_answers, exchange);
    (void)not_after_ms;
    hfi_command_text(command, "PUBLISH");
    hfi_command_pair(command, HFI_TELL_CHANNEL, strlen(HFI_TELL_CHANNEL), answers->current.number,
                     HFI_ASK_NUMBER_LEN);
    hfi_command_bytes(command, answers->json.text, answers->json.len);
}

static void clear_text(struct hfi_answers *answers) {
    hfi_free(answers->redis->mem, answers->json.text);
    answers->json = (struct hfi_json){0};
}

static void told(struct hfi_answers *answers) {
    struct hfi_redis *redis = answers->redis;
    if (answers->exchange.err == HF_EPERM && !answers->warned) {
        answers->warned = true;
        hfi_log(
            redis->log, HF_LOG_WARN,
            "somebody asked what is held here, but this user may not publish on " HFI_TELL_CHANNEL
            "*: a survey shows it as silent");
    }
    hfi_exchange_end(&answers->exchange);
    clear_text(answers);
    answers->telling = false;
}

static void send_answer(struct hfi_answers *answers) {
    struct hfi_exchange *x = &answers->exchange;
    int64_t end_ms = hfi_now_ms() + answers->redis->cmd_timeout_ms;
    *x = (struct hfi_exchange){.redis = answers->redis,
                               .task = &answers->task,
                               .lane = HFI_LANE_KEEPER,
                               .retry = HFI_RETRY_NONE,
                               .write = write_publish,
                               .limit_ms = end_ms,
                               .reach_until_ms = end_ms,
                               .silence_ms = HFI_NEVER,
                               .limit_err = HF_EUNKNOWN,
                               .error = &answers->error};
    hfi_error_clear(&answers->error);
    answers->telling = true;
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        told(answers);
}

/* Takes the first question if its time has come. Else an alarm is set for that, if there is one. */
static bool take_question(struct hfi_answers *answers) {
    int64_t at_ms = HFI_NEVER;
    pthread_mutex_lock(&answers->mtx);
    if (answers->notes_len > 0)
        at_ms = hfi_max_ms(answers->notes[0].due_ms, answers->redis->answered_ms + GAP_MS);
    bool due = at_ms <= hfi_now_ms();
    if (due) {
        answers->current = answers->notes[0];
        answers->notes_len--;
        memmove(answers->notes, answers->notes + 1, answers->notes_len * sizeof answers->notes[0]);
    }
    pthread_mutex_unlock(&answers->mtx);
    if (!due && at_ms != HFI_NEVER)
        hfi_alarm_set(answers->task.exec, &answers->alarm, at_ms);
    return due;
}

/* A question comes by each server of a cluster, and once is enough. */
static bool is_answered(const struct hfi_answers *answers) {
    return memcmp(answers->redis->answered, answers->current.number, HFI_ASK_NUMBER_LEN) == 0;
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_answers *answers = HFI_CONTAINER(task, struct hfi_answers, task);
    if (answers->stopped)
        return;
    if (answers->telling && hfi_exchange_step(&answers->exchange, events) == HFI_FINISHED)
        told(answers);
    while (!answers->telling && take_question(answers)) {
        if (is_answered(answers))
            continue;
        answers->redis->answered_ms = hfi_now_ms();
        memcpy(answers->redis->answered, answers->current.number, HFI_ASK_NUMBER_LEN);
        if (write_answer(answers))
            send_answer(answers);
        else
            clear_text(answers);
    }
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_answers, alarm)->task, HFI_EVENT_MESSAGE);
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_answers *answers = HFI_CONTAINER(task, struct hfi_answers, task);
    pthread_mutex_destroy(&answers->mtx);
    hfi_free(answers->redis->mem, answers);
}

static const struct hfi_listener listener = {
    .hear = hear_nothing,
    .deaf =
        "the server refuses " HFI_TELL_CHANNEL "*, so surveys cannot tell when this client hangs",
};

int hfi_answers_new(struct hfi_redis *redis, struct hfi_node *node, struct hfi_answers **ret) {
    struct hfi_answers *answers = hfi_zalloc(redis->mem, sizeof *answers);
    if (answers == NULL)
        return HF_ENOMEM;
    answers->redis = redis;
    answers->node = node;
    answers->alarm.fire = alarm_fired;
    answers->here.listener = &listener;
    answers->here.idly = true;
    pthread_mutex_init(&answers->mtx, NULL);
    hfi_task_init(&answers->task, hfi_keeper_exec(redis->keeper), run, destroy);
    *ret = answers;
    return HF_OK;
}

void hfi_answers_stop(struct hfi_answers *answers) {
    if (answers == NULL || answers->stopped)
        return;
    hfi_answers_listen(answers, false);
    answers->stopped = true;
    hfi_alarm_clear(answers->task.exec, &answers->alarm);
    if (answers->telling)
        hfi_exchange_end(&answers->exchange);
    clear_text(answers);
}

void hfi_answers_free(struct hfi_answers *answers) {
    if (answers != NULL)
        hfi_task_unref(&answers->task);
}
