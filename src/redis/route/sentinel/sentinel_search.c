/*
 * A search for the primary: asks the sentinels, and connects to the addresses they name.
 *
 * Runs on the keeper's thread, which owns all state here. A search asks the sentinels in order, the
 * next one when the last has failed or has not replied for 200 ms. A reply names an address and an
 * epoch. An older epoch than the one in use is skipped, so a sentinel that was partitioned cannot
 * lead back to the old primary. A new address is probed: its greeting checks ROLE, and only a
 * primary is followed. After an unusable reply the next sentinel is asked; when none is left, the
 * wants end with the reason. Searches back off while they change nothing.
 *
 * One sentinel that names the primary in use ends a search. If a want asks for confirmation, a
 * majority of the known sentinels must name it, as many as a failover needs: one that is
 * partitioned together with an old primary is no proof. Such a search does not keep its distance
 * from the last: a renewal has little time. It serves all wants that came during the one before.
 */
#include "base/backoff.h"
#include "base/jitter.h"
#include "redis/route/addresses.h"
#include "redis/route/sentinel/sentinel_impl.h"

#include <string.h>

#define NEXT_PEER_MS 200
#define REPEATS 8       /* some seconds */
#define ANEW_MS 9000    /* two periodic searches, ten seconds apart, are enough */
#define SETTLED_MS 3000 /* after this long without a search, the back-off starts over */

static const struct hfi_backoff distance = {.first_ms = 200, .max_ms = 1000, .factor = 2};

static struct hfi_peer *peer_of(struct hfi_link *link) {
    return HFI_CONTAINER(link, struct hfi_peer, link);
}

static void advance(struct hfi_sentinel *route);

/* ---- The end of a search ---- */

/* The next search keeps its distance, unless it is to confirm the primary. */
static void back_off(struct hfi_sentinel *route) {
    route->next_search_ms =
        hfi_now_ms() + hfi_backoff_spread_ms(&distance, route->fruitless++, hfi_jitter_bits(route));
}

static void end(struct hfi_sentinel *route) {
    route->searching = false;
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        hfi_peer_forget(peer_of(link));
    hfi_alarm_clear(route->exec, &route->timer);
    if (!route->search_again)
        return;
    route->search_again = false;
    hfi_sentinel_search(route);
}

static void add(hf_error *error, const char *text) {
    hfi_error_quote(error, text, strlen(text));
}

/* Whether no sentinel knows the name; adds the names that they know. */
static bool no_sentinel_knows(struct hfi_sentinel *route, hf_error *error) {
    const char *known = "";
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next) {
        const struct hfi_peer *peer = peer_of(link);
        if (!peer->knows_not)
            return false;
        if (peer->why.text[0] != '\0')
            known = peer->why.text;
    }
    hfi_fail(error, HF_EINVAL, "no sentinel knows '");
    add(error, hfi_sentinel_master(route));
    add(error, "'; they know ");
    add(error, known[0] != '\0' ? known : "none");
    return true;
}

static void add_reason(const struct hfi_peer *peer, hf_error *error) {
    bool matters =
        peer->why.code == HF_EPERM || peer->why.code == HF_EINVAL || peer->why.code == HF_ETLS;
    if (matters && !peer->knows_not && error->code == HF_EUNREACH)
        error->code = peer->why.code;
    const char *why = "no answer in time";
    if (peer->knows_not)
        why = "unknown name";
    else if (peer->why.text[0] != '\0')
        why = peer->why.text;
    add(error, "; ");
    add(error, peer->name);
    add(error, ": ");
    add(error, why);
}

static void explain(struct hfi_sentinel *route, hf_error *error) {
    hfi_error_clear(error);
    if (route->candidate_why.code != HF_OK) {
        *error = route->candidate_why;
        return;
    }
    if (no_sentinel_knows(route, error))
        return;
    hfi_fail(error, HF_EUNREACH, "no sentinel returned the primary's address");
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        add_reason(peer_of(link), error);
}

/* How many sentinels name the primary in use. */
static size_t count_confirming(const struct hfi_sentinel *route) {
    size_t len = 0;
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        len += peer_of(link)->state == HFI_PEER_SAID && peer_of(link)->confirms;
    return len;
}

