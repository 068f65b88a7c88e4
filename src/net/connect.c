/*
 * Getting connected, and noticing when a connection is dead.
 *
 * Everything here runs on the keeper's thread, but for hfi_conn_want() and its like, which any
 * thread calls. A connection is made only while somebody wants it. Lookup, connect, TLS and the
 * protocol's greeting together may take `cmd_timeout_ms`. After a failure the next attempt
 * waits: 20 ms at first, doubling up to a second, with jitter so that a fleet does not come back in
 * step. An idle connection is pinged every `ping_ms`; one that is still silent `cmd_timeout_ms`
 * later is closed.
 */
#include "net/impl.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 20
#define BACKOFF_MAX_MS 1000

static int64_t backoff_ms(unsigned failures) {
    int64_t limit = BACKOFF_MAX_MS;
    if (failures < 6)
        limit = (int64_t)BACKOFF_FIRST_MS << failures;
    uint32_t dice = 0;
    if (getrandom(&dice, sizeof dice, GRND_NONBLOCK) != (ssize_t)sizeof dice)
        dice = (uint32_t)hfi_now_us();
    return limit / 2 + (int64_t)(dice % (uint32_t)(limit / 2 + 1));
}

static void tell_wants_locked(struct hfi_conn *conn, int err, const hf_error *error) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&conn->wants)) != NULL) {
        struct hfi_want *want = HFI_CONTAINER(link, struct hfi_want, link);
        struct hfi_task *task = want->task;
        want->err = err;
        if (error != NULL) {
            want->error = *error;
            snprintf(want->error.node, sizeof want->error.node, "%s", conn->target->node);
        }
        hfi_task_post(task, want->event); /* after this the want may be gone */
        hfi_task_unref(task);
    }
}

static void end_greeting(struct hfi_conn *conn) {
    if (conn->greeting != NULL)
        conn->target->protocol->greeting_free(conn->greeting);
    conn->greeting = NULL;
}

/* Being down and saying why is one step, so that nobody can find it down without a reason. */
void hfi_conn_connect_failed(struct hfi_conn *conn, int err, const hf_error *error) {
    hfi_lookup_drop(conn->lookup);
    conn->lookup = NULL;
    end_greeting(conn);
    conn->retry_at_ms = hfi_now_ms() + backoff_ms(conn->failures++);
    if (err != HF_ECLOSED) {
        /* Else only the deadline of the attempt that has failed would wake us. */
        hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->alarm, conn->retry_at_ms);
        hfi_log(conn->target->log, HF_LOG_WARN, "%s: %s", conn->target->node, error->text);
    }
    pthread_mutex_lock(&conn->mtx);
    hfi_conn_close_socket(conn);
    hfi_conn_discard_output(conn);
    conn->unsent = 0;
    conn->generation++;
    atomic_store(&conn->broken, false);
    conn->state = err == HF_ECLOSED ? CONN_CLOSED : CONN_DOWN;
    conn->driver = NULL;
    tell_wants_locked(conn, err, error);
    pthread_mutex_unlock(&conn->mtx);
}

static void fail_errno(struct hfi_conn *conn, int err, int sys_errno, const char *what) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail_errno(&error, err, sys_errno, "%s", what);
    hfi_conn_connect_failed(conn, err, &error);
}

/* ---- The greeting ---- */

bool hfi_conn_say(struct hfi_conn *conn, const char *bytes, size_t len) {
    pthread_mutex_lock(&conn->mtx);
    bool ok = hfi_buffer_append(conn->target->mem, &conn->out, bytes, len);
    pthread_mutex_unlock(&conn->mtx);
    return ok;
}

