"""Every API that a node serves, one row each: versions, listener, who may ask, how it counts, who answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from moldau.model.errors import KafkaError
from moldau.node.apis import (
    cluster,
    configs,
    controller,
    fetch,
    find_coordinator,
    group_members,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    producers,
    refusals,
    versions,
)
from moldau.node.apis.call import Call, Handler
from moldau.node.security import Operation, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages import ApiKey, spoken_versions
from moldau.wire.messages.api_versions import ApiVersion
from moldau.wire.types import Versions

Refuse = Callable[[Call, KafkaError], Response]


@unique
class Metered(Enum):
    """Which quota a request counts towards, besides the time that it takes."""

    NOTHING = "nothing"
    PRODUCED = "produced bytes"
    FETCHED = "fetched bytes"
    MUTATIONS = "controller mutations"
    EXEMPT = "exempt"
    """Between nodes, which are not throttled."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API on one kind of listener."""

    key: ApiKey
    handler: Handler
    refuse: Refuse
    operation: Operation | None = None
    """What one must be allowed to do to the cluster; None where the handler looks at each resource."""
    resource: ResourceType = ResourceType.CLUSTER
    metered: Metered = Metered.NOTHING
    overlaps: bool = False
    """Whether the next request of the connection is taken before this one is answered."""

    @property
    def versions(self) -> Versions:
        """The versions that are served."""
        return spoken_versions(self.key)


def _rows(*rows: Api) -> Mapping[int, Api]:
    return {row.key: row for row in rows}


def _forwarded(key: ApiKey, operation: Operation | None, metered: Metered = Metered.NOTHING) -> Api:
    """A row of a broker that passes the request on to the active controller, which authorises it again."""
    return Api(key, controller.forward, refusals.REFUSALS[key], operation, metered=metered)


def _decided(key: ApiKey, operation: Operation | None, metered: Metered = Metered.NOTHING) -> Api:
    """A row of a controller."""
    return Api(key, controller.decide, refusals.REFUSALS[key], operation, metered=metered)


def _of_groups(key: ApiKey, handler: Handler, *, overlaps: bool = True) -> Api:
    """A row that a shard of groups decides on, once the handler has seen who may do that to which group."""
    return Api(key, handler, refusals.REFUSALS[key], resource=ResourceType.GROUP, overlaps=overlaps)


def _between_nodes(key: ApiKey, handler: Handler) -> Api:
    return Api(key, handler, refusals.REFUSALS[key], Operation.CLUSTER_ACTION, metered=Metered.EXEMPT)


_ALTER, _DESCRIBE = Operation.ALTER, Operation.DESCRIBE

BROKER_APIS: Final = _rows(
    Api(ApiKey.PRODUCE, produce.handle, produce.refuse, metered=Metered.PRODUCED, overlaps=True),
    Api(ApiKey.FETCH, fetch.handle, fetch.refuse, metered=Metered.FETCHED),
    Api(ApiKey.LIST_OFFSETS, offsets.list_offsets, refusals.REFUSALS[ApiKey.LIST_OFFSETS]),
    Api(ApiKey.METADATA, metadata.handle, refusals.REFUSALS[ApiKey.METADATA]),
    _of_groups(ApiKey.OFFSET_COMMIT, group_offsets.commit),
    _of_groups(ApiKey.OFFSET_FETCH, group_offsets.fetch),
    Api(ApiKey.FIND_COORDINATOR, find_coordinator.handle, refusals.REFUSALS[ApiKey.FIND_COORDINATOR]),
    # What comes behind a join must not take effect before its member is in the group.
    _of_groups(ApiKey.JOIN_GROUP, group_members.join, overlaps=False),
    _of_groups(ApiKey.HEARTBEAT, group_members.heartbeat),
    _of_groups(ApiKey.LEAVE_GROUP, group_members.leave),
    _of_groups(ApiKey.SYNC_GROUP, group_members.sync, overlaps=False),
    _of_groups(ApiKey.DESCRIBE_GROUPS, groups.describe),
    _of_groups(ApiKey.LIST_GROUPS, groups.list_groups),
    _of_groups(ApiKey.CONSUMER_GROUP_HEARTBEAT, group_members.consumer_heartbeat),
    _of_groups(ApiKey.CONSUMER_GROUP_DESCRIBE, groups.describe_consumers),
    Api(ApiKey.API_VERSIONS, versions.handle, versions.refuse),
    _forwarded(ApiKey.CREATE_TOPICS, None, Metered.MUTATIONS),
    _forwarded(ApiKey.DELETE_TOPICS, None, Metered.MUTATIONS),
    Api(ApiKey.DELETE_RECORDS, offsets.delete_records, refusals.REFUSALS[ApiKey.DELETE_RECORDS]),
    Api(ApiKey.INIT_PRODUCER_ID, producers.init_producer_id, refusals.REFUSALS[ApiKey.INIT_PRODUCER_ID]),
    Api(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        offsets.offset_for_leader_epoch,
        refusals.REFUSALS[ApiKey.OFFSET_FOR_LEADER_EPOCH],
    ),
    Api(ApiKey.DESCRIBE_CONFIGS, configs.describe_configs, refusals.REFUSALS[ApiKey.DESCRIBE_CONFIGS]),
    _forwarded(ApiKey.ALTER_CONFIGS, None),
    Api(
        ApiKey.DESCRIBE_LOG_DIRS,
        cluster.describe_log_dirs,
        refusals.REFUSALS[ApiKey.DESCRIBE_LOG_DIRS],
        _DESCRIBE,
    ),
    _forwarded(ApiKey.CREATE_PARTITIONS, None, Metered.MUTATIONS),
    _of_groups(ApiKey.DELETE_GROUPS, groups.delete),
    _forwarded(ApiKey.ELECT_LEADERS, _ALTER),
    _forwarded(ApiKey.INCREMENTAL_ALTER_CONFIGS, None),
    _forwarded(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER),
    _forwarded(ApiKey.LIST_PARTITION_REASSIGNMENTS, _DESCRIBE),
    _of_groups(ApiKey.OFFSET_DELETE, group_offsets.delete_offsets),
    Api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        cluster.describe_client_quotas,
        refusals.REFUSALS[ApiKey.DESCRIBE_CLIENT_QUOTAS],
        Operation.DESCRIBE_CONFIGS,
    ),
    _forwarded(ApiKey.ALTER_CLIENT_QUOTAS, Operation.ALTER_CONFIGS),
    Api(
        ApiKey.DESCRIBE_QUORUM, cluster.describe_quorum, refusals.REFUSALS[ApiKey.DESCRIBE_QUORUM], _DESCRIBE
    ),
    _forwarded(ApiKey.UPDATE_FEATURES, _ALTER),
    Api(ApiKey.DESCRIBE_CLUSTER, cluster.describe_cluster, refusals.REFUSALS[ApiKey.DESCRIBE_CLUSTER]),
    Api(
        ApiKey.DESCRIBE_PRODUCERS, producers.describe_producers, refusals.REFUSALS[ApiKey.DESCRIBE_PRODUCERS]
    ),
    _forwarded(ApiKey.UNREGISTER_BROKER, _ALTER),
    Api(
        ApiKey.LIST_CONFIG_RESOURCES,
        configs.list_config_resources,
        refusals.REFUSALS[ApiKey.LIST_CONFIG_RESOURCES],
        Operation.DESCRIBE_CONFIGS,
    ),
    Api(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        metadata.describe_topic_partitions,
        refusals.REFUSALS[ApiKey.DESCRIBE_TOPIC_PARTITIONS],
    ),
    _forwarded(ApiKey.ADD_RAFT_VOTER, _ALTER),
    _forwarded(ApiKey.REMOVE_RAFT_VOTER, _ALTER),
)

