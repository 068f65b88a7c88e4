/*
 * The channels of one server that we listen on.
 *
 * Waiters join and leave on any thread, under `mtx`, and messages come on the thread of whoever
 * reads the connection. It is written to on the keeper's thread alone, by a task that brings the
 * server's subscriptions in line with the registry: so SUBSCRIBE and UNSUBSCRIBE of one channel can
 * never overtake each other. Nothing is sent, and no callback of the connection runs, with `mtx`
 * held; the connection's own mutex may be taken under it.
 *
 * A channel is NEW until SUBSCRIBE has been sent, and ASKED until the server has confirmed (HEARD)
 * or refused it (DEAF); a lost connection makes all of them NEW. One of a cluster's slot is ASTRAY when the
 * server says that the slot is another's: its waiters find out where, and if that is here again, it is NEW.
 * Such a server ends the subscription by itself (SUNSUBSCRIBED, unasked) when the slot goes. Each SUBSCRIBE names one channel,
 * because the access list refuses a command as a whole and slots differ, and `asked` keeps them in the order sent:
 * an error reply belongs to the first in it. UNSUBSCRIBE is sent only for a channel that was
 * confirmed or refused, so a late confirmation is never taken for that of a new one.
 */
#include "redis/pubsub_impl.h"

#include "base/clock.h"
#include "net/keeper.h"
#include "redis/command.h"
#include "redis/exchange.h"

#include <stdlib.h>
#include <string.h>

#define LINGER_MS 200
#define SWEEP_GAP_MS 50
#define ASTRAY_MS 100    /* before the server is asked again for what it did not have */
#define NUMBER_DIGITS 18 /* what fits into 64 bits in any case */

static void tell_standing(struct hfi_waiter *waiter, enum hfi_hearing_state state) {
    if (waiter->listener != NULL && waiter->listener->stands != NULL)
        waiter->listener->stands(waiter, state);
}

static void tell_waiters(const struct hfi_channel *channel, enum hfi_hearing_state state,
                         unsigned event) {
    for (struct hfi_link *link = channel->waiters.next; link != &channel->waiters;
         link = link->next) {
        struct hfi_waiter *waiter = HFI_CONTAINER(link, struct hfi_waiter, link);
        tell_standing(waiter, state);
        hfi_task_post(waiter->task, event);
    }
}

/* A positive number in plain decimal, as scripts publish them; 0 for anything else. */
static int64_t number_of(const redisReply *payload) {
    int64_t number = 0;
    if (payload->type != REDIS_REPLY_STRING || payload->len == 0 || payload->len > NUMBER_DIGITS)
        return 0;
    for (size_t i = 0; i < (size_t)payload->len; i++) {
        if (payload->str[i] < '0' || payload->str[i] > '9')
            return 0;
        number = number * 10 + (payload->str[i] - '0');
    }
    return number;
}

static void tell_message(struct hfi_channel *channel, const redisReply *payload) {
    int64_t number = number_of(payload);
    for (struct hfi_link *link = channel->waiters.next; link != &channel->waiters;
         link = link->next) {
        struct hfi_waiter *waiter = HFI_CONTAINER(link, struct hfi_waiter, link);
        struct hfi_heard *heard = waiter->heard;
        if (heard != NULL && number > heard->number)
            *heard = (struct hfi_heard){.number = number, .at_ms = hfi_now_ms()};
        if (waiter->listener != NULL && payload->type == REDIS_REPLY_STRING)
            waiter->listener->hear(waiter, payload->str, payload->len);
        hfi_task_post(waiter->task, HFI_EVENT_MESSAGE);
    }
}

static struct hfi_channel *channel_around(struct hfi_keyed *keyed) {
    return keyed != NULL ? HFI_CONTAINER(keyed, struct hfi_channel, keyed) : NULL;
}

struct hfi_channel *hfi_pubsub_find_locked(struct hfi_pubsub *pubsub, const char *name,
                                           size_t len) {
    return channel_around(hfi_table_find(&pubsub->channels, name, len));
}

/* All of them, in no order; NULL: that was the last. */
static struct hfi_channel *first_channel(const struct hfi_pubsub *pubsub) {
    return channel_around(hfi_table_first(&pubsub->channels));
}
static struct hfi_channel *next_channel(const struct hfi_pubsub *pubsub,
                                        const struct hfi_channel *channel) {
    return channel_around(hfi_table_next(&pubsub->channels, &channel->keyed));
}

static void forget_channel(struct hfi_pubsub *pubsub, struct hfi_channel *channel) {
    hfi_table_remove(pubsub->mem, &pubsub->channels, &channel->keyed);
    hfi_list_remove(&channel->todo);
    hfi_list_remove(&channel->asked);
    hfi_free(pubsub->mem, channel);
}

