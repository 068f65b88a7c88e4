/*
 * The servers of a quorum. Each has a core of its own, with a hold for each lock and owner. So
 * turns, settlement and deadlines are those of any lock, and servers fail independently. Operations
 * on a member run on the keeper; this file receives the callbacks of its core.
 */
#include "base/clock.h"
#include "joint/quorum/quorum_impl.h"

#include <stdio.h>
#include <string.h>

/* ---- Callbacks of a member's core ---- */

/* The only notices are of completed operations, already on the keeper's thread. */
static void run_notice(void *arg, struct hfi_notice *notice) {
    (void)arg;
    notice->run(notice);
}

/* A server has lost a hold: the core above must check all holds of that name. */
static bool on_member_loss(void *arg, const struct hfi_kind *kind, const char *name,
                           size_t name_len, hf_event_kind event) {
    struct hfi_quorum *quorum = ((struct hfi_member *)arg)->quorum;
    (void)kind;
    const struct hfi_scope scope = {.name = name, .name_len = name_len};
    if (event == HF_EVENT_LOST && quorum->engine_events != NULL && !quorum->stopped)
        quorum->engine_events->doubted(quorum->engine_events->arg, &scope);
    return false; /* there is no handle on it */
}

/* As good as a renewal by the quorum, except that it proves no lease. */
static void found(void *arg, const struct hfi_hold *hold, int64_t sent_ms) {
    const struct hfi_member *member = arg;
    struct hfi_quorum *quorum = member->quorum;
    struct hfi_ballot *ballot =
        hfi_ballot_find(quorum, hold->kind, hold->name, hold->name_len, hold->number);
    for (size_t i = 0; ballot != NULL && i < quorum->len; i++)
        if (quorum->members[i] == member)
            hfi_votes_found(&ballot->votes, i, sent_ms);
}

static void run_callbacks(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                          const char *owner, const hf_event *event) {
    (void)arg, (void)kind, (void)name, (void)name_len, (void)owner, (void)event;
}

static void retain(void *arg) {
    const struct hfi_quorum_config *config = &((struct hfi_member *)arg)->quorum->config;
    config->retain(config->arg);
}

static void forget(void *arg) {
    const struct hfi_quorum_config *config = &((struct hfi_member *)arg)->quorum->config;
    config->forget(config->arg);
}

static void idle(void *arg) {
    const struct hfi_quorum_config *config = &((struct hfi_member *)arg)->quorum->config;
    config->idle(config->arg);
}

/* ---- Life ---- */

/* The quorum renews the leases of members' holds: the core above must check all of its holds. */
static void reconnected(void *arg, const struct hfi_scope *scope) {
    const struct hfi_engine_events *above =
        HFI_CONTAINER(arg, struct hfi_member, core)->quorum->engine_events;
    static const struct hfi_scope all;
    (void)scope;
    if (above != NULL)
        above->reconnected(above->arg, &all);
}

/* The core above reports its own holds and waits, at however many servers. */
static bool report(void *arg, const struct hfi_report_request *request, struct hfi_json *json) {
    const struct hfi_engine_events *above =
        HFI_CONTAINER(arg, struct hfi_member, core)->quorum->engine_events;
    return above != NULL && above->reporter->report(above->arg, request, json);
}

static void waits(void *arg) {
    hfi_listen_for_waits(arg);
}

static const struct hfi_reporter reporter = {.report = report, .waits = waits};

static void fill_core(struct hfi_member *member, struct hfi_engine *engine) {
    struct hfi_quorum *quorum = member->quorum;
    struct hfi_core *core = &member->core;
    core->mem = quorum->mem;
    core->log = &quorum->silent; /* only the hold of the whole quorum is logged */
    core->engine = engine;
    core->keeper = quorum->keeper;
    core->pid = quorum->config.pid;
    core->cmd_timeout_ms = quorum->config.cmd_timeout_ms;
    core->watchdog_ms = quorum->config.watchdog_ms;
    core->clock_drift_ppm = quorum->config.clock_drift_ppm;
    core->watchdog_trusted_ms = hfi_trusted_ms(core->watchdog_ms, core->clock_drift_ppm);
    core->report_after_ms = quorum->config.report_after_ms;
    memcpy(core->id, quorum->id, sizeof core->id);
    core->hooks = (struct hfi_core_hooks){.dispatch = run_notice,
                                          .loss_event = on_member_loss,
                                          .run_callbacks = run_callbacks,
                                          .found = found,
                                          .retain = retain,
                                          .forget = forget,
                                          .idle = idle,
                                          .arg = member};
}

