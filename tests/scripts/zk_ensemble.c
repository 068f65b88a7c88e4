/* The servers of zk_model.h.
 *
 * The leader's tree is `nodes` with the transactions that made and ended each; what a follower shows is
 * the same up to the transaction that it has applied. Requests of a connection are answered in order;
 * writes are forwarded as they come. What was on its way when a follower was cut off, or died, is lost. */
#include "zk_world.h"

#include "support/wait.h"

static void pump(struct zk_model *m, int connection);

void ensemble_begin(struct zk_model *m) {
    for (int i = 0; i < FOLLOWERS; i++) {
        m->followers[i] = (struct follower){0};
        schedule(m, (int)roll(&m->play, (unsigned)m->half_tick_ms), REPORT, i);
    }
    m->nodes_len = m->sessions_len = m->connections_len = 1; /* 0 is none */
}

/* ---- Connections ------------------------------------------------------------------------------ */

int ensemble_connect(struct zk_model *m, int client) {
    int follower = (int)roll(&m->play, FOLLOWERS);
    if (m->followers[follower].dead)
        follower = (follower + 1) % FOLLOWERS;
    if (m->connections_len == CONNECTIONS_MAX)
        support_die("too many connections");
    int connection = m->connections_len++;
    m->connections[connection] =
        (struct connection){.client = client, .follower = follower, .open = true};
    return connection;
}

/* What the follower has of it is gone, and so is what is on its way; requests that were forwarded are
 * not. */
void ensemble_close(struct zk_model *m, int connection, bool notified) {
    struct connection *c = &m->connections[connection];
    if (c->open && notified)
        schedule(m, m->play.now + some_delay(m, 0, 0), CLOSED, c->client)->connection = connection;
    c->open = false;
    c->pending_len = 0;
}

static void answer(struct zk_model *m, int connection, const struct message *message) {
    struct connection *c = &m->connections[connection];
    int at_ms = larger(c->back_ms, m->play.now + some_delay(m, 40, TIMEOUT_MS / 4));
    c->back_ms = at_ms;
    struct event *event = schedule(m, at_ms, AT_CLIENT, c->client);
    event->connection = connection;
    event->message = *message;
}

/* ---- A follower ------------------------------------------------------------------------------- */

static bool shows(const struct follower *f, const struct node *node) {
    return node->created <= f->applied && (node->deleted == 0 || node->deleted > f->applied);
}

static void list(struct zk_model *m, const struct follower *f, struct message *message) {
    int lower = 0;
    message->found = false;
    for (int i = 1; i < m->nodes_len && !message->found; i++)
        if (shows(f, &m->nodes[i]) && m->nodes[i].uuid == message->uuid) {
            message->found = true;
            message->node = i;
        }
    message->before = 0;
    for (int i = 1; message->found && i < message->node; i++)
        if (shows(f, &m->nodes[i])) {
            message->before = i;
            lower++;
        }
    message->only_before = lower == 1;
}

static bool is_write(enum request request) {
    return request == CONNECT || request == CREATE || request == SYNC || request == CHECK ||
           request == DELETE;
}

/* Answers a read from what the follower has. */
static void read_here(struct zk_model *m, struct connection *c, struct message *message) {
    struct follower *f = &m->followers[c->follower];
    message->zxid = f->applied;
    if (message->request == LIST)
        list(m, f, message);
    if (message->request != WATCH)
        return;
    message->outcome = shows(f, &m->nodes[message->node]) ? DONE : NO_NODE;
    if (message->outcome == DONE)
        c->watched = message->node;
}

/* Answers what can be answered, in order. */
static void pump(struct zk_model *m, int connection) {
    struct connection *c = &m->connections[connection];
    while (c->open && c->pending_len > 0) {
        struct pending *first = &c->pending[0];
        if (!is_write(first->message.request))
            read_here(m, c, &first->message);
        else if (!first->decided || first->message.zxid > m->followers[c->follower].applied)
            return;
        answer(m, connection, &first->message);
        for (int i = 1; i < c->pending_len; i++)
            c->pending[i - 1] = c->pending[i];
        c->pending_len--;
    }
}

static void forward(struct zk_model *m, int follower, struct event *event) {
    struct follower *f = &m->followers[follower];
    event->at_ms = f->to_leader_ms =
        larger(f->to_leader_ms, event->at_ms + some_delay(m, 60, TIMEOUT_MS / 2));
    event->epoch = f->epoch;
}

