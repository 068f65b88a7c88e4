/*
 * Three ZooKeeper servers that can be cut off from each other; see zk.h, the manual.
 *
 * Called by tests. A follower connects to its leader at the address that its own configuration names,
 * so each member's names a wire of ours (an opaque proxy) for each of the other two, and its own port
 * for itself. That needs no privileges. Votes go by other ports, straight: a member that is cut off
 * learns who leads, and cannot reach it.
 *
 * Invariant: wires[i][j] leads from member i to the port where j serves followers.
 */
#include "support/proxy.h"
#include "support/server_internal.h"
#include "support/supervisor.h"
#include "support/wait.h"
#include "support/zk_internal.h"

enum { WHOLE_LIMIT_MS = 120000, TRIES = 5 };

struct zk_ensemble {
    struct zk *members[ZK_MEMBERS];
    struct proxy *wires[ZK_MEMBERS][ZK_MEMBERS];
    int follow_ports[ZK_MEMBERS], vote_ports[ZK_MEMBERS];
    char *url;
};

static void write_member(struct zk_ensemble *ensemble, int member,
                         const struct zk_options *options) {
    char *lines = text_of("%s", "");
    for (int other = 0; other < ZK_MEMBERS; other++) {
        int port = other == member ? ensemble->follow_ports[other]
                                   : proxy_port(ensemble->wires[member][other]);
        char *more = text_of("%sserver.%d=127.0.0.1:%d:%d\n", lines, other + 1, port,
                             ensemble->vote_ports[other]);
        free(lines);
        lines = more;
    }
    zk_write_config(ensemble->members[member], options, lines);
    free(lines);
}

static void free_wires(struct zk_ensemble *ensemble) {
    for (int from = 0; from < ZK_MEMBERS; from++) {
        for (int to = 0; to < ZK_MEMBERS; to++) {
            proxy_free(ensemble->wires[from][to]);
            ensemble->wires[from][to] = NULL;
        }
    }
}

static void take_ports(struct zk_ensemble *ensemble) {
    for (int i = 0; i < ZK_MEMBERS; i++) {
        zk_take_port(ensemble->members[i]);
        ensemble->follow_ports[i] = server_pick_port();
        ensemble->vote_ports[i] = server_pick_port();
    }
    for (int from = 0; from < ZK_MEMBERS; from++)
        for (int to = 0; to < ZK_MEMBERS; to++)
            if (from != to)
                ensemble->wires[from][to] =
                    proxy_start_tcp(ensemble->follow_ports[to], PROXY_OPAQUE);
    free(ensemble->url);
    ensemble->url =
        text_of("zk://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", zk_port(ensemble->members[0]),
                zk_port(ensemble->members[1]), zk_port(ensemble->members[2]));
}

int zk_leader(struct zk_ensemble *ensemble) {
    for (int i = 0; i < ZK_MEMBERS; i++)
        if (zk_pid(ensemble->members[i]) != 0 && zk_has_mode(ensemble->members[i], "leader"))
            return i;
    return -1;
}

struct led {
    struct zk_ensemble *ensemble;
    int leader;
};

static bool is_led(void *arg) {
    struct led *led = arg;
    led->leader = zk_leader(led->ensemble);
    return led->leader >= 0;
}

/* The one that was found: asked again, it may not answer in time. */
int zk_wait_leader(struct zk_ensemble *ensemble) {
    struct led led = {.ensemble = ensemble};
    if (!wait_until(is_led, &led, WHOLE_LIMIT_MS))
        zk_die_with_log(ensemble->members[0], "has no leader");
    return led.leader;
}

static int count(struct zk_ensemble *ensemble, const char *mode) {
    int found = 0;
    for (int i = 0; i < ZK_MEMBERS; i++)
        found += zk_pid(ensemble->members[i]) != 0 && zk_has_mode(ensemble->members[i], mode);
    return found;
}

static bool all_serve(struct zk_ensemble *ensemble) {
    bool all = true;
    for (int i = 0; all && i < ZK_MEMBERS; i++)
        all = zk_serves(ensemble->members[i]);
    return all;
}

static bool is_whole_or_broken(void *arg) {
    struct zk_ensemble *ensemble = arg;
    for (int i = 0; i < ZK_MEMBERS; i++)
        if (!supervisor_running(zk_pid(ensemble->members[i])))
            return true;
    return all_serve(ensemble) && count(ensemble, "leader") == 1 &&
           count(ensemble, "follower") == ZK_MEMBERS - 1;
}

/* False when a member has ended by itself, as it does when a port is taken. */
static bool becomes_whole(struct zk_ensemble *ensemble) {
    if (!wait_until(is_whole_or_broken, ensemble, WHOLE_LIMIT_MS))
        zk_die_with_log(ensemble->members[0], "gets no whole ensemble");
    bool whole = true;
    for (int i = 0; i < ZK_MEMBERS; i++)
        whole = whole && supervisor_running(zk_pid(ensemble->members[i]));
    return whole;
}

int zk_wait_whole(struct zk_ensemble *ensemble) {
    if (!becomes_whole(ensemble))
        zk_die_with_log(ensemble->members[0], "has lost a member");
    return zk_wait_leader(ensemble);
}

struct zk_ensemble *zk_ensemble_start(const struct zk_options *options) {
    static const struct zk_options defaults;
    struct zk_ensemble *ensemble = zeroed(1, sizeof *ensemble);
    for (int i = 0; i < ZK_MEMBERS; i++)
        ensemble->members[i] = zk_new(i + 1);
    for (int tries = 0; tries < TRIES; tries++) {
        take_ports(ensemble);
        for (int i = 0; i < ZK_MEMBERS; i++) {
            write_member(ensemble, i, options != NULL ? options : &defaults);
            zk_launch(ensemble->members[i]);
        }
        if (becomes_whole(ensemble))
            return ensemble;
        for (int i = 0; i < ZK_MEMBERS; i++)
            zk_kill(ensemble->members[i]);
        free_wires(ensemble);
    }
    zk_die_with_log(ensemble->members[0], "ended instead of getting ready");
}

void zk_ensemble_free(struct zk_ensemble *ensemble) {
    if (ensemble == NULL)
        return;
    for (int i = 0; i < ZK_MEMBERS; i++)
        zk_free(ensemble->members[i]);
    free_wires(ensemble);
    free(ensemble->url);
    free(ensemble);
}

const char *zk_ensemble_url(const struct zk_ensemble *ensemble) {
    return ensemble->url;
}

struct zk *zk_member(struct zk_ensemble *ensemble, int member) {
    return ensemble->members[member];
}

static void set_wires(struct zk_ensemble *ensemble, int member, bool cut) {
    for (int other = 0; other < ZK_MEMBERS; other++) {
        if (other == member)
            continue;
        proxy_blackhole(ensemble->wires[member][other], cut, cut);
        proxy_blackhole(ensemble->wires[other][member], cut, cut);
    }
}

void zk_cut(struct zk_ensemble *ensemble, int member) {
    set_wires(ensemble, member, true);
}

void zk_join(struct zk_ensemble *ensemble, int member) {
    set_wires(ensemble, member, false);
}
