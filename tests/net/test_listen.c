/*
 * Which thread reads a pub/sub connection: listeners and the keeper take turns as the driver, on a
 * connection of src/net alone, and finally with real hand-overs.
 */
#include "net/station.h"
#include "support/random.h"

#include <dirent.h>
#include <poll.h>

/* ---- The rules ---- */

STATION_CASE(a_caller_reads_its_message_itself) {
    struct listener listener;
    for (int round = 0; round < 20; round++) {
        listener_start_driver(&listener, station, 1, HANG_MS);
        int by_keeper = atomic_load(&station->by_keeper);
        int by_callers = atomic_load(&station->by_callers);
        station_publish(1);
        assert_int_equal(listener_join(&listener), EVENT_MESSAGE);
        assert_int_equal(atomic_load(&station->by_keeper), by_keeper);
        assert_int_equal(atomic_load(&station->by_callers), by_callers + 1);
    }
}

STATION_CASE(the_driver_reads_for_others) {
    struct listener driver, follower;
    listener_start_driver(&driver, station, 1, HANG_MS);
    listener_start(&follower, station, 2, HANG_MS);
    station_wait_driver(station, &driver.exec, 1);
    station_publish(2);
    assert_int_equal(listener_join(&follower), EVENT_MESSAGE);
    station_wait_driver(station, &driver.exec, 0);
    assert_false(atomic_load(&driver.done));
    station_publish(1);
    assert_int_equal(listener_join(&driver), EVENT_MESSAGE);
}

STATION_CASE(the_driver_times_out_and_a_follower_takes_over) {
    struct listener driver, follower;
    listener_start_driver(&driver, station, 1, HANG_MS);
    listener_start(&follower, station, 2, HANG_MS);
    station_wait_driver(station, &driver.exec, 1);
    listener_shorten(&driver, 60);
    assert_int_equal(listener_join(&driver), EVENT_LATE);
    assert_true(driver.took_ms >= 60);
    station_wait_driver(station, &follower.exec, 0);
    station_publish(2);
    assert_int_equal(listener_join(&follower), EVENT_MESSAGE);
}

/* The message arrives just as the listener that would read it leaves. */
STATION_CASE(the_driver_leaves_as_the_message_arrives) {
    struct listener driver, follower;
    for (int round = 0; round < 60; round++) {
        bool late = round % 2 == 0;
        listener_start_driver(&driver, station, 1, HANG_MS);
        listener_start(&follower, station, 2, HANG_MS);
        station_wait_driver(station, &driver.exec, 1);
        if (late)
            listener_shorten(&driver, round % 3);
        else
            listener_cancel(&driver);
        station_publish(2);
        assert_int_equal(listener_join(&driver), late ? EVENT_LATE : EVENT_CANCEL);
        assert_int_equal(listener_join(&follower), EVENT_MESSAGE);
    }
}

/* The driver and the one it would name go at once; a third must still be read for. */
STATION_CASE(the_successor_leaves_in_the_same_moment) {
    struct listener driver, successor, third;
    for (int round = 0; round < 60; round++) {
        listener_start_driver(&driver, station, 1, HANG_MS);
        listener_start(&successor, station, 2, HANG_MS);
        station_wait_driver(station, &driver.exec, 1);
        listener_start(&third, station, 3, HANG_MS);
        station_wait_driver(station, &driver.exec, 2);
        listener_cancel(round % 2 == 0 ? &driver : &successor);
        listener_cancel(round % 2 == 0 ? &successor : &driver);
        assert_int_equal(listener_join(&driver), EVENT_CANCEL);
        assert_int_equal(listener_join(&successor), EVENT_CANCEL);
        station_wait_driver(station, &third.exec, 0);
        station_publish(3);
        assert_int_equal(listener_join(&third), EVENT_MESSAGE);
    }
}

/* What the server still has to send to the station. */
static bool nothing_is_unsent(void *arg) {
    (void)arg;
    own_text *list = cmd_str(scene_server(), "CLIENT LIST TYPE pubsub");
    return strstr(list, " oll=0 ") != NULL && strstr(list, " omem=0 ") != NULL;
}

