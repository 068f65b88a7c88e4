/* The data of `holdfast serve`: the latest two surveys, the deadlocks that both show, and what
 * changed in between (record.c). One survey at a time, at most one a second (--every), and only while
 * loop.c calls view_tick(), which it does while a client needs surveys.
 *
 * A loss or a break that is announced is surveyed at once, so that the page shows it. However many
 * there are, this adds HURRY_GAP_MS' worth of surveys: four a second. If a survey does not show of
 * which lock a loss is, a few more follow, a second apart. Releases and acquires have no
 * such announcement: a subscription to each lock's own messages would make releasing clients yield
 * to a waiter that is none (HF_PLAIN).
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
#define JOINED_PERIODS 5     /* surveys further apart do not show what happened in between */
#define HURRY_GAP_MS 250     /* between surveys that an announcement causes */

int64_t unix_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- Breaks ---------------------------------------------------------------------------------- */

#define OWN_BREAK (1u << 31) /* in place of a server's bit */

void view_note_own_break(struct view *view, const char *name) {
    if (view->subscribed != 0)
        return;
    record_broken(&view->recorder, view->later, name, strlen(name), OWN_BREAK);
    view->announced = true;
}

static void on_notification(hf_listener *listener, const hf_notification *notification,
                            void *user) {
    struct view *view = user;
    unsigned bit = 1u << notification->server;
    (void)listener;
    if (notification->kind == HF_NOTIFY_SUBSCRIBED) {
        view->subscribed |= bit;
        view->announced = view->announced || (view->interrupted & bit) != 0;
        view->interrupted &= ~bit;
    } else if (notification->kind == HF_NOTIFY_INTERRUPTED) {
        view->subscribed &= ~bit;
        view->interrupted |= bit;
    } else if (notification->kind == HF_NOTIFY_LOST || notification->kind == HF_NOTIFY_BROKEN ||
               notification->kind == HF_NOTIFY_MISSED) {
        view->announced = true;
    }
    if (notification->kind == HF_NOTIFY_BROKEN)
        record_broken(&view->recorder, view->later, notification->name, notification->name_len,
                      bit);
}

/* Without it, only our own breaks are known as such, and losses are seen by the next survey. */
static void listen_for_announcements(struct view *view) {
    if (view->listener != NULL || view->no_breaks)
        return;
    int code = hf_listen_breaks(view->client, on_notification, view, &view->listener);
    view->no_breaks = code == HF_ENOTSUP;
}

void view_rest(struct view *view) {
    hf_listener_free(view->listener);
    view->listener = NULL;
    view->subscribed = view->interrupted = 0;
    view->announced = false;
}

/* ---- Rates ----------------------------------------------------------------------------------- */

/* Hand-overs counted by the clients. Only clients that hold or wait for long report, so it is a
 * lower bound. */
static int64_t compare_clients(const hf_fleet *earlier, const hf_fleet *later) {
    int64_t counted = 0;
    for (size_t i = 0, k = 0; i < earlier->clients_len && k < later->clients_len;) {
        const hf_fleet_client *before = earlier->clients[i], *after = later->clients[k];
        int order = strcmp(before->id, after->id);
        if (order == 0 && before->presence == HF_PRESENCE_ALIVE &&
            after->presence == HF_PRESENCE_ALIVE &&
            after->hand_over.count > before->hand_over.count)
            counted += (int64_t)(after->hand_over.count - before->hand_over.count);
        i += order <= 0;
        k += order >= 0;
    }
    return counted;
}

/* Surveys that announcements cause are close together: several make one rate. */
static void note_rates(struct view *view, int64_t seen) {
    int64_t between_ms = view->later->taken_ms - view->earlier->taken_ms;
    struct rate *rate = &view->next_rate;
    view->joined = between_ms > 0 && between_ms < JOINED_PERIODS * view->every_ms;
    if (!view->joined) {
        *rate = (struct rate){0};
        return;
    }
    rate->at_ms = view->good_at_ms;
    rate->seen += seen;
    rate->counted_by_clients += compare_clients(view->earlier, view->later);
    rate->between_ms += between_ms;
    view->rated = rate->between_ms >= view->every_ms / 2;
    if (!view->rated)
        return;
    view->rates[view->rates_total++ % VIEW_RATES] = *rate;
    *rate = (struct rate){0};
}

/* ---- Surveys --------------------------------------------------------------------------------- */

/* Between the surveys that show what was announced: even if --every is longer. */
static int64_t period_ms(const struct view *view) {
    return view->every_ms < VIEW_PERIOD_MS ? view->every_ms : VIEW_PERIOD_MS;
}

