/*
 * _core.Scope: a `with` that takes from a semaphore or from permits, and gives back the same. As in
 * _core_guard.c, what is taken is noted before Python can run again.
 */
#include "_core.h"

#include <stddef.h>
#include <structmember.h>

typedef struct Scope {
    PyObject_HEAD Object *on;
    bool of_permits;
    long long amount, wait_ms, lease_ms;
    long long taken; /* of a semaphore: how often this was entered */
    PyObject *ids;   /* of permits: those that it has; NULL: none */
} Scope;

/* Scope(semaphore or permits, amount, wait_ms, lease_ms) */
static int scope_init(Scope *self, PyObject *args, PyObject *kw) {
    (void)kw;
    PyObject *on;
    long long amount, wait_ms, lease_ms;
    if (!PyArg_ParseTuple(args, "OLLL", &on, &amount, &wait_ms, &lease_ms))
        return -1;
    State *state = PyType_GetModuleState(Py_TYPE(on));
    if (state == NULL || self->on != NULL ||
        (Py_TYPE(on) != state->semaphore && Py_TYPE(on) != state->permits)) {
        PyErr_SetString(PyExc_TypeError, "a semaphore or permits are needed, once");
        return -1;
    }
    KEEP(on);
    self->on = (Object *)on;
    self->of_permits = Py_TYPE(on) == state->permits;
    self->amount = amount;
    self->wait_ms = wait_ms;
    self->lease_ms = lease_ms;
    return 0;
}

static PyObject *ask(Scope *self, const Verb *verb, PyObject *args) {
    PyObject *answer = args != NULL ? hfpy_call(self->on->client, self->on, verb, args) : NULL;
    DROP(args);
    return answer;
}

static PyObject *not_in_time(Scope *self) {
    return hfpy_fail(self->on->client->raise_for, self->wait_ms == 0 ? HF_EBUSY : HF_ETIMEDOUT,
                     NULL, self->on->name);
}

static PyObject *enter_permits(Scope *self) {
    if (self->ids != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "these permits are taken already");
        return NULL;
    }
    PyObject *ids = ask(self, &hfpy_permits_acquire,
                        Py_BuildValue("(LLL)", self->amount, self->wait_ms, self->lease_ms));
    if (ids == Py_None) {
        DROP(ids);
        return not_in_time(self);
    }
    self->ids = ids;
    Py_XINCREF(ids);
    return ids;
}

static PyObject *scope_enter(Scope *self, PyObject *none) {
    (void)none;
    if (self->of_permits)
        return enter_permits(self);
    PyObject *got =
        ask(self, &hfpy_semaphore_acquire, Py_BuildValue("(LL)", self->amount, self->wait_ms));
    if (got == NULL || got != Py_True) {
        DROP(got);
        return got != NULL ? not_in_time(self) : NULL;
    }
    self->taken++;
    DROP(got);
    KEEP(self);
    return (PyObject *)self;
}

static PyObject *release(Scope *self) {
    if (!self->of_permits)
        return ask(self, &hfpy_semaphore_release, Py_BuildValue("(L)", self->amount));
    PyObject *ids = self->ids;
    self->ids = NULL;
    PyObject *args = PyList_AsTuple(ids);
    DROP(ids);
    return ask(self, &hfpy_permits_release, args);
}

static PyObject *scope_exit(Scope *self, PyObject *args) {
    PyObject *type = Py_None, *value = Py_None, *traceback = Py_None;
    if (!PyArg_ParseTuple(args, "|OOO:__exit__", &type, &value, &traceback))
        return NULL;
    if (self->of_permits ? self->ids == NULL : self->taken == 0)
        Py_RETURN_NONE;
    self->taken--;
    PyObject *none = release(self);
    if (none != NULL || type == Py_None || !PyErr_ExceptionMatches(PyExc_Exception))
        return none;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    none = PyObject_CallFunctionObjArgs(self->on->client->state->log_release, self->on->name, value,
                                        NULL);
    DROP(type);
    DROP(value);
    DROP(traceback);
    return none;
}

static void scope_dealloc(Scope *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    DROP(self->ids);
    DROP(self->on);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DROP(type);
}

static PyMethodDef methods[] = {
    METHOD("__enter__", scope_enter, METH_NOARGS),
    METHOD("__exit__", scope_exit, METH_VARARGS),
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_init, scope_init},
    {Py_tp_dealloc, scope_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};
PyType_Spec hfpy_scope_spec = {"holdfast._core.Scope", sizeof(Scope), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
