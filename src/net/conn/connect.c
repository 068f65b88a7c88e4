/*
 * Connecting: host by host, lookup, addresses, TLS handshake, greeting.
 *
 * Everything here runs on the keeper's thread. A target may have several hosts. An attempt tries
 * them in turn, each with its own lookup, until one has greeted. The first attempt starts at a
 * random host, later ones after the host where the last ended. A renewal starts at that same host.
 * The whole attempt may take `cmd_timeout_ms`. Each host gets an equal share of the time left, so a
 * silent host leaves time for the others.
 */
#include "base/jitter.h"
#include "net/conn/conn_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define STALE_TRIES_MAX 5 /* of connects while a socket is renamed or replaced */

static void end_greeting(struct hfi_conn *conn) {
    if (conn->greeting != NULL)
        conn->target->protocol->greeting_free(conn->greeting);
    conn->greeting = NULL;
}

/* Drops the lookup, greeting and socket of a failed host. */
static void clear_away(struct hfi_conn *conn) {
    hfi_lookup_drop(conn->lookup);
    conn->lookup = NULL;
    end_greeting(conn);
    pthread_mutex_lock(&conn->mtx);
    hfi_conn_close_socket(conn);
    hfi_conn_discard_output(conn);
    conn->unsent = 0;
    conn->generation++;
    atomic_store(&conn->broken, false);
    pthread_mutex_unlock(&conn->mtx);
}

/* A name that once led to a server may do so again, whatever the resolver says now. */
bool hfi_conn_is_hopeless(const struct hfi_conn *conn) {
    return conn->nowhere == conn->target->hosts_len &&
           atomic_load(&conn->target->last_answer_ms) == 0;
}

/* Warns once per failure until the server answers. For a host that does not exist, the waiting
 * caller gets the error anyway. */
static void log_failure(const struct hfi_conn *conn, int err, const hf_error *error) {
    struct hfi_target *target = conn->target;
    bool is_new = target->reported_err != err || target->reported_errno != error->sys_errno;
    hf_log_level level = is_new && !hfi_conn_is_hopeless(conn) ? HF_LOG_WARN : HF_LOG_DEBUG;
    target->reported_err = err;
    target->reported_errno = error->sys_errno;
    hfi_log(target->log, level, HFI_ABOUT(.code = err, .server = target->node), "%s: %s",
            target->node, error->text);
}

static void log_success(const struct hfi_conn *conn) {
    if (conn->target->reported_err != HF_OK)
        hfi_log(conn->target->log, HF_LOG_INFO, HFI_ABOUT(.server = conn->target->node),
                "%s: reachable again", conn->target->node);
    conn->target->reported_err = HF_OK;
}

/* Sets CONN_DOWN and its reason in one step, so that no thread finds it down without a reason. */
void hfi_conn_connect_failed(struct hfi_conn *conn, int err, const hf_error *error) {
    clear_away(conn);
    conn->retry_at_ms = hfi_now_ms() + hfi_conn_backoff_ms(conn, conn->failures++);
    if (err != HF_ECLOSED && !conn->retired) {
        /* Else only the failed attempt's deadline would wake us. */
        hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->alarm, conn->retry_at_ms);
        log_failure(conn, err, error);
    }
    pthread_mutex_lock(&conn->mtx);
    conn->state = err == HF_ECLOSED ? CONN_CLOSED : CONN_DOWN;
    conn->driver = NULL;
    hfi_conn_notify_wants_locked(conn, err, error);
    pthread_mutex_unlock(&conn->mtx);
    const struct hfi_target *target = conn->target;
    if (target->on_failure != NULL && err != HF_ECLOSED && !conn->retired)
        target->on_failure(target->on_failure_arg, err, error);
}

static const struct hfi_host *host_of(const struct hfi_conn *conn) {
    return &conn->target->hosts[conn->host];
}

/* One host: its own error. Several: the text of each. An answer from a host outranks that
 * another was unreachable. */
static void note_failure_locked(struct hfi_conn *conn, int err, const hf_error *error) {
    hf_error *why = &conn->why;
    if (conn->target->hosts_len == 1) {
        *why = *error;
        why->code = err;
        return;
    }
    if (why->code == HF_OK || why->code == HF_EUNREACH) {
        why->code = err;
        why->sys_errno = error->sys_errno;
    }
    size_t len = strlen(why->text);
    snprintf(why->text + len, sizeof why->text - len, "%s%s: %s", len > 0 ? "; " : "",
             host_of(conn)->name, error->text);
}

static void try_host(struct hfi_conn *conn);

