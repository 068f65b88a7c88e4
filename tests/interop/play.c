/*
 * Plays scenarios and compares what they leave (see play.h). Runs on the test's one thread.
 *
 * The key's end is compared with the table, all others with Java's: each may have come nearer by as
 * much time as has passed since the scenario began, and no more. The one difference that needs no step:
 * Java leaves a latch key for a moment after each unlock; a dump of Java's state waits until it is gone,
 * a dump of ours must never show one.
 */
#include "play.h"

#include "actors.h"
#include "interop.h"
#include "state.h"

#include <stdio.h>
#include <string.h>

/* So much of a lease that was renewed may be over. */
#define SLACK_MS 8000

/* The server's clock is another than the one by which a scenario's time is taken. */
#define CLOCKS_MS 100

/* How long what is undone after an answer may take. */
#define SETTLED_MS 5000

/* What one step left behind. */
struct outcome {
    char answer[64];
    char *state, *messages, *ends;
    long long ttl_ms;
    int64_t elapsed_ms; /* of the scenario, when all that was read */
};

struct run {
    const struct play_kind *kind;
    const char *sides;
    struct messages *messages;
    int64_t begin_ms;
    struct outcome outcomes[PLAY_STEPS];
};

/* ---- What the server does -------------------------------------------------------------------- */

static bool key_is_gone(void *arg) {
    (void)arg;
    return !key_exists(suite.server, PLAY_NAME);
}

static bool key_is_renewed(void *arg) {
    (void)arg;
    return pttl(suite.server, PLAY_NAME) > PLAY_WATCHDOG_MS - SLACK_MS;
}

static bool no_latch_key(void *arg) {
    (void)arg;
    own_reply *keys = cmd(suite.server, "KEYS redisson_unlock_latch*");
    return keys->elements == 0;
}

static void server_step(const char *command) {
    if (strcmp(command, "!delete") == 0)
        cmd_ok(suite.server, "DEL " PLAY_NAME);
    else if (strcmp(command, "!expires") == 0)
        assert_true(wait_until(key_is_gone, NULL, JAVA_LIMIT_MS));
    else
        assert_true(wait_until(key_is_renewed, NULL, JAVA_LIMIT_MS));
}

/* ---- Playing --------------------------------------------------------------------------------- */

/* That a latch was open: ours alone, and it ends. */
#define PROOF "{" PLAY_NAME "}:holdfast_latch "
/* That an acquire of a semaphore has run: the same. */
#define IDEMPOTENCY_KEYS "{" PLAY_NAME "}:holdfast_took:"
/* The message that a holder gets of a break, on a channel that no Java client knows. */
#define ASK_BROKEN "holdfast_ask broken 1 "
/* That a client of ours has lost a lock, for surveys: the same. */
#define TELL_LOST "holdfast_tell:losses:"

/* Takes lines that begin with `prefix` out of the text. */
static void drop_lines(char *text, const char *prefix) {
    for (char *line = text; *line != '\0';) {
        char *end = strchr(line, '\n') + 1;
        if (strncmp(line, prefix, strlen(prefix)) == 0)
            memmove(line, end, strlen(end) + 1);
        else
            line = end;
    }
}

/* A grant says its time where Redisson says 0. */
static void payloads_to_zero(char *text) {
    for (char *line = text; *line != '\0';) {
        char *end = strchr(line, '\n');
        char *payload = end;
        while (payload[-1] != ' ')
            payload--;
        if (end - payload >= 13) {
            *payload = '0';
            memmove(payload + 1, end, strlen(end) + 1);
            end = payload + 1;
        }
        line = end + 1;
    }
}

static char *dump(const struct run *run, const struct actors *actors) {
    size_t count;
    const struct alias *aliases = actors_aliases(actors, &count);
    char *state = state_dump(suite.server, aliases, count);
    if (run->kind->fair)
        drop_lines(state, "holdfast_fair:");
    drop_lines(state, PROOF);
    drop_lines(state, IDEMPOTENCY_KEYS);
    return state;
}

struct expected {
    const struct run *run;
    const struct actors *actors;
    const char *state;
};

static bool is_as_expected(void *arg) {
    struct expected *expected = arg;
    own_text *state = dump(expected->run, expected->actors);
    return strcmp(state, expected->state) == 0;
}

/* `state` is what should be there, or NULL when this run is the measure. What C gives up it
 * undoes after its answer, in a moment, so that one is waited for. */
