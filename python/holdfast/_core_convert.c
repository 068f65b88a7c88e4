/*
 * Between C and Python: errors, names, options and statistics. Called with the GIL held; no state.
 */
#include "_core.h"

#include <stddef.h>
#include <string.h>

static PyObject *text_of(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

/* Raises what a code stands for; an exception that is already set stays. Always returns NULL. */
PyObject *hfpy_fail(PyObject *raise_for, int code, const hf_error *details, PyObject *name) {
    if (PyErr_Occurred())
        return NULL;
    bool known = details != NULL && details->code == code;
    PyObject *node = text_of(known ? details->node : "");
    PyObject *text = text_of(known && details->text[0] != 0 ? details->text : hf_strerror(code));
    PyObject *none = NULL;
    if (node != NULL && text != NULL)
        none = PyObject_CallFunction(raise_for, "iiOOO", code, known ? details->sys_errno : 0, node,
                                     text, name != NULL ? name : Py_None);
    DROP(none);
    DROP(node);
    DROP(text);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "an error of the library raised nothing");
    return NULL;
}

PyObject *hfpy_fail_last(Client *client, int code, PyObject *name) {
    hf_error details = *hf_last_error();
    return hfpy_fail(client->raise_for, code, &details, name);
}

/* A name as bytes: str is UTF-8. A new reference. */
int hfpy_bytes_of(PyObject *name, PyObject **ret_bytes) {
    if (PyUnicode_Check(name)) {
        *ret_bytes = PyUnicode_AsUTF8String(name);
    } else if (PyBytes_Check(name)) {
        KEEP(name);
        *ret_bytes = name;
    } else {
        PyErr_SetString(PyExc_TypeError, "a name is a str, or bytes");
        return RAISED;
    }
    return *ret_bytes != NULL ? HF_OK : RAISED;
}

/* ---- Options ---- */

typedef enum Type { TEXT, MS, INT, FLAGS, OTHER } Type;
/* What is neither a text nor a number is not for Python: log function, allocator, map. */
#define FIELD(type, name)                                                                          \
    {#name, offsetof(hf_options, name),                                                            \
     _Generic((type *)NULL, const char **: TEXT, int64_t *: MS, int *: INT, unsigned *: FLAGS,     \
              default: OTHER)},
static const struct {
    const char *name;
    size_t offset;
    Type type;
} fields[] = {HF_OPTIONS_FIELDS(FIELD)};

static int set_field(hf_options *options, size_t offset, Type type, PyObject *value) {
    void *field = (char *)options + offset;
    if (type == TEXT) {
        *(const char **)field = PyBytes_AsString(value);
        return *(const char **)field != NULL ? HF_OK : RAISED;
    }
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred())
        return RAISED;
    if (type == MS)
        *(int64_t *)field = number;
    else if (type == FLAGS)
        *(unsigned *)field = (unsigned)number;
    else
        *(int *)field = (int)number;
    return HF_OK;
}

static size_t find_field(PyObject *name) {
    size_t i = 0;
    while (i < sizeof fields / sizeof *fields &&
           (fields[i].type == OTHER || PyUnicode_CompareWithASCIIString(name, fields[i].name) != 0))
        i++;
    return i;
}

/* Texts are bytes objects, and stay the dict's. */
int hfpy_set_options(hf_options *options, PyObject *dict) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        size_t i = find_field(key);
        if (i == sizeof fields / sizeof *fields) {
            PyErr_Format(PyExc_TypeError, "there is no option %R", key);
            return RAISED;
        }
        if (set_field(options, fields[i].offset, fields[i].type, value) != HF_OK)
            return RAISED;
    }
    return HF_OK;
}

/* ---- Statistics ---- */

static int put(PyObject *dict, const char *name, PyObject *value) {
    int err = value != NULL ? PyDict_SetItemString(dict, name, value) : -1;
    DROP(value);
    return err;
}
static int put_number(PyObject *dict, const char *name, uint64_t number) {
    return put(dict, name, PyLong_FromUnsignedLongLong(number));
}

static PyObject *times_of(const hf_histogram *times) {
    PyObject *buckets = PyList_New(0);
    for (size_t i = 0; buckets != NULL && i < sizeof times->buckets / sizeof *times->buckets; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(times->buckets[i]);
        if (number == NULL || PyList_Append(buckets, number) != 0)
            Py_CLEAR(buckets);
        DROP(number);
    }
    PyObject *dict = buckets != NULL ? PyDict_New() : NULL;
    if (dict == NULL || PyDict_SetItemString(dict, "buckets", buckets) != 0 ||
        put_number(dict, "count", times->count) != 0 ||
        put_number(dict, "sum_us", times->sum_us) != 0 ||
        put_number(dict, "max_us", times->max_us) != 0)
        Py_CLEAR(dict);
    DROP(buckets);
    return dict;
}

static int put_uint64_t(PyObject *dict, const char *name, const uint64_t *number) {
    return put_number(dict, name, *number);
}
static int put_hf_histogram(PyObject *dict, const char *name, const hf_histogram *times) {
    return put(dict, name, times_of(times));
}

/* {name: number}, and the histograms as dicts. */
PyObject *hfpy_stats(const hf_stats *stats) {
    PyObject *dict = PyDict_New();
#define PUT(type, name) || put_##type(dict, #name, &stats->name) != 0
    if (dict == NULL HF_STATS_FIELDS(PUT))
        Py_CLEAR(dict);
#undef PUT
    return dict;
}

/* [(name, value or None, why or None)] */
PyObject *hfpy_server_info(const hf_server_info *info) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < info->fields_len; i++) {
        const hf_server_info_field *field = info->fields[i];
        PyObject *row = Py_BuildValue("zzz", field->name, field->value, field->reason);
        if (row == NULL || PyList_Append(list, row) != 0)
            Py_CLEAR(list);
        DROP(row);
    }
    return list;
}
