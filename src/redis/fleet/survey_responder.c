/*
 * The survey responder (survey_responder.h) at one server.
 *
 * Questions arrive on the thread that reads the pub/sub connection. It only notes them, under
 * `mtx`; a few at most, since more cannot be answered in time. A task on the keeper answers one
 * after the other. Each answer is delayed by jitter, so that a thousand clients do not answer at
 * once, and no two are within GAP_MS. If there is no room for a question, the answer only says that
 * this client is there. That costs little, is limited, too, and keeps the client from seeming
 * silent when many ask at once.
 *
 * The client writes its report (struct hfi_reporter), and the keeper's connection publishes it. A
 * failed answer is not retried: the asker has gone on.
 */
#include "redis/fleet/survey_question.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/jitter.h"
#include "base/json.h"
#include "engine/observe.h"
#include "net/driver/keeper.h"
#include "redis/fleet/announcements.h"
#include "redis/ops/call.h"

#include <stdio.h>
#include <string.h>

#define GAP_MS 100
#define SPREAD_MS 50
#define NOTED_MAX 4
#define ANNOUNCE_MS 1000
#define REFUSED_MAX 32 /* in one burst; refilled by one per GAP_MS */

struct query {
    int64_t due_ms;
    struct hfi_asked asked;
};

struct hfi_survey_responder {
    struct hfi_task task; /* on the keeper */
    struct hfi_redis *redis;
    struct hfi_node *node; /* which owns it */
    /* The keeper's. */
    struct hfi_exchange exchange;
    struct hfi_alarm alarm;
    struct hfi_json json;
    struct query current;
    hf_error error;
    struct hfi_waiter here; /* subscribed to the client's own channel */
    bool answering, stopped, warned, shown;
    struct hfi_waiter others; /* subscribed to the losses that others announce */
    bool subscribes;
    bool announces; /* what it sends is no answer, but an announcement of the losses up to: */
    unsigned announced;

    pthread_mutex_t mtx; /* guards below */
    struct query notes[NOTED_MAX];
    unsigned notes_len;
    /* answered with no more than that we are there */
    struct query refused[REFUSED_MAX];
    unsigned refused_len, refusals; /* so many more may be sent now */
    int64_t refusals_ms;            /* as of that time */
};

/* ---- Receiving ---- */

/* Token bucket: REFUSED_MAX at once, and one per GAP_MS on average. */
static bool may_refuse_locked(struct hfi_survey_responder *answers) {
    int64_t now_ms = hfi_now_ms(), more = (now_ms - answers->refusals_ms) / GAP_MS;
    if (more > 0) {
        answers->refusals_ms = now_ms;
        answers->refusals = (unsigned)hfi_min_ms(REFUSED_MAX, answers->refusals + more);
    }
    if (answers->refusals == 0 || answers->refused_len == REFUSED_MAX)
        return false;
    answers->refusals--;
    return true;
}

void hfi_survey_responder_on_message(struct hfi_survey_responder *answers, const char *message,
                                     size_t len) {
    struct query query;
    if (!hfi_asked_read(answers->redis, message, len, &query.asked))
        return;
    query.due_ms =
        hfi_now_ms() + (int64_t)(hfi_jitter_bits(answers->redis) % (uint64_t)(SPREAD_MS + 1));
    pthread_mutex_lock(&answers->mtx);
    bool room = answers->notes_len < NOTED_MAX || may_refuse_locked(answers);
    if (answers->notes_len < NOTED_MAX)
        answers->notes[answers->notes_len++] = query;
    else if (room)
        answers->refused[answers->refused_len++] = query;
    pthread_mutex_unlock(&answers->mtx);
    if (room)
        hfi_task_post(&answers->task, HFI_EVENT_MESSAGE);
}

/* ---- The client's own channel ---- */

size_t hfi_survey_responder_here(const struct hfi_redis *redis, const char *id,
                                 char to[HFI_HERE_SIZE]) {
    return (size_t)snprintf(to, HFI_HERE_SIZE, HFI_TELL_CHANNEL "%d:%.36s", redis->db, id);
}

