/*
 * The commands that passed through a proxy, to count them and to tell connections apart by them.
 *
 * Called by the proxy's loop (log_add) and by its controls, with the proxy's mutex held, which
 * guards all of it.
 *
 * Invariants: entries are numbered from 0 in the order they passed; `first` is the number of the
 * oldest that is still known. No more than LOG_BYTES are kept, since a soak test may send commands
 * for hours.
 */
#include "support/proxy_internal.h"
#include "support/wait.h"

#include <string.h>

enum { ENTRY_BYTES = 64 * 1024, LOG_BYTES = 32 * 1024 * 1024 };

static void forget_older_half(struct command_log *log) {
    size_t half = (log->count + 1) / 2;
    for (size_t i = 0; i < half; i++) {
        log->total_bytes -= sizeof **log->entries + log->entries[i]->length;
        free(log->entries[i]);
    }
    log->count -= half;
    log->first += half;
    memmove(log->entries, log->entries + half, log->count * sizeof *log->entries);
}

/* Returns its number. */
size_t log_add(struct command_log *log, size_t link_id, const char *bytes, size_t length) {
    if (length > ENTRY_BYTES)
        length = ENTRY_BYTES;
    if (log->count == log->room) {
        log->room = log->room == 0 ? 256 : log->room * 2;
        log->entries = realloc(log->entries, log->room * sizeof *log->entries);
    }
    struct log_entry *entry = malloc(sizeof *entry + length);
    if (log->entries == NULL || entry == NULL)
        support_die("out of memory");
    entry->link_id = link_id;
    entry->length = length;
    entry->too_late = false;
    memcpy(entry->bytes, bytes, length);
    log->entries[log->count++] = entry;
    log->total_bytes += sizeof *entry + length;
    if (log->total_bytes > LOG_BYTES)
        forget_older_half(log);
    return log->first + log->count - 1;
}

void log_mark_too_late(struct command_log *log, size_t number) {
    if (number >= log->first && number - log->first < log->count)
        log->entries[number - log->first]->too_late = true;
}

/* Counts the matching entries from number `*next` on, and moves it behind the last. */
size_t log_count(const struct command_log *log, const char *matcher, size_t *next) {
    size_t found = 0;
    for (size_t i = *next > log->first ? *next - log->first : 0; i < log->count; i++)
        found += resp_contains(log->entries[i]->bytes, log->entries[i]->length, matcher);
    *next = log->first + log->count;
    return found;
}

size_t log_count_too_late(const struct command_log *log, const char *matcher) {
    size_t found = 0;
    for (size_t i = 0; i < log->count; i++) {
        const struct log_entry *entry = log->entries[i];
        found += entry->too_late && resp_contains(entry->bytes, entry->length, matcher);
    }
    return found;
}

bool log_link_matches(const struct command_log *log, size_t link_id, const char *matcher) {
    for (size_t i = 0; i < log->count; i++) {
        const struct log_entry *entry = log->entries[i];
        if (entry->link_id == link_id && resp_contains(entry->bytes, entry->length, matcher))
            return true;
    }
    return false;
}

void log_clear(struct command_log *log) {
    for (size_t i = 0; i < log->count; i++)
        free(log->entries[i]);
    free(log->entries);
    *log = (struct command_log){0};
}
