import pytest
from metadata.cluster import Cluster, directory_of, incarnation

from moldau.metadata.image import (
    NO_LEADER,
    Image,
    InvalidMetadata,
    Resource,
    ResourceType,
    topic_resource,
)
from moldau.model.ids import Epoch, NodeId, Offset, TopicId, TopicName, Uuid
from moldau.wire.message import MetadataRecord
from moldau.wire.messages import metadata_records as wire

ID = TopicId(Uuid(b"t" * 16))
OTHER_ID = TopicId(Uuid(b"u" * 16))


def topic(name: str = "orders", topic_id: Uuid = ID) -> wire.TopicRecord:
    return wire.TopicRecord(name=name, topic_id=topic_id)


def partition(index: int = 0, topic_id: Uuid = ID, **fields: object) -> wire.PartitionRecord:
    record = wire.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory_of(1), directory_of(2)],
    )
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def change(index: int = 0, topic_id: Uuid = ID, **fields: object) -> wire.PartitionChangeRecord:
    record = wire.PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def config(name: str, value: str | None, *, of: str = "orders") -> wire.ConfigRecord:
    return wire.ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=of, name=name, value=value)


def broker(node_id: int = 1, epoch: int = 5) -> wire.RegisterBrokerRecord:
    return wire.RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=incarnation(1),
        broker_epoch=epoch,
        end_points=[],
        features=[],
        rack=None,
        log_dirs=[directory_of(node_id)],
    )


def image_of(*records: MetadataRecord) -> Image:
    return Image().apply(records, offset=Offset(len(records) - 1), epoch=Epoch(1))[0]


# ------------------------------------------------------------------------------------------- what is wrong

DOES_NOT_FIT: dict[str, tuple[MetadataRecord, ...]] = {
    "a topic whose name is taken": (topic(topic_id=OTHER_ID),),
    "a topic whose id is taken": (topic("payments"),),
    "a partition of an unknown topic": (partition(0, OTHER_ID),),
    "a partition that leaves a gap": (partition(2),),
    "a partition that is there already": (partition(0),),
    "a partition without replicas": (partition(1, replicas=[], isr=[], directories=[], leader=-1),),
    "a partition with a replica twice": (partition(1, replicas=[1, 1]),),
    "a partition with fewer directories than replicas": (partition(1, directories=[directory_of(1)]),),
    "a partition in sync where it is not": (partition(1, isr=[1, 3]),),
    "a partition led from out of sync": (partition(1, isr=[2]),),
    "a partition whose eligible leader is in sync": (partition(1, eligible_leader_replicas=[2]),),
    "a partition with a negative epoch": (partition(1, leader_epoch=-1),),
    "a partition in a state that does not exist": (partition(1, leader_recovery_state=7),),
    "a change to a state that does not exist": (change(0, leader_recovery_state=7),),
    "a change of an unknown topic": (change(0, OTHER_ID, isr=[1]),),
    "a change of an unknown partition": (change(1, isr=[1]),),
    "a change of a negative partition": (change(-1, isr=[1]),),
    "a change to a leader that is not in sync": (change(0, leader=3),),
    "the removal of an unknown topic": (wire.RemoveTopicRecord(topic_id=OTHER_ID),),
    "the second removal of a topic": (
        wire.RemoveTopicRecord(topic_id=ID),
        wire.RemoveTopicRecord(topic_id=ID),
    ),
    "a setting of an unknown topic": (config("retention.ms", "1", of="payments"),),
    "a setting of a topic that was just removed": (
        wire.RemoveTopicRecord(topic_id=ID),
        config("retention.ms", "1"),
    ),
    "clearing the eligible leaders of an unknown topic": (wire.ClearElrRecord(topic_name="payments"),),
    "unregistering an unknown broker": (wire.UnregisterBrokerRecord(broker_id=7, broker_epoch=5),),
    "unregistering a broker with another epoch": (wire.UnregisterBrokerRecord(broker_id=1, broker_epoch=4),),
    "a change of an unknown broker": (wire.BrokerRegistrationChangeRecord(broker_id=7, broker_epoch=5),),
    "a change of a broker with another epoch": (
        wire.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, fenced=-1),
    ),
    "fencing a broker with another epoch": (wire.FenceBrokerRecord(id=1, epoch=6),),
    "producer ids that were given out": (
        wire.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
        wire.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000),
    ),
    "the removal of an unknown ACL": (wire.RemoveAccessControlEntryRecord(id=OTHER_ID),),
    "the removal of an unknown credential": (wire.RemoveUserScramCredentialRecord(name="ada", mechanism=1),),
    "the removal of an unknown token": (wire.RemoveDelegationTokenRecord(token_id="t"),),
    "a transaction that does not end": (wire.BeginTransactionRecord(),),
    "a transaction that never began": (wire.EndTransactionRecord(),),
    "a transaction in another": (wire.BeginTransactionRecord(), wire.BeginTransactionRecord()),
    "a transaction that is aborted": (wire.BeginTransactionRecord(), wire.AbortTransactionRecord()),
    "a migration from ZooKeeper": (wire.ZkMigrationStateRecord(zk_migration_state=1),),
}


