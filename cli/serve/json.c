/* The JSON that `holdfast serve` sends. Locks and clients are objects as in `holdfast ls --json`.
 *
 * An event for the page contains everything, or the changes since the previous survey. The mere
 * passing of time is not a change, because the page advances times itself. So an idle fleet of any
 * size costs a few hundred bytes a second. Stateless. */
#include "serve/serve.h"

#include "fleet/fleet.h"

#include <stdlib.h>
#include <string.h>

#define NEWS_MAX 1024 /* events of one survey that are sent */
#define DRIFT_MS 700  /* times that differ by less count as equal */

/* ---- Changes --------------------------------------------------------------------------------- */

/* Whether a time that runs up (+1) or down (-1) is unchanged apart from the `between_ms` that
 * passed. */
static bool same_time(int64_t before_ms, int64_t after_ms, int direction, int64_t between_ms) {
    if (before_ms < 0 || after_ms < 0)
        return before_ms == after_ms;
    int64_t off_ms = after_ms - (before_ms + direction * between_ms);
    return off_ms > -DRIFT_MS && off_ms < DRIFT_MS;
}

static bool same_party(const hf_fleet_party *a, const hf_fleet_party *b, int64_t between_ms) {
    return strcmp(a->owner, b->owner) == 0 && a->presence == b->presence &&
           a->seen_by == b->seen_by && a->count == b->count && a->place == b->place &&
           (a->client == NULL) == (b->client == NULL) && strcmp(a->kind, b->kind) == 0 &&
           same_time(a->for_ms, b->for_ms, 1, between_ms);
}

static bool same_parties(const hf_fleet_party *const *a, size_t a_len,
                         const hf_fleet_party *const *b, size_t b_len, int64_t between_ms) {
    if (a_len != b_len)
        return false;
    for (size_t i = 0; i < a_len; i++)
        if (!same_party(a[i], b[i], between_ms))
            return false;
    return true;
}

static bool same_lock(const hf_fleet_lock *a, const hf_fleet_lock *b, int64_t between_ms) {
    return strcmp(a->kind, b->kind) == 0 && a->disputed == b->disputed &&
           a->listeners == b->listeners && a->left_out == b->left_out &&
           a->available == b->available && same_time(a->ttl_ms, b->ttl_ms, -1, between_ms) &&
           same_parties(a->holders, a->holders_len, b->holders, b->holders_len, between_ms) &&
           same_parties(a->waiters, a->waiters_len, b->waiters, b->waiters_len, between_ms);
}

static bool same_client(const hf_fleet_client *a, const hf_fleet_client *b) {
    return a->presence == b->presence && a->left_out == b->left_out && a->acquired == b->acquired &&
           a->contended == b->contended && a->timed_out == b->timed_out && a->losses == b->losses &&
           a->renew_failures == b->renew_failures && strcmp(a->host, b->host) == 0;
}

static void add_changed_locks(const struct view *view, json_t *locks, json_t *gone) {
    const hf_fleet *earlier = view->earlier, *later = view->later;
    int64_t between_ms = later->taken_ms - earlier->taken_ms;
    for (size_t i = 0, k = 0; i < earlier->locks_len || k < later->locks_len;) {
        int order = i == earlier->locks_len ? 1
                    : k == later->locks_len ? -1
                                            : fleet_order(earlier->locks[i], later->locks[k]);
        if (order < 0)
            json_array_append_new(gone, fleet_json_name(earlier->locks[i]));
        else if (order > 0 || !same_lock(earlier->locks[i], later->locks[k], between_ms))
            json_array_append_new(locks, fleet_json_lock(later->locks[k]));
        i += order <= 0;
        k += order >= 0;
    }
}

static void add_changed_clients(const struct view *view, json_t *clients, json_t *gone) {
    const hf_fleet *earlier = view->earlier, *later = view->later;
    for (size_t i = 0, k = 0; i < earlier->clients_len || k < later->clients_len;) {
        int order = i == earlier->clients_len ? 1
                    : k == later->clients_len
                        ? -1
                        : strcmp(earlier->clients[i]->id, later->clients[k]->id);
        if (order < 0)
            json_array_append_new(gone, json_text(earlier->clients[i]->id));
        else if (order > 0 || !same_client(earlier->clients[i], later->clients[k]))
            json_array_append_new(clients, fleet_json_client(later->clients[k]));
        i += order <= 0;
        k += order >= 0;
    }
}

/* ---- The parts of an event ------------------------------------------------------------------- */

static json_t *json_described(const hf_fleet_party *party) {
    char text[256];
    fleet_describe_party(party, text, sizeof text);
    json_t *object =
        json_pack("{s:o, s:o}", "owner", json_text(party->owner), "who", json_text(text));
    if (party->for_ms >= 0)
        json_object_set_new(object, "for_ms", json_integer(party->for_ms));
    return object;
}

static json_t *json_deadlocks(const hf_deadlocks *deadlocks) {
    json_t *list = json_array();
    for (size_t i = 0; deadlocks != NULL && i < deadlocks->len; i++) {
        json_t *steps = json_array();
        for (size_t k = 0; k < deadlocks->all[i].steps_len; k++) {
            const hf_deadlock_step *step = &deadlocks->all[i].steps[k];
            json_array_append_new(steps,
                                  json_pack("{s:o, s:o, s:o}", "lock", fleet_json_name(step->lock),
                                            "waiter", json_described(step->waiter), "holder",
                                            json_described(step->holder)));
        }
        json_array_append_new(list, steps);
    }
    return list;
}

/* What happened since the survey before, oldest first; what was before that is at /api/history. */
static json_t *json_news(const struct view *view) {
    const struct history_query query = {.after = view->recorded_before, .limit = NEWS_MAX};
    char *text = history_find(view->recorder.history, &query);
    json_t *list = text != NULL ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
    free(text);
    return list;
}

