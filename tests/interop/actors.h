/* Two actors, A and B, who act on one name; each is Java or C, with a client of its own. Both
 * understand the same commands, which are those of the Java program with the actor in place of
 * the handle:
 *
 *     struct actors *actors = actors_new("JC", "fair", NAME);      // A is Java, B is C
 *     assert_string_equal(act(actors, "lock A lease=20000"), "held");
 *     act(actors, "wait B");                                       // a lock() that does not return yet
 *     act(actors, "unlock A");
 *     assert_string_equal(act(actors, "woken B"), "held");
 *
 * Answers are the same no matter who acts: "held" and "busy" for what acquires, "ok" for what has no
 * answer, "true", "false", numbers; "not owner", "deadlock" (a lock its owner cannot have once
 * more), "refused" (a bad argument), and "lost", which only C says. A read/write lock's sides
 * are "A.read" and "A.write". Permits are written P1, P2, ... in the order in which they were
 * acquired. */
#ifndef HF_TEST_INTEROP_ACTORS_H
#define HF_TEST_INTEROP_ACTORS_H

#include "state.h"
#include "support/new_lock.h"

#include <holdfast/holdfast.h>

enum { ACTORS = 2, ACTORS_PERMITS = 16 };

struct actors;

/* `sides` is two letters, J or C, for A and B. The kind is Java's word, or "readwrite". */
struct actors *actors_new(const char *sides, const char *kind, const char *name);
void actors_free(struct actors *actors); /* closes C's clients; NULL is fine */

/* Does it, and returns the answer; valid until the next call. */
const char *act(struct actors *actors, const char *text);

/* What the actors' uuids and permits are written as. */
const struct alias *actors_aliases(const struct actors *actors, size_t *ret_count);

/* ---- For code that teaches C a kind ------------------------------------------------------------ */

struct command {
    char verb[24];
    char actor; /* 'A' or 'B' */
    char side[8];
    int64_t lease_ms; /* INT64_MIN: not given, as the others */
    int64_t wait_ms;
    int64_t permits; /* 1 if not given */
    int64_t count;
    int64_t ttl_ms;
    hf_permit_id ids[ACTORS_PERMITS]; /* P1 ... of the command, looked up */
    size_t ids_len;
};

#define NOT_GIVEN INT64_MIN

/* One object of an actor that is C: of the pointers, that of its kind is set. */
struct c_object {
    hf_client *client;
    const char *name;
    hf_lock *lock;
    struct hf_sem *sem;
    struct hf_permits *permits;
    struct hf_latch *latch;
    hf_op *waiting;                   /* a wait in the background */
    hf_permit_id ids[ACTORS_PERMITS]; /* what was acquired, for the caller to file */
    size_t ids_len;
};

/* Runs a command and writes its answer, unless the result is an error. */
typedef int c_verb(struct c_object *object, const struct command *command, char answer[64]);

struct c_kind {
    const char *name; /* Java's word */
    int (*open)(struct c_object *object, const struct c_kind *kind);
    void (*close)(struct c_object *object);
    const struct c_verb_entry {
        const char *name;
        c_verb *run;
    } * verbs; /* ends with a NULL name */
    any_kind lock_kind;
};

#define C_OWNER 7 /* the number that all holds of C's actors have */

const struct c_kind *c_kind_of_lock(const char *kind);  /* c_locks.c; NULL: none */
const struct c_kind *c_kind_of_other(const char *kind); /* c_others.c */

#endif
