/* Asserts a result code of the library and prints the library's own words when it is another.
 *
 * Include as "support/assert_hf.h". */
#ifndef HF_TEST_ASSERT_HF_H
#define HF_TEST_ASSERT_HF_H

#define assert_hf(expected, actual) assert_hf_at((expected), (actual), __FILE__, __LINE__)
void assert_hf_at(int expected, int actual, const char *file, int line);

#endif
