/*
 * _core.Client: the library's client, opened anew in a child process, and what its threads have to
 * say: completions, log lines, losses, notification. They are linked into lists here without the GIL.
 *
 * `handle` is read and written with the GIL held. The lists belong to the mutex.
 */
#include "_core.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NOTES_MAX 4096

/* ---- From any thread, without the GIL ---- */

/* `rest`: the fields that are copied as they are; NULL: all 0. */
void hfpy_client_put(Client *self, NoteWhat what, int kind, const char *text, const char *name,
                     size_t name_len, const Note *rest) {
    Note *note = calloc(1, sizeof *note + name_len + 1);
    if (note == NULL)
        return;
    if (rest != NULL)
        memcpy(note, rest, offsetof(Note, text));
    note->next = NULL;
    note->what = what;
    note->kind = kind;
    strncpy(note->text, text, sizeof note->text - 1);
    if (what == NOTE_LOG)
        memcpy(note->about, rest->about, sizeof note->about);
    note->name_len = name_len;
    if (name_len > 0)
        memcpy(note->name, name, name_len);

    pthread_mutex_lock(&self->mutex);
    bool full = what != NOTE_EVENT && self->notes_len >= NOTES_MAX; /* holds bound the events */
    if (full) {
        self->dropped++;
    } else {
        self->notes_len++;
        *self->notes_end = note;
        self->notes_end = &note->next;
    }
    pthread_mutex_unlock(&self->mutex);
    if (full)
        free(note);
    else
        eventfd_write(self->fd, 1);
}

static void on_log(const hf_log_record *record, void *user) {
    Note rest = {.code = record->code};
    strncpy(rest.about, record->server, sizeof rest.about - 1);
    hfpy_client_put(user, NOTE_LOG, (int)record->level, record->message, record->name,
                    record->name_len, &rest);
}

void hfpy_client_done(Client *self, Op *op) {
    pthread_mutex_lock(&self->mutex);
    op->next = NULL;
    *self->done_end = op;
    self->done_end = &op->next;
    pthread_mutex_unlock(&self->mutex);
}

/* ---- Life ---- */

static void empty_lists(Client *self) {
    self->done = NULL;
    self->done_end = &self->done;
    self->notes = NULL;
    self->notes_end = &self->notes;
    self->notes_len = 0;
}

static int open_here(Client *self) {
    hf_options options = HF_OPTIONS_INIT;
    if (hfpy_set_options(&options, self->options) != HF_OK)
        return RAISED;
    if (self->manual)
        options.flags |= HF_MANUAL_DISPATCH;
    options.log_record = on_log;
    options.log_user = self;
    const char *url = self->url != Py_None ? PyBytes_AsString(self->url) : NULL;
    int err = hf_open(url, &options, &self->handle);
    if (err != HF_OK) {
        hfpy_fail_last(self, err, NULL);
        return RAISED;
    }
    return HF_OK;
}

/* Before every use. */
int hfpy_client_open(Client *self) {
    if (self->handle != NULL)
        return HF_OK;
    if (self->closed) {
        hfpy_fail(self->raise_for, HF_ECLOSED, NULL, NULL);
        return RAISED;
    }
    return open_here(self);
}

