/*
 * A session: its requests, its pings, what it is worth, and its end.
 *
 * Requests are submitted by any thread, under the session's mutex, so that numbers and packets are in
 * the order in which they are sent; the bytes are written without it. Everything else runs on the
 * keeper's thread. Lock order: the session, then its connection.
 *
 * As long as there is a connection something is sent every T/6. The answers tell that the server is
 * there: if none comes for T/3, another is tried. What they prove of the session is nothing (trust.h);
 * but the more often something is sent, the less is lost of T when a request is committed.
 */
#include "base/clock.h"
#include "base/error.h"
#include "net/keeper.h"
#include "zk/session_impl.h"

#include <assert.h>
#include <poll.h>
#include <string.h>

#define PING_PART 6 /* of T: something is sent that often */
#define SILENCE_PART 3
#define LEAST_MS 50       /* no tick is so short that a session of two would be shorter */
#define GOODBYE_XID (-11) /* it has no place among the requests: its answer is pushed */
#define GOODBYE_MS 500    /* a server that can be reached answers sooner */

/* ---- Small questions ---- */

bool hfi_zk_session_stopped(const struct hfi_zk_session *session) {
    return atomic_load_explicit(&session->stopped, memory_order_relaxed);
}

const char *hfi_zk_session_node(const struct hfi_zk_session *session) {
    return session->node;
}

struct hfi_conn *hfi_zk_session_conn(struct hfi_zk_session *session) {
    return session->conn;
}

int64_t hfi_zk_session_heard_ms(const struct hfi_zk_session *session) {
    return atomic_load_explicit(&session->target.last_answer_ms, memory_order_relaxed);
}

bool hfi_zk_session_begins_anew(const struct hfi_zk_session *session) {
    return atomic_load(&session->anew);
}

struct hfi_zk_credit hfi_zk_session_credit(struct hfi_zk_session *session) {
    pthread_mutex_lock(&session->mtx);
    struct hfi_zk_credit credit = {.number = session->number,
                                   .id = session->id,
                                   .timeout_ms = session->trust.timeout_ms,
                                   .good_until_ms = hfi_zk_good_until_ms(&session->trust),
                                   .heartbeat_at_ms = hfi_zk_heartbeat_at_ms(&session->trust)};
    pthread_mutex_unlock(&session->mtx);
    return credit;
}

void hfi_zk_session_keep(struct hfi_zk_session *session, bool on) {
    pthread_mutex_lock(&session->mtx);
    session->keepers += on ? 1 : -1u;
    if (!hfi_zk_session_stopped(session))
        hfi_conn_keep_up(session->conn, session->keepers > 0);
    pthread_mutex_unlock(&session->mtx);
}

void hfi_zk_session_distrust(struct hfi_zk_session *session) {
    if (!hfi_zk_session_stopped(session))
        hfi_conn_suspect(session->conn, HFI_NEVER);
}

/* ---- The handshake ---- */

static void end_session_locked(struct hfi_zk_session *session, const char *why) {
    if (session->id == 0)
        return;
    session->id = 0;
    session->number++;
    memset(session->password, 0, sizeof session->password);
    session->trust = (struct hfi_zk_trust){0};
    session->over = why;
    atomic_store(&session->last_zxid, 0);
    atomic_store(&session->anew, true);
    /* Told a moment later: the connection is in the middle of something. */
    hfi_alarm_set(hfi_keeper_exec(session->keeper), &session->news, hfi_now_ms());
}

/* Then the leader has ended it, or will. To insist on it would be to ask for a server that has seen as much as we
 * have, and one that has begun anew never will. With a new session there is nothing to fear from one that has seen
 * less: that a session begins is itself the latest news. */
static bool is_silent_locked(const struct hfi_zk_session *session) {
    return session->id != 0 &&
           hfi_now_ms() - hfi_zk_session_heard_ms(session) > session->trust.timeout_ms;
}

void hfi_zk_session_greet(struct hfi_zk_session *session, struct hfi_zk_connect *ret) {
    pthread_mutex_lock(&session->mtx);
    if (is_silent_locked(session))
        end_session_locked(session, "no server has answered for as long as the session lasts");
    ret->last_zxid = session->id != 0 ? atomic_load(&session->last_zxid) : 0;
    ret->timeout_ms = session->wish_ms;
    ret->session = session->id;
    memcpy(ret->password, session->password, sizeof ret->password);
    pthread_mutex_unlock(&session->mtx);
}

