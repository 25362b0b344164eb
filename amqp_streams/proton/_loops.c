/* The loops that call the engine once or more for each message, compiled (docs/compiled-loops.md).

   Law: each function does exactly what the Python function of the same name in this folder does, with the
   same calls of the engine in the same order, and leaves whatever is not the usual case to it: a message in
   pieces, an aborted delivery, an outcome other than accepted. Nothing is decided here. The tests of this
   folder run with both.

   The module does not link with the engine. It is given the addresses of the engine's own functions once
   (`bind`), so that there is one copy of the engine in the process. Objects of the engine arrive as addresses
   as well; the caller guarantees that they exist. The module keeps the GIL: no other thread runs within a
   loop. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef void link_t;
typedef void delivery_t;
typedef void event_t;
typedef void collector_t;

/* pn_delivery_tag_t: passed and returned by value. */
typedef struct {
    size_t size;
    const char *start;
} tag_t;

/* The engine's functions, in the order of `FUNCTIONS` in compiled.py. */
static struct {
    delivery_t *(*current)(link_t *);
    size_t (*pending)(delivery_t *);
    bool (*partial)(delivery_t *);
    bool (*aborted)(delivery_t *);
    ssize_t (*recv)(link_t *, char *, size_t);
    bool (*advance)(link_t *);
    delivery_t *(*new_delivery)(link_t *, tag_t);
    ssize_t (*send)(link_t *, const char *, size_t);
    void (*update)(delivery_t *, uint64_t);
    void (*settle)(delivery_t *);
    uint64_t (*peer_state)(delivery_t *);
    event_t *(*peek)(collector_t *);
    bool (*pop)(collector_t *);
    int (*kind)(event_t *);
    delivery_t *(*delivery)(event_t *);
} engine;
enum { FUNCTIONS = sizeof engine / sizeof(void *) };

static int delivery_kind = -1;
static uint64_t accepted_state;

/* `bind(functions: bytes, delivery_kind: int, accepted: int)`: the addresses of the engine's functions, as
   native pointers one after another, and two of its constants. */
static PyObject *bind(PyObject *module, PyObject *args)
{
    const char *functions;
    Py_ssize_t size;
    int kind;
    unsigned long long accepted;
    if (!PyArg_ParseTuple(args, "y#iK", &functions, &size, &kind, &accepted))
        return NULL;
    if (size != (Py_ssize_t)sizeof engine) {
        PyErr_Format(PyExc_ValueError, "bind needs %d addresses", FUNCTIONS);
        return NULL;
    }
    memcpy(&engine, functions, sizeof engine);
    delivery_kind = kind;
    accepted_state = accepted;
    Py_RETURN_NONE;
}

