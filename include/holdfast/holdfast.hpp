/*
 * holdfast for C++17: the same locks, as types that the standard library's guards understand.
 *
 *     holdfast::client client("redis://localhost");
 *     holdfast::mutex nightly(client, "nightly-report");
 *
 *     std::lock_guard guard(nightly);                 // waits; renewed until the end of the scope
 *
 *     std::unique_lock maybe(nightly, 5s);            // waits up to 5 s
 *     if (!maybe) ...
 *
 * A thin, inline layer over <holdfast/holdfast.h>, which remains the manual. What differs:
 *   - Negative codes are thrown as holdfast::error, except "busy" and "the wait is over" where the
 *     return value can say so.
 *   - unlock() never throws, since destructors call it; it calls on_unlock_error() instead. To
 *     learn of a loss on the spot, end with release(), which throws: maybe.release()->release();
 *   - Callbacks must not throw: that ends the program.
 *   - A hold belongs to its thread: do not move a guard to another thread and unlock it there.
 *
 * Objects can be moved, not copied; a moved-from one may only be assigned to or destroyed. A client
 * may be destroyed before its locks, which may then only be destroyed, too.
 */
#ifndef HOLDFAST_HOLDFAST_HPP
#define HOLDFAST_HOLDFAST_HPP

#include <holdfast/holdfast.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast {

/* ---- Errors ---------------------------------------------------------------------------------- */

class error : public std::runtime_error {
public:
    explicit error(const hf_error &details)
        : std::runtime_error(sentence(details)), details_(details) {}

    int code() const noexcept { return details_.code; }
    int sys_errno() const noexcept { return details_.sys_errno; }
    const char *node() const noexcept { return details_.node; }
    const char *text() const noexcept { return details_.text; } /* the server's message, or ours */

private:
    static std::string sentence(const hf_error &details) {
        char text[HF_ERROR_FORMAT_MAX];
        return hf_error_format(&details, text, sizeof text);
    }

    hf_error details_;
};

namespace detail {

/* This thread's last failure, if it is `code`. */
inline hf_error last_error(int code) noexcept {
    hf_error details = {};
    const hf_error *last = hf_last_error();
    if (last != nullptr && last->code == code)
        details = *last;
    details.code = code;
    return details;
}

[[noreturn]] inline void fail(int code) {
    throw error(last_error(code));
}

inline void check(int code) {
    if (code < 0)
        fail(code);
}

inline bool granted(int code) {
    if (code == HF_EBUSY || code == HF_ETIMEDOUT)
        return false;
    check(code);
    return true;
}

/* Rounded up; too long for the clock is for ever. */
template <class Rep, class Period>
inline std::int64_t whole_ms(const std::chrono::duration<Rep, Period> &time) {
    constexpr double for_ever_ms = 1e15;
    double ms = std::ceil(std::chrono::duration<double, std::milli>(time).count());
    if (!(ms > 0))
        return 0;
    return ms < for_ever_ms ? static_cast<std::int64_t>(ms) : HF_FOREVER;
}

/* Calls `attempt` with the time left, and again if the clock was set back. */
template <class Clock, class Duration, class Attempt>
inline bool until(const std::chrono::time_point<Clock, Duration> &end, Attempt attempt) {
    for (auto now = Clock::now(); now < end; now = Clock::now())
        if (attempt(whole_ms(end - now)))
            return true;
    return attempt(0);
}

template <class T, void (*Free)(T *)> struct deleter {
    void operator()(T *object) const noexcept { Free(object); }
};
template <class T, void (*Free)(T *)> using owned = std::unique_ptr<T, deleter<T, Free>>;

template <class T>
inline std::string_view name_of(const T *handle, const char *(*name)(const T *, std::size_t *)) {
    std::size_t len = 0;
    const char *text = name(handle, &len);
    return {text, len};
}

inline hf_lock_options kind_of(hf_kind kind, unsigned flags) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = kind;
    options.flags = flags;
    return options;
}

inline std::string taken(char *text) {
    std::unique_ptr<char, decltype(&hf_text_free)> owned(text, &hf_text_free);
    return owned.get();
}

