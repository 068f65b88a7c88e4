/*
 * The ZooKeeper engine: its tables of operations, creation and shutdown.
 *
 * Made by src/scheme; used by src/core and src/api through its tables. The engine owns a session,
 * the watches set in it, and the table of this client's nodes. Calls and renewals in progress
 * belong to their tasks. `renewals` and the session's callbacks belong to the keeper's thread; the
 * rest does not change between new and stop.
 */
#include "base/clock.h"
#include "base/error.h"
#include "net/url/url.h"
#include "zk/fleet/name_listener.h"
#include "zk/fleet/observe.h"
#include "zk/kinds/permits.h"
#include "zk/ops/queue.h"
#include "zk/zk.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* ---- Kinds and names ---- */

static const struct {
    hf_kind kind;
    unsigned flags;
    const struct hfi_kind *table;
} kinds[] = {
    {HF_PLAIN, 0, &hfi_zk_plain},      {HF_PLAIN, HF_NONREENTRANT, &hfi_zk_nonreentrant},
    {HF_PLAIN, HF_SPIN, &hfi_zk_spin}, {HF_PLAIN, HF_FENCED, &hfi_zk_fenced},
    {HF_FAIR, 0, &hfi_zk_fair},        {HF_FAIR, HF_NONREENTRANT, &hfi_zk_fair_nonreentrant},
    {HF_READ, 0, &hfi_zk_read},        {HF_WRITE, 0, &hfi_zk_write},
};

static const struct hfi_kind *find_kind(struct hfi_engine *engine, hf_kind kind, unsigned flags) {
    (void)engine;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == kind && kinds[i].flags == flags)
            return kinds[i].table;
    return NULL;
}

static const struct hfi_kind *find_object(struct hfi_engine *engine, enum hfi_object object) {
    (void)engine;
    return object == HFI_SEMAPHORE ? &hfi_zk_semaphore
           : object == HFI_LATCH   ? &hfi_zk_latch
                                   : &hfi_zk_permits;
}

static const struct hfi_kind *find_server(struct hfi_engine *engine) {
    static const struct hfi_call_ops ops = {
        .call_size = sizeof(struct hfi_zk_call),
        .observes = HFI_OBSERVES_FLEET,
        .ask = hfi_zk_ask,
        .step = hfi_zk_call_step,
        .cancel = hfi_zk_call_cancel,
    };
    static const struct hfi_kind server = {.name = "server", .ops = &ops};
    (void)engine;
    return &server;
}

static int check_name(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                      size_t len, hf_error *error) {
    (void)kind;
    return hfi_zk_check_name(&hfi_zk_of(engine)->names, name, len, error);
}

/* While the session lives, the server keeps our nodes, so a settlement has no deadline. */
static int64_t settle_until_ms(struct hfi_engine *engine, const struct hfi_kind *kind,
                               int64_t lease_ms) {
    (void)engine;
    (void)kind;
    (void)lease_ms;
    return HFI_NEVER;
}

static void set_engine_events(struct hfi_engine *engine,
                              const struct hfi_engine_events *engine_events) {
    hfi_zk_of(engine)->engine_events = engine_events;
}

/* ---- Callbacks of the session ---- */

static void on_event(void *arg, const struct hfi_zk_event *event) {
    struct hfi_zk *zk = arg;
    hfi_zk_watches_fire(zk->watches, event);
}

static void on_state(void *arg, bool up) {
    struct hfi_zk *zk = arg;
    const struct hfi_engine_events *engine_events = zk->engine_events;
    const struct hfi_scope all = {.node = NULL};
    if (!up)
        hfi_zk_watches_lost(zk->watches, HFI_ZK_SEEN_LOST);
    else if (zk->was_up && engine_events != NULL)
        engine_events->reconnected(engine_events->arg, &all);
    zk->was_up = zk->was_up || up;
}

static void on_renewed(void *arg) {
    struct hfi_zk *zk = arg;
    hfi_zk_watches_lost(zk->watches, HFI_ZK_SEEN_RENEWED);
}

static void on_shortened(void *arg) {
    struct hfi_zk *zk = arg;
    const struct hfi_engine_events *engine_events = zk->engine_events;
    const struct hfi_scope all = {.node = NULL};
    struct hfi_zk_credit credit = hfi_zk_session_credit(zk->session);
    const struct hfi_proof proof = hfi_zk_proof(&credit, 0);
    if (engine_events != NULL)
        engine_events->proved(engine_events->arg, &all, &proof);
}

