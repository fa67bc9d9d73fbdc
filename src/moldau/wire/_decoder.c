/* The compiled decoder of messages: one small interpreter for the programs that compiler.py builds.
 *
 * A program is a tree of tuples, `StructProgram` and `ValueProgram` of compiler.py, turned into C structures once.
 * The decoder that compiler.py writes in Python is the twin that must give the same messages and the same
 * complaints. The input is hostile: every read is compared with the bytes that are left, every count with what
 * they can hold before a list is made, and each byte is looked at once, so that a buffer which changes meanwhile
 * can spoil a message but not memory. Calls nest as deep as the declaration does and no deeper. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#define TEXT_BYTES_MAX 32767    /* in the compact encoding too */
#define LENGTH_MAX 0x7fffffff
#define UUID_BYTES 16

enum kind {
    BOOL = '?', INT8 = 'b', INT16 = 'h', INT32 = 'i', INT64 = 'q', UINT16 = 'H', UINT32 = 'I', FLOAT64 = 'd',
    UUID = 's', TEXT = 'T', BYTES = 'Y', RECORDS = 'R', ARRAY = 'A', STRUCT = 'S', TAGGED_STRUCT = 'G'
};

static PyObject *malformed;         /* moldau.model.errors.MalformedMessage */
static PyObject *force_setattr;     /* msgspec's, which also fills in structs that are frozen */
static PyObject *unknown_tags_name;

typedef const uint8_t *bytes_t;

/* ---------------------------------------------------------------- programs */

/* Objects here are borrowed from the tuples of the program, which the decoder keeps. */

typedef struct layout layout_t;

typedef struct value {
    enum kind kind;
    bool is_nullable, is_compact;
    Py_ssize_t key;                 /* of a field its place among the arguments, of a tag its number */
    PyObject *name;
    struct value *element;          /* of an array */
    Py_ssize_t element_bytes_min;
    layout_t *layout;               /* of a struct */
} value_t;

typedef struct {
    Py_ssize_t key;
    PyObject *factory;              /* None: take the value */
    PyObject *value;
} stand_in_t;

struct layout {
    PyObject *cls;
    bool is_flexible;
    Py_ssize_t argument_count, field_count, stand_in_count, tag_count;
    value_t *fields;                /* in the order of the wire */
    stand_in_t *stand_ins;          /* arguments that are not sent */
    value_t *tags;
};

static layout_t *new_layout(PyObject *program);

static void free_layout(layout_t *layout);

static void free_value(value_t *value)
{
    if (value->element != NULL)
        free_value(value->element);
    PyMem_Free(value->element);
    free_layout(value->layout);
}

static void free_layout(layout_t *layout)
{
    if (layout == NULL)
        return;
    for (Py_ssize_t i = 0; i < layout->field_count; i++)
        free_value(&layout->fields[i]);
    for (Py_ssize_t i = 0; i < layout->tag_count; i++)
        free_value(&layout->tags[i]);
    PyMem_Free(layout->fields);
    PyMem_Free(layout->stand_ins);
    PyMem_Free(layout->tags);
    PyMem_Free(layout);
}

static void *zeroed(Py_ssize_t count, size_t size)
{
    void *made = PyMem_Calloc(count > 0 ? (size_t)count : 1, size);
    if (made == NULL)
        PyErr_NoMemory();
    return made;
}

static int set_value(value_t *value, PyObject *program)
{
    int kind, is_nullable, is_compact;
    PyObject *detail, *element;
    if (!PyArg_ParseTuple(program, "CUppO;a value", &kind, &value->name, &is_nullable, &is_compact, &detail))
        return -1;
    value->kind = (enum kind)kind;
    value->is_nullable = is_nullable;
    value->is_compact = is_compact;
    switch (value->kind) {
    case BOOL: case INT8: case INT16: case INT32: case INT64: case UINT16: case UINT32: case FLOAT64: case UUID:
    case TEXT: case BYTES: case RECORDS:
        return 0;
    case ARRAY:
        if (!PyArg_ParseTuple(detail, "nO;an array", &value->element_bytes_min, &element))
            return -1;
        if (value->element_bytes_min < 1)
            break;
        value->element = zeroed(1, sizeof(value_t));
        return value->element == NULL ? -1 : set_value(value->element, element);
    case STRUCT: case TAGGED_STRUCT:
        value->layout = new_layout(detail);
        return value->layout == NULL ? -1 : 0;
    }
    PyErr_Format(PyExc_ValueError, "%U is no value that can be read", value->name);
    return -1;
}

