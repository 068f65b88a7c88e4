/* What a test sees of the engine in memory, and does to it. On the test's thread; events are reported on the
 * keeper's. */
#include "seam/memory_internal.h"

#include "base/clock.h"

#include <assert.h>
#include <semaphore.h>
#include <string.h>

int64_t memory_count(struct memory *memory, const char *name) {
    pthread_mutex_lock(&memory->mtx);
    const struct record *record = memory_record(memory, name, strlen(name));
    int64_t count = record != NULL ? record->count : 0;
    pthread_mutex_unlock(&memory->mtx);
    return count;
}

unsigned memory_renewals(struct memory *memory, int node) {
    pthread_mutex_lock(&memory->mtx);
    unsigned renewals = memory->nodes[node].renewals;
    pthread_mutex_unlock(&memory->mtx);
    return renewals;
}

unsigned memory_unanswered(struct memory *memory, int node) {
    pthread_mutex_lock(&memory->mtx);
    unsigned unanswered = memory->nodes[node].unanswered;
    pthread_mutex_unlock(&memory->mtx);
    return unanswered;
}

unsigned memory_renewals_beside(struct memory *memory, int node) {
    pthread_mutex_lock(&memory->mtx);
    unsigned beside = memory->nodes[node].beside;
    pthread_mutex_unlock(&memory->mtx);
    return beside;
}

bool memory_is_awaited(struct memory *memory) {
    pthread_mutex_lock(&memory->mtx);
    bool awaited = !hfi_list_empty(&memory->waiting);
    pthread_mutex_unlock(&memory->mtx);
    return awaited;
}

void memory_silence(struct memory *memory, int node, bool silent) {
    pthread_mutex_lock(&memory->mtx);
    memory->nodes[node].silent = silent;
    memory_wake(memory);
    pthread_mutex_unlock(&memory->mtx);
}

void memory_plan(struct memory *memory, bool plans) {
    atomic_store(&memory->unplanned, !plans);
}

void memory_drop(struct memory *memory, const char *name) {
    pthread_mutex_lock(&memory->mtx);
    struct record *record = memory_record(memory, name, strlen(name));
    assert(record != NULL);
    record->count = 0;
    memory_wake(memory);
    pthread_mutex_unlock(&memory->mtx);
}

/* ---- News ---- */

/* An event to report on the keeper's thread, while the test waits. */
struct message {
    struct hfi_alarm alarm;
    struct memory *memory;
    enum { LOST, DOUBTED, PROVED, RECONNECTED } what;
    struct hfi_scope scope;
    const char *reason;
    int64_t reach_ms;
    sem_t notified;
};

static void tell(struct hfi_alarm *alarm) {
    struct message *message = HFI_CONTAINER(alarm, struct message, alarm);
    const struct hfi_engine_events *engine_events = message->memory->engine_events;
    struct hfi_proof proof = memory_proof(message->memory, message->reach_ms);
    proof.valid_until_ms = proof.promised_until_ms; /* of leases it knows nothing */
    switch (message->what) {
    case LOST:
        engine_events->lost(engine_events->arg, &message->scope, message->reason);
        break;
    case DOUBTED:
        engine_events->doubted(engine_events->arg, &message->scope);
        break;
    case PROVED:
        engine_events->proved(engine_events->arg, &message->scope, &proof);
        break;
    case RECONNECTED:
        engine_events->reconnected(engine_events->arg, &message->scope);
        break;
    }
    sem_post(&message->notified);
}

static void tell_and_wait(struct memory *memory, struct message *message) {
    message->memory = memory;
    message->alarm.fire = tell;
    sem_init(&message->notified, 0, 0);
    hfi_alarm_set(memory->keeper, &message->alarm, hfi_now_ms());
    while (sem_wait(&message->notified) != 0)
        continue;
    sem_destroy(&message->notified);
}

void memory_end_session(struct memory *memory, int node) {
    struct node *there = &memory->nodes[node];
    pthread_mutex_lock(&memory->mtx);
    for (size_t i = 0; i < RECORDS_MAX; i++) {
        struct record *record = &memory->records[i];
        if (record->count > 0 && memory_node(memory, record->name, strlen(record->name)) == there)
            record->count = 0;
    }
    memory_wake(memory);
    pthread_mutex_unlock(&memory->mtx);
    struct message message = {.what = LOST, .scope.node = there, .reason = "the session is over"};
    tell_and_wait(memory, &message);
}

void memory_take_away(struct memory *memory, const char *name, const char *owner) {
    memory_drop(memory, name);
    struct message message = {.what = LOST,
                              .scope = {.name = name,
                                        .name_len = strlen(name),
                                        .owner = owner,
                                        .owner_len = strlen(owner),
                                        .kind = &memory_lock},
                              .reason = "it was taken away"};
    tell_and_wait(memory, &message);
}

void memory_doubt(struct memory *memory, const char *name) {
    struct message message = {.what = DOUBTED,
                              .scope = {.name = name, .name_len = name != NULL ? strlen(name) : 0}};
    tell_and_wait(memory, &message);
}

void memory_prove(struct memory *memory, int node, int64_t reach_ms) {
    struct message message = {
        .what = PROVED, .scope.node = &memory->nodes[node], .reach_ms = reach_ms};
    tell_and_wait(memory, &message);
}

void memory_reconnect(struct memory *memory, int node) {
    struct message message = {.what = RECONNECTED, .scope.node = &memory->nodes[node]};
    tell_and_wait(memory, &message);
}
