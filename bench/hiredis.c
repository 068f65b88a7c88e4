/*
 * What a careful C program would do without the library: hiredis, one connection per thread,
 * EVALSHA of the same scripts. Each thread owns its connection; nothing is shared.
 */
#include "bench.h"
#include "redis/wire/script.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

struct pair {
    char name[64], owner[64];
    const char *acquire[6], *release[6];
};

static void fill(struct pair *pair, int index) {
    snprintf(pair->name, sizeof pair->name, "bench-%d", index);
    snprintf(pair->owner, sizeof pair->owner, "00000000-0000-4000-8000-000000000000:%d", index);
    const char *acquire[6] = {
        "EVALSHA", hfi_script_plain_acquire.sha1, "1", pair->name, "9999999999999", pair->owner};
    const char *release[6] = {
        "EVALSHA", hfi_script_plain_release.sha1, "1", pair->name, "9999999999999", pair->owner};
    memcpy(pair->acquire, acquire, sizeof acquire);
    memcpy(pair->release, release, sizeof release);
}

static void expect_yes(redisContext *context, int argc, const char **argv) {
    redisReply *reply = redisCommandArgv(context, argc, argv, NULL);
    if (reply == NULL)
        die("hiredis: %s", context->errstr);
    if (reply->type != REDIS_REPLY_INTEGER)
        die("hiredis: unexpected answer %s", reply->str != NULL ? reply->str : "");
    freeReplyObject(reply);
}

redisContext *connect_hiredis(const struct bench *bench) {
    redisContext *context = bench->path != NULL ? redisConnectUnix(bench->path)
                                                : redisConnect("127.0.0.1", bench->port);
    if (context == NULL || context->err != 0)
        die("hiredis: cannot connect");
    return context;
}

static void work(struct worker *worker) {
    struct pair pair;
    fill(&pair, worker->index);
    redisContext *context = connect_hiredis(worker->bench);
    worker_ready(worker);
    while (worker_goes_on(worker)) {
        expect_yes(context, 6, pair.acquire);
        expect_yes(context, 6, pair.release);
        worker_count(worker);
    }
    redisFree(context);
}

void run_hiredis(const struct bench *bench, int n, struct sample *ret) {
    run_workers(bench, n, work, NULL, ret);
}

/* ---- By hand, for a string lock ---- */

#define DELETE_IF_EQUAL                                                                            \
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) "             \
    "else return 0 end"

static char *load_delete(redisContext *context) {
    redisReply *reply = redisCommand(context, "SCRIPT LOAD %s", DELETE_IF_EQUAL);
    if (reply == NULL || reply->type != REDIS_REPLY_STRING)
        die("hiredis: SCRIPT LOAD failed");
    char *sha1 = strdup(reply->str);
    freeReplyObject(reply);
    return sha1;
}

static void expect(redisContext *context, int argc, const char **argv, int type) {
    redisReply *reply = redisCommandArgv(context, argc, argv, NULL);
    if (reply == NULL || reply->type != type)
        die("hiredis: unexpected answer");
    freeReplyObject(reply);
}

static void work_string(struct worker *worker) {
    char name[64];
    redisContext *context = connect_hiredis(worker->bench);
    char *sha1 = load_delete(context);
    snprintf(name, sizeof name, "bench-%d", worker->index);
    const char *acquire[] = {"SET", name, "3f2a91c47be04d5f8c61d02e9ab7c435", "NX", "PX", "30000"};
    const char *release[] = {"EVALSHA", sha1, "1", name, "3f2a91c47be04d5f8c61d02e9ab7c435"};
    worker_ready(worker);
    while (worker_goes_on(worker)) {
        expect(context, 6, acquire, REDIS_REPLY_STATUS);
        expect(context, 5, release, REDIS_REPLY_INTEGER);
        worker_count(worker);
    }
    free(sha1);
    redisFree(context);
}

void run_hiredis_string(const struct bench *bench, int n, struct sample *ret) {
    run_workers(bench, n, work_string, NULL, ret);
}
