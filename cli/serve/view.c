/* The data of `holdfast serve`: the latest two surveys, the deadlocks that both show, and the
 * hand-overs in between. One survey at a time, at most one a second, and only while loop.c calls
 * view_tick(), which it does while a client needs surveys.
 *
 * Per-name times are requested only when wanted, because they make answers long. Each time they are
 * added to the sums.
 *
 * Displayed times are Unix times, to be compared with other logs; intervals use now_ms(). */
#include "serve/serve.h"

#include "fleet/fleet.h"
#include "fleet/lock_times.h"
#include "fleet/losses.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SURVEY_LIMIT_MS 5000 /* Prometheus' scrape timeout is ten seconds */
#define JOINED_MS 5000       /* surveys further apart do not show what happened in between */

int64_t unix_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Changes between surveys ----------------------------------------------------------------- */

static char *describe(const hf_fleet_party *party) {
    char text[256] = "";
    if (party != NULL)
        fleet_describe_party(party, text, sizeof text);
    return strdup(text);
}

static char *copy_name(const hf_fleet_lock *lock) {
    char *name = malloc(lock->name_len + 1);
    if (name != NULL)
        memcpy(name, lock->name, lock->name_len + 1);
    return name;
}

static void note(struct view *view, const hf_fleet_lock *lock, const hf_fleet_party *from,
                 const hf_fleet_party *to, const char *how) {
    struct handover *slot = &view->handovers[view->handovers_total % VIEW_HANDOVERS];
    struct handover next = {.at_ms = view->good_at_ms,
                            .name = copy_name(lock),
                            .name_len = lock->name_len,
                            .from = describe(from),
                            .to = describe(to),
                            .how = how};
    struct handover old = *slot;
    if (next.name != NULL && next.from != NULL && next.to != NULL) {
        *slot = next;
        view->handovers_total++;
    } else {
        old = next; /* out of memory: not recorded */
    }
    free(old.name);
    free(old.from);
    free(old.to);
}

/* ---- How a hold ended ---- */

#define BREAK_SURVEYS 3 /* the running survey may have read the lock before the break */

static struct view_break *find_break(struct view *view, const char *name, size_t name_len) {
    for (size_t i = 0; i < VIEW_BREAKS; i++) {
        struct view_break *one = &view->breaks[i];
        if (one->name != NULL && view->seq - one->seq <= BREAK_SURVEYS &&
            one->name_len == name_len && memcmp(one->name, name, name_len) == 0)
            return one;
    }
    return NULL;
}

/* In a quorum each server reports the same break: it is one. */
static void note_break(struct view *view, const char *name, size_t name_len) {
    struct view_break *slot = find_break(view, name, name_len);
    if (slot != NULL) {
        slot->seq = view->seq;
        return;
    }
    char *copy = malloc(name_len + 1);
    if (copy == NULL)
        return;
    memcpy(copy, name, name_len);
    copy[name_len] = '\0';
    slot = &view->breaks[view->breaks_total++ % VIEW_BREAKS];
    free(slot->name);
    *slot = (struct view_break){.name = copy, .name_len = name_len, .seq = view->seq};
}

void view_note_own_break(struct view *view, const char *name) {
    if (view->subscribed == 0)
        note_break(view, name, strlen(name));
}

static void on_news(hf_listener *listener, const hf_news *news, void *user) {
    struct view *view = user;
    unsigned bit = 1u << news->server;
    (void)listener;
    if (news->kind == HF_NEWS_LISTENING)
        view->subscribed |= bit;
    else if (news->kind == HF_NEWS_DEAF)
        view->subscribed &= ~bit;
    else if (news->kind == HF_NEWS_BROKEN)
        note_break(view, news->name, news->name_len);
}

/* Without it, only our own breaks are known as such. */
static void listen_for_breaks(struct view *view) {
    if (view->listener != NULL || view->no_breaks)
        return;
    int code = hf_listen_breaks(view->client, on_news, view, &view->listener);
    view->no_breaks = code == HF_ENOTSUP;
}

void view_rest(struct view *view) {
    hf_listener_free(view->listener);
    view->listener = NULL;
    view->subscribed = 0;
}

