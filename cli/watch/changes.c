/* Finds what changes on one name by comparing each observation with the one before.
 *
 * There are two sources. Polling the server is frequent and shows holders. A survey is occasional
 * and shows waiters, their presence, and slot holders, which have no owner at the server. The two
 * show different moments: an ended party is kept until a survey that began later, so an older
 * survey cannot bring it back.
 *
 * Any client can claim to wait, in any number. So parties are kept sorted by owner for lookup, and
 * parties known only from surveys are limited to CLAIMED_MAX.
 *
 * Releases also arrive as messages, including those between two polls. A poll may find a release
 * before its message arrives; that message must not be counted as a second release.
 *
 * A break is announced by a message before that of the release. So if a poll finds an end that no
 * message announced, the view ignores the poll's holders once, and the next poll, ON_ITS_WAY_MS
 * later, decides. A break is not followed by `lost`: the event has said so. */
#include "watch/watch.h"

#include <stdlib.h>
#include <string.h>

#define CLAIMED_MAX 10000
#define ON_ITS_WAY_MS 100 /* how much later than a poll the message of a release may arrive */
#define BREAK_FOR_MS 5000 /* for so long an announced break decides how an end is called */

/* ---- Parties ---- */

/* Its index, or where to insert it. */
static size_t place_of(const struct watch_view *view, const char *owner) {
    size_t low = 0, high = view->len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strncmp(view->all[middle]->owner, owner, OWNER_SIZE - 1) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct watch_party *find(const struct watch_view *view, const char *owner) {
    size_t place = place_of(view, owner);
    bool is_there =
        place < view->len && strncmp(view->all[place]->owner, owner, OWNER_SIZE - 1) == 0;
    return is_there ? view->all[place] : NULL;
}

static bool is_full(struct watch_view *view) {
    if (view->len < CLAIMED_MAX)
        return false;
    if (!view->full)
        say(LEVEL_NOTICE, "more than %d clients hold it or wait for it: some are not listed",
            CLAIMED_MAX);
    view->full = true;
    return true;
}

/* `claimed`: known only from a survey. Returns NULL if there are too many of those, or, with
 * `failed` set, if out of memory. */
static struct watch_party *find_or_add(struct watch_view *view, const char *owner, bool claimed) {
    struct watch_party *party = find(view, owner);
    if (party != NULL || (claimed && is_full(view)))
        return party;
    if (view->len == view->cap) {
        size_t cap = view->cap * 2 + 16;
        struct watch_party **all = realloc(view->all, cap * sizeof(struct watch_party *));
        view->failed |= all == NULL;
        if (all == NULL)
            return NULL;
        view->all = all;
        view->cap = cap;
    }
    party = calloc(1, sizeof *party);
    view->failed |= party == NULL;
    if (party == NULL)
        return NULL;
    snprintf(party->owner, sizeof party->owner, "%s", owner);
    party->state = PARTY_ENDED;
    party->since_ms = party->had_ms = -1;
    party->losses = NO_LOSSES;
    size_t place = place_of(view, owner);
    memmove(&view->all[place + 1], &view->all[place],
            (view->len++ - place) * sizeof(struct watch_party *));
    view->all[place] = party;
    return party;
}

/* Removes the parties that ended before that time. */
static void forget_before(struct watch_view *view, int64_t time_ms) {
    size_t kept = 0;
    for (size_t i = 0; i < view->len; i++) {
        struct watch_party *party = view->all[i];
        if (party->state == PARTY_ENDED && party->since_ms < time_ms)
            free(party);
        else
            view->all[kept++] = party;
    }
    view->len = kept;
}

void watch_view_free(struct watch_view *view) {
    for (size_t i = 0; i < view->len; i++)
        free(view->all[i]);
    free(view->all);
    *view = (struct watch_view){.report = view->report, .user = view->user};
}

static void describe(struct watch_party *party, const char *who) {
    if (who != NULL && who[0] != '\0')
        snprintf(party->who, sizeof party->who, "%s", who);
}

/* ---- Events ---- */

static void report(struct watch_view *view, const struct watch_event *event) {
    view->begun = true;
    view->report(view->user, event);
}

static void report_of(struct watch_view *view, const char *verb, const struct watch_party *party,
                      int64_t for_ms) {
    const struct watch_event event = {
        .verb = verb, .party = party, .for_ms = for_ms, .remaining_ms = -1};
    report(view, &event);
}

/* ---- Holders ---- */

/* One holder of the name, from a poll or a survey. */
struct sight {
    const char *owner, *who;
    int64_t count;
    int64_t for_ms; /* -1: not known */
    bool claimed;   /* by a survey */
};

/* Makes the party a holder. */
static void hold(struct watch_party *party, int64_t since_ms) {
    party->state = PARTY_HOLDS;
    party->queued = false;
    party->place = 0;
    party->presence = HF_PRESENCE_UNKNOWN;
    party->since_ms = since_ms;
}

static void see_holder(struct watch_view *view, const struct sight *sight, int64_t now_ms,
                       struct watch_party **fresh, size_t *fresh_len) {
    struct watch_party *party = find_or_add(view, sight->owner, sight->claimed);
    if (party == NULL)
        return;
    describe(party, sight->who);
    bool again = party->state == PARTY_HOLDS;
    int64_t before = party->count;
    party->seen = true;
    party->count = sight->count;
    if (again && before != party->count)
        report_of(view, "count", party, -1);
    if (again)
        return;
    hold(party, view->begun ? now_ms : -1);
    if (sight->for_ms >= 0)
        party->since_ms = now_ms - sight->for_ms;
    fresh[(*fresh_len)++] = party;
}

/* The lease that was left at the last poll is over. */
static bool has_expired(const struct watch_view *view, int64_t now_ms) {
    return view->ttl_ms >= 0 && now_ms - view->polled_ms >= view->ttl_ms;
}

static void end(struct watch_party *party, int64_t now_ms) {
    party->had_ms = party->since_ms >= 0 ? now_ms - party->since_ms : -1;
    party->state = PARTY_ENDED;
    party->since_ms = now_ms;
}

/* Whether a break was announced that no event has reported. */
static bool is_broken(const struct watch_view *view, int64_t now_ms) {
    return view->broken && now_ms - view->broken_ms < BREAK_FOR_MS;
}

static const char *word_for_end(struct watch_view *view, struct watch_party *party, bool broken) {
    if (!broken)
        return "released";
    party->losses = NO_LOSSES; /* its client will count it; that is no second event */
    view->echoes += view->kind == HF_FOUND_READ;
    return "broken";
}

/* Reports holders that are gone. With `handed`, if exactly one is gone, returns it instead: it
 * handed over to the new holder. */
static const struct watch_party *report_ends(struct watch_view *view, bool handed, int64_t now_ms) {
    const struct watch_party *giver = NULL;
    size_t ended = 0;
    bool broken = is_broken(view, now_ms);
    for (size_t i = 0; i < view->len; i++)
        ended += view->all[i]->state == PARTY_HOLDS && !view->all[i]->seen;
    for (size_t i = 0; i < view->len; i++) {
        struct watch_party *party = view->all[i];
        if (party->state != PARTY_HOLDS || party->seen)
            continue;
        end(party, now_ms);
        bool expired = has_expired(view, now_ms);
        if (!expired) {
            view->unmatched_releases++;
            view->unmatched_ms = now_ms;
        }
        if (handed && ended == 1 && !broken)
            giver = party;
        else
            report_of(view, expired && !broken ? "expired" : word_for_end(view, party, broken),
                      party, party->had_ms);
    }
    view->broken = view->broken && ended == 0;
    return giver;
}

static void see_holders(struct watch_view *view, const struct sight *sights, size_t len,
                        int64_t ttl_ms, int64_t now_ms) {
    struct watch_party **fresh = calloc(len + 1, sizeof(struct watch_party *));
    size_t fresh_len = 0;
    view->failed |= fresh == NULL;
    if (fresh == NULL)
        return;
    bool first = !view->begun;
    for (size_t i = 0; i < view->len; i++)
        view->all[i]->seen = false;
    for (size_t i = 0; i < len; i++)
        see_holder(view, &sights[i], now_ms, fresh, &fresh_len);
    const struct watch_party *giver = report_ends(view, fresh_len > 0, now_ms);
    for (size_t i = 0; i < fresh_len; i++) {
        struct watch_event event = {.verb = first ? "held" : "acquired",
                                    .party = fresh[i],
                                    .for_ms = -1,
                                    .remaining_ms = ttl_ms};
        if (first && fresh[i]->since_ms >= 0)
            event.for_ms = now_ms - fresh[i]->since_ms;
        if (i == 0 && giver != NULL) {
            event.verb = "handed";
            event.from = giver;
            event.for_ms = giver->had_ms;
        }
        report(view, &event);
    }
    /* A holder that came after the announced break: the break was of an earlier hold. */
    if (fresh_len > 0 && view->broken_ms < view->asked_ms)
        view->broken = false;
    free(fresh);
}

/* ---- Messages ---- */

/* Whether a poll already reported this release. */
static bool is_known(struct watch_view *view, int64_t at_ms) {
    view->messages++;
    if (at_ms > view->unmatched_ms + ON_ITS_WAY_MS)
        view->unmatched_releases = 0;
    if (view->unmatched_releases == 0)
        return false;
    view->unmatched_releases--;
    return true;
}

static struct watch_party *only_holder(const struct watch_view *view) {
    struct watch_party *holder = NULL;
    for (size_t i = 0; i < view->len; i++) {
        if (view->all[i]->state != PARTY_HOLDS)
            continue;
        if (holder != NULL)
            return NULL;
        holder = view->all[i];
    }
    return holder;
}

/* `party` is NULL if the owner is unknown. */
static void report_release(struct watch_view *view, struct watch_party *party, bool broken,
                           int64_t ago_ms) {
    struct watch_event event = {.verb = broken ? "broken" : "released",
                                .party = party,
                                .for_ms = -1,
                                .remaining_ms = -1,
                                .received = true,
                                .ago_ms = ago_ms};
    if (party != NULL) {
        end(party, now_ms() - ago_ms);
        event.verb = word_for_end(view, party, broken);
        event.for_ms = party->had_ms;
    }
    report(view, &event);
}

void watch_broken(struct watch_view *view, int64_t ago_ms) {
    view->broken = true;
    view->broken_ms = now_ms() - ago_ms;
}

/* Whether a broken reader's client published it. */
static bool is_echo(struct watch_view *view, int64_t at_ms) {
    if (at_ms - view->broken_ms >= BREAK_FOR_MS)
        view->echoes = 0;
    for (size_t i = 0; i < view->len; i++)
        if (view->all[i]->state == PARTY_HOLDS)
            return false;
    if (view->echoes == 0)
        return false;
    view->echoes--;
    return true;
}

void watch_released(struct watch_view *view, bool by_all, int64_t ago_ms) {
    int64_t at_ms = now_ms() - ago_ms;
    struct watch_party *only = only_holder(view);
    bool broken = is_broken(view, at_ms);
    if (is_known(view, at_ms) || (by_all && !broken && is_echo(view, at_ms)))
        return;
    view->broken = false;
    if (!by_all || only != NULL) {
        report_release(view, only, broken, ago_ms);
        return;
    }
    size_t reported = 0;
    for (size_t i = 0; i < view->len; i++)
        if (view->all[i]->state == PARTY_HOLDS) {
            report_release(view, view->all[i], broken, ago_ms);
            reported++;
        }
    if (reported == 0)
        report_release(view, NULL, broken, ago_ms);
}

void watch_latch(struct watch_view *view, bool opened, int64_t ago_ms) {
    const struct watch_event event = {.verb = opened ? "opened" : "closed",
                                      .for_ms = -1,
                                      .remaining_ms = -1,
                                      .received = true,
                                      .ago_ms = ago_ms};
    report(view, &event);
}

void watch_missed(struct watch_view *view, const char *text) {
    const struct watch_event event = {
        .verb = "missed", .for_ms = -1, .remaining_ms = -1, .text = text, .received = true};
    report(view, &event);
}

/* ---- Waiters ---- */

static void see_waiter(struct watch_view *view, const char *owner, const char *who, int64_t for_ms,
                       int64_t place, int64_t begun_ms) {
    struct watch_party *party = find_or_add(view, owner, place == 0);
    if (party == NULL || party->state == PARTY_HOLDS)
        return;
    bool ended_since = party->since_ms >= begun_ms && party->state == PARTY_ENDED;
    describe(party, who);
    party->seen = true;
    party->queued |= place > 0;
    party->place = place > 0 ? place : party->place;
    if (party->state == PARTY_WAITS || (ended_since && party->had_ms >= 0))
        return;
    party->state = PARTY_WAITS;
    party->since_ms = now_ms() - (for_ms > 0 ? for_ms : 0);
    report_of(view, "waits", party, for_ms);
}

bool watch_is_queued(const struct watch_view *view) {
    for (size_t i = 0; i < view->len; i++)
        if (view->all[i]->state == PARTY_WAITS && view->all[i]->queued)
            return true;
    return false;
}

/* A waiter is gone: it gave up, or held the name between two polls. */
static void left(struct watch_view *view, struct watch_party *party) {
    int64_t now = now_ms();
    report_of(view, "left", party, now - party->since_ms);
    end(party, now);
    party->queued = false;
}

/* ---- Polling the server ---- */

static bool same_numbers(const struct numbers *a, const struct numbers *b) {
    bool same = a->len == b->len;
    for (size_t i = 0; same && i < a->len; i++)
        same = a->all[i].value == b->all[i].value;
    return same;
}

static bool is_counter(hf_found kind) {
    return kind == HF_FOUND_PERMITS || kind == HF_FOUND_COUNTER;
}

static void see_kind(struct watch_view *view, const hf_lock_info *info,
                     const struct numbers *numbers) {
    struct watch_event event = {.for_ms = -1, .remaining_ms = -1};
    bool first = !view->begun, changed = first || info->kind != view->kind;
    if (is_counter(info->kind) && (changed || !same_numbers(numbers, &view->numbers))) {
        event.verb = "numbers";
        event.numbers = numbers;
        report(view, &event);
    } else if (info->kind == HF_FOUND_OTHER && changed) {
        event.verb = "other";
        event.text = info->type_name;
        report(view, &event);
    } else if (info->kind == HF_FOUND_FREE && first) {
        event.verb = "free";
        report(view, &event);
    } else if (info->kind == HF_FOUND_FREE && is_counter(view->kind)) {
        event.verb = "deleted";
        report(view, &event);
    }
    view->kind = info->kind;
    view->numbers = *numbers;
}

static void see_queue(struct watch_view *view, const hf_lock_info *info) {
    for (size_t i = 0; i < view->len; i++)
        view->all[i]->seen = false;
    for (size_t i = 0; i < info->waiters_len; i++)
        see_waiter(view, info->waiters[i]->owner, info->waiters[i]->connection, -1, (int64_t)i + 1,
                   INT64_MAX);
    for (size_t i = 0; i < view->len; i++) {
        struct watch_party *party = view->all[i];
        if (party->state == PARTY_WAITS && party->queued && !party->seen)
            left(view, party);
    }
}

static bool is_among(const hf_lock_info *info, const struct watch_party *party) {
    for (size_t i = 0; i < info->holders_len; i++)
        if (strncmp(info->holders[i]->owner, party->owner, OWNER_SIZE - 1) == 0)
            return true;
    return false;
}

/* Whether a holder is gone whose lease had not ended. */
static bool has_unannounced_end(const struct watch_view *view, const hf_lock_info *info,
                                int64_t now_ms) {
    if (view->broken || has_expired(view, now_ms))
        return false;
    for (size_t i = 0; i < view->len; i++)
        if (view->all[i]->state == PARTY_HOLDS && !is_among(info, view->all[i]))
            return true;
    return false;
}

int64_t watch_doubt_ends_ms(const struct watch_view *view) {
    return view->doubted_ms != 0 ? view->doubted_ms + ON_ITS_WAY_MS : 0;
}

void watch_polled(struct watch_view *view, const hf_lock_info *info, const struct numbers *numbers,
                  int64_t asked_ms, bool late, bool quiet) {
    int64_t now = now_ms();
    bool doubts = quiet && !late && view->doubted_ms == 0 && info->kind != HF_FOUND_PERMITS &&
                  has_unannounced_end(view, info, now);
    view->doubted_ms = doubts ? now : 0;
    view->asked_ms = asked_ms;
    if (doubts)
        return;
    struct sight *sights = calloc(info->holders_len + 1, sizeof *sights);
    view->failed |= sights == NULL;
    if (sights == NULL)
        return;
    for (size_t i = 0; i < info->holders_len; i++)
        sights[i] = (struct sight){.owner = info->holders[i]->owner,
                                   .who = info->holders[i]->connection,
                                   .count = info->holders[i]->count,
                                   .for_ms = -1};
    if (info->kind != HF_FOUND_PERMITS && !late) /* only a survey knows their holders */
        see_holders(view, sights, info->holders_len, info->ttl_ms, now);
    free(sights);
    see_kind(view, info, numbers);
    see_queue(view, info);
    view->ttl_ms = info->ttl_ms;
    view->polled_ms = asked_ms;
}

/* ---- A survey ---- */

static void describe_fleet_party(const hf_fleet_party *party, char *who, size_t size) {
    who[0] = '\0';
    if (party->client != NULL && party->client->host[0] != '\0')
        fleet_describe_party(party, who, size);
}

/* The holder's own client knows its start better than our polling does, unless its answer is about
 * an earlier hold. */
static void see_since(struct watch_party *party, int64_t for_ms, int64_t begun_ms) {
    int64_t since_ms = now_ms() - for_ms;
    bool seen_late = party->since_ms < begun_ms && since_ms < party->since_ms;
    if (for_ms >= 0 && (party->since_ms < 0 || seen_late))
        party->since_ms = since_ms;
}

static void see_presence(struct watch_view *view, const hf_fleet_party *reported,
                         int64_t begun_ms) {
    struct watch_party *party = find(view, reported->owner);
    char who[CELL_SIZE];
    if (party == NULL || party->state != PARTY_HOLDS)
        return;
    describe_fleet_party(reported, who, sizeof who);
    describe(party, who);
    see_since(party, reported->for_ms, begun_ms);
    if (reported->client != NULL && reported->client->presence == HF_PRESENCE_ALIVE)
        party->losses = reported->client->losses;
    hf_presence before = party->presence, now = reported->presence;
    bool bad = now == HF_PRESENCE_SILENT || now == HF_PRESENCE_GONE;
    party->presence = now;
    if (bad && before != now)
        report_of(view, presence_text(now), party, -1);
    else if (now == HF_PRESENCE_ALIVE &&
             (before == HF_PRESENCE_SILENT || before == HF_PRESENCE_GONE))
        report_of(view, "alive", party, -1);
}

static int compare_to_owner(const void *owner, const void *client) {
    const char *id = (*(const hf_fleet_client *const *)client)->id;
    return strncmp(owner, id, strlen(id));
}

/* Clients are sorted by id, and all ids have the same length. */
static const hf_fleet_client *client_of(const hf_fleet *fleet, const char *owner) {
    const hf_fleet_client *const *client = bsearch(owner, fleet->clients, fleet->clients_len,
                                                   sizeof *fleet->clients, compare_to_owner);
    return client != NULL && owner[strlen((*client)->id)] == ':' ? *client : NULL;
}

/* If a client counted a loss when its hold ended, it did not release: the lock was broken, or the
 * server forgot it. */
static void see_losses(struct watch_view *view, const hf_fleet *fleet, int64_t begun_ms) {
    for (size_t i = 0; i < view->len; i++) {
        struct watch_party *party = view->all[i];
        if (party->state != PARTY_ENDED || party->losses == NO_LOSSES ||
            party->since_ms >= begun_ms)
            continue;
        const hf_fleet_client *client = client_of(fleet, party->owner);
        if (client == NULL || client->presence != HF_PRESENCE_ALIVE)
            continue;
        if (client->losses > party->losses)
            report_of(view, "lost", party, -1);
        party->losses = NO_LOSSES;
    }
}

static void see_waiters(struct watch_view *view, const hf_fleet *fleet, const hf_fleet_lock *lock,
                        int64_t begun_ms) {
    char who[CELL_SIZE];
    for (size_t i = 0; i < view->len; i++)
        view->all[i]->seen = false;
    for (size_t i = 0; lock != NULL && i < lock->waiters_len; i++) {
        describe_fleet_party(lock->waiters[i], who, sizeof who);
        see_waiter(view, lock->waiters[i]->owner, who, lock->waiters[i]->for_ms, 0, begun_ms);
    }
    if ((fleet->missing & (HF_MISSING_ANSWERS | HF_MISSING_LOCKS)) != 0)
        return;
    for (size_t i = 0; i < view->len; i++) {
        struct watch_party *party = view->all[i];
        if (party->state != PARTY_WAITS || party->seen || party->queued ||
            party->since_ms >= begun_ms)
            continue;
        const hf_fleet_client *client = client_of(fleet, party->owner);
        if (client == NULL ||
            client->presence != HF_PRESENCE_SILENT) /* a silent client may still wait */
            left(view, party);
    }
}

static void see_surveyed_holders(struct watch_view *view, const hf_fleet_lock *lock) {
    size_t len = lock != NULL ? lock->holders_len : 0;
    struct sight *sights = calloc(len + 1, sizeof *sights);
    char(*who)[CELL_SIZE] = calloc(len + 1, sizeof *who);
    view->failed |= sights == NULL || who == NULL;
    if (sights != NULL && who != NULL) {
        for (size_t i = 0; i < len; i++) {
            describe_fleet_party(lock->holders[i], who[i], sizeof who[i]);
            sights[i] = (struct sight){.owner = lock->holders[i]->owner,
                                       .who = who[i],
                                       .count = lock->holders[i]->count,
                                       .for_ms = lock->holders[i]->for_ms,
                                       .claimed = true};
        }
        see_holders(view, sights, len, lock != NULL ? lock->ttl_ms : -1, now_ms());
    }
    free(sights);
    free(who);
}

void watch_surveyed(struct watch_view *view, const hf_fleet *fleet, const hf_fleet_lock *lock,
                    int64_t begun_ms) {
    /* If there are very many holders, each survey lists different ones; then report only the
     * counts. */
    if (view->kind == HF_FOUND_PERMITS && (lock == NULL || lock->left_out == 0))
        see_surveyed_holders(view, lock);
    for (size_t i = 0; lock != NULL && i < lock->holders_len; i++)
        see_presence(view, lock->holders[i], begun_ms);
    see_waiters(view, fleet, lock, begun_ms);
    see_losses(view, fleet, begun_ms);
    forget_before(view, begun_ms);
}
