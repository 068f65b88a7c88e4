/*
 * What --verbose says of a wait for held.c: that it goes on, and who is the reason.
 *
 * Called by the loops of the holder and of `hold`, on the thread that calls hf_dispatch(). Who
 * holds the lock is asked only when the server has just answered another question, which did not
 * block: so a server that is gone does not keep a signal waiting. (The library's own messages
 * report such a server.)
 */
#include "held.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE_MS 500 /* a shorter wait is not worth a word */

static void on_answered(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    struct held *held = user;
    bool answered = result->code == HF_OK || result->code == HF_EWRONGTYPE;
    held->telling = answered ? TELL_ANSWERED : TELL_DONE;
}

static size_t names_len(const struct held *held) {
    return held->names != NULL ? held->names->len : 1;
}

static const char *name_at(const struct held *held, size_t i) {
    return held->names != NULL ? held->names->of[i] : held->name;
}

/* Is the server there? Which question it is does not matter. */
static void ask(struct held *held) {
    hf_lock *lock = NULL;
    held->telling = TELL_ASKED;
    if (hf_lock_new(held->client, name_at(held, 0), &lock) != HF_OK ||
        hf_lock_is_locked_start(lock, on_answered, held, NULL) != HF_OK)
        held->telling = TELL_DONE;
    hf_lock_free(lock);
}

static void tell_holder(const char *name, const hf_holder *holder, size_t len) {
    char who[SHOWN_NAME_SIZE], more[32] = "";
    shown_name(holder->connection != NULL ? holder->connection : holder->owner, who);
    if (len > 1)
        snprintf(more, sizeof more, " and %zu more", len - 1);
    say(LEVEL_INFO, "'%s': waiting; held by %s%s", name, who, more);
}

/* False: nobody holds this one. */
static bool tell_of(const struct held *held, const char *name) {
    char shown[SHOWN_NAME_SIZE];
    hf_lock *lock = NULL;
    hf_lock_info *info = NULL;
    if (hf_lock_new(held->client, name, &lock) == HF_OK)
        hf_lock_inspect(lock, &info);
    bool known = info != NULL && info->holders_len > 0;
    if (known)
        tell_holder(shown_name(name, shown), info->holders[0], info->holders_len);
    hf_lock_info_free(info);
    hf_lock_free(lock);
    return known;
}

static void tell(struct held *held) {
    char shown[SHOWN_NAME_SIZE];
    bool known = false;
    held->telling = TELL_DONE;
    for (size_t i = 0; i < names_len(held) && !known; i++)
        known = tell_of(held, name_at(held, i));
    if (!known)
        say(LEVEL_INFO, "'%s': waiting for a %s", shown_name(held->name, shown),
            held->kind->ops->noun);
}

int held_watch_wait(struct held *held) {
    if (!message_wanted(LEVEL_INFO) || held->canceled)
        return -1;
    if (held->telling == TELL_ANSWERED)
        tell(held);
    if (held->telling != TELL_NOTHING)
        return -1;
    int64_t left_ms = held->began_ms + PATIENCE_MS - now_ms();
    if (left_ms > 0)
        return (int)left_ms;
    ask(held);
    return -1;
}
