/*
 * What changes on one name, found by comparing what is seen with what was seen before.
 *
 * The server is looked at often and tells who holds; a survey is taken now and then and tells who waits, who of
 * them is there, and who has slots, which have no owners at the server. The two are of different moments: who has ended is remembered until a survey that was begun later, lest an older one bring it back.
 *
 * Anybody may claim to wait, and any number of them: parties are kept in order, so that each is found at once, and of
 * those whom the server does not tell of only so many.
 *
 * Releases are heard of as well, also those between two looks. A look may find one before its message comes: then that is
 * not another one.
 */
#include "watch.h"

#include <stdlib.h>
#include <string.h>

#define CLAIMED_MAX 10000
#define ON_ITS_WAY_MS 100 /* a message may come so much later than what it tells of is seen */

/* ---- Parties ---- */

/* Where it is, or belongs. */
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
        say(LEVEL_NOTICE, "more than %d say that they hold it or wait: not all are told",
            CLAIMED_MAX);
    view->full = true;
    return true;
}

/* `claimed`: only a survey tells of it. NULL: there are too many of those, or out of memory, and noted. */
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

/* Those who have ended before that time. */
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
    *view = (struct watch_view){.tell = view->tell, .user = view->user};
}

static void describe(struct watch_party *party, const char *who) {
    if (who != NULL && who[0] != '\0')
        snprintf(party->who, sizeof party->who, "%s", who);
}

/* ---- Events ---- */

static void tell(struct watch_view *view, const struct watch_event *event) {
    view->begun = true;
    view->tell(view->user, event);
}

static void tell_of(struct watch_view *view, const char *word, const struct watch_party *party,
                    int64_t for_ms) {
    const struct watch_event event = {
        .word = word, .party = party, .for_ms = for_ms, .left_ms = -1};
    tell(view, &event);
}

/* ---- Who holds ---- */

/* One that holds the name, as somebody says. */
struct sight {
    const char *owner, *who;
    int64_t count;
    int64_t for_ms; /* -1: not known */
    bool claimed;   /* in a survey */
};

/* It holds the name from now on. */
static void hold(struct watch_party *party, int64_t since_ms) {
    party->state = PARTY_HOLDS;
    party->in_line = false;
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
        tell_of(view, "count", party, -1);
    if (again)
        return;
    hold(party, view->begun ? now_ms : -1);
    if (sight->for_ms >= 0)
        party->since_ms = now_ms - sight->for_ms;
    fresh[(*fresh_len)++] = party;
}

/* What was left of the lease when it was last looked at has passed since then. */
static bool has_expired(const struct watch_view *view, int64_t now_ms) {
    return view->ttl_ms >= 0 && now_ms - view->looked_ms >= view->ttl_ms;
}

static void end(struct watch_party *party, int64_t now_ms) {
    party->had_ms = party->since_ms >= 0 ? now_ms - party->since_ms : -1;
    party->state = PARTY_ENDED;
    party->since_ms = now_ms;
}

/* One that is the only one to have ended has handed it to the first that has it now. */
static const struct watch_party *tell_ends(struct watch_view *view, bool handed, int64_t now_ms) {
    const struct watch_party *giver = NULL;
    size_t ended = 0;
    for (size_t i = 0; i < view->len; i++)
        ended += view->all[i]->state == PARTY_HOLDS && !view->all[i]->seen;
    for (size_t i = 0; i < view->len; i++) {
        struct watch_party *party = view->all[i];
        if (party->state != PARTY_HOLDS || party->seen)
            continue;
        end(party, now_ms);
        bool expired = has_expired(view, now_ms);
        if (!expired) {
            view->unheard++;
            view->unheard_ms = now_ms;
        }
        if (handed && ended == 1)
            giver = party;
        else
            tell_of(view, expired ? "expired" : "released", party, party->had_ms);
    }
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
    const struct watch_party *giver = tell_ends(view, fresh_len > 0, now_ms);
    for (size_t i = 0; i < fresh_len; i++) {
        struct watch_event event = {.word = first ? "held" : "acquired",
                                    .party = fresh[i],
                                    .for_ms = -1,
                                    .left_ms = ttl_ms};
        if (first && fresh[i]->since_ms >= 0)
            event.for_ms = now_ms - fresh[i]->since_ms;
        if (i == 0 && giver != NULL) {
            event.word = "handed";
            event.from = giver;
            event.for_ms = giver->had_ms;
        }
        tell(view, &event);
    }
    free(fresh);
}

/* ---- What is heard ---- */

