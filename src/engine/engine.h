/*
 * The interface between what is true of every lock (src/core) and how one kind of server does it
 * (src/redis).
 *
 * An engine offers synchronizers, not key-value operations: acquire, release, renew, break,
 * questions. Everything is asynchronous and runs as part of a task: the core fills in a `struct
 * hfi_call`, hands it to one of the operations below on the task's executor, and forwards the
 * task's engine events to `step`. The engine calls `done` exactly once, on that executor, perhaps
 * before the operation has returned. The core knows nothing of keys, scripts or replies; the engine
 * knows nothing of handles or callbacks.
 *
 * How a hold lasts is the engine's to say: a proof with each grant, extension and renewal, and news
 * (struct hfi_news) of what nobody asked about. Whether it lasts is the core's.
 */
#ifndef HFI_ENGINE_ENGINE_H
#define HFI_ENGINE_ENGINE_H

#include "base/backoff.h"
#include "base/task.h"
#include "engine/hearing.h"

#include <holdfast/holdfast.h>

/* Events of a task from this bit on are the engine's. */
#define HFI_ENGINE_EVENT_SHIFT 8
#define HFI_ENGINE_EVENTS (~0u << HFI_ENGINE_EVENT_SHIFT)

struct hfi_engine;
struct hfi_findings;
struct hfi_call_ops;
struct hfi_parked;
struct hfi_parts;
struct hfi_share;
struct pollfd;

/* Which thread drives the connection that a call uses. */
enum hfi_lane {
    HFI_LANE_CALLER,  /* the calling thread itself: a synchronous verb */
    HFI_LANE_KEEPER,  /* the keeper: background work, and asynchronous operations */
    HFI_LANE_DISPATCH /* whoever calls hf_dispatch() */
};

#define HFI_TOKEN_DRAW (-1)

/* A kind of lock, or a thing, as an engine offers it: a const table. */
struct hfi_kind {
    const char *name;
    const struct hfi_call_ops *ops; /* what can be done to it */
    /* Kinds with the same part share their holds under one name. NULL: the lock has only one
     * part. */
    const char *part;
    bool reentrant;
    bool exclusive; /* one holder at a time: one remote waiter per process is enough */
    bool token;     /* grants carry a fencing token */
    bool queues;    /* waiters stand in line at the server; giving up has to be told */
    bool spins;     /* acquire: how it does is the caller's to say (hfi_call.spin) */
    bool leaseless; /* no fixed lease: it is held until released, or lost */
    /* The server keeps a hold for as long as the client's session, and a lease is ours to end:
     * nothing ends by itself while we live. */
    bool ends_with_session;
    /* Others can shorten what is left of a hold of this kind, so even a fixed lease is set again
     * now and then, up to its end. */
    bool keeps_fresh;
    /* Others who share the lock may keep something of a hold alive that is over: that a renewal
     * does not find it does not mean that nothing is left. */
    bool leaves_traces;
    /* A lock made of other locks (core/parts.h): its holds are theirs, and the engine of the core that
     * has it knows nothing of it. */
    bool joint;
    bool cohort; /* joint, and its parts are held by one owner for many (src/joint/cohort.h) */
    /* An owner that holds a lock of this other kind would wait for itself: HF_EDEADLK. NULL: there
     * is none. */
    const struct hfi_kind *never_beside;
    /* How many of the first bytes of a lock's name are its stem: what others know it by, and share
     * with it. NULL: the whole name. */
    size_t (*stem_len)(const char *name, size_t name_len);
    /* Whether two locks of one stem have something in common: then no owner may hold both. NULL: a
     * lock has a stem of its own. Called under a shard. */
    bool (*overlap)(const char *a, size_t a_len, const char *b, size_t b_len);
    /* Writes the name of the lock of some values to `to`, the same in whatever order they come;
     * returns its length. NULL for `to`: returns the room that it needs. */
    size_t (*name_values)(const void *stem, size_t stem_len, const hf_bytes *values, size_t len,
                          char *to);
    const void *engine_private;
};

