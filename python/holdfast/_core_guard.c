/*
 * _core.Guard: what holdfast.Lock and holdfast.RLock are made of, for threads.
 *
 * A handler of a signal may raise between any two bytecodes. So acquire(), release(), __enter__() and
 * __exit__() are one call of C each, which notes the hold before it returns: nothing that can run
 * Python lies between the grant and the note. The note is a Hold, made before the grant, in a
 * threading.local: it is forgotten when its thread ends, or its lock is collected.
 */
#include "_core.h"

#include <stddef.h>
#include <structmember.h>

typedef struct Hold {
    PyObject_HEAD Object *lock;
    uint64_t owner;
    int64_t count; /* 0: not held */
    unsigned generation;
} Hold;

typedef struct Guard {
    PyObject_HEAD Object *lock;
    PyObject *local; /* a threading.local; NULL: all threads share `hold` */
    Hold *hold;
    PyObject *token; /* bytes; NULL: the library draws one */
    int64_t lease_ms, wait_ms;
    int acks;
    bool blocking, reentrant, raise_on_release_error, sleep_first;
} Guard;

/* ---- Holds ---- */

static State *state_of(const Guard *self) {
    return self->lock->client->state;
}

static bool is_held(const Hold *hold) {
    return hold != NULL && hold->count > 0 && hold->generation == hold->lock->client->generation;
}

/* Nobody will release it any more: it ends with its lease. */
static void forget(Hold *self) {
    hf_lock *lock = self->lock->handle.lock;
    if (!is_held(self) || lock == NULL || self->generation != self->lock->generation)
        return;
    bool trusted = hf_lock_remaining_ms_as(lock, self->owner) > 0;
    self->count = 0;
    hf_lock_forget_as(lock, self->owner);
    if (!trusted)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyErr_ResourceWarning(NULL, 1, "a held lock was forgotten: %R ends with its lease",
                              self->lock->name) != 0)
        PyErr_WriteUnraisable((PyObject *)Py_TYPE((PyObject *)self));
    PyErr_Restore(type, value, traceback);
}