/* Nothing is published there. */
static void ignore_message(struct hfi_waiter *waiter, const char *message, size_t len) {
    (void)waiter;
    (void)message;
    (void)len;
}

void hfi_survey_responder_subscribe(struct hfi_survey_responder *answers, bool on) {
    const char *id = answers->redis->client_name + strlen("holdfast:");
    char channel[HFI_HERE_SIZE];
    bool subscribed = false;
    if (answers->stopped || answers->shown == on)
        return;
    if (!on)
        hfi_pubsub_leave(&answers->here);
    else if (hfi_pubsub_join(hfi_node_learnt(answers->node)->pubsub, &answers->here, &answers->task,
                             channel, hfi_survey_responder_here(answers->redis, id, channel),
                             &subscribed) != HF_OK)
        return; /* no memory: if this client hangs, a survey takes it for a new one */
    answers->shown = on;
}

/* ---- Announcements of others ---- */

static void note_announcement(struct hfi_waiter *waiter, const char *message, size_t len) {
    struct hfi_survey_responder *answers =
        HFI_CONTAINER(waiter, struct hfi_survey_responder, others);
    hfi_announcements_note(answers->redis->announcements, message, len);
}

static const struct hfi_listener others_listener = {
    .on_message = note_announcement,
    .refused = "the server refuses " HFI_TELL_CHANNEL "*, so losses that clients announce are not "
               "counted; allow the channels",
};

static void subscribe_others(struct hfi_survey_responder *answers) {
    char channel[HFI_ANNOUNCE_CHANNEL_SIZE];
    bool subscribed = false;
    if (answers->subscribes || !atomic_load(&answers->redis->announcements->wanted))
        return;
    answers->subscribes =
        hfi_pubsub_join(hfi_node_learnt(answers->node)->pubsub, &answers->others, &answers->task,
                        channel, hfi_announcements_channel(answers->redis, channel),
                        &subscribed) == HF_OK; /* without memory, the next event tries again */
}

void hfi_survey_responder_wake(struct hfi_survey_responder *answers) {
    hfi_task_post(&answers->task, HFI_EVENT_MESSAGE);
}

/* ---- Sending ---- */

static void write_announcement(struct hfi_exchange *x, int64_t not_after_ms,
                               struct hfi_command *command) {
    const struct hfi_survey_responder *answers =
        HFI_CONTAINER(x, struct hfi_survey_responder, exchange);
    char channel[HFI_ANNOUNCE_CHANNEL_SIZE];
    (void)not_after_ms;
    hfi_command_text(command, "PUBLISH");
    hfi_command_bytes(command, channel, hfi_announcements_channel(answers->redis, channel));
    hfi_command_bytes(command, answers->json.text, answers->json.len);
}

static void write_publish(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    const struct hfi_survey_responder *answers =
        HFI_CONTAINER(x, struct hfi_survey_responder, exchange);
    (void)not_after_ms;
    hfi_command_text(command, "PUBLISH");
    hfi_command_pair(command, HFI_TELL_CHANNEL, strlen(HFI_TELL_CHANNEL),
                     answers->current.asked.number, HFI_ASK_NUMBER_LEN);
    hfi_command_bytes(command, answers->json.text, answers->json.len);
}

static void clear_text(struct hfi_survey_responder *answers) {
    hfi_free(answers->redis->mem, answers->json.text);
    answers->json = (struct hfi_json){0};
}

/* What was given up is announced again when a server is reached (hfi_announcements_retry()). */
static void end_announcement(struct hfi_survey_responder *answers, bool delivered) {
    struct hfi_announcements *announcements = answers->redis->announcements;
    const struct hfi_engine_events *engine_events = answers->redis->engine_events;
    answers->announces = false;
    announcements->sending = false;
    announcements->undelivered = announcements->undelivered || !delivered;
    atomic_store(&announcements->done, answers->announced);
    if (engine_events != NULL && !hfi_is_announcing(&answers->redis->base))
        engine_events->announced(engine_events->arg);
}