/* Of a lock of several its parts are told and counted by name. But who is inside of a cohort, and who waits there, is known to
 * nobody else: so that is told beside the hold that the server knows. */
static inline bool hfi_kind_is_told(const struct hfi_kind *kind) {
    return !kind->joint || kind->cohort;
}

static inline size_t hfi_kind_stem_len(const struct hfi_kind *kind, const char *name,
                                       size_t name_len) {
    return kind->stem_len != NULL ? kind->stem_len(name, name_len) : name_len;
}

static inline const char *hfi_kind_part(const struct hfi_kind *kind) {
    return kind->part != NULL ? kind->part : "";
}

/* Things that are not locks, since nobody in particular holds them. */
enum hfi_thing { HFI_SEMAPHORE, HFI_PERMITS, HFI_LATCH };

/* What is done to a thing in one exchange, without waiting. The engine says which of these a thing
 * knows; `amount`, `ttl_ms`, `lease_ms` and `ids` of the call are what it takes, `value` is
 * its answer. */
enum hfi_act {
    HFI_ACT_SET,           /* amount, ttl_ms (0: none); unless it is there. 1: it was set */
    HFI_ACT_RESET,         /* amount; in any case */
    HFI_ACT_ADD,           /* amount, perhaps negative */
    HFI_ACT_PUT,           /* give back: amount, or ids */
    HFI_ACT_PUT_IF_EXISTS, /* the same, but only if it is there. 1: it was */
    HFI_ACT_DRAIN,         /* take all there are; how many */
    HFI_ACT_COUNT_DOWN,    /* by one */
    HFI_ACT_AVAILABLE,     /* how many are free; of a latch: its count */
    HFI_ACT_TOTAL,         /* how many there are */
    HFI_ACT_TAKEN,         /* how many are taken */
    HFI_ACT_EXTEND,        /* ids, lease_ms */
    HFI_ACT_LEASE,         /* ids: what is left of its lease */
    HFI_ACT_EXPIRE,        /* ttl_ms. 1: it was there */
    HFI_ACT_DELETE,        /* 1: it was there */
    HFI_ACTS
};

#define HFI_ID_LEN 16 /* bytes of a permit's id */

enum hfi_question { HFI_ASK_LOCKED, HFI_ASK_COUNT, HFI_ASK_TTL, HFI_ASK_PING };

/* What other threads may see of a call while it runs. The engine writes it on the call's executor;
 * the core reads it under no lock at all, so each is right by itself, not together. */
struct hfi_signs {
    /* by then it does something again, or its thread is stuck; 10 s from when it was set at most */
    _Atomic int64_t due_ms;
    /* the server has not answered its command, or has refused it, since then; 0: all is well */
    _Atomic int64_t held_up_since_ms;
    atomic_int held_up; /* HF_EUNREACH or HF_EREFUSED */
    /* In: is told what is known of that, on the call's thread, now and then. NULL: nobody wants to know. */
    void (*tell)(struct hfi_signs *signs, const hf_error *trouble);
};

/* What the engine knows of a hold that it has granted, extended or renewed. */
struct hfi_proof {
    int64_t valid_until_ms; /* it is ours no longer than this, on our clock, unless proved again */
    int64_t renew_at_ms;    /* when to have it proved again, if it is to last longer */
    /* The end of the lease that was asked for. Later than valid_until_ms: the proof is for a part of
     * it, and by a renewal there is more to get. */
    int64_t promised_until_ms;
};

/* Who else waits for what was released. */
enum hfi_others {
    HFI_OTHERS_UNKNOWN,
    HFI_OTHERS_NONE, /* nobody was told, or those who are told do not come */
    HFI_OTHERS_FIRST /* some do, and the engine lets them go first when we come again soon */
};