/* Goes on to the next host, or fails the attempt after the last. */
static void host_failed(struct hfi_conn *conn, int err, const hf_error *error) {
    pthread_mutex_lock(&conn->mtx);
    note_failure_locked(conn, err, error);
    pthread_mutex_unlock(&conn->mtx);
    if (--conn->hosts_left == 0 || hfi_now_ms() >= conn->connect_deadline_ms) {
        hfi_conn_connect_failed(conn, conn->why.code, &conn->why);
        return;
    }
    clear_away(conn);
    conn->host = (conn->host + 1) % conn->target->hosts_len;
    try_host(conn);
}

static void host_failed_errno(struct hfi_conn *conn, int err, int sys_errno, const char *what) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail_errno(&error, err, sys_errno, "%s", what);
    host_failed(conn, err, &error);
}

/* ---- The greeting ---- */

bool hfi_conn_send_greeting(struct hfi_conn *conn, const char *bytes, size_t len) {
    pthread_mutex_lock(&conn->mtx);
    bool ok = hfi_buffer_append(conn->target->mem, &conn->out, bytes, len);
    pthread_mutex_unlock(&conn->mtx);
    return ok;
}

/* A driver may wait in recv() for the shortest timeout the kernel's clock allows. It is a
 * separate descriptor, so that a stalled driver can keep it. */
static int make_receive_fd(const struct hfi_conn *conn) {
    const struct timeval shortest = {.tv_usec = 1000};
    int fd = conn->driver_policy == HFI_DRIVER_CALLERS ? fcntl(conn->fd, F_DUPFD_CLOEXEC, 0) : -1;
#ifdef __SANITIZE_THREAD__
    /* TSan knows a descriptor as a socket only if it saw it made; what comes by any other is
     * unordered. */
    if (fd >= 0)
        fd = dup3(conn->fd, fd, O_CLOEXEC);
#endif
    int flags = fd >= 0 ? fcntl(fd, F_GETFL) : -1;
    if (flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &shortest, sizeof shortest) == 0)
        return fd;
    if (fd >= 0)
        close(fd); /* drivers poll instead */
    return -1;
}

static void now_ready(struct hfi_conn *conn) {
    end_greeting(conn);
    atomic_store(&conn->target->last_answer_ms, hfi_now_ms());
    pthread_mutex_lock(&conn->mtx);
    hfi_error_clear(&conn->why);
    conn->state = CONN_READY;
    conn->receive_fd = make_receive_fd(conn);
    if (conn->driver_policy == HFI_DRIVER_KEEPER || conn->driver_policy == HFI_DRIVER_LISTENERS)
        conn->driver = hfi_keeper_exec(conn->target->keeper);
    else if (conn->driver_policy == HFI_DRIVER_DISPATCH)
        conn->driver = conn->target->dispatch;
    pthread_mutex_unlock(&conn->mtx);
    log_success(conn);
    conn->failures = 0;
    conn->ping_sent_ms = 0;
    conn->ready_since_ms = hfi_now_ms();
    if (conn->was_ready && !conn->renews && conn->target->reconnects != NULL)
        atomic_fetch_add(conn->target->reconnects, 1);
    conn->was_ready = true;
    hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->alarm,
                  hfi_now_ms() + conn->target->ping_interval_ms);
    pthread_mutex_lock(&conn->mtx);
    hfi_conn_notify_wants_locked(conn, HF_OK, NULL);
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
    conn->id.id = 0;
    pthread_mutex_unlock(&conn->mtx);
    /* it may be another server */
    atomic_store(&conn->clock_read_ms, 0);
    atomic_store(&conn->clock_stepped_ms, 0);
    conn->greeted = false;
    int err = new_reader(conn) ? HF_OK : hfi_fail(&error, HF_ENOMEM, "out of memory");
    if (err == HF_OK)
        err = conn->target->protocol->greet(conn, &conn->greeting, &error);
    if (err == HF_OK)
        hfi_conn_flush(conn);
    else
        host_failed(conn, err, &error);
}

int hfi_conn_greeted(struct hfi_conn *conn, const void *message, hf_error *error) {
    if (conn->greeted)
        return hfi_fail(error, HF_EPROTO, "the server sent an unexpected reply");
    return conn->target->protocol->greeted(conn->greeting, message, &conn->greeted, error);
}

/* ---- TLS ---- */

/* Continues the handshake with what has been fed. Even a failure may have output: the alert that
 * says why. */
static void go_on_with_tls(struct hfi_conn *conn) {
    hf_error error;
    bool done = false;
    hfi_error_clear(&error);
    pthread_mutex_lock(&conn->mtx);
    int err = hfi_tls_handshake(conn->tls, &done, &error);
    hfi_conn_flush_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
    if (err != HF_OK)
        host_failed(conn, err, &error);
    else if (done)
        greet(conn);
}

