/*
 * The channels of one server that we subscribe to.
 *
 * Waiters join and leave on any thread, under `mtx`. Messages come on the thread that reads the
 * connection. Only the keeper's thread writes to the connection, in a task that makes the server's
 * subscriptions match the registry: so SUBSCRIBE and UNSUBSCRIBE of one channel never overtake each
 * other. Nothing is sent, and no callback of the connection runs, with `mtx` held. The connection's
 * own mutex may be taken under it.
 *
 * A channel is NEW until SUBSCRIBE has been sent, and SUBSCRIBING until the server has confirmed
 * (SUBSCRIBED) or refused it (REFUSED). A lost connection makes all channels NEW. A sharded channel
 * is MOVED when the server says that another one has its slot: its waiters find out where, and if
 * it is here again, it becomes NEW. When a slot leaves, the server ends the subscription by itself
 * (an unsolicited sunsubscribe).
 *
 * Each SUBSCRIBE names one channel, because ACLs refuse a command as a whole, and slots differ.
 * `asked` keeps the channels in the order sent, so an error reply belongs to its first. UNSUBSCRIBE
 * is sent only for a confirmed channel, and no channel is dropped while its SUBSCRIBE is in flight.
 * So a late confirmation is never taken for that of a new subscription.
 */
#include "redis/pubsub/pubsub_impl.h"

#include "base/clock.h"
#include "base/error.h"
#include "net/driver/keeper.h"
#include "net/resp/wire/command.h"
#include "redis/exchange/exchange.h"

#include <stdlib.h>
#include <string.h>

#define LINGER_MS 200
#define SWEEP_GAP_MS 50
#define MOVED_MS 100     /* before SUBSCRIBE is sent again to a server that did not have the slot */
#define NUMBER_DIGITS 18 /* always fits into 64 bits */

static void report_state(struct hfi_waiter *waiter, enum hfi_name_listener_state state) {
    if (waiter->listener != NULL && waiter->listener->on_state != NULL)
        waiter->listener->on_state(waiter, state);
}

static void notify_waiters(const struct hfi_channel *channel, enum hfi_name_listener_state state,
                           unsigned event) {
    for (struct hfi_link *link = channel->waiters.next; link != &channel->waiters;
         link = link->next) {
        struct hfi_waiter *waiter = HFI_CONTAINER(link, struct hfi_waiter, link);
        report_state(waiter, state);
        hfi_task_post(waiter->task, event);
    }
}

/* A positive number in plain decimal, as scripts publish them; 0 for anything else. */
static int64_t number_of(const struct hfi_reply *payload) {
    int64_t number = 0;
    if (payload->type != HFI_REPLY_STRING || payload->len == 0 || payload->len > NUMBER_DIGITS)
        return 0;
    for (size_t i = 0; i < (size_t)payload->len; i++) {
        if (payload->str[i] < '0' || payload->str[i] > '9')
            return 0;
        number = number * 10 + (payload->str[i] - '0');
    }
    return number;
}

static void deliver_message(struct hfi_channel *channel, const struct hfi_reply *payload) {
    int64_t number = number_of(payload);
    for (struct hfi_link *link = channel->waiters.next; link != &channel->waiters;
         link = link->next) {
        struct hfi_waiter *waiter = HFI_CONTAINER(link, struct hfi_waiter, link);
        struct hfi_grant_message *grant = waiter->grant;
        if (grant != NULL && number > grant->number)
            *grant = (struct hfi_grant_message){.number = number, .at_ms = hfi_now_ms()};
        if (waiter->listener != NULL && payload->type == HFI_REPLY_STRING)
            waiter->listener->on_message(waiter, payload->str, payload->len);
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

/* All channels, in no order; NULL: that was the last. */
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

/* ---- The keeper's thread ---- */

static void add_command(struct hfi_command *command, const char *verb,
                        const struct hfi_channel *channel) {
    hfi_command_open(command);
    hfi_command_text(command, verb);
    hfi_command_bytes(command, channel->name, channel->keyed.key_len);
    hfi_command_close(command);
}

/* True: no waiter for long enough, and no SUBSCRIBE in flight whose reply could be misread
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

/* With thousands of channels, only those with something to send are visited. */
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
            continue; /* it is queued again when it must */
        add_command(command, channel->sharded ? "SSUBSCRIBE" : "SUBSCRIBE", channel);
        channel->state = CHANNEL_SUBSCRIBING;
        hfi_list_push_back(&pubsub->asked, &channel->asked);
    }
}

/* Drops the channels without waiters whose linger time is over, and sets the alarm for the next
 * sweep. */
