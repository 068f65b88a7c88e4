/*
 * What locks, semaphores, permits, latches and listeners have in common: a handle of the library,
 * made when it is first needed, and again in a child process.
 */
#include "_core.h"

#include <stdatomic.h>
#include <stddef.h>
#include <structmember.h>

static atomic_uint_least64_t serials = 1;

/* `client`: a _core.Client; `name`: a str, bytes, or NULL. */
Object *hfpy_object_new(PyTypeObject *type, PyObject *client, PyObject *name) {
    State *state = PyType_GetModuleState(type);
    if (Py_TYPE(client) != state->client) {
        PyErr_SetString(PyExc_TypeError, "a _core.Client is needed");
        return NULL;
    }
    PyObject *bytes = NULL;
    if (name != NULL && hfpy_bytes_of(name, &bytes) != HF_OK)
        return NULL;
    Object *self = (Object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL) {
        DROP(bytes);
        return NULL;
    }
    KEEP(client);
    self->client = (Client *)client;
    self->name = bytes;
    self->serial = atomic_fetch_add(&serials, 1);
    self->options = (hf_lock_options)HF_LOCK_OPTIONS_INIT;
    return self;
}

static void drop_handle(Object *self) {
    Handle handle = self->handle;
    self->handle.any = NULL;
    if (handle.any != NULL)
        self->destroy(handle);
}

void hfpy_object_dealloc(Object *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    drop_handle(self);
    DROP(self->parts);
    DROP(self->name);
    DROP(self->client);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DROP(type);
}

/* Before every use: there is a handle, of this process. */
int hfpy_object_ready(Object *self) {
    if (hfpy_client_open(self->client) != HF_OK)
        return RAISED;
    if (self->handle.any != NULL && self->generation == self->client->generation)
        return HF_OK;
    drop_handle(self);
    int err = self->make(self);
    if (err == HF_OK) {
        self->generation = self->client->generation;
        if (self->watched && self->watch != NULL)
            err = self->watch(self);
    }
    if (err != HF_OK && err != RAISED)
        hfpy_fail_last(self->client, err, self->name);
    return err != HF_OK ? RAISED : HF_OK;
}

/* From now on its losses and warnings are among the client's notes. */
PyObject *hfpy_object_watch(Object *self, PyObject *none) {
    (void)none;
    if (!self->watched) {
        if (hfpy_object_ready(self) != HF_OK)
            return NULL;
        int err = self->watch(self);
        if (err != HF_OK)
            return hfpy_fail_last(self->client, err, self->name);
        self->watched = true;
    }
    Py_RETURN_NONE;
}

static PyObject *object_serial(Object *self, void *none) {
    (void)none;
    return PyLong_FromUnsignedLongLong(self->serial);
}
static PyObject *object_client(Object *self, void *none) {
    (void)none;
    KEEP(self->client);
    return (PyObject *)self->client;
}
PyGetSetDef hfpy_object_getset[] = {
    {"serial", (getter)object_serial, NULL, NULL, NULL},
    {"client", (getter)object_client, NULL, NULL, NULL},
    {0},
};

/* ---- Listeners ---- */

static void on_notification(hf_listener *listener, const hf_notification *notification,
                            void *user) {
    (void)listener;
    Object *self = user;
    Note rest = {.code = notification->code,
                 .serial = self->serial,
                 .number = notification->number,
                 .age_ms = notification->age_ms,
                 .server = notification->server,
                 .servers = notification->servers};
    hfpy_client_put(self->client, NOTE_NOTIFICATION, (int)notification->kind, "",
                    notification->name, notification->name_len, &rest);
}

static int make_listener(Object *self) {
    if (self->name == NULL)
        return hf_listen_breaks(self->client->handle, on_notification, self,
                                &self->handle.listener);
    return hf_listen_bytes(self->client->handle, PyBytes_AsString(self->name),
                           (size_t)PyBytes_Size(self->name), on_notification, self,
                           &self->handle.listener);
}

static void destroy_listener(Handle handle) {
    hf_listener_free(handle.listener);
}

/* Listener(client, name or None): listens at once, and until it is freed. */
static PyObject *listener_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    (void)kw;
    PyObject *client, *name;
    if (!PyArg_ParseTuple(args, "OO", &client, &name))
        return NULL;
    Object *self = hfpy_object_new(type, client, name != Py_None ? name : NULL);
    if (self == NULL)
        return NULL;
    self->make = make_listener;
    self->destroy = destroy_listener;
    if (hfpy_object_ready(self) != HF_OK) {
        DROP(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *listener_close(Object *self, PyObject *none) {
    (void)none;
    drop_handle(self);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {METHOD("close", listener_close, METH_NOARGS), {0}};
static PyType_Slot slots[] = {
    {Py_tp_new, listener_new},
    {Py_tp_dealloc, hfpy_object_dealloc},
    {Py_tp_getset, hfpy_object_getset},
    {Py_tp_methods, methods},
    {0, NULL},
};
PyType_Spec hfpy_listener_spec = {"holdfast._core.Listener", sizeof(Object), 0, Py_TPFLAGS_DEFAULT,
                                  slots};
