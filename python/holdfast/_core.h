/*
 * What the files of holdfast._core share.
 *
 * One rule above all: no thread of the library runs Python or takes the GIL. Its callbacks link what
 * happened into lists of a Client, under the Client's own mutex, and Python fetches them. So nothing
 * can race with the end of the interpreter, and no log line holds up a renewal.
 *
 * Every other call of the library is made with the GIL held, unless it can block: closing a client
 * then cannot overtake a call that has read its handle.
 */
#ifndef HOLDFAST_PYTHON_CORE_H
#define HOLDFAST_PYTHON_CORE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <holdfast/holdfast.h>
#include <pthread.h>

#define RAISED 1    /* beside HF_OK and negative codes: a Python exception is set */
#define SLICE_MS 50 /* how soon a blocked call sees that a signal has arrived */

typedef struct State {
    union {
        struct {
            PyObject *raise_for;   /* _errors.raise_for(code, sys_errno, node, text, name) */
            PyObject *log_release; /* _errors.log_release(name, exception) */
            PyObject *lock_error;  /* _errors.LockError */
            PyObject
                *new_local; /* _errors.new_local(): a threading.local, or what gevent made of it */
            PyObject *owners; /* such a one: the owner of each thread */
            PyTypeObject *client, *lock, *semaphore, *permits, *latch, *listener, *op, *hold;
        };
        PyObject *all[13]; /* the same, to be visited */
    };
    unsigned long main_thread;
} State;

/* Something for Python to fetch: a line of the log, the loss of a hold, or notification of a name. */
typedef enum NoteWhat { NOTE_LOG, NOTE_EVENT, NOTE_NOTIFICATION } NoteWhat;
typedef struct Note {
    struct Note *next;
    NoteWhat what;
    int kind; /* hf_log_level, hf_event_kind or hf_notification_kind */
    int code;
    uint64_t serial; /* of the object */
    uint64_t owner;
    int64_t number; /* of an event, how long the hold can be trusted */
    int64_t age_ms;
    size_t server, servers;
    char text[256];
    char about[128]; /* a log line: the server that it is about; "": none */
    size_t name_len;
    char name[]; /* of a permit's event, its id; of a log line, the lock that it is about */
} Note;

typedef struct Op Op;
typedef struct Object Object;

/* A client that survives fork(): a child closes its parent's handle, and opens its own when it first
 * needs one. */
typedef struct Client {
    PyObject_HEAD State *state;
    PyObject *url, *options;
    PyObject *hook;      /* waits for an operation, for gevent; NULL: asyncio, or threads */
    PyObject *raise_for; /* State's, or one that raises holdfast.redis's errors */
    bool manual, closed;
    unsigned generation;   /* how many forks this process is away from the one that made it */
    hf_client *handle;     /* NULL: closed, or not opened here yet */
    hf_client *closing;    /* by close_start(), until dispatch() has run its end */
    int fd;                /* an eventfd: a note is there */
    pthread_mutex_t mutex; /* of what follows; nothing is called while it is held */
    Op *done, **done_end;
    Note *notes, **notes_end;
    int notes_len;
    unsigned dropped;
} Client;

/* A handle of the library, made anew in a child. */
typedef union Handle {
    void *any;
    hf_lock *lock;
    hf_sem *sem;
    hf_permits *permits;
    hf_latch *latch;
    hf_listener *listener;
} Handle;
struct Object {
    PyObject_HEAD Client *client;
    int (*make)(Object *self);
    void (*destroy)(Handle handle);
    int (*watch)(Object *self);
    Handle handle;
    unsigned generation;
    uint64_t serial;
    bool watched;
    PyObject *name;  /* bytes; NULL: all names */
    PyObject *parts; /* of a group its values, of an all-of lock its members; else NULL */
    hf_lock_options options;
};

/* What can be asked of an object, or of a client. */
typedef struct Verb {
    int (*start)(Op *op, PyObject *args); /* HF_OK, a code, or RAISED */
    PyObject *(*answer)(Op *op);
    void (*undo)(Op *op); /* gives back what nobody wants any more; NULL: nothing to give back */
    void (*free)(Op *op); /* of `out` */
    bool waits;           /* HF_EBUSY and HF_ETIMEDOUT are answers: False, or None */
} Verb;

