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
typedef void transport_t;

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
    ssize_t (*output)(transport_t *, char *, size_t);
    void (*remove_output)(transport_t *, size_t);
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

enum { NUMBER_DIGITS = 16, TIME_BYTES = 8 };

/* Adds 1 to a decimal number. */
static void increment(char *digits)
{
    int at = NUMBER_DIGITS - 1;
    for (; at > 0 && digits[at] == '9'; at--)
        digits[at] = '0';
    digits[at]++;
}

/* What `send_records` was called with. */
typedef struct {
    link_t *link;
    unsigned int partition;
    unsigned long long number;
    Py_buffer before, after, times, headers;
    PyObject *messages;
    Py_ssize_t start, stop, size_max;
    int settled;
} Run;

/* Sends the records. `section`: room for their delivery annotations, of `section_size` bytes. Returns the
   count; -1 with an exception. */
static Py_ssize_t send_run(const Run *run, char *section, Py_ssize_t section_size, Py_ssize_t *bytes)
{
    unsigned char tag_bytes[12];
    tag_t tag = {sizeof tag_bytes, (const char *)tag_bytes};
    put(tag_bytes, 0, 2);
    put(tag_bytes + 2, run->partition, 2);
    char *time = section + run->before.len, *digits = section + section_size - NUMBER_DIGITS;
    memcpy(section, run->before.buf, (size_t)run->before.len);
    memcpy(time + TIME_BYTES, run->after.buf, (size_t)run->after.len);
    uint64_t number = run->number;
    for (int at = NUMBER_DIGITS - 1; at >= 0; at--, number /= 10)
        digits[at] = (char)('0' + number % 10);
    for (Py_ssize_t index = run->start; index < run->stop; index++) {
        char *message;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(run->messages, index), &message, &size) < 0)
            return -1;
        Py_ssize_t header = ((const unsigned char *)run->headers.buf)[index];
        if (header > size) {
            PyErr_SetString(PyExc_ValueError, "a header section is longer than its message");
            return -1;
        }
        if (run->size_max && section_size + size > run->size_max)
            return index - run->start;
        put((unsigned char *)time, (uint64_t)((const int64_t *)run->times.buf)[index], TIME_BYTES);
        put(tag_bytes + 4, run->number + (uint64_t)(index - run->start), 8);
        delivery_t *delivery = engine.new_delivery(run->link, tag);
        /* In pieces, which the engine puts together: the message is not copied before. */
        if (header)
            engine.send(run->link, message, (size_t)header);
        engine.send(run->link, section, (size_t)section_size);
        engine.send(run->link, message + header, (size_t)(size - header));
        engine.advance(run->link);
        if (run->settled)
            engine.settle(delivery);
        *bytes += section_size + size;
        increment(digits);
    }
    return run->stop - run->start;
}

/* `send_records(link, partition, number, before, after, times, headers, messages: list, start, stop, size_max,
   settled) -> (count, bytes)`: sends the records `start` to before `stop` of a run, of which the first has this
   number, up to the first one that is larger than `size_max`. Each has its tag (sending.py) and its delivery
   annotations: `before`, the time, `after`, the number in digits (annotations.py). */
