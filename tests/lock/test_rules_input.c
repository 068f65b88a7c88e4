/*
 * R10, R12, R13: bad input is refused before anything is sent, errors are distinct, and the library is
 * silent.
 *
 * That nothing was sent is seen in the client's own counter and, from outside, at the proxy. The
 * rules for a library (no output, no signal handlers, no SIGPIPE) are seen from a process of their own,
 * whose standard streams are pipes to the test.
 */
#include "support/world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

/* Refused with HF_EINVAL and words, and nobody heard of it. */
#define assert_refused(world, call)                                                                \
    do {                                                                                           \
        uint64_t sent_ = world_stats((world)->client).commands;                                    \
        size_t seen_ = proxy_seen((world)->proxy, "");                                             \
        assert_int_equal((call), HF_EINVAL);                                                       \
        assert_int_equal(hf_last_error()->code, HF_EINVAL);                                        \
        assert_true(hf_last_error()->text[0] != '\0');                                             \
        assert_int_equal(world_stats((world)->client).commands, sent_);                            \
        assert_int_equal(proxy_seen((world)->proxy, ""), seen_);                                   \
    } while (0)

static const int64_t bad_leases[] = {-1,        -5,           INT64_MIN, HF_LEASE_MAX_MS + 1,
                                     INT64_MAX, INT64_MAX / 2};

static int acquire_lease(hf_lock *lock, int64_t lease_ms) {
    hf_acquire_options options = world_wait_for(0, lease_ms);
    return hf_lock_acquire_with(lock, &options, NULL);
}

static int acquire_lease_async(hf_lock *lock, int64_t lease_ms) {
    hf_op *op = NULL;
    hf_acquire_options options = world_wait_for(0, lease_ms);
    int err = hf_lock_acquire_start(lock, &options, NULL, NULL, &op);
    assert_null(op);
    return err;
}

WORLD_CASE(U01_U02_leases) {
    for (int held = 0; held < 2; held++) {
        for (size_t i = 0; i < sizeof bad_leases / sizeof bad_leases[0]; i++) {
            assert_refused(w, acquire_lease(w->lock, bad_leases[i]));
            assert_refused(w, acquire_lease_async(w->lock, bad_leases[i]));
            assert_refused(w, hf_lock_extend(w->lock, bad_leases[i]));
        }
        assert_refused(w, hf_lock_extend(w->lock, 0));
        assert_int_equal(world_count(w, w->owner), held);
        if (held == 0) {
            assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
            /* or it would have something to say meanwhile */
            assert_true(world_wait_verified(w, HANG_MS));
        }
    }
    assert_int_equal(hf_lock_release(w->lock), HF_OK);

    /* The largest that is allowed works, also as an extension: never a key without a lease. */
    assert_int_equal(acquire_lease(w->lock, HF_LEASE_MAX_MS), HF_OK);
    assert_true(server_is_other(w->server) ||
                pttl(w->server, WORLD_NAME) > HF_LEASE_MAX_MS - HANG_MS);
    assert_int_equal(hf_lock_extend(w->lock, HF_LEASE_MAX_MS), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    int err =
        acquire_lease(w->lock, 1); /* and the smallest, if it is not over when we hear of it */
    assert_true(err == HF_OK || err == HF_ETIMEDOUT);
    assert_true(world_wait_free(w, HANG_MS));
    server_wait_clock(world_server(), 2); /* the server reads its clock in whole milliseconds too */
    assert_int_equal(hf_lock_release(w->lock), err == HF_OK ? HF_ELOST : HF_ENOTOWNER);
}

WORLD_CASE(R12_waits_and_sizes) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    assert_refused(w, hf_lock_acquire_for(w->lock, -2));
    assert_refused(w, hf_lock_acquire_for(w->lock, INT64_MIN));
    options.size = 0;
    assert_refused(w, hf_lock_acquire_with(w->lock, &options, NULL));
    options.size = 1 << 20;
    assert_refused(w, hf_lock_acquire_with(w->lock, &options, NULL));
    assert_refused(w, hf_lock_acquire(NULL));
    assert_refused(w, hf_lock_release(NULL));
}

/* Owners are numbers that the caller chose, or that came from the library. */
WORLD_CASE(U09_R12_owners) {
    hf_acquire_options options;
    bool flag;
    int64_t number;
    const hf_owner bad[] = {UINT64_MAX, (hf_owner)1 << 63, hf_owner_new() + 1000000};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        options = (hf_acquire_options)HF_ACQUIRE_OPTIONS_INIT;
        options.owner = bad[i];
        assert_refused(w, hf_lock_acquire_with(w->lock, &options, NULL));
        assert_refused(w, hf_lock_release_as(w->lock, bad[i]));
        assert_refused(w, hf_lock_extend_as(w->lock, bad[i], 1000));
        assert_refused(w, hf_lock_is_mine_as(w->lock, bad[i], &flag));
        assert_refused(w, hf_lock_hold_count_as(w->lock, bad[i], &number));
    }
    options = (hf_acquire_options)HF_ACQUIRE_OPTIONS_INIT;
    options.owner = 4294967295u; /* the last of the caller's own */
    assert_int_equal(hf_lock_acquire_with(w->lock, &options, NULL), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, options.owner), HF_OK);
}

