/* A ZooKeeper client by hand, to look at a server's tree past everything that is tested, and to change it.
 *
 *     struct zk_client *eyes = zk_client_open(zk_port(zk));
 *     assert_true(zk_wait_children(eyes, "/nightly", 2, 10000));
 *
 * Include as "support/zk_client.h". One thread at a time; connects anew when its connection or session has ended.
 * Everything it reads is preceded by a `sync`, so a follower that lags shows nothing old. */
#ifndef HF_TEST_ZK_CLIENT_H
#define HF_TEST_ZK_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zk_client;

enum { ZK_NO_NODE = -101, ZK_NODE_EXISTS = -110, ZK_UNREACHABLE = -1000 };

struct zk_client *zk_client_open(int port);
void zk_client_close(struct zk_client *client); /* NULL is fine */

/* Each returns 0 or the server's error; ZK_UNREACHABLE when it has said nothing. */
int zk_make(struct zk_client *client, const char *path, const void *data, size_t length);
/* The same, of this client's session. */
int zk_make_ephemeral(struct zk_client *client, const char *path, const void *data, size_t length);
int zk_put(struct zk_client *client, const char *path, const void *data, size_t length);
int zk_delete(struct zk_client *client, const char *path);
/* From then on nobody may read the node, or check it. */
int zk_forbid(struct zk_client *client, const char *path);
/* The same, but anybody has these rights. */
enum { ZK_MAY_READ = 1, ZK_MAY_WRITE = 2, ZK_MAY_CREATE = 4, ZK_MAY_DELETE = 8 };
int zk_permit(struct zk_client *client, const char *path, int rights);
int zk_exists(struct zk_client *client, const char *path);

/* The session that a node belongs to; 0 if none, -1 if there is no such node. */
int64_t zk_owner(struct zk_client *client, const char *path);

/* Closes a session that is somebody else's, who hears of it as of any other end; unless he comes
 * back to the server first: then it is to be done again. */
void zk_close_session(int port, int64_t session);

/* The data, with a NUL behind it; the caller frees it. NULL if there is no such node. */
char *zk_data(struct zk_client *client, const char *path, size_t *ret_length);

/* The children by the number at the end of their names. NULL if there is no such node. */
struct zk_children {
    size_t count;
    char *names[];
};
struct zk_children *zk_children(struct zk_client *client, const char *path);
void zk_children_free(struct zk_children *children);

/* How many there are, -1 if there is no such node; whether there come to be exactly so many, of
 * which a node that is not there has none. */
int zk_count(struct zk_client *client, const char *path);
bool zk_wait_children(struct zk_client *client, const char *path, int count, int64_t limit_ms);

#endif