CASE(the_keeper_reads_unawaited_replies) {
    OWN(station_end) struct station station;
    enum { MESSAGES = 200, SIZE = 20000 };
    struct listener listener;
    own_text *text = malloc(SIZE + 1);
    assert_non_null(text);
    memset(text, 'x', SIZE);
    text[SIZE] = '\0';
    memcpy(text, "16 ", 3); /* NOBODY's */
    station_begin(&station);
    listener_start_driver(&listener, &station, 1, HANG_MS);
    listener_cancel(&listener);
    assert_int_equal(listener_join(&listener), EVENT_CANCEL);
    int before = atomic_load(&station.by_keeper);
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(cmd_int(scene_server(), "PUBLISH news %s", text), 1);
    station_wait_for(&station.by_keeper, before + MESSAGES);
    assert_true(wait_until(nothing_is_unsent, NULL, HANG_MS));
    station_assert_works(&station);
}

/* One that does not read for itself: the keeper does, at once, and as long as it is there. */
STATION_CASE(the_keeper_stays_for_a_listener) {
    struct listener driver, follower;
    listener_start_driver(&driver, station, 1, HANG_MS);
    listener_start(&follower, station, 2, HANG_MS);
    station_wait_driver(station, &driver.exec, 1);
    hfi_conn_listen(station->conn, NULL);
    station_publish(1);
    assert_int_equal(listener_join(&driver), EVENT_MESSAGE);
    station_wait_keeper(station, 1);
    int before = atomic_load(&station->by_keeper);
    station_publish(NOBODY);
    station_wait_for(&station->by_keeper, before + 1);
    station_wait_keeper(station, 1);
    hfi_conn_unlisten(station->conn, NULL);
    station_publish(NOBODY);
    station_wait_driver(station, &follower.exec, 0);
    station_publish(2);
    assert_int_equal(listener_join(&follower), EVENT_MESSAGE);
    hfi_conn_listen(station->conn, NULL); /* there is no driver, or soon was none */
    station_wait_keeper(station, 0);
    hfi_conn_unlisten(station->conn, NULL);
}

struct arrival {
    struct station *station;
    int by_keeper; /* before */
};

/* There is something to read, or the keeper has read it. */
static bool has_arrived(void *arg) {
    const struct arrival *arrival = arg;
    struct hfi_conn *conn = arrival->station->conn;
    pthread_mutex_lock(&conn->mtx);
    struct pollfd fd = {.fd = conn->fd, .events = POLLIN};
    pthread_mutex_unlock(&conn->mtx);
    return poll(&fd, 1, 0) == 1 || atomic_load(&arrival->station->by_keeper) > arrival->by_keeper;
}

/* By the caller that is about to listen, unless the keeper was quicker: then there is another try. */
STATION_CASE(messages_without_a_reader_are_caught_up_with) {
    struct listener listener;
    int caught_up = 0;
    for (int tries = 0; tries < 100 && caught_up == 0; tries++) {
        listener_start_driver(&listener, station, 1, HANG_MS);
        listener_cancel(&listener);
        assert_int_equal(listener_join(&listener), EVENT_CANCEL);
        struct arrival arrival = {station, atomic_load(&station->by_keeper)};
        int by_callers = atomic_load(&station->by_callers);
        station_publish(NOBODY);
        assert_true(wait_until(has_arrived, &arrival, HANG_MS));
        listener_begin(&listener, station, 1);
        hfi_conn_catch_up(station->conn, &listener.exec);
        listener_end(&listener);
        caught_up = atomic_load(&station->by_callers) - by_callers;
    }
    assert_int_equal(caught_up, 1);
    station_assert_works(station);
}

struct kept_driver {
    struct station *station;
    unsigned generation;
};

/* The keeper has it, on this connection or on one that was made since. */
static bool keeper_is_back(void *arg) {
    struct kept_driver *driver_policy = arg;
    struct hfi_conn *conn = driver_policy->station->conn;
    pthread_mutex_lock(&conn->mtx);
    bool back = conn->driver == hfi_keeper_exec(driver_policy->station->keeper) && !conn->broken;
    driver_policy->generation = conn->generation;
    pthread_mutex_unlock(&conn->mtx);
    return back;
}