inline void close_quietly(hf_client *client) {
    hf_close(client);
}

/* A function object as C's pair of pointer and `user`. A running one survives its own replacement
 * or destruction; C waits for one on another thread. */
template <class... Args> class callback {
public:
    using function = std::function<void(Args...)>;

    callback() = default;
    explicit callback(function wanted)
        : kept_(std::make_unique<std::shared_ptr<function>>(
              std::make_shared<function>(std::move(wanted)))) {}

    void *user() const noexcept { return kept_.get(); }
    static void call(void *user, Args... args) noexcept {
        std::shared_ptr<function> running = *static_cast<std::shared_ptr<function> *>(user);
        (*running)(std::forward<Args>(args)...);
    }

private:
    std::unique_ptr<std::shared_ptr<function>> kept_;
};

} // namespace detail

/* ---- Client ---------------------------------------------------------------------------------- */

class client {
public:
    /* The url from the environment: HOLDFAST_URL, then REDIS_URL. */
    client() : client(nullptr) {}
    explicit client(const char *url, const hf_options &options = HF_OPTIONS_INIT) {
        hf_client *opened = nullptr;
        detail::check(hf_open(url, &options, &opened));
        handle_.reset(opened);
    }
    explicit client(const std::string &url, const hf_options &options = HF_OPTIONS_INIT)
        : client(url.c_str(), options) {}

    void ping() const { detail::check(hf_ping(native_handle())); }
    std::string_view id() const { return hf_client_id(native_handle()); }
    hf_stats stats() const {
        hf_stats stats = HF_STATS_INIT;
        detail::check(hf_client_stats(native_handle(), &stats));
        return stats;
    }
    /* As OpenMetrics text. */
    std::string metrics() const {
        char *text = nullptr;
        detail::check(hf_client_metrics(native_handle(), &text));
        return detail::taken(text);
    }

    /* Begins to close, and empties this. With HF_MANUAL_DISPATCH `callback` is needed, and
     * hf_dispatch() of what is returned, until it has run. */
    hf_client *close_start(hf_close_fn callback = nullptr, void *user = nullptr) {
        detail::check(hf_close_start(native_handle(), callback, user));
        return handle_.release();
    }

    /* With HF_MANUAL_DISPATCH. */
    int dispatch_fd() const {
        int fd = hf_dispatch_fd(native_handle());
        detail::check(fd);
        return fd;
    }
    int dispatch() const { return dispatch_ms(0); }
    template <class Rep, class Period>
    int dispatch(const std::chrono::duration<Rep, Period> &wait) const {
        return dispatch_ms(detail::whole_ms(wait));
    }

    using native_handle_type = hf_client *;
    native_handle_type native_handle() const noexcept { return handle_.get(); }

private:
    int dispatch_ms(std::int64_t wait_ms) const {
        int ran = hf_dispatch(native_handle(), wait_ms);
        detail::check(ran);
        return ran;
    }

    detail::owned<hf_client, detail::close_quietly> handle_;
};

/* ---- JSON ------------------------------------------------------------------------------------ */

