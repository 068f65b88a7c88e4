/*
 * A name listener (hf_listen()): watches on a name's node, and on the nodes of permits beneath it.
 *
 *     ask ──answered──▶ asleep ──event──▶ ask          no connection: wait for one, then ask
 *
 * Subscribed and unsubscribed on any thread; in between it is a task on the keeper. An ask reads
 * with watches set: first the children, then the nodes themselves. So a change in between is either
 * in what is read last, or fires a watch. A change is reported if what is read differs from what
 * was read before: the server drops a watch when it fires, so some changes have no event of their
 * own.
 *
 * Watches are lost with the connection. The listener reports HF_NOTIFY_INTERRUPTED then, and
 * HF_NOTIFY_SUBSCRIBED when all are set again; but not if the connection is only replaced on purpose
 * and is back at the first attempt.
 */
#include "zk/fleet/name_listener.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/jitter.h"
#include "net/driver/keeper.h"
#include "zk/kinds/permits.h"

#include <string.h>

/* The watched nodes; the name's own comes first. */
static const char *const beneath[] = {"", HFI_ZK_LEASES, HFI_ZK_TOTAL};
enum { NODES = sizeof beneath / sizeof *beneath, BENEATH_ROOM = 16 };
_Static_assert(sizeof HFI_ZK_LEASES <= BENEATH_ROOM && sizeof HFI_ZK_TOTAL <= BENEATH_ROOM, "");

/* The children of each, then each itself. */
enum { ASKS = 2 * NODES };

/* A node's zxids when it was last read; all 0: it did not exist. */
struct sight {
    int64_t made, changed, children_changed;
};

struct name_listener {
    struct hfi_name_listener base;
    struct hfi_task task; /* on the keeper; one reference for the subscriber, one for the list */
    struct hfi_zk *zk;

    /* The keeper's. */
    struct hfi_link link; /* in zk->name_listeners, from its first run to its end */
    enum { IDLE, CONNECTING, ASKED, PAUSED, ASLEEP } phase;
    struct hfi_zk_watch watches[NODES];
    struct hfi_zk_ask asks[ASKS];
    struct hfi_want want;
    struct hfi_alarm alarm;
    unsigned tries;
    bool ended;
    bool again; /* an event came since the last ask */
    bool known; /* `seen` is valid */
    struct sight seen[NODES];
    enum { REPORTED_NOTHING, REPORTED_LISTENING, REPORTED_UNREACHED, REPORTED_REFUSED } reported;

    pthread_mutex_t mtx;                    /* guards `subscriber` */
    struct hfi_name_subscriber *subscriber; /* NULL: unsubscribed */

    size_t path_len;
    char path[]; /* with room for the nodes beneath */
};

static const char *path_of(struct name_listener *name_listener, size_t node) {
    memcpy(name_listener->path + name_listener->path_len, beneath[node], strlen(beneath[node]) + 1);
    return name_listener->path;
}

/* ---- Reporting ---- */

static void report(struct name_listener *name_listener, hf_notification_kind kind, int code) {
    const struct hfi_name_event name_event = {.kind = kind, .code = code};
    pthread_mutex_lock(&name_listener->mtx);
    if (name_listener->subscriber != NULL)
        name_listener->subscriber->on_event(name_listener->subscriber, &name_event);
    pthread_mutex_unlock(&name_listener->mtx);
}

static void report_unreached(struct name_listener *name_listener) {
    if (name_listener->reported != REPORTED_LISTENING)
        return;
    name_listener->reported = REPORTED_UNREACHED;
    report(name_listener, HF_NOTIFY_INTERRUPTED, HF_EUNREACH);
}

static void report_refused(struct name_listener *name_listener) {
    if (name_listener->reported == REPORTED_REFUSED)
        return;
    name_listener->reported = REPORTED_REFUSED;
    report(name_listener, HF_NOTIFY_INTERRUPTED, HF_EPERM);
}

/* ---- Asking ---- */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct name_listener, alarm)->task, HFI_ZK_EVENT_TIMER);
}

static void drop_asks(struct name_listener *name_listener) {
    for (size_t i = 0; i < ASKS; i++)
        hfi_zk_session_drop(name_listener->zk->session, &name_listener->asks[i]);
}

static void drop_want(struct name_listener *name_listener) {
    if (name_listener->phase == CONNECTING && !hfi_zk_session_stopped(name_listener->zk->session))
        hfi_conn_unwant(hfi_zk_session_conn(name_listener->zk->session), &name_listener->want);
}

static void pause_a_while(struct name_listener *name_listener) {
    static const struct hfi_backoff backoff = {.first_ms = 50, .max_ms = 1000, .factor = 2};
    int64_t pause_ms =
        hfi_backoff_spread_ms(&backoff, name_listener->tries++, hfi_jitter_bits(name_listener));
    drop_asks(name_listener);
    name_listener->phase = PAUSED;
    hfi_alarm_set(name_listener->task.exec, &name_listener->alarm, hfi_now_ms() + pause_ms);
}

