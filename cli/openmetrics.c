/*
 * A snapshot of the fleet as a text in the format of OpenMetrics, which readers of Prometheus's older format
 * understand as well.
 *
 * A family's samples have to be together, so the clients are gone through once for each of their numbers. What
 * clients say of themselves is in labels, escaped; how many labels there can be is bounded, since every one is
 * kept by whoever reads this. Counters are a client's own, from when it was opened: they begin anew with it.
 */
#include "fleet.h"
#include "lock_times.h"
#include "metrics_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 10000

/* What the locks tell of one client. */
struct share {
    const hf_fleet_client *client;
    uint64_t holds, waits;
    int64_t oldest_ms;
};

struct view {
    FILE *out;
    const hf_fleet *fleet;
    struct share *shares; /* as the clients are, by id; all of them, not only those to be shown */
    const hf_fleet_lock **locks;
    size_t locks_len;
};

/* ---- Words ---- */

static void begin(FILE *out, const char *family, const char *type, const char *help) {
    char whole[64];
    snprintf(whole, sizeof whole, "holdfast_fleet_%s", family);
    metrics_head(out, whole, type, help);
}

/* Not known: 0. */
static void write_ms(FILE *out, int64_t ms) {
    metrics_seconds(out, ms > 0 ? (uint64_t)ms * 1000 : 0);
    putc('\n', out);
}

static void write_label(FILE *out, const char *label, const char *text) {
    metrics_label(out, label, text, strlen(text));
}

/* ---- The whole ---- */

static void write_states(const struct view *view) {
    static const hf_presence all[] = {HF_ALIVE, HF_CONNECTED, HF_SILENT, HF_GONE,
                                      HF_PRESENCE_UNKNOWN};
    const hf_fleet *fleet = view->fleet;
    begin(view->out, "locks", "gauge", "Locks by what is known of who holds them.");
    size_t free = 0, disputed = 0;
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        size_t count = 0;
        for (size_t i = 0; i < fleet->locks_len; i++) {
            const hf_fleet_party *holder = fleet_holder(fleet->locks[i]);
            count += holder != NULL && holder->presence == all[k];
            free += k == 0 && holder == NULL;
            disputed += k == 0 && fleet->locks[i]->disputed;
        }
        fprintf(view->out, "holdfast_fleet_locks{state=\"%s\"} %zu\n", presence_word(all[k]),
                count);
    }
    fprintf(view->out, "holdfast_fleet_locks{state=\"free\"} %zu\n", free);
    begin(view->out, "disputed_locks", "gauge",
          "Locks on whose holder the server and the clients do not agree.");
    fprintf(view->out, "holdfast_fleet_disputed_locks %zu\n", disputed);
    begin(view->out, "clients", "gauge", "Clients by what is known of them.");
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        size_t count = 0;
        for (size_t i = 0; i < fleet->clients_len; i++)
            count += fleet->clients[i]->presence == all[k];
        fprintf(view->out, "holdfast_fleet_clients{state=\"%s\"} %zu\n", presence_word(all[k]),
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
    begin(view->out, "oldest_wait_seconds", "gauge", "How long the first of them has waited.");
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
        begin(view->out, "deadlocks", "gauge", "Circles of owners that wait for each other.");
        fprintf(view->out, "holdfast_fleet_deadlocks %zu\n", deadlocks->len);
    }
    begin(view->out, "survey_seconds", "gauge", "How long it took to ask.");
    fputs("holdfast_fleet_survey_seconds ", view->out);
    write_ms(view->out, view->fleet->took_ms);
    begin(view->out, "missing", "gauge", "Whether something could not be asked for.");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        fprintf(view->out, "holdfast_fleet_missing{what=\"%s\"} %d\n", parts[i].what,
                (view->fleet->missing & parts[i].flag) != 0);
}

/* ---- By client ---- */

