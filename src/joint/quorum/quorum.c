/*
 * The engine's tables, and requests.
 *
 * A call may come from any thread; the keeper's thread owns the quorum's state. So a call becomes a
 * request, which reaches the keeper through the inbox. Its outcome comes back as an event of the
 * call's task. Both sides have a reference: if the call is dropped while the client closes, the
 * request goes on alone.
 */
#include "joint/quorum/quorum_impl.h"

#include "engine/findings.h"

#include <stdlib.h>
#include <string.h>

#define EVENT_INBOX 0x01u
#define CALL_EVENT (1u << HFI_ENGINE_EVENT_SHIFT)

struct call_state {
    struct hfi_request *request; /* in progress; NULL: none */
};

/* ---- Requests ---- */

void hfi_request_unref(struct hfi_request *request) {
    if (atomic_fetch_sub(&request->refs, 1) != 1)
        return;
    hf_lock_info_free(request->info);
    hfi_findings_free(request->findings);
    hfi_stamp_text_unref(request->text);
    hfi_task_unref(request->task);
    hfi_free(request->quorum->mem, request);
}

void hfi_request_finish(struct hfi_request *request, int err) {
    struct hfi_quorum *quorum = request->quorum;
    request->err = err;
    hfi_list_remove(&request->link);
    pthread_mutex_lock(&quorum->inbox_mtx);
    bool stopping = hfi_linked(&request->stop_link);
    hfi_list_remove(&request->stop_link);
    atomic_store(&request->done, true);
    pthread_mutex_unlock(&quorum->inbox_mtx);
    /* the call's thread is due to pick it up */
    atomic_store(&request->call_status->due_ms, hfi_now_ms());
    if (request->ballot != NULL)
        hfi_ballot_unref(request->ballot);
    hfi_task_post(request->task, CALL_EVENT);
    if (stopping)
        hfi_request_unref(request);
    hfi_request_unref(request);
}

/* Out of memory, or stopped: there is nothing to wait for. */
static void fail_at_once(struct hfi_call *call, int err) {
    call->err = err;
    hfi_fail(&call->error, err, "%s", hf_strerror(err));
    call->done(call);
}

static struct hfi_request *new_request(struct hfi_call *call) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(call->engine);
    struct hfi_request *request = hfi_zalloc(quorum->mem, sizeof *request + call->name_len + 1);
    if (request == NULL)
        return NULL;
    atomic_init(&request->refs, 2);
    request->quorum = quorum;
    request->task = call->task;
    request->call_status = call->call_status;
    hfi_task_ref(call->task);
    request->kind = call->kind;
    request->text = hfi_stamp_text_ref(call->stamp.text);
    request->owner = strtoull(call->owner + sizeof quorum->id, NULL, 10);
    request->count = call->count;
    request->lease_ms = call->lease_ms;
    request->start_ms = call->start_ms;
    request->deadline_ms = call->deadline_ms;
    request->query = call->query;
    request->wanted = call->wanted;
    request->name_len = call->name_len;
    memcpy(request->name, call->name, call->name_len);
    return request;
}

static void send_to_keeper(struct hfi_call *call, void (*begin)(struct hfi_request *request)) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(call->engine);
    struct call_state *state = call->state;
    struct hfi_request *request = new_request(call);
    if (request == NULL) {
        fail_at_once(call, HF_ENOMEM);
        return;
    }
    request->begin = begin;
    atomic_store(&call->call_status->due_ms, hfi_now_ms() + 5000);
    state->request = request;
    pthread_mutex_lock(&quorum->inbox_mtx);
    bool stopped = quorum->stopped;
    if (!stopped)
        hfi_list_push_back(&quorum->inbox, &request->link);
    pthread_mutex_unlock(&quorum->inbox_mtx);
    if (!stopped) {
        hfi_task_post(quorum->task, EVENT_INBOX);
        return;
    }
    state->request = NULL;
    hfi_request_unref(request);
    hfi_request_unref(request);
    fail_at_once(call, HF_ECLOSED);
}

static void step(struct hfi_call *call, unsigned events) {
    struct call_state *state = call->state;
    struct hfi_request *request = state->request;
    (void)events;
    if (request == NULL || !atomic_load(&request->done))
        return;
    state->request = NULL;
    call->err = request->err;
    if (request->err != HF_OK) /* else it is of a server in the minority */
        call->error = request->error;
    call->value = request->value;
    call->proof = request->proof;
    call->token = request->token;
    call->votes = request->votes;
    call->servers = (int64_t)request->quorum->len;
    call->contended = request->contended;
    call->no_server = request->no_server;
    call->gone = request->gone;
    if (request->info != NULL)
        call->info = request->info;
    else
        call->findings = request->findings;
    request->info = NULL;
    request->findings = NULL;
    hfi_request_unref(request);
    call->done(call);
}

