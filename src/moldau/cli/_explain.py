"""`moldau config explain`: what a server would run with, and who said so; no server is asked."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._config import (
    Given,
    complete_server_setting,
    config_option,
    given_settings,
    override_option,
)
from moldau.cli._errors import NotFound
from moldau.cli._output import Json, note, output_option, print_facts, print_json, print_table

if TYPE_CHECKING:
    from moldau.model.settings.setting import Setting
    from moldau.model.settings.types import Value

SECRET: Final = "(secret)"
_OF_LISTENER: Final = "listener.name."


@dataclass(frozen=True, slots=True)
class Answer:
    """Who says what, and where: in a line of a file, a variable or a flag; a default stands nowhere."""

    value: str | None
    source: str
    where: str | None

    def json(self) -> dict[str, Json]:
        """As `-o json` prints it: names are stable, what is unknown or secret is null."""
        return {"value": self.value, "source": self.source, "where": self.where}


@dataclass(frozen=True, slots=True)
class Explained:
    """A setting, and all who say something about it."""

    name: str
    # The first counts, the last is the default.
    answers: tuple[Answer, ...]
    doc: str
    is_sensitive: bool
    is_honoured: bool

    def json(self) -> dict[str, Json]:
        """As `-o json` prints it."""
        first, *others = self.answers
        return {
            "name": self.name,
            **first.json(),
            "default": self.answers[-1].value,
            "sensitive": self.is_sensitive,
            "honoured": self.is_honoured,
            "doc": self.doc or None,
            "overridden": [answer.json() for answer in others if answer.where is not None],
        }

    def shown(self, answer: Answer) -> str | None:
        """A value for people."""
        return SECRET if self.is_sensitive and answer.where is not None else answer.value

    def origin(self) -> str:
        """Where the value that counts comes from, for people."""
        first = self.answers[0]
        if first.where is None:
            return first.source
        return first.where if self.is_honoured else f"{first.where} (has no effect)"


@click.command("explain")
@click.argument("name", required=False, shell_complete=complete_server_setting)
@config_option
@override_option
@click.option("--given", "is_given", is_flag=True, help="Only what is not left to its default.")
@output_option
def explain(
    name: str | None, path: Path | None, overrides: tuple[str, ...], is_given: bool, output: str
) -> None:
    """Show what a server would run with, and where each value comes from.

    This is what `moldau start` with the same file, environment and flags takes; a running server may
    have been told other things since, which `moldau config get broker` shows.

    \b
    Examples:
      moldau config explain -c server.properties --given
      KAFKA_LOG_RETENTION_MS=1 moldau config explain log.retention.ms
    """
    given = given_settings(path, overrides)
    for warning in given.warnings:
        note(warning)
    if name is not None:
        explained = _explained(given, name)
        if output == "json":
            print_json(explained.json())
        else:
            _print_one(explained)
        return
    names = given.said if is_given else {**_rows(), **given.said}
    rows = [_explained(given, each) for each in sorted(names)]
    if output == "json":
        print_json([row.json() for row in rows])
    else:
        print_table(
            ["SETTING", "VALUE", "FROM"],
            [(row.name, row.shown(row.answers[0]), row.origin()) for row in rows],
        )


def _explained(given: Given, name: str) -> Explained:
    from moldau.model.settings.resolve import is_honoured
    from moldau.model.settings.types import text_of

    setting = _row(name)
    # What is not known may be a secret.
    is_sensitive = setting is None or setting.is_sensitive
    answers = [
        Answer(None if is_sensitive else said.text.strip(), said.origin.value, said.where)
        for said in given.said.get(name, ())
    ]
    default = None if setting is None else text_of(setting.default)
    return Explained(
        name,
        (*answers, Answer(default, "default", None)),
        doc="" if setting is None else setting.doc,
        is_sensitive=is_sensitive,
        is_honoured=setting is not None and is_honoured(setting),
    )


def _rows() -> dict[str, Setting[Value]]:
    from moldau.model.settings.resolve import SETTINGS
    from moldau.model.settings.setting import Scope

    return SETTINGS[Scope.BROKER]


def _row(name: str) -> Setting[Value] | None:
    """The row of a setting, the general one for what is set for one listener; None for another's plug-in."""
    from moldau.model.settings.known import PREFIXES

    if name.startswith(PREFIXES):
        _, _, general = name.removeprefix(_OF_LISTENER).partition(".")
        return _rows().get(general) if name.startswith(_OF_LISTENER) else None
    if name in _rows():
        return _rows()[name]
    near = difflib.get_close_matches(name, _rows(), n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise NotFound(f"There is no setting '{name}' of a server.{hint}")


def _print_one(explained: Explained) -> None:
    first, *others = explained.answers
    facts = {explained.name: explained.shown(first), "from": explained.origin()}
    for answer in others:
        where = answer.source if answer.where is None else f"not {answer.source}"
        facts[where] = "  ".join(filter(None, (explained.shown(answer) or "-", answer.where)))
    if explained.doc:
        facts["meaning"] = explained.doc
    print_facts(facts)