/* It was seen already: a look was faster. */
static bool is_known(struct watch_view *view, int64_t at_ms) {
    view->heard++;
    if (at_ms > view->unheard_ms + ON_ITS_WAY_MS)
        view->unheard = 0;
    if (view->unheard == 0)
        return false;
    view->unheard--;
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

/* NULL: nobody knows whose. */
static void tell_release(struct watch_view *view, struct watch_party *party, int64_t ago_ms) {
    struct watch_event event = {.word = "released",
                                .party = party,
                                .for_ms = -1,
                                .left_ms = -1,
                                .heard = true,
                                .ago_ms = ago_ms};
    if (party != NULL) {
        end(party, now_ms() - ago_ms);
        event.for_ms = party->had_ms;
    }
    tell(view, &event);
}

void watch_released(struct watch_view *view, bool by_all, int64_t ago_ms) {
    int64_t at_ms = now_ms() - ago_ms;
    struct watch_party *only = only_holder(view);
    if (is_known(view, at_ms))
        return;
    if (!by_all || only != NULL) {
        tell_release(view, only, ago_ms);
        return;
    }
    size_t told = 0;
    for (size_t i = 0; i < view->len; i++)
        if (view->all[i]->state == PARTY_HOLDS) {
            tell_release(view, view->all[i], ago_ms);
            told++;
        }
    if (told == 0)
        tell_release(view, NULL, ago_ms);
}

void watch_latch(struct watch_view *view, bool opened, int64_t ago_ms) {
    const struct watch_event event = {.word = opened ? "opened" : "closed",
                                      .for_ms = -1,
                                      .left_ms = -1,
                                      .heard = true,
                                      .ago_ms = ago_ms};
    tell(view, &event);
}

void watch_missed(struct watch_view *view, const char *words) {
    const struct watch_event event = {
        .word = "missed", .for_ms = -1, .left_ms = -1, .text = words, .heard = true};
    tell(view, &event);
}

/* ---- Who waits ---- */

static void see_waiter(struct watch_view *view, const char *owner, const char *who, int64_t for_ms,
                       int64_t place, int64_t begun_ms) {
    struct watch_party *party = find_or_add(view, owner, place == 0);
    if (party == NULL || party->state == PARTY_HOLDS)
        return;
    bool ended_since = party->since_ms >= begun_ms && party->state == PARTY_ENDED;
    describe(party, who);
    party->seen = true;
    party->in_line |= place > 0;
    party->place = place > 0 ? place : party->place;
    if (party->state == PARTY_WAITS || (ended_since && party->had_ms >= 0))
        return;
    party->state = PARTY_WAITS;
    party->since_ms = now_ms() - (for_ms > 0 ? for_ms : 0);
    tell_of(view, "waits", party, for_ms);
}

bool watch_is_in_line(const struct watch_view *view) {
    for (size_t i = 0; i < view->len; i++)
        if (view->all[i]->state == PARTY_WAITS && view->all[i]->in_line)
            return true;
    return false;
}

/* It has given up, or has had the name between two looks. */
static void left(struct watch_view *view, struct watch_party *party) {
    int64_t now = now_ms();
    tell_of(view, "left", party, now - party->since_ms);
    end(party, now);
    party->in_line = false;
}

/* ---- A look at the server ---- */

static bool same_numbers(const struct numbers *a, const struct numbers *b) {
    bool same = a->len == b->len;
    for (size_t i = 0; same && i < a->len; i++)
        same = a->all[i].value == b->all[i].value;
    return same;
}

static bool is_thing(hf_found kind) {
    return kind == HF_FOUND_PERMITS || kind == HF_FOUND_COUNTER;
}

static void see_kind(struct watch_view *view, const hf_lock_info *info,
                     const struct numbers *numbers) {
    struct watch_event event = {.for_ms = -1, .left_ms = -1};
    bool first = !view->begun, changed = first || info->kind != view->kind;
    if (is_thing(info->kind) && (changed || !same_numbers(numbers, &view->numbers))) {
        event.word = "numbers";
        event.numbers = numbers;
        tell(view, &event);
    } else if (info->kind == HF_FOUND_OTHER && changed) {
        event.word = "other";
        event.text = info->words;
        tell(view, &event);
    } else if (info->kind == HF_FOUND_FREE && first) {
        event.word = "free";
        tell(view, &event);
    } else if (info->kind == HF_FOUND_FREE && is_thing(view->kind)) {
        event.word = "deleted";
        tell(view, &event);
    }
    view->kind = info->kind;
    view->numbers = *numbers;
}

static void see_line(struct watch_view *view, const hf_lock_info *info) {
    for (size_t i = 0; i < view->len; i++)
        view->all[i]->seen = false;
    for (size_t i = 0; i < info->waiters_len; i++)
        see_waiter(view, info->waiters[i]->owner, info->waiters[i]->connection, -1, (int64_t)i + 1,
                   INT64_MAX);
    for (size_t i = 0; i < view->len; i++) {
        struct watch_party *party = view->all[i];
        if (party->state == PARTY_WAITS && party->in_line && !party->seen)
            left(view, party);
    }
}

void watch_looked(struct watch_view *view, const hf_lock_info *info, const struct numbers *numbers,
                  int64_t asked_ms, bool late) {
    int64_t now = now_ms();
    struct sight *sights = calloc(info->holders_len + 1, sizeof *sights);
    view->failed |= sights == NULL;
    if (sights == NULL)
        return;
    for (size_t i = 0; i < info->holders_len; i++)
        sights[i] = (struct sight){.owner = info->holders[i]->owner,
                                   .who = info->holders[i]->connection,
                                   .count = info->holders[i]->count,
                                   .for_ms = -1};
    if (info->kind != HF_FOUND_PERMITS && !late) /* whose holders only a survey knows */
        see_holders(view, sights, info->holders_len, info->ttl_ms, now);
    free(sights);
    see_kind(view, info, numbers);
    see_line(view, info);
    view->ttl_ms = info->ttl_ms;
    view->looked_ms = asked_ms;
}

/* ---- A survey ---- */

static void describe_fleet_party(const hf_fleet_party *party, char *who, size_t size) {
    who[0] = '\0';
    if (party->client != NULL && party->client->host[0] != '\0')
        fleet_describe_party(party, who, size);
}

/* Since when it has it its client knows better than who looks now and then; unless it is asked about the hold before. */
static void see_since(struct watch_party *party, int64_t for_ms, int64_t begun_ms) {
    int64_t since_ms = now_ms() - for_ms;
    bool seen_late = party->since_ms < begun_ms && since_ms < party->since_ms;
    if (for_ms >= 0 && (party->since_ms < 0 || seen_late))
        party->since_ms = since_ms;
}

static void see_presence(struct watch_view *view, const hf_fleet_party *told, int64_t begun_ms) {
    struct watch_party *party = find(view, told->owner);
    char who[CELL_SIZE];
    if (party == NULL || party->state != PARTY_HOLDS)
        return;
    describe_fleet_party(told, who, sizeof who);
    describe(party, who);
    see_since(party, told->for_ms, begun_ms);
    if (told->client != NULL && told->client->presence == HF_ALIVE)
        party->losses = told->client->losses;
    hf_presence before = party->presence, now = told->presence;
    bool bad = now == HF_SILENT || now == HF_GONE;
    party->presence = now;
    if (bad && before != now)
        tell_of(view, presence_word(now), party, -1);
    else if (now == HF_ALIVE && (before == HF_SILENT || before == HF_GONE))
        tell_of(view, "alive", party, -1);
}

static int compare_to_owner(const void *owner, const void *client) {
    const char *id = (*(const hf_fleet_client *const *)client)->id;
    return strncmp(owner, id, strlen(id));
}

/* They are in order, and their ids of one length. */
static const hf_fleet_client *client_of(const hf_fleet *fleet, const char *owner) {
    const hf_fleet_client *const *client = bsearch(owner, fleet->clients, fleet->clients_len,
                                                   sizeof *fleet->clients, compare_to_owner);
    return client != NULL && owner[strlen((*client)->id)] == ':' ? *client : NULL;
}

/* One that ended while its client counted a loss did not release it: it was broken, or the server forgot. */
static void see_losses(struct watch_view *view, const hf_fleet *fleet, int64_t begun_ms) {
    for (size_t i = 0; i < view->len; i++) {
        struct watch_party *party = view->all[i];
        if (party->state != PARTY_ENDED || party->losses == NO_LOSSES ||
            party->since_ms >= begun_ms)
            continue;
        const hf_fleet_client *client = client_of(fleet, party->owner);
        if (client == NULL || client->presence != HF_ALIVE)
            continue;
        if (client->losses > party->losses)
            tell_of(view, "lost", party, -1);
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
        if (party->state != PARTY_WAITS || party->seen || party->in_line ||
            party->since_ms >= begun_ms)
            continue;
        const hf_fleet_client *client = client_of(fleet, party->owner);
        if (client == NULL || client->presence != HF_SILENT) /* a silent one may still wait */
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
    /* of very many it is now these and now those that are told: then the numbers have to do */
    if (view->kind == HF_FOUND_PERMITS && (lock == NULL || lock->left_out == 0))
        see_surveyed_holders(view, lock);
    for (size_t i = 0; lock != NULL && i < lock->holders_len; i++)
        see_presence(view, lock->holders[i], begun_ms);
    see_waiters(view, fleet, lock, begun_ms);
    see_losses(view, fleet, begun_ms);
    forget_before(view, begun_ms);
}
