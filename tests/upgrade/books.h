/* The books of a storm: memory that the driver and all its actors share, through a file.
 *
 * A worker inside a place has its weight in its own cell there. The cells of a place together exceed
 * the place's capacity only if two are inside that exclude each other. A worker that enters writes
 * its cell first and then adds up all of them, so of two such at least one finds out. A killed worker
 * leaves its weight behind: the driver clears that long before the lease ends. */
#ifndef HF_TEST_UPGRADE_BOOKS_H
#define HF_TEST_UPGRADE_BOOKS_H

#include <stdatomic.h>
#include <stdint.h>

enum { BOOKS_PLACES = 4, BOOKS_MEMBERS = 16, BOOKS_WORKERS = 2, BOOKS_WRITER = 1000 };

struct books {
    atomic_int over; /* the driver ends it */
    atomic_int violations;
    atomic_int sections[BOOKS_MEMBERS];
    atomic_int inside[BOOKS_PLACES][BOOKS_MEMBERS * BOOKS_WORKERS];
};

/* The places of a storm, each with a name of its own; "readwrite" is entered as "read" or "write". */
static const struct books_place {
    const char *kind, *name;
    int capacity;
} books_places[BOOKS_PLACES] = {{"plain", "storm-plain", 1},
                                {"fair", "storm-fair", 1},
                                {"readwrite", "storm-readwrite", BOOKS_WRITER},
                                {"permits", "storm-permits", 3}};

#endif
