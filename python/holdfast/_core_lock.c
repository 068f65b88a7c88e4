/*
 * _core.Lock: a lock of any kind, asked by owner. Who owns what, and what `with` means, is decided by
 * the files above: _core_guard.c for threads, asyncio.py for tasks.
 */
#include "_core.h"

#include <stdlib.h>
#include <string.h>

/* ---- Making one ---- */

static int make_plain(Object *self) {
    return hf_lock_new_with(self->client->handle, PyBytes_AsString(self->name),
                            (size_t)PyBytes_Size(self->name), &self->options, &self->handle.lock);
}

static int make_group(Object *self) {
    size_t len = (size_t)PyTuple_Size(self->parts);
    hf_bytes *values = calloc(len + 1, sizeof *values);
    if (values == NULL)
        return HF_ENOMEM;
    for (size_t i = 0; i < len; i++) {
        PyObject *value = PyTuple_GetItem(self->parts, (Py_ssize_t)i);
        values[i] = (hf_bytes){PyBytes_AsString(value), (size_t)PyBytes_Size(value)};
    }
    int err = hf_lock_new_group(self->client->handle, PyBytes_AsString(self->name),
                                (size_t)PyBytes_Size(self->name), values, len, &self->handle.lock);
    free(values);
    return err;
}

static int make_all(Object *self) {
    size_t len = (size_t)PyTuple_Size(self->parts);
    hf_lock **members = calloc(len + 1, sizeof *members);
    int err = members != NULL ? HF_OK : HF_ENOMEM;
    for (size_t i = 0; err == HF_OK && i < len; i++) {
        Object *member = (Object *)PyTuple_GetItem(self->parts, (Py_ssize_t)i);
        err = hfpy_object_ready(member);
        members[i] = member->handle.lock;
    }
    if (err == HF_OK)
        err = hf_lock_new_multi(members, len, &self->handle.lock);
    free(members);
    return err;
}

static void destroy(Handle handle) {
    hf_lock_free(handle.lock);
}

static void on_event(hf_lock *lock, const hf_event *event, void *user) {
    (void)lock;
    Object *self = user;
    Note rest = {.serial = self->serial, .owner = event->owner, .number = event->remaining_ms};
    hfpy_client_put(self->client, NOTE_EVENT, (int)event->kind, event->reason, NULL, 0, &rest);
}

static int watch(Object *self) {
    return hf_lock_on_lost(self->handle.lock, on_event, self);
}

/* The values of a group as bytes, or the members of an all-of lock, as a new tuple. */
static PyObject *parts_of(PyObject *parts, bool members, State *state) {
    PyObject *tuple = PySequence_Tuple(parts);
    PyObject *made = tuple != NULL ? PyTuple_New(PyTuple_Size(tuple)) : NULL;
    for (Py_ssize_t i = 0; made != NULL && i < PyTuple_Size(tuple); i++) {
        PyObject *item = PyTuple_GetItem(tuple, i), *kept = NULL;
        if (!members) {
            hfpy_bytes_of(item, &kept);
        } else if (Py_TYPE(item) == state->lock) {
            KEEP(item);
            kept = item;
        } else {
            PyErr_SetString(PyExc_TypeError, "a member is a _core.Lock");
        }
        if (kept == NULL || PyTuple_SetItem(made, i, kept) != 0)
            Py_CLEAR(made);
    }
    DROP(tuple);
    return made;
}

static int choose_parts(Object *self, PyObject *values, PyObject *members) {
    if (values == Py_None && members == Py_None)
        return HF_OK;
    self->make = members != Py_None ? make_all : make_group;
    self->parts =
        parts_of(members != Py_None ? members : values, members != Py_None, self->client->state);
    return self->parts != NULL ? HF_OK : RAISED;
}