static void connected(struct hfi_conn *conn) {
    atomic_store(&conn->last_rx_ms, 0);
    if (host_of(conn)->tls == NULL) {
        greet(conn);
        return;
    }
    pthread_mutex_lock(&conn->mtx);
    conn->tls = hfi_tls_new(host_of(conn)->tls);
    bool made = conn->tls != NULL;
    if (made)
        conn->state = CONN_TLS;
    pthread_mutex_unlock(&conn->mtx);
    if (made)
        go_on_with_tls(conn);
    else
        host_failed_errno(conn, HF_ENOMEM, ENOMEM, "out of memory for TLS");
}

/* The socket may be writable again, and there may be more to send. */
static void flush_again(struct hfi_conn *conn) {
    atomic_store(&conn->blocked, false);
    hfi_conn_flush(conn);
}

static void progress_tls(struct hfi_conn *conn) {
    hf_error error;
    hfi_error_clear(&error);
    int err = hfi_conn_read_tls_handshake(conn, &error);
    if (err != HF_OK) {
        host_failed(conn, err, &error);
        return;
    }
    flush_again(conn);
    go_on_with_tls(conn);
}

/* ---- Connect ---- */

/* The eventfd that wakes a driving caller. Made with the first socket: a connection that is
 * never opened costs no descriptor. */
static bool make_wakeable(struct hfi_conn *conn) {
    bool callers =
        conn->driver_policy == HFI_DRIVER_CALLERS || conn->driver_policy == HFI_DRIVER_LISTENERS;
    if (callers && conn->wake_fd < 0)
        conn->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return !callers || conn->wake_fd >= 0;
}

/* Connects a new socket. Returns 0; EINPROGRESS; or another errno, without a socket then. ESTALE: the
 * path led to another server, or to none, before or after: we may be connected to either. */
static int open_socket(const struct hfi_conn *conn, const struct hfi_addr *addr, int *ret_fd,
                       struct hfi_identity *ret_identity) {
    struct hfi_identity before = {0};
    int fd = socket(addr->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int on = 1;
    if (addr->sa.ss_family != AF_UNIX) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    if (conn->target->identified)
        hfi_identity_of(addr, &before);
    int err = connect(fd, (const struct sockaddr *)&addr->sa, addr->len) == 0 ? 0 : errno;
    bool identified = !conn->target->identified || (hfi_identity_of(addr, ret_identity) &&
                                                    hfi_identity_same(&before, ret_identity));
    if ((err == 0 || err == EINPROGRESS) && !identified)
        err = ESTALE;
    if (err == 0 || err == EINPROGRESS)
        *ret_fd = fd;
    else
        close(fd);
    return err;
}

static void try_next_address(struct hfi_conn *conn, int sys_errno) {
    while (conn->addrs_next < conn->addrs_len) {
        if (!make_wakeable(conn)) {
            sys_errno = errno;
            break;
        }
        const struct hfi_addr *addr = &conn->addrs[conn->addrs_next++];
        struct hfi_identity identity = {0};
        int fd = -1, err = ESTALE;
        for (int tries = 0; tries < STALE_TRIES_MAX && err == ESTALE; tries++)
            err = open_socket(conn, addr, &fd, &identity);
        if (err != 0 && err != EINPROGRESS) {
            sys_errno = err;
            continue;
        }
        pthread_mutex_lock(&conn->mtx);
        conn->fd = fd;
        conn->identity = identity;
        conn->state = CONN_CONNECTING;
        pthread_mutex_unlock(&conn->mtx);
        if (err == 0)
            connected(conn);
        return;
    }
    bool ours = sys_errno == EMFILE || sys_errno == ENFILE || sys_errno == ENOMEM;
    host_failed_errno(conn, ours ? HF_ESYS : HF_EUNREACH, sys_errno, "cannot connect");
}

/* Could the server want TLS? It may then close the connection silently. But a server that ever
 * answered us, or a Unix socket, does not want it. */
static bool may_want_tls(const struct hfi_conn *conn) {
    const struct hfi_addr *addr = &conn->addrs[conn->addrs_next - 1];
    return conn->target->protocol->may_want_tls != NULL && conn->tls == NULL &&
           addr->sa.ss_family != AF_UNIX && atomic_load(&conn->last_rx_ms) == 0 &&
           atomic_load(&conn->target->last_answer_ms) == 0;
}

/* The server closed during the greeting: explains why, as far as known. */
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
            host_failed(conn, err, &error);
        else if (conn->greeted)
            now_ready(conn); /* only now: another thread may drive it at once */
        else
            flush_again(conn);
    }
}