/* Client(url: bytes | None, options: dict, manual: bool) */
static PyObject *client_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    PyObject *url, *options;
    int manual;
    if (kw != NULL && PyDict_Size(kw) > 0) {
        PyErr_SetString(PyExc_TypeError, "Client() takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OO!p", &url, &PyDict_Type, &options, &manual))
        return NULL;
    Client *self = (Client *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL)
        return NULL;
    self->state = PyType_GetModuleState(type);
    pthread_mutex_init(&self->mutex, NULL);
    empty_lists(self);
    KEEP(url);
    self->url = url;
    KEEP(options);
    self->options = options;
    self->manual = manual;
    KEEP(self->state->raise_for);
    self->raise_for = self->state->raise_for;
    self->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->fd < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    if (self->fd < 0 || open_here(self) != HF_OK) {
        DROP(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* The operations that have completed, as a list; NULL: no memory. */
static PyObject *fetch(Client *self) {
    pthread_mutex_lock(&self->mutex);
    Op *op = self->done;
    self->done = NULL;
    self->done_end = &self->done;
    pthread_mutex_unlock(&self->mutex);
    PyObject *list = PyList_New(0);
    while (op != NULL) {
        Op *next = op->next;
        hfpy_op_fetched(op);
        if (list != NULL && PyList_Append(list, (PyObject *)op) != 0)
            Py_CLEAR(list);
        DROP(op); /* the library's */
        op = next;
    }
    return list;
}

/* With a hook: sets the tags of what was fetched, for which it waits. A handler of a signal may raise meanwhile: then
 * the others are set, too. Steals the list. */
static PyObject *wake(Client *self, PyObject *list) {
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    Py_ssize_t len = list != NULL && self->hook != NULL ? PyList_Size(list) : 0;
    for (Py_ssize_t i = 0; i < len; i++) {
        Op *op = (Op *)PyList_GetItem(list, i);
        for (int tries = 0; op->tag != NULL && tries < 2; tries++) {
            PyObject *none = PyObject_CallMethod(op->tag, "set", NULL);
            DROP(none);
            if (none != NULL)
                break;
            DROP(type), DROP(value), DROP(traceback);
            PyErr_Fetch(&type, &value, &traceback);
        }
    }
    if (type == NULL)
        return list;
    DROP(list);
    PyErr_Restore(type, value, traceback);
    return NULL;
}

/* Returns what had not completed yet: it has now. In a handler that runs during a wait, nothing is
 * done: hf_close() would refuse, but other threads must never see a client that is closed only for
 * that moment. */
static PyObject *client_close(Client *self, PyObject *none) {
    (void)none;
    if (self->handle != NULL && hfpy_checks_signals)
        return hfpy_fail(self->raise_for, HF_EDEADLK, NULL, NULL);
    hf_client *handle = self->handle;
    self->handle = NULL;
    self->closed = true;
    int err = HF_OK;
    if (handle != NULL) {
        Py_BEGIN_ALLOW_THREADS err = hf_close(handle);
        Py_END_ALLOW_THREADS
    }
    hf_error details = *hf_last_error();
    PyObject *list = wake(self, fetch(self));
    if (err == HF_OK || list == NULL)
        return list;
    DROP(list);
    return hfpy_fail(self->raise_for, err, &details, NULL);
}

/* Runs in the last hf_dispatch(), so on a thread that waits for it. */
static void on_closed(void *user) {
    Client *self = user;
    self->closing = NULL;
}

/* Of a manual client: dispatch() is to be called until `closing` is false. */
static PyObject *client_close_start(Client *self, PyObject *none) {
    (void)none;
    hf_client *handle = self->handle;
    self->handle = NULL;
    self->closed = true;
    if (handle != NULL) {
        self->closing = handle;
        int err = hf_close_start(handle, on_closed, self);
        if (err != HF_OK) {
            self->closing = NULL;
            self->handle = handle;
            return hfpy_fail_last(self, err, NULL);
        }
    }
    Py_RETURN_NONE;
}

/* In a child: the parent's handle only loses its descriptors here. The mutex and the lists may have
 * been in use by a thread that does not exist any more. */
static PyObject *client_forked(Client *self, PyObject *none) {
    (void)none;
    hf_client *handle = self->handle;
    self->handle = NULL;
    self->generation++;
    pthread_mutex_init(&self->mutex, NULL);
    empty_lists(self);
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd >= 0) {
        close(self->fd);
        self->fd = fd;
    }
    self->state->main_thread = PyThread_get_thread_ident();
    hf_close(handle);
    Py_RETURN_NONE;
}

static int client_traverse(Client *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->hook);
    Py_VISIT(self->raise_for);
    return 0;
}

static int client_clear(Client *self) {
    Py_CLEAR(self->hook);
    return 0;
}

static void on_buried(void *user) {
    (void)user;
}

static void client_dealloc(Client *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    hf_client *handle = self->handle;
    self->handle = NULL;
    if (handle != NULL && hfpy_checks_signals) {
        hf_close_start(handle, on_buried, NULL);
        return; /* the memory stays: until its end the library writes to the lists */
    }
    if (handle != NULL) {
        Py_BEGIN_ALLOW_THREADS hf_close(handle);
        Py_END_ALLOW_THREADS
    }
    DROP(fetch(self));
    while (self->notes != NULL) {
        Note *note = self->notes;
        self->notes = note->next;
        free(note);
    }
    if (self->fd >= 0)
        close(self->fd);
    pthread_mutex_destroy(&self->mutex);
    DROP(self->url);
    DROP(self->options);
    DROP(self->hook);
    DROP(self->raise_for);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    DROP(type);
}

