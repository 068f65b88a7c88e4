/*
 * The engine in memory.
 *
 * What the nodes keep, and the calls and renewals that wait for something, are guarded by `mtx`. A
 * call runs on its task's executor; the caller that changes a node posts to those that wait, and each tries
 * again by itself. Renewals and news are the keeper's.
 */
#include "seam/memory_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "engine/observe.h"
#include "support/wait.h"

#include <assert.h>
#include <string.h>

#define EVENT_AGAIN (1u << HFI_ENGINE_EVENT_SHIFT)
#define TIMEOUT_MS 300 /* for an answer, where nothing else limits it */

/* What a call does at its node, with `mtx` locked. HF_EBUSY: not now. */
typedef int attempt_fn(struct memory *memory, struct hfi_call *call);

struct state {
    struct hfi_link link; /* in `waiting` */
    struct hfi_alarm alarm;
    struct hfi_call *call;
    attempt_fn *attempt;
    bool unanswered;
};

static struct memory *memory_of(struct hfi_engine *engine) {
    return HFI_CONTAINER(engine, struct memory, base);
}

struct node *memory_node(struct memory *memory, const char *name, size_t len) {
    int index = name[len - 1] - '0';
    assert(index >= 0 && index < MEMORY_NODES);
    return &memory->nodes[index];
}

static bool is_text(const char *text, const char *bytes, size_t len) {
    return strlen(text) == len && memcmp(text, bytes, len) == 0;
}

struct record *memory_record(struct memory *memory, const char *name, size_t name_len) {
    for (size_t i = 0; i < RECORDS_MAX; i++) {
        struct record *record = &memory->records[i];
        if (record->count > 0 && is_text(record->name, name, name_len))
            return record;
    }
    return NULL;
}

static struct record *new_record(struct memory *memory, const struct hfi_call *call) {
    assert(call->name_len < TEXT_MAX && call->owner_len < TEXT_MAX);
    for (size_t i = 0; i < RECORDS_MAX; i++) {
        struct record *record = &memory->records[i];
        if (record->count > 0)
            continue;
        *record = (struct record){0};
        memcpy(record->name, call->name, call->name_len);
        memcpy(record->owner, call->owner, call->owner_len);
        return record;
    }
    support_die("the engine in memory is full");
}

void memory_wake(struct memory *memory) {
    for (struct hfi_link *link = memory->waiting.next; link != &memory->waiting; link = link->next)
        hfi_task_post(HFI_CONTAINER(link, struct state, link)->call->task, EVENT_AGAIN);
}

struct hfi_proof memory_proof(const struct memory *memory, int64_t lease_ms) {
    int64_t now = hfi_now_ms();
    return (struct hfi_proof){
        .valid_until_ms = now + memory->session_ms,
        .renew_at_ms = atomic_load(&memory->unplanned) ? HFI_NEVER : now + memory->session_ms / 3,
        .promised_until_ms = hfi_after_ms(now, lease_ms)};
}

/* ---- Calls ---- */

static void finish(struct hfi_call *call, int err) {
    struct state *state = call->state;
    struct memory *memory = memory_of(call->engine);
    pthread_mutex_lock(&memory->mtx);
    hfi_list_remove(&state->link);
    pthread_mutex_unlock(&memory->mtx);
    hfi_alarm_clear(call->task->exec, &state->alarm);
    call->err = err;
    call->unsettled = err != HF_OK && state->unanswered;
    if (err != HF_OK && call->error.text[0] == '\0')
        hfi_fail(&call->error, err, "%s", hf_strerror(err));
    state->attempt = NULL;
    call->done(call);
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(HFI_CONTAINER(alarm, struct state, alarm)->call->task, EVENT_AGAIN);
}

/* When to give up: an answer is waited for even if the lock is not. */
static int64_t limit_ms(const struct hfi_call *call, bool unanswered) {
    int64_t at_least_ms = unanswered ? call->start_ms + TIMEOUT_MS : 0;
    return call->deadline_ms > at_least_ms ? call->deadline_ms : at_least_ms;
}

static void try_it(struct hfi_call *call) {
    struct state *state = call->state;
    struct memory *memory = memory_of(call->engine);
    pthread_mutex_lock(&memory->mtx);
    bool silent = memory_node(memory, call->name, call->name_len)->silent;
    int err = silent ? HF_EUNREACH : state->attempt(memory, call);
    bool again = silent || err == HF_EBUSY;
    bool over = hfi_now_ms() >= limit_ms(call, silent);
    if (again && !over && !hfi_linked(&state->link))
        hfi_list_push_back(&memory->waiting, &state->link);
    pthread_mutex_unlock(&memory->mtx);
    state->unanswered = silent;
    call->contended |= err == HF_EBUSY;
    if (!again || over)
        finish(call, err == HF_EBUSY && call->deadline_ms > call->start_ms ? HF_ETIMEDOUT : err);
    else
        hfi_alarm_set(call->task->exec, &state->alarm, limit_ms(call, silent));
}

