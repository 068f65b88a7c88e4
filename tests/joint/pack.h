/* Three servers, each behind a proxy and with a client of its own, and one lock out of a lock on each:
 * what the tests of locks of several start from.
 *
 *     struct pack p;
 *     pack_begin(&p, NULL);
 *     pack_occupy(&p, 1);
 *     assert_int_equal(hf_lock_try(p.all), HF_EBUSY);
 *     pack_end(&p);
 *
 * Include as "joint/pack.h". The servers serve all tests of a program; each test finds them up, empty and
 * behind healthy proxies, and ends with nothing locked. Names are "a", "b", "c", one on each server. A
 * rival goes to the servers directly, so that the proxies' faults never touch it. */
#ifndef HF_TEST_JOINT_PACK_H
#define HF_TEST_JOINT_PACK_H

#include <holdfast/holdfast.h>

#include "joint/fleet.h"
#include "support/case.h"

#define PACK 3

struct pack {
    struct server *server[PACK];
    struct proxy *proxy[PACK];
    hf_client *client[PACK];
    hf_lock *lock[PACK];
    hf_lock *all;
    char owner[PACK][64]; /* this thread's field in each hash */
    hf_client *rival[PACK];
    hf_lock *rival_lock[PACK];
};

extern const char *const pack_names[PACK];

/* For cmocka's group functions. */
int pack_start_servers(void **state);
int pack_stop_servers(void **state);

/* 5 s for an exchange, a lease of 60 s. */
hf_options pack_options(void);
void pack_begin(struct pack *pack, const hf_options *given);
/* Nothing is locked any more, or it fails. */
void pack_end(struct pack *pack);
#define PACK_CASE(name) CASE_IN(name, struct pack, p, pack_begin, pack_end, NULL)
#define PACK_CASE_WITH(name, ...) CASE_WITH(name, struct pack, p, pack_begin, pack_end, __VA_ARGS__)
/* The same with leftovers that are not the test's subject. */
void pack_end_anyhow(struct pack *pack);

/* How many of the names anybody has; or this thread's owner. */
int pack_locked(struct pack *pack);
int pack_held(struct pack *pack);
bool pack_wait_free(struct pack *pack, int64_t limit_ms);
bool pack_wait_locked(struct pack *pack, int names, int64_t limit_ms);

/* The rival's, until it is vacated; another thread's owner. */
void pack_occupy(struct pack *pack, int i);
void pack_vacate(struct pack *pack, int i);

/* Makes one lock out of these of one client, of this kind. */
hf_lock *pack_all_of(hf_client *client, any_kind kind, const char *const *names, size_t len);

#endif