static int by_id(const void *id, const void *client) {
    return strcmp(id, (*(const hf_fleet_client *const *)client)->id);
}

/* Decided by its client's counters, if it answered both surveys. If neither or both counters rose,
 * the client may have answered before the end, or had other holds. If it still claims the hold, it
 * has not released it as far as it knows. */
static const char *how_it_ended(const struct view *view, const hf_fleet_party *party,
                                const hf_fleet_lock *after) {
    const hf_fleet_client *before = party->client;
    const hf_fleet_client *const *found =
        before == NULL ? NULL
                       : bsearch(before->id, view->later->clients, view->later->clients_len,
                                 sizeof(const hf_fleet_client *), by_id);
    if (found == NULL || before->presence != HF_ALIVE || (*found)->presence != HF_ALIVE)
        return "ended";
    for (size_t i = 0; after != NULL && i < after->holders_len; i++)
        if (strcmp(after->holders[i]->owner, party->owner) == 0)
            return "ended";
    bool released = (*found)->released > before->released, lost = (*found)->losses > before->losses;
    return released == lost ? "ended" : released ? "released" : "lost";
}

/* Compares one name; `before` or `after` is NULL if it is in one survey only. Returns whether it
 * was handed over. */
static bool compare(struct view *view, const hf_fleet_lock *before, const hf_fleet_lock *after) {
    struct fleet_change change;
    const hf_fleet_lock *lock = before != NULL ? before : after;
    if (!fleet_compare_holders(view->earlier, before, view->later, after, &change))
        return false; /* out of memory: not recorded */
    struct view_break *broken =
        change.left_len > 0 ? find_break(view, lock->name, lock->name_len) : NULL;
    for (size_t i = 0; i < change.left_len; i++)
        note(view, lock, change.left[i], change.handed && i == 0 ? change.came[0] : NULL,
             broken != NULL ? "broken" : how_it_ended(view, change.left[i], after));
    for (size_t i = change.handed ? 1 : 0; i < change.came_len; i++)
        note(view, lock, NULL, change.came[i], NULL);
    if (broken != NULL) {
        free(broken->name);
        broken->name = NULL;
    }
    fleet_change_free(&change);
    return change.handed;
}

static int64_t compare_locks(struct view *view) {
    const hf_fleet *earlier = view->earlier, *later = view->later;
    int64_t seen = 0;
    for (size_t i = 0, k = 0; i < earlier->locks_len || k < later->locks_len;) {
        int order = i == earlier->locks_len ? 1
                    : k == later->locks_len ? -1
                                            : fleet_order(earlier->locks[i], later->locks[k]);
        const hf_fleet_lock *before = order <= 0 ? earlier->locks[i++] : NULL;
        const hf_fleet_lock *after = order >= 0 ? later->locks[k++] : NULL;
        seen += compare(view, before, after);
    }
    return seen;
}

/* Hand-overs counted by the clients. Only clients that hold or wait for long report, so it is a
 * lower bound. */
static int64_t compare_clients(const hf_fleet *earlier, const hf_fleet *later) {
    int64_t counted = 0;
    for (size_t i = 0, k = 0; i < earlier->clients_len && k < later->clients_len;) {
        const hf_fleet_client *before = earlier->clients[i], *after = later->clients[k];
        int order = strcmp(before->id, after->id);
        if (order == 0 && before->presence == HF_ALIVE && after->presence == HF_ALIVE &&
            after->hand_over.count > before->hand_over.count)
            counted += (int64_t)(after->hand_over.count - before->hand_over.count);
        i += order <= 0;
        k += order >= 0;
    }
    return counted;
}

static void note_changes(struct view *view) {
    int64_t between_ms = view->later->taken_ms - view->earlier->taken_ms;
    view->joined = between_ms > 0 && between_ms < JOINED_MS;
    if (!view->joined)
        return;
    int64_t seen = compare_locks(view);
    view->rates[view->rates_total++ % VIEW_RATES] =
        (struct rate){.at_ms = view->good_at_ms,
                      .seen = seen,
                      .counted_by_clients = compare_clients(view->earlier, view->later),
                      .between_ms = between_ms};
}

