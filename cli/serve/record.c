/* What happens to locks, as events of the history: found by comparing each survey with the one
 * before, or announced by a message. Called by view.c.
 *
 * A survey shows that a hold has ended, and its client's counters and announcements tell how. They
 * may come a survey earlier or later: so ends and losses of a client wait for each other for some
 * surveys. A break is recorded when its message comes, and the end that follows is the same event.
 *
 * Texts of a survey are used only while it is there. */
#include "serve/record.h"

#include "fleet/fleet.h"
#include "fleet/losses.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of surveys, in recorder->seq. */
#define BREAK_SURVEYS 3 /* the running survey may have read the lock before the break */
#define LOSS_SURVEYS 3  /* after so many a loss is recorded without the lock's name */
#define SEEN_SURVEYS 30 /* a wait that surveys did not show for so long is a new one */

/* ---- Events ---------------------------------------------------------------------------------- */

static const char *describe(const hf_fleet_party *party, char text[CELL_SIZE]) {
    text[0] = '\0';
    fleet_describe_party(party, text, CELL_SIZE);
    return strcmp(text, party->owner) == 0 ? NULL : text;
}

/* A young fair lock looks like a plain one to the server. */
static const char *kind_of(const hf_fleet_party *party) {
    return strcmp(party->kind, "plain") != 0 ? party->kind : NULL;
}

static struct history_event event_of(const struct recorder *recorder, const char *word) {
    return (struct history_event){
        .at_ms = recorder->at_ms, .within_ms = -1, .event = word, .for_ms = -1};
}

static struct history_event event_of_lock(const struct recorder *recorder, const char *word,
                                          const hf_fleet_lock *lock) {
    struct history_event event = event_of(recorder, word);
    event.name = lock->name;
    event.name_len = lock->name_len;
    return event;
}

static void record(struct recorder *recorder, const struct history_event *event) {
    history_add(recorder->history, event);
}

void record_server(struct recorder *recorder, const char *word, const char *text) {
    recorder->at_ms = unix_ms();
    struct history_event event = event_of(recorder, word);
    event.text = text;
    record(recorder, &event);
}

/* ---- Breaks ---------------------------------------------------------------------------------- */

static struct record_break *find_break(struct recorder *recorder, const char *name,
                                       size_t name_len) {
    for (size_t i = 0; i < RECORD_BREAKS; i++) {
        struct record_break *one = &recorder->breaks[i];
        if (one->name != NULL && recorder->seq - one->seq <= BREAK_SURVEYS &&
            one->name_len == name_len && memcmp(one->name, name, name_len) == 0)
            return one;
    }
    return NULL;
}

/* One whose end no survey has shown yet. */
static struct record_break *find_awaited_break(struct recorder *recorder,
                                               const hf_fleet_lock *lock) {
    struct record_break *found = find_break(recorder, lock->name, lock->name_len);
    return found != NULL && !found->over ? found : NULL;
}

static void record_broken_holds(struct recorder *recorder, const hf_fleet_lock *lock,
                                const struct history_event *event) {
    char who[CELL_SIZE];
    if (lock == NULL || lock->holders_len == 0) /* acquired since the latest survey */
        record(recorder, event);
    for (size_t i = 0; lock != NULL && i < lock->holders_len; i++) {
        struct history_event of_hold = *event;
        of_hold.owner = lock->holders[i]->owner;
        of_hold.who = describe(lock->holders[i], who);
        of_hold.kind = kind_of(lock->holders[i]);
        record(recorder, &of_hold);
    }
}

/* The message came after the survey that shows the end: its loss is known. */
static void count_ends(struct recorder *recorder, const char *name, size_t name_len) {
    for (size_t i = 0; i < RECORD_ENDS; i++) {
        struct record_end *end = &recorder->ends[i];
        if (end->name != NULL && end->name_len == name_len &&
            memcmp(end->name, name, name_len) == 0)
            end->counted = true;
    }
}