/* What `holdfast ls --json` prints. */
inline std::string json(const hf_fleet &fleet) {
    char *text = nullptr;
    detail::check(hf_fleet_json(&fleet, &text));
    return detail::taken(text);
}
/* What `holdfast show --json` prints of the lock `name`. */
inline std::string json(const hf_lock_info &info, std::string_view name) {
    char *text = nullptr;
    detail::check(hf_lock_info_json(&info, name.data(), name.size(), &text));
    return detail::taken(text);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Ends waits from another thread: put its native_handle() into their options. */
class cancel_switch {
public:
    cancel_switch() {
        hf_cancel *made = nullptr;
        detail::check(hf_cancel_new(&made));
        handle_.reset(made);
    }
    void fire() noexcept { hf_cancel_fire(native_handle()); }
    void reset() noexcept { hf_cancel_reset(native_handle()); }

    using native_handle_type = hf_cancel *;
    native_handle_type native_handle() const noexcept { return handle_.get(); }

private:
    detail::owned<hf_cancel, hf_cancel_free> handle_;
};

/* An operation in progress, which outlives this object. */
class op {
public:
    op() = default;
    explicit op(hf_op *started) noexcept : handle_(started) {}
    /* `done`: what its callback would free, `drop` does it. */
    op(hf_op *started, void *done, void (*drop)(void *)) noexcept
        : handle_(started), done_(done), drop_(drop) {}

    void cancel() noexcept { hf_op_cancel(native_handle()); }
    /* Gives it up and empties this: what it acquires is released. True: its function never runs. */
    bool abandon() noexcept {
        bool started = handle_ != nullptr;
        bool gone = hf_op_abandon(handle_.release());
        if (started && gone && drop_ != nullptr)
            drop_(done_);
        return gone;
    }
    /* Empty: not complete yet. The result's code says whether it succeeded. */
    template <class Rep, class Period>
    std::optional<hf_result> wait_for(const std::chrono::duration<Rep, Period> &wait) const {
        return wait_ms(detail::whole_ms(wait));
    }
    hf_result wait() const { return *wait_ms(HF_FOREVER); }

    using native_handle_type = hf_op *;
    native_handle_type native_handle() const noexcept { return handle_.get(); }

private:
    std::optional<hf_result> wait_ms(std::int64_t limit_ms) const {
        hf_result result = HF_RESULT_INIT;
        result.code = 1; /* no operation's code: hf_op_wait() itself failed */
        int code = hf_op_wait(native_handle(), limit_ms, &result);
        if (result.code != 1)
            return result;
        if (code == HF_EPENDING)
            return std::nullopt;
        detail::fail(code);
    }

    detail::owned<hf_op, hf_op_free> handle_;
    void *done_ = nullptr;
    void (*drop_)(void *) = nullptr;
};

namespace detail {

template <class Done> void completed(hf_op *, const hf_result *result, void *user) noexcept {
    std::unique_ptr<Done> done(static_cast<Done *>(user));
    (*done)(*result);
}

/* Calls `start` with a copy of `done`, freed by the callback. */
template <class Start, class Done> op begin(Start start, Done &&done) {
    using kept = std::decay_t<Done>;
    auto copy = std::make_unique<kept>(std::forward<Done>(done));
    hf_op *started = nullptr;
    check(start(completed<kept>, static_cast<void *>(copy.get()), &started));
    return op(started, copy.release(),
              [](void *kept_here) { delete static_cast<kept *>(kept_here); });
}

} // namespace detail

/* ---- Locks ----------------------------------------------------------------------------------- */

/* A lock of any kind: Lockable and TimedLockable. Nests like std::recursive_timed_mutex, except for
 * HF_NONREENTRANT. */
class mutex {
public:
    mutex(const client &owner, std::string_view name,
          const hf_lock_options &options = HF_LOCK_OPTIONS_INIT) {
        hf_lock *made = nullptr;
        detail::check(
            hf_lock_new_with(owner.native_handle(), name.data(), name.size(), &options, &made));
        handle_.reset(made);
    }
    mutex(const client &owner, std::string_view name, hf_kind kind, unsigned flags = 0)
        : mutex(owner, name, detail::kind_of(kind, flags)) {}
    /* hf_lock_new_group() */
    mutex(const client &owner, std::string_view group,
          const std::vector<std::string_view> &values) {
        std::vector<hf_bytes> bytes;
        bytes.reserve(values.size());
        for (std::string_view value : values)
            bytes.push_back({value.data(), value.size()});
        hf_lock *made = nullptr;
        detail::check(hf_lock_new_group(owner.native_handle(), group.data(), group.size(),
                                        bytes.data(), bytes.size(), &made));
        handle_.reset(made);
    }

    /* hf_lock_new_multi(); the members may be destroyed. A shared_mutex stands for its writer's side;
     * see reader(). */
    template <class... Others> static mutex multi(const mutex &first, const Others &...others) {
        return multi(std::vector<const mutex *>{&first, &static_cast<const mutex &>(others)...});
    }
    static mutex multi(const std::vector<const mutex *> &members) {
        std::vector<hf_lock *> handles;
        handles.reserve(members.size());
        for (const mutex *member : members)
            handles.push_back(member->native_handle());
        hf_lock *made = nullptr;
        detail::check(hf_lock_new_multi(handles.data(), handles.size(), &made));
        return mutex(made);
    }

    mutex(mutex &&) noexcept = default;
    mutex &operator=(mutex &&other) noexcept {
        handle_ = std::move(other.handle_); /* first, since it ends the callback */
        on_lost_ = std::move(other.on_lost_);
        on_unlock_error_ = std::move(other.on_unlock_error_);
        lease_ms_ = other.lease_ms_;
        return *this;
    }

    void lock() { detail::check(acquire_for(HF_FOREVER)); }
    bool try_lock() { return detail::granted(acquire_for(0)); }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &wait) {
        return detail::granted(acquire_for(detail::whole_ms(wait)));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &end) {
        return detail::until(
            end, [this](std::int64_t wait_ms) { return detail::granted(acquire_for(wait_ms)); });
    }
    void unlock() noexcept {
        int code = hf_lock_release(native_handle());
        if (code != HF_OK && on_unlock_error_)
            on_unlock_error_(detail::last_error(code));
    }

    /* Receives what unlock() cannot throw. Set it before threads share the lock. */
    void on_unlock_error(std::function<void(const hf_error &)> handler) {
        on_unlock_error_ = std::move(handler);
    }

    /* A fixed lease for lock() and the like; zero, the default: the watchdog. Not while other
     * threads lock. */
    template <class Rep, class Period>
    void set_lease(const std::chrono::duration<Rep, Period> &lease) {
        lease_ms_ = detail::whole_ms(lease);
    }

    /* With all options. Empty: not acquired in time. */
    hf_result acquire(const hf_acquire_options &options = HF_ACQUIRE_OPTIONS_INIT) {
        hf_result result = HF_RESULT_INIT;
        detail::check(hf_lock_acquire_with(native_handle(), &options, &result));
        return result;
    }
    std::optional<hf_result> try_acquire(const hf_acquire_options &options) {
        hf_result result = HF_RESULT_INIT;
        if (!detail::granted(hf_lock_acquire_with(native_handle(), &options, &result)))
            return std::nullopt;
        return result;
    }
    void release(hf_owner owner = 0) { detail::check(hf_lock_release_as(native_handle(), owner)); }
    template <class Rep, class Period>
    void extend(const std::chrono::duration<Rep, Period> &lease, hf_owner owner = 0) {
        detail::check(hf_lock_extend_as(native_handle(), owner, detail::whole_ms(lease)));
    }
    /* Also sets a shorter lease, or adds to it. */
    hf_result extend(const hf_extend_options &options) {
        hf_result result = HF_RESULT_INIT;
        detail::check(hf_lock_extend_with(native_handle(), &options, &result));
        return result;
    }
    /* No longer renewed: for a hold that nobody can release any more. */
    void forget(hf_owner owner = 0) { detail::check(hf_lock_forget_as(native_handle(), owner)); }
    hf_result adopt(const char *handle, std::chrono::milliseconds lease = {}) {
        hf_result result = HF_RESULT_INIT;
        detail::check(hf_lock_adopt(native_handle(), handle, lease.count(), &result));
        return result;
    }
    /* For adopt(), by any client. */
    std::string handle(hf_owner owner = 0) const {
        char text[HF_HANDLE_MAX];
        detail::check(hf_lock_handle(native_handle(), owner, text, sizeof text));
        return text;
    }
    bool break_lock() {
        bool broken = false;
        detail::check(hf_lock_break(native_handle(), &broken));
        return broken;
    }

    /* From the server. ttl(): -1 ms: no end; -2 ms: not held. */
    bool is_locked() const {
        bool locked = false;
        detail::check(hf_lock_is_locked(native_handle(), &locked));
        return locked;
    }
    bool is_mine(hf_owner owner = 0) const {
        bool mine = false;
        detail::check(hf_lock_is_mine_as(native_handle(), owner, &mine));
        return mine;
    }
    std::int64_t hold_count(hf_owner owner = 0) const {
        std::int64_t count = 0;
        detail::check(hf_lock_hold_count_as(native_handle(), owner, &count));
        return count;
    }
    std::chrono::milliseconds ttl() const {
        std::int64_t ttl_ms = 0;
        detail::check(hf_lock_ttl_ms(native_handle(), &ttl_ms));
        return std::chrono::milliseconds(ttl_ms);
    }

    std::chrono::milliseconds remaining(hf_owner owner = 0) const noexcept {
        return std::chrono::milliseconds(hf_lock_remaining_ms_as(native_handle(), owner));
    }
    std::int64_t token(hf_owner owner = 0) const {
        std::int64_t token = 0;
        detail::check(hf_lock_token_as(native_handle(), owner, &token));
        return token;
    }
    std::string_view name() const noexcept {
        return detail::name_of(native_handle(), hf_lock_name);
    }

    /* For events of any hold of this client on this name; runs on the dispatch thread. An empty
     * function removes it. */
    void on_lost(std::function<void(const hf_event &)> handler) {
        detail::check(hf_lock_on_lost(native_handle(), nullptr, nullptr));
        on_lost_ = callback_type();
        if (!handler)
            return;
        callback_type wanted(std::move(handler));
        detail::check(hf_lock_on_lost(native_handle(), deliver, wanted.user()));
        on_lost_ = std::move(wanted);
    }
    int lost_fd() const {
        int fd = hf_lock_lost_fd(native_handle());
        detail::check(fd);
        return fd;
    }

    /* done(const hf_result &) runs once, on the dispatch thread. */
    template <class Done> op acquire_start(const hf_acquire_options &options, Done &&done) {
        return detail::begin(
            [&](hf_op_fn callback, void *user, hf_op **ret_op) {
                return hf_lock_acquire_start(native_handle(), &options, callback, user, ret_op);
            },
            std::forward<Done>(done));
    }
    template <class Done> op release_start(hf_owner owner, Done &&done) {
        return detail::begin(
            [&](hf_op_fn callback, void *user, hf_op **ret_op) {
                return hf_lock_release_start(native_handle(), owner, callback, user, ret_op);
            },
            std::forward<Done>(done));
    }

    using native_handle_type = hf_lock *;
    native_handle_type native_handle() const noexcept { return handle_.get(); }

private:
    using callback_type = detail::callback<const hf_event &>;

    explicit mutex(hf_lock *made) noexcept : handle_(made) {}

    static void deliver(hf_lock *, const hf_event *event, void *user) noexcept {
        callback_type::call(user, *event);
    }

    int acquire_for(std::int64_t wait_ms) {
        if (lease_ms_ == HF_WATCHDOG)
            return hf_lock_acquire_for(native_handle(), wait_ms);
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        options.wait_ms = wait_ms;
        options.lease_ms = lease_ms_;
        return hf_lock_acquire_with(native_handle(), &options, nullptr);
    }

    callback_type on_lost_; /* outlives the handle that calls it */
    std::function<void(const hf_error &)> on_unlock_error_;
    std::int64_t lease_ms_ = HF_WATCHDOG;
    detail::owned<hf_lock, hf_lock_free> handle_;
};