int hfi_member_new(struct hfi_quorum *quorum, struct hfi_engine *engine, const char *node,
                   struct hfi_member **ret) {
    struct hfi_member *member = hfi_zalloc(quorum->mem, sizeof *member);
    if (member == NULL) {
        engine->ops->free(engine);
        return HF_ENOMEM;
    }
    member->quorum = quorum;
    snprintf(member->node, sizeof member->node, "%s", node);
    fill_core(member, engine);
    int err = hfi_core_init(&member->core);
    if (err != HF_OK) {
        hfi_member_free(member);
        return err;
    }
    member->engine_events = member->core.engine_events;
    member->engine_events.reconnected = reconnected;
    member->engine_events.reporter = &reporter;
    engine->ops->set_engine_events(engine, &member->engine_events);
    *ret = member;
    return HF_OK;
}

void hfi_member_free(struct hfi_member *member) {
    struct hfi_engine *engine = member->core.engine;
    hfi_core_clear(&member->core);
    engine->ops->free(engine);
    hfi_free(member->quorum->mem, member);
}

/* ---- State ---- */

static bool identity_of(struct hfi_member *member, struct hfi_server *ret) {
    struct hfi_engine *engine = member->core.engine;
    const struct hfi_observe_ops *observe = engine->ops->observe;
    return observe->identity != NULL && observe->identity(engine, ret);
}

int64_t hfi_member_up_since_ms(struct hfi_member *member) {
    struct hfi_server server;
    if (identity_of(member, &server))
        return server.since_ms;
    if (!member->unguarded && member->quorum->guard_ms > 0)
        hfi_log(member->quorum->log, HF_LOG_WARN, HFI_ABOUT(.server = member->node),
                "%s hides its uptime (INFO), so a restart that forgets locks goes unnoticed; "
                "allow INFO",
                member->node);
    member->unguarded = true;
    return INT64_MIN;
}

int hfi_members_check(struct hfi_quorum *quorum, hf_error *error) {
    struct hfi_server servers[HFI_SERVERS_MAX];
    for (size_t i = 0; i < quorum->len; i++) {
        if (!identity_of(quorum->members[i], &servers[i]))
            servers[i].run_id[0] = '\0';
        for (size_t j = 0; j < i && servers[i].run_id[0] != '\0'; j++)
            if (strcmp(servers[i].run_id, servers[j].run_id) == 0)
                return hfi_fail(error, HF_EINVAL, "%s and %s are the same server",
                                quorum->members[j]->node, quorum->members[i]->node);
    }
    return HF_OK;
}

void hfi_member_answered(struct hfi_member *member, int64_t took_us) {
    member->slow = false;
    member->rtt_us = member->rtt_us == 0 ? took_us : (member->rtt_us * 7 + took_us) / 8;
}

int64_t hfi_members_rtt_us(const struct hfi_quorum *quorum) {
    int64_t times[HFI_SERVERS_MAX];
    size_t len = 0;
    for (size_t i = 0; i < quorum->len; i++) {
        int64_t rtt_us = quorum->members[i]->rtt_us;
        size_t at = len;
        if (rtt_us == 0)
            continue;
        for (; at > 0 && times[at - 1] > rtt_us; at--)
            times[at] = times[at - 1];
        times[at] = rtt_us;
        len++;
    }
    if (len == 0)
        return 1000;
    int64_t rtt_us = times[len < quorum->majority ? len - 1 : quorum->majority - 1];
    return rtt_us > 100 ? rtt_us : 100;
}

/* ---- Order ---- */

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t mixed(uint64_t hash) {
    hash = (hash ^ (hash >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    hash = (hash ^ (hash >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ (hash >> 33);
}

/* Clients may know a server by different addresses, but its run_id is the same for all, once
 * known. */
void hfi_members_order(const struct hfi_quorum *quorum, const char *name, size_t name_len,
                       size_t *ret_order) {
    uint64_t hashes[HFI_SERVERS_MAX];
    for (size_t i = 0; i < quorum->len; i++) {
        struct hfi_server server;
        bool known = identity_of(quorum->members[i], &server);
        const char *id = known ? server.run_id : quorum->members[i]->node;
        uint64_t hash = hash_bytes(UINT64_C(14695981039346656037), name, name_len);
        hashes[i] = mixed(hash_bytes(hash, id, strlen(id) + 1));
        size_t at = i;
        for (; at > 0 && hashes[ret_order[at - 1]] > hashes[i]; at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = i;
    }
}

uint64_t hfi_quorum_tracked(const struct hfi_quorum *quorum, uint64_t *ret_false) {
    uint64_t tracked = 0;
    *ret_false = 0;
    for (size_t i = 0; i < quorum->len; i++) {
        const struct hfi_counters *counters = &quorum->members[i]->core.counters;
        tracked += atomic_load(&counters->tracked);
        *ret_false += atomic_load(&counters->track_false);
    }
    return tracked;
}