/* In a quorum each server reports the same break: it is one. */
void record_broken(struct recorder *recorder, const hf_fleet *fleet, const char *name,
                   size_t name_len, unsigned server_bit) {
    struct record_break *slot = find_break(recorder, name, name_len);
    if (slot != NULL && (slot->servers & server_bit) == 0) {
        slot->servers |= server_bit;
        return;
    }
    char *copy = malloc(name_len + 1);
    if (copy == NULL)
        return;
    memcpy(copy, name, name_len);
    copy[name_len] = '\0';
    if (slot == NULL)
        slot = &recorder->breaks[recorder->breaks_total++ % RECORD_BREAKS];
    free(slot->name);
    *slot = (struct record_break){
        .name = copy, .name_len = name_len, .seq = recorder->seq, .servers = server_bit};
    const hf_fleet_lock wanted = {.name = copy, .name_len = name_len};
    recorder->at_ms = unix_ms();
    count_ends(recorder, name, name_len);
    struct history_event event = event_of_lock(recorder, "broken", &wanted);
    event.heard = true;
    record_broken_holds(recorder, fleet != NULL ? fleet_find_lock(fleet, &wanted) : NULL, &event);
}

/* ---- How a hold ended ------------------------------------------------------------------------ */

static const hf_fleet_client *find_client(const hf_fleet_client *const *clients, size_t len,
                                          const char *id) {
    size_t from = 0, to = len;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (strcmp(clients[middle]->id, id) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from < len && strcmp(clients[from]->id, id) == 0 ? clients[from] : NULL;
}

/* The client's numbers after the hold ended: its answer, or its last announcement. NULL: none. */
static const hf_fleet_client *numbers_after(const hf_fleet *later, const hf_fleet_client *before) {
    const hf_fleet_client *answered = find_client(later->clients, later->clients_len, before->id);
    if (answered != NULL && answered->presence == HF_PRESENCE_ALIVE)
        return answered;
    const hf_fleet_client *announced =
        find_client(later->announced, later->announced_len, before->id);
    return announced != NULL && announced->losses > before->losses ? announced : NULL;
}

static bool is_claimed(const hf_fleet_party *party, const hf_fleet_lock *after) {
    for (size_t i = 0; after != NULL && i < after->holders_len; i++)
        if (strcmp(after->holders[i]->owner, party->owner) == 0)
            return true;
    return false;
}

static bool has_new_loss(const struct recorder *recorder, const hf_fleet_client *client) {
    for (size_t i = 0; client != NULL && i < RECORD_LOSSES; i++)
        if (recorder->losses[i].more > 0 && strcmp(recorder->losses[i].client, client->id) == 0)
            return true;
    return false;
}

/* Without its client's numbers: a hold of a known client that was there, and whose lease could not
 * be over, was released, since nobody broke the lock. Should its loss be announced yet, that is
 * recorded, too. */
static const char *how_it_ended_unseen(const struct recorder *recorder, const hf_fleet_party *party,
                                       const hf_fleet_lock *before) {
    if (has_new_loss(recorder, fleet_client_of(party)))
        return "lost";
    bool over = before->ttl_ms >= 0 && before->ttl_ms <= recorder->between_ms;
    bool gone = party->presence == HF_PRESENCE_GONE;
    if (!gone && party->presence != HF_PRESENCE_UNKNOWN && recorder->breaks_heard &&
        before->ttl_ms > recorder->between_ms)
        return "released";
    return over && (gone || party->presence == HF_PRESENCE_SILENT) ? "expired" : "ended";
}

/* If neither or both counters rose, the client may have answered before the end, or had other
 * holds. If it still claims the hold, it has not released it as far as it knows. */
static const char *how_it_ended(const struct recorder *recorder, const hf_fleet *later,
                                const hf_fleet_party *party, const hf_fleet_lock *before,
                                const hf_fleet_lock *after) {
    const hf_fleet_client *client = party->client;
    if (!recorder->close || is_claimed(party, after))
        return "ended";
    if (client == NULL || client->presence != HF_PRESENCE_ALIVE)
        return how_it_ended_unseen(recorder, party, before);
    const hf_fleet_client *now = numbers_after(later, client);
    if (now == NULL)
        return how_it_ended_unseen(recorder, party, before);
    bool released = now->released > client->released, lost = now->losses > client->losses;
    return released == lost ? "ended" : released ? "released" : "lost";
}

/* ---- Ends and losses that wait for each other ------------------------------------------------ */

static void forget_end(struct record_end *end) {
    free(end->name);
    free(end->owner);
    free(end->who);
    *end = (struct record_end){0};
}

static void note_end(struct recorder *recorder, const hf_fleet_lock *lock,
                     const hf_fleet_party *party, const char *who, bool counted) {
    const hf_fleet_client *client = fleet_client_of(party);
    struct record_end *end = &recorder->ends[recorder->ends_total++ % RECORD_ENDS];
    forget_end(end);
    if (client == NULL)
        return;
    end->name = malloc(lock->name_len + 1);
    end->owner = strdup(party->owner);
    end->who = strdup(who != NULL ? who : "");
    if (end->name == NULL || end->owner == NULL || end->who == NULL) {
        forget_end(end);
        return;
    }
    memcpy(end->name, lock->name, lock->name_len + 1);
    end->name_len = lock->name_len;
    snprintf(end->client, sizeof end->client, "%s", client->id);
    end->counted = counted;
    end->seq = recorder->seq;
}

static void note_loss(void *user, const hf_fleet_client *client, uint64_t more) {
    struct recorder *recorder = user;
    const hf_fleet_party party = {.owner = "", .client = client};
    struct record_loss *loss = &recorder->losses[recorder->losses_total++ % RECORD_LOSSES];
    *loss = (struct record_loss){.more = more, .seq = recorder->seq};
    snprintf(loss->client, sizeof loss->client, "%s", client->id);
    fleet_describe_party(&party, loss->who, sizeof loss->who);
}

static void record_late_loss(struct recorder *recorder, const struct record_end *end) {
    struct history_event event = event_of(recorder, "lost");
    event.name = end->name;
    event.name_len = end->name_len;
    event.owner = end->owner;
    event.who = end->who;
    record(recorder, &event);
}

/* Ends of that client which are known to be losses first. */
static void match_loss(struct recorder *recorder, struct record_loss *loss, bool counted) {
    for (size_t i = 0; i < RECORD_ENDS && loss->more > 0; i++) {
        struct record_end *end = &recorder->ends[i];
        if (end->name == NULL || end->counted != counted || strcmp(end->client, loss->client) != 0)
            continue;
        if (!counted)
            record_late_loss(recorder, end);
        forget_end(end);
        loss->more--;
    }
}

static void match_losses(struct recorder *recorder) {
    for (size_t i = 0; i < RECORD_LOSSES; i++) {
        struct record_loss *loss = &recorder->losses[i];
        match_loss(recorder, loss, true);
        match_loss(recorder, loss, false);
        if (loss->more == 0 || recorder->seq - loss->seq < LOSS_SURVEYS)
            continue;
        struct history_event event = event_of(recorder, "lost");
        event.who = loss->who;
        event.count = (int64_t)loss->more;
        event.text = "of a lock that no survey showed";
        record(recorder, &event);
        loss->more = 0;
    }
    for (size_t i = 0; i < RECORD_ENDS; i++)
        if (recorder->seq - recorder->ends[i].seq > SEEN_SURVEYS)
            forget_end(&recorder->ends[i]);
}

/* ---- Holders --------------------------------------------------------------------------------- */

static void record_end(struct recorder *recorder, const hf_fleet *later,
                       const hf_fleet_lock *before, const hf_fleet_lock *after,
                       const hf_fleet_party *party, int64_t at_ms) {
    char who[CELL_SIZE];
    const struct record_break *broken = find_awaited_break(recorder, before);
    const char *how =
        broken != NULL ? "broken" : how_it_ended(recorder, later, party, before, after);
    struct history_event event = event_of_lock(recorder, how, before);
    event.who = describe(party, who);
    note_end(recorder, before, party, event.who, broken != NULL || strcmp(how, "lost") == 0);
    if (broken != NULL) /* recorded when its message came */
        return;
    event.owner = party->owner;
    event.kind = kind_of(party);
    event.at_ms = at_ms;
    event.within_ms = recorder->between_ms;
    if (party->for_ms >= 0)
        event.for_ms = party->for_ms + (at_ms - recorder->earlier_at_ms);
    record(recorder, &event);
}

/* A client that answers says for how long it has held: then the time is known. */
static void set_start(const struct recorder *recorder, const hf_fleet_party *party,
                      struct history_event *event) {
    bool known = party->for_ms >= 0 && party->for_ms <= recorder->between_ms;
    event->at_ms = known ? recorder->at_ms - party->for_ms : recorder->at_ms;
    event->within_ms = known ? -1 : recorder->between_ms;
}

static void record_acquire(struct recorder *recorder, const hf_fleet_lock *lock,
                           const hf_fleet_party *party, const hf_fleet_party *from) {
    char who[CELL_SIZE], from_who[CELL_SIZE];
    struct history_event event = event_of_lock(recorder, "acquired", lock);
    event.owner = party->owner;
    event.kind = kind_of(party);
    event.who = describe(party, who);
    set_start(recorder, party, &event);
    if (from != NULL) {
        event.from_owner = from->owner;
        event.from_who = describe(from, from_who);
    }
    record(recorder, &event);
}

/* Those who left held the lock before, those who came hold it after. Returns whether it was handed
 * over. */
static bool compare(struct recorder *recorder, const hf_fleet *earlier, const hf_fleet *later,
                    const hf_fleet_lock *before, const hf_fleet_lock *after) {
    struct fleet_change change;
    if (!fleet_compare_holders(earlier, before, later, after, &change))
        return false; /* out of memory: not recorded */
    struct history_event start = {.at_ms = recorder->at_ms};
    if (change.handed)
        set_start(recorder, change.came[0], &start);
    for (size_t i = 0; before != NULL && i < change.left_len; i++)
        record_end(recorder, later, before, after, change.left[i], start.at_ms);
    for (size_t i = 0; after != NULL && i < change.came_len; i++)
        record_acquire(recorder, after, change.came[i],
                       change.handed && i == 0 ? change.left[0] : NULL);
    struct record_break *broken =
        before != NULL && change.left_len > 0 ? find_awaited_break(recorder, before) : NULL;
    if (broken != NULL)
        broken->over = true; /* kept, since other servers of a quorum may report it later */
    fleet_change_free(&change);
    return change.handed;
}

static int64_t compare_locks(struct recorder *recorder, const hf_fleet *earlier,
                             const hf_fleet *later) {
    int64_t seen = 0;
    for (size_t i = 0, k = 0; i < earlier->locks_len || k < later->locks_len;) {
        int order = i == earlier->locks_len ? 1
                    : k == later->locks_len ? -1
                                            : fleet_order(earlier->locks[i], later->locks[k]);
        const hf_fleet_lock *before = order <= 0 ? earlier->locks[i++] : NULL;
        const hf_fleet_lock *after = order >= 0 ? later->locks[k++] : NULL;
        seen += compare(recorder, earlier, later, before, after);
    }
    return seen;
}

static void record_held(struct recorder *recorder, const hf_fleet *fleet) {
    char who[CELL_SIZE];
    for (size_t i = 0; i < fleet->locks_len; i++)
        for (size_t k = 0; k < fleet->locks[i]->holders_len; k++) {
            const hf_fleet_party *party = fleet->locks[i]->holders[k];
            struct history_event event = event_of_lock(recorder, "held", fleet->locks[i]);
            event.owner = party->owner;
            event.kind = kind_of(party);
            event.who = describe(party, who);
            event.for_ms = party->for_ms;
            record(recorder, &event);
        }
}

/* ---- Long waits and deadlocks: recorded once ------------------------------------------------- */

static uint64_t hash_more(uint64_t hash, const char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u;
}

static uint64_t hash_of(const hf_fleet_lock *lock, const char *owner) {
    uint64_t hash = hash_more(0xcbf29ce484222325u, lock->name, lock->name_len);
    return hash_more(hash, owner, strlen(owner));
}

/* Whether surveys have shown it lately; from now on they have. If there are too many, or no memory,
 * it counts as seen. */
static bool is_seen(struct recorder *recorder, uint64_t hash) {
    size_t from = 0, to = recorder->seen_len;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (recorder->seen[middle].hash < hash)
            from = middle + 1;
        else
            to = middle;
    }
    struct record_seen *slot = &recorder->seen[from];
    if (from < recorder->seen_len && slot->hash == hash) {
        slot->seq = recorder->seq;
        return true;
    }
    if (recorder->seen_len == RECORD_SEEN)
        return true;
    memmove(slot + 1, slot, (recorder->seen_len - from) * sizeof *slot);
    *slot = (struct record_seen){.hash = hash, .seq = recorder->seq};
    recorder->seen_len++;
    return false;
}

