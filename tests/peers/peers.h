/* Locks of other libraries, as strings that this one shares with them.
 *
 *     static const struct peer peers[] = {{"redsync", "redsync", "", PEER_WAITS | PEER_EXTENDS}};
 *     int main(void) {
 *         return peers_run("go", peers, 1);
 *     }
 *
 * The libraries of one language are in one program, its actor, which is driven by lines
 * (support/remote.h; README.md lists the commands). All have one server. */
#ifndef HF_TEST_PEERS_PEERS_H
#define HF_TEST_PEERS_PEERS_H

#include "support/assert_hf.h"
#include "support/case.h"
#include "support/new_lock.h"
#include "support/remote.h"
#include "support/server.h"
#include "support/wait.h"

#include <holdfast/holdfast.h>

enum peer_trait {
    PEER_WAITS = 1,        /* a wait of its ends when we release, by its polls */
    PEER_EXTENDS = 2,      /* it can lengthen its lease */
    PEER_TELLS = 4,        /* its release says whether the lock was still its own */
    PEER_RECREATES = 8,    /* its extension takes a lock that is gone */
    PEER_CARELESS = 16,    /* it extends and deletes what is not its own */
    PEER_SEES_OTHERS = 32, /* its `locked` tells of every owner */
    PEER_SEES_OWN = 64     /* its `locked` tells of itself alone */
};

struct peer {
    const char *name;   /* as its actor knows it */
    const char *page;   /* as docs/strings.md calls it */
    const char *prefix; /* what it puts before the name of a lock */
    unsigned traits;    /* enum peer_trait */
};

struct peers_suite {
    struct server *server;
    struct remote *actor;
    const char *language;
    const struct peer *peers;
    size_t peers_len;
};
extern struct peers_suite suite;

/* A hold that no row wants to end by itself, and one that is to: longer than a pause of a busy
 * machine, and whole seconds. */
#define LONG_MS 60000
#define SHORT_MS 2000

/* Runs build.sh, which prints why when it cannot. Returns 0, EXIT_SKIPPED or 1. */
int peers_build(const char *language);
struct remote *peers_start(const char *language);

/* main() of a language: builds it, and plays every scene with every peer, besides the program's own CASEs. */
int peers_run(const char *language, const struct peer *peers, size_t len);

/* Set-up and end of such a CASE: an empty server, and an actor that answers. */
int peers_begin_case(void **state);
int peers_end_case(void **state);

/* ---- Both sides on one lock ------------------------------------------------------------------ */

struct pair {
    const struct peer *peer;
    hf_client *client;
    hf_lock *lock;
    char name[64]; /* as both sides give it */
    char key[96];  /* as the server knows it */
};

/* A lock that nobody has used yet, and the peer's handles: "long" and "short" have these leases. */
void pair_begin(struct pair *pair, const struct peer *peer);
void pair_end(struct pair *pair); /* nothing of it is left on the server */

hf_client *our_client(const char *prefix, int64_t watchdog_ms); /* 0: the default */
hf_lock *our_lock(hf_client *client, const char *name);

/* Asserts the answer of the suite's actor. */
#define it_says(expected, ...)                                                                     \
    assert_answer(expected, remote_call(suite.actor, __VA_ARGS__), __FILE__, __LINE__)
void assert_answer(const char *expected, const char *answer, const char *file, int line);

/* What its release answers to a lock that was its own, or was not. */
const char *released(const struct peer *peer);
const char *not_released(const struct peer *peer);

/* The value at the server, which the caller frees. */
char *token_of(const struct pair *pair);
void assert_token(const struct pair *pair, const char *token);

bool has(const struct peer *peer, enum peer_trait trait);

#endif
