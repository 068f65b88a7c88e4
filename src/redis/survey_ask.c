/*
 * The fleet's half of a survey: a question to all who listen, and what they answer (answer.h).
 *
 * Steps of survey.c, on the thread of the call's executor. It subscribes to the channel of its own
 * number first, and publishes when that is confirmed, so no answer is missed. Servers of a cluster pass on both, so if that fails at one
 * of them it is done at the next. Answers come on the thread of
 * whoever reads the connection, under the mutex of the registry of channels; they are kept as they are,
 * up to a limit, and nobody here reads more of them than whose they are.
 */
#include "base/clock.h"
#include "base/error.h"
#include "redis/survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ANSWER_BYTES (256 * 1024) /* of one client */
#define ALL_BYTES (64 * 1024 * 1024)
#define MORE_BYTES 512  /* an answer counts as this much more: many short ones cost memory, too */
#define PATIENCE_MS 500 /* those who are well answer in a tenth of this */
#define ID_LEN 36
#define ID_WITHIN 64 /* bytes of an answer: it comes first */

/* ---- Who is waited for ---- */

static bool are_hearers_known(const struct hfi_redis_survey *survey) {
    return survey->hearers_known && !survey->hearers_unknown;
}

static int compare_ids(const void *a, const void *b) {
    const struct hfi_survey_hearer *one = a, *other = b;
    return memcmp(one->id, other->id, ID_LEN);
}

/* Each once, though it may have several connections. */
static void sort_awaited(struct hfi_redis_survey *survey) {
    struct hfi_survey_hearer *all = survey->awaited;
    size_t len = 0;
    qsort(all, survey->awaited_len, sizeof *all, compare_ids);
    for (size_t i = 0; i < survey->awaited_len; i++)
        if (len == 0 || compare_ids(&all[len - 1], &all[i]) != 0)
            all[len++] = all[i];
    survey->awaited_len = len;
    survey->hearers = (int64_t)len;
}

/* Those who were seen to hear questions. Somebody may come between that and the question, and answer; that must not be taken for
 * the answer of one of them, who would then seem to be silent. */
static void note_awaited(struct hfi_redis_survey *survey) {
    const struct hfi_link *head = &survey->findings->connections;
    if (!are_hearers_known(survey) || survey->hearers == 0)
        return;
    survey->awaited = calloc((size_t)survey->hearers, sizeof *survey->awaited);
    if (survey->awaited == NULL)
        return;
    for (struct hfi_link *link = head->next; link != head; link = link->next) {
        const struct hfi_found_connection *connection =
            HFI_CONTAINER(link, struct hfi_found_connection, link);
        if (connection->listens && survey->awaited_len < (size_t)survey->hearers)
            survey->awaited[survey->awaited_len++].id = connection->name + strlen("holdfast:");
    }
    sort_awaited(survey);
}

/* Under the mutex of the registry. Whether it is the first answer of one who is waited for. */
static bool is_awaited(struct hfi_redis_survey *survey, const char *answer, size_t len) {
    static const char key[] = "\"id\":\"";
    if (survey->awaited == NULL)
        return true;
    const char *at = memmem(answer, len < ID_WITHIN ? len : ID_WITHIN, key, strlen(key));
    if (at == NULL || (size_t)(answer + len - at) < strlen(key) + ID_LEN)
        return false;
    const struct hfi_survey_hearer wanted = {.id = at + strlen(key)};
    struct hfi_survey_hearer *hearer = bsearch(&wanted, survey->awaited, survey->awaited_len,
                                               sizeof *survey->awaited, compare_ids);
    if (hearer == NULL || hearer->answered)
        return false;
    hearer->answered = true;
    return true;
}

/* ---- Answers ---- */

/* Under the mutex of the registry. */
static void hear(struct hfi_waiter *waiter, const char *message, size_t len) {
    struct hfi_redis_survey *survey = HFI_CONTAINER(waiter, struct hfi_redis_survey, waiter);
    if (len > ANSWER_BYTES || survey->answers_bytes + MORE_BYTES + len > ALL_BYTES)
        return;
    struct hfi_found_answer *answer = malloc(sizeof *answer + len);
    if (answer == NULL)
        return;
    *answer = (struct hfi_found_answer){.len = len};
    memcpy(answer->text, message, len);
    survey->answers_bytes += MORE_BYTES + len;
    hfi_list_push_back(&survey->findings->answers, &answer->link);
    if (is_awaited(survey, message, len))
        atomic_fetch_add(&survey->answers, 1);
}

static const struct hfi_listener listener = {
    .hear = hear, .deaf = "the server refuses to tell what clients answer to a survey"};

void hfi_survey_stop_asking(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->home != NULL) {
        hfi_pubsub_leave(&survey->waiter);
        hfi_node_unref(survey->home);
        survey->home = NULL;
    }
}

