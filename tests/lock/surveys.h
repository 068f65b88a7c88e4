/* Surveys, and waiting until clients tell: what tests of what the server tells start from. Include
 * as "lock/surveys.h". */
#ifndef HF_TEST_LOCK_SURVEYS_H
#define HF_TEST_LOCK_SURVEYS_H

#include "support/world.h"

static inline hf_options reporting(int64_t after_ms) {
    hf_options options = world_options();
    options.report_after_ms = after_ms;
    return options;
}

static inline hf_fleet *survey(hf_client *client, const char *pattern) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.pattern = pattern;
    assert_int_equal(hf_survey(client, &options, &fleet), HF_OK);
    return fleet;
}

static inline const hf_fleet_lock *find(const hf_fleet *fleet, const char *name) {
    for (size_t i = 0; i < fleet->locks_len; i++)
        if (strcmp(fleet->locks[i]->name, name) == 0)
            return fleet->locks[i];
    return NULL;
}

/* Until clients tell of so many holders and waiters. */
struct reported {
    hf_client *client;
    const char *name;
    size_t holders, waiters;
    int64_t listeners; /* at least */
    hf_fleet *fleet;
};

static inline size_t reported_by_clients(const hf_fleet_party *const *all, size_t len) {
    size_t reported = 0;
    for (size_t i = 0; i < len; i++)
        reported += (all[i]->seen_by & HF_SEEN_BY_CLIENT) != 0;
    return reported;
}

static inline bool is_reported(void *arg) {
    struct reported *reported = arg;
    hf_fleet_free(reported->fleet);
    reported->fleet = survey(reported->client, NULL);
    const hf_fleet_lock *lock = find(reported->fleet, reported->name);
    return lock != NULL && lock->listeners >= reported->listeners &&
           reported_by_clients(lock->holders, lock->holders_len) == reported->holders &&
           reported_by_clients(lock->waiters, lock->waiters_len) == reported->waiters;
}

/* Some ms after the server's time. */
static inline const char *score_after(struct server *server, long long ms, char text[32]) {
    redisReply *time = cmd(server, "TIME");
    long long now_ms = strtoll(time->element[0]->str, NULL, 10) * 1000;
    freeReplyObject(time);
    snprintf(text, 32, "%lld", now_ms + ms);
    return text;
}

#endif
