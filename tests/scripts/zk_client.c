/* The clients of zk_model.h: they acquire, hold for a while and release, by the rules of the
 * engine, and check their clock every few ms. A paused client does nothing and receives nothing; it
 * still believes that it holds the lock. */
#include "zk_world.h"

#include "support/wait.h"

#define QUARTER_MS (TIMEOUT_MS / 4)
#define PING_AFTER_MS (TIMEOUT_MS / 3)

/* ---- What it believes ------------------------------------------------------------------------- */

/* When the latest packet was sent that lies a quarter before the request, whether or not it had arrived
 * by then. */
static int latest_packet_before(const struct client *c, int sent_ms) {
    for (int i = c->packets_len; i > 0 && i > c->packets_len - PACKETS_MAX; i--)
        if (c->packets_ms[(i - 1) % PACKETS_MAX] <= sent_ms - QUARTER_MS)
            return c->packets_ms[(i - 1) % PACKETS_MAX];
    return 0;
}

static int good_until_ms(const struct zk_model *m, const struct client *c) {
    switch (m->discipline) {
    case ZK_PINGS_AS_PROOF:
        return c->answered_ms + 3 * QUARTER_MS;
    case ZK_FROM_HEARTBEAT:
        return c->committed_ms + 3 * QUARTER_MS;
    case ZK_FROM_PACKETS:
        return c->known_ms + TIMEOUT_MS;
    default:
        return (int)c->trust.good_until_ms;
    }
}

bool believes(struct zk_model *m, int client) {
    const struct client *c = &m->clients[client];
    return c->state == HOLDING && m->play.now < good_until_ms(m, c);
}

static void was_committed(struct zk_model *m, struct client *c, int sent_ms) {
    hfi_zk_validity_committed(&c->trust, m->play.now);
    c->committed_ms = larger(c->committed_ms, sent_ms);
    c->known_ms = larger(c->known_ms, latest_packet_before(c, sent_ms));
}

static void was_connected(struct client *c, int sent_ms) {
    c->committed_ms = larger(c->committed_ms, sent_ms);
    c->known_ms = larger(c->known_ms, sent_ms);
    c->packets_len = 0;
    c->packets_ms[c->packets_len++] = sent_ms;
}

/* ---- What it says ----------------------------------------------------------------------------- */

static void ask_for(struct zk_model *m, int client, enum request request, int node) {
    struct client *c = &m->clients[client];
    if (c->connection == 0 || (!c->connected && request != CONNECT))
        return;
    struct connection *to = &m->connections[c->connection];
    int delay_ms = some_delay(m, 12, TIMEOUT_MS / 2);
    m->tally.held_up += delay_ms > QUARTER_MS;
    to->to_ms = larger(to->to_ms, m->play.now + delay_ms);
    struct event *event = schedule(m, to->to_ms, AT_FOLLOWER, to->follower);
    event->connection = c->connection;
    event->message = (struct message){.request = request,
                                      .sent_ms = m->play.now,
                                      .session = c->session,
                                      .uuid = c->uuid,
                                      .node = node,
                                      .seen = c->seen};
    if (c->asked_len == PENDING_MAX)
        support_die("too much was asked");
    c->asked_ms[c->asked_len++] = m->play.now;
    c->packets_ms[c->packets_len++ % PACKETS_MAX] = m->play.now;
}

static void check(struct zk_model *m, int client) {
    m->clients[client].checking_since_ms = m->play.now;
    ask_for(m, client, CHECK, m->clients[client].node);
}

static void come_to(struct zk_model *m, struct client *c, enum client_state state) {
    c->state = state;
    c->settling = false;
    c->act_ms = m->play.now + (int)roll(&m->play, state == IDLE ? 100 : 2 * TIMEOUT_MS);
}

static void drop_connection(struct zk_model *m, int client) {
    struct client *c = &m->clients[client];
    if (c->connection != 0)
        ensemble_close(m, c->connection, false);
    c->connection = 0;
    c->connected = false;
    c->asked_len = c->watched = 0;
}

static void give_back(struct zk_model *m, int client) {
    come_to(m, &m->clients[client], RELEASING);
    ask_for(m, client, DELETE, m->clients[client].node);
}

static void grant(struct zk_model *m, int client, bool by_event) {
    struct client *c = &m->clients[client];
    if (good_until_ms(m, c) - m->play.now < TIMEOUT_MS / 2) {
        m->tally.proved_first += c->state != PROVING;
        c->state = PROVING;
        check(m, client);
        return;
    }
    note(&m->play, "%d holds node %d until %d%s", client, c->node, good_until_ms(m, c),
         by_event ? ", by an event" : "");
    m->tally.held++;
    m->tally.by_event += by_event;
    come_to(m, c, HOLDING);
}

