/* A client without src/api: a keeper's thread, the hooks of the core, synchronous and other
 * operations. What the core tells is written down. */
#include "seam/client.h"

#include "support/sync.h"
#include "support/wait.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

/* ---- Hooks ---- */

/* The dispatcher is the caller that has the notice: nothing here waits. */
static void dispatch(void *arg, struct hfi_notice *notice) {
    (void)arg;
    notice->run(notice);
}

static bool note_loss_event(void *arg, const struct hfi_kind *kind, const char *name,
                            size_t name_len, hf_event_kind event) {
    (void)arg;
    (void)kind;
    (void)name;
    (void)name_len;
    (void)event;
    return true;
}

static void run_callbacks(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                          const char *owner, const hf_event *event) {
    struct client *client = arg;
    (void)kind;
    (void)owner;
    pthread_mutex_lock(&client->mtx);
    size_t i = client->events_len++;
    assert(i < CLIENT_EVENTS_MAX && name_len < sizeof client->events[i].name);
    client->events[i].kind = event->kind;
    client->events[i].reason = event->reason;
    client->events[i].at_ms = hfi_now_ms();
    memcpy(client->events[i].name, name, name_len);
    pthread_mutex_unlock(&client->mtx);
}

static void retain(void *arg) {
    atomic_fetch_add(&((struct client *)arg)->unfinished, 1);
}

static void forget(void *arg) {
    atomic_fetch_sub(&((struct client *)arg)->unfinished, 1);
}

static void idle(void *arg) {
    (void)arg;
}

static void changed(void *arg, const struct hfi_scope *scope) {
    (void)scope;
    atomic_fetch_add(&((struct client *)arg)->changes, 1);
}

/* ---- Life ---- */

static void *keep(void *arg) {
    struct client *client = arg;
    while (!atomic_load(&client->stop))
        if (!hfi_exec_run(&client->keeper))
            hfi_exec_sleep(&client->keeper);
    client->core.engine->ops->stop(client->core.engine);
    hfi_exec_run(&client->keeper);
    return NULL;
}

struct client *client_open(int64_t session_ms) {
    struct client *client = calloc(1, sizeof *client);
    assert(client != NULL);
    pthread_mutex_init(&client->mtx, NULL);
    hfi_exec_init(&client->keeper);
    client->memory = memory_new(&client->keeper, session_ms);
    struct hfi_core *core = &client->core;
    core->mem = &client->mem;
    core->log = &client->log;
    core->engine = memory_engine(client->memory);
    core->keeper = &client->keeper;
    core->pid = getpid();
    core->cmd_timeout_ms = 1000;
    core->watchdog_ms = session_ms;
    core->watchdog_trusted_ms = session_ms;
    memcpy(core->id, "00000000-0000-4000-8000-000000000000", sizeof core->id);
    core->hooks = (struct hfi_core_hooks){.dispatch = dispatch,
                                          .loss_event = note_loss_event,
                                          .run_callbacks = run_callbacks,
                                          .retain = retain,
                                          .forget = forget,
                                          .changed = changed,
                                          .idle = idle,
                                          .arg = client};
    int err = hfi_core_init(core);
    assert(err == HF_OK);
    (void)err;
    client->thread = sync_thread(keep, client);
    return client;
}

static bool is_idle(void *arg) {
    return hfi_core_is_idle(&((struct client *)arg)->core);
}

void client_close(struct client *client) {
    struct hfi_core *core = &client->core;
    atomic_store(&core->closing, true);
    atomic_store(&core->abandoning, true);
    hfi_core_close_ops(core);
    if (!wait_until(is_idle, client, HANG_MS))
        support_die("operations do not end");
    atomic_store(&client->stop, true);
    hfi_exec_wake(&client->keeper);
    pthread_join(client->thread, NULL);
    hfi_core_clear(core);
    core->engine->ops->free(core->engine);
    hfi_exec_destroy(&client->keeper);
    if (atomic_load(&client->unfinished) != 0)
        support_die("%d operations are left", atomic_load(&client->unfinished));
    pthread_mutex_destroy(&client->mtx);
    free(client);
}

/* ---- Operations ---- */

static struct hfi_op_args args_of(const struct request *request) {
    return (struct hfi_op_args){.verb = request->verb,
                                .kind = request->kind != NULL ? request->kind : &memory_lock,
                                .name = request->name,
                                .name_len = strlen(request->name),
                                .owner = request->owner != 0 ? request->owner : 1,
                                .wait_ms = request->wait_ms,
                                .lease_ms = request->lease_ms};
}

int client_run(struct client *client, const struct request *request, hf_result *ret) {
    struct hfi_op_args args = args_of(request);
    struct hfi_exec exec;
    hfi_exec_init(&exec);
    args.lane = HFI_LANE_CALLER;
    args.exec = &exec;
    struct hf_op *op = hfi_op_new(&client->core, &args);
    assert(op != NULL);
    hfi_op_begin(op);
    while (!hfi_op_is_complete(op))
        if (!hfi_exec_run(&exec))
            args.kind->ops->drive(op->call);
    hfi_exec_run(&exec);
    int err = op->work->result.code;
    if (ret != NULL)
        *ret = op->work->result;
    hfi_task_unref(&op->task);
    hfi_exec_destroy(&exec);
    return err;
}

struct hf_op *client_start(struct client *client, const struct request *request,
                           void (*on_result)(void *user, const hf_result *result), void *user) {
    struct hfi_op_args args = args_of(request);
    args.lane = HFI_LANE_KEEPER;
    args.exec = &client->keeper;
    args.on_result = on_result;
    args.user = user;
    struct hf_op *op = hfi_op_new(&client->core, &args);
    assert(op != NULL);
    hfi_task_post(&op->task, HFI_OP_BEGIN);
    return op;
}

int client_acquire(struct client *client, const char *name, int64_t lease_ms) {
    return client_run(
        client,
        &(struct request){
            .verb = &hfi_verb_acquire, .name = name, .lease_ms = lease_ms, .wait_ms = HANG_MS},
        NULL);
}

int client_release(struct client *client, const char *name, hf_result *ret) {
    return client_run(client, &(struct request){.verb = &hfi_verb_release, .name = name}, ret);
}

/* ---- What is known ---- */

int64_t client_left_ms(struct client *client, const char *name) {
    struct hfi_core *core = &client->core;
    size_t len = strlen(name);
    struct hfi_shard *shard = hfi_core_shard(core, name, len);
    pthread_mutex_lock(&shard->mtx);
    const struct hfi_hold *hold = hfi_hold_find_locked(core, shard, &memory_lock, name, len, 1);
    int64_t left_ms = hold != NULL && hold->count > 0 ? hfi_left_ms(hfi_hold_deadline_ms(hold)) : 0;
    pthread_mutex_unlock(&shard->mtx);
    return left_ms;
}

unsigned client_reported(struct client *client, hf_event_kind kind, const char *name,
                         int64_t *ret_at_ms, const char **ret_reason) {
    unsigned times = 0;
    pthread_mutex_lock(&client->mtx);
    for (size_t i = 0; i < client->events_len; i++) {
        if (client->events[i].kind != kind || strcmp(client->events[i].name, name) != 0)
            continue;
        times++;
        if (ret_at_ms != NULL)
            *ret_at_ms = client->events[i].at_ms;
        if (ret_reason != NULL)
            *ret_reason = client->events[i].reason;
    }
    pthread_mutex_unlock(&client->mtx);
    return times;
}
