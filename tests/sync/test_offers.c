/*
 * What the Redis engine does not offer for a thing is refused, by the table of its kind or by that of
 * its acts: the core may ask for anything.
 */
#include "sync/scene.h"

#include "api/handle.h"

static int run(struct hfi_handle *handle, const struct hfi_verb *verb, enum hfi_act act) {
    struct hfi_op_args args;
    assert_int_equal(hfi_act_args(handle, act, 1, &args), HF_OK);
    args.verb = verb;
    args.owner = 1;
    return hfi_run(handle, HF_OK, &args);
}

static void a_thing_is_no_lock(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    struct hfi_handle *things[] = {&s.sem->handle, &s.latch->handle};
    for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
        const struct hfi_call_ops *ops = things[i]->kind->ops;
        assert_true(ops->release == NULL && ops->extend == NULL);
        assert_int_equal(run(things[i], &hfi_verb_force, 0), HF_ENOTSUP);
        assert_int_equal(run(things[i], &hfi_verb_ask, 0), HF_ENOTSUP);
        assert_int_equal(run(things[i], &hfi_verb_inspect, 0), HF_ENOTSUP);
    }
    scene_end(&s);
}

static void an_act_is_offered_or_refused(void **state) {
    (void)state;
    struct scene s;
    hf_lock *lock;
    scene_begin(&s, NULL);
    assert_int_equal(hf_lock_new(s.client, "lock", &lock), HF_OK);
    assert_int_equal(run(&s.sem->handle, &hfi_verb_act, HFI_ACT_COUNT_DOWN), HF_ENOTSUP);
    assert_int_equal(run(&s.sem->handle, &hfi_verb_act, HFI_ACT_RESET), HF_ENOTSUP);
    assert_int_equal(run(&s.latch->handle, &hfi_verb_act, HFI_ACT_DRAIN), HF_ENOTSUP);
    assert_int_equal(run(&lock->handle, &hfi_verb_act, HFI_ACT_SET), HF_ENOTSUP);
    assert_int_equal(run(&s.sem->handle, &hfi_verb_act, HFI_ACT_SET), HF_OK);
    hf_lock_free(lock);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thing_is_no_lock),
        cmocka_unit_test(an_act_is_offered_or_refused),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