static void answered(struct hfi_survey_responder *answers) {
    struct hfi_redis *redis = answers->redis;
    if (answers->exchange.err == HF_EPERM && !answers->warned) {
        answers->warned = true;
        hfi_log(redis->log, HF_LOG_WARN,
                HFI_ABOUT(.code = HF_EPERM, .server = hfi_node_name(answers->node)),
                "cannot answer a survey: this user may not publish on " HFI_TELL_CHANNEL
                "*, so surveys show this client as silent; allow the channel");
    }
    bool delivered = answers->exchange.err == HF_OK || answers->exchange.err == HF_EPERM;
    hfi_exchange_end(&answers->exchange);
    clear_text(answers);
    answers->answering = false;
    if (answers->announces)
        end_announcement(answers, delivered);
}

static void send_answer(struct hfi_survey_responder *answers) {
    struct hfi_exchange *x = &answers->exchange;
    int64_t limit_ms = answers->redis->cmd_timeout_ms;
    if (answers->announces) /* hf_close() may wait for it */
        limit_ms = hfi_min_ms(limit_ms, ANNOUNCE_MS);
    int64_t end_ms = hfi_now_ms() + limit_ms;
    *x = (struct hfi_exchange){.redis = answers->redis,
                               .task = &answers->task,
                               .lane = HFI_LANE_KEEPER,
                               .retry = HFI_RETRY_NONE,
                               .write = answers->announces ? write_announcement : write_publish,
                               .limit_ms = end_ms,
                               .reach_until_ms = end_ms,
                               .silence_ms = HFI_NEVER,
                               .limit_err = HF_EINDOUBT,
                               .error = &answers->error};
    hfi_error_clear(&answers->error);
    answers->answering = true;
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        answered(answers);
}

static void take_first(struct hfi_survey_responder *answers, struct query *all, unsigned *len) {
    answers->current = all[0];
    --*len;
    memmove(all, all + 1, *len * sizeof *all);
}

/* Takes the first question if it is due. Else sets an alarm, if there is a question. */
static bool take_question(struct hfi_survey_responder *answers, bool *ret_refuse) {
    int64_t at_ms = HFI_NEVER, refused_ms = HFI_NEVER, now_ms = hfi_now_ms();
    pthread_mutex_lock(&answers->mtx);
    if (answers->notes_len > 0)
        at_ms = hfi_max_ms(answers->notes[0].due_ms, answers->redis->answered_ms + GAP_MS);
    if (answers->refused_len > 0)
        refused_ms = answers->refused[0].due_ms;
    *ret_refuse = at_ms > now_ms && refused_ms <= now_ms;
    if (*ret_refuse)
        take_first(answers, answers->refused, &answers->refused_len);
    else if (at_ms <= now_ms)
        take_first(answers, answers->notes, &answers->notes_len);
    pthread_mutex_unlock(&answers->mtx);
    int64_t next_ms = hfi_min_ms(at_ms, refused_ms);
    if (next_ms > now_ms && next_ms != HFI_NEVER)
        hfi_alarm_set(answers->task.exec, &answers->alarm, next_ms);
    return next_ms <= now_ms;
}

/* False: there is nothing to send. */
static bool write_answer(struct hfi_survey_responder *answers, bool refuse) {
    const struct hfi_redis *redis = answers->redis;
    const struct hfi_engine_events *engine_events = redis->engine_events;
    const struct hfi_asked *asked = &answers->current.asked;
    const struct hfi_report_request request = {.wanted = asked->wanted,
                                               .only_presence = refuse,
                                               .client_name = redis->client_name,
                                               .prefix = redis->names.prefix,
                                               .prefix_len = redis->names.prefix_len,
                                               .asker_prefix = asked->text,
                                               .asker_prefix_len = asked->prefix_len,
                                               .pattern = asked->text + asked->prefix_len,
                                               .pattern_len = asked->pattern_len};
    hfi_json_begin(&answers->json, redis->mem, asked->limit);
    return engine_events != NULL &&
           engine_events->reporter->report(engine_events->arg, &request, &answers->json);
}

