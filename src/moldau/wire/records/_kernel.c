/* The compiled kernel of moldau.wire.records: walks over the uncompressed records of a batch.
 *
 * kernel.py documents what each function does; pure.py is the twin that must give the same answers. The input is
 * hostile: every length is compared with the bytes that are left before it is used, nothing is allocated in
 * proportion to a claim that the bytes do not back, and a second pass over a payload checks again and against the
 * room that the first one asked for, so that a buffer which changes in between is an error and not an overflow. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_BYTES_MIN 7      /* length, attributes, two deltas, key length, value length, header count */
#define GIL_BYTES_MAX 65536     /* below this, giving the lock away costs more than it gives others */

enum {
    OK, COUNT, MISSING, CUT_OFF, VARINT, LENGTH, KEY, VALUE, HEADER_COUNT, HEADER_KEY, HEADER_VALUE, UNUSED,
    SEQUENCE, TRAILING
};

static PyTypeObject *record_type, *keyed_record_type, *walk_type, *column_buffers_type, *batch_header_type;
static PyObject *malformed;     /* record.malformed(rule, index) -> the exception */

typedef const uint8_t *bytes_t;

/* ---------------------------------------------------------------- one record */

typedef struct {
    bytes_t start, end;         /* the record with its length field */
    bytes_t after_timestamp;
    int64_t timestamp_delta;
    int32_t offset_delta;
    uint8_t attributes;
    bytes_t key, value;
    int32_t key_length, value_length;   /* -1: null */
    int32_t header_count;
    bytes_t headers;
} record_t;

typedef struct {
    bytes_t key, value;
    int32_t key_length, value_length;
} header_t;

static inline int read_varint(bytes_t *position, bytes_t end, int32_t *out)
{
    bytes_t p = *position;
    uint32_t raw = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (p == end)
            return CUT_OFF;
        uint8_t byte = *p++;
        raw |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *position = p;
            *out = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
            return OK;
        }
    }
    return VARINT;
}

static inline int read_varlong(bytes_t *position, bytes_t end, int64_t *out)
{
    bytes_t p = *position;
    uint64_t raw = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (p == end)
            return CUT_OFF;
        uint8_t byte = *p++;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *position = p;
            *out = (int64_t)((raw >> 1) ^ (0ull - (raw & 1)));
            return OK;
        }
    }
    return VARINT;
}

#define TRY(call) do { int rule_ = (call); if (rule_ != OK) return rule_; } while (0)

/* A nullable byte string: its length, then as many bytes; length_min is -1 or, where null is not allowed, 0. */
static inline int read_bytes(bytes_t *position, bytes_t end, int32_t length_min, int rule,
                             bytes_t *data, int32_t *length)
{
    TRY(read_varint(position, end, length));
    if (*length < length_min || *length > end - *position)
        return rule;
    *data = *position;
    if (*length > 0)
        *position += *length;
    return OK;
}

static inline int read_record_header(bytes_t *position, bytes_t end, header_t *header)
{
    TRY(read_bytes(position, end, 0, HEADER_KEY, &header->key, &header->key_length));
    return read_bytes(position, end, -1, HEADER_VALUE, &header->value, &header->value_length);
}

/* Read the record at *position and step over it. */
static inline int read_record(bytes_t *position, bytes_t payload_end, record_t *r)
{
    bytes_t p = *position;
    if (p == payload_end)
        return MISSING;
    r->start = p;
    int32_t length;
    TRY(read_varint(&p, payload_end, &length));
    if (length < RECORD_BYTES_MIN - 1 || length > payload_end - p)
        return LENGTH;
    bytes_t end = p + length;
    r->attributes = *p++;
    TRY(read_varlong(&p, end, &r->timestamp_delta));
    r->after_timestamp = p;
    TRY(read_varint(&p, end, &r->offset_delta));
    TRY(read_bytes(&p, end, -1, KEY, &r->key, &r->key_length));
    TRY(read_bytes(&p, end, -1, VALUE, &r->value, &r->value_length));
    TRY(read_varint(&p, end, &r->header_count));
    if (r->header_count < 0 || r->header_count > end - p)
        return HEADER_COUNT;
    r->headers = p;
    for (int32_t i = 0; i < r->header_count; i++) {
        header_t header;
        TRY(read_record_header(&p, end, &header));
    }
    if (p != end)
        return UNUSED;
    r->end = end;
    *position = end;
    return OK;
}

static inline int64_t add(int64_t base, int64_t delta)
{
    return (int64_t)((uint64_t)base + (uint64_t)delta);     /* wraps, as it does in the twin */
}

static int check_count(Py_ssize_t payload_length, int count)
{
    return count < 0 || count > payload_length / RECORD_BYTES_MIN ? COUNT : OK;
}

static PyObject *raise_malformed(int rule, Py_ssize_t index)
{
    PyObject *error = PyObject_CallFunction(malformed, "in", rule, index);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

static PyThreadState *release_gil_for(Py_ssize_t length)
{
    return length > GIL_BYTES_MAX ? PyEval_SaveThread() : NULL;
}

static void take_gil(PyThreadState *state)
{
    if (state != NULL)
        PyEval_RestoreThread(state);
}

/* The named tuples of record.py, built without going through their Python constructors. They hold nothing but
 * atoms and tuples of atoms, so no cycle can pass through them, and the collector need not know them. */
static PyObject *new_named_tuple(PyTypeObject *type, Py_ssize_t size)
{
    PyObject *tuple = type->tp_alloc(type, size);
    if (tuple != NULL && PyObject_GC_IsTracked(tuple))
        PyObject_GC_UnTrack(tuple);
    return tuple;
}

static PyObject *bytes_or_none(bytes_t data, int32_t length)
{
    if (length < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)data, length);
}

/* ---------------------------------------------------------------- validate */

typedef struct {
    int rule, index;                            /* the first broken rule, and its record */
    int64_t timestamp_min, timestamp_max;       /* deltas; of no use unless the rule is OK */
    int32_t offset_of_max;
    int has_null_key;
} walk_t;

static walk_t walk_records(bytes_t p, Py_ssize_t length, int count)
{
    walk_t walk = {check_count(length, count), 0, INT64_MAX, INT64_MIN, -1, 0};
    bytes_t end = p + length;
    if (walk.rule != OK)
        return walk;
    PyThreadState *gil = release_gil_for(length);
    for (; walk.index < count; walk.index++) {
        record_t r;
        walk.rule = read_record(&p, end, &r);
        if (walk.rule == OK && r.offset_delta != walk.index)
            walk.rule = SEQUENCE;
        if (walk.rule != OK)
            break;
        if (r.timestamp_delta > walk.timestamp_max) {
            walk.timestamp_max = r.timestamp_delta;
            walk.offset_of_max = r.offset_delta;
        }
        if (r.timestamp_delta < walk.timestamp_min)
            walk.timestamp_min = r.timestamp_delta;
        walk.has_null_key |= r.key_length < 0;
    }
    if (walk.rule == OK && p != end) {
        walk.rule = TRAILING;
        walk.index = count - 1;
    }
    take_gil(gil);
    return walk;
}

