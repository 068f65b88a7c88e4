/* An allocator for hf_options that counts live allocations, and fails where a test wants it to. */
#ifndef HF_TEST_MEMORY_H
#define HF_TEST_MEMORY_H

#include <holdfast/holdfast.h>

#include <stdatomic.h>

/* All zero: nothing fails. Calls are counted from 1; those that fail count, too. A test may change
 * what fails while its client runs. */
struct memory {
    atomic_long calls;
    atomic_long live;      /* blocks that were not given back */
    atomic_long bytes;     /* in them, as they were asked for */
    atomic_long fail_at;   /* this call fails, and no other; 0: none */
    atomic_long fail_from; /* this call and all after it fail; 0: none */
};

/* The memory must outlive the client. */
hf_allocator memory_allocator(struct memory *memory);

#endif
