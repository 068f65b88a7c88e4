/* Clients and handles in one line, which the end of a block frees; and a handle on a lock of any kind.
 *
 *     own_client *client = made(hf_open, server_url(server), NULL);
 *     own_lock *lock = made(hf_lock_new, client, "name");
 *
 * Variables are freed in their reverse order, unless an assertion failed: a server stands before its clients. */
#ifndef TEST_SUPPORT_NEW_LOCK_H
#define TEST_SUPPORT_NEW_LOCK_H

#include <holdfast/holdfast.h>

#include "support/assert_hf.h"
#include "support/wait.h"

/* A kind and its flags in one number, for the tables of tests: HF_FAIR | HF_NONREENTRANT. They have
 * no bit in common. */
typedef unsigned any_kind;

static inline int new_lock(hf_client *client, any_kind kind, const void *name, size_t name_len,
                           hf_lock **ret_lock) {
    const unsigned flags = HF_NONREENTRANT | HF_SPIN | HF_FENCED | HF_COHORT;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = (hf_kind)(kind & ~flags);
    options.flags = kind & flags;
    return hf_lock_new_with(client, name, name_len, &options, ret_lock);
}

/* What a function makes whose last argument is where it goes; the case fails unless it does. */
#define made(function, ...)                                                                        \
    __extension__({                                                                                \
        made_by_##function *made_ret = NULL;                                                       \
        assert_hf(HF_OK, function(__VA_ARGS__, &made_ret));                                        \
        made_ret;                                                                                  \
    })
#define made_by_hf_open hf_client
#define made_by_new_lock hf_lock
#define made_by_hf_lock_new hf_lock
#define made_by_hf_lock_new_bytes hf_lock
#define made_by_hf_lock_new_with hf_lock
#define made_by_hf_lock_new_named hf_lock
#define made_by_hf_lock_new_group hf_lock
#define made_by_hf_lock_new_multi hf_lock
#define made_by_hf_sem_new hf_sem
#define made_by_hf_sem_new_bytes hf_sem
#define made_by_hf_latch_new hf_latch
#define made_by_hf_latch_new_bytes hf_latch
#define made_by_hf_permits_new hf_permits
#define made_by_hf_permits_new_bytes hf_permits

#define own_client __attribute__((cleanup(own_client_close), unused)) hf_client
static inline void own_client_close(hf_client **client) {
    assert_hf(HF_OK, hf_close(*client));
}
#define own_lock __attribute__((cleanup(own_lock_free), unused)) hf_lock
static inline void own_lock_free(hf_lock **lock) {
    hf_lock_free(*lock);
}
#define own_sem __attribute__((cleanup(own_sem_free), unused)) hf_sem
static inline void own_sem_free(hf_sem **sem) {
    hf_sem_free(*sem);
}
#define own_latch __attribute__((cleanup(own_latch_free), unused)) hf_latch
static inline void own_latch_free(hf_latch **latch) {
    hf_latch_free(*latch);
}
#define own_permits __attribute__((cleanup(own_permits_free), unused)) hf_permits
static inline void own_permits_free(hf_permits **permits) {
    hf_permits_free(*permits);
}
#define own_op __attribute__((cleanup(own_op_free), unused)) hf_op
static inline void own_op_free(hf_op **op) {
    hf_op_free(*op);
}
/* Waits for an operation, which ends soon, and frees it. */
static inline int joined(hf_op *op, hf_result *ret) {
    int err = hf_op_wait(op, HANG_MS, ret);
    hf_op_free(op);
    return err;
}
#define own_cancel __attribute__((cleanup(own_cancel_free), unused)) hf_cancel
static inline void own_cancel_free(hf_cancel **cancel) {
    hf_cancel_free(*cancel);
}
#define own_listener __attribute__((cleanup(own_listener_free), unused)) hf_listener
static inline void own_listener_free(hf_listener **listener) {
    hf_listener_free(*listener);
}
#define own_fleet __attribute__((cleanup(own_fleet_free), unused)) hf_fleet
static inline void own_fleet_free(hf_fleet **fleet) {
    hf_fleet_free(*fleet);
}
#define own_info __attribute__((cleanup(own_info_free), unused)) hf_lock_info
static inline void own_info_free(hf_lock_info **info) {
    hf_lock_info_free(*info);
}

#endif
