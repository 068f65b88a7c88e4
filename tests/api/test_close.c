/*
 * hf_close() at random times beside operations of every kind: each of them ends once, with a result
 * or with HF_ECLOSED, its callback has run when hf_close() returns, and every byte is given back.
 * On either engine.
 */
#include <holdfast/holdfast.h>

#include "support/case.h"
#include "support/either.h"
#include "support/memory.h"
#include "support/new_lock.h"
#include "support/random.h"

#include <stdatomic.h>

#define OPS 24
#define CLOSE_WITHIN_US 4000 /* an operation on an idle machine takes some 100 */

static struct server *server;
static hf_client
    *other; /* closes the latch, so that the client under test begins without a connection */
static hf_latch *others_latch;
static uint64_t seed;

static int start(void **state) {
    (void)state;
    server = server_start(NULL);
    seed = random_seed();
    return server != NULL && hf_open(server_url(server), NULL, &other) == HF_OK &&
                   hf_latch_new(other, "latch", &others_latch) == HF_OK
               ? 0
               : 1;
}

static int stop(void **state) {
    (void)state;
    hf_latch_free(others_latch);
    hf_close(other);
    server_free(server);
    return 0;
}

static unsigned next(unsigned below) {
    return (unsigned)(random_next(&seed) % below);
}

struct round {
    hf_client *client;
    struct memory memory;
    hf_lock *locks[4]; /* plain, fair, read and write */
    hf_sem *sem;
    hf_permits *permits;
    hf_latch *latch;
    hf_listener *listener;
    hf_permit_id ids[OPS];
    hf_lock_info *infos[OPS];
    hf_fleet *fleets[OPS];
    hf_op *ops[OPS];
    int started;
    atomic_int ended, closed;
};

static void on_end(hf_op *op, const hf_result *result, void *user) {
    struct round *round = user;
    (void)op;
    atomic_fetch_add(&round->ended, 1);
    atomic_fetch_add(&round->closed, result->code == HF_ECLOSED);
}

static void ignore(hf_listener *listener, const hf_notification *notification, void *user) {
    (void)listener, (void)notification, (void)user;
}

static void begin(struct round *round) {
    static const any_kind kinds[] = {HF_PLAIN, HF_FAIR, HF_READ, HF_WRITE};
    static const char *const names[] = {"plain", "fair", "both", "both"};
    hf_options options = HF_OPTIONS_INIT;
    memset(round, 0, sizeof *round);
    options.allocator = memory_allocator(&round->memory);
    options.report_after_ms = 1; /* so that clients answer surveys */
    assert_int_equal(hf_open(server_url(server), &options, &round->client), HF_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            new_lock(round->client, kinds[i], names[i], strlen(names[i]), &round->locks[i]), HF_OK);
    assert_int_equal(hf_sem_new(round->client, "sem", &round->sem), HF_OK);
    assert_int_equal(hf_permits_new(round->client, "permits", &round->permits), HF_OK);
    assert_int_equal(hf_latch_new(round->client, "latch", &round->latch), HF_OK);
    assert_int_equal(hf_listen(round->client, "plain", ignore, NULL, &round->listener), HF_OK);
}

/* Waits for ever, so that only the end of the client ends some of them. */
static int start_one(struct round *round, int i) {
    hf_lock *lock = round->locks[next(4)];
    hf_op **op = &round->ops[i];
    hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    hf_wait_options wait = HF_WAIT_OPTIONS_INIT;
    hf_permits_options permits = HF_PERMITS_OPTIONS_INIT;
    acquire.owner = 1 + next(3);
    acquire.wait_ms = wait.wait_ms = permits.wait_ms = next(3) == 0 ? 0 : HF_FOREVER;
    switch (next(12)) {
    case 0:
    case 1:
    case 2:
        return hf_lock_acquire_start(lock, &acquire, on_end, round, op);
    case 3:
        return hf_lock_release_start(lock, acquire.owner, on_end, round, op);
    case 4:
        return hf_lock_extend_start(lock, acquire.owner, 30000, on_end, round, op);
    case 5:
        return hf_lock_break_start(lock, on_end, round, op);
    case 6:
        return hf_lock_inspect_start(lock, &round->infos[i], on_end, round, op);
    case 7:
        return hf_sem_acquire_start(round->sem, 1, &wait, on_end, round, op);
    case 8:
        return hf_permits_acquire_start(round->permits, &permits, &round->ids[i], on_end, round,
                                        op);
    case 9:
        return hf_latch_await_start(round->latch, &wait, on_end, round, op);
    case 10:
        return hf_survey_start(round->client, NULL, &round->fleets[i], on_end, round, op);
    default:
        return hf_ping_start(round->client, on_end, round, op);
    }
}

static void end(struct round *round) {
    for (int i = 0; i < round->started; i++) {
        hf_op_free(round->ops[i]);
        hf_lock_info_free(round->infos[i]);
        hf_fleet_free(round->fleets[i]);
    }
    hf_listener_free(round->listener);
    for (int i = 0; i < 4; i++)
        hf_lock_free(round->locks[i]);
    hf_sem_free(round->sem);
    hf_permits_free(round->permits);
    hf_latch_free(round->latch);
    assert_int_equal(atomic_load(&round->memory.live), 0);
}

CASE(operations_end_with_their_client) {
    int rounds = getenv("HF_SOAK") != NULL ? 5000 : 200, closed = 0, others = 0;
    for (int k = 0; k < rounds; k++) {
        struct round round;
        server_empty(server);
        assert_int_equal(hf_latch_try_set(others_latch, 1, NULL), HF_OK);
        begin(&round);
        int wanted = 1 + (int)next(OPS);
        for (; round.started < wanted; round.started++)
            assert_int_equal(start_one(&round, round.started), HF_OK);
        usleep(next(CLOSE_WITHIN_US)); /* the close comes at any moment of theirs */
        assert_int_equal(hf_close(round.client), HF_OK);
        assert_int_equal(atomic_load(&round.ended), round.started);
        closed += atomic_load(&round.closed);
        others += round.started - atomic_load(&round.closed);
        end(&round);
    }
    assert_true(closed > 0 && others > 0);
}

RUN_CASES(start, stop)
