/*
 * A cluster of three primaries and their replicas; see shards.h, the manual.
 *
 * Each server is started once alone, so that it has its port and its directory, and then again with a map
 * of the whole cluster in that directory: so they need not be introduced to each other. They write the
 * map themselves as they learn, so one that is started again goes on where it was.
 */
#include "support/shards.h"

#include "support/server_internal.h"
#include "support/wait.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT_MS = 90000, SLOTS = 16384, MOVE_MS = 30000 };

struct shards {
    struct server *servers[2 * SHARDS];
    int bus[2 * SHARDS]; /* the ports where they talk to each other */
    int count, timeout_ms;
    int databases; /* 0: one */
    bool partial, by_hand;
    char *password, *url;
    struct server *cut_off; /* a replica; NULL: none */
    int64_t notified_ms;    /* when one was last asked to take over */
};

static void id_of(int i, char id[41]) {
    snprintf(id, 41, "%040x", 0xf00d0 + i);
}

static int index_of(const struct shards *s, const struct server *server) {
    for (int i = 0; i < s->count; i++)
        if (s->servers[i] == server)
            return i;
    support_die("this is no server of the cluster");
}

static bool runs(const struct server *server) {
    return server_pid(server) != 0 && process_state(server_pid(server)) != 'T';
}

static struct server *server_at(const struct shards *s, long long port) {
    for (int i = 0; i < s->count; i++)
        if (server_port(s->servers[i]) == port)
            return s->servers[i];
    return NULL;
}

/* ---- What a server says ---- */

static bool has_text(struct server *server, const char *line, const char *text) {
    own_reply *reply = cmd(server, line);
    bool found =
        reply != NULL && reply->type == REDIS_REPLY_STRING && strstr(reply->str, text) != NULL;
    return found;
}

/* The first range that a server tells for which `wanted` is true; false: there is none. */
struct range {
    long long first, last, port;
};

static bool find_range(struct server *server, bool (*wanted)(struct range range, long long what),
                       long long what, struct range *ret) {
    own_reply *reply = cmd(server, "CLUSTER SLOTS");
    bool found = false;
    for (size_t i = 0; reply != NULL && reply->type == REDIS_REPLY_ARRAY && i < reply->elements;
         i++) {
        redisReply **of = reply->element[i]->element;
        struct range range = {of[0]->integer, of[1]->integer, of[2]->element[1]->integer};
        if (!found && wanted(range, what)) {
            found = true;
            *ret = range;
        }
    }
    return found;
}

static bool has_slot(struct range range, long long slot) {
    return range.first <= slot && slot <= range.last;
}

static bool has_port(struct range range, long long port) {
    return range.port == port;
}

/* 0: nobody. */
static long long owner_port(struct server *server, unsigned slot) {
    struct range range;
    return find_range(server, has_slot, slot, &range) ? range.port : 0;
}

struct role {
    bool primary;
    bool linked;            /* a replica: it has all that its primary has had */
    long long port;         /* a replica: of its primary */
    size_t replicas;        /* a primary: how many */
    long long replica_port; /* a primary: of the first of them */
};

static struct role role_of(struct server *server) {
    struct role role = {.primary = false};
    redisReply *reply = cmd(server, "ROLE");
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY)
        goto out;
    role.primary = strcmp(reply->element[0]->str, "master") == 0;
    if (role.primary) {
        role.replicas = reply->element[2]->elements;
        if (role.replicas > 0)
            role.replica_port = atoll(reply->element[2]->element[0]->element[1]->str);
    } else {
        role.port = reply->element[2]->integer;
        role.linked = strcmp(reply->element[3]->str, "connected") == 0;
    }
out:
    freeReplyObject(reply);
    return role;
}

/* ---- Who serves what ---- */

unsigned shards_slot(struct shards *s, const char *key) {
    for (int i = 0; i < s->count; i++)
        if (runs(s->servers[i]))
            return (unsigned)cmd_int(s->servers[i], "CLUSTER KEYSLOT %s", key);
    support_die("no server of the cluster runs");
}

