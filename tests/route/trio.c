#include "route/trio.h"

#include "support/wait.h"

#include <stdio.h>
#include <string.h>

#define REPLICAS 2

struct trio {
    struct server *primary, *replicas[REPLICAS];
    int frozen;
    char url[512];
    int blocked; /* for trio_wait_blocked */
};

static const char *const common[] = {"repl-diskless-sync yes", "repl-diskless-sync-delay 0",
                                     "repl-ping-replica-period 1", "repl-timeout 60"};
enum { COMMON = sizeof common / sizeof common[0] };

static struct server *start(const char *more) {
    const char *lines[COMMON + 2] = {0};
    memcpy(lines, common, sizeof common);
    lines[COMMON] = more;
    return server_start(&(struct server_options){.tcp = true, .config = lines});
}

/* Something is written first, for otherwise there is nothing to confirm. */
static bool both_confirm(void *arg) {
    struct trio *trio = arg;
    cmd_ok(trio->primary, "SET caught-up 1");
    return cmd_int(trio->primary, "WAIT %d 100", REPLICAS) == REPLICAS;
}

struct trio *trio_start(void) {
    struct trio *trio = calloc(1, sizeof *trio);
    char line[64];
    trio->primary = start(NULL);
    snprintf(line, sizeof line, "replicaof 127.0.0.1 %d", server_port(trio->primary));
    for (int i = 0; i < REPLICAS; i++)
        trio->replicas[i] = start(line);
    trio_heal(trio);
    return trio;
}

void trio_free(struct trio *trio) {
    for (int i = 0; i < REPLICAS; i++)
        server_free(trio->replicas[i]);
    server_free(trio->primary);
    free(trio);
}

struct server *trio_primary(struct trio *trio) {
    return trio->primary;
}

struct server *trio_replica(struct trio *trio, int i) {
    return trio->replicas[i];
}

const char *trio_url(struct trio *trio, const char *options) {
    snprintf(trio->url, sizeof trio->url, "%s?%s", server_tcp_url(trio->primary), options);
    return trio->url;
}

void trio_freeze(struct trio *trio, int replicas) {
    for (; trio->frozen < replicas; trio->frozen++)
        server_freeze(trio->replicas[trio->frozen]);
}

static void follow(struct server *server, struct server *primary) {
    cmd_ok(server, "REPLICAOF 127.0.0.1 %d", server_port(primary));
}

void trio_take_over(struct trio *trio) {
    cmd_ok(trio->replicas[0], "REPLICAOF NO ONE");
    follow(trio->replicas[1], trio->replicas[0]);
}

void trio_thaw(struct trio *trio) {
    while (trio->frozen > 0)
        server_unfreeze(trio->replicas[--trio->frozen]);
}

void trio_heal(struct trio *trio) {
    trio_thaw(trio);
    cmd_ok(trio->primary, "REPLICAOF NO ONE");
    for (int i = 0; i < REPLICAS; i++)
        follow(trio->replicas[i], trio->primary);
    if (!wait_until(both_confirm, trio, HANG_MS))
        support_die("the replicas do not catch up");
    cmd_ok(trio->primary, "DEL caught-up");
}

static bool is_blocked(void *arg) {
    struct trio *trio = arg;
    own_text *info = cmd_str(trio->primary, "INFO clients");
    const char *line = strstr(info, "blocked_clients:");
    int now = line != NULL ? atoi(line + strlen("blocked_clients:")) : -1;
    return now == trio->blocked;
}

bool trio_wait_blocked(struct trio *trio, int clients) {
    trio->blocked = clients;
    return wait_until(is_blocked, trio, HANG_MS);
}

void trio_kill_blocked(struct trio *trio) {
    char *list = cmd_str(trio->primary, "CLIENT LIST"), *rest = NULL;
    const char *line = strtok_r(list, "\n", &rest);
    while (line != NULL && strstr(line, " cmd=wait ") == NULL)
        line = strtok_r(NULL, "\n", &rest);
    if (line == NULL)
        support_die("nobody is in a WAIT");
    cmd_ok(trio->primary, "CLIENT KILL ID %d", atoi(line + strlen("id=")));
    free(list);
}