CASE(U04_U08_names) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "a path has rules of its own (zk.lock)");
    hf_lock *lock = NULL;
    world_begin(&w, NULL);
    own_text *huge = malloc(65537);
    memset(huge, 'n', 65537);
    assert_refused(&w, hf_lock_new(w.client, NULL, &lock));
    assert_refused(&w, hf_lock_new(w.client, "", &lock));
    assert_refused(&w, new_lock(w.client, HF_PLAIN, "x", 0, &lock));
    assert_refused(&w, new_lock(w.client, HF_PLAIN, huge, 65536, &lock));
    assert_refused(&w, new_lock(w.client, HF_PLAIN, huge, SIZE_MAX, &lock));
    assert_refused(&w, hf_lock_new(w.client, "x", NULL));
    assert_null(lock);

    /* The prefix counts, and the words say so. */
    hf_options prefixed = world_options();
    hf_client *app = NULL;
    prefixed.name_prefix = "app:";
    assert_int_equal(hf_open(server_url(w.server), &prefixed, &app), HF_OK);
    assert_refused(&w, new_lock(app, HF_PLAIN, huge, 65532, &lock));
    assert_non_null(strstr(hf_last_error()->text, "name_prefix"));
    assert_int_equal(new_lock(app, HF_PLAIN, huge, 65531, &lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(app), HF_OK);
    assert_int_equal(new_lock(w.client, HF_PLAIN, huge, 65535, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(cmd_int(w.server, "EXISTS %b", huge, (size_t)65535), 1);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(world_keys(w.server), 0);
    hf_lock_free(lock);
}

CASE(U07_binary_names) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "a path is text");
    static const struct {
        const char *bytes;
        size_t len;
    } names[] = {{"\0", 1},
                 {"a\0b", 3},
                 {"\r\n", 2},
                 {"\xff\xfe\x80", 3},
                 {"*1\r\n$8\r\nFLUSHALL\r\n", 18},
                 {"\xc3\x28", 2},
                 {" \"' %s%n", 8}};
    world_begin(&w, NULL);
    cmd_ok(w.server, "SET witness 1");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t len;
        own_lock *lock = made(new_lock, w.client, HF_PLAIN, names[i].bytes, names[i].len);
        assert_memory_equal(hf_lock_name(lock, &len), names[i].bytes, names[i].len);
        assert_int_equal(len, names[i].len);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(cmd_int(w.server, "HGET %b %s", names[i].bytes, names[i].len, w.owner), 1);
        assert_int_equal(world_keys(w.server), 2);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(world_keys(w.server), 1);
    }
}

static void release_nothing(void *ptr, void *user) {
    (void)ptr;
    (void)user;
}

static void refuse_options(hf_options options) {
    hf_client *client = NULL;
    assert_int_equal(hf_open(server_url(world_server()), &options, &client), HF_EINVAL);
    assert_null(client);
    assert_true(hf_last_error()->text[0] != '\0');
}

CASE(R12_options_of_a_client) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 0;
    refuse_options(options);
    options.cmd_timeout_ms = -1;
    refuse_options(options);
    options = (hf_options)HF_OPTIONS_INIT;
    options.connect_timeout_ms = 0;
    refuse_options(options);
    options = (hf_options)HF_OPTIONS_INIT;
    options.watchdog_ms = 0;
    refuse_options(options);
    options.watchdog_ms = -30000;
    refuse_options(options);
    options.watchdog_ms = INT64_MAX;
    refuse_options(options);
    options = (hf_options)HF_OPTIONS_INIT;
    options.max_hold_ms = -1;
    refuse_options(options);
    options = (hf_options)HF_OPTIONS_INIT;
    options.ping_interval_ms = 0;
    refuse_options(options);
    options = (hf_options)HF_OPTIONS_INIT;
    options.flags = 0x80;
    refuse_options(options);
    options = (hf_options)HF_OPTIONS_INIT;
    options.size = 3;
    refuse_options(options);
    options = (hf_options)HF_OPTIONS_INIT;
    options.allocator.release = release_nothing; /* one of three */
    refuse_options(options);
    assert_int_equal(hf_open(server_url(world_server()), NULL, NULL), HF_EINVAL);
}

/* ---- A quiet library ---- */

struct process {
    struct world *world;
    int out;
};

struct asker {
    hf_lock *lock;
    atomic_bool stop;
};

static void *keep_asking(void *arg) {
    struct asker *asker = arg;
    bool locked;
    while (!atomic_load(&asker->stop)) {
        hf_lock_is_locked(asker->lock, &locked);
        hf_lock_acquire_for(asker->lock, 1); /* subscribes */
    }
    return NULL;
}

