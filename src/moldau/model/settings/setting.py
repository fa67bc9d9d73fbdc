"""What a setting is: a name of a broker, topic, group or quota, with a type, a default and a rule."""

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.settings.types import Password, SettingType, TypeCode, Value
from moldau.model.settings.validity import Validity

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class InvalidSetting(KafkaError):
    """A setting that does not exist, or a value that it cannot have."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


class Scope(Enum):
    """What a setting belongs to."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"
    QUOTA = "quota"


class UpdateMode(Enum):
    """How a broker's setting may change while the broker runs, in Kafka's words."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Synonym:
    """The broker's setting that a topic or group falls back to, perhaps in a coarser unit."""

    name: str
    unit: int = 1

    def convert(self, value: Value) -> Value:
        """The broker's value as the value of the setting that falls back to it."""
        # A negative number means "no limit" in every unit.
        if self.unit != 1 and isinstance(value, int) and value > 0:
            return value * self.unit
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Setting(Generic[T_co]):
    """One row of the table of settings. Rows are unique, so they are compared by identity, which is fast."""

    scope: Scope
    name: str
    type: SettingType[T_co]
    default: T_co
    validity: Validity | None
    doc: str
    update: UpdateMode
    synonyms: tuple[Synonym, ...]
    # Kafka has no default for it and does not start without it; `default` is None then.
    is_required: bool

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is to be kept from everybody who reads settings."""
        return self.type.code is TypeCode.PASSWORD

    @property
    def allowed(self) -> str | None:
        """Which values are allowed, as Kafka's documentation writes it; None where the type says it all."""
        return self.type.allowed if self.validity is None else self.validity.allowed

    def parse(self, text: str) -> T_co:
        """The value that the text stands for; InvalidSetting if there is none or it is not allowed."""
        shown = "[hidden]" if self.is_sensitive else repr(text)
        try:
            value = self.type.parse(text.strip())
        except ValueError as why:
            raise InvalidSetting(f"Invalid value {shown} for {self.name}: {why}.") from why
        complaint = None if self.validity is None else self.validity.complaint(_as_value(value))
        if complaint is not None:
            raise InvalidSetting(f"Invalid value {shown} for {self.name}: {complaint}.")
        return value


def broker(
    name: str,
    of_type: SettingType[T],
    default: T,
    validity: Validity | None = None,
    doc: str = "",
    *,
    update: UpdateMode = UpdateMode.READ_ONLY,
    is_required: bool = False,
) -> Setting[T]:
    """A row for a broker's setting."""
    return Setting(Scope.BROKER, name, of_type, default, validity, doc, update, (), is_required)


def topic(
    name: str,
    of_type: SettingType[T],
    default: T,
    validity: Validity | None = None,
    doc: str = "",
    *,
    synonyms: tuple[Synonym, ...] = (),
) -> Setting[T]:
    """A row for a topic's setting; the synonyms are the broker's, first come first served."""
    return Setting(
        Scope.TOPIC, name, of_type, default, validity, doc, UpdateMode.CLUSTER_WIDE, synonyms, False
    )


def group(
    name: str,
    of_type: SettingType[T],
    default: T,
    validity: Validity | None = None,
    doc: str = "",
    *,
    synonyms: tuple[Synonym, ...] = (),
) -> Setting[T]:
    """A row for a group's setting."""
    return Setting(
        Scope.GROUP, name, of_type, default, validity, doc, UpdateMode.CLUSTER_WIDE, synonyms, False
    )


def quota(
    name: str, of_type: SettingType[T], default: T, validity: Validity | None = None, doc: str = ""
) -> Setting[T]:
    """A row for what a client quota limits."""
    return Setting(Scope.QUOTA, name, of_type, default, validity, doc, UpdateMode.CLUSTER_WIDE, (), False)


def _as_value(value: object) -> Value:
    assert value is None or isinstance(value, bool | int | float | str | tuple | Password)
    return value
