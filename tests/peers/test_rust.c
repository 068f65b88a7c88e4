/*
 * Beside rslock, whose tokens are raw bytes.
 */
#include "peers.h"

static const struct peer peers[] = {
    {"rslock", "rslock", "", PEER_WAITS | PEER_EXTENDS | PEER_SEES_OWN},
};

int main(void) {
    return peers_run("rust", peers, sizeof peers / sizeof *peers);
}
