/*
 * A session: its requests, its pings, its validity, and its end.
 *
 * Any thread submits requests, under the session's mutex, so that xids and packets are in send
 * order; the bytes are written without it. Everything else runs on the keeper's thread. Lock order:
 * the session, then its connection.
 *
 * While there is a connection, something is sent every T/6. The replies show that the server is
 * alive: if none comes for T/3, another server is tried. They prove nothing about the session
 * (session_validity.h).
 *
 * Only a handshake proves something. So the connection is replaced (hfi_conn_renew) when it is old
 * and a request comes, and every T/3 while the connection has users. The commit that completes the
 * proof is that of the first request on it: a renewal of a hold, or an acquire's create. If there
 * are only waiters, the session sends a check of its own.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/poll.h"
#include "net/driver/keeper.h"
#include "zk/session/session_impl.h"

#include <assert.h>
#include <string.h>

#define PING_PART 6 /* of T: how often something is sent */
#define SILENCE_PART 3
#define DRAIN_PART 6  /* how long to wait for replies before the connection is replaced */
#define CHECK_PART 32 /* how long others have to get something committed on a new connection */
/* the shortest timeout accepted: no server's tick is so short that two of them are less */
#define LEAST_MS 50
#define CLOSE_XID (-11) /* negative xids: their replies arrive as pushed messages */
#define CHECK_XID (-12)
#define CLOSE_MS 500 /* a reachable server answers sooner */

/* ---- Accessors ---- */

bool hfi_zk_session_stopped(const struct hfi_zk_session *session) {
    return atomic_load_explicit(&session->stopped, memory_order_relaxed);
}

const char *hfi_zk_session_node(const struct hfi_zk_session *session) {
    return session->node;
}

struct hfi_conn *hfi_zk_session_conn(struct hfi_zk_session *session) {
    return session->conn;
}

int64_t hfi_zk_session_last_received_ms(const struct hfi_zk_session *session) {
    return atomic_load_explicit(&session->target.last_answer_ms, memory_order_relaxed);
}

bool hfi_zk_session_begins_anew(const struct hfi_zk_session *session) {
    return atomic_load(&session->anew);
}