struct finding {
    struct shards *s;
    unsigned slot;
    const struct server *old;
    struct server *found;
};

static bool find_owner(void *arg) {
    struct finding *finding = arg;
    long long port = 0;
    for (int i = 0; i < finding->s->count; i++) {
        struct server *server = finding->s->servers[i];
        if (!runs(server))
            continue;
        long long said = owner_port(server, finding->slot);
        if (said == 0 || (port != 0 && said != port))
            return false;
        port = said;
    }
    finding->found = server_at(finding->s, port);
    return finding->found != NULL && finding->found != finding->old && runs(finding->found) &&
           role_of(finding->found).primary &&
           has_text(finding->found, "CLUSTER INFO", "cluster_state:ok");
}

static struct server *wait_owner(struct shards *s, unsigned slot, const struct server *old) {
    struct finding finding = {.s = s, .slot = slot, .old = old};
    if (!wait_until(find_owner, &finding, LIMIT_MS))
        support_die("the cluster does not agree on who serves slot %u", slot);
    return finding.found;
}

struct server *shards_owner(struct shards *s, unsigned slot) {
    return wait_owner(s, slot, NULL);
}

struct server *shards_owner_of(struct shards *s, const char *key) {
    return shards_owner(s, shards_slot(s, key));
}

struct server *shards_other(struct shards *s, const struct server *primary) {
    for (int i = 0; i < s->count; i++)
        if (s->servers[i] != primary && runs(s->servers[i]) && role_of(s->servers[i]).primary)
            return s->servers[i];
    support_die("there is no other primary");
}

struct server *shards_replica(struct shards *s, struct server *primary) {
    struct role role = role_of(primary);
    return role.primary && role.replicas > 0 ? server_at(s, role.replica_port) : NULL;
}

/* ---- Moving a slot ---- */

void shards_open_slot(struct shards *s, unsigned slot, struct server *from, struct server *to) {
    char from_id[41], to_id[41];
    id_of(index_of(s, from), from_id);
    id_of(index_of(s, to), to_id);
    cmd_ok(to, "CLUSTER SETSLOT %u IMPORTING %s", slot, from_id);
    cmd_ok(from, "CLUSTER SETSLOT %u MIGRATING %s", slot, to_id);
}

void shards_move_key(struct shards *s, struct server *from, struct server *to, const char *key) {
    if (s->password != NULL)
        cmd_ok(from, "MIGRATE 127.0.0.1 %d %s 0 %d AUTH %s KEYS %s", server_port(to), "", MOVE_MS,
               s->password, key);
    else
        cmd_ok(from, "MIGRATE 127.0.0.1 %d %s 0 %d KEYS %s", server_port(to), "", MOVE_MS, key);
}

/* Those that there are now. False: there were none. */
static bool move_some_keys(struct shards *s, unsigned slot, struct server *from,
                           struct server *to) {
    redisReply *keys = cmd(from, "CLUSTER GETKEYSINSLOT %u 1000", slot);
    bool any = keys != NULL && keys->type == REDIS_REPLY_ARRAY && keys->elements > 0;
    for (size_t i = 0; any && i < keys->elements; i++)
        shards_move_key(s, from, to, keys->element[i]->str);
    if (keys != NULL)
        freeReplyObject(keys);
    return any;
}

void shards_move_keys(struct shards *s, unsigned slot, struct server *from, struct server *to) {
    while (move_some_keys(s, slot, from, to)) /* scripts may add some beside those that are left */
        continue;
}

void shards_close_slot(struct shards *s, unsigned slot, struct server *from, struct server *to) {
    char id[41];
    id_of(index_of(s, to), id);
    cmd_ok(to, "CLUSTER SETSLOT %u NODE %s", slot, id);
    cmd_ok(from, "CLUSTER SETSLOT %u NODE %s", slot, id);
    wait_owner(s, slot, from);
}

void shards_move_slot(struct shards *s, unsigned slot, struct server *from, struct server *to) {
    shards_open_slot(s, slot, from, to);
    shards_move_keys(s, slot, from, to);
    shards_close_slot(s, slot, from, to);
}