static void forget_unseen(struct recorder *recorder) {
    size_t kept = 0;
    for (size_t i = 0; i < recorder->seen_len; i++)
        if (recorder->seq - recorder->seen[i].seq <= SEEN_SURVEYS)
            recorder->seen[kept++] = recorder->seen[i];
    recorder->seen_len = kept;
}

static void record_long_waits(struct recorder *recorder, const hf_fleet *fleet) {
    char who[CELL_SIZE], from_who[CELL_SIZE];
    for (size_t i = 0; i < fleet->locks_len; i++)
        for (size_t k = 0; k < fleet->locks[i]->waiters_len; k++) {
            const hf_fleet_lock *lock = fleet->locks[i];
            const hf_fleet_party *party = lock->waiters[k], *holder = fleet_holder(lock);
            if (party->for_ms < recorder->long_wait_ms ||
                is_seen(recorder, hash_of(lock, party->owner)))
                continue;
            struct history_event event = event_of_lock(recorder, "long_wait", lock);
            event.owner = party->owner;
            event.kind = kind_of(party);
            event.who = describe(party, who);
            event.for_ms = party->for_ms;
            if (holder != NULL) {
                event.from_owner = holder->owner;
                event.from_who = describe(holder, from_who);
            }
            record(recorder, &event);
        }
}

