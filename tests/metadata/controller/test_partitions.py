import pytest
from metadata.cluster import SESSION_MS, Cluster

from moldau.metadata.image import NO_LEADER, LeaderRecovery, Partition, ResourceType
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import NodeId, Uuid
from moldau.wire.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from moldau.wire.messages.metadata_records import PartitionChangeRecord
from moldau.wire.messages.topics import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(static={"min.insync.replicas": "2"})
    cluster.start(1, 2, 3)
    cluster.create_on("orders", [1, 2, 3])
    return cluster


def state(partition: Partition) -> tuple[int, list[int], list[int]]:
    return partition.leader, list(partition.isr), list(partition.elr)


# ----------------------------------------------------------------------------------------- leaders and ISR


def alter(
    cluster: Cluster,
    isr: list[int],
    *,
    sender: int = 1,
    index: int = 0,
    topic_id: Uuid | None = None,
    leader_epoch: int | None = None,
    partition_epoch: int | None = None,
    recovery: int = 0,
    broker_epochs: dict[int, int] | None = None,
) -> AlterPartitionResponsePartitionData:
    partition = cluster.partition("orders")
    epochs = {each.id: each.epoch for each in cluster.image.brokers.values()} | dict(broker_epochs or {})
    reply = cluster.ask(
        AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=cluster.image.brokers[NodeId(sender)].epoch,
            topics=[
                AlterPartitionRequestTopicData(
                    topic_id=topic_id or cluster.topic("orders").id,
                    partitions=[
                        AlterPartitionRequestPartitionData(
                            partition_index=index,
                            leader_epoch=partition.leader_epoch if leader_epoch is None else leader_epoch,
                            new_isr_with_epochs=[
                                BrokerState(broker_id=each, broker_epoch=epochs.get(NodeId(each), -1))
                                for each in isr
                            ],
                            leader_recovery_state=recovery,
                            partition_epoch=partition.partition_epoch
                            if partition_epoch is None
                            else partition_epoch,
                        )
                    ],
                )
            ],
        )
    )
    assert isinstance(reply, AlterPartitionResponse)
    return reply.topics[0].partitions[0]


def test_a_leader_shrinks_and_expands_the_in_sync_set(cluster: Cluster) -> None:
    reply = alter(cluster, [1, 3])
    assert (reply.error_code, reply.isr, reply.leader_id) == (0, [1, 3], 1)
    # The in-sync set is another, the leader is the same: only the partition's epoch has risen.
    assert (reply.leader_epoch, reply.partition_epoch) == (0, 1)
    assert alter(cluster, [1, 3, 2]).isr == [1, 3, 2]
    assert state(cluster.partition("orders")) == (1, [1, 3, 2], [])


def test_below_the_smallest_in_sync_set_those_who_leave_stay_eligible(cluster: Cluster) -> None:
    alter(cluster, [1, 2])
    assert state(cluster.partition("orders")) == (1, [1, 2], [])
    alter(cluster, [1])
    assert state(cluster.partition("orders")) == (1, [1], [2])
    alter(cluster, [1, 3])
    assert state(cluster.partition("orders")) == (1, [1, 3], [])


