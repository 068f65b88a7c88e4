/*
 * The clients' half of a survey: a question to all subscribed clients, and their answers
 * (survey_responder.h).
 *
 * Steps of survey.c, on the thread of the call's executor. It first subscribes to the channel of
 * its own number, and publishes the question when that is confirmed, so no answer is missed.
 * Cluster nodes forward both, so if one node fails the next is tried. Answers arrive on the thread
 * that reads the connection, under the mutex of the registry of channels. They are stored unparsed,
 * up to a limit; only the client's id is read.
 */
#include "base/clock.h"
#include "base/error.h"
#include "redis/fleet/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ANSWER_BYTES (256 * 1024) /* of one client */
#define ALL_BYTES (64 * 1024 * 1024)
#define MORE_BYTES 512    /* overhead counted per answer: many short ones cost memory, too */
#define REPLY_WAIT_MS 500 /* healthy clients answer in a tenth of this */
#define ID_LEN 36
#define ID_WITHIN 64 /* bytes of an answer: the id comes first */

/* ---- Awaited clients ---- */

static bool are_subscribers_known(const struct hfi_redis_survey *survey) {
    return survey->subscribers_known && !survey->subscribers_unknown;
}

static int compare_ids(const void *a, const void *b) {
    const struct hfi_survey_subscriber *one = a, *other = b;
    return memcmp(one->id, other->id, ID_LEN);
}

/* Each client once, even if it has several connections. */
static void sort_awaited(struct hfi_redis_survey *survey) {
    struct hfi_survey_subscriber *all = survey->awaited;
    size_t len = 0;
    qsort(all, survey->awaited_len, sizeof *all, compare_ids);
    for (size_t i = 0; i < survey->awaited_len; i++)
        if (len == 0 || compare_ids(&all[len - 1], &all[i]) != 0)
            all[len++] = all[i];
    survey->awaited_len = len;
    survey->subscribers = (int64_t)len;
}

/* Notes the clients that were seen to be subscribed to questions. A client may connect after that
 * and answer, too. That must not count as the answer of an awaited one, which would then seem
 * silent. */
static void note_awaited(struct hfi_redis_survey *survey) {
    const struct hfi_link *head = &survey->findings->connections;
    if (!are_subscribers_known(survey) || survey->subscribers == 0)
        return;
    survey->awaited = calloc((size_t)survey->subscribers, sizeof *survey->awaited);
    if (survey->awaited == NULL)
        return;
    for (struct hfi_link *link = head->next; link != head; link = link->next) {
        const struct hfi_found_connection *connection =
            HFI_CONTAINER(link, struct hfi_found_connection, link);
        if (connection->listens && survey->awaited_len < (size_t)survey->subscribers)
            survey->awaited[survey->awaited_len++].id = connection->name + strlen("holdfast:");
    }
    sort_awaited(survey);
}

/* Under the mutex of the registry. True: it is the first answer of an awaited client. */
static bool is_awaited(struct hfi_redis_survey *survey, const char *answer, size_t len) {
    static const char key[] = "\"id\":\"";
    if (survey->awaited == NULL)
        return true;
    const char *at = memmem(answer, len < ID_WITHIN ? len : ID_WITHIN, key, strlen(key));
    if (at == NULL || (size_t)(answer + len - at) < strlen(key) + ID_LEN)
        return false;
    const struct hfi_survey_subscriber wanted = {.id = at + strlen(key)};
    struct hfi_survey_subscriber *subscriber = bsearch(
        &wanted, survey->awaited, survey->awaited_len, sizeof *survey->awaited, compare_ids);
    if (subscriber == NULL || subscriber->answered)
        return false;
    subscriber->answered = true;
    return true;
}

/* ---- Answers ---- */

/* Under the mutex of the registry. */
static void on_message(struct hfi_waiter *waiter, const char *message, size_t len) {
    struct hfi_redis_survey *survey = HFI_CONTAINER(waiter, struct hfi_redis_survey, waiter);
    if (len > ANSWER_BYTES) /* more than the question allowed */
        return;
    struct hfi_found_answer *answer =
        survey->answers_bytes + MORE_BYTES + len > ALL_BYTES ? NULL : malloc(sizeof *answer + len);
    survey->dropped = survey->dropped || answer == NULL;
    if (answer == NULL)
        return;
    *answer = (struct hfi_found_answer){.len = len};
    memcpy(answer->text, message, len);
    survey->answers_bytes += MORE_BYTES + len;
    hfi_list_push_back(&survey->findings->answers, &answer->link);
    if (is_awaited(survey, message, len))
        atomic_fetch_add(&survey->answers, 1);
}

