/*
 * Ack batching: one ack command (WAIT) behind a batch of requests confirms all of them.
 *
 * send.c, receive.c and conn.c call this with the connection's mutex held. A request submitted here
 * completes when the ack command behind it is answered, unless its own reply needs no ack. One ack
 * command is out at a time: until it is answered, the server does nothing else on that connection.
 * Requests that come meanwhile are gathered. They go out together, with one ack command behind
 * them, when the answer is here. So the higher the load, the more requests share an ack command.
 *
 * Invariants: while requests are gathered or wait for their ack, an ack command is in the FIFO; so
 * in_flight is never 0 and the driver keeps reading. Gathered requests were not sent.
 */
#include "net/conn/conn_impl.h"

#include <assert.h>
#include <stdio.h>

struct ack_batch {
    const struct hfi_ack_batch_ops *ops;
    void *arg;
    bool out;                         /* `req` is in the FIFO */
    struct hfi_req req;               /* the ack command; embedded, never freed alone */
    struct hfi_link unacked_requests; /* have their reply, wait for the ack */
    struct hfi_link gathered;
    struct buffer commands; /* of the gathered requests */
    unsigned want;          /* the most that any of them wants */
};

struct hfi_conn *hfi_conn_new_acked(struct hfi_target *target, const struct hfi_ack_batch_ops *ops,
                                    void *arg) {
    struct ack_batch *ack_batch = hfi_zalloc(target->mem, sizeof *ack_batch);
    struct hfi_conn *conn =
        ack_batch != NULL ? hfi_conn_new(target, HFI_DRIVER_CALLERS, NULL, NULL, NULL) : NULL;
    if (conn == NULL) {
        hfi_free(target->mem, ack_batch);
        return NULL;
    }
    ack_batch->ops = ops;
    ack_batch->arg = arg;
    atomic_init(&ack_batch->req.refs, 1);
    ack_batch->req.mem = target->mem;
    ack_batch->req.protocol = target->protocol;
    ack_batch->req.conn = conn;
    hfi_list_init(&ack_batch->unacked_requests);
    hfi_list_init(&ack_batch->gathered);
    pthread_mutex_lock(&conn->mtx);
    conn->ack_batch = ack_batch;
    pthread_mutex_unlock(&conn->mtx);
    return conn;
}

void hfi_ack_batch_free(struct hfi_conn *conn) {
    if (conn->ack_batch == NULL)
        return;
    assert(hfi_list_empty(&conn->ack_batch->unacked_requests) &&
           hfi_list_empty(&conn->ack_batch->gathered));
    hfi_free(conn->target->mem, conn->ack_batch->commands.bytes);
    hfi_free(conn->target->mem, conn->ack_batch);
    conn->ack_batch = NULL;
}

/* ---- Sending ---- */

/* Out of memory: the connection is given up, and the batch with it. */
static void set_ack_batch_locked(struct hfi_conn *conn, unsigned want) {
    struct ack_batch *ack_batch = conn->ack_batch;
    char bytes[HFI_ACK_BATCH_MAX];
    size_t len = ack_batch->ops->write(ack_batch->arg, want, bytes);
    assert(!ack_batch->out && len <= sizeof bytes);
    if (hfi_conn_append_locked(conn, bytes, len, 1) != HF_OK) {
        hfi_conn_break_locked(conn);
        return;
    }
    atomic_fetch_add(&ack_batch->req.refs, 1); /* the FIFO's */
    ack_batch->req.sent_ms = hfi_now_ms();
    ack_batch->out = true;
    hfi_conn_push_locked(conn, &ack_batch->req);
}

/* No ack command is out: sends the request at once. */
static int send_locked(struct hfi_conn *conn, struct hfi_req *req, const char *bytes, size_t len,
                       const struct hfi_ack_request *ack_request) {
    int err = hfi_conn_append_locked(conn, bytes, len, ack_request->fronts + 1);
    unsigned want = ack_request->want;
    if (err != HF_OK)
        return err;
    hfi_conn_push_all_locked(conn, req);
    set_ack_batch_locked(conn, want);
    return HF_OK;
}

