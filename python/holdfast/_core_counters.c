/*
 * _core.Semaphore, _core.Permits and _core.Latch.
 */
#include "_core.h"

#include <stdlib.h>
#include <string.h>

/* MAKER(hf_sem, sem): how an object gets its handle, and loses it. */
#define MAKER(type, member)                                                                        \
    static int make_##member(Object *self) {                                                       \
        return type##_new_bytes(self->client->handle, PyBytes_AsString(self->name),                \
                                (size_t)PyBytes_Size(self->name), &self->handle.member);           \
    }                                                                                              \
    static void destroy_##member(Handle handle) {                                                  \
        type##_free(handle.member);                                                                \
    }
MAKER(hf_sem, sem)
MAKER(hf_permits, permits)
MAKER(hf_latch, latch)

static Object *counter_new(PyTypeObject *type, PyObject *args, int (*make)(Object *),
                           void (*destroy)(Handle)) {
    PyObject *client, *name;
    if (!PyArg_ParseTuple(args, "OO", &client, &name))
        return NULL;
    Object *self = hfpy_object_new(type, client, name);
    if (self == NULL)
        return NULL;
    self->make = make;
    self->destroy = destroy;
    if (hfpy_object_ready(self) != HF_OK)
        Py_CLEAR(self);
    return self;
}

/* ---- The shapes of their calls: no number, one, two ---- */

#define NUMBERS_0(type, prefix, member, verb, answer)                                              \
    static int start_##type##_##verb(Op *op, PyObject *args) {                                     \
        if (!PyArg_ParseTuple(args, ""))                                                           \
            return RAISED;                                                                         \
        return prefix##_##verb##_start(op->on->handle.member, hfpy_callback(op), op, &op->op);     \
    }                                                                                              \
    VERB(type, verb, start_##type##_##verb, answer, NULL, NULL, false)
#define NUMBERS_1(type, prefix, member, verb, answer)                                              \
    static int start_##type##_##verb(Op *op, PyObject *args) {                                     \
        long long a;                                                                               \
        if (!PyArg_ParseTuple(args, "L", &a))                                                      \
            return RAISED;                                                                         \
        return prefix##_##verb##_start(op->on->handle.member, a, hfpy_callback(op), op, &op->op);  \
    }                                                                                              \
    VERB(type, verb, start_##type##_##verb, answer, NULL, NULL, false)
#define NUMBERS_2(type, prefix, member, verb, answer)                                              \
    static int start_##type##_##verb(Op *op, PyObject *args) {                                     \
        long long a, b;                                                                            \
        if (!PyArg_ParseTuple(args, "LL", &a, &b))                                                 \
            return RAISED;                                                                         \
        return prefix##_##verb##_start(op->on->handle.member, a, b, hfpy_callback(op), op,         \
                                       &op->op);                                                   \
    }                                                                                              \
    VERB(type, verb, start_##type##_##verb, answer, NULL, NULL, false)

/* ---- Semaphores ---- */

/* acquire(permits, wait_ms) -> bool */
static int start_semaphore_acquire(Op *op, PyObject *args) {
    long long permits, wait_ms;
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "LL", &permits, &wait_ms))
        return RAISED;
    options.wait_ms = wait_ms;
    op->amount = permits;
    return hf_sem_acquire_start(op->on->handle.sem, permits, &options, hfpy_callback(op), op,
                                &op->op);
}
static void undo_semaphore_acquire(Op *op) {
    hf_sem_release_start(op->on->handle.sem, op->amount, NULL, NULL, NULL);
}
VERB(semaphore, acquire, start_semaphore_acquire, hfpy_answer_got, undo_semaphore_acquire, NULL,
     true)

#define SEM(shape, verb, answer) NUMBERS_##shape(semaphore, hf_sem, sem, verb, hfpy_answer_##answer)
SEM(2, try_set, bool)
SEM(1, release, none)
SEM(1, release_if_exists, bool)
SEM(1, add, none)
SEM(0, drain, int)
SEM(0, available, int)
SEM(0, delete, bool)