static bool has_wants(struct hfi_sentinel *route, const struct hfi_link *wants) {
    pthread_mutex_lock(&route->mtx);
    bool has = !hfi_list_empty(wants);
    pthread_mutex_unlock(&route->mtx);
    return has;
}

static bool is_wanted_confirmed(struct hfi_sentinel *route) {
    return has_wants(route, &route->confirming);
}

static void report_not_confirmed(struct hfi_sentinel *route) {
    hf_error error;
    if (!is_wanted_confirmed(route))
        return;
    hfi_error_clear(&error);
    hfi_fail(&error, HF_EUNREACH, "%zu of %zu sentinels confirm the primary, and %zu are needed",
             count_confirming(route), route->peers_len, route->peers_len / 2 + 1);
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        if (!peer_of(link)->confirms)
            add_reason(peer_of(link), &error);
    hfi_sentinel_notify_confirming(route, error.code, &error);
}

static void report_changed(struct hfi_sentinel *route) {
    hf_error error;
    hfi_sentinel_changed(&error);
    hfi_sentinel_notify_confirming(route, error.code, &error);
}

static bool is_stale(const struct hfi_sentinel *route, const struct hfi_peer *peer) {
    return peer->said_epoch >= 0 && peer->said_epoch < route->epoch;
}

/* A sentinel whose address a majority names, with an older epoch than the one in use. NULL: there
 * is none. */
static const struct hfi_peer *outdated_majority(struct hfi_sentinel *route) {
    const struct hfi_peer *first = NULL;
    size_t agree = 0;
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next) {
        const struct hfi_peer *peer = peer_of(link);
        if (peer->state != HFI_PEER_SAID || !is_stale(route, peer))
            continue;
        if (first == NULL)
            first = peer;
        agree +=
            hfi_address_is(first->said_host, first->said_port, peer->said_host, peer->said_port);
    }
    return 2 * agree > route->peers_len ? first : NULL;
}

/* A majority cannot be out of date, so these sentinels were set up anew, and their epochs start
 * from zero. This is believed once they have said the same for ANEW_MS. */
static bool have_begun_anew(struct hfi_sentinel *route) {
    const struct hfi_peer *said = outdated_majority(route);
    int64_t now_ms = hfi_now_ms();
    if (said == NULL) {
        route->anew_since_ms = 0;
        return false;
    }
    if (route->anew_since_ms == 0 ||
        !hfi_address_is(route->anew_host, route->anew_port, said->said_host, said->said_port)) {
        route->anew_since_ms = now_ms;
        memcpy(route->anew_host, said->said_host, sizeof route->anew_host);
        route->anew_port = said->said_port;
    }
    return now_ms - route->anew_since_ms >= ANEW_MS;
}

static void end_in_vain(struct hfi_sentinel *route) {
    hf_error error;
    explain(route, &error);
    hfi_sentinel_report_failure(route, error.code, &error);
    report_not_confirmed(route);
    if (have_begun_anew(route)) {
        hfi_log(route->log, HF_LOG_WARN, NULL,
                "the sentinels' epochs started over: they are trusted again");
        route->epoch = -1;
        route->anew_since_ms = 0;
        route->search_again = true;
    }
    if (route->candidate_why.code != HF_OK && route->fruitless < REPEATS)
        route->search_again = true; /* the address may be about to become the primary */
    back_off(route);
    end(route);
}

/* ---- Probing an address ---- */

static void drop_candidate(struct hfi_sentinel *route) {
    struct hfi_node *candidate = route->candidate;
    route->candidate = NULL;
    if (candidate == NULL)
        return;
    hfi_conn_unwant(hfi_node_pick(candidate, HFI_LANE_KEEPER), &route->probe);
    hfi_nodes_retire(&route->nodes, candidate);
    hfi_node_unref(candidate);
    hfi_sentinel_sweep_soon(route);
}

/* Probes a node. Takes over the reference. */
static bool try_node(struct hfi_sentinel *route, struct hfi_node *node, int64_t epoch) {
    struct hfi_conn *control = hfi_node_pick(node, HFI_LANE_KEEPER);
    route->candidate = node;
    route->candidate_epoch = epoch;
    hfi_conn_want(control, &route->probe, &route->task, HFI_SENTINEL_PROBED);
    return true;
}

