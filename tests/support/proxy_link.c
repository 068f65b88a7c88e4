/*
 * One connection through the proxy: a client's socket, the server's socket, and what is between
 * them.
 *
 * Called by the proxy's loop (proxy.c) only, with the proxy's mutex held; the sockets are touched
 * by that thread alone. All sockets are non-blocking: link_pump moves what can be moved and
 * returns.
 *
 * Invariants: bytes of the client wait in from_client until they make a whole command whose turn
 * has come; then its rule is applied and it goes to to_server, with one entry in `due` for its
 * reply. Replies are taken whole from from_server and matched with `due` in order. On a connection
 * that subscribed, replies are not one for one, so `due` is no longer used there. A socket that has
 * ended is closed at once and -1; what the other direction still holds is delivered first.
 */
#include "support/proxy_internal.h"
#include "support/wait.h"

#include <assert.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REACH_MS = 5000 };

/* ---- Ends ------------------------------------------------------------------------------------ */

/* A forked child of the test may hold copies of the descriptor, so closing would end nothing. */
static void end_socket(int *fd) {
    if (*fd < 0)
        return;
    shutdown(*fd, SHUT_RDWR);
    close(*fd);
    *fd = -1;
}

static void cut_client(struct link *link) {
    /* Dissolving a TCP association sends a reset, no matter who else has the descriptor. */
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    if (link->client >= 0 && link->tcp)
        (void)connect(link->client, &nowhere, sizeof nowhere);
    end_socket(&link->client);
    bytes_clear(&link->to_client);
}

static void cut(struct link *link) {
    cut_client(link);
    end_socket(&link->server);
    bytes_clear(&link->from_client);
    bytes_clear(&link->to_server);
    bytes_clear(&link->from_server);
}

static void lose_server(struct proxy *proxy, struct link *link) {
    end_socket(&link->server);
    bytes_clear(&link->to_server);
    if (link->late_due > 0) {
        proxy->late_failed = true;
        link->late_due = 0;
    }
}

/* ---- Replies --------------------------------------------------------------------------------- */

void rule_free(struct rule *rule) {
    if (rule == NULL)
        return;
    free(rule->matcher);
    bytes_clear(&rule->bytes);
    free(rule);
}

static void push_due(struct link *link, struct due due) {
    if (link->due_count == link->due_room) {
        link->due_room = link->due_room == 0 ? 16 : link->due_room * 2;
        link->due = realloc(link->due, link->due_room * sizeof *link->due);
        if (link->due == NULL)
            support_die("out of memory");
    }
    link->due[link->due_count++] = due;
}

static struct due take_due(struct link *link, size_t at) {
    struct due due = link->due[at];
    link->due_count--;
    memmove(link->due + at, link->due + at + 1, (link->due_count - at) * sizeof *link->due);
    if (link->late_due > 0)
        link->late_due--;
    return due;
}

static void to_client(struct link *link, const char *bytes, size_t length) {
    if (link->client >= 0 && !link->muted)
        bytes_append(&link->to_client, bytes, length);
}

/* Our own answers whose turn has come. */
static void give_local_answers(struct proxy *proxy, struct link *link) {
    while (link->due_count > 0 && link->due[0].fate == FATE_LOCAL) {
        struct due due = take_due(link, 0);
        to_client(link, due.bytes.data, due.bytes.length);
        bytes_clear(&due.bytes);
        proxy->fired++;
    }
}

void link_disarm(struct link *link) {
    for (size_t i = 0; i < link->due_count; i++) {
        rule_free(link->due[i].rule);
        link->due[i].rule = NULL;
    }
}

static void forget_due(struct link *link) {
    link_disarm(link);
    while (link->due_count > 0)
        bytes_clear(&link->due[--link->due_count].bytes);
}

/* The reply that has just come is lost, and all that would follow; those before it still arrive. */
static void drop_rest(struct proxy *proxy, struct link *link) {
    proxy->fired++;
    end_socket(&link->server);
    bytes_clear(&link->to_server);
    forget_due(link);
    link->cut_when_quiet = true;
}

/* A reply outside the order of commands: on a subscribed connection, or pushed by RESP3. */
static void take_unordered(struct proxy *proxy, struct link *link, const char *bytes,
                           size_t length) {
    if (link->late_due > 0)
        link->late_due--;
    if (link->cut_at_next)
        drop_rest(proxy, link);
    else
        to_client(link, bytes, length);
}

