/*
 * A search for the slot map: asks members for it.
 *
 * Runs on the keeper's thread, which owns all state here. A search asks the members in random
 * order, the next one when the last has failed or has not replied for 200 ms. Members in doubt come
 * last, since they are the reason for most searches. The first map is taken: nodes refuse commands
 * for slots that they do not serve, so a stale map costs a redirect and gives no wrong result. When
 * no member is left, the wants end with the reason.
 *
 * Searches back off while they change nothing. As long as a member with slots is in doubt, they
 * repeat by themselves for a while.
 */
#include "base/backoff.h"
#include "base/jitter.h"
#include "redis/route/cluster/cluster_impl.h"

#include <string.h>

#define NEXT_MEMBER_MS 200
#define REPEATS 40       /* some twenty seconds */
#define FAST_SEARCHES 20 /* then the back-off is longer: a failover should be over */
#define SETTLED_MS 3000  /* after this long without a search, the back-off starts over */

static const struct hfi_backoff close_by = {.first_ms = 100, .max_ms = 200, .factor = 2};
static const struct hfi_backoff far_apart = {.first_ms = 1000, .max_ms = 1000, .factor = 2};
static const char query[] = "*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";
static const char probe[] = "*2\r\n$6\r\nPUBSUB\r\n$11\r\nSHARDNUMSUB\r\n";

static void advance(struct hfi_cluster *route);

static struct hfi_conn *conn_of(const struct hfi_member *member) {
    return hfi_node_pick(atomic_load(&member->node), HFI_LANE_KEEPER);
}

static void drop(struct hfi_cluster *route, struct hfi_req **req) {
    if (*req == NULL)
        return;
    if (route->stopped || atomic_load(&(*req)->complete))
        hfi_req_unref(*req);
    else
        hfi_req_abandon(*req);
    *req = NULL;
}

void hfi_cluster_unask(struct hfi_cluster *route, struct hfi_member *member) {
    if (member->state == HFI_MEMBER_CONNECTING && !route->stopped)
        hfi_conn_unwant(conn_of(member), &member->want);
    drop(route, &member->map);
    drop(route, &member->sharded);
    member->state = HFI_MEMBER_UNASKED;
}

/* ---- The end of a search ---- */

static bool is_anything_doubted(struct hfi_cluster *route) {
    const struct hfi_member *member;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        if (atomic_load(&member->slots) > 0 && hfi_cluster_is_doubted(member))
            return true;
    return false;
}

static void end(struct hfi_cluster *route) {
    struct hfi_member *member;
    route->searching = false;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        hfi_cluster_unask(route, member);
    hfi_alarm_clear(route->exec, &route->timer);
    const struct hfi_backoff *distance = route->fruitless < FAST_SEARCHES ? &close_by : &far_apart;
    route->next_search_ms =
        hfi_now_ms() + hfi_backoff_spread_ms(distance, route->fruitless++, hfi_jitter_bits(route));
    if (!route->search_again && !(route->fruitless < REPEATS && is_anything_doubted(route)))
        return;
    route->search_again = false;
    hfi_cluster_search(route);
}

static void add(hf_error *error, const char *text) {
    hfi_error_quote(error, text, strlen(text));
}

static void add_reason(const struct hfi_member *member, hf_error *error) {
    bool matters = member->why.code == HF_EPERM || member->why.code == HF_ETLS ||
                   member->why.code == HF_ENOTSUP || member->why.code == HF_EINVAL;
    if (matters && error->code == HF_EUNREACH)
        error->code = member->why.code;
    add(error, "; ");
    add(error, hfi_node_name(atomic_load(&member->node)));
    add(error, ": ");
    add(error, member->why.text[0] != '\0' ? member->why.text : "no answer in time");
}

/* HF_ENOTSUP is reported alone. */
static void explain(struct hfi_cluster *route, hf_error *error) {
    const struct hfi_member *member;
    hfi_error_clear(error);
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        if (member->why.code == HF_ENOTSUP) {
            *error = member->why;
            return;
        }
    hfi_fail(error, HF_EUNREACH, "no server returned the cluster's slot map");
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        add_reason(member, error);
}

static void end_in_vain(struct hfi_cluster *route) {
    hf_error error;
    explain(route, &error);
    hfi_cluster_report_failure(route, &error);
    end(route);
}

