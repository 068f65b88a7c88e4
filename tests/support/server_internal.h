/* What server.c (life), server_commands.c (helpers) and monitor.c share. Not for tests. */
#ifndef HF_TEST_SERVER_INTERNAL_H
#define HF_TEST_SERVER_INTERNAL_H

#include "support/server.h"
#include "support/sync.h"
#include "support/zk.h"

/* The name under which our own connections are known to the server. */
#define SUPPORT_CLIENT_NAME "hf-test-support"

struct server {
    char *dir, *config_path, *log_path, *socket, *password;
    char *url, *tcp_url;
    int port;
    bool tls;               /* at the port */
    bool keeps_data;        /* over a restart */
    struct zk *zk;          /* HF_TEST_ENGINE=zk: what the url leads to instead; else NULL */
    struct zk_client *eyes; /* on its tree; NULL: none yet. Guarded by `helper` */
    pid_t pid;              /* 0: down. Only its owner's threads look at it, one at a time */
    pid_t owner;            /* the process that may stop and start it */

    struct sync helper; /* guards the helpers' connection, and what follows */
    pid_t helper_pid;   /* the process that `connection` belongs to; changes only after a fork */
    redisContext *connection;  /* NULL: none yet */
    long long helper_commands; /* sent by us since the server started */
};

/* redis-server, or what the environment says instead; and a port that it may listen on. */
const char *server_program(void);
int server_pick_port(void); /* one that nobody listens on, and no other test will */
/* It is version 7 or later, and so has settings that older ones do not know. */
bool server_is_7(void);
/* It is version 7.2 or later, and so says of each server of a cluster which shard it is of. */
bool server_has_shard_ids(void);

/* Forgets the helpers' connection, since the server was or will be stopped. */
void server_forget_connection(struct server *server);

/* Counts commands of ours that did not go through cmd(). */
void server_count_own(struct server *server, int commands);

#endif