static void look(struct run *run, const struct actors *actors, const char *state,
                 struct outcome *outcome) {
    size_t count;
    const struct alias *aliases = actors_aliases(actors, &count);
    struct expected expected = {run, actors, state};
    if (strchr(run->sides, 'J') != NULL)
        assert_true(wait_until(no_latch_key, NULL, JAVA_LIMIT_MS));
    if (state != NULL)
        wait_until(is_as_expected, &expected, SETTLED_MS);
    outcome->ttl_ms = pttl(suite.server, PLAY_NAME);
    outcome->state = dump(run, actors);
    outcome->ends = state_ends(suite.server, aliases, count);
    drop_lines(outcome->ends, PROOF);
    drop_lines(outcome->ends, IDEMPOTENCY_KEYS);
    outcome->elapsed_ms = now_ms() - run->begin_ms;
    outcome->messages = messages_take(run->messages, aliases, count);
    drop_lines(outcome->messages, ASK_BROKEN);
    drop_lines(outcome->messages, TELL_LOST);
    if (run->kind->fair)
        payloads_to_zero(outcome->messages);
}

/* `measure` is the run to be compared with, or NULL. Ends early when Java's version lacks something. */
static void run_scenario(struct run *run, const struct scenario *scenario,
                         const struct run *measure) {
    cmd_ok(suite.server, "FLUSHALL");
    run->begin_ms = now_ms();
    if (run->kind->seed_key != NULL)
        cmd_ok(suite.server, "SET %s %s", run->kind->seed_key, run->kind->seed_value);
    free(messages_take(run->messages, NULL, 0));
    struct actors *actors = actors_new(run->sides, run->kind->name, PLAY_NAME);
    for (size_t i = 0; i < PLAY_STEPS && scenario->steps[i].command != NULL; i++) {
        const struct step *step = &scenario->steps[i];
        struct outcome *outcome = &run->outcomes[i];
        if (step->command[0] == '!')
            server_step(step->command);
        snprintf(outcome->answer, sizeof outcome->answer, "%s",
                 step->command[0] == '!' ? "ok" : act(actors, step->command));
        if (java_lacks(outcome->answer))
            break;
        if (!step->unsettled)
            look(run, actors,
                 measure == NULL         ? NULL
                 : step->c_state != NULL ? step->c_state
                                         : measure->outcomes[i].state,
                 outcome);
    }
    actors_free(actors);
}

