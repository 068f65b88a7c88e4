/*
 * Surveys among strangers and under faults: forged answers, too many questions, no rights, a server that
 * starts again. Nobody is believed further than that, and a lock is never touched by any of it.
 */
#include "support/hostile.h"
#include "support/world.h"

#include <poll.h>
#include <stdatomic.h>

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
    own_reply *reply = redisCommand(context, "SUBSCRIBE %s", channel);
    assert_non_null(reply);
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
    hf_client *responder;
};

static void fleet_begin(struct fleet *fleet) {
    hf_options mute = world_options(), options = telling();
    mute.report_after_ms = -1;
    world_begin(&fleet->w, &mute);
    assert_int_equal(hf_open(server_url(fleet->w.server), &options, &fleet->responder), HF_OK);
}

static void fleet_end(struct fleet *fleet) {
    assert_int_equal(hf_close(fleet->responder), HF_OK);
    world_end(&fleet->w);
}

/* Each question has a number of its own. */
static void publish_question(struct server *server, unsigned number, const char *rest) {
    own_text *question = text_of("ask 1 %032x %s", number, rest);
    cmd_ok(server, "PUBLISH " ASK " %s", question);
}

/* Asks until somebody answers, since the one who is to may not listen yet. The caller frees it. */
static redisReply *ask_until_answered(struct server *server, const char *rest) {
    redisReply *message = NULL;
    int64_t end_ms = now_ms() + HANG_MS;
    for (unsigned number = 1000000; message == NULL && now_ms() < end_ms; number++) {
        own_text *channel = text_of("holdfast_tell:%032x", number);
        own_context *hearer = subscribe(server, channel);
        publish_question(server, number, rest);
        message = next_message(hearer, 500);
    }
    assert_non_null(message);
    return message;
}

CASE_IN(an_answer_keeps_to_the_limit, struct fleet, fleet, fleet_begin, fleet_end) {
    enum { LOCKS = 60 };
    hf_lock *locks[LOCKS];
    for (int i = 0; i < LOCKS; i++) {
        own_text *name = text_of("limit-%d", i);
        assert_int_equal(hf_lock_new(fleet->responder, name, &locks[i]), HF_OK);
        assert_int_equal(hf_lock_acquire(locks[i]), HF_OK);
    }
    redisReply *message = ask_until_answered(fleet->w.server, "2000 hwn 0 0 limit-*");
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
}

/* Ten answers in a second at most, however many ask, and as many that only say that it is there,
 * and a burst of 32 of these; who asked and is gone costs nobody anything. */
