import pytest
from metadata.cluster import Cluster, registration

from moldau.metadata.features import FEATURES
from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.messages.brokers import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update(
    cluster: Cluster, *updates: tuple[str, int, int], validate_only: bool = False
) -> UpdateFeaturesResponse:
    reply = cluster.ask(
        UpdateFeaturesRequest(
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                for name, level, kind in updates
            ],
            validate_only=validate_only,
        )
    )
    assert isinstance(reply, UpdateFeaturesResponse)
    return reply


def test_features_go_up_and_down_together() -> None:
    cluster = Cluster(levels={"group.version": 0, "transaction.version": 1})
    reply = update(cluster, ("group.version", 1, UPGRADE), ("transaction.version", 2, UPGRADE))
    assert [(each.feature, each.error_code) for each in reply.results] == [
        ("group.version", 0),
        ("transaction.version", 0),
    ]
    assert cluster.image.feature_level("transaction.version") == 2
    update(cluster, ("group.version", 0, SAFE_DOWNGRADE), validate_only=True)
    assert cluster.image.feature_level("group.version") == 1
    update(cluster, ("group.version", 0, SAFE_DOWNGRADE))
    assert cluster.image.feature_level("group.version") == 0
    assert "group.version" not in cluster.image.features


def test_the_first_version_of_the_request_asks_for_a_downgrade_in_its_own_way() -> None:
    cluster = Cluster()
    cluster.ask(
        UpdateFeaturesRequest(
            feature_updates=[
                FeatureUpdateKey(feature="share.version", max_version_level=0, allow_downgrade=True)
            ]
        )
    )
    assert cluster.image.feature_level("share.version") == 0


@pytest.mark.parametrize(
    ("name", "level", "kind", "message"),
    [
        ("no.such.version", 1, UPGRADE, "no such feature"),
        ("transaction.version", 3, UPGRADE, "supports 0 to 2"),
        ("transaction.version", -1, SAFE_DOWNGRADE, "supports 0 to 2"),
        ("transaction.version", 1, UPGRADE, "at level 2, and no downgrade was asked for"),
        ("group.version", 1, SAFE_DOWNGRADE, "at level 0, and a downgrade was asked for"),
        ("group.version", 1, 0, "no upgrade type 0"),
        ("metadata.version", 29, SAFE_DOWNGRADE, "supports 30 to 30"),
        ("kraft.version", 1, UPGRADE, "quorum"),
        ("share.version", 0, UNSAFE_DOWNGRADE, "broker 1 does not support it"),
    ],
)
def test_an_update_is_refused_whole_with_what_was_wrong(
    name: str, level: int, kind: int, message: str
) -> None:
    cluster = Cluster(levels={"group.version": 0})
    cluster.ask(registration(1, levels={"share.version": (1, 1)}))
    before = dict(cluster.image.features.items())
    with pytest.raises(KafkaError) as refused:
        update(cluster, ("streams.version", 0, SAFE_DOWNGRADE), (name, level, kind))
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert message in refused.value.message
    assert dict(cluster.image.features.items()) == before


def test_the_table_says_what_kafka_says() -> None:
    # The lowest and the highest production level of each, as kafka-server-common 4.3.0 has them.
    assert {each.name: (each.lowest, each.highest) for each in FEATURES.values()} == {
        # Kafka also reads logs of levels 7 to 29.
        "metadata.version": (30, 30),
        "kraft.version": (0, 1),
        "transaction.version": (0, 2),
        "group.version": (0, 1),
        "eligible.leader.replicas.version": (0, 1),
        "share.version": (0, 1),
        "streams.version": (0, 1),
    }
