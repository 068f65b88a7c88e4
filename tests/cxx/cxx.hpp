/* What the C++ tests share: cmocka and the fixtures of tests/support, which are C, and a server for
 * a scope.
 *
 * cmocka leaves a failed test by longjmp, past destructors. That leaks, in a test that has failed
 * anyway. */
#ifndef HF_TEST_CXX_HPP
#define HF_TEST_CXX_HPP

#include <holdfast/holdfast.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>
#include <string>
#include <thread>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

extern "C" {
#include "support/server.h"
#include "support/wait.h"
#include <cmocka.h>
}

namespace test {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using std::chrono::system_clock;

constexpr auto hang_limit = 30s;
/* For a wait that is to run out, but not before the server has answered: else it throws. */
constexpr auto passing = 1500ms;

/* One server for all tests of a program; each finds it empty. */
inline struct server *redis;

inline int start_server(void **) {
    redis = server_start(nullptr);
    return 0;
}
inline int stop_server(void **) {
    server_free(redis);
    return 0;
}
inline int empty_server(void **) {
    cmd_ok(redis, "FLUSHALL");
    return 0;
}
inline std::string url() {
    return server_url(redis);
}

/* The code that `call` throws; HF_OK if it does not throw. */
template <class Call> int thrown_by(Call call) {
    try {
        call();
    } catch (const holdfast::error &error) {
        return error.code();
    }
    return HF_OK;
}

template <class Condition> bool eventually(Condition condition) {
    auto end = steady_clock::now() + hang_limit;
    while (!condition()) {
        if (steady_clock::now() > end)
            return false;
        std::this_thread::sleep_for(1ms); // the C helpers are not seen from here
    }
    return true;
}

} // namespace test
#endif