/* Those who have answered: of others no number is known. */
static const struct share *next_client(const struct view *view, size_t *at) {
    for (; *at < view->fleet->clients_len && *at < CLIENTS_MAX; ++*at)
        if (view->shares[*at].client->presence == HF_ALIVE)
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
    begin(view->out, "client_holds", "gauge", "What a client holds.");
    for (size_t i = 0; (share = next_client(view, &i)) != NULL;) {
        write_client(view->out, "client_holds", "", share->client);
        fprintf(view->out, "%" PRIu64 "\n", share->holds);
    }
    begin(view->out, "client_waits", "gauge", "What a client waits for.");
    for (size_t i = 0; (share = next_client(view, &i)) != NULL;) {
        write_client(view->out, "client_waits", "", share->client);
        fprintf(view->out, "%" PRIu64 "\n", share->waits);
    }
    begin(view->out, "client_oldest_wait_seconds", "gauge",
          "How long its first waiter has waited.");
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
        COUNTER(acquired, "Acquires that succeeded."),
        COUNTER(contended, "Acquires that had to wait for another."),
        COUNTER(timed_out, "Acquires that ended without the lock."),
        COUNTER(released, "Releases that succeeded."),
        COUNTER(renewals, "Renewals that the server confirmed."),
        COUNTER(renew_failures, "Renewals that failed."),
        COUNTER(losses, "Holds that were lost."),
    };
    for (size_t k = 0; k < sizeof counters / sizeof counters[0]; k++) {
        const struct share *share;
        begin(view->out, counters[k].family, "counter", counters[k].help);
        for (size_t i = 0; (share = next_client(view, &i)) != NULL;) {
            uint64_t value;
            memcpy(&value, (const char *)share->client + counters[k].at, sizeof value);
            write_client(view->out, counters[k].family, "_total", share->client);
            fprintf(view->out, "%" PRIu64 "\n", value);
        }
    }
}

/* Clients that are too old to tell their times have none here, rather than zeros. */
static void write_histograms(const struct view *view) {
    static const struct {
        const char *family, *help;
        size_t at;
    } all[] = {
        {"client_wait_seconds", "From the call to acquired.", offsetof(hf_fleet_client, wait)},
        {"client_hold_seconds", "From acquired to fully released.",
         offsetof(hf_fleet_client, hold)},
        {"client_hand_over_seconds", "From being told that it is free to acquired.",
         offsetof(hf_fleet_client, hand_over)},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        const struct share *share;
        char family[64];
        snprintf(family, sizeof family, "holdfast_fleet_%s", all[k].family);
        metrics_head(view->out, family, "histogram", all[k].help);
        for (size_t i = 0; (share = next_client(view, &i)) != NULL;) {
            hf_times times;
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
        {"lock_holders", "Who holds a lock.", fleet_holders, false},
        {"lock_waiters", "Who waits for it.", fleet_waiters, false},
        {"lock_oldest_wait_seconds", "How long the first of them has waited.", fleet_wait, true},
        {"lock_held_seconds", "For how long it has been held.", fleet_age, true},
        {"lock_ttl_seconds", "What is left of its lease at the server.", fleet_ttl, true},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        begin(view->out, all[k].family, "gauge", all[k].help);
        for (size_t i = 0; i < view->locks_len; i++) {
            int64_t value = all[k].value(view->locks[i]);
            fprintf(view->out, "holdfast_fleet_%s{", all[k].family);
            metrics_label(view->out, "name", view->locks[i]->name, view->locks[i]->name_len);
            putc(',', view->out);
            write_label(view->out, "kind", view->locks[i]->kind);
            fputs("} ", view->out);
            if (all[k].is_time)
                write_ms(view->out, value);
            else
                fprintf(view->out, "%" PRId64 "\n", value);
        }
    }
    begin(view->out, "locks_left_out", "gauge", "Locks that have no metrics of their own here.");
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

/* Those with the most waiters come first, then by name: so who is left out changes seldom. */
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

bool openmetrics_write(FILE *out, const hf_fleet *fleet, const hf_deadlocks *deadlocks,
                       const struct lock_times *times, size_t names_max) {
    struct view view = {.out = out, .fleet = fleet};
    bool made = make_view(&view, names_max);
    if (made) {
        write_states(&view);
        write_waits(&view);
        write_survey(&view, deadlocks);
        write_shares(&view);
        write_counters(&view);
        write_histograms(&view);
        write_locks(&view);
        if (times != NULL)
            lock_times_write(times, out);
        fputs("# EOF\n", out);
    }
    free(view.shares);
    free(view.locks);
    return made && ferror(out) == 0;
}
