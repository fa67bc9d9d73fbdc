from collections.abc import Callable

import pytest
from metadata.cluster import EPOCH, SESSION_MS, Cluster, directory_of, incarnation, registration

from moldau.metadata.controller.brokers import sessions_of
from moldau.metadata.controller.state import Controller
from moldau.metadata.image import NO_LEADER, Endpoint
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, BrokerEpoch, NodeId
from moldau.wire.message import Request
from moldau.wire.messages.brokers import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    Feature,
    Listener,
    UnregisterBrokerRequest,
)

# ------------------------------------------------------------------------------------------- registration


def test_a_broker_begins_fenced_and_its_epoch_is_the_offset_of_its_record() -> None:
    cluster = Cluster()
    offset = BrokerEpoch(cluster.next_offset)
    assert cluster.register(1, rack="a").broker_epoch == offset
    broker = cluster.image.brokers[NodeId(1)]
    assert (broker.epoch, broker.is_fenced, broker.rack) == (offset, True, "a")
    assert broker.endpoints == (Endpoint("PLAINTEXT", "host1", 9092, 0),)
    assert broker.directories == (directory_of(1),)


def test_the_same_incarnation_keeps_its_epoch_and_its_state() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create_on("orders", [1])
    epoch = cluster.image.brokers[NodeId(1)].epoch
    assert cluster.register(1, rack="b").broker_epoch == epoch
    broker = cluster.image.brokers[NodeId(1)]
    assert (broker.is_fenced, broker.rack) == (False, "b")
    assert cluster.partition("orders").leader == 1


def test_a_new_incarnation_waits_until_the_old_one_is_silent() -> None:
    cluster = Cluster()
    cluster.start(1)
    old = cluster.image.brokers[NodeId(1)].epoch
    cluster.now_ms += SESSION_MS - 1
    with pytest.raises(KafkaError, match="id 1 is alive") as refused:
        cluster.register(1, run=2)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 1
    assert cluster.register(1, run=2).broker_epoch > old
    assert cluster.image.brokers[NodeId(1)].is_fenced


def test_a_new_controller_believes_a_new_incarnation_until_it_has_heard_from_the_old_one() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.active.activate(cluster.now_ms)
    cluster.heartbeat(2)
    assert cluster.register(1, run=2).error_code == 0
    with pytest.raises(KafkaError, match="id 2 is alive"):
        cluster.register(2, run=2)


def test_a_broker_that_is_shutting_down_may_come_back_at_once() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    cluster.heartbeat(1, want_shut_down=True)
    cluster.register(1, run=2)
    assert cluster.image.brokers[NodeId(1)].incarnation_id == incarnation(2)


def test_a_new_incarnation_leads_nothing_until_it_has_caught_up() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    cluster.now_ms += SESSION_MS
    cluster.heartbeat(2)
    cluster.register(1, run=2)
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2,))


def test_the_only_replica_leads_again_after_a_restart() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create_on("orders", [1])
    cluster.now_ms += SESSION_MS
    cluster.register(1, run=2)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (1,))
    epoch = partition.leader_epoch
    cluster.heartbeat(1)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())
    assert partition.leader_epoch == epoch + 1
    # Its records were flushed before they were committed, so this was no unclean election.
    assert partition.leader_recovery == 0


def without_directories() -> BrokerRegistrationRequest:
    return registration(3, directories=0)


def with_directories(*directories: bytes) -> Callable[[], BrokerRegistrationRequest]:
    def make() -> BrokerRegistrationRequest:
        request = registration(3)
        request.log_dirs = list(directories)  # type: ignore[arg-type]
        return request

    return make


def migrating() -> BrokerRegistrationRequest:
    request = registration(3)
    request.is_migrating_zk_broker = True
    return request