int hfi_zk_session_greeted(struct hfi_zk_session *session, int64_t sent_ms,
                           const struct hfi_zk_connected *connected, hf_error *error) {
    if (connected->read_only)
        return hfi_fail(error, HF_EUNREACH, "the server has lost its ensemble");
    bool refused = connected->timeout_ms <= 0 || connected->session == 0;
    if (!refused && connected->timeout_ms < LEAST_MS)
        return hfi_fail(error, HF_EPROTO, "no session is as short as this server says");
    pthread_mutex_lock(&session->mtx);
    if (refused)
        end_session_locked(session, "the session with ZooKeeper has expired");
    else if (connected->session != session->id)
        end_session_locked(session, "ZooKeeper does not know the session any more");
    if (!refused) {
        session->number += session->number == 0;
        session->id = connected->session;
        memcpy(session->password, connected->password, sizeof session->password);
        hfi_zk_trust_connected(&session->trust, connected->timeout_ms, sent_ms, hfi_now_ms());
        session->pings_due = 0;
        session->last_sent_ms = sent_ms;
        session->pinged_ms = 0;
    }
    pthread_mutex_unlock(&session->mtx);
    return refused ? hfi_fail(error, HF_EUNREACH, "the session has expired; a new one is begun")
                   : HF_OK;
}

static void tell_over(struct hfi_alarm *alarm) {
    struct hfi_zk_session *session = HFI_CONTAINER(alarm, struct hfi_zk_session, news);
    pthread_mutex_lock(&session->mtx);
    const char *why = session->over;
    session->over = NULL;
    pthread_mutex_unlock(&session->mtx);
    if (why == NULL)
        return;
    hfi_log(session->log, HF_LOG_WARN, "%s: %s", session->node, why);
    session->hooks->over(session->arg, why);
}

/* ---- Pings ---- */

static void plan_ping_locked(struct hfi_zk_session *session) {
    int64_t at_ms = session->last_sent_ms + session->trust.timeout_ms / PING_PART;
    if (session->pinged_ms != 0)
        at_ms = hfi_min_ms(at_ms, session->pinged_ms + session->trust.timeout_ms / SILENCE_PART);
    hfi_alarm_set(hfi_keeper_exec(session->keeper), &session->alarm, at_ms);
}

/* Something is sent: an answer is due, unless one is already. */
static void sent_locked(struct hfi_zk_session *session, int64_t now_ms) {
    session->last_sent_ms = now_ms;
    if (session->pinged_ms == 0 || hfi_zk_session_heard_ms(session) >= session->pinged_ms)
        session->pinged_ms = now_ms;
}

/* Answers to pings have no number: one counts only if it can be no other's. */
static void send_ping_locked(struct hfi_zk_session *session, int64_t now_ms) {
    sent_locked(session, now_ms);
    if (session->pings_due++ == 0)
        session->first_ping_ms = now_ms;
    hfi_conn_send(session->conn, hfi_zk_protocol.ping, hfi_zk_protocol.ping_len);
}

static void heard_pong(struct hfi_zk_session *session) {
    pthread_mutex_lock(&session->mtx);
    if (session->first_ping_ms != 0 && session->trust.timeout_ms > 0)
        hfi_zk_trust_answered(&session->trust, session->first_ping_ms, hfi_now_ms());
    session->first_ping_ms = 0;
    session->pings_due -= session->pings_due > 0;
    pthread_mutex_unlock(&session->mtx);
}

static void look_after(struct hfi_alarm *alarm) {
    struct hfi_zk_session *session = HFI_CONTAINER(alarm, struct hfi_zk_session, alarm);
    int64_t now_ms = hfi_now_ms(), server_ms, received_ms;
    pthread_mutex_lock(&session->mtx);
    int64_t timeout_ms = session->trust.timeout_ms;
    bool ready = timeout_ms > 0 && !hfi_zk_session_stopped(session) &&
                 hfi_conn_ready(session->conn, &server_ms, &received_ms);
    if (session->pinged_ms != 0 && hfi_zk_session_heard_ms(session) >= session->pinged_ms)
        session->pinged_ms = 0;
    int64_t since_ms = session->pinged_ms;
    bool silent = since_ms != 0 && now_ms >= since_ms + timeout_ms / SILENCE_PART;
    if (ready && !silent && now_ms >= session->last_sent_ms + timeout_ms / PING_PART) {
        send_ping_locked(session, now_ms);
    }
    if (ready && !silent)
        plan_ping_locked(session);
    pthread_mutex_unlock(&session->mtx);
    if (ready && silent) {
        hfi_conn_suspect(session->conn, since_ms);
        hfi_alarm_set(hfi_keeper_exec(session->keeper), &session->alarm,
                      now_ms + timeout_ms / PING_PART);
    } else if (ready) {
        hfi_conn_flush(session->conn);
    }
}

