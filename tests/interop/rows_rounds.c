/*
 * Mixed rounds of a latch: everybody counts down and waits for the others, again and again. There is no
 * kill here, so only messages move things on, and a wake-up that got lost would show as a wait until a
 * waiter's own poll. HF_SOAK makes it last minutes.
 */
#include "interop.h"
#include "stress_ledger.h"
#include "stress_rounds.h"

#include <string.h>

#define OWN_POLL_MS 10000

static bool soaking(void) {
    return getenv("HF_SOAK") != NULL;
}

/* Two Java clients and two C processes, two workers each, in step. Java's clients live in the suite's
 * JVM. */
void latch_mixed_rounds(void **state) {
    (void)state;
    enum { PROCESSES = 2 };
    struct rounds rounds = {
        .url = server_url(suite.server),
        .socket = server_socket(suite.server),
        .workers = STRESS_WORKERS,
        .parties = 2 * PROCESSES * STRESS_WORKERS,
        .rounds = soaking() ? 10000 : 300,
    };
    static const char *const names[PROCESSES] = {"c-walker-0", "c-walker-1"};
    pid_t pids[PROCESSES];
    int commands[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        rounds.process = names[i];
        pids[i] = run_child(rounds_worker, &rounds);
        commands[i] = java_send(
            suite.java, "rounds j%d process=j-walker-%d workers=%d parties=%d rounds=%d thread=%d",
            i + 1, i, rounds.workers, rounds.parties, rounds.rounds, java_thread());
    }
    bool well = true;
    for (int i = 0; i < PROCESSES; i++) {
        well = expect_exit(pids[i], 0, soaking() ? 10 * JAVA_LIMIT_MS : 2 * JAVA_LIMIT_MS) && well;
        const char *answer = java_answer(suite.java, commands[i]);
        well = strcmp(answer, "ok early=0") == 0 && well;
        if (strcmp(answer, "ok early=0") != 0)
            print_error("Java: %s\n", answer);
    }
    print_message("latch: %d rounds of %d, longest wait %lld ms\n", rounds.rounds, rounds.parties,
                  stress_longest_wait_ms(NULL));
    assert_true(well);
    assert_true(stress_longest_wait_ms(NULL) < OWN_POLL_MS);
    assert_false(key_exists(suite.server, "rounds-0"));
    assert_false(key_exists(suite.server, "rounds-1"));
}
