/* What the two files of the actor share. */
#ifndef HF_TEST_UPGRADE_ACTOR_H
#define HF_TEST_UPGRADE_ACTOR_H

#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Older versions have other names. */
#ifndef HF_ACQUIRE_OPTIONS_INIT
#define HF_ACQUIRE_OPTIONS_INIT HF_ACQUIRE_INIT
#define HF_LOCK_OPTIONS_INIT HF_LOCK_INIT
#define HF_PERMITS_OPTIONS_INIT HF_PERMITS_INIT
#endif

enum { ANSWER_SIZE = 512, IDS = 8 };

struct request {
    hf_client *client;
    int id;
    char verb[16], kind[24], name[64];
    int64_t owner, wait_ms, lease_ms, count;
    hf_permit_id ids[IDS];
    size_t ids_len;
};

/* The process's one object of that kind and name. */
int actor_object(hf_client *client, const char *kind, const char *name, void **ret);

/* storm.c */
bool actor_books(const char *path, int number);
int actor_storm(const struct request *request, char *answer);

#endif
