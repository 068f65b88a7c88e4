/*
 * One mutex out of many in C++: mutex::multi() with the standard's guards. What it does on the wire is
 * tested in C; this is about the types.
 */
#include "cxx/cxx.hpp"

#include <type_traits>
#include <vector>

namespace {

using namespace test;

struct three {
    holdfast::client ours{url()}, theirs{url()};
    holdfast::mutex a{ours, "a"}, b{ours, "b"}, c{ours, "c"};
    holdfast::mutex rival{theirs, "b"};
};

int locked() {
    return key_exists(redis, "a") + key_exists(redis, "b") + key_exists(redis, "c");
}

void guards_hold_all_or_none(void **) {
    three t;
    holdfast::mutex all = holdfast::mutex::multi(t.a, t.b, t.c);
    static_assert(std::is_same_v<decltype(all), holdfast::mutex>);
    assert_true(all.name() == "a b c");
    {
        std::lock_guard guard(all);
        assert_int_equal(locked(), 3);
        assert_false(t.rival.try_lock());
        assert_true(all.is_mine() && t.b.is_mine());
        assert_true(all.remaining() > 0ms);
    }
    assert_int_equal(locked(), 0);
    std::lock_guard guard(t.rival);
    assert_false(all.try_lock());
    assert_false(all.try_lock_for(20ms));
    assert_false(std::unique_lock(all, 20ms).owns_lock());
    assert_int_equal(locked(), 1);
}

void members_may_be_destroyed(void **) {
    holdfast::client client(url());
    auto all = [&client] {
        holdfast::mutex a(client, "a"), b(client, "b");
        return holdfast::mutex::multi(a, b);
    }();
    std::scoped_lock guard(all);
    assert_int_equal(locked(), 2);
}

/* Locks of several types, and such a lock inside another. */
void of_all_types(void **) {
    three t;
    holdfast::shared_mutex config(t.ours, "config"), other(t.ours, "other");
    holdfast::mutex fair(t.theirs, "fair", HF_FAIR);
    auto all =
        holdfast::mutex::multi(holdfast::mutex::multi(t.a, t.b), config, other.reader(), fair);
    assert_true(all.name() == "a b config other fair");
    std::unique_lock guard(all);
    assert_true(config.writer().is_mine());
    assert_true(other.reader().is_mine());
    guard.unlock();
    assert_false(config.writer().is_locked());
}

void as_many_as_there_are(void **) {
    holdfast::client client(url());
    std::vector<holdfast::mutex> mutexes;
    std::vector<const holdfast::mutex *> members;
    for (const char *name : {"a", "b", "c"})
        mutexes.emplace_back(client, name);
    for (const auto &mutex : mutexes)
        members.push_back(&mutex);
    auto all = holdfast::mutex::multi(members);
    std::lock_guard guard(all);
    assert_int_equal(locked(), 3);
}

void what_is_refused(void **) {
    three t;
    assert_int_equal(
        thrown_by([] { holdfast::mutex::multi(std::vector<const holdfast::mutex *>{}); }),
        HF_EINVAL);
    assert_int_equal(thrown_by([&t] { holdfast::mutex::multi(t.a, t.a); }), HF_EINVAL);
    auto all = holdfast::mutex::multi(t.a, t.b);
    assert_int_equal(thrown_by([&all] { all.break_lock(); }), HF_ENOTSUP);
    assert_int_equal(thrown_by([&all] { all.token(); }), HF_ENOTSUP);
    assert_int_equal(thrown_by([&all] { all.release(); }), HF_ENOTOWNER);
}

void a_loss_of_one_is_a_loss(void **) {
    three t;
    std::atomic<int> lost{0}, complaints{0};
    auto all = holdfast::mutex::multi(t.a, t.b, t.c);
    all.on_lost([&lost](const hf_event &event) { lost += event.kind == HF_EVENT_LOST; });
    all.on_unlock_error(
        [&complaints](const hf_error &error) { complaints += error.code == HF_ELOST; });
    {
        std::lock_guard guard(all);
        t.b.break_lock();
        assert_true(eventually([&lost] { return lost == 1; }));
        assert_true(eventually([] { return locked() == 0; }));
    }
    assert_int_equal(complaints.load(), 1);
}

} // namespace

#define TEST(name) cmocka_unit_test_setup(name, empty_server)

int main() {
    const struct CMUnitTest tests[] = {
        TEST(guards_hold_all_or_none),
        TEST(members_may_be_destroyed),
        TEST(of_all_types),
        TEST(as_many_as_there_are),
        TEST(what_is_refused),
        TEST(a_loss_of_one_is_a_loss),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