void at_follower(struct zk_model *m, const struct event *event) {
    struct connection *c = &m->connections[event->connection];
    struct follower *f = &m->followers[c->follower];
    if (!c->open || f->dead)
        return;
    if (event->message.request == CONNECT && event->message.seen > f->applied) {
        ensemble_close(m, event->connection, true);
        return;
    }
    if (c->pending_len == PENDING_MAX)
        support_die("too many requests");
    f->heard[event->message.session] = true;
    c->pending[c->pending_len++] = (struct pending){.message = event->message};
    if (is_write(event->message.request)) {
        struct event *forwarded = schedule(m, m->play.now, AT_LEADER, c->follower);
        forwarded->connection = event->connection;
        forwarded->message = event->message;
        forward(m, c->follower, forwarded);
    }
    pump(m, event->connection);
}

static void tell_watchers(struct zk_model *m, int follower) {
    for (int i = 1; i < m->connections_len; i++) {
        struct connection *c = &m->connections[i];
        if (!c->open || c->follower != follower || c->watched == 0 ||
            shows(&m->followers[follower], &m->nodes[c->watched]))
            continue;
        struct message event = {.is_event = true, .node = c->watched, .zxid = m->zxid};
        event.zxid = m->followers[follower].applied;
        c->watched = 0;
        answer(m, i, &event);
    }
}

static void catch_up(struct zk_model *m, int follower, int zxid) {
    struct follower *f = &m->followers[follower];
    f->applied = larger(f->applied, zxid);
    tell_watchers(m, follower);
    for (int i = 1; i < m->connections_len; i++)
        if (m->connections[i].open && m->connections[i].follower == follower)
            pump(m, i);
}

void follower_applies(struct zk_model *m, const struct event *event) {
    struct follower *f = &m->followers[event->who];
    if (!f->cut && !f->dead && event->epoch == f->epoch)
        catch_up(m, event->who, event->number);
}

static void come_back(struct zk_model *m, int follower) {
    struct follower *f = &m->followers[follower];
    for (int i = 1; i < m->connections_len; i++)
        if (m->connections[i].follower == follower)
            ensemble_close(m, i, true);
    *f = (struct follower){.applied = m->zxid, .epoch = f->epoch + 1};
}

void follower_reports(struct zk_model *m, const struct event *event) {
    struct follower *f = &m->followers[event->who];
    int next_ms = chance(m, 4) ? (int)roll(&m->play, 2 * TIMEOUT_MS) : m->half_tick_ms;
    schedule(m, m->play.now + next_ms, REPORT, event->who);
    if ((f->cut || f->dead) && m->play.now >= f->away_until_ms)
        come_back(m, event->who);
    for (int i = 1; i < m->sessions_len; i++) {
        if (!f->heard[i] || f->cut || f->dead)
            continue;
        struct event *touch = schedule(m, m->play.now, TOUCH, event->who);
        touch->number = i;
        forward(m, event->who, touch);
        f->heard[i] = false;
    }
}

/* ---- The leader ------------------------------------------------------------------------------- */

static int commit(struct zk_model *m) {
    m->zxid++;
    for (int i = 0; i < FOLLOWERS; i++) {
        struct follower *f = &m->followers[i];
        f->applied_at_ms =
            larger(f->applied_at_ms, m->play.now + some_delay(m, 10, TIMEOUT_MS / 2));
        struct event *event = schedule(m, f->applied_at_ms, APPLY, i);
        event->number = m->zxid;
        event->epoch = f->epoch;
    }
    return m->zxid;
}

static void touch(struct zk_model *m, int session) {
    struct session *s = &m->sessions[session];
    if (!s->alive)
        return;
    s->expires_ms = m->play.now + TIMEOUT_MS;
    schedule(m, s->expires_ms, EXPIRY, session);
}

void leader_touches(struct zk_model *m, const struct event *event) {
    const struct follower *f = &m->followers[event->who];
    if (!f->cut && !f->dead && event->epoch == f->epoch)
        touch(m, event->number);
}

void leader_expires(struct zk_model *m, const struct event *event) {
    struct session *s = &m->sessions[event->who];
    if (!s->alive || s->expires_ms > m->play.now)
        return;
    note(&m->play, "session %d is over", event->who);
    m->tally.expired++;
    s->alive = false;
    int zxid = commit(m);
    for (int i = 1; i < m->nodes_len; i++)
        if (m->nodes[i].session == event->who && m->nodes[i].deleted == 0)
            m->nodes[i].deleted = zxid;
}