static void begin_acquire(struct zk_model *m, int client) {
    struct client *c = &m->clients[client];
    c->uuid = ++m->uuids;
    c->node = 0;
    come_to(m, c, CREATING);
    ask_for(m, client, CREATE, 0);
    ask_for(m, client, LIST, 0);
}

/* ---- What it hears ---------------------------------------------------------------------------- */

static void lose(struct zk_model *m, int client, const char *why) {
    struct client *c = &m->clients[client];
    note(&m->play, "%d: %s", client, why);
    m->tally.lost += c->state == HOLDING;
    come_to(m, c, IDLE);
}

/* With the same session: finds out what became of what was on its way. */
static void go_on(struct zk_model *m, int client) {
    struct client *c = &m->clients[client];
    m->tally.reconnected++;
    switch (c->state) {
    case CREATING:
        c->settling = true;
        if (m->discipline != ZK_WITHOUT_SYNC)
            ask_for(m, client, SYNC, 0);
        ask_for(m, client, LIST, 0);
        break;
    case WAITING:
    case PROVING:
        c->state = WAITING;
        ask_for(m, client, LIST, 0);
        ask_for(m, client, CHECK, c->node);
        break;
    case HOLDING:
        check(m, client);
        break;
    case RELEASING:
        ask_for(m, client, DELETE, c->node);
        break;
    default:
        break;
    }
}

static void connected(struct zk_model *m, int client, const struct message *message) {
    struct client *c = &m->clients[client];
    bool same = message->session == c->session;
    c->connected = true;
    c->session = message->session;
    if (same) {
        hfi_zk_validity_connected(&c->trust, TIMEOUT_MS, message->sent_ms);
    } else {
        hfi_zk_validity_begin(&c->trust, TIMEOUT_MS, 1000, message->sent_ms);
        c->known_ms = c->committed_ms = c->answered_ms = 0;
    }
    was_connected(c, message->sent_ms);
    if (same)
        go_on(m, client);
    else if (c->state != IDLE)
        lose(m, client, "its session is over");
}

static void listed(struct zk_model *m, int client, const struct message *message) {
    struct client *c = &m->clients[client];
    if (c->state != CREATING && c->state != WAITING)
        return;
    if (!message->found && c->settling) {
        m->tally.created_again++;
        c->settling = false;
        ask_for(m, client, CREATE, 0);
        ask_for(m, client, LIST, 0);
        return;
    }
    if (!message->found) {
        lose(m, client, "its place in line is gone");
        return;
    }
    m->tally.found += c->settling;
    c->settling = false;
    c->node = message->node;
    if (message->before == 0) {
        grant(m, client, false);
        return;
    }
    c->state = WAITING;
    c->watched = message->before;
    c->only_before = message->only_before;
    ask_for(m, client, WATCH, c->watched);
}

static void checked(struct zk_model *m, int client, const struct message *message) {
    struct client *c = &m->clients[client];
    c->checking_since_ms = 0;
    if (message->node != c->node)
        return;
    if (message->outcome != DONE && (c->state == HOLDING || c->state == PROVING)) {
        lose(m, client, "its node is gone");
    } else if (c->state == PROVING && good_until_ms(m, c) - m->play.now >= TIMEOUT_MS / 2) {
        grant(m, client, false);
    } else if (c->state == HOLDING) {
        m->tally.renewed++;
    }
}

static void heard_event(struct zk_model *m, int client, const struct message *message) {
    struct client *c = &m->clients[client];
    if (c->state != WAITING || message->node != c->watched)
        return;
    c->watched = 0;
    if (c->only_before)
        grant(m, client, true);
    else
        ask_for(m, client, LIST, 0);
}

static void heard(struct zk_model *m, int client, const struct message *message) {
    struct client *c = &m->clients[client];
    if (message->request == CREATE || message->request == CHECK || message->request == DELETE)
        was_committed(m, c, message->sent_ms);
    switch (message->request) {
    case CONNECT:
        connected(m, client, message);
        break;
    case CREATE:
        c->node = message->node;
        break;
    case LIST:
        listed(m, client, message);
        break;
    case WATCH:
        if (message->outcome == NO_NODE && c->state == WAITING)
            ask_for(m, client, LIST, 0);
        break;
    case CHECK:
        checked(m, client, message);
        break;
    case DELETE:
        if (c->state == RELEASING) {
            m->tally.released++;
            come_to(m, c, IDLE);
        }
        break;
    default:
        break;
    }
}

