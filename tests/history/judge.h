/* The checker: a Go program of this folder, built at the first run. */
#ifndef HF_TEST_HISTORY_JUDGE_H
#define HF_TEST_HISTORY_JUDGE_H

#include <stddef.h>

/* Builds the checker. Exit status of build.sh: 0, 77 for a
 * machine that cannot, 1. */
int judge_build(const char *script, const char *dir);

/* Runs a program of the checker's directory with an option, or NULL, and the directories of some runs;
 * its output is the test's. Returns its exit status, or 128 + a signal. Memory and time are bounded. */
#define JUDGE_DIRS_MAX 20
int judge(const char *program, const char *option, const char *const *dirs, size_t dirs_len);

#endif
