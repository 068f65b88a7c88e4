/*
 * Hearing that something about a name has changed, for whoever listens (hf_listen()): watches on its node, and on those
 * beneath it that permits have.
 *
 *     ask ──answered──▶ asleep ──event──▶ ask          no connection: wait for one, then ask
 *
 * Begun and ended on any thread; in between it is a task on the keeper. To ask is to read with watches set: first the
 * children, then the nodes themselves, so that whatever changes in between either is in what is read last, or fires a watch.
 * What is told is the difference to what was read before: a server forgets a watch when it has fired, so some changes
 * have no event of their own, and are found here.
 *
 * Watches are lost with the connection. That is told, and once more when all of it is set again.
 */
#include "zk/hear.h"

#include "base/backoff.h"
#include "base/chance.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/keeper.h"
#include "zk/permits.h"

#include <string.h>

/* The nodes that are watched: the name's own comes first. */
static const char *const beneath[] = {"", HFI_ZK_LEASES, HFI_ZK_TOTAL};
enum { NODES = sizeof beneath / sizeof *beneath, BENEATH_ROOM = 16 };
_Static_assert(sizeof HFI_ZK_LEASES <= BENEATH_ROOM && sizeof HFI_ZK_TOTAL <= BENEATH_ROOM, "");

/* The children of each are asked for, and then each itself. */
enum { ASKS = 2 * NODES };

/* How a node was when it was last read; all 0: there was none. */
struct sight {
    int64_t made, changed, children_changed;
};

struct hfi_hearing {
    struct hfi_task task; /* on the keeper; a reference for who listens, and one for the list */
    struct hfi_zk *zk;

    /* The keeper's. */
    struct hfi_link link; /* in zk->hearings, from its first run to its end */
    enum { IDLE, CONNECTING, ASKED, PAUSED, ASLEEP } phase;
    struct hfi_zk_watch watches[NODES];
    struct hfi_zk_ask asks[ASKS];
    struct hfi_want want;
    struct hfi_alarm alarm;
    unsigned tries;
    bool ended;
    bool again; /* something happened since it was asked */
    bool known; /* what was read last: */
    struct sight seen[NODES];
    enum { TOLD_NOTHING, TOLD_LISTENING, TOLD_UNREACHED, TOLD_REFUSED } told;

    pthread_mutex_t mtx;       /* guards the next */
    struct hfi_hearer *hearer; /* NULL: nobody listens any more */

    size_t path_len;
    char path[]; /* and room for what is beneath */
};

static const char *path_of(struct hfi_hearing *hearing, size_t node) {
    memcpy(hearing->path + hearing->path_len, beneath[node], strlen(beneath[node]) + 1);
    return hearing->path;
}

/* ---- Telling ---- */

static void tell(struct hfi_hearing *hearing, hf_news_kind kind, int code) {
    const struct hfi_tidings tidings = {.kind = kind, .code = code};
    pthread_mutex_lock(&hearing->mtx);
    if (hearing->hearer != NULL)
        hearing->hearer->hear(hearing->hearer, &tidings);
    pthread_mutex_unlock(&hearing->mtx);
}

static void tell_unreached(struct hfi_hearing *hearing) {
    if (hearing->told != TOLD_LISTENING)
        return;
    hearing->told = TOLD_UNREACHED;
    tell(hearing, HF_NEWS_DEAF, HF_EUNREACH);
}

static void tell_refused(struct hfi_hearing *hearing) {
    if (hearing->told == TOLD_REFUSED)
        return;
    hearing->told = TOLD_REFUSED;
    tell(hearing, HF_NEWS_DEAF, HF_EPERM);
}

/* ---- Asking ---- */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_hearing, alarm)->task, HFI_ZK_EVENT_TIMER);
}

static void drop_asks(struct hfi_hearing *hearing) {
    for (size_t i = 0; i < ASKS; i++)
        hfi_zk_session_drop(hearing->zk->session, &hearing->asks[i]);
}

static void drop_want(struct hfi_hearing *hearing) {
    if (hearing->phase == CONNECTING && !hfi_zk_session_stopped(hearing->zk->session))
        hfi_conn_unwant(hfi_zk_session_conn(hearing->zk->session), &hearing->want);
}

static void pause_a_while(struct hfi_hearing *hearing) {
    static const struct hfi_backoff backoff = {.first_ms = 50, .max_ms = 1000, .factor = 2};
    int64_t pause_ms = hfi_backoff_spread_ms(&backoff, hearing->tries++, hfi_throw_dice(hearing));
    drop_asks(hearing);
    hearing->phase = PAUSED;
    hfi_alarm_set(hearing->task.exec, &hearing->alarm, hfi_now_ms() + pause_ms);
}

