/*
 * Noticing a failed member, and closing idle connections.
 *
 * Runs on the keeper's thread, which owns all state here. A tick comes three times a second while
 * something is held, waited for, or in flight; else every 20 s, for as long as there is a connection
 * to close. While there are waiters, it sends ROLE to the member with the subscription. Two ticks
 * may pass until the others agree with a new primary, so a replaced one is noticed within a second.
 * Every third tick sends ROLE to every member used lately, while something is held; and to a member
 * that waits for acks, since that is no silence of its own. A second without a reply, to ROLE or to
 * any command, puts the member in doubt and starts a search. So does a replica's ROLE reply.
 *
 * A member in doubt that has no slots any more is retired at once: its requests end as if the
 * connections were lost. One that still replies is kept, since it refuses commands for slots that
 * it has lost. Its connections are closed when they have been unused for a while.
 */
#include "redis/route/cluster/cluster_impl.h"

#include <string.h>

#define TICK_MS 334
#define SILENT_MS 1000 /* at most three ticks */
#define SLOW_TICK_MS 20000
#define CHECK_MS 10000
#define IDLE_MS 60000

/* ---- Doubt ---- */

void hfi_cluster_doubt(struct hfi_cluster *route, struct hfi_member *member) {
    (void)route;
    atomic_store(&member->doubted_ms, hfi_now_ms());
}

bool hfi_cluster_is_doubted(const struct hfi_member *member) {
    int64_t doubted_ms = atomic_load(&member->doubted_ms);
    return doubted_ms != 0 && hfi_node_last_answer_ms(atomic_load(&member->node)) <= doubted_ms;
}

static void suspect(struct hfi_cluster *route, struct hfi_member *member) {
    hfi_cluster_doubt(route, member);
    if (atomic_load(&member->slots) > 0)
        hfi_cluster_search(route);
    else
        hfi_cluster_drop_member(route, member); /* a caller still waits for its reply */
}

/* ---- Roles ---- */

static const char role[] = "*1\r\n$4\r\nROLE\r\n";
static const char ping[] = "*1\r\n$4\r\nPING\r\n"; /* same length */

void hfi_cluster_unwatch(struct hfi_cluster *route, struct hfi_member *member) {
    if (member->role == NULL)
        return;
    if (route->stopped || atomic_load(&member->role->complete))
        hfi_req_unref(member->role);
    else
        hfi_req_abandon(member->role);
    member->role = NULL;
}

static bool is_text(const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_STRING || reply->type == HFI_REPLY_STATUS;
}

static bool is_replica(const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_ARRAY && reply->elements > 0 && is_text(reply->element[0]) &&
           strcmp(reply->element[0]->str, "master") != 0;
}

/* Permanently, unlike BUSY. */
static bool is_forbidden(const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_ERROR && (strncmp(reply->str, "NOPERM", 6) == 0 ||
                                              strncmp(reply->str, "ERR unknown command", 19) == 0);
}

static void on_role(struct hfi_cluster *route, struct hfi_member *member) {
    const struct hfi_reply *reply = member->role->err == HF_OK ? member->role->reply : NULL;
    if (reply != NULL) {
        atomic_store(&route->last_answer_ms, hfi_now_ms());
        if (is_forbidden(reply))
            route->role_forbidden = true;
        if (is_replica(reply) && atomic_load(&member->slots) > 0)
            hfi_cluster_search(route);
    }
    hfi_cluster_unwatch(route, member);
}

void hfi_cluster_on_roles(struct hfi_cluster *route) {
    struct hfi_member *member;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        if (member->role != NULL && atomic_load(&member->role->complete))
            on_role(route, member);
}

static void ask_role(struct hfi_cluster *route, struct hfi_member *member, int64_t now_ms) {
    struct hfi_conn *control = hfi_node_pick(atomic_load(&member->node), HFI_LANE_KEEPER);
    if (control == NULL)
        return;
    hfi_conn_keep_up(control, true);
    if (member->role != NULL && now_ms - member->role_ms < SILENT_MS)
        return;
    if (member->role != NULL) {
        suspect(route, member);
        if (now_ms - member->role_ms >= route->cmd_timeout_ms)
            hfi_conn_suspect(control, member->role_ms);
        return;
    }
    if (hfi_conn_submit(control, route->role_forbidden ? ping : role, sizeof role - 1, &route->task,
                        HFI_CLUSTER_ROLE, NULL, &member->role) == HF_OK)
        member->role_ms = now_ms;
}

/* ---- Idle members ---- */

void hfi_cluster_left(struct hfi_cluster *route, struct hfi_member *member) {
    /* Otherwise it redirects by itself, and is dropped when it has been idle for a while. */
    if (member->idle || hfi_cluster_is_doubted(member))
        hfi_cluster_drop_member(route, member);
}