ALTER_REFUSED: dict[str, tuple[dict[str, object], ErrorCode]] = {
    "a partition that is not there": ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a topic that is not there": ({"topic_id": Uuid(b"x" * 16)}, ErrorCode.UNKNOWN_TOPIC_ID),
    "a leader epoch from the future": ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
    "a partition epoch from the future": ({"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
    "a leader that was deposed": ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
    "a state that has changed since": ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
    "somebody who does not lead": ({"sender": 2}, ErrorCode.INVALID_REQUEST),
    "a set with a stranger": ({"isr": [1, 4]}, ErrorCode.INVALID_REQUEST),
    "a set with somebody twice": ({"isr": [1, 2, 2]}, ErrorCode.INVALID_REQUEST),
    "a set without the leader": ({"isr": [2]}, ErrorCode.INVALID_REQUEST),
    "a leader that goes back to recovering": ({"isr": [1], "recovery": 1}, ErrorCode.INVALID_REQUEST),
    "an unknown recovery state": ({"recovery": 7}, ErrorCode.INVALID_REQUEST),
    "a replica with another epoch": ({"broker_epochs": {2: 1}}, ErrorCode.INELIGIBLE_REPLICA),
    "a replica that is fenced": ({"isr": [1, 3]}, ErrorCode.INELIGIBLE_REPLICA),
}


@pytest.mark.parametrize("what", ALTER_REFUSED)
def test_a_leaders_request_is_refused(what: str, cluster: Cluster) -> None:
    cluster.start(4)
    cluster.fence(3)
    before = cluster.partition("orders")
    assert before.partition_epoch == 1
    arguments, code = ALTER_REFUSED[what]
    reply = alter(cluster, **{"isr": [1, 2]} | arguments)  # type: ignore[arg-type]
    assert reply.error_code == code
    assert cluster.partition("orders") == before


def test_a_replica_that_is_shutting_down_does_not_come_into_sync(cluster: Cluster) -> None:
    cluster.heartbeat(1, want_shut_down=True)
    assert cluster.partition("orders").leader == 2
    assert alter(cluster, [2, 3, 1], sender=2).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_that_was_elected_uncleanly_recovers_before_others_join(cluster: Cluster) -> None:
    cluster.alter(ResourceType.TOPIC, "orders", ("unclean.leader.election.enable", 0, "true"))
    cluster.append([_lost(cluster, replicas=(1, 2, 3))])
    cluster.carry_out(cluster.active.elect_missing_leaders())
    partition = cluster.partition("orders")
    assert (partition.leader, partition.leader_recovery) == (1, LeaderRecovery.RECOVERING)
    assert alter(cluster, [1, 2], recovery=1).error_code == ErrorCode.INVALID_REQUEST
    assert alter(cluster, [1], recovery=0).error_code == 0
    assert cluster.partition("orders").leader_recovery is LeaderRecovery.RECOVERED
    assert alter(cluster, [1, 2]).error_code == 0


# -------------------------------------------------------------------------------- brokers that come and go


def test_when_the_leader_is_fenced_the_next_in_sync_replica_leads(cluster: Cluster) -> None:
    alter(cluster, [1, 3])
    epoch = cluster.partition("orders").leader_epoch
    cluster.fence(1)
    assert state(cluster.partition("orders")) == (3, [3], [1])
    assert cluster.partition("orders").leader_epoch == epoch + 1


def test_a_follower_that_is_fenced_leaves_the_set_and_the_leader_keeps_its_epoch(cluster: Cluster) -> None:
    epoch = cluster.partition("orders").leader_epoch
    cluster.fence(3)
    assert state(cluster.partition("orders")) == (1, [1, 2], [])
    assert cluster.partition("orders").leader_epoch == epoch


def test_when_all_are_gone_only_those_lead_who_have_what_is_committed(cluster: Cluster) -> None:
    cluster.fence(3, 2, 1)
    partition = cluster.partition("orders")
    assert state(partition) == (NO_LEADER, [], [1, 2])
    assert partition.last_known_elr == (1,)
    # 3 left while two others could still commit without it.
    cluster.heartbeat(3)
    assert cluster.partition("orders").leader == NO_LEADER
    cluster.heartbeat(2)
    assert state(cluster.partition("orders")) == (2, [2], [1])
    assert cluster.partition("orders").leader_recovery is LeaderRecovery.RECOVERED
    assert cluster.partition("orders").last_known_elr == ()


def test_no_more_replicas_need_to_be_in_sync_than_there_are(cluster: Cluster) -> None:
    cluster.create_on("payments", [1])
    sizes = {
        topic.name: cluster.active.view.isr_size_min(topic, topic.partitions[0])
        for topic in cluster.image.topics.values()
    }
    assert sizes == {"orders": 2, "payments": 1}


def test_without_eligible_leaders_the_last_in_sync_replica_is_remembered() -> None:
    cluster = Cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    cluster.fence(1, 2)
    assert state(cluster.partition("orders")) == (NO_LEADER, [2], [])
    cluster.heartbeat(1)
    assert state(cluster.partition("orders")) == (NO_LEADER, [2], [])
    cluster.heartbeat(2)
    assert state(cluster.partition("orders")) == (2, [2], [])


def test_an_unclean_leader_is_elected_only_where_the_topic_allows_it() -> None:
    cluster = Cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2)
    cluster.create_on("careful", [1, 2])
    cluster.create_on("careless", [1, 2], configs={"unclean.leader.election.enable": "true"})
    cluster.fence(2, 1)
    assert state(cluster.partition("careful")) == (NO_LEADER, [1], [])
    cluster.heartbeat(2)
    assert state(cluster.partition("careful")) == (NO_LEADER, [1], [])
    assert state(cluster.partition("careless")) == (2, [2], [])
    assert cluster.partition("careless").leader_recovery is LeaderRecovery.RECOVERING


def test_allowing_unclean_elections_takes_effect_when_leaders_are_looked_for() -> None:
    cluster = Cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    cluster.fence(2, 1)
    cluster.heartbeat(2)
    assert cluster.carry_out(cluster.active.elect_missing_leaders()) == 0
    cluster.alter(ResourceType.BROKER, "", ("unclean.leader.election.enable", 0, "true"))
    assert cluster.carry_out(cluster.active.elect_missing_leaders()) == 1
    assert cluster.partition("orders").leader == 2


def test_whoever_led_last_leads_when_nobody_is_known_to_be_complete(cluster: Cluster) -> None:
    cluster.append([_lost(cluster, replicas=(1, 2, 3), last_known=(2,))])
    cluster.fence(1)
    assert cluster.partition("orders").leader == NO_LEADER
    cluster.carry_out(cluster.active.elect_missing_leaders())
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.leader_recovery is LeaderRecovery.RECOVERING


def test_leader_epochs_never_go_back(cluster: Cluster) -> None:
    epochs = [cluster.partition("orders").leader_epoch]
    for node_id in (1, 2, 3, 1, 2, 3):
        cluster.fence(node_id)
        epochs.append(cluster.partition("orders").leader_epoch)
        cluster.heartbeat(node_id)
        epochs.append(cluster.partition("orders").leader_epoch)
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]