/* Fill a new tuple, whose items are new references; NULL if one of them is. */
static PyObject *filled_tuple(PyTypeObject *type, PyObject **items, Py_ssize_t count)
{
    PyObject *tuple = new_named_tuple(type, count);
    int is_whole = tuple != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        is_whole &= items[i] != NULL;
        if (tuple != NULL)
            PyTuple_SET_ITEM(tuple, i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    if (!is_whole)
        Py_CLEAR(tuple);
    return tuple;
}

static PyObject *kernel_validate(PyObject *module, PyObject *args)
{
    Py_buffer payload;
    int count;
    if (!PyArg_ParseTuple(args, "y*i:validate", &payload, &count))
        return NULL;
    walk_t walk = walk_records(payload.buf, payload.len, count);
    PyBuffer_Release(&payload);
    if (walk.rule != OK || count == 0) {
        walk.timestamp_min = walk.timestamp_max = 0;
        walk.offset_of_max = -1;
        walk.has_null_key = 0;
    }
    PyObject *items[] = {
        PyLong_FromLong(walk.rule), PyLong_FromLong(walk.index),
        PyLong_FromLongLong(walk.timestamp_min), PyLong_FromLongLong(walk.timestamp_max),
        PyLong_FromLong(walk.offset_of_max), PyBool_FromLong(walk.has_null_key),
    };
    return filled_tuple(walk_type, items, Py_ARRAY_LENGTH(items));
}

/* ---------------------------------------------------------------- plain_header */

#define HEADER_BYTES 61
#define LOG_OVERHEAD_BYTES 12
#define NOT_PLAIN_ATTRIBUTES 0x2f       /* codec, log-append time, control */

static inline int64_t big_endian(bytes_t p, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | p[i];
    int unused = 64 - 8 * size;
    return (int64_t)(value << unused) >> unused;
}

/* What does not fit into 64 bits is out of any range. */
static int is_in_range(int64_t base, int64_t delta, int64_t now_ms, int64_t before_ms_max, int64_t after_ms_max)
{
    int64_t timestamp, age_ms;
    return !__builtin_add_overflow(base, delta, &timestamp) && !__builtin_sub_overflow(now_ms, timestamp, &age_ms)
        && -after_ms_max <= age_ms && age_ms <= before_ms_max;
}

static PyObject *kernel_plain_header(PyObject *module, PyObject *args)
{
    Py_buffer batch;
    long long bytes_max, now_ms, before_ms_max, after_ms_max;
    int needs_keys;
    if (!PyArg_ParseTuple(args, "y*LLLLp:plain_header", &batch, &bytes_max, &now_ms, &before_ms_max, &after_ms_max,
                          &needs_keys))
        return NULL;
    PyObject *header = NULL;
    bytes_t p = batch.buf;
    int is_plain = batch.len >= HEADER_BYTES && batch.len <= bytes_max;
    if (is_plain) {
        int64_t base_offset = big_endian(p, 8), length = big_endian(p + 8, 4), magic = (int8_t)p[16];
        int64_t attributes = big_endian(p + 21, 2), last_offset_delta = big_endian(p + 23, 4);
        int64_t base_timestamp = big_endian(p + 27, 8), max_timestamp = big_endian(p + 35, 8);
        int64_t producer_id = big_endian(p + 43, 8), sequence = big_endian(p + 53, 4), count = big_endian(p + 57, 4);
        is_plain = magic == 2 && base_offset == 0 && length + LOG_OVERHEAD_BYTES == batch.len
            && (attributes & NOT_PLAIN_ATTRIBUTES) == 0 && count > 0 && last_offset_delta == count - 1
            && (sequence >= 0 || producer_id < 0);
        if (is_plain) {
            walk_t walk = walk_records(p + HEADER_BYTES, batch.len - HEADER_BYTES, (int)count);
            is_plain = walk.rule == OK && !(needs_keys && walk.has_null_key)
                && add(base_timestamp, walk.timestamp_max) == max_timestamp
                && is_in_range(base_timestamp, walk.timestamp_max, now_ms, before_ms_max, after_ms_max)
                && is_in_range(base_timestamp, walk.timestamp_min, now_ms, before_ms_max, after_ms_max);
        }
        if (is_plain) {
            PyObject *items[] = {
                PyLong_FromLongLong(base_offset), PyLong_FromLongLong(length),
                PyLong_FromLongLong(big_endian(p + 12, 4)), PyLong_FromLongLong(magic),
                PyLong_FromUnsignedLong((uint32_t)big_endian(p + 17, 4)), PyLong_FromLongLong(attributes),
                PyLong_FromLongLong(last_offset_delta), PyLong_FromLongLong(base_timestamp),
                PyLong_FromLongLong(max_timestamp), PyLong_FromLongLong(producer_id),
                PyLong_FromLongLong(big_endian(p + 51, 2)), PyLong_FromLongLong(sequence),
                PyLong_FromLongLong(count),
            };
            header = filled_tuple(batch_header_type, items, Py_ARRAY_LENGTH(items));
        }
    }
    PyBuffer_Release(&batch);
    return is_plain ? header : Py_NewRef(Py_None);
}

/* ---------------------------------------------------------------- decode */

static PyObject *headers_of(const record_t *r)
{
    PyObject *headers = PyTuple_New(r->header_count);
    bytes_t p = r->headers;
    for (int32_t i = 0; headers != NULL && i < r->header_count; i++) {
        header_t header;
        if (read_record_header(&p, r->end, &header) != OK) {     /* it was sound a moment ago */
            Py_DECREF(headers);
            PyErr_SetString(PyExc_RuntimeError, "the payload changed while it was read");
            return NULL;
        }
        /* As in Kafka, a key that is not UTF-8 loses those characters, not its record. */
        PyObject *key = PyUnicode_DecodeUTF8((const char *)header.key, header.key_length, "replace");
        PyObject *value = key == NULL ? NULL : bytes_or_none(header.value, header.value_length);
        PyObject *pair = value == NULL ? NULL : PyTuple_Pack(2, key, value);
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (pair == NULL)
            Py_CLEAR(headers);
        else
            PyTuple_SET_ITEM(headers, i, pair);
    }
    return headers;
}

static PyObject *kernel_decode(PyObject *module, PyObject *args)
{
    Py_buffer payload;
    int count;
    long long base_offset, base_timestamp;
    PyObject *log_append_time = Py_None;
    if (!PyArg_ParseTuple(args, "y*iLL|O:decode", &payload, &count, &base_offset, &base_timestamp, &log_append_time))
        return NULL;
    PyObject *records = NULL;
    int rule = check_count(payload.len, count);
    if (rule != OK) {
        raise_malformed(rule, 0);
        goto done;
    }
    records = PyList_New(count);
    if (records == NULL)
        goto done;
    bytes_t p = payload.buf, end = p + payload.len;
    for (int i = 0; i < count; i++) {
        record_t r;
        rule = read_record(&p, end, &r);
        if (rule != OK) {
            raise_malformed(rule, i);
            goto failed;
        }
        PyObject *record = new_named_tuple(record_type, 6);
        if (record == NULL)
            goto failed;
        PyList_SET_ITEM(records, i, record);
        PyObject *item;
        if ((item = PyLong_FromLongLong(add(base_offset, r.offset_delta))) == NULL)
            goto failed;
        PyTuple_SET_ITEM(record, 0, item);
        item = log_append_time == Py_None ? PyLong_FromLongLong(add(base_timestamp, r.timestamp_delta))
                                          : Py_NewRef(log_append_time);
        if (item == NULL)
            goto failed;
        PyTuple_SET_ITEM(record, 1, item);
        if ((item = bytes_or_none(r.key, r.key_length)) == NULL)
            goto failed;
        PyTuple_SET_ITEM(record, 2, item);
        if ((item = bytes_or_none(r.value, r.value_length)) == NULL)
            goto failed;
        PyTuple_SET_ITEM(record, 3, item);
        if ((item = headers_of(&r)) == NULL)
            goto failed;
        PyTuple_SET_ITEM(record, 4, item);
        if ((item = PyLong_FromLong((int8_t)r.attributes)) == NULL)
            goto failed;
        PyTuple_SET_ITEM(record, 5, item);
    }
    if (p != end) {
        raise_malformed(TRAILING, count - 1);
        goto failed;
    }
    goto done;
failed:
    Py_CLEAR(records);
done:
    PyBuffer_Release(&payload);
    return records;
}

/* ---------------------------------------------------------------- writing */

typedef struct {
    uint8_t *data;
    Py_ssize_t length, room;
} output_t;

static int reserve(output_t *out, Py_ssize_t extra)
{
    if (extra <= out->room - out->length)
        return 0;
    if (extra > PY_SSIZE_T_MAX / 2 - out->length)
        return -1;
    Py_ssize_t room = out->length + extra;
    room += room / 2 + 4096;
    uint8_t *data = realloc(out->data, room);
    if (data == NULL)
        return -1;
    out->data = data;
    out->room = room;
    return 0;
}

static inline uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (value < 0 ? ~0ull : 0ull);
}

static inline int varint_size(uint64_t raw)
{
    return raw < 0x80 ? 1 : (70 - __builtin_clzll(raw)) / 7;
}

static inline uint8_t *put_varint(uint8_t *out, uint64_t raw)
{
    while (raw >= 0x80) {
        *out++ = (uint8_t)raw | 0x80;
        raw >>= 7;
    }
    *out++ = (uint8_t)raw;
    return out;
}

static inline uint8_t *put_bytes(uint8_t *out, const void *data, Py_ssize_t length)
{
    out = put_varint(out, zigzag(length));
    if (length > 0) {
        memcpy(out, data, length);
        out += length;
    }
    return out;
}

static inline int64_t bytes_size(Py_ssize_t length)
{
    return varint_size(zigzag(length)) + (length > 0 ? (int64_t)length : 0);
}

static PyObject *too_large(void)
{
    PyErr_SetString(PyExc_ValueError, "a record cannot be larger than 2 GiB");
    return NULL;
}