static void compare_surveys(struct view *view, int64_t earlier_at_ms) {
    const hf_fleet *earlier = view->earlier, *later = view->later;
    if (earlier != NULL && hf_fleet_deadlocks(earlier, later, &view->deadlocks) != HF_OK)
        view->deadlocks = NULL; /* out of memory: the next survey tries again */
    const struct record_surveys surveys = {.earlier = earlier,
                                           .later = later,
                                           .deadlocks = view->deadlocks,
                                           .earlier_at_ms = earlier_at_ms,
                                           .at_ms = view->good_at_ms,
                                           .close_ms = JOINED_PERIODS * view->every_ms,
                                           .period_ms = period_ms(view),
                                           .breaks_heard = view->subscribed != 0};
    int64_t seen = record_survey(&view->recorder, &surveys, view->losses);
    if (earlier != NULL)
        note_rates(view, seen);
}

static void take_fleet(struct view *view, hf_fleet *fleet) {
    hf_deadlocks_free(view->deadlocks);
    view->deadlocks = NULL;
    hf_fleet_free(view->earlier);
    view->earlier = view->later;
    view->later = fleet;
    view->good_ms = now_ms();
    int64_t earlier_at_ms = view->good_at_ms;
    if (view->failed_at_ms > 0)
        record_server(&view->recorder, "back", NULL);
    view->good_at_ms = unix_ms();
    view->failed_at_ms = 0;
    view->error[0] = '\0';
    view->joined = view->rated = false;
    if (view->times_asked)
        lock_times_add(view->times, fleet);
    compare_surveys(view, earlier_at_ms);
    fleet_remember(fleet);
}

static void take_error(struct view *view, int code, const hf_error *error) {
    const char *text = error->text[0] != '\0' ? error->text : hf_strerror(code);
    snprintf(view->error, sizeof view->error, "%s%s%s", error->node, error->node[0] ? ": " : "",
             text);
    if (view->failed_at_ms == 0) {
        view->failed_at_ms = unix_ms();
        record_server(&view->recorder, "away", view->error);
    }
    view->joined = view->rated = false;
}

/* Events of messages since the survey before belong to this one. */
static void finish(struct view *view) {
    view->recorded_before = view->recorded;
    view->recorded = history_total(view->recorder.history);
    view->seq++;
    view->changed(view->user);
}

static void survey_done(hf_op *op, const hf_result *result, void *user) {
    struct view *view = user;
    (void)op;
    hf_fleet *fleet = view->coming;
    view->coming = NULL;
    view->running = false;
    hf_op_free(view->op);
    view->op = NULL;
    if (result->code == HF_OK && fleet != NULL)
        take_fleet(view, fleet);
    else
        take_error(view, result->code, &result->error);
    finish(view);
}

static void start(struct view *view) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    options.limit_ms = SURVEY_LIMIT_MS;
    options.wanted |= HF_WANT_LOSSES;
    if (view->times_wanted)
        options.wanted |= HF_WANT_HISTOGRAMS;
    view->times_asked = view->times_wanted;
    view->times_wanted = false;
    view->started_ms = now_ms();
    if (view->announced)
        view->hurried_ms = view->started_ms;
    view->announced = view->requested = false;
    view->running = true;
    int code = hf_survey_start(view->client, &options, &view->coming, survey_done, view, &view->op);
    if (code == HF_OK)
        return;
    view->running = false;
    take_error(view, code, hf_last_error());
    finish(view);
}

/* How long a survey is used. One that failed, or of which no announcement would say that it is
 * outdated, is used no longer than by default. */
static int64_t used_for_ms(const struct view *view) {
    return view->failed_at_ms > 0 || view->subscribed == 0 ? VIEW_PERIOD_MS : view->every_ms;
}

static int64_t due_ms(const struct view *view) {
    bool soon =
        view->requested || view->failed_at_ms > 0 || record_has_open_losses(&view->recorder);
    int64_t due_ms = view->started_ms + (soon ? period_ms(view) : view->every_ms);
    int64_t hurry_ms = view->hurried_ms + HURRY_GAP_MS;
    if (view->seq == 0)
        return 0;
    return view->announced && hurry_ms < due_ms ? hurry_ms : due_ms;
}

int view_tick(struct view *view) {
    listen_for_announcements(view);
    if (view->running)
        return -1;
    int64_t left_ms = due_ms(view) - now_ms();
    if (left_ms > 0)
        return (int)left_ms;
    start(view);
    return view->running ? -1 : VIEW_PERIOD_MS;
}

void view_request(struct view *view, bool times) {
    view->requested = true;
    view->times_wanted |= times;
}

bool view_is_fresh(const struct view *view, bool times) {
    return view->seq > 0 && !view->running && !view->announced &&
           now_ms() - view->started_ms < used_for_ms(view) &&
           (!times || view->times_asked || view->failed_at_ms > 0);
}

bool view_init(struct view *view, const struct serve_settings *settings, struct history *history) {
    view->recorder.history = history;
    view->recorder.long_wait_ms = settings->long_wait_ms;
    view->every_ms = settings->every_ms;
    view->times = lock_times_new(settings->metrics_locks);
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
    recorder_clear(&view->recorder);
}