/* ---- Replies ---- */

static void fail(struct hfi_member *member, int err, const char *text,
                 const struct hfi_reply *reply) {
    hfi_error_clear(&member->why);
    hfi_fail(&member->why, err, "%s", text);
    if (reply != NULL)
        hfi_error_quote(&member->why, reply->str, reply->len);
    member->state = HFI_MEMBER_FAILED;
}

static void refused(struct hfi_member *member, const struct hfi_reply *reply) {
    if (strstr(reply->str, "cluster support disabled") != NULL)
        fail(member, HF_ENOTSUP, "this server does not belong to a cluster: use redis://", NULL);
    else if (strncmp(reply->str, "NOPERM", 6) == 0)
        fail(member, HF_EPERM, "this user may not run CLUSTER SLOTS: ", reply);
    else
        fail(member, HF_EUNAVAILABLE, "the server refused: ", reply);
}

/* Whether pub/sub is sharded, for the life of the client: decided as Redisson does. Before the
 * first map, so nothing has been sent yet. */
static void decide_messages(struct hfi_cluster *route, const struct hfi_member *member) {
    const struct hfi_req *req = member->sharded;
    const struct hfi_reply *reply = req != NULL && req->err == HF_OK ? req->reply : NULL;
    bool sharded = reply != NULL && reply->type != HFI_REPLY_ERROR;
    if (route->url->pubsub == HFI_PUBSUB_SHARDED || route->url->pubsub == HFI_PUBSUB_CLASSIC)
        sharded = route->url->pubsub == HFI_PUBSUB_SHARDED;
    if (!atomic_load(&route->base.found))
        atomic_store(&route->base.sharded, sharded);
}

static const char *map_error_text(int err) {
    if (err == HF_EUNAVAILABLE)
        return "its slot map is empty";
    return err == HF_EUNREACH ? "its slot map has no addresses (is cluster-announce-hostname "
                                "set?)"
                              : "invalid reply to CLUSTER SLOTS";
}

/* True: the search is over. */
static bool answered(struct hfi_cluster *route, struct hfi_member *member) {
    const struct hfi_reply *reply = member->map->err == HF_OK ? member->map->reply : NULL;
    if (reply == NULL) {
        fail(member, HF_EUNREACH, "the connection was lost", NULL);
        return false;
    }
    atomic_store(&route->last_answer_ms, hfi_now_ms());
    if (reply->type == HFI_REPLY_ERROR) {
        refused(member, reply);
        return false;
    }
    decide_messages(route, member);
    int err = hfi_cluster_read_map(route, member, reply);
    if (err != HF_OK) {
        fail(member, err, map_error_text(err), NULL);
        return false;
    }
    route->failure_logged = false;
    hfi_cluster_settle_map(route);
    end(route);
    hfi_cluster_notify_wants(route);
    return true;
}

/* Connected, or failed to. */
static void connected(struct hfi_cluster *route, struct hfi_member *member) {
    struct hfi_conn *conn = conn_of(member);
    hfi_conn_unwant(conn, &member->want); /* so that `err` is settled */
    if (member->want.err != HF_OK) {
        fail(member, member->want.err, member->want.error.text, NULL);
        return;
    }
    int err = HF_OK;
    if (!atomic_load(&route->base.found))
        err = hfi_conn_submit(conn, probe, sizeof probe - 1, NULL, 0, NULL, &member->sharded);
    if (err == HF_OK) /* its reply comes after the other's */
        err = hfi_conn_submit(conn, query, sizeof query - 1, &route->task, HFI_CLUSTER_ASKED, NULL,
                              &member->map);
    if (err != HF_OK)
        fail(member, err, "the connection was lost", NULL);
    else
        member->state = HFI_MEMBER_ASKED;
}

/* ---- Asking ---- */

static void ask(struct hfi_cluster *route, struct hfi_member *member) {
    member->state = HFI_MEMBER_CONNECTING;
    hfi_conn_want(conn_of(member), &member->want, &route->task, HFI_CLUSTER_ASKED);
}

