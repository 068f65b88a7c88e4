/*
 * The C++ types beyond the plain lock: read/write lock with std::shared_lock, fair lock, semaphore,
 * permits and latch, against a real server. C tests cover the wire; these cover the types: which
 * handle a call reaches, what is thrown or returned, and what a scope gives back at its end.
 */
#include "cxx/cxx.hpp"

#include <memory>
#include <poll.h>
#include <shared_mutex>
#include <vector>

namespace {

using namespace test;

/* ---- Read/write ------------------------------------------------------------------------------ */

using reading = std::shared_lock<holdfast::shared_mutex>;
using writing = std::unique_lock<holdfast::shared_mutex>;

struct two_sides {
    holdfast::client ours{url()}, theirs{url()};
    holdfast::shared_mutex mutex{ours, "config"}, rival{theirs, "config"};
};

void many_read_and_nobody_writes(void **) {
    two_sides s;
    reading first(s.mutex), second(s.rival);
    assert_true(first.owns_lock() && second.owns_lock());
    auto another = std::async(std::launch::async, [&s] {
        bool writes = s.mutex.try_lock(), reads = s.mutex.try_lock_shared();
        if (reads)
            s.mutex.unlock_shared();
        return reads && !writes;
    });
    assert_true(another.get());
    first.unlock();
    second.unlock();
}

void one_writes_and_nobody_reads(void **) {
    two_sides s;
    {
        std::lock_guard<holdfast::shared_mutex> guard(s.mutex);
        assert_false(s.rival.try_lock());
        assert_false(s.rival.try_lock_shared());
        assert_false(reading(s.rival, passing).owns_lock());
        assert_false(reading(s.rival, steady_clock::now() + passing).owns_lock());
        assert_false(writing(s.rival, system_clock::now() + passing).owns_lock());
    }
    assert_true(reading(s.rival, hang_limit).owns_lock());
    assert_true(writing(s.rival, hang_limit).owns_lock());
    assert_false(key_exists(redis, "config"));
}

void a_writer_wakes_readers(void **) {
    two_sides s;
    writing writer(s.mutex);
    auto reader =
        std::async(std::launch::async, [&s] { return reading(s.rival, hang_limit).owns_lock(); });
    assert_true(eventually([&s] { return s.theirs.stats().commands >= 2; }));
    assert_true(s.theirs.metrics().find("\n# EOF\n") != std::string::npos);
    writer.unlock();
    assert_true(reader.get());
}

void a_writer_becomes_a_reader_but_not_the_other_way(void **) {
    two_sides s;
    writing writer(s.mutex);
    reading reader(s.mutex);
    writer.unlock();
    assert_true(s.rival.try_lock_shared());
    s.rival.unlock_shared();
    assert_int_equal(thrown_by([&s] { s.mutex.lock(); }), HF_EDEADLK);
    assert_true(s.mutex.reader().is_mine());
    reader.unlock();
    assert_true(s.rival.try_lock());
    s.rival.unlock();
}

void each_side_tells_of_its_loss(void **) {
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = ENDURING_MS;
    holdfast::client client(url(), options);
    holdfast::shared_mutex mutex(client, "config");
    std::atomic<int> lost{0}, notified{0};
    mutex.on_lost([&](const hf_event &event) { lost += event.kind == HF_EVENT_LOST; });
    mutex.on_unlock_error([&](const hf_error &error) { notified += error.code == HF_ELOST; });

    mutex.lock();
    cmd_ok(redis, "FLUSHALL");
    assert_true(eventually([&] { return lost == 1; }));
    mutex.unlock();
    assert_int_equal(notified, 1);

    mutex.lock_shared();
    cmd_ok(redis, "FLUSHALL");
    assert_true(eventually([&] { return lost == 2; }));
    mutex.unlock_shared();
    assert_int_equal(notified, 2);
}

void a_fair_mutex_is_a_mutex(void **) {
    holdfast::client ours(url()), theirs(url());
    holdfast::mutex mutex(ours, "fair", HF_FAIR), rival(theirs, "fair", HF_FAIR);
    std::unique_lock<holdfast::mutex> guard(mutex);
    assert_false(rival.try_lock_for(passing));
    auto next = std::async(std::launch::async, [&rival] {
        return std::unique_lock<holdfast::mutex>(rival, hang_limit).owns_lock();
    });
    assert_true(eventually([&] { return theirs.stats().commands >= 3; }));
    guard.unlock();
    assert_true(next.get());
}

/* ---- Values of a group ----------------------------------------------------------------------- */

void some_values_of_a_group_are_a_mutex(void **) {
    holdfast::client ours{url()}, theirs{url()};
    holdfast::mutex both(ours, "team", {"jack", "mary"}), across(theirs, "team", {"mary", "paul"});
    holdfast::mutex beside(ours, "team", std::vector<std::string_view>{"paul", ""});
    {
        std::scoped_lock guard(both, beside);
        assert_false(across.try_lock());
        assert_true(both.is_mine() && !across.is_mine());
    }
    assert_true(std::unique_lock(across, hang_limit).owns_lock());
    assert_false(key_exists(redis, "team"));
    assert_string_equal(both.name().data(), "team");
    holdfast::mutex overlap(ours, "team", {"jack"});
    std::lock_guard guard(both);
    assert_int_equal(thrown_by([&] { overlap.lock(); }), HF_EDEADLK);
    const std::vector<std::string_view> nothing;
    assert_int_equal(thrown_by([&] { holdfast::mutex none(ours, "team", nothing); }), HF_EINVAL);
}

/* ---- Semaphore ------------------------------------------------------------------------------- */

void a_semaphore_counts(void **) {
    holdfast::client client(url());
    holdfast::semaphore slots(client, "slots");
    assert_true(slots.try_set(3));
    assert_false(slots.try_set(5));
    slots.acquire();
    slots.acquire(2);
    assert_false(slots.try_acquire());
    assert_false(slots.try_acquire_for(passing));
    assert_false(slots.try_acquire_until(system_clock::now() + passing, 2));
    slots.release(2);
    assert_true(slots.try_acquire());
    assert_int_equal(slots.available(), 1);
    slots.add(4);
    assert_int_equal(slots.drain(), 5);
    assert_true(slots.release_if_exists());
    assert_true(slots.remove());
    assert_false(slots.remove());
    assert_false(slots.release_if_exists());
    assert_true(slots.try_set(1, 60s));
    assert_true(pttl(redis, "slots") > 0);
    assert_int_equal(thrown_by([&] { slots.acquire(-1); }), HF_EINVAL);
}

void a_release_wakes_who_waits_for_a_permit(void **) {
    holdfast::client ours(url()), theirs(url());
    holdfast::semaphore slots(ours, "slots"), same_slots(theirs, "slots");
    slots.try_set(0);
    auto waiter = std::async(std::launch::async, [&] {
        return same_slots.try_acquire_until(steady_clock::now() + hang_limit);
    });
    assert_true(eventually([&] { return theirs.stats().commands >= 2; }));
    slots.release();
    assert_true(waiter.get());
}

/* ---- Permits --------------------------------------------------------------------------------- */

void a_permit_is_given_back_at_the_end_of_its_scope(void **) {
    holdfast::client client(url());
    holdfast::permits slots(client, "slots");
    assert_true(slots.try_set(2));
    {
        holdfast::permit first(slots), second(slots);
        assert_int_equal(slots.available(), 0);
        assert_int_equal(slots.taken(), 2);
        assert_false(slots.try_acquire().has_value());
        assert_false(slots.try_acquire_for(passing).has_value());

        holdfast::permit moved(std::move(second));
        assert_int_equal(slots.taken(), 2);
        moved = std::move(first); /* gives back what it had */
        assert_int_equal(slots.taken(), 1);
        assert_int_equal(strlen(moved.id().text), 32);
        moved.release();
        assert_int_equal(slots.taken(), 0);
    }
    assert_int_equal(slots.taken(), 0);
    assert_int_equal(slots.total(), 2);
}

void permits_by_the_dozen(void **) {
    holdfast::client client(url());
    holdfast::permits slots(client, "slots");
    slots.set(3);
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.count = 3;
    options.lease_ms = 60000;
    std::vector<hf_permit_id> ids = slots.acquire(options);
    assert_int_equal(ids.size(), 3);
    assert_true(slots.lease(ids[0]) > 0ms && slots.lease(ids[0]) <= 60s);
    slots.extend(ids[0], 120s);
    assert_true(slots.lease(ids[0]) > 60s);
    slots.release(ids);
    assert_int_equal(slots.available(), 3);
    assert_int_equal(thrown_by([&] { slots.release(ids[0]); }), HF_ENOTOWNER);
    slots.add(1);
    assert_int_equal(slots.total(), 4);
    assert_true(slots.expire(60s));
    assert_true(slots.remove());
}

void a_lost_permit_is_notified_by_its_id(void **) {
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = ENDURING_MS;
    holdfast::client client(url(), options);
    holdfast::permits slots(client, "slots");
    slots.set(1);
    std::promise<std::string> lost;
    slots.on_lost([&lost](const char *id, const hf_event &event) {
        if (event.kind == HF_EVENT_LOST)
            lost.set_value(id);
    });
    int fd = slots.lost_fd();
    hf_permit_id id = slots.acquire();
    cmd_ok(redis, "FLUSHALL");
    auto notification = lost.get_future();
    assert_true(notification.wait_for(hang_limit) == std::future_status::ready);
    assert_string_equal(notification.get().c_str(), id.text);
    struct pollfd ready = {fd, POLLIN, 0};
    assert_int_equal(poll(&ready, 1, 0), 1); /* which comes before the callback */
    assert_int_equal(thrown_by([&] { slots.release(id); }), HF_ELOST);
}

void handles_know_their_names(void **) {
    holdfast::client client(url());
    using namespace std::string_view_literals;
    assert_true(holdfast::mutex(client, "m\0n"sv).name() == "m\0n"sv);
    assert_true(holdfast::semaphore(client, "s").name() == "s");
    assert_true(holdfast::permits(client, "p").name() == "p");
    assert_true(holdfast::latch(client, "l").name() == "l");
}

void a_mutex_takes_options(void **) {
    holdfast::client client(url());
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.flags = HF_SPIN;
    options.spin_max_ms = 20;
    holdfast::mutex spin(client, "spin", options);
    assert_true(spin.try_lock());
    spin.unlock();
    options.flags = HF_SPIN | HF_FENCED;
    assert_int_equal(thrown_by([&] { holdfast::mutex(client, "spin", options); }), HF_ENOTSUP);
    assert_int_equal(thrown_by([&] { client.dispatch_fd(); }), HF_EINVAL);
}

/* ---- Latch ----------------------------------------------------------------------------------- */

void a_latch_opens_for_all(void **) {
    holdfast::client ours(url()), theirs(url());
    holdfast::latch latch(ours, "ready"), same_latch(theirs, "ready");
    assert_true(latch.try_wait()); /* one that does not exist is open */
    assert_true(latch.try_set(2));
    assert_false(latch.try_set(9));
    assert_false(latch.try_wait());
    assert_false(latch.wait_for(passing));
    assert_false(latch.wait_until(system_clock::now() + passing));

    auto waiter = std::async(std::launch::async, [&] { same_latch.wait(); });
    latch.count_down();
    assert_int_equal(latch.count(), 1);
    latch.count_down();
    assert_true(waiter.wait_for(hang_limit) == std::future_status::ready);
    assert_true(latch.wait_for(hang_limit));
    assert_int_equal(latch.count(), 0);
    assert_false(latch.remove());
    assert_int_equal(thrown_by([&] { latch.try_set(0); }), HF_EINVAL);
}

/* ---- Listening ------------------------------------------------------------------------------- */

void a_listener_hears_until_it_is_destroyed(void **) {
    holdfast::client ours(url()), theirs(url());
    holdfast::mutex mutex(theirs, "heard");
    std::atomic<int> listening{0}, released{0};
    auto count = [&](const hf_notification &notification) {
        listening += notification.kind == HF_NOTIFY_SUBSCRIBED;
        released += notification.kind == HF_NOTIFY_RELEASED;
    };
    auto first = std::make_unique<holdfast::listener>(ours, "heard", count);
    holdfast::listener moved(std::move(*first));
    first.reset();
    assert_true(eventually([&] { return listening == 1; }));
    { std::lock_guard<holdfast::mutex> guard(mutex); }
    assert_true(eventually([&] { return released == 1; }));

    std::unique_ptr<holdfast::listener> mortal;
    std::atomic<bool> gone{false};
    moved = holdfast::listener(ours, "another", [](const hf_notification &) {});
    mortal = std::make_unique<holdfast::listener>(ours, "heard",
                                                  [&](const hf_notification &notification) {
                                                      if (notification.kind != HF_NOTIFY_RELEASED)
                                                          return;
                                                      mortal.reset();
                                                      gone = true;
                                                  });
    while (!gone)
        std::lock_guard<holdfast::mutex> guard(mutex);
    assert_null(mortal.get());
    assert_int_equal(released, 1);
    assert_int_equal(thrown_by([&] { holdfast::listener none(ours, "", count); }), HF_EINVAL);
}

} // namespace

#define TEST(name) cmocka_unit_test_setup(name, empty_server)

int main() {
    const struct CMUnitTest tests[] = {
        TEST(many_read_and_nobody_writes),
        TEST(one_writes_and_nobody_reads),
        TEST(a_writer_wakes_readers),
        TEST(a_writer_becomes_a_reader_but_not_the_other_way),
        TEST(each_side_tells_of_its_loss),
        TEST(a_fair_mutex_is_a_mutex),
        TEST(some_values_of_a_group_are_a_mutex),
        TEST(a_semaphore_counts),
        TEST(a_release_wakes_who_waits_for_a_permit),
        TEST(a_permit_is_given_back_at_the_end_of_its_scope),
        TEST(permits_by_the_dozen),
        TEST(a_lost_permit_is_notified_by_its_id),
        TEST(handles_know_their_names),
        TEST(a_mutex_takes_options),
        TEST(a_latch_opens_for_all),
        TEST(a_listener_hears_until_it_is_destroyed),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
