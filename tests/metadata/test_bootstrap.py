import pytest

from moldau.metadata.bootstrap import bootstrap_records
from moldau.metadata.image import ALL_BROKERS, Image
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import Epoch, Offset


def image_of(static: dict[str, str], levels: dict[str, int]) -> Image:
    records = bootstrap_records(static=static, levels=levels)
    return Image().apply(records, offset=Offset(0), epoch=Epoch(0))[0]


def test_a_new_cluster_has_every_feature_at_its_newest_level() -> None:
    assert dict(image_of({}, {}).features.items()) == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }


def test_a_feature_can_begin_switched_off() -> None:
    image = image_of({}, {"group.version": 0, "transaction.version": 1})
    assert image.feature_level("group.version") == 0
    assert image.feature_level("transaction.version") == 1


def test_what_is_eligible_depends_on_a_setting_that_becomes_the_clusters() -> None:
    image = image_of({"min.insync.replicas": "2"}, {})
    assert image.texts(ALL_BROKERS) == {"min.insync.replicas": "2"}
    off = image_of({"min.insync.replicas": "2"}, {"eligible.leader.replicas.version": 0})
    assert off.texts(ALL_BROKERS) == {}


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"group.version": 2}, "0 to 1"),
        ({"metadata.version": 29}, "30 to 30"),
        ({"no.such.version": 1}, "'no.such.version'"),
    ],
)
def test_a_cluster_cannot_begin_with_levels_that_nobody_supports(
    levels: dict[str, int], message: str
) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        bootstrap_records(static={}, levels=levels)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
