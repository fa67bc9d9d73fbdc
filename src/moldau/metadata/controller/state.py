"""The controller: it knows all records that were appended, committed or not, and decides which come next.

The node calls `decide` on the active controller, appends the records as one batch, calls `replay` at once
and answers when the batch is committed. A standby only replays; because nothing else changes what is known,
it knows the same. Who loses the leadership of the quorum drops the controller and makes a new one of the
committed image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.metadata.controller import (
    brokers,
    configs,
    features,
    partitions,
    producer_ids,
    quotas,
    reassignments,
    topics,
)
from moldau.metadata.controller.decisions import Circumstances, ControllerDecision
from moldau.metadata.image import Delta, Image
from moldau.metadata.view import ClusterView
from moldau.model.decision import Decision
from moldau.model.ids import ClusterId, Epoch, NodeId, Offset
from moldau.wire.message import MetadataRecord, Request, Response
from moldau.wire.messages import brokers as broker_messages
from moldau.wire.messages import configs as config_messages
from moldau.wire.messages import quotas as quota_messages
from moldau.wire.messages import topics as topic_messages


class Controller:
    """The state of the controller, and the way from a request to its decision."""

    def __init__(
        self, image: Image, *, cluster_id: ClusterId, node_id: NodeId, static: Mapping[str, str]
    ) -> None:
        self.view = ClusterView(image, cluster_id, node_id, static)
        self.sessions: brokers.Sessions = {}

    @property
    def image(self) -> Image:
        """What is known with everything that was appended."""
        return self.view.image

    def activate(self, now_ms: int) -> None:
        """Begin to watch over brokers: each that is unfenced has a whole session to be heard from."""
        self.sessions = brokers.sessions_of(self.view, now_ms)

    def decide(self, request: Request, at: Circumstances) -> ControllerDecision[Response]:
        """What follows from a request; KafkaError if it is refused as a whole."""
        match request:
            case broker_messages.BrokerHeartbeatRequest():
                heartbeat, self.sessions = brokers.heartbeat(self.view, self.sessions, request, at)
                return heartbeat
            case broker_messages.BrokerRegistrationRequest():
                registration, self.sessions = brokers.register_broker(self.view, self.sessions, request, at)
                return registration
            case broker_messages.AlterPartitionRequest():
                return partitions.alter_partition(self.view, request)
            case topic_messages.CreateTopicsRequest():
                return topics.create_topics(self.view, request, at)
            case topic_messages.DeleteTopicsRequest():
                return topics.delete_topics(self.view, request)
            case topic_messages.CreatePartitionsRequest():
                return topics.create_partitions(self.view, request, at)
            case config_messages.IncrementalAlterConfigsRequest():
                return configs.incremental_alter_configs(self.view, request)
            case config_messages.AlterConfigsRequest():
                return configs.alter_configs(self.view, request)
            case topic_messages.ElectLeadersRequest():
                return partitions.elect_leaders(self.view, request)
            case topic_messages.AlterPartitionReassignmentsRequest():
                return reassignments.alter_reassignments(self.view, request)
            case topic_messages.ListPartitionReassignmentsRequest():
                return Decision(reassignments.list_reassignments(self.view, request))
            case broker_messages.AllocateProducerIdsRequest():
                return producer_ids.allocate_producer_ids(self.view, request)
            case quota_messages.AlterClientQuotasRequest():
                return quotas.alter_client_quotas(self.view, request)
            case quota_messages.DescribeClientQuotasRequest():
                return Decision(quotas.describe_client_quotas(self.view, request))
            case broker_messages.UpdateFeaturesRequest():
                return features.update_features(self.view, request)
            case broker_messages.AssignReplicasToDirsRequest():
                return partitions.assign_replicas_to_directories(self.view, request)
            case broker_messages.UnregisterBrokerRequest():
                return brokers.unregister_broker(self.view, request)
            case broker_messages.ControllerRegistrationRequest():
                return brokers.register_controller(request)
            case _:
                raise AssertionError(f"{type(request).__name__} is not for the controller")

    def replay(self, records: Iterable[MetadataRecord], *, offset: Offset, epoch: Epoch) -> Delta:
        """Take in records that were appended, own ones or another's; the last of them is at `offset`."""
        image, delta = self.image.apply(records, offset=offset, epoch=epoch)
        self.view = self.view.next(image)
        gone = [node_id for node_id in delta.brokers if node_id not in image.brokers]
        self.sessions = {each: session for each, session in self.sessions.items() if each not in gone}
        return delta

    # ------------------------------------------------------------------------- what nobody asks for

    def next_deadline_ms(self) -> int | None:
        """When the next broker's session runs out."""
        return brokers.next_deadline_ms(self.view, self.sessions)

    def fence_silent_brokers(self, now_ms: int) -> ControllerDecision[None]:
        """Fence one broker whose session has run out; ask again until nothing is decided."""
        return brokers.fence_silent_brokers(self.view, self.sessions, now_ms)

    def elect_missing_leaders(self) -> ControllerDecision[None]:
        """Leaders for partitions that have none and may have one now, as after a change of settings."""
        return Decision(None, tuple(partitions.lead_what_has_no_leader(self.view)))

    def prefer_first_replicas(self, *, count_max: int) -> ControllerDecision[None]:
        """Give leadership back to the first replicas that are in sync again, some at a time."""
        return Decision(None, tuple(partitions.prefer_leaders(self.view, count_max=count_max)))