# --------------------------------------------------------------------------------------- elections on demand


def elect(cluster: Cluster, kind: int, *partitions: tuple[str, int]) -> dict[tuple[str, int], ErrorCode]:
    reply = cluster.ask(
        ElectLeadersRequest(
            election_type=kind,
            topic_partitions=[TopicPartitions(topic=name, partitions=[index]) for name, index in partitions]
            or None,
        )
    )
    assert isinstance(reply, ElectLeadersResponse)
    return {
        (topic.topic, result.partition_id): ErrorCode(result.error_code)
        for topic in reply.replica_election_results
        for result in topic.partition_result
    }


def test_the_preferred_leader_is_elected_when_it_is_in_sync_again(cluster: Cluster) -> None:
    orders = ("orders", 0)
    assert elect(cluster, PREFERRED, orders) == {orders: ErrorCode.ELECTION_NOT_NEEDED}
    cluster.fence(1)
    cluster.heartbeat(1)
    assert elect(cluster, PREFERRED, orders) == {orders: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert alter(cluster, [2, 3, 1], sender=2).error_code == 0
    assert elect(cluster, PREFERRED, orders) == {orders: ErrorCode.NONE}
    assert cluster.partition("orders").leader == 1


def test_while_anybody_is_in_sync_nobody_else_leads_however_eligible(cluster: Cluster) -> None:
    cluster.create_on("payments", [2, 1])
    cluster.fence(2)
    cluster.heartbeat(2)
    assert state(cluster.partition("payments")) == (1, [1], [2])
    payments = ("payments", 0)
    assert elect(cluster, PREFERRED, payments) == {payments: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert cluster.partition("payments").leader == 1


def test_of_all_partitions_only_those_are_told_of_where_something_was_to_be_done(cluster: Cluster) -> None:
    cluster.create_on("payments", [2], [3])
    assert elect(cluster, PREFERRED) == {}
    cluster.fence(1)
    assert elect(cluster, PREFERRED) == {("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_an_unclean_election_is_held_for_partitions_without_a_leader(cluster: Cluster) -> None:
    orders = ("orders", 0)
    assert elect(cluster, UNCLEAN, orders) == {orders: ErrorCode.ELECTION_NOT_NEEDED}
    cluster.fence(3, 2, 1)
    assert elect(cluster, UNCLEAN, orders) == {orders: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    cluster.heartbeat(3)
    assert elect(cluster, UNCLEAN, orders) == {orders: ErrorCode.NONE}
    assert state(cluster.partition("orders")) == (3, [3], [])
    assert cluster.partition("orders").leader_recovery is LeaderRecovery.RECOVERING


def test_elections_for_what_is_not_there(cluster: Cluster) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(cluster, PREFERRED, ("nil", 0), ("orders", 9)) == {
        ("nil", 0): unknown,
        ("orders", 9): unknown,
    }
    with pytest.raises(KafkaError) as refused:
        elect(cluster, 7)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_leadership_goes_back_to_the_first_replicas_some_at_a_time(cluster: Cluster) -> None:
    cluster.create_on("payments", [1, 2], [1, 2], [1, 2])
    cluster.fence(1)
    assert {each.leader for each in cluster.topic("payments").partitions} == {2}
    assert cluster.carry_out(cluster.active.prefer_first_replicas(count_max=2)) == 0
    cluster.heartbeat(1)
    cluster.append(_all_in_sync(cluster, "payments"))
    assert cluster.carry_out(cluster.active.prefer_first_replicas(count_max=2)) == 2
    assert cluster.carry_out(cluster.active.prefer_first_replicas(count_max=2)) == 1
    assert cluster.carry_out(cluster.active.prefer_first_replicas(count_max=2)) == 0
    assert {each.leader for each in cluster.topic("payments").partitions} == {1}


def test_a_silent_cluster_comes_back_as_it_was(cluster: Cluster) -> None:
    cluster.now_ms += SESSION_MS
    while cluster.carry_out(cluster.active.fence_silent_brokers(cluster.now_ms)):
        pass
    assert cluster.partition("orders").leader == NO_LEADER
    for node_id in (3, 2, 1):
        cluster.heartbeat(node_id)
    assert cluster.partition("orders").leader in (2, 3)
    assert cluster.standby.image == cluster.image


# ------------------------------------------------------------------------------------------- states by hand


def _lost(
    cluster: Cluster, *, replicas: tuple[int, ...], last_known: tuple[int, ...] = ()
) -> PartitionChangeRecord:
    """Nobody is in sync and nobody is eligible, as after disks were lost."""
    assert cluster.partition("orders").replicas == replicas
    return PartitionChangeRecord(
        partition_id=0,
        topic_id=cluster.topic("orders").id,
        isr=[],
        leader=NO_LEADER,
        last_known_elr=list(last_known),
    )


def _all_in_sync(cluster: Cluster, name: str) -> list[PartitionChangeRecord]:
    return [
        PartitionChangeRecord(
            partition_id=index,
            topic_id=cluster.topic(name).id,
            isr=sorted(each.replicas),
            eligible_leader_replicas=[],
        )
        for index, each in enumerate(cluster.topic(name).partitions)
    ]
