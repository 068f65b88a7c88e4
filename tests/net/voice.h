/* One connection of src/net without anything above it, and threads that speak on it.
 *
 * Include as "net/voice.h". Each `voice` is a thread that sends ECHO with a text of its own and
 * waits for exactly that text, with a deadline and a cancel of its own, as a synchronous call does.
 * So a reply that goes to the wrong caller, a seat that nobody takes and a caller that oversleeps
 * all show. Who sits in the seat is read under the connection's mutex, only to bring a scene
 * about. */
#ifndef HF_TEST_NET_VOICE_H
#define HF_TEST_NET_VOICE_H

#include "net/scene.h"

#include "base/clock.h"
#include "net/impl.h"
#include "net/keeper.h"
#include "net/resp.h"

#include <hiredis/hiredis.h>

enum { EVENT_REPLY = 1u, EVENT_READY = 2u, EVENT_CANCEL = 4u, EVENT_LATE = 8u };
enum outcome { ANSWERED, LATE, CANCELLED, LOST, UNSENT, WRONG };

struct line {
    struct hfi_mem mem;
    struct hfi_log log;
    struct proxy *proxy;
    struct hfi_keeper *keeper;
    struct hfi_resp_login login;
    struct hfi_host host;
    struct hfi_target target;
    struct hfi_conn *conn;
};

struct voice {
    struct line *line;
    struct hfi_exec exec;
    struct hfi_attendant attendant;
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

struct seat_view {
    const struct hfi_exec *driver;
    unsigned in_flight, attendants;
    size_t followers;
};

void line_begin(struct line *line); /* through a proxy */
void line_begin_at(struct line *line, const char *socket);
void line_end(struct line *line);
void connect_line(struct line *line); /* again, after a loss */
struct seat_view look(struct line *line);
/* Waits until this voice drives (NULL: nobody does) and so many follow. */
void wait_seated(struct line *line, const struct voice *driver, size_t followers);
/* Nothing is left over: the next caller gets its own reply, and the seat is empty afterwards. */
void assert_line_works(struct line *line);

void voice_begin(struct voice *voice, struct line *line);
void voice_end(struct voice *voice);
/* Sends, and waits as a synchronous call would. */
enum outcome speak(struct voice *voice, size_t size, int64_t wait_ms);
/* The same on a thread of its own. */
void start_voice(struct voice *voice, struct line *line, size_t size, int64_t wait_ms);
/* The same as a call that nobody can cancel: nothing but its answer is expected to wake it. */
void start_undisturbed_voice(struct voice *voice, struct line *line, size_t size, int64_t wait_ms);
enum outcome join_voice(struct voice *voice);
void cancel_voice(struct voice *voice);
void shorten_voice(struct voice *voice, int64_t wait_ms); /* the wait ends so soon */

#endif