/* On failure an exception is set, and what was made is given all the same, for free_layout. */
static value_t *new_values(PyObject *programs, Py_ssize_t *count)
{
    value_t *values = zeroed(PyTuple_GET_SIZE(programs), sizeof(value_t));
    if (values == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(programs); i++) {
        PyObject *value;
        *count = i + 1;             /* also what has been begun must be freed */
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(programs, i), "nO;a field", &values[i].key, &value)
                || set_value(&values[i], value) < 0)
            break;
    }
    return values;
}

/* Whether each argument comes from one place: a hole would be a null pointer in a call. */
static bool covers_arguments(const layout_t *layout)
{
    Py_ssize_t count = layout->argument_count;
    if (layout->field_count + layout->stand_in_count != count)
        return false;
    bool *is_seen = zeroed(count, sizeof(bool));
    bool covers = is_seen != NULL;
    for (Py_ssize_t i = 0; covers && i < count; i++) {
        Py_ssize_t key = i < layout->field_count ? layout->fields[i].key
                                                 : layout->stand_ins[i - layout->field_count].key;
        covers = 0 <= key && key < count && !is_seen[key];
        if (covers)
            is_seen[key] = true;
    }
    PyMem_Free(is_seen);
    return covers;
}

static layout_t *new_layout(PyObject *program)
{
    PyObject *fields, *stand_ins, *tags;
    int is_flexible;
    layout_t *layout = zeroed(1, sizeof(layout_t));
    if (layout == NULL)
        return NULL;
    if (!PyArg_ParseTuple(program, "OpO!O!O!;a struct", &layout->cls, &is_flexible, &PyTuple_Type, &fields,
                          &PyTuple_Type, &stand_ins, &PyTuple_Type, &tags))
        goto failed;
    layout->is_flexible = is_flexible;
    layout->stand_ins = zeroed(PyTuple_GET_SIZE(stand_ins), sizeof(stand_in_t));
    if (layout->stand_ins == NULL)
        goto failed;
    for (; layout->stand_in_count < PyTuple_GET_SIZE(stand_ins); layout->stand_in_count++) {
        stand_in_t *stand_in = &layout->stand_ins[layout->stand_in_count];
        PyObject *given = PyTuple_GET_ITEM(stand_ins, layout->stand_in_count);
        if (!PyArg_ParseTuple(given, "nOO;a stand-in", &stand_in->key, &stand_in->factory, &stand_in->value))
            goto failed;
    }
    layout->fields = new_values(fields, &layout->field_count);
    if (PyErr_Occurred())
        goto failed;
    layout->tags = new_values(tags, &layout->tag_count);
    if (PyErr_Occurred())
        goto failed;
    layout->argument_count = layout->field_count + layout->stand_in_count;
    if (covers_arguments(layout))
        return layout;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "the arguments of %R are not filled in once each", layout->cls);
failed:
    free_layout(layout);
    return NULL;
}

/* ---------------------------------------------------------------- reading */

typedef struct {
    bytes_t start, position, end;
    PyObject *buffer;
    PyObject *view;                 /* a memoryview of the whole buffer, made for the first records */
    PyObject *label;
    int64_t elements_left, elements_max;    /* of all lists and tags that a message may still have, or have at all */
} reader_t;

