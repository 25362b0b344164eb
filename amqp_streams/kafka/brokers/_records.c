/* Takes records from a consumer of librdkafka, and hands records to a producer, compiled (docs/compiled-loops.md).

   Law: `take` brings what the consumer of confluent-kafka brings in `takers.py`, in the same order, as columns.
   `produce` and `reports` do what the producer of confluent-kafka does in `producers.py`. Nothing is decided here:
   errors and ends of partitions are returned as they are. The tests of both modules run with both.

   The module does not link with librdkafka. It is given the addresses of the functions of the library that
   confluent-kafka has loaded (`bind`), so that there is one copy of the library in the process. The caller guarantees
   that a queue or producer exists while it is used, and that no function of Python is called for what is in it: the
   functions wait, copy and release without the interpreter's lock. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void queue_t;
typedef void topic_t;
typedef void handle_t;
typedef void event_t;

/* rd_kafka_message_t of rdkafka.h. */
typedef struct {
    int error;
    topic_t *topic;
    int32_t partition;
    void *value;
    size_t size;
    void *key;
    size_t key_size;
    int64_t offset;
    void *private;
} message_t;

/* The library's functions, in the order of `FUNCTIONS` in library.py. */
static struct {
    ssize_t (*consume)(queue_t *, int, message_t **, size_t);
    void (*destroy)(message_t *);
    int64_t (*timestamp)(const message_t *, int *);
    const char *(*topic_name)(const topic_t *);
    const char *(*error_text)(const message_t *);
    topic_t *(*new_topic)(handle_t *, const char *, void *);
    void (*destroy_topic)(topic_t *);
    int (*last_error)(void);
    int (*produce)(topic_t *, int32_t, int, message_t *, int);
    event_t *(*poll)(queue_t *, int);
    int (*event_kind)(const event_t *);
    size_t (*event_messages)(event_t *, const message_t **, size_t);
    void (*destroy_event)(event_t *);
} library;
enum { FUNCTIONS = sizeof library / sizeof(void *) };

static bool bound = false;

/* How many messages one call of the library brings at most, after the first, and `take` altogether. */
enum { STEP = 500, COUNT_MAX = 100000 };

/* `bind(functions: bytes)`: the addresses of the library's functions, as native pointers one after another. */
static PyObject *bind(PyObject *module, PyObject *args)
{
    const char *functions;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "y#", &functions, &size))
        return NULL;
    if (size != (Py_ssize_t)sizeof library) {
        PyErr_Format(PyExc_ValueError, "bind needs %d addresses", FUNCTIONS);
        return NULL;
    }
    memcpy(&library, functions, sizeof library);
    bound = true;
    Py_RETURN_NONE;
}

/* How many messages to ask for, if those that were taken have `size` bytes and `wanted` bytes are wanted. */
static size_t missing(size_t wanted, size_t size, size_t taken)
{
    if (taken == 0)
        return 1; /* Asked for many, the library would wait for all of them. */
    if (size == 0)
        return STEP;
    double more = (double)(wanted - size) * (double)taken / (double)size + 1.0;
    return more < (double)STEP ? (size_t)more : STEP;
}

/* Waits for the first message, then takes what is there without waiting: at most `count` messages, and none more when
   their values have `bytes` bytes. Returns how many. */
static size_t collect(queue_t *queue, int timeout_ms, message_t **found, size_t count, size_t bytes)
{
    size_t taken = 0, size = 0;
    while (taken < count && size < bytes) {
        size_t step = missing(bytes, size, taken);
        if (step > count - taken)
            step = count - taken;
        ssize_t more = library.consume(queue, taken ? 0 : timeout_ms, found + taken, step);
        if (more <= 0)
            break;
        for (size_t end = taken + (size_t)more; taken < end; taken++)
            if (!found[taken]->error && found[taken]->value)
                size += found[taken]->size;
    }
    return taken;
}

/* How many messages from the first on are records of one partition. */
static size_t run_of(message_t **found, size_t count)
{
    size_t length = 0;
    while (length < count && !found[length]->error && found[length]->topic == found[0]->topic &&
           found[length]->partition == found[0]->partition)
        length++;
    return length;
}

/* (topic, partition, offset, code, text) */
static PyObject *error_of(const message_t *message)
{
    const char *name = message->topic ? library.topic_name(message->topic) : "";
    const char *text = library.error_text(message);
    return Py_BuildValue("(siLis)", name, (int)message->partition, (long long)message->offset, message->error,
                         text ? text : "");
}