static void sweep_locked(struct hfi_pubsub *pubsub, struct hfi_command *command) {
    int64_t now_ms = hfi_now_ms(), next_ms = HFI_NEVER;
    struct hfi_channel *channel, *next;
    for (channel = first_channel(pubsub); channel != NULL; channel = next) {
        next = next_channel(pubsub, channel);
        if (may_go(pubsub, channel, now_ms)) {
            if (pubsub->up && channel->state == CHANNEL_SUBSCRIBED)
                add_command(command, channel->sharded ? "SUNSUBSCRIBE" : "UNSUBSCRIBE", channel);
            forget_channel(pubsub, channel);
            continue;
        }
        if (hfi_list_empty(&channel->waiters)) {
            int64_t check_ms = channel->leave_ms > now_ms ? channel->leave_ms : now_ms + LINGER_MS;
            next_ms = check_ms < next_ms ? check_ms : next_ms;
        }
    }
    if (next_ms < now_ms + SWEEP_GAP_MS)
        next_ms = now_ms + SWEEP_GAP_MS;
    pubsub->alarm_ms = next_ms;
    hfi_alarm_set(pubsub->exec, &pubsub->alarm, next_ms);
}

/* Makes the server's subscriptions match the registry. */
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
        /* If a SUBSCRIBE cannot be sent, its waiters would have to poll: better reconnect. */
        if (command.failed || (command.len > 0 && hfi_conn_send(pubsub->conn, command.bytes,
                                                                command.len) == HF_ENOMEM))
            hfi_conn_suspect(pubsub->conn, HFI_NEVER);
    }
    hfi_command_clear(&command);
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_pubsub, alarm)->task, HFI_EVENT_TIMER);
}

static bool is_text(const struct hfi_reply *reply, const char *text) {
    size_t len = strlen(text);
    return reply->type == HFI_REPLY_STRING && (size_t)reply->len == len &&
           memcmp(reply->str, text, len) == 0;
}

static const char no_releases[] = "the server refuses the subscription to releases, so waiters "
                                  "poll; allow the channels";

/* The warning for the first refused channel of its sort; NULL: it was logged. */
static const char *refusal_text_locked(struct hfi_pubsub *pubsub,
                                       const struct hfi_channel *channel) {
    const struct hfi_listener *listener = NULL;
    if (!hfi_list_empty(&channel->waiters))
        listener = HFI_CONTAINER(channel->waiters.next, struct hfi_waiter, link)->listener;
    const char *message =
        listener != NULL && listener->refused != NULL ? listener->refused : no_releases;
    for (size_t i = 0; i < LOGGED_MAX && pubsub->logged[i] != message; i++)
        if (pubsub->logged[i] == NULL) {
            pubsub->logged[i] = message;
            return message;
        }
    return NULL;
}

/* The slot is not this server's, or it does not know whose it is. This is transient. */
static bool is_moved(const struct hfi_channel *channel, const struct hfi_reply *error) {
    static const char *const message[] = {"MOVED ", "ASK ", "TRYAGAIN", "CLUSTERDOWN", "LOADING"};
    for (size_t i = 0; channel->sharded && i < sizeof message / sizeof message[0]; i++)
        if ((size_t)error->len >= strlen(message[i]) &&
            memcmp(error->str, message[i], strlen(message[i])) == 0)
            return true;
    return false;
}

static void mark_moved_locked(struct hfi_channel *channel, unsigned events) {
    channel->state = CHANNEL_MOVED;
    channel->moved_ms = hfi_now_ms();
    notify_waiters(channel, HFI_UNSUBSCRIBED, events);
}

/* Returns the warning to log, or NULL. */
static const char *refused_locked(struct hfi_pubsub *pubsub, const struct hfi_reply *error,
                                  bool *ret_moved) {
    struct hfi_link *first = hfi_list_pop_front(&pubsub->asked);
    if (first == NULL)
        return NULL;
    struct hfi_channel *channel = HFI_CONTAINER(first, struct hfi_channel, asked);
    *ret_moved = is_moved(channel, error);
    if (*ret_moved) {
        mark_moved_locked(channel, HFI_EVENT_REFUSED);
        return NULL;
    }
    channel->state = CHANNEL_REFUSED;
    notify_waiters(channel, HFI_REFUSED, HFI_EVENT_REFUSED);
    return refusal_text_locked(pubsub, channel);
}

static void log_refusal(const struct hfi_pubsub *pubsub, const char *refusal,
                        const struct hfi_reply *reply) {
    enum hfi_remedy ignored;
    hf_error error;
    hfi_error_clear(&error);
    int code = hfi_error_of_reply(reply, &error, &ignored);
    hfi_log(pubsub->log, HF_LOG_WARN,
            HFI_ABOUT(.code = code, .server = hfi_conn_target(pubsub->conn)->node), "%s: %.*s",
            refusal, (int)(reply->len < 128 ? reply->len : 128), reply->str);
}

