/* Reports a wait of held.c with --verbose: that it goes on, and which holders are in the way.
 *
 * Called by the loops of the holder and of `hold`, on the thread that calls hf_dispatch(). The
 * inspect call blocks, so it is made only after the server answered an asynchronous query. So an
 * unreachable server cannot delay a signal. (The library's own messages report such a server.) */
#include "hold/held.h"

#include "fleet/fleet.h"

#include <stdio.h>
#include <string.h>

#define REPORT_AFTER_MS 500 /* shorter waits are not reported */
#define LISTED_MAX 5        /* further holders are counted */
#define SURVEY_MS 2000

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

/* Holders by name, separated by commas. */
struct holders {
    char text[512];
    size_t len, listed;
};

static void add_holder(struct holders *holders, const char *who) {
    size_t room = sizeof holders->text - holders->len;
    if (holders->listed == LISTED_MAX)
        return;
    int len =
        snprintf(holders->text + holders->len, room, "%s%s", holders->listed > 0 ? ", " : "", who);
    if (len < 0 || (size_t)len >= room) {
        holders->text[holders->len] = '\0';
        return;
    }
    holders->len += (size_t)len;
    holders->listed++;
}

/* Returns false if there is no holder. */
static bool report_holders(const char *name, const char *state, const struct holders *holders,
                           size_t count) {
    char shown[SHOWN_NAME_SIZE], more[32] = "";
    if (holders->listed == 0)
        return false;
    if (count > holders->listed)
        snprintf(more, sizeof more, " and %zu more", count - holders->listed);
    say_of(LEVEL_INFO, &(struct subject){.lock = name}, "'%s': %sheld by %s%s",
           shown_name(name, shown), state, holders->text, more);
    return true;
}

/* Returns false if the lock has no holder. */
static bool report_holders_of(const struct held *held, const char *name, const char *state) {
    struct holders holders = {0};
    hf_lock *lock = NULL;
    hf_lock_info *info = NULL;
    if (hf_lock_new(held->client, name, &lock) == HF_OK)
        hf_lock_inspect(lock, &info);
    for (size_t i = 0; info != NULL && i < info->holders_len; i++) {
        char who[SHOWN_NAME_SIZE];
        const hf_holder *holder = info->holders[i];
        add_holder(
            &holders,
            shown_name(holder->connection != NULL ? holder->connection : holder->owner, who));
    }
    bool known = report_holders(name, state, &holders, info != NULL ? info->holders_len : 0);
    hf_lock_info_free(info);
    hf_lock_free(lock);
    return known;
}

/* Of slots the server knows the number only. Their clients say that they have them. */
static void report_slot_holders(const struct held *held) {
    char pattern[FLEET_PATTERN_SIZE];
    struct holders holders = {0};
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.pattern = pattern;
    options.wanted = HF_WANT_HOLDS;
    options.limit_ms = SURVEY_MS;
    if (!fleet_quote_pattern(held->name, pattern) ||
        hf_survey(held->client, &options, &fleet) != HF_OK)
        return;
    const hf_fleet_lock *lock = fleet_find(fleet, held->name);
    for (size_t i = 0; lock != NULL && i < lock->holders_len; i++) {
        char who[CELL_SIZE], shown[SHOWN_NAME_SIZE];
        fleet_describe_party(lock->holders[i], who, sizeof who);
        add_holder(&holders, shown_name(who, shown));
    }
    report_holders(held->name, "", &holders, lock != NULL ? (size_t)fleet_holders(lock) : 0);
    hf_fleet_free(fleet);
}

/* With -m: reports the first lock that has a holder. */
static bool report_first_holder(const struct held *held, const char *state) {
    bool known = false;
    for (size_t i = 0; i < names_len(held) && !known; i++)
        known = report_holders_of(held, name_at(held, i), state);
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
    if (!held->was_busy || !message_wanted(LEVEL_INFO))
        return;
    if (held->slots > 0)
        report_slot_holders(held);
    else
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
