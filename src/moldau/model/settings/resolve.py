"""Which value of a setting holds when topic, broker, cluster and file each say something."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from typing import Final, TypeVar

from moldau.model.settings.known import KNOWN, PREFIXES
from moldau.model.settings.setting import InvalidSetting, Scope, Setting, UpdateMode
from moldau.model.settings.table import HONOURED, MAX_COMPACTION_LAG_MS, MIN_COMPACTION_LAG_MS
from moldau.model.settings.types import Value

T = TypeVar("T")


class Source(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


_BROKER_SOURCES: Final = (Source.BROKER, Source.CLUSTER, Source.STATIC)
# Who is asked, in this order; whoever has a value first decides.
PRECEDENCE: Final = {
    Scope.BROKER: _BROKER_SOURCES,
    Scope.TOPIC: (Source.TOPIC, *_BROKER_SOURCES),
    Scope.GROUP: (Source.GROUP, *_BROKER_SOURCES),
    Scope.QUOTA: (),
}
# Which settings a broker takes over while it runs, for itself or along with all others.
_DYNAMIC_MODES: Final = {
    Source.BROKER: (UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE),
    Source.CLUSTER: (UpdateMode.CLUSTER_WIDE,),
}
_PLACES: Final = {Source.BROKER: "on a running broker", Source.CLUSTER: "for all brokers at once"}


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says: texts by the names of settings, a topic's or group's own or else the broker's."""

    source: Source
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value that holds, or would hold if those before it were taken away."""

    name: str
    value: Value
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    """A setting with all that is said about it; the first candidate is the one that holds."""

    setting: Setting[Value]
    candidates: tuple[Candidate, ...]
    is_honoured: bool


class Settings:
    """The settings of one broker, topic or group with every value decided; never changes."""

    __slots__ = ("_layers", "_values", "scope", "warnings")

    def __init__(self, scope: Scope, layers: "_ParsedLayers", warnings: tuple[str, ...]) -> None:
        self.scope: Final = scope
        self.warnings: Final = warnings
        self._layers = layers
        self._values: dict[Setting[object], Value] = {
            row: _winner(row, layers) for row in SETTINGS[scope].values()
        }

    def __getitem__(self, setting: Setting[T]) -> T:
        """The value that holds."""
        # The row's own type has made this value, which a dict of many types cannot say.
        return self._values[setting]  # type: ignore[return-value]

    def source(self, setting: Setting[object]) -> Source:
        """Where the value that holds comes from."""
        return next(_candidates(SETTINGS[self.scope][setting.name], self._layers)).source

    def entries(self) -> list[Entry]:
        """Everything that there is to be told about these settings, by name."""
        return [
            Entry(row, tuple(_candidates(row, self._layers)), is_honoured(row))
            for _, row in sorted(SETTINGS[self.scope].items())
        ]


def resolve(scope: Scope, *layers: Layer) -> Settings:
    """The settings that follow from all that is said; InvalidSetting if any of it makes no sense."""
    assert all(layer.source in PRECEDENCE[scope] for layer in layers), (scope, layers)
    warnings: list[str] = []
    parsed = {layer.source: _parse(scope, layer, warnings) for layer in layers}
    assert len(parsed) == len(layers), "a source speaks twice"
    settings = Settings(scope, parsed, tuple(warnings))
    if scope is Scope.TOPIC:
        _check_together(settings)
    return settings


def is_honoured(setting: Setting[object]) -> bool:
    """Whether the setting has an effect."""
    return setting in _HONOURED


def find(scope: Scope, name: str) -> Setting[Value]:
    """The setting of this name; InvalidSetting, with the likeliest names, if there is none."""
    found = SETTINGS[scope].get(name)
    if found is None:
        similar = get_close_matches(name, SETTINGS[scope], n=3)
        hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
        raise InvalidSetting(f"There is no {scope.value} setting {name!r}.{hint}")
    return found


SETTINGS: Final[dict[Scope, dict[str, Setting[Value]]]] = {
    scope: {row.name: row for row in (*HONOURED, *KNOWN) if row.scope is scope} for scope in Scope
}
_HONOURED: Final[frozenset[Setting[object]]] = frozenset(HONOURED)
_ParsedLayers = Mapping[Source, Mapping[str, Value]]


def _parse(scope: Scope, layer: Layer, warnings: list[str]) -> Mapping[str, Value]:
    scope_of_names = Scope.BROKER if layer.source in _BROKER_SOURCES else scope
    values = {}
    for name, text in layer.texts.items():
        if scope_of_names is Scope.BROKER and name.startswith(PREFIXES):
            warnings.append(f"{name} is accepted but has no effect.")
            continue
        setting = find(scope_of_names, name)
        if setting.update not in _DYNAMIC_MODES.get(layer.source, UpdateMode):
            raise InvalidSetting(
                f"{name} is {setting.update.value}: it cannot be set {_PLACES[layer.source]}."
            )
        values[name] = setting.parse(text)
        if not is_honoured(setting):
            warnings.append(f"{name} is accepted but has no effect.")
    return values


def _winner(setting: Setting[Value], layers: _ParsedLayers) -> Value:
    winner = next(_candidates(setting, layers))
    if setting.validity is None or winner.source is Source.DEFAULT:
        return winner.value
    # What a broker's setting allows may be too much for the topic that falls back to it.
    complaint = setting.validity.complaint(winner.value)
    if complaint is not None:
        raise InvalidSetting(f"Invalid value {winner.value!r} for {winner.name}: {setting.name} {complaint}.")
    return winner.value


def _candidates(setting: Setting[Value], layers: _ParsedLayers) -> Iterator[Candidate]:
    """All that is said about a setting, what decides first; the default is always there."""
    for source in PRECEDENCE[setting.scope]:
        values = layers.get(source, {})
        if source in _BROKER_SOURCES and setting.scope is not Scope.BROKER:
            for synonym in setting.synonyms:
                if synonym.name in values:
                    yield Candidate(synonym.name, synonym.convert(values[synonym.name]), source)
        elif setting.name in values:
            yield Candidate(setting.name, values[setting.name], source)
    yield from _defaults(setting)


def _defaults(setting: Setting[Value]) -> Iterator[Candidate]:
    if not setting.synonyms:
        yield Candidate(setting.name, setting.default, Source.DEFAULT)
    for synonym in setting.synonyms:
        default = SETTINGS[Scope.BROKER][synonym.name].default
        if default is not None:
            yield Candidate(synonym.name, synonym.convert(default), Source.DEFAULT)


def _check_together(settings: Settings) -> None:
    lag_min, lag_max = settings[MIN_COMPACTION_LAG_MS], settings[MAX_COMPACTION_LAG_MS]
    if lag_min > lag_max:
        raise InvalidSetting(
            f"min.compaction.lag.ms ({lag_min}) must not exceed max.compaction.lag.ms ({lag_max})."
        )