/* The connection may stay without a driver for longer than an answer to a ping may take: then it is read before the
 * connection is given up. If the server or the keeper is late, that is a loss, and there is another
 * try: on a busy machine there may have to be many. */
CASE(an_unread_answer_is_no_silence) {
    OWN(station_end) struct station station;
    enum { ENOUGH = 3 };
    struct listener listener;
    int kept = 0;
    station_begin_with(&station, 30, 25);
    for (int64_t end_ms = now_ms() + HANG_MS; kept < ENOUGH && now_ms() < end_ms;) {
        struct kept_driver driver_policy = {&station, 0};
        assert_true(wait_until(keeper_is_back, &driver_policy, HANG_MS));
        unsigned generation = driver_policy.generation;
        listener_begin(&listener, &station, 1);
        listener_listen(&listener, 5);
        listener_end(&listener);
        bool left_empty = !keeper_is_back(&driver_policy);
        assert_true(wait_until(keeper_is_back, &driver_policy, HANG_MS));
        kept += left_empty && driver_policy.generation == generation;
    }
    assert_int_equal(kept, ENOUGH);
}

/* ---- Lost connections ---- */

STATION_CASE(a_loss_ends_every_wait) {
    struct listener listeners[4];
    listener_start_driver(&listeners[0], station, 0, HANG_MS);
    for (int i = 1; i < 4; i++)
        listener_start(&listeners[i], station, i, HANG_MS);
    station_wait_driver(station, &listeners[0].exec, 3);
    assert_int_equal(proxy_cut_all(station->proxy), 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(listener_join(&listeners[i]), EVENT_LOST);
    station_wait_for(&station->confirmed, 2);
    station_assert_works(station);
}

STATION_CASE(a_loss_is_noticed_without_a_waiter) {
    struct listener listener;
    for (int round = 0; round < 6; round++) {
        listener_start_driver(&listener, station, 1, HANG_MS);
        station_publish(1);
        assert_int_equal(listener_join(&listener), EVENT_MESSAGE);
        if (round % 2 == 0) /* else there is no driver */
            station_wait_keeper(station, 0);
        assert_int_equal(proxy_cut_all(station->proxy), 1);
        station_wait_for(&station->losses, round + 1);
        station_wait_for(&station->confirmed, round + 2);
    }
}

/* It comes while there is no connection, and is read for when there is one again. */
STATION_CASE(a_listener_outlasts_a_reconnect) {
    struct listener listener;
    proxy_refuse(station->proxy, true);
    assert_int_equal(proxy_cut_all(station->proxy), 1);
    station_wait_for(&station->losses, 1);
    listener_start(&listener, station, 1, HANG_MS);
    station_wait_driver(station, NULL, 1);
    proxy_refuse(station->proxy, false);
    station_wait_for(&station->confirmed, 2);
    station_wait_driver(station, &listener.exec, 0); /* the keeper has left it the connection */
    station_publish(1);
    assert_int_equal(listener_join(&listener), EVENT_MESSAGE);
}

/* Broken by another thread, as after an unanswered ping. */
STATION_CASE(a_suspected_connection_is_given_up_by_its_driver) {
    struct listener listener;
    listener_start_driver(&listener, station, 1, HANG_MS);
    hfi_conn_suspect(station->conn, HFI_NEVER);
    assert_int_equal(listener_join(&listener), EVENT_LOST);
    station_wait_for(&station->confirmed, 2);
    station_assert_works(station);
}

/* ---- All at once ---- */

struct regular {
    struct listener listener;
    uint64_t random;
    atomic_int heard, asked; /* so many messages came; so many were published */
    atomic_bool *stop;
};

static void *come_again(void *arg) {
    struct regular *regular = arg;
    while (!atomic_load(regular->stop)) {
        int64_t wait_ms = (int64_t)(random_next(&regular->random) % 8);
        if ((listener_listen(&regular->listener, wait_ms) & EVENT_MESSAGE) != 0)
            atomic_store(&regular->heard, atomic_load(&regular->asked));
    }
    return NULL;
}

/* Short waits, with messages in between, and now and then a keeper listener: each message reaches its
 * listener, in this wait or the next. */
CASE(crowd) {
    enum { REGULARS = 8, MESSAGES = 300 };
    struct station station;
    struct regular *regulars = calloc(REGULARS, sizeof *regulars);
    uint64_t random = random_seed();
    atomic_bool stop = false;
    assert_non_null(regulars);
    station_begin(&station);
    for (int i = 0; i < REGULARS; i++) {
        listener_begin(&regulars[i].listener, &station, i);
        regulars[i].random = random_next(&random) | 1;
        regulars[i].stop = &stop;
        assert_int_equal(
            pthread_create(&regulars[i].listener.thread, NULL, come_again, &regulars[i]), 0);
    }
    for (int i = 1; i <= MESSAGES; i++) {
        int number = (int)(random_next(&random) % REGULARS);
        if (i % 50 == 0)
            hfi_conn_listen(station.conn, NULL);
        atomic_store(&regulars[number].asked, i);
        station_publish(number);
        station_wait_for(&regulars[number].heard, i);
        if (i % 50 == 10 && i > 50)
            hfi_conn_unlisten(station.conn, NULL);
    }
    hfi_conn_unlisten(station.conn, NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < REGULARS; i++)
        listener_join(&regulars[i].listener);
    station_end(&station);
    free(regulars);
}

/* ---- Real locks ---- */

/* How often the keepers of this process went to sleep. */
static long keepers_slept(void) {
    long total = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char path[300], line[200];
        bool keeper = false;
        long slept;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            keeper = keeper || strcmp(line, "Name:\tholdfast-keeper\n") == 0;
            if (keeper && sscanf(line, "voluntary_ctxt_switches: %ld", &slept) == 1)
                total += slept;
        }
        if (file != NULL)
            fclose(file);
    }
    closedir(tasks);
    return total;
}