/* bytes, another bytes-like object, or None; `view` is filled only where it must be released. */
static int borrow(PyObject *object, Py_buffer *view, const char **data, Py_ssize_t *length)
{
    if (object == Py_None) {
        *data = NULL;
        *length = -1;
    } else if (PyBytes_CheckExact(object)) {
        *data = PyBytes_AS_STRING(object);
        *length = PyBytes_GET_SIZE(object);
    } else {
        if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0)
            return -1;
        *data = view->buf;
        *length = view->len;
    }
    return 0;
}

/* The header pair `item` of a record: key text and value, borrowed. */
static int borrow_header(PyObject *item, const char **key, Py_ssize_t *key_length,
                         Py_buffer *view, const char **value, Py_ssize_t *value_length)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(item, 0))) {
        PyErr_SetString(PyExc_TypeError, "a header is a tuple of str and bytes or None");
        return -1;
    }
    *key = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(item, 0), key_length);
    if (*key == NULL)
        return -1;
    return borrow(PyTuple_GET_ITEM(item, 1), view, value, value_length);
}

/* The headers of one record, with their count. */
static int encode_headers(output_t *out, PyObject *headers)
{
    if (!PyTuple_Check(headers)) {
        PyErr_SetString(PyExc_TypeError, "the headers of a record are a tuple");
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(headers);
    if (reserve(out, 10) < 0)
        goto no_memory;
    out->length = put_varint(out->data + out->length, zigzag(count)) - out->data;
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *key, *value;
        Py_ssize_t key_length, value_length;
        Py_buffer view = {0};
        if (borrow_header(PyTuple_GET_ITEM(headers, i), &key, &key_length, &view, &value, &value_length) < 0)
            return -1;
        if (key_length > INT32_MAX || value_length > INT32_MAX) {
            PyBuffer_Release(&view);
            too_large();
            return -1;
        }
        if (reserve(out, 20 + key_length + (value_length > 0 ? value_length : 0)) < 0) {
            PyBuffer_Release(&view);
            goto no_memory;
        }
        uint8_t *p = put_bytes(out->data + out->length, key, key_length);
        out->length = put_bytes(p, value, value_length) - out->data;
        PyBuffer_Release(&view);
    }
    return 0;
no_memory:
    PyErr_NoMemory();
    return -1;
}

static int encode_record(output_t *out, output_t *scratch, PyObject *record, int64_t base_offset,
                         int64_t base_timestamp)
{
    if (!PyTuple_Check(record) || PyTuple_GET_SIZE(record) != 6) {
        PyErr_SetString(PyExc_TypeError, "a record is a Record");
        return -1;
    }
    long long offset = PyLong_AsLongLong(PyTuple_GET_ITEM(record, 0));
    if (offset == -1 && PyErr_Occurred())
        return -1;
    long long timestamp = PyLong_AsLongLong(PyTuple_GET_ITEM(record, 1));
    if (timestamp == -1 && PyErr_Occurred())
        return -1;
    long attributes = PyLong_AsLong(PyTuple_GET_ITEM(record, 5));
    if (attributes == -1 && PyErr_Occurred())
        return -1;
    int64_t offset_delta;
    if (__builtin_sub_overflow((int64_t)offset, base_offset, &offset_delta) || offset_delta != (int32_t)offset_delta) {
        PyErr_SetString(PyExc_ValueError, "the offset of a record is too far from the base offset");
        return -1;
    }
    if (attributes != (int8_t)attributes) {
        PyErr_SetString(PyExc_ValueError, "the attributes of a record are one signed byte");
        return -1;
    }
    uint64_t timestamp_delta = zigzag(add(timestamp, (int64_t)(0 - (uint64_t)base_timestamp)));
    scratch->length = 0;
    if (encode_headers(scratch, PyTuple_GET_ITEM(record, 4)) < 0)
        return -1;

    int result = -1;
    const char *key, *value;
    Py_ssize_t key_length, value_length;
    Py_buffer key_view = {0}, value_view = {0};
    if (borrow(PyTuple_GET_ITEM(record, 2), &key_view, &key, &key_length) < 0
            || borrow(PyTuple_GET_ITEM(record, 3), &value_view, &value, &value_length) < 0)
        goto done;
    uint64_t length = 1 + varint_size(timestamp_delta) + varint_size(zigzag(offset_delta)) + bytes_size(key_length)
        + bytes_size(value_length) + scratch->length;
    if (length > INT32_MAX) {
        too_large();
        goto done;
    }
    if (reserve(out, length + 5) < 0) {
        PyErr_NoMemory();
        goto done;
    }
    uint8_t *p = put_varint(out->data + out->length, zigzag((int64_t)length));
    *p++ = (uint8_t)attributes;
    p = put_varint(p, timestamp_delta);
    p = put_varint(p, zigzag(offset_delta));
    p = put_bytes(p, key, key_length);
    p = put_bytes(p, value, value_length);
    memcpy(p, scratch->data, scratch->length);
    out->length = p + scratch->length - out->data;
    result = 0;
done:
    PyBuffer_Release(&key_view);
    PyBuffer_Release(&value_view);
    return result;
}

static PyObject *kernel_encode(PyObject *module, PyObject *args)
{
    PyObject *records;
    long long base_offset, base_timestamp;
    if (!PyArg_ParseTuple(args, "OLL:encode", &records, &base_offset, &base_timestamp))
        return NULL;
    PyObject *fast = PySequence_Fast(records, "records are a sequence");
    if (fast == NULL)
        return NULL;
    output_t out = {0}, scratch = {0};
    PyObject *payload = NULL;
    /* A bytes-like object may run Python code when it is asked for its bytes: look at the size each time. */
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        PyObject *record = Py_NewRef(PySequence_Fast_GET_ITEM(fast, i));
        int result = encode_record(&out, &scratch, record, base_offset, base_timestamp);
        Py_DECREF(record);
        if (result < 0)
            goto done;
    }
    payload = PyBytes_FromStringAndSize((const char *)out.data, out.length);
done:
    free(out.data);
    free(scratch.data);
    Py_DECREF(fast);
    return payload;
}

/* ---------------------------------------------------------------- compaction */

static PyObject *kernel_keys(PyObject *module, PyObject *args)
{
    Py_buffer payload;
    int count;
    if (!PyArg_ParseTuple(args, "y*i:keys", &payload, &count))
        return NULL;
    PyObject *result = NULL;
    int rule = check_count(payload.len, count);
    if (rule != OK) {
        raise_malformed(rule, 0);
        goto done;
    }
    if ((result = PyList_New(count)) == NULL)
        goto done;
    bytes_t p = payload.buf, end = p + payload.len;
    for (int i = 0; i < count; i++) {
        record_t r;
        rule = read_record(&p, end, &r);
        if (rule != OK) {
            raise_malformed(rule, i);
            goto failed;
        }
        PyObject *keyed = new_named_tuple(keyed_record_type, 5);
        if (keyed == NULL)
            goto failed;
        PyList_SET_ITEM(result, i, keyed);
        PyTuple_SET_ITEM(keyed, 0, PyLong_FromLong(r.offset_delta));
        PyTuple_SET_ITEM(keyed, 1, bytes_or_none(r.key, r.key_length));
        PyTuple_SET_ITEM(keyed, 2, PyBool_FromLong(r.value_length < 0));
        PyTuple_SET_ITEM(keyed, 3, PyLong_FromSsize_t(r.start - (bytes_t)payload.buf));
        PyTuple_SET_ITEM(keyed, 4, PyLong_FromSsize_t(r.end - r.start));
        for (int j = 0; j < 5; j++)
            if (PyTuple_GET_ITEM(keyed, j) == NULL)
                goto failed;
    }
    if (p != end) {
        raise_malformed(TRAILING, count - 1);
        goto failed;
    }
    goto done;
failed:
    Py_CLEAR(result);
done:
    PyBuffer_Release(&payload);
    return result;
}

