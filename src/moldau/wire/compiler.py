"""One encoder and one decoder per (message, version), written as straight Python and compiled on first use.

The code is specialised until nothing is left to look up: fields that the version does not have are gone, and
every run of fixed-size fields, together with the length in front of the next string or array and the count of
tags behind it, is one `struct` call. `source_of` shows what was written.

A decoder trusts nothing. Slices clamp and `struct` refuses to read past the buffer, so it is enough to check
a count against the bytes that are left before a loop, and the position against the end after the last field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import force_setattr

from moldau.model.errors import MalformedMessage
from moldau.wire.types import RECORDS, STRING, FieldSpec, FileSlice, Fixed, Sized, Struct, Versions

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

    def __call__(self, buffer: bytes | bytearray, position: int, end: int) -> tuple[S_co, int]: ...


@cache
def encoder(cls: type[Struct], version: int) -> Encoder:
    """The encoder of `cls` at `version`."""
    writer = _EncoderWriter(cls, version)
    built: Encoder = writer.build("encode")
    return built


def _build_decoder(cls: type[Struct], version: int) -> Any:
    return _DecoderWriter(cls, version).build("decode")


class DecoderOf(Protocol):
    """The decoder of a class at a version."""

    def __call__(self, cls: type[S], version: int) -> Decoder[S]: ...


decoder: DecoderOf = cache(_build_decoder)


def source_of(cls: type[Struct], version: int) -> str:
    """The generated code of both directions, for people who want to read it."""
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


# ---------------------------------------------------------------- writing code


class _Writer:
    """Lines of Python and the objects they refer to; `letters` are fixed-size values still pending."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        declaration = cls.declaration
        if not declaration.versions.includes(version):
            raise UnencodableMessage(f"{cls.__name__} has versions {declaration.versions}, not {version}")
        self.cls = cls
        self.version = version
        self.is_flexible = declaration.flexible.includes(version)
        self.label = f"{cls.__name__} v{version}"
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

    def slots(self, cls: type[Struct]) -> tuple[list[Slot], list[Slot], list[Slot]]:
        """The fields that stand in order, the tagged ones by tag, and those that the version lacks."""
        ordered: list[Slot] = []
        tagged: list[Slot] = []
        absent: list[Slot] = []
        types = types_of(cls)
        for name, spec in cls.declaration.fields.items():
            wire_type = types[name]
            slot = Slot(
                name=name,
                type=wire_type,
                spec=spec,
                is_nullable=spec.nullable.includes(self.version),
                is_compact=self.is_flexible
                and (spec.flexible or Versions(0, self.version)).includes(self.version),
                default=default_of(spec, wire_type),
            )
            if not spec.versions.includes(self.version):
                absent.append(slot)
            elif spec.tag is not None:
                tagged.append(slot)
            else:
                ordered.append(slot)
        tagged.sort(key=lambda slot: slot.spec.tag or 0)
        return ordered, tagged, absent

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
        ordered, tagged, absent = self.slots(cls)
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
    """Writes `decode(buffer, position, end)`."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        super().__init__(cls, version)
        self.targets: list[str] = []
        self.has_views = False
        self.objects |= {
            "uvarint": decode_uvarint,
            "long_text": _long_text,
            "take_tags": _take_tags,
            "Malformed": MalformedMessage,
        }

    def source(self) -> str:
        self.lines = []
        with self.indented():
            message = self.struct(self.cls)
            self.emit(f"if position <= end: return {message}, position")
        body, self.lines = self.lines, ["def decode(buffer, position, end):"]
        self.objects["errors"] = (IndexError, struct.error, UnicodeDecodeError)
        if self.has_views:
            self.emit("view = memoryview(buffer)")
        self.emit("try:")
        self.lines += body
        self.emit("except errors as error:")
        self.emit(f"    raise Malformed('{self.label}: %s' % error) from error")
        self.emit(f"raise Malformed('{self.label}: the message ends before its last field')")
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
        """Code that reads the fields of `cls`; gives the expression that makes the object."""
        ordered, tagged, _ = self.slots(cls)
        tail = _usually_empty(ordered) if self.is_flexible else []
        head = ordered[: len(ordered) - len(tail)]
        bound = {slot.name: self.slot(slot) for slot in head}
        if not self.is_flexible:
            self.flush()
            return self.constructed(cls, bound)
        made = self.fresh("made")
        if not tail:
            self.tags(cls, bound, tagged, made)
            return made
        # Trailing fields that hold their defaults, and no tags, are one comparison.
        expected = b"".join(_empty_encoding(slot) or b"" for slot in tail) + b"\0"
        seen = self.fresh("tail")
        if self.letters:
            self.fixed(f"{len(expected)}s", seen)
            self.flush()
        else:
            self.emit(f"{seen} = buffer[position:position + {len(expected)}]; position += {len(expected)}")
        empty = {slot.name: repr(slot.default) for slot in tail}
        self.emit(f"if {seen} == {expected!r}: {made} = {self.constructed(cls, bound | empty)}")
        self.emit("else:")
        with self.indented():
            self.emit(f"position -= {len(expected)}")
            self.tags(cls, bound | {slot.name: self.slot(slot) for slot in tail}, tagged, made)
        return made

    def tags(self, cls: type[Struct], bound: dict[str, str], tagged: list[Slot], made: str) -> None:
        """Code that makes the object and then reads its tags into it."""
        table = self.fresh("tags_")
        self.objects[table] = {slot.spec.tag: (slot.name, _tag_decoder(self, slot)) for slot in tagged}
        take_tags = f"position = take_tags(buffer, position, end, {table}, {made})"
        if not self.letters:
            self.emit(f"{made} = {self.constructed(cls, bound)}")
            self.emit(f"if buffer[position]: {take_tags}")
            self.emit("else: position += 1")
            return
        tag_count = self.fresh("tag_count")
        self.fixed("B", tag_count)
        self.flush()
        self.emit(f"{made} = {self.constructed(cls, bound)}")
        self.emit(f"if {tag_count}: position -= 1; {take_tags}")

    def slot(self, slot: Slot) -> str:
        return self.value(slot.type, slot.name, slot.is_nullable, slot.is_compact)

    def constructed(self, cls: type[Struct], bound: dict[str, str]) -> str:
        """The call that makes a `cls`; positional, because that is by far the fastest."""
        arguments: list[str] = []
        needed = 0
        for name in cls.__struct_fields__:
            if name in cls.declaration.fields:
                arguments.append(bound.get(name) or self.stand_in(cls, name))
                if name in bound or not _has_default(cls.declaration.fields[name]):
                    needed = len(arguments)
        return f"{self.name_of(cls.__name__, cls)}({', '.join(arguments[:needed])})"

    def stand_in(self, cls: type[Struct], name: str) -> str:
        """What a field holds that was not sent."""
        spec = cls.declaration.fields[name]
        if spec.default_factory is not None:
            return f"{self.name_of('make', spec.default_factory)}()"
        default = default_of(spec, types_of(cls)[name])
        return self.name_of("default", default) if isinstance(default, Struct) else repr(default)

    def value(self, wire_type: Any, stem: str, is_nullable: bool, is_compact: bool) -> str:
        """Code that reads one value; gives the name it is bound to."""
        target = self.fresh(f"{stem}_")
        what = f"{self.label}: {stem}"
        match wire_type:
            case Fixed(letter=letter):
                self.fixed(letter, target)
            case Sized() if wire_type is STRING:
                self.text(target, what, is_nullable, is_compact)
            case Sized():
                self.data(wire_type, target, what, is_nullable, is_compact)
            case ArrayOf(element=element):
                self.array(element, target, what, is_nullable, is_compact)
            case _:
                self.nested(wire_type, target, is_nullable)
        return target

    def text(self, target: str, what: str, is_nullable: bool, is_compact: bool) -> None:
        length = self.fresh("length")
        self.fixed("B" if is_compact else "h", length)
        self.flush()
        # A compact length counts one more than there is, so that 0 can stand for null.
        self.emit(f"if 0 < {length} < 128:" if is_compact else f"if {length} >= 0:")
        self.emit(f"    stop = position + {length}{' - 1' if is_compact else ''}")
        self.emit(f"    {target} = buffer[position:stop].decode(); position = stop")
        if is_compact:
            self.emit(f"elif {length}: {target}, position = long_text(buffer, position - 1, {what!r})")
        self.null_or_refuse(length, target, what, is_nullable, is_compact)

    def data(self, wire_type: Sized, target: str, what: str, is_nullable: bool, is_compact: bool) -> None:
        length, present, count = self.length(is_compact)
        self.emit(f"if {present}:")
        self.emit(f"    stop = position + {count}")
        # A copy or a view of bytes that are not there would be shorter than what was promised.
        self.emit(
            f"    if stop > end: raise Malformed('{what} has %d bytes, more than are left' % ({count}))"
        )
        if wire_type is RECORDS:
            self.has_views = True
            self.emit(f"    {target} = view[position:stop]; position = stop")
        else:
            self.emit(f"    {target} = bytes(buffer[position:stop]); position = stop")
        self.null_or_refuse(length, target, what, is_nullable, is_compact)

    def array(self, element: Any, target: str, what: str, is_nullable: bool, is_compact: bool) -> None:
        length, present, count = self.length(is_compact)
        self.emit(f"if {length} > {1 if is_compact else 0}:")
        with self.indented():
            size_min = max(1, _size_min(element, self.version, self.is_flexible))
            self.emit(f"if ({count}) * {size_min} > end - position:")
            self.emit(f"    raise Malformed('{what} has %d elements, more than fit' % ({count}))")
            if isinstance(element, Fixed):
                self.fixed_elements(element, target, count)
            else:
                self.loop(element, target, count, is_compact)
        self.emit(f"elif {present}: {target} = []")
        self.null_or_refuse(length, target, what, is_nullable, is_compact)

    def loop(self, element: Any, target: str, count: str, is_compact: bool) -> None:
        """Code that reads elements one by one."""
        self.emit(f"{target} = []")
        self.emit(f"for _ in range({count}):")
        with self.indented():
            if isinstance(element, type):
                item = self.struct(element)
            else:
                item = self.value(element, target.rpartition("_")[0], False, is_compact)
            self.flush()
            self.emit(f"{target}.append({item})")

    def fixed_elements(self, element: Fixed, target: str, count: str) -> None:
        size = struct.calcsize(">" + element.letter)
        if element.letter == "16s":
            self.objects["uuids"] = struct.Struct(">16s").iter_unpack
            self.emit(f"{target} = [uuid for uuid, in uuids(buffer[position:position + 16 * ({count})])]")
        else:
            self.objects["unpack_from"] = struct.unpack_from
            self.emit(f"{target} = list(unpack_from('>%d{element.letter}' % ({count}), buffer, position))")
        self.emit(f"position += {size} * ({count})")

    def length(self, is_compact: bool) -> tuple[str, str, str]:
        """Code that reads a length; gives its name, the test that it is not null, and what it counts."""
        length = self.fresh("length")
        self.fixed("B" if is_compact else "i", length)
        self.flush()
        if not is_compact:
            return length, f"{length} >= 0", length
        # Two bytes are put together here, for most records; a third is left to the function.
        self.emit(f"if {length} > 127:")
        self.emit(f"    {length} += (buffer[position] << 7) - 128; position += 1")
        self.emit(f"    if {length} > 16383: {length}, position = uvarint(buffer, position - 2)")
        return length, length, f"{length} - 1"

    def null_or_refuse(
        self, length: str, target: str, what: str, is_nullable: bool, is_compact: bool
    ) -> None:
        """The end of an `if` that has dealt with all lengths but null and wrong ones."""
        if is_nullable:
            self.emit("else:" if is_compact else f"elif {length} == -1:")
            self.emit(f"    {target} = None")
        if not is_nullable or not is_compact:
            self.emit("else:")
            shown = f"({length} - 1)" if is_compact else length
            self.emit(f"    raise Malformed('{what} must not have length %d' % {shown})")

    def nested(self, cls: type[Struct], target: str, is_nullable: bool, null: str = "< 0") -> None:
        if not is_nullable:
            self.emit_assignment(target, self.struct(cls))
            return
        marker = self.fresh("marker")
        self.fixed("b", marker)
        self.flush()
        self.emit(f"if {marker} {null}:")
        self.emit(f"    {target} = None")
        self.emit("else:")
        with self.indented():
            self.emit_assignment(target, self.struct(cls))

    def emit_assignment(self, target: str, expression: str) -> None:
        self.flush()
        self.emit(f"{target} = {expression}")


def _usually_empty(ordered: list[Slot]) -> list[Slot]:
    """The trailing fields whose default takes a single byte."""
    count = 0
    while count < len(ordered) and _empty_encoding(ordered[-1 - count]):
        count += 1
    return ordered[len(ordered) - count :]


def _empty_encoding(slot: Slot) -> bytes | None:
    if not slot.is_compact or not isinstance(slot.type, Sized | ArrayOf) or not _has_default(slot.spec):
        return None
    if slot.default is None:
        return b"\0" if slot.is_nullable else None
    return b"\1" if slot.default in ("", b"", []) else None


def _has_default(spec: FieldSpec) -> bool:
    return spec.default_factory is not None or spec.default is not msgspec.NODEFAULT


def _long_text(buffer: bytes | bytearray, position: int, what: str) -> tuple[str, int]:
    """Compact text of more bytes than a length of one byte can count."""
    length, position = decode_uvarint(buffer, position)
    stop = position + length - 1
    if length == 0 or length > STRING_BYTES_MAX + 1:
        raise MalformedMessage(f"{what} must not have length {length - 1}")
    return buffer[position:stop].decode(), stop


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
    return total


TagDecoder = Callable[[bytes | bytearray, int, int], tuple[object, int]]


def _tag_decoder(parent: _DecoderWriter, slot: Slot) -> TagDecoder:
    writer = _DecoderWriter(parent.cls, parent.version)
    writer.lines = ["def decode_tag(buffer, position, end):"]
    if isinstance(slot.type, type):
        target = writer.fresh(f"{slot.name}_")
        writer.nested(slot.type, target, slot.is_nullable, null="== 0")
    else:
        target = writer.value(slot.type, slot.name, slot.is_nullable, slot.is_compact)
    writer.flush()
    writer.emit(f"return {target}, position")
    assert not writer.has_views, "records are never tagged"
    built: TagDecoder = _compiled(writer.lines, writer.objects, "decode_tag", f"{parent.label} {slot.name}")
    return built


def _take_tags(
    buffer: bytes | bytearray,
    position: int,
    end: int,
    table: dict[int, tuple[str, TagDecoder]],
    holder: Struct,
) -> int:
    """Read tagged values into `holder`; those that are not in `table` are kept as bytes."""
    count, position = decode_uvarint(buffer, position)
    for _ in range(count):
        tag, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        stop = position + size
        if stop > end:
            raise MalformedMessage(f"tag {tag} of {size} bytes reaches past the end of the message")
        if tag in table:
            name, decode = table[tag]
            value, position = decode(buffer, position, stop)
            if position != stop:
                raise MalformedMessage(f"tag {tag} ({name}) takes {size} bytes, not {size + position - stop}")
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


def decode_uvarint(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
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
