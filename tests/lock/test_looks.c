/*
 * Looks: those who sleep are asked for together, so that a lost message costs nobody more than ten
 * seconds, and a server with many who wait next to nothing.
 *
 * A lock that is gone without a message, or something else under its name, wakes its own waiter and
 * no other; a look that fails, or is answered with nonsense, has all that it was about attempt.
 * Every one of these takes as long as a look lets wait, so they are few, and each is about many.
 */
#include "lock/world.h"
#include "support/memory.h"

#include <stdio.h>
#include <string.h>

#define MANY 120 /* more than go into one look */
#define FEW 4
#define GONE 50     /* the first of them go without a message */
#define REPLACED 10 /* the next are something else then */
#define LOOK hfi_script_look.sha1

/* Through a proxy of their own, for names of their own. */
struct sleepers {
    struct world *w; /* its rival holds what they wait for */
    struct proxy *proxy;
    struct memory memory;
    hf_client *client;
    hf_lock *locks[MANY], *rivals[MANY];
    hf_op *ops[MANY];
    size_t len;
};

static void name_of(const struct sleepers *s, size_t i, char name[64]) {
    snprintf(name, 64, "looked-at-%p-%zu", (const void *)s, i);
}

/* All of them have attempted twice. */
static void fall_asleep(struct sleepers *s, struct world *w, size_t len) {
    memset(s, 0, sizeof *s);
    s->w = w;
    s->len = len;
    s->proxy = proxy_start(server_socket(w->server));
    hf_options options = world_options();
    options.allocator = memory_allocator(&s->memory);
    assert_int_equal(hf_open(proxy_url(s->proxy), &options, &s->client), HF_OK);
    for (size_t i = 0; i < len; i++) {
        char name[64];
        name_of(s, i, name);
        assert_int_equal(hf_lock_new(s->client, name, &s->locks[i]), HF_OK);
        assert_int_equal(hf_lock_new(w->rival, name, &s->rivals[i]), HF_OK);
        assert_int_equal(hf_lock_acquire(s->rivals[i]), HF_OK);
        assert_int_equal(hf_lock_acquire_start(s->locks[i], NULL, NULL, NULL, &s->ops[i]), HF_OK);
    }
    assert_true(proxy_wait_seen(s->proxy, WORLD_ACQUIRE, 2 * len, HANG_MS));
    assert_true(proxy_wait_answered(s->proxy, HANG_MS));
    assert_int_equal(proxy_seen(s->proxy, WORLD_ACQUIRE), 2 * len);
}

static void end(struct sleepers *s) {
    for (size_t i = 0; i < s->len; i++) {
        hf_lock_free(s->locks[i]);
        hf_lock_free(s->rivals[i]);
    }
    assert_int_equal(hf_close(s->client), HF_OK);
    for (size_t i = 0; i < s->len; i++)
        hf_op_free(s->ops[i]);
    assert_int_equal(atomic_load(&s->memory.live), 0);
    proxy_free(s->proxy);
}

static void a_lost_message_costs_ten_seconds_at_most(void **state) {
    (void)state;
    struct world w;
    static struct sleepers s;
    world_begin(&w, NULL);
    fall_asleep(&s, &w, MANY);
    for (size_t i = 0; i < GONE + REPLACED; i++) {
        char name[64];
        name_of(&s, i, name);
        cmd_ok(w.server, "DEL %s", name);
        if (i >= GONE)
            cmd_ok(w.server, "SET %s something", name);
    }
    for (size_t i = 0; i < GONE + REPLACED; i++)
        assert_int_equal(hf_op_wait(s.ops[i], HANG_MS, NULL), i < GONE ? HF_OK : HF_EWRONGTYPE);
    assert_true(proxy_wait_answered(s.proxy, HANG_MS));
    for (size_t i = GONE + REPLACED; i < MANY; i++)
        assert_int_equal(hf_op_wait(s.ops[i], 0, NULL), HF_EPENDING);
    /* who was not concerned has slept on */
    assert_int_equal(proxy_seen(s.proxy, WORLD_ACQUIRE), 2 * MANY + GONE + REPLACED);
    assert_in_range(proxy_seen(s.proxy, LOOK), 1, 8);
    /* and is as awake as ever */
    assert_int_equal(hf_lock_release(s.rivals[MANY - 1]), HF_OK);
    assert_int_equal(hf_op_wait(s.ops[MANY - 1], HANG_MS, NULL), HF_OK);
    end(&s);
    world_end(&w);
}

/* What a hostile server may say; each is for a look at FEW. */
static const char *const nonsense[] = {
    "*2\r\n:7\r\n:1790000000000\r\n",                               /* of another number of locks */
    "*3\r\n:4\r\n:5\r\n:1790000000000\r\n",                         /* of one that is not there */
    "*3\r\n:4\r\n:-1\r\n:1790000000000\r\n",                        /* the same */
    "*2\r\n$1\r\n4\r\n:1790000000000\r\n",                          /* no number */
    "$-1\r\n",                                                      /* nothing */
    "-NOPERM no permissions to run this\r\n",                       /* it does not let us */
    "*7\r\n:4\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1790000000000\r\n", /* too many */
};
#define KINDS (sizeof nonsense / sizeof nonsense[0])

static void whatever_is_answered_they_attempt(void **state) {
    (void)state;
    struct world w;
    static struct sleepers s[KINDS + 1];
    struct sleepers *silent = &s[KINDS];
    world_begin(&w, NULL);
    for (size_t i = 0; i < KINDS; i++) {
        fall_asleep(&s[i], &w, FEW);
        proxy_answer_instead(s[i].proxy, LOOK, nonsense[i], strlen(nonsense[i]));
    }
    fall_asleep(silent, &w, FEW);
    proxy_mute_replies_after(silent->proxy, LOOK); /* and one that is not answered at all */
    for (size_t i = 0; i <= KINDS; i++) {
        assert_true(proxy_wait_seen(s[i].proxy, LOOK, 1, HANG_MS));
        assert_true(proxy_wait_seen(s[i].proxy, WORLD_ACQUIRE, 3 * FEW, HANG_MS));
        for (size_t k = 0; k < FEW; k++)
            assert_int_equal(hf_op_wait(s[i].ops[k], 0, NULL), HF_EPENDING);
    }
    proxy_heal(silent->proxy);
    for (size_t i = 0; i <= KINDS; i++)
        end(&s[i]);
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_message_costs_ten_seconds_at_most),
        cmocka_unit_test(whatever_is_answered_they_attempt),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