/* Records of one partition that follow each other, and where their columns are. */
typedef struct {
    message_t **first;
    size_t count;
    char *offset, *time, *size, *value;
} run_t;

/* Writes the columns of records. */
static void fill(const run_t *run)
{
    char *value = run->value;
    for (size_t index = 0; index < run->count; index++) {
        const message_t *message = run->first[index];
        int kind;
        uint64_t number = (uint64_t)message->offset;
        int64_t stamp = library.timestamp(message, &kind);
        int32_t length = message->value ? (int32_t)message->size : -1;
        memcpy(run->offset + index * sizeof number, &number, sizeof number);
        memcpy(run->time + index * sizeof stamp, &stamp, sizeof stamp);
        memcpy(run->size + index * sizeof length, &length, sizeof length);
        if (length > 0) {
            memcpy(value, message->value, (size_t)length);
            value += length;
        }
    }
}

/* (topic, partition, offsets, times, sizes, buffer): arrays of uint64, int64 and int32, and the values one after
   another. The size of a record without a value is -1. `fill` writes what is in them. */
static PyObject *columns_of(run_t *run)
{
    size_t count = run->count, bytes = 0;
    for (size_t index = 0; index < count; index++)
        bytes += run->first[index]->value ? run->first[index]->size : 0;
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(uint64_t)));
    PyObject *times = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t)));
    PyObject *sizes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int32_t)));
    PyObject *buffer = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    PyObject *columns = NULL;
    if (offsets && times && sizes && buffer) {
        run->offset = PyBytes_AsString(offsets), run->time = PyBytes_AsString(times);
        run->size = PyBytes_AsString(sizes), run->value = PyBytes_AsString(buffer);
        const message_t *first = run->first[0];
        columns = Py_BuildValue("(siOOOO)", library.topic_name(first->topic), (int)first->partition, offsets, times,
                                sizes, buffer);
    }
    Py_XDECREF(offsets);
    Py_XDECREF(times);
    Py_XDECREF(sizes);
    Py_XDECREF(buffer);
    return columns;
}

/* Adds what the messages are to both lists, and notes the runs in `noted`. Returns how many runs, or -1 with an
   exception. */
static Py_ssize_t sort_out(message_t **found, size_t count, PyObject *runs, PyObject *errors, run_t *noted)
{
    size_t index = 0;
    Py_ssize_t notes = 0;
    while (index < count) {
        run_t run = {.first = found + index, .count = run_of(found + index, count - index)};
        PyObject *item = run.count ? columns_of(&run) : error_of(found[index]);
        if (item == NULL)
            return -1;
        int failed = PyList_Append(run.count ? runs : errors, item);
        Py_DECREF(item);
        if (failed)
            return -1;
        if (run.count)
            noted[notes++] = run;
        index += run.count ? run.count : 1;
    }
    return notes;
}

/* `take(queue: int, timeout_ms: int, count: int, bytes: int) -> (runs, errors)`: see `collect`. The interpreter's lock
   is taken twice only: each time may wait for the event loop. */
static PyObject *take(PyObject *module, PyObject *args)
{
    unsigned long long address;
    int timeout_ms;
    Py_ssize_t count, bytes;
    if (!PyArg_ParseTuple(args, "Kinn", &address, &timeout_ms, &count, &bytes))
        return NULL;
    if (!bound || !address || timeout_ms < 0 || count <= 0 || count > COUNT_MAX || bytes <= 0) {
        PyErr_SetString(PyExc_ValueError, "take needs a queue, a count and bytes, after bind");
        return NULL;
    }
    message_t **found = PyMem_Calloc((size_t)count, sizeof *found);
    if (found == NULL)
        return PyErr_NoMemory();
    size_t taken;
    Py_BEGIN_ALLOW_THREADS
    taken = collect((queue_t *)(uintptr_t)address, timeout_ms, found, (size_t)count, (size_t)bytes);
    Py_END_ALLOW_THREADS
    PyObject *runs = PyList_New(0), *errors = PyList_New(0), *result = NULL;
    run_t *noted = PyMem_Calloc(taken + 1, sizeof *noted);
    Py_ssize_t notes = -1;
    if (runs && errors && noted)
        notes = sort_out(found, taken, runs, errors, noted);
    else if (!noted)
        PyErr_NoMemory();
    if (notes >= 0)
        result = Py_BuildValue("(OO)", runs, errors);
    Py_XDECREF(runs);
    Py_XDECREF(errors);
    Py_BEGIN_ALLOW_THREADS
    /* Without a result, the columns are gone. */
    for (Py_ssize_t index = 0; result && index < notes; index++)
        fill(&noted[index]);
    for (size_t index = 0; index < taken; index++)
        library.destroy(found[index]);
    Py_END_ALLOW_THREADS
    PyMem_Free(noted);
    PyMem_Free(found);
    return result;
}