/* ---- What the loop of asyncio calls ---- */

static PyObject *client_dispatch(Client *self, PyObject *none) {
    (void)none;
    if (self->closing == NULL && hfpy_client_open(self) != HF_OK)
        return NULL;
    hf_client *handle = self->closing != NULL ? self->closing : self->handle;
    int err;
    Py_BEGIN_ALLOW_THREADS err = hf_dispatch(handle, 0);
    Py_END_ALLOW_THREADS if (err < 0 && err != HF_EBUSY) return hfpy_fail_last(self, err, NULL);
    return wake(self, fetch(self));
}

/* The same for a hub of gevent: sets the tags, and returns nothing. A closed client has nothing to tell. */
static PyObject *client_pump(Client *self, PyObject *none) {
    (void)none;
    if (self->handle == NULL)
        Py_RETURN_NONE;
    PyObject *list = client_dispatch(self, NULL);
    if (list == NULL)
        return NULL;
    DROP(list);
    Py_RETURN_NONE;
}

static PyObject *client_dispatch_fd(Client *self, PyObject *none) {
    (void)none;
    if (hfpy_client_open(self) != HF_OK)
        return NULL;
    int fd = hf_dispatch_fd(self->handle);
    return fd < 0 ? hfpy_fail_last(self, fd, NULL) : PyLong_FromLong(fd);
}

static PyObject *note_of(const Note *note) {
    return Py_BuildValue("(iiiKKLLKKOy#y)", (int)note->what, note->kind, note->code,
                         (unsigned long long)note->serial, (unsigned long long)note->owner,
                         (long long)note->number, (long long)note->age_ms,
                         (unsigned long long)note->server, (unsigned long long)note->servers,
                         Py_None, note->name, (Py_ssize_t)note->name_len, note->about);
}

/* [(what, kind, code, serial, owner, number, age_ms, server, servers, text, name, about)] */
static PyObject *client_notes(Client *self, PyObject *none) {
    (void)none;
    eventfd_t ignored;
    eventfd_read(self->fd, &ignored);
    pthread_mutex_lock(&self->mutex);
    Note *note = self->notes;
    self->notes = NULL;
    self->notes_end = &self->notes;
    self->notes_len = 0;
    pthread_mutex_unlock(&self->mutex);
    PyObject *list = PyList_New(0);
    while (note != NULL) {
        Note *next = note->next;
        PyObject *text =
            PyUnicode_DecodeUTF8(note->text, (Py_ssize_t)strlen(note->text), "backslashreplace");
        PyObject *row = text != NULL ? note_of(note) : NULL;
        if (row == NULL || PyTuple_SetItem(row, 9, text) != 0 ||
            (list != NULL && PyList_Append(list, row) != 0))
            Py_CLEAR(list);
        DROP(row);
        free(note);
        note = next;
    }
    return list;
}

static PyObject *client_notes_fd(Client *self, PyObject *none) {
    (void)none;
    return PyLong_FromLong(self->fd);
}

/* ---- About the client ---- */

static PyObject *client_id(Client *self, void *none) {
    (void)none;
    if (hfpy_client_open(self) != HF_OK)
        return NULL;
    return PyUnicode_FromString(hf_client_id(self->handle));
}

static PyObject *client_metrics(Client *self, PyObject *none) {
    (void)none;
    char *text = NULL;
    if (hfpy_client_open(self) != HF_OK)
        return NULL;
    int err = hf_client_metrics(self->handle, &text);
    if (err != HF_OK)
        return hfpy_fail_last(self, err, NULL);
    PyObject *made = PyUnicode_FromString(text);
    hf_text_free(text);
    return made;
}

static PyObject *client_stats(Client *self, PyObject *none) {
    (void)none;
    hf_stats stats = HF_STATS_INIT;
    if (hfpy_client_open(self) != HF_OK)
        return NULL;
    int err = hf_client_stats(self->handle, &stats);
    return err != HF_OK ? hfpy_fail_last(self, err, NULL) : hfpy_stats(&stats);
}