static PyObject *kernel_retain(PyObject *module, PyObject *args)
{
    Py_buffer payload, mask;
    int count;
    if (!PyArg_ParseTuple(args, "y*iy*:retain", &payload, &count, &mask))
        return NULL;
    PyObject *result = NULL;
    uint8_t *out = NULL;
    int rule = check_count(payload.len, count), index = 0;
    if (rule != OK) {
        raise_malformed(rule, 0);
        goto done;
    }
    if (mask.len != count) {
        PyErr_SetString(PyExc_ValueError, "the mask has one byte for each record");
        goto done;
    }
    /* What is kept is never longer than what was there. */
    if ((out = malloc(payload.len + 1)) == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Py_ssize_t length = 0;
    bytes_t p = payload.buf, end = p + payload.len;
    PyThreadState *gil = release_gil_for(payload.len);
    for (; index < count; index++) {
        record_t r;
        if ((rule = read_record(&p, end, &r)) != OK)
            break;
        if (((bytes_t)mask.buf)[index]) {
            memcpy(out + length, r.start, r.end - r.start);
            length += r.end - r.start;
        }
    }
    if (rule == OK && p != end) {
        rule = TRAILING;
        index = count - 1;
    }
    take_gil(gil);
    result = rule == OK ? PyBytes_FromStringAndSize((const char *)out, length) : raise_malformed(rule, index);
done:
    free(out);
    PyBuffer_Release(&payload);
    PyBuffer_Release(&mask);
    return result;
}

static PyObject *kernel_rebase_timestamps(PyObject *module, PyObject *args)
{
    Py_buffer payload;
    int count;
    long long shift;
    if (!PyArg_ParseTuple(args, "y*iL:rebase_timestamps", &payload, &count, &shift))
        return NULL;
    PyObject *result = NULL;
    uint8_t *out = NULL;
    int rule = check_count(payload.len, count), index = 0;
    if (rule != OK) {
        raise_malformed(rule, 0);
        goto done;
    }
    /* A record grows by at most nine bytes of timestamp and four of length. */
    if ((out = malloc(payload.len + 13 * (Py_ssize_t)count + 1)) == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    int is_too_large = 0;
    uint8_t *q = out;
    bytes_t p = payload.buf, end = p + payload.len;
    PyThreadState *gil = release_gil_for(payload.len);
    for (; index < count; index++) {
        record_t r;
        if ((rule = read_record(&p, end, &r)) != OK)
            break;
        uint64_t delta = zigzag(add(r.timestamp_delta, shift));
        int64_t rest = r.end - r.after_timestamp;
        int64_t length = 1 + varint_size(delta) + rest;
        if (length > INT32_MAX) {
            is_too_large = 1;
            break;
        }
        q = put_varint(q, zigzag(length));
        *q++ = r.attributes;
        q = put_varint(q, delta);
        memcpy(q, r.after_timestamp, rest);
        q += rest;
    }
    if (rule == OK && p != end && !is_too_large) {
        rule = TRAILING;
        index = count - 1;
    }
    take_gil(gil);
    if (is_too_large)
        too_large();
    else
        result = rule == OK ? PyBytes_FromStringAndSize((const char *)out, q - out) : raise_malformed(rule, index);
done:
    free(out);
    PyBuffer_Release(&payload);
    return result;
}

static PyObject *kernel_find_timestamp(PyObject *module, PyObject *args)
{
    Py_buffer payload;
    int count;
    long long base_timestamp, target;
    long long offset_delta_min = INT32_MIN;
    if (!PyArg_ParseTuple(args, "y*iLL|L:find_timestamp", &payload, &count, &base_timestamp, &target,
                          &offset_delta_min))
        return NULL;
    int rule = check_count(payload.len, count), index = 0, is_found = 0;
    bytes_t p = payload.buf, end = p + payload.len;
    int64_t timestamp = 0;
    int32_t offset_delta = 0;
    PyThreadState *gil = release_gil_for(payload.len);
    for (; rule == OK && index < count; index++) {
        record_t r;
        if ((rule = read_record(&p, end, &r)) != OK)
            break;
        timestamp = add(base_timestamp, r.timestamp_delta);
        offset_delta = r.offset_delta;
        if (timestamp >= target && offset_delta >= offset_delta_min) {
            is_found = 1;
            break;
        }
    }
    if (rule == OK && !is_found && p != end) {
        rule = TRAILING;
        index = count - 1;
    }
    take_gil(gil);
    PyBuffer_Release(&payload);
    if (rule != OK)
        return raise_malformed(rule, index);
    if (!is_found)
        Py_RETURN_NONE;
    return Py_BuildValue("iL", offset_delta, (long long)timestamp);
}

/* ---------------------------------------------------------------- OffsetMap */

/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein). */
#define ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define SIP_ROUND do { \
        v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0; v0 = ROTATE(v0, 32); \
        v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2; \
        v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0; \
        v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2; v2 = ROTATE(v2, 32); \
    } while (0)

typedef struct {
    uint64_t low, high;
} hash_t;

static inline uint64_t little_endian(bytes_t p, Py_ssize_t length)
{
    uint64_t word = 0;
    for (Py_ssize_t i = 0; i < length; i++)
        word |= (uint64_t)p[i] << (8 * i);
    return word;
}

static hash_t siphash(hash_t secret, bytes_t data, Py_ssize_t length)
{
    uint64_t v0 = 0x736f6d6570736575ull ^ secret.low, v1 = 0x646f72616e646f6dull ^ secret.high ^ 0xee;
    uint64_t v2 = 0x6c7967656e657261ull ^ secret.low, v3 = 0x7465646279746573ull ^ secret.high;
    bytes_t p = data;
    for (Py_ssize_t left = length / 8; left > 0; left--, p += 8) {
        uint64_t word = little_endian(p, 8);
        v3 ^= word;
        SIP_ROUND;
        SIP_ROUND;
        v0 ^= word;
    }
    uint64_t last = (uint64_t)length << 56 | little_endian(p, length % 8);
    v3 ^= last;
    SIP_ROUND;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    for (int i = 0; i < 4; i++)
        SIP_ROUND;
    hash_t hash = {.low = v0 ^ v1 ^ v2 ^ v3};
    v1 ^= 0xdd;
    for (int i = 0; i < 4; i++)
        SIP_ROUND;
    hash.high = v0 ^ v1 ^ v2 ^ v3;
    return hash;
}

typedef struct {
    hash_t hash;
    int64_t offset_after;       /* offset + 1, so that zeroed memory is an empty table */
} slot_t;

typedef struct {
    PyObject_HEAD
    slot_t *slots;
    uint64_t slot_count;
    int64_t keys, keys_max;
    int64_t latest_offset;
    hash_t secret;
    int is_busy;                /* a call that gave the lock away is at work */
} offset_map_t;

/* The slot of a hash: taken by it, or the free one where it belongs. keys_max < slot_count, so there is one. */
static slot_t *slot_of(offset_map_t *map, hash_t hash)
{
    uint64_t index = (uint64_t)(((unsigned __int128)hash.low * map->slot_count) >> 64);
    for (;;) {
        slot_t *slot = &map->slots[index];
        if (slot->offset_after == 0 || (slot->hash.low == hash.low && slot->hash.high == hash.high))
            return slot;
        if (++index == map->slot_count)
            index = 0;
    }
}

/* False when the key is new and the map is full. */
static int map_put(offset_map_t *map, bytes_t key, Py_ssize_t length, int64_t offset)
{
    hash_t hash = siphash(map->secret, key, length);
    slot_t *slot = slot_of(map, hash);
    if (slot->offset_after == 0) {
        if (map->keys == map->keys_max)
            return 0;
        map->keys++;
        slot->hash = hash;
    }
    slot->offset_after = offset + 1;
    return 1;
}

static int64_t map_get(offset_map_t *map, bytes_t key, Py_ssize_t length)
{
    return slot_of(map, siphash(map->secret, key, length))->offset_after - 1;
}

static int enter_map(offset_map_t *map)
{
    if (map->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "the map is in use by another thread");
        return -1;
    }
    map->is_busy = 1;
    return 0;
}

static PyObject *offset_map_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slots", "keys_max", "secret", NULL};
    long long slots, keys_max;
    Py_buffer secret;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "LLy*:OffsetMap", names, &slots, &keys_max, &secret))
        return NULL;
    offset_map_t *map = NULL;
    if (secret.len != 16) {
        PyErr_SetString(PyExc_ValueError, "the secret has 16 bytes");
    } else if (keys_max < 0 || keys_max >= slots || slots > (long long)(PY_SSIZE_T_MAX / sizeof(slot_t))) {
        PyErr_SetString(PyExc_ValueError, "a map needs more slots than keys");
    } else if ((map = (offset_map_t *)type->tp_alloc(type, 0)) != NULL) {
        map->slot_count = slots;
        map->keys_max = keys_max;
        map->latest_offset = -1;
        map->secret.low = little_endian(secret.buf, 8);
        map->secret.high = little_endian((bytes_t)secret.buf + 8, 8);
        map->slots = calloc(slots, sizeof(slot_t));
        if (map->slots == NULL) {
            Py_CLEAR(map);
            PyErr_NoMemory();
        }
    }
    PyBuffer_Release(&secret);
    return (PyObject *)map;
}

static void offset_map_dealloc(offset_map_t *map)
{
    PyTypeObject *type = Py_TYPE(map);
    free(map->slots);
    type->tp_free(map);
    Py_DECREF(type);
}