/* Under the mutex no command can be routed there between check and close. False: one was. */
static bool rest(struct hfi_cluster *route, struct hfi_node *node) {
    pthread_mutex_lock(&route->mtx);
    bool alone = !hfi_node_is_shared(node);
    if (alone)
        hfi_node_rest(node);
    pthread_mutex_unlock(&route->mtx);
    return alone;
}

static void close_idle(struct hfi_cluster *route, struct hfi_member *member) {
    struct hfi_node *node = atomic_load(&member->node);
    bool serves = atomic_load(&member->slots) > 0;
    if (member->idle || hfi_node_is_shared(node) || (route->watching && serves))
        return;
    member->idle = !serves || rest(route, node);
    if (!serves)
        hfi_cluster_drop_member(route, member);
}

/* ---- The tick ---- */

/* The findings of one tick. */
struct round {
    int64_t now_ms;
    bool busy;  /* some member is in use */
    bool awake; /* some connections may be open */
};

static void note_use(struct hfi_member *member, int64_t now_ms) {
    if (!atomic_exchange(&member->used, false))
        return;
    member->used_ms = now_ms;
    member->idle = false;
}

static void check_member(struct hfi_cluster *route, struct hfi_member *member,
                         struct round *round) {
    struct hfi_node *node = atomic_load(&member->node);
    bool used = atomic_load(&member->used);
    note_use(member, round->now_ms);
    if (round->now_ms - member->used_ms >= IDLE_MS) {
        close_idle(route, member);
        round->awake = round->awake || !member->idle;
        return;
    }
    bool loaded = hfi_node_load(node) > 0, confirms = hfi_node_confirms(node);
    bool listened = hfi_node_is_listened(node);
    if (!confirms)
        member->confirms_since_ms = HFI_NEVER;
    else if (member->confirms_since_ms == HFI_NEVER)
        member->confirms_since_ms = round->now_ms;
    /* Then ROLE was sent, or a connection was opened for it. */
    bool confirmed = confirms && round->now_ms - member->confirms_since_ms >= SILENT_MS;
    round->busy = round->busy || used || loaded || confirms || listened;
    round->awake = true;
    if ((loaded || confirmed) && round->now_ms - hfi_node_last_answer_ms(node) >= SILENT_MS) {
        suspect(route, member);
        return;
    }
    bool is_due = listened || member->role != NULL || round->now_ms - member->role_ms >= SILENT_MS;
    if ((route->watching || confirms || listened) && is_due && atomic_load(&member->slots) > 0)
        ask_role(route, member, round->now_ms);
}

static void tick_fired(struct hfi_alarm *alarm) {
    struct hfi_cluster *route = HFI_CONTAINER(alarm, struct hfi_cluster, tick);
    struct round round = {.now_ms = hfi_now_ms()};
    struct hfi_member *member;
    if (route->stopped)
        return;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        check_member(route, member, &round);
    if (route->watching && round.now_ms >= route->search_at_ms) {
        route->search_at_ms = round.now_ms + CHECK_MS;
        hfi_cluster_search(route);
    }
    bool soon = round.busy || route->watching;
    route->tick_ms = soon ? round.now_ms + TICK_MS : HFI_NEVER;
    if (!soon && round.awake)
        route->tick_ms = round.now_ms + SLOW_TICK_MS;
    hfi_alarm_set(route->exec, &route->tick, route->tick_ms);
}

static void tick_by(struct hfi_cluster *route, int64_t at_ms) {
    if (route->stopped || route->tick_ms <= at_ms)
        return;
    route->tick_ms = at_ms;
    hfi_alarm_set(route->exec, &route->tick, at_ms);
}

void hfi_cluster_watch_used(struct hfi_cluster *route) {
    struct hfi_member *member;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        if (atomic_load(&member->used))
            member->idle = false;
    tick_by(route, hfi_now_ms() + TICK_MS);
}

void hfi_cluster_watch(struct hfi_cluster *route, bool on) {
    if (route->watching == on || route->stopped)
        return;
    route->watching = on;
    route->search_at_ms = hfi_now_ms() + CHECK_MS;
    if (on)
        tick_by(route, hfi_now_ms());
}

void hfi_cluster_watch_init(struct hfi_cluster *route) {
    route->tick.fire = tick_fired;
    route->tick_ms = HFI_NEVER;
}

void hfi_cluster_watch_stop(struct hfi_cluster *route) {
    struct hfi_member *member;
    hfi_alarm_clear(route->exec, &route->tick);
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        hfi_cluster_unwatch(route, member);
}
