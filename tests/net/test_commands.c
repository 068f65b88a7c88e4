/*
 * How many connections carry the commands of synchronous callers: one while they do not meet, more while they
 * do, and never more than four; and when one of them counts as silent.
 */
#include "net/caller.h"
#include "net/scene.h"

#define THREADS 8
#define COMMANDS_MAX 4

struct crew {
    hf_client *client;
    atomic_bool over;
    atomic_ulong pairs, failures;
    size_t wanted; /* connections */
    unsigned long until_pairs;
};

static void *work(void *arg) {
    struct crew *crew = arg;
    static atomic_int next;
    own_text *name = text_of("crew-%d", atomic_fetch_add(&next, 1));
    own_lock *lock = scene_lock(crew->client, name);
    while (!atomic_load(&crew->over)) {
        if (hf_lock_acquire(lock) != HF_OK || hf_lock_release(lock) != HF_OK)
            atomic_fetch_add(&crew->failures, 1);
        atomic_fetch_add(&crew->pairs, 1);
    }
    return NULL;
}

/* As scene_conns, of those that carry commands: the last one was a script. A hold that lasts for a
 * second, if the machine pauses, has the client listen, on another connection, and ask whether it
 * still holds that, on the keeper's, which looks like these. `ret_listens`: so there may
 * be one more. */
static size_t commanded(const hf_client *client, long long ids[SCENE_CONNS], bool *ret_listens) {
    char *list = cmd_str(scene_server(), "CLIENT LIST"), *rest = list, *raw;
    size_t len = 0;
    *ret_listens = false;
    while ((raw = strsep(&rest, "\n")) != NULL) {
        if (strstr(raw, hf_client_id(client)) == NULL)
            continue;
        *ret_listens = *ret_listens || strstr(raw, "subscribe ") != NULL;
        if (strstr(raw, " cmd=eval") == NULL)
            continue;
        assert_true(len < SCENE_CONNS);
        ids[len++] = strtoll(raw + strlen("id="), NULL, 10);
    }
    free(list);
    return len;
}

static void assert_commanded(const hf_client *client, size_t wanted) {
    long long ids[SCENE_CONNS];
    bool listens;
    size_t found = commanded(client, ids, &listens);
    assert_in_range(found, wanted, wanted + listens);
}

static bool has_as_many(void *arg) {
    struct crew *crew = arg;
    long long ids[SCENE_CONNS];
    bool listens;
    return commanded(crew->client, ids, &listens) >= crew->wanted;
}

static bool has_done_more(void *arg) {
    struct crew *crew = arg;
    return atomic_load(&crew->pairs) >= crew->until_pairs;
}

/* Runs so many threads until there are so many connections, and there are no more in the end. */
static void run(struct crew *crew, size_t threads, size_t wanted) {
    pthread_t ids[THREADS];
    atomic_store(&crew->over, false);
    crew->wanted = wanted;
    for (size_t i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, work, crew), 0);
    bool reached = wait_until(has_as_many, crew, HANG_MS);
    crew->until_pairs = atomic_load(&crew->pairs) + 1000;
    bool worked = wait_until(has_done_more, crew, HANG_MS);
    atomic_store(&crew->over, true);
    for (size_t i = 0; i < threads; i++)
        scene_join_thread(ids[i]);
    assert_true(reached && worked);
    assert_int_equal(atomic_load(&crew->failures), 0);
    assert_commanded(crew->client, wanted);
}

static void begin(struct crew *crew) {
    hf_options options = scene_options();
    options.ping_interval_ms = 60 * 60 * 1000; /* whatever is used is used by a caller */
    *crew = (struct crew){.client = scene_open(server_url(scene_server()), &options)};
}

CASE(one_thread_has_one) {
    struct crew crew;
    begin(&crew);
    run(&crew, 1, 1);
    run(&crew, 1, 1); /* another thread, after it */
    hf_close(crew.client);
}

CASE(contending_threads_have_up_to_four) {
    struct crew crew;
    begin(&crew);
    run(&crew, THREADS, COMMANDS_MAX);
    hf_close(crew.client);
}

/* Two on each: there is no crowd. */
CASE(four_threads_have_two) {
    struct crew crew;
    begin(&crew);
    run(&crew, 4, 2);
    hf_close(crew.client);
}

/* The server has ended them: the caller that had one goes on with another until it is there again,
 * and the first is as good as the last. */
