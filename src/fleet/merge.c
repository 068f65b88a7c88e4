/*
 * Merges what the servers of a quorum found: they have the same locks, and mostly the same clients.
 * Called by src/joint on the keeper's thread; stateless.
 */
#include "fleet/survey.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

static void note_server(struct hfi_findings *findings, size_t server) {
    for (struct hfi_link *link = findings->locks.next; link != &findings->locks; link = link->next)
        HFI_CONTAINER(link, struct hfi_found_lock, link)->server = server;
}

/* Most servers have the same survey listeners, so take the largest number. */
static void add_findings(struct hfi_findings *to, struct hfi_findings *from) {
    hfi_list_splice(&to->locks, &from->locks);
    hfi_list_splice(&to->answers, &from->answers);
    hfi_list_splice(&to->connections, &from->connections);
    hfi_list_splice(&to->announced, &from->announced);
    to->taken_ms = hfi_max_ms(to->taken_ms, from->taken_ms);
    to->took_ms = hfi_max_ms(to->took_ms, from->took_ms);
    to->subscribers = hfi_max_ms(to->subscribers, from->subscribers);
    to->answers_cut = to->answers_cut || from->answers_cut;
    to->subscribers_known = to->subscribers_known && from->subscribers_known;
    to->connections_known = to->connections_known && from->connections_known;
    to->cut = to->cut || from->cut;
    to->unread |= from->unread;
    if (from->text[0] != '\0')
        memcpy(to->text, from->text, sizeof to->text);
}

/* What fewer than a majority can have is no hold: a client is about to take it, or failed to. A
 * server that did not answer may have it. */
struct hfi_findings *hfi_findings_merge(struct hfi_findings *const *of, size_t len,
                                        size_t majority) {
    struct hfi_findings *all = NULL;
    size_t missing = 0;
    for (size_t i = 0; i < len; i++) {
        if (of[i] == NULL) {
            missing++;
            continue;
        }
        note_server(of[i], i);
        if (all != NULL) {
            add_findings(all, of[i]);
            hfi_findings_free(of[i]);
        } else {
            all = of[i];
        }
    }
    if (all != NULL)
        all->votes = majority > missing ? majority - missing : 1;
    if (all != NULL && missing > 0) {
        all->cut = true;
        snprintf(all->text, sizeof all->text, "%zu of %zu servers did not answer", missing, len);
    }
    return all;
}