static json_t *json_rates(const struct view *view, bool full) {
    json_t *list = json_array();
    uint64_t kept = view->rates_total > VIEW_RATES ? view->rates_total - VIEW_RATES : 0;
    uint64_t from = full ? kept : view->rates_total - view->rated;
    for (uint64_t i = from; i < view->rates_total; i++) {
        const struct rate *one = &view->rates[i % VIEW_RATES];
        json_array_append_new(
            list, json_pack("{s:I, s:f, s:f}", "at", (json_int_t)one->at_ms, "seen",
                            (double)one->seen * 1000 / (double)one->between_ms, "counted",
                            (double)one->counted_by_clients * 1000 / (double)one->between_ms));
    }
    return list;
}

/* The age of the view, what is missing in it, and its error. */
static void add_state(json_t *object, const struct view *view) {
    if (view->later != NULL) {
        json_object_set_new(object, "age_ms", json_integer(now_ms() - view->good_ms));
        json_object_set_new(object, "taken", json_integer(view->good_at_ms));
        json_object_set_new(object, "took_ms", json_integer(view->later->took_ms));
        if (view->later->missing_text[0] != '\0')
            json_object_set_new(object, "missing", json_text(view->later->missing_text));
    }
    if (view->failed_at_ms > 0) {
        json_object_set_new(object, "error", json_text(view->error));
        json_object_set_new(object, "failed", json_integer(view->failed_at_ms));
    }
}

static void add_all(json_t *object, const struct view *view) {
    json_object_set_new(object, "locks",
                        view->later != NULL ? fleet_json_locks(view->later) : json_array());
    json_object_set_new(object, "clients",
                        view->later != NULL ? fleet_json_clients(view->later) : json_array());
}

static void add_changes(json_t *object, const struct view *view) {
    json_t *locks = json_array(), *gone = json_array();
    json_t *clients = json_array(), *clients_gone = json_array();
    if (view->failed_at_ms == 0) {
        add_changed_locks(view, locks, gone);
        add_changed_clients(view, clients, clients_gone);
    }
    json_object_set_new(object, "locks", locks);
    json_object_set_new(object, "gone", gone);
    json_object_set_new(object, "clients", clients);
    json_object_set_new(object, "clients_gone", clients_gone);
}

static char *dump(json_t *object) {
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

char *frame_make(const struct view *view, const struct frame_facts *facts, bool full) {
    /* After a failure nothing has changed. The first survey after a gap must be sent in full,
     * because the survey before it is too old to compare with. */
    full = full || (view->failed_at_ms == 0 && (view->earlier == NULL || !view->joined));
    json_t *object = json_pack(
        "{s:b, s:I, s:I, s:o, s:s, s:b, s:b}", "full", full, "now", (json_int_t)unix_ms(),
        "every_ms", (json_int_t)view->every_ms, "server", json_text(facts->server), "self",
        facts->self, "allow_break", facts->allow_break, "beyond_loopback", facts->beyond_loopback);
    add_state(object, view);
    if (full)
        add_all(object, view);
    else
        add_changes(object, view);
    json_object_set_new(object, "deadlocks", json_deadlocks(view->deadlocks));
    json_object_set_new(object, "history", json_news(view));
    json_object_set_new(object, "rates", json_rates(view, full));
    char *json = dump(object), *event = NULL;
    if (json != NULL && asprintf(&event, "data: %s\n\n", json) < 0)
        event = NULL;
    free(json);
    return event;
}

/* ---- API responses --------------------------------------------------------------------------- */

static char *dump_line(json_t *object) {
    char *text = dump(object), *line = NULL;
    if (text != NULL && asprintf(&line, "%s\n", text) < 0)
        line = NULL;
    free(text);
    return line;
}

char *frame_locks(const struct view *view) {
    json_t *object = json_object();
    add_state(object, view);
    json_object_set_new(object, "locks", fleet_json_locks(view->later));
    return dump_line(object);
}

char *frame_clients(const struct view *view) {
    json_t *object = json_object();
    add_state(object, view);
    json_object_set_new(object, "clients", fleet_json_clients(view->later));
    return dump_line(object);
}

char *frame_lock(const struct view *view, const char *name, bool *ret_found) {
    const hf_fleet_lock *lock = fleet_find(view->later, name);
    *ret_found = lock != NULL;
    return lock != NULL ? dump_line(fleet_json_lock(lock)) : NULL;
}

char *frame_history(const struct history *history, const struct history_query *query) {
    char *events = history_find(history, query), *body = NULL;
    if (events != NULL && asprintf(&body, "{\"history\":%s}\n", events) < 0)
        body = NULL;
    free(events);
    return body;
}

/* If the server is down there are no other metrics: the old values are no longer true. */
char *frame_metrics(const struct view *view, bool openmetrics, bool up, size_t names_max) {
    char *text = NULL;
    size_t len = 0;
    bool written = true;
    FILE *out = open_memstream(&text, &len);
    if (out == NULL)
        return NULL;
    fprintf(out,
            "# TYPE holdfast_up gauge\n"
            "# HELP holdfast_up Whether the lock server answered.\n"
            "holdfast_up %d\n",
            up);
    const struct fleet_totals totals = {.times = view->times, .losses = view->losses};
    if (up)
        written = fleet_metrics_write(out, openmetrics ? METRICS_OPEN : METRICS_TEXT, view->later,
                                      view->deadlocks, &totals, names_max);
    else
        fputs("# EOF\n", out);
    if (fclose(out) == 0 && written)
        return text;
    free(text);
    return NULL;
}
