import pytest
from metadata.cluster import Cluster

from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
)

Entity = dict[str, str | None]
EXACT, DEFAULT, ANY = 0, 1, 2


def entry(entity: Entity, limits: dict[str, float | None]) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
    )


def alter(
    cluster: Cluster, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    reply = cluster.ask(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only))
    assert isinstance(reply, AlterClientQuotasResponse)
    return [(each.error_code, each.error_message) for each in reply.entries]


def describe(
    cluster: Cluster, *components: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[Entity, dict[str, float]]]:
    reply = cluster.ask(
        DescribeClientQuotasRequest(
            components=[
                ComponentData(entity_type=kind, match_type=match_type, match=match)
                for kind, match_type, match in components
            ],
            strict=strict,
        )
    )
    assert isinstance(reply, DescribeClientQuotasResponse)
    assert reply.entries is not None
    return [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in reply.entries
    ]


def test_quotas_are_set_changed_and_removed() -> None:
    cluster = Cluster()
    ada: Entity = {"user": "ada", "client-id": None}
    assert alter(cluster, entry(ada, {"producer_byte_rate": 1024.0, "request_percentage": 50.5})) == [
        (0, None)
    ]
    # The order in which an entity is spelt makes no difference.
    same: Entity = {"client-id": None, "user": "ada"}
    assert alter(cluster, entry(same, {"producer_byte_rate": 2048.0})) == [(0, None)]
    assert describe(cluster) == [(ada, {"producer_byte_rate": 2048.0, "request_percentage": 50.5})]
    assert alter(cluster, entry(ada, {"request_percentage": None}), validate_only=True) == [(0, None)]
    assert len(describe(cluster)[0][1]) == 2
    alter(cluster, entry(ada, {"request_percentage": None, "producer_byte_rate": None}))
    assert describe(cluster) == []


def test_what_stays_the_same_is_not_written_again() -> None:
    cluster = Cluster()
    alter(cluster, entry({"user": "ada"}, {"producer_byte_rate": 5.0}))
    end = cluster.next_offset
    alter(cluster, entry({"user": "ada"}, {"producer_byte_rate": 5.0, "consumer_byte_rate": None}))
    assert cluster.next_offset == end


@pytest.mark.parametrize(
    ("entity", "limits", "message"),
    [
        ({}, {"producer_byte_rate": 1.0}, "empty"),
        ({"team": "a"}, {"producer_byte_rate": 1.0}, "'team'"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "name of the user is empty"),
        ({"ip": "10.0.0.1", "user": "ada"}, {"connection_creation_rate": 1.0}, "combined"),
        ({"ip": "not an address"}, {"connection_creation_rate": 1.0}, "'not an address'"),
        ({"ip": "10.0.0.256"}, {"connection_creation_rate": 1.0}, "not an address"),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}, "only connection_creation_rate"),
        ({"user": "ada"}, {"connection_creation_rate": 1.0}, "no quota 'connection_creation_rate'"),
        ({"user": "ada"}, {"speed": 1.0}, "no quota 'speed'"),
        ({"user": "ada"}, {"producer_byte_rate": -1.0}, "larger than 0, not -1.0"),
        ({"user": "ada"}, {"producer_byte_rate": float("nan")}, "larger than 0, not nan"),
        ({"user": "ada"}, {"producer_byte_rate": 1.5}, "whole number, not 1.5"),
        ({"user": "ada"}, {"producer_byte_rate": 1e19}, "at most"),
    ],
)
def test_a_quota_is_refused_with_what_was_wrong(
    entity: Entity, limits: dict[str, float | None], message: str
) -> None:
    cluster = Cluster()
    ((code, text),) = alter(cluster, entry(entity, limits))
    assert code == ErrorCode.INVALID_REQUEST
    assert text is not None
    assert message in text
    assert describe(cluster) == []


def test_each_entity_has_its_own_result() -> None:
    cluster = Cluster()
    twice = entry({"user": "bob"}, {"producer_byte_rate": 1.0})
    results = alter(cluster, entry({"user": "ada"}, {"producer_byte_rate": 1.0}), twice, twice)
    assert [code for code, _ in results] == [0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert [entity for entity, _ in describe(cluster)] == [{"user": "ada"}]


@pytest.fixture
def crowd() -> Cluster:
    cluster = Cluster()
    entities: list[Entity] = [
        {"user": "ada"},
        {"user": "ada", "client-id": "reader"},
        {"user": "ada", "client-id": None},
        {"user": None},
        {"client-id": "reader"},
    ]
    alter(cluster, *(entry(each, {"producer_byte_rate": 1.0}) for each in entities))
    alter(cluster, entry({"ip": "10.0.0.1"}, {"connection_creation_rate": 3.0}))
    return cluster


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, 6),
        ([], True, 0),
        ([("user", EXACT, "ada")], False, 3),
        ([("user", EXACT, "ada")], True, 1),
        ([("user", DEFAULT, None)], False, 1),
        ([("user", ANY, None)], False, 4),
        ([("user", ANY, None)], True, 2),
        ([("client-id", EXACT, "reader")], False, 2),
        ([("user", EXACT, "ada"), ("client-id", DEFAULT, None)], True, 1),
        ([("user", EXACT, "eve")], False, 0),
        ([("ip", EXACT, "10.0.0.1")], True, 1),
    ],
)
def test_who_matches_a_question(
    components: list[tuple[str, int, str | None]], strict: bool, expected: int, crowd: Cluster
) -> None:
    assert len(describe(crowd, *components, strict=strict)) == expected


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("team", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "ada")], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "ada")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", EXACT, "ada")], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_question_that_makes_no_sense(
    components: list[tuple[str, int, str | None]], code: ErrorCode, crowd: Cluster
) -> None:
    with pytest.raises(KafkaError) as refused:
        describe(crowd, *components)
    assert refused.value.code is code