/* RD_KAFKA_MSG_F_COPY and RD_KAFKA_EVENT_DR of rdkafka.h. */
enum { COPY = 0x2, REPORTS = 0x1 };

/* Describes values[at] and keys[at] to the library. False, with an exception, if one of them is not bytes. */
static bool describe(message_t *message, PyObject *values, PyObject *keys, Py_ssize_t at, uint64_t number)
{
    PyObject *value = PyList_GetItem(values, at);
    PyObject *key = keys == Py_None ? Py_None : PyList_GetItem(keys, at);
    char *bytes;
    Py_ssize_t size;
    memset(message, 0, sizeof *message);
    if (value == NULL || key == NULL || PyBytes_AsStringAndSize(value, &bytes, &size))
        return false;
    message->value = bytes, message->size = (size_t)size;
    if (key != Py_None) {
        if (PyBytes_AsStringAndSize(key, &bytes, &size))
            return false;
        message->key = bytes, message->key_size = (size_t)size;
    }
    message->private = (void *)(uintptr_t)number;
    return true;
}

/* Appends an object to a list, and gives it up. False with an exception; also if there is none. */
static bool add(PyObject *list, PyObject *item)
{
    int failed = item == NULL || PyList_Append(list, item);
    Py_XDECREF(item);
    return !failed;
}

/* Appends error codes. False with an exception. */
static bool add_codes(PyObject *codes, const message_t *messages, size_t count, int error)
{
    for (size_t index = 0; index < count; index++)
        if (!add(codes, PyLong_FromLong(messages ? messages[index].error : error)))
            return false;
    return true;
}

/* Where records go, and the number that their reports have. */
typedef struct {
    handle_t *handle;
    const char *topic;
    int partition;
    uint64_t number;
} target_t;

/* Hands over messages, which the library copies. Returns how many it took; sets the error of each. */
static int hand(const target_t *to, message_t *messages, int count)
{
    topic_t *topic = library.new_topic(to->handle, to->topic, NULL);
    if (topic == NULL) {
        int error = library.last_error();
        for (int index = 0; index < count; index++)
            messages[index].error = error;
        return 0;
    }
    int taken = library.produce(topic, to->partition, COPY, messages, count);
    library.destroy_topic(topic);
    return taken;
}

/* `produce(producer: int, topic: str, partition: int, values: list[bytes], keys: list[bytes | None] | None, first: int,
   number: int, untried: int) -> (index, codes) | None`: hands over the records from `first` on, in steps. None: all
   were taken. Otherwise the first step that was not taken as a whole is the last one: the records before `index` were
   taken, and `codes` has the error of each record from there on, 0 if it was taken, `untried` if it was not handed
   over. Neither list may change meanwhile. */
static PyObject *produce(PyObject *module, PyObject *args)
{
    unsigned long long address, number;
    PyObject *values, *keys;
    Py_ssize_t first;
    target_t to;
    int untried;
    if (!PyArg_ParseTuple(args, "KsiOOnKi", &address, &to.topic, &to.partition, &values, &keys, &first, &number,
                          &untried))
        return NULL;
    Py_ssize_t count = PyList_Check(values) ? PyList_Size(values) : -1;
    bool keyed = keys == Py_None || (PyList_Check(keys) && PyList_Size(keys) == count);
    if (!bound || !address || first < 0 || first > count || !keyed) {
        PyErr_SetString(PyExc_ValueError, "produce needs a producer and lists of values and keys, after bind");
        return NULL;
    }
    to.handle = (handle_t *)(uintptr_t)address, to.number = number;
    message_t messages[STEP];
    PyObject *codes = NULL;
    while (first < count && codes == NULL) {
        int step = count - first < STEP ? (int)(count - first) : STEP, taken;
        for (int index = 0; index < step; index++)
            if (!describe(&messages[index], values, keys, first + index, to.number))
                return NULL;
        Py_BEGIN_ALLOW_THREADS
        taken = hand(&to, messages, step);
        Py_END_ALLOW_THREADS
        if (taken == step) {
            first += step;
            continue;
        }
        codes = PyList_New(0);
        if (codes == NULL || !add_codes(codes, messages, (size_t)step, 0) ||
            !add_codes(codes, NULL, (size_t)(count - first - step), untried)) {
            Py_XDECREF(codes);
            return NULL;
        }
    }
    if (codes == NULL)
        Py_RETURN_NONE;
    PyObject *result = Py_BuildValue("(nO)", first, codes);
    Py_DECREF(codes);
    return result;
}