struct player {
    pthread_t thread;
    hf_client *client;
    hf_lock *lock;
    atomic_bool *stop;
    int result;
};

static void *play(void *arg) {
    struct player *player = arg;
    while (player->result == HF_OK && !atomic_load(player->stop)) {
        player->result = hf_lock_acquire(player->lock);
        if (player->result == HF_OK)
            player->result = hf_lock_release(player->lock);
    }
    return NULL;
}

static long waits_of(struct player players[2]) {
    return (long)(scene_stats(players[0].client).contended +
                  scene_stats(players[1].client).contended);
}

static bool have_played(void *arg) {
    return waits_of(arg) >= 300;
}

/* Two clients hand a fair lock to each other, each time by a message. If their keepers read those,
 * each would wake once per message; but they only check for a driver now and then. */
CASE(handovers_leave_the_keepers_alone) {
    struct player players[2] = {{.result = HF_OK}, {.result = HF_OK}};
    atomic_bool stop = false;
    for (int i = 0; i < 2; i++) {
        players[i].client = scene_open(server_url(scene_server()), NULL);
        players[i].stop = &stop;
        assert_int_equal(new_lock(players[i].client, HF_FAIR, "ball", 4, &players[i].lock), HF_OK);
    }
    int64_t start_ms = now_ms();
    long before = keepers_slept();
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    assert_true(wait_until(have_played, players, HANG_MS));
    long slept = keepers_slept() - before, waits = waits_of(players);
    int64_t took_ms = now_ms() - start_ms;
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(players[i].thread, NULL);
        assert_int_equal(players[i].result, HF_OK);
        hf_lock_free(players[i].lock);
        hf_close(players[i].client);
    }
    print_message("%ld waits in %lld ms, keepers slept %ld times\n", waits, (long long)took_ms,
                  slept);
    assert_true(slept < waits / 4 + took_ms / 10);
}

RUN_CASES(scene_start_server, scene_stop_server)