CASE(lost_connections_are_made_again) {
    struct crew crew;
    long long ids[SCENE_CONNS];
    bool listens;
    begin(&crew);
    run(&crew, THREADS, COMMANDS_MAX);
    assert_true(commanded(crew.client, ids, &listens) >= COMMANDS_MAX);
    scene_kill(scene_server(), ids[0]);
    scene_kill(scene_server(), ids[COMMANDS_MAX - 1]);
    run(&crew, THREADS, COMMANDS_MAX);
    hf_close(crew.client);
}

/* Which of its connections carried commands in the last two seconds: those are added to `ids`, which has so many. */
static size_t add_fresh(const hf_client *client, long long ids[SCENE_CONNS], size_t len) {
    char *list = cmd_str(scene_server(), "CLIENT LIST"), *rest = list, *raw;
    while ((raw = strsep(&rest, "\n")) != NULL) {
        const char *idle = strstr(raw, " idle=");
        if (strstr(raw, hf_client_id(client)) == NULL || idle == NULL ||
            strstr(raw, " cmd=eval") == NULL)
            continue;
        bool fresh = strtol(idle + strlen(" idle="), NULL, 10) < 2;
        long long id = strtoll(raw + strlen("id="), NULL, 10);
        for (size_t i = 0; i < len; i++)
            fresh = fresh && ids[i] != id;
        if (fresh)
            ids[len++] = id;
    }
    free(list);
    return len;
}

static bool all_rest(void *arg) {
    long long ids[SCENE_CONNS];
    return add_fresh(arg, ids, 0) == 0;
}

static void *work_a_little(void *arg) {
    struct crew *crew = arg;
    own_lock *lock = scene_lock(crew->client, "alone");
    for (int i = 0; i < 50; i++)
        if (hf_lock_acquire(lock) != HF_OK || hf_lock_release(lock) != HF_OK)
            atomic_fetch_add(&crew->failures, 1);
    return NULL;
}

/* One after the other, so the first would do for all of them. */
CASE(each_thread_keeps_to_its_own) {
    struct crew crew;
    begin(&crew);
    run(&crew, THREADS, COMMANDS_MAX);
    assert_true(wait_until(all_rest, crew.client, HANG_MS));
    long long ids[SCENE_CONNS];
    size_t used = 0;
    for (size_t i = 1; i <= COMMANDS_MAX; i++) {
        pthread_t thread = started(work_a_little, &crew);
        scene_join_thread(thread);
        used = add_fresh(crew.client, ids, used);
        bool listens;
        long long all[SCENE_CONNS];
        commanded(crew.client, all, &listens);
        assert_in_range(used, i, i + listens);
    }
    assert_int_equal(atomic_load(&crew.failures), 0);
    hf_close(crew.client);
}

/* ---- When one of them is silent ---- */

#define LONG_AGO_MS 1000 /* more than any server takes */

/* As if the last answer, or the first command since, were long ago. */
static void put_back(_Atomic int64_t *time_ms) {
    atomic_store(time_ms, hfi_now_ms() - LONG_AGO_MS);
}

/* An idle connection is not taken for dead when it is used again. Only one with an overdue reply
 * is. */
RAW_CASE(idle_is_not_silent) {
    struct caller first, second;
    raw_connect(raw);
    assert_raw_works(raw);
    put_back(&raw->conn->last_rx_ms);
    put_back(&raw->conn->busy_since_ms);
    proxy_stall_request(raw->proxy, "ECHO");
    start_caller(&first, raw, 10, HANG_MS);
    wait_driver(raw, &first, 0);
    assert_true(proxy_wait_held(raw->proxy, HANG_MS));
    assert_false(hfi_conn_stalls(raw->conn));

    put_back(&raw->conn->last_rx_ms);
    put_back(&raw->conn->busy_since_ms);
    start_caller(&second, raw, 10, HANG_MS);
    wait_driver(raw, &first, 1);
    assert_true(hfi_conn_stalls(raw->conn));
    assert_int_equal(proxy_release_held(raw->proxy), 2);
    assert_int_equal(join_caller(&first), ANSWERED);
    assert_int_equal(join_caller(&second), ANSWERED);
    assert_false(hfi_conn_stalls(raw->conn));
}

RUN_CASES(scene_start_server, scene_stop_server)