static void now_ready(struct hfi_conn *conn) {
    end_greeting(conn);
    atomic_store(&conn->target->last_answer_ms, hfi_now_ms());
    pthread_mutex_lock(&conn->mtx);
    conn->state = CONN_READY;
    if (conn->seat == HFI_SEAT_KEEPER || conn->seat == HFI_SEAT_LISTENERS)
        conn->driver = hfi_keeper_exec(conn->target->keeper);
    else if (conn->seat == HFI_SEAT_DISPATCH)
        conn->driver = conn->target->dispatch;
    pthread_mutex_unlock(&conn->mtx);
    conn->failures = 0;
    conn->ping_sent_ms = 0;
    conn->ready_since_ms = hfi_now_ms();
    if (conn->was_ready && conn->target->reconnects != NULL)
        atomic_fetch_add(conn->target->reconnects, 1);
    conn->was_ready = true;
    hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->alarm,
                  hfi_now_ms() + conn->target->ping_ms);
    pthread_mutex_lock(&conn->mtx);
    tell_wants_locked(conn, HF_OK, NULL);
    pthread_mutex_unlock(&conn->mtx);
    if (conn->on_state != NULL)
        conn->on_state(conn->arg, true);
}

static bool new_reader(struct hfi_conn *conn) {
    const struct hfi_protocol *protocol = conn->target->protocol;
    if (conn->reader != NULL)
        protocol->reader_free(conn->reader);
    conn->reader = protocol->reader_new(conn->target->mem);
    return conn->reader != NULL;
}

static void greet(struct hfi_conn *conn) {
    hf_error error;
    hfi_error_clear(&error);
    pthread_mutex_lock(&conn->mtx);
    conn->state = CONN_GREETING;
    pthread_mutex_unlock(&conn->mtx);
    conn->greeted = false;
    int err = new_reader(conn) ? HF_OK : hfi_fail(&error, HF_ENOMEM, "out of memory");
    if (err == HF_OK)
        err = conn->target->protocol->greet(conn, &conn->greeting, &error);
    if (err == HF_OK)
        hfi_conn_flush(conn);
    else
        hfi_conn_connect_failed(conn, err, &error);
}

int hfi_conn_greeted(struct hfi_conn *conn, const void *message, hf_error *error) {
    if (conn->greeted)
        return hfi_fail(error, HF_EPROTO, "a reply that nobody asked for");
    return conn->target->protocol->greeted(conn->greeting, message, &conn->greeted, error);
}

/* ---- TLS ---- */

/* Continues the handshake with what has been fed. Even a failure may leave something to send: the
 * alert that says why. */
static void go_on_with_tls(struct hfi_conn *conn) {
    hf_error error;
    bool done = false;
    hfi_error_clear(&error);
    pthread_mutex_lock(&conn->mtx);
    int err = hfi_tls_shake_hands(conn->tls, &done, &error);
    hfi_conn_flush_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
    if (err != HF_OK)
        hfi_conn_connect_failed(conn, err, &error);
    else if (done)
        greet(conn);
}

static void connected(struct hfi_conn *conn) {
    atomic_store(&conn->last_rx_ms, 0);
    if (conn->target->tls == NULL) {
        greet(conn);
        return;
    }
    pthread_mutex_lock(&conn->mtx);
    conn->tls = hfi_tls_new(conn->target->tls);
    bool made = conn->tls != NULL;
    if (made)
        conn->state = CONN_TLS;
    pthread_mutex_unlock(&conn->mtx);
    if (made)
        go_on_with_tls(conn);
    else
        fail_errno(conn, HF_ENOMEM, ENOMEM, "no memory for TLS");
}

/* The socket may take more again, and there may be more to say. */
static void flush_again(struct hfi_conn *conn) {
    atomic_store(&conn->blocked, false);
    hfi_conn_flush(conn);
}

static void progress_tls(struct hfi_conn *conn) {
    hf_error error;
    hfi_error_clear(&error);
    int err = hfi_conn_read_tls_handshake(conn, &error);
    if (err != HF_OK) {
        hfi_conn_connect_failed(conn, err, &error);
        return;
    }
    flush_again(conn);
    go_on_with_tls(conn);
}

/* ---- Connect ---- */