/* A read/write lock: SharedTimedLockable. lock() is the writer's side, lock_shared() the readers';
 * a reader that wants to write gets HF_EDEADLK, a writer may read. Both nest. */
class shared_mutex {
public:
    shared_mutex(const client &owner, std::string_view name)
        : writer_(owner, name, HF_WRITE), reader_(owner, name, HF_READ) {}

    void lock() { writer_.lock(); }
    bool try_lock() { return writer_.try_lock(); }
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &wait) {
        return writer_.try_lock_for(wait);
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &end) {
        return writer_.try_lock_until(end);
    }
    void unlock() noexcept { writer_.unlock(); }

    void lock_shared() { reader_.lock(); }
    bool try_lock_shared() { return reader_.try_lock(); }
    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &wait) {
        return reader_.try_lock_for(wait);
    }
    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &end) {
        return reader_.try_lock_until(end);
    }
    void unlock_shared() noexcept { reader_.unlock(); }

    void on_lost(const std::function<void(const hf_event &)> &handler) {
        writer_.on_lost(handler);
        reader_.on_lost(handler);
    }
    void on_unlock_error(const std::function<void(const hf_error &)> &handler) {
        writer_.on_unlock_error(handler);
        reader_.on_unlock_error(handler);
    }

    mutex &writer() noexcept { return writer_; }
    mutex &reader() noexcept { return reader_; }
    operator const mutex &() const noexcept { return writer_; } /* for mutex::multi() */