static void confirmed_locked(struct hfi_channel *channel) {
    hfi_list_remove(&channel->asked);
    channel->state = CHANNEL_SUBSCRIBED;
    notify_waiters(channel, HFI_SUBSCRIBED, HFI_EVENT_SUBSCRIBED);
}

/* Handles a message about a channel. True: the server has ended the subscription. Our own
 * SUNSUBSCRIBE is confirmed before a new subscription, so its confirmation is never taken for
 * that. */
static bool handle_message_locked(struct hfi_channel *channel, const struct hfi_reply *reply) {
    const struct hfi_reply *what = reply->element[0];
    if (is_text(what, channel->sharded ? "smessage" : "message")) {
        channel->message_ms = hfi_now_ms();
        channel->yield_quota.own = false;
        deliver_message(channel, reply->element[2]);
    } else if (is_text(what, channel->sharded ? "ssubscribe" : "subscribe") &&
               hfi_linked(&channel->asked)) {
        confirmed_locked(channel);
    } else if (channel->sharded && channel->state == CHANNEL_SUBSCRIBED &&
               is_text(what, "sunsubscribe")) {
        mark_moved_locked(channel, HFI_EVENT_REFUSED | HFI_EVENT_MESSAGE);
        return true;
    }
    return false;
}

bool hfi_pubsub_push(struct hfi_pubsub *pubsub, const struct hfi_reply *reply) {
    struct hfi_channel *channel = NULL;
    const char *refusal = NULL;
    bool moved = false;
    pthread_mutex_lock(&pubsub->mtx);
    if (reply->type == HFI_REPLY_ERROR)
        refusal = refused_locked(pubsub, reply, &moved);
    if (reply->type == HFI_REPLY_ARRAY && reply->elements == 3 &&
        reply->element[1]->type == HFI_REPLY_STRING)
        channel = hfi_pubsub_find_locked(pubsub, reply->element[1]->str, reply->element[1]->len);
    if (channel != NULL)
        moved = handle_message_locked(channel, reply);
    pthread_mutex_unlock(&pubsub->mtx);
    if (refusal != NULL)
        log_refusal(pubsub, refusal, reply);
    return moved;
}

void hfi_pubsub_state(struct hfi_pubsub *pubsub, bool up) {
    pthread_mutex_lock(&pubsub->mtx);
    pubsub->up = up;
    for (struct hfi_channel *channel = first_channel(pubsub); channel != NULL;
         channel = next_channel(pubsub, channel)) {
        hfi_list_remove(&channel->asked);
        channel->state = CHANNEL_NEW;
        /* Messages published meanwhile are lost; and if the server is gone, an attempt finds
         * out. */
        if (!up)
            notify_waiters(channel, HFI_UNSUBSCRIBED, HFI_EVENT_REFUSED | HFI_EVENT_MESSAGE);
        else
            do_later_locked(pubsub, channel);
    }
    pthread_mutex_unlock(&pubsub->mtx);
}

/* ---- Any thread ---- */

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

/* Sends SUBSCRIBE again if the channel has been MOVED for at least MOVED_MS. */
static void ask_again_locked(struct hfi_pubsub *pubsub, struct hfi_channel *channel) {
    if (channel->state != CHANNEL_MOVED || hfi_now_ms() < channel->moved_ms + MOVED_MS)
        return;
    channel->state = CHANNEL_NEW;
    do_later_locked(pubsub, channel);
}

bool hfi_pubsub_again(struct hfi_waiter *waiter) {
    struct hfi_pubsub *pubsub = waiter->pubsub;
    pthread_mutex_lock(&pubsub->mtx);
    bool moved = !pubsub->stopped && waiter->channel->state == CHANNEL_MOVED;
    if (moved)
        ask_again_locked(pubsub, waiter->channel);
    pthread_mutex_unlock(&pubsub->mtx);
    return moved;
}

static void add_waiter_locked(struct hfi_pubsub *pubsub, struct hfi_channel *channel,
                              struct hfi_waiter *waiter, struct hfi_task *task) {
    waiter->pubsub = pubsub;
    waiter->channel = channel;
    waiter->task = task;
    if (waiter->grant != NULL)
        waiter->grant->number = 0;
    hfi_list_push_back(&channel->waiters, &waiter->link);
    if (!waiter->lazy)
        hfi_conn_listen(pubsub->conn, waiter->caller);
    else
        hfi_conn_listen_lazily(pubsub->conn, true);
}

bool hfi_pubsub_join_subscribed(struct hfi_pubsub *pubsub, struct hfi_waiter *waiter,
                                struct hfi_task *task, const char *name, size_t len) {
    pthread_mutex_lock(&pubsub->mtx);
    struct hfi_channel *channel =
        pubsub->stopped ? NULL : hfi_pubsub_find_locked(pubsub, name, len);
    bool subscribed = channel != NULL && channel->state == CHANNEL_SUBSCRIBED;
    if (subscribed)
        add_waiter_locked(pubsub, channel, waiter, task);
    pthread_mutex_unlock(&pubsub->mtx);
    return subscribed;
}

