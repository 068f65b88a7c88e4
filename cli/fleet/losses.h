/* How many holds were lost, of all clients and over time.
 *
 * A client counts its losses, and often ends with one: a sum over those that are there would fall
 * then, or never show it. So each client's last number is kept here, of its answers and of what it
 * has announced (hf_fleet.announced), and only the increase is added. Losses from before the first
 * survey do not count. */
#ifndef CLI_LOSSES_H
#define CLI_LOSSES_H

#include "cli.h"

struct losses;

struct losses *losses_new(void);         /* NULL: out of memory */
void losses_free(struct losses *losses); /* accepts NULL */

/* Called for each client that has lost more holds than we knew. */
typedef void (*losses_fn)(void *user, const hf_fleet_client *client, uint64_t more);

/* Adds a survey with HF_WANT_STATS, and HF_WANT_HISTOGRAMS or HF_WANT_LOSSES. `found` may be NULL. */
void losses_add(struct losses *losses, const hf_fleet *fleet, losses_fn found, void *user);
/* It never falls. */
uint64_t losses_total(const struct losses *losses);

#endif
