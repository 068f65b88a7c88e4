/*
 * Heartbeats: a renewal is a `multi` of `check`s, one for each node.
 *
 * The transaction changes nothing and fires no watch. Its commit, on a connection that was made for
 * it, proves the session (session_validity.h), and so every node of it that exists. If a node does
 * not exist, or may not be read, the server refuses the whole multi and names the node by its index.
 * The multi is then resent without that node.
 *
 * Everything runs on the keeper's thread.
 */
#include "base/clock.h"
#include "base/error.h"
#include "net/driver/keeper.h"
#include "zk/ops/queue.h"

#include <string.h>

enum { EVENT_ANSWER = 1, EVENT_READY = 2, EVENT_TIMER = 4 };

struct heartbeat {
    struct hfi_task task;
    struct hfi_link link; /* in zk->renewals */
    struct hfi_zk *zk;
    struct hfi_renewal *renewal;
    struct hfi_alarm alarm;
    struct hfi_want want;
    bool wanting;
    struct hfi_zk_ask ask;
    uint64_t number; /* the session of all these nodes */
    size_t len;      /* how many are checked */
    size_t items[HFI_RENEWAL_MAX];
    struct hfi_zk_held held[HFI_RENEWAL_MAX]; /* of all items */
    hf_error refusal; /* of the last node that was refused; the others may have been renewed */
};

static struct hfi_zk_place place_of(const struct hfi_renewal_item *item) {
    return (struct hfi_zk_place){.kind = item->kind,
                                 .name = item->name,
                                 .name_len = item->name_len,
                                 .owner = item->owner,
                                 .owner_len = item->owner_len};
}

static void drop(struct heartbeat *beat) {
    struct hfi_zk_session *session = beat->zk->session;
    hfi_zk_session_drop(session, &beat->ask);
    if (beat->wanting && !hfi_zk_session_stopped(session))
        hfi_conn_unwant(hfi_zk_session_conn(session), &beat->want);
    beat->wanting = false;
}

static void finish(struct heartbeat *beat, int err, const char *text) {
    struct hfi_renewal *renewal = beat->renewal;
    drop(beat);
    hfi_alarm_clear(hfi_keeper_exec(beat->zk->keeper), &beat->alarm);
    hfi_list_remove(&beat->link);
    renewal->err = err;
    if (err != HF_OK && renewal->error.text[0] == '\0')
        hfi_fail(&renewal->error, err, "%s", text);
    renewal->error.code = err;
    if (err == HF_OK && beat->refusal.code != HF_OK)
        renewal->error = beat->refusal;
    hfi_task_retire(&beat->task);
    hfi_task_unref(&beat->task);
    renewal->done(renewal);
}

/* ---- Answers ---- */

static void is_gone(struct heartbeat *beat, size_t item) {
    const struct hfi_zk_place place = place_of(&beat->renewal->items[item]);
    beat->renewal->items[item].answer = 0;
    if (beat->held[item].token != 0)
        hfi_zk_forget_node(beat->zk, &place, beat->held[item].token);
}

static void all_are_there(struct heartbeat *beat) {
    struct hfi_zk_credit credit = hfi_zk_session_credit(beat->zk->session);
    for (size_t i = 0; i < beat->len; i++) {
        struct hfi_renewal_item *item = &beat->renewal->items[beat->items[i]];
        item->answer = 1;
        item->proof = hfi_zk_proof(&credit, item->lease_ms);
    }
    finish(beat, HF_OK, NULL);
}

static void send_beat(struct heartbeat *beat);

/* One node does not exist, or is refused: drop it and resend the rest. */
static void leave_out(struct heartbeat *beat, size_t failed_index, int32_t refusal) {
    enum hfi_zk_remedy remedy;
    size_t item = beat->items[failed_index];
    if (refusal == HFI_ZK_NO_NODE) {
        is_gone(beat, item);
    } else {
        hfi_error_clear(&beat->refusal);
        beat->renewal->items[item].answer = hfi_zk_error(refusal, &beat->refusal, &remedy);
        beat->refusal.code = beat->renewal->items[item].answer;
    }
    beat->len--;
    memmove(&beat->items[failed_index], &beat->items[failed_index + 1],
            (beat->len - failed_index) * sizeof beat->items[0]);
    send_beat(beat);
}

static void read_results(struct heartbeat *beat, struct hfi_zk_in *body) {
    struct hfi_zk_results results;
    enum hfi_zk_remedy remedy;
    if (hfi_zk_get_results(body, &results) != HF_OK || results.len != beat->len) {
        hfi_zk_session_invalidate(beat->zk->session);
        finish(beat, HF_EPROTO, "ZooKeeper sent an invalid reply");
    } else if (results.err == HFI_ZK_OK) {
        all_are_there(beat);
    } else if (results.err == HFI_ZK_NO_NODE || results.err == HFI_ZK_NO_AUTH) {
        leave_out(beat, results.failed_index, results.err);
    } else {
        int err = hfi_zk_error(results.err, &beat->renewal->error, &remedy);
        finish(beat, err, "ZooKeeper refused a heartbeat");
    }
}

static void answered(struct heartbeat *beat) {
    struct hfi_zk_header header;
    struct hfi_zk_in body;
    enum hfi_zk_remedy remedy;
    int err =
        hfi_zk_session_answer(beat->zk->session, &beat->ask, &header, &body, &beat->renewal->error);
    if (err == HF_EUNREACH) {
        hfi_zk_session_drop(beat->zk->session, &beat->ask);
        send_beat(beat); /* once there is a connection again, if there is time */
    } else if (err != HF_OK) {
        finish(beat, err, "ZooKeeper did not answer a heartbeat");
    } else if (header.err != HFI_ZK_OK) {
        err = hfi_zk_error(header.err, &beat->renewal->error, &remedy);
        finish(beat, err, "ZooKeeper refused a heartbeat");
    } else {
        hfi_error_clear(&beat->renewal->error);
        read_results(beat, &body);
    }
}