/* One operation of an engine in progress: a part of the core's operation. */
struct hfi_call {
    /* In. `name` and `owner` stay valid until done. */
    struct hfi_engine *engine;
    struct hfi_task *task;
    enum hfi_lane lane;
    const struct hfi_kind *kind;
    const char *name;
    size_t name_len;
    const char *owner; /* "uuid:number" */
    size_t owner_len;
    int64_t count;    /* how many times this owner holds the lock, as far as we know */
    int64_t lease_ms; /* acquire, release (for what remains), extend */
    /* acquire, extend: how many copies must be confirmed, as hf_options has it; 0: nobody is asked */
    int acks;
    /* extend, of kinds with tokens: what the server is to store at least; HFI_TOKEN_DRAW: it is to draw
     * another. 0: neither. */
    int64_t token_wish;
    enum hfi_question question; /* ask */
    unsigned wanted;            /* survey: of the clients, HF_WANT_... */
    enum hfi_act act;           /* act, and its settlement */
    int64_t amount;             /* things: how many */
    int64_t ttl_ms;             /* things: when to expire as a whole; 0: never */
    const unsigned char
        *ids; /* permits: `ids_len` of them, HFI_ID_LEN bytes each; valid until done */
    size_t ids_len;
    struct hfi_backoff spin; /* acquire, kinds that spin; all 0: as the kind does */
    struct hfi_parts *parts; /* joint kinds: what the lock is made of; else NULL */
    /* joint kinds: out of an acquire, what it has of the parts; into a release, the same */
    struct hfi_share *share;
    int64_t start_ms; /* when the caller came */
    /* acquire: no more waiting for the lock after this; HFI_NEVER. One attempt: start_ms. Others:
     * the end of the exchange. */
    int64_t deadline_ms;
    /* acquire, soon after a release of the same client: it lets all go first who wait elsewhere, not only some of them */
    bool goes_last;
    /* settle: it follows a release from `count`, else an acquire from `count`. */
    bool settle_release;
    /* settle: something of the owner's may be there from before this call, too. */
    bool leftover;
    void (*done)(struct hfi_call *call);

    /* Out of a call that ends unsettled, and in again for settle: a copy of its command may act
     * until then. */
    int64_t ghost_until_ms;

    /* The same of an acquire that must not run twice: what the server knows it by. */
    struct {
        uint64_t number; /* 0: there is none */
        int peg;
    } ticket;

    struct hfi_signs *signs; /* out, while it runs */

    /* Out, valid in `done`. */
    int err;
    hf_error error;
    int64_t value;          /* new count; the answer to a question; 1 if something was broken */
    int64_t token;          /* of a grant; of an extension with a wish: what the server stores */
    struct hfi_proof proof; /* of a grant or extension */
    bool contended;         /* acquire: another held it at first */
    /* acquire: when the message came that had it look once more, as hfi_now_us() has it; 0: there was
     * none, or it looked by itself after that */
    int64_t told_us;
    int64_t votes, servers; /* of a grant or extension by a quorum: so many of so many */
    int64_t acked;          /* the same with `acks`: so many have confirmed it */
    bool queued;            /* acquire: unsettled, because the owner may still be in line there */
    /* acquire: err is set, because the server was of no help since signs.held_up_since_ms, which is
     * as long as anybody is to wait for it */
    bool no_server;
    /* err is set, and the command may have run or may still run: call settle() */
    bool unsettled;
    enum hfi_others others;        /* release: the last, which was done */
    bool gone;                     /* release, extend: the hold was not there (err is HF_ELOST) */
    hf_lock_info *info;            /* inspect: malloc'ed, set on HF_OK */
    hf_facts *facts;               /* facts: the same */
    struct hfi_findings *findings; /* survey: the same (engine/findings.h) */

    void *state; /* the engine's, `call_size` bytes, aligned, zeroed before each operation */
};

/* The operations of a kind. Any but `step` and `cancel` may be missing: there is no such thing to be
 * done. `park`, `resume` and `unpark` go together. */
struct hfi_call_ops {
    size_t call_size; /* bytes of state a call needs */