static int submit(struct hfi_hearing *hearing) {
    unsigned events[ASKS];
    struct hfi_zk_out out;
    uint64_t number = 0;
    for (size_t i = 0; i < ASKS; i++)
        events[i] = HFI_ZK_EVENT_ANSWER;
    hfi_zk_out_init(&out, hearing->zk->mem);
    for (size_t i = 0; i < NODES; i++)
        hfi_zk_put_get_children(&out, 0, path_of(hearing, i), true);
    for (size_t i = 0; i < NODES; i++)
        hfi_zk_put_exists(&out, 0, path_of(hearing, i), true);
    int err = hfi_zk_session_submit(hearing->zk->session, &out, ASKS, 0, &hearing->task, events,
                                    hearing->asks, &number);
    hfi_zk_out_clear(&out);
    return err;
}

static int set_watches(struct hfi_hearing *hearing) {
    int err = HF_OK;
    for (size_t i = 0; i < NODES && err == HF_OK; i++)
        if (hearing->watches[i].watched == NULL)
            err = hfi_zk_watch(hearing->zk->watches, &hearing->watches[i], hearing->path,
                               hearing->path_len, beneath[i], strlen(beneath[i]), &hearing->task,
                               HFI_ZK_EVENT_WATCH);
    return err;
}

static void ask(struct hfi_hearing *hearing) {
    drop_asks(hearing);
    hearing->again = false;
    int err = set_watches(hearing);
    if (err == HF_OK)
        err = submit(hearing);
    if (err == HF_OK) {
        hearing->phase = ASKED;
    } else if (err == HF_EUNREACH) {
        hearing->phase = CONNECTING;
        hfi_conn_want(hfi_zk_session_conn(hearing->zk->session), &hearing->want, &hearing->task,
                      HFI_ZK_EVENT_READY);
    } else {
        pause_a_while(hearing);
    }
}

/* ---- What comes back ---- */

struct answer {
    int32_t err;
    struct sight sight;
};