/* ---- Surveys --------------------------------------------------------------------------------- */

static void compare_surveys(struct view *view) {
    if (hf_fleet_deadlocks(view->earlier, view->later, &view->deadlocks) != HF_OK)
        view->deadlocks = NULL; /* out of memory: the next survey tries again */
    note_changes(view);
}

static void note_totals(struct view *view, const hf_fleet *fleet) {
    lock_times_add(view->times, fleet);
    losses_add(view->losses, fleet);
}

static void take_fleet(struct view *view, hf_fleet *fleet) {
    hf_deadlocks_free(view->deadlocks);
    view->deadlocks = NULL;
    hf_fleet_free(view->earlier);
    view->earlier = view->later;
    view->later = fleet;
    view->good_ms = now_ms();
    view->good_at_ms = unix_ms();
    view->failed_at_ms = 0;
    view->error[0] = '\0';
    view->joined = false;
    if (view->times_asked)
        note_totals(view, fleet);
    if (view->earlier != NULL)
        compare_surveys(view);
    fleet_remember(fleet);
}

static void take_error(struct view *view, int code, const hf_error *error) {
    const char *text = error->text[0] != '\0' ? error->text : hf_strerror(code);
    snprintf(view->error, sizeof view->error, "%s%s%s", error->node, error->node[0] ? ": " : "",
             text);
    if (view->failed_at_ms == 0)
        view->failed_at_ms = unix_ms();
    view->joined = false;
}

static void survey_done(hf_op *op, const hf_result *result, void *user) {
    struct view *view = user;
    (void)op;
    hf_fleet *fleet = view->coming;
    view->coming = NULL;
    view->running = false;
    hf_op_free(view->op);
    view->op = NULL;
    view->handovers_before = view->handovers_total;
    if (result->code == HF_OK && fleet != NULL)
        take_fleet(view, fleet);
    else
        take_error(view, result->code, &result->error);
    view->seq++;
    view->changed(view->user);
}

static void start(struct view *view) {
    hf_survey_options options = HF_SURVEY_INIT;
    options.limit_ms = SURVEY_LIMIT_MS;
    if (view->times_wanted)
        options.wanted |= HF_WANT_TIMES;
    view->times_asked = view->times_wanted;
    view->times_wanted = false;
    view->started_ms = now_ms();
    view->running = true;
    int code = hf_survey_start(view->client, &options, &view->coming, survey_done, view, &view->op);
    if (code == HF_OK)
        return;
    view->running = false;
    view->handovers_before = view->handovers_total;
    take_error(view, code, hf_last_error());
    view->seq++;
    view->changed(view->user);
}

int view_tick(struct view *view) {
    listen_for_breaks(view);
    if (view->running)
        return -1;
    int64_t due_ms = view->seq > 0 ? view->started_ms + VIEW_PERIOD_MS - now_ms() : 0;
    if (due_ms > 0)
        return (int)due_ms;
    start(view);
    return view->running ? -1 : VIEW_PERIOD_MS;
}

bool view_is_fresh(const struct view *view, bool times) {
    return view->seq > 0 && !view->running && now_ms() - view->started_ms < VIEW_PERIOD_MS &&
           (!times || view->times_asked || view->failed_at_ms > 0);
}

bool view_init(struct view *view, size_t metrics_locks) {
    view->times = lock_times_new(metrics_locks);
    view->losses = losses_new();
    return view->times != NULL && view->losses != NULL;
}

void view_free(struct view *view) {
    hf_listener_free(view->listener);
    hf_op_free(view->op);
    hf_deadlocks_free(view->deadlocks);
    hf_fleet_free(view->earlier);
    hf_fleet_free(view->later);
    hf_fleet_free(view->coming);
    lock_times_free(view->times);
    losses_free(view->losses);
    fleet_forget();
    for (size_t i = 0; i < VIEW_HANDOVERS; i++) {
        free(view->handovers[i].name);
        free(view->handovers[i].from);
        free(view->handovers[i].to);
    }
    for (size_t i = 0; i < VIEW_BREAKS; i++)
        free(view->breaks[i].name);
}
