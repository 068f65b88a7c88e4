/* One schedule of the world of zk_model.h: events in their order, and the judge. */
#include "zk_world.h"

#include "support/wait.h"

#include <string.h>

#define SCHEDULE_MS (25 * TIMEOUT_MS)

bool chance(struct zk_model *m, unsigned one_in) {
    return roll(&m->play, one_in) == 0;
}

int some_delay(struct zk_model *m, unsigned jump_one_in, int jump_ms) {
    if (jump_one_in > 0 && chance(m, jump_one_in))
        return (int)roll(&m->play, (unsigned)jump_ms);
    return 1 + (int)roll(&m->play, TIMEOUT_MS / 100);
}

struct event *schedule(struct zk_model *m, int at_ms, enum event_kind kind, int who) {
    if (m->events_len == EVENTS_MAX)
        support_die("too many events at once");
    struct event *event = &m->events[m->events_len++];
    *event = (struct event){.at_ms = at_ms, .order = m->order++, .kind = kind, .who = who};
    return event;
}

static struct event take_next(struct zk_model *m) {
    int next = 0;
    for (int i = 1; i < m->events_len; i++) {
        const struct event *a = &m->events[i], *b = &m->events[next];
        if (a->at_ms < b->at_ms || (a->at_ms == b->at_ms && a->order < b->order))
            next = i;
    }
    struct event event = m->events[next];
    m->events[next] = m->events[--m->events_len];
    return event;
}

static void happen(struct zk_model *m, const struct event *event) {
    static void (*const does[])(struct zk_model *, const struct event *) = {
        [AT_FOLLOWER] = at_follower, [AT_LEADER] = at_leader,    [AT_CLIENT] = at_client,
        [CLOSED] = client_closed,    [APPLY] = follower_applies, [REPORT] = follower_reports,
        [TOUCH] = leader_touches,    [EXPIRY] = leader_expires,  [TIMER] = client_timer,
    };
    if (event->kind == FAULT)
        inject_fault(m);
    else
        does[event->kind](m, event);
}

static void judge(struct zk_model *m) {
    int holder = -1;
    for (int i = 0; i < CLIENTS; i++) {
        if (!believes(m, i))
            continue;
        if (holder >= 0)
            violated(&m->play, "both %d and %d hold the lock", holder, i);
        holder = i;
    }
}

static void begin(struct zk_model *m) {
    m->events_len = m->zxid = m->nodes_len = m->sessions_len = m->uuids = 0;
    m->connections_len = 0;
    m->order = 0;
    /* T is two ticks at least */
    m->half_tick_ms = TIMEOUT_MS / (4 + (int)roll(&m->play, 8)) - 1;
    memset(m->clients, 0, sizeof m->clients);
    ensemble_begin(m);
    for (int i = 0; i < CLIENTS; i++)
        schedule(m, (int)roll(&m->play, 100), TIMER, i);
    schedule(m, TIMEOUT_MS, FAULT, 0);
}

static void run(void *arg, int discipline) {
    struct zk_model *m = arg;
    m->discipline = (enum zk_discipline)discipline;
    begin(m);
    while (going_well(&m->play) && m->play.now < SCHEDULE_MS) {
        struct event event = take_next(m);
        m->play.now = event.at_ms;
        happen(m, &event);
        judge(m);
    }
}

struct zk_model *zk_model_open(void) {
    struct zk_model *m = zeroed(1, sizeof *m);
    play_open(&m->play, NULL, m, run);
    return m;
}

void zk_model_close(struct zk_model *m) {
    play_close(&m->play);
    free(m);
}

struct play *zk_model_play(struct zk_model *m) {
    return &m->play;
}

const struct zk_tally *zk_model_tally(const struct zk_model *m) {
    return &m->tally;
}
