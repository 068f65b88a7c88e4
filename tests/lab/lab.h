/* The lab: one run of a cell, judged. scripts/lab plays the matrix and keeps the results; README.md
 * says what is in it.
 *
 *     lab history TOPOLOGY FAULTS SEED SECONDS DIR     histories of all kinds of a topology, in DIR
 *     lab register SUBJECT TOPOLOGY FAULT SEED SECONDS [LIMIT]
 *         a register that holders read, and write later. With LIMIT it goes on until an update is
 *         lost, for so many seconds at most
 *     lab actor                                          the library under remote control, for the register
 *
 * The first two end with 0: nothing is wrong; 1: something is; 3: not decided; 77: this machine cannot. */
#ifndef HF_TEST_LAB_LAB_H
#define HF_TEST_LAB_LAB_H

int lab_actor(void);
int lab_register(const char *subject, const char *topology, const char *fault, unsigned seed,
                 int seconds, int limit);

#endif