static bool is_primary(struct hfi_sentinel *route, const struct hfi_node *node) {
    return node == atomic_load(&route->primary);
}

/* The primary in use is confirmed. Whether it is reachable, its connections find out. */
static void confirm(struct hfi_sentinel *route, int64_t epoch) {
    if (epoch > route->epoch)
        route->epoch = epoch;
    if (!is_wanted_confirmed(route))
        back_off(route); /* else the search was not fruitless */
    hfi_sentinel_notify_confirming(route, HF_OK, NULL);
    end(route);
    hfi_sentinel_listen_at(route);
}

/* True: the search is over, or a probe is in progress. */
static bool consider(struct hfi_sentinel *route, struct hfi_peer *peer) {
    struct hfi_node *node;
    peer->tried = true;
    if (is_stale(route, peer)) {
        hfi_fail(&peer->why, HF_EUNREACH, "its information is out of date");
        return false;
    }
    int err = hfi_nodes_get(&route->nodes, peer->said_host, peer->said_port, &node,
                            &route->candidate_why);
    if (err != HF_OK)
        return false;
    if (peer->said_replicas >= 0)
        atomic_store(&route->replicas, (unsigned)peer->said_replicas);
    hfi_list_remove(&peer->link);
    hfi_list_push_back(route->peers.next, &peer->link); /* before the first */
    if (!is_primary(route, node))
        return try_node(route, node, peer->said_epoch);
    hfi_node_unref(node);
    peer->confirms = true;
    if (is_wanted_confirmed(route) && 2 * count_confirming(route) <= route->peers_len)
        return false;
    confirm(route, peer->said_epoch);
    return true;
}

/* Explains why the address that was named is not usable. */
static void note_candidate(struct hfi_sentinel *route) {
    const hf_error *error = &route->probe.error;
    bool mapped = route->url->map_len > 0 || route->nodes.config.address_map != NULL;
    bool far = route->probe.err == HF_EUNREACH && !mapped && atomic_load(&route->primary) == NULL;
    const char *advice = "";
    if (far)
        advice = " (if that address is not reachable from here, use the option map)";
    else if (route->probe.err == HF_ETLS)
        advice = " (make the sentinels announce host names, or set tls_server_name)";
    route->candidate_why = *error;
    hfi_fail(&route->candidate_why, route->probe.err, "the primary should be %s: %s%s",
             hfi_node_name(route->candidate), error->text, advice);
}

static void probed(struct hfi_sentinel *route) {
    struct hfi_node *node = route->candidate;
    if (node == NULL || hfi_linked(&route->probe.link))
        return; /* about another candidate */
    hfi_conn_unwant(hfi_node_pick(node, HFI_LANE_KEEPER), &route->probe); /* settles `err` */
    if (route->probe.err != HF_OK) {
        note_candidate(route);
        drop_candidate(route);
        advance(route);
        return;
    }
    route->candidate = NULL;
    route->fruitless = 0;
    hfi_sentinel_publish(route, node, route->candidate_epoch);
    report_changed(route);
    back_off(route);
    end(route);
    hfi_sentinel_listen_at(route);
}

/* ---- Asking ---- */

/* The reply with the highest epoch that was not considered yet. NULL: none. */
static struct hfi_peer *best_said(struct hfi_sentinel *route) {
    struct hfi_peer *best = NULL;
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next) {
        struct hfi_peer *peer = peer_of(link);
        if (peer->state == HFI_PEER_SAID && !peer->tried &&
            (best == NULL || peer->said_epoch > best->said_epoch))
            best = peer;
    }
    return best;
}

/* Counts the sentinels being asked, and finds the next to ask. */
static size_t count_busy(struct hfi_sentinel *route, struct hfi_peer **ret_next) {
    size_t busy = 0;
    *ret_next = NULL;
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next) {
        struct hfi_peer *peer = peer_of(link);
        busy += peer->state == HFI_PEER_CONNECTING || peer->state == HFI_PEER_ASKED;
        if (*ret_next == NULL && peer->state == HFI_PEER_UNASKED)
            *ret_next = peer;
    }
    return busy;
}