static void cancel(struct hfi_call *call, int err) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(call->engine);
    struct hfi_request *request = ((struct call_state *)call->state)->request;
    if (request == NULL)
        return;
    atomic_store(&request->stop_err, err);
    pthread_mutex_lock(&quorum->inbox_mtx);
    bool late = quorum->stopped || atomic_load(&request->done) || hfi_linked(&request->stop_link);
    if (!late) {
        atomic_fetch_add(&request->refs, 1);
        hfi_list_push_back(&quorum->stops, &request->stop_link);
    }
    pthread_mutex_unlock(&quorum->inbox_mtx);
    if (!late)
        hfi_task_post(quorum->task, EVENT_INBOX);
}

static struct hfi_link *next_of(struct hfi_quorum *quorum, struct hfi_link *list) {
    pthread_mutex_lock(&quorum->inbox_mtx);
    struct hfi_link *link = hfi_list_pop_front(list);
    pthread_mutex_unlock(&quorum->inbox_mtx);
    return link;
}

/* Begins new requests, and ends cancelled ones. On the keeper's thread. */
static void take_inbox(struct hfi_quorum *quorum) {
    struct hfi_link *link;
    while ((link = next_of(quorum, &quorum->inbox)) != NULL) {
        struct hfi_request *request = HFI_CONTAINER(link, struct hfi_request, link);
        hfi_list_push_back(&quorum->running, &request->link);
        request->begin(request);
    }
    while ((link = next_of(quorum, &quorum->stops)) != NULL) {
        struct hfi_request *request = HFI_CONTAINER(link, struct hfi_request, stop_link);
        if (!atomic_load(&request->done) && request->stop != NULL)
            request->stop(request, atomic_load(&request->stop_err));
        hfi_request_unref(request);
    }
}

/* ---- The quorum's task ---- */

struct quorum_task {
    struct hfi_task task;
    const struct hfi_mem *mem;
    struct hfi_quorum *quorum;
};

static void run(struct hfi_task *task, unsigned events) {
    struct hfi_quorum *quorum = HFI_CONTAINER(task, struct quorum_task, task)->quorum;
    (void)events;
    hfi_member_ops_finish(quorum);
    take_inbox(quorum);
}

static void destroy(struct hfi_task *task) {
    struct quorum_task *own = HFI_CONTAINER(task, struct quorum_task, task);
    hfi_free(own->mem, own);
}

static bool make_task(struct hfi_quorum *quorum) {
    struct quorum_task *own = hfi_zalloc(quorum->mem, sizeof *own);
    if (own == NULL)
        return false;
    hfi_task_init(&own->task, quorum->keeper, run, destroy);
    own->mem = quorum->mem;
    own->quorum = quorum;
    quorum->task = &own->task;
    return true;
}

/* ---- Operations ---- */

static void acquire(struct hfi_call *call) {
    send_to_keeper(call, hfi_acquire_begin);
}

static void release(struct hfi_call *call) {
    send_to_keeper(call, hfi_release_begin);
}

static void extend(struct hfi_call *call) {
    send_to_keeper(call, hfi_extend_begin);
}

static void settle(struct hfi_call *call) {
    send_to_keeper(call, hfi_settle_begin);
}

static void break_holds(struct hfi_call *call) {
    send_to_keeper(call, hfi_break_begin);
}

static void ask(struct hfi_call *call) {
    send_to_keeper(call, hfi_ask_begin);
}

static void inspect(struct hfi_call *call) {
    send_to_keeper(call, hfi_inspect_begin);
}

static void find(struct hfi_call *call) {
    send_to_keeper(call, hfi_find_begin);
}

static const struct hfi_call_ops call_ops = {
    .call_size = sizeof(struct call_state),
    .observes = HFI_OBSERVES_LOCK | HFI_OBSERVES_FLEET,
    .acquire = acquire,
    .release = release,
    .extend = extend,
    .break_holds = break_holds,
    .ask = ask,
    .settle = settle,
    .step = step,
    .cancel = cancel,
};

/* ---- Kinds ---- */

/* Even a fixed lease is renewed (keeps_fresh), to acquire it again at servers that lost it. The
 * core above handles re-entry: at the servers the lock never nests. Of a string lock each server has
 * a token of its own, which its member's core keeps. */
#define EXCLUSIVE(members_kind, members_flags)                                                     \
    .ops = &call_ops, .exclusive = true, .keeps_fresh = true, .leaves_traces = true,               \
    .engine_private = &(const struct hfi_quorum_kind) {                                            \
        members_kind, members_flags                                                                \
    }