struct hfi_zk_credit hfi_zk_session_credit(struct hfi_zk_session *session) {
    pthread_mutex_lock(&session->mtx);
    struct hfi_zk_credit credit = {.number = session->number,
                                   .id = session->id,
                                   .timeout_ms = session->validity.timeout_ms,
                                   .good_until_ms = session->validity.good_until_ms,
                                   .heartbeat_at_ms = hfi_zk_prove_at_ms(&session->validity)};
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

void hfi_zk_session_invalidate(struct hfi_zk_session *session) {
    if (!hfi_zk_session_stopped(session))
        hfi_conn_suspect(session->conn, HFI_NEVER);
}

/* ---- The handshake ---- */

static const char spent[] = "the ZooKeeper session was not confirmed by a quorum in time";

static void end_session_locked(struct hfi_zk_session *session, const char *why) {
    if (session->id == 0)
        return;
    session->id = 0;
    session->number++;
    memset(session->password, 0, sizeof session->password);
    session->validity = (struct hfi_zk_validity){0};
    session->over = why;
    atomic_store(&session->last_zxid, 0);
    atomic_store(&session->anew, true);
    /* The hook runs a moment later: the connection is in the middle of something. */
    hfi_alarm_set(hfi_keeper_exec(session->keeper), &session->engine_events, hfi_now_ms());
}

void hfi_zk_session_greet(struct hfi_zk_session *session, struct hfi_zk_connect *ret) {
    pthread_mutex_lock(&session->mtx);
    /* Do not resume a spent session. Resuming it would also demand a server that has seen our last
     * zxid, and an ensemble that was set up anew never will. A new session has nothing to fear from
     * a server that has seen less: its creation is itself the latest transaction. */
    if (session->id != 0 && hfi_zk_is_spent(&session->validity, hfi_now_ms()))
        end_session_locked(session, spent);
    session->asked_for = session->id;
    ret->last_zxid = session->id != 0 ? atomic_load(&session->last_zxid) : 0;
    ret->timeout_ms = session->wish_ms;
    ret->session = session->id;
    memcpy(ret->password, session->password, sizeof ret->password);
    pthread_mutex_unlock(&session->mtx);
}

static void begin_session_locked(struct hfi_zk_session *session,
                                 const struct hfi_zk_connected *connected, int64_t sent_ms) {
    end_session_locked(session, "ZooKeeper no longer knows the session");
    session->number += session->number == 0;
    session->id = connected->session;
    memcpy(session->password, connected->password, sizeof session->password);
    hfi_zk_validity_begin(&session->validity, connected->timeout_ms, session->clock_drift_ppm,
                          sent_ms);
}

static void resume_session_locked(struct hfi_zk_session *session, int64_t timeout_ms,
                                  int64_t sent_ms) {
    session->shortened = session->shortened || timeout_ms < session->validity.timeout_ms;
    hfi_zk_validity_connected(&session->validity, timeout_ms, sent_ms);
}

int hfi_zk_session_greeted(struct hfi_zk_session *session, int64_t sent_ms,
                           const struct hfi_zk_connected *connected, hf_error *error) {
    if (connected->read_only)
        return hfi_fail(error, HF_EUNREACH, "the server has lost its ensemble");
    bool refused = connected->timeout_ms <= 0 || connected->session == 0;
    if (!refused && connected->timeout_ms < LEAST_MS)
        return hfi_fail(error, HF_EPROTO, "the server granted an invalid session timeout");
    pthread_mutex_lock(&session->mtx);
    bool resumed = session->asked_for != 0 && connected->session == session->asked_for;
    /* the session was given up while the handshake was in flight */
    bool given_up = resumed && session->id != connected->session;
    if (refused)
        end_session_locked(session, "the ZooKeeper session has expired");
    else if (!resumed)
        begin_session_locked(session, connected, sent_ms);
    else if (!given_up)
        resume_session_locked(session, connected->timeout_ms, sent_ms);
    session->greetings++;
    session->checking = false;
    session->last_sent_ms = sent_ms;
    session->pinged_ms = 0;
    pthread_mutex_unlock(&session->mtx);
    return refused || given_up ? hfi_fail(error, HF_EUNREACH,
                                          "the ZooKeeper session has expired; starting a new "
                                          "one")
                               : HF_OK;
}

static void report_over(struct hfi_alarm *alarm) {
    struct hfi_zk_session *session = HFI_CONTAINER(alarm, struct hfi_zk_session, engine_events);
    pthread_mutex_lock(&session->mtx);
    const char *why = session->over;
    session->over = NULL;
    pthread_mutex_unlock(&session->mtx);
    if (why != NULL)
        session->hooks->over(session->arg, why);
}

/* ---- Proofs ---- */

/* Something was sent: a reply is due from now on, unless one is due already. */
static void sent_locked(struct hfi_zk_session *session, int64_t now_ms) {
    session->last_sent_ms = now_ms;
    if (session->pinged_ms == 0 || hfi_zk_session_last_received_ms(session) >= session->pinged_ms)
        session->pinged_ms = now_ms;
}

static void renew_locked(struct hfi_zk_session *session, int64_t now_ms) {
    if (!hfi_conn_renew(session->conn))
        return;
    session->renewing = true;
    session->renew_by_ms = now_ms + session->validity.timeout_ms / DRAIN_PART;
    hfi_alarm_set(hfi_keeper_exec(session->keeper), &session->alarm, session->renew_by_ms);
}

/* The session is spent. If a server reads the closeSession, its remaining nodes are deleted at
 * once. */
static void leave_locked(struct hfi_zk_session *session, int64_t now_ms) {
    struct hfi_zk_out out;
    hfi_zk_out_init(&out, &session->mem);
    hfi_zk_put_close(&out, CLOSE_XID);
    if (!out.failed && hfi_conn_send(session->conn, out.bytes, out.len) == HF_OK)
        hfi_conn_flush(session->conn);
    hfi_zk_out_clear(&out);
    renew_locked(session, now_ms);
    end_session_locked(session, spent);
}

/* Before a request: is this connection fresh enough for a commit on it to be worth it? */
static void refresh_locked(struct hfi_zk_session *session, int64_t now_ms) {
    if (session->id == 0 || session->renewing)
        return;
    if (hfi_zk_is_spent(&session->validity, now_ms))
        leave_locked(session, now_ms);
    else if (now_ms >= hfi_zk_stale_at_ms(&session->validity))
        renew_locked(session, now_ms);
}

/* The root always exists. Checking it is a transaction, even if the ACL denies it to us. */
static void send_check_locked(struct hfi_zk_session *session, int64_t now_ms) {
    struct hfi_zk_out out;
    hfi_zk_out_init(&out, &session->mem);
    hfi_zk_multi_begin(&out, CHECK_XID);
    hfi_zk_multi_check(&out, "/", HFI_ZK_ANY_VERSION);
    hfi_zk_multi_end(&out);
    session->checking = !out.failed && hfi_conn_send(session->conn, out.bytes, out.len) == HF_OK;
    if (session->checking)
        sent_locked(session, now_ms);
    hfi_zk_out_clear(&out);
}

/* These codes, errors included, come from a committed transaction, which first checks that the
 * session lives. A follower can say NoAuth by itself (enableEagerACLCheck), but not for a multi. */
static bool is_committed(bool multi, int32_t err) {
    return err == HFI_ZK_OK || err == HFI_ZK_NO_NODE || err == HFI_ZK_NODE_EXISTS ||
           err == HFI_ZK_NOT_EMPTY || err == HFI_ZK_BAD_VERSION || (multi && err == HFI_ZK_NO_AUTH);
}

/* The server's error code; a multi has it in its results. */
static int32_t verdict(bool multi, int32_t err, struct hfi_zk_in body) {
    struct hfi_zk_results results;
    if (!multi || err != HFI_ZK_OK)
        return err;
    return hfi_zk_get_results(&body, &results) == HF_OK ? results.err : HFI_ZK_ROLLED_BACK;
}

/* Our own check was committed, on the current connection. */
static void note_check(struct hfi_zk_session *session) {
    pthread_mutex_lock(&session->mtx);
    if (session->id != 0)
        hfi_zk_validity_committed(&session->validity, hfi_now_ms());
    pthread_mutex_unlock(&session->mtx);
}

static void note_committed(struct hfi_zk_session *session, uint64_t number, uint64_t greeting) {
    pthread_mutex_lock(&session->mtx);
    if (session->id != 0 && number == session->number && greeting == session->greetings)
        hfi_zk_validity_committed(&session->validity, hfi_now_ms());
    pthread_mutex_unlock(&session->mtx);
}

/* ---- Pings, and when proofs are due ---- */

static int64_t check_at_ms(const struct hfi_zk_session *session) {
    return session->validity.greeted_ms + session->validity.timeout_ms / CHECK_PART;
}

static bool needs_check(const struct hfi_zk_session *session) {
    return session->keepers > 0 && !session->validity.proved && !session->checking;
}

static void plan_locked(struct hfi_zk_session *session) {
    int64_t timeout_ms = session->validity.timeout_ms;
    int64_t at_ms = session->last_sent_ms + timeout_ms / PING_PART;
    if (session->pinged_ms != 0)
        at_ms = hfi_min_ms(at_ms, session->pinged_ms + timeout_ms / SILENCE_PART);
    if (session->keepers > 0)
        at_ms = hfi_min_ms(at_ms, session->validity.greeted_ms + timeout_ms / 3);
    if (needs_check(session))
        at_ms = hfi_min_ms(at_ms, check_at_ms(session));
    hfi_alarm_set(hfi_keeper_exec(session->keeper), &session->alarm,
                  hfi_min_ms(at_ms, session->validity.good_until_ms));
}

static void send_ping_locked(struct hfi_zk_session *session, int64_t now_ms) {
    sent_locked(session, now_ms);
    hfi_conn_send(session->conn, hfi_zk_protocol.ping, hfi_zk_protocol.ping_len);
}

/* The connection is healthy: does what is due on it. */
static void check_session_locked(struct hfi_zk_session *session, int64_t now_ms) {
    int64_t timeout_ms = session->validity.timeout_ms;
    if (hfi_zk_is_spent(&session->validity, now_ms)) {
        leave_locked(session, now_ms);
        return;
    }
    if (session->keepers > 0 && now_ms >= session->validity.greeted_ms + timeout_ms / 3) {
        renew_locked(session, now_ms);
        return;
    }
    if (needs_check(session) && now_ms >= check_at_ms(session))
        send_check_locked(session, now_ms);
    if (now_ms >= session->last_sent_ms + timeout_ms / PING_PART)
        send_ping_locked(session, now_ms);
    plan_locked(session);
}

static void check_session(struct hfi_alarm *alarm) {
    struct hfi_zk_session *session = HFI_CONTAINER(alarm, struct hfi_zk_session, alarm);
    int64_t now_ms = hfi_now_ms(), since_ms = HFI_NEVER, server_ms, received_ms;
    bool suspect = false;
    pthread_mutex_lock(&session->mtx);
    int64_t timeout_ms = session->validity.timeout_ms;
    bool ready = session->id != 0 && !hfi_zk_session_stopped(session) &&
                 hfi_conn_ready(session->conn, &server_ms, &received_ms);
    if (session->pinged_ms != 0 && hfi_zk_session_last_received_ms(session) >= session->pinged_ms)
        session->pinged_ms = 0;
    if (session->renewing && now_ms >= session->renew_by_ms) {
        session->renewing = false;
        suspect = true;
    } else if (ready && session->pinged_ms != 0 &&
               now_ms >= session->pinged_ms + timeout_ms / SILENCE_PART) {
        since_ms = session->pinged_ms;
        suspect = true;
        hfi_alarm_set(hfi_keeper_exec(session->keeper), alarm, now_ms + timeout_ms / PING_PART);
    } else if (ready) {
        check_session_locked(session, now_ms);
    }
    pthread_mutex_unlock(&session->mtx);
    if (hfi_zk_session_stopped(session))
        return;
    if (suspect)
        hfi_conn_suspect(session->conn, since_ms);
    else
        hfi_conn_flush(session->conn);
}

/* ---- Callbacks of the connection ---- */

static void on_push(void *arg, const void *answer) {
    struct hfi_zk_session *session = arg;
    const struct hfi_zk_message *message = answer;
    struct hfi_zk_in in = hfi_zk_in(message->bytes, message->len);
    struct hfi_zk_header header;
    struct hfi_zk_event event;
    if (hfi_zk_get_header(&in, &header) != HF_OK)
        return;
    if (header.xid == CHECK_XID && is_committed(true, verdict(true, header.err, in)))
        note_check(session);
    if (header.xid != HFI_ZK_XID_EVENT)
        return;
    if (hfi_zk_get_event(&in, &event) == HF_OK)
        session->hooks->event(session->arg, &event);
    else
        hfi_zk_session_invalidate(session);
}

static void on_state(void *arg, bool up) {
    struct hfi_zk_session *session = arg;
    pthread_mutex_lock(&session->mtx);
    bool renewed = !up && session->renewing, shortened = up && session->shortened;
    if (up) {
        session->shortened = false;
        plan_locked(session);
    } else {
        session->renewing = false;
    }
    pthread_mutex_unlock(&session->mtx);
    if (up)
        atomic_store(&session->anew, false);
    if (shortened)
        session->hooks->shortened(session->arg);
    if (renewed)
        session->hooks->renewed(session->arg);
    else
        session->hooks->state(session->arg, up);
}

/* ---- Requests ---- */

static void write_xid(char *frame, int32_t xid) {
    for (int i = 0; i < 4; i++)
        frame[4 + i] = (char)((uint32_t)xid >> (24 - 8 * i));
}

/* The opcode follows the xid. */
static bool is_multi(const char *frame) {
    static const char multi[] = {0, 0, 0, HFI_ZK_OP_MULTI};
    return memcmp(frame + 8, multi, sizeof multi) == 0;
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
                                      .multi = is_multi(frame),
                                      .number = session->number,
                                      .greeting = session->greetings};
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
    refresh_locked(session, hfi_now_ms());
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
        hfi_zk_session_invalidate(session);
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
    /* A server that still has requests of an earlier connection of this session may skip replies. */
    if (hfi_zk_get_header(body, header) != HF_OK || header->xid != ask->xid) {
        hfi_zk_session_invalidate(session);
        return hfi_fail(error, HF_EUNREACH, "ZooKeeper's reply does not match the request");
    }
    enum hfi_zk_remedy remedy = HFI_ZK_REMEDY_NONE;
    int32_t said = verdict(ask->multi, header->err, *body);
    if (said != HFI_ZK_OK)
        hfi_zk_error(said, error, &remedy);
    if (remedy == HFI_ZK_REMEDY_RECONNECT || remedy == HFI_ZK_REMEDY_SESSION) {
        /* the next handshake shows whether the session still exists */
        hfi_zk_session_invalidate(session);
        return HF_EUNREACH;
    }
    if (ask->commits && is_committed(ask->multi, said))
        note_committed(session, ask->number, ask->greeting);
    return HF_OK;
}

