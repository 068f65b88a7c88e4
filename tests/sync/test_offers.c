/*
 * What the Redis engine does not offer for a thing is refused, by the table of its kind or by that of
 * its acts: the core may ask for anything.
 */
#include "sync/objects.h"

#include "api/handle.h"

static int run(struct hfi_handle *handle, const struct hfi_verb *verb, enum hfi_object_op act) {
    struct hfi_op_args args;
    assert_int_equal(hfi_object_op_args(handle, act, 1, &args), HF_OK);
    args.verb = verb;
    args.owner = 1;
    return hfi_run(handle, HF_OK, &args);
}

OBJECTS_CASE(a_thing_is_no_lock) {
    struct hfi_handle *things[] = {&w->sem->handle, &w->latch->handle};
    for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
        const struct hfi_call_ops *ops = things[i]->kind->ops;
        assert_true(ops->release == NULL && ops->extend == NULL);
        assert_int_equal(run(things[i], &hfi_verb_break, 0), HF_ENOTSUP);
        assert_int_equal(run(things[i], &hfi_verb_query, 0), HF_ENOTSUP);
        assert_int_equal(run(things[i], &hfi_verb_inspect, 0), HF_ENOTSUP);
    }
}

OBJECTS_CASE(an_act_is_offered_or_refused) {
    own_lock *lock;
    assert_int_equal(hf_lock_new(w->client, "lock", &lock), HF_OK);
    assert_int_equal(run(&w->sem->handle, &hfi_verb_object_op, HFI_OBJECT_COUNT_DOWN), HF_ENOTSUP);
    assert_int_equal(run(&w->sem->handle, &hfi_verb_object_op, HFI_OBJECT_RESET), HF_ENOTSUP);
    assert_int_equal(run(&w->latch->handle, &hfi_verb_object_op, HFI_OBJECT_DRAIN), HF_ENOTSUP);
    assert_int_equal(run(&lock->handle, &hfi_verb_object_op, HFI_OBJECT_SET), HF_ENOTSUP);
    assert_int_equal(run(&w->sem->handle, &hfi_verb_object_op, HFI_OBJECT_SET), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
