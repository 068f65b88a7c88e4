/* A survey as metrics, in Prometheus's text format or as OpenMetrics. They differ in one point: a
 * counter's family name has the suffix _total in the first; in the second only its samples have it.
 *
 * The samples of a family must be together, so there is one pass over the clients for each counter.
 * Clients' own texts are in labels, escaped. The number of labels is bounded, because a metrics
 * reader stores every one. Counters are per client and restart with it. */
#include "fleet/fleet.h"
#include "fleet/lock_times.h"
#include "fleet/losses.h"
#include "fleet/metrics_syntax.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 10000

/* Sums over the locks for one client. */
struct share {
    const hf_fleet_client *client;
    uint64_t holds, waits;
    int64_t oldest_ms;
};

struct view {
    FILE *out;
    enum metrics_format format;
    const hf_fleet *fleet;
    struct share *shares; /* one for each client, sorted by id, including those not shown */
    const hf_fleet_lock **locks;
    size_t locks_len;
};

/* ---- Syntax ---- */

static void begin(FILE *out, const char *family, const char *type, const char *help) {
    char whole[96];
    snprintf(whole, sizeof whole, "holdfast_fleet_%s", family);
    metrics_head(out, whole, type, help);
}

/* An unknown time is written as 0. */
static void write_ms(FILE *out, int64_t ms) {
    metrics_seconds(out, ms > 0 ? (uint64_t)ms * 1000 : 0);
    putc('\n', out);
}

static void write_label(FILE *out, const char *label, const char *text) {
    metrics_label(out, label, text, strlen(text));
}

/* ---- The whole fleet ---- */

static void write_build(const struct view *view) {
    metrics_head(view->out, "holdfast_build_info", "gauge", "The version that writes these.");
    fprintf(view->out, "holdfast_build_info{version=\"%s\"} 1\n", hf_version());
}

static void write_losses(const struct view *view, uint64_t total) {
    begin(view->out, view->format == METRICS_TEXT ? "losses_total" : "losses", "counter",
          "Lost holds of all clients, those that have ended included.");
    fprintf(view->out, "holdfast_fleet_losses_total %" PRIu64 "\n", total);
}

static void write_states(const struct view *view) {
    static const hf_presence all[] = {HF_PRESENCE_ALIVE, HF_PRESENCE_CONNECTED, HF_PRESENCE_SILENT,
                                      HF_PRESENCE_GONE, HF_PRESENCE_UNKNOWN};
    const hf_fleet *fleet = view->fleet;
    begin(view->out, "locks", "gauge", "Locks by the state of their holders.");
    size_t free = 0, disputed = 0;
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        size_t count = 0;
        for (size_t i = 0; i < fleet->locks_len; i++) {
            const hf_fleet_party *holder = fleet_holder(fleet->locks[i]);
            count += holder != NULL && holder->presence == all[k];
            free += k == 0 && holder == NULL;
            disputed += k == 0 && fleet->locks[i]->disputed;
        }
        fprintf(view->out, "holdfast_fleet_locks{state=\"%s\"} %zu\n", presence_text(all[k]),
                count);
    }
    fprintf(view->out, "holdfast_fleet_locks{state=\"free\"} %zu\n", free);
    begin(view->out, "disputed_locks", "gauge",
          "Locks on whose holder server and clients disagree.");
    fprintf(view->out, "holdfast_fleet_disputed_locks %zu\n", disputed);
    begin(view->out, "clients", "gauge", "Clients by state.");
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        size_t count = 0;
        for (size_t i = 0; i < fleet->clients_len; i++)
            count += fleet->clients[i]->presence == all[k];
        fprintf(view->out, "holdfast_fleet_clients{state=\"%s\"} %zu\n", presence_text(all[k]),
                count);
    }
}

static void write_waits(const struct view *view) {
    uint64_t waiters = 0;
    int64_t oldest_ms = 0;
    for (size_t i = 0; i < view->fleet->locks_len; i++) {
        int64_t wait_ms = fleet_wait(view->fleet->locks[i]);
        waiters += (uint64_t)fleet_waiters(view->fleet->locks[i]);
        oldest_ms = wait_ms > oldest_ms ? wait_ms : oldest_ms;
    }
    begin(view->out, "waiters", "gauge", "Waiters of all locks.");
    fprintf(view->out, "holdfast_fleet_waiters %" PRIu64 "\n", waiters);
    begin(view->out, "oldest_wait_seconds", "gauge", "Age of the longest wait.");
    fputs("holdfast_fleet_oldest_wait_seconds ", view->out);
    write_ms(view->out, oldest_ms);
}