private:
    mutex writer_, reader_;
};

/* ---- Semaphores and latches ------------------------------------------------------------------ */

/* Permits without owners, with the names of std::counting_semaphore. */
class semaphore {
public:
    semaphore(const client &owner, std::string_view name) {
        hf_sem *made = nullptr;
        detail::check(hf_sem_new_bytes(owner.native_handle(), name.data(), name.size(), &made));
        handle_.reset(made);
    }

    /* If the semaphore does not exist; a TTL of zero is none. */
    bool try_set(std::int64_t permits, std::chrono::milliseconds ttl = {}) {
        bool was_set = false;
        detail::check(hf_sem_try_set(native_handle(), permits, ttl.count(), &was_set));
        return was_set;
    }
    void acquire(std::int64_t permits = 1) {
        detail::check(hf_sem_acquire(native_handle(), permits));
    }
    bool try_acquire(std::int64_t permits = 1) {
        return detail::granted(hf_sem_try(native_handle(), permits));
    }
    template <class Rep, class Period>
    bool try_acquire_for(const std::chrono::duration<Rep, Period> &wait, std::int64_t permits = 1) {
        return detail::granted(
            hf_sem_acquire_for(native_handle(), permits, detail::whole_ms(wait)));
    }
    template <class Clock, class Duration>
    bool try_acquire_until(const std::chrono::time_point<Clock, Duration> &end,
                           std::int64_t permits = 1) {
        return detail::until(end, [this, permits](std::int64_t wait_ms) {
            return detail::granted(hf_sem_acquire_for(native_handle(), permits, wait_ms));
        });
    }
    void release(std::int64_t permits = 1) {
        detail::check(hf_sem_release(native_handle(), permits));
    }
    bool release_if_exists(std::int64_t permits = 1) {
        bool released = false;
        detail::check(hf_sem_release_if_exists(native_handle(), permits, &released));
        return released;
    }
    void add(std::int64_t delta) { detail::check(hf_sem_add(native_handle(), delta)); }
    std::int64_t drain() {
        std::int64_t permits = 0;
        detail::check(hf_sem_drain(native_handle(), &permits));
        return permits;
    }
    std::int64_t available() const {
        std::int64_t permits = 0;
        detail::check(hf_sem_available(native_handle(), &permits));
        return permits;
    }
    bool remove() {
        bool deleted = false;
        detail::check(hf_sem_delete(native_handle(), &deleted));
        return deleted;
    }