static int submit(struct name_listener *name_listener) {
    unsigned events[ASKS];
    struct hfi_zk_out out;
    uint64_t number = 0;
    for (size_t i = 0; i < ASKS; i++)
        events[i] = HFI_ZK_EVENT_ANSWER;
    hfi_zk_out_init(&out, name_listener->zk->mem);
    for (size_t i = 0; i < NODES; i++)
        hfi_zk_put_get_children(&out, 0, path_of(name_listener, i), true);
    for (size_t i = 0; i < NODES; i++)
        hfi_zk_put_exists(&out, 0, path_of(name_listener, i), true);
    int err = hfi_zk_session_submit(name_listener->zk->session, &out, ASKS, 0, &name_listener->task,
                                    events, name_listener->asks, &number);
    hfi_zk_out_clear(&out);
    return err;
}

static int set_watches(struct name_listener *name_listener) {
    int err = HF_OK;
    for (size_t i = 0; i < NODES && err == HF_OK; i++)
        if (name_listener->watches[i].watched == NULL)
            err = hfi_zk_watch(name_listener->zk->watches, &name_listener->watches[i],
                               name_listener->path, name_listener->path_len, beneath[i],
                               strlen(beneath[i]), &name_listener->task, HFI_ZK_EVENT_WATCH);
    return err;
}

static void ask(struct name_listener *name_listener) {
    drop_asks(name_listener);
    name_listener->again = false;
    int err = set_watches(name_listener);
    if (err == HF_OK)
        err = submit(name_listener);
    if (err == HF_OK) {
        name_listener->phase = ASKED;
    } else if (err == HF_EUNREACH) {
        name_listener->phase = CONNECTING;
        hfi_conn_want(hfi_zk_session_conn(name_listener->zk->session), &name_listener->want,
                      &name_listener->task, HFI_ZK_EVENT_READY);
    } else {
        pause_a_while(name_listener);
    }
}

/* ---- Replies ---- */

struct answer {
    int32_t err;
    struct sight sight;
};

/* HF_OK, or why there is no answer. A busy server refuses, for instance, and then sets no watch. */
static int read_answer(struct name_listener *name_listener, size_t which, struct answer *ret) {
    struct hfi_zk_header header;
    struct hfi_zk_in body;
    struct hfi_zk_stat stat;
    hf_error ignored;
    hfi_error_clear(&ignored);
    int err = hfi_zk_session_answer(name_listener->zk->session, &name_listener->asks[which],
                                    &header, &body, &ignored);
    if (err != HF_OK)
        return err;
    *ret = (struct answer){.err = header.err};
    if (header.err == HFI_ZK_NO_NODE || header.err == HFI_ZK_NO_AUTH)
        return HF_OK;
    if (header.err != HFI_ZK_OK)
        return HF_EUNAVAILABLE;
    if (which < NODES)
        return HF_OK; /* for children only the watch counts */
    err = hfi_zk_get_stat(&body, &stat);
    if (err == HF_OK)
        ret->sight = (struct sight){
            .made = stat.czxid, .changed = stat.mzxid, .children_changed = stat.pzxid};
    return err;
}

static bool differs(const struct sight *a, const struct sight *b) {
    return a->made != b->made || a->changed != b->changed ||
           a->children_changed != b->children_changed;
}

/* A node was created after its children were asked for: those are not watched yet. */
static bool came_late(const struct answer answers[ASKS]) {
    for (size_t i = 0; i < NODES; i++)
        if (answers[i].err == HFI_ZK_NO_NODE && answers[NODES + i].err == HFI_ZK_OK)
            return true;
    return false;
}

static void answered(struct name_listener *name_listener, const struct answer answers[ASKS]) {
    bool changed = false;
    for (size_t i = 0; i < NODES; i++) {
        const struct sight *sight = &answers[NODES + i].sight;
        changed = changed || (name_listener->known && differs(&name_listener->seen[i], sight));
        name_listener->seen[i] = *sight;
    }
    name_listener->known = true;
    name_listener->tries = 0;
    if (answers[0].err == HFI_ZK_NO_AUTH) {
        report_refused(name_listener);
    } else if (name_listener->reported != REPORTED_LISTENING) {
        name_listener->reported = REPORTED_LISTENING;
        report(name_listener, HF_NOTIFY_SUBSCRIBED, HF_OK);
    }
    if (changed)
        report(name_listener, HF_NOTIFY_CHANGED, HF_OK);
    name_listener->phase = ASLEEP;
    if (name_listener->again || came_late(answers))
        ask(name_listener);
}

static void on_answers(struct name_listener *name_listener) {
    struct answer answers[ASKS];
    int err = HF_OK;
    for (size_t i = 0; i < ASKS; i++)
        if (!atomic_load(&name_listener->asks[i].req->complete))
            return;
    for (size_t i = 0; i < ASKS && err == HF_OK; i++)
        err = read_answer(name_listener, i, &answers[i]);
    drop_asks(name_listener);
    if (err == HF_OK) {
        answered(name_listener, answers);
    } else {
        report_unreached(name_listener);
        pause_a_while(name_listener);
    }
}

