/*
 * Surveys among strangers and in trouble: forged answers, too many questions, no rights, a server that
 * starts again. Nobody is believed further than that, and a lock is never touched by any of it.
 */
#include "lock/world.h"
#include "support/hostile.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK "holdfast_ask"
#define NUMBER "0123456789abcdef0123456789abcdef"
#define STRANGER "eeeeeeee-0000-4000-8000-00000000000e"

static hf_options telling(void) {
    hf_options options = world_options();
    options.report_after_ms = 0;
    return options;
}

/* ---- Somebody who reads the channels by hand ---- */

static redisContext *subscribe(struct server *server, const char *channel) {
    redisContext *context = server_connect(server);
    assert_non_null(context);
    redisReply *reply = redisCommand(context, "SUBSCRIBE %s", channel);
    assert_non_null(reply);
    freeReplyObject(reply);
    return context;
}

/* The next message; the caller frees it. NULL: none came in time. */
static redisReply *next_message(redisContext *context, int limit_ms) {
    redisReply *reply = NULL;
    struct pollfd readable = {.fd = context->fd, .events = POLLIN};
    if (redisReaderGetReply(context->reader, (void **)&reply) == REDIS_OK && reply != NULL)
        return reply;
    if (poll(&readable, 1, limit_ms) <= 0 || redisGetReply(context, (void **)&reply) != REDIS_OK)
        return NULL;
    return reply;
}

/* ---- Questions ---- */

/* A world whose clients never answer, and one that does. */
struct fleet {
    struct world w;
    hf_client *teller;
};

static void fleet_begin(struct fleet *fleet) {
    hf_options mute = world_options(), options = telling();
    mute.report_after_ms = -1;
    world_begin(&fleet->w, &mute);
    assert_int_equal(hf_open(server_url(fleet->w.server), &options, &fleet->teller), HF_OK);
}

static void fleet_end(struct fleet *fleet) {
    assert_int_equal(hf_close(fleet->teller), HF_OK);
    world_end(&fleet->w);
}

/* Each question has a number of its own. */
static void publish_question(struct server *server, unsigned number, const char *rest) {
    char question[256];
    snprintf(question, sizeof question, "ask 1 %032x %s", number, rest);
    cmd_ok(server, "PUBLISH " ASK " %s", question);
}

/* Asks until somebody answers, since the one who is to may not listen yet. The caller frees it. */
static redisReply *ask_until_answered(struct server *server, const char *rest) {
    redisReply *message = NULL;
    int64_t end_ms = now_ms() + HANG_MS;
    for (unsigned number = 1000000; message == NULL && now_ms() < end_ms; number++) {
        char channel[64];
        snprintf(channel, sizeof channel, "holdfast_tell:%032x", number);
        redisContext *hearer = subscribe(server, channel);
        publish_question(server, number, rest);
        message = next_message(hearer, 500);
        redisFree(hearer);
    }
    assert_non_null(message);
    return message;
}

static void an_answer_keeps_to_the_limit(void **state) {
    (void)state;
    enum { LOCKS = 60 };
    struct fleet fleet;
    hf_lock *locks[LOCKS];
    fleet_begin(&fleet);
    for (int i = 0; i < LOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "limit-%d", i);
        assert_int_equal(hf_lock_new(fleet.teller, name, &locks[i]), HF_OK);
        assert_int_equal(hf_lock_acquire(locks[i]), HF_OK);
    }
    redisReply *message = ask_until_answered(fleet.w.server, "2000 hwn 0 0 limit-*");
    const redisReply *text = message->element[2];
    assert_true(text->len <= 2000);
    assert_non_null(strstr(text->str, "\"name\":\"limit-"));
    assert_non_null(strstr(text->str, "\"left_out\":"));
    assert_int_equal(text->str[text->len - 1], '}');
    freeReplyObject(message);
    for (int i = 0; i < LOCKS; i++) {
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        hf_lock_free(locks[i]);
    }
    fleet_end(&fleet);
}

