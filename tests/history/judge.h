/* The checker: a Go program of this folder, built at the first run. */
#ifndef HF_TEST_HISTORY_JUDGE_H
#define HF_TEST_HISTORY_JUDGE_H

/* Builds the checker, or the Java program of tests/interop. Exit status of build.sh: 0, 77 for a
 * machine that cannot, 1. */
int judge_build(const char *script, const char *dir);

/* Runs a program of the checker's directory with up to two arguments, which may be NULL; its output
 * is the test's. Returns its exit status, or 128 + a signal. Memory and time are bounded. */
int judge(const char *program, const char *first, const char *second);

#endif