/* What runs out does so before anything else is heard. */
static void look_at_clock(struct zk_model *m, int client) {
    struct client *c = &m->clients[client];
    if (c->state != HOLDING || m->play.now < good_until_ms(m, c))
        return;
    note(&m->play, "%d: time is up", client);
    m->tally.ran_out++;
    give_back(m, client);
}

/* Puts off what comes to one who is paused. */
static bool is_paused(struct zk_model *m, const struct event *event) {
    int until_ms = m->clients[event->who].paused_until_ms;
    if (m->play.now >= until_ms)
        return false;
    struct event *later = schedule(m, until_ms, event->kind, event->who);
    later->connection = event->connection;
    later->message = event->message;
    return true;
}

void at_client(struct zk_model *m, const struct event *event) {
    struct client *c = &m->clients[event->who];
    if (is_paused(m, event) || event->connection != c->connection)
        return;
    look_at_clock(m, event->who);
    const struct message *message = &event->message;
    c->seen = larger(c->seen, message->zxid);
    if (message->is_event) {
        heard_event(m, event->who, message);
        return;
    }
    for (int i = 1; i < c->asked_len; i++)
        c->asked_ms[i - 1] = c->asked_ms[i];
    c->asked_len--;
    if (message->request != CONNECT && (message->outcome == EXPIRED || message->outcome == MOVED)) {
        drop_connection(m, event->who);
        return;
    }
    c->answered_ms = larger(c->answered_ms, message->sent_ms);
    heard(m, event->who, message);
}

void client_closed(struct zk_model *m, const struct event *event) {
    if (!is_paused(m, event) && event->connection == m->clients[event->who].connection)
        drop_connection(m, event->who);
}

/* ---- What it does by itself ------------------------------------------------------------------- */

/* Whether it goes by the library's arithmetic. */
static bool counts_handshakes(const struct zk_model *m) {
    return m->discipline == ZK_CAREFUL || m->discipline == ZK_WITHOUT_SYNC;
}

/* The session has to be proved by another handshake, and nothing is on its way. */
static bool renews(const struct zk_model *m, const struct client *c) {
    bool idle = c->state == IDLE && m->play.now < c->act_ms;
    return counts_handshakes(m) && c->asked_len == 0 && !idle &&
           m->play.now >= hfi_zk_prove_at_ms(&c->trust);
}

static int last_packet_ms(const struct client *c) {
    return c->packets_len > 0 ? c->packets_ms[(c->packets_len - 1) % PACKETS_MAX] : 0;
}

static void do_what_is_due(struct zk_model *m, int client) {
    struct client *c = &m->clients[client];
    int now_ms = m->play.now;
    bool wants_proof = c->state == HOLDING || c->state == PROVING;
    if (c->state == HOLDING && now_ms >= c->act_ms)
        give_back(m, client);
    else if (c->state == IDLE && now_ms >= c->act_ms)
        begin_acquire(m, client);
    else if (wants_proof && c->checking_since_ms == 0 && !counts_handshakes(m) &&
             now_ms >= c->committed_ms + QUARTER_MS)
        check(m, client);
    else if (!wants_proof && now_ms - last_packet_ms(c) >= PING_AFTER_MS)
        ask_for(m, client, PING, 0);
}

static void connect_somewhere(struct zk_model *m, int client) {
    struct client *c = &m->clients[client];
    c->connection = ensemble_connect(m, client);
    c->checking_since_ms = 0;
    if (counts_handshakes(m) && hfi_zk_is_spent(&c->trust, m->play.now))
        c->session = 0;
    ask_for(m, client, CONNECT, 0);
}

void client_timer(struct zk_model *m, const struct event *event) {
    if (is_paused(m, event))
        return;
    struct client *c = &m->clients[event->who];
    schedule(m, m->play.now + 20 + (int)roll(&m->play, 20), TIMER, event->who);
    look_at_clock(m, event->who);
    if (c->asked_len > 0 && m->play.now - c->asked_ms[0] > PING_AFTER_MS)
        drop_connection(m, event->who);
    if (c->connected && renews(m, c))
        drop_connection(m, event->who);
    if (c->connection == 0)
        connect_somewhere(m, event->who);
    else if (c->connected)
        do_what_is_due(m, event->who);
}