void shards_keep_slot(struct shards *s, unsigned slot, struct server *from, struct server *to) {
    (void)s;
    cmd_ok(to, "CLUSTER SETSLOT %u STABLE", slot);
    cmd_ok(from, "CLUSTER SETSLOT %u STABLE", slot);
}

/* False: it does not know the subcommand. */
static bool is_begun(redisReply *reply) {
    bool unknown = reply != NULL && reply->type == REDIS_REPLY_ERROR &&
                   strcasestr(reply->str, "unknown subcommand") != NULL;
    if (reply == NULL || (reply->type == REDIS_REPLY_ERROR && !unknown))
        support_die("a slot does not move: %s", reply != NULL ? reply->str : "no answer");
    freeReplyObject(reply);
    return !unknown;
}

/* Valkey pushes, Redis pulls. */
static bool begin_at_once(struct shards *s, unsigned slot, struct server *from, struct server *to) {
    char id[41];
    id_of(index_of(s, to), id);
    return is_begun(cmd(from, "CLUSTER MIGRATESLOTS SLOTSRANGE %u %u NODE %s", slot, slot, id)) ||
           is_begun(cmd(to, "CLUSTER MIGRATION IMPORT %u %u", slot, slot));
}

bool shards_move_slot_at_once(struct shards *s, unsigned slot, struct server *from,
                              struct server *to) {
    if (!begin_at_once(s, slot, from, to))
        return false;
    wait_owner(s, slot, from);
    return true;
}

/* Whether a list of moves has one in this state; the fields are names and values in turn. */
static bool has_state(const redisReply *reply, const char *state) {
    bool has = false;
    for (size_t i = 0; reply != NULL && i < reply->elements && !has; i++) {
        const redisReply *element = reply->element[i];
        has = element->type == REDIS_REPLY_ARRAY    ? has_state(element, state)
              : element->type == REDIS_REPLY_STRING ? strcmp(element->str, state) == 0
                                                    : false;
    }
    return has;
}

struct open_move {
    struct server *from;
    bool open;
};

static bool is_open(void *arg) {
    static const char *const states[] = {"waiting-to-pause", "send-bulk-and-stream"};
    const struct open_move *move = arg;
    bool open = false;
    redisReply *replies[] = {cmd(move->from, "CLUSTER GETSLOTMIGRATIONS"),
                             cmd(move->from, "CLUSTER MIGRATION STATUS ALL")};
    for (int i = 0; i < 2; i++) {
        open = open || has_state(replies[i], states[i]);
        freeReplyObject(replies[i]);
    }
    return open == move->open;
}

/* Valkey can be asked not to end a move. Redis can be slow to save keys for it, in a child that
 * notices a cancelled move when it writes the next one: so the slot gets keys that fill its
 * buffer. */