static const struct {
    hf_kind kind;
    unsigned flags;
    struct hfi_kind table;
} kinds[] = {
    {HF_PLAIN, 0, {EXCLUSIVE(HF_PLAIN, 0), .name = "plain", .reentrant = true}},
    {HF_PLAIN, HF_NONREENTRANT, {EXCLUSIVE(HF_PLAIN, 0), .name = "non-reentrant"}},
    {HF_PLAIN,
     HF_FENCED,
     {EXCLUSIVE(HF_PLAIN, HF_FENCED), .name = "fenced", .reentrant = true, .token = true}},
    {HF_STRING,
     0,
     {EXCLUSIVE(HF_STRING, 0), .name = "string", .part = "string", .reentrant = true,
      .takes_stamp = true}},
    {HF_STRING,
     HF_NONREENTRANT,
     {EXCLUSIVE(HF_STRING, 0), .name = "non-reentrant string", .part = "string",
      .takes_stamp = true}},
};

static const struct hfi_kind *find_kind(struct hfi_engine *engine, hf_kind kind, unsigned flags) {
    (void)engine;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == kind && kinds[i].flags == flags)
            return &kinds[i].table;
    return NULL;
}

static const struct hfi_kind *find_object(struct hfi_engine *engine, enum hfi_object object) {
    (void)engine, (void)object;
    return NULL;
}

static const struct hfi_kind *find_server(struct hfi_engine *engine) {
    static const struct hfi_kind servers = {.name = "servers", .ops = &call_ops};
    (void)engine;
    return &servers;
}

/* ---- Names ---- */

static int check_name(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                      size_t len, hf_error *error) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    int err = HF_OK;
    for (size_t i = 0; i < quorum->len && err == HF_OK; i++) {
        struct hfi_engine *member = quorum->members[i]->core.engine;
        err = member->ops->check_name(member, kind, name, len, error);
    }
    return err;
}

/* ---- Events for the core above ---- */

static void set_engine_events(struct hfi_engine *engine,
                              const struct hfi_engine_events *engine_events) {
    hfi_quorum_of_engine(engine)->engine_events = engine_events;
}

/* The members' cores settle the residue. */
static int64_t settle_until_ms(struct hfi_engine *engine, const struct hfi_kind *kind,
                               int64_t lease_ms) {
    (void)kind;
    return hfi_after_ms(hfi_now_ms() + hfi_quorum_of_engine(engine)->config.cmd_timeout_ms,
                        lease_ms);
}

/* ---- Manual dispatch: the keeper drives everything ---- */

static void flush(struct hfi_engine *engine) {
    (void)engine;
}

static size_t poll_fds(struct hfi_engine *engine, struct pollfd *fds, size_t cap) {
    (void)engine, (void)fds, (void)cap;
    return 0;
}

static void service(struct hfi_engine *engine, const struct pollfd *fds, size_t len) {
    (void)engine, (void)fds, (void)len;
}

static void enlist(struct hfi_engine *engine, int epoll_fd) {
    (void)engine, (void)epoll_fd;
}

/* ---- Life ---- */

static void stop_requests(struct hfi_quorum *quorum) {
    while (!hfi_list_empty(&quorum->running)) {
        struct hfi_request *request = HFI_CONTAINER(quorum->running.next, struct hfi_request, link);
        request->stop(request, HF_ECLOSED);
    }
    struct hfi_keyed *next, *keyed = hfi_table_first(&quorum->table);
    for (; keyed != NULL; keyed = next) {
        next = hfi_table_next(&quorum->table, keyed);
        hfi_ballot_clear_alarms(hfi_ballot_of(keyed));
        hfi_rounds_end(hfi_ballot_of(keyed), HF_ECLOSED);
    }
}

static void stop(struct hfi_engine *engine) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    take_inbox(quorum);
    pthread_mutex_lock(&quorum->inbox_mtx);
    bool again = quorum->stopped;
    quorum->stopped = true;
    pthread_mutex_unlock(&quorum->inbox_mtx);
    if (again)
        return;
    take_inbox(quorum);
    stop_requests(quorum);
    for (size_t i = 0; i < quorum->len; i++) {
        struct hfi_engine *member = quorum->members[i]->core.engine;
        member->ops->stop(member);
    }
}

static void free_ballots(struct hfi_quorum *quorum) {
    struct hfi_keyed *keyed;
    while ((keyed = hfi_table_first(&quorum->table)) != NULL) {
        hfi_table_remove(quorum->mem, &quorum->table, keyed);
        hfi_stamp_text_unref(hfi_ballot_of(keyed)->text);
        hfi_free(quorum->mem, hfi_ballot_of(keyed));
    }
}