/* Returns the object at an address that Python passed, or NULL with an exception. */
static void *object_at(PyObject *address)
{
    void *object = PyLong_AsVoidPtr(address);
    if (object == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the address of an engine's object is 0");
    else if (delivery_kind < 0) {
        PyErr_SetString(PyExc_RuntimeError, "bind was not called");
        object = NULL;
    }
    return object;
}

/* -- Deliveries: the addresses of deliveries, as a sequence of numbers. Compact: 8 bytes each, no object. */

typedef struct {
    PyObject_HEAD
    delivery_t **items;
    Py_ssize_t count, room;
} Deliveries;

static PyTypeObject *Deliveries_Type;

/* Makes room for one more. False with an exception: there is no memory. */
static bool make_room(Deliveries *self)
{
    if (self->count < self->room)
        return true;
    Py_ssize_t room = self->room ? 2 * self->room : 32;
    delivery_t **items = PyMem_Realloc(self->items, (size_t)room * sizeof *items);
    if (items == NULL) {
        PyErr_NoMemory();
        return false;
    }
    self->items = items;
    self->room = room;
    return true;
}

static void deliveries_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(((Deliveries *)self)->items);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static Py_ssize_t deliveries_count(PyObject *self)
{
    return ((Deliveries *)self)->count;
}

static PyObject *deliveries_item(PyObject *self, Py_ssize_t index)
{
    Deliveries *of = (Deliveries *)self;
    if (index < 0 || index >= of->count) {
        PyErr_SetString(PyExc_IndexError, "there is no delivery with this index");
        return NULL;
    }
    return PyLong_FromVoidPtr(of->items[index]);
}

static PyObject *deliveries_append(PyObject *self, PyObject *address)
{
    Deliveries *to = (Deliveries *)self;
    delivery_t *delivery = object_at(address);
    if (delivery == NULL || !make_room(to))
        return NULL;
    to->items[to->count++] = delivery;
    Py_RETURN_NONE;
}

static PyMethodDef deliveries_methods[] = {
    {"append", deliveries_append, METH_O, "Add the delivery at this address."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot deliveries_slots[] = {
    {Py_tp_doc, "The addresses of deliveries, in order."},
    {Py_tp_dealloc, deliveries_free},
    {Py_tp_methods, deliveries_methods},
    {Py_sq_length, deliveries_count},
    {Py_sq_item, deliveries_item},
    {0, NULL},
};

static PyType_Spec deliveries_spec = {
    .name = "amqp_streams.proton._loops.Deliveries",
    .basicsize = sizeof(Deliveries),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = deliveries_slots,
};

static Deliveries *deliveries_of(PyObject *object)
{
    if (Py_TYPE(object) == Deliveries_Type)
        return (Deliveries *)object;
    PyErr_SetString(PyExc_TypeError, "this is not a Deliveries object");
    return NULL;
}

/* -- in */

/* `receive(link, messages: list, deliveries: Deliveries, size_max, count_max) -> int`: takes whole messages
   up to the first delivery that is in pieces, aborted, empty or larger than `size_max`. Returns how many. */
static PyObject *receive(PyObject *module, PyObject *args)
{
    PyObject *address, *messages, *list_of_deliveries;
    Py_ssize_t size_max, count_max, count = 0;
    if (!PyArg_ParseTuple(args, "OOOnn", &address, &messages, &list_of_deliveries, &size_max, &count_max))
        return NULL;
    link_t *link = object_at(address);
    Deliveries *deliveries = deliveries_of(list_of_deliveries);
    if (link == NULL || deliveries == NULL)
        return NULL;
    for (; count < count_max; count++) {
        delivery_t *delivery = engine.current(link);
        if (delivery == NULL || engine.partial(delivery) || engine.aborted(delivery))
            break;
        size_t size = engine.pending(delivery);
        if (size == 0 || size > (size_t)size_max)
            break;
        if (!make_room(deliveries))
            return NULL;
        PyObject *message = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (message == NULL)
            return NULL;
        /* The bytes leave the engine only after there is room for all that follows. */
        int failed = PyList_Append(messages, message);
        if (!failed)
            engine.recv(link, PyBytes_AsString(message), size);
        Py_DECREF(message);
        if (failed)
            return NULL;
        engine.advance(link);
        deliveries->items[deliveries->count++] = delivery;
    }
    return PyLong_FromSsize_t(count);
}

/* `give(deliveries: Deliveries, state)`: sets the outcome and settles. */
static PyObject *give(PyObject *module, PyObject *args)
{
    PyObject *object;
    unsigned long long state;
    if (!PyArg_ParseTuple(args, "OK", &object, &state))
        return NULL;
    Deliveries *deliveries = deliveries_of(object);
    if (deliveries == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < deliveries->count; index++) {
        engine.update(deliveries->items[index], state);
        engine.settle(deliveries->items[index]);
    }
    Py_RETURN_NONE;
}

/* -- out */

static void put(unsigned char *to, uint64_t number, int bytes)
{
    while (bytes--) {
        to[bytes] = (unsigned char)number;
        number >>= 8;
    }
}

/* `send_records(link, partition, first, messages: list, settled) -> int`: sends the messages of consecutive
   records, each with its tag (sending.py). Returns how many bytes were sent. */
static PyObject *send_records(PyObject *module, PyObject *args)
{
    PyObject *address, *messages;
    unsigned int partition;
    unsigned long long number;
    int settled;
    if (!PyArg_ParseTuple(args, "OIKO!p", &address, &partition, &number, &PyList_Type, &messages, &settled))
        return NULL;
    link_t *link = object_at(address);
    if (link == NULL)
        return NULL;
    unsigned char bytes[12];
    tag_t tag = {sizeof bytes, (const char *)bytes};
    put(bytes, 0, 2);
    put(bytes + 2, partition, 2);
    Py_ssize_t sent = 0, count = PyList_Size(messages);
    for (Py_ssize_t index = 0; index < count; index++) {
        char *message;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(messages, index), &message, &size) < 0)
            return NULL;
        put(bytes + 4, number++, 8);
        delivery_t *delivery = engine.new_delivery(link, tag);
        engine.send(link, message, (size_t)size);
        engine.advance(link);
        if (settled)
            engine.settle(delivery);
        sent += size;
    }
    return PyLong_FromSsize_t(sent);
}

/* -- events */

/* `pass_deliveries(collector) -> int`: removes the delivery events up to the first other event. Returns how
   many. */
static PyObject *pass_deliveries(PyObject *module, PyObject *address)
{
    collector_t *collector = object_at(address);
    if (collector == NULL)
        return NULL;
    long count = 0;
    for (event_t *event; (event = engine.peek(collector)) && engine.kind(event) == delivery_kind; count++)
        engine.pop(collector);
    return PyLong_FromLong(count);
}

/* `settle_accepted(collector) -> int`: settles the deliveries that the peer accepted, and removes their
   events, up to the first event that is something else. Returns how many. */
static PyObject *settle_accepted(PyObject *module, PyObject *address)
{
    collector_t *collector = object_at(address);
    if (collector == NULL)
        return NULL;
    long count = 0;
    for (event_t *event; (event = engine.peek(collector)) && engine.kind(event) == delivery_kind; count++) {
        delivery_t *delivery = engine.delivery(event);
        if (engine.peer_state(delivery) != accepted_state)
            break;
        engine.settle(delivery);
        engine.pop(collector);
    }
    return PyLong_FromLong(count);
}

static PyMethodDef functions[] = {
    {"bind", bind, METH_VARARGS, "Pass the addresses of the engine's functions."},
    {"receive", receive, METH_VARARGS, "Take whole messages from a link."},
    {"give", give, METH_VARARGS, "Set the outcome of deliveries, and settle them."},
    {"send_records", send_records, METH_VARARGS, "Send the messages of consecutive records."},
    {"pass_deliveries", pass_deliveries, METH_O, "Remove delivery events."},
    {"settle_accepted", settle_accepted, METH_O, "Settle accepted deliveries, and remove their events."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "amqp_streams.proton._loops", "See _loops.c.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__loops(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    PyObject *type = PyType_FromSpec(&deliveries_spec);
    if (type == NULL || PyModule_AddObjectRef(module, "Deliveries", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(module);
        return NULL;
    }
    Deliveries_Type = (PyTypeObject *)type;
    return module;
}