static void brake_moves(struct server *from, const char *tag) {
    static const char *const fill = "local text = string.rep('x', 32768)\n"
                                    "for i = 1, 500 do\n"
                                    "  redis.call('SET', KEYS[1] .. i, text)\n"
                                    "end\n"
                                    "return 0\n";
    redisReply *reply = cmd(from, "DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
    bool accepted = reply != NULL && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    if (accepted)
        return;
    cmd_int(from, "EVAL %s 1 %s", fill, tag);
    cmd_ok(from, "CONFIG SET rdb-key-save-delay %d", 250 * 1000); /* microseconds */
}

static void unbrake_moves(struct server *from) {
    freeReplyObject(cmd(from, "DEBUG SLOTMIGRATION PREVENT-PAUSE 0"));
    cmd_ok(from, "CONFIG SET rdb-key-save-delay 0");
}

bool shards_hold_move_at_once(struct shards *s, const char *tag, struct server *from,
                              struct server *to) {
    struct open_move move = {.from = from, .open = true};
    brake_moves(from, tag);
    if (!begin_at_once(s, shards_slot(s, tag), from, to)) {
        unbrake_moves(from);
        return false;
    }
    if (!wait_until(is_open, &move, LIMIT_MS))
        support_die("the move of %s has not begun", tag);
    return true;
}

void shards_cancel_move_at_once(struct shards *s, struct server *from, struct server *to) {
    struct open_move move = {.from = from, .open = false};
    (void)s;
    freeReplyObject(cmd(from, "CLUSTER CANCELSLOTMIGRATIONS"));
    freeReplyObject(cmd(to, "CLUSTER MIGRATION CANCEL ALL"));
    if (!wait_until(is_open, &move, LIMIT_MS))
        support_die("a move cannot be cancelled");
    unbrake_moves(from);
}

redisReply *shards_ask(struct shards *s, struct server *to, const char *line) {
    own_context *context = server_connect(to);
    (void)s;
    if (context == NULL)
        support_die("a server of the cluster cannot be reached");
    freeReplyObject(redisCommand(context, "ASKING"));
    return redisCommand(context, line);
}

/* ---- Failovers ---- */

static unsigned any_slot_of(struct server *server) {
    struct range range;
    if (!find_range(server, has_port, server_port(server), &range))
        support_die("a primary serves nothing");
    return (unsigned)range.first;
}

static struct server *replica_of(struct shards *s, struct server *primary) {
    struct server *replica = shards_replica(s, primary);
    if (replica == NULL)
        support_die("a primary has no replica");
    return replica;
}

#define OWN_LIMIT_MS 5000 /* so long the servers try by themselves */

struct failover {
    struct server *replica;
    const char *how;
    int64_t begun_ms; /* 0: not yet */
};

static bool begin_failover(void *arg) {
    struct failover *failover = arg;
    own_reply *reply = cmd(failover->replica, failover->how);
    return reply != NULL && reply->type == REDIS_REPLY_STATUS;
}

/* One by hand may be given up by the servers, when one of them was not on the processor for long; but until
 * then another order would only begin it anew. */
static bool take_over(void *arg) {
    struct failover *failover = arg;
    bool due = failover->begun_ms == 0 || now_ms() - failover->begun_ms > OWN_LIMIT_MS;
    if (role_of(failover->replica).primary)
        return true;
    int64_t begun_ms = now_ms();
    if (due && begin_failover(failover))
        failover->begun_ms = begun_ms;
    return false;
}

static void insist(struct shards *s, struct server *replica, const char *how) {
    struct failover failover = {.replica = replica, .how = how};
    if (!wait_until(take_over, &failover, LIMIT_MS))
        support_die("a replica does not take over");
    s->notified_ms = failover.begun_ms != 0 ? failover.begun_ms : now_ms();
}

int64_t shards_notified_ms(const struct shards *s) {
    return s->notified_ms;
}

/* Redis 7.0 counts the votes of its last election again if it is asked to take over within four times the
 * node timeout: it is a primary of an old epoch, and for a moment only. So the order is repeated until
 * the cluster agrees. */
struct by_hand {
    struct failover failover;
    struct finding finding;
};

static bool is_taken_over(void *arg) {
    struct by_hand *by_hand = arg;
    (void)take_over(&by_hand->failover);
    return find_owner(&by_hand->finding);
}

struct server *shards_fail_over(struct shards *s, struct server *primary) {
    struct by_hand by_hand = {
        .failover = {.replica = replica_of(s, primary), .how = "CLUSTER FAILOVER"},
        .finding = {.s = s, .slot = any_slot_of(primary), .old = primary}};
    if (!wait_until(is_taken_over, &by_hand, LIMIT_MS))
        support_die("a replica does not take over");
    s->notified_ms = by_hand.failover.begun_ms != 0 ? by_hand.failover.begun_ms : now_ms();
    return by_hand.finding.found;
}

struct server *shards_kill(struct shards *s, struct server *primary) {
    unsigned slot = any_slot_of(primary);
    server_kill(primary);
    return wait_owner(s, slot, primary);
}

void shards_cut_off_replica(struct shards *s, struct server *primary) {
    s->cut_off = replica_of(s, primary);
    server_freeze(s->cut_off);
    cmd_ok(primary, "CLIENT KILL TYPE replica");
}

struct server *shards_lose_writes(struct shards *s, struct server *primary) {
    unsigned slot = any_slot_of(primary);
    struct server *replica = s->cut_off != NULL ? s->cut_off : replica_of(s, primary);
    server_kill(primary);
    if (s->cut_off != NULL)
        server_unfreeze(replica);
    s->cut_off = NULL;
    insist(s, replica, "CLUSTER FAILOVER TAKEOVER");
    return wait_owner(s, slot, primary);
}

/* ---- Whole ---- */

static bool is_whole(void *arg) {
    const struct shards *s = arg;
    char known[64];
    int primaries = 0;
    snprintf(known, sizeof known, "cluster_known_nodes:%d\r\n", s->count);
    for (int i = 0; i < s->count; i++) {
        struct server *server = s->servers[i];
        struct role role = role_of(server);
        if (!has_text(server, "CLUSTER INFO", "cluster_state:ok") ||
            !has_text(server, "CLUSTER INFO", known) || has_text(server, "CLUSTER NODES", ",fail"))
            return false;
        if (role.primary ? s->count > SHARDS && role.replicas != 1 : !role.linked)
            return false;
        primaries += role.primary;
    }
    return primaries == SHARDS;
}

/* Servers say of themselves "[slot->-id]" or "[slot-<-id]". */
static void close_open_slots(struct server *server) {
    own_text *nodes = cmd_str(server, "CLUSTER NODES");
    for (const char *at = strchr(nodes, '['); at != NULL; at = strchr(at + 1, '['))
        cmd_ok(server, "CLUSTER SETSLOT %d STABLE", atoi(at + 1));
}

static void revive(struct shards *s) {
    if (s->cut_off != NULL)
        server_unfreeze(s->cut_off);
    s->cut_off = NULL;
    for (int i = 0; i < s->count; i++) {
        if (server_pid(s->servers[i]) == 0)
            server_restart(s->servers[i]);
        else if (!runs(s->servers[i]))
            server_unfreeze(s->servers[i]);
    }
}

static void wait_whole(struct shards *s) {
    if (!wait_until(is_whole, s, LIMIT_MS))
        support_die("the cluster is not whole; see %s/log", server_dir(s->servers[0]));
}

void shards_mend(struct shards *s) {
    revive(s);
    wait_whole(s);
    for (int i = 0; i < s->count; i++)
        if (role_of(s->servers[i]).primary)
            close_open_slots(s->servers[i]);
}

void shards_heal(struct shards *s) {
    shards_mend(s);
    for (int i = 0; i < s->count; i++)
        if (role_of(s->servers[i]).primary)
            cmd_ok(s->servers[i], "FLUSHALL");
}

/* ---- Life ---- */

/* Up to 6.2 the port for the others is always so much higher. */
#define OLD_BUS_ABOVE 10000

static void start_alone(struct shards *s, int i) {
    char bus[32] = "# the port is fixed", timeout[64], auth[128] = "# no password";
    char databases[48] = "# one database";
    s->bus[i] = server_pick_port();
    if (server_is_7())
        snprintf(bus, sizeof bus, "cluster-port %d", s->bus[i]);
    snprintf(timeout, sizeof timeout, "cluster-node-timeout %d", s->timeout_ms);
    if (s->password != NULL)
        snprintf(auth, sizeof auth, "masterauth %s", s->password);
    if (s->databases > 0)
        snprintf(databases, sizeof databases, "cluster-databases %d", s->databases);
    const char *config[] = {"cluster-enabled yes",
                            "cluster-config-file nodes.conf",
                            "cluster-replica-validity-factor 0",
                            "repl-diskless-sync yes",
                            "repl-diskless-sync-delay 0",
                            "repl-ping-replica-period 1",
                            "repl-timeout 5",
                            bus,
                            timeout,
                            auth,
                            databases,
                            s->partial ? "cluster-require-full-coverage no" : "# all or nothing",
                            s->by_hand ? "cluster-replica-no-failover yes" : "# by itself",
                            NULL};
    const struct server_options options = {.tcp = true, .password = s->password, .config = config};
    s->servers[i] = server_start(&options);
    if (!server_is_7())
        s->bus[i] = server_port(s->servers[i]) + OLD_BUS_ABOVE;
}

/* Those that know it need to know which shard they are of: else a primary that no replica names dies of the
 * first SPUBLISH (Redis 8.0.2, Valkey 8.1.1 and 9.1.2; not Redis 8.6.3). */
static void write_node(const struct shards *s, int i, bool myself, FILE *file) {
    char id[41], primary[41] = "-";
    id_of(i, id);
    if (i >= SHARDS)
        id_of(i - SHARDS, primary);
    fprintf(file, "%s 127.0.0.1:%d@%d", id, server_port(s->servers[i]), s->bus[i]);
    if (server_has_shard_ids())
        fprintf(file, ",,shard-id=%s", i < SHARDS ? id : primary);
    fprintf(file, " %s%s %s 0 0 %d connected", myself ? "myself," : "",
            i < SHARDS ? "master" : "slave", primary, i % SHARDS + 1);
    if (i < SHARDS)
        fprintf(file, " %d-%d", i * SLOTS / SHARDS, (i + 1) * SLOTS / SHARDS - 1);
    fputc('\n', file);
}

static void write_map(const struct shards *s, int i) {
    char path[512];
    snprintf(path, sizeof path, "%s/nodes.conf", server_dir(s->servers[i]));
    FILE *file = fopen(path, "we");
    if (file == NULL)
        support_die("%s: %s", path, strerror(errno));
    for (int k = 0; k < s->count; k++)
        write_node(s, k, k == i, file);
    fprintf(file, "vars currentEpoch %d lastVoteEpoch 0\n", 2 * SHARDS);
    if (fclose(file) != 0)
        support_die("%s: %s", path, strerror(errno));
}

static void make_url(struct shards *s) {
    FILE *out;
    size_t size;
    if ((out = open_memstream(&s->url, &size)) == NULL)
        support_die("out of memory");
    fputs("redis-cluster://", out);
    if (s->password != NULL)
        fprintf(out, ":%s@", s->password);
    for (int i = 0; i < s->count; i++)
        fprintf(out, "%s127.0.0.1:%d", i > 0 ? "," : "", server_port(s->servers[i]));
    fclose(out);
}

bool shards_can_have_databases(void) {
    struct server *server = server_start(NULL);
    redisReply *reply = cmd(server, "CONFIG GET cluster-databases");
    bool can = reply != NULL && reply->elements == 2;
    if (reply != NULL)
        freeReplyObject(reply);
    server_free(server);
    return can;
}

struct shards *shards_start(const struct shards_options *options) {
    static const struct shards_options defaults;
    if (options == NULL)
        options = &defaults;
    struct shards *s = zeroed(1, sizeof *s);
    s->count = options->replicas ? 2 * SHARDS : SHARDS;
    s->partial = options->partial;
    s->by_hand = options->by_hand;
    s->databases = options->databases;
    s->timeout_ms = options->node_timeout_ms;
    if (s->timeout_ms == 0)
        s->timeout_ms = options->replicas ? 500 : 5000;
    if (options->password != NULL)
        s->password = strdup(options->password);
    for (int i = 0; i < s->count; i++) {
        start_alone(s, i);
        server_kill(s->servers[i]);
    }
    for (int i = 0; i < s->count; i++)
        write_map(s, i);
    for (int i = 0; i < s->count; i++)
        server_relaunch(s->servers[i]);
    for (int i = 0; i < s->count; i++)
        server_wait_ready(s->servers[i]);
    wait_whole(s);
    make_url(s);
    return s;
}

void shards_free(struct shards *s) {
    if (s == NULL)
        return;
    for (int i = 0; i < s->count; i++)
        server_free(s->servers[i]);
    free(s->password);
    free(s->url);
    free(s);
}

const char *shards_url(const struct shards *s) {
    return s->url;
}

int shards_count(const struct shards *s) {
    return s->count;
}

struct server *shards_server(struct shards *s, int i) {
    return s->servers[i];
}
