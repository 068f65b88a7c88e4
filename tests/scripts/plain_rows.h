/* The rows of the scripts of the plain lock and of its kin; see row.h. */
#ifndef HF_TEST_PLAIN_ROWS_H
#define HF_TEST_PLAIN_ROWS_H

#include "row.h"

extern const struct row plain_rows[];
extern const size_t plain_row_count;
extern const struct row fenced_rows[];
extern const size_t fenced_row_count;

#endif
