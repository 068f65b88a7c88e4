/*
 * The check of `holdfast doctor` that asks the fleet: does anybody wait for ever, because they wait
 * for each other?
 *
 * Two surveys a second apart, on the main thread. Who does not answer is not known to wait, so what
 * is found is true, and what is not found may be there all the same.
 */
#include "doctor.h"
#include "fleet.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define BETWEEN_S 1
#define LIMIT_MS 5000

/* With the thread, which is what a deadlock is made of. */
static void describe(const hf_fleet_party *party, char *text, size_t size) {
    fleet_describe_party(party, text, size);
    size_t len = strlen(text);
    if (party->thread[0] != '\0')
        snprintf(text + len, size - len, " (%s)", party->thread);
}

/* Of others in ZooKeeper only the session is known: its threads may have nothing to do with each other. */
static bool is_only_a_session(const hf_fleet_party *party) {
    return strncmp(party->owner, "session ", 8) == 0;
}

static void add_deadlock(struct findings *findings, const hf_deadlock *deadlock) {
    bool certain = true;
    char words[sizeof findings->all[0].found] = "";
    size_t len = 0;
    for (size_t i = 0; i < deadlock->steps_len && len < sizeof words; i++) {
        const hf_deadlock_step *step = &deadlock->steps[i];
        char waiter[96], holder[96], name[SHOWN_NAME_SIZE];
        certain = certain && !is_only_a_session(step->waiter);
        describe(step->waiter, waiter, sizeof waiter);
        describe(step->holder, holder, sizeof holder);
        len += (size_t)snprintf(words + len, sizeof words - len, "%s%s waits for '%s'",
                                i > 0 ? "; " : "", waiter, fleet_shown_name(step->lock, name));
        if (step->waiter->for_ms >= 0 && len < sizeof words)
            len += (size_t)snprintf(words + len, sizeof words - len, " for %" PRId64 " s",
                                    step->waiter->for_ms / 1000);
        if (len < sizeof words)
            len += (size_t)snprintf(words + len, sizeof words - len, ", which %s has", holder);
    }
    finding_add(findings, certain ? VERDICT_BAD : VERDICT_WARNING, "deadlocks",
                certain ? "end one of them; and have all take locks in the same order, or together "
                          "(run -m)"
                        : "if a session is one thread, end one of them: threads of other clients "
                          "cannot be told apart",
                "%s", words);
}

static int look(hf_client *client, hf_fleet **ret_fleet) {
    hf_survey_options options = HF_SURVEY_INIT;
    options.limit_ms = LIMIT_MS;
    options.wanted = HF_WANT_HOLDS | HF_WANT_WAITS;
    return hf_survey(client, &options, ret_fleet);
}

void doctor_fleet(struct findings *findings, hf_client *client) {
    const struct timespec between = {.tv_sec = BETWEEN_S};
    hf_fleet *earlier = NULL, *later = NULL;
    hf_deadlocks *deadlocks = NULL;
    if (findings_skip(findings, "deadlocks"))
        return;
    int code = look(client, &earlier);
    if (code == HF_OK) {
        nanosleep(&between, NULL);
        code = look(client, &later);
    }
    if (code == HF_OK)
        code = hf_fleet_deadlocks(earlier, later, &deadlocks);
    if (code != HF_OK)
        finding_add(findings, VERDICT_UNKNOWN, "deadlocks", NULL, "nobody could be asked: %s",
                    hf_strerror(code));
    else if (deadlocks->len == 0 && (later->missing & HF_MISSING_ANSWERS) != 0)
        finding_add(
            findings, VERDICT_UNKNOWN, "deadlocks",
            "allow '&holdfast_ask &holdfast_tell:*' and what else docs/redisson.md names for surveys",
            "%s", later->words);
    else if (deadlocks->len == 0)
        finding_add(findings, VERDICT_OK, "deadlocks", NULL, "none among those who answered");
    for (size_t i = 0; code == HF_OK && i < deadlocks->len; i++)
        add_deadlock(findings, &deadlocks->all[i]);
    hf_deadlocks_free(deadlocks);
    hf_fleet_free(earlier);
    hf_fleet_free(later);
}
