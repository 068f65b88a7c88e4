/*
 * Reconnecting: when a connection that is down may try again, and the back-off between attempts.
 *
 * Runs on the keeper's thread. After a failure the next attempt waits 20 ms, doubling up to a
 * second, with jitter so that a fleet does not reconnect in step.
 */
#include "base/backoff.h"
#include "base/jitter.h"
#include "net/conn/conn_impl.h"

static const struct hfi_backoff backoff = {.first_ms = 20, .max_ms = 1000, .factor = 2};

int64_t hfi_conn_backoff_ms(const struct hfi_conn *conn, unsigned failures) {
    return hfi_backoff_spread_ms(&backoff, failures, hfi_jitter_bits(conn));
}

/* The first reconnect after a loss is immediate. Back off from a server that accepts connections
 * only to close them. */
int64_t hfi_conn_after_loss_ms(struct hfi_conn *conn, int64_t now_ms) {
    if (now_ms - conn->ready_since_ms >= backoff.max_ms)
        conn->short_lives = 0;
    unsigned before = conn->short_lives++;
    return before == 0 ? now_ms : now_ms + hfi_conn_backoff_ms(conn, before - 1);
}

void hfi_conn_reconnect_if_wanted(struct hfi_conn *conn, int64_t now_ms) {
    pthread_mutex_lock(&conn->mtx);
    bool wanted = !conn->retired && (conn->keep_up || !hfi_list_empty(&conn->wants));
    pthread_mutex_unlock(&conn->mtx);
    if (!wanted)
        return;
    if (now_ms >= conn->retry_at_ms)
        hfi_conn_start_connecting(conn);
    else
        hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->alarm, conn->retry_at_ms);
}
