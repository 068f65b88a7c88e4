/* The part of holding that `run` and `hold` share, for locks (held_lock.c) and slots (held_slot.c):
 * dispatch to the kind's operations, and the messages about acquiring, releasing and failing.
 *
 * Everything runs on the thread that calls hf_dispatch(): the main thread of the holder, or of
 * `hold`. */
#include "hold/held.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int held_acquire(struct held *held) {
    held->began_ms = now_ms();
    return held->kind->ops->acquire(held);
}

void held_cancel(struct held *held) {
    held->canceled = true;
    if (held->op != NULL)
        hf_op_cancel(held->op);
}

int held_release(struct held *held) {
    held->is_held = false;
    return held->kind->ops->release(held);
}

void held_on_released(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    struct held *held = user;
    held->released(held->user, result);
}

int64_t held_remaining_ms(const struct held *held) {
    return held->is_held ? held->kind->ops->remaining_ms(held) : 0;
}

void held_free(struct held *held) {
    if (held->kind != NULL)
        held->kind->ops->free(held);
}

/* Replicas were asked to acknowledge, and some did not. */
static bool are_missing(const struct held *held) {
    hf_stats stats = HF_STATS_INIT;
    return hf_client_stats(held->client, &stats) == HF_OK && stats.ack_failures > 0;
}

static void describe_votes(const struct held *held, char *votes, size_t size) {
    if (held->servers > 0)
        snprintf(votes, size, ": %" PRId64 " of %" PRId64 " servers granted it", held->votes,
                 held->servers);
    else if (held->acked > 0)
        snprintf(votes, size, ": confirmed by %" PRId64 " replica%s", held->acked,
                 held->acked == 1 ? "" : "s");
    else if (are_missing(held))
        snprintf(votes, size, ": no replica confirmed it");
}

void held_report_acquired(const struct held *held) {
    char buffer[SHOWN_NAME_SIZE], votes[64] = "";
    int64_t waited_ms = now_ms() - held->began_ms;
    describe_votes(held, votes, sizeof votes);
    say_of(LEVEL_INFO, &(struct subject){.lock = held->name},
           "'%s': acquired after %" PRId64 ".%03d s%s", shown_name(held->name, buffer),
           waited_ms / 1000, (int)(waited_ms % 1000), votes);
}

void held_report_released(const struct held *held) {
    char buffer[SHOWN_NAME_SIZE];
    say_of(LEVEL_INFO, &(struct subject){.lock = held->name}, "'%s': released",
           shown_name(held->name, buffer));
}

void held_report_lost(const struct held *held, const char *when, const hf_error *error) {
    char buffer[SHOWN_NAME_SIZE];
    say_of(LEVEL_ERROR, &(struct subject){.code = HF_ELOST, .lock = held->name},
           "'%s': the %s was lost %s (%s)", shown_name(held->name, buffer), held->kind->ops->noun,
           when, error->text[0] != '\0' ? error->text : hf_strerror(HF_ELOST));
}

const char *held_failed_name(const struct held *held, const hf_error *error) {
    for (size_t i = 0; held->names != NULL && i < held->names->len; i++) {
        const char *name = held->names->of[i];
        size_t len = strlen(name);
        if (strncmp(error->text + 1, name, len) == 0 && error->text[len + 1] == '\'')
            return name;
    }
    return held->name;
}

int held_failed(struct held *held, const hf_result *result, int busy_status) {
    char buffer[SHOWN_NAME_SIZE];
    if (result->code != HF_EBUSY && result->code != HF_ETIMEDOUT)
        return library_error(result->code, &result->error, "acquire",
                             held_failed_name(held, &result->error));
    held->was_busy = true;
    const char *why = held->wait_ms == 0 ? held->kind->ops->busy : held->kind->ops->timed_out;
    if (held->names != NULL) /* the library names the lock that was busy */
        why = result->error.text;
    say_of(busy_status == 0 ? LEVEL_INFO : LEVEL_NOTICE,
           &(struct subject){.code = result->code, .lock = held->name}, "'%s': %s",
           shown_name(held->name, buffer), why);
    return busy_status;
}

int take_label(const char *subcommand, const char *value, const char *shown, const char **ret) {
    if (*value == '\0')
        return usage_error(subcommand, "%s: the value is empty", shown);
    *ret = value;
    return 0;
}

void held_explain(hf_client *client, const char *name) {
    static const struct explanation all[] = {
        {HF_FOUND_PLAIN, "a plain or fair lock: leave out --shared, --write and --slots"},
        {HF_FOUND_FAIR, "a fair lock: use --fair"},
        {HF_FOUND_READ, "a read/write lock: use -s (--shared) or -W (--write)"},
        {HF_FOUND_WRITE, "a read/write lock: use -s (--shared) or -W (--write)"},
        {HF_FOUND_PERMITS, "a set of slots: use -N (--slots)"},
        {HF_FOUND_STRING, "a string lock: use --string"},
        {HF_FOUND_COUNTER, "a semaphore, a latch or a set of slots, not a lock"},
        {HF_FOUND_FREE, NULL},
    };
    explain_name(client, name, "lock of any kind", all);
}