REFUSED: dict[str, tuple[Callable[[], BrokerRegistrationRequest], ErrorCode, str]] = {
    "another cluster": (
        lambda: registration(3, cluster_id="other"),
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        "belongs to 'other'",
    ),
    "no directories": (without_directories, ErrorCode.INVALID_REGISTRATION, "no log directory"),
    "a reserved directory": (
        with_directories(DIRECTORY_LOST),
        ErrorCode.INVALID_REGISTRATION,
        "reserved",
    ),
    "a directory twice": (
        with_directories(directory_of(3), directory_of(3)),
        ErrorCode.INVALID_REGISTRATION,
        "twice",
    ),
    "somebody else's directory": (
        with_directories(directory_of(1)),
        ErrorCode.INVALID_REGISTRATION,
        "belongs to broker 1",
    ),
    "a feature level that it cannot live with": (
        lambda: registration(3, levels={"transaction.version": (0, 1)}),
        ErrorCode.UNSUPPORTED_VERSION,
        "transaction.version at level 2, and the broker supports 0 to 1",
    ),
    "a feature that needs a level the cluster has not": (
        lambda: registration(3, levels={"new.version": (1, 2)}),
        ErrorCode.UNSUPPORTED_VERSION,
        "new.version at level 0",
    ),
    "ZooKeeper": (migrating, ErrorCode.BROKER_ID_NOT_REGISTERED, "ZooKeeper"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_registration_is_refused_with_what_was_wrong(what: str) -> None:
    make, code, message = REFUSED[what]
    cluster = Cluster()
    cluster.start(1)
    with pytest.raises(KafkaError) as refused:
        cluster.ask(make())
    assert refused.value.code is code
    assert message in refused.value.message
    assert list(cluster.image.brokers) == [1]


def test_a_broker_that_does_not_know_a_finalised_feature_is_refused() -> None:
    cluster = Cluster()
    request = registration(1)
    request.features = [each for each in request.features if each.name != "share.version"]
    with pytest.raises(KafkaError, match=r"share\.version at level 1, and the broker supports 0 to 0"):
        cluster.ask(request)


def test_a_controller_registers_with_its_listeners_and_features() -> None:
    cluster = Cluster()
    cluster.ask(
        ControllerRegistrationRequest(
            controller_id=7,
            incarnation_id=incarnation(1),
            zk_migration_ready=False,
            listeners=[Listener(name="CONTROLLER", host="host7", port=9093, security_protocol=0)],
            features=[Feature(name="metadata.version", min_supported_version=30, max_supported_version=30)],
        )
    )
    controller = cluster.image.controllers[NodeId(7)]
    assert controller.endpoint("CONTROLLER") == Endpoint("CONTROLLER", "host7", 9093, 0)
    assert controller.features == (("metadata.version", 30, 30),)


# --------------------------------------------------------------------------------------------- heartbeats


def test_a_broker_is_unfenced_once_it_has_read_its_own_registration() -> None:
    cluster = Cluster()
    epoch = cluster.register(1).broker_epoch
    reply = cluster.heartbeat(1, metadata_offset=epoch - 1)
    assert (reply.is_caught_up, reply.is_fenced) == (False, True)
    reply = cluster.heartbeat(1, metadata_offset=epoch, want_fence=True)
    assert (reply.is_caught_up, reply.is_fenced) == (True, True)
    reply = cluster.heartbeat(1, metadata_offset=epoch)
    assert (reply.is_caught_up, reply.is_fenced) == (True, False)
    assert not cluster.image.brokers[NodeId(1)].is_fenced


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    cluster = Cluster()
    cluster.start(1)
    end = cluster.next_offset
    assert not cluster.heartbeat(1).is_fenced
    assert cluster.next_offset == end


@pytest.mark.parametrize("node_id", [1, 9])
def test_a_heartbeat_with_another_epoch_is_stale(node_id: int) -> None:
    cluster = Cluster()
    cluster.start(1)
    with pytest.raises(KafkaError, match=r"epoch 77|not 77") as refused:
        cluster.ask(
            BrokerHeartbeatRequest(
                broker_id=node_id,
                broker_epoch=77,
                current_metadata_offset=0,
                want_fence=False,
                want_shut_down=False,
            )
        )
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_silent_broker_is_fenced_when_its_session_runs_out_and_not_before() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    cluster.now_ms += 5000
    cluster.heartbeat(2)
    assert cluster.active.next_deadline_ms() == SESSION_MS
    assert cluster.carry_out(cluster.active.fence_silent_brokers(SESSION_MS - 1)) == 0
    assert cluster.carry_out(cluster.active.fence_silent_brokers(SESSION_MS)) > 0
    assert cluster.image.brokers[NodeId(1)].is_fenced
    assert cluster.partition("orders").leader == 2
    assert cluster.active.next_deadline_ms() == 5000 + SESSION_MS
    assert cluster.carry_out(cluster.active.fence_silent_brokers(SESSION_MS)) == 0


def test_two_brokers_that_fall_silent_together_are_fenced_one_after_the_other() -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create_on("orders", [1, 2, 3])
    cluster.now_ms += SESSION_MS
    cluster.heartbeat(3)
    while cluster.carry_out(cluster.active.fence_silent_brokers(cluster.now_ms)):
        pass
    assert [each.is_fenced for each in cluster.image.brokers.values()] == [True, True, False]
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (3, (3,))
    # From 1 to 2 to 3.
    assert cluster.partition("orders").leader_epoch == 2


def test_a_new_active_controller_gives_everybody_a_whole_session() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.register(2)
    successor: Controller = cluster.standby
    successor.activate(1_000_000)
    assert successor.fence_silent_brokers(1_000_000 + SESSION_MS - 1).records == ()
    assert successor.fence_silent_brokers(1_000_000 + SESSION_MS).records != ()
    # The one that is fenced has nothing to lose.
    assert list(sessions_of(successor.view, 0)) == [1]


def test_a_broker_shuts_down_once_the_others_have_heard_who_leads_instead() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    known = len(cluster.log) - 1
    reply = cluster.heartbeat(1, want_shut_down=True)
    assert (reply.should_shut_down, reply.is_fenced) == (False, False)
    assert cluster.image.brokers[NodeId(1)].in_controlled_shutdown
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2,))
    cluster.heartbeat(2, metadata_offset=known)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(2)
    reply = cluster.heartbeat(1, want_shut_down=True)
    assert (reply.should_shut_down, reply.is_fenced) == (True, True)
    assert cluster.image.brokers[NodeId(1)].is_fenced