static void ask_on(struct hfi_sentinel *route) {
    int64_t now_ms = hfi_now_ms();
    struct hfi_peer *next;
    size_t busy = count_busy(route, &next);
    if (now_ms >= route->deadline_ms || (busy == 0 && next == NULL)) {
        end_in_vain(route);
        return;
    }
    if (next != NULL && (busy == 0 || now_ms >= route->ask_next_ms)) {
        route->ask_next_ms = now_ms + NEXT_PEER_MS;
        hfi_peer_ask(next);
        count_busy(route, &next);
    }
    int64_t at_ms = next != NULL ? route->ask_next_ms : route->deadline_ms;
    hfi_alarm_set(route->exec, &route->timer, hfi_min_ms(at_ms, route->deadline_ms));
}

/* Takes the next step of a search. */
static void advance(struct hfi_sentinel *route) {
    struct hfi_peer *said;
    if (!route->searching || route->candidate != NULL)
        return;
    while ((said = best_said(route)) != NULL)
        if (consider(route, said))
            return;
    ask_on(route);
}

void hfi_sentinel_peer_done(struct hfi_sentinel *route, struct hfi_peer *peer) {
    (void)peer;
    advance(route);
}

static void begin(struct hfi_sentinel *route) {
    int64_t now_ms = hfi_now_ms();
    if (now_ms - route->next_search_ms >= SETTLED_MS)
        route->fruitless = 0;
    route->search_due = false;
    route->searching = true;
    route->deadline_ms = now_ms + route->cmd_timeout_ms;
    route->ask_next_ms = now_ms;
    hfi_error_clear(&route->candidate_why);
    pthread_mutex_lock(&route->mtx);
    hfi_list_splice(&route->confirming, &route->awaiting_confirm);
    pthread_mutex_unlock(&route->mtx);
}

void hfi_sentinel_search(struct hfi_sentinel *route) {
    if (route->stopped)
        return;
    if (route->searching) {
        route->search_again = true;
    } else if (hfi_now_ms() < route->next_search_ms &&
               !has_wants(route, &route->awaiting_confirm)) {
        route->search_due = true;
        hfi_alarm_set(route->exec, &route->timer, route->next_search_ms);
    } else {
        begin(route);
        advance(route);
    }
}

/* A message has no epoch, but it is newer than the primary in use. Nor does it count replicas. */
void hfi_sentinel_hint(struct hfi_sentinel *route, const char *host, uint16_t port) {
    struct hfi_node *node;
    if (atomic_load(&route->primary) == NULL ||
        hfi_nodes_get(&route->nodes, host, port, &node, NULL) != HF_OK) {
        hfi_sentinel_search(route);
        return;
    }
    if (is_primary(route, node) || node == route->candidate) {
        hfi_node_unref(node);
        return;
    }
    drop_candidate(route);
    if (!route->searching)
        begin(route);
    atomic_store(&route->replicas, 0);
    route->search_again = atomic_load(&route->counts);
    try_node(route, node, route->epoch + 1);
}

/* ---- The route's task ---- */

void hfi_sentinel_search_run(struct hfi_sentinel *route, unsigned events) {
    if ((events & HFI_SENTINEL_PROBED) != 0)
        probed(route);
    if ((events & HFI_SENTINEL_SEARCH) != 0)
        hfi_sentinel_search(route);
    if ((events & HFI_SENTINEL_TIMER) == 0)
        return;
    if (route->searching)
        advance(route);
    else if (route->search_due)
        hfi_sentinel_search(route);
}

static void timer_fired(struct hfi_alarm *alarm) {
    hfi_task_post(&HFI_CONTAINER(alarm, struct hfi_sentinel, timer)->task, HFI_SENTINEL_TIMER);
}

void hfi_sentinel_search_init(struct hfi_sentinel *route) {
    route->timer.fire = timer_fired;
}

void hfi_sentinel_search_stop(struct hfi_sentinel *route) {
    hfi_alarm_clear(route->exec, &route->timer);
    hfi_node_unref(route->candidate);
    route->candidate = NULL;
}