static PyObject *send_records(PyObject *module, PyObject *args)
{
    Run run;
    PyObject *address, *sent = NULL;
    if (!PyArg_ParseTuple(args, "OIKy*y*y*y*O!nnnp", &address, &run.partition, &run.number, &run.before,
                          &run.after, &run.times, &run.headers, &PyList_Type, &run.messages, &run.start,
                          &run.stop, &run.size_max, &run.settled))
        return NULL;
    Py_ssize_t count = PyList_Size(run.messages), bytes = 0;
    Py_ssize_t section_size = run.before.len + TIME_BYTES + run.after.len + NUMBER_DIGITS;
    char *section = NULL;
    run.link = object_at(address);
    if (run.link == NULL)
        goto end;
    if (run.start < 0 || run.stop < run.start || run.stop > count || run.headers.len < count
        || run.times.len / TIME_BYTES < count) {
        PyErr_SetString(PyExc_ValueError, "each record needs a message, a header size and a time");
        goto end;
    }
    section = PyMem_Malloc((size_t)section_size);
    if (section == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    Py_ssize_t done = send_run(&run, section, section_size, &bytes);
    if (done >= 0)
        sent = Py_BuildValue("nn", done, bytes);
end:
    PyMem_Free(section);
    PyBuffer_Release(&run.before);
    PyBuffer_Release(&run.after);
    PyBuffer_Release(&run.times);
    PyBuffer_Release(&run.headers);
    return sent;
}

/* `take_output(transport, size) -> bytes`: removes the first bytes of the engine's output, of which there are
   at least `size`. */
static PyObject *take_output(PyObject *module, PyObject *args)
{
    PyObject *address;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "On", &address, &size))
        return NULL;
    transport_t *transport = object_at(address);
    PyObject *bytes = transport == NULL ? NULL : PyBytes_FromStringAndSize(NULL, size);
    if (bytes == NULL)
        return NULL;
    if (engine.output(transport, PyBytes_AsString(bytes), (size_t)size) != size) {
        Py_DECREF(bytes);
        PyErr_SetString(PyExc_ValueError, "the engine has less output");
        return NULL;
    }
    engine.remove_output(transport, (size_t)size);
    return bytes;
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

/* -- frames */

static size_t number_at(const unsigned char *at)
{
    return (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
}

/* The bytes of an encoded uint: 0 if there is none at `at`, or if it ends at `end` or after it. */
static Py_ssize_t uint_size(const unsigned char *at, const unsigned char *end)
{
    Py_ssize_t size = at >= end ? 0 : *at == 0x43 ? 1 : *at == 0x52 ? 2 : *at == 0x70 ? 5 : 0;
    return size < end - at ? size : 0;
}

/* Whether the list of a transfer's fields is in the usual encoding, with a message-format of 0. */
static bool is_plain_transfer(const unsigned char *at, const unsigned char *end)
{
    enum { TAG_BYTES_MAX = 32 };
    Py_ssize_t size;
    if (end - at < 3 || *at != 0xC0)
        return false;
    at += 3;
    if (!(size = uint_size(at, end)))
        return false;
    at += size;
    if (!(size = *at == 0x40 ? 1 : uint_size(at, end)))
        return false;
    at += size;
    if (end - at < 3 || *at != 0xA0 || at[1] > TAG_BYTES_MAX || end - at < 3 + at[1])
        return false;
    at += 2 + at[1];
    return *at == 0x43 || *at == 0x40;
}

/* `plainness(block, begin, end) -> int`: not 0 if no frame from `begin` on needs a look at its fields. That is
   so for empty frames, flows, dispositions, and transfers in the usual encoding whose message-format is 0. The
   first frame begins at `begin`; behind `end` there is at most an incomplete frame, which is not an attach.
   2 if in addition all complete frames are transfers. */
static PyObject *plainness(PyObject *module, PyObject *args)
{
    enum { HEAD = 8, CODE_END = 11 };
    Py_buffer block;
    Py_ssize_t at, end;
    if (!PyArg_ParseTuple(args, "y*nn", &block, &at, &end))
        return NULL;
    const unsigned char *bytes = block.buf;
    bool plain = at >= 0 && at <= end && end <= block.len, transfers = true;
    while (plain && block.len - at > CODE_END) {
        const unsigned char *frame = bytes + at;
        Py_ssize_t size = (Py_ssize_t)number_at(frame);
        bool whole = at < end;
        /* An AMQP frame without an extended header; the descriptor of the performative is a smallulong. */
        if (frame[4] != 2 || frame[5] != 0 || size < HEAD || (whole ? size > end - at : size <= block.len - at))
            plain = false;
        else if (size == HEAD)
            transfers = false;
        else {
            int code = size > CODE_END && frame[8] == 0 && frame[9] == 0x53 ? frame[10] : 0;
            plain = code == 0x13 || code == 0x15
                    || (code == 0x14 && (!whole || is_plain_transfer(frame + CODE_END, frame + size)));
            transfers = transfers && (!whole || code == 0x14);
        }
        if (!whole)
            break;
        at += size;
    }
    PyBuffer_Release(&block);
    return PyLong_FromLong(plain && at >= end ? 1 + transfers : 0);
}

/* -- data sections: `00 53 75 b0`, the size of the content in 4 bytes, the content */

enum { SECTION = 8 };

static void put_section(unsigned char *to, unsigned int size)
{
    static const unsigned char constructor[4] = {0x00, 0x53, 0x75, 0xB0};
    memcpy(to, constructor, sizeof constructor);
    put(to + sizeof constructor, size, 4);
}

/* The bytes of contents with these sizes, an array of unsigned int. */
static uint64_t sum_of(const Py_buffer *sizes)
{
    const unsigned int *size = sizes->buf, *end = size + (size_t)sizes->len / sizeof *size;
    uint64_t bytes = 0;
    while (size < end)
        bytes += *size++;
    return bytes;
}

/* `join_sections(head, buffer, at, sizes) -> bytes`: `head`, then a data section for each message. The messages
   follow each other in `buffer` from byte `at` on; `sizes` is an array of unsigned int. */
static PyObject *join_sections(PyObject *module, PyObject *args)
{
    Py_buffer head, buffer, sizes;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "y*y*ny*", &head, &buffer, &at, &sizes))
        return NULL;
    const unsigned int *size = sizes.buf;
    size_t count = (size_t)sizes.len / sizeof *size;
    uint64_t bytes = sum_of(&sizes);
    PyObject *joined = NULL;
    if (at < 0 || at > buffer.len || bytes > (uint64_t)(buffer.len - at))
        PyErr_SetString(PyExc_ValueError, "the messages are longer than the buffer");
    else if ((joined = PyBytes_FromStringAndSize(NULL, head.len + (Py_ssize_t)(bytes + SECTION * count)))) {
        char *out = PyBytes_AsString(joined);
        const char *message = (const char *)buffer.buf + at;
        memcpy(out, head.buf, (size_t)head.len);
        out += head.len;
        for (size_t index = 0; index < count; index++) {
            put_section((unsigned char *)out, size[index]);
            memcpy(out + SECTION, message, size[index]);
            out += SECTION + size[index];
            message += size[index];
        }
    }
    PyBuffer_Release(&head);
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&sizes);
    return joined;
}