static PyObject *semaphore_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    (void)kw;
    return (PyObject *)counter_new(type, args, make_sem, destroy_sem);
}
static PyMethodDef semaphore_methods[] = {
    ASK(semaphore, try_set),           ASK(semaphore, acquire), ASK(semaphore, release),
    ASK(semaphore, release_if_exists), ASK(semaphore, add),     ASK(semaphore, drain),
    ASK(semaphore, available),         ASK(semaphore, delete),  {0},
};

/* ---- Permits ---- */

static PyObject *ids_of(const hf_permit_id *ids, int64_t len) {
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list != NULL && i < len; i++) {
        PyObject *id = PyUnicode_FromString(ids[i].text);
        if (id == NULL || PyList_Append(list, id) != 0)
            Py_CLEAR(list);
        DROP(id);
    }
    return list;
}

static int parse_id(PyObject *text, hf_permit_id *ret_id) {
    PyObject *bytes = NULL;
    if (hfpy_bytes_of(text, &bytes) != HF_OK)
        return RAISED;
    if (PyBytes_Size(bytes) == (Py_ssize_t)sizeof ret_id->text - 1) {
        memcpy(ret_id->text, PyBytes_AsString(bytes), sizeof ret_id->text);
    } else {
        PyErr_SetString(PyExc_ValueError, "the id of a permit has 32 hexadecimal digits");
    }
    DROP(bytes);
    return PyErr_Occurred() ? RAISED : HF_OK;
}

/* acquire(count, wait_ms, lease_ms) -> [id], or None if the wait was over */
static int start_permits_acquire(Op *op, PyObject *args) {
    long long count, wait_ms, lease_ms;
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "LLL", &count, &wait_ms, &lease_ms))
        return RAISED;
    if (count < 1 || count > 1000) {
        PyErr_SetString(PyExc_ValueError, "one call takes 1 to 1000 permits");
        return RAISED;
    }
    options.count = op->amount = count;
    options.wait_ms = wait_ms;
    options.lease_ms = lease_ms;
    op->out.ids = calloc((size_t)count, sizeof *op->out.ids);
    if (op->out.ids == NULL)
        return HF_ENOMEM;
    return hf_permits_acquire_start(op->on->handle.permits, &options, op->out.ids,
                                    hfpy_callback(op), op, &op->op);
}
static PyObject *answer_ids(Op *op) {
    return ids_of(op->out.ids, op->amount);
}
static void undo_permits_acquire(Op *op) {
    hf_permits_release_start(op->on->handle.permits, op->out.ids, (size_t)op->amount, NULL, NULL,
                             NULL);
}
static void free_ids(Op *op) {
    free(op->out.ids);
}
VERB(permits, acquire, start_permits_acquire, answer_ids, undo_permits_acquire, free_ids, true)

/* release(*ids) */
static int start_permits_release(Op *op, PyObject *args) {
    size_t len = (size_t)PyTuple_Size(args);
    hf_permit_id *ids = calloc(len + 1, sizeof *ids);
    int err = ids != NULL ? HF_OK : HF_ENOMEM;
    for (size_t i = 0; err == HF_OK && i < len; i++)
        err = parse_id(PyTuple_GetItem(args, (Py_ssize_t)i), &ids[i]);
    if (err == HF_OK)
        err = hf_permits_release_start(op->on->handle.permits, ids, len, hfpy_callback(op), op,
                                       &op->op);
    free(ids);
    return err;
}
VERB(permits, release, start_permits_release, hfpy_answer_none, NULL, NULL, false)

/* extend(id, lease_ms) */
static int start_permits_extend(Op *op, PyObject *args) {
    PyObject *text;
    long long lease_ms;
    hf_permit_id id;
    if (!PyArg_ParseTuple(args, "OL", &text, &lease_ms) || parse_id(text, &id) != HF_OK)
        return RAISED;
    return hf_permits_extend_start(op->on->handle.permits, &id, lease_ms, hfpy_callback(op), op,
                                   &op->op);
}
VERB(permits, extend, start_permits_extend, hfpy_answer_none, NULL, NULL, false)

/* lease_ms(id) */
static int start_permits_lease_ms(Op *op, PyObject *args) {
    PyObject *text;
    hf_permit_id id;
    if (!PyArg_ParseTuple(args, "O", &text) || parse_id(text, &id) != HF_OK)
        return RAISED;
    return hf_permits_ttl_ms_start(op->on->handle.permits, &id, hfpy_callback(op), op, &op->op);
}
VERB(permits, lease_ms, start_permits_lease_ms, hfpy_answer_int, NULL, NULL, false)