static void *refuse(const reader_t *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    PyObject *reason = PyUnicode_FromFormatV(format, arguments);
    va_end(arguments);
    if (reason != NULL)
        PyErr_Format(malformed, "%U: %U", reader->label, reason);
    Py_XDECREF(reason);
    return NULL;
}

static inline Py_ssize_t left(const reader_t *reader)
{
    return reader->end - reader->position;
}

/* The next `size` bytes, or NULL and an exception. */
static inline bytes_t take(reader_t *reader, Py_ssize_t size)
{
    bytes_t taken = reader->position;
    if (size > left(reader))
        return refuse(reader, "the message ends before its last field");
    reader->position += size;
    return taken;
}

static inline uint16_t big16(bytes_t p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t big32(bytes_t p)
{
    return (uint32_t)big16(p) << 16 | big16(p + 2);
}

static inline uint64_t big64(bytes_t p)
{
    return (uint64_t)big32(p) << 32 | big32(p + 4);
}

static inline int read_uvarint(reader_t *reader, int64_t *value)
{
    uint64_t raw = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        bytes_t byte = take(reader, 1);
        if (byte == NULL)
            return -1;
        raw |= (uint64_t)(*byte & 0x7f) << shift;
        if (*byte < 0x80) {
            if (raw > LENGTH_MAX) {
                refuse(reader, "varint %llu is larger than any length can be", (unsigned long long)raw);
                return -1;
            }
            *value = (int64_t)raw;
            return 0;
        }
    }
    refuse(reader, "a varint of more than five bytes");
    return -1;
}

/* A length, -1 for null; a compact one counts one more than there is, so that 0 can stand for null. */
static inline int read_length(reader_t *reader, const value_t *value, int64_t *length)
{
    if (value->is_compact) {
        if (read_uvarint(reader, length) < 0)
            return -1;
        --*length;
        return 0;
    }
    bytes_t p = take(reader, value->kind == TEXT ? 2 : 4);
    if (p == NULL)
        return -1;
    *length = value->kind == TEXT ? (int16_t)big16(p) : (int32_t)big32(p);
    return 0;
}

/* Objects take much more memory than the bytes that they are made of, so that there is a limit to their number. */
static inline int count_elements(reader_t *reader, int64_t count)
{
    if (count > reader->elements_left) {
        refuse(reader, "more than %lld elements in all", (long long)reader->elements_max);
        return -1;
    }
    reader->elements_left -= count;
    return 0;
}

static PyObject *null_or_refuse(reader_t *reader, const value_t *value, int64_t length)
{
    if (length == -1 && value->is_nullable)
        Py_RETURN_NONE;
    return refuse(reader, "%U must not have length %lld", value->name, (long long)length);
}

static PyObject *read_struct(reader_t *reader, const layout_t *layout);

static PyObject *read_text(reader_t *reader, bytes_t data, Py_ssize_t length)
{
    PyObject *text = PyUnicode_DecodeUTF8((const char *)data, length, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return refuse(reader, "text that is not UTF-8");
    }
    return text;
}

static PyObject *read_records(reader_t *reader, Py_ssize_t start, Py_ssize_t stop)
{
    if (reader->view == NULL) {
        reader->view = PyMemoryView_FromObject(reader->buffer);
        if (reader->view == NULL)
            return NULL;
    }
    PyObject *first = PyLong_FromSsize_t(start), *last = PyLong_FromSsize_t(stop), *range = NULL, *records = NULL;
    if (first != NULL && last != NULL && (range = PySlice_New(first, last, NULL)) != NULL)
        records = PyObject_GetItem(reader->view, range);
    Py_XDECREF(first);
    Py_XDECREF(last);
    Py_XDECREF(range);
    return records;
}

static PyObject *read_sized(reader_t *reader, const value_t *value)
{
    int64_t length;
    if (read_length(reader, value, &length) < 0)
        return NULL;
    if (length < 0 || (value->kind == TEXT && length > TEXT_BYTES_MAX))
        return null_or_refuse(reader, value, length);
    if (length > left(reader))
        return refuse(reader, "%U has %lld bytes, more than are left", value->name, (long long)length);
    bytes_t data = reader->position;
    reader->position += length;
    if (value->kind == TEXT)
        return read_text(reader, data, (Py_ssize_t)length);
    if (value->kind == RECORDS)
        return read_records(reader, data - reader->start, reader->position - reader->start);
    return PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)length);
}

