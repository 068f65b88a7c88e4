/* A pub/sub connection of src/net without anything above it, and threads that listen to it.
 *
 * Include as "net/station.h". The station stands for the registry of channels: it subscribes to one
 * channel whenever the connection is up, and a message on it is a number, which wakes the listener
 * of that number. A listener waits with a deadline and a cancel of its own, as a synchronous call
 * does. The driver is read under the connection's mutex, only to bring a scene about. */
#ifndef HF_TEST_NET_STATION_H
#define HF_TEST_NET_STATION_H

#include "net/scene.h"

#include "base/clock.h"
#include "net/conn/conn_impl.h"
#include "net/resp/resp.h"
#include "support/case.h"

#include <hiredis/hiredis.h>

enum { EVENT_MESSAGE = 1u, EVENT_LOST = 2u, EVENT_CANCEL = 4u, EVENT_LATE = 8u };
enum { LISTENERS = 16, NOBODY = LISTENERS };

struct listener;

struct station {
    struct hfi_mem mem;
    struct hfi_log log;
    struct proxy *proxy;
    struct hfi_keeper *keeper;
    struct hfi_resp_login login;
    struct hfi_host host;
    struct hfi_target target;
    struct hfi_conn *conn;
    atomic_int by_keeper, by_callers; /* messages, by who has read them */
    atomic_int confirmed, losses;     /* subscriptions, and lost connections */
    pthread_mutex_t mtx;              /* guards below */
    struct listener *listeners[LISTENERS];
};

void station_begin(struct station *station); /* until it is subscribed */
void station_begin_with(struct station *station, int64_t cmd_timeout_ms, int64_t ping_interval_ms);
void station_end(struct station *station);
#define STATION_CASE(name) CASE_IN(name, struct station, station, station_begin, station_end)
void station_publish(int number);
void station_wait_for(atomic_int *value, int at_least);
/* Waits until this one is the driver (NULL: nobody) and so many follow. */
void station_wait_driver(struct station *station, const struct hfi_exec *driver, size_t followers);
void station_wait_keeper(struct station *station, size_t followers);
/* Waits until a message has reached a listener. */
void station_assert_works(struct station *station);

struct listener {
    struct station *station;
    int number;
    struct hfi_exec exec;
    struct hfi_sync_caller sync_caller;
    struct hfi_task task;
    struct hfi_alarm alarm;
    int64_t wait_ms;
    unsigned news;
    pthread_t thread;
    int64_t took_ms;
    atomic_bool done;
};

void listener_begin(struct listener *listener, struct station *station, int number);
void listener_end(struct listener *listener);
/* Whom the station tells of the messages with this one's number; NULL: nobody. */
void listener_set_receiver(struct listener *listener, struct listener *receiver);
/* Waits, on this thread; returns the events that ended it. */
unsigned listener_listen(struct listener *listener, int64_t wait_ms);

/* The same on a thread of its own. */
void listener_start(struct listener *listener, struct station *station, int number,
                    int64_t wait_ms);
/* And returns when it is the driver; nobody else listens. */
void listener_start_driver(struct listener *listener, struct station *station, int number,
                           int64_t wait_ms);
void listener_cancel(struct listener *listener);
void listener_shorten(struct listener *listener, int64_t wait_ms); /* the wait ends so soon */
unsigned listener_join(struct listener *listener);                 /* fails after HANG_MS */

#endif
