/* What zk.c (one server), zk_ensemble.c (three) and zk_net.c share. Not for tests. */
#ifndef HF_TEST_ZK_INTERNAL_H
#define HF_TEST_ZK_INTERNAL_H

#include "support/zk.h"

#include <stdarg.h>

struct zk {
    char *dir, *config, *log, *url;
    int id;        /* in its ensemble, from 1 on */
    char host[32]; /* an address: 127.0.0.1, unless it has a network of its own */
    char *network; /* a file that names that, or NULL */
    int port;
    pid_t pid; /* 0: down */
    bool keeps_containers;
};

/* A server with a directory, and nothing more yet; then its port, and a configuration for it. */
struct zk *zk_new(int id);
void zk_take_port(struct zk *zk);
void zk_write_config(struct zk *zk, const struct zk_options *options, const char *members);

/* Whether it says to serve, and in that mode. */
bool zk_serves(const struct zk *zk);
bool zk_has_mode(const struct zk *zk, const char *mode);

void zk_die_with_log(const struct zk *zk, const char *what) __attribute__((noreturn));

/* A new string; the caller frees it. */

#endif
