/*
 * A real server behind a wire that spoils what it says: answers that come a byte at a time, and
 * answers with a few bytes changed, left out, doubled or cut off. Whatever arrives, each call ends
 * in time and the process does not grow. Servers that are wrong by themselves are in
 * test_hostile.c.
 *
 * The fuzzing prints its seed; HF_SEED plays it again.
 */
#include "net/scene.h"
#include "support/case.h"
#include "support/random.h"

CASE(a_byte_at_a_time) {
    own_proxy *proxy = proxy_start(server_socket(scene_server()));
    proxy_trickle(proxy, 1);
    hf_options options = scene_options();
    options.cmd_timeout_ms = HANG_MS; /* the handshake's INFO has hundreds of bytes */
    options.connect_timeout_ms = HANG_MS;
    own_client *client = scene_open(proxy_url(proxy), &options);
    own_lock *lock = scene_lock(client, "trickle");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    int64_t count = 0;
    assert_int_equal(hf_lock_hold_count(lock, &count), HF_OK);
    assert_int_equal(count, 1);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

static const char *const models[] = {
    "*3\r\n:1\r\n:1\r\n:1700000000000\r\n",
    "*3\r\n:0\r\n:5000\r\n:1700000000000\r\n",
    "*2\r\n:1\r\n:1700000000000\r\n",
    "$5\r\nhello\r\n",
    "-ERR Error running script: x\r\n",
    "-NOSCRIPT No matching script.\r\n",
    "+OK\r\n",
    ":1\r\n",
    "*2\r\n$3\r\nfoo\r\n$1\r\n1\r\n",
    "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n",
};

/* A valid reply with a few bytes changed, left out, doubled or cut off. */
static size_t mutate(uint64_t *random, char out[256]) {
    static const char spice[] = "\r\n*$:+-0123456789\0\xff%~_#,(=>|!";
    const char *model = models[random_next(random) % (sizeof models / sizeof models[0])];
    size_t length = strlen(model);
    memcpy(out, model, length);
    for (uint64_t edits = random_next(random) % 4; edits > 0 && length > 1; edits--) {
        size_t at = random_next(random) % length;
        switch (random_next(random) % 4) {
        case 0:
            out[at] = spice[random_next(random) % (sizeof spice - 1)];
            break;
        case 1:
            memmove(out + at, out + at + 1, length - at - 1);
            length--;
            break;
        case 2:
            memmove(out + at + 1, out + at, length - at);
            length++;
            break;
        default:
            length = at + 1;
        }
    }
    return length;
}

static void one_call(hf_client *client, hf_lock *lock, uint64_t which) {
    bool flag;
    int64_t number;
    hf_lock_info *info = NULL;
    switch (which % 9) {
    case 0:
        hf_lock_try(lock);
        break;
    case 1:
        hf_lock_release(lock);
        break;
    case 2:
        hf_lock_extend(lock, 1000);
        break;
    case 3:
        hf_lock_break(lock, &flag);
        break;
    case 4:
        if (hf_lock_inspect(lock, &info) == HF_OK)
            hf_lock_info_free(info);
        break;
    case 5:
        hf_lock_hold_count(lock, &number);
        break;
    case 6:
        hf_lock_ttl_ms(lock, &number);
        break;
    case 7:
        scene_ping_async(client);
        break;
    default:
        hf_lock_acquire_for(lock, 5);
    }
}

CASE(fuzz_replies) {
    uint64_t random = random_seed();
    int64_t until_ms = now_ms() + (getenv("HF_SOAK") != NULL ? 60000 : 2000);
    hf_options options = scene_options();
    options.cmd_timeout_ms = 50;
    options.connect_timeout_ms = 200;
    options.watchdog_ms = 60;
    size_t rss = scene_rss();
    while (now_ms() < until_ms) {
        own_proxy *proxy = proxy_start(server_socket(scene_server()));
        own_client *client = scene_open(proxy_url(proxy), &options);
        own_lock *lock = scene_lock(client, "fuzz");
        for (int i = 0; i < 30 && now_ms() < until_ms; i++) {
            char bytes[256];
            size_t length = mutate(&random, bytes);
            if (random_next(&random) % 4 != 0)
                proxy_forge_reply(proxy, "", bytes, length);
            int64_t start_ms = now_ms();
            one_call(client, lock, random_next(&random));
            assert_true(now_ms() - start_ms < 10000);
        }
    }
    assert_true(scene_rss() < rss + SCENE_GROWTH_LIMIT);
    cmd_ok(scene_server(), "FLUSHALL");
}

RUN_CASES(scene_start_server, scene_stop_server)
