/* The rows of the scripts of the read/write lock; see row.h. */
#ifndef HF_TEST_READWRITE_ROWS_H
#define HF_TEST_READWRITE_ROWS_H

#include "row.h"

#define RW_CHANNEL "redisson_rwlock:{thelock}"

/* The key of one level of a reader. */
#define HOLD(reader, level) "{thelock}:" reader ":rwlock_timeout:" #level

extern const struct row readwrite_rows[];
extern const size_t readwrite_row_count;

#endif
