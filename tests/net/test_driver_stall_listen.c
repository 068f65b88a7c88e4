/*
 * A thread that reads messages for other listeners and does not come back, because a signal handler
 * of the application does not return: another thread reads them.
 */
#include "net/station.h"
#include "support/trap.h"

#define SOON_MS (HANG_MS / 5) /* preemption takes some 300 ms; polling instead, 10 s */

static bool is_polling(void *arg) {
    unsigned polls;
    bool wake_sent;
    return hfi_exec_is_polling(arg, &polls, &wake_sent) && !wake_sent;
}

static void start_stuck_driver(struct station *station, struct listener *driver) {
    listener_start_driver(driver, station, 1, HANG_MS);
    assert_true(wait_until(is_polling, &driver->exec, HANG_MS));
    trap_catch(driver->thread);
}

STATION_CASE(another_listener_becomes_the_driver) {
    struct listener driver, follower;
    for (int round = 0; round < 3; round++) {
        start_stuck_driver(station, &driver);
        listener_start(&follower, station, 2, SOON_MS);
        station_wait_driver(station, &driver.exec, 1);
        station_publish(2);
        assert_int_equal(listener_join(&follower), EVENT_MESSAGE);
        station_publish(1); /* the keeper reads when nobody else does */
        trap_release();
        assert_int_equal(listener_join(&driver), EVENT_MESSAGE);
    }
    station_assert_works(station);
}

/* A listener that cannot read for itself: the keeper reads for it. */
STATION_CASE(the_keeper_reads_for_its_listener) {
    struct listener driver;
    start_stuck_driver(station, &driver);
    hfi_conn_listen(station->conn, NULL);
    int by_keeper = atomic_load(&station->by_keeper);
    station_publish(2);
    station_wait_for(&station->by_keeper, by_keeper + 1);
    hfi_conn_unlisten(station->conn, NULL);
    station_publish(1);
    trap_release();
    assert_int_equal(listener_join(&driver), EVENT_MESSAGE);
    station_assert_works(station);
}

/* A listener that waits for nothing, and gets the messages that others read. */
STATION_CASE(the_keeper_reads_for_lazy_listeners) {
    struct listener driver;
    for (int round = 0; round < 2; round++) { /* it was there before, or comes then */
        if (round == 0)
            hfi_conn_listen_lazily(station->conn, true);
        start_stuck_driver(station, &driver);
        if (round == 1)
            hfi_conn_listen_lazily(station->conn, true);
        int by_keeper = atomic_load(&station->by_keeper);
        station_publish(2);
        station_wait_for(&station->by_keeper, by_keeper + 1);
        hfi_conn_listen_lazily(station->conn, false);
        station_publish(1);
        trap_release();
        assert_int_equal(listener_join(&driver), EVENT_MESSAGE);
    }
    station_assert_works(station);
}

/* The connection is offered to a caller that does not come. (ThreadSanitizer lets a signal wait until it suits
 * it, and here that is with a mutex held.) */
CASE(a_successor_that_does_not_come) {
    OWN(station_end) struct station station;
#if defined(__SANITIZE_THREAD__)
    skip();
#endif
    struct listener driver, successor, third;
    station_begin(&station);
    for (int round = 0; round < 3; round++) {
        listener_start_driver(&driver, &station, 1, HANG_MS);
        listener_start(&successor, &station, 2, HANG_MS);
        station_wait_driver(&station, &driver.exec, 1);
        trap_catch(successor.thread);
        listener_start(&third, &station, 3, SOON_MS);
        station_wait_driver(&station, &driver.exec, 2);
        listener_cancel(&driver);
        assert_int_equal(listener_join(&driver), EVENT_CANCEL);
        station_publish(3);
        assert_int_equal(listener_join(&third), EVENT_MESSAGE);
        station_publish(2);
        trap_release();
        assert_int_equal(listener_join(&successor), EVENT_MESSAGE);
    }
    station_assert_works(&station);
}

int main(void) {
    trap_set();
    return test_cases_run(scene_start_server, scene_stop_server);
}