/* ---- The end ---- */

/* Sends closeSession, and waits a moment for the server to hang up: then it has read it. */
static void close_session(struct hfi_zk_session *session) {
    struct hfi_zk_out out;
    hfi_zk_out_init(&out, &session->mem);
    hfi_zk_put_close(&out, CLOSE_XID);
    int64_t end_ms = hfi_now_ms() + hfi_min_ms(session->cmd_timeout_ms, CLOSE_MS);
    bool there = !out.failed && hfi_conn_send(session->conn, out.bytes, out.len) == HF_OK;
    hfi_zk_out_clear(&out);
    if (there)
        hfi_conn_flush(session->conn);
    while (there && hfi_now_ms() < end_ms) {
        struct pollfd fd;
        fd.fd = hfi_conn_poll_fd(session->conn, &fd.events);
        there = fd.fd >= 0;
        if (there && hfi_poll(&fd, 1, (int)hfi_left_ms(end_ms), NULL) > 0)
            there = hfi_conn_on_ready(session->conn, fd.revents);
    }
}

void hfi_zk_session_stop(struct hfi_zk_session *session, bool at_once) {
    if (hfi_zk_session_stopped(session))
        return;
    if (at_once)
        close_session(session);
    atomic_store(&session->stopped, true);
    hfi_alarm_clear(hfi_keeper_exec(session->keeper), &session->alarm);
    hfi_alarm_clear(hfi_keeper_exec(session->keeper), &session->engine_events);
    hfi_conn_free(session->conn);
    session->conn = NULL;
}

void hfi_zk_session_close_fds(struct hfi_zk_session *session) {
    hfi_conn_close_fds(session->conn);
}

/* ---- Life ---- */

int hfi_zk_session_open(struct hfi_zk_session *session, hf_error *error) {
    session->alarm.fire = check_session;
    session->engine_events.fire = report_over;
    session->conn = hfi_conn_new(&session->target, HFI_DRIVER_KEEPER, on_push, on_state, session);
    if (session->conn == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory or file descriptors for a connection");
    return HF_OK;
}