/* How our scripts say that a copy came after its time, and did nothing: by -3, or (renewals) by the
 * server's time in milliseconds and nothing else. */
static bool says_too_late(const char *bytes, size_t length) {
    static const char only_time[] = "*1\r\n:1700000000000\r\n";
    const char *second = memchr(bytes, '\n', length);
    size_t rest = second != NULL ? length - (size_t)(++second - bytes) : 0;
    if (bytes[0] != '*' || rest < 5 || second[0] != ':')
        return false;
    return memcmp(second, ":-3\r\n", 5) == 0 ||
           (memcmp(bytes, only_time, 5) == 0 && length >= sizeof only_time - 1);
}

/* It did nothing and will be sent again: that copy's reply is the one to lose. */
static void pass_too_late(struct proxy *proxy, struct due *due) {
    log_mark_too_late(&proxy->log, due->number);
    if (due->fate != FATE_CUT && due->fate != FATE_MUTE)
        return;
    due->fate = FATE_PASS;
    if (due->rule == NULL)
        return; /* disarmed */
    due->rule->next = proxy->rules;
    proxy->rules = due->rule;
    due->rule = NULL;
}

/* Which of those that are due it answers; due_count if it was pushed. */
static size_t answered_by(const struct proxy *proxy, const struct link *link, const char *bytes,
                          size_t length) {
    if (!proxy->speech->numbered) {
        bool pushed = bytes[0] == '>' && !(link->due_count > 0 && link->due[0].subscribes);
        return link->pubsub || pushed ? link->due_count : 0;
    }
    size_t at = 0;
    while (at < link->due_count && (length < 8 || link->due[at].fate == FATE_LOCAL ||
                                    link->due[at].id != proxy_frame_id(bytes)))
        at++;
    return at;
}

static void take_reply(struct proxy *proxy, struct link *link, const char *bytes, size_t length) {
    size_t at = answered_by(proxy, link, bytes, length);
    if (at >= link->due_count) {
        take_unordered(proxy, link, bytes, length);
        return;
    }

    struct due due = take_due(link, at);
    if (!proxy->speech->numbered && says_too_late(bytes, length))
        pass_too_late(proxy, &due);
    rule_free(due.rule);
    if (due.fate == FATE_CUT) {
        drop_rest(proxy, link);
        return;
    }
    if (due.fate != FATE_PASS)
        proxy->fired++;
    if (due.fate == FATE_MUTE)
        link->muted = true;
    if (due.fate == FATE_FORGE)
        to_client(link, due.bytes.data, due.bytes.length);
    else
        to_client(link, bytes, length);
    if (due.subscribes) {
        link->pubsub = true;
        forget_due(link);
    }
    bytes_clear(&due.bytes);
    give_local_answers(proxy, link);
}

static void move_replies(struct proxy *proxy, struct link *link) {
    while (!proxy->hole_to_client && !link->frozen && link->from_server.length > 0) {
        size_t length =
            proxy->speech->reply_length(link->from_server.data, link->from_server.length);
        if (length == 0 && link->server >= 0)
            return;
        if (length == 0 || length == RESP_BROKEN)
            length = link->from_server.length; /* the end of a torn message, or none: as it is */

        take_reply(proxy, link, link->from_server.data, length);
        bytes_consume(&link->from_server,
                      link->cut_when_quiet && link->server < 0 ? link->from_server.length : length);
    }
}

/* ---- Commands -------------------------------------------------------------------------------- */

/* What matchers are looked for in. */
static void describe(const struct proxy *proxy, struct bytes *into, const char *command,
                     size_t length) {
    if (proxy->speech->describe != NULL)
        proxy->speech->describe(into, command, length);
    else
        bytes_append(into, command, length);
}

static struct rule *take_rule(struct proxy *proxy, const char *command, size_t length) {
    for (struct rule **at = &proxy->rules; *at != NULL; at = &(*at)->next) {
        struct rule *rule = *at;
        if (resp_contains(command, length, rule->matcher)) {
            *at = rule->next;
            return rule;
        }
    }
    return NULL;
}

static bool is_subscription(const struct proxy *proxy, const char *command, size_t length) {
    if (proxy->speech->numbered || proxy->speech->opaque)
        return false;
    return resp_command_is(command, length, "SUBSCRIBE") ||
           resp_command_is(command, length, "PSUBSCRIBE") ||
           resp_command_is(command, length, "SSUBSCRIBE");
}

