/* A quorum in C++: a client of several urls, whose results say how many servers have granted a lock. */
#include "cxx.hpp"

using namespace test;

namespace {

struct server *servers[3];

int start_servers(void **) {
    for (struct server *&one : servers)
        one = server_start(nullptr);
    return 0;
}

int stop_servers(void **) {
    for (struct server *one : servers)
        server_free(one);
    return 0;
}

std::string urls() {
    std::string all;
    for (struct server *one : servers)
        all += (all.empty() ? "" : " ") + std::string(server_url(one));
    return all;
}

struct two_quorums {
    static hf_options unguarded() {
        hf_options options = HF_OPTIONS_INIT;
        options.restart_guard_ms = 0; /* the servers have just been started */
        return options;
    }
    holdfast::client ours{urls(), unguarded()}, theirs{urls(), unguarded()};
    holdfast::mutex mutex{ours, "guarded"}, rival{theirs, "guarded"};
};

void a_majority_is_a_mutex(void **) {
    two_quorums q;
    {
        std::lock_guard<holdfast::mutex> guard(q.mutex);
        assert_true(q.mutex.remaining() > 0ms);
        assert_false(q.rival.try_lock());
    }
    assert_true(q.rival.try_lock_for(hang_limit));
    q.rival.unlock();
}

void results_report_the_votes(void **) {
    two_quorums q;
    hf_result result = q.mutex.acquire();
    assert_in_range(result.votes, 2, 3);
    assert_int_equal(result.servers, 3);
    q.mutex.release();

    std::promise<hf_result> acquired;
    q.mutex.acquire_start(HF_ACQUIRE_OPTIONS_INIT,
                          [&acquired](const hf_result &notified) { acquired.set_value(notified); });
    result = acquired.get_future().get();
    assert_int_equal(result.code, HF_OK);
    assert_in_range(result.votes, 2, 3);
    assert_int_equal(result.servers, 3);
    q.mutex.release(result.owner);
}

void errors_name_the_servers(void **) {
    two_quorums q;
    std::lock_guard<holdfast::mutex> guard(q.mutex);
    assert_int_equal(thrown_by([&] { holdfast::client two("redis://a redis://b"); }), HF_EINVAL);
    assert_int_equal(thrown_by([&] { holdfast::mutex fair(q.ours, "fair", HF_FAIR); }), HF_ENOTSUP);
    assert_false(q.rival.try_lock());
    assert_non_null(std::strstr(hf_last_error()->text, "of 3 granted, 2 needed"));
    assert_non_null(std::strstr(hf_last_error()->text, "; busy:"));
}

} // namespace

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_majority_is_a_mutex),
        cmocka_unit_test(results_report_the_votes),
        cmocka_unit_test(errors_name_the_servers),
    };
    return cmocka_run_group_tests(tests, start_servers, stop_servers);
}