/* ---- What the connection tells ---- */

static void on_push(void *arg, const void *answer) {
    struct hfi_zk_session *session = arg;
    const struct hfi_zk_message *message = answer;
    struct hfi_zk_in in = hfi_zk_in(message->bytes, message->len);
    struct hfi_zk_header header;
    struct hfi_zk_event event;
    if (hfi_zk_get_header(&in, &header) != HF_OK)
        return;
    if (header.xid == HFI_ZK_XID_PING)
        heard_pong(session);
    if (header.xid != HFI_ZK_XID_EVENT)
        return;
    if (hfi_zk_get_event(&in, &event) == HF_OK)
        session->hooks->event(session->arg, &event);
    else
        hfi_zk_session_distrust(session);
}

static void on_state(void *arg, bool up) {
    struct hfi_zk_session *session = arg;
    if (up) {
        atomic_store(&session->anew, false);
        pthread_mutex_lock(&session->mtx);
        plan_ping_locked(session);
        pthread_mutex_unlock(&session->mtx);
    }
    session->hooks->state(session->arg, up);
}

/* ---- Requests ---- */

static void write_xid(char *frame, int32_t xid) {
    for (int i = 0; i < 4; i++)
        frame[4 + i] = (char)((uint32_t)xid >> (24 - 8 * i));
}

static size_t frame_size(const char *frame) {
    size_t len = SIZE_MAX;
    hfi_zk_frame_len(frame, SIZE_MAX, &len);
    return len + 4;
}

static int32_t draw_xid_locked(struct hfi_zk_session *session) {
    session->next_xid = session->next_xid == INT32_MAX ? 1 : session->next_xid + 1;
    return session->next_xid;
}

#define COMMITS_MAX 32 /* bits */

static int submit_locked(struct hfi_zk_session *session, struct hfi_zk_out *out, size_t len,
                         unsigned commits, struct hfi_task *task, const unsigned *events,
                         struct hfi_zk_ask *asks) {
    int err = HF_OK;
    char *frame = out->bytes;
    size_t size;
    for (size_t i = 0; i < len && err == HF_OK; i++, frame += size) {
        size = frame_size(frame);
        asks[i] = (struct hfi_zk_ask){.xid = draw_xid_locked(session),
                                      .commits = i < COMMITS_MAX && (commits >> i & 1) != 0,
                                      .number = session->number};
        write_xid(frame, asks[i].xid);
        err = hfi_conn_enqueue(session->conn, frame, size, task, events[i], &asks[i].req);
        if (err == HF_OK)
            sent_locked(session, asks[i].req->sent_ms);
        else if (i > 0)
            err = HF_ENOMEM; /* the first may have been sent */
    }
    return err;
}

int hfi_zk_session_submit(struct hfi_zk_session *session, struct hfi_zk_out *out, size_t len,
                          unsigned commits, struct hfi_task *task, const unsigned *events,
                          struct hfi_zk_ask *asks, uint64_t *number) {
    if (out->failed)
        return HF_ENOMEM;
    if (hfi_zk_session_stopped(session))
        return HF_ECLOSED;
    pthread_mutex_lock(&session->mtx);
    int err = HF_EUNREACH;
    if (*number != 0 && *number != session->number)
        err = HF_ELOST;
    else if (session->id != 0)
        err = submit_locked(session, out, len, commits, task, events, asks);
    if (err == HF_OK || err == HF_ENOMEM)
        *number = session->number;
    pthread_mutex_unlock(&session->mtx);
    if (err == HF_OK) {
        hfi_conn_flush(session->conn);
        return HF_OK;
    }
    if (err == HF_ENOMEM && asks[0].req != NULL)
        hfi_zk_session_distrust(session);
    for (size_t i = 0; i < len; i++)
        hfi_zk_session_drop(session, &asks[i]);
    return err;
}

void hfi_zk_session_drop(struct hfi_zk_session *session, struct hfi_zk_ask *ask) {
    if (ask->req == NULL)
        return;
    if (hfi_zk_session_stopped(session) || atomic_load(&ask->req->complete))
        hfi_req_unref(ask->req);
    else
        hfi_req_abandon(ask->req);
    ask->req = NULL;
}