    /* Waits until held, deadline or cancel. Of a thing: until `amount` (or `ids`) are taken, or the
     * latch is open. */
    void (*acquire)(struct hfi_call *call);
    void (*release)(struct hfi_call *call); /* from call->count to one less */
    void (*extend)(struct hfi_call *call);  /* raise the lease */
    /* The same of a hold that only the server knows; call->count becomes how many times its owner
     * has it. HF_ENOTOWNER: it is not there. */
    void (*adopt)(struct hfi_call *call);
    void (*force)(struct hfi_call *call);   /* break anybody's hold; value 1 if there was one */
    void (*ask)(struct hfi_call *call);     /* call->question */
    void (*inspect)(struct hfi_call *call); /* into call->info */
    /* What the server of the name says of itself, into call->facts. To find out what may be written,
     * the name is used if nothing has it. */
    void (*facts)(struct hfi_call *call);
    void (*survey)(struct hfi_call *call); /* into call->findings; its name is the pattern */
    /* Something done to a thing: call->act. HF_EUNKNOWN: it may or may not have been done, or may
     * still be. */
    void (*act)(struct hfi_call *call);

    /* After an unsettled acquire from `count`: make sure the owner holds no more than `count`;
     * after an unsettled release from `count`: make sure it holds one less. Keeps trying until the
     * server has answered and no copy of a former command can act any more, or `deadline_ms` has
     * passed. Of a thing: give back what an unsettled acquire has taken, if that can be known;
     * repeat an unsettled act. Keeper lane. The state is as the failed call left it. */
    void (*settle)(struct hfi_call *call);

    /* engine events of the task, already masked */
    void (*step)(struct hfi_call *call, unsigned events);

    /* Ask a running call to finish now: it calls done soon, with HF_ECANCELED (unsettled if need
     * be) unless it had finished. `err` is what to finish with: HF_ECANCELED or HF_ECLOSED. On the
     * call's executor. */
    void (*cancel)(struct hfi_call *call, int err);

    /* An acquire that only sleeps, until something happens or *ret_until_ms, and has nothing under
     * way at the server: what it needs to go on, as small as can be. The call is over without
     * `done`, and its memory may go; the task and its signs stay. NULL: it does not, or there is no
     * memory. On the call's executor, like the next. */
    struct hfi_parked *(*park)(struct hfi_call *call, int64_t *ret_until_ms);
    /* Goes on, with the events that came, in a call that has been filled in like the first. */
    void (*resume)(struct hfi_call *call, struct hfi_parked *parked, unsigned events);
    /* It will not go on. */
    void (*unpark)(struct hfi_engine *engine, struct hfi_parked *parked);

    /* What a synchronous caller does while it waits: returns when the executor of the call's task,
     * which is its own, has something to run, and perhaps drives a connection until then. The call
     * may have ended, or not begun. NULL: all is done on the keeper, whose place the caller may take
     * meanwhile. */
    void (*attend)(struct hfi_call *call);
};

/* One hold in a renewal. */
struct hfi_renewal_item {
    const struct hfi_kind *kind;
    const char *name;
    size_t name_len;
    const char *owner;
    size_t owner_len;
    int64_t lease_ms; /* at least so much from now on */
    int acks;         /* as struct hfi_call has it */
    /* out: 1 held, 0 gone, HF_EWRONGTYPE: something else is there; other HF_E...: no answer for
     * this one */
    int answer;
    struct hfi_proof proof; /* out, if held */
};

/* A renewal of up to HFI_RENEWAL_MAX holds of one node, on the keeper's thread. Several may be under
 * way at once. */
#define HFI_RENEWAL_MAX 100
struct hfi_renewal {
    const void *node;
    int64_t deadline_ms; /* give up by then */
    size_t len;
    struct hfi_renewal_item items[HFI_RENEWAL_MAX];
    int err;          /* out: HF_OK: look at the answers. Else none was answered */
    const char *gone; /* out: why those are gone that are, if the engine knows; or NULL */
    hf_error error;   /* out: if there was no answer for some */
    void (*done)(struct hfi_renewal *renewal); /* on the keeper's thread, exactly once */
    void *engine_private;
};

