/* The deadlock check of `holdfast doctor`: finds waiters that wait for each other for ever.
 *
 * Two surveys, one second apart, on the main thread. A client that does not answer is not known to
 * wait. So a reported deadlock is real, but a missing report proves nothing. */
#include "doctor/doctor.h"
#include "fleet/fleet.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define BETWEEN_S 1
#define LIMIT_MS 5000

/* With the thread, because a deadlock is between threads. */
static void describe(const hf_fleet_party *party, char *text, size_t size) {
    fleet_describe_party(party, text, size);
    size_t len = strlen(text);
    if (party->thread[0] != '\0')
        snprintf(text + len, size - len, " (%s)", party->thread);
}

/* For other ZooKeeper clients only the session is known; its threads may be unrelated. */
static bool is_only_a_session(const hf_fleet_party *party) {
    return strncmp(party->owner, "session ", 8) == 0;
}

static void add_deadlock(struct findings *findings, const hf_deadlock *deadlock) {
    bool certain = true;
    char text[sizeof findings->all[0].found] = "";
    size_t len = 0;
    for (size_t i = 0; i < deadlock->steps_len && len < sizeof text; i++) {
        const hf_deadlock_step *step = &deadlock->steps[i];
        char waiter[96], holder[96], name[SHOWN_NAME_SIZE];
        certain = certain && !is_only_a_session(step->waiter);
        describe(step->waiter, waiter, sizeof waiter);
        describe(step->holder, holder, sizeof holder);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s waits for '%s'",
                                i > 0 ? "; " : "", waiter, fleet_shown_name(step->lock, name));
        if (step->waiter->for_ms >= 0 && len < sizeof text)
            len += (size_t)snprintf(text + len, sizeof text - len, " for %" PRId64 " s",
                                    step->waiter->for_ms / 1000);
        if (len < sizeof text)
            len += (size_t)snprintf(text + len, sizeof text - len, ", held by %s", holder);
    }
    finding_add(findings, certain ? VERDICT_BAD : VERDICT_WARNING, "deadlocks",
                certain ? "end one of them; and take locks in the same order everywhere, or "
                          "together (run -m)"
                        : "if each session is one thread, end one of them: threads within a "
                          "session look alike",
                "%s", text);
}

static int take_survey(hf_client *client, hf_fleet **ret_fleet) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
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
    int code = take_survey(client, &earlier);
    if (code == HF_OK) {
        nanosleep(&between, NULL);
        code = take_survey(client, &later);
    }
    if (code == HF_OK)
        code = hf_fleet_deadlocks(earlier, later, &deadlocks);
    if (code != HF_OK)
        finding_add(findings, VERDICT_UNKNOWN, "deadlocks", NULL, "no client could be asked: %s",
                    hf_strerror(code));
    else if (deadlocks->len == 0 && (later->missing & HF_MISSING_ANSWERS) != 0)
        finding_add(
            findings, VERDICT_UNKNOWN, "deadlocks",
            "allow '&holdfast_ask &holdfast_tell:*' and the other rights that docs/redisson.md lists for surveys",
            "%s", later->missing_text);
    else if (deadlocks->len == 0)
        finding_add(findings, VERDICT_OK, "deadlocks", NULL,
                    "none among the clients that answered");
    for (size_t i = 0; code == HF_OK && i < deadlocks->len; i++)
        add_deadlock(findings, &deadlocks->all[i]);
    hf_deadlocks_free(deadlocks);
    hf_fleet_free(earlier);
    hf_fleet_free(later);
}