/* ---- Sending ---- */

static void write_path(const struct hfi_zk *zk, const struct hfi_renewal_item *item,
                       const struct hfi_zk_held *held, char to[HFI_ZK_PATH_MAX]) {
    size_t len = hfi_zk_path(&zk->names, item->name, item->name_len, to);
    size_t beneath_len = strlen(held->beneath);
    memcpy(to + len, held->beneath, beneath_len);
    hfi_zk_node_name(&held->node, to + len + beneath_len);
}

static int submit(struct heartbeat *beat) {
    static const unsigned event = EVENT_ANSWER;
    struct hfi_zk_out out;
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_out_init(&out, beat->zk->mem);
    hfi_zk_multi_begin(&out, 0);
    for (size_t i = 0; i < beat->len; i++) {
        size_t item = beat->items[i];
        write_path(beat->zk, &beat->renewal->items[item], &beat->held[item], path);
        hfi_zk_multi_check(&out, path, HFI_ZK_ANY_VERSION);
    }
    hfi_zk_multi_end(&out);
    int err = hfi_zk_session_submit(beat->zk->session, &out, 1, 1, &beat->task, &event, &beat->ask,
                                    &beat->number);
    hfi_zk_out_clear(&out);
    return err;
}

static void all_are_gone(struct heartbeat *beat) {
    for (size_t i = 0; i < beat->len; i++)
        is_gone(beat, beat->items[i]);
    beat->renewal->gone = "the ZooKeeper session has ended";
    finish(beat, HF_OK, NULL);
}

static void send_beat(struct heartbeat *beat) {
    drop(beat);
    if (beat->len == 0) {
        finish(beat, HF_OK, NULL);
        return;
    }
    int err = submit(beat);
    if (err == HF_ELOST) {
        all_are_gone(beat);
    } else if (err == HF_EUNREACH) {
        beat->wanting = true;
        hfi_conn_want(hfi_zk_session_conn(beat->zk->session), &beat->want, &beat->task,
                      EVENT_READY);
    } else if (err != HF_OK) {
        finish(beat, err, hf_strerror(err));
    }
}

static void run(struct hfi_task *task, unsigned events) {
    struct heartbeat *beat = HFI_CONTAINER(task, struct heartbeat, task);
    if (!hfi_linked(&beat->link))
        return;
    if (beat->ask.req != NULL && atomic_load(&beat->ask.req->complete)) {
        answered(beat);
    } else if ((events & EVENT_READY) != 0 && beat->wanting) {
        drop(beat);
        if (beat->want.err == HF_OK)
            send_beat(beat);
        else
            finish(beat, beat->want.err, beat->want.error.text);
    } else if ((events & EVENT_TIMER) != 0 && hfi_now_ms() >= beat->renewal->deadline_ms) {
        finish(beat, HF_EUNREACH, "ZooKeeper did not answer a heartbeat in time");
    }
}

static void destroy(struct hfi_task *task) {
    struct heartbeat *beat = HFI_CONTAINER(task, struct heartbeat, task);
    hfi_free(beat->zk->mem, beat);
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct heartbeat, alarm)->task, EVENT_TIMER);
}

/* Collects the items whose nodes are of the current session; the others are gone. */
static void gather(struct heartbeat *beat) {
    struct hfi_zk_credit credit = hfi_zk_session_credit(beat->zk->session);
    struct hfi_renewal *renewal = beat->renewal;
    beat->number = credit.number;
    for (size_t i = 0; i < renewal->len; i++) {
        const struct hfi_zk_place place = place_of(&renewal->items[i]);
        bool there = hfi_zk_nodes_find(beat->zk->nodes, &place, &beat->held[i]);
        if (there && beat->held[i].number == credit.number)
            beat->items[beat->len++] = i;
        else
            is_gone(beat, i);
    }
}

void hfi_zk_renew(struct hfi_engine *engine, struct hfi_renewal *renewal) {
    struct hfi_zk *zk = hfi_zk_of(engine);
    struct heartbeat *beat = hfi_zalloc(zk->mem, sizeof *beat);
    hfi_error_clear(&renewal->error);
    renewal->gone = NULL;
    int err = beat == NULL ? HF_ENOMEM : HF_OK;
    if (hfi_zk_session_stopped(zk->session))
        err = HF_ECLOSED;
    if (err != HF_OK) {
        hfi_free(zk->mem, beat);
        renewal->err = hfi_fail(&renewal->error, err, "cannot send a heartbeat");
        renewal->done(renewal);
        return;
    }
    beat->zk = zk;
    beat->renewal = renewal;
    beat->alarm.fire = alarm_fired;
    hfi_task_init(&beat->task, hfi_keeper_exec(zk->keeper), run, destroy);
    hfi_list_push_back(&zk->renewals, &beat->link);
    hfi_alarm_set(hfi_keeper_exec(zk->keeper), &beat->alarm, renewal->deadline_ms);
    gather(beat);
    send_beat(beat);
}

void hfi_zk_renewals_stop(struct hfi_zk *zk) {
    struct hfi_link *next;
    for (struct hfi_link *link = zk->renewals.next; link != &zk->renewals; link = next) {
        next = link->next;
        finish(HFI_CONTAINER(link, struct heartbeat, link), HF_ECLOSED, "the client is closed");
    }
}