/* "A waits for 'L', held by B; B waits for ...", to be freed. NULL: out of memory. */
static char *text_of(const hf_deadlock *deadlock) {
    char *text = NULL, who[CELL_SIZE], holder[CELL_SIZE], name[SHOWN_NAME_SIZE];
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < deadlock->steps_len; i++) {
        const hf_deadlock_step *step = &deadlock->steps[i];
        fleet_describe_party(step->waiter, who, sizeof who);
        fleet_describe_party(step->holder, holder, sizeof holder);
        fprintf(out, "%s%s waits for '%s', held by %s", i > 0 ? "; " : "", who,
                fleet_shown_name(step->lock, name), holder);
    }
    return fclose(out) == 0 ? text : NULL;
}

/* One event for each lock in it; the first has the number of locks as its count. */
static void record_deadlock(struct recorder *recorder, const hf_deadlock *deadlock) {
    char who[CELL_SIZE], from_who[CELL_SIZE];
    char *text = text_of(deadlock);
    for (size_t i = 0; i < deadlock->steps_len; i++) {
        const hf_deadlock_step *step = &deadlock->steps[i];
        struct history_event event = event_of_lock(recorder, "deadlock", step->lock);
        event.owner = step->waiter->owner;
        event.kind = kind_of(step->waiter);
        event.who = describe(step->waiter, who);
        event.for_ms = step->waiter->for_ms;
        event.from_owner = step->holder->owner;
        event.from_who = describe(step->holder, from_who);
        event.count = i == 0 ? (int64_t)deadlock->steps_len : 0;
        event.text = text;
        record(recorder, &event);
    }
    free(text);
}