/* Lock(client, name, kind, flags, values=None, members=None, spin=None, cohort=None) */
static PyObject *lock_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    static char *names[] = {"client",  "name", "kind",   "flags", "values",
                            "members", "spin", "cohort", NULL};
    PyObject *client, *name, *values = Py_None, *members = Py_None, *spin = Py_None,
                             *cohort = Py_None;
    int kind;
    unsigned flags;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "OOiI|OOOO", names, &client, &name, &kind, &flags,
                                     &values, &members, &spin, &cohort))
        return NULL;
    Object *self = hfpy_object_new(type, client, name);
    if (self == NULL)
        return NULL;
    self->make = make_plain;
    self->destroy = destroy;
    self->watch = watch;
    self->options.kind = (hf_kind)kind;
    self->options.flags = flags;
    hf_lock_options *o = &self->options;
    long long a = o->spin_first_ms, b = o->spin_factor, c = o->spin_max_ms;
    long long d = o->cohort_passes, e = o->cohort_ms;
    if ((spin != Py_None && !PyArg_ParseTuple(spin, "LLL", &a, &b, &c)) ||
        (cohort != Py_None && !PyArg_ParseTuple(cohort, "LL", &d, &e)) ||
        choose_parts(self, values, members) != HF_OK) {
        DROP(self);
        return NULL;
    }
    o->spin_first_ms = a, o->spin_factor = b, o->spin_max_ms = c;
    o->cohort_passes = d, o->cohort_ms = e;
    if (hfpy_object_ready(self) != HF_OK) {
        DROP(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* ---- Acquiring ---- */

static PyObject *answer_owner(Op *op) {
    return PyLong_FromUnsignedLongLong(op->result.owner);
}

/* acquire(owner, wait_ms, lease_ms, acks, token) -> owner, or None if the wait was over */
static int start_acquire(Op *op, PyObject *args) {
    unsigned long long owner;
    long long wait_ms, lease_ms;
    PyObject *token; /* bytes, or None */
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "KLLiO", &owner, &wait_ms, &lease_ms, &options.acks, &token))
        return RAISED;
    if (token != Py_None && (options.string_token = PyBytes_AsString(token)) == NULL)
        return RAISED;
    options.owner = owner;
    options.wait_ms = wait_ms;
    options.lease_ms = lease_ms;
    return hf_lock_acquire_start(op->on->handle.lock, &options, hfpy_callback(op), op, &op->op);
}
static void undo_acquire(Op *op) {
    hf_lock_release_start(op->on->handle.lock, op->result.owner, NULL, NULL, NULL);
}
VERB(lock, acquire, start_acquire, answer_owner, undo_acquire, NULL, true)

/* adopt(handle, lease_ms) -> owner */
static int start_adopt(Op *op, PyObject *args) {
    const char *handle;
    long long lease_ms;
    if (!PyArg_ParseTuple(args, "sL", &handle, &lease_ms))
        return RAISED;
    return hf_lock_adopt_start(op->on->handle.lock, handle, lease_ms, hfpy_callback(op), op,
                               &op->op);
}
static void undo_adopt(Op *op) {
    hf_lock_forget_as(op->on->handle.lock, op->result.owner);
}
VERB(lock, adopt, start_adopt, answer_owner, undo_adopt, NULL, false)

/* ---- The rest, by the shape of the call ---- */

#define OF_OWNER(verb, answer)                                                                     \
    static int start_##verb(Op *op, PyObject *args) {                                              \
        unsigned long long owner;                                                                  \
        if (!PyArg_ParseTuple(args, "K", &owner))                                                  \
            return RAISED;                                                                         \
        return hf_lock_##verb##_start(op->on->handle.lock, owner, hfpy_callback(op), op, &op->op); \
    }                                                                                              \
    VERB(lock, verb, start_##verb, answer, NULL, NULL, false)
#define OF_NAME(verb, answer)                                                                      \
    static int start_##verb(Op *op, PyObject *args) {                                              \
        if (!PyArg_ParseTuple(args, ""))                                                           \
            return RAISED;                                                                         \
        return hf_lock_##verb##_start(op->on->handle.lock, hfpy_callback(op), op, &op->op);        \
    }                                                                                              \
    VERB(lock, verb, start_##verb, answer, NULL, NULL, false)

OF_OWNER(release, hfpy_answer_none)
OF_OWNER(is_mine, hfpy_answer_bool)
OF_OWNER(hold_count, hfpy_answer_int)
OF_NAME(break, hfpy_answer_bool)
OF_NAME(is_locked, hfpy_answer_bool)
OF_NAME(ttl_ms, hfpy_answer_int)

/* extend(owner, lease_ms, mode) */
static int start_extend(Op *op, PyObject *args) {
    unsigned long long owner;
    long long lease_ms;
    int mode;
    hf_extend_options options = HF_EXTEND_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "KLi", &owner, &lease_ms, &mode))
        return RAISED;
    options.owner = owner;
    options.lease_ms = lease_ms;
    options.mode = (hf_extend_mode)mode;
    return hf_lock_extend_with_start(op->on->handle.lock, &options, hfpy_callback(op), op, &op->op);
}
VERB(lock, extend, start_extend, hfpy_answer_none, NULL, NULL, false)

