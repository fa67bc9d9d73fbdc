"""One encoder and one decoder per (message, version), made from its declaration on first use.

Encoders are straight Python, specialised until nothing is left to look up: fields that the version does not
have are gone, and every run of fixed-size fields, together with the length in front of the next string or
array and the count of tags behind it, is one `struct` call. `source_of` shows what was written.

Decoders come in two kinds that give the same messages and the same complaints: a program for the interpreter
in `_decoder.c` where that is compiled, and else straight Python again. Both trust nothing: no read goes past
the end, and a count is checked against the bytes that are left before anything is made of it. Requests may
have only so many elements in all, since objects take much more memory than the bytes that stand for them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec.structs import force_setattr

from moldau.model.errors import MalformedMessage
from moldau.wire.compiled import warn_of_stale, why_stale
from moldau.wire.types import BYTES, RECORDS, STRING, FieldSpec, FileSlice, Fixed, Sized, Struct, Versions

# Why there is a compiled decoder, but none that could be used.
STALE: str | None = None

if TYPE_CHECKING:
    from moldau.wire._decoder import Decoder as _Interpreter

    HAS_INTERPRETER: bool
else:
    HAS_INTERPRETER = False
    try:
        # MOLDAU_KERNEL=pure makes this import fail: C looks at the environment, pure code may not.
        from moldau.wire import _decoder

        STALE = why_stale(_decoder, ["Decoder"])
    except ImportError:
        pass
    except AttributeError as error:
        STALE = f"it does not fit the code around it: {error}"
    else:
        if STALE is None:
            _Interpreter = _decoder.Decoder
            HAS_INTERPRETER = True
    if STALE is not None:
        warn_of_stale("moldau.wire._decoder", STALE)

Buffer = bytes | bytearray | memoryview
Chunk = bytes | bytearray | memoryview | FileSlice
S = TypeVar("S", bound=Struct)
S_co = TypeVar("S_co", bound=Struct, covariant=True)

# Kafka limits text to what an int16 can count, in the compact encoding too.
STRING_BYTES_MAX = 32767


class UnencodableMessage(ValueError):
    """A message that cannot be written in the version asked for: which field, and why."""


class Encoder(Protocol):
    """Appends the bytes of a message to a list of chunks."""

    def __call__(self, message: Any, chunks: list[Chunk]) -> None: ...


class Decoder(Protocol[S_co]):
    """Reads a message from `buffer` at `position`, never past `end`; gives it and the position behind it."""

    def __call__(self, buffer: Buffer, position: int, end: int, /) -> tuple[S_co, int]: ...


@cache
def encoder(cls: type[Struct], version: int) -> Encoder:
    """The encoder of `cls` at `version`."""
    writer = _EncoderWriter(cls, version)
    built: Encoder = writer.build("encode")
    return built


def compiled_decoder(cls: type[Struct], version: int) -> Any:
    """The decoder that is interpreted in C; only there if `HAS_INTERPRETER`."""
    return _Interpreter(program_of(cls, version), _label(cls, version), cls.elements_max)


def python_decoder(cls: type[Struct], version: int) -> Any:
    """Its twin, the decoder in Python."""
    return _DecoderWriter(cls, version).build("decode")


class DecoderOf(Protocol):
    """The decoder of a class at a version."""

    def __call__(self, cls: type[S], version: int) -> Decoder[S]: ...


decoder: DecoderOf = cache(compiled_decoder if HAS_INTERPRETER else python_decoder)


def source_of(cls: type[Struct], version: int) -> str:
    """The code of both directions in Python, for people who want to read it."""
    writers: list[_Writer] = [_EncoderWriter(cls, version), _DecoderWriter(cls, version)]
    return "\n".join(writer.source() for writer in writers)


# ---------------------------------------------------------------- what a declaration means in one version


class ArrayOf(msgspec.Struct, frozen=True):
    """The type of a field that holds a list."""

    element: Any


class Slot(msgspec.Struct, frozen=True):
    """A field as one version sees it."""

    name: str
    type: Any  # Fixed | Sized | ArrayOf | type[Struct]
    spec: FieldSpec
    is_nullable: bool
    is_compact: bool
    default: object


@cache
def types_of(cls: type[Struct]) -> dict[str, Any]:
    """The wire type of each field: a Fixed, a Sized, an ArrayOf, or a Struct class."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: _wire_type(hints[name], f"{cls.__name__}.{name}") for name in cls.declaration.fields}