static void begin(struct hfi_call *call, attempt_fn *attempt) {
    struct state *state = call->state;
    state->call = call;
    state->attempt = attempt;
    state->alarm.fire = alarm_fired;
    try_it(call);
}

static void step(struct hfi_call *call, unsigned events) {
    const struct state *state = call->state;
    if ((events & EVENT_AGAIN) != 0 && state->attempt != NULL)
        try_it(call);
}

static void cancel(struct hfi_call *call, int err) {
    const struct state *state = call->state;
    if (state->attempt != NULL)
        finish(call, err);
}

static int acquire_locked(struct memory *memory, struct hfi_call *call) {
    struct record *record = memory_record(memory, call->name, call->name_len);
    if (record == NULL && call->count > 0)
        return hfi_fail(&call->error, HF_ELOST, "it is not there any more");
    if (record != NULL && !is_text(record->owner, call->owner, call->owner_len))
        return HF_EBUSY;
    if (record == NULL)
        record = new_record(memory, call);
    record->count = call->value = call->count + 1;
    call->proof = memory_proof(memory, call->lease_ms);
    return HF_OK;
}

/* No more than `count` of it are this owner's. */
static bool lower_locked(struct memory *memory, const struct hfi_call *call, int64_t count) {
    struct record *record = memory_record(memory, call->name, call->name_len);
    if (record == NULL || !is_text(record->owner, call->owner, call->owner_len))
        return false;
    if (record->count > count)
        record->count = count;
    memory_wake(memory);
    return true;
}

static int release_locked(struct memory *memory, struct hfi_call *call) {
    call->value = call->count - 1;
    if (lower_locked(memory, call, call->count - 1))
        return HF_OK;
    call->gone = true;
    return hfi_fail(&call->error, HF_ELOST, "it is not there any more");
}

static int settle_locked(struct memory *memory, struct hfi_call *call) {
    lower_locked(memory, call, call->settle_release ? call->count - 1 : call->count);
    return HF_OK;
}

static int extend_locked(struct memory *memory, struct hfi_call *call) {
    const struct record *record = memory_record(memory, call->name, call->name_len);
    if (record == NULL || !is_text(record->owner, call->owner, call->owner_len))
        return hfi_fail(&call->error, HF_ELOST, "it is not there any more");
    call->proof = memory_proof(memory, call->lease_ms);
    return HF_OK;
}

static void acquire(struct hfi_call *call) {
    begin(call, acquire_locked);
}

static void release(struct hfi_call *call) {
    begin(call, release_locked);
}

static void extend(struct hfi_call *call) {
    begin(call, extend_locked);
}

static void settle(struct hfi_call *call) {
    call->start_ms = hfi_now_ms();
    begin(call, settle_locked);
}

static void drive(struct hfi_call *call) {
    hfi_exec_sleep(call->task->exec);
}

static const struct hfi_call_ops lock_ops = {.call_size = sizeof(struct state),
                                             .acquire = acquire,
                                             .release = release,
                                             .extend = extend,
                                             .settle = settle,
                                             .step = step,
                                             .cancel = cancel,
                                             .drive = drive};

static const struct hfi_call_ops leaseless_ops = {.call_size = sizeof(struct state),
                                                  .acquire = acquire,
                                                  .release = release,
                                                  .settle = settle,
                                                  .step = step,
                                                  .cancel = cancel,
                                                  .drive = drive};

const struct hfi_kind memory_lock = {.name = "lock",
                                     .ops = &lock_ops,
                                     .reentrant = true,
                                     .exclusive = true,
                                     .ends_with_session = true};

const struct hfi_kind memory_leaseless = {.name = "leaseless",
                                          .ops = &leaseless_ops,
                                          .part = "leaseless",
                                          .reentrant = true,
                                          .exclusive = true,
                                          .leaseless = true,
                                          .ends_with_session = true};

/* ---- Renewals ---- */

struct silence {
    struct hfi_link link;
    struct hfi_alarm alarm;
    struct memory *memory;
    struct hfi_renewal *renewal;
};

static struct node *node_of_renewal(const struct hfi_renewal *renewal) {
    return (struct node *)(uintptr_t)renewal->node;
}

static void end_silence(struct silence *silence, int err) {
    struct memory *memory = silence->memory;
    struct hfi_renewal *renewal = silence->renewal;
    hfi_list_remove(&silence->link);
    hfi_alarm_clear(memory->keeper, &silence->alarm);
    pthread_mutex_lock(&memory->mtx);
    node_of_renewal(renewal)->unanswered--;
    pthread_mutex_unlock(&memory->mtx);
    free(silence);
    renewal->err = hfi_fail(&renewal->error, err, "%s", hf_strerror(err));
    renewal->done(renewal);
}