static void on_ready(struct name_listener *name_listener) {
    drop_want(name_listener); /* takes the connection's mutex, so `err` is final */
    name_listener->phase = PAUSED;
    if (name_listener->want.err == HF_OK) {
        ask(name_listener);
    } else {
        report_unreached(name_listener);
        pause_a_while(name_listener);
    }
}

static void on_watch(struct name_listener *name_listener) {
    unsigned seen = 0;
    for (size_t i = 0; i < NODES; i++)
        seen |= hfi_zk_seen(&name_listener->watches[i]);
    if ((seen & HFI_ZK_SEEN_LOST) != 0)
        report_unreached(name_listener);
    if (name_listener->phase == ASLEEP)
        ask(name_listener);
    else
        name_listener->again = true;
}

/* ---- The task ---- */

static void begin(struct name_listener *name_listener) {
    hfi_task_ref(&name_listener->task);
    hfi_list_push_back(&name_listener->zk->name_listeners, &name_listener->link);
    hfi_zk_session_keep(name_listener->zk->session, true);
    ask(name_listener);
}

static void end(struct name_listener *name_listener) {
    name_listener->ended = true;
    if (!hfi_linked(&name_listener->link))
        return; /* it has not begun */
    drop_want(name_listener);
    drop_asks(name_listener);
    for (size_t i = 0; i < NODES; i++)
        hfi_zk_unwatch(name_listener->zk->watches, &name_listener->watches[i]);
    hfi_alarm_clear(name_listener->task.exec, &name_listener->alarm);
    hfi_zk_session_keep(name_listener->zk->session, false);
    hfi_list_remove(&name_listener->link);
    hfi_task_unref(&name_listener->task);
}

static bool is_wanted(struct name_listener *name_listener) {
    pthread_mutex_lock(&name_listener->mtx);
    bool wanted = name_listener->subscriber != NULL;
    pthread_mutex_unlock(&name_listener->mtx);
    return wanted;
}

static void run(struct hfi_task *task, unsigned events) {
    struct name_listener *name_listener = HFI_CONTAINER(task, struct name_listener, task);
    if (name_listener->ended)
        return;
    if (!is_wanted(name_listener) || hfi_zk_session_stopped(name_listener->zk->session)) {
        end(name_listener);
        return;
    }
    if (!hfi_linked(&name_listener->link)) {
        begin(name_listener);
        return;
    }
    if ((events & HFI_ZK_EVENT_WATCH) != 0)
        on_watch(name_listener);
    if ((events & HFI_ZK_EVENT_ANSWER) != 0 && name_listener->phase == ASKED)
        on_answers(name_listener);
    if ((events & HFI_ZK_EVENT_READY) != 0 && name_listener->phase == CONNECTING)
        on_ready(name_listener);
    if ((events & HFI_ZK_EVENT_TIMER) != 0 && name_listener->phase == PAUSED)
        ask(name_listener);
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct name_listener *name_listener = HFI_CONTAINER(task, struct name_listener, task);
    pthread_mutex_destroy(&name_listener->mtx);
    hfi_free(name_listener->zk->mem, name_listener);
}

static void unsubscribe(struct hfi_name_listener *base) {
    struct name_listener *name_listener = HFI_CONTAINER(base, struct name_listener, base);
    pthread_mutex_lock(&name_listener->mtx);
    name_listener->subscriber = NULL;
    pthread_mutex_unlock(&name_listener->mtx);
    hfi_task_post(&name_listener->task, HFI_ZK_EVENT_TIMER);
    hfi_task_unref(&name_listener->task);
}

int hfi_zk_subscribe(struct hfi_engine *engine, const char *name, size_t name_len,
                     struct hfi_name_subscriber *subscriber, struct hfi_name_listener **ret) {
    struct hfi_zk *zk = hfi_zk_of(engine);
    if (name_len == 0)
        return HF_ENOTSUP; /* a break deletes nodes, as a release does */
    size_t len = hfi_zk_path(&zk->names, name, name_len, NULL);
    struct name_listener *name_listener =
        hfi_zalloc(zk->mem, sizeof *name_listener + len + BENEATH_ROOM);
    if (name_listener == NULL)
        return HF_ENOMEM;
    name_listener->base = (struct hfi_name_listener){.servers = 1, .unsubscribe = unsubscribe};
    name_listener->zk = zk;
    name_listener->subscriber = subscriber;
    name_listener->alarm.fire = alarm_fired;
    name_listener->path_len = len;
    hfi_zk_path(&zk->names, name, name_len, name_listener->path);
    pthread_mutex_init(&name_listener->mtx, NULL);
    hfi_task_init(&name_listener->task, hfi_keeper_exec(zk->keeper), run, destroy);
    hfi_task_post(&name_listener->task, HFI_ZK_EVENT_TIMER);
    *ret = &name_listener->base;
    return HF_OK;
}

void hfi_zk_name_listeners_stop(struct hfi_zk *zk) {
    while (!hfi_list_empty(&zk->name_listeners))
        end(HFI_CONTAINER(zk->name_listeners.next, struct name_listener, link));
}