/* `split_sections(message, at, sizes) -> bytes | None`: the contents of the data sections with these sizes, an
   array of unsigned int, from byte `at` of `message` to its end. None if the sections begin otherwise. */
static PyObject *split_sections(PyObject *module, PyObject *args)
{
    Py_buffer message, sizes;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "y*ny*", &message, &at, &sizes))
        return NULL;
    const unsigned int *size = sizes.buf;
    size_t count = (size_t)sizes.len / sizeof *size;
    uint64_t bytes = sum_of(&sizes);
    PyObject *contents = NULL;
    if (at < 0 || at > message.len || bytes + SECTION * count != (uint64_t)(message.len - at))
        PyErr_SetString(PyExc_ValueError, "the sections are not those of the sizes");
    else if ((contents = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes))) {
        char *out = PyBytes_AsString(contents);
        const char *section = (const char *)message.buf + at;
        for (size_t index = 0; index < count; index++) {
            unsigned char front[SECTION];
            put_section(front, size[index]);
            if (memcmp(section, front, SECTION) != 0) {
                Py_DECREF(contents);
                contents = Py_NewRef(Py_None);
                break;
            }
            memcpy(out, section + SECTION, size[index]);
            section += SECTION + size[index];
            out += size[index];
        }
    }
    PyBuffer_Release(&message);
    PyBuffer_Release(&sizes);
    return contents;
}

static PyMethodDef functions[] = {
    {"bind", bind, METH_VARARGS, "Pass the addresses of the engine's functions."},
    {"receive", receive, METH_VARARGS, "Take whole messages from a link."},
    {"give", give, METH_VARARGS, "Set the outcome of deliveries, and settle them."},
    {"send_records", send_records, METH_VARARGS, "Send consecutive records."},
    {"take_output", take_output, METH_VARARGS, "Remove the first bytes of the engine's output."},
    {"plainness", plainness, METH_VARARGS, "Whether no frame needs a look at its fields, and whether all are transfers."},
    {"join_sections", join_sections, METH_VARARGS, "Join messages of a buffer as data sections."},
    {"split_sections", split_sections, METH_VARARGS, "Join the contents of data sections."},
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
