/* The scenes of lost replies and late copies: both forms of the verbs, and counts that are exact.
 *
 * Included by test_faults_replies.c and test_faults_late.c alone. */
#ifndef HF_TEST_LOCK_FORMS_H
#define HF_TEST_LOCK_FORMS_H

#include "support/world.h"

/* Runs each scene through both forms of the verbs. */
struct form {
    const char *name;
    int (*acquire)(struct world *w, int64_t wait_ms);
    int (*release)(struct world *w);
};

static int acquire_sync(struct world *w, int64_t wait_ms) {
    return hf_lock_acquire_for(w->lock, wait_ms);
}

static int release_sync(struct world *w) {
    return hf_lock_release(w->lock);
}

static int acquire_async(struct world *w, int64_t wait_ms) {
    return world_acquire_async(w->lock, 0, wait_ms, NULL);
}

static int release_async(struct world *w) {
    return world_release_async(w->lock, hf_owner_self(), NULL);
}

static const struct form forms[] = {{"synchronous", acquire_sync, release_sync},
                                    {"asynchronous", acquire_async, release_async}};

/* NOLINTBEGIN(bugprone-macro-parentheses): it names a variable */
#define FOR_EACH_FORM(form)                                                                        \
    for (const struct form *form = forms; form < forms + sizeof forms / sizeof forms[0]; form++)
/* NOLINTEND(bugprone-macro-parentheses) */

#define BRIEF_MS WORLD_BRIEF_MS

/* For scenes in which nobody answers. */
static inline void begin_briefly(struct world *w) {
    hf_options options = world_options();
    options.cmd_timeout_ms = BRIEF_MS;
    world_begin(w, &options);
}

/* Holds it `count` times; the commands used are warm on the lane of the form afterwards. */
static inline void hold(struct world *w, const struct form *form, int count) {
    assert_int_equal(form->acquire(w, 0), HF_OK);
    assert_int_equal(form->release(w), HF_OK);
    for (int i = 0; i < count; i++)
        assert_int_equal(form->acquire(w, 0), HF_OK);
    assert_int_equal(world_count(w, w->owner), count);
}

/* Releases it `count` times: each but the last leaves one less, the last one frees it. */
static inline void release_exactly(struct world *w, const struct form *form, int count) {
    for (int left = count; left > 0; left--) {
        assert_int_equal(world_count(w, w->owner), left);
        assert_int_equal(form->release(w), HF_OK);
    }
    assert_true(world_free(w));
    assert_int_equal(form->release(w), HF_ENOTOWNER);
    assert_int_equal(world_keys(w->server), 0);
    assert_int_equal(world_stats(w->client).holds, 0);
}

#endif