/* A cycle may begin with any of its steps. */
static void record_deadlocks(struct recorder *recorder, const hf_deadlocks *deadlocks) {
    for (size_t i = 0; deadlocks != NULL && i < deadlocks->len; i++) {
        const hf_deadlock *deadlock = &deadlocks->all[i];
        uint64_t hash = deadlock->steps_len;
        for (size_t k = 0; k < deadlock->steps_len; k++)
            hash += hash_of(deadlock->steps[k].lock, deadlock->steps[k].waiter->owner) * 2;
        if (!is_seen(recorder, hash))
            record_deadlock(recorder, deadlock);
    }
}

/* ---- A survey -------------------------------------------------------------------------------- */

int64_t record_survey(struct recorder *recorder, const struct record_surveys *surveys,
                      struct losses *losses) {
    const hf_fleet *earlier = surveys->earlier, *later = surveys->later;
    int64_t seen = 0;
    recorder->at_ms = surveys->at_ms;
    recorder->earlier_at_ms = surveys->earlier_at_ms;
    recorder->breaks_heard = surveys->breaks_heard;
    if (recorder->seq == 0 || later->taken_ms - recorder->seq_ms >= surveys->period_ms / 2) {
        recorder->seq++;
        recorder->seq_ms = later->taken_ms;
    }
    recorder->between_ms = earlier != NULL ? later->taken_ms - earlier->taken_ms : 0;
    recorder->close = recorder->between_ms < surveys->close_ms;
    losses_add(losses, later, note_loss, recorder);
    if (earlier != NULL)
        seen = compare_locks(recorder, earlier, later);
    else
        record_held(recorder, later);
    match_losses(recorder);
    record_long_waits(recorder, later);
    record_deadlocks(recorder, surveys->deadlocks);
    forget_unseen(recorder);
    return seen;
}

bool record_has_open_losses(const struct recorder *recorder) {
    for (size_t i = 0; i < RECORD_LOSSES; i++)
        if (recorder->losses[i].more > 0)
            return true;
    return false;
}

void recorder_clear(struct recorder *recorder) {
    for (size_t i = 0; i < RECORD_BREAKS; i++)
        free(recorder->breaks[i].name);
    for (size_t i = 0; i < RECORD_ENDS; i++)
        forget_end(&recorder->ends[i]);
}