/* What was reported of records with the same number, one after another. `offset`: the greatest one; -1: unknown. */
typedef struct {
    uint64_t number;
    int64_t count, offset;
    int error;
} report_t;

/* Notes what was reported of a record. False: there is no memory. */
static bool note(report_t **all, size_t *count, size_t *room, const message_t *message)
{
    uint64_t number = (uint64_t)(uintptr_t)message->private;
    report_t *last = *count ? *all + *count - 1 : NULL;
    if (last == NULL || last->number != number || last->error != message->error) {
        if (*count == *room) {
            size_t more = *room ? 2 * *room : 64;
            report_t *moved = realloc(*all, more * sizeof *moved);
            if (moved == NULL)
                return false;
            *all = moved, *room = more;
        }
        last = *all + (*count)++;
        *last = (report_t){.number = number, .offset = -1, .error = message->error};
    }
    last->count++;
    if (message->offset > last->offset && !message->error)
        last->offset = message->offset;
    return true;
}

/* What a queue had: the reports of `seen` records, and other events. */
typedef struct {
    report_t *all;
    size_t count, room, seen;
    event_t *others[STEP];
    size_t others_count;
    bool failed;
} found_t;

/* Notes and releases an event with reports. */
static void open_event(found_t *found, event_t *event)
{
    const message_t *messages[STEP];
    size_t some;
    while ((some = library.event_messages(event, messages, STEP)) > 0) {
        found->seen += some;
        for (size_t index = 0; index < some; index++)
            if (!note(&found->all, &found->count, &found->room, messages[index]))
                found->failed = true;
    }
    library.destroy_event(event);
}

/* Waits for the first event, then takes what is there without waiting, until there are `count` reports. */
static void poll_events(found_t *found, queue_t *queue, int timeout_ms, size_t count)
{
    while (found->seen < count && found->others_count < STEP) {
        event_t *event = library.poll(queue, found->seen || found->others_count ? 0 : timeout_ms);
        if (event == NULL)
            break;
        if (library.event_kind(event) == REPORTS)
            open_event(found, event);
        else
            found->others[found->others_count++] = event;
    }
}

/* Adds what was found to both lists. False with an exception. */
static bool list_found(const found_t *found, PyObject *reported, PyObject *others)
{
    for (size_t index = 0; index < found->count; index++) {
        const report_t *one = found->all + index;
        if (!add(reported, Py_BuildValue("(KLiL)", (unsigned long long)one->number, (long long)one->count, one->error,
                                         (long long)one->offset)))
            return false;
    }
    for (size_t index = 0; index < found->others_count; index++)
        if (!add(others, PyLong_FromUnsignedLongLong((uintptr_t)found->others[index])))
            return false;
    return true;
}

/* `reports(queue: int, timeout_ms: int, count: int) -> (reports, events)`: see `poll_events`. A report is (number, how
   many records with it, error, the greatest offset). The caller must release the events, which have no reports. */
static PyObject *reports(PyObject *module, PyObject *args)
{
    unsigned long long address;
    int timeout_ms;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "Kin", &address, &timeout_ms, &count))
        return NULL;
    if (!bound || !address || timeout_ms < 0 || count <= 0 || count > COUNT_MAX) {
        PyErr_SetString(PyExc_ValueError, "reports needs a queue and a count, after bind");
        return NULL;
    }
    found_t found = {0};
    Py_BEGIN_ALLOW_THREADS
    poll_events(&found, (queue_t *)(uintptr_t)address, timeout_ms, (size_t)count);
    Py_END_ALLOW_THREADS
    PyObject *reported = PyList_New(0), *others = PyList_New(0), *result = NULL;
    if (found.failed)
        PyErr_NoMemory();
    else if (reported && others && list_found(&found, reported, others))
        result = Py_BuildValue("(OO)", reported, others);
    Py_XDECREF(reported);
    Py_XDECREF(others);
    free(found.all);
    return result;
}

static PyMethodDef functions[] = {
    {"bind", bind, METH_VARARGS, "Pass the addresses of the library's functions."},
    {"take", take, METH_VARARGS, "Take records and other messages from a queue."},
    {"produce", produce, METH_VARARGS, "Hand records to a producer."},
    {"reports", reports, METH_VARARGS, "Take reports and other events from a queue."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "amqp_streams.kafka.brokers._records", "See _records.c.", -1, functions, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__records(void)
{
    return PyModule_Create(&definition);
}