static void lookup_finished(void *arg) {
    hfi_exec_wake(hfi_keeper_exec(arg));
}

static void begin_lookup(struct hfi_conn *conn, const struct hfi_host *host) {
    hf_error error;
    hfi_error_clear(&error);
    int err = hfi_lookup_start(host->resolve, host->resolve_arg, conn->host_deadline_ms,
                               lookup_finished, conn->target->keeper, &conn->lookup, &error);
    if (err != HF_OK) {
        host_failed(conn, err, &error);
        return;
    }
    pthread_mutex_lock(&conn->mtx);
    conn->state = CONN_RESOLVING;
    pthread_mutex_unlock(&conn->mtx);
}

static void try_host(struct hfi_conn *conn) {
    const struct hfi_host *host = host_of(conn);
    int64_t now_ms = hfi_now_ms();
    conn->host_deadline_ms =
        now_ms + (conn->connect_deadline_ms - now_ms) / (int64_t)conn->hosts_left;
    hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->alarm, conn->host_deadline_ms);
    conn->addrs_next = 0;
    if (host->resolve != NULL) {
        begin_lookup(conn, host);
        return;
    }
    conn->addrs[0] = host->address;
    conn->addrs_len = 1;
    try_next_address(conn, 0);
}

void hfi_conn_start_connecting(struct hfi_conn *conn) {
    const struct hfi_target *target = conn->target;
    /* Read the clock now: the keeper's round may have begun before the want was made. */
    conn->connect_deadline_ms = hfi_now_ms() + target->cmd_timeout_ms;
    conn->hosts_left = target->hosts_len;
    conn->renews = atomic_exchange(&conn->renewing, false);
    if (target->hosts_len > 1 && !conn->renews)
        conn->host = (conn->has_tried ? conn->host + 1 : hfi_jitter_bits(conn)) % target->hosts_len;
    conn->has_tried = true;
    conn->nowhere = 0;
    pthread_mutex_lock(&conn->mtx);
    hfi_error_clear(&conn->why);
    pthread_mutex_unlock(&conn->mtx);
    try_host(conn);
}

void hfi_conn_poll_lookup(struct hfi_conn *conn) {
    hf_error error;
    int err;
    hfi_error_clear(&error);
    if (!hfi_lookup_poll(conn->lookup, &err, conn->addrs, HFI_LOOKUP_MAX_ADDRS, &conn->addrs_len,
                         &error))
        return;
    hfi_lookup_drop(conn->lookup);
    conn->lookup = NULL;
    conn->nowhere += err == HF_EUNREACH && error.sys_errno == ENOENT;
    if (err != HF_OK)
        host_failed(conn, err, &error);
    else
        try_next_address(conn, 0);
}

int hfi_conn_failure(struct hfi_conn *conn, hf_error *ret) {
    pthread_mutex_lock(&conn->mtx);
    int err = conn->state == CONN_DOWN ? conn->why.code : HF_OK;
    if (err != HF_OK)
        *ret = conn->why;
    pthread_mutex_unlock(&conn->mtx);
    return err;
}

/* A server without TLS takes our ClientHello for the start of a command, and waits for the rest. */
const char *hfi_conn_hint(struct hfi_conn *conn) {
    pthread_mutex_lock(&conn->mtx);
    bool in_handshake = conn->state == CONN_TLS, answered = atomic_load(&conn->last_rx_ms) != 0;
    pthread_mutex_unlock(&conn->mtx);
    if (!in_handshake)
        return NULL;
    return answered ? "the TLS handshake timed out"
                    : "no answer to the TLS handshake; does this server use TLS?";
}

void hfi_conn_host_is_silent(struct hfi_conn *conn) {
    const char *hint = hfi_conn_hint(conn);
    if (hint == NULL)
        hint = conn->state == CONN_GREETING ? "the server accepts connections, but does not "
                                              "answer"
                                            : "cannot connect";
    host_failed_errno(conn, HF_EUNREACH, ETIMEDOUT, hint);
}

/* Without a greeting no answer comes, so do not wait for the deadline. */
void hfi_conn_give_up_greeting(struct hfi_conn *conn) {
    hfi_conn_progress(conn); /* what the server said before may tell why */
    if (!atomic_load(&conn->broken) || (conn->state != CONN_TLS && conn->state != CONN_GREETING))
        return; /* it did, and that host failed; or nothing was left to send */
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail(&error, HF_EUNREACH, "cannot send the handshake");
    if (conn->state == CONN_GREETING)
        explain_end(conn, &error);
    host_failed(conn, HF_EUNREACH, &error);
}
