/*
 * holdfast._core: the handles of the C library as Python objects, and little else. What a lock is to
 * Python is decided in __init__.py and asyncio.py; _core.h has the rules, _core_*.c the types.
 */
#include "_core.h"

static PyObject *version(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyUnicode_FromString(hf_version());
}
static PyObject *owner_new(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyLong_FromUnsignedLongLong(hf_owner_new());
}
static PyObject *is_main_interpreter(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyBool_FromLong(PyInterpreterState_GetID(PyInterpreterState_Get()) == 0);
}
static PyMethodDef functions[] = {
    METHOD("version", version, METH_NOARGS),
    METHOD("owner_new", owner_new, METH_NOARGS),
    METHOD("is_main_interpreter", is_main_interpreter, METH_NOARGS),
    {0},
};

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret_type) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL)
        return -1;
    int err = PyModule_AddType(module, (PyTypeObject *)type);
    if (ret_type != NULL)
        *ret_type = (PyTypeObject *)type;
    else
        DROP(type);
    return err;
}

static int add_types(PyObject *module, State *state) {
    return add_type(module, &hfpy_client_spec, &state->client) != 0 ||
                   add_type(module, &hfpy_op_spec, &state->op) != 0 ||
                   add_type(module, &hfpy_hold_spec, &state->hold) != 0 ||
                   add_type(module, &hfpy_lock_spec, &state->lock) != 0 ||
                   add_type(module, &hfpy_semaphore_spec, &state->semaphore) != 0 ||
                   add_type(module, &hfpy_permits_spec, &state->permits) != 0 ||
                   add_type(module, &hfpy_latch_spec, &state->latch) != 0 ||
                   add_type(module, &hfpy_listener_spec, &state->listener) != 0 ||
                   add_type(module, &hfpy_guard_spec, NULL) != 0 ||
                   add_type(module, &hfpy_scope_spec, NULL) != 0
               ? -1
               : 0;
}

static int add_numbers(PyObject *module) {
#define NUMBER(name, number, text) || PyModule_AddIntConstant(module, &#name[3], number) != 0
#define CONSTANT(name) || PyModule_AddIntConstant(module, &#name[3], (long)(name)) != 0
    return 0 HF_ERRORS(NUMBER) CONSTANT(HF_PLAIN) CONSTANT(HF_FAIR) CONSTANT(HF_READ)
                   CONSTANT(HF_WRITE) CONSTANT(HF_STRING) CONSTANT(HF_NONREENTRANT)
                       CONSTANT(HF_SPIN) CONSTANT(HF_FENCED) CONSTANT(HF_COHORT)
                           CONSTANT(HF_TLS_INSECURE) CONSTANT(HF_NO_BUSY_POLL)
                               CONSTANT(HF_NO_TRACKING) CONSTANT(HF_ACKS_ALL)
                                   CONSTANT(HF_ACKS_REPORT) CONSTANT(HF_ACKS_OFF)
                                       CONSTANT(HF_EXTEND_RAISE) CONSTANT(HF_EXTEND_SET)
                                           CONSTANT(HF_EXTEND_ADD)
               ? -1
               : 0;
}

/* What is Python's part: holdfast._errors. */
static int find_helpers(State *state) {
    PyObject *errors = PyImport_ImportModule("holdfast._errors");
    if (errors == NULL)
        return -1;
    state->raise_for = PyObject_GetAttrString(errors, "raise_for");
    state->log_release = PyObject_GetAttrString(errors, "log_release");
    state->lock_error = PyObject_GetAttrString(errors, "LockError");
    state->new_local = PyObject_GetAttrString(errors, "new_local");
    PyObject *main_thread = PyObject_CallMethod(errors, "main_thread", NULL);
    DROP(errors);
    if (main_thread != NULL)
        state->main_thread = PyLong_AsUnsignedLong(main_thread);
    DROP(main_thread);
    if (PyErr_Occurred() || state->new_local == NULL)
        return -1;
    state->owners = PyObject_CallNoArgs(state->new_local);
    return state->owners != NULL ? 0 : -1;
}

static int execute(PyObject *module) {
    /* A library keeps its promises until its major number changes; an older minor one lacks functions. */
    if (hf_version_num() / 10000 != HF_VERSION_MAJOR ||
        hf_version_num() < HF_VERSION_NUM / 100 * 100) {
        PyErr_Format(PyExc_ImportError,
                     "holdfast needs libholdfast %d.%d or a later %d, and this is %s",
                     HF_VERSION_MAJOR, HF_VERSION_MINOR, HF_VERSION_MAJOR, hf_version());
        return -1;
    }
    State *state = PyModule_GetState(module);
    return add_types(module, state) != 0 || add_numbers(module) != 0 ? -1 : find_helpers(state);
}

#define OBJECTS (sizeof(((State *)NULL)->all) / sizeof(PyObject *))

static int traverse(PyObject *module, visitproc visit, void *arg) {
    State *state = PyModule_GetState(module);
    for (size_t i = 0; i < OBJECTS; i++)
        Py_VISIT(state->all[i]);
    return 0;
}

static int clear(PyObject *module) {
    State *state = PyModule_GetState(module);
    for (size_t i = 0; i < OBJECTS; i++)
        Py_CLEAR(state->all[i]);
    return 0;
}

/* Room for what the limited API of 3.11 has no names for: see PyInit__core(). */
static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", NULL, sizeof(State), functions, slots, traverse, clear, NULL,
};

#define MULTIPLE_INTERPRETERS 3
#define PER_INTERPRETER_GIL ((void *)2)

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
    /* In 3.12, threading._shutdown() waits for ever if another thread ends an interpreter that has had a thread. */
    if (Py_Version >= 0x030D0000)
        slots[1] = (PyModuleDef_Slot){MULTIPLE_INTERPRETERS, PER_INTERPRETER_GIL};
    return PyModuleDef_Init(&definition);
}