static void on_over(void *arg, const char *why) {
    struct hfi_zk *zk = arg;
    const struct hfi_engine_events *engine_events = zk->engine_events;
    const struct hfi_scope all = {.node = NULL};
    size_t ended = hfi_zk_nodes_end(zk->nodes, hfi_zk_session_credit(zk->session).number);
    const char *node = hfi_zk_session_node(zk->session);
    hfi_log(zk->log, ended > 0 ? HF_LOG_WARN : HF_LOG_INFO,
            HFI_ABOUT(.code = ended > 0 ? HF_ELOST : HF_OK, .server = node), "%s: %s", node, why);
    while (ended-- > 0)
        hfi_zk_session_keep(zk->session, false);
    hfi_zk_watches_lost(zk->watches, HFI_ZK_SEEN_LOST);
    if (engine_events != NULL)
        engine_events->lost(engine_events->arg, &all, why);
}

static const struct hfi_zk_session_hooks hooks = {.event = on_event,
                                                  .state = on_state,
                                                  .renewed = on_renewed,
                                                  .shortened = on_shortened,
                                                  .over = on_over};

/* ---- Life ---- */

static void free_half_built(struct hfi_zk *zk) {
    hfi_zk_session_free(zk->session);
    hfi_zk_watches_free(zk->watches);
    hfi_zk_nodes_free(zk->nodes);
    hfi_free(zk->mem, zk->chroot);
    hfi_free(zk->mem, zk->prefix);
    hfi_free(zk->mem, zk->who);
    hfi_free(zk->mem, zk);
}

#define OWNER_LEN (HFI_ZK_UUID_TEXT + 1 + 20) /* a uuid and a number */
#define WHO_MAX (HFI_ZK_DATA_MAX - OWNER_LEN - sizeof "holdfast: ")

/* "host:pid:program" out of "holdfast:uuid:host:pid:program", the client name. */
static const char *behind_uuid(const char *client_name) {
    const char *rest = client_name;
    for (int i = 0; i < 2; i++) {
        const char *colon = strchr(rest, ':');
        if (colon == NULL)
            return client_name;
        rest = colon + 1;
    }
    return rest;
}

/* The same as a node stores it: with blanks between, and " under=<owner>" if the process runs under
 * a hold. The program name is cut to make room for that. */
static char *describe_us(const struct hfi_mem *mem, const char *client_name, const char *under) {
    const char *rest = behind_uuid(client_name);
    bool known = under != NULL && *under != '\0';
    size_t under_len = known ? strlen(HFI_ZK_UNDER) + strlen(under) : 0;
    size_t rest_len = strlen(rest);
    if (known && rest_len + under_len > WHO_MAX)
        rest_len = under_len < WHO_MAX ? WHO_MAX - under_len : 0;
    char *who = hfi_alloc(mem, rest_len + under_len + 1);
    if (who == NULL)
        return NULL;
    snprintf(who, rest_len + 1, "%s", rest);
    char *colon = strchr(who, ':');
    for (int i = 0; i < 2 && colon != NULL; i++) {
        *colon = ' ';
        colon = strchr(colon, ':');
    }
    if (known)
        snprintf(who + rest_len, under_len + 1, HFI_ZK_UNDER "%s", under);
    return who;
}