static int start_inspect(Op *op, PyObject *args) {
    if (!PyArg_ParseTuple(args, ""))
        return RAISED;
    return hf_lock_inspect_start(op->on->handle.lock, &op->out.info, hfpy_callback(op), op,
                                 &op->op);
}
static PyObject *answer_inspect(Op *op) {
    char *text = NULL;
    int err = hf_lock_info_json(op->out.info, PyBytes_AsString(op->on->name),
                                (size_t)PyBytes_Size(op->on->name), &text);
    if (err != HF_OK)
        return hfpy_fail_last(op->client, err, op->on->name);
    PyObject *made = PyUnicode_FromString(text);
    hf_text_free(text);
    return made;
}
static void free_inspect(Op *op) {
    hf_lock_info_free(op->out.info);
}
VERB(lock, inspect, start_inspect, answer_inspect, NULL, free_inspect, false)

static int start_server_info(Op *op, PyObject *args) {
    if (!PyArg_ParseTuple(args, ""))
        return RAISED;
    return hf_lock_server_info_start(op->on->handle.lock, &op->out.server_info, hfpy_callback(op),
                                     op, &op->op);
}
static PyObject *answer_server_info(Op *op) {
    return hfpy_server_info(op->out.server_info);
}
static void free_server_info(Op *op) {
    hf_server_info_free(op->out.server_info);
}
VERB(lock, server_info, start_server_info, answer_server_info, NULL, free_server_info, false)

/* ---- From memory ---- */

static int owner_of(Object *self, PyObject *arg, uint64_t *ret_owner) {
    *ret_owner = PyLong_AsUnsignedLongLong(arg);
    return PyErr_Occurred() ? RAISED : hfpy_object_ready(self);
}

static PyObject *lock_remaining_ms(Object *self, PyObject *arg) {
    uint64_t owner;
    if (owner_of(self, arg, &owner) != HF_OK)
        return NULL;
    return PyLong_FromLongLong(hf_lock_remaining_ms_as(self->handle.lock, owner));
}

static PyObject *lock_token(Object *self, PyObject *arg) {
    uint64_t owner;
    int64_t token = 0;
    if (owner_of(self, arg, &owner) != HF_OK)
        return NULL;
    int err = hf_lock_token_as(self->handle.lock, owner, &token);
    return err != HF_OK ? hfpy_fail_last(self->client, err, self->name)
                        : PyLong_FromLongLong(token);
}

static PyObject *lock_handle(Object *self, PyObject *arg) {
    uint64_t owner;
    char text[HF_HANDLE_MAX];
    if (owner_of(self, arg, &owner) != HF_OK)
        return NULL;
    int err = hf_lock_handle(self->handle.lock, owner, text, sizeof text);
    return err != HF_OK ? hfpy_fail_last(self->client, err, self->name)
                        : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
}

/* It is renewed no more. */
static PyObject *lock_forget(Object *self, PyObject *arg) {
    uint64_t owner;
    if (owner_of(self, arg, &owner) != HF_OK)
        return NULL;
    return PyLong_FromLong(hf_lock_forget_as(self->handle.lock, owner));
}

/* Released in the background, whatever becomes of it. */
static PyObject *lock_drop(Object *self, PyObject *arg) {
    uint64_t owner;
    if (owner_of(self, arg, &owner) != HF_OK)
        return NULL;
    return PyLong_FromLong(hf_lock_release_start(self->handle.lock, owner, NULL, NULL, NULL));
}

static PyMethodDef methods[] = {
    ASK(lock, acquire),
    ASK(lock, adopt),
    ASK(lock, release),
    ASK(lock, extend),
    METHOD("break_", lock_break, METH_VARARGS),
    ASK(lock, is_locked),
    ASK(lock, is_mine),
    ASK(lock, hold_count),
    ASK(lock, ttl_ms),
    ASK(lock, inspect),
    ASK(lock, server_info),
    METHOD("remaining_ms", lock_remaining_ms, METH_O),
    METHOD("token", lock_token, METH_O),
    METHOD("handle", lock_handle, METH_O),
    METHOD("forget", lock_forget, METH_O),
    METHOD("drop", lock_drop, METH_O),
    METHOD("watch", hfpy_object_watch, METH_NOARGS),
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_new, lock_new},
    {Py_tp_dealloc, hfpy_object_dealloc},
    {Py_tp_getset, hfpy_object_getset},
    {Py_tp_methods, methods},
    {0, NULL},
};
PyType_Spec hfpy_lock_spec = {"holdfast._core.Lock", sizeof(Object), 0, Py_TPFLAGS_DEFAULT, slots};
