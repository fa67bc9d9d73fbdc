"""Our declarations say what the JSON inside Kafka's own jars says, field by field."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka_jars as kafka
import pytest
from wire.contents import EVERY_MESSAGE

from moldau.wire import message, messages
from moldau.wire.compiler import ArrayOf, default_of, types_of
from moldau.wire.types import NO_VERSIONS, FieldSpec, Fixed, Sized, Struct, Versions

Schema = dict[str, Any]

KINDS = {
    "request": message.Request,
    "response": message.Response,
    "header": message.Header,
    "data": message.Data,
    "coordinator-key": message.CoordinatorKey,
    "coordinator-value": message.CoordinatorValue,
    "metadata": message.MetadataRecord,
}
# Tiered storage keeps these in a topic of its own, which we do not have.
NOT_DECLARED = (
    "RemoteLogSegmentMetadataRecord",
    "RemoteLogSegmentMetadataSnapshotRecord",
    "RemoteLogSegmentMetadataUpdateRecord",
    "RemotePartitionDeleteMetadataRecord",
)
ZEROS = {"bool": False, "string": "", "bytes": b"", "records": b"", "float64": 0.0, "uuid": bytes(16)}


@pytest.mark.usefixtures("kafka_jars")
def test_every_message_of_kafka_is_declared_and_no_other() -> None:
    alive = {name for name, schema in kafka.schemas().items() if schema["validVersions"] != "none"}
    assert set(messages.BY_NAME) == alive - set(NOT_DECLARED)


@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_a_message_is_declared_as_in_kafka(name: str, kafka_jars: Path) -> None:
    assert list(differences(messages.BY_NAME[name], kafka.schemas()[name])) == []


def test_a_difference_is_found_in_every_aspect_of_a_field(kafka_jars: Path) -> None:
    schema = kafka.schemas()["FetchRequest"]
    field = {field["name"]: field for field in schema["fields"]}["ClusterId"]
    for aspect, value in {
        "name": "ClusterIds",
        "type": "bytes",
        "versions": "13+",
        "nullableVersions": "13+",
        "tag": 7,
        "default": "",
        "ignorable": False,
        "flexibleVersions": "none",
    }.items():
        changed = [{**field, aspect: value} if other is field else other for other in schema["fields"]]
        found = list(differences(messages.BY_NAME["FetchRequest"], {**schema, "fields": changed}))
        assert found, aspect
    assert list(differences(messages.BY_NAME["FetchRequest"], {**schema, "fields": schema["fields"][1:]}))


def differences(ours: type[message.Message], schema: Schema) -> Iterator[str]:
    """Where a declaration is not what the JSON says."""
    declared = ours.declaration
    facts = {
        "name": (ours.__name__, schema["name"]),
        "kind": (ours.__mro__[1], KINDS[schema["type"]]),
        "key": (declared.key, schema.get("apiKey")),
        "versions": (declared.versions, Versions.parse(schema["validVersions"])),
        "flexible versions": (declared.flexible, Versions.parse(schema["flexibleVersions"])),
        "unstable": (declared.latest_unstable, is_unstable_request(schema)),
    }
    yield from unequal(ours.__name__, facts)
    commons = {common["name"]: common["fields"] for common in schema.get("commonStructs", [])}
    yield from struct_differences(ours, schema["fields"], commons, declared.versions, ours.__name__)


def struct_differences(
    ours: type[Struct], fields: list[Schema], commons: dict[str, list[Schema]], within: Versions, path: str
) -> Iterator[str]:
    """The same for a struct that exists in the versions `within`."""
    theirs = [field for field in fields if not is_empty(versions_of(field, within))]
    names = [name.replace("_", "") for name in ours.declaration.fields]
    if names != [field["name"].lower() for field in theirs]:
        yield f"{path} has the fields {names}, not {[field['name'] for field in theirs]}"
        return
    for (name, spec), field in zip(ours.declaration.fields.items(), theirs, strict=True):
        where = f"{path}.{name}"
        wire_type = types_of(ours)[name]
        yield from unequal(where, facts_of_field(spec, wire_type, field, within))
        element, element_name = element_of(wire_type), field["type"].removeprefix("[]")
        if isinstance(element, type):
            nested = field["fields"] if "fields" in field else commons[element_name]
            yield from struct_differences(element, nested, commons, versions_of(field, within), where)


def facts_of_field(
    spec: FieldSpec, wire_type: Any, field: Schema, within: Versions
) -> dict[str, tuple[object, object]]:
    """What the declaration says of a field, beside what the JSON says."""
    versions = versions_of(field, within)
    facts: dict[str, tuple[object, object]] = {
        "versions": (common(spec.versions, within), versions),
        "nullable versions": (
            common(spec.nullable, versions),
            common(Versions.parse(field.get("nullableVersions", "none")), versions),
        ),
        "tag": (spec.tag, field.get("tag")),
        "flexible versions": (
            spec.flexible,
            Versions.parse(field["flexibleVersions"]) if "flexibleVersions" in field else None,
        ),
    }
    if "taggedVersions" in field:
        facts["tagged versions"] = (versions, common(Versions.parse(field["taggedVersions"]), versions))
    if versions != within:
        # Elsewhere the flag has no meaning, because there is no version that lacks the field.
        facts["ignorable"] = (spec.ignorable, field.get("ignorable", False))
    if not field["type"][0].isupper():
        facts["type"] = (type_name(wire_type), field["type"][: 2 if is_struct_array(field) else None])
        facts["default"] = (default_of(spec, wire_type), default_in(field))
    elif field.get("default") == "null":
        facts["default"] = (default_of(spec, wire_type), None)
    return facts


def unequal(path: str, facts: dict[str, tuple[object, object]]) -> Iterator[str]:
    for what, (ours, theirs) in facts.items():
        if ours != theirs or type(ours) is not type(theirs):
            yield f"{path}: {what} is {ours}, not {theirs}"


def is_unstable_request(schema: Schema) -> bool:
    return schema["type"] == "request" and bool(schema.get("latestVersionUnstable"))


def is_struct_array(field: Schema) -> bool:
    kind: str = field["type"]
    return kind.startswith("[]") and kind[2].isupper()


def versions_of(field: Schema, within: Versions) -> Versions:
    return common(Versions.parse(field.get("versions") or field["taggedVersions"]), within)


def common(a: Versions, b: Versions) -> Versions:
    both = Versions(max(a.lowest, b.lowest), min(a.highest, b.highest))
    return NO_VERSIONS if is_empty(both) else both


def is_empty(versions: Versions) -> bool:
    return versions.lowest > versions.highest


def element_of(wire_type: Any) -> Any:
    return wire_type.element if isinstance(wire_type, ArrayOf) else wire_type


def type_name(wire_type: Any) -> str:
    match wire_type:
        case Fixed(name=name) | Sized(name=name):
            return name
        case ArrayOf(element=element):
            return "[]" if isinstance(element, type) else f"[]{type_name(element)}"
    return "struct"


def default_in(field: Schema) -> object:
    """The default that Kafka's generator takes; it reads a JSON null as if nothing were said."""
    said, kind = field.get("default"), field["type"]
    if said == "null":
        return None
    if kind.startswith("[]"):
        return []
    if said is None or said == "":
        return ZEROS.get(kind, 0)
    match kind:
        case "string":
            return said
        case "bool":
            return str(said).lower() == "true"
        case "float64":
            return float(said)
    return int(str(said), 0)