/* An operation. It belongs to whoever refers to it, and to the library from its start until it is
 * fetched, where completions are dispatched by us. */
struct Op {
    PyObject_HEAD Client *client;
    Object *on;
    const Verb *verb;
    PyObject *tag;
    Op *next;
    PyObject *watch; /* of a hook: (the set of those that wait, the hub's watcher); else NULL */
    hf_op *op;
    hf_result result;
    bool finished, abandoned;
    int64_t amount; /* semaphore, permits: how many it takes */
    union {
        hf_lock_info *info;
        hf_server_info *server_info;
        hf_fleet *fleet;
        hf_permit_id *ids;
    } out;
};

/* _core_convert.c */
PyObject *hfpy_fail(PyObject *raise_for, int code, const hf_error *details, PyObject *name);
PyObject *hfpy_fail_last(Client *client, int code, PyObject *name);
int hfpy_bytes_of(PyObject *name, PyObject **ret_bytes);
int hfpy_set_options(hf_options *options, PyObject *dict);
PyObject *hfpy_stats(const hf_stats *stats);
PyObject *hfpy_server_info(const hf_server_info *info);

/* _core_client.c */
extern PyType_Spec hfpy_client_spec;
int hfpy_client_open(Client *self);
void hfpy_client_done(Client *self, Op *op);
void hfpy_client_put(Client *self, NoteWhat what, int kind, const char *text, const char *name,
                     size_t name_len, const Note *rest);

/* _core_op.c */
extern PyType_Spec hfpy_op_spec;
PyObject *hfpy_call(Client *client, Object *on, const Verb *verb, PyObject *args);
hf_op_fn hfpy_callback(const Op *op);
PyObject *hfpy_wait(Op *op);
void hfpy_op_fetched(Op *self);
PyObject *hfpy_answer_none(Op *op);
PyObject *hfpy_answer_bool(Op *op);
PyObject *hfpy_answer_int(Op *op);
PyObject *hfpy_answer_got(Op *op);

/* _core_object.c, _core_lock.c, _core_counters.c */
extern PyType_Spec hfpy_lock_spec, hfpy_semaphore_spec, hfpy_permits_spec, hfpy_latch_spec,
    hfpy_listener_spec;
Object *hfpy_object_new(PyTypeObject *type, PyObject *client, PyObject *name);
void hfpy_object_dealloc(Object *self);
int hfpy_object_ready(Object *self);
PyObject *hfpy_object_watch(Object *self, PyObject *none);
extern PyGetSetDef hfpy_object_getset[];
extern const Verb hfpy_lock_acquire, hfpy_lock_release, hfpy_semaphore_acquire,
    hfpy_semaphore_release, hfpy_permits_acquire, hfpy_permits_release;

/* _core_guard.c, _core_scope.c */
extern PyType_Spec hfpy_hold_spec, hfpy_guard_spec, hfpy_scope_spec;
/* Handlers of signals run on this thread inside the library's wait: there hf_close() is refused. */
extern _Thread_local bool hfpy_checks_signals;

/* References, to any struct that is an object; NULL is none. */
#define KEEP(object) Py_XINCREF((PyObject *)(object))
#define DROP(object) Py_XDECREF((PyObject *)(object))

#define METHOD(name, function, flags)                                                              \
    { name, (PyCFunction)(void (*)(void))(function), flags, NULL }

/* A method that asks: VERB(lock, ttl_ms, start, answer, undo, free, waits). */
#define VERB(type, name, start, answer, undo, free, waits)                                         \
    const Verb hfpy_##type##_##name = {start, answer, undo, free, waits};                          \
    static PyObject *type##_##name(Object *self, PyObject *args) {                                 \
        return hfpy_call(self->client, self, &hfpy_##type##_##name, args);                         \
    }
#define ASK(type, name) METHOD(#name, type##_##name, METH_VARARGS)

#endif
