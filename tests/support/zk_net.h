/* ZooKeeper servers with a network each, so that packets between two of them can be lost: real ones, in one direction
 * or in both.
 *
 *     int main(void) {
 *         zk_need();
 *         zk_net_need(); // exits with 77 where there are no network namespaces
 *     ...
 *     zk_net_enter();  // in a process of its own: from now on it is in a network of its own, and sees the servers
 *     struct zk_net *net = zk_net_start(3, NULL);
 *
 * Include as "support/zk_net.h". A network is a namespace of the kernel; a bridge joins those of
 * the servers with that of the process, which goes away with it. It takes the tools of iproute2 and
 * util-linux, and the right to make namespaces: root's, or that of anybody where users may make
 * their own. */
#ifndef HF_TEST_ZK_NET_H
#define HF_TEST_ZK_NET_H

#include "support/zk.h"

struct zk_net;

void zk_net_need(void);
void zk_net_enter(void);

/* Returns when there is a leader, and all others follow it. */
struct zk_net *zk_net_start(int members, const struct zk_options *options);
void zk_net_free(struct zk_net *net);

struct zk *zk_net_member(struct zk_net *net, int member);

/* The member that leads now, or -1. One that is stopped is not asked. */
int zk_net_leader(struct zk_net *net);
/* Waits until all serve under one leader, and returns it. */
int zk_net_wait_whole(struct zk_net *net);

void zk_net_stop(struct zk_net *net, int member); /* as zk_freeze() */
void zk_net_go_on(struct zk_net *net, int member);

/* How many bytes a member has got from another that follows it, and not read; -1: it follows no more. */
int64_t zk_net_unread(struct zk_net *net, int leader, int follower);

/* What one member sends to another is lost from now on, or arrives again. */
void zk_net_lose(struct zk_net *net, int from, int to, bool lost);

#endif
