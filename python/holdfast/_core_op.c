/*
 * _core.Op: one operation. A verb is asked for here, in one of three ways:
 *   asyncio   the caller gets the Op, and later its completion among those that dispatch() returns
 *   threads   the caller waits, in slices, so that signal handlers run; one that raises ends it
 *   gevent    the client's hook waits, which lets other greenlets run
 *
 * An operation that nobody wants any more is abandoned: what it was granted goes back.
 */
#include "_core.h"

#include <stddef.h>
#include <structmember.h>

/* ---- Answers ---- */

PyObject *hfpy_answer_none(Op *op) {
    (void)op;
    Py_RETURN_NONE;
}
PyObject *hfpy_answer_bool(Op *op) {
    return PyBool_FromLong(op->result.value != 0);
}
PyObject *hfpy_answer_int(Op *op) {
    return PyLong_FromLongLong(op->result.value);
}
/* Of what waits: False if the wait was over. */
PyObject *hfpy_answer_got(Op *op) {
    return PyBool_FromLong(op->result.code == HF_OK);
}

static PyObject *answer(Op *op) {
    int code = op->result.code;
    bool in_vain = op->verb->waits && (code == HF_EBUSY || code == HF_ETIMEDOUT);
    if (code == HF_OK || (in_vain && op->verb->answer == hfpy_answer_got))
        return op->verb->answer(op);
    if (in_vain)
        Py_RETURN_NONE;
    PyObject *name = op->on != NULL ? op->on->name : NULL;
    return hfpy_fail(op->client->raise_for, code, &op->result.error, name);
}

/* ---- Completion ---- */

static void on_done(hf_op *handle, const hf_result *result, void *user) {
    (void)handle;
    Op *self = user;
    self->result = *result;
    hfpy_client_done(self->client, self);
}

/* What a verb passes to its `_start`. */
hf_op_fn hfpy_callback(const Op *op) {
    return op->client->manual ? on_done : NULL;
}

static void give_back(Op *self) {
    if (self->verb->undo != NULL && self->result.code == HF_OK)
        self->verb->undo(self);
}

/* It came out of the list of those that have completed. */
void hfpy_op_fetched(Op *self) {
    self->finished = true;
    if (self->abandoned)
        give_back(self);
}

static void abandon(Op *self) {
    if (self->abandoned)
        return;
    self->abandoned = true;
    if (self->finished) {
        give_back(self);
    } else if (self->op != NULL) {
        bool gone = hf_op_abandon(self->op);
        self->op = NULL;
        if (gone && hfpy_callback(self) != NULL)
            DROP(self); /* the library's: nobody will fetch it */
    }
}

/* ---- Waiting ---- */

static PyObject *wait_for_thread(Op *op) {
    int err;
    do {
        Py_BEGIN_ALLOW_THREADS err = hf_op_wait(op->op, SLICE_MS, &op->result);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() != 0) {
            op->finished = err != HF_EPENDING;
            abandon(op);
            return NULL;
        }
    } while (err == HF_EPENDING);
    op->finished = true;
    op->result.code = err;
    return answer(op);
}

/* The operation waits no more, and the last one lets its hub end. Python's `finally` is not safe
 * for that: a handler can raise in it. Nothing here runs bytecode. */
static int end_watch(Op *op) {
    PyObject *waiting, *watcher, *watch = op->watch;
    op->watch = NULL;
    if (watch == NULL)
        return 0;
    int err = -1;
    if (PyArg_ParseTuple(watch, "OO", &waiting, &watcher) &&
        PySet_Discard(waiting, (PyObject *)op) >= 0)
        err = PySet_Size(waiting) > 0 ? 0 : PyObject_SetAttrString(watcher, "ref", Py_False);
    DROP(watch);
    return err;
}

static PyObject *wait_by_hook(Op *op) {
    PyObject *type, *value, *traceback;
    PyObject *none = PyObject_CallFunctionObjArgs(op->client->hook, (PyObject *)op, NULL);
    PyErr_Fetch(&type, &value, &traceback);
    if (end_watch(op) != 0) {
        Py_CLEAR(none);
        if (type != NULL)
            PyErr_Clear();
    }
    if (type != NULL)
        PyErr_Restore(type, value, traceback);
    if (none == NULL) {
        abandon(op);
        return NULL;
    }
    DROP(none);
    return answer(op);
}

/* Waits for it, and steals the reference. */
PyObject *hfpy_wait(Op *op) {
    PyObject *made = op->client->hook != NULL ? wait_by_hook(op) : wait_for_thread(op);
    DROP(op);
    return made;
}

static Op *op_new(Client *client, Object *on, const Verb *verb) {
    PyTypeObject *type = client->state->op;
    Op *self = (Op *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL)
        return NULL;
    KEEP(client);
    self->client = client;
    KEEP(on);
    self->on = on;
    self->verb = verb;
    self->result = (hf_result)HF_RESULT_INIT;
    return self;
}

PyObject *hfpy_call(Client *client, Object *on, const Verb *verb, PyObject *args) {
    if (on != NULL ? hfpy_object_ready(on) != HF_OK : hfpy_client_open(client) != HF_OK)
        return NULL;
    Op *op = op_new(client, on, verb);
    if (op == NULL)
        return NULL;
    if (hfpy_callback(op) != NULL)
        KEEP(op); /* the library's, until it is fetched */
    int err = verb->start(op, args);
    if (err != HF_OK) {
        if (err != RAISED)
            hfpy_fail_last(client, err, on != NULL ? on->name : NULL);
        if (hfpy_callback(op) != NULL)
            DROP(op);
        DROP(op);
        return NULL;
    }
    return client->manual && client->hook == NULL ? (PyObject *)op : hfpy_wait(op);
}

/* ---- As an object ---- */

static PyObject *op_result(Op *self, PyObject *none) {
    (void)none;
    if (!self->finished) {
        PyErr_SetString(PyExc_RuntimeError, "the operation is not complete yet");
        return NULL;
    }
    return answer(self);
}

static PyObject *op_abandon(Op *self, PyObject *none) {
    (void)none;
    abandon(self);
    Py_RETURN_NONE;
}

static int op_traverse(Op *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->tag);
    Py_VISIT(self->watch);
    Py_VISIT(self->client);
    return 0;
}

static int op_clear(Op *self) {
    Py_CLEAR(self->tag);
    Py_CLEAR(self->watch);
    return 0;
}

static void op_dealloc(Op *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    hf_op_free(self->op);
    if (self->verb->free != NULL)
        self->verb->free(self);
    DROP(self->tag);
    DROP(self->watch);
    DROP(self->on);
    DROP(self->client);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DROP(type);
}

static PyMethodDef methods[] = {
    METHOD("result", op_result, METH_NOARGS),
    METHOD("abandon", op_abandon, METH_NOARGS),
    {0},
};
static PyMemberDef members[] = {
    {"tag", T_OBJECT, offsetof(Op, tag), 0, NULL},
    {"watch", T_OBJECT, offsetof(Op, watch), 0, NULL},
    {"finished", T_BOOL, offsetof(Op, finished), READONLY, NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, op_dealloc}, {Py_tp_traverse, op_traverse}, {Py_tp_clear, op_clear},
    {Py_tp_methods, methods},    {Py_tp_members, members},      {0, NULL},
};
PyType_Spec hfpy_op_spec = {
    "holdfast._core.Op", sizeof(Op), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