/* Under the mutex of the registry. */
static void on_state(struct hfi_waiter *waiter, enum hfi_name_listener_state state) {
    struct hfi_redis_survey *survey = HFI_CONTAINER(waiter, struct hfi_redis_survey, waiter);
    survey->gap = survey->gap || (survey->listened && state != HFI_SUBSCRIBED);
    survey->listened = survey->listened || state == HFI_SUBSCRIBED;
}

static const struct hfi_listener listener = {
    .on_message = on_message,
    .on_state = on_state,
    .refused = "the server refuses the subscription to clients' survey replies; allow the "
               "channels"};

void hfi_survey_stop_asking(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->home != NULL) {
        hfi_pubsub_leave(&survey->waiter);
        hfi_node_unref(survey->home);
        survey->home = NULL;
    }
}

static void note_events(struct hfi_redis_survey *survey, unsigned events) {
    if ((events & HFI_EVENT_SUBSCRIBED) != 0) /* here, or at a node that was tried before */
        survey->subscribed = survey->subscribed || hfi_pubsub_is_subscribed(&survey->waiter);
    if ((events & HFI_EVENT_REFUSED) != 0)
        survey->refused = true;
}

/* ---- Awaiting them ---- */

/* Clients of other databases get questions, too, and do not answer. */
static int64_t expected(const struct hfi_redis_survey *survey) {
    return are_subscribers_known(survey)
               ? hfi_min_ms(survey->subscribers, survey->findings->subscribers)
               : survey->findings->subscribers;
}

static bool all_answered(const struct hfi_redis_survey *survey) {
    return survey->refused || atomic_load(&survey->answers) >= expected(survey);
}

void hfi_survey_note_cut(struct hfi_redis_survey *survey) {
    struct hfi_findings *findings = survey->findings;
    const char *why = survey->gap       ? "the connection was lost"
                      : survey->dropped ? "too many"
                      : survey->hurried ? "the time limit ended"
                                        : NULL;
    if (why == NULL || findings->subscribers < 0 ||
        atomic_load(&survey->answers) >= expected(survey))
        return;
    findings->answers_cut = true;
    if (findings->text[0] == '\0')
        snprintf(findings->text, sizeof findings->text, "some clients' replies are missing: %s",
                 why);
}

static void step_await(struct hfi_call *call, unsigned events) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    note_events(survey, events);
    bool late =
        (events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&hfi_state_of(call)->exchange);
    if (late || all_answered(survey))
        survey->next(call);
}

void hfi_survey_await(struct hfi_call *call, hfi_survey_step *next) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis_survey *survey = state->u.survey;
    int64_t until_ms = hfi_min_ms(survey->asked_ms + REPLY_WAIT_MS, call->deadline_ms - 1);
    survey->next = next;
    survey->hurried = call->deadline_ms - 1 < survey->asked_ms + REPLY_WAIT_MS;
    if (survey->findings->subscribers < 0 || all_answered(survey) || hfi_now_ms() >= until_ms) {
        next(call);
        return;
    }
    state->step = step_await;
    hfi_exchange_sleep(&state->exchange, until_ms);
}

/* ---- The question ---- */

static void say_missing(struct hfi_call *call, const char *text) {
    struct hfi_findings *findings = hfi_survey_of(call)->findings;
    snprintf(findings->text, sizeof findings->text, "the clients were not asked: %s", text);
}

static void ask_here(struct hfi_call *call);

/* False: there is no other node, or no time. */
static bool ask_at_next(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->node + 1 >= survey->nodes_len || hfi_now_ms() >= call->deadline_ms - 1)
        return false;
    hfi_survey_stop_asking(call);
    hfi_error_clear(&call->error);
    survey->node++;
    ask_here(call);
    return true;
}

