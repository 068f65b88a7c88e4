/* One connection of src/net without anything above it, and threads that call on it.
 *
 * Include as "net/caller.h". Each `caller` is a thread that sends ECHO with a text of its own and
 * waits for exactly that text, with a deadline and a cancel of its own, as a synchronous call does.
 * So a reply that goes to the wrong caller, a connection without a driver and a caller that oversleeps
 * all show. The driver is read under the connection's mutex, only to bring a scene
 * about. */
#ifndef HF_TEST_NET_CALLER_H
#define HF_TEST_NET_CALLER_H

#include "net/scene.h"

#include "base/clock.h"
#include "net/conn/conn_impl.h"
#include "net/driver/keeper.h"
#include "net/resp/resp.h"
#include "support/case.h"

#include <hiredis/hiredis.h>

enum { EVENT_REPLY = 1u, EVENT_READY = 2u, EVENT_CANCEL = 4u, EVENT_LATE = 8u };
enum outcome { ANSWERED, LATE, CANCELLED, LOST, UNSENT, WRONG };

struct raw {
    struct hfi_mem mem;
    struct hfi_log log;
    struct proxy *proxy;
    struct hfi_keeper *keeper;
    struct hfi_resp_login login;
    struct hfi_host host;
    struct hfi_target target;
    struct hfi_conn *conn;
};

struct caller {
    struct raw *raw;
    struct hfi_exec exec;
    struct hfi_sync_caller sync_caller;
    struct hfi_task task;
    struct hfi_alarm alarm;
    unsigned news;
    /* For those on a thread of their own: */
    pthread_t thread;
    int64_t wait_ms;
    size_t size;
    enum outcome outcome;
    int64_t took_ms;
    atomic_bool done;
};

struct driver_view {
    const struct hfi_exec *driver;
    unsigned in_flight, sync_callers;
    size_t followers;
};

void raw_begin(struct raw *raw); /* through a proxy */
void raw_begin_at(struct raw *raw, const char *socket);
void raw_end(struct raw *raw);
#define RAW_CASE(name) CASE_IN(name, struct raw, raw, raw_begin, raw_end)
void raw_connect(struct raw *raw); /* again, after a loss */
struct driver_view view_driver(struct raw *raw);
/* Waits until this caller drives (NULL: nobody does) and so many follow. */
void wait_driver(struct raw *raw, const struct caller *driver, size_t followers);
/* Nothing is left over: the next caller gets its own reply, and there is no driver afterwards. */
void assert_raw_works(struct raw *raw);

void caller_begin(struct caller *caller, struct raw *raw);
void caller_end(struct caller *caller);
/* Sends, and waits as a synchronous call would. */
enum outcome send_and_wait(struct caller *caller, size_t size, int64_t wait_ms);
/* The same on a thread of its own. */
void start_caller(struct caller *caller, struct raw *raw, size_t size, int64_t wait_ms);
/* The same as a call that nobody can cancel: nothing but its answer is expected to wake it. */
void start_undisturbed_caller(struct caller *caller, struct raw *raw, size_t size, int64_t wait_ms);
enum outcome join_caller(struct caller *caller);
void cancel_caller(struct caller *caller);
void shorten_caller(struct caller *caller, int64_t wait_ms); /* the wait ends so soon */

#endif
