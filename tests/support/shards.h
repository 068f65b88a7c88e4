/* A cluster of three primaries, with or without a replica each: all real, on loopback.
 *
 *     struct shards *s = shards_start(NULL);
 *     hf_open(shards_url(s), NULL, &client);
 *     unsigned slot = shards_slot(s, "mylock");
 *     struct server *from = shards_owner(s, slot), *to = shards_other(s, from);
 *     shards_open_slot(s, slot, from, to);
 *     shards_move_key(s, from, to, "mylock");
 *     shards_close_slot(s, slot, from, to);
 *     shards_heal(s);
 *     shards_free(s);
 *
 * Include as "support/shards.h". Ready in about two seconds: that long a primary stays out after its
 * start. Who serves what is looked up, never assumed. One thread at a time may use it. As with server.h,
 * a fixture that breaks prints why and aborts. */
#ifndef HF_TEST_SHARDS_H
#define HF_TEST_SHARDS_H

#include "support/server.h"

#define SHARDS 3

struct shards;

struct shards_options {
    bool replicas;        /* one for each primary */
    int node_timeout_ms;  /* 0: 500 with replicas, so that failovers are quick; else 5000 */
    bool partial;         /* what is left goes on when a shard has failed */
    bool by_hand;         /* no replica takes over by itself, however long its primary is silent */
    const char *password; /* of all of them */
    int databases;        /* 0: one. More only if shards_can_have_databases() */
};

struct shards *shards_start(const struct shards_options *options);
void shards_free(struct shards *shards); /* NULL is fine */
bool shards_can_have_databases(void);    /* the server knows cluster-databases (Valkey 9) */

const char *shards_url(const struct shards *shards); /* redis-cluster://[:password@]host:port,... */
int shards_count(const struct shards *shards);       /* of the servers */
struct server *shards_server(struct shards *shards, int i);

/* Every server runs again and none is stopped, no slot is open, each primary has its replica; and all keys
 * are gone. */
void shards_mend(struct shards *shards);
void shards_heal(struct shards *shards);

/* ---- Who serves what ---- */

unsigned shards_slot(struct shards *shards, const char *key); /* as the servers say */
/* The server that serves it, as all say that run. Waits until they agree. */
struct server *shards_owner(struct shards *shards, unsigned slot);
struct server *shards_owner_of(struct shards *shards, const char *key);
/* Another primary. */
struct server *shards_other(struct shards *shards, const struct server *primary);
/* The replica of a primary; NULL: it has none that is connected. */
struct server *shards_replica(struct shards *shards, struct server *primary);

/* ---- Moving a slot ---- */

void shards_open_slot(struct shards *shards, unsigned slot, struct server *from, struct server *to);
/* Moves keys, which need not exist, while the slot is open. */
void shards_move_key(struct shards *shards, struct server *from, struct server *to,
                     const char *key);
/* All of the slot. */
void shards_move_keys(struct shards *shards, unsigned slot, struct server *from, struct server *to);
/* It is `to`'s from now on, and everybody knows. */
void shards_close_slot(struct shards *shards, unsigned slot, struct server *from,
                       struct server *to);
/* All of that: opens the slot, moves its keys and closes it. */
void shards_move_slot(struct shards *shards, unsigned slot, struct server *from, struct server *to);
/* The slot stays where it was. Keys that were moved are not moved back. */
void shards_keep_slot(struct shards *shards, unsigned slot, struct server *from, struct server *to);
/* Moves a slot in one step: CLUSTER MIGRATESLOTS (Valkey 9) or CLUSTER MIGRATION (Redis 8.4). It is `to`'s when this
 * returns, and everybody knows. False: the server has neither, and nothing has happened. */
bool shards_move_slot_at_once(struct shards *shards, unsigned slot, struct server *from,
                              struct server *to);
/* Begins such a move, of the slot of `tag` ("{...}"), which stays open for two minutes unless it is
 * cancelled; then the slot is `from`'s as before. Keys may be left that begin with the tag. False:
 * as above. */
bool shards_hold_move_at_once(struct shards *shards, const char *tag, struct server *from,
                              struct server *to);
void shards_cancel_move_at_once(struct shards *shards, struct server *from, struct server *to);
/* A command that `to` takes for an open slot, which only the caller that is sent there may ask. */
redisReply *shards_ask(struct shards *shards, struct server *to, const char *line);

/* ---- Failovers: each returns the new primary, when all know it ---- */

struct server *shards_fail_over(struct shards *shards, struct server *primary); /* by hand */
struct server *shards_kill(struct shards *shards, struct server *primary);
/* What is written from now on, the replica does not have. */
void shards_cut_off_replica(struct shards *shards, struct server *primary);
/* Kills the primary, and the replica takes over at once, whether it was cut off or is merely late. */
struct server *shards_lose_writes(struct shards *shards, struct server *primary);
/* When a replica last got CLUSTER FAILOVER, by now_ms(): a little before it took over. If it did so
 * by itself: when that was seen. */
int64_t shards_notified_ms(const struct shards *shards);

#endif