/* ---- The keeper's side ---- */

static void add_command(struct hfi_command *command, const char *verb,
                        const struct hfi_channel *channel) {
    hfi_command_open(command);
    hfi_command_text(command, verb);
    hfi_command_bytes(command, channel->name, channel->keyed.key_len);
    hfi_command_close(command);
}

/* True: nobody has listened for long enough, and nothing is on its way that could confuse us
 * later. */
static bool may_go(const struct hfi_pubsub *pubsub, const struct hfi_channel *channel,
                   int64_t now_ms) {
    if (!hfi_list_empty(&channel->waiters) || now_ms < channel->leave_ms)
        return false;
    return !pubsub->up || !hfi_linked(&channel->asked);
}

static bool must_subscribe(const struct hfi_pubsub *pubsub, const struct hfi_channel *channel) {
    return pubsub->up && channel->state == CHANNEL_NEW;
}

/* Among thousands of channels, only those that need something are looked at. */
static void do_later_locked(struct hfi_pubsub *pubsub, struct hfi_channel *channel) {
    if (!hfi_linked(&channel->todo))
        hfi_list_push_back(&pubsub->todo, &channel->todo);
    hfi_task_post(&pubsub->task, HFI_EVENT_READY);
}

static void subscribe_locked(struct hfi_pubsub *pubsub, struct hfi_command *command) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&pubsub->todo)) != NULL) {
        struct hfi_channel *channel = HFI_CONTAINER(link, struct hfi_channel, todo);
        if (!must_subscribe(pubsub, channel))
            continue; /* it comes again when it must */
        add_command(command, channel->sharded ? "SSUBSCRIBE" : "SUBSCRIBE", channel);
        channel->state = CHANNEL_ASKED;
        hfi_list_push_back(&pubsub->asked, &channel->asked);
    }
}

/* Drops the channels that nobody listens to any more, and finds out when to look again. */
static void sweep_locked(struct hfi_pubsub *pubsub, struct hfi_command *command) {
    int64_t now_ms = hfi_now_ms(), next_ms = HFI_NEVER;
    struct hfi_channel *channel, *next;
    for (channel = first_channel(pubsub); channel != NULL; channel = next) {
        next = next_channel(pubsub, channel);
        if (may_go(pubsub, channel, now_ms)) {
            if (pubsub->up && channel->state == CHANNEL_HEARD)
                add_command(command, channel->sharded ? "SUNSUBSCRIBE" : "UNSUBSCRIBE", channel);
            forget_channel(pubsub, channel);
            continue;
        }
        if (hfi_list_empty(&channel->waiters)) {
            int64_t look_ms = channel->leave_ms > now_ms ? channel->leave_ms : now_ms + LINGER_MS;
            next_ms = look_ms < next_ms ? look_ms : next_ms;
        }
    }
    if (next_ms < now_ms + SWEEP_GAP_MS)
        next_ms = now_ms + SWEEP_GAP_MS;
    pubsub->alarm_ms = next_ms;
    hfi_alarm_set(pubsub->exec, &pubsub->alarm, next_ms);
}

/* Makes the server's subscriptions what the registry says. */
static void update(struct hfi_task *task, unsigned events) {
    struct hfi_pubsub *pubsub = HFI_CONTAINER(task, struct hfi_pubsub, task);
    struct hfi_command command;
    hfi_command_init(&command, pubsub->mem);

    pthread_mutex_lock(&pubsub->mtx);
    bool stopped = pubsub->stopped;
    if (!stopped && (events & HFI_EVENT_TIMER) != 0)
        sweep_locked(pubsub, &command);
    if (!stopped)
        subscribe_locked(pubsub, &command);
    bool wanted = pubsub->channels.len > 0;
    pthread_mutex_unlock(&pubsub->mtx);

    if (!stopped) {
        hfi_conn_keep_up(pubsub->conn, wanted);
        /* If a SUBSCRIBE cannot be sent, its waiters would have to poll: better start over. */
        if (command.failed || (command.len > 0 && hfi_conn_send(pubsub->conn, command.bytes,
                                                                command.len) == HF_ENOMEM))
            hfi_conn_suspect(pubsub->conn, HFI_NEVER);
    }
    hfi_command_clear(&command);
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_pubsub, alarm)->task, HFI_EVENT_TIMER);
}

static bool is_text(const redisReply *reply, const char *text) {
    size_t len = strlen(text);
    return reply->type == REDIS_REPLY_STRING && (size_t)reply->len == len &&
           memcmp(reply->str, text, len) == 0;
}