/* The rule is used up. */
static void forward(struct proxy *proxy, struct link *link, size_t length, struct rule *rule) {
    static const enum fate fates[] = {
        [RULE_DROP] = FATE_CUT, [RULE_MUTE] = FATE_MUTE, [RULE_FORGE] = FATE_FORGE};
    const char *command = link->from_client.data;
    enum fate fate = rule != NULL ? fates[rule->kind] : FATE_PASS;
    bytes_append(&link->to_server, command, length);
    if (proxy->speech->opaque) {
        assert(rule == NULL);
    } else if (!link->pubsub) {
        struct due due = {.fate = fate, .number = link->head_number};
        due.subscribes = is_subscription(proxy, command, length);
        due.id = proxy->speech->numbered && length >= 8 ? proxy_frame_id(command) : 0;
        if (fate == FATE_FORGE) {
            due.bytes = rule->bytes;
            rule->bytes = (struct bytes){0};
        } else {
            due.rule = rule;
            rule = NULL;
        }
        push_due(link, due);
    } else if (fate == FATE_MUTE) {
        link->muted = true;
        proxy->fired++;
    } else if (fate != FATE_PASS) {
        link->cut_at_next = true;
    }
    rule_free(rule);
}

/* Writes down the first command, and takes the rule that matches it. */
static struct rule *check_head(struct proxy *proxy, struct link *link, size_t length) {
    struct bytes text = {0};
    describe(proxy, &text, link->from_client.data, length);
    size_t looked_at = text.length < 65536 ? text.length : 65536;
    link->head_number = log_add(&proxy->log, link->id, text.data, text.length);
    struct rule *rule = take_rule(proxy, text.data, looked_at);
    bytes_clear(&text);
    return rule;
}

/* Applies the rule that matches the first command, if any. False when that keeps the command. */
static bool pass_by_rules(struct proxy *proxy, struct link *link, size_t length) {
    struct rule *rule = NULL;
    if (!link->head_checked && !proxy->speech->opaque)
        rule = check_head(proxy, link, length);
    link->head_checked = false;
    bool keeps = rule != NULL && (rule->kind == RULE_HOLD || rule->kind == RULE_STALL);
    if (rule == NULL || (!keeps && rule->kind != RULE_ANSWER)) {
        forward(proxy, link, length, rule);
        return true;
    }

    if (keeps) {
        link->held = link->head_checked = true;
        proxy->fired++;
        link->cut_when_quiet = rule->kind == RULE_HOLD;
    } else {
        if (proxy->speech->numbered && rule->bytes.length >= 8 && length >= 8)
            proxy_frame_answers(rule->bytes.data, link->from_client.data);
        push_due(link, (struct due){.fate = FATE_LOCAL, .bytes = rule->bytes});
        rule->bytes = (struct bytes){0};
        give_local_answers(proxy, link);
    }
    rule_free(rule);
    return !keeps;
}

static bool is_to_be_delayed(const struct proxy *proxy, const struct link *link, size_t length) {
    struct bytes text = {0};
    describe(proxy, &text, link->from_client.data, length);
    bool matches = resp_contains(text.data, text.length, proxy->delay_matcher);
    bytes_clear(&text);
    return matches;
}

/* True while the first command still has to wait for its time. */
static bool is_delayed(const struct proxy *proxy, struct link *link, size_t length) {
    if (link->delayed_until_ms == 0 && proxy->delay_ms > 0 && !link->head_checked &&
        is_to_be_delayed(proxy, link, length))
        link->delayed_until_ms = now_ms() + proxy->delay_ms;
    return proxy->delay_ms > 0 && now_ms() < link->delayed_until_ms;
}

static void move_commands(struct proxy *proxy, struct link *link) {
    while (link->server >= 0 && !link->held && !link->frozen && !proxy->hole_to_server) {
        size_t length =
            proxy->speech->command_length(link->from_client.data, link->from_client.length);
        if (length == RESP_BROKEN)
            length = link->from_client.length;
        if (length == 0 || is_delayed(proxy, link, length))
            return;
        link->delayed_until_ms = 0;
        if (pass_by_rules(proxy, link, length))
            bytes_consume(&link->from_client, length);
    }
}

size_t link_held_commands(const struct proxy *proxy, const struct link *link) {
    size_t commands = 0, at = 0, length;
    while (at < link->from_client.length) {
        length = proxy->speech->command_length(link->from_client.data + at,
                                               link->from_client.length - at);
        if (length == 0 || length == RESP_BROKEN)
            break;
        at += length;
        commands++;
    }
    return commands;
}

