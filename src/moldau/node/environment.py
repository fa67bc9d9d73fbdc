"""A server's settings in its environment, named as for Kafka's own containers: KAFKA_LOG_RETENTION_MS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from moldau.model.settings.known import PREFIXES
from moldau.model.settings.resolve import SETTINGS
from moldau.model.settings.setting import Scope

PREFIX: Final = "KAFKA_"
# So alike a name must be to be taken for a mistyped one: others use the prefix too, for themselves.
_LIKENESS_MIN: Final = 0.9


class Variable(NamedTuple):
    """A value that the environment gives to a setting, and the name of the variable."""

    text: str
    variable: str


def read_environment(environment: Mapping[str, str]) -> dict[str, Variable]:
    """What the environment says of settings, by their names; what else begins with KAFKA_ is passed over."""
    return {
        name: Variable(text, variable)
        for variable, text in environment.items()
        if (name := _setting(variable)) is not None and _is_known(name)
    }


def warnings(environment: Iterable[str]) -> list[str]:
    """A sentence on every variable that was perhaps meant to be a setting, and is none."""
    found = []
    for variable in environment:
        name = _setting(variable)
        if name is None or _is_known(name):
            continue
        if similar := get_close_matches(name, SETTINGS[Scope.BROKER], n=1, cutoff=_LIKENESS_MIN):
            found.append(
                f"{variable} names no setting and is passed over. Did you mean {variable_of(similar[0])}?"
            )
    return found


def variable_of(name: str) -> str:
    """The variable that gives a value to a setting."""
    return PREFIX + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _setting(variable: str) -> str | None:
    """The setting that a variable names: `_` is a dot, `__` an underscore, `___` a hyphen."""
    if not variable.startswith(PREFIX):
        return None
    dotted = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def _is_known(name: str) -> bool:
    return name in SETTINGS[Scope.BROKER] or name.startswith(PREFIXES)