static PyObject *offset_map_put(offset_map_t *map, PyObject *args)
{
    Py_buffer key;
    long long offset;
    if (!PyArg_ParseTuple(args, "y*L:put", &key, &offset))
        return NULL;
    PyObject *result = NULL;
    if (offset < 0 || offset == INT64_MAX)
        PyErr_SetString(PyExc_ValueError, "an offset is not negative");
    else if (enter_map(map) == 0) {
        int is_put = map_put(map, key.buf, key.len, offset);
        if (is_put && offset > map->latest_offset)
            map->latest_offset = offset;
        map->is_busy = 0;
        result = PyBool_FromLong(is_put);
    }
    PyBuffer_Release(&key);
    return result;
}

static PyObject *offset_map_get(offset_map_t *map, PyObject *arg)
{
    Py_buffer key;
    if (PyObject_GetBuffer(arg, &key, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    if (enter_map(map) == 0) {
        result = PyLong_FromLongLong(map_get(map, key.buf, key.len));
        map->is_busy = 0;
    }
    PyBuffer_Release(&key);
    return result;
}

static PyObject *offset_map_advance(offset_map_t *map, PyObject *arg)
{
    long long offset = PyLong_AsLongLong(arg);
    if (offset == -1 && PyErr_Occurred())
        return NULL;
    if (offset > map->latest_offset)
        map->latest_offset = offset;
    Py_RETURN_NONE;
}

/* Whether every offset of the batch can be in a map, which counts from 0. */
static int check_base(long long base_offset)
{
    if (base_offset < 0 || base_offset > INT64_MAX - 1 - INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the base offset is out of range");
        return -1;
    }
    return 0;
}

static PyObject *offset_map_put_all(offset_map_t *map, PyObject *args)
{
    Py_buffer payload;
    int count;
    long long base_offset, offset_from = 0;
    if (!PyArg_ParseTuple(args, "y*iL|L:put_all", &payload, &count, &base_offset, &offset_from))
        return NULL;
    PyObject *result = NULL;
    int rule = check_count(payload.len, count), index = 0;
    if (check_base(base_offset) < 0 || enter_map(map) < 0)
        goto done;
    bytes_t p = payload.buf, end = p + payload.len;
    PyThreadState *gil = release_gil_for(payload.len);
    for (; rule == OK && index < count; index++) {
        record_t r;
        if ((rule = read_record(&p, end, &r)) == OK && r.offset_delta < 0)
            rule = SEQUENCE;
        if (rule != OK)
            break;
        int64_t offset = base_offset + r.offset_delta;
        if (offset >= offset_from && r.key_length >= 0 && !map_put(map, r.key, r.key_length, offset))
            break;
        if (offset > map->latest_offset)
            map->latest_offset = offset;
    }
    take_gil(gil);
    map->is_busy = 0;
    if (rule == OK && index == count && p != end) {
        rule = TRAILING;
        index = count - 1;
    }
    result = rule == OK ? PyLong_FromLong(index) : raise_malformed(rule, index);
done:
    PyBuffer_Release(&payload);
    return result;
}

static PyObject *offset_map_retained(offset_map_t *map, PyObject *args)
{
    Py_buffer payload;
    int count, keep_tombstones;
    long long base_offset;
    if (!PyArg_ParseTuple(args, "y*iLp:retained", &payload, &count, &base_offset, &keep_tombstones))
        return NULL;
    PyObject *mask = NULL;
    int rule = check_count(payload.len, count), index = 0;
    if (check_base(base_offset) < 0)
        goto done;
    if (rule != OK) {
        raise_malformed(rule, 0);
        goto done;
    }
    if ((mask = PyBytes_FromStringAndSize(NULL, count)) == NULL)
        goto done;
    if (enter_map(map) < 0) {
        Py_CLEAR(mask);
        goto done;
    }
    uint8_t *keep = (uint8_t *)PyBytes_AS_STRING(mask);
    bytes_t p = payload.buf, end = p + payload.len;
    PyThreadState *gil = release_gil_for(payload.len);
    for (; index < count; index++) {
        record_t r;
        if ((rule = read_record(&p, end, &r)) == OK && r.offset_delta < 0)
            rule = SEQUENCE;
        if (rule != OK)
            break;
        int64_t offset = base_offset + r.offset_delta;
        if (offset > map->latest_offset)
            keep[index] = 1;
        else if (r.key_length < 0)
            keep[index] = 0;
        else
            keep[index] = (r.value_length >= 0 || keep_tombstones) && offset >= map_get(map, r.key, r.key_length);
    }
    take_gil(gil);
    map->is_busy = 0;
    if (rule == OK && p != end) {
        rule = TRAILING;
        index = count - 1;
    }
    if (rule != OK) {
        Py_CLEAR(mask);
        raise_malformed(rule, index);
    }
done:
    PyBuffer_Release(&payload);
    return mask;
}

static Py_ssize_t offset_map_len(offset_map_t *map)
{
    return map->keys;
}

static PyObject *offset_map_latest_offset(offset_map_t *map, void *closure)
{
    return PyLong_FromLongLong(map->latest_offset);
}

static PyMethodDef offset_map_methods[] = {
    {"put", (PyCFunction)offset_map_put, METH_VARARGS, "Note the offset of a key; False when the map is full."},
    {"get", (PyCFunction)offset_map_get, METH_O, "The latest offset of a key, or -1."},
    {"advance", (PyCFunction)offset_map_advance, METH_O, "Count everything up to an offset as seen."},
    {"put_all", (PyCFunction)offset_map_put_all, METH_VARARGS, "Note the keys of a batch."},
    {"retained", (PyCFunction)offset_map_retained, METH_VARARGS, "Which records of a batch compaction keeps."},
    {NULL}
};

static PyGetSetDef offset_map_properties[] = {
    {"latest_offset", (getter)offset_map_latest_offset, NULL, "The highest offset seen.", NULL},
    {NULL}
};

static PyType_Slot offset_map_slots[] = {
    {Py_tp_new, offset_map_new},
    {Py_tp_dealloc, offset_map_dealloc},
    {Py_tp_methods, offset_map_methods},
    {Py_tp_getset, offset_map_properties},
    {Py_sq_length, offset_map_len},
    {Py_tp_doc, "The latest offset of each key, in 24 bytes a slot; see kernel.py."},
    {0, NULL}
};

static PyType_Spec offset_map_spec = {
    .name = "moldau.wire.records._kernel.OffsetMap",
    .basicsize = sizeof(offset_map_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = offset_map_slots,
};

static PyObject *kernel_siphash(PyObject *module, PyObject *args)
{
    Py_buffer secret, data;
    if (!PyArg_ParseTuple(args, "y*y*:siphash", &secret, &data))
        return NULL;
    PyObject *result = NULL;
    if (secret.len != 16) {
        PyErr_SetString(PyExc_ValueError, "the secret has 16 bytes");
    } else {
        hash_t key = {little_endian(secret.buf, 8), little_endian((bytes_t)secret.buf + 8, 8)};
        hash_t hash = siphash(key, data.buf, data.len);
        uint8_t out[16];
        for (int i = 0; i < 8; i++) {
            out[i] = (uint8_t)(hash.low >> (8 * i));
            out[8 + i] = (uint8_t)(hash.high >> (8 * i));
        }
        result = PyBytes_FromStringAndSize((const char *)out, 16);
    }
    PyBuffer_Release(&secret);
    PyBuffer_Release(&data);
    return result;
}

/* ---------------------------------------------------------------- records to columns */

typedef struct {
    Py_buffer payload;
    int count;
    int64_t base_offset, base_timestamp;
    int has_log_append_time;
    int64_t log_append_time;
} run_t;

typedef struct {
    int64_t records, key_bytes, value_bytes, headers, header_key_bytes, header_value_bytes;
    int64_t key_nulls, value_nulls, header_value_nulls;
} sizes_t;

typedef struct {
    PyObject *object;
    uint8_t *data;
} column_t;

static int new_column(column_t *column, int64_t length)
{
    column->object = PyBytes_FromStringAndSize(NULL, length);
    if (column->object == NULL)
        return -1;
    column->data = (uint8_t *)PyBytes_AS_STRING(column->object);
    return 0;
}

/* All bits set; the padding after the last record too, which Arrow leaves open. */
static int new_bitmap(column_t *column, int64_t length, int64_t nulls)
{
    if (nulls == 0) {
        column->object = Py_NewRef(Py_None);
        return 0;
    }
    if (new_column(column, (length + 7) / 8) < 0)
        return -1;
    memset(column->data, 0xff, (length + 7) / 8);
    return 0;
}

enum {
    OFFSETS, TIMESTAMPS, KEY_VALIDITY, KEY_OFFSETS, KEY_DATA, VALUE_VALIDITY, VALUE_OFFSETS, VALUE_DATA,
    HEADER_OFFSETS, HEADER_KEY_OFFSETS, HEADER_KEY_DATA, HEADER_VALUE_VALIDITY, HEADER_VALUE_OFFSETS,
    HEADER_VALUE_DATA, COLUMNS
};

static int measure(const run_t *run, int64_t offset_from, int64_t offset_until, sizes_t *sizes, int *index)
{
    bytes_t p = run->payload.buf, end = p + run->payload.len;
    *index = 0;
    TRY(check_count(run->payload.len, run->count));
    for (; *index < run->count; ++*index) {
        record_t r;
        TRY(read_record(&p, end, &r));
        int64_t offset = add(run->base_offset, r.offset_delta);
        if (offset < offset_from || offset >= offset_until)
            continue;
        sizes->records++;
        if (r.key_length < 0)
            sizes->key_nulls++;
        else
            sizes->key_bytes += r.key_length;
        if (r.value_length < 0)
            sizes->value_nulls++;
        else
            sizes->value_bytes += r.value_length;
        sizes->headers += r.header_count;
        bytes_t h = r.headers;
        for (int32_t i = 0; i < r.header_count; i++) {
            header_t header;
            TRY(read_record_header(&h, r.end, &header));
            sizes->header_key_bytes += header.key_length;
            if (header.value_length < 0)
                sizes->header_value_nulls++;
            else
                sizes->header_value_bytes += header.value_length;
        }
    }
    if (p != end) {
        *index = run->count - 1;
        return TRAILING;
    }
    return OK;
}

/* Copy into a data column, unless there is less room than the first pass asked for. */
static inline int copy_into(column_t *columns, int which, int64_t *used, int64_t room, bytes_t data, int32_t length)
{
    if (length > room - *used)
        return 0;
    memcpy(columns[which].data + *used, data, length);
    *used += length;
    return 1;
}

static inline int clear_bit(column_t *columns, int which, int64_t index)
{
    if (columns[which].data == NULL)
        return 0;
    columns[which].data[index / 8] &= ~(1u << (index % 8));
    return 1;
}

/* The second pass; `done` counts what has been written. False: the payload is not what `measure` saw. */
static int fill(const run_t *run, int64_t offset_from, int64_t offset_until, const sizes_t *sizes, sizes_t *done,
                column_t *columns)
{
    int64_t *offsets = (int64_t *)columns[OFFSETS].data, *timestamps = (int64_t *)columns[TIMESTAMPS].data;
    int32_t *key_offsets = (int32_t *)columns[KEY_OFFSETS].data;
    int32_t *value_offsets = (int32_t *)columns[VALUE_OFFSETS].data;
    int32_t *header_offsets = (int32_t *)columns[HEADER_OFFSETS].data;
    int32_t *header_key_offsets = (int32_t *)columns[HEADER_KEY_OFFSETS].data;
    int32_t *header_value_offsets = (int32_t *)columns[HEADER_VALUE_OFFSETS].data;
    bytes_t p = run->payload.buf, end = p + run->payload.len;
    for (int i = 0; i < run->count; i++) {
        record_t r;
        if (read_record(&p, end, &r) != OK)
            return 0;
        int64_t offset = add(run->base_offset, r.offset_delta);
        if (offset < offset_from || offset >= offset_until)
            continue;
        if (done->records == sizes->records)
            return 0;
        int64_t row = done->records++;
        offsets[row] = offset;
        timestamps[row] = run->has_log_append_time ? run->log_append_time
                                                   : add(run->base_timestamp, r.timestamp_delta);
        if (r.key_length < 0 ? !clear_bit(columns, KEY_VALIDITY, row)
                             : !copy_into(columns, KEY_DATA, &done->key_bytes, sizes->key_bytes, r.key, r.key_length))
            return 0;
        key_offsets[row + 1] = (int32_t)done->key_bytes;
        if (r.value_length < 0 ? !clear_bit(columns, VALUE_VALIDITY, row)
                               : !copy_into(columns, VALUE_DATA, &done->value_bytes, sizes->value_bytes,
                                            r.value, r.value_length))
            return 0;
        value_offsets[row + 1] = (int32_t)done->value_bytes;
        bytes_t h = r.headers;
        for (int32_t j = 0; j < r.header_count; j++) {
            header_t header;
            if (done->headers == sizes->headers || read_record_header(&h, r.end, &header) != OK)
                return 0;
            int64_t n = done->headers++;
            if (!copy_into(columns, HEADER_KEY_DATA, &done->header_key_bytes, sizes->header_key_bytes,
                           header.key, header.key_length))
                return 0;
            header_key_offsets[n + 1] = (int32_t)done->header_key_bytes;
            if (header.value_length < 0 ? !clear_bit(columns, HEADER_VALUE_VALIDITY, n)
                                        : !copy_into(columns, HEADER_VALUE_DATA, &done->header_value_bytes,
                                                     sizes->header_value_bytes, header.value, header.value_length))
                return 0;
            header_value_offsets[n + 1] = (int32_t)done->header_value_bytes;
        }
        header_offsets[row + 1] = (int32_t)done->headers;
    }
    return 1;
}

static PyObject *kernel_to_columns(PyObject *module, PyObject *args)
{
    PyObject *argument;
    long long offset_from = INT64_MIN, offset_until = INT64_MAX;
    if (!PyArg_ParseTuple(args, "O|LL:to_columns", &argument, &offset_from, &offset_until))
        return NULL;
    PyObject *list = PySequence_Tuple(argument);
    if (list == NULL)
        return NULL;
    Py_ssize_t run_count = PyTuple_GET_SIZE(list), open = 0, total = 0;
    run_t *runs = calloc(run_count + 1, sizeof(run_t));
    column_t columns[COLUMNS] = {{0}};
    PyObject *result = NULL;
    if (runs == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (; open < run_count; open++) {
        run_t *run = &runs[open];
        long long base_offset, base_timestamp;
        PyObject *log_append_time;
        if (!PyTuple_Check(PyTuple_GET_ITEM(list, open))) {
            PyErr_SetString(PyExc_TypeError, "a run is a tuple");
            goto done;
        }
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(list, open), "y*iLLO:run", &run->payload, &run->count, &base_offset,
                              &base_timestamp, &log_append_time))
            goto done;
        run->base_offset = base_offset;
        run->base_timestamp = base_timestamp;
        if (log_append_time != Py_None) {
            run->has_log_append_time = 1;
            run->log_append_time = PyLong_AsLongLong(log_append_time);
            if (run->log_append_time == -1 && PyErr_Occurred()) {
                open++;
                goto done;
            }
        }
        total += run->payload.len;
    }

    sizes_t sizes = {0}, written = {0};
    int rule = OK, index = 0;
    PyThreadState *gil = release_gil_for(total);
    for (Py_ssize_t i = 0; i < run_count && rule == OK; i++)
        rule = measure(&runs[i], offset_from, offset_until, &sizes, &index);
    take_gil(gil);
    if (rule != OK) {
        raise_malformed(rule, index);
        goto done;
    }
    if (sizes.key_bytes > INT32_MAX || sizes.value_bytes > INT32_MAX || sizes.headers > INT32_MAX
            || sizes.header_key_bytes > INT32_MAX || sizes.header_value_bytes > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a column holds at most 2 GiB: convert fewer batches at a time");
        goto done;
    }
    if (new_column(&columns[OFFSETS], 8 * sizes.records) < 0
            || new_column(&columns[TIMESTAMPS], 8 * sizes.records) < 0
            || new_bitmap(&columns[KEY_VALIDITY], sizes.records, sizes.key_nulls) < 0
            || new_column(&columns[KEY_OFFSETS], 4 * (sizes.records + 1)) < 0
            || new_column(&columns[KEY_DATA], sizes.key_bytes) < 0
            || new_bitmap(&columns[VALUE_VALIDITY], sizes.records, sizes.value_nulls) < 0
            || new_column(&columns[VALUE_OFFSETS], 4 * (sizes.records + 1)) < 0
            || new_column(&columns[VALUE_DATA], sizes.value_bytes) < 0
            || new_column(&columns[HEADER_OFFSETS], 4 * (sizes.records + 1)) < 0
            || new_column(&columns[HEADER_KEY_OFFSETS], 4 * (sizes.headers + 1)) < 0
            || new_column(&columns[HEADER_KEY_DATA], sizes.header_key_bytes) < 0
            || new_bitmap(&columns[HEADER_VALUE_VALIDITY], sizes.headers, sizes.header_value_nulls) < 0
            || new_column(&columns[HEADER_VALUE_OFFSETS], 4 * (sizes.headers + 1)) < 0
            || new_column(&columns[HEADER_VALUE_DATA], sizes.header_value_bytes) < 0)
        goto done;
    memset(columns[KEY_OFFSETS].data, 0, 4);
    memset(columns[VALUE_OFFSETS].data, 0, 4);
    memset(columns[HEADER_OFFSETS].data, 0, 4);
    memset(columns[HEADER_KEY_OFFSETS].data, 0, 4);
    memset(columns[HEADER_VALUE_OFFSETS].data, 0, 4);
    int is_same = 1;
    gil = release_gil_for(total);
    for (Py_ssize_t i = 0; i < run_count && is_same; i++)
        is_same = fill(&runs[i], offset_from, offset_until, &sizes, &written, columns);
    take_gil(gil);
    if (!is_same || written.records != sizes.records || written.headers != sizes.headers) {
        PyErr_SetString(PyExc_RuntimeError, "the payload changed while it was read");
        goto done;
    }
    if ((result = column_buffers_type->tp_alloc(column_buffers_type, COLUMNS + 2)) == NULL)
        goto done;
    PyObject *records = PyLong_FromLongLong(sizes.records), *headers = PyLong_FromLongLong(sizes.headers);
    PyTuple_SET_ITEM(result, 0, records);
    PyTuple_SET_ITEM(result, 9, headers);
    for (int i = 0, at = 1; i < COLUMNS; i++, at++) {
        if (at == 9)
            at++;
        PyTuple_SET_ITEM(result, at, columns[i].object);
        columns[i].object = NULL;
    }
    if (records == NULL || headers == NULL)
        Py_CLEAR(result);
done:
    for (int i = 0; i < COLUMNS; i++)
        Py_XDECREF(columns[i].object);
    for (Py_ssize_t i = 0; i < open; i++)
        PyBuffer_Release(&runs[i].payload);
    free(runs);
    Py_DECREF(list);
    return result;
}

/* ---------------------------------------------------------------- columns to records */

/* A column of byte strings: its first row, validity bitmap or None, int32 offsets, data. */
typedef struct {
    int is_present;
    long long start;
    Py_buffer validity, offsets, data;
} strings_t;

static void release_strings(strings_t *column)
{
    PyBuffer_Release(&column->validity);
    PyBuffer_Release(&column->offsets);
    PyBuffer_Release(&column->data);
}

static int wrong_column(const char *text)
{
    PyErr_SetString(PyExc_ValueError, text);
    return -1;
}

static int check_rows(long long start, int64_t length, const Py_buffer *validity, const Py_buffer *offsets)
{
    if (start < 0 || length > offsets->len / 4 - 1 || start > offsets->len / 4 - 1 - length)
        return wrong_column("the offsets of a column are too few for its rows");
    if (validity->buf != NULL && (validity->len < (start + length + 7) / 8))
        return wrong_column("the validity bitmap of a column is too short for its rows");
    return 0;
}

static int take_optional_buffer(PyObject *object, Py_buffer *view)
{
    return object == Py_None ? 0 : PyObject_GetBuffer(object, view, PyBUF_SIMPLE);
}

static int take_strings(PyObject *argument, int64_t length, strings_t *column)
{
    if (argument == Py_None)
        return 0;
    PyObject *validity, *offsets, *data;
    if (!PyTuple_Check(argument)) {
        PyErr_SetString(PyExc_TypeError, "a column is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(argument, "LOOO:column", &column->start, &validity, &offsets, &data)
            || take_optional_buffer(validity, &column->validity) < 0
            || PyObject_GetBuffer(offsets, &column->offsets, PyBUF_SIMPLE) < 0
            || take_optional_buffer(data, &column->data) < 0)
        return -1;
    column->is_present = 1;
    return length < 0 ? 0 : check_rows(column->start, length, &column->validity, &column->offsets);
}

static inline int is_valid(const Py_buffer *validity, int64_t row)
{
    return validity->buf == NULL || (((bytes_t)validity->buf)[row / 8] >> (row % 8) & 1);
}

/* Buffers of other libraries need not be aligned. */
static inline int32_t int32_at(const Py_buffer *numbers, int64_t index)
{
    int32_t number;
    memcpy(&number, (bytes_t)numbers->buf + 4 * index, 4);
    return number;
}

static inline int64_t int64_at(const Py_buffer *numbers, int64_t index)
{
    int64_t number;
    memcpy(&number, (bytes_t)numbers->buf + 8 * index, 8);
    return number;
}

/* The bytes of a row (-1: null); false when its offsets point outside the data. */
static inline int string_at(const strings_t *column, int64_t row, bytes_t *data, int32_t *length)
{
    row += column->start;
    if (!column->is_present || !is_valid(&column->validity, row)) {
        *length = -1;
        return 1;
    }
    int32_t from = int32_at(&column->offsets, row), until = int32_at(&column->offsets, row + 1);
    if (from < 0 || until < from || until > column->data.len)
        return 0;
    *data = (bytes_t)column->data.buf + from;
    *length = until - from;
    return 1;
}

typedef struct {
    int is_present;
    long long start, count;
    Py_buffer validity, offsets;
    strings_t keys, values;
} headers_t;

static int take_headers(PyObject *argument, int64_t length, headers_t *headers)
{
    if (argument == Py_None)
        return 0;
    PyObject *validity, *offsets, *keys, *values;
    if (!PyTuple_Check(argument)) {
        PyErr_SetString(PyExc_TypeError, "a column is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(argument, "LOOLOO:headers", &headers->start, &validity, &offsets, &headers->count, &keys,
                          &values)
            || take_optional_buffer(validity, &headers->validity) < 0
            || PyObject_GetBuffer(offsets, &headers->offsets, PyBUF_SIMPLE) < 0
            || check_rows(headers->start, length, &headers->validity, &headers->offsets) < 0)
        return -1;
    if (headers->count < 0 || headers->count > INT32_MAX)
        return wrong_column("the header count is out of range");
    if (take_strings(keys, headers->count, &headers->keys) < 0
            || take_strings(values, headers->count, &headers->values) < 0)
        return -1;
    headers->is_present = 1;
    return 0;
}

enum { WROTE, OUT_OF_RANGE, NULL_HEADER_KEY, TOO_LARGE, NO_MEMORY };

/* From where to where the headers of a row reach. */
static inline int header_range(const headers_t *headers, int64_t row, int32_t *from, int32_t *until)
{
    *from = *until = 0;
    if (!headers->is_present || !is_valid(&headers->validity, headers->start + row))
        return WROTE;
    *from = int32_at(&headers->offsets, headers->start + row);
    *until = int32_at(&headers->offsets, headers->start + row + 1);
    return *from < 0 || *until < *from || *until > headers->count ? OUT_OF_RANGE : WROTE;
}

static inline int header_at(const headers_t *headers, int32_t index, header_t *header)
{
    if (!string_at(&headers->keys, index, &header->key, &header->key_length)
            || !string_at(&headers->values, index, &header->value, &header->value_length))
        return OUT_OF_RANGE;
    return header->key_length < 0 ? NULL_HEADER_KEY : WROTE;
}

static int write_row(output_t *out, int64_t row, uint64_t timestamp_delta, const strings_t *keys,
                     const strings_t *values, const headers_t *headers)
{
    bytes_t key = NULL, value = NULL;
    int32_t key_length, value_length, from, until;
    if (!string_at(keys, row, &key, &key_length) || !string_at(values, row, &value, &value_length))
        return OUT_OF_RANGE;
    int problem = header_range(headers, row, &from, &until);
    if (problem != WROTE)
        return problem;
    uint64_t length = 1 + varint_size(timestamp_delta) + varint_size(zigzag(row)) + bytes_size(key_length)
        + bytes_size(value_length) + varint_size(zigzag(until - from));
    for (int32_t i = from; i < until; i++) {
        header_t header;
        if ((problem = header_at(headers, i, &header)) != WROTE)
            return problem;
        length += bytes_size(header.key_length) + bytes_size(header.value_length);
    }
    if (length > INT32_MAX)
        return TOO_LARGE;
    if (reserve(out, length + 5) < 0)
        return NO_MEMORY;
    uint8_t *p = put_varint(out->data + out->length, zigzag((int64_t)length));
    *p++ = 0;
    p = put_varint(p, timestamp_delta);
    p = put_varint(p, zigzag(row));
    p = put_bytes(p, key, key_length);
    p = put_bytes(p, value, value_length);
    p = put_varint(p, zigzag(until - from));
    uint8_t *limit = out->data + out->room;
    for (int32_t i = from; i < until; i++) {
        header_t header = {0};
        if ((problem = header_at(headers, i, &header)) != WROTE)
            return problem;
        /* Columns that change while they are read must not make this write past its room. */
        if (bytes_size(header.key_length) + bytes_size(header.value_length) > limit - p)
            return OUT_OF_RANGE;
        p = put_bytes(p, header.key, header.key_length);
        p = put_bytes(p, header.value, header.value_length);
    }
    out->length = p - out->data;
    return WROTE;
}

static PyObject *kernel_from_columns(PyObject *module, PyObject *args)
{
    long long length, start;
    PyObject *key_argument, *value_argument, *header_argument;
    Py_buffer timestamps;
    if (!PyArg_ParseTuple(args, "LLy*OOO:from_columns", &length, &start, &timestamps, &key_argument, &value_argument,
                          &header_argument))
        return NULL;
    strings_t keys = {0}, values = {0};
    headers_t headers = {0};
    output_t out = {0};
    PyObject *result = NULL;
    if (length < 1 || length > INT32_MAX) {
        wrong_column("a batch has at least one row and at most 2^31 - 1");
        goto done;
    }
    if (start < 0 || length > timestamps.len / 8 || start > timestamps.len / 8 - length) {
        wrong_column("the timestamps are too few for the rows");
        goto done;
    }
    if (take_strings(key_argument, length, &keys) < 0 || take_strings(value_argument, length, &values) < 0
            || take_headers(header_argument, length, &headers) < 0)
        goto done;

    int64_t base_timestamp = int64_at(&timestamps, start), max_timestamp = base_timestamp;
    int problem = WROTE;
    PyThreadState *gil = release_gil_for(keys.data.len + values.data.len);
    for (int64_t row = 0; row < length && problem == WROTE; row++) {
        int64_t timestamp = int64_at(&timestamps, start + row);
        if (timestamp > max_timestamp)
            max_timestamp = timestamp;
        uint64_t delta = zigzag(add(timestamp, (int64_t)(0 - (uint64_t)base_timestamp)));
        problem = write_row(&out, row, delta, &keys, &values, &headers);
    }
    take_gil(gil);
    switch (problem) {
    case WROTE:
        result = Py_BuildValue("y#LL", (const char *)out.data, out.length, (long long)base_timestamp,
                               (long long)max_timestamp);
        break;
    case OUT_OF_RANGE:
        wrong_column("the offsets of a column point outside its data");
        break;
    case NULL_HEADER_KEY:
        wrong_column("the key of a header is null");
        break;
    case TOO_LARGE:
        too_large();
        break;
    default:
        PyErr_NoMemory();
    }
done:
    free(out.data);
    PyBuffer_Release(&timestamps);
    release_strings(&keys);
    release_strings(&values);
    PyBuffer_Release(&headers.validity);
    PyBuffer_Release(&headers.offsets);
    release_strings(&headers.keys);
    release_strings(&headers.values);
    return result;
}

/* ---------------------------------------------------------------- keys to partitions */

static uint32_t murmur2(bytes_t data, int64_t length)
{
    const uint32_t factor = 0x5bd1e995;
    uint32_t hash = 0x9747b28cu ^ (uint32_t)length;
    bytes_t p = data;
    for (int64_t left = length / 4; left > 0; left--, p += 4) {
        uint32_t word = (uint32_t)little_endian(p, 4) * factor;
        hash = hash * factor ^ (word ^ word >> 24) * factor;
    }
    if (length & 3)
        hash = (hash ^ (uint32_t)little_endian(p, length & 3)) * factor;
    hash = (hash ^ hash >> 13) * factor;
    return hash ^ hash >> 15;
}

static PyObject *kernel_murmur2(PyObject *module, PyObject *argument)
{
    Py_buffer data;
    if (PyObject_GetBuffer(argument, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t hash = murmur2(data.buf, data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(hash);
}

static PyObject *kernel_hash_keys(PyObject *module, PyObject *args)
{
    long long length;
    PyObject *argument, *hashes = NULL;
    if (!PyArg_ParseTuple(args, "LO:hash_keys", &length, &argument))
        return NULL;
    strings_t keys = {0};
    if (length < 0 || length > INT32_MAX) {
        wrong_column("there are at least no rows and at most 2^31 - 1");
        goto done;
    }
    if (take_strings(argument, length, &keys) < 0
            || (hashes = PyBytes_FromStringAndSize(NULL, 4 * (Py_ssize_t)length)) == NULL)
        goto done;
    char *out = PyBytes_AS_STRING(hashes);
    int64_t row = 0;
    PyThreadState *gil = release_gil_for(keys.data.len);
    for (; row < length; row++) {
        bytes_t key = NULL;
        int32_t key_length, hash = -1;
        if (!string_at(&keys, row, &key, &key_length))
            break;
        if (key_length >= 0)
            hash = (int32_t)(murmur2(key, key_length) & 0x7fffffff);
        memcpy(out + 4 * row, &hash, 4);
    }
    take_gil(gil);
    if (row < length) {
        Py_CLEAR(hashes);
        wrong_column("the offsets of a column point outside its data");
    }
done:
    release_strings(&keys);
    return hashes;
}

/* ---------------------------------------------------------------- the module */

static PyMethodDef functions[] = {
    {"validate", kernel_validate, METH_VARARGS, "Walk all records and check them."},
    {"plain_header", kernel_plain_header, METH_VARARGS, "The header of a batch that is appended as it came."},
    {"decode", kernel_decode, METH_VARARGS, "The records as objects."},
    {"encode", kernel_encode, METH_VARARGS, "Records as bytes."},
    {"keys", kernel_keys, METH_VARARGS, "Key, kind and place of each record."},
    {"retain", kernel_retain, METH_VARARGS, "The records that a mask keeps, verbatim."},
    {"rebase_timestamps", kernel_rebase_timestamps, METH_VARARGS, "Add to every timestamp delta."},
    {"find_timestamp", kernel_find_timestamp, METH_VARARGS, "The first record at or after a time."},
    {"to_columns", kernel_to_columns, METH_VARARGS, "Runs of records as Arrow buffers."},
    {"from_columns", kernel_from_columns, METH_VARARGS, "Arrow buffers as records."},
    {"murmur2", kernel_murmur2, METH_O, "Kafka's Murmur2 of some bytes, without a sign."},
    {"hash_keys", kernel_hash_keys, METH_VARARGS, "What partitions are chosen by, for a column of keys."},
    {"siphash", kernel_siphash, METH_VARARGS, "SipHash-2-4 with 128 bits, for its test vectors."},
    {NULL}
};

static PyTypeObject *type_of(PyObject *module, const char *name)
{
    PyObject *type = PyObject_GetAttrString(module, name);
    if (type != NULL && !(PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type))) {
        Py_CLEAR(type);
        PyErr_Format(PyExc_ImportError, "%s is not a named tuple", name);
    }
    return (PyTypeObject *)type;
}

static int execute(PyObject *module)
{
    /* The switch is read here and not in kernel.py, which is pure and has no business with the environment. */
    const char *choice = getenv("MOLDAU_KERNEL");
    if (choice != NULL && strcmp(choice, "pure") == 0) {
        PyErr_SetString(PyExc_ImportError, "MOLDAU_KERNEL=pure turns the compiled kernel off");
        return -1;
    }
#ifdef MOLDAU_SOURCE_CRC
    /* compiled.py compares it with the source beside the module. */
    PyObject *source_crc = PyLong_FromUnsignedLong(MOLDAU_SOURCE_CRC);
    if (source_crc == NULL || PyModule_AddObjectRef(module, "SOURCE_CRC", source_crc) < 0) {
        Py_XDECREF(source_crc);
        return -1;
    }
    Py_DECREF(source_crc);
#endif
    PyObject *record = PyImport_ImportModule("moldau.wire.records.record");
    if (record == NULL)
        return -1;
    PyObject *header = PyImport_ImportModule("moldau.wire.records.header");
    int result = -1;
    if (header != NULL && (batch_header_type = type_of(header, "BatchHeader")) != NULL
            && (record_type = type_of(record, "Record")) != NULL
            && (keyed_record_type = type_of(record, "KeyedRecord")) != NULL
            && (walk_type = type_of(record, "Walk")) != NULL
            && (column_buffers_type = type_of(record, "ColumnBuffers")) != NULL
            && (malformed = PyObject_GetAttrString(record, "malformed")) != NULL) {
        PyObject *offset_map = PyType_FromSpec(&offset_map_spec);
        if (offset_map != NULL)
            result = PyModule_AddObjectRef(module, "OffsetMap", offset_map);
        Py_XDECREF(offset_map);
    }
    Py_XDECREF(header);
    Py_DECREF(record);
    return result;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},     /* the types above are shared */
#endif
    {0, NULL}
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_kernel",
    .m_doc = "The compiled kernel for records; see kernel.py.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    return PyModuleDef_Init(&definition);
}