/* ---- Sockets --------------------------------------------------------------------------------- */

bool link_waits_for_server(const struct link *link) {
    return link->server < 0 && link->client >= 0 && now_ms() < link->reach_until_ms;
}

static void reach_server(const struct proxy *proxy, struct link *link) {
    link->server = proxy_reach(proxy);
    if (link->server >= 0)
        link->reach_until_ms = 0;
}

/* How much may be sent to the client now: all, or a piece if it has taken the one before. */
static size_t client_limit(const struct proxy *proxy, const struct link *link) {
    if (proxy->trickle == 0)
        return SIZE_MAX;
    int untaken = 0;
    if (ioctl(link->client, SIOCOUTQ, &untaken) < 0)
        return proxy->trickle;
    return untaken == 0 ? proxy->trickle : 0;
}

bool link_waits_for_taker(const struct proxy *proxy, const struct link *link) {
    return proxy->trickle > 0 && link->client >= 0 && link->to_client.length > 0;
}

short link_client_events(const struct proxy *proxy, const struct link *link) {
    bool writes = link->to_client.length > 0 && proxy->trickle == 0;
    return (short)(POLLIN | (writes ? POLLOUT : 0));
}

short link_server_events(const struct link *link) {
    return (short)(POLLIN | (link->to_server.length > 0 ? POLLOUT : 0));
}

/* Whether somebody counts on a reply of the server although the client has gone. */
static bool reply_matters(const struct link *link) {
    bool matters = link->late_due > 0 || link->cut_at_next;
    for (size_t i = 0; i < link->due_count; i++)
        matters = matters || link->due[i].fate != FATE_PASS;
    return matters;
}

/* Ends one side when the other has gone and nothing is left to deliver. A command that a delay or a
 * black hole keeps is left to deliver; half a command is not. */
static void settle_ends(struct proxy *proxy, struct link *link) {
    if (link->cut_when_quiet && link->due_count == 0 && link->from_server.length == 0 &&
        link->to_client.length == 0)
        cut_client(link);
    if (link->client < 0 && link->server >= 0 && !link->held && !link->frozen &&
        !proxy->hole_to_server && link->to_server.length == 0 &&
        link_held_commands(proxy, link) == 0 && !reply_matters(link))
        lose_server(proxy, link);
    if (link->server < 0 && link->client >= 0 && link->from_server.length == 0 &&
        link->to_client.length == 0 && !proxy->hole_to_client && !link->frozen &&
        !link_waits_for_server(link))
        end_socket(&link->client);
}

void link_pump(struct proxy *proxy, struct link *link) {
    if (link->cut_wanted) {
        link->cut_wanted = false;
        if (link->held)
            cut_client(link);
        else
            cut(link);
    }
    if (link->client >= 0) {
        enum flow flow = proxy_receive(link->client, &link->from_client);
        if (flow != FLOW_OPEN) {
            end_socket(&link->client);
            bytes_clear(&link->to_client);
        }
        if (flow == FLOW_RESET && !link->held)
            bytes_clear(&link->from_client);
    }
    if (link_waits_for_server(link))
        reach_server(proxy, link);
    move_commands(proxy, link);
    if (link->server >= 0 && proxy_transmit(link->server, &link->to_server, SIZE_MAX) != FLOW_OPEN)
        bytes_clear(&link->to_server); /* what the server had said is still to be read */
    if (link->server >= 0 && proxy_receive(link->server, &link->from_server) != FLOW_OPEN)
        lose_server(proxy, link);
    move_replies(proxy, link);
    if (link->client >= 0 &&
        proxy_transmit(link->client, &link->to_client, client_limit(proxy, link)) != FLOW_OPEN)
        bytes_clear(&link->to_client); /* its end is read in the next pass */
    settle_ends(proxy, link);
}

bool link_is_done(const struct link *link) {
    return link->client < 0 && link->server < 0 && !link->held;
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct link *link_open(struct proxy *proxy, int client, bool tcp) {
    struct link *link = zeroed(1, sizeof *link);
    link->id = proxy->accepted++;
    link->tcp = tcp;
    link->client = client;
    if (proxy->speech->opaque)
        link->reach_until_ms = now_ms() + REACH_MS;
    reach_server(proxy, link);
    return link;
}

void link_free(struct link *link) {
    cut(link);
    forget_due(link);
    free(link->due);
    free(link);
}
