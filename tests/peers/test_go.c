/*
 * Beside redsync and bsm/redislock.
 */
#include "peers.h"

static const struct peer peers[] = {
    {"redsync", "redsync", "", PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_SEES_OWN},
    {"redsync-recreating", "redsync", "",
     PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_RECREATES | PEER_SEES_OWN},
    {"redislock", "bsm/redislock", "", PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_SEES_OWN},
};

int main(void) {
    return peers_run("go", peers, sizeof peers / sizeof *peers);
}
