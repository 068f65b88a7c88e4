/*
 * What clients answer to a survey and what they announce, joined with what the server said: any
 * client may have written it.
 *
 * Input: lines. One that begins with `=` is the name of a connection, with `@` an owner of a lock,
 * with `!` an announcement; the others are answers.
 */
#include "fuzz.h"

#include "fleet/survey.h"

#include <string.h>

#define SIZE_LIMIT 65536

static void add_text(struct hfi_link *list, const char *text, size_t len) {
    struct hfi_found_answer *answer = malloc(sizeof *answer + len);
    if (answer == NULL)
        abort();
    *answer = (struct hfi_found_answer){.len = len};
    memcpy(answer->text, text, len);
    hfi_list_push_back(list, &answer->link);
}

static void add_connection(struct hfi_findings *findings, const char *text, size_t len) {
    struct hfi_found_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        abort();
    snprintf(connection->name, sizeof connection->name, "%.*s", (int)len, text);
    connection->listens = len % 2 != 0;
    hfi_list_push_back(&findings->connections, &connection->link);
}

static void add_lock(struct hfi_findings *findings, const char *text, size_t len) {
    struct hfi_found_lock *lock = calloc(1, sizeof *lock + 2);
    if (lock == NULL || (lock->owners = calloc(1, sizeof *lock->owners)) == NULL)
        abort();
    lock->ttl_ms = 30000;
    lock->listeners = lock->available = -1;
    lock->name[0] = 'x';
    lock->name_len = 1;
    lock->kind = len > 0 ? (enum hfi_found_kind)((unsigned char)text[0] % 6) : HFI_FOUND_PLAIN;
    lock->owners_len = 1;
    snprintf(lock->owners[0].owner, sizeof lock->owners[0].owner, "%.*s", (int)len, text);
    lock->owners[0].count = 1;
    hfi_list_push_back(&findings->locks, &lock->link);
}

static void add_line(struct hfi_findings *findings, const char *line, size_t len) {
    if (len > 0 && *line == '=') {
        add_connection(findings, line + 1, len - 1);
    } else if (len > 0 && *line == '@') {
        add_lock(findings, line + 1, len - 1);
    } else if (len > 0 && *line == '!') {
        add_text(&findings->announced, line + 1, len - 1);
    } else {
        add_text(&findings->answers, line, len);
        findings->subscribers++;
    }
}

static hf_fleet *join(const char *text, size_t size) {
    struct hfi_findings *findings = hfi_findings_new();
    if (findings == NULL)
        abort();
    findings->taken_ms = 1000;
    findings->connections_known = true;
    findings->subscribers = 0;
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        add_line(findings, at, (size_t)(stop - at));
        at = stop + 1;
    }
    hf_fleet *fleet = hfi_fleet_join(findings, "", 0);
    hfi_findings_free(findings);
    FUZZ_CHECK(fleet != NULL);
    return fleet;
}

static void read_clients(const hf_fleet_client *const *clients, size_t len) {
    for (size_t i = 0; i < len; i++) {
        FUZZ_CHECK(strlen(clients[i]->id) == 36);
        FUZZ_CHECK(i == 0 || strcmp(clients[i - 1]->id, clients[i]->id) < 0);
        FUZZ_CHECK(clients[i]->host != NULL && clients[i]->program != NULL);
        FUZZ_CHECK(clients[i]->up_ms >= -1);
    }
}

static void read_fleet(const hf_fleet *fleet) {
    read_clients(fleet->clients, fleet->clients_len);
    read_clients(fleet->announced, fleet->announced_len);
    for (size_t i = 0; i < fleet->locks_len; i++) {
        const hf_fleet_lock *lock = fleet->locks[i];
        FUZZ_CHECK(lock->name[lock->name_len] == '\0');
        for (size_t k = 0; k < lock->holders_len; k++)
            FUZZ_CHECK(lock->holders[k]->count > 0);
        for (size_t k = 0; k < lock->waiters_len; k++)
            FUZZ_CHECK(lock->waiters[k]->count == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hf_deadlocks *deadlocks = NULL;
    if (size > SIZE_LIMIT)
        return 0;
    hf_fleet *earlier = join((const char *)data, size), *later = join((const char *)data, size);
    read_fleet(later);
    if (hfi_fleet_deadlocks(earlier, later, &deadlocks) == HF_OK)
        hfi_deadlocks_free(deadlocks);
    hfi_fleet_free(earlier);
    hfi_fleet_free(later);
    return 0;
}