/* HF_OK, or what kept it from being answered: a server that is too busy refuses, for instance, and then there is no watch. */
static int read_answer(struct hfi_hearing *hearing, size_t which, struct answer *ret) {
    struct hfi_zk_header header;
    struct hfi_zk_in body;
    struct hfi_zk_stat stat;
    hf_error ignored;
    hfi_error_clear(&ignored);
    int err = hfi_zk_session_answer(hearing->zk->session, &hearing->asks[which], &header, &body,
                                    &ignored);
    if (err != HF_OK)
        return err;
    *ret = (struct answer){.err = header.err};
    if (header.err == HFI_ZK_NO_NODE || header.err == HFI_ZK_NO_AUTH)
        return HF_OK;
    if (header.err != HFI_ZK_OK)
        return HF_EREFUSED;
    if (which < NODES)
        return HF_OK; /* of children it is the watch that counts */
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

/* One was made after its children were asked for, which are not watched then. */
static bool came_late(const struct answer answers[ASKS]) {
    for (size_t i = 0; i < NODES; i++)
        if (answers[i].err == HFI_ZK_NO_NODE && answers[NODES + i].err == HFI_ZK_OK)
            return true;
    return false;
}

static void answered(struct hfi_hearing *hearing, const struct answer answers[ASKS]) {
    bool changed = false;
    for (size_t i = 0; i < NODES; i++) {
        const struct sight *sight = &answers[NODES + i].sight;
        changed = changed || (hearing->known && differs(&hearing->seen[i], sight));
        hearing->seen[i] = *sight;
    }
    hearing->known = true;
    hearing->tries = 0;
    if (answers[0].err == HFI_ZK_NO_AUTH) {
        tell_refused(hearing);
    } else if (hearing->told != TOLD_LISTENING) {
        hearing->told = TOLD_LISTENING;
        tell(hearing, HF_NEWS_LISTENING, HF_OK);
    }
    if (changed)
        tell(hearing, HF_NEWS_CHANGED, HF_OK);
    hearing->phase = ASLEEP;
    if (hearing->again || came_late(answers))
        ask(hearing);
}

static void on_answers(struct hfi_hearing *hearing) {
    struct answer answers[ASKS];
    int err = HF_OK;
    for (size_t i = 0; i < ASKS; i++)
        if (!atomic_load(&hearing->asks[i].req->complete))
            return;
    for (size_t i = 0; i < ASKS && err == HF_OK; i++)
        err = read_answer(hearing, i, &answers[i]);
    drop_asks(hearing);
    if (err == HF_OK) {
        answered(hearing, answers);
    } else {
        tell_unreached(hearing);
        pause_a_while(hearing);
    }
}

static void on_ready(struct hfi_hearing *hearing) {
    drop_want(hearing); /* takes the connection's mutex, so that `err` is settled */
    hearing->phase = PAUSED;
    if (hearing->want.err == HF_OK)
        ask(hearing);
    else
        pause_a_while(hearing);
}

static void on_watch(struct hfi_hearing *hearing) {
    unsigned seen = 0;
    for (size_t i = 0; i < NODES; i++)
        seen |= hfi_zk_seen(&hearing->watches[i]);
    if ((seen & HFI_ZK_SEEN_LOST) != 0)
        tell_unreached(hearing);
    if (hearing->phase == ASLEEP)
        ask(hearing);
    else
        hearing->again = true;
}

/* ---- The task ---- */

static void begin(struct hfi_hearing *hearing) {
    hfi_task_ref(&hearing->task);
    hfi_list_push_back(&hearing->zk->hearings, &hearing->link);
    hfi_zk_session_keep(hearing->zk->session, true);
    ask(hearing);
}

static void end(struct hfi_hearing *hearing) {
    hearing->ended = true;
    if (!hfi_linked(&hearing->link))
        return; /* it has not begun */
    drop_want(hearing);
    drop_asks(hearing);
    for (size_t i = 0; i < NODES; i++)
        hfi_zk_unwatch(hearing->zk->watches, &hearing->watches[i]);
    hfi_alarm_clear(hearing->task.exec, &hearing->alarm);
    hfi_zk_session_keep(hearing->zk->session, false);
    hfi_list_remove(&hearing->link);
    hfi_task_unref(&hearing->task);
}

static bool is_wanted(struct hfi_hearing *hearing) {
    pthread_mutex_lock(&hearing->mtx);
    bool wanted = hearing->hearer != NULL;
    pthread_mutex_unlock(&hearing->mtx);
    return wanted;
}

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_hearing *hearing = HFI_CONTAINER(task, struct hfi_hearing, task);
    if (hearing->ended)
        return;
    if (!is_wanted(hearing) || hfi_zk_session_stopped(hearing->zk->session)) {
        end(hearing);
        return;
    }
    if (!hfi_linked(&hearing->link)) {
        begin(hearing);
        return;
    }
    if ((events & HFI_ZK_EVENT_WATCH) != 0)
        on_watch(hearing);
    if ((events & HFI_ZK_EVENT_ANSWER) != 0 && hearing->phase == ASKED)
        on_answers(hearing);
    if ((events & HFI_ZK_EVENT_READY) != 0 && hearing->phase == CONNECTING)
        on_ready(hearing);
    if ((events & HFI_ZK_EVENT_TIMER) != 0 && hearing->phase == PAUSED)
        ask(hearing);
}

/* ---- Life ---- */

static void destroy(struct hfi_task *task) {
    struct hfi_hearing *hearing = HFI_CONTAINER(task, struct hfi_hearing, task);
    pthread_mutex_destroy(&hearing->mtx);
    hfi_free(hearing->zk->mem, hearing);
}

int hfi_zk_hear(struct hfi_engine *engine, const char *name, size_t name_len,
                struct hfi_hearer *hearer, struct hfi_hearing **ret) {
    struct hfi_zk *zk = hfi_zk_of(engine);
    size_t len = hfi_zk_path(&zk->names, name, name_len, NULL);
    struct hfi_hearing *hearing = hfi_zalloc(zk->mem, sizeof *hearing + len + BENEATH_ROOM);
    if (hearing == NULL)
        return HF_ENOMEM;
    hearing->zk = zk;
    hearing->hearer = hearer;
    hearing->alarm.fire = alarm_fired;
    hearing->path_len = len;
    hfi_zk_path(&zk->names, name, name_len, hearing->path);
    pthread_mutex_init(&hearing->mtx, NULL);
    hfi_task_init(&hearing->task, hfi_keeper_exec(zk->keeper), run, destroy);
    hfi_task_post(&hearing->task, HFI_ZK_EVENT_TIMER);
    *ret = hearing;
    return HF_OK;
}

void hfi_zk_unhear(struct hfi_engine *engine, struct hfi_hearing *hearing) {
    (void)engine;
    pthread_mutex_lock(&hearing->mtx);
    hearing->hearer = NULL;
    pthread_mutex_unlock(&hearing->mtx);
    hfi_task_post(&hearing->task, HFI_ZK_EVENT_TIMER);
    hfi_task_unref(&hearing->task);
}

void hfi_zk_hearings_stop(struct hfi_zk *zk) {
    while (!hfi_list_empty(&zk->hearings))
        end(HFI_CONTAINER(zk->hearings.next, struct hfi_hearing, link));
}
