/*
 * holdfast::mutex with the guards of the standard library, against a real server.
 *
 * Who holds what is asked of the server, not of the objects under test. `rival` is another client,
 * as in another process; threads of one client are rivals as well, since each thread is an owner.
 */
#include "cxx/cxx.hpp"

#include <memory>
#include <vector>

namespace {

using namespace test;

bool held(const char *name) {
    return key_exists(redis, name);
}

struct two_clients {
    holdfast::client ours{url()}, theirs{url()};
    holdfast::mutex mutex{ours, "guarded"}, rival{theirs, "guarded"};
};

/* ---- Guards ---------------------------------------------------------------------------------- */

void lock_guard_holds_for_its_scope(void **) {
    two_clients c;
    {
        std::lock_guard<holdfast::mutex> guard(c.mutex);
        assert_true(held("guarded"));
        assert_false(c.rival.try_lock());
    }
    assert_false(held("guarded"));
    assert_true(c.rival.try_lock());
    c.rival.unlock();
}

void a_guard_ends_its_hold_when_an_exception_passes(void **) {
    two_clients c;
    try {
        std::lock_guard<holdfast::mutex> guard(c.mutex);
        throw std::logic_error("in between");
    } catch (const std::logic_error &) {
        assert_false(held("guarded"));
    }
}

/* A silent server does not mean that another owner has the lock. */
void a_try_throws_if_the_server_is_silent(void **) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 1500;
    holdfast::client client(url(), options);
    holdfast::mutex mutex(client, "guarded");
    assert_true(mutex.try_lock());
    mutex.unlock();
    server_freeze(redis);
    assert_int_equal(thrown_by([&] { mutex.try_lock(); }), HF_EUNREACH);
    assert_int_equal(thrown_by([&] { mutex.try_lock_for(10ms); }), HF_EUNREACH);
    server_unfreeze(redis);
}

void guards_nest(void **) {
    two_clients c;
    std::unique_lock<holdfast::mutex> outer(c.mutex);
    {
        std::lock_guard<holdfast::mutex> inner(c.mutex);
        assert_int_equal(c.mutex.hold_count(), 2);
    }
    assert_int_equal(c.mutex.hold_count(), 1);
    assert_true(c.mutex.is_mine());
    outer.unlock();
    assert_false(held("guarded"));
}

void unique_lock_waits_no_longer_than_notified(void **) {
    two_clients c;
    std::lock_guard<holdfast::mutex> holder(c.rival);

    auto begin = steady_clock::now();
    std::unique_lock<holdfast::mutex> timed(c.mutex, passing);
    assert_false(timed.owns_lock());
    assert_true(steady_clock::now() - begin >= passing);

    begin = steady_clock::now();
    std::unique_lock<holdfast::mutex> until(c.mutex, begin + passing);
    assert_false(until.owns_lock());
    assert_true(steady_clock::now() - begin >= passing);

    auto wall = system_clock::now();
    assert_false(c.mutex.try_lock_until(wall + passing));
    assert_true(system_clock::now() >= wall + passing);

    assert_false(c.mutex.try_lock_until(steady_clock::now() - 1h));
    assert_false(c.mutex.try_lock_until(steady_clock::time_point::min()));
    assert_false(std::unique_lock<holdfast::mutex>(c.mutex, std::try_to_lock).owns_lock());
}

void waiting_ends_when_the_other_unlocks(void **) {
    two_clients c;
    c.rival.lock();
    auto waiter = std::async(std::launch::async, [&c] {
        bool got = c.mutex.try_lock_until(system_clock::now() + hang_limit);
        if (got)
            c.mutex.unlock();
        return got;
    });
    assert_true(eventually([&c] { return c.ours.stats().commands >= 2; }));
    c.rival.unlock();
    assert_true(waiter.get());
    assert_int_equal(c.ours.stats().contended, 1);
}

void a_time_already_over_still_takes_a_free_lock(void **) {
    two_clients c;
    assert_true(c.mutex.try_lock_until(system_clock::now() - 1h));
    c.mutex.unlock();
    assert_true(c.mutex.try_lock_for(-1s));
    c.mutex.unlock();
}

void scoped_lock_takes_two_in_any_order(void **) {
    two_clients c;
    holdfast::mutex left(c.ours, "left"), right(c.ours, "right");
    int counter = 0; /* guarded by both */
    auto work = [&counter](holdfast::mutex &a, holdfast::mutex &b) {
        for (int i = 0; i < 50; i++) {
            std::scoped_lock<holdfast::mutex, holdfast::mutex> both(a, b);
            counter++;
        }
    };
    std::thread other([&] { work(right, left); });
    work(left, right);
    other.join();
    assert_int_equal(counter, 100);
    assert_false(held("left"));
    assert_false(held("right"));
}