static void write_survey(const struct view *view, const hf_deadlocks *deadlocks) {
    const struct {
        const char *what;
        unsigned flag;
    } parts[] = {{"answers", HF_MISSING_ANSWERS},
                 {"connections", HF_MISSING_CONNECTIONS},
                 {"locks", HF_MISSING_LOCKS}};
    if (deadlocks != NULL) {
        begin(view->out, "deadlocks", "gauge", "Deadlocks.");
        fprintf(view->out, "holdfast_fleet_deadlocks %zu\n", deadlocks->len);
    }
    begin(view->out, "survey_seconds", "gauge", "Duration of the survey.");
    fputs("holdfast_fleet_survey_seconds ", view->out);
    write_ms(view->out, view->fleet->took_ms);
    begin(view->out, "missing", "gauge", "Whether a part of the survey is missing.");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        fprintf(view->out, "holdfast_fleet_missing{what=\"%s\"} %d\n", parts[i].what,
                (view->fleet->missing & parts[i].flag) != 0);
}

/* ---- By client ---- */

/* The next client that has answered; the counters of the others are unknown. */
static const struct share *next_client(const struct view *view, size_t *at) {
    for (; *at < view->fleet->clients_len && *at < CLIENTS_MAX; ++*at)
        if (view->shares[*at].client->presence == HF_PRESENCE_ALIVE)
            return &view->shares[(*at)++];
    return NULL;
}

static void write_client_labels(FILE *out, const void *arg) {
    const hf_fleet_client *client = arg;
    write_label(out, "client", client->id);
    putc(',', out);
    write_label(out, "host", client->host);
    fprintf(out, ",pid=\"%" PRId64 "\",", client->pid);
    write_label(out, "program", client->program);
}

static void write_client(FILE *out, const char *family, const char *suffix,
                         const hf_fleet_client *client) {
    fprintf(out, "holdfast_fleet_%s%s{", family, suffix);
    write_client_labels(out, client);
    fputs("} ", out);
}

static void write_shares(const struct view *view) {
    const struct share *share;
    begin(view->out, "client_holds", "gauge", "Holds of a client.");
    for (size_t i = 0; (share = next_client(view, &i)) != NULL;) {
        write_client(view->out, "client_holds", "", share->client);
        fprintf(view->out, "%" PRIu64 "\n", share->holds);
    }
    begin(view->out, "client_waits", "gauge", "Waits of a client.");
    for (size_t i = 0; (share = next_client(view, &i)) != NULL;) {
        write_client(view->out, "client_waits", "", share->client);
        fprintf(view->out, "%" PRIu64 "\n", share->waits);
    }
    begin(view->out, "client_oldest_wait_seconds", "gauge", "Age of its longest wait.");
    for (size_t i = 0; (share = next_client(view, &i)) != NULL;) {
        write_client(view->out, "client_oldest_wait_seconds", "", share->client);
        write_ms(view->out, share->oldest_ms);
    }
}