static int set_names(struct hfi_zk *zk, const struct hfi_engine_config *config, hf_error *error) {
    const char *chroot = config->url->path != NULL ? config->url->path : "";
    if (strlen(chroot) > HFI_ZK_CHROOT_MAX)
        return hfi_fail(error, HF_EINVAL, "the chroot is longer than %d bytes", HFI_ZK_CHROOT_MAX);
    int err = chroot[0] != '\0' ? hfi_zk_check_chroot(chroot, error) : HF_OK;
    if (err != HF_OK)
        return err;
    zk->chroot = hfi_strdup(zk->mem, chroot);
    zk->prefix = hfi_strdup(zk->mem, config->name_prefix != NULL ? config->name_prefix : "");
    zk->who = describe_us(zk->mem, config->client_name, config->under);
    zk->names = (struct hfi_zk_names){.chroot = zk->chroot, .prefix = zk->prefix};
    if (zk->chroot == NULL || zk->prefix == NULL || zk->who == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    return HF_OK;
}

static int choose_acl(struct hfi_zk *zk, const struct hfi_url *url, hf_error *error) {
    bool known = url->user != NULL;
    if (url->acl == HFI_ACL_CREATOR && !known)
        return hfi_fail(error, HF_EINVAL, "acl=creator needs a user and a password");
    zk->acl = known && url->acl != HFI_ACL_OPEN ? HFI_ZK_ACL_CREATOR : HFI_ZK_ACL_OPEN;
    return HF_OK;
}

static int make_parts(struct hfi_zk *zk, const struct hfi_engine_config *config, hf_error *error) {
    if (hfi_zk_watches_new(zk->mem, &zk->watches) != HF_OK ||
        hfi_zk_nodes_new(zk->mem, &zk->nodes) != HF_OK)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    int err = set_names(zk, config, error);
    if (err == HF_OK)
        err = choose_acl(zk, config->url, error);
    return err == HF_OK ? hfi_zk_session_new(config, &hooks, zk, &zk->session, error) : err;
}

static const struct hfi_engine_ops engine_ops;

int hfi_zk_new(const struct hfi_engine_config *config, struct hfi_engine **ret, hf_error *error) {
    struct hfi_zk *zk = hfi_zalloc(config->mem, sizeof *zk);
    if (zk == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    zk->base.ops = &engine_ops;
    zk->mem = config->mem;
    zk->log = config->log;
    zk->keeper = config->keeper;
    zk->cmd_timeout_ms = config->cmd_timeout_ms;
    zk->connect_timeout_ms = config->connect_timeout_ms;
    zk->in_doubt = config->in_doubt;
    hfi_list_init(&zk->renewals);
    hfi_list_init(&zk->name_listeners);
    int err = make_parts(zk, config, error);
    if (err != HF_OK) {
        free_half_built(zk);
        return err;
    }
    *ret = &zk->base;
    return HF_OK;
}

/* If nothing is held, closes the session, so that the nodes of ended waits go at once. */
static void stop(struct hfi_engine *engine) {
    struct hfi_zk *zk = hfi_zk_of(engine);
    hfi_zk_name_listeners_stop(zk);
    hfi_zk_session_stop(zk->session, hfi_zk_nodes_len(zk->nodes) == 0);
    hfi_zk_renewals_stop(zk);
}

static void free_engine(struct hfi_engine *engine) {
    stop(engine);
    free_half_built(hfi_zk_of(engine));
}

static void close_fds(struct hfi_engine *engine) {
    hfi_zk_session_close_fds(hfi_zk_of(engine)->session);
}

/* ---- Manual dispatch: the keeper drives the one connection, so there is nothing to poll ---- */

static void flush(struct hfi_engine *engine) {
    (void)engine;
}

static size_t poll_fds(struct hfi_engine *engine, struct pollfd *fds, size_t cap) {
    (void)engine;
    (void)fds;
    (void)cap;
    return 0;
}

static void service(struct hfi_engine *engine, const struct pollfd *fds, size_t len) {
    (void)engine;
    (void)fds;
    (void)len;
}

static void enlist(struct hfi_engine *engine, int epoll_fd) {
    (void)engine;
    (void)epoll_fd;
}

/* ---- The tables ---- */

const struct hfi_call_ops hfi_zk_lock_ops = {
    .call_size = sizeof(struct hfi_zk_call),
    .observes = HFI_OBSERVES_LOCK | HFI_OBSERVES_SERVER,
    .acquire = hfi_zk_acquire,
    .release = hfi_zk_release,
    .extend = hfi_zk_extend,
    .break_holds = hfi_zk_break,
    .ask = hfi_zk_ask,
    .settle = hfi_zk_settle,
    .step = hfi_zk_call_step,
    .cancel = hfi_zk_call_cancel,
};

static const struct hfi_engine_ops engine_ops = {
    .kind = find_kind,
    .object = find_object,
    .server = find_server,
    .check_name = check_name,
    .settle_until_ms = settle_until_ms,
    .renew = hfi_zk_renew,
    .set_engine_events = set_engine_events,
    .observe = &hfi_zk_observe,
    .flush = flush,
    .poll = poll_fds,
    .service = service,
    .enlist = enlist,
    .stop = stop,
    .free = free_engine,
    .close_fds = close_fds,
};
