import pytest
from metadata.cluster import CLUSTER_ID, LISTENER, Cluster, incarnation

from moldau.metadata.describe.cluster import describe_cluster
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import NodeId
from moldau.wire.messages.brokers import ControllerRegistrationRequest, Listener
from moldau.wire.messages.metadata import DescribeClusterRequest, DescribeClusterResponse

BROKERS, CONTROLLERS = 1, 2


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, racks={1: "a"})
    cluster.fence(2)
    listeners = [Listener(name="CONTROLLER", host="host7", port=9093, security_protocol=0)]
    cluster.ask(
        ControllerRegistrationRequest(
            controller_id=7,
            incarnation_id=incarnation(1),
            zk_migration_ready=False,
            listeners=listeners,
            features=[],
        )
    )
    return cluster


def describe(
    cluster: Cluster, kind: int, *, with_fenced: bool = False, on_controller: bool = False
) -> DescribeClusterResponse:
    reply = describe_cluster(
        cluster.active.view,
        DescribeClusterRequest(
            include_cluster_authorized_operations=False,
            endpoint_type=kind,
            include_fenced_brokers=with_fenced,
        ),
        listener="CONTROLLER" if on_controller else LISTENER,
        controller_id=NodeId(1),
        is_controller_listener=on_controller,
    )
    reply.encode(2)
    return reply


def test_brokers_are_told_and_fenced_ones_only_on_demand(cluster: Cluster) -> None:
    reply = describe(cluster, BROKERS)
    assert (reply.cluster_id, reply.controller_id, reply.endpoint_type) == (CLUSTER_ID, 1, BROKERS)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in reply.brokers] == [
        (1, "host1", 9092, "a")
    ]
    reply = describe(cluster, BROKERS, with_fenced=True)
    assert [(each.broker_id, each.is_fenced) for each in reply.brokers] == [(1, False), (2, True)]


def test_controllers_are_told_on_a_controllers_listener(cluster: Cluster) -> None:
    reply = describe(cluster, CONTROLLERS, on_controller=True)
    assert [(each.broker_id, each.host, each.port) for each in reply.brokers] == [(7, "host7", 9093)]


@pytest.mark.parametrize(
    ("kind", "on_controller", "code"),
    [
        (CONTROLLERS, False, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (BROKERS, True, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (9, False, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_a_question_to_the_wrong_listener(
    kind: int, on_controller: bool, code: ErrorCode, cluster: Cluster
) -> None:
    with pytest.raises(KafkaError) as refused:
        describe(cluster, kind, on_controller=on_controller)
    assert refused.value.code is code
