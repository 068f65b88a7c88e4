/* Finds the servers of a cluster for `holdfast doctor`, each through a name in one of its slots.
 *
 * The library tells the server of a name, but does not list the servers. So names are tried, which
 * hash to random slots, until FRUITLESS_MAX in a row found no new server. A server with a tenth of
 * the slots is missed once in 800 times. One with hardly any slots is usually missed, and has
 * hardly any locks.
 *
 * Called on the main thread. A name costs some twenty small commands, or a timeout if its server
 * does not respond. So it stops after FAILED_MAX failures. */
#include "doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

#define FRUITLESS_MAX 64
#define FAILED_MAX 2
#define SERVERS_MAX 1000

struct search {
    char (*nodes)[sizeof((hf_error *)0)->node]; /* found so far */
    size_t nodes_len;
    int fruitless, failed; /* tried names: without a new server, in a row; failed, in total */
};

/* Returns true if the node is new. */
static bool note_node(struct search *search, const char *node) {
    for (size_t i = 0; i < search->nodes_len; i++)
        if (strcmp(search->nodes[i], node) == 0)
            return false;
    snprintf(search->nodes[search->nodes_len++], sizeof search->nodes[0], "%s", node);
    return true;
}

/* Queries the server of one name. Returns HF_OK or HF_ENOMEM. */
static int try_name(struct search *search, hf_client *client, const char *name,
                    const struct doctor_visitor *visitor) {
    hf_lock *lock = NULL;
    hf_server_info *facts = NULL;
    int code = hf_lock_new(client, name, &lock);
    if (code == HF_OK)
        code = hf_lock_server_info(lock, &facts);
    const char *node = code == HF_OK ? facts->node : hf_last_error()->node;
    search->failed += code != HF_OK;
    if (code != HF_ENOMEM && note_node(search, node)) {
        search->fruitless = 0;
        visitor->found(visitor->user, client, name, node, facts);
    } else {
        search->fruitless++;
    }
    hf_server_info_free(facts);
    hf_lock_free(lock);
    return code == HF_ENOMEM ? code : HF_OK;
}

int doctor_visit_servers(hf_client *client, const char *stem,
                         const struct doctor_visitor *visitor) {
    struct search search = {.nodes = calloc(SERVERS_MAX, sizeof *search.nodes)};
    int code = search.nodes != NULL ? HF_OK : HF_ENOMEM;
    for (int i = 0; code == HF_OK && search.fruitless < FRUITLESS_MAX &&
                    search.failed < FAILED_MAX && search.nodes_len < SERVERS_MAX;
         i++) {
        char *name = NULL;
        code = asprintf(&name, "%s-%d", stem, i) < 0 ? HF_ENOMEM : HF_OK;
        if (code == HF_OK)
            code = try_name(&search, client, name, visitor);
        free(name);
    }
    free(search.nodes);
    return code;
}
