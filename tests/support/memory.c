/*
 * An allocator that counts what is alive and fails where a test wants it to; see memory.h.
 *
 * Given to a client by the tests of what happens without memory; the client's threads and the
 * test's call it at any time, so everything in it is atomic. A block that is resized stays one
 * block, and a resize that fails leaves it as it was. In front of each block is its size.
 */
#include "support/memory.h"

#include "support/wait.h"

static bool must_fail(struct memory *memory) {
    long call = atomic_fetch_add(&memory->calls, 1) + 1, from = atomic_load(&memory->fail_from);
    return call == atomic_load(&memory->fail_at) || (from > 0 && call >= from);
}

#define HEAD 16 /* keeps blocks aligned */

static size_t *head_of(void *ptr) {
    return (size_t *)(void *)((char *)ptr - HEAD);
}

static void *resize(void *ptr, size_t size, void *user) {
    struct memory *memory = user;
    size_t *head = ptr != NULL ? head_of(ptr) : NULL, before = head != NULL ? *head : 0;
    if (must_fail(memory))
        return NULL;
    size_t *moved = realloc(head, HEAD + size);
    if (moved == NULL)
        support_die("no memory for a test");
    *moved = size;
    if (ptr == NULL)
        atomic_fetch_add(&memory->live, 1);
    atomic_fetch_add(&memory->bytes, (long)size - (long)before);
    return (char *)moved + HEAD;
}

static void *allocate(size_t size, void *user) {
    return resize(NULL, size, user);
}

static void release(void *ptr, void *user) {
    struct memory *memory = user;
    if (ptr == NULL)
        return;
    atomic_fetch_sub(&memory->live, 1);
    atomic_fetch_sub(&memory->bytes, (long)*head_of(ptr));
    free(head_of(ptr));
}

hf_allocator memory_allocator(struct memory *memory) {
    return (hf_allocator){allocate, resize, release, memory};
}
