"""How the text of a setting becomes a value, and how a value becomes text again: as in Kafka's own parser."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum, StrEnum
from math import isinf
from typing import Final, Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Password:
    """A secret, which shows itself only to whoever asks for it by name."""

    secret: str

    def __repr__(self) -> str:
        return "Password([hidden])"


Value = bool | int | float | str | tuple[str, ...] | Password | None


class TypeCode(IntEnum):
    """The types as DescribeConfigs numbers and Kafka names them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class SettingType(Generic[T_co]):
    """How a setting's text becomes a value; `parse` raises ValueError saying what the text must be."""

    code: TypeCode
    parse: Callable[[str], T_co]
    # What the type alone allows, as Kafka's documentation writes it; None for a type that is not a choice.
    allowed: str | None = None


def text_of(value: Value) -> str | None:
    """A value as DescribeConfigs shows it, which `Setting.parse` reads back; a secret is not shown."""
    match value:
        case None | Password():
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return _java_double(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def choice(choices: type[ChoiceT]) -> SettingType[ChoiceT]:
    """The type of a setting that is one of a few words."""
    return SettingType(TypeCode.STRING, lambda text: _choose(choices, text), _brackets(choices))


def choices(choices: type[ChoiceT]) -> SettingType[tuple[ChoiceT, ...]]:
    """The type of a setting that is a list of a few words, each at most once; the list may be empty."""

    def parse(text: str) -> tuple[ChoiceT, ...]:
        items = _parse_list(text)
        if len(set(items)) < len(items):
            raise ValueError("an item is repeated")
        return tuple(_choose(choices, item) for item in items)

    return SettingType(TypeCode.LIST, parse, _brackets(choices))


def _choose(choices: type[ChoiceT], text: str) -> ChoiceT:
    # A plain loop, because an unknown word given to the enum raises an error that names our class.
    for each in choices:
        if each == text:
            return each
    raise ValueError(f"must be one of {', '.join(choices)}")


def _parse_boolean(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError("must be true or false")


def _integer(code: TypeCode, bits: int) -> SettingType[int]:
    smallest, largest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def parse(text: str) -> int:
        # int() alone would also take underscores.
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ValueError(f"must be a whole number of {bits} bits")
        # Python refuses to read thousands of digits, and no allowed number has so many.
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) > len(str(largest)) or not smallest <= (value := int(text)) <= largest:
            raise ValueError(f"must be a whole number of {bits} bits")
        return value

    return SettingType(code, parse)


def _parse_double(text: str) -> float:
    # Java also reads a suffix that names the type. It reads NaN too, which passes every check of a range.
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?", text):
        raise ValueError("must be a number")
    value = float(text.rstrip("dDfF"))
    if isinf(value):
        raise ValueError("must be a number that 64 bits can hold")
    return value


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"\s*,\s*", text)) if text else ()


BOOLEAN: Final = SettingType(TypeCode.BOOLEAN, _parse_boolean)
INT16: Final = _integer(TypeCode.SHORT, 16)
INT32: Final = _integer(TypeCode.INT, 32)
INT64: Final = _integer(TypeCode.LONG, 64)
FLOAT64: Final = SettingType(TypeCode.DOUBLE, _parse_double)
STRING: Final = SettingType(TypeCode.STRING, str)
LIST: Final = SettingType(TypeCode.LIST, _parse_list)
# The name of a Java class, which is never loaded.
CLASS: Final = SettingType(TypeCode.CLASS, str)
PASSWORD: Final = SettingType(TypeCode.PASSWORD, Password)

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def _brackets(words: Iterable[str]) -> str:
    return f"[{', '.join(words)}]"


def _java_double(value: float) -> str:
    """A number as Java writes it: with an exponent below 0.001 and from ten million on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    number = Decimal(repr(value))
    first, *rest = number.normalize().as_tuple().digits
    return f"{'-' if value < 0 else ''}{first}.{''.join(map(str, rest)) or '0'}E{number.adjusted()}"