static void free_engine(struct hfi_engine *engine) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    if (quorum->task != NULL) {
        stop(engine);
        hfi_member_ops_finish(quorum);
        hfi_task_retire(quorum->task);
        hfi_task_unref(quorum->task);
    }
    free_ballots(quorum);
    for (size_t i = 0; i < quorum->len; i++)
        hfi_member_free(quorum->members[i]);
    pthread_mutex_destroy(&quorum->inbox_mtx);
    hfi_free(quorum->mem, quorum);
}

static void close_fds(struct hfi_engine *engine) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    for (size_t i = 0; i < quorum->len; i++) {
        struct hfi_engine *member = quorum->members[i]->core.engine;
        member->ops->close_fds(member);
    }
}

static void announce(struct hfi_engine *engine) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    for (size_t i = 0; i < quorum->len; i++) {
        struct hfi_engine *member = quorum->members[i]->core.engine;
        if (member->ops->observe->announce != NULL)
            member->ops->observe->announce(member);
    }
}

static bool is_announcing(struct hfi_engine *engine) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    for (size_t i = 0; i < quorum->len; i++) {
        struct hfi_engine *member = quorum->members[i]->core.engine;
        if (member->ops->observe->is_announcing != NULL &&
            member->ops->observe->is_announcing(member))
            return true;
    }
    return false;
}

static const struct hfi_observe_ops observe_ops = {
    .read = {[HFI_OBSERVE_LOCK] = inspect, [HFI_OBSERVE_FLEET] = find},
    .subscribe = hfi_quorum_subscribe,
    .announce = announce,
    .is_announcing = is_announcing,
};

static const struct hfi_engine_ops engine_ops = {
    .kind = find_kind,
    .object = find_object,
    .server = find_server,
    .check_name = check_name,
    .renew = hfi_quorum_renew,
    .settle_until_ms = settle_until_ms,
    .set_engine_events = set_engine_events,
    .observe = &observe_ops,
    .flush = flush,
    .poll = poll_fds,
    .service = service,
    .enlist = enlist,
    .stop = stop,
    .free = free_engine,
    .close_fds = close_fds,
};

int hfi_quorum_new(const struct hfi_quorum_config *config, struct hfi_quorum **ret,
                   hf_error *error) {
    struct hfi_quorum *quorum = hfi_zalloc(config->mem, sizeof *quorum);
    if (quorum == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    quorum->base.ops = &engine_ops;
    quorum->mem = config->mem;
    quorum->log = config->log;
    quorum->keeper = config->keeper;
    quorum->config = *config;
    memcpy(quorum->id, config->id, sizeof quorum->id);
    quorum->guard_ms = config->restart_guard_ms;
    pthread_mutex_init(&quorum->inbox_mtx, NULL);
    hfi_list_init(&quorum->inbox);
    hfi_list_init(&quorum->stops);
    hfi_list_init(&quorum->running);
    hfi_list_init(&quorum->finished);
    if (!make_task(quorum)) {
        free_engine(&quorum->base);
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    }
    *ret = quorum;
    return HF_OK;
}

int hfi_quorum_add(struct hfi_quorum *quorum, struct hfi_engine *engine, const char *node,
                   hf_error *error) {
    if (quorum->len == HFI_SERVERS_MAX) {
        engine->ops->free(engine);
        return hfi_fail(error, HF_EINVAL, "a quorum can have at most %d servers", HFI_SERVERS_MAX);
    }
    int err = hfi_member_new(quorum, engine, node, &quorum->members[quorum->len]);
    if (err != HF_OK)
        return hfi_fail(error, err, "%s", hf_strerror(err));
    quorum->len++;
    quorum->majority = hfi_quorum_of(quorum->len);
    return HF_OK;
}

struct hfi_engine *hfi_quorum_engine(struct hfi_quorum *quorum) {
    return &quorum->base;
}

bool hfi_quorum_is_idle(struct hfi_quorum *quorum) {
    return atomic_load(&quorum->member_ops) == 0;
}

void hfi_quorum_close_ops(struct hfi_quorum *quorum) {
    for (size_t i = 0; i < quorum->len; i++) {
        atomic_store(&quorum->members[i]->core.closing, true);
        hfi_core_close_ops(&quorum->members[i]->core);
    }
}

bool hfi_quorum_is_settled(struct hfi_quorum *quorum) {
    bool settled = hfi_quorum_is_idle(quorum);
    for (size_t i = 0; i < quorum->len && settled; i++)
        settled = hfi_core_is_idle(&quorum->members[i]->core);
    return settled;
}

void hfi_quorum_abandon(struct hfi_quorum *quorum) {
    for (size_t i = 0; i < quorum->len; i++) {
        atomic_store(&quorum->members[i]->core.abandoning, true);
        hfi_core_close_ops(&quorum->members[i]->core);
    }
}