static const char no_releases[] = "the server refuses to tell of releases, so waiting polls";

/* What is to be logged the first time a channel of its sort is refused. */
static const char *words_for_refusal_locked(struct hfi_pubsub *pubsub,
                                            const struct hfi_channel *channel) {
    const struct hfi_listener *listener = NULL;
    if (!hfi_list_empty(&channel->waiters))
        listener = HFI_CONTAINER(channel->waiters.next, struct hfi_waiter, link)->listener;
    const char *words = listener != NULL && listener->deaf != NULL ? listener->deaf : no_releases;
    for (size_t i = 0; i < LOGGED_MAX && pubsub->logged[i] != words; i++)
        if (pubsub->logged[i] == NULL) {
            pubsub->logged[i] = words;
            return words;
        }
    return NULL;
}

/* The slot is not this server's, or it does not know whose it is: nothing that lasts. */
static bool is_astray(const struct hfi_channel *channel, const redisReply *error) {
    static const char *const words[] = {"MOVED ", "ASK ", "TRYAGAIN", "CLUSTERDOWN", "LOADING"};
    for (size_t i = 0; channel->sharded && i < sizeof words / sizeof words[0]; i++)
        if ((size_t)error->len >= strlen(words[i]) &&
            memcmp(error->str, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

static void go_astray_locked(struct hfi_channel *channel, unsigned events) {
    channel->state = CHANNEL_ASTRAY;
    channel->astray_ms = hfi_now_ms();
    tell_waiters(channel, HFI_UNHEARD, events);
}

/* Returns what is to be logged, or NULL. */
static const char *refused_locked(struct hfi_pubsub *pubsub, const redisReply *error,
                                  bool *ret_astray) {
    struct hfi_link *first = hfi_list_pop_front(&pubsub->asked);
    if (first == NULL)
        return NULL;
    struct hfi_channel *channel = HFI_CONTAINER(first, struct hfi_channel, asked);
    *ret_astray = is_astray(channel, error);
    if (*ret_astray) {
        go_astray_locked(channel, HFI_EVENT_DEAF);
        return NULL;
    }
    channel->state = CHANNEL_DEAF;
    tell_waiters(channel, HFI_REFUSED, HFI_EVENT_DEAF);
    return words_for_refusal_locked(pubsub, channel);
}

static void confirmed_locked(struct hfi_channel *channel) {
    hfi_list_remove(&channel->asked);
    channel->state = CHANNEL_HEARD;
    tell_waiters(channel, HFI_HEARD, HFI_EVENT_SUBSCRIBED);
}

/* What the server says of a channel. True: it has taken it from us. Our own SUNSUBSCRIBE is confirmed
 * before a new subscription is, so it is never taken for that. */
static bool told_locked(struct hfi_channel *channel, const redisReply *reply) {
    const redisReply *what = reply->element[0];
    if (is_text(what, channel->sharded ? "smessage" : "message")) {
        channel->message_ms = hfi_now_ms();
        channel->debt.own = false;
        tell_message(channel, reply->element[2]);
    } else if (is_text(what, channel->sharded ? "ssubscribe" : "subscribe") &&
               hfi_linked(&channel->asked)) {
        confirmed_locked(channel);
    } else if (channel->sharded && channel->state == CHANNEL_HEARD &&
               is_text(what, "sunsubscribe")) {
        go_astray_locked(channel, HFI_EVENT_DEAF | HFI_EVENT_MESSAGE);
        return true;
    }
    return false;
}

bool hfi_pubsub_push(struct hfi_pubsub *pubsub, const redisReply *reply) {
    struct hfi_channel *channel = NULL;
    const char *refusal = NULL;
    bool astray = false;
    pthread_mutex_lock(&pubsub->mtx);
    if (reply->type == REDIS_REPLY_ERROR)
        refusal = refused_locked(pubsub, reply, &astray);
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
        reply->element[1]->type == REDIS_REPLY_STRING)
        channel = hfi_pubsub_find_locked(pubsub, reply->element[1]->str, reply->element[1]->len);
    if (channel != NULL)
        astray = told_locked(channel, reply);
    pthread_mutex_unlock(&pubsub->mtx);
    if (refusal != NULL)
        hfi_log(pubsub->log, HF_LOG_WARN, "%s: %.*s", refusal,
                (int)(reply->len < 128 ? reply->len : 128), reply->str);
    return astray;
}

void hfi_pubsub_state(struct hfi_pubsub *pubsub, bool up) {
    pthread_mutex_lock(&pubsub->mtx);
    pubsub->up = up;
    for (struct hfi_channel *channel = first_channel(pubsub); channel != NULL;
         channel = next_channel(pubsub, channel)) {
        hfi_list_remove(&channel->asked);
        channel->state = CHANNEL_NEW;
        /* What was published meanwhile is lost; and if the server is gone, an attempt will find
         * out. */
        if (!up)
            tell_waiters(channel, HFI_UNHEARD, HFI_EVENT_DEAF | HFI_EVENT_MESSAGE);
        else
            do_later_locked(pubsub, channel);
    }
    pthread_mutex_unlock(&pubsub->mtx);
}

/* ---- Everybody's side ---- */

static struct hfi_channel *add_channel_locked(struct hfi_pubsub *pubsub, const char *name,
                                              size_t len, bool sharded) {
    struct hfi_channel *channel = hfi_zalloc(pubsub->mem, sizeof *channel + len);
    if (channel == NULL)
        return NULL;
    hfi_list_init(&channel->waiters);
    channel->sharded = sharded;
    memcpy(channel->name, name, len);
    hfi_table_add(pubsub->mem, &pubsub->channels, &channel->keyed, channel->name, len);
    do_later_locked(pubsub, channel);
    return channel;
}

/* If it was astray, and not just now. */
static void ask_again_locked(struct hfi_pubsub *pubsub, struct hfi_channel *channel) {
    if (channel->state != CHANNEL_ASTRAY || hfi_now_ms() < channel->astray_ms + ASTRAY_MS)
        return;
    channel->state = CHANNEL_NEW;
    do_later_locked(pubsub, channel);
}

bool hfi_pubsub_again(struct hfi_waiter *waiter) {
    struct hfi_pubsub *pubsub = waiter->pubsub;
    pthread_mutex_lock(&pubsub->mtx);
    bool astray = !pubsub->stopped && waiter->channel->state == CHANNEL_ASTRAY;
    if (astray)
        ask_again_locked(pubsub, waiter->channel);
    pthread_mutex_unlock(&pubsub->mtx);
    return astray;
}

static void add_waiter_locked(struct hfi_pubsub *pubsub, struct hfi_channel *channel,
                              struct hfi_waiter *waiter, struct hfi_task *task) {
    waiter->pubsub = pubsub;
    waiter->channel = channel;
    waiter->task = task;
    if (waiter->heard != NULL)
        waiter->heard->number = 0;
    hfi_list_push_back(&channel->waiters, &waiter->link);
    if (!waiter->idly)
        hfi_conn_listen(pubsub->conn, waiter->caller);
    else
        hfi_conn_overhear(pubsub->conn, true);
}

bool hfi_pubsub_join_heard(struct hfi_pubsub *pubsub, struct hfi_waiter *waiter,
                           struct hfi_task *task, const char *name, size_t len) {
    pthread_mutex_lock(&pubsub->mtx);
    struct hfi_channel *channel =
        pubsub->stopped ? NULL : hfi_pubsub_find_locked(pubsub, name, len);
    bool heard = channel != NULL && channel->state == CHANNEL_HEARD;
    if (heard)
        add_waiter_locked(pubsub, channel, waiter, task);
    pthread_mutex_unlock(&pubsub->mtx);
    return heard;
}

int hfi_pubsub_join(struct hfi_pubsub *pubsub, struct hfi_waiter *waiter, struct hfi_task *task,
                    const char *name, size_t len, bool *ret_heard) {
    struct hfi_channel *channel = NULL;
    pthread_mutex_lock(&pubsub->mtx);
    bool stopped = pubsub->stopped;
    if (!stopped)
        channel = hfi_pubsub_find_locked(pubsub, name, len);
    if (!stopped && channel == NULL)
        channel = add_channel_locked(pubsub, name, len, waiter->sharded);
    if (channel != NULL) {
        ask_again_locked(pubsub, channel);
        add_waiter_locked(pubsub, channel, waiter, task);
        *ret_heard = channel->state == CHANNEL_HEARD;
        if (*ret_heard) {
            tell_standing(waiter, HFI_HEARD);
        } else if (channel->state == CHANNEL_DEAF || channel->state == CHANNEL_ASTRAY) {
            tell_standing(waiter, channel->state == CHANNEL_DEAF ? HFI_REFUSED : HFI_UNHEARD);
            hfi_task_post(task, HFI_EVENT_DEAF);
        }
    }
    pthread_mutex_unlock(&pubsub->mtx);
    if (stopped)
        return HF_ECLOSED;
    return channel != NULL ? HF_OK : HF_ENOMEM;
}

bool hfi_pubsub_is_heard(const struct hfi_waiter *waiter) {
    pthread_mutex_lock(&waiter->pubsub->mtx);
    bool heard = waiter->channel->state == CHANNEL_HEARD;
    pthread_mutex_unlock(&waiter->pubsub->mtx);
    return heard;
}

void hfi_pubsub_move(struct hfi_waiter *from, struct hfi_waiter *to) {
    struct hfi_pubsub *pubsub = from->pubsub;
    pthread_mutex_lock(&pubsub->mtx);
    *to = *from;
    hfi_list_replace(&from->link, &to->link);
    pthread_mutex_unlock(&pubsub->mtx);
}

bool hfi_pubsub_take(struct hfi_waiter *waiter, int64_t *ret_number, int64_t *ret_heard_ms) {
    struct hfi_pubsub *pubsub = waiter->pubsub;
    pthread_mutex_lock(&pubsub->mtx);
    struct hfi_heard *heard = waiter->heard;
    bool any = heard != NULL && heard->number > 0;
    if (any) {
        *ret_number = heard->number;
        *ret_heard_ms = heard->at_ms;
        heard->number = 0;
    }
    pthread_mutex_unlock(&pubsub->mtx);
    return any;
}

void hfi_pubsub_catch_up(struct hfi_pubsub *pubsub, struct hfi_exec *caller) {
    hfi_conn_catch_up(pubsub->conn, caller);
}

void hfi_pubsub_leave(struct hfi_waiter *waiter) {
    struct hfi_pubsub *pubsub = waiter->pubsub;
    pthread_mutex_lock(&pubsub->mtx);
    struct hfi_channel *channel = waiter->channel;
    hfi_list_remove(&waiter->link);
    waiter->channel = NULL;
    if (!waiter->idly && (waiter->caller != NULL || !pubsub->stopped))
        hfi_conn_unlisten(pubsub->conn, waiter->caller);
    else if (!pubsub->stopped)
        hfi_conn_overhear(pubsub->conn, false);
    if (hfi_list_empty(&channel->waiters) && !pubsub->stopped) {
        channel->leave_ms = hfi_now_ms() + (waiter->linger_ms > 0 ? waiter->linger_ms : LINGER_MS);
        if (channel->leave_ms < pubsub->alarm_ms) {
            pubsub->alarm_ms = channel->leave_ms;
            hfi_alarm_set(pubsub->exec, &pubsub->alarm, pubsub->alarm_ms);
        }
    }
    pthread_mutex_unlock(&pubsub->mtx);
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_pubsub *pubsub = HFI_CONTAINER(task, struct hfi_pubsub, task);
    struct hfi_channel *channel, *next;
    for (channel = first_channel(pubsub); channel != NULL; channel = next) {
        next = next_channel(pubsub, channel);
        forget_channel(pubsub, channel);
    }
    pthread_mutex_destroy(&pubsub->mtx);
    hfi_free(pubsub->mem, pubsub);
}

int hfi_pubsub_new(const struct hfi_mem *mem, const struct hfi_log *log, struct hfi_keeper *keeper,
                   struct hfi_conn *conn, struct hfi_pubsub **ret) {
    struct hfi_pubsub *pubsub = hfi_zalloc(mem, sizeof *pubsub);
    if (pubsub == NULL)
        return HF_ENOMEM;
    pubsub->mem = mem;
    pubsub->log = log;
    pubsub->exec = hfi_keeper_exec(keeper);
    pubsub->conn = conn;
    pubsub->alarm.fire = alarm_fired;
    pubsub->alarm_ms = HFI_NEVER;
    hfi_list_init(&pubsub->todo);
    hfi_list_init(&pubsub->asked);
    pthread_mutex_init(&pubsub->mtx, NULL);
    hfi_task_init(&pubsub->task, pubsub->exec, update, destroy);
    *ret = pubsub;
    return HF_OK;
}

void hfi_pubsub_stop(struct hfi_pubsub *pubsub) {
    if (pubsub == NULL)
        return;
    pthread_mutex_lock(&pubsub->mtx);
    pubsub->stopped = true;
    for (const struct hfi_channel *channel = first_channel(pubsub); channel != NULL;
         channel = next_channel(pubsub, channel))
        tell_waiters(channel, HFI_UNHEARD, HFI_EVENT_DEAF | HFI_EVENT_MESSAGE);
    pthread_mutex_unlock(&pubsub->mtx);
    hfi_alarm_clear(pubsub->exec, &pubsub->alarm);
}

void hfi_pubsub_free(struct hfi_pubsub *pubsub) {
    if (pubsub != NULL)
        hfi_task_unref(&pubsub->task);
}