/* A session that lives goes on, on this connection alone, and no transaction says so: the follower need
 * not have caught up. Else there is a new one. */
static void open_session(struct zk_model *m, int connection, struct message *message) {
    if (message->session == 0 || !m->sessions[message->session].alive) {
        if (m->sessions_len == SESSIONS_MAX)
            support_die("too many sessions");
        message->outcome = message->session == 0 ? DONE : EXPIRED;
        message->session = m->sessions_len++;
        m->sessions[message->session] = (struct session){.alive = true};
        message->zxid = commit(m);
    }
    m->sessions[message->session].connection = connection;
    touch(m, message->session);
}

static void create(struct zk_model *m, struct message *message) {
    for (int i = 1; i < m->nodes_len; i++)
        if (m->nodes[i].uuid == message->uuid && m->nodes[i].deleted == 0)
            violated(&m->play, "a second node of one acquire, behind %d", i);
    if (m->nodes_len == NODES_MAX)
        support_die("too many nodes");
    message->node = m->nodes_len++;
    m->nodes[message->node] =
        (struct node){.uuid = message->uuid, .session = message->session, .created = message->zxid};
}

static void decide(struct zk_model *m, int connection, struct message *message) {
    message->outcome = DONE;
    if (message->request == CONNECT) {
        open_session(m, connection, message);
        return;
    }
    message->zxid = m->zxid;
    const struct session *s = &m->sessions[message->session];
    if (!s->alive || s->connection != connection) {
        message->outcome = s->alive ? MOVED : EXPIRED;
        m->tally.moved += s->alive;
        return;
    }
    if (message->request == SYNC)
        return;
    bool there = m->nodes[message->node].deleted == 0;
    message->zxid = commit(m);
    if (message->request == CREATE)
        create(m, message);
    else
        message->outcome = there ? DONE : NO_NODE;
    if (message->request == DELETE && there)
        m->nodes[message->node].deleted = message->zxid;
}

/* The connection may be gone: then it acts all the same, and nobody hears of it. */
static struct pending *undecided(struct connection *c, const struct message *message) {
    for (int i = 0; i < c->pending_len; i++)
        if (!c->pending[i].decided && c->pending[i].message.request == message->request &&
            c->pending[i].message.sent_ms == message->sent_ms)
            return &c->pending[i];
    return NULL;
}

void at_leader(struct zk_model *m, const struct event *event) {
    const struct follower *f = &m->followers[event->who];
    if (f->cut || f->dead || event->epoch != f->epoch)
        return;
    struct connection *c = &m->connections[event->connection];
    struct message message = event->message;
    decide(m, event->connection, &message);
    struct pending *pending = c->open ? undecided(c, &event->message) : NULL;
    if (pending == NULL)
        return;
    *pending = (struct pending){.message = message, .decided = true};
    pump(m, event->connection);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static void break_connection(struct zk_model *m, int client) {
    int connection = m->clients[client].connection;
    if (connection != 0) {
        note(&m->play, "the connection of %d breaks", client);
        ensemble_close(m, connection, true);
    }
}

/* One of them at a time: there is always a quorum. */
static void lose_follower(struct zk_model *m, bool dies) {
    int which = (int)roll(&m->play, FOLLOWERS);
    for (int i = 0; i < FOLLOWERS; i++)
        if (m->followers[i].cut || m->followers[i].dead)
            return;
    struct follower *f = &m->followers[which];
    note(&m->play, "follower %d %s", which, dies ? "dies" : "is cut off");
    f->cut = !dies;
    f->dead = dies;
    f->away_until_ms = m->play.now + TIMEOUT_MS / 2 + (int)roll(&m->play, 3 * TIMEOUT_MS);
    m->tally.cut += !dies;
    m->tally.died += dies;
    bool notified = chance(m, 2);
    for (int i = 1; dies && i < m->connections_len; i++)
        if (m->connections[i].follower == which)
            ensemble_close(m, i, notified);
}

void inject_fault(struct zk_model *m) {
    switch (roll(&m->play, 4)) {
    case 0:
        lose_follower(m, false);
        break;
    case 1:
        lose_follower(m, true);
        break;
    case 2:
        break_connection(m, (int)roll(&m->play, CLIENTS));
        break;
    default:
        m->clients[roll(&m->play, CLIENTS)].paused_until_ms =
            m->play.now + (int)roll(&m->play, TIMEOUT_MS * 3 / 4);
        m->tally.paused++;
    }
    schedule(m, m->play.now + (int)roll(&m->play, TIMEOUT_MS), FAULT, 0);
}