    std::string_view name() const noexcept { return detail::name_of(native_handle(), hf_sem_name); }

    using native_handle_type = hf_sem *;
    native_handle_type native_handle() const noexcept { return handle_.get(); }

private:
    detail::owned<hf_sem, hf_sem_free> handle_;
};

class permits {
public:
    permits(const client &owner, std::string_view name) {
        hf_permits *made = nullptr;
        detail::check(hf_permits_new_bytes(owner.native_handle(), name.data(), name.size(), &made));
        handle_.reset(made);
    }

    permits(permits &&) noexcept = default;
    permits &operator=(permits &&other) noexcept {
        handle_ = std::move(other.handle_);
        on_lost_ = std::move(other.on_lost_);
        return *this;
    }

    /* If it does not exist; always. */
    bool try_set(std::int64_t number) {
        bool was_set = false;
        detail::check(hf_permits_try_set(native_handle(), number, &was_set));
        return was_set;
    }
    void set(std::int64_t number) { detail::check(hf_permits_set(native_handle(), number)); }
    void add(std::int64_t delta) { detail::check(hf_permits_add(native_handle(), delta)); }

    /* One permit, renewed until released; with options: all or none. */
    hf_permit_id acquire() {
        hf_permit_id id;
        detail::check(hf_permits_acquire(native_handle(), &id));
        return id;
    }
    template <class Rep, class Period>
    std::optional<hf_permit_id> try_acquire_for(const std::chrono::duration<Rep, Period> &wait) {
        hf_permit_id id;
        if (!detail::granted(hf_permits_acquire_for(native_handle(), detail::whole_ms(wait), &id)))
            return std::nullopt;
        return id;
    }
    std::optional<hf_permit_id> try_acquire() {
        return try_acquire_for(std::chrono::milliseconds::zero());
    }
    std::vector<hf_permit_id> acquire(const hf_permits_options &options) {
        std::vector<hf_permit_id> ids(options.count > 0 ? static_cast<std::size_t>(options.count)
                                                        : 1);
        detail::check(hf_permits_acquire_with(native_handle(), &options, ids.data()));
        return ids;
    }
    void release(const hf_permit_id &id) {
        detail::check(hf_permits_release(native_handle(), &id));
    }
    void release(const std::vector<hf_permit_id> &ids) {
        detail::check(hf_permits_release_many(native_handle(), ids.data(), ids.size()));
    }
    void extend(const hf_permit_id &id, std::chrono::milliseconds lease) {
        detail::check(hf_permits_extend(native_handle(), &id, lease.count()));
    }
    /* -1 ms: no end */
    std::chrono::milliseconds lease(const hf_permit_id &id) const {
        std::int64_t lease_ms = 0;
        detail::check(hf_permits_ttl_ms(native_handle(), &id, &lease_ms));
        return std::chrono::milliseconds(lease_ms);
    }

