/*
 * Finding the primary: asking the sentinels, and trying what they name.
 *
 * Runs on the keeper's thread, which owns everything here. A search asks the sentinels in order, the
 * next one when the last has failed or has said nothing for 200 ms. Who answers names an address and an
 * epoch. An older epoch than the one in use is passed over, so a sentinel that was cut off leads nobody
 * back. A new address is tried: a connection is made there, whose greeting asks whether it is a primary;
 * only then it is followed. Whatever is wrong with an answer, the next is asked; when nobody is left, those
 * who wait are told why. Searches keep a distance, which grows while they change nothing.
 */
#include "base/backoff.h"
#include "base/chance.h"
#include "redis/route/addresses.h"
#include "redis/route/sentinel_impl.h"

#include <string.h>

#define NEXT_PEER_MS 200
#define REPEATS 8       /* some seconds */
#define ANEW_MS 9000    /* two looks for no reason, which are ten seconds apart, are enough */
#define SETTLED_MS 3000 /* after so long without a search, the next one need not wait */

static const struct hfi_backoff distance = {.first_ms = 200, .max_ms = 1000, .factor = 2};

static struct hfi_peer *peer_of(struct hfi_link *link) {
    return HFI_CONTAINER(link, struct hfi_peer, link);
}

static void advance(struct hfi_sentinel *route);

/* ---- The end of a search ---- */

static void end(struct hfi_sentinel *route) {
    route->searching = false;
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        hfi_peer_forget(peer_of(link));
    hfi_alarm_clear(route->exec, &route->timer);
    route->next_search_ms =
        hfi_now_ms() + hfi_backoff_spread_ms(&distance, route->fruitless++, hfi_throw_dice(route));
    if (!route->look_again)
        return;
    route->look_again = false;
    hfi_sentinel_look(route);
}

static void add(hf_error *error, const char *text) {
    hfi_error_quote(error, text, strlen(text));
}

/* The name, if nobody knows it, and those that they know instead. */
static bool nobody_knows(struct hfi_sentinel *route, hf_error *error) {
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
    const char *why = "it did not answer in time";
    if (peer->knows_not)
        why = "it does not know the name";
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
    if (nobody_knows(route, error))
        return;
    hfi_fail(error, HF_EUNREACH, "no sentinel could tell where the primary is");
    for (struct hfi_link *link = route->peers.next; link != &route->peers; link = link->next)
        add_reason(peer_of(link), error);
}

static bool is_stale(const struct hfi_sentinel *route, const struct hfi_peer *peer) {
    return peer->said_epoch >= 0 && peer->said_epoch < route->epoch;
}

/* Whom most of the sentinels name who say something older than what is in use. NULL: there is nobody. */
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

/* Most of those there are cannot be out of date, so they were set up from nothing, and count their failovers from zero. That is
 * believed when they have said the same for a while. */
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
    hfi_sentinel_tell_failure(route, error.code, &error);
    if (have_begun_anew(route)) {
        hfi_log(route->log, HF_LOG_WARN,
                "the sentinels have begun to count anew: they are believed again");
        route->epoch = -1;
        route->anew_since_ms = 0;
        route->look_again = true;
    }
    if (route->candidate_why.code != HF_OK && route->fruitless < REPEATS)
        route->look_again = true; /* what was named may be on its way to become the primary */
    end(route);
}

/* ---- Trying an address ---- */

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

/* True: somebody is the primary, or it is being found out. Takes over the reference. */
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

/* The sentinels say that it is the one in use, which has its own ways to find out whether it is there. */
static void confirm(struct hfi_sentinel *route, int64_t epoch) {
    if (epoch > route->epoch)
        route->epoch = epoch;
    end(route);
    hfi_sentinel_lend_ear(route);
}

/* True: the search is over, or goes on elsewhere. */
static bool consider(struct hfi_sentinel *route, struct hfi_peer *peer) {
    struct hfi_node *node;
    peer->tried = true;
    if (is_stale(route, peer)) {
        hfi_fail(&peer->why, HF_EUNREACH, "what it knows is out of date");
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
    confirm(route, peer->said_epoch);
    return true;
}

/* The name is at ADDRESS, and there is something wrong with that. */
static void note_candidate(struct hfi_sentinel *route) {
    const hf_error *error = &route->probe.error;
    bool mapped = route->url->map_len > 0 || route->nodes.config.map != NULL;
    bool far = route->probe.err == HF_EUNREACH && !mapped && atomic_load(&route->primary) == NULL;
    const char *advice = "";
    if (far)
        advice = " (if that address is good elsewhere only, there is the option map)";
    else if (route->probe.err == HF_ETLS)
        advice = " (let sentinels announce host names, or give tls_server_name)";
    route->candidate_why = *error;
    hfi_fail(&route->candidate_why, route->probe.err, "the primary should be %s, but: %s%s",
             hfi_node_name(route->candidate), error->text, advice);
}

static void probed(struct hfi_sentinel *route) {
    struct hfi_node *node = route->candidate;
    if (node == NULL || hfi_linked(&route->probe.link))
        return; /* that was about another one */
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
    end(route);
    hfi_sentinel_lend_ear(route);
}

/* ---- Asking ---- */

/* The best that was said so far and not tried. NULL: nothing. */
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

/* Counts who is being asked, and finds the next to ask. */
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

/* Goes on with whatever comes next in a search. */
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
    route->look_due = false;
    route->searching = true;
    route->deadline_ms = now_ms + route->cmd_timeout_ms;
    route->ask_next_ms = now_ms;
    hfi_error_clear(&route->candidate_why);
}

void hfi_sentinel_look(struct hfi_sentinel *route) {
    if (route->stopped)
        return;
    if (route->searching) {
        route->look_again = true;
    } else if (hfi_now_ms() < route->next_search_ms) {
        route->look_due = true;
        hfi_alarm_set(route->exec, &route->timer, route->next_search_ms);
    } else {
        begin(route);
        advance(route);
    }
}

/* What is heard has no epoch: but it is later than what is in use. Nor does it tell of replicas. */
void hfi_sentinel_hint(struct hfi_sentinel *route, const char *host, uint16_t port) {
    struct hfi_node *node;
    if (atomic_load(&route->primary) == NULL ||
        hfi_nodes_get(&route->nodes, host, port, &node, NULL) != HF_OK) {
        hfi_sentinel_look(route);
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
    route->look_again = atomic_load(&route->counts);
    try_node(route, node, route->epoch + 1);
}

/* ---- The route's task ---- */

void hfi_sentinel_search_run(struct hfi_sentinel *route, unsigned events) {
    if ((events & HFI_SENTINEL_PROBED) != 0)
        probed(route);
    if ((events & HFI_SENTINEL_LOOK) != 0)
        hfi_sentinel_look(route);
    if ((events & HFI_SENTINEL_TIMER) == 0)
        return;
    if (route->searching)
        advance(route);
    else if (route->look_due)
        hfi_sentinel_look(route);
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
