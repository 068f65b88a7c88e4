/*
 * Answering questions of others (answer.h) at one server.
 *
 * Questions come on the thread of whoever reads the pub/sub connection, and are only noted there, under
 * `mtx`: a few at most, since more cannot be answered in time. A task on the keeper answers them, one
 * after the other: each after a chance time, so that a thousand clients do not answer in one instant,
 * and no two within GAP_MS. What is told is written down by answer_text.c, and
 * published on the keeper's connection. An answer that fails is not tried again: the asker has gone on.
 */
#include "redis/answer_text.h"

#include "base/chance.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/keeper.h"
#include "redis/internal.h"

#include <stdio.h>
#include <string.h>

#define GAP_MS 100
#define SPREAD_MS 50
#define NOTED_MAX 4

struct question {
    int64_t due_ms;
    struct hfi_asked asked;
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

void hfi_answers_hear(struct hfi_answers *answers, const char *message, size_t len) {
    struct question question;
    if (!hfi_asked_read(answers->redis, message, len, &question.asked))
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

/* ---- Sending ---- */

static void write_publish(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    const struct hfi_answers *answers = HFI_CONTAINER(x, struct hfi_answers, exchange);
    (void)not_after_ms;
    hfi_command_text(command, "PUBLISH");
    hfi_command_pair(command, HFI_TELL_CHANNEL, strlen(HFI_TELL_CHANNEL),
                     answers->current.asked.number, HFI_ASK_NUMBER_LEN);
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
    return memcmp(answers->redis->answered, answers->current.asked.number, HFI_ASK_NUMBER_LEN) == 0;
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
        memcpy(answers->redis->answered, answers->current.asked.number, HFI_ASK_NUMBER_LEN);
        if (hfi_answer_write(answers->redis, &answers->current.asked, &answers->json))
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