/* Such an answer takes a transaction of its own, be it one that says no. */
static bool is_committed(int32_t err) {
    return err == HFI_ZK_OK || err == HFI_ZK_NO_NODE || err == HFI_ZK_NODE_EXISTS ||
           err == HFI_ZK_NOT_EMPTY || err == HFI_ZK_BAD_VERSION;
}

static void note_answer(struct hfi_zk_session *session, const struct hfi_zk_ask *ask, int32_t err) {
    int64_t sent_ms = ask->req->sent_ms, now_ms = hfi_now_ms();
    pthread_mutex_lock(&session->mtx);
    if (ask->number != session->number || session->id == 0) {
        /* of a session that is over */
    } else if (ask->commits && is_committed(err)) {
        hfi_zk_trust_committed(&session->trust, sent_ms, now_ms);
    } else {
        hfi_zk_trust_answered(&session->trust, sent_ms, now_ms);
    }
    pthread_mutex_unlock(&session->mtx);
}

int hfi_zk_session_answer(struct hfi_zk_session *session, const struct hfi_zk_ask *ask,
                          struct hfi_zk_header *header, struct hfi_zk_in *body, hf_error *error) {
    const struct hfi_req *req = ask->req;
    assert(atomic_load(&req->complete));
    if (req->err != HF_OK) {
        *error = req->error;
        return req->err == HF_ECLOSED ? HF_ECLOSED : HF_EUNREACH;
    }
    const struct hfi_zk_message *message = req->reply;
    *body = hfi_zk_in(message->bytes, message->len);
    if (hfi_zk_get_header(body, header) != HF_OK || header->xid != ask->xid) {
        hfi_zk_session_distrust(session);
        return hfi_fail(error, HF_EPROTO, "ZooKeeper answered something else than it was asked");
    }
    enum hfi_zk_remedy remedy = HFI_ZK_REMEDY_NONE;
    if (header->err != HFI_ZK_OK)
        hfi_zk_error(header->err, error, &remedy);
    if (remedy == HFI_ZK_REMEDY_RECONNECT || remedy == HFI_ZK_REMEDY_SESSION) {
        /* the handshake tells what has become of the session */
        hfi_zk_session_distrust(session);
        return HF_EUNREACH;
    }
    note_answer(session, ask, header->err);
    return HF_OK;
}

/* ---- The end ---- */

/* Says goodbye, and waits for a moment until the server hangs up: then it has read it. */
static void close_session(struct hfi_zk_session *session) {
    struct hfi_zk_out out;
    hfi_zk_out_init(&out, &session->mem);
    hfi_zk_put_close(&out, GOODBYE_XID);
    int64_t end_ms = hfi_now_ms() + hfi_min_ms(session->cmd_timeout_ms, GOODBYE_MS);
    bool there = !out.failed && hfi_conn_send(session->conn, out.bytes, out.len) == HF_OK;
    hfi_zk_out_clear(&out);
    if (there)
        hfi_conn_flush(session->conn);
    while (there && hfi_now_ms() < end_ms) {
        struct pollfd fd;
        fd.fd = hfi_conn_poll_fd(session->conn, &fd.events);
        there = fd.fd >= 0;
        if (there && poll(&fd, 1, (int)(end_ms - hfi_now_ms())) > 0)
            there = hfi_conn_service(session->conn, fd.revents);
    }
}

void hfi_zk_session_stop(struct hfi_zk_session *session, bool at_once) {
    if (hfi_zk_session_stopped(session))
        return;
    if (at_once)
        close_session(session);
    atomic_store(&session->stopped, true);
    hfi_alarm_clear(hfi_keeper_exec(session->keeper), &session->alarm);
    hfi_alarm_clear(hfi_keeper_exec(session->keeper), &session->news);
    hfi_conn_free(session->conn);
    session->conn = NULL;
}

void hfi_zk_session_close_fds(struct hfi_zk_session *session) {
    hfi_conn_close_fds(session->conn);
}

/* ---- Life ---- */

int hfi_zk_session_open(struct hfi_zk_session *session, hf_error *error) {
    session->alarm.fire = look_after;
    session->news.fire = tell_over;
    session->conn = hfi_conn_new(&session->target, HFI_SEAT_KEEPER, on_push, on_state, session);
    if (session->conn == NULL)
        return hfi_fail(error, HF_ENOMEM, "no memory or descriptors for a connection");
    return HF_OK;
}