static void silence_is_long(struct hfi_alarm *alarm) {
    end_silence(HFI_CONTAINER(alarm, struct silence, alarm), HF_EUNREACH);
}

static void begin_silence(struct memory *memory, struct hfi_renewal *renewal) {
    struct silence *silence = calloc(1, sizeof *silence);
    assert(silence != NULL);
    silence->memory = memory;
    silence->renewal = renewal;
    silence->alarm.fire = silence_is_long;
    hfi_list_push_back(&memory->silent_renewals, &silence->link);
    hfi_alarm_set(memory->keeper, &silence->alarm, renewal->deadline_ms);
}

static void answer_locked(struct memory *memory, struct hfi_renewal *renewal) {
    for (size_t i = 0; i < renewal->len; i++) {
        struct hfi_renewal_item *item = &renewal->items[i];
        const struct record *record = memory_record(memory, item->name, item->name_len);
        /* a batch is one node's alone */
        assert(memory_node(memory, item->name, item->name_len) == renewal->node);
        item->answer = record != NULL && is_text(record->owner, item->owner, item->owner_len);
        item->proof = memory_proof(memory, item->lease_ms);
    }
}

static bool is_owed_locked(const struct memory *memory) {
    for (int i = 0; i < MEMORY_NODES; i++)
        if (memory->nodes[i].unanswered > 0)
            return true;
    return false;
}

static void renew(struct hfi_engine *engine, struct hfi_renewal *renewal) {
    struct memory *memory = memory_of(engine);
    struct node *node = node_of_renewal(renewal);
    hfi_error_clear(&renewal->error);
    pthread_mutex_lock(&memory->mtx);
    bool silent = node->silent;
    if (silent) {
        node->unanswered++;
    } else {
        node->renewals++;
        node->beside += is_owed_locked(memory);
        answer_locked(memory, renewal);
    }
    pthread_mutex_unlock(&memory->mtx);
    if (silent) {
        begin_silence(memory, renewal);
        return;
    }
    renewal->err = HF_OK;
    renewal->done(renewal);
}

/* ---- The table ---- */

static const struct hfi_kind *find_kind(struct hfi_engine *engine, hf_kind kind, unsigned flags) {
    (void)engine;
    return kind == HF_PLAIN && flags == 0 ? &memory_lock : NULL;
}

static const struct hfi_kind *find_thing(struct hfi_engine *engine, enum hfi_object object) {
    (void)engine;
    (void)object;
    return NULL;
}

/* Until it has answered, or the session is over. */
static int64_t settle_until_ms(struct hfi_engine *engine, const struct hfi_kind *kind,
                               int64_t lease_ms) {
    (void)kind;
    (void)lease_ms;
    return hfi_now_ms() + memory_of(engine)->session_ms;
}

static const void *node_of(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                           size_t name_len) {
    (void)kind;
    return memory_node(memory_of(engine), name, name_len);
}

static void set_engine_events(struct hfi_engine *engine,
                              const struct hfi_engine_events *engine_events) {
    memory_of(engine)->engine_events = engine_events;
}

static void stop(struct hfi_engine *engine) {
    struct memory *memory = memory_of(engine);
    struct hfi_link *next, *silent = &memory->silent_renewals;
    for (struct hfi_link *link = silent->next; link != silent; link = next) {
        next = link->next;
        end_silence(HFI_CONTAINER(link, struct silence, link), HF_ECLOSED);
    }
}

static void free_engine(struct hfi_engine *engine) {
    struct memory *memory = memory_of(engine);
    assert(hfi_list_empty(&memory->waiting));
    pthread_mutex_destroy(&memory->mtx);
    free(memory);
}

static const struct hfi_observe_ops observe_ops; /* it offers nothing of it */

static const struct hfi_engine_ops memory_ops = {.kind = find_kind,
                                                 .object = find_thing,
                                                 .settle_until_ms = settle_until_ms,
                                                 .renew = renew,
                                                 .node_of = node_of,
                                                 .set_engine_events = set_engine_events,
                                                 .observe = &observe_ops,
                                                 .stop = stop,
                                                 .free = free_engine};

struct memory *memory_new(struct hfi_exec *keeper, int64_t session_ms) {
    struct memory *memory = calloc(1, sizeof *memory);
    assert(memory != NULL);
    memory->base.ops = &memory_ops;
    memory->keeper = keeper;
    memory->session_ms = session_ms;
    hfi_list_init(&memory->silent_renewals);
    hfi_list_init(&memory->waiting);
    pthread_mutex_init(&memory->mtx, NULL);
    return memory;
}

struct hfi_engine *memory_engine(struct memory *memory) {
    return &memory->base;
}