static inline PyObject *read_value(reader_t *reader, const value_t *value);

static PyObject *read_array(reader_t *reader, const value_t *value)
{
    int64_t length;
    if (read_length(reader, value, &length) < 0)
        return NULL;
    if (length < 0)
        return null_or_refuse(reader, value, length);
    if (length > left(reader) / value->element_bytes_min)
        return refuse(reader, "%U has %lld elements, more than fit", value->name, (long long)length);
    if (count_elements(reader, length) < 0)
        return NULL;
    PyObject *items = PyList_New((Py_ssize_t)length);
    for (Py_ssize_t i = 0; items != NULL && i < length; i++) {
        PyObject *item = read_value(reader, value->element);
        if (item == NULL)
            Py_CLEAR(items);
        else
            PyList_SET_ITEM(items, i, item);
    }
    return items;
}

static PyObject *read_nested(reader_t *reader, const value_t *value)
{
    if (value->is_nullable) {
        bytes_t marker = take(reader, 1);
        if (marker == NULL)
            return NULL;
        if (value->kind == TAGGED_STRUCT ? *marker == 0 : (int8_t)*marker < 0)
            Py_RETURN_NONE;
    }
    return read_struct(reader, value->layout);
}

static inline PyObject *read_value(reader_t *reader, const value_t *value)
{
    bytes_t p;
    switch (value->kind) {
    case BOOL:
        return (p = take(reader, 1)) == NULL ? NULL : PyBool_FromLong(*p);
    case INT8:
        return (p = take(reader, 1)) == NULL ? NULL : PyLong_FromLong((int8_t)*p);
    case INT16:
        return (p = take(reader, 2)) == NULL ? NULL : PyLong_FromLong((int16_t)big16(p));
    case UINT16:
        return (p = take(reader, 2)) == NULL ? NULL : PyLong_FromLong(big16(p));
    case INT32:
        return (p = take(reader, 4)) == NULL ? NULL : PyLong_FromLong((int32_t)big32(p));
    case UINT32:
        return (p = take(reader, 4)) == NULL ? NULL : PyLong_FromUnsignedLong(big32(p));
    case INT64:
        return (p = take(reader, 8)) == NULL ? NULL : PyLong_FromLongLong((int64_t)big64(p));
    case FLOAT64:
        return (p = take(reader, 8)) == NULL ? NULL : PyFloat_FromDouble(PyFloat_Unpack8((const char *)p, 0));
    case UUID:
        return (p = take(reader, UUID_BYTES)) == NULL ? NULL
            : PyBytes_FromStringAndSize((const char *)p, UUID_BYTES);
    case TEXT: case BYTES: case RECORDS:
        return read_sized(reader, value);
    case ARRAY:
        return read_array(reader, value);
    case STRUCT: case TAGGED_STRUCT:
        return read_nested(reader, value);
    }
    Py_UNREACHABLE();
}

