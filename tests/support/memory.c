/*
 * An allocator that counts what is alive and fails where a test wants it to; see memory.h.
 *
 * Given to a client by the tests of what happens without memory; the client's threads and the
 * test's call it at any time, so everything in it is atomic. A block that is resized stays one
 * block, and a resize that fails leaves it as it was.
 */
#include "support/memory.h"

#include <stdbool.h>
#include <stdlib.h>

static bool must_fail(struct memory *memory) {
    long call = atomic_fetch_add(&memory->calls, 1) + 1, from = atomic_load(&memory->fail_from);
    return call == atomic_load(&memory->fail_at) || (from > 0 && call >= from);
}

static void *allocate(size_t size, void *user) {
    struct memory *memory = user;
    if (must_fail(memory))
        return NULL;
    atomic_fetch_add(&memory->live, 1);
    return malloc(size);
}

static void *resize(void *ptr, size_t size, void *user) {
    struct memory *memory = user;
    if (must_fail(memory))
        return NULL;
    if (ptr == NULL)
        atomic_fetch_add(&memory->live, 1);
    return realloc(ptr, size);
}

static void release(void *ptr, void *user) {
    struct memory *memory = user;
    if (ptr != NULL)
        atomic_fetch_sub(&memory->live, 1);
    free(ptr);
}

hf_allocator memory_allocator(struct memory *memory) {
    return (hf_allocator){allocate, resize, release, memory};
}
