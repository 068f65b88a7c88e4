/*
 * Retiring a connection: its server must not be used any more.
 *
 * The route calls this on the keeper's thread. It ends the socket here, so that bytes the server
 * has not read yet do not reach it. A driving caller finds that out, and tears the connection down
 * as if it were lost. Without a driver it is torn down here.
 */
#include "net/conn/conn_impl.h"

static int explain(hf_error *error) {
    hfi_error_clear(error);
    return hfi_fail(error, HF_EUNREACH, "this server is no longer the one in use");
}

/* True: it was ready, and the keeper drives it. */
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
    /* A connection about to be lost may have wants, too, and it will never reconnect. */
    if (state == CONN_DOWN || state == CONN_READY)
        hfi_conn_notify_wants_locked(conn, err, &error);
    pthread_mutex_unlock(&conn->mtx);
    if (ours)
        hfi_conn_lose(conn, err, &error);
    else if (state != CONN_DOWN && state != CONN_READY && state != CONN_CLOSED)
        hfi_conn_connect_failed(conn, err, &error);
}