/* Of all nodes' responders the first that runs announces: the route chooses the server. False:
 * there is nothing to announce, or it is being done. */
static bool begin_announcement(struct hfi_survey_responder *answers) {
    struct hfi_redis *redis = answers->redis;
    struct hfi_announcements *announcements = redis->announcements;
    const struct hfi_engine_events *engine_events = redis->engine_events;
    const struct hfi_report_request request = {.wanted = HF_WANT_STATS,
                                               .client_name = redis->client_name,
                                               .prefix = "",
                                               .asker_prefix = "",
                                               .pattern = ""};
    if (announcements->sending || !hfi_is_announcing(&redis->base))
        return false;
    announcements->sending = answers->announces = true;
    answers->announced = atomic_load(&announcements->due);
    hfi_json_begin(&answers->json, redis->mem, HFI_ANNOUNCE_BYTES);
    if (engine_events != NULL &&
        engine_events->reporter->report(engine_events->arg, &request, &answers->json))
        return true;
    clear_text(answers);
    end_announcement(answers, true); /* there is nothing to tell, or no memory */
    return false;
}

/* In a cluster a question arrives by each node; it is answered once. */
static bool is_answered(const struct hfi_survey_responder *answers) {
    return memcmp(answers->redis->answered, answers->current.asked.number, HFI_ASK_NUMBER_LEN) == 0;
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_survey_responder *answers = HFI_CONTAINER(task, struct hfi_survey_responder, task);
    if (answers->stopped)
        return;
    if (answers->answering && hfi_exchange_step(&answers->exchange, events) == HFI_FINISHED)
        answered(answers);
    bool refuse;
    subscribe_others(answers);
    while (!answers->answering && begin_announcement(answers))
        send_answer(answers);
    while (!answers->answering && take_question(answers, &refuse)) {
        if (is_answered(answers))
            continue;
        if (!refuse) {
            answers->redis->answered_ms = hfi_now_ms();
            memcpy(answers->redis->answered, answers->current.asked.number, HFI_ASK_NUMBER_LEN);
        }
        if (write_answer(answers, refuse))
            send_answer(answers);
        else
            clear_text(answers);
    }
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_survey_responder, alarm)->task,
                  HFI_EVENT_MESSAGE);
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_survey_responder *answers = HFI_CONTAINER(task, struct hfi_survey_responder, task);
    pthread_mutex_destroy(&answers->mtx);
    hfi_free(answers->redis->mem, answers);
}

static const struct hfi_listener listener = {
    .on_message = ignore_message,
    .refused =
        "the server refuses " HFI_TELL_CHANNEL "*, so surveys cannot detect when this client hangs",
};

int hfi_survey_responder_new(struct hfi_redis *redis, struct hfi_node *node,
                             struct hfi_survey_responder **ret) {
    struct hfi_survey_responder *answers = hfi_zalloc(redis->mem, sizeof *answers);
    if (answers == NULL)
        return HF_ENOMEM;
    answers->redis = redis;
    answers->node = node;
    answers->alarm.fire = alarm_fired;
    answers->here.listener = &listener;
    answers->here.lazy = true;
    answers->others.listener = &others_listener;
    answers->others.lazy = true;
    pthread_mutex_init(&answers->mtx, NULL);
    hfi_task_init(&answers->task, hfi_keeper_exec(redis->keeper), run, destroy);
    *ret = answers;
    return HF_OK;
}

void hfi_survey_responder_stop(struct hfi_survey_responder *answers) {
    if (answers == NULL || answers->stopped)
        return;
    hfi_survey_responder_subscribe(answers, false);
    if (answers->subscribes)
        hfi_pubsub_leave(&answers->others);
    answers->subscribes = false;
    answers->stopped = true;
    hfi_alarm_clear(answers->task.exec, &answers->alarm);
    if (answers->answering)
        hfi_exchange_end(&answers->exchange);
    clear_text(answers);
    if (answers->announces)
        end_announcement(answers, false);
}

void hfi_survey_responder_free(struct hfi_survey_responder *answers) {
    if (answers != NULL)
        hfi_task_unref(&answers->task);
}
