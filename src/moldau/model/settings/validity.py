"""Rules for the values of settings, as data that can check, explain itself and be documented."""

from dataclasses import dataclass
from typing import Protocol

from moldau.model.settings.types import Value


class Validity(Protocol):
    """A rule for the values of a setting."""

    @property
    def allowed(self) -> str:
        """What is allowed, as Kafka's documentation writes it."""

    def complaint(self, value: Value) -> str | None:
        """What is wrong with the value, or None if nothing is."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `least` to `most`, both included; or the one exception."""

    least: float
    most: float | None = None
    exception: int | None = None

    @property
    def allowed(self) -> str:
        """The range as Kafka writes it."""
        shown = f"[{self.least},...]" if self.most is None else f"[{self.least},...,{self.most}]"
        return shown if self.exception is None else f"{shown} or {self.exception}"

    def complaint(self, value: Value) -> str | None:
        """Says in which direction the number is out of range."""
        assert isinstance(value, int | float)
        if value == self.exception or (self.least <= value and (self.most is None or value <= self.most)):
            return None
        bounds = f"at least {self.least}" if self.most is None else f"between {self.least} and {self.most}"
        return f"must be {bounds}" + ("" if self.exception is None else f", or {self.exception}")


@dataclass(frozen=True, slots=True)
class Words:
    """One of a few words."""

    words: tuple[str, ...]
    ignores_case: bool = False

    @property
    def allowed(self) -> str:
        """The words as Kafka writes them."""
        return ("(case insensitive) " if self.ignores_case else "") + _brackets(self.words)

    def complaint(self, value: Value) -> str | None:
        """Names the words that there are."""
        word = str(value).upper() if self.ignores_case else value
        return None if word in self.words else f"must be one of {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Items:
    """A list of distinct, non-empty items, which may have to be of a few words, and may have to be some."""

    words: tuple[str, ...] = ()
    may_be_empty: bool = True

    @property
    def allowed(self) -> str:
        """The words as Kafka writes them."""
        return _brackets(self.words) if self.words else ""

    def complaint(self, value: Value) -> str | None:
        """Says what is wrong with the list or with one of its items."""
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            return "must not be empty"
        if "" in value:
            return "an item is empty"
        if len(set(value)) < len(value):
            return "an item is repeated"
        if self.words and not all(item in self.words for item in value):
            return f"every item must be one of {', '.join(self.words)}"
        return None


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """Any text but the empty one."""

    allowed: str = "non-empty string"

    def complaint(self, value: Value) -> str | None:
        """Says that the text is empty."""
        return None if value else "must not be empty"


def at_least(least: int) -> Range:
    """A number with a lower bound."""
    return Range(least)


def between(least: float, most: float, *, or_else: int | None = None) -> Range:
    """A number within bounds; `or_else` is allowed as well."""
    return Range(least, most, or_else)


def one_of(*words: str, ignores_case: bool = False) -> Words:
    """One of the words."""
    return Words(words, ignores_case)


def items(*words: str, may_be_empty: bool = True) -> Items:
    """A list whose items are distinct, and of these words if any are named."""
    return Items(words, may_be_empty)


def _brackets(words: tuple[str, ...]) -> str:
    return f"[{', '.join(words)}]"