def test_a_broker_that_leads_nothing_may_go_at_once() -> None:
    cluster = Cluster()
    cluster.start(1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_the_last_broker_may_go_and_leads_again_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create_on("orders", [1])
    cluster.heartbeat(1, want_shut_down=True)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.partition("orders").leader == NO_LEADER
    cluster.register(1, run=2)
    cluster.heartbeat(1)
    assert cluster.partition("orders").leader == 1


def test_replicas_in_a_lost_directory_are_in_sync_no_more() -> None:
    cluster = Cluster()
    cluster.register(1, directories=2)
    cluster.heartbeat(1)
    cluster.start(2)
    cluster.create_on("orders", [1, 2])
    cluster.create_on("payments", [1, 2])
    assign(cluster, "orders", directory_of(1, 0))
    assign(cluster, "payments", directory_of(1, 1))
    cluster.heartbeat(1, offline=[directory_of(1, 1)])
    assert cluster.image.brokers[NodeId(1)].directories == (directory_of(1, 0),)
    assert (cluster.partition("orders").leader, cluster.partition("payments").leader) == (1, 2)
    end = cluster.next_offset
    cluster.heartbeat(1, offline=[directory_of(1, 1)])
    assert cluster.next_offset == end


# -------------------------------------------------------------------------------------------- directories


def assign(cluster: Cluster, name: str, directory: bytes, index: int = 0, node_id: int = 1) -> int:
    request: Request = AssignReplicasToDirsRequest(
        broker_id=node_id,
        broker_epoch=cluster.image.brokers[NodeId(node_id)].epoch,
        directories=[
            AssignReplicasToDirsRequestDirectoryData(
                id=directory,  # type: ignore[arg-type]
                topics=[
                    AssignReplicasToDirsRequestTopicData(
                        topic_id=cluster.topic(name).id,
                        partitions=[AssignReplicasToDirsRequestPartitionData(partition_index=index)],
                    )
                ],
            )
        ],
    )
    reply = cluster.ask(request)
    assert isinstance(reply, AssignReplicasToDirsResponse)
    return reply.directories[0].topics[0].partitions[0].error_code


def test_a_broker_with_several_directories_says_which_one_it_took() -> None:
    cluster = Cluster()
    cluster.register(1, directories=2)
    cluster.heartbeat(1)
    cluster.start(2)
    cluster.create_on("orders", [1])
    assert cluster.partition("orders").directories == (DIRECTORY_UNASSIGNED,)
    assert assign(cluster, "orders", directory_of(1, 1)) == ErrorCode.NONE
    assert cluster.partition("orders").directories == (directory_of(1, 1),)
    assert assign(cluster, "orders", directory_of(1), index=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(cluster, "orders", directory_of(2), node_id=2) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_replica_assigned_to_a_directory_that_is_gone_leads_no_more() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    assert assign(cluster, "orders", directory_of(1, 9)) == ErrorCode.NONE
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2,))


# ----------------------------------------------------------------------------------------- unregistration


def test_a_broker_that_is_forgotten_is_nobodys_eligible_leader() -> None:
    cluster = Cluster(static={"min.insync.replicas": "2"})
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    cluster.fence(2)
    assert cluster.partition("orders").elr == (2,)
    cluster.ask(UnregisterBrokerRequest(broker_id=2))
    assert list(cluster.image.brokers) == [1]
    assert cluster.partition("orders").elr == ()
    assert list(cluster.active.sessions) == [1]
    with pytest.raises(KafkaError) as refused:
        cluster.ask(UnregisterBrokerRequest(broker_id=2))
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_the_standby_knows_all_of_it() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    cluster.heartbeat(1, want_shut_down=True)
    assert cluster.standby.image == cluster.image
    assert cluster.image.epoch == EPOCH