#define COUNTER(field, help)                                                                       \
    { "client_" #field, help, offsetof(hf_fleet_client, field) }

static void write_counters(const struct view *view) {
    static const struct {
        const char *family, *help;
        size_t at;
    } counters[] = {
        COUNTER(acquired, "Successful acquires."),
        COUNTER(contended, "Acquires that waited for another owner."),
        COUNTER(timed_out, "Acquires that ended without the lock."),
        COUNTER(released, "Successful releases."),
        COUNTER(renewals, "Renewals confirmed by the server."),
        COUNTER(renew_failures, "Failed renewals."),
        COUNTER(losses, "Lost holds."),
    };
    for (size_t k = 0; k < sizeof counters / sizeof counters[0]; k++) {
        const struct share *share;
        char family[64];
        snprintf(family, sizeof family, "%s%s", counters[k].family,
                 view->format == METRICS_TEXT ? "_total" : "");
        begin(view->out, family, "counter", counters[k].help);
        for (size_t i = 0; (share = next_client(view, &i)) != NULL;) {
            uint64_t value;
            memcpy(&value, (const char *)share->client + counters[k].at, sizeof value);
            write_client(view->out, counters[k].family, "_total", share->client);
            fprintf(view->out, "%" PRIu64 "\n", value);
        }
    }
}

/* Clients too old to report times are left out rather than shown as zeros. */
static void write_histograms(const struct view *view) {
    static const struct {
        const char *family, *help;
        size_t at;
    } all[] = {
        {"client_wait_seconds", "Time from the call to the acquire.",
         offsetof(hf_fleet_client, wait)},
        {"client_hold_seconds", "Time from the acquire to the full release.",
         offsetof(hf_fleet_client, hold)},
        {"client_hand_over_seconds", "Time from the release message to the acquire.",
         offsetof(hf_fleet_client, hand_over)},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        const struct share *share;
        char family[64];
        snprintf(family, sizeof family, "holdfast_fleet_%s", all[k].family);
        metrics_head(view->out, family, "histogram", all[k].help);
        for (size_t i = 0; (share = next_client(view, &i)) != NULL;) {
            hf_histogram times;
            memcpy(&times, (const char *)share->client + all[k].at, sizeof times);
            const struct metrics_counts counts = metrics_counts_of(&times);
            if (times.count > 0)
                metrics_histogram(view->out, family, &counts, write_client_labels, share->client);
        }
    }
}

/* ---- By lock ---- */

static void write_locks(const struct view *view) {
    static const struct {
        const char *family, *help;
        int64_t (*value)(const hf_fleet_lock *lock);
        bool is_time;
    } all[] = {
        {"lock_holders", "Holders of a lock.", fleet_holders, false},
        {"lock_waiters", "Waiters for it.", fleet_waiters, false},
        {"lock_oldest_wait_seconds", "Age of the longest wait.", fleet_wait, true},
        {"lock_held_seconds", "How long it has been held.", fleet_age, true},
        {"lock_ttl_seconds", "Remaining lease on the server.", fleet_ttl, true},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        begin(view->out, all[k].family, "gauge", all[k].help);
        for (size_t i = 0; i < view->locks_len; i++) {
            int64_t value = all[k].value(view->locks[i]);
            fprintf(view->out, "holdfast_fleet_%s{", all[k].family);
            metrics_label(view->out, "lock", view->locks[i]->name, view->locks[i]->name_len);
            putc(',', view->out);
            write_label(view->out, "kind", view->locks[i]->kind);
            fputs("} ", view->out);
            if (all[k].is_time)
                write_ms(view->out, value);
            else
                fprintf(view->out, "%" PRId64 "\n", value);
        }
    }
    begin(view->out, "locks_left_out", "gauge", "Locks without metrics of their own here.");
    fprintf(view->out, "holdfast_fleet_locks_left_out %zu\n",
            view->fleet->locks_len - view->locks_len);
}

/* ---- The view ---- */

static int by_id(const void *key, const void *member) {
    return strcmp(key, ((const struct share *)member)->client->id);
}

static struct share *share_of(const struct view *view, const hf_fleet_party *party) {
    if (party->client == NULL)
        return NULL;
    return bsearch(party->client->id, view->shares, view->fleet->clients_len, sizeof(struct share),
                   by_id);
}

static void add_lock(const struct view *view, const hf_fleet_lock *lock) {
    for (size_t i = 0; i < lock->holders_len; i++) {
        struct share *share = share_of(view, lock->holders[i]);
        if (share != NULL)
            share->holds++;
    }
    for (size_t i = 0; i < lock->waiters_len; i++) {
        struct share *share = share_of(view, lock->waiters[i]);
        if (share == NULL)
            continue;
        share->waits++;
        if (lock->waiters[i]->for_ms > share->oldest_ms)
            share->oldest_ms = lock->waiters[i]->for_ms;
    }
}

/* Locks with the most waiters come first, then by name, so that the set of locks shown changes
 * seldom. */
static bool make_view(struct view *view, size_t names_max) {
    const hf_fleet *fleet = view->fleet;
    view->shares = calloc(fleet->clients_len + 1, sizeof *view->shares);
    view->locks = calloc(fleet->locks_len + 1, sizeof *view->locks);
    if (view->shares == NULL || view->locks == NULL)
        return false;
    for (size_t i = 0; i < fleet->clients_len; i++)
        view->shares[i].client = fleet->clients[i];
    for (size_t i = 0; i < fleet->locks_len; i++) {
        add_lock(view, fleet->locks[i]);
        if (fleet->locks[i]->name_len <= METRICS_LABEL_MAX)
            view->locks[view->locks_len++] = fleet->locks[i];
    }
    fleet_sort(view->locks, view->locks_len, fleet_sorting_find("waiters"));
    if (view->locks_len > names_max)
        view->locks_len = names_max;
    return true;
}

bool fleet_metrics_write(FILE *out, enum metrics_format format, const hf_fleet *fleet,
                         const hf_deadlocks *deadlocks, const struct fleet_totals *totals,
                         size_t names_max) {
    struct view view = {.out = out, .format = format, .fleet = fleet};
    bool made = make_view(&view, names_max);
    if (made) {
        write_build(&view);
        write_states(&view);
        write_waits(&view);
        write_survey(&view, deadlocks);
        write_shares(&view);
        write_counters(&view);
        write_histograms(&view);
        write_locks(&view);
        if (totals->losses != NULL)
            write_losses(&view, losses_total(totals->losses));
        if (totals->times != NULL)
            lock_times_write(totals->times, out);
        fputs("# EOF\n", out);
    }
    free(view.shares);
    free(view.locks);
    return made && ferror(out) == 0;
}
