/*
 * What `holdfast serve` knows: the latest two surveys, the deadlocks that both show, and which locks changed
 * hands in between. One survey at a time, one in a second at most, and only while serve_loop.c asks for it,
 * which it does while somebody looks.
 *
 * How long things took by name is asked for only when somebody wants to know, since it makes answers long; and each time it
 * is, it is added to the sums.
 *
 * Times for people are Unix times, since they are compared with other logs; intervals are on now_ms().
 */
#include "serve.h"

#include "fleet.h"
#include "lock_times.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SURVEY_LIMIT_MS 5000 /* Prometheus waits for ten seconds */
#define JOINED_MS 5000       /* what is farther apart says nothing about what happened in between */

int64_t unix_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- What happened in between ----------------------------------------------------------------------- */

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
                 const hf_fleet_party *to) {
    struct handover *slot = &view->handovers[view->handovers_total % VIEW_HANDOVERS];
    struct handover next = {.at_ms = view->good_at_ms,
                            .name = copy_name(lock),
                            .name_len = lock->name_len,
                            .from = describe(from),
                            .to = describe(to)};
    struct handover old = *slot;
    if (next.name != NULL && next.from != NULL && next.to != NULL) {
        *slot = next;
        view->handovers_total++;
    } else {
        old = next; /* out of memory: it is not told */
    }
    free(old.name);
    free(old.from);
    free(old.to);
}

static bool same_owner(const hf_fleet_party *a, const hf_fleet_party *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a->owner, b->owner) == 0;
}

/* One name in both surveys, or in one of them; the other is NULL. Returns whether it has a new holder. */
static bool compare(struct view *view, const hf_fleet_lock *before, const hf_fleet_lock *after) {
    const hf_fleet_party *from = before != NULL ? fleet_holder(before) : NULL;
    const hf_fleet_party *to = after != NULL ? fleet_holder(after) : NULL;
    if (same_owner(from, to))
        return false;
    note(view, before != NULL ? before : after, from, to);
    return to != NULL;
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

/* By their own count, which they tell if they hold or wait for long; so it is less than the truth. */
static int64_t compare_clients(const hf_fleet *earlier, const hf_fleet *later) {
    int64_t told = 0;
    for (size_t i = 0, k = 0; i < earlier->clients_len && k < later->clients_len;) {
        const hf_fleet_client *before = earlier->clients[i], *after = later->clients[k];
        int order = strcmp(before->id, after->id);
        if (order == 0 && before->presence == HF_ALIVE && after->presence == HF_ALIVE &&
            after->acquired > before->acquired)
            told += (int64_t)(after->acquired - before->acquired);
        i += order <= 0;
        k += order >= 0;
    }
    return told;
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
                      .told = compare_clients(view->earlier, view->later),
                      .between_ms = between_ms};
}

/* ---- Surveys ---------------------------------------------------------------------------------------- */

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
        lock_times_add(view->times, fleet);
    if (view->earlier == NULL)
        return;
    if (hf_fleet_deadlocks(view->earlier, view->later, &view->deadlocks) != HF_OK)
        view->deadlocks = NULL; /* out of memory: the next survey looks again */
    note_changes(view);
}

static void take_error(struct view *view, int code, const hf_error *error) {
    const char *words = error->text[0] != '\0' ? error->text : hf_strerror(code);
    snprintf(view->error, sizeof view->error, "%s%s%s", error->node, error->node[0] ? ": " : "",
             words);
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
    return view->times != NULL;
}

void view_free(struct view *view) {
    hf_op_free(view->op);
    hf_deadlocks_free(view->deadlocks);
    hf_fleet_free(view->earlier);
    hf_fleet_free(view->later);
    hf_fleet_free(view->coming);
    lock_times_free(view->times);
    for (size_t i = 0; i < VIEW_HANDOVERS; i++) {
        free(view->handovers[i].name);
        free(view->handovers[i].from);
        free(view->handovers[i].to);
    }
}