int hfi_pubsub_join(struct hfi_pubsub *pubsub, struct hfi_waiter *waiter, struct hfi_task *task,
                    const char *name, size_t len, bool *ret_subscribed) {
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
        *ret_subscribed = channel->state == CHANNEL_SUBSCRIBED;
        if (*ret_subscribed) {
            report_state(waiter, HFI_SUBSCRIBED);
        } else if (channel->state == CHANNEL_REFUSED || channel->state == CHANNEL_MOVED) {
            report_state(waiter,
                         channel->state == CHANNEL_REFUSED ? HFI_REFUSED : HFI_UNSUBSCRIBED);
            hfi_task_post(task, HFI_EVENT_REFUSED);
        }
    }
    pthread_mutex_unlock(&pubsub->mtx);
    if (stopped)
        return HF_ECLOSED;
    return channel != NULL ? HF_OK : HF_ENOMEM;
}

bool hfi_pubsub_is_subscribed(const struct hfi_waiter *waiter) {
    pthread_mutex_lock(&waiter->pubsub->mtx);
    bool subscribed = waiter->channel->state == CHANNEL_SUBSCRIBED;
    pthread_mutex_unlock(&waiter->pubsub->mtx);
    return subscribed;
}

static void wake_locked(struct hfi_channel *channel) {
    for (struct hfi_link *link = channel->waiters.next; link != &channel->waiters;
         link = link->next) {
        const struct hfi_waiter *waiter = HFI_CONTAINER(link, struct hfi_waiter, link);
        if (waiter->listener == NULL)
            hfi_task_post(waiter->task, HFI_EVENT_MESSAGE);
    }
}

void hfi_pubsub_wake(struct hfi_pubsub *pubsub, const char *name, size_t len) {
    pthread_mutex_lock(&pubsub->mtx);
    struct hfi_channel *channel = hfi_pubsub_find_locked(pubsub, name, len);
    if (channel != NULL)
        wake_locked(channel);
    pthread_mutex_unlock(&pubsub->mtx);
}

void hfi_pubsub_wake_all(struct hfi_pubsub *pubsub) {
    pthread_mutex_lock(&pubsub->mtx);
    for (struct hfi_channel *channel = first_channel(pubsub); channel != NULL;
         channel = next_channel(pubsub, channel))
        wake_locked(channel);
    pthread_mutex_unlock(&pubsub->mtx);
}

void hfi_pubsub_move(struct hfi_waiter *from, struct hfi_waiter *to) {
    struct hfi_pubsub *pubsub = from->pubsub;
    pthread_mutex_lock(&pubsub->mtx);
    *to = *from;
    hfi_list_replace(&from->link, &to->link);
    pthread_mutex_unlock(&pubsub->mtx);
}

bool hfi_pubsub_take(struct hfi_waiter *waiter, int64_t *ret_number, int64_t *ret_received_ms) {
    struct hfi_pubsub *pubsub = waiter->pubsub;
    pthread_mutex_lock(&pubsub->mtx);
    struct hfi_grant_message *grant = waiter->grant;
    bool any = grant != NULL && grant->number > 0;
    if (any) {
        *ret_number = grant->number;
        *ret_received_ms = grant->at_ms;
        grant->number = 0;
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
    if (!waiter->lazy && (waiter->caller != NULL || !pubsub->stopped))
        hfi_conn_unlisten(pubsub->conn, waiter->caller);
    else if (!pubsub->stopped)
        hfi_conn_listen_lazily(pubsub->conn, false);
    if (hfi_list_empty(&channel->waiters) && !pubsub->stopped) {
        channel->leave_ms = hfi_now_ms() + (waiter->linger_ms > 0 ? waiter->linger_ms : LINGER_MS);
        if (channel->leave_ms < pubsub->alarm_ms) {
            pubsub->alarm_ms = channel->leave_ms;
            hfi_alarm_set(pubsub->exec, &pubsub->alarm, pubsub->alarm_ms);
        }
    }
    pthread_mutex_unlock(&pubsub->mtx);
}

/* ---- Life cycle ---- */

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
        notify_waiters(channel, HFI_UNSUBSCRIBED, HFI_EVENT_REFUSED | HFI_EVENT_MESSAGE);
    pthread_mutex_unlock(&pubsub->mtx);
    hfi_alarm_clear(pubsub->exec, &pubsub->alarm);
}

void hfi_pubsub_free(struct hfi_pubsub *pubsub) {
    if (pubsub != NULL)
        hfi_task_unref(&pubsub->task);
}