static int put(PyObject *holder, PyObject *name, PyObject *value)
{
    PyObject *done = PyObject_CallFunctionObjArgs(force_setattr, holder, name, value, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int read_known_tag(reader_t *reader, const value_t *value, bytes_t stop, PyObject *holder)
{
    bytes_t start = reader->position, end = reader->end;
    reader->end = stop;
    PyObject *read = read_value(reader, value);
    reader->end = end;
    if (read == NULL)
        return -1;
    int result = -1;
    if (reader->position != stop)
        refuse(reader, "tag %zd (%U) takes %zd bytes, not %zd", value->key, value->name, stop - start,
               reader->position - start);
    else
        result = put(holder, value->name, read);
    Py_DECREF(read);
    return result;
}

static int read_unknown_tag(reader_t *reader, int64_t tag, bytes_t stop, PyObject *unknown)
{
    PyObject *key = PyLong_FromLongLong(tag);
    PyObject *data = PyBytes_FromStringAndSize((const char *)reader->position, stop - reader->position);
    int result = key == NULL || data == NULL ? -1 : PyDict_SetItem(unknown, key, data);
    reader->position = stop;
    Py_XDECREF(key);
    Py_XDECREF(data);
    return result;
}

/* Read tagged values into `holder`; those that the version does not know are kept as bytes. */
static int read_tags(reader_t *reader, const layout_t *layout, PyObject *holder)
{
    int64_t count, tag, size;
    if (read_uvarint(reader, &count) < 0 || count_elements(reader, count) < 0)
        return -1;
    PyObject *unknown = NULL;
    int result = 0;
    for (; count > 0 && result == 0; count--) {
        result = -1;
        if (read_uvarint(reader, &tag) < 0 || read_uvarint(reader, &size) < 0)
            break;
        if (size > left(reader)) {
            refuse(reader, "tag %lld of %lld bytes reaches past the end of the message", (long long)tag,
                   (long long)size);
            break;
        }
        bytes_t stop = reader->position + size;
        const value_t *known = NULL;
        for (Py_ssize_t i = 0; i < layout->tag_count && known == NULL; i++)
            if (layout->tags[i].key == tag)
                known = &layout->tags[i];
        if (known != NULL) {
            result = read_known_tag(reader, known, stop, holder);
            continue;
        }
        if (unknown == NULL
                && ((unknown = PyDict_New()) == NULL || put(holder, unknown_tags_name, unknown) < 0))
            break;
        result = read_unknown_tag(reader, tag, stop, unknown);
    }
    Py_XDECREF(unknown);
    return result;
}

static PyObject *stand_in_for(const stand_in_t *stand_in)
{
    return stand_in->factory == Py_None ? Py_NewRef(stand_in->value) : PyObject_CallNoArgs(stand_in->factory);
}

static PyObject *read_struct(reader_t *reader, const layout_t *layout)
{
    PyObject *made = NULL;
    PyObject *vector[layout->argument_count + 1];   /* a call may use the one before the arguments */
    PyObject **arguments = vector + 1;
    memset(vector, 0, sizeof vector);
    for (const value_t *field = layout->fields; field < layout->fields + layout->field_count; field++)
        if ((arguments[field->key] = read_value(reader, field)) == NULL)
            goto done;
    for (Py_ssize_t i = 0; i < layout->stand_in_count; i++)
        if ((arguments[layout->stand_ins[i].key] = stand_in_for(&layout->stand_ins[i])) == NULL)
            goto done;
    made = PyObject_Vectorcall(layout->cls, arguments,
                               (size_t)layout->argument_count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (made != NULL && layout->is_flexible && read_tags(reader, layout, made) < 0)
        Py_CLEAR(made);
done:
    for (Py_ssize_t i = 0; i < layout->argument_count; i++)
        Py_XDECREF(arguments[i]);
    return made;
}

/* ---------------------------------------------------------------- the type */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *program;
    PyObject *label;
    layout_t *layout;
    int64_t elements_max;
} decoder_t;

static PyObject *decode_at(decoder_t *decoder, PyObject *buffer, const Py_buffer *bytes, Py_ssize_t position,
                           Py_ssize_t end)
{
    if (position < 0 || end < 0 || end > bytes->len) {
        PyErr_Format(PyExc_ValueError, "bytes %zd to %zd of a buffer of %zd", position, end, bytes->len);
        return NULL;
    }
    reader_t reader = {.start = bytes->buf, .buffer = buffer, .label = decoder->label,
                       .elements_left = decoder->elements_max, .elements_max = decoder->elements_max};
    reader.end = reader.start + end;
    if (position > end)
        return refuse(&reader, "the message ends before its last field");
    reader.position = reader.start + position;
    PyObject *message = read_struct(&reader, decoder->layout);
    Py_XDECREF(reader.view);
    return message == NULL ? NULL : Py_BuildValue("Nn", message, reader.position - reader.start);
}

static PyObject *decoder_call(PyObject *self, PyObject *const *arguments, size_t nargsf, PyObject *names)
{
    if (PyVectorcall_NARGS(nargsf) != 3 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "a decoder takes a buffer, a position and an end");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(arguments[1]);
    if (position == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t end = PyLong_AsSsize_t(arguments[2]);
    if (end == -1 && PyErr_Occurred())
        return NULL;
    Py_buffer bytes;
    if (PyObject_GetBuffer(arguments[0], &bytes, PyBUF_ND) < 0)
        return NULL;
    PyObject *result = NULL;
    if (bytes.ndim != 1 || bytes.itemsize != 1)     /* or views of records would be cut elsewhere */
        PyErr_SetString(PyExc_TypeError, "a decoder reads plain bytes");
    else
        result = decode_at((decoder_t *)self, arguments[0], &bytes, position, end);
    PyBuffer_Release(&bytes);
    return result;
}

static PyObject *decoder_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *program, *label;
    long long elements_max;
    static char *keywords[] = {"program", "label", "elements_max", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!UL:Decoder", keywords, &PyTuple_Type, &program, &label,
                                     &elements_max))
        return NULL;
    decoder_t *decoder = (decoder_t *)type->tp_alloc(type, 0);
    if (decoder == NULL)
        return NULL;
    decoder->vectorcall = decoder_call;
    decoder->program = Py_NewRef(program);
    decoder->label = Py_NewRef(label);
    decoder->elements_max = elements_max;
    decoder->layout = new_layout(program);
    if (decoder->layout == NULL)
        Py_CLEAR(decoder);
    return (PyObject *)decoder;
}

static void decoder_dealloc(PyObject *self)
{
    decoder_t *decoder = (decoder_t *)self;
    PyTypeObject *type = Py_TYPE(self);
    free_layout(decoder->layout);
    Py_XDECREF(decoder->program);
    Py_XDECREF(decoder->label);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef decoder_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(decoder_t, vectorcall), READONLY, NULL},
    {NULL}
};