/* True: the search is over. */
static bool check_answers(struct hfi_cluster *route) {
    struct hfi_member *member;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;) {
        if (member->state == HFI_MEMBER_CONNECTING && !hfi_linked(&member->want.link))
            connected(route, member);
        if (member->state == HFI_MEMBER_ASKED && atomic_load(&member->map->complete) &&
            answered(route, member))
            return true;
    }
    return false;
}

/* Priority: members with slots, then without, then in doubt. */
static unsigned order_of(const struct hfi_member *member) {
    if (hfi_cluster_is_doubted(member))
        return 3;
    if (atomic_load(&member->slots) > 0)
        return 1;
    return 2;
}

/* Counts the members being asked, and finds the next to ask. */
static size_t count_busy(struct hfi_cluster *route, struct hfi_member **ret_next) {
    struct hfi_member *member;
    size_t busy = 0;
    *ret_next = NULL;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;) {
        busy += member->state == HFI_MEMBER_CONNECTING || member->state == HFI_MEMBER_ASKED;
        if (member->state == HFI_MEMBER_UNASKED &&
            (*ret_next == NULL || member->order < (*ret_next)->order))
            *ret_next = member;
    }
    return busy;
}

static void advance(struct hfi_cluster *route) {
    struct hfi_member *next;
    if (!route->searching || check_answers(route))
        return;
    int64_t now_ms = hfi_now_ms();
    size_t busy = count_busy(route, &next);
    if (now_ms >= route->deadline_ms || (busy == 0 && next == NULL)) {
        end_in_vain(route);
        return;
    }
    if (next != NULL && (busy == 0 || now_ms >= route->ask_next_ms)) {
        route->ask_next_ms = now_ms + NEXT_MEMBER_MS;
        ask(route, next);
        count_busy(route, &next);
    }
    int64_t at_ms = next != NULL ? route->ask_next_ms : route->deadline_ms;
    hfi_alarm_set(route->exec, &route->timer, hfi_min_ms(at_ms, route->deadline_ms));
}

/* Adds the hosts of the url that were dropped when there was no memory for a new node. */
static void bring_back_named(struct hfi_cluster *route) {
    int err = HF_OK;
    if (!route->misses_named)
        return;
    for (size_t i = 0; i < route->url->hosts_len && err == HF_OK; i++)
        err = hfi_cluster_add_named(route, route->url->hosts[i].host, route->url->hosts[i].port,
                                    NULL);
    route->misses_named = err != HF_OK;
}

static void begin(struct hfi_cluster *route) {
    int64_t now_ms = hfi_now_ms();
    struct hfi_member *member;
    bring_back_named(route);
    if (now_ms - route->next_search_ms >= SETTLED_MS)
        route->fruitless = 0;
    route->search_due = false;
    route->searching = true;
    route->deadline_ms = now_ms + route->cmd_timeout_ms;
    route->ask_next_ms = now_ms;
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;) {
        hfi_error_clear(&member->why);
        member->order = (order_of(member) << 16) + (unsigned)(hfi_jitter_bits(member) & UINT16_MAX);
    }
}

void hfi_cluster_search(struct hfi_cluster *route) {
    if (route->stopped)
        return;
    if (route->searching) {
        route->search_again = true;
    } else if (hfi_now_ms() < route->next_search_ms) {
        route->search_due = true;
        hfi_alarm_set(route->exec, &route->timer, route->next_search_ms);
    } else {
        begin(route);
        advance(route);
    }
}

void hfi_cluster_search_run(struct hfi_cluster *route, unsigned events) {
    if ((events & HFI_CLUSTER_SEARCH) != 0)
        hfi_cluster_search(route);
    if ((events & (HFI_CLUSTER_ASKED | HFI_CLUSTER_TIMER)) == 0)
        return;
    if (route->searching)
        advance(route);
    else if (route->search_due && (events & HFI_CLUSTER_TIMER) != 0)
        hfi_cluster_search(route);
}

static void timer_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_cluster, timer)->task, HFI_CLUSTER_TIMER);
}

void hfi_cluster_search_init(struct hfi_cluster *route) {
    route->timer.fire = timer_fired;
}

void hfi_cluster_search_stop(struct hfi_cluster *route) {
    struct hfi_member *member;
    hfi_alarm_clear(route->exec, &route->timer);
    for (size_t i = 0; (member = hfi_cluster_next(route, &i)) != NULL;)
        hfi_cluster_unask(route, member);
}