static void asked(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis_survey *survey = state->u.survey;
    const struct hfi_exchange *x = &state->exchange;
    const struct hfi_reply *reply = x->err == HF_OK ? hfi_exchange_reply(x) : NULL;
    bool over = x->err == HF_ECLOSED || x->err == HF_ECANCELED;
    if (x->err != HF_OK && !over && ask_at_next(call))
        return;
    if (x->overdue) {
        hfi_survey_failed(call);
        return;
    }
    if (x->err != HF_OK && !hfi_is_withheld(x->err)) {
        hfi_call_finish(call, x->err);
        return;
    }
    if (reply != NULL && reply->type == HFI_REPLY_INTEGER && reply->integer >= 0) {
        /* a cluster node counts its own subscribers only, so its count is not used */
        survey->findings->subscribers = survey->nodes_len > 0 ? INT64_MAX : reply->integer;
        survey->asked_ms = hfi_now_ms();
    } else {
        say_missing(call, "this user may not publish on " HFI_BREAK_CHANNEL);
    }
    survey->next(call);
}

static void write_question(struct hfi_exchange *x, int64_t not_after_ms,
                           struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    const struct hfi_redis_survey *survey = hfi_state_around(x)->u.survey;
    const struct hfi_names *names = &x->redis->names;
    char head[128];
    (void)not_after_ms;
    char wishes[HFI_WISHES_SIZE];
    hfi_wishes_write(call->wanted, wishes);
    int head_len = snprintf(head, sizeof head, HFI_ASK "%s %d %s %d %zu ", survey->number,
                            ANSWER_BYTES, wishes, x->redis->db, names->prefix_len);
    hfi_command_text(command, "PUBLISH");
    hfi_command_text(command, HFI_BREAK_CHANNEL);
    char *room = hfi_command_room(command, (size_t)head_len + names->prefix_len + call->name_len);
    if (room == NULL)
        return;
    memcpy(room, head, (size_t)head_len);
    memcpy(room + head_len, names->prefix, names->prefix_len);
    memcpy(room + head_len + names->prefix_len, call->name, call->name_len);
}

static void publish_or_not(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->subscribed && !survey->refused) {
        hfi_survey_send(call, write_question, asked);
        return;
    }
    if (ask_at_next(call))
        return;
    say_missing(call, survey->refused
                          ? "the server refuses the subscription to their replies"
                          : "the server does not confirm the subscription to their replies");
    hfi_survey_stop_asking(call);
    survey->next(call);
}

static void step_subscribing(struct hfi_call *call, unsigned events) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    note_events(survey, events);
    bool late =
        (events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&hfi_state_of(call)->exchange);
    if (survey->subscribed || survey->refused || late)
        publish_or_not(call);
}

static bool draw_number(char *number) {
    unsigned char bytes[HFI_ASK_NUMBER_LEN / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(number + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

static void ask_here(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis_survey *survey = state->u.survey;
    char channel[sizeof HFI_TELL_CHANNEL + HFI_ASK_NUMBER_LEN];
    snprintf(channel, sizeof channel, HFI_TELL_CHANNEL "%s", survey->number);
    survey->subscribed = survey->refused = survey->listened = survey->gap = false;
    survey->waiter = (struct hfi_waiter){
        .listener = &listener,
        .caller = call->lane == HFI_LANE_CALLER ? &state->exchange.sync_caller : NULL};
    struct hfi_node *node =
        hfi_node_ref(survey->nodes_len > 0 ? survey->nodes[survey->node] : state->exchange.node);
    int err = hfi_pubsub_join(hfi_node_learnt(node)->pubsub, &survey->waiter, call->task, channel,
                              strlen(channel), &survey->subscribed);
    if (err != HF_OK) {
        hfi_node_unref(node);
        if (err == HF_ENOMEM) {
            hfi_call_fail(call, HF_ENOMEM, "out of memory");
        } else if (!ask_at_next(call)) {
            say_missing(call, "the server is no longer in use");
            survey->next(call);
        }
        return;
    }
    survey->home = node;
    state->step = step_subscribing;
    hfi_exchange_sleep(
        &state->exchange,
        hfi_min_ms(hfi_now_ms() + state->exchange.redis->cmd_timeout_ms, call->deadline_ms - 1));
}

void hfi_survey_ask(struct hfi_call *call, hfi_survey_step *next) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    survey->next = next;
    if (!draw_number(survey->number)) {
        hfi_fail_errno(&call->error, HF_ESYS, errno, "cannot get random numbers from the system");
        hfi_call_finish(call, HF_ESYS);
        return;
    }
    note_awaited(survey);
    ask_here(call);
}
