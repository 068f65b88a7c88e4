/* Counts of semaphores, latches and slots, which have no owners at the server. A few blocking
 * queries on the caller's thread; their answers are not one snapshot. */
#include "cli.h"

static int count_permits(hf_client *client, const char *name, struct numbers *ret) {
    hf_permits *permits = NULL;
    int64_t free = 0, total = 0, taken = 0;
    int code = hf_permits_new(client, name, &permits);
    if (code == HF_OK)
        code = hf_permits_available(permits, &free);
    if (code == HF_OK)
        code = hf_permits_total(permits, &total);
    if (code == HF_OK)
        code = hf_permits_taken(permits, &taken);
    hf_permits_free(permits);
    *ret = (struct numbers){3, {{"free", free}, {"total", total}, {"taken", taken}}};
    return code;
}

static int count_counter(hf_client *client, const char *name, struct numbers *ret) {
    hf_sem *sem = NULL;
    int64_t value = 0;
    int code = hf_sem_new(client, name, &sem);
    if (code == HF_OK)
        code = hf_sem_available(sem, &value);
    hf_sem_free(sem);
    *ret = (struct numbers){1, {{"value", value}}};
    return code;
}

int numbers_count(hf_client *client, const char *name, hf_found kind, struct numbers *ret) {
    if (kind == HF_FOUND_PERMITS)
        return count_permits(client, name, ret);
    if (kind == HF_FOUND_COUNTER)
        return count_counter(client, name, ret);
    return HF_OK;
}