def _wire_type(hint: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin is Annotated:
        return get_args(hint)[1]
    if origin in (Union, UnionType):
        options = [option for option in get_args(hint) if option is not NoneType]
        assert len(options) == 1, f"{where}: a field has one type, or one type and None"
        return _wire_type(options[0], where)
    if origin is list:
        return ArrayOf(_wire_type(get_args(hint)[0], where))
    assert isinstance(hint, type) and issubclass(hint, Struct), f"{where}: {hint!r} is not a wire type"
    return hint


def slots_of(cls: type[Struct], version: int, is_flexible: bool) -> tuple[list[Slot], list[Slot], list[Slot]]:
    """The fields that stand in order, the tagged ones by tag, and those that the version lacks."""
    ordered: list[Slot] = []
    tagged: list[Slot] = []
    absent: list[Slot] = []
    types = types_of(cls)
    for name, spec in cls.declaration.fields.items():
        slot = Slot(
            name=name,
            type=types[name],
            spec=spec,
            is_nullable=spec.nullable.includes(version),
            is_compact=is_flexible and (spec.flexible or Versions(0, version)).includes(version),
            default=default_of(spec, types[name]),
        )
        if not spec.versions.includes(version):
            absent.append(slot)
        elif spec.tag is not None:
            tagged.append(slot)
        else:
            ordered.append(slot)
    tagged.sort(key=lambda slot: slot.spec.tag or 0)
    return ordered, tagged, absent


def default_of(spec: FieldSpec, wire_type: Any) -> object:
    """What a version without the field is read as: the declared default, or the zero of its type."""
    if spec.default_factory is not None:
        return spec.default_factory()
    if spec.default is not msgspec.NODEFAULT:
        return spec.default
    match wire_type:
        case Fixed(zero=zero):
            return zero
        case Sized():
            return "" if wire_type is STRING else b""
        case ArrayOf():
            return []
        case _:
            return None


def _label(cls: type[Struct], version: int) -> str:
    """How complaints name a message, which must have the version."""
    versions = cls.declaration.versions
    if not versions.includes(version):
        raise UnencodableMessage(f"{cls.__name__} has versions {versions}, not {version}")
    return f"{cls.__name__} v{version}"


def _arguments(cls: type[Struct], sent: list[Slot]) -> list[str]:
    """The fields that a constructor must be given, by position; behind them are only defaults."""
    names = [name for name in cls.__struct_fields__ if name in cls.declaration.fields]
    needed = {slot.name for slot in sent}
    needed |= {name for name in names if not _has_default(cls.declaration.fields[name])}
    while names and names[-1] not in needed:
        names.pop()
    return names


def _has_default(spec: FieldSpec) -> bool:
    return spec.default_factory is not None or spec.default is not msgspec.NODEFAULT


class StandIn(NamedTuple):
    """What a field holds that was not sent: what the factory makes, or the value itself."""

    factory: Callable[[], object] | None
    value: object


def _stand_in(cls: type[Struct], name: str) -> StandIn:
    spec = cls.declaration.fields[name]
    value = default_of(spec, types_of(cls)[name])
    # A list must not be shared between messages.
    return StandIn(list if value == [] else spec.default_factory, value)


@cache
def _size_min(element: Any, version: int, is_flexible: bool) -> int:
    """The fewest bytes that an element of an array can take."""
    match element:
        case Fixed(letter=letter):
            return struct.calcsize(">" + letter)
        case Sized() | ArrayOf():
            if is_flexible:
                return 1
            return 2 if element is STRING else 4
    types = types_of(element)
    total = 1 if is_flexible else 0
    for name, spec in element.declaration.fields.items():
        if not spec.versions.includes(version) or spec.tag is not None:
            continue
        is_struct = isinstance(types[name], type)
        if is_struct and spec.nullable.includes(version):
            total += 1
        else:
            total += _size_min(types[name], version, is_flexible)
    return max(1, total)


# ---------------------------------------------------------------- programs for the interpreter in C

# A fixed type is known by its letter, a uuid by the last of "16s"; see `enum kind` in `_decoder.c`.
_SIZED_KINDS = {STRING: "T", BYTES: "Y", RECORDS: "R"}
_ARRAY_KIND, _STRUCT_KIND, _TAGGED_STRUCT_KIND = "A", "S", "G"


class ValueProgram(NamedTuple):
    """How to read one value; `detail` is what its kind needs to know."""

    kind: str
    name: str
    is_nullable: bool
    is_compact: bool
    detail: Any  # of an array: the fewest bytes of an element, and how to read it; of a struct: its program


class StructProgram(NamedTuple):
    """How to read a struct: its fields, each with its place among the arguments of `cls`, and its tags."""

    cls: type[Struct]
    is_flexible: bool
    fields: tuple[tuple[int, ValueProgram], ...]
    stand_ins: tuple[tuple[int, Callable[[], object] | None, object], ...]
    tags: tuple[tuple[int, ValueProgram], ...]


def program_of(cls: type[Struct], version: int) -> StructProgram:
    """What the interpreter must know to read `cls` at `version`."""
    return _struct_program(cls, version, cls.declaration.flexible.includes(version))


def _struct_program(cls: type[Struct], version: int, is_flexible: bool) -> StructProgram:
    ordered, tagged, _ = slots_of(cls, version, is_flexible)
    arguments = _arguments(cls, ordered)
    sent = {slot.name for slot in ordered}

    def program(slot: Slot) -> ValueProgram:
        return _value_program(slot, slot.type, version, is_flexible)

    return StructProgram(
        cls=cls,
        is_flexible=is_flexible,
        fields=tuple((arguments.index(slot.name), program(slot)) for slot in ordered),
        stand_ins=tuple(
            (index, *_stand_in(cls, name)) for index, name in enumerate(arguments) if name not in sent
        ),
        tags=tuple((slot.spec.tag or 0, program(slot)) for slot in tagged),
    )


def _value_program(slot: Slot, wire_type: Any, version: int, is_flexible: bool) -> ValueProgram:
    detail: Any = None
    match wire_type:
        case Fixed(letter=letter):
            kind = letter[-1]
        case Sized():
            kind = _SIZED_KINDS[wire_type]
        case ArrayOf(element=element):
            kind = _ARRAY_KIND
            inner = _value_program(slot, element, version, is_flexible)._replace(is_nullable=False)
            detail = (_size_min(element, version, is_flexible), inner)
        case _:
            # A tag says null by 0 in front of a struct, everything else by -1.
            kind = _STRUCT_KIND if slot.spec.tag is None else _TAGGED_STRUCT_KIND
            detail = _struct_program(wire_type, version, is_flexible)
    return ValueProgram(kind, slot.name, slot.is_nullable, slot.is_compact, detail)


# ---------------------------------------------------------------- writing code


class _Writer:
    """Lines of Python and the objects they refer to; `letters` are fixed-size values still pending."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        self.label = _label(cls, version)
        self.cls = cls
        self.version = version
        self.is_flexible = cls.declaration.flexible.includes(version)
        self.lines: list[str] = []
        self.objects: dict[str, object] = {}
        self.depth = 1
        self.count = 0
        self.letters = ""

    def build(self, name: str) -> Any:
        source = self.source()
        return _compiled([source], self.objects, name, self.label)

    def source(self) -> str:
        raise AssertionError("a direction defines this")

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def name_of(self, stem: str, value: object) -> str:
        """A global name for `value` in the generated code; equal values share one."""
        for name, known in self.objects.items():
            if known is value:
                return name
        name = self.fresh(f"{stem}_")
        self.objects[name] = value
        return name

    def struct_call(self, method: str, letters: str) -> str:
        """The name of a bound method of the compiled `struct.Struct` for `letters`."""
        name = f"{method}_{letters.replace('?', 'o')}"
        self.objects.setdefault(name, getattr(struct.Struct(">" + letters), method))
        return name

    def indented(self) -> _Indent:
        return _Indent(self)


def _compiled(lines: list[str], objects: dict[str, object], name: str, label: str) -> Any:
    """The function `name` that `lines` define."""
    namespace = dict(objects)
    exec(compile("\n".join(lines), f"<{name} {label}>", "exec"), namespace)
    return namespace[name]


class _Indent:
    """One more level of indentation while the block lasts."""

    def __init__(self, writer: _Writer) -> None:
        self.writer = writer

    def __enter__(self) -> None:
        self.writer.depth += 1

    def __exit__(self, *_: object) -> None:
        self.writer.depth -= 1


class _EncoderWriter(_Writer):
    """Writes `encode(message, chunks)`."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        super().__init__(cls, version)
        self.arguments: list[str] = []
        self.objects["uvarint"] = encode_uvarint
        self.objects["put_tags"] = _put_tags

    def source(self) -> str:
        self.lines = ["def encode(message, chunks):"]
        self.emit("put = chunks.append")
        self.emit("try:")
        with self.indented():
            self.struct(self.cls, "message")
            self.flush()
            self.emit("return")
        self.objects["errors"] = (AttributeError, TypeError, ValueError, OverflowError, struct.error)
        self.objects["explain"] = _explain
        self.emit("except errors as error:")
        self.emit(f"    raise explain(message, {self.version}, error) from error")
        return "\n".join(self.lines) + "\n"

    def fixed(self, letter: str, argument: str | None) -> None:
        self.letters += letter
        if argument is not None:
            self.arguments.append(argument)

    def flush(self) -> None:
        """Write what is pending as one packed chunk."""
        if self.letters:
            self.emit(f"put({self.packed(self.letters)})")
        self.letters = ""
        self.arguments = []

    def packed(self, letters: str, *more: str) -> str:
        if not self.arguments and not more:
            return repr(bytes(struct.calcsize(">" + letters)))
        return f"{self.struct_call('pack', letters)}({', '.join([*self.arguments, *more])})"

    def struct(self, cls: type[Struct], holder: str) -> None:
        ordered, tagged, absent = slots_of(cls, self.version, self.is_flexible)
        self.refuse_what_the_version_lacks(cls, holder, absent)
        for slot in ordered:
            self.value(slot.type, f"{holder}.{slot.name}", slot.is_nullable, slot.is_compact)
        if self.is_flexible:
            self.tags(holder, tagged)

    def refuse_what_the_version_lacks(self, cls: type[Struct], holder: str, absent: list[Slot]) -> None:
        for slot in absent:
            if not slot.spec.ignorable:
                self.emit(f"if not ({self.is_default_test(f'{holder}.{slot.name}', slot.default)}):")
                what = (
                    f"{cls.__name__}.{slot.name} is not in version {self.version} and must keep its default"
                )
                self.emit(f"    raise ValueError({what!r})")

    def is_default_test(self, expression: str, default: object) -> str:
        """Code that is true when `expression` holds `default`."""
        if default is None:
            return f"{expression} is None"
        if default == [] or default == b"" or default == "" or default is False:
            return f"not {expression} and {expression} is not None"
        if isinstance(default, Struct):
            return f"{expression} == {self.name_of('default', default)}"
        return f"{expression} == {default!r}"

    def value(self, wire_type: Any, expression: str, is_nullable: bool, is_compact: bool) -> None:
        match wire_type:
            case Fixed(letter=letter):
                self.fixed(letter, self.checked_uuid(expression) if letter == "16s" else expression)
            case Sized():
                self.sized(wire_type, expression, is_nullable, is_compact)
            case ArrayOf(element=element):
                self.array(element, expression, is_nullable, is_compact)
            case _:
                self.nested(wire_type, expression, is_nullable)

    def checked_uuid(self, expression: str) -> str:
        # struct would pad a short id with zeros and cut a long one, both silently.
        self.objects["uuid"] = _whole_uuid
        return f"uuid({expression})"

    def sized(self, wire_type: Sized, expression: str, is_nullable: bool, is_compact: bool) -> None:
        data, length = self.fresh("data"), self.fresh("length")
        self.emit(f"{data} = {expression}")
        encoded = f"{data}.encode()" if wire_type is STRING else data
        bump = " + 1" if is_compact else ""
        if is_nullable:
            self.emit(f"if {data} is None:")
            self.emit(f"    {data} = b''; {length} = {0 if is_compact else -1}")
            self.emit("else:")
            self.emit(f"    {data} = {encoded}; {length} = len({data}){bump}")
        else:
            if encoded != data:
                self.emit(f"{data} = {encoded}")
            self.emit(f"{length} = len({data}){bump}")
        if is_compact:
            self.compact_length(length, STRING_BYTES_MAX if wire_type is STRING else None)
        else:
            self.fixed("h" if wire_type is STRING else "i", length)
            self.flush()
        self.emit(f"put({data})")

    def compact_length(self, length: str, bytes_max: int | None) -> None:
        """Write what is pending and a length; nearly all lengths are one byte, and packed in one go."""
        self.emit(f"if {length} < 128:")
        self.emit(f"    put({self.packed(self.letters + 'B', length)})")
        self.emit("else:")
        if bytes_max is not None:
            self.emit(
                f"    if {length} > {bytes_max + 1}: raise ValueError('text of more than {bytes_max} bytes')"
            )
        with self.indented():
            self.flush()
            self.emit(f"put(uvarint({length}))")

    def array(self, element: Any, expression: str, is_nullable: bool, is_compact: bool) -> None:
        items, length = self.fresh("items"), self.fresh("length")
        self.emit(f"{items} = {expression}")
        if is_nullable:
            self.emit(f"if {items} is None:")
            self.emit(f"    {items} = (); {length} = {0 if is_compact else -1}")
            self.emit("else:")
            self.emit(f"    {length} = len({items}){' + 1' if is_compact else ''}")
        else:
            self.emit(f"{length} = len({items}){' + 1' if is_compact else ''}")
        if is_compact:
            self.compact_length(length, None)
        else:
            self.fixed("i", length)
            self.flush()
        if isinstance(element, Fixed) and element.letter != "16s":
            self.objects["pack"] = struct.pack
            self.emit(f"if {items}: put(pack('>%d{element.letter}' % len({items}), *{items}))")
            return
        item = self.fresh("item")
        self.emit(f"for {item} in {items}:")
        with self.indented():
            if isinstance(element, type):
                self.struct(element, item)
            else:
                self.value(element, item, False, is_compact)
            self.flush()

    def nested(self, cls: type[Struct], expression: str, is_nullable: bool, null: bytes = b"\xff") -> None:
        inner = self.fresh("inner")
        self.emit(f"{inner} = {expression}")
        if not is_nullable:
            self.struct(cls, inner)
            return
        self.flush()
        self.emit(f"if {inner} is None:")
        self.emit(f"    put({null!r})")
        self.emit("else:")
        with self.indented():
            self.fixed("b", "1")
            self.struct(cls, inner)
            self.flush()

    def tags(self, holder: str, tagged: list[Slot]) -> None:
        """End a flexible struct; without tags by one zero byte, packed with what stands before it."""
        conditions = [f"{holder}.unknown_tags"]
        conditions += [
            f"not ({self.is_default_test(f'{holder}.{slot.name}', slot.default)})" for slot in tagged
        ]
        self.emit(f"if {' or '.join(conditions)}:")
        letters, arguments = self.letters, self.arguments
        with self.indented():
            self.flush()
            table = self.fresh("tags_")
            self.objects[table] = tuple(
                (slot.spec.tag, slot.name, slot.default, _tag_encoder(self, slot)) for slot in tagged
            )
            self.emit(f"put_tags({holder}, {table}, put)")
        self.emit("else:")
        self.letters, self.arguments = letters + "x", arguments
        with self.indented():
            self.flush()


def _tag_encoder(parent: _EncoderWriter, slot: Slot) -> Callable[[object], bytes]:
    """An encoder of one tagged value, which needs its size in front and is therefore built apart."""
    writer = _EncoderWriter(parent.cls, parent.version)
    writer.lines = ["def encode_tag(value):"]
    writer.emit("chunks = []; put = chunks.append")
    if isinstance(slot.type, type):
        writer.nested(slot.type, "value", slot.is_nullable, null=b"\0")
    else:
        writer.value(slot.type, "value", slot.is_nullable, slot.is_compact)
    writer.flush()
    writer.emit("return b''.join(chunks)")
    built: Callable[[object], bytes] = _compiled(
        writer.lines, writer.objects, "encode_tag", f"{parent.label} {slot.name}"
    )
    return built


def _put_tags(
    holder: Struct,
    table: tuple[tuple[int, str, object, Callable[[object], bytes]], ...],
    put: Callable[[bytes], None],
) -> None:
    tags = dict(holder.unknown_tags or {})
    for tag, name, default, encode in table:
        value = getattr(holder, name)
        if value != default:
            tags[tag] = encode(value)
    put(encode_uvarint(len(tags)))
    for tag in sorted(tags):
        put(encode_uvarint(tag) + encode_uvarint(len(tags[tag])))
        put(tags[tag])


def _whole_uuid(value: bytes) -> bytes:
    if len(value) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
    return value


class _DecoderWriter(_Writer):
    """Writes `decode(buffer, position, end)`; inside, `buffer` goes no further than `end`."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        super().__init__(cls, version)
        self.targets: list[str] = []
        self.has_views = False
        self.objects |= {
            "uvarint": decode_uvarint,
            "take_tags": _take_tags,
            "count_elements": _count_elements,
            "Malformed": MalformedMessage,
            "too_short": (IndexError, struct.error),
        }

    def source(self) -> str:
        self.lines = ["def decode(buffer, position, end):"]
        self.emit("if end != len(buffer): buffer = memoryview(buffer)[:end]")
        self.emit(f"room = [{self.cls.elements_max}] * 2")
        self.emit("try:")
        with self.indented():
            self.emit(f"return {self.struct(self.cls)}, position")
        if self.has_views:
            self.lines.insert(2, "    view = memoryview(buffer)")
        self.emit("except too_short: reason = 'the message ends before its last field'")
        self.emit("except UnicodeDecodeError: reason = 'text that is not UTF-8'")
        self.emit("except Malformed as error: reason = str(error)")
        self.emit(f"raise Malformed('{self.label}: ' + reason)")
        return "\n".join(self.lines) + "\n"

    def fixed(self, letter: str, target: str) -> None:
        self.letters += letter
        self.targets.append(target)

    def flush(self) -> None:
        """Read what is pending with one call."""
        if self.letters == "B":
            self.emit(f"{self.targets[0]} = buffer[position]; position += 1")
        elif self.letters:
            targets = ", ".join(self.targets) + ("," if len(self.targets) == 1 else "")
            self.emit(f"{targets} = {self.struct_call('unpack_from', self.letters)}(buffer, position)")
            self.emit(f"position += {struct.calcsize('>' + self.letters)}")
        self.letters = ""
        self.targets = []

    def struct(self, cls: type[Struct]) -> str:
        """Code that reads the fields and tags of `cls`; gives the name that the object is bound to."""
        ordered, tagged, _ = slots_of(cls, self.version, self.is_flexible)
        bound = {
            slot.name: self.value(slot.type, slot.name, slot.is_nullable, slot.is_compact) for slot in ordered
        }
        made, tag_count = self.fresh("made"), self.fresh("tag_count")
        if self.is_flexible:
            self.fixed("B", tag_count)
        self.flush()
        arguments = [bound.get(name) or self.stand_in(cls, name) for name in _arguments(cls, ordered)]
        # Positional arguments are by far the fastest.
        self.emit(f"{made} = {self.name_of(cls.__name__, cls)}({', '.join(arguments)})")
        if self.is_flexible:
            table = self.fresh("tags_")
            self.objects[table] = {slot.spec.tag: (slot.name, _tag_decoder(self, slot)) for slot in tagged}
            self.emit(
                f"if {tag_count}: position = take_tags(buffer, position - 1, end, {table}, {made}, room)"
            )
        return made

    def stand_in(self, cls: type[Struct], name: str) -> str:
        """Code for what a field holds that was not sent."""
        factory, value = _stand_in(cls, name)
        if factory is not None:
            return f"{self.name_of('make', factory)}()"
        return self.name_of("default", value) if isinstance(value, Struct) else repr(value)

    def value(self, wire_type: Any, stem: str, is_nullable: bool, is_compact: bool) -> str:
        """Code that reads one value; gives the name it is bound to."""
        target = self.fresh(f"{stem}_")
        match wire_type:
            case Fixed(letter=letter):
                self.fixed(letter, target)
            case Sized():
                self.sized(wire_type, stem, target, is_nullable, is_compact)
            case ArrayOf(element=element):
                self.array(element, stem, target, is_nullable, is_compact)
            case _:
                self.nested(wire_type, target, is_nullable)
        return target

    def sized(self, wire_type: Sized, stem: str, target: str, is_nullable: bool, is_compact: bool) -> None:
        length = self.length("h" if wire_type is STRING else "i", is_compact)
        # Only a compact length can be more than text may have.
        is_limited = wire_type is STRING and is_compact
        self.emit(f"if 0 <= {length} <= {STRING_BYTES_MAX}:" if is_limited else f"if {length} >= 0:")
        with self.indented():
            self.emit(f"stop = position + {length}")
            # A slice of bytes that are not there would be shorter than what was promised.
            self.emit(f"if stop > end: raise Malformed('{stem} has %d bytes, more than are left' % {length})")
            if wire_type is STRING:
                self.emit(f"{target} = str(buffer[position:stop], 'utf-8'); position = stop")
            elif wire_type is RECORDS:
                self.has_views = True
                self.emit(f"{target} = view[position:stop]; position = stop")
            else:
                self.emit(f"{target} = bytes(buffer[position:stop]); position = stop")
        self.null_or_refuse(length, stem, target, is_nullable)

    def array(self, element: Any, stem: str, target: str, is_nullable: bool, is_compact: bool) -> None:
        length = self.length("i", is_compact)
        self.emit(f"if {length} == 0: {target} = []")
        self.emit(f"elif {length} > 0:")
        with self.indented():
            self.emit(f"if {length} * {_size_min(element, self.version, self.is_flexible)} > end - position:")
            self.emit(f"    raise Malformed('{stem} has %d elements, more than fit' % {length})")
            self.emit(f"count_elements(room, {length})")
            if isinstance(element, Fixed):
                self.fixed_elements(element, target, length)
            else:
                self.emit(f"{target} = []")
                self.emit(f"for _ in range({length}):")
                with self.indented():
                    self.emit(f"{target}.append({self.element(element, stem, is_compact)})")
        self.null_or_refuse(length, stem, target, is_nullable)

    def element(self, element: Any, stem: str, is_compact: bool) -> str:
        if isinstance(element, type):
            return self.struct(element)
        return self.value(element, stem, False, is_compact)

    def fixed_elements(self, element: Fixed, target: str, length: str) -> None:
        """Code that reads all elements at once."""
        size = struct.calcsize(">" + element.letter)
        self.emit(f"stop = position + {size} * {length}")
        elements = self.struct_call("iter_unpack", element.letter)
        self.emit(f"{target} = [item for item, in {elements}(buffer[position:stop])]; position = stop")

    def length(self, letter: str, is_compact: bool) -> str:
        """Code that reads a length, -1 for null; gives the name it is bound to."""
        length = self.fresh("length")
        self.fixed("B" if is_compact else letter, length)
        self.flush()
        if is_compact:
            # Most records have a length of two bytes, put together here; a third is left to the function.
            self.emit(f"if {length} > 127:")
            self.emit(f"    {length} += (buffer[position] << 7) - 128; position += 1")
            self.emit(f"    if {length} > 16383: {length}, position = uvarint(buffer, position - 2)")
            # A compact length counts one more than there is, so that 0 can stand for null.
            self.emit(f"{length} -= 1")
        return length

    def null_or_refuse(self, length: str, stem: str, target: str, is_nullable: bool) -> None:
        """The end of an `if` that has dealt with all lengths but null and wrong ones."""
        if is_nullable:
            self.emit(f"elif {length} == -1: {target} = None")
        self.emit(f"else: raise Malformed('{stem} must not have length %d' % {length})")

    def nested(self, cls: type[Struct], target: str, is_nullable: bool, null: str = "< 0") -> None:
        if not is_nullable:
            self.emit(f"{target} = {self.struct(cls)}")
            return
        marker = self.fresh("marker")
        self.fixed("b", marker)
        self.flush()
        self.emit(f"if {marker} {null}: {target} = None")
        self.emit("else:")
        with self.indented():
            self.emit(f"{target} = {self.struct(cls)}")


def _count_elements(room: list[int], count: int) -> None:
    """Take some elements from the first number in `room`; the second says how many there were."""
    room[0] -= count
    if room[0] < 0:
        raise MalformedMessage(f"more than {room[1]} elements in all")


# Like a decoder, and given how many elements the message may have.
TagDecoder = Callable[[Buffer, int, int, list[int]], tuple[object, int]]


def _tag_decoder(parent: _DecoderWriter, slot: Slot) -> TagDecoder:
    """A decoder of one tagged value, which is given as a buffer of its own."""
    writer = _DecoderWriter(parent.cls, parent.version)
    writer.lines = ["def decode_tag(buffer, position, end, room):"]
    if isinstance(slot.type, type):
        target = writer.fresh(f"{slot.name}_")
        writer.nested(slot.type, target, slot.is_nullable, null="== 0")
    else:
        target = writer.value(slot.type, slot.name, slot.is_nullable, slot.is_compact)
    writer.flush()
    writer.emit(f"return {target}, position")
    assert not writer.has_views, "records are never tagged, and would be a view of a copy"
    built: TagDecoder = _compiled(writer.lines, writer.objects, "decode_tag", f"{parent.label} {slot.name}")
    return built


def _take_tags(
    buffer: Buffer,
    position: int,
    end: int,
    table: dict[int, tuple[str, TagDecoder]],
    holder: Struct,
    room: list[int],
) -> int:
    """Read tagged values into `holder`; those that are not in `table` are kept as bytes."""
    count, position = decode_uvarint(buffer, position)
    _count_elements(room, count)
    for _ in range(count):
        tag, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        stop = position + size
        if stop > end:
            raise MalformedMessage(f"tag {tag} of {size} bytes reaches past the end of the message")
        if tag in table:
            name, decode = table[tag]
            value, taken = decode(bytes(buffer[position:stop]), 0, size, room)
            if taken != size:
                raise MalformedMessage(f"tag {tag} ({name}) takes {size} bytes, not {taken}")
            force_setattr(holder, name, value)
        else:
            if holder.unknown_tags is None:
                force_setattr(holder, "unknown_tags", {})
            assert holder.unknown_tags is not None
            holder.unknown_tags[tag] = bytes(buffer[position:stop])
        position = stop
    return position


# ---------------------------------------------------------------- variable-length integers

_ONE_BYTE = tuple(bytes([value]) for value in range(128))


def encode_uvarint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if not 0 <= value <= 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit an unsigned varint of 32 bits")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value at `position` and the position behind it; at most five bytes, and 31 bits as in Java."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0x7FFFFFFF:
                raise MalformedMessage(f"varint {value} is larger than any length can be")
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedMessage("a varint of more than five bytes")


# ---------------------------------------------------------------- what was wrong with a message


def _explain(message: Struct, version: int, error: Exception) -> UnencodableMessage:
    """Find the field that an encoder stumbled over; only run after it did."""
    reason = str(error)
    for path, problem in _problems(message, version, type(message).__name__):
        reason = f"{path} {problem}"
        break
    return UnencodableMessage(f"{type(message).__name__} v{version}: {reason}")


def _problems(message: Struct, version: int, path: str) -> Any:
    for name, spec in type(message).declaration.fields.items():
        if spec.versions.includes(version):
            wire_type = types_of(type(message))[name]
            value = getattr(message, name)
            yield from _value_problems(
                value, wire_type, spec.nullable.includes(version), version, f"{path}.{name}"
            )


def _value_problems(value: Any, wire_type: Any, is_nullable: bool, version: int, path: str) -> Any:
    if value is None:
        if not is_nullable:
            yield path, f"must not be null in version {version}"
        return
    match wire_type:
        case Fixed(name=name, letter=letter):
            try:
                struct.pack(">" + letter, value)
            except struct.error:
                yield path, f"holds {value!r}, which is not {name}"
            if letter == "16s" and len(value) != 16:
                yield path, f"holds {value!r}, which is not a uuid of 16 bytes"
        case Sized(name=name):
            if wire_type is STRING and not isinstance(value, str):
                yield path, f"holds {value!r}, which is not text"
            elif wire_type is STRING and len(value.encode(errors="surrogatepass")) > STRING_BYTES_MAX:
                yield path, f"holds text of more than {STRING_BYTES_MAX} bytes"
            elif wire_type is not STRING and not hasattr(value, "__len__"):
                yield path, f"holds {value!r}, which is not {name}"
        case ArrayOf(element=element):
            if not isinstance(value, list | tuple):
                yield path, f"holds {value!r}, which is not a list"
                return
            for index, item in enumerate(value):
                yield from _value_problems(item, element, False, version, f"{path}[{index}]")
        case _:
            if not isinstance(value, wire_type):
                yield path, f"holds {value!r}, which is not a {wire_type.__name__}"
            else:
                yield from _problems(value, version, path)