    std::int64_t available() const { return number(hf_permits_available); }
    std::int64_t total() const { return number(hf_permits_total); }
    std::int64_t taken() const { return number(hf_permits_taken); }
    bool expire(std::chrono::milliseconds ttl) {
        bool existed = false;
        detail::check(hf_permits_expire(native_handle(), ttl.count(), &existed));
        return existed;
    }
    bool remove() {
        bool deleted = false;
        detail::check(hf_permits_delete(native_handle(), &deleted));
        return deleted;
    }

    /* As mutex::on_lost(), with the permit's id, valid during the call. */
    void on_lost(std::function<void(const char *, const hf_event &)> handler) {
        detail::check(hf_permits_on_lost(native_handle(), nullptr, nullptr));
        on_lost_ = callback_type();
        if (!handler)
            return;
        callback_type wanted(std::move(handler));
        detail::check(hf_permits_on_lost(native_handle(), deliver, wanted.user()));
        on_lost_ = std::move(wanted);
    }
    int lost_fd() const {
        int fd = hf_permits_lost_fd(native_handle());
        detail::check(fd);
        return fd;
    }

    std::string_view name() const noexcept {
        return detail::name_of(native_handle(), hf_permits_name);
    }

    using native_handle_type = hf_permits *;
    native_handle_type native_handle() const noexcept { return handle_.get(); }

private:
    using callback_type = detail::callback<const char *, const hf_event &>;

    static void deliver(hf_permits *, const char *id, const hf_event *event, void *user) noexcept {
        callback_type::call(user, id, *event);
    }

    std::int64_t number(int (*question)(hf_permits *, std::int64_t *)) const {
        std::int64_t answer = 0;
        detail::check(question(native_handle(), &answer));
        return answer;
    }

    callback_type on_lost_;
    detail::owned<hf_permits, hf_permits_free> handle_;
};

/* A permit for a scope: the destructor releases it, and never throws. Its `permits` must outlive
 * it. */
