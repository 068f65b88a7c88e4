/*
 * Beside libraries of .NET, Ruby and PHP, which are not here: the commands that they send are played as text.
 */
#include "peers.h"

static const struct peer peers[] = {
    {"stackexchange", "StackExchange.Redis", "",
     PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_SEES_OTHERS},
    {"redlock-net", "RedLock.net",
     "redlock:", PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_RECREATES},
    {"redlock-rb", "redlock-rb", "",
     PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_RECREATES | PEER_SEES_OTHERS},
    {"laravel", "Laravel", "app-database-app-cache-",
     PEER_WAITS | PEER_EXTENDS | PEER_TELLS | PEER_SEES_OTHERS},
};

int main(void) {
    return peers_run("text", peers, sizeof peers / sizeof *peers);
}
