/*
 * Beside node-redlock, the last two of its versions.
 */
#include "peers.h"

static const struct peer peers[] = {
    {"node-redlock-4", "node-redlock", "", PEER_WAITS | PEER_EXTENDS | PEER_TELLS},
    {"node-redlock-5", "node-redlock", "", PEER_WAITS | PEER_EXTENDS | PEER_TELLS},
};

int main(void) {
    return peers_run("node", peers, sizeof peers / sizeof *peers);
}