static void gather_locked(struct ack_batch *ack_batch, struct hfi_req *req) {
    if (req->front != NULL)
        gather_locked(ack_batch, req->front);
    hfi_list_push_back(&ack_batch->gathered, &req->link);
}

int hfi_ack_batch_submit_locked(struct hfi_conn *conn, struct hfi_req *req, const char *bytes,
                                size_t len, const struct hfi_ack_request *ack_request) {
    struct ack_batch *ack_batch = conn->ack_batch;
    req->needs_acks = ack_request->needs_acks;
    if (!ack_batch->out)
        return send_locked(conn, req, bytes, len, ack_request);
    if (!hfi_buffer_append(conn->target->mem, &ack_batch->commands, bytes, len))
        return HF_ENOMEM;
    req->unsent = true;
    gather_locked(ack_batch, req);
    ack_batch->want = ack_batch->want > ack_request->want ? ack_batch->want : ack_request->want;
    return HF_OK;
}

static unsigned take_gathered_locked(struct hfi_conn *conn) {
    struct hfi_link *link;
    unsigned many = 0;
    for (; (link = hfi_list_pop_front(&conn->ack_batch->gathered)) != NULL; many++) {
        struct hfi_req *req = HFI_CONTAINER(link, struct hfi_req, link);
        req->unsent = false;
        hfi_conn_push_locked(conn, req);
    }
    return many;
}

static void send_gathered_locked(struct hfi_conn *conn) {
    struct ack_batch *ack_batch = conn->ack_batch;
    unsigned many = take_gathered_locked(conn), want = ack_batch->want;
    if (many == 0)
        return;
    ack_batch->want = 0;
    if (hfi_conn_append_locked(conn, ack_batch->commands.bytes, ack_batch->commands.len, many) ==
        HF_OK)
        set_ack_batch_locked(conn, want);
    else
        hfi_conn_break_locked(conn);
    ack_batch->commands.len = 0;
}

/* ---- Receiving ---- */

static void complete_locked(struct hfi_conn *conn, struct hfi_req *req, struct hfi_wakes *wakes) {
    hfi_req_complete_locked(conn, req, wakes);
    hfi_req_unref(req);
}

static void answered_locked(struct hfi_conn *conn, struct hfi_wakes *wakes) {
    struct ack_batch *ack_batch = conn->ack_batch;
    struct hfi_link *link;
    hf_error error;
    hfi_error_clear(&error);
    int64_t said = ack_batch->ops->read(ack_batch->arg, ack_batch->req.reply, &error);
    conn->target->protocol->message_free(ack_batch->req.reply);
    ack_batch->req.reply = NULL;
    ack_batch->out = false;
    hfi_req_unref(&ack_batch->req);
    while ((link = hfi_list_pop_front(&ack_batch->unacked_requests)) != NULL) {
        struct hfi_req *req = HFI_CONTAINER(link, struct hfi_req, link);
        req->acked_requests = said;
        if (said < 0) {
            req->error = error;
            snprintf(req->error.node, sizeof req->error.node, "%s", conn->target->node);
        }
        complete_locked(conn, req, wakes);
    }
    send_gathered_locked(conn);
}

bool hfi_ack_batch_takes_locked(struct hfi_conn *conn, struct hfi_req *req,
                                struct hfi_wakes *wakes) {
    if (req == &conn->ack_batch->req) {
        answered_locked(conn, wakes);
        return true;
    }
    if (req->needs_acks == NULL || !req->needs_acks(req->reply))
        return false;
    hfi_list_push_back(&conn->ack_batch->unacked_requests, &req->link);
    return true;
}

void hfi_ack_batch_lose_locked(struct hfi_conn *conn, struct hfi_link *ret_orphans) {
    struct ack_batch *ack_batch = conn->ack_batch;
    hfi_list_splice(ret_orphans, &ack_batch->unacked_requests);
    hfi_list_splice(ret_orphans, &ack_batch->gathered);
    ack_batch->out = false;
    ack_batch->commands.len = 0;
    ack_batch->want = 0;
}