class permit {
public:
    explicit permit(permits &from) : permit(from, from.acquire()) {}
    permit(const permits &from, const hf_permit_id &acquired) noexcept
        : from_(from.native_handle()), id_(acquired) {}
    permit(permit &&other) noexcept : from_(std::exchange(other.from_, nullptr)), id_(other.id_) {}
    permit &operator=(permit &&other) noexcept {
        if (this != &other) {
            give_back();
            from_ = std::exchange(other.from_, nullptr);
            id_ = other.id_;
        }
        return *this;
    }
    ~permit() { give_back(); }

    const hf_permit_id &id() const noexcept { return id_; }
    /* Throws what the destructor cannot. */
    void release() { detail::check(give_back()); }

private:
    int give_back() noexcept {
        hf_permits *from = std::exchange(from_, nullptr);
        return from != nullptr ? hf_permits_release(from, &id_) : HF_OK;
    }

    hf_permits *from_;
    hf_permit_id id_;
};

/* With the names of std::latch. */
class latch {
public:
    latch(const client &owner, std::string_view name) {
        hf_latch *made = nullptr;
        detail::check(hf_latch_new_bytes(owner.native_handle(), name.data(), name.size(), &made));
        handle_.reset(made);
    }

    /* If it is open. */
    bool try_set(std::int64_t count) {
        bool was_set = false;
        detail::check(hf_latch_try_set(native_handle(), count, &was_set));
        return was_set;
    }
    void count_down() { detail::check(hf_latch_count_down(native_handle())); }
    bool try_wait() const { return detail::granted(hf_latch_await_for(native_handle(), 0)); }
    void wait() const { detail::check(hf_latch_await(native_handle())); }
    template <class Rep, class Period>
    bool wait_for(const std::chrono::duration<Rep, Period> &wait) const {
        return detail::granted(hf_latch_await_for(native_handle(), detail::whole_ms(wait)));
    }
    template <class Clock, class Duration>
    bool wait_until(const std::chrono::time_point<Clock, Duration> &end) const {
        return detail::until(end, [this](std::int64_t wait_ms) {
            return detail::granted(hf_latch_await_for(native_handle(), wait_ms));
        });
    }
    std::int64_t count() const {
        std::int64_t count = 0;
        detail::check(hf_latch_count(native_handle(), &count));
        return count;
    }
    bool remove() {
        bool deleted = false;
        detail::check(hf_latch_delete(native_handle(), &deleted));
        return deleted;
    }

    std::string_view name() const noexcept {
        return detail::name_of(native_handle(), hf_latch_name);
    }

    using native_handle_type = hf_latch *;
    native_handle_type native_handle() const noexcept { return handle_.get(); }

private:
    detail::owned<hf_latch, hf_latch_free> handle_;
};

/* ---- Listening ------------------------------------------------------------------------------- */

/* hf_listen(); the handler runs on the dispatch thread, and may destroy the listener. */
class listener {
public:
    listener(const client &owner, std::string_view name,
             std::function<void(const hf_notification &)> handler)
        : on_notification_(std::move(handler)) {
        hf_listener *made = nullptr;
        detail::check(hf_listen_bytes(owner.native_handle(), name.data(), name.size(), deliver,
                                      on_notification_.user(), &made));
        handle_.reset(made);
    }
    /* Breaks of all names: hf_listen_breaks(). */
    listener(const client &owner, std::function<void(const hf_notification &)> handler)
        : on_notification_(std::move(handler)) {
        hf_listener *made = nullptr;
        detail::check(
            hf_listen_breaks(owner.native_handle(), deliver, on_notification_.user(), &made));
        handle_.reset(made);
    }
    listener(listener &&) noexcept = default;
    listener &operator=(listener &&other) noexcept {
        handle_ = std::move(other.handle_);
        on_notification_ = std::move(other.on_notification_);
        return *this;
    }

    using native_handle_type = hf_listener *;
    native_handle_type native_handle() const noexcept { return handle_.get(); }

private:
    using callback_type = detail::callback<const hf_notification &>;

    static void deliver(hf_listener *, const hf_notification *notification, void *user) noexcept {
        callback_type::call(user, *notification);
    }

    callback_type on_notification_;
    detail::owned<hf_listener, hf_listener_free> handle_;
};

} // namespace holdfast
#endif
