"""Any history: what the records say is all that there is to know, live, on a standby and from a snapshot."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from metadata.cluster import EPOCH, SESSION_MS, Cluster, incarnation, new_topic

from moldau.metadata.image import ALL_BROKERS, Image, ResourceType
from moldau.model.errors import KafkaError
from moldau.model.ids import ZERO_UUID, NodeId, Offset, TopicId, Uuid
from moldau.wire.message import MetadataRecord
from moldau.wire.messages import metadata_records as wire
from moldau.wire.messages.brokers import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    ControllerRegistrationRequest,
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from moldau.wire.messages.internal_logs import decode_metadata_record, encode_metadata_record
from moldau.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from moldau.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
)

Step = Callable[[Cluster], object]

NODES = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b", "c.d", "c_d", "e"])
REPLICAS = st.lists(NODES, min_size=1, max_size=4)
TEXTS = st.sampled_from(["1", "2", "true", "false", "compact"])
SETTINGS = st.sampled_from(
    ["min.insync.replicas", "unclean.leader.election.enable", "retention.ms", "cleanup.policy"]
)


def silence(cluster: Cluster) -> None:
    cluster.now_ms += SESSION_MS
    while cluster.carry_out(cluster.active.fence_silent_brokers(cluster.now_ms)):
        pass


def alter_partition(name: str, isr: list[int]) -> Step:
    def step(cluster: Cluster) -> None:
        topic = cluster.topic(name)
        partition = topic.partitions[0]
        members = list(
            dict.fromkeys([partition.leader, *(each for each in isr if each in partition.replicas)])
        )
        cluster.ask(
            AlterPartitionRequest(
                broker_id=partition.leader,
                broker_epoch=cluster.image.brokers[partition.leader].epoch,
                topics=[
                    AlterPartitionRequestTopicData(
                        topic_id=topic.id,
                        partitions=[
                            AlterPartitionRequestPartitionData(
                                partition_index=0,
                                leader_epoch=partition.leader_epoch,
                                new_isr=list(members),
                                partition_epoch=partition.partition_epoch,
                            )
                        ],
                    )
                ],
            )
        )

    return step


def reassign(name: str, replicas: list[int] | None) -> Step:
    wanted = None if replicas is None else list(dict.fromkeys(replicas))
    partitions = [ReassignablePartition(partition_index=0, replicas=wanted)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=partitions)])
    return lambda cluster: cluster.ask(request)


def delete_by_id(name: str) -> Step:
    return lambda cluster: cluster.ask(
        DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=cluster.topic(name).id)], timeout_ms=0)
    )


def quota(name: str | None, value: float, remove: bool) -> Step:
    entity = [EntityData(entity_type="user", entity_name=name)]
    ops = [OpData(key="producer_byte_rate", value=value, remove=remove)]
    entries = [AlterClientQuotasRequestEntryData(entity=entity, ops=ops)]
    return lambda cluster: cluster.ask(AlterClientQuotasRequest(entries=entries, validate_only=False))


def feature(name: str, level: int) -> Step:
    def step(cluster: Cluster) -> None:
        kind = 1 if level >= cluster.image.feature_level(name) else 2
        update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        cluster.ask(UpdateFeaturesRequest(feature_updates=[update]))

    return step


def controller(node_id: int) -> Step:
    return lambda cluster: cluster.ask(
        ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=incarnation(1),
            zk_migration_ready=False,
            listeners=[],
            features=[],
        )
    )


def producer_ids(node_id: int) -> Step:
    return lambda cluster: cluster.ask(
        AllocateProducerIdsRequest(
            broker_id=node_id, broker_epoch=cluster.image.brokers[NodeId(node_id)].epoch
        )
    )


def secrets(number: int) -> Step:
    """What is only kept for later."""
    acl_id = Uuid(bytes([number]) * 16)
    records: list[MetadataRecord] = [
        wire.AccessControlEntryRecord(
            id=acl_id,
            resource_type=2,
            resource_name="a",
            pattern_type=3,
            principal="User:ada",
            host="*",
            operation=3,
            permission_type=3,
        ),
        wire.UserScramCredentialRecord(
            name=f"user{number}", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        wire.DelegationTokenRecord(
            owner="User:ada",
            requester="User:ada",
            renewers=[],
            issue_timestamp=0,
            max_timestamp=9,
            expiration_timestamp=5,
            token_id=f"token{number}",
        ),
    ]
    return lambda cluster: cluster.append(records)


STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda node, run: lambda cluster: cluster.register(node, run=run), NODES, st.integers(1, 3)),
    st.builds(
        lambda node, fence, down: (
            lambda cluster: cluster.heartbeat(node, want_fence=fence, want_shut_down=down)
        ),
        NODES,
        st.sampled_from([False, False, False, True]),
        st.sampled_from([False, False, False, True]),
    ),
    st.just(silence),
    st.builds(
        lambda name, count, factor: (
            lambda cluster: cluster.create(new_topic(name, partitions=count, replicas=factor))
        ),
        NAMES,
        st.integers(1, 3),
        st.integers(1, 3),
    ),
    st.builds(
        lambda name, replicas: lambda cluster: cluster.create(new_topic(name, assignments=[replicas])),
        NAMES,
        REPLICAS,
    ),
    st.builds(delete_by_id, NAMES),
    st.builds(
        lambda name, count: (
            lambda cluster: cluster.ask(
                CreatePartitionsRequest(
                    topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
                    timeout_ms=0,
                    validate_only=False,
                )
            )
        ),
        NAMES,
        st.integers(1, 5),
    ),
    st.builds(
        lambda name, key, op, text: lambda cluster: cluster.alter(ResourceType.TOPIC, name, (key, op, text)),
        NAMES,
        SETTINGS,
        st.integers(0, 3),
        TEXTS,
    ),
    st.builds(lambda key, text: lambda cluster: cluster.alter(*ALL_BROKERS, (key, 0, text)), SETTINGS, TEXTS),
    st.builds(alter_partition, NAMES, REPLICAS),
    st.builds(reassign, NAMES, REPLICAS | st.none()),
    st.builds(
        lambda kind: (
            lambda cluster: cluster.ask(ElectLeadersRequest(election_type=kind, topic_partitions=None))
        ),
        st.integers(0, 1),
    ),
    st.just(lambda cluster: cluster.carry_out(cluster.active.elect_missing_leaders())),
    st.just(lambda cluster: cluster.carry_out(cluster.active.prefer_first_replicas(count_max=3))),
    st.builds(lambda node: lambda cluster: cluster.ask(UnregisterBrokerRequest(broker_id=node)), NODES),
    st.builds(quota, st.sampled_from(["ada", None]), st.sampled_from([1.0, 2.0]), st.booleans()),
    st.builds(
        feature, st.sampled_from(["eligible.leader.replicas.version", "group.version"]), st.integers(0, 1)
    ),
    st.builds(controller, NODES),
    st.builds(producer_ids, NODES),
    st.builds(secrets, st.integers(1, 2)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_active_standby_and_snapshot_know_the_same(steps: list[Step]) -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_on("a", [1, 2, 3])
    topic_ids: dict[TopicId, str] = {}
    for step in steps:
        before = cluster.image
        try:
            step(cluster)
        except (KafkaError, KeyError):
            # Refused, or about something that is not there: nothing has changed.
            assert cluster.image is before
        check_epochs(before, cluster.image)
        for topic in cluster.image.topics.values():
            assert topic_ids.setdefault(topic.id, topic.name) == topic.name
            assert topic.id != ZERO_UUID
    assert cluster.standby.image == cluster.image
    assert restored(cluster.image) == cluster.image
    # Batches or one after the other, it is the same log.
    replayed = Image()
    for offset, record in enumerate(cluster.log):
        replayed, _ = replayed.apply([record], offset=Offset(offset), epoch=EPOCH)
    assert replayed == cluster.image


def check_epochs(before: Image, after: Image) -> None:
    """Epochs of a partition never go back, and a leader changes only with a new epoch."""
    for topic in before.topics.values():
        for index, old in enumerate(topic.partitions):
            new = after.partition(topic.id, index)
            if new is None:
                continue
            assert new.leader_epoch >= old.leader_epoch
            assert new.partition_epoch >= old.partition_epoch
            assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
            assert new is old or new == old or new.partition_epoch > old.partition_epoch


def restored(image: Image) -> Image:
    """The image that a snapshot of this one gives, by way of its bytes."""
    records = [
        decode_metadata_record(encode_metadata_record(record, type(record).declaration.versions.highest))[0]
        for record in image.records()
    ]
    return Image().apply(records, offset=image.offset, epoch=image.epoch)[0]