static void try_next_address(struct hfi_conn *conn, int sys_errno) {
    while (conn->addrs_next < conn->addrs_len) {
        const struct hfi_addr *addr = &conn->addrs[conn->addrs_next++];
        int fd = socket(addr->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            sys_errno = errno;
            continue;
        }
        int on = 1;
        if (addr->sa.ss_family != AF_UNIX) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        }
        struct hfi_identity before = {0}, identity = {0};
        if (conn->target->identified)
            hfi_identity_of(addr, &before);
        int rc = connect(fd, (const struct sockaddr *)&addr->sa, addr->len);
        if (rc != 0 && errno != EINPROGRESS) {
            sys_errno = errno;
            close(fd);
            continue;
        }
        /* If it was replaced at that moment, nobody knows whose it is: then it is like no other. */
        if (conn->target->identified &&
            (!hfi_identity_of(addr, &identity) || !hfi_identity_same(&before, &identity)))
            identity = (struct hfi_identity){.inode = UINT64_MAX};
        pthread_mutex_lock(&conn->mtx);
        conn->fd = fd;
        conn->identity = identity;
        conn->state = CONN_CONNECTING;
        pthread_mutex_unlock(&conn->mtx);
        if (rc == 0)
            connected(conn);
        return;
    }
    bool ours = sys_errno == EMFILE || sys_errno == ENFILE || sys_errno == ENOMEM;
    fail_errno(conn, ours ? HF_ESYS : HF_EUNREACH, sys_errno, "cannot connect");
}

/* Could the server have wanted TLS? It may then end the connection without a word; but one that has
 * ever talked to us, or a socket of this machine, does not. */
static bool may_want_tls(const struct hfi_conn *conn) {
    const struct hfi_addr *addr = &conn->addrs[conn->addrs_next - 1];
    return conn->target->protocol->may_want_tls != NULL && conn->tls == NULL &&
           addr->sa.ss_family != AF_UNIX && atomic_load(&conn->last_rx_ms) == 0 &&
           atomic_load(&conn->target->last_answer_ms) == 0;
}

/* The connection has ended during the greeting: says why, as far as that is known. */
static void explain_end(const struct hfi_conn *conn, hf_error *error) {
    const struct hfi_protocol *protocol = conn->target->protocol;
    if (!protocol->explain_end(conn->greeting, error) && may_want_tls(conn))
        hfi_fail(error, HF_EUNREACH, "%s", protocol->may_want_tls);
}

void hfi_conn_progress(struct hfi_conn *conn) {
    if (conn->state == CONN_CONNECTING) {
        int failure = 0;
        socklen_t len = sizeof failure;
        getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &failure, &len);
        if (failure == 0) {
            connected(conn);
            return;
        }
        pthread_mutex_lock(&conn->mtx);
        hfi_conn_close_socket(conn);
        pthread_mutex_unlock(&conn->mtx);
        try_next_address(conn, failure);
    } else if (conn->state == CONN_TLS) {
        progress_tls(conn);
    } else if (conn->state == CONN_GREETING) {
        hf_error error;
        hfi_error_clear(&error);
        int err = hfi_conn_read(conn, &error);
        if (err == HF_EUNREACH)
            explain_end(conn, &error);
        if (err != HF_OK)
            hfi_conn_connect_failed(conn, err, &error);
        else if (conn->greeted)
            now_ready(conn); /* only now: others may take the seat at once */
        else
            flush_again(conn);
    }
}

static void lookup_finished(void *arg) {
    hfi_exec_nudge(hfi_keeper_exec(arg));
}

static void start_connecting(struct hfi_conn *conn) {
    const struct hfi_target *target = conn->target;
    /* Read now: the keeper's round may have begun before whoever wants the connection came. */
    conn->connect_deadline_ms = hfi_now_ms() + target->cmd_timeout_ms;
    conn->addrs_next = 0;
    hfi_alarm_set(hfi_keeper_exec(target->keeper), &conn->alarm, conn->connect_deadline_ms);
    if (target->resolve == NULL) {
        conn->addrs[0] = target->address;
        conn->addrs_len = 1;
        try_next_address(conn, 0);
        return;
    }
    hf_error error;
    hfi_error_clear(&error);
    int err = hfi_lookup_start(target->resolve, target->resolve_arg, conn->connect_deadline_ms,
                               lookup_finished, target->keeper, &conn->lookup, &error);
    if (err != HF_OK) {
        hfi_conn_connect_failed(conn, err, &error);
        return;
    }
    pthread_mutex_lock(&conn->mtx);
    conn->state = CONN_RESOLVING;
    pthread_mutex_unlock(&conn->mtx);
}

