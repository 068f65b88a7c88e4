/* A sentinel that says what a test wants: for what real ones say only by misfortune.
 *
 *     struct scripted *s = scripted_start();
 *     scripted_name(s, "127.0.0.1", server_port(server), 5);
 *     snprintf(url, sizeof url, "redis-sentinel://127.0.0.1:%d/" SCRIPTED_NAME, scripted_port(s));
 *
 * Include as "route/scripted.h". Any thread may call anything but scripted_free. */
#ifndef HF_TEST_ROUTE_SCRIPTED_H
#define HF_TEST_ROUTE_SCRIPTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCRIPTED_NAME "guards"
#define LOCALHOST "127.0.0.1"

/* Two servers with a port, for it to name; and cmocka's group functions that start and end them. */
extern struct server *scripted_servers[2];
int scripted_start_servers(void **state);
int scripted_stop_servers(void **state);

struct scripted;

struct scripted *scripted_start(void);
void scripted_free(struct scripted *scripted); /* NULL is fine */
int scripted_port(const struct scripted *scripted);
const char *scripted_socket(const struct scripted *scripted); /* for what stands in front of it */

/* From now on it names this address, of this epoch; -1: it does not tell one. Without a host it knows no such
 * name. */
void scripted_name(struct scripted *scripted, const char *host, int port, int epoch);

/* How often it was asked for the address. */
size_t scripted_asked(struct scripted *scripted);
bool scripted_wait_asked(struct scripted *scripted, size_t at_least, int64_t limit_ms);

/* It cannot be reached any more, or again. */
void scripted_hide(struct scripted *scripted, bool hidden);

#endif
