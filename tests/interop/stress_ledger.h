/* The ledger of a stress test, on the suite's server: who has worked how much, and what was wrong.
 * The workers of both sides keep it by stress_enter.lua and stress_leave.lua. */
#ifndef HF_TEST_INTEROP_STRESS_LEDGER_H
#define HF_TEST_INTEROP_STRESS_LEDGER_H

#include "stress_worker.h"

void stress_load_script(const char *path, char ret_sha1[41]);

long long stress_sections(void);                                /* done by all */
long long stress_number(const char *key, const char *name);     /* at both, joined; 0: none */
long long stress_counters(const struct stress_object *objects); /* what the objects guard */
bool stress_has_worked(const char *process);
void stress_assert_no_violation(void);

/* The longest of all waits; its words, "N ms at place by whom", go to `ret_words` unless that is
 * NULL. */
long long stress_longest_wait_ms(char ret_words[128]);

#endif