static PyType_Slot decoder_slots[] = {
    {Py_tp_doc, "Decoder(program, label, elements_max)(buffer, position, end) -> (message, position)"},
    {Py_tp_new, decoder_new},
    {Py_tp_dealloc, decoder_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, decoder_members},
    {0, NULL}
};

static PyType_Spec decoder_spec = {
    .name = "moldau.wire._decoder.Decoder",
    .basicsize = sizeof(decoder_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = decoder_slots,
};

/* ---------------------------------------------------------------- the module */

static PyObject *imported(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *found = module == NULL ? NULL : PyObject_GetAttrString(module, name);
    Py_XDECREF(module);
    return found;
}

static int execute(PyObject *module)
{
    /* The switch is read here and not in compiler.py, which is pure and has no business with the environment. */
    const char *choice = getenv("MOLDAU_KERNEL");
    if (choice != NULL && strcmp(choice, "pure") == 0) {
        PyErr_SetString(PyExc_ImportError, "MOLDAU_KERNEL=pure turns the compiled decoder off");
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
    if ((malformed = imported("moldau.model.errors", "MalformedMessage")) == NULL
            || (force_setattr = imported("msgspec.structs", "force_setattr")) == NULL
            || (unknown_tags_name = PyUnicode_InternFromString("unknown_tags")) == NULL)
        return -1;
    PyObject *type = PyType_FromSpec(&decoder_spec);
    int result = type == NULL ? -1 : PyModule_AddObjectRef(module, "Decoder", type);
    Py_XDECREF(type);
    return result;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},     /* what is imported is shared */
#endif
    {0, NULL}
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_decoder",
    .m_doc = "The compiled decoder of messages; see compiler.py.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__decoder(void)
{
    return PyModuleDef_Init(&definition);
}