static void look_at_lookup(struct hfi_conn *conn) {
    hf_error error;
    int err;
    hfi_error_clear(&error);
    if (!hfi_lookup_poll(conn->lookup, &err, conn->addrs, HFI_LOOKUP_MAX_ADDRS, &conn->addrs_len,
                         &error))
        return;
    hfi_lookup_drop(conn->lookup);
    conn->lookup = NULL;
    if (err != HF_OK)
        hfi_conn_connect_failed(conn, err, &error);
    else
        try_next_address(conn, 0);
}

/* A server without TLS takes our greeting for the beginning of a command, and waits for the rest of
 * it. */
const char *hfi_conn_hint(struct hfi_conn *conn) {
    pthread_mutex_lock(&conn->mtx);
    bool shaking_hands = conn->state == CONN_TLS, answered = atomic_load(&conn->last_rx_ms) != 0;
    pthread_mutex_unlock(&conn->mtx);
    if (!shaking_hands)
        return NULL;
    return answered ? "the handshake of TLS was not finished in time"
                    : "no answer to TLS; is this a server without it?";
}

/* ---- Tending ---- */

static int ping(struct hfi_conn *conn) {
    const struct hfi_protocol *protocol = conn->target->protocol;
    struct hfi_req *req = NULL;
    if (conn->push != NULL && protocol->is_push == NULL)
        return hfi_conn_send(conn, protocol->ping, protocol->ping_len);
    int err = hfi_conn_submit(conn, protocol->ping, protocol->ping_len, NULL, 0, NULL, &req);
    hfi_req_unref(req);
    return err;
}

/* Pings a connection that has been silent, and gives up on one that stays so. */
static void check_alive(struct hfi_conn *conn, int64_t now_ms) {
    const struct hfi_target *target = conn->target;
    int64_t heard_ms = atomic_load(&conn->last_rx_ms), next_ms = heard_ms + target->ping_ms;
    if (conn->ping_sent_ms != 0 && heard_ms >= conn->ping_sent_ms)
        conn->ping_sent_ms = 0;
    if (conn->ping_sent_ms != 0) {
        next_ms = conn->ping_sent_ms + target->cmd_timeout_ms;
        if (now_ms >= next_ms) {
            if (conn->push != NULL) /* the answer may be here, and nobody has read it */
                hfi_conn_catch_up(conn, hfi_keeper_exec(target->keeper));
            hfi_conn_suspect(conn, conn->ping_sent_ms);
            next_ms = now_ms + target->cmd_timeout_ms;
        }
    } else if (now_ms >= next_ms && conn->seat == HFI_SEAT_DISPATCH) {
        /* there may be nobody to read the answer; the next command will find out */
        next_ms = now_ms + target->ping_ms;
    } else if (now_ms >= next_ms) {
        conn->ping_sent_ms = ping(conn) == HF_OK ? now_ms : 0;
        next_ms = now_ms + target->cmd_timeout_ms;
    }
    hfi_alarm_set(hfi_keeper_exec(target->keeper), &conn->alarm, next_ms);
}

/* The first attempt after a loss is made at once, but we must not hammer a server that lets us in
 * only to close again. */
static int64_t after_loss_ms(struct hfi_conn *conn, int64_t now_ms) {
    if (now_ms - conn->ready_since_ms >= BACKOFF_MAX_MS)
        conn->short_lives = 0;
    unsigned before = conn->short_lives++;
    return before == 0 ? now_ms : now_ms + backoff_ms(before - 1);
}

