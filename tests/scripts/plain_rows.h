/* The rows of the plain lock's scripts; see row.h. */
#ifndef HF_TEST_PLAIN_ROWS_H
#define HF_TEST_PLAIN_ROWS_H

#include "row.h"

extern const struct row plain_rows[];
extern const size_t plain_row_count;

#endif