static int start_ping(Op *op, PyObject *args) {
    if (!PyArg_ParseTuple(args, ""))
        return RAISED;
    return hf_ping_start(op->client->handle, hfpy_callback(op), op, &op->op);
}
static const Verb ping = {start_ping, hfpy_answer_none, NULL, NULL, false};
static PyObject *client_ping(Client *self, PyObject *args) {
    return hfpy_call(self, NULL, &ping, args);
}

/* survey(pattern: bytes | None, limit_ms, wanted) -> JSON */
static int start_survey(Op *op, PyObject *args) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    const char *pattern;
    long long limit_ms;
    unsigned wanted;
    if (!PyArg_ParseTuple(args, "zLI", &pattern, &limit_ms, &wanted))
        return RAISED;
    options.pattern = pattern;
    options.limit_ms = limit_ms;
    options.wanted = wanted;
    return hf_survey_start(op->client->handle, &options, &op->out.fleet, hfpy_callback(op), op,
                           &op->op);
}
static PyObject *answer_survey(Op *op) {
    char *text = NULL;
    int err = hf_fleet_json(op->out.fleet, &text);
    if (err != HF_OK)
        return hfpy_fail_last(op->client, err, NULL);
    PyObject *made = PyUnicode_FromString(text);
    hf_text_free(text);
    return made;
}
static void free_survey(Op *op) {
    hf_fleet_free(op->out.fleet);
}
static const Verb survey = {start_survey, answer_survey, NULL, free_survey, false};
static PyObject *client_survey(Client *self, PyObject *args) {
    return hfpy_call(self, NULL, &survey, args);
}

static PyObject *client_closing(Client *self, void *none) {
    (void)none;
    return PyBool_FromLong(self->closing != NULL);
}

/* Wakes who waits for notes_fd(). */
static PyObject *client_wake(Client *self, PyObject *none) {
    (void)none;
    eventfd_write(self->fd, 1);
    Py_RETURN_NONE;
}

static PyObject *client_hook(Client *self, PyObject *hook) {
    KEEP(hook);
    DROP(self->hook);
    self->hook = hook;
    Py_RETURN_NONE;
}

/* Instead of _errors.raise_for(). */
static PyObject *client_raise_for(Client *self, PyObject *function) {
    KEEP(function);
    DROP(self->raise_for);
    self->raise_for = function;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    METHOD("close", client_close, METH_NOARGS),
    METHOD("close_start", client_close_start, METH_NOARGS),
    METHOD("forked", client_forked, METH_NOARGS),
    METHOD("dispatch", client_dispatch, METH_NOARGS),
    METHOD("pump", client_pump, METH_NOARGS),
    METHOD("dispatch_fd", client_dispatch_fd, METH_NOARGS),
    METHOD("notes", client_notes, METH_NOARGS),
    METHOD("wake", client_wake, METH_NOARGS),
    METHOD("notes_fd", client_notes_fd, METH_NOARGS),
    METHOD("metrics", client_metrics, METH_NOARGS),
    METHOD("stats", client_stats, METH_NOARGS),
    METHOD("ping", client_ping, METH_VARARGS),
    METHOD("survey", client_survey, METH_VARARGS),
    METHOD("set_hook", client_hook, METH_O),
    METHOD("set_raise_for", client_raise_for, METH_O),
    {0},
};
static PyMemberDef members[] = {
    {"generation", T_UINT, offsetof(Client, generation), READONLY, NULL},
    {"closed", T_BOOL, offsetof(Client, closed), READONLY, NULL},
    {"dropped", T_UINT, offsetof(Client, dropped), READONLY, NULL},
    {0},
};
static PyGetSetDef getset[] = {
    {"id", (getter)client_id, NULL, NULL, NULL},
    {"closing", (getter)client_closing, NULL, NULL, NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_new, client_new},
    {Py_tp_dealloc, client_dealloc},
    {Py_tp_traverse, client_traverse},
    {Py_tp_clear, client_clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, getset},
    {0, NULL},
};
PyType_Spec hfpy_client_spec = {"holdfast._core.Client", sizeof(Client), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