/* Which holds are meant: those for which all that is given here is true. */
struct hfi_scope {
    const void *node; /* kept there; NULL: anywhere */
    const char *name; /* a stem; with `kind` a lock's name: it, or what overlaps it. NULL: any */
    size_t name_len;
    const char *owner; /* NULL: anybody's; else with `name` and `kind` */
    size_t owner_len;
    const struct hfi_kind *kind;
    /* Whether a lock is one of them; NULL: each is. Called under a shard, so it calls nobody back. */
    bool (*among)(const void *arg, const struct hfi_kind *kind, const char *name, size_t name_len);
    const void *among_arg;
};

/* One of the things that a client holds or waits for, as it tells others. */
struct hfi_standing {
    bool waits; /* else it holds */
    const struct hfi_kind *kind;
    const char *name;
    size_t name_len;
    const char *owner;
    size_t owner_len;
    int64_t count;  /* how often it is held */
    int64_t for_ms; /* since when */
    int64_t
        left_ms; /* how long it can be trusted, or goes on waiting; -1: until something happens */
    bool renewed;
    const char *thread; /* the name of its thread; "": it has none */
};

/* The rest of what it tells. */
struct hfi_bearing {
    const char *id;
    int64_t up_ms;
    const char *under; /* the owner for whom its process was started; NULL: nobody is known */
    uint64_t acquired, contended, timed_out, released, renewals, losses, renew_failures;
    hf_times wait, hold, hand_over;
};

/* How long something took under one name: the acquires, the holds, and the hand-overs. */
struct hfi_named_times {
    const char *name;
    size_t name_len;
    uint64_t begun; /* another whenever counting began anew */
    hf_times wait, hold, hand_over;
};

/* What an engine has to say of holds without having been asked. The core gives this to the engine,
 * which calls it on the keeper's thread, under no mutex. */
struct hfi_news {
    /* There is a connection again: whatever is renewed is renewed now. */
    void (*reconnected)(void *arg, const struct hfi_scope *scope);
    /* They may be gone, says whomever. It is a hint: the core has them verified by renewals. Some
     * ten times a second at most for any scope. */
    void (*doubted)(void *arg, const struct hfi_scope *scope);
    /* They are there, and proved for so long: perhaps for less than before. What was promised is
     * not looked at. */
    void (*proved)(void *arg, const struct hfi_scope *scope, const struct hfi_proof *proof);
    /* They are gone, for certain. `reason` is a constant text. */
    void (*lost)(void *arg, const struct hfi_scope *scope, const char *reason);
    /* Somebody asks what is held and waited for here. Each is visited, under a shard: so `visit`
     * calls nobody back. False: nobody is to be told. */
    bool (*asked)(void *arg, struct hfi_bearing *ret,
                  void (*visit)(void *visit_arg, const struct hfi_standing *standing),
                  void *visit_arg);
    /* The same of how long it took, for those names of which that is kept. */
    void (*asked_times)(void *arg,
                        void (*visit)(void *visit_arg, const struct hfi_named_times *times),
                        void *visit_arg);
    /* A call has begun to wait for another owner. Unlike the others on any thread. */
    void (*waits)(void *arg);
    void *arg;
};

/* Which server it is that answers, and since when. */
struct hfi_server {
    char run_id[48];  /* another after each start; "": it does not tell */
    int64_t since_ms; /* it has been up since then at the latest, on our clock */
};

/* What an engine does for a client as a whole. */
struct hfi_engine_ops {
    /* The table of a kind with such flags, or NULL: this engine does not offer it. */
    const struct hfi_kind *(*kind)(struct hfi_engine *engine, hf_kind kind, unsigned flags);

    /* The same for some values of a group; it has `name_values`. */
    const struct hfi_kind *(*group)(struct hfi_engine *engine);

    /* The same for what is no lock. */
    const struct hfi_kind *(*thing)(struct hfi_engine *engine, enum hfi_thing thing);

