/* What proxy.c (controls, loop), proxy_link.c (a connection), proxy_wire.c (what is spoken), proxy_log.c and
 * proxy_seen.c (what passed) share. */
#ifndef HF_TEST_PROXY_INTERNAL_H
#define HF_TEST_PROXY_INTERNAL_H

#include "support/proxy.h"
#include "support/resp.h"
#include "support/sync.h"

#include <sys/types.h>

enum rule_kind { RULE_DROP, RULE_MUTE, RULE_HOLD, RULE_STALL, RULE_FORGE, RULE_ANSWER };

/* How a stream is split, and what a rule's matcher is looked for in. */
struct proxy_speech {
    const char *scheme; /* of the proxy's urls */
    /* 0 while there is more to come, RESP_BROKEN for what is no message. */
    size_t (*command_length)(const char *data, size_t length);
    size_t (*reply_length)(const char *data, size_t length);
    void (*describe)(struct bytes *into, const char *command, size_t length); /* NULL: as it is */
    bool numbered; /* a reply names its command (the int behind its length), whatever the order */
    bool opaque;   /* nothing is matched or counted */
};

/* Armed for one command. */
struct rule {
    enum rule_kind kind;
    char *matcher;
    struct bytes bytes; /* of FORGE and ANSWER */
    struct rule *next;
};

/* What becomes of the next reply of a connection. LOCAL is an answer of ours that waits for its
 * turn. */
enum fate { FATE_PASS, FATE_CUT, FATE_MUTE, FATE_FORGE, FATE_LOCAL };

struct due {
    enum fate fate;
    bool subscribes;    /* the reply after which replies are no longer one for one */
    size_t number;      /* of its command in the log */
    int32_t id;         /* of its command, if they are numbered */
    struct bytes bytes; /* of FORGE and LOCAL */
    struct rule *rule;  /* of CUT and MUTE: to be armed again if the command came too late */
};

struct link {
    struct link *next;
    size_t id;
    bool tcp;
    int client, server;                  /* -1: closed */
    struct bytes from_client, to_server; /* not yet split; split and on its way */
    struct bytes from_server, to_client; /* likewise */
    struct due *due;                     /* one for each command on its way, oldest first */
    size_t due_count, due_room;
    bool head_checked;        /* the first command in from_client had its rules applied */
    size_t head_number;       /* in the log, of the command that had them applied last */
    int64_t delayed_until_ms; /* 0: the first command is not delayed */
    bool held;                /* from_client waits for proxy_release_held */
    size_t late_due;          /* replies to come before a release is complete */
    bool pubsub, cut_at_next, muted, frozen;
    int64_t reach_until_ms; /* OPAQUE: a server that is not there yet is tried again until then */
    bool cut_wanted;        /* now, by a control */
    bool cut_when_quiet;    /* by a rule, when earlier replies have been delivered */
};

struct log_entry {
    size_t link_id, length;
    bool too_late; /* the server said so: it did nothing */
    char bytes[];
};

/* The commands that passed; entry i of the array has the number first + i. */
struct command_log {
    struct log_entry **entries;
    size_t count, room, first, total_bytes;
};

struct proxy {
    char *dir, *path, *server_path, *password, *url, *tcp_url;
    const struct proxy_speech *speech;
    int server_port; /* instead of server_path, if that is NULL */
    int port;
    int wake;         /* an eventfd that ends the loop's poll */
    int listeners[2]; /* Unix and TCP; the loop's */
    bool listening;   /* whether they accept; the loop's */
    pthread_t thread;

    struct sync sync; /* guards all that follows; the loop holds it except in poll */
    struct link *links;
    struct rule *rules; /* oldest first */
    char *delay_matcher;
    int64_t delay_ms;
    size_t trickle;
    bool hole_to_server, hole_to_client, refuse, stop;
    bool late_failed; /* a released connection ended before its replies came */
    uint64_t pass_wanted, pass_done;
    size_t accepted, fired;
    struct command_log log;
};

/* proxy.c: takes the mutex, with everything accounted for that has reached the proxy's sockets. */
void proxy_begin(struct proxy *proxy);

/* proxy_link.c: called by the loop, mutex held. */
struct link *link_open(struct proxy *proxy, int client, bool tcp);
void link_pump(struct proxy *proxy, struct link *link);
bool link_is_done(const struct link *link);
bool link_waits_for_server(const struct link *link);
bool link_waits_for_taker(const struct proxy *proxy, const struct link *link);
short link_client_events(const struct proxy *proxy, const struct link *link);
short link_server_events(const struct link *link);
size_t link_held_commands(const struct proxy *proxy, const struct link *link);
void link_disarm(struct link *link); /* no rule is armed again for a copy that came too late */
void link_free(struct link *link);
void rule_free(struct rule *rule);

/* proxy_reach.c: a socket that does not block, or -1. */
int proxy_reach(const struct proxy *proxy);
/* All that there is, or can be sent, now. */
enum flow { FLOW_OPEN, FLOW_ENDED, FLOW_RESET };
enum flow proxy_receive(int fd, struct bytes *into);
enum flow proxy_transmit(int fd, struct bytes *from, size_t limit);

/* proxy_wire.c */
const struct proxy_speech *proxy_speech_of(enum proxy_wire wire);
int32_t proxy_frame_id(const char *frame);
/* Gives a reply the number of the request. */
void proxy_frame_answers(char *frame, const char *request);

/* proxy_log.c */
size_t log_add(struct command_log *log, size_t link_id, const char *bytes, size_t length);
void log_mark_too_late(struct command_log *log, size_t number);
size_t log_count(const struct command_log *log, const char *matcher, size_t *next);
size_t log_count_too_late(const struct command_log *log, const char *matcher);
bool log_link_matches(const struct command_log *log, size_t link_id, const char *matcher);
void log_clear(struct command_log *log);

#endif