CASE_IN(many_questions_are_answered_a_few_times, struct fleet, fleet, fleet_begin, fleet_end) {
    own_lock *lock = made(hf_lock_new, fleet->responder, "asked");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    freeReplyObject(ask_until_answered(fleet->w.server, "4000 hwn 0 0 "));
    struct monitor *monitor = monitor_start(fleet->w.server);
    int64_t start_ms = now_ms();
    for (unsigned i = 0; i < 1000; i++)
        publish_question(fleet->w.server, i, "4000 hwn 0 0 ");
    assert_true(monitor_wait(monitor, "\"holdfast_tell:", 1, HANG_MS));
    size_t answers = monitor_count(monitor, "\"holdfast_tell:");
    assert_true(answers <= 32 + 2 * (size_t)((now_ms() - start_ms) / 100 + 1));
    monitor_stop(monitor);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* What is no question for us is not answered: a question behind them is the first to be. */
CASE_IN(nonsense_is_not_answered, struct fleet, fleet, fleet_begin, fleet_end) {
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
    own_lock *lock = made(hf_lock_new, fleet->responder, "asked");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    freeReplyObject(ask_until_answered(fleet->w.server, "4000 hwn 0 0 "));
    redisContext *hearer = subscribe(fleet->w.server, "holdfast_tell:" NUMBER);
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
        cmd_ok(fleet->w.server, "PUBLISH " ASK " %s", nonsense[i]);
    cmd_ok(fleet->w.server, "PUBLISH " ASK " %s", "ask 1 " NUMBER " 4000 hwn 0 0 no such name");
    redisReply *message = next_message(hearer, HANG_MS);
    assert_non_null(message);
    assert_non_null(strstr(message->element[2]->str, "\"holds\":[]"));
    freeReplyObject(message);
    redisFree(hearer);
    assert_int_equal(hf_lock_release(lock), HF_OK);
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

CASE(forged_answers_are_claims_of_their_own) {
    OWN(world_end) struct world w;
    struct asker asker;
    size_t huge_len = 300000;
    own_text *huge = malloc(huge_len);
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
    bool notified =
        lock->holders_len == 2; /* not if the machine paused, and the survey did not wait */
    assert_true(lock->disputed == notified);
    for (size_t i = 0; i < lock->holders_len; i++)
        assert_int_equal((lock->holders[i]->seen_by & HF_SEEN_BY_SERVER) != 0,
                         strcmp(lock->holders[i]->owner, w.owner) == 0);
    hf_fleet_free(asker.fleet);
    freeReplyObject(question);
    redisFree(stranger);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* ---- Half of the answers ---- */

/* A connection of a client that says nothing, and hears this. */
static redisContext *listen_as(struct server *server, const char *id, const char *channel) {
    redisContext *context = server_connect(server);
    assert_non_null(context);
    freeReplyObject(redisCommand(context, "CLIENT SETNAME holdfast:%s:host:1:mute", id));
    freeReplyObject(redisCommand(context, "SUBSCRIBE %s", channel));
    return context;
}

static hf_presence presence_in(const hf_fleet *fleet, const hf_client *client) {
    for (size_t i = 0; i < fleet->clients_len; i++)
        if (strcmp(fleet->clients[i]->id, hf_client_id(client)) == 0)
            return fleet->clients[i]->presence;
    return HF_PRESENCE_UNKNOWN;
}

/* One that had no time to wait for answers does not say that nobody gave them. */
CASE_IN(a_short_survey_reports_no_client_as_silent, struct fleet, fleet, fleet_begin, fleet_end) {
    hf_fleet *found;
    size_t cut = 0;
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    own_lock *lock = made(hf_lock_new, fleet->responder, "hurried");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    freeReplyObject(ask_until_answered(fleet->w.server, "4000 hwn 0 0 "));
    for (int i = 0; i < 200 && cut < 5; i++) {
        options.limit_ms = 5 + i % 20;
        if (hf_survey(fleet->w.rival, &options, &found) != HF_OK)
            continue; /* there was not even time for the server */
        hf_presence presence = presence_in(found, fleet->responder);
        assert_int_not_equal(presence, HF_PRESENCE_SILENT);
        cut += presence == HF_PRESENCE_CONNECTED && (found->missing & HF_MISSING_ANSWERS) != 0;
        hf_fleet_free(found);
    }
    assert_true(cut > 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* Ends the connection on which a client hears answers. */
static bool kill_hearer(struct server *server, const char *id) {
    own_reply *list = cmd(server, "CLIENT LIST TYPE pubsub");
    bool killed = false;
    for (char *line = strtok(list->str, "\n"); line != NULL; line = strtok(NULL, "\n"))
        if (strstr(line, id) != NULL) {
            own_reply *reply = cmd(server, "CLIENT KILL ID %lld", strtoll(line + 3, NULL, 10));
            killed = reply->type != REDIS_REPLY_ERROR;
        }
    return killed;
}

/* The connection that hears the answers is lost while they are waited for: whether they were given nobody knows. */
CASE_IN(a_lost_connection_makes_no_client_silent, struct fleet, fleet, fleet_begin, fleet_end) {
    struct asker asker;
    own_lock *lock = made(hf_lock_new, fleet->responder, "refused");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    freeReplyObject(ask_until_answered(fleet->w.server, "4000 hwn 0 0 "));
    /* one that would answer, and does not, so that the survey waits */
    redisContext *mute = listen_as(fleet->w.server, STRANGER, "holdfast_tell:0:" STRANGER);
    freeReplyObject(redisCommand(mute, "SUBSCRIBE " ASK));
    asker = (struct asker){.client = fleet->w.rival};
    assert_int_equal(pthread_create(&asker.thread, NULL, ask, &asker), 0);
    redisReply *question = next_message(mute, HANG_MS);
    assert_non_null(question);
    assert_true(kill_hearer(fleet->w.server, hf_client_id(fleet->w.rival)));
    assert_int_equal(pthread_join(asker.thread, NULL), 0);
    assert_int_equal(asker.err, HF_OK);
    assert_true((asker.fleet->missing & HF_MISSING_ANSWERS) != 0);
    for (size_t i = 0; i < asker.fleet->clients_len; i++)
        assert_int_not_equal(asker.fleet->clients[i]->presence, HF_PRESENCE_SILENT);
    hf_fleet_free(asker.fleet);
    freeReplyObject(question);
    redisFree(mute);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* ---- Rights ---- */

static hf_client *open_as(struct server *server, const char *user) {
    hf_options options = telling();
    options.user = user;
    options.password = "secret";
    return made(hf_open, server_url(server), &options);
}

WORLD_CASE(without_rights_the_rest_is_reported) {
    hf_fleet *fleet;
    cmd_ok(w->server, "ACL SETUSER mute on >secret ~* +@all resetchannels &redisson*");
    cmd_ok(w->server, "ACL SETUSER blind on >secret ~* +@all -client +client|setname allchannels");
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);

    hf_client *mute = open_as(w->server, "mute");
    assert_int_equal(hf_survey(mute, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->missing, HF_MISSING_ANSWERS);
    assert_non_null(strstr(fleet->missing_text, "not asked"));
    assert_int_equal(fleet->locks_len, 1);
    assert_string_equal(fleet->locks[0]->holders[0]->owner, w->owner);
    hf_fleet_free(fleet);
    assert_int_equal(hf_close(mute), HF_OK);

    hf_client *blind = open_as(w->server, "blind");
    assert_int_equal(hf_survey(blind, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->missing, HF_MISSING_CONNECTIONS);
    assert_int_equal(fleet->locks_len, 1);
    assert_int_not_equal(fleet->locks[0]->holders[0]->presence, HF_PRESENCE_GONE);
    hf_fleet_free(fleet);
    assert_int_equal(hf_close(blind), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    cmd_ok(w->server, "ACL DELUSER mute blind");
}

/* If the server does not report which clients receive questions, one hanging client does not make
 * others seem to hang. */
WORLD_CASE(a_client_that_may_not_have_received_it_is_not_silent) {
    static const char other[] = "eeeeeeee-0000-4000-8000-00000000000f";
    hf_fleet *fleet;
    cmd_ok(w->server, "ACL SETUSER uncounted on >secret ~* +@all -pubsub allchannels");
    redisContext *hangs = listen_as(w->server, STRANGER, ASK);
    hf_client *client = open_as(w->server, "uncounted");
    assert_int_equal(hf_survey(client, NULL, &fleet), HF_OK);
    for (size_t i = 0; i < fleet->clients_len; i++)
        if (strcmp(fleet->clients[i]->id, STRANGER) == 0)
            assert_int_equal(fleet->clients[i]->presence, HF_PRESENCE_SILENT);
    hf_fleet_free(fleet);
    redisContext *waits = listen_as(w->server, other, "redisson_lock__channel:{" WORLD_NAME "}");
    assert_int_equal(hf_survey(client, NULL, &fleet), HF_OK);
    for (size_t i = 0; i < fleet->clients_len; i++)
        assert_int_not_equal(fleet->clients[i]->presence, HF_PRESENCE_SILENT);
    hf_fleet_free(fleet);
    redisFree(hangs);
    redisFree(waits);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(w->server, "ACL DELUSER uncounted");
}

/* To find out what a user may do nothing is harmed that may be there, and nothing stays. */
WORLD_CASE(facts_change_nothing) {
    static const char *const refused[] = {"-exists", "-del -hdel -pexpire"};
    for (int i = 0; i < 2; i++) {
        hf_server_info *info;
        own_text *command =
            text_of("ACL SETUSER less on >secret ~* +@all allchannels %s", refused[i]);
        cmd_ok(w->server, command);
        hf_client *less = open_as(w->server, "less");
        hf_lock *lock = made(hf_lock_new, less, WORLD_NAME);
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        assert_int_equal(hf_lock_server_info(lock, &info), HF_OK);
        hf_server_info_free(info);
        assert_int_equal(world_count(w, w->owner), 1);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        assert_int_equal(hf_lock_server_info(lock, &info), HF_OK);
        hf_server_info_free(info);
        assert_true(world_free(w));
        hf_lock_free(lock);
        assert_int_equal(hf_close(less), HF_OK);
        cmd_ok(w->server, "ACL DELUSER less");
    }
}

/* ---- A server with more in it ---- */

/* Hashes that are not locks, and too large to be reported. */
WORLD_CASE(foreign_data_is_not_read) {
    static const char fill[] =
        "for i = 1, 30 do for k = 1, 50 do redis.call('hset', 'big' .. i, 'field' .. k, "
        "string.rep('x', 5000)) end redis.call('hset', 'odd' .. i, 'mode', "
        "string.rep('x', 300000)) end return 1";
    static const char clear[] =
        "for i = 1, 30 do redis.call('del', 'big' .. i, 'odd' .. i) end return 1";
    hf_fleet *fleet;
    assert_int_equal(cmd_int(w->server, "EVAL %s 0", fill), 1);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_survey(w->rival, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->locks_len, 1);
    assert_string_equal(fleet->locks[0]->name, WORLD_NAME);
    hf_fleet_free(fleet);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(cmd_int(w->server, "EVAL %s 0", clear), 1);
}

CASE(a_list_that_is_too_long_is_missing) {
    OWN(world_end) struct world w;
    size_t len = 5 << 20;
    own_text *name = malloc(len);
    hf_fleet *fleet;
    assert_non_null(name);
    memset(name, 'x', len);
    world_begin(&w, NULL);
    own_context *stranger = server_connect(w.server);
    assert_non_null(stranger);
    freeReplyObject(redisCommand(stranger, "CLIENT SETNAME %b", name, len));
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_survey(w.rival, NULL, &fleet), HF_OK);
    assert_int_equal(fleet->missing, HF_MISSING_CONNECTIONS);
    assert_int_equal(fleet->locks_len, 1);
    hf_fleet_free(fleet);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
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
    hf_fleet *fleet;
    struct hostile *server = hostile_start(boast, boaster);
    hf_client *client = made(hf_open, hostile_url(server), &options);
    assert_int_equal(hf_survey(client, NULL, &fleet), HF_OK);
    unsigned missing = fleet->missing;
    hf_fleet_free(fleet);
    hf_close(client);
    hostile_free(server);
    return missing;
}

/* The lists add up, and what is too much ends them; any number of connections may be said to have been. */
CASE(endless_connections_are_cut) {
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

CASE(a_restart_is_an_error_or_nothing) {
    OWN(world_end) struct world w;
    own_server *server = server_start(NULL);
    struct asker asker;
    own_fleet *fleet;
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
}

/* The client closes while it is asked, and while it asks. */
WORLD_CASE(a_client_may_close_at_any_time) {
    hf_options options = telling();
    for (int i = 0; i < 5; i++) {
        own_fleet *fleet = NULL;
        own_op *op;
        hf_client *client = made(hf_open, server_url(w->server), &options);
        own_lock *lock = made(hf_lock_new, client, "closing");
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_true(wait_until(server_questions_are_received, w->server, HANG_MS));
        assert_int_equal(hf_survey_start(client, NULL, &fleet, NULL, NULL, &op), HF_OK);
        cmd_ok(w->server, "PUBLISH " ASK " %s", "ask 1 " NUMBER " 4000 hwn 0 0 ");
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(hf_close(client), HF_OK);
        int err = hf_op_wait(op, HANG_MS, NULL);
        assert_true(err == HF_ECLOSED || err == HF_OK);
    }
}

/* What was not found by then is missing, also if that is all: none of it is an error. */
WORLD_CASE(the_limit_comes_before_an_answer) {
    static const struct {
        const char *slow;
        unsigned missing;
    } rows[] = {
        {"\r\nINFO\r\n", HF_MISSING_ANSWERS | HF_MISSING_CONNECTIONS | HF_MISSING_LOCKS},
        {"\r\nLIST\r\n", HF_MISSING_ANSWERS | HF_MISSING_CONNECTIONS | HF_MISSING_LOCKS},
        {"\r\nPUBLISH\r\n", HF_MISSING_ANSWERS | HF_MISSING_LOCKS},
        {"\r\nSCAN\r\n", HF_MISSING_LOCKS},
    };
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_fleet *fleet = NULL;
    assert_int_equal(hf_survey(w->client, NULL, &fleet), HF_OK); /* makes all connections */
    hf_fleet_free(fleet);
    options.limit_ms = 400;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        proxy_stall_request(w->proxy, rows[i].slow);
        int64_t from_ms = now_ms();
        assert_int_equal(hf_survey(w->client, &options, &fleet), HF_OK);
        assert_true(now_ms() - from_ms >= options.limit_ms);
        assert_int_equal(fleet->missing & rows[i].missing, rows[i].missing);
        assert_string_not_equal(fleet->missing_text, "");
        hf_fleet_free(fleet);
        assert_int_equal(proxy_release_held(w->proxy), 1);
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

/* A server that does not answer for longer than an exchange takes is an error, and so is one that is not there. */
WORLD_CASE_WITH(no_server_is_no_empty_fleet, world_options(), options.cmd_timeout_ms = 200) {
    hf_survey_options survey = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    assert_int_equal(hf_ping(w->client), HF_OK);
    survey.limit_ms = 1000;
    proxy_blackhole(w->proxy, true, true);
    assert_int_equal(hf_survey(w->client, &survey, &fleet), HF_EUNREACH);
    proxy_cut_all(w->proxy);
    proxy_refuse(w->proxy, true);
    assert_int_equal(hf_survey(w->client, &survey, &fleet), HF_EUNREACH);
    proxy_heal(w->proxy);
}

/* A client that only waits has no control connection before it is asked, and closes while that is made. False: it had
 * one before, as on a busy machine. */
static bool closes_before_it_can_answer(void) {
    const hf_options options = telling();
    OWN(world_end) struct world w;
    struct world_caller waiter;
    world_begin(&w, &options);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w.proxy, ASK, 1, HANG_MS));
    assert_true(wait_until(server_questions_are_received, w.server, HANG_MS));
    proxy_stall_request(w.proxy, "\r\nSETNAME\r\n");
    bool had_none = proxy_open(w.proxy) == 2;
    cmd_ok(w.server, "PUBLISH " ASK " %s", "ask 1 " NUMBER " 4000 hwn 0 0 ");
    if (had_none)
        assert_true(proxy_wait_held(w.proxy, HANG_MS));
    assert_int_equal(hf_close(w.client), HF_OK);
    w.client = NULL;
    assert_int_equal(world_join(&waiter), HF_ECLOSED);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    return had_none;
}

CASE(a_client_closes_before_it_can_answer) {
    int scenes = 1;
    while (!closes_before_it_can_answer())
        assert_true(scenes++ < 100);
}

RUN_CASES(world_start_server, world_stop_server)
