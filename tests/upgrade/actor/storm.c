/*
 * The actor in a storm: two threads that acquire every kind in every way, until the books say that it
 * is over, and write into them while they are inside.
 *
 * All processes share the books (books.h). Each worker has an owner number and cells of its own. It
 * alone writes those cells; the driver clears them when the process is dead.
 */
#include "actor.h"
#include "upgrade/books.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct books *books;
static int member;

struct worker {
    hf_client *client;
    int number;
    unsigned seed;
    int64_t longest_ms;
    int err; /* the first that should not be */
    char words[320];
};

struct visit {
    int place;
    int weight;
    void *object;
    hf_permit_id id;
};

bool actor_books(const char *path, int given_number) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || given_number < 0 || given_number >= BOOKS_MEMBERS)
        return false;
    books = mmap(NULL, sizeof *books, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    member = given_number;
    return books != MAP_FAILED;
}

static int64_t clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int roll(struct worker *worker, int sides) {
    return rand_r(&worker->seed) % sides;
}

static hf_owner owner_of(const struct worker *worker) {
    return 1000 + (hf_owner)worker->number;
}

/* ---- Going in and out ------------------------------------------------------------------------ */

static int enter(struct worker *worker, struct visit *visit) {
    const struct books_place *place = &books_places[visit->place];
    const int64_t waits[] = {0, roll(worker, 300), HF_FOREVER, HF_FOREVER};
    int64_t wait_ms = waits[roll(worker, 4)];
    const char *kind = place->kind;
    visit->weight = 1;
    if (strcmp(kind, "readwrite") == 0) {
        bool write = roll(worker, 2) == 0;
        visit->weight = write ? BOOKS_WRITER : 1;
        kind = write ? "write" : "read";
    }
    int err = actor_object(worker->client, kind, place->name, &visit->object);
    if (err != HF_OK)
        return err;
    if (strcmp(kind, "permits") == 0) {
        hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
        options.wait_ms = wait_ms;
        return hf_permits_acquire_with(visit->object, &options, &visit->id);
    }
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = owner_of(worker);
    options.wait_ms = wait_ms;
    return hf_lock_acquire_with(visit->object, &options, NULL);
}

static int leave(const struct worker *worker, const struct visit *visit) {
    if (strcmp(books_places[visit->place].kind, "permits") == 0)
        return hf_permits_release(visit->object, &visit->id);
    return hf_lock_release_as(visit->object, owner_of(worker));
}

static void be_inside(struct worker *worker, const struct visit *visit) {
    atomic_int *cells = books->inside[visit->place];
    int all = 0;
    atomic_store(&cells[worker->number], visit->weight);
    for (int i = 0; i < BOOKS_MEMBERS * BOOKS_WORKERS; i++)
        all += atomic_load(&cells[i]);
    if (all > books_places[visit->place].capacity)
        atomic_fetch_add(&books->violations, 1);
    usleep((useconds_t)roll(worker, 3000)); /* its work, in which it must be alone */
    atomic_store(&cells[worker->number], 0);
}

static void *work(void *arg) {
    struct worker *worker = arg;
    while (atomic_load(&books->over) == 0 && worker->err == HF_OK) {
        struct visit visit = {.place = roll(worker, BOOKS_PLACES)};
        int64_t start_ms = clock_ms();
        int err = enter(worker, &visit);
        if (clock_ms() - start_ms > worker->longest_ms)
            worker->longest_ms = clock_ms() - start_ms;
        if (err == HF_EBUSY || err == HF_ETIMEDOUT)
            continue;
        if (err == HF_OK) {
            be_inside(worker, &visit);
            atomic_fetch_add(&books->sections[member], 1);
            err = leave(worker, &visit);
        }
        if (err != HF_OK) {
            worker->err = err;
            snprintf(worker->words, sizeof worker->words, "%s: %s", books_places[visit.place].name,
                     hf_last_error()->text);
        }
    }
    return NULL;
}

/* Answers "longest=MS", or the first error that a storm has no right to cause. */
int actor_storm(const struct request *request, char *answer) {
    struct worker workers[BOOKS_WORKERS];
    pthread_t threads[BOOKS_WORKERS];
    int64_t longest_ms = 0;
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < BOOKS_WORKERS; i++) {
        workers[i].client = request->client;
        workers[i].number = member * BOOKS_WORKERS + i;
        workers[i].seed = (unsigned)request->count + (unsigned)workers[i].number;
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            abort();
    }
    for (int i = 0; i < BOOKS_WORKERS; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].longest_ms > longest_ms)
            longest_ms = workers[i].longest_ms;
        if (workers[i].err != HF_OK)
            snprintf(answer, ANSWER_SIZE, "%s %s", hf_error_name(workers[i].err), workers[i].words);
    }
    if (answer[0] == '\0')
        snprintf(answer, ANSWER_SIZE, "longest=%lld", (long long)longest_ms);
    return HF_OK;
}
