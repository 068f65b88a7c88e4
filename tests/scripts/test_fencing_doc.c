/*
 * The script that docs/fencing.md tells readers to use, cut out of that page and run.
 *
 * First alone, row by row; then as the page means it: a holder of a real fenced lock is paused,
 * loses the lock, and finds its write refused.
 */

#include "script.h"

#include "support/case.h"
#include "support/new_lock.h"

#include <holdfast/holdfast.h>
#include <inttypes.h>

#define PAGE HF_SOURCE_DIR "/docs/fencing.md"
#define FENCE_OPEN "```lua\n"
#define FENCE_CLOSE "```"

static struct server *server;
static char *sha;

/* The only Lua block of the page; the caller frees. */
static char *script_of_the_page(void) {
    static char page[64 * 1024];
    FILE *file = fopen(PAGE, "r");
    assert_non_null(file);
    size_t length = fread(page, 1, sizeof page - 1, file);
    fclose(file);
    assert_in_range(length, 1, sizeof page - 2);
    page[length] = '\0';

    char *begin = strstr(page, FENCE_OPEN);
    assert_non_null(begin);
    begin += strlen(FENCE_OPEN);
    char *end = strstr(begin, FENCE_CLOSE);
    assert_non_null(end);
    assert_null(strstr(end, FENCE_OPEN));
    return strndup(begin, (size_t)(end - begin));
}

static int open_group(void **state) {
    (void)state;
    server = server_start(NULL);
    own_text *text = script_of_the_page();
    sha = script_load(server, text);
    return 0;
}

static int close_group(void **state) {
    (void)state;
    free(sha);
    server_free(server);
    return 0;
}

/* Writes with a token; returns the script's answer, -1 for an error. */
static long long write_with(const char *token, const char *value) {
    redisReply *reply =
        cmd(server, "EVALSHA %s 2 {orders} {orders}:fence %s %s", sha, token, value);
    assert_non_null(reply);
    long long answer = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    freeReplyObject(reply);
    return answer;
}

static void assert_key(const char *key, const char *value) {
    own_text *there = cmd_str(server, "GET %s", key);
    if (value == NULL)
        assert_null(there);
    else
        assert_string_equal(there, value);
}

CASE(doc_script_refuses_stale_tokens) {
    static const struct {
        const char *token, *value;
        long long answer;
        const char *data, *fence; /* afterwards */
    } steps[] = {
        {"none", "x", -1, NULL, NULL},
        {"0", "x", -1, NULL, NULL},
        {"-3", "x", -1, NULL, NULL},
        {"33", "a", 1, "a", "33"},
        {"33", "b", 1, "b", "33"},
        {"34", "c", 1, "c", "34"},
        {"33", "d", 0, "c", "34"},
        {"1794736941513000", "e", 1, "e", "1794736941513000"},
        {"1794736941512999", "f", 0, "e", "1794736941513000"},
        {"9007199254740990", "g", 1, "g", "9007199254740990"},
        {"9007199254740991", "h", 1, "h", "9007199254740991"},
        {"9007199254740990", "i", 0, "h", "9007199254740991"},
    };
    cmd_ok(server, "FLUSHALL");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(write_with(steps[i].token, steps[i].value), steps[i].answer);
        assert_key("{orders}", steps[i].data);
        assert_key("{orders}:fence", steps[i].fence);
    }
}

/* One holder's work, in C as on the page. */
static int64_t acquire_token(hf_lock *lock, int64_t lease_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_result result = HF_RESULT_INIT;
    options.lease_ms = lease_ms;
    assert_int_equal(hf_lock_acquire_with(lock, &options, &result), HF_OK);
    return result.token;
}

CASE(doc_story_of_the_paused_holder) {
    hf_client *clients[2];
    hf_lock *locks[2];
    char tokens[2][32];
    hf_fence fence = HF_FENCE_INIT;
    cmd_ok(server, "FLUSHALL");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_open(server_url(server), NULL, &clients[i]), HF_OK);
        assert_int_equal(new_lock(clients[i], HF_FENCED, "orders", 6, &locks[i]), HF_OK);
    }
    int64_t paused = acquire_token(locks[0], 100);
    int64_t other = acquire_token(locks[1], 60000); /* waits until the first lease is over */
    assert_true(other > paused);
    snprintf(tokens[0], sizeof tokens[0], "%" PRId64, paused);
    snprintf(tokens[1], sizeof tokens[1], "%" PRId64, other);

    assert_int_equal(write_with(tokens[1], "by the other"), 1);
    assert_int_equal(write_with(tokens[0], "by the one that woke up"), 0);
    assert_key("{orders}", "by the other");
    assert_int_equal(hf_fence_check(&fence, other), HF_OK);
    assert_int_equal(hf_fence_check(&fence, paused), HF_ELOST);
    assert_int_equal(hf_lock_release(locks[0]), HF_ELOST);
    assert_int_equal(hf_lock_release(locks[1]), HF_OK);
    for (int i = 0; i < 2; i++) {
        hf_lock_free(locks[i]);
        assert_int_equal(hf_close(clients[i]), HF_OK);
    }
}

RUN_CASES(open_group, close_group)
