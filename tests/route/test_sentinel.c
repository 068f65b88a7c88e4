/* first look */
#include "support/watched.h"
#include "support/wait.h"
#include <holdfast/holdfast.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stddef.h>
#include <cmocka.h>

static void logit(hf_log_level level, const char *m, void *u) { (void)u; fprintf(stderr, "%lld [%d] %s\n", (long long)now_ms(), level, m); }
static void on_event(hf_lock *l, const hf_event *e, void *u) { (void)l;(void)u; fprintf(stderr, "%lld EVENT %d %s\n", (long long)now_ms(), e->kind, e->reason); }

static void looks(void **state) {
    (void)state;
    int64_t t0 = now_ms();
    struct watched *w = watched_start(NULL);
    fprintf(stderr, "fixture %lld ms, %s\n", (long long)(now_ms() - t0), watched_url(w));
    hf_options o = HF_OPTIONS_INIT;
    o.log = logit;
    hf_client *c; hf_lock *l;
    assert_int_equal(hf_open(watched_url(w), &o, &c), HF_OK);
    t0 = now_ms();
    int err = hf_ping(c);
    fprintf(stderr, "ping %d %s in %lld\n", err, hf_last_error()->text, (long long)(now_ms() - t0));
    assert_int_equal(err, HF_OK);
    assert_int_equal(hf_lock_new(c, "x", &l), HF_OK);
    hf_lock_on_lost(l, on_event, NULL);
    assert_int_equal(hf_lock_acquire(l), HF_OK);
    sleep_ms(1500);
    struct server *old = watched_primary(w);
    fprintf(stderr, "%lld kill\n", (long long)now_ms());
    server_kill(old);
    struct server *new = watched_wait_switch(w, old);
    fprintf(stderr, "%lld switched\n", (long long)now_ms());
    t0 = now_ms();
    err = hf_lock_release(l);
    fprintf(stderr, "release %d %s in %lld\n", err, hf_last_error()->text, (long long)(now_ms() - t0));
    assert_int_equal(err, HF_OK);
    assert_false(key_exists(new, "x"));
    assert_int_equal(hf_lock_acquire(l), HF_OK);
    server_kill(new);
    assert_int_equal(hf_lock_release(l), HF_OK);
    watched_heal(w);
    hf_lock_free(l);
    hf_close(c);
    watched_free(w);
}
int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(looks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