CONTROLLER_APIS: Final = _rows(
    Api(ApiKey.API_VERSIONS, versions.handle, versions.refuse),
    _decided(ApiKey.CREATE_TOPICS, None, Metered.MUTATIONS),
    _decided(ApiKey.DELETE_TOPICS, None, Metered.MUTATIONS),
    _decided(ApiKey.CREATE_PARTITIONS, None, Metered.MUTATIONS),
    _decided(ApiKey.ALTER_CONFIGS, None),
    _decided(ApiKey.INCREMENTAL_ALTER_CONFIGS, None),
    _decided(ApiKey.ELECT_LEADERS, _ALTER),
    _decided(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER),
    _decided(ApiKey.LIST_PARTITION_REASSIGNMENTS, _DESCRIBE),
    _decided(ApiKey.ALTER_CLIENT_QUOTAS, Operation.ALTER_CONFIGS),
    _decided(ApiKey.UPDATE_FEATURES, _ALTER),
    _decided(ApiKey.UNREGISTER_BROKER, _ALTER),
    Api(ApiKey.DESCRIBE_CONFIGS, configs.describe_configs, refusals.REFUSALS[ApiKey.DESCRIBE_CONFIGS]),
    Api(ApiKey.DESCRIBE_CLUSTER, cluster.describe_cluster, refusals.REFUSALS[ApiKey.DESCRIBE_CLUSTER]),
    _between_nodes(ApiKey.FETCH, controller.quorum),
    _between_nodes(ApiKey.VOTE, controller.quorum),
    _between_nodes(ApiKey.BEGIN_QUORUM_EPOCH, controller.quorum),
    _between_nodes(ApiKey.END_QUORUM_EPOCH, controller.quorum),
    _between_nodes(ApiKey.FETCH_SNAPSHOT, controller.quorum),
    Api(ApiKey.DESCRIBE_QUORUM, controller.quorum, refusals.REFUSALS[ApiKey.DESCRIBE_QUORUM], _DESCRIBE),
    Api(ApiKey.ADD_RAFT_VOTER, controller.quorum, refusals.REFUSALS[ApiKey.ADD_RAFT_VOTER], _ALTER),
    Api(ApiKey.REMOVE_RAFT_VOTER, controller.quorum, refusals.REFUSALS[ApiKey.REMOVE_RAFT_VOTER], _ALTER),
    _between_nodes(ApiKey.UPDATE_RAFT_VOTER, controller.quorum),
    _between_nodes(ApiKey.ENVELOPE, controller.open_envelope),
    _between_nodes(ApiKey.BROKER_REGISTRATION, controller.decide),
    _between_nodes(ApiKey.BROKER_HEARTBEAT, controller.decide),
    _between_nodes(ApiKey.ALTER_PARTITION, controller.decide),
    _between_nodes(ApiKey.ALLOCATE_PRODUCER_IDS, controller.decide),
    _between_nodes(ApiKey.CONTROLLER_REGISTRATION, controller.decide),
    _between_nodes(ApiKey.ASSIGN_REPLICAS_TO_DIRS, controller.decide),
)


def advertised(apis: Mapping[int, Api]) -> list[ApiVersion]:
    """What a listener with these rows tells its clients that it speaks."""
    return [
        ApiVersion(
            api_key=key,
            # Versions 0 to 2 are refused, but old clients compress only if they see them (KAFKA-18659).
            min_version=0 if key == ApiKey.PRODUCE else api.versions.lowest,
            max_version=api.versions.highest,
        )
        for key, api in sorted(apis.items())
    ]


# What a broker may put into an envelope.
FORWARDABLE: Final = {
    key: api
    for key, api in CONTROLLER_APIS.items()
    if key in BROKER_APIS and BROKER_APIS[key].handler is controller.forward
}
