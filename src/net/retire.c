/*
 * Retiring a connection: its server is not the one to talk to any more.
 *
 * Called by the route on the keeper's thread. The socket is ended here, so that nothing that was not
 * read yet reaches the server; a caller in the seat finds that out, and tears the connection down as
 * if it were lost. Without one it is torn down here.
 */
#include "net/impl.h"

static int explain(hf_error *error) {
    hfi_error_clear(error);
    return hfi_fail(error, HF_EUNREACH, "this is not the server to ask any more");
}

/* True: it was ready, and its seat is the keeper's. */
static bool end_locked(struct hfi_conn *conn) {
    struct hfi_exec *keeper = hfi_keeper_exec(conn->target->keeper);
    conn->retired = true;
    conn->keep_up = false;
    if (conn->state != CONN_READY)
        return false;
    hfi_conn_hang_up(conn, true);
    if (conn->driver == NULL)
        conn->driver = keeper;
    hfi_conn_break_locked(conn);
    return conn->driver == keeper;
}

void hfi_conn_retire(struct hfi_conn *conn) {
    hf_error error;
    int err = explain(&error);
    pthread_mutex_lock(&conn->mtx);
    bool ours = end_locked(conn);
    enum conn_state state = conn->state;
    /* One that is about to be lost is wanted, too, and nobody will connect it again. */
    if (state == CONN_DOWN || state == CONN_READY)
        hfi_conn_tell_wants_locked(conn, err, &error);
    pthread_mutex_unlock(&conn->mtx);
    if (ours)
        hfi_conn_lose(conn, err, &error);
    else if (state != CONN_DOWN && state != CONN_READY && state != CONN_CLOSED)
        hfi_conn_connect_failed(conn, err, &error);
}
