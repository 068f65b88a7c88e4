/* What every peer plays with us. */
#ifndef HF_TEST_PEERS_SCENES_H
#define HF_TEST_PEERS_SCENES_H

#include "peers.h"

struct peer_scene {
    const char *name;
    void (*play)(const struct peer *peer); /* NULL: all of the suite's */
    unsigned wanted, unwanted;             /* traits of those that play it */
    bool all_at_once;                      /* one case for all: what takes time, takes it once */
};
extern const struct peer_scene scenes[];
extern const size_t scenes_len;

#endif
