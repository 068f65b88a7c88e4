/* Reports a wait of held.c with --verbose: that it goes on, and which holder is in the way.
 *
 * Called by the loops of the holder and of `hold`, on the thread that calls hf_dispatch(). The
 * inspect call blocks, so it is made only after the server answered an asynchronous query. So an
 * unreachable server cannot delay a signal. (The library's own messages report such a server.) */
#include "hold/held.h"

#include <stdio.h>
#include <string.h>

#define REPORT_AFTER_MS 500 /* shorter waits are not reported */

static void on_answered(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    struct held *held = user;
    bool answered = result->code == HF_OK || result->code == HF_EWRONGTYPE;
    held->holder_query = answered ? HOLDER_QUERY_ANSWERED : HOLDER_QUERY_DONE;
}

static size_t names_len(const struct held *held) {
    return held->names != NULL ? held->names->len : 1;
}

static const char *name_at(const struct held *held, size_t i) {
    return held->names != NULL ? held->names->of[i] : held->name;
}

/* Checks that the server responds; any query will do. */
static void ask(struct held *held) {
    hf_lock *lock = NULL;
    held->holder_query = HOLDER_QUERY_SENT;
    if (hf_lock_new(held->client, name_at(held, 0), &lock) != HF_OK ||
        hf_lock_is_locked_start(lock, on_answered, held, NULL) != HF_OK)
        held->holder_query = HOLDER_QUERY_DONE;
    hf_lock_free(lock);
}

static void report_holder(const char *name, const char *state, const hf_holder *holder,
                          size_t len) {
    char shown[SHOWN_NAME_SIZE], who[SHOWN_NAME_SIZE], more[32] = "";
    shown_name(holder->connection != NULL ? holder->connection : holder->owner, who);
    if (len > 1)
        snprintf(more, sizeof more, " and %zu more", len - 1);
    say_of(LEVEL_INFO, &(struct subject){.lock = name}, "'%s': %sheld by %s%s",
           shown_name(name, shown), state, who, more);
}

/* Returns false if the lock has no holder. */
static bool report_holder_of(const struct held *held, const char *name, const char *state) {
    hf_lock *lock = NULL;
    hf_lock_info *info = NULL;
    if (hf_lock_new(held->client, name, &lock) == HF_OK)
        hf_lock_inspect(lock, &info);
    bool known = info != NULL && info->holders_len > 0;
    if (known)
        report_holder(name, state, info->holders[0], info->holders_len);
    hf_lock_info_free(info);
    hf_lock_free(lock);
    return known;
}

/* With -m: reports the first lock that has a holder. */
static bool report_first_holder(const struct held *held, const char *state) {
    bool known = false;
    for (size_t i = 0; i < names_len(held) && !known; i++)
        known = report_holder_of(held, name_at(held, i), state);
    return known;
}

static void report_wait(struct held *held) {
    char shown[SHOWN_NAME_SIZE];
    held->holder_query = HOLDER_QUERY_DONE;
    if (!report_first_holder(held, "waiting; "))
        say_of(LEVEL_INFO, &(struct subject){.lock = held->name}, "'%s': waiting for a %s",
               shown_name(held->name, shown), held->kind->ops->noun);
}

void held_report_holder(const struct held *held) {
    if (held->was_busy && message_wanted(LEVEL_INFO))
        report_first_holder(held, "");
}

int held_watch_wait(struct held *held) {
    if (!message_wanted(LEVEL_INFO) || held->canceled)
        return -1;
    if (held->holder_query == HOLDER_QUERY_ANSWERED)
        report_wait(held);
    if (held->holder_query != HOLDER_QUERY_NONE)
        return -1;
    int64_t left_ms = held->began_ms + REPORT_AFTER_MS - now_ms();
    if (left_ms > 0)
        return (int)left_ms;
    ask(held);
    return -1;
}
