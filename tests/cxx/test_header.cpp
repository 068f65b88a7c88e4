/*
 * What a compiler can tell of <holdfast/holdfast.hpp>: the named requirements of the standard for
 * its types, what may and what may not throw, and that the initialisers of the C header say the
 * same in both languages. Needs no server.
 */
#include "cxx/cxx.hpp"
#include "cxx/defaults.h"

#include <limits>
#include <shared_mutex>
#include <type_traits>

namespace {

using namespace std::chrono;

/* Lockable and its kin, as far as types can say it. */
template <class, class = void> struct is_lockable : std::false_type {};
template <class T>
struct is_lockable<
    T, std::void_t<decltype(std::declval<T &>().lock()),
                   std::enable_if_t<std::is_same_v<decltype(std::declval<T &>().try_lock()), bool>>,
                   decltype(std::declval<T &>().unlock())>> : std::true_type {};

template <class, class, class = void> struct is_timed : std::false_type {};
template <class T, class Clock>
struct is_timed<
    T, Clock,
    std::enable_if_t<
        std::is_same_v<decltype(std::declval<T &>().try_lock_for(nanoseconds())), bool> &&
        std::is_same_v<decltype(std::declval<T &>().try_lock_for(duration<double>())), bool> &&
        std::is_same_v<decltype(std::declval<T &>().try_lock_until(Clock::now())), bool>>>
    : is_lockable<T> {};

template <class, class, class = void> struct is_shared_timed : std::false_type {};
template <class T, class Clock>
struct is_shared_timed<
    T, Clock,
    std::enable_if_t<
        std::is_same_v<decltype(std::declval<T &>().try_lock_shared()), bool> &&
        std::is_same_v<decltype(std::declval<T &>().try_lock_shared_for(nanoseconds())), bool> &&
        std::is_same_v<decltype(std::declval<T &>().try_lock_shared_until(Clock::now())), bool>>>
    : is_timed<T, Clock> {};

/* The traits themselves know the difference. */
static_assert(is_timed<std::timed_mutex, steady_clock>::value &&
              !is_timed<std::mutex, steady_clock>::value);
static_assert(is_shared_timed<std::shared_timed_mutex, steady_clock>::value);
static_assert(!is_shared_timed<std::timed_mutex, steady_clock>::value);

static_assert(is_timed<holdfast::mutex, steady_clock>::value);
static_assert(is_timed<holdfast::mutex, system_clock>::value);
static_assert(is_shared_timed<holdfast::shared_mutex, steady_clock>::value);
static_assert(is_shared_timed<holdfast::shared_mutex, system_clock>::value);

template <class T> constexpr bool is_move_only() {
    return !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
           std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
           std::is_nothrow_destructible_v<T>;
}
static_assert(is_move_only<holdfast::client>());
static_assert(is_move_only<holdfast::mutex>());
static_assert(is_move_only<holdfast::shared_mutex>());
static_assert(is_move_only<holdfast::semaphore>());
static_assert(is_move_only<holdfast::permits>());
static_assert(is_move_only<holdfast::permit>());
static_assert(is_move_only<holdfast::latch>());
static_assert(is_move_only<holdfast::op>());
static_assert(is_move_only<holdfast::cancel_switch>());

/* Guards unlock in their destructors. */
static_assert(noexcept(std::declval<holdfast::mutex &>().unlock()));
static_assert(noexcept(std::declval<holdfast::shared_mutex &>().unlock()));
static_assert(noexcept(std::declval<holdfast::shared_mutex &>().unlock_shared()));

static_assert(std::is_base_of_v<std::runtime_error, holdfast::error>);
static_assert(std::is_nothrow_copy_constructible_v<holdfast::error>); /* as of every exception */

template <class T> bool same_bytes(const T &c, T (*cxx)()) {
    using maker = T (*)();
    volatile maker called = cxx; /* a real call: a copy of the fields alone lacks the padding */
    T made = called();
    return made.size == sizeof made && memcmp(&c, &made, sizeof made) == 0;
}

void initialisers_say_the_same_in_both_languages(void **) {
    assert_true(same_bytes(c_options, hf_options_init));
    assert_true(same_bytes(c_lock, hf_lock_options_init));
    assert_true(same_bytes(c_acquire, hf_acquire_options_init));
    assert_true(same_bytes(c_result, hf_result_init));
    assert_true(same_bytes(c_wait, hf_wait_options_init));
    assert_true(same_bytes(c_permits, hf_permits_options_init));
    assert_true(same_bytes(c_extend, hf_extend_options_init));
    assert_true(same_bytes(c_stats, hf_stats_init));
}

void initialisers_can_be_used_as_in_C(void **) {
    hf_options options = HF_OPTIONS_INIT;
    const hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    hf_result result = HF_RESULT_INIT;
    hf_fence fence = HF_FENCE_INIT;
    assert_int_equal(options.watchdog_ms, 30000);
    assert_int_equal(acquire.wait_ms, HF_FOREVER);
    assert_int_equal(result.size, sizeof result);
    assert_int_equal(fence.highest, 0);
}

void times_are_rounded_up(void **) {
    using holdfast::detail::whole_ms;
    assert_int_equal(whole_ms(0s), 0);
    assert_int_equal(whole_ms(-1ms), 0);
    assert_int_equal(whole_ms(1ns), 1);
    assert_int_equal(whole_ms(1ms), 1);
    assert_int_equal(whole_ms(1001us), 2);
    assert_int_equal(whole_ms(2h), 7200000);
    assert_int_equal(whole_ms(duration<double>(0.0015)), 2);
    assert_int_equal(whole_ms(hours::max()), HF_FOREVER);
    assert_int_equal(whole_ms(nanoseconds::max()), 9223372036855);
    assert_int_equal(whole_ms(nanoseconds::min()), 0);
    assert_int_equal(whole_ms(duration<double>(std::numeric_limits<double>::infinity())),
                     HF_FOREVER);
    assert_int_equal(whole_ms(duration<double>(std::numeric_limits<double>::quiet_NaN())), 0);
}

void an_error_has_all_that_C_has(void **) {
    hf_error details = {};
    details.code = HF_EUNREACH;
    details.sys_errno = 111;
    strcpy(details.node, "db.example:6379");
    strcpy(details.text, "connection refused");
    holdfast::error error(details);
    assert_int_equal(error.code(), HF_EUNREACH);
    assert_int_equal(error.sys_errno(), 111);
    assert_string_equal(error.node(), "db.example:6379");
    assert_string_equal(error.text(), "connection refused");
    assert_string_equal(
        error.what(),
        "HF_EUNREACH at db.example:6379: the server cannot be reached: connection refused");
}

void a_bad_url_is_thrown(void **) {
    try {
        holdfast::client client("redis://localhost:port");
        fail();
    } catch (const holdfast::error &error) {
        assert_int_equal(error.code(), HF_EINVAL);
        assert_non_null(strstr(error.what(), "port"));
    }
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initialisers_say_the_same_in_both_languages),
        cmocka_unit_test(initialisers_can_be_used_as_in_C),
        cmocka_unit_test(times_are_rounded_up),
        cmocka_unit_test(an_error_has_all_that_C_has),
        cmocka_unit_test(a_bad_url_is_thrown),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