/* Ten answers in a second at most, however many ask; who asked and is gone costs nobody anything. */
static void many_questions_are_answered_a_few_times(void **state) {
    (void)state;
    struct fleet fleet;
    hf_lock *lock;
    fleet_begin(&fleet);
    assert_int_equal(hf_lock_new(fleet.teller, "asked", &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    freeReplyObject(ask_until_answered(fleet.w.server, "4000 hwn 0 0 "));
    struct monitor *monitor = monitor_start(fleet.w.server);
    int64_t start_ms = now_ms();
    for (unsigned i = 0; i < 1000; i++)
        publish_question(fleet.w.server, i, "4000 hwn 0 0 ");
    assert_true(monitor_wait(monitor, "\"holdfast_tell:", 1, HANG_MS));
    size_t answers = monitor_count(monitor, "\"holdfast_tell:");
    assert_true(answers <= (size_t)((now_ms() - start_ms) / 100 + 1));
    monitor_stop(monitor);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    fleet_end(&fleet);
}

/* What is no question for us is not answered: a question behind them is the first to be. */
static void nonsense_is_not_answered(void **state) {
    (void)state;
    static const char *const nonsense[] = {
        "",
        "ask",
        "ask 1 ",
        "ask 2 " NUMBER " 4000 hwn 0 0 ",
        "ask 1 0123 4000 hwn 0 0 ",
        "ask 1 " NUMBER,
        "ask 1 " NUMBER " ",
        "ask 1 " NUMBER " 10 hwn 0 0 ",
        "ask 1 " NUMBER " 4000 hwn 7 0 ",
        "ask 1 " NUMBER " 4000 hwn 0 9 a",
        "ask 1 " NUMBER " -1 hwn 0 0 ",
        "ask 1 " NUMBER " 99999999999999999999 hwn 0 0 ",
        "ask 1 " NUMBER " 4000  0 0 ",
        "ask 1 " NUMBER " 4000 hwn",
    };
    struct fleet fleet;
    hf_lock *lock;
    fleet_begin(&fleet);
    assert_int_equal(hf_lock_new(fleet.teller, "asked", &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    freeReplyObject(ask_until_answered(fleet.w.server, "4000 hwn 0 0 "));
    redisContext *hearer = subscribe(fleet.w.server, "holdfast_tell:" NUMBER);
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
        cmd_ok(fleet.w.server, "PUBLISH " ASK " %s", nonsense[i]);
    cmd_ok(fleet.w.server, "PUBLISH " ASK " %s", "ask 1 " NUMBER " 4000 hwn 0 0 no such name");
    redisReply *message = next_message(hearer, HANG_MS);
    assert_non_null(message);
    assert_non_null(strstr(message->element[2]->str, "\"holds\":[]"));
    freeReplyObject(message);
    redisFree(hearer);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    fleet_end(&fleet);
}

/* ---- Answers ---- */

struct asker {
    hf_client *client;
    hf_fleet *fleet;
    int err;
    pthread_t thread;
};

static void *ask(void *arg) {
    struct asker *asker = arg;
    asker->err = hf_survey(asker->client, NULL, &asker->fleet);
    return NULL;
}

/* Says so many times so many bytes under the number of a question. */
static void forge(struct server *server, const char *question, const char *text, size_t len) {
    char number[33];
    assert_int_equal(sscanf(question, "ask 1 %32s", number), 1);
    cmd_ok(server, "PUBLISH holdfast_tell:%s %b", number, text, len);
}

static void forged_answers_are_claims_of_their_own(void **state) {
    (void)state;
    struct world w;
    struct asker asker;
    size_t huge_len = 300000;
    char *huge = malloc(huge_len);
    static const char old[] = "{\"v\":0,\"id\":\"" STRANGER "\"}";
    static const char forged[] =
        "{\"v\":1,\"id\":\"" STRANGER "\",\"name\":\"x\",\"waits\":[],\"holds\":["
        "{\"name\":\"" WORLD_NAME "\",\"kind\":\"plain\",\"owner\":\"" STRANGER
        ":1\",\"count\":1}]}";
    assert_non_null(huge);
    memset(huge, 'x', huge_len);
    world_begin(&w, NULL);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    redisContext *stranger = subscribe(w.server, ASK);
    asker = (struct asker){.client = w.rival};
    assert_int_equal(pthread_create(&asker.thread, NULL, ask, &asker), 0);
    redisReply *question = next_message(stranger, HANG_MS);
    assert_non_null(question);
    /* what is too long does not count as the answer for which it waits, so the others come in time */
    forge(w.server, question->element[2]->str, huge, huge_len);
    forge(w.server, question->element[2]->str, forged, sizeof forged - 1);
    forge(w.server, question->element[2]->str, forged, sizeof forged - 1);
    forge(w.server, question->element[2]->str, old, sizeof old - 1);
    assert_int_equal(pthread_join(asker.thread, NULL), 0);
    assert_int_equal(asker.err, HF_OK);
    assert_int_equal(asker.fleet->locks_len, 1);
    const hf_fleet_lock *lock = asker.fleet->locks[0];
    bool told = lock->holders_len == 2; /* not if the machine paused, and the survey did not wait */
    assert_true(lock->disputed == told);
    for (size_t i = 0; i < lock->holders_len; i++)
        assert_int_equal((lock->holders[i]->seen_by & HF_SEEN_BY_SERVER) != 0,
                         strcmp(lock->holders[i]->owner, w.owner) == 0);
    hf_fleet_free(asker.fleet);
    freeReplyObject(question);
    redisFree(stranger);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    free(huge);
    world_end(&w);
}

/* ---- Rights ---- */

static hf_client *open_as(struct server *server, const char *user) {
    hf_options options = telling();
    hf_client *client;
    options.user = user;
    options.password = "secret";
    assert_int_equal(hf_open(server_url(server), &options, &client), HF_OK);
    return client;
}

static void without_rights_the_rest_is_told(void **state) {
    (void)state;
    struct world w;
    hf_fleet *fleet;
    world_begin(&w, NULL);
    cmd_ok(w.server, "ACL SETUSER mute on >secret ~* +@all resetchannels &redisson*");
    cmd_ok(w.server, "ACL SETUSER blind on >secret ~* +@all -client +client|setname allchannels");
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);

    hf_client *mute = open_as(w.server, "mute");
    assert_int_equal(hf_survey(mute, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->missing, HF_MISSING_ANSWERS);
    assert_non_null(strstr(fleet->words, "not asked"));
    assert_int_equal(fleet->locks_len, 1);
    assert_string_equal(fleet->locks[0]->holders[0]->owner, w.owner);
    hf_fleet_free(fleet);
    assert_int_equal(hf_close(mute), HF_OK);

    hf_client *blind = open_as(w.server, "blind");
    assert_int_equal(hf_survey(blind, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->missing, HF_MISSING_CONNECTIONS);
    assert_int_equal(fleet->locks_len, 1);
    assert_int_not_equal(fleet->locks[0]->holders[0]->presence, HF_GONE);
    hf_fleet_free(fleet);
    assert_int_equal(hf_close(blind), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    cmd_ok(w.server, "ACL DELUSER mute blind");
    world_end(&w);
}

/* To find out what a user may do nothing is harmed that may be there, and nothing stays. */
static void facts_leave_what_is_there(void **state) {
    (void)state;
    static const char *const refused[] = {"-exists", "-del -hdel -pexpire"};
    struct world w;
    world_begin(&w, NULL);
    for (int i = 0; i < 2; i++) {
        hf_lock *lock;
        hf_facts *facts;
        char command[128];
        snprintf(command, sizeof command, "ACL SETUSER less on >secret ~* +@all allchannels %s",
                 refused[i]);
        cmd_ok(w.server, command);
        hf_client *less = open_as(w.server, "less");
        assert_int_equal(hf_lock_new(less, WORLD_NAME, &lock), HF_OK);
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        assert_int_equal(hf_lock_facts(lock, &facts), HF_OK);
        hf_facts_free(facts);
        assert_int_equal(world_count(&w, w.owner), 1);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
        assert_int_equal(hf_lock_facts(lock, &facts), HF_OK);
        hf_facts_free(facts);
        assert_true(world_free(&w));
        hf_lock_free(lock);
        assert_int_equal(hf_close(less), HF_OK);
        cmd_ok(w.server, "ACL DELUSER less");
    }
    world_end(&w);
}

/* ---- A server with more in it ---- */

/* Hashes that are no locks, and too large to be told. */
static void what_others_keep_is_not_read(void **state) {
    (void)state;
    static const char fill[] =
        "for i = 1, 30 do for k = 1, 50 do redis.call('hset', 'big' .. i, 'field' .. k, "
        "string.rep('x', 5000)) end redis.call('hset', 'odd' .. i, 'mode', "
        "string.rep('x', 300000)) end return 1";
    static const char clear[] =
        "for i = 1, 30 do redis.call('del', 'big' .. i, 'odd' .. i) end return 1";
    struct world w;
    hf_fleet *fleet;
    world_begin(&w, NULL);
    assert_int_equal(cmd_int(w.server, "EVAL %s 0", fill), 1);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_survey(w.rival, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->locks_len, 1);
    assert_string_equal(fleet->locks[0]->name, WORLD_NAME);
    hf_fleet_free(fleet);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(cmd_int(w.server, "EVAL %s 0", clear), 1);
    world_end(&w);
}

static void a_list_that_is_too_long_is_missing(void **state) {
    (void)state;
    size_t len = 5 << 20;
    char *name = malloc(len);
    struct world w;
    hf_fleet *fleet;
    assert_non_null(name);
    memset(name, 'x', len);
    world_begin(&w, NULL);
    redisContext *stranger = server_connect(w.server);
    assert_non_null(stranger);
    freeReplyObject(redisCommand(stranger, "CLIENT SETNAME %b", name, len));
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_survey(w.rival, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->missing, HF_MISSING_CONNECTIONS);
    assert_int_equal(fleet->locks_len, 1);
    hf_fleet_free(fleet);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    redisFree(stranger);
    free(name);
    world_end(&w);
}

/* A server that has more connections in every list than there may be. */
struct boaster {
    const char *ever; /* how many there were */
    char *list;
    size_t list_len;
    atomic_int lists;
};

enum { BOASTED = 60000 };

static void boast(struct hostile_peer *peer, const char *command, size_t length, void *user) {
    struct boaster *boaster = user;
    char text[256], info[128];
    int len = snprintf(info, sizeof info,
                       "connected_clients:9223372036854775807\r\n"
                       "total_connections_received:%s\r\n",
                       boaster->ever);
    if (hostile_is(command, length, "CLIENT") && memmem(command, length, "LIST", 4) != NULL) {
        atomic_fetch_add(&boaster->lists, 1);
        snprintf(text, sizeof text, "$%zu\r\n", boaster->list_len);
        hostile_send_text(peer, text);
        hostile_send(peer, boaster->list, boaster->list_len);
        hostile_send_text(peer, "\r\n");
    } else if (hostile_is(command, length, "INFO") &&
               (memmem(command, length, "clients", 7) != NULL ||
                memmem(command, length, "stats", 5) != NULL)) {
        snprintf(text, sizeof text, "$%d\r\n%s\r\n", len, info);
        hostile_send_text(peer, text);
    } else if (hostile_is(command, length, "SCAN")) {
        hostile_send_text(peer, "*2\r\n$1\r\n0\r\n*0\r\n");
    } else if (!hostile_handshake(peer, command, length)) {
        hostile_send_text(peer, "-NOPERM not for you\r\n");
    }
}

static unsigned survey_of_boaster(struct boaster *boaster) {
    hf_options options = telling();
    hf_client *client;
    hf_fleet *fleet;
    struct hostile *server = hostile_start(boast, boaster);
    assert_int_equal(hf_open(hostile_url(server), &options, &client), HF_OK);
    assert_int_equal(hf_survey(client, NULL, &fleet), HF_OK);
    unsigned missing = fleet->missing;
    hf_fleet_free(fleet);
    hf_close(client);
    hostile_free(server);
    return missing;
}

/* The lists add up, and what is too much ends them; any number of connections may be said to have been. */
static void endless_connections_are_cut(void **state) {
    (void)state;
    static const char line[] = "id=1 name=x\n";
    struct boaster many = {.ever = "1000000", .list_len = BOASTED * (sizeof line - 1)};
    many.list = malloc(many.list_len);
    assert_non_null(many.list);
    for (size_t i = 0; i < BOASTED; i++)
        memcpy(many.list + i * (sizeof line - 1), line, sizeof line - 1);
    struct boaster ever = {
        .ever = "9223372036854775807", .list = many.list, .list_len = many.list_len};
    assert_true((survey_of_boaster(&many) & HF_MISSING_CONNECTIONS) != 0);
    assert_int_equal(many.lists, 2);
    assert_int_equal(survey_of_boaster(&ever) & HF_MISSING_CONNECTIONS, 0);
    assert_int_equal(ever.lists, 1);
    free(many.list);
}

/* ---- A server that starts again ---- */

static void a_restart_is_an_error_or_nothing(void **state) {
    (void)state;
    struct world w;
    struct server *server = server_start(NULL);
    struct asker asker;
    hf_fleet *fleet;
    world_begin_on(&w, server, NULL);
    for (int i = 0; i < 3; i++) {
        asker = (struct asker){.client = w.rival};
        assert_int_equal(pthread_create(&asker.thread, NULL, ask, &asker), 0);
        server_restart(server);
        assert_int_equal(pthread_join(asker.thread, NULL), 0);
        if (asker.err == HF_OK)
            hf_fleet_free(asker.fleet);
    }
    assert_int_equal(hf_survey(w.rival, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->locks_len, 0);
    hf_fleet_free(fleet);
    world_end(&w);
    server_free(server);
}

/* The client closes while it is asked, and while it asks. */
static void a_client_may_close_at_any_time(void **state) {
    (void)state;
    struct world w;
    hf_options options = telling();
    world_begin(&w, NULL);
    for (int i = 0; i < 5; i++) {
        hf_client *client;
        hf_lock *lock;
        hf_fleet *fleet = NULL;
        hf_op *op;
        assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
        assert_int_equal(hf_lock_new(client, "closing", &lock), HF_OK);
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_true(wait_until(server_questions_are_heard, w.server, HANG_MS));
        assert_int_equal(hf_survey_start(client, NULL, &fleet, NULL, NULL, &op), HF_OK);
        cmd_ok(w.server, "PUBLISH " ASK " %s", "ask 1 " NUMBER " 4000 hwn 0 0 ");
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(hf_close(client), HF_OK);
        int err = hf_op_wait(op, HANG_MS, NULL);
        assert_true(err == HF_ECLOSED || err == HF_OK);
        hf_op_free(op);
        hf_fleet_free(fleet);
        hf_lock_free(lock);
    }
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_keeps_to_the_limit),
        cmocka_unit_test(many_questions_are_answered_a_few_times),
        cmocka_unit_test(nonsense_is_not_answered),
        cmocka_unit_test(forged_answers_are_claims_of_their_own),
        cmocka_unit_test(without_rights_the_rest_is_told),
        cmocka_unit_test(facts_leave_what_is_there),
        cmocka_unit_test(what_others_keep_is_not_read),
        cmocka_unit_test(a_list_that_is_too_long_is_missing),
        cmocka_unit_test(endless_connections_are_cut),
        cmocka_unit_test(a_restart_is_an_error_or_nothing),
        cmocka_unit_test(a_client_may_close_at_any_time),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