/* Uses everything while the network is bad. The result is what was wrong. */
static int use_the_library(void *arg) {
    struct process *process = arg;
    struct sigaction before[65], after;
    for (int i = 1; i < 65; i++)
        if (sigaction(i, NULL, &before[i]) != 0)
            before[i].sa_handler = SIG_ERR;
    if (before[SIGPIPE].sa_handler != SIG_DFL)
        return 20;
    if (dup2(process->out, 1) < 0 || dup2(process->out, 2) < 0)
        return 21;

    hf_options options = world_options();
    options.cmd_timeout_ms = 300;
    options.connect_timeout_ms = 300;
    hf_client *client;
    hf_lock *lock;
    if (hf_open(server_url(process->world->server), &options, &client) != HF_OK ||
        hf_lock_new(client, "guest", &lock) != HF_OK || hf_lock_acquire(lock) != HF_OK)
        return 22;
    struct asker asker = {.lock = lock}; /* writes to connections that the server is closing */
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, keep_asking, &asker) != 0)
            return 26;
    for (int64_t start_ms = now_ms(); now_ms() - start_ms < 1000;) {
        cmd_ok(process->world->server, "CLIENT KILL TYPE normal SKIPME yes");
        cmd_ok(process->world->server, "CLIENT KILL TYPE pubsub");
    }
    atomic_store(&asker.stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cmd_ok(process->world->server, "SET other text");
    hf_lock_free(lock);
    if (hf_lock_new(client, "other", &lock) != HF_OK || hf_lock_try(lock) == HF_OK)
        return 23;
    hf_lock_free(lock);
    if (hf_open("redis://:secret@[broken", NULL, &(hf_client *){NULL}) != HF_EINVAL)
        return 24;
    if (hf_close(client) != HF_OK)
        return 25;
    for (int i = 1; i < 65; i++)
        if (before[i].sa_handler != SIG_ERR &&
            (sigaction(i, NULL, &after) != 0 || after.sa_handler != before[i].sa_handler))
            return 100 + i;
    return 0;
}

CASE(R10_every_error_has_a_code_a_name_and_a_text) {
#define CODE(name, number, text) name,
    static const int codes[] = {HF_ERRORS(CODE)};
#undef CODE
    enum { CODES = sizeof codes / sizeof *codes };
    for (int i = 0; i < CODES; i++) {
        assert_true(codes[i] < 0);
        for (int j = 0; j < i; j++) {
            assert_int_not_equal(codes[i], codes[j]);
            assert_string_not_equal(hf_error_name(codes[i]), hf_error_name(codes[j]));
            assert_string_not_equal(hf_strerror(codes[i]), hf_strerror(codes[j]));
        }
    }
}

/* An error of `code` as one line in a buffer of `size`. */
static const char *line_of(int code, const char *node, const char *text, char *line, size_t size) {
    hf_error error = {.code = code};
    snprintf(error.node, sizeof error.node, "%s", node);
    snprintf(error.text, sizeof error.text, "%s", text);
    return hf_error_format(&error, line, size);
}

CASE(R10_an_error_is_one_line) {
    char line[HF_ERROR_FORMAT_MAX], longest[HF_ERROR_FORMAT_MAX], few[8] = "unused";
    assert_string_equal(line_of(HF_EUNREACH, "db:6379", "Connection refused", line, sizeof line),
                        "HF_EUNREACH at db:6379: the server cannot be reached: Connection refused");
    assert_string_equal(line_of(HF_EBUSY, "", hf_strerror(HF_EBUSY), line, sizeof line),
                        "HF_EBUSY: another owner holds the lock");
    assert_string_equal(line_of(-999, "", "", line, sizeof line),
                        "HF_E?: not an error code of this library");
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
#define LENGTH(name, number, text)                                                                 \
    line_of(name, longest, longest, line, sizeof line);                                            \
    assert_true(strlen(line) < sizeof line - 1); /* not cut */
    HF_ERRORS(LENGTH)
#undef LENGTH
    assert_string_equal(line_of(HF_EBUSY, "", "", few, sizeof few), "HF_EBUS");
    assert_string_equal(hf_error_format(NULL, few, 0), "");
    assert_string_equal(few, "HF_EBUS");

    hf_client *client = NULL;
    assert_int_equal(hf_open("redis://[broken", NULL, &client), HF_EINVAL);
    hf_error before = *hf_last_error();
    hf_error_format(NULL, line, sizeof line);
    assert_non_null(strstr(line, "HF_EINVAL: invalid argument: "));
    assert_non_null(strstr(line, before.text));
    assert_memory_equal(hf_last_error(), &before, sizeof before);
}

CASE(R13_no_output_no_handlers_no_sigpipe) {
    server_redis_only(world_server(), "CLIENT KILL");
    struct world w = {.server = server_start(NULL)};
    int pipe_fds[2];
    char text[512];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    struct process process = {.world = &w, .out = pipe_fds[1]};
    pid_t pid = run_child(use_the_library, &process);
    close(pipe_fds[1]);
    ssize_t got = read(pipe_fds[0], text, sizeof text - 1); /* until the child has ended */
    assert_true(expect_exit(pid, 0, HANG_MS));
    if (got != 0)
        fail_msg("it printed: %.*s", (int)got, text);
    close(pipe_fds[0]);
    server_free(w.server);
}

RUN_CASES(world_start_server, world_stop_server)