static void hold_dealloc(Hold *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    forget(self);
    DROP(self->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DROP(type);
}

static PyType_Slot hold_slots[] = {{Py_tp_dealloc, hold_dealloc}, {0, NULL}};
PyType_Spec hfpy_hold_spec = {"holdfast._core.Hold", sizeof(Hold), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, hold_slots};

static Hold *hold_new(Guard *self) {
    PyTypeObject *type = state_of(self)->hold;
    Hold *hold = (Hold *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (hold != NULL) {
        KEEP(self->lock);
        hold->lock = self->lock;
    }
    return hold;
}

/* This thread's note of its hold, borrowed; NULL without an exception: it has none. */
static Hold *hold_of(Guard *self) {
    if (self->local == NULL)
        return self->hold;
    PyObject *hold = PyObject_GetAttrString(self->local, "hold");
    if (hold == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    DROP(hold); /* the local's */
    return (Hold *)hold;
}

static Hold *hold_of_or_new(Guard *self) {
    Hold *hold = hold_of(self);
    if (hold != NULL || PyErr_Occurred() || (hold = hold_new(self)) == NULL)
        return hold;
    if (self->local == NULL) {
        self->hold = hold;
        return hold;
    }
    int err = PyObject_SetAttrString(self->local, "hold", (PyObject *)hold);
    DROP(hold);
    return err == 0 ? hold : NULL;
}

/* The owner of the calling thread: the same for all re-entrant locks. */
static int owner_of_thread(State *state, uint64_t *ret_owner) {
    PyObject *owner = PyObject_GetAttrString(state->owners, "owner");
    if (owner == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return RAISED;
        PyErr_Clear();
        owner = PyLong_FromUnsignedLongLong(hf_owner_new());
        if (owner == NULL || PyObject_SetAttrString(state->owners, "owner", owner) != 0) {
            DROP(owner);
            return RAISED;
        }
    }
    *ret_owner = PyLong_AsUnsignedLongLong(owner);
    DROP(owner);
    return HF_OK;
}

static PyObject *fail(Guard *self, int code, const hf_error *details) {
    return hfpy_fail(self->lock->client->raise_for, code, details, self->lock->name);
}
static PyObject *fail_last(Guard *self, int code) {
    hf_error details = *hf_last_error();
    return fail(self, code, &details);
}

/* ---- Acquiring ---- */

typedef struct Waiter {
    PyThreadState *thread;
} Waiter;

_Thread_local bool hfpy_checks_signals;

/* In the library's wait, on the waiting thread. True: a handler has raised. */
static bool check_signals(void *user) {
    Waiter *waiter = user;
    PyEval_RestoreThread(waiter->thread);
    hfpy_checks_signals = true;
    bool raised = PyErr_CheckSignals() != 0;
    hfpy_checks_signals = false;
    waiter->thread = PyEval_SaveThread();
    return raised;
}

/* Signal handlers run on the main thread only. A single attempt can wait, too: for the server. */
static int acquire_by_thread(Guard *self, hf_acquire_options *options) {
    hf_result result = HF_RESULT_INIT;
    Waiter waiter;
    if (PyThread_get_thread_ident() == state_of(self)->main_thread) {
        options->check = check_signals;
        options->check_user = &waiter;
    }
    waiter.thread = PyEval_SaveThread();
    int err = hf_lock_acquire_with(self->lock->handle.lock, options, &result);
    PyEval_RestoreThread(waiter.thread);
    if (PyErr_Occurred()) {
        /* Mostly with HF_ECANCELED: nothing is held. But the grant may have come at the same time. */
        if (err == HF_OK)
            hf_lock_release_start(self->lock->handle.lock, options->owner, NULL, NULL, NULL);
        return RAISED;
    }
    if (err != HF_OK && err != HF_EBUSY && err != HF_ETIMEDOUT) {
        fail(self, err, &result.error);
        return RAISED;
    }
    return err;
}

static int acquire_by_hook(Guard *self, const hf_acquire_options *options) {
    PyObject *args =
        Py_BuildValue("KLLiy", (unsigned long long)options->owner, (long long)options->wait_ms,
                      (long long)options->lease_ms, options->acks, options->string_token);
    PyObject *owner = NULL;
    if (args != NULL)
        owner = hfpy_call(self->lock->client, self->lock, &hfpy_lock_acquire, args);
    DROP(args);
    if (owner == NULL)
        return RAISED;
    DROP(owner);
    return owner != Py_None ? HF_OK : HF_ETIMEDOUT;
}

/* HF_OK, HF_EBUSY, HF_ETIMEDOUT, or RAISED. */
static int acquire(Guard *self, int64_t wait_ms, const char *token) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    Hold *hold = hold_of_or_new(self);
    if (hold == NULL || hfpy_object_ready(self->lock) != HF_OK)
        return RAISED;
    options.owner = hf_owner_new();
    if (self->reentrant && owner_of_thread(state_of(self), &options.owner) != HF_OK)
        return RAISED;
    options.wait_ms = wait_ms;
    options.lease_ms = self->lease_ms;
    options.acks = self->acks;
    options.string_token = token;
    KEEP(hold);
    int err = self->lock->client->manual ? acquire_by_hook(self, &options)
                                         : acquire_by_thread(self, &options);
    if (err == HF_OK) {
        bool nested = self->reentrant && is_held(hold);
        if (!nested)
            forget(hold); /* an earlier hold of this thread, which ended long ago */
        hold->count = nested ? hold->count + 1 : 1;
        hold->owner = options.owner;
        hold->generation = self->lock->generation;
    }
    DROP(hold);
    return err;
}

/* Seconds as milliseconds; None is `none`. */
static int ms_of(PyObject *seconds, int64_t none, int64_t *ret_ms) {
    if (seconds == NULL || seconds == Py_None) {
        *ret_ms = none;
        return HF_OK;
    }
    double number = PyFloat_AsDouble(seconds);
    if (number == -1 && PyErr_Occurred())
        return RAISED;
    if (!(number < 1e12)) {
        *ret_ms = HF_FOREVER;
        return HF_OK;
    }
    *ret_ms = number <= 0 ? 0 : number < 0.001 ? 1 : (int64_t)(number * 1000);
    return HF_OK;
}

/* acquire(blocking=None, blocking_timeout=None, token=None), and for redis-py `sleep` before. */
static PyObject *guard_acquire(Guard *self, PyObject *args, PyObject *kw) {
    static char *names[] = {"sleep", "blocking", "blocking_timeout", "token", NULL};
    PyObject *sleep, *blocking = NULL, *timeout = NULL, *token = NULL, *bytes = NULL;
    bool parsed = self->sleep_first
                      ? PyArg_ParseTupleAndKeywords(args, kw, "|OOOO:acquire", names, &sleep,
                                                    &blocking, &timeout, &token)
                      : PyArg_ParseTupleAndKeywords(args, kw, "|OOO:acquire", names + 1, &blocking,
                                                    &timeout, &token);
    int64_t wait_ms = 0;
    if (!parsed || ms_of(timeout, self->wait_ms, &wait_ms) != HF_OK)
        return NULL;
    int is_blocking = self->blocking;
    if (blocking != NULL && blocking != Py_None && (is_blocking = PyObject_IsTrue(blocking)) < 0)
        return NULL;
    if (token != NULL && token != Py_None && hfpy_bytes_of(token, &bytes) != HF_OK)
        return NULL;
    PyObject *chosen = bytes != NULL ? bytes : self->token;
    int err =
        acquire(self, is_blocking ? wait_ms : 0, chosen != NULL ? PyBytes_AsString(chosen) : NULL);
    DROP(bytes);
    return err == RAISED ? NULL : PyBool_FromLong(err == HF_OK);
}

static PyObject *guard_enter(Guard *self, PyObject *none) {
    (void)none;
    int err = acquire(self, self->blocking ? self->wait_ms : 0,
                      self->token != NULL ? PyBytes_AsString(self->token) : NULL);
    if (err != HF_OK)
        return err == RAISED ? NULL : fail(self, err, NULL);
    KEEP(self);
    return (PyObject *)self;
}

/* ---- Releasing ---- */

static int release_by_hook(Guard *self, uint64_t owner) {
    PyObject *args = Py_BuildValue("(K)", (unsigned long long)owner);
    PyObject *none = NULL;
    if (args != NULL)
        none = hfpy_call(self->lock->client, self->lock, &hfpy_lock_release, args);
    DROP(args);
    DROP(none);
    return none != NULL ? HF_OK : RAISED;
}

static int release_by_thread(Guard *self, uint64_t owner) {
    hf_lock *lock = self->lock->handle.lock;
    int err;
    Py_BEGIN_ALLOW_THREADS err = hf_lock_release_as(lock, owner);
    Py_END_ALLOW_THREADS return err;
}

/* The note goes first: whatever comes of it, the library ends the hold. */
static PyObject *guard_release(Guard *self, PyObject *none) {
    (void)none;
    Hold *hold = hold_of(self);
    if (hold == NULL || !is_held(hold)) {
        if (PyErr_Occurred())
            return NULL;
        hf_error details = {HF_ENOTOWNER, 0, "", "this lock is not held here: nothing to release"};
        return fail(self, HF_ENOTOWNER, &details);
    }
    if (hfpy_object_ready(self->lock) != HF_OK)
        return NULL;
    hold->count--;
    KEEP(hold);
    int err = self->lock->client->manual ? release_by_hook(self, hold->owner)
                                         : release_by_thread(self, hold->owner);
    if (err == HF_ENOMEM || err == HF_EDEADLK)
        hold->count++;
    if (err == HF_ELOST || err == HF_ENOTOWNER)
        hold->count = 0;
    DROP(hold);
    if (err == HF_OK)
        Py_RETURN_NONE;
    return err == RAISED ? NULL : fail_last(self, err);
}

/* __exit__(type, value, traceback): an exception of the body is more important than that the release
 * failed, which is logged then. */
static PyObject *guard_exit(Guard *self, PyObject *args) {
    PyObject *type = Py_None, *value = Py_None, *traceback = Py_None;
    if (!PyArg_ParseTuple(args, "|OOO:__exit__", &type, &value, &traceback))
        return NULL;
    PyObject *none = guard_release(self, NULL);
    if (none != NULL)
        return none;
    State *state = state_of(self);
    bool quiet = !self->raise_on_release_error && PyErr_ExceptionMatches(state->lock_error);
    if ((type == Py_None && !quiet) || !PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    none = PyObject_CallFunctionObjArgs(state->log_release, self->lock->name, value, NULL);
    DROP(type);
    DROP(value);
    DROP(traceback);
    return none;
}

/* ---- As an object ---- */

/* Guard(lock, lease_ms, wait_ms, blocking, reentrant, thread_local, raise_on_release_error, acks,
 * token, sleep_first) */
static int guard_init(Guard *self, PyObject *args, PyObject *kw) {
    (void)kw;
    PyObject *lock, *token;
    long long lease_ms, wait_ms;
    int blocking, reentrant, thread_local_, raises, sleep_first;
    if (!PyArg_ParseTuple(args, "OLLppppiOp", &lock, &lease_ms, &wait_ms, &blocking, &reentrant,
                          &thread_local_, &raises, &self->acks, &token, &sleep_first))
        return -1;
    State *state = PyType_GetModuleState(Py_TYPE(lock));
    if (state == NULL || Py_TYPE(lock) != state->lock || self->lock != NULL) {
        PyErr_SetString(PyExc_TypeError, "a _core.Lock is needed, once");
        return -1;
    }
    KEEP(lock);
    self->lock = (Object *)lock;
    self->lease_ms = lease_ms;
    self->wait_ms = wait_ms;
    self->blocking = blocking != 0;
    self->reentrant = reentrant != 0;
    self->raise_on_release_error = raises != 0;
    self->sleep_first = sleep_first != 0;
    if (token != Py_None && hfpy_bytes_of(token, &self->token) != HF_OK)
        return -1;
    if (thread_local_ && (self->local = PyObject_CallNoArgs(state->new_local)) == NULL)
        return -1;
    return 0;
}

static int guard_traverse(Guard *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->local);
    return 0;
}

static int guard_clear(Guard *self) {
    Py_CLEAR(self->local);
    Py_CLEAR(self->hold);
    return 0;
}

static void guard_dealloc(Guard *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    guard_clear(self);
    DROP(self->token);
    DROP(self->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DROP(type);
}

/* This thread's owner, and how often it has acquired; None and 0: not held, as far as is known. */
static PyObject *guard_owner(Guard *self, void *none) {
    (void)none;
    Hold *hold = hold_of(self);
    if (is_held(hold))
        return PyLong_FromUnsignedLongLong(hold->owner);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
static PyObject *guard_count(Guard *self, void *none) {
    (void)none;
    Hold *hold = hold_of(self);
    if (hold == NULL && PyErr_Occurred())
        return NULL;
    return PyLong_FromLongLong(is_held(hold) ? hold->count : 0);
}

/* Notes a hold that was adopted. */
static PyObject *guard_take(Guard *self, PyObject *arg) {
    uint64_t owner = PyLong_AsUnsignedLongLong(arg);
    Hold *hold = !PyErr_Occurred() ? hold_of_or_new(self) : NULL;
    if (hold == NULL)
        return NULL;
    hold->owner = owner;
    hold->count = 1;
    hold->generation = self->lock->generation;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    METHOD("acquire", guard_acquire, METH_VARARGS | METH_KEYWORDS),
    METHOD("release", guard_release, METH_NOARGS),
    METHOD("__enter__", guard_enter, METH_NOARGS),
    METHOD("__exit__", guard_exit, METH_VARARGS),
    METHOD("_take", guard_take, METH_O),
    {0},
};
static PyMemberDef members[] = {
    {"_raw", T_OBJECT, offsetof(Guard, lock), READONLY, NULL},
    {"_lease_ms", T_LONGLONG, offsetof(Guard, lease_ms), READONLY, NULL},
    {0},
};
static PyGetSetDef getset[] = {
    {"_owner", (getter)guard_owner, NULL, NULL, NULL},
    {"_count", (getter)guard_count, NULL, NULL, NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_init, guard_init},         {Py_tp_dealloc, guard_dealloc},
    {Py_tp_traverse, guard_traverse}, {Py_tp_clear, guard_clear},
    {Py_tp_methods, methods},         {Py_tp_members, members},
    {Py_tp_getset, getset},           {0, NULL},
};
PyType_Spec hfpy_guard_spec = {"holdfast._core.Guard", sizeof(Guard), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                               slots};