    /* The same for the server itself: it can only be asked (HFI_ASK_PING). */
    const struct hfi_kind *(*server)(struct hfi_engine *engine);

    /* Refuses names this engine cannot take. HF_OK or HF_EINVAL with words. */
    int (*check_name)(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                      size_t len, hf_error *error);

    /* Whether this can be asked of its servers (hfi_call.acks). HF_OK, or HF_EINVAL with words. Missing:
     * nothing can. */
    int (*check_acks)(struct hfi_engine *engine, int acks, hf_error *error);

    /* How long there may be something to settle: by then whatever has this lease has ended by
     * itself, or nobody can tell what it was. HFI_NEVER: it never ends. */
    int64_t (*settle_until_ms)(struct hfi_engine *engine, const struct hfi_kind *kind,
                               int64_t lease_ms);

    /* on the keeper's thread */
    void (*renew)(struct hfi_engine *engine, struct hfi_renewal *renewal);

    /* Where a name is kept: another pointer for each server, session or the like that can fail
     * alone. What is due at one node never waits for another. May be missing, or NULL: there is
     * only one. Called under a shard, so it calls nobody back. */
    const void *(*node_of)(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                           size_t name_len);

    /* Sets whom to tell of holds what nobody asked about. `news` lives as long as the engine. */
    void (*tell_news_to)(struct hfi_engine *engine, const struct hfi_news *news);
    /* The server of the last connection that was made, as far as it says. A server that has started
     * again has new connections only. False: nothing is known of it. May be missing. On the keeper's
     * thread. */
    bool (*identity)(struct hfi_engine *engine, struct hfi_server *ret);

    /* Whether anything is held for so long that its breaking is worth listening for, or held or waited
     * for so long that others may ask about it, if that costs something. On the keeper's thread. May be missing; an engine that cannot listen hears
     * nothing. */
    void (*listen)(struct hfi_engine *engine, bool on);

    /* From now on whatever the server says of a name is told to `hearer`, until unhear has returned; and first of all, when
     * that begins. The name was checked, and is copied. HF_OK or HF_ENOMEM. Any thread, but nobody else touches one
     * hearing meanwhile. May be missing, both: nothing can be heard. */
    int (*hear)(struct hfi_engine *engine, const char *name, size_t name_len,
                struct hfi_hearer *hearer, struct hfi_hearing **ret);
    /* Before the engine stops. The hearing is the engine's to free. */
    void (*unhear)(struct hfi_engine *engine, struct hfi_hearing *hearing);
    /* How many servers speak for themselves there. May be missing: one. */
    size_t (*servers)(struct hfi_engine *engine);

    /* ---- Manual dispatch: what hf_dispatch() drives, on its thread ---- */

    /* Sends what calls of the dispatch lane have gathered. */
    void (*flush)(struct hfi_engine *engine);
    /* Writes what is to be polled now to `fds`, `cap` at most; returns how many there are. */
    size_t (*poll)(struct hfi_engine *engine, struct pollfd *fds, size_t cap);
    /* Reads and writes what a poll of those found to be possible. */
    void (*service)(struct hfi_engine *engine, const struct pollfd *fds, size_t len);
    /* Puts the same into the application's epoll set, which outlives the engine. */
    void (*enlist)(struct hfi_engine *engine, int epoll_fd);

    /* ---- Life. Made by src/scheme ---- */

    /* Ends everything in flight with HF_ECLOSED and closes the connections. On the keeper's thread,
     * as its last act, when no call of another thread is running any more: src/api has cancelled
     * them and seen them leave. A call of the keeper's lane that is left completes when its task
     * runs next. */
    void (*stop)(struct hfi_engine *engine);
    void (*free)(struct hfi_engine *engine); /* after stop, and after the keeper has ended */
    /* In a forked child: closes descriptors, touches nothing else. */
    void (*close_fds)(struct hfi_engine *engine);
};

struct hfi_engine {
    const struct hfi_engine_ops *ops;
};

#endif