#define PERMITS(shape, verb, answer)                                                               \
    NUMBERS_##shape(permits, hf_permits, permits, verb, hfpy_answer_##answer)
PERMITS(1, try_set, bool)
PERMITS(1, set, none)
PERMITS(1, add, none)
PERMITS(0, available, int)
PERMITS(0, total, int)
PERMITS(0, taken, int)
PERMITS(1, expire, bool)
PERMITS(0, delete, bool)

static PyObject *permits_remaining_ms(Object *self, PyObject *text) {
    hf_permit_id id;
    if (parse_id(text, &id) != HF_OK || hfpy_object_ready(self) != HF_OK)
        return NULL;
    return PyLong_FromLongLong(hf_permits_remaining_ms(self->handle.permits, &id));
}

static void on_permit_event(hf_permits *permits, const char *id, const hf_event *event,
                            void *user) {
    (void)permits;
    Object *self = user;
    Note rest = {.serial = self->serial, .owner = event->owner, .number = event->remaining_ms};
    hfpy_client_put(self->client, NOTE_EVENT, (int)event->kind, event->reason, id, strlen(id),
                    &rest);
}
static int watch_permits(Object *self) {
    return hf_permits_on_lost(self->handle.permits, on_permit_event, self);
}

static PyObject *permits_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    (void)kw;
    Object *self = counter_new(type, args, make_permits, destroy_permits);
    if (self != NULL)
        self->watch = watch_permits;
    return (PyObject *)self;
}
static PyMethodDef permits_methods[] = {
    ASK(permits, try_set),
    ASK(permits, set),
    ASK(permits, add),
    ASK(permits, acquire),
    ASK(permits, release),
    ASK(permits, extend),
    ASK(permits, lease_ms),
    ASK(permits, available),
    ASK(permits, total),
    ASK(permits, taken),
    ASK(permits, expire),
    ASK(permits, delete),
    METHOD("remaining_ms", permits_remaining_ms, METH_O),
    METHOD("watch", hfpy_object_watch, METH_NOARGS),
    {0},
};

/* ---- Latches ---- */

/* await_(wait_ms) -> bool */
static int start_latch_await(Op *op, PyObject *args) {
    long long wait_ms;
    hf_wait_options options = HF_WAIT_OPTIONS_INIT;
    if (!PyArg_ParseTuple(args, "L", &wait_ms))
        return RAISED;
    options.wait_ms = wait_ms;
    return hf_latch_await_start(op->on->handle.latch, &options, hfpy_callback(op), op, &op->op);
}
VERB(latch, await, start_latch_await, hfpy_answer_got, NULL, NULL, true)

#define LATCH(shape, verb, answer)                                                                 \
    NUMBERS_##shape(latch, hf_latch, latch, verb, hfpy_answer_##answer)
LATCH(1, try_set, bool)
LATCH(0, count_down, none)
LATCH(0, count, int)
LATCH(0, delete, bool)

static PyObject *latch_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    (void)kw;
    return (PyObject *)counter_new(type, args, make_latch, destroy_latch);
}
static PyMethodDef latch_methods[] = {
    ASK(latch, try_set), ASK(latch, count_down), METHOD("wait", latch_await, METH_VARARGS),
    ASK(latch, count),   ASK(latch, delete),     {0},
};

#define SPEC(type, title)                                                                          \
    static PyType_Slot type##_slots[] = {                                                          \
        {Py_tp_new, type##_new},                                                                   \
        {Py_tp_dealloc, hfpy_object_dealloc},                                                      \
        {Py_tp_getset, hfpy_object_getset},                                                        \
        {Py_tp_methods, type##_methods},                                                           \
        {0, NULL},                                                                                 \
    };                                                                                             \
    PyType_Spec hfpy_##type##_spec = {"holdfast._core." title, sizeof(Object), 0,                  \
                                      Py_TPFLAGS_DEFAULT, type##_slots};
SPEC(semaphore, "Semaphore")
SPEC(permits, "Permits")
SPEC(latch, "Latch")