static void free_outcomes(struct run *run) {
    for (size_t i = 0; i < PLAY_STEPS; i++) {
        free(run->outcomes[i].state);
        free(run->outcomes[i].messages);
        free(run->outcomes[i].ends);
    }
    memset(run->outcomes, 0, sizeof run->outcomes);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static bool equal(const char *what, const char *expected, const char *actual) {
    if (strcmp(expected, actual) == 0)
        return true;
    print_error("%s: expected [%s], got [%s]\n", what, expected, actual);
    return false;
}

static bool close_to(long long left_ms, long long expected_ms, int64_t elapsed_ms) {
    return left_ms <= expected_ms && left_ms > 0 && left_ms >= expected_ms - elapsed_ms - CLOCKS_MS;
}

static bool ttl_within(const struct outcome *outcome, int started_ms) {
    if (started_ms < 0 ? outcome->ttl_ms == started_ms
                       : close_to(outcome->ttl_ms, started_ms, outcome->elapsed_ms))
        return true;
    print_error("the TTL is %lld after %lld ms, expected %d\n", outcome->ttl_ms,
                (long long)outcome->elapsed_ms, started_ms);
    return false;
}

/* Two that began alike. */
static bool near(long long expected_ms, const struct outcome *expected, long long actual_ms,
                 const struct outcome *actual) {
    return actual_ms >= expected_ms - actual->elapsed_ms - CLOCKS_MS &&
           expected_ms >= actual_ms - expected->elapsed_ms - CLOCKS_MS;
}

/* The same lines, with numbers at their ends that are not far apart. The key itself is left out:
 * its TTL is in the table. */
static bool ends_alike(const struct outcome *expected, const struct outcome *actual) {
    const char *e = expected->ends;
    const char *a = actual->ends;
    while (*e != '\0' && *a != '\0') {
        const char *e_end = strchr(e, '\n');
        const char *a_end = strchr(a, '\n');
        const char *e_last = e_end;
        const char *a_last = a_end;
        while (e_last[-1] != ' ')
            e_last--;
        while (a_last[-1] != ' ')
            a_last--;
        bool itself = strncmp(e, PLAY_NAME " ", strlen(PLAY_NAME " ")) == 0;
        bool same_key = e_last - e == a_last - a && memcmp(e, a, (size_t)(e_last - e)) == 0;
        bool both_never = *e_last == 'n' && *a_last == 'n';
        bool both_near = *e_last != 'n' && *a_last != 'n' &&
                         near(atoll(e_last), expected, atoll(a_last), actual);
        if (!same_key || (!itself && !both_never && !both_near))
            break;
        e = e_end + 1;
        a = a_end + 1;
    }
    if (*e == '\0' && *a == '\0')
        return true;
    print_error("ends: expected [%s], got [%s]\n", expected->ends, actual->ends);
    return false;
}

/* Whether C did this step in a run. What the server does is not done by anybody. */
static bool by_c(const struct run *run, const struct step *step) {
    const char *actor = strchr(step->command, ' ');
    return step->command[0] != '!' && run->sides[actor[1] - 'A'] == 'C';
}

static bool frees(const struct step *step) {
    return step->ttl_ms == NO_KEY &&
           (strncmp(step->command, "unlock", 6) == 0 ? strcmp(step->answer, "ok") == 0
                                                     : strcmp(step->answer, "true") == 0);
}

static const char *expected_messages(const struct run *run, const struct step *step,
                                     const struct outcome *java) {
    if (!by_c(run, step))
        return java->messages;
    if (step->c_messages != NULL)
        return step->c_messages;
    if (run->kind->c_message_when_free != NULL && frees(step))
        return run->kind->c_message_when_free;
    return java->messages;
}

static bool check_step(const struct run *run, const struct step *step, const struct outcome *java,
                       const struct outcome *other) {
    bool measure = java == other;
    const char *answer = !measure && step->c_answer != NULL ? step->c_answer : step->answer;
    bool same = equal("answer", answer, other->answer);
    if (step->unsettled)
        return same;
    int ttl_ms = !measure && step->c_ttl_ms != 0 ? step->c_ttl_ms : step->ttl_ms;
    same = ttl_within(other, ttl_ms) && same;
    if (measure)
        return same;
    same =
        equal("state", step->c_state != NULL ? step->c_state : java->state, other->state) && same;
    same = equal("messages", expected_messages(run, step, java), other->messages) && same;
    if (!run->kind->fair && !step->c_ends && step->c_state == NULL)
        same = ends_alike(java, other) && same;
    return same;
}

static bool differs_on_purpose(const struct scenario *scenario) {
    for (size_t i = 0; i < PLAY_STEPS; i++) {
        const struct step *step = &scenario->steps[i];
        if (step->c_answer != NULL || step->c_ttl_ms != 0 || step->c_state != NULL || step->c_ends)
            return true;
    }
    return false;
}

static int compare(const struct scenario *scenario, const struct run *java, const struct run *run) {
    int different = 0;
    for (size_t i = 0; i < PLAY_STEPS && scenario->steps[i].command != NULL; i++) {
        if (check_step(run, &scenario->steps[i], &java->outcomes[i], &run->outcomes[i]))
            continue;
        print_error("    in \"%s\" of %s by %s, step %zu: %s\n", scenario->title, run->kind->name,
                    run->sides, i + 1, scenario->steps[i].command);
        different++;
    }
    return different;
}

/* Java has done something that its version does not know. */
static bool beyond_this_version(const struct run *java) {
    for (size_t i = 0; i < PLAY_STEPS; i++) {
        if (java_lacks(java->outcomes[i].answer))
            return true;
    }
    return false;
}

static int play_scenario(const struct play_kind *kind, const struct scenario *scenario,
                         struct messages *messages) {
    static const char *const others[] = {"CC", "JC", "CJ"};
    struct run java = {.kind = kind, .sides = "JJ", .messages = messages};
    run_scenario(&java, scenario, NULL);
    if (beyond_this_version(&java)) {
        print_message("left out: \"%s\" of %s\n", scenario->title, kind->name);
        free_outcomes(&java);
        return 0;
    }
    int different = compare(scenario, &java, &java);
    for (size_t i = 0; i < (differs_on_purpose(scenario) ? 1 : 3); i++) {
        struct run other = {.kind = kind, .sides = others[i], .messages = messages};
        run_scenario(&other, scenario, &java);
        different += compare(scenario, &java, &other);
        free_outcomes(&other);
    }
    free_outcomes(&java);
    return different;
}

void play(const struct play_kind *kind, const struct scenario *scenarios, size_t count) {
    struct messages *messages = messages_start(suite.server);
    int different = 0;
    for (size_t i = 0; i < count; i++) {
        if ((scenarios[i].kinds & kind->bit) != 0)
            different += play_scenario(kind, &scenarios[i], messages);
    }
    messages_free(messages);
    assert_int_equal(different, 0);
}