static void note_news(struct hfi_redis_survey *survey, unsigned events) {
    if ((events & HFI_EVENT_SUBSCRIBED) != 0) /* there, or where it was asked before */
        survey->heard = survey->heard || hfi_pubsub_is_heard(&survey->waiter);
    if ((events & HFI_EVENT_DEAF) != 0)
        survey->deaf = true;
}

/* ---- Waiting for them ---- */

/* Those of other databases hear questions, too, and do not answer. */
static int64_t expected(const struct hfi_redis_survey *survey) {
    return are_hearers_known(survey) ? hfi_min_ms(survey->hearers, survey->findings->hearers)
                                     : survey->findings->hearers;
}

static bool all_answered(const struct hfi_redis_survey *survey) {
    return survey->deaf || atomic_load(&survey->answers) >= expected(survey);
}

static void step_await(struct hfi_call *call, unsigned events) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    note_news(survey, events);
    bool late =
        (events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&hfi_state_of(call)->exchange);
    if (late || all_answered(survey))
        survey->next(call);
}

void hfi_survey_await(struct hfi_call *call, hfi_survey_step *next) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis_survey *survey = state->u.survey;
    int64_t until_ms = hfi_min_ms(survey->asked_ms + PATIENCE_MS, call->deadline_ms - 1);
    survey->next = next;
    if (survey->findings->hearers < 0 || all_answered(survey) || hfi_now_ms() >= until_ms) {
        next(call);
        return;
    }
    state->step = step_await;
    hfi_exchange_sleep(&state->exchange, until_ms);
}

/* ---- The question ---- */

static void say_missing(struct hfi_call *call, const char *words) {
    struct hfi_findings *findings = hfi_survey_of(call)->findings;
    snprintf(findings->words, sizeof findings->words, "the clients were not asked: %s", words);
}

static void ask_here(struct hfi_call *call);

/* False: there is no other server, or no time. */
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
    const redisReply *reply = x->err == HF_OK ? hfi_exchange_reply(x) : NULL;
    bool over = x->err == HF_ECLOSED || x->err == HF_ECANCELED;
    if (x->err != HF_OK && !over && ask_at_next(call))
        return;
    if (x->err != HF_OK && !hfi_is_withheld(x->err)) {
        hfi_call_finish(call, x->err);
        return;
    }
    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0) {
        /* a server of a cluster knows of its own only, and that is taken for too few */
        survey->findings->hearers = survey->nodes_len > 0 ? INT64_MAX : reply->integer;
        survey->asked_ms = hfi_now_ms();
    } else {
        say_missing(call, "this user may not publish on " HFI_RUMOUR_CHANNEL);
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
    hfi_command_text(command, HFI_RUMOUR_CHANNEL);
    char *room = hfi_command_room(command, (size_t)head_len + names->prefix_len + call->name_len);
    if (room == NULL)
        return;
    memcpy(room, head, (size_t)head_len);
    memcpy(room + head_len, names->prefix, names->prefix_len);
    memcpy(room + head_len + names->prefix_len, call->name, call->name_len);
}

static void publish_or_not(struct hfi_call *call) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    if (survey->heard && !survey->deaf) {
        hfi_survey_send(call, write_question, asked);
        return;
    }
    if (ask_at_next(call))
        return;
    say_missing(call, survey->deaf ? "the server refuses to tell their answers"
                                   : "the server does not confirm that it will tell their answers");
    hfi_survey_stop_asking(call);
    survey->next(call);
}

static void step_subscribing(struct hfi_call *call, unsigned events) {
    struct hfi_redis_survey *survey = hfi_survey_of(call);
    note_news(survey, events);
    bool late =
        (events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&hfi_state_of(call)->exchange);
    if (survey->heard || survey->deaf || late)
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
    survey->heard = survey->deaf = false;
    survey->waiter = (struct hfi_waiter){
        .listener = &listener,
        .caller = call->lane == HFI_LANE_CALLER ? &state->exchange.attendant : NULL};
    struct hfi_node *node =
        hfi_node_ref(survey->nodes_len > 0 ? survey->nodes[survey->node] : state->exchange.node);
    int err = hfi_pubsub_join(hfi_node_learnt(node)->pubsub, &survey->waiter, call->task, channel,
                              strlen(channel), &survey->heard);
    if (err != HF_OK) {
        hfi_node_unref(node);
        if (err == HF_ENOMEM) {
            hfi_call_fail(call, HF_ENOMEM, "out of memory");
        } else if (!ask_at_next(call)) {
            say_missing(call, "the server is not in use any more");
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
        hfi_fail_errno(&call->error, HF_ESYS, errno, "no random numbers");
        hfi_call_finish(call, HF_ESYS);
        return;
    }
    note_awaited(survey);
    ask_here(call);
}