static void begin_if_wanted(struct hfi_conn *conn, int64_t now_ms) {
    pthread_mutex_lock(&conn->mtx);
    bool wanted = conn->keep_up || !hfi_list_empty(&conn->wants);
    pthread_mutex_unlock(&conn->mtx);
    if (!wanted)
        return;
    if (now_ms >= conn->retry_at_ms)
        start_connecting(conn);
    else
        hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->alarm, conn->retry_at_ms);
}

/* A greeting could not be sent. Nobody would answer it, so it must not wait for its deadline. */
static void give_up_greeting(struct hfi_conn *conn) {
    hfi_conn_progress(conn); /* what the server has said before may tell why */
    if (conn->state == CONN_TLS || conn->state == CONN_GREETING) {
        hf_error error;
        hfi_error_clear(&error);
        hfi_fail(&error, HF_EUNREACH, "the greeting could not be sent");
        if (conn->state == CONN_GREETING)
            explain_end(conn, &error);
        hfi_conn_connect_failed(conn, HF_EUNREACH, &error);
    }
}

void hfi_conn_tend(struct hfi_conn *conn) {
    int64_t now_ms = hfi_now_ms();
    pthread_mutex_lock(&conn->mtx);
    enum conn_state state = conn->state;
    bool lost = conn->lost;
    conn->lost = false;
    bool adopted = hfi_seat_adopt_locked(conn);
    bool ours = conn->driver == hfi_keeper_exec(conn->target->keeper);
    pthread_mutex_unlock(&conn->mtx);

    if (lost) {
        conn->retry_at_ms = after_loss_ms(conn, now_ms);
        conn->ping_sent_ms = 0;
        if (conn->on_state != NULL)
            conn->on_state(conn->arg, false);
    }
    if (state == CONN_RESOLVING)
        look_at_lookup(conn);
    if ((state == CONN_TLS || state == CONN_GREETING) && atomic_load(&conn->broken))
        give_up_greeting(conn);
    if ((conn->state == CONN_RESOLVING || conn->state == CONN_CONNECTING ||
         conn->state == CONN_TLS || conn->state == CONN_GREETING) &&
        now_ms >= conn->connect_deadline_ms) {
        const char *hint = hfi_conn_hint(conn);
        fail_errno(conn, HF_EUNREACH, ETIMEDOUT, hint != NULL ? hint : "cannot connect");
    }
    if (state == CONN_DOWN)
        begin_if_wanted(conn, now_ms);
    if (state == CONN_READY && ours && atomic_load(&conn->broken))
        hfi_conn_service(conn, 0);
    else if (state == CONN_READY && !adopted && !conn->alarm.timer.set)
        check_alive(conn, now_ms);
}

void hfi_conn_want(struct hfi_conn *conn, struct hfi_want *want, struct hfi_task *task,
                   unsigned event) {
    pthread_mutex_lock(&conn->mtx);
    want->task = task;
    want->event = event;
    want->err = HF_OK;
    bool ready = conn->state == CONN_READY && !atomic_load(&conn->broken);
    if (conn->state == CONN_CLOSED)
        want->err = hfi_fail(&want->error, HF_ECLOSED, "the client is closed");
    if (ready || conn->state == CONN_CLOSED) {
        hfi_task_post(task, event);
    } else {
        hfi_task_ref(task);
        hfi_list_push_back(&conn->wants, &want->link);
        hfi_exec_nudge(hfi_keeper_exec(conn->target->keeper));
    }
    pthread_mutex_unlock(&conn->mtx);
}

void hfi_conn_unwant(struct hfi_conn *conn, struct hfi_want *want) {
    pthread_mutex_lock(&conn->mtx);
    bool linked = hfi_linked(&want->link);
    hfi_list_remove(&want->link);
    pthread_mutex_unlock(&conn->mtx);
    if (linked)
        hfi_task_unref(want->task);
}

void hfi_conn_keep_up(struct hfi_conn *conn, bool up) {
    pthread_mutex_lock(&conn->mtx);
    bool changed = conn->keep_up != up;
    conn->keep_up = up;
    pthread_mutex_unlock(&conn->mtx);
    if (changed && up)
        hfi_exec_nudge(hfi_keeper_exec(conn->target->keeper));
}
