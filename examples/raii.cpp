/*
 * The first lock in C++: a guard that releases it, a limit for the wait, and a loss that is noticed.
 *
 *     c++ -std=c++17 raii.cpp $(pkg-config --cflags --libs holdfast)
 *     ./a.out redis://localhost 5            (without a url: HOLDFAST_URL; seconds of work)
 *
 * It exits with 1 if the lock was not acquired, and with 3 if it was lost during the work: try
 * `holdfast unlock --force example` meanwhile.
 */
#include <holdfast/holdfast.hpp>

#include <atomic>
#include <chrono>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>

using namespace std::chrono_literals;

/* False: the lock was lost meanwhile. */
static bool work(std::chrono::seconds time, const std::atomic<bool> &lost) {
    std::cout << "working" << std::endl;
    auto end = std::chrono::steady_clock::now() + time;
    while (!lost && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(10ms); /* a piece of work */
    return !lost;
}

int main(int argc, char **argv) {
    try {
        holdfast::client client(argc > 1 ? argv[1] : nullptr);
        holdfast::mutex mutex(client, "example");
        std::atomic<bool> lost{false};
        mutex.on_lost([&lost](const hf_event &event) {
            if (event.kind == HF_EVENT_LOST)
                lost = true;
        });

        std::unique_lock guard(mutex, 5s);
        if (!guard) {
            std::cerr << "another process holds the lock\n";
            return 1;
        }
        if (!work(std::chrono::seconds(argc > 2 ? std::stoi(argv[2]) : 1), lost))
            return 3;
        guard.release()->release(); /* unlike unlock(), it throws if the hold had ended */
        return 0;
    } catch (const holdfast::error &error) {
        std::cerr << error.what() << "\n"; /* "HF_EUNREACH at db:6379: ..." */
        return error.code() == HF_ELOST ? 3 : 1;
    }
}