void threads_of_one_client_exclude_each_other(void **) {
    two_clients c;
    int counter = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            for (int k = 0; k < 50; k++) {
                std::lock_guard<holdfast::mutex> guard(c.mutex);
                counter++;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    assert_int_equal(counter, 200);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

void errors_carry_the_code_and_the_server(void **) {
    two_clients c;
    cmd_ok(redis, "SET guarded something");
    try {
        c.mutex.lock();
        fail();
    } catch (const holdfast::error &error) {
        assert_int_equal(error.code(), HF_EWRONGTYPE);
        assert_non_null(strstr(error.node(), server_socket(redis)));
        assert_non_null(strstr(error.what(), hf_strerror(HF_EWRONGTYPE)));
    }
    assert_int_equal(thrown_by([&] { c.mutex.try_lock(); }), HF_EWRONGTYPE);
    assert_int_equal(thrown_by([&] { c.mutex.try_lock_for(1s); }), HF_EWRONGTYPE);
}

void a_second_acquire_of_a_nonreentrant_mutex_is_thrown(void **) {
    two_clients c;
    holdfast::mutex once(c.ours, "once", HF_PLAIN, HF_NONREENTRANT);
    std::lock_guard<holdfast::mutex> guard(once);
    assert_int_equal(thrown_by([&] { once.lock(); }), HF_EDEADLK);
}

void release_throws_where_unlock_tells(void **) {
    two_clients c;
    assert_int_equal(thrown_by([&] { c.mutex.release(); }), HF_ENOTOWNER);

    std::vector<int> notified;
    c.mutex.on_unlock_error([&notified](const hf_error &error) { notified.push_back(error.code); });
    c.mutex.unlock();
    assert_int_equal(notified.size(), 1);
    assert_int_equal(notified[0], HF_ENOTOWNER);

    {
        std::lock_guard<holdfast::mutex> guard(c.mutex);
        cmd_ok(redis, "DEL guarded");
    }
    assert_int_equal(notified.size(), 2);
    assert_int_equal(notified[1], HF_ELOST);

    std::unique_lock<holdfast::mutex> guard(c.mutex);
    cmd_ok(redis, "DEL guarded");
    assert_int_equal(thrown_by([&] { guard.release()->release(); }), HF_ELOST);
    assert_int_equal(notified.size(), 2);
}

void unlock_without_a_handler_is_quiet(void **) {
    two_clients c;
    {
        std::lock_guard<holdfast::mutex> guard(c.mutex);
        cmd_ok(redis, "DEL guarded");
    }
    assert_int_equal(c.ours.stats().losses, 1);
}

/* ---- Loss ------------------------------------------------------------------------------------ */

hf_options quick_watchdog() {
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = ENDURING_MS;
    return options;
}

void on_lost_is_notified_also_after_a_move(void **) {
    holdfast::client client(url(), quick_watchdog());
    holdfast::mutex first(client, "guarded");
    std::promise<hf_event> lost;
    first.on_lost([&lost](const hf_event &event) {
        if (event.kind == HF_EVENT_LOST)
            lost.set_value(event);
    });
    holdfast::mutex moved(std::move(first));
    moved.lock();
    cmd_ok(redis, "DEL guarded");
    auto notification = lost.get_future();
    assert_true(notification.wait_for(hang_limit) == std::future_status::ready);
    assert_true(notification.get().owner == hf_owner_self());
    assert_int_equal(moved.remaining().count(), 0);
    assert_int_equal(thrown_by([&] { moved.release(); }), HF_ELOST);
}

void a_callback_may_end_itself_and_its_mutex(void **) {
    holdfast::client client(url(), quick_watchdog());
    auto mutex = std::make_unique<holdfast::mutex>(client, "guarded");
    std::promise<std::string> said;
    mutex->on_lost([&, text = std::string("its own memory is still there")](const hf_event &) {
        mutex->on_lost(nullptr);
        mutex.reset();
        said.set_value(text);
    });
    mutex->lock();
    cmd_ok(redis, "DEL guarded");
    auto notification = said.get_future();
    assert_true(notification.wait_for(hang_limit) == std::future_status::ready);
    assert_string_equal(notification.get().c_str(), "its own memory is still there");
}

void assigning_ends_the_former_callback(void **) {
    holdfast::client client(url(), quick_watchdog());
    std::atomic<int> former{0}, later{0};
    holdfast::mutex mutex(client, "other");
    mutex.on_lost([&](const hf_event &) { former++; });
    holdfast::mutex replacement(client, "guarded");
    replacement.on_lost([&](const hf_event &event) { later += event.kind == HF_EVENT_LOST; });
    mutex = std::move(replacement);
    mutex.lock();
    cmd_ok(redis, "DEL guarded");
    assert_true(eventually([&] { return later == 1; }));
    assert_int_equal(former, 0);
}

/* ---- The rest -------------------------------------------------------------------------------- */

void a_fixed_lease_is_not_renewed(void **) {
    two_clients c;
    c.mutex.set_lease(5s);
    std::lock_guard<holdfast::mutex> guard(c.mutex);
    assert_true(c.mutex.ttl() > 0ms && c.mutex.ttl() <= 5s);
    assert_true(c.mutex.remaining() <= 5s);
    c.mutex.extend(20s);
    assert_true(c.mutex.ttl() > 5s);
    hf_extend_options shorter = HF_EXTEND_OPTIONS_INIT;
    shorter.mode = HF_EXTEND_SET;
    shorter.lease_ms = 4000;
    assert_true(c.mutex.extend(shorter).remaining_ms <= 4000);
    assert_true(c.mutex.ttl() <= 4s);
    c.mutex.forget(); /* not renewed anyway */
    assert_true(c.mutex.is_mine());
}

void acquire_with_options_answers_all(void **) {
    two_clients c;
    holdfast::mutex fenced(c.ours, "fenced", HF_PLAIN, HF_FENCED);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = 7;
    hf_result result = fenced.acquire(options);
    assert_int_equal(result.owner, 7);
    assert_int_equal(result.count, 1);
    assert_true(result.token > 0);
    assert_int_equal(fenced.token(7), result.token);
    assert_true(fenced.is_mine(7));

    options.owner = 8;
    options.wait_ms = 0;
    assert_false(fenced.try_acquire(options).has_value());
    assert_int_equal(thrown_by([&] { fenced.acquire(options); }), HF_EBUSY);
    fenced.release(7);
    assert_true(fenced.try_acquire(options)->token > result.token);
    assert_true(fenced.break_lock());
    assert_false(fenced.is_locked());
    assert_string_equal(std::string(fenced.name()).c_str(), "fenced");
}

void a_switch_cancels_a_wait(void **) {
    two_clients c;
    std::lock_guard<holdfast::mutex> holder(c.rival);
    holdfast::cancel_switch cancel;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.cancel = cancel.native_handle();
    auto waiter = std::async(std::launch::async,
                             [&] { return thrown_by([&] { c.mutex.acquire(options); }); });
    assert_true(eventually([&c] { return c.ours.stats().commands >= 2; }));
    cancel.fire();
    assert_int_equal(waiter.get(), HF_ECANCELED);
}

void operations_complete_with_a_function(void **) {
    two_clients c;
    std::promise<hf_result> acquired, released;
    auto only_movable = std::make_unique<int>(5);
    holdfast::op op =
        c.mutex.acquire_start(HF_ACQUIRE_OPTIONS_INIT,
                              [&acquired, kept = std::move(only_movable)](const hf_result &result) {
                                  assert_int_equal(*kept, 5);
                                  acquired.set_value(result);
                              });
    hf_result result = acquired.get_future().get();
    assert_int_equal(result.code, HF_OK);
    assert_int_equal(op.wait().owner, result.owner);
    assert_true(held("guarded"));

    c.mutex.release_start(result.owner, [&](const hf_result &end) { released.set_value(end); });
    assert_int_equal(released.get_future().get().code, HF_OK);
    assert_false(held("guarded"));
}

void a_started_operation_can_be_cancelled(void **) {
    two_clients c;
    std::lock_guard<holdfast::mutex> holder(c.rival);
    std::promise<int> ended;
    holdfast::op op =
        c.mutex.acquire_start(HF_ACQUIRE_OPTIONS_INIT,
                              [&ended](const hf_result &result) { ended.set_value(result.code); });
    assert_false(op.wait_for(1ms).has_value());
    op.cancel();
    assert_int_equal(ended.get_future().get(), HF_ECANCELED);
    assert_int_equal(op.wait().code, HF_ECANCELED);
}

void an_abandoned_operation_leaves_nothing(void **) {
    two_clients c;
    auto alive = std::make_shared<int>(0);
    {
        std::lock_guard<holdfast::mutex> holder(c.rival);
        holdfast::op op = c.mutex.acquire_start(HF_ACQUIRE_OPTIONS_INIT,
                                                [alive](const hf_result &) { ++*alive; });
        holdfast::op moved = std::move(op);
        assert_true(moved.abandon());
        assert_int_equal(alive.use_count(), 1);
        assert_true(moved.abandon() && op.abandon());
    }
    c.rival.lock(); /* nobody is in its way */
    c.rival.unlock();
    assert_int_equal(*alive, 0);

    std::promise<void> ended;
    holdfast::op op = c.mutex.acquire_start(
        HF_ACQUIRE_OPTIONS_INIT, [&ended, alive](const hf_result &) { ended.set_value(); });
    ended.get_future().get();
    assert_false(op.abandon());
    assert_true(eventually([&] { return alive.use_count() == 1; }));
    assert_true(held("guarded"));
}

void a_client_can_begin_to_close(void **) {
    holdfast::client client(url());
    std::promise<void> closed;
    client.close_start([](void *user) { static_cast<std::promise<void> *>(user)->set_value(); },
                       &closed);
    closed.get_future().get();
    assert_null(client.native_handle());
}

void what_is_seen_becomes_json(void **) {
    two_clients c;
    std::lock_guard<holdfast::mutex> guard(c.mutex);
    hf_lock_info *info = nullptr;
    assert_int_equal(hf_lock_inspect(c.mutex.native_handle(), &info), HF_OK);
    std::string text = holdfast::json(*info, "guarded");
    hf_lock_info_free(info);
    assert_true(text.find("\"guarded\"") != std::string::npos);

    hf_fleet *fleet = nullptr;
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    assert_int_equal(hf_survey(c.theirs.native_handle(), &options, &fleet), HF_OK);
    assert_int_equal(holdfast::json(*fleet).front(), '{');
    hf_fleet_free(fleet);
}

void manual_dispatch_runs_callbacks_here(void **) {
    hf_options options = HF_OPTIONS_INIT;
    options.flags = HF_MANUAL_DISPATCH;
    holdfast::client client(url(), options);
    assert_true(client.dispatch_fd() >= 0);
    holdfast::mutex mutex(client, "guarded");
    std::thread::id ran_on;
    mutex.acquire_start(HF_ACQUIRE_OPTIONS_INIT,
                        [&](const hf_result &) { ran_on = std::this_thread::get_id(); });
    while (ran_on == std::thread::id())
        client.dispatch(hang_limit);
    assert_true(ran_on == std::this_thread::get_id());
    assert_int_equal(client.dispatch(), 0);
}

void a_mutex_may_outlive_its_client(void **) {
    auto client = std::make_unique<holdfast::client>(url());
    holdfast::mutex mutex(*client, "guarded");
    mutex.on_lost([](const hf_event &) {});
    assert_int_equal(client->id().size(), 36);
    client->ping();
    client.reset();
}

} // namespace

#define TEST(name) cmocka_unit_test_setup(name, empty_server)

int main() {
    const struct CMUnitTest tests[] = {
        TEST(lock_guard_holds_for_its_scope),
        TEST(a_guard_ends_its_hold_when_an_exception_passes),
        TEST(a_try_throws_if_the_server_is_silent),
        TEST(guards_nest),
        TEST(unique_lock_waits_no_longer_than_notified),
        TEST(waiting_ends_when_the_other_unlocks),
        TEST(a_time_already_over_still_takes_a_free_lock),
        TEST(scoped_lock_takes_two_in_any_order),
        TEST(threads_of_one_client_exclude_each_other),
        TEST(errors_carry_the_code_and_the_server),
        TEST(a_second_acquire_of_a_nonreentrant_mutex_is_thrown),
        TEST(release_throws_where_unlock_tells),
        TEST(unlock_without_a_handler_is_quiet),
        TEST(on_lost_is_notified_also_after_a_move),
        TEST(a_callback_may_end_itself_and_its_mutex),
        TEST(assigning_ends_the_former_callback),
        TEST(a_fixed_lease_is_not_renewed),
        TEST(acquire_with_options_answers_all),
        TEST(a_switch_cancels_a_wait),
        TEST(operations_complete_with_a_function),
        TEST(a_started_operation_can_be_cancelled),
        TEST(an_abandoned_operation_leaves_nothing),
        TEST(a_client_can_begin_to_close),
        TEST(what_is_seen_becomes_json),
        TEST(manual_dispatch_runs_callbacks_here),
        TEST(a_mutex_may_outlive_its_client),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