@pytest.mark.parametrize("what", DOES_NOT_FIT)
def test_a_record_that_does_not_fit_is_refused_and_the_image_stays(what: str) -> None:
    image = image_of(topic(), partition(), broker(), config("retention.ms", "5"))
    told = list(image.records())
    with pytest.raises(InvalidMetadata):
        # Whatever fits before the record that does not must have no effect either.
        image.apply((config("retention.bytes", "7"), *DOES_NOT_FIT[what]), offset=Offset(9), epoch=Epoch(1))
    assert list(image.records()) == told


# ------------------------------------------------------------------------------------------- what changes


def test_a_change_of_the_leader_begins_an_epoch_and_any_other_does_not() -> None:
    image = image_of(topic(), partition())
    after, _ = image.apply([change(isr=[1])], offset=Offset(2), epoch=Epoch(1))
    found = after.topics[TopicName("orders")].partitions[0]
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (1, 0, 1)
    after, _ = after.apply([change(isr=[2], leader=2)], offset=Offset(3), epoch=Epoch(1))
    found = after.topics[TopicName("orders")].partitions[0]
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (2, 1, 2)
    after, _ = after.apply([change(leader=-1)], offset=Offset(4), epoch=Epoch(1))
    found = after.topics[TopicName("orders")].partitions[0]
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (NO_LEADER, 2, 3)


def test_a_topic_takes_its_settings_along() -> None:
    image = image_of(topic(), partition(), config("retention.ms", "5"))
    assert image.texts(topic_resource(TopicName("orders"))) == {"retention.ms": "5"}
    after, delta = image.apply([wire.RemoveTopicRecord(topic_id=ID)], offset=Offset(3), epoch=Epoch(1))
    assert len(after.configs) == 0
    assert delta.configs == (Resource(ResourceType.TOPIC, "orders"),)
    # A new topic of the same name begins without them.
    again, _ = after.apply([topic(topic_id=OTHER_ID)], offset=Offset(4), epoch=Epoch(1))
    assert again.texts(topic_resource(TopicName("orders"))) == {}


def test_eligible_leaders_are_cleared_of_one_topic_or_of_all() -> None:
    eligible: dict[str, object] = {
        "isr": [],
        "leader": -1,
        "eligible_leader_replicas": [2],
        "last_known_elr": [1],
    }
    image = image_of(
        topic(), partition(0, ID, **eligible), topic("payments", OTHER_ID), partition(0, OTHER_ID, **eligible)
    )
    one, _ = image.apply([wire.ClearElrRecord(topic_name="orders")], offset=Offset(4), epoch=Epoch(1))
    every, _ = image.apply([wire.ClearElrRecord(topic_name="")], offset=Offset(4), epoch=Epoch(1))
    assert [each.partitions[0].elr for each in one.topics.values()] == [(), (2,)]
    assert [each.partitions[0].elr for each in every.topics.values()] == [(), ()]
    assert every.topics[TopicName("orders")].partitions[0].partition_epoch == 1


def test_level_0_of_a_feature_is_no_feature() -> None:
    on = wire.FeatureLevelRecord(name="group.version", feature_level=1)
    off = wire.FeatureLevelRecord(name="group.version", feature_level=0)
    assert image_of(on).feature_level("group.version") == 1
    assert image_of(on, off) == image_of(off, off)
    assert len(image_of(on, off).features) == 0


def test_a_snapshot_begins_with_the_metadata_version() -> None:
    image = image_of(
        wire.FeatureLevelRecord(name="group.version", feature_level=1),
        wire.FeatureLevelRecord(name="metadata.version", feature_level=30),
    )
    assert [each.name for each in image.records() if isinstance(each, wire.FeatureLevelRecord)] == [
        "metadata.version",
        "group.version",
    ]


