/*
 * The read/write lock in both directions: InterProcessReadWriteLock and ours. Readers stand behind a writer that waits.
 */
#include "suite.h"

struct both {
    hf_client *client;
    hf_lock *read, *write;
};

static struct both open_both(const char *name) {
    struct both both = {.client = c_client(SESSION_MS)};
    both.read = c_lock(both.client, HF_READ, name);
    both.write = c_lock(both.client, HF_WRITE, name);
    assert_java("ok", "readwrite j1 /%s %s-r %s-w", name, name, name);
    return both;
}

static void close_both(struct both *both) {
    hf_lock_free(both->read);
    hf_lock_free(both->write);
    hf_close(both->client);
}

void rw_readers_of_both_sides_share(void **state) {
    (void)state;
    int thread = java_thread();
    struct both both = open_both("rw1");
    assert_java("ok true", "lock rw1-r thread=%d", thread);
    assert_hf(HF_EBUSY, hf_lock_try(both.write));
    assert_hf(HF_OK, hf_lock_acquire(both.read));
    assert_java("ok", "unlock rw1-r thread=%d", thread);
    assert_java("ok false", "lock rw1-w wait=1 thread=%d", thread);
    assert_hf(HF_OK, hf_lock_release(both.read));
    assert_java("ok true", "lock rw1-w thread=%d", thread);
    assert_hf(HF_EBUSY, hf_lock_try(both.read));
    assert_java("ok", "unlock rw1-w thread=%d", thread);
    assert_hf(HF_OK, hf_lock_try(both.write));
    assert_java("ok false", "lock rw1-r wait=1 thread=%d", thread);
    assert_hf(HF_OK, hf_lock_release(both.write));
    close_both(&both);
}

/* Java reads, C wants to write, Java wants to read: in that order. */
void rw_readers_queue_behind_a_writer(void **state) {
    (void)state;
    int thread = java_thread(), late = java_thread();
    struct both both = open_both("rw2");
    assert_java("ok", "readwrite j2 /rw2 rw2-r2 rw2-w2");
    assert_java("ok true", "lock rw2-r thread=%d", thread);
    hf_op *writer = c_acquire_start(both.write);
    assert_nodes("/rw2", 2);
    int reader = java_send(suite.java, "lock rw2-r2 thread=%d", late);
    assert_nodes("/rw2", 3);
    assert_false(java_answered(suite.java, reader));
    assert_java("ok", "unlock rw2-r thread=%d", thread);
    hf_owner owner = c_acquired(writer);
    assert_false(java_answered(suite.java, reader));
    assert_hf(HF_OK, hf_lock_release_as(both.write, owner));
    assert_java_ends("ok true", reader);

    /* And the other way round: C wants to read behind Java's writer. */
    int java_writer = java_send(suite.java, "lock rw2-w thread=%d", thread);
    assert_nodes("/rw2", 2);
    hf_op *behind = c_acquire_start(both.read);
    assert_nodes("/rw2", 3);
    assert_hf(HF_EPENDING, hf_op_wait(behind, 0, NULL));
    assert_java("ok", "unlock rw2-r2 thread=%d", late);
    assert_java_ends("ok true", java_writer);
    assert_hf(HF_EPENDING, hf_op_wait(behind, 0, NULL));
    assert_java("ok", "unlock rw2-w thread=%d", thread);
    assert_hf(HF_OK, hf_lock_release_as(both.read, c_acquired(behind)));
    close_both(&both);
}

/* The writer reads, and gives back the write side: readers come in, the next writer does not. */
void rw_downgrade_by_java(void **state) {
    (void)state;
    int thread = java_thread();
    struct both both = open_both("rw3");
    assert_java("ok true", "lock rw3-w thread=%d", thread);
    assert_java("ok true", "lock rw3-r thread=%d", thread);
    hf_op *reader = c_acquire_start(both.read);
    assert_nodes("/rw3", 3);
    hf_op *writer = c_acquire_start(both.write);
    assert_nodes("/rw3", 4);
    assert_java("ok", "unlock rw3-w thread=%d", thread);
    hf_owner reads = c_acquired(reader);
    assert_hf(HF_EPENDING, hf_op_wait(writer, 0, NULL));
    assert_hf(HF_OK, hf_lock_release_as(both.read, reads));
    assert_hf(HF_EPENDING, hf_op_wait(writer, 0, NULL));
    assert_java("ok", "unlock rw3-r thread=%d", thread);
    assert_hf(HF_OK, hf_lock_release_as(both.write, c_acquired(writer)));
    close_both(&both);
}

void rw_downgrade_by_c(void **state) {
    (void)state;
    int reads = java_thread(), writes = java_thread();
    struct both both = open_both("rw4");
    assert_hf(HF_OK, hf_lock_acquire(both.write));
    assert_hf(HF_OK, hf_lock_acquire(both.read));
    int reader = java_send(suite.java, "lock rw4-r thread=%d", reads);
    assert_nodes("/rw4", 3);
    int writer = java_send(suite.java, "lock rw4-w thread=%d", writes);
    assert_nodes("/rw4", 4);
    assert_hf(HF_OK, hf_lock_release(both.write));
    assert_java_ends("ok true", reader);
    assert_false(java_answered(suite.java, writer));
    assert_java("ok", "unlock rw4-r thread=%d", reads);
    assert_nodes("/rw4", 2);
    assert_false(java_answered(suite.java, writer));
    assert_hf(HF_OK, hf_lock_release(both.read));
    assert_java_ends("ok true", writer);
    assert_java("ok", "unlock rw4-w thread=%d", writes);
    close_both(&both);
}
