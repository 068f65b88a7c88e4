/*
 * Seals: a command behind requests, whose answer says something about all of them.
 *
 * Called by send.c, receive.c and conn.c, with the connection's mutex held. A request that is sealed
 * completes when the seal behind it was answered, unless its own reply needs none. One seal is out at a
 * time, for a server does nothing else on that connection meanwhile: requests that come are gathered,
 * and go together, with one seal behind them, when it has come back. So the more there are, the more
 * share a seal.
 *
 * Invariants: while something is gathered or waits for its seal, a seal is in the FIFO; so the connection is
 * never idle for whoever reads it. What is gathered was not sent.
 */
#include "net/impl.h"

#include <assert.h>
#include <stdio.h>

struct seal {
    const struct hfi_seal_ops *ops;
    void *arg;
    bool out;                 /* `req` is in the FIFO */
    struct hfi_req req;       /* the one that is out; never freed by itself */
    struct hfi_link unsealed; /* answered, and not sealed yet */
    struct hfi_link gathered;
    struct buffer commands; /* of those */
    unsigned want;          /* the most that any of them wants */
};

struct hfi_conn *hfi_conn_new_sealing(struct hfi_target *target, const struct hfi_seal_ops *ops,
                                      void *arg) {
    struct seal *seal = hfi_zalloc(target->mem, sizeof *seal);
    struct hfi_conn *conn =
        seal != NULL ? hfi_conn_new(target, HFI_SEAT_CALLERS, NULL, NULL, NULL) : NULL;
    if (conn == NULL) {
        hfi_free(target->mem, seal);
        return NULL;
    }
    seal->ops = ops;
    seal->arg = arg;
    atomic_init(&seal->req.refs, 1);
    seal->req.mem = target->mem;
    seal->req.protocol = target->protocol;
    seal->req.conn = conn;
    hfi_list_init(&seal->unsealed);
    hfi_list_init(&seal->gathered);
    pthread_mutex_lock(&conn->mtx);
    conn->seal = seal;
    pthread_mutex_unlock(&conn->mtx);
    return conn;
}

void hfi_seal_free(struct hfi_conn *conn) {
    if (conn->seal == NULL)
        return;
    assert(hfi_list_empty(&conn->seal->unsealed) && hfi_list_empty(&conn->seal->gathered));
    hfi_free(conn->target->mem, conn->seal->commands.bytes);
    hfi_free(conn->target->mem, conn->seal);
    conn->seal = NULL;
}

/* ---- Out ---- */

/* Without memory for it, what it was to seal is lost. */
static void set_seal_locked(struct hfi_conn *conn, unsigned want) {
    struct seal *seal = conn->seal;
    char bytes[HFI_SEAL_MAX];
    size_t len = seal->ops->write(seal->arg, want, bytes);
    assert(!seal->out && len <= sizeof bytes);
    if (hfi_conn_append_locked(conn, bytes, len, 1) != HF_OK) {
        hfi_conn_break_locked(conn);
        return;
    }
    atomic_fetch_add(&seal->req.refs, 1); /* the FIFO's */
    seal->req.sent_ms = hfi_now_ms();
    seal->out = true;
    hfi_conn_push_locked(conn, &seal->req);
}

/* Nothing is out: it goes at once. */
static int send_locked(struct hfi_conn *conn, struct hfi_req *preface, struct hfi_req *req,
                       const char *bytes, size_t len, unsigned want) {
    int err = hfi_conn_append_locked(conn, bytes, len, preface != NULL ? 2 : 1);
    if (err != HF_OK)
        return err;
    if (preface != NULL)
        hfi_conn_push_locked(conn, preface);
    hfi_conn_push_locked(conn, req);
    set_seal_locked(conn, want);
    return HF_OK;
}

int hfi_seal_submit_locked(struct hfi_conn *conn, struct hfi_req *preface, struct hfi_req *req,
                           const char *bytes, size_t len, const struct hfi_sealing *sealing) {
    struct seal *seal = conn->seal;
    req->needs_seal = sealing->needs_seal;
    if (!seal->out)
        return send_locked(conn, preface, req, bytes, len, sealing->want);
    if (!hfi_buffer_append(conn->target->mem, &seal->commands, bytes, len))
        return HF_ENOMEM;
    req->unsent = true;
    if (preface != NULL)
        hfi_list_push_back(&seal->gathered, &preface->link);
    hfi_list_push_back(&seal->gathered, &req->link);
    seal->want = seal->want > sealing->want ? seal->want : sealing->want;
    return HF_OK;
}

static unsigned take_gathered_locked(struct hfi_conn *conn) {
    struct hfi_link *link;
    unsigned many = 0;
    for (; (link = hfi_list_pop_front(&conn->seal->gathered)) != NULL; many++) {
        struct hfi_req *req = HFI_CONTAINER(link, struct hfi_req, link);
        req->unsent = false;
        hfi_conn_push_locked(conn, req);
    }
    return many;
}

static void send_gathered_locked(struct hfi_conn *conn) {
    struct seal *seal = conn->seal;
    unsigned many = take_gathered_locked(conn), want = seal->want;
    if (many == 0)
        return;
    seal->want = 0;
    if (hfi_conn_append_locked(conn, seal->commands.bytes, seal->commands.len, many) == HF_OK)
        set_seal_locked(conn, want);
    else
        hfi_conn_break_locked(conn);
    seal->commands.len = 0;
}

/* ---- Back ---- */

static void complete_locked(struct hfi_conn *conn, struct hfi_req *req, struct hfi_wakes *wakes) {
    hfi_req_complete_locked(conn, req, wakes);
    hfi_req_unref(req);
}

static void answered_locked(struct hfi_conn *conn, struct hfi_wakes *wakes) {
    struct seal *seal = conn->seal;
    struct hfi_link *link;
    hf_error error;
    hfi_error_clear(&error);
    int64_t said = seal->ops->read(seal->arg, seal->req.reply, &error);
    conn->target->protocol->message_free(seal->req.reply);
    seal->req.reply = NULL;
    seal->out = false;
    hfi_req_unref(&seal->req);
    while ((link = hfi_list_pop_front(&seal->unsealed)) != NULL) {
        struct hfi_req *req = HFI_CONTAINER(link, struct hfi_req, link);
        req->sealed = said;
        if (said < 0) {
            req->error = error;
            snprintf(req->error.node, sizeof req->error.node, "%s", conn->target->node);
        }
        complete_locked(conn, req, wakes);
    }
    send_gathered_locked(conn);
}

bool hfi_seal_takes_locked(struct hfi_conn *conn, struct hfi_req *req, struct hfi_wakes *wakes) {
    if (req == &conn->seal->req) {
        answered_locked(conn, wakes);
        return true;
    }
    if (req->needs_seal == NULL || !req->needs_seal(req->reply))
        return false;
    hfi_list_push_back(&conn->seal->unsealed, &req->link);
    return true;
}

void hfi_seal_lose_locked(struct hfi_conn *conn, struct hfi_link *ret_orphans) {
    struct seal *seal = conn->seal;
    hfi_list_splice(ret_orphans, &seal->unsealed);
    hfi_list_splice(ret_orphans, &seal->gathered);
    seal->out = false;
    seal->commands.len = 0;
    seal->want = 0;
}