# --------------------------------------------------------------------------------------------- the delta


def test_the_delta_names_what_was_created_changed_and_deleted() -> None:
    image = image_of(topic(), partition(), topic("payments", OTHER_ID), partition(0, OTHER_ID))
    third = TopicId(Uuid(b"v" * 16))
    after, delta = image.apply(
        [
            topic("refunds", third),
            partition(0, third),
            change(isr=[1]),
            partition(1),
            wire.RemoveTopicRecord(topic_id=OTHER_ID),
        ],
        offset=Offset(9),
        epoch=Epoch(2),
    )
    assert [each.name for each in delta.topics_created] == ["refunds"]
    assert delta.topics_deleted == (image.topics[TopicName("payments")],)
    assert [(each.partition, each.before is None) for each in delta.partitions_changed] == [
        (0, False),
        (1, True),
    ]
    assert (delta.brokers, delta.features, delta.quotas) == ((), (), ())
    assert (after.offset, after.epoch) == (9, 2)


def test_a_topic_created_anew_in_one_batch_is_deleted_and_created() -> None:
    image = image_of(topic(), partition())
    after, delta = image.apply(
        [wire.RemoveTopicRecord(topic_id=ID), topic(topic_id=OTHER_ID), partition(0, OTHER_ID)],
        offset=Offset(5),
        epoch=Epoch(1),
    )
    assert [each.id for each in delta.topics_deleted] == [ID]
    assert [each.id for each in delta.topics_created] == [OTHER_ID]
    assert after.topic_by_id(ID) is None
    found = after.topic_by_id(OTHER_ID)
    assert found is not None
    assert found.name == "orders"


def test_a_topic_that_came_and_went_in_one_batch_was_never_there() -> None:
    _, delta = Image().apply(
        [topic(), partition(), wire.RemoveTopicRecord(topic_id=ID)], offset=Offset(2), epoch=Epoch(1)
    )
    assert delta.topics_created == delta.topics_deleted == ()


def test_a_node_learns_what_to_open_and_what_to_close() -> None:
    image = image_of(
        topic(),
        *(partition(index) for index in range(4)),
        topic("payments", OTHER_ID),
        partition(0, OTHER_ID),
    )
    third = TopicId(Uuid(b"v" * 16))
    _, delta = image.apply(
        [
            change(0, isr=[1]),
            change(1, leader=2),
            change(2, replicas=[1, 3], isr=[1], directories=[directory_of(1), directory_of(3)]),
            wire.RemoveTopicRecord(topic_id=OTHER_ID),
            topic("refunds", third),
            partition(0, third),
        ],
        offset=Offset(20),
        epoch=Epoch(1),
    )

    def told(node_id: int) -> dict[str, list[str]]:
        local = delta.local_changes(NodeId(node_id))
        return {
            kind: [str(each.topic_partition) for each in getattr(local, kind)]
            for kind in ("closed", "led", "followed", "updated")
        }

    assert told(1) == {
        "closed": ["payments-0"],
        "led": ["refunds-0"],
        "followed": ["orders-1"],
        "updated": ["orders-0", "orders-2"],
    }
    assert told(2) == {
        "closed": ["payments-0", "orders-2"],
        "led": ["orders-1"],
        "followed": ["refunds-0"],
        "updated": ["orders-0"],
    }
    assert told(3) == {"closed": [], "led": [], "followed": ["orders-2"], "updated": []}
    assert told(4) == {"closed": [], "led": [], "followed": [], "updated": []}


def test_a_leader_that_begins_a_new_epoch_has_to_lead_anew() -> None:
    image = image_of(topic(), partition())
    _, delta = image.apply([change(leader=1)], offset=Offset(2), epoch=Epoch(1))
    local = delta.local_changes(NodeId(1))
    assert [each.partition.leader_epoch for each in local.led] == [1]
    assert local.updated == ()


def test_what_was_not_touched_is_shared() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create_on("orders", [1])
    cluster.create_on("payments", [1])
    before = cluster.image
    cluster.alter(ResourceType.TOPIC, "orders", ("retention.ms", 0, "5"))
    assert cluster.image.topics[TopicName("payments")] is before.topics[TopicName("payments")]
    assert cluster.image.brokers is before.brokers
    assert cluster.image.topic_names is before.topic_names
