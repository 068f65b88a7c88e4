/*
 * A client: opening, entering and leaving a call. Closing is in close.c.
 *
 * The struct is reference-counted, because handles and operations may be freed after the client is
 * closed; everything it owns ends in hf_close(). In a forked child nothing is locked, joined or
 * sent: the pid is checked first.
 */
#include "api/client.h"
#include "api/handle.h"
#include "api/options.h"
#include "api/urls.h"
#include "api/versioned_struct.h"
#include "base/clock.h"
#include "joint/quorum/quorum.h"
#include "net/driver/keeper.h"
#include "scheme/scheme.h"
#include "task/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

const char *hf_version(void) {
    return HF_VERSION_TEXT;
}

int hf_version_num(void) {
    return HF_VERSION_NUM;
}

void hfi_client_ref(hf_client *client) {
    atomic_fetch_add_explicit(&client->refs, 1, memory_order_relaxed);
}

void hfi_client_unref(hf_client *client) {
    if (atomic_fetch_sub_explicit(&client->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&client->close_mtx);
    pthread_cond_destroy(&client->close_cond);
    pthread_mutex_destroy(&client->handles_mtx);
    pthread_cond_destroy(&client->handles_cond);
    hfi_cohorts_clear(&client->cohorts);
    hfi_name_stats_table_clear(&client->stats_table);
    hfi_fork_mark_free(client->not_forked);
    hfi_spares_clear(&client->mem);
    struct hfi_mem mem = {.hook = client->mem.hook};
    hfi_free(&mem, client);
}

static void retain(void *arg) {
    hfi_client_ref(arg);
}

static void forget(void *arg) {
    hfi_client_unref(arg);
}

static void idle(void *arg) {
    hf_client *client = arg;
    if (!atomic_load(&client->core.closing))
        return;
    pthread_mutex_lock(&client->close_mtx);
    pthread_cond_broadcast(&client->close_cond);
    pthread_mutex_unlock(&client->close_mtx);
    if (client->dispatcher.manual)
        hfi_exec_wake(&client->dispatcher.exec);
}

/* ---- Calls ---- */

static void leave(void *arg) {
    hf_client *client = arg;
    hfi_client_ref(client); /* the closing thread may be waiting for just this call */
    if (atomic_fetch_sub(&client->callers, 1) == 1 && atomic_load(&client->core.closing)) {
        pthread_mutex_lock(&client->close_mtx);
        pthread_cond_broadcast(&client->close_cond);
        pthread_mutex_unlock(&client->close_mtx);
    }
    hfi_client_unref(client);
}

/* Also from another client's threads. */
static bool enter(void *arg) {
    hf_client *client = arg;
    atomic_fetch_add(&client->callers, 1);
    if (!atomic_load(&client->core.closing))
        return true;
    leave(client);
    return false;
}

int hfi_enter(hf_client *client, struct hfi_entry *entry) {
    if (client == NULL)
        return HF_EINVAL;
    if (hfi_is_forked(client))
        return HF_EFORKED;
    entry->cancel_state = hfi_thread_cancel_disable();
    if (enter(client))
        return HF_OK;
    hfi_thread_cancel_restore(entry->cancel_state);
    return HF_ECLOSED;
}

void hfi_leave(hf_client *client, struct hfi_entry *entry) {
    leave(client);
    hfi_thread_cancel_restore(entry->cancel_state);
}

/* ---- Opening ---- */

static int make_uuid(char *text, hf_error *error) {
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return hfi_fail_errno(error, HF_ESYS, errno, "cannot get random numbers from the system");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(text, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
             b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
    return HF_OK;
}

#define LABEL_MAX 64 /* in bytes */

/* The client's name towards servers: "holdfast:<uuid>:<host>:<pid>:<program or label>". */
static void describe_self(const char *id, const char *label, char *text, size_t size) {
    char host[65] = "?";
    bool labelled = label != NULL && *label != '\0';
    gethostname(host, sizeof host - 1);
    snprintf(text, size, "holdfast:%s:%s:%ld:%.*s", id, host, (long)getpid(), LABEL_MAX,
             labelled ? label : program_invocation_short_name);
    for (char *c = text; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            *c = '_';
}

static int make_engine(hf_client *client, const struct hfi_url *url, const hf_options *options,
                       struct hfi_engine **ret, hf_error *error) {
    char name[256];
    describe_self(client->core.id, options->label, name, sizeof name);
    struct hfi_counters *counters = &client->core.counters;
    bool manual = client->dispatcher.manual && client->quorum == NULL;
    struct hfi_engine_config config = {
        .mem = &client->mem,
        .log = &client->log,
        .keeper = client->keeper,
        .dispatch = manual ? &client->dispatcher.exec : NULL,
        .url = url,
        .client_name = name,
        .under = client->core.under,
        .name_prefix = url->name_prefix != NULL ? url->name_prefix : options->name_prefix,
        .cmd_timeout_ms = options->cmd_timeout_ms,
        .connect_timeout_ms = options->connect_timeout_ms,
        .failover_timeout_ms = options->failover_timeout_ms,
        .ping_interval_ms = options->ping_interval_ms,
        .tracks = (options->flags & HF_NO_TRACKING) == 0,
        .sleeps_at_once = (options->flags & HF_NO_BUSY_POLL) != 0,
        .ack_timeout_ms = options->ack_timeout_ms,
        .ack_disk = options->ack_disk != 0,
        .sentinel_confirm = options->sentinel_confirm != 0,
        .watchdog_ms = options->watchdog_ms,
        .clock_drift_ppm = options->clock_drift_ppm,
        .fair_wait_ms = options->fair_wait_ms,
        .address_map = options->address_map,
        .address_map_user = options->address_map_user,
        .commands = &counters->commands,
        .reconnects = &counters->reconnects,
        .in_doubt = &counters->in_doubt,
        .notify_failures = &counters->notify_failures,
        .failovers = &counters->failovers,
        .redirects = &counters->redirects,
        .ack_failures = &counters->ack_failures,
        .track_events = &counters->track_events,
    };
    return hfi_engine_new(&config, ret, error);
}

/* Several servers: each has its own engine, below that of the client's locks. */
static int make_quorum(hf_client *client, const struct hfi_urls *urls, const hf_options *options,
                       hf_error *error) {
    const struct hfi_quorum_config config = {
        .mem = &client->mem,
        .log = &client->log,
        .keeper = hfi_keeper_exec(client->keeper),
        .id = client->core.id,
        .pid = client->core.pid,
        .cmd_timeout_ms = options->cmd_timeout_ms,
        .connect_timeout_ms = options->connect_timeout_ms,
        .watchdog_ms = options->watchdog_ms,
        .clock_drift_ppm = options->clock_drift_ppm,
        .report_after_ms = options->report_after_ms,
        .restart_guard_ms =
            options->restart_guard_ms < 0 ? options->watchdog_ms : options->restart_guard_ms,
        .retain = retain,
        .forget = forget,
        .idle = idle,
        .arg = client,
    };
    int err = hfi_quorum_new(&config, &client->quorum, error);
    if (err != HF_OK)
        return err;
    client->core.engine = hfi_quorum_engine(client->quorum);
    for (size_t i = 0; i < urls->len && err == HF_OK; i++) {
        struct hfi_engine *engine;
        char node[108];
        hfi_url_node(&urls->of[i], node, sizeof node);
        err = make_engine(client, &urls->of[i], options, &engine, error);
        if (err == HF_OK)
            err = hfi_quorum_add(client->quorum, engine, node, error);
    }
    return err;
}

static void init_locks(hf_client *client) {
    pthread_mutex_init(&client->close_mtx, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&client->close_cond, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&client->handles_mtx, NULL);
    pthread_cond_init(&client->handles_cond, NULL);
    hfi_list_init(&client->loss_listeners);
    hfi_list_init(&client->listeners);
    hfi_cohorts_init(&client->cohorts, &client->mem);
    hfi_name_stats_table_init(&client->stats_table, &client->mem);
    client->core.stats_table = &client->stats_table;
}

static int make_servers(hf_client *client, const struct hfi_urls *urls, const hf_options *options,
                        hf_error *error) {
    if (urls->len > 1)
        return make_quorum(client, urls, options, error);
    return make_engine(client, &urls->of[0], options, &client->core.engine, error);
}

/* Refuses acks that the servers do not support. */
static int set_acks(hf_client *client, const hf_options *options, hf_error *error) {
    struct hfi_engine *engine = client->core.engine;
    if (options->acks == 0 || options->acks == HF_ACKS_OFF)
        return HF_OK;
    if (engine->ops->check_acks == NULL)
        return hfi_fail(error, HF_EINVAL,
                        "acks cannot be used with a quorum: they count the replicas of a single "
                        "primary");
    client->core.acks = options->acks;
    return engine->ops->check_acks(engine, options->acks, error);
}

/* The hold that this process runs under, if it was started by `holdfast run` or the like. */
static void note_outer_owner(hf_client *client) {
    const char *owner = getenv("HOLDFAST_OWNER");
    if (owner != NULL && strlen(owner) < sizeof client->core.under)
        memcpy(client->core.under, owner, strlen(owner) + 1);
}

static int open_client(hf_client *client, const char *text, hf_options *options, hf_error *error) {
    struct hfi_urls urls;
    int err = hfi_dispatcher_init(client, (options->flags & HF_MANUAL_DISPATCH) != 0, error);
    if (err != HF_OK)
        return err;
    err = hfi_urls_parse(&client->mem, text, options, &urls, error);
    if (err != HF_OK)
        return err;
    err = hfi_options_check_numbers(options, error);
    note_outer_owner(client);
    if (err == HF_OK)
        err = make_uuid(client->core.id, error);
    if (err == HF_OK)
        err = hfi_keeper_new(&client->mem, &client->keeper, error);
    if (err == HF_OK)
        err = make_servers(client, &urls, options, error);
    if (err == HF_OK)
        err = set_acks(client, options, error);
    if (err == HF_OK) {
        client->core.keeper = hfi_keeper_exec(client->keeper);
        client->core.cmd_timeout_ms = options->cmd_timeout_ms;
        client->core.watchdog_ms = options->watchdog_ms;
        client->core.clock_drift_ppm = options->clock_drift_ppm;
        client->core.watchdog_trusted_ms =
            hfi_trusted_ms(options->watchdog_ms, options->clock_drift_ppm);
        client->core.max_hold_ms = options->max_hold_ms;
        client->core.report_after_ms = options->report_after_ms;
        client->stats_table.limit = (size_t)options->histogram_names;
        err = hfi_core_init(&client->core);
    }
    if (err == HF_OK)
        err = hfi_keeper_start(client->keeper, error);
    hfi_urls_clear(&client->mem, &urls);
    return err;
}

static int make_client(const char *url, const hf_options *given, hf_client **ret_client,
                       hf_error *error) {
    hf_options options;
    if (ret_client == NULL)
        return hfi_fail(error, HF_EINVAL, "the pointer for the new client is NULL");
    int err = url == NULL ? hfi_url_from_environment(&url, error) : HF_OK;
    if (err == HF_OK)
        err = hfi_options_read(given, &options, error);
    if (err != HF_OK)
        return err;

    struct hfi_mem mem = {.hook = options.allocator};
    hf_client *client = hfi_zalloc(&mem, sizeof *client);
    if (client == NULL)
        return HF_ENOMEM;
    atomic_init(&client->refs, 1);
    client->mem = mem;
    client->mem.spares = &client->spares;
    client->log = (struct hfi_log){
        .write = options.log, .records = options.log_record, .user = options.log_user};
    client->core.mem = &client->mem;
    client->core.log = &client->log;
    client->core.pid = getpid();
    client->not_forked = hfi_fork_mark_new();
    client->core.hooks = (struct hfi_core_hooks){.dispatch = hfi_dispatch_notice,
                                                 .loss_event = hfi_loss_kind,
                                                 .run_callbacks = hfi_loss_run_callbacks,
                                                 .retain = retain,
                                                 .forget = forget,
                                                 .enter = enter,
                                                 .leave = leave,
                                                 .idle = idle,
                                                 .arg = client};
    init_locks(client);
    err = open_client(client, url, &options, error);
    if (err != HF_OK) {
        hfi_client_end(client);
        hfi_client_unref(client);
        return err;
    }
    *ret_client = client;
    return HF_OK;
}

int hf_open(const char *url, const hf_options *options, hf_client **ret_client) {
    hf_error error;
    hfi_error_clear(&error);
    int state = hfi_thread_cancel_disable();
    int err = make_client(url, options, ret_client, &error);
    hfi_thread_cancel_restore(state);
    return hfi_remember(err, &error);
}

/* ---- The rest ---- */

const char *hf_client_id(const hf_client *client) {
    return client->core.id;
}

static struct hfi_op_args ping_args(void) {
    return (struct hfi_op_args){.verb = &hfi_verb_query, .name = "", .query = HFI_QUERY_PING};
}

int hf_ping(hf_client *client) {
    struct hfi_op_args args = ping_args();
    return hfi_run_sync(client, &args, NULL);
}

int hf_ping_start(hf_client *client, hf_op_fn callback, void *user, hf_op **ret_op) {
    struct hfi_op_args args = ping_args();
    args.callback = callback;
    args.user = user;
    return hfi_start_async(client, &args, ret_op);
}
