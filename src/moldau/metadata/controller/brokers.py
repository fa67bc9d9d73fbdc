"""Brokers: how they register, prove that they live, shut down and are forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from moldau.metadata.controller.decisions import (
    Circumstances,
    ControllerDecision,
    check_broker_epoch,
    decided,
)
from moldau.metadata.controller.partitions import (
    lead_what_has_no_leader,
    leads_any,
    leave_directories,
    leave_in_sync_sets,
)
from moldau.metadata.image import Broker, FeatureRange, Image, RegisteredController
from moldau.metadata.image.image import METADATA_VERSION
from moldau.metadata.image.nodes import endpoints_of, features_of, supports
from moldau.metadata.view import BROKER_SESSION_TIMEOUT_MS, ClusterView
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import BrokerEpoch, DirectoryId, NodeId, Offset, is_reserved, uuid_to_text
from moldau.wire.message import MetadataRecord
from moldau.wire.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from moldau.wire.messages.metadata_records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

# How a change record says yes.
_YES: Final = 1
_NO: Final = -1
_NOTHING_READ: Final = Offset(-1)


@dataclass(frozen=True, slots=True)
class Session:
    """What the active controller remembers of a broker between heartbeats; lost with the controller."""

    epoch: BrokerEpoch
    deadline_ms: int
    # How far the broker has read the metadata log.
    metadata_offset: Offset = _NOTHING_READ
    # Whether this controller has heard from the broker, or knows it only from the log.
    is_heard: bool = True
    # Where its leaderships were moved away; it may go once the others have read so far.
    shutdown_offset: Offset | None = None


Sessions = Mapping[NodeId, Session]


def sessions_of(view: ClusterView, now_ms: int) -> Sessions:
    """The sessions with which a new active controller begins: every unfenced broker has its full time."""
    return {
        broker.id: Session(broker.epoch, now_ms + view.number(BROKER_SESSION_TIMEOUT_MS), is_heard=False)
        for broker in view.image.brokers.values()
        if not broker.is_fenced
    }


# ------------------------------------------------------------------------------------------- registration


def register_broker(
    view: ClusterView, sessions: Sessions, request: BrokerRegistrationRequest, at: Circumstances
) -> tuple[ControllerDecision[BrokerRegistrationResponse], Sessions]:
    """Take a broker in, fenced; the offset of its record is its epoch. An incarnation keeps what it has."""
    broker_id = NodeId(request.broker_id)
    existing = view.image.brokers.get(broker_id)
    _check_registration(view, sessions, request, at.now_ms)
    broker = Broker(
        id=broker_id,
        epoch=BrokerEpoch(at.next_offset),
        incarnation_id=request.incarnation_id,
        endpoints=endpoints_of(request.listeners),
        features=features_of(request.features),
        rack=request.rack,
        is_fenced=True,
        in_controlled_shutdown=False,
        directories=tuple(DirectoryId(each) for each in request.log_dirs),
    )
    records: list[MetadataRecord]
    if existing is not None and existing.incarnation_id == broker.incarnation_id:
        broker = replace(
            broker,
            epoch=existing.epoch,
            is_fenced=existing.is_fenced,
            in_controlled_shutdown=existing.in_controlled_shutdown,
            cordoned=existing.cordoned,
        )
        records = [broker.to_record()]
    else:
        # The record of the broker comes first, so that its offset is the epoch. What is committed was flushed
        # by every in-sync replica, so one that crashed is still eligible to lead.
        records = [broker.to_record(), *leave_in_sync_sets(view, broker_id)]
    session = Session(broker.epoch, at.now_ms + view.number(BROKER_SESSION_TIMEOUT_MS))
    reply = BrokerRegistrationResponse(throttle_time_ms=0, error_code=0, broker_epoch=broker.epoch)
    return Decision(reply, tuple(records)), {**sessions, broker_id: session}


def _check_registration(
    view: ClusterView, sessions: Sessions, request: BrokerRegistrationRequest, now_ms: int
) -> None:
    if request.cluster_id != view.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"This is the cluster {view.cluster_id!r}; the broker belongs to {request.cluster_id!r}.",
        )
    existing = view.image.brokers.get(NodeId(request.broker_id))
    if existing is not None and existing.incarnation_id != request.incarnation_id:
        session = sessions.get(existing.id)
        # A node that is killed and started again is its own controller at first, and has heard from nobody.
        is_alive = (
            session is not None
            and session.is_heard
            and session.epoch == existing.epoch
            and now_ms < session.deadline_ms
        )
        if is_alive and not existing.in_controlled_shutdown:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker with the id {existing.id} is alive: incarnation "
                f"{uuid_to_text(existing.incarnation_id)}.",
            )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Brokers that use ZooKeeper cannot register.")
    _check_directories(view.image, request)
    _check_features(view.image, request)


def _check_directories(image: Image, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "The broker names no log directory.")
    if any(is_reserved(each) for each in directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "The id of a log directory is a reserved one.")
    if len(set(directories)) < len(directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "The broker names a log directory twice.")
    for other in image.brokers.values():
        if other.id != request.broker_id:
            for directory in directories:
                if directory in other.directories:
                    raise KafkaError(
                        ErrorCode.INVALID_REGISTRATION,
                        f"The log directory {uuid_to_text(directory)} belongs to broker {other.id}.",
                    )


def _check_features(image: Image, request: BrokerRegistrationRequest) -> None:
    ranges = features_of(request.features)
    # A feature that the broker has and the cluster has not is at level 0.
    names = {**dict.fromkeys(image.features), **{each.name: None for each in ranges}}
    for name in sorted(names):
        level = image.feature_level(name)
        if name != METADATA_VERSION or level:
            _check_feature(ranges, name, level, request.broker_id)


def _check_feature(ranges: tuple[FeatureRange, ...], name: str, level: int, broker_id: int) -> None:
    if not supports(ranges, name, level):
        found = next((each for each in ranges if each.name == name), FeatureRange(name, 0, 0))
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Broker {broker_id} cannot register: the cluster has {name} at level {level}, and the broker "
            f"supports {found.lowest} to {found.highest}.",
        )


def register_controller(
    request: ControllerRegistrationRequest,
) -> ControllerDecision[ControllerRegistrationResponse]:
    """Take down where a controller listens and which features it supports."""
    controller = RegisteredController(
        id=NodeId(request.controller_id),
        incarnation_id=request.incarnation_id,
        endpoints=endpoints_of(request.listeners),
        features=features_of(request.features),
    )
    reply = ControllerRegistrationResponse(throttle_time_ms=0, error_code=0, error_message=None)
    return Decision(reply, (controller.to_record(),))


def unregister_broker(
    view: ClusterView, request: UnregisterBrokerRequest
) -> ControllerDecision[UnregisterBrokerResponse]:
    """Forget a broker that will not come back; it is nobody's eligible leader any more."""
    broker = view.image.brokers.get(NodeId(request.broker_id))
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker {request.broker_id} is registered.")
    records = (
        *leave_in_sync_sets(view, broker.id, is_gone=True),
        UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch),
    )
    reply = UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message=None)
    return decided(reply, records)


# --------------------------------------------------------------------------------------------- heartbeats


class BrokerState(Enum):
    """Where a broker is in its life."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    # Its leaderships are moving to others.
    SHUTTING_DOWN = "shutting down"
    MAY_GO = "may go"


def heartbeat(
    view: ClusterView, sessions: Sessions, request: BrokerHeartbeatRequest, at: Circumstances
) -> tuple[ControllerDecision[BrokerHeartbeatResponse], Sessions]:
    """Prolong a broker's session, and unfence it, fence it or let it go as it wants and may."""
    broker = check_broker_epoch(view.image, request.broker_id, request.broker_epoch)
    session = sessions.get(broker.id)
    if session is None or session.epoch != broker.epoch:
        session = Session(broker.epoch, deadline_ms=at.now_ms)
    session = replace(
        session,
        deadline_ms=at.now_ms + view.number(BROKER_SESSION_TIMEOUT_MS),
        metadata_offset=Offset(request.current_metadata_offset),
        is_heard=True,
    )
    is_caught_up = request.current_metadata_offset >= broker.epoch
    before = _state(broker, session)
    after = _next_state(view, sessions, broker, session, request)
    records: list[MetadataRecord] = []
    if after is not before:
        records += _transition(view, broker, after)
    # A broker that leaves takes its directories along.
    if after not in (BrokerState.FENCED, BrokerState.MAY_GO):
        is_leaving = after is BrokerState.SHUTTING_DOWN
        records += _lose_directories(view, broker, request.offline_log_dirs, is_leaving=is_leaving)
    if after is BrokerState.SHUTTING_DOWN and session.shutdown_offset is None:
        session = replace(session, shutdown_offset=Offset(at.next_offset + len(records) - 1))
    reply = BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        is_caught_up=is_caught_up,
        is_fenced=after in (BrokerState.FENCED, BrokerState.MAY_GO),
        should_shut_down=after is BrokerState.MAY_GO,
    )
    return Decision(reply, tuple(records)), {**sessions, broker.id: session}


def _state(broker: Broker, session: Session) -> BrokerState:
    if session.shutdown_offset is not None:
        return BrokerState.SHUTTING_DOWN
    return BrokerState.FENCED if broker.is_fenced else BrokerState.UNFENCED


def _next_state(
    view: ClusterView, sessions: Sessions, broker: Broker, session: Session, request: BrokerHeartbeatRequest
) -> BrokerState:
    match _state(broker, session):
        case BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.MAY_GO
            # One that was let go comes back by registering anew.
            has_gone = request.want_fence or broker.in_controlled_shutdown
            is_caught_up = request.current_metadata_offset >= broker.epoch
            return BrokerState.UNFENCED if is_caught_up and not has_gone else BrokerState.FENCED
        case BrokerState.UNFENCED:
            if request.want_shut_down:
                has_to_wait = not request.want_fence and leads_any(view, broker.id)
                return BrokerState.SHUTTING_DOWN if has_to_wait else BrokerState.MAY_GO
            return BrokerState.FENCED if request.want_fence else BrokerState.UNFENCED
        case BrokerState.SHUTTING_DOWN:
            assert session.shutdown_offset is not None
            others = [sessions.get(each.id) for each in view.active_brokers() if each.id != broker.id]
            have_heard = all(
                other is not None and other.metadata_offset >= session.shutdown_offset for other in others
            )
            is_free = have_heard and not leads_any(view, broker.id)
            return BrokerState.MAY_GO if is_free else BrokerState.SHUTTING_DOWN
        case BrokerState.MAY_GO:
            return BrokerState.MAY_GO


def _transition(view: ClusterView, broker: Broker, after: BrokerState) -> list[MetadataRecord]:
    match after:
        case BrokerState.FENCED | BrokerState.MAY_GO:
            return [] if broker.is_fenced else fence(view, broker)
        case BrokerState.UNFENCED:
            unfenced = BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, fenced=_NO
            )
            return [unfenced, *lead_what_has_no_leader(view, arriving=broker.id)]
        case BrokerState.SHUTTING_DOWN:
            leaving = BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=_YES
            )
            return [leaving, *leave_in_sync_sets(view, broker.id)]


def fence(view: ClusterView, broker: Broker) -> list[MetadataRecord]:
    """The records that fence a broker.

    The fence stands behind the changes of the partitions, each of which makes sense alone, so a node may
    split the batch when a broker has more partitions than fit into one.
    """
    fenced = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=_YES)
    return [*leave_in_sync_sets(view, broker.id), fenced]


def _lose_directories(
    view: ClusterView, broker: Broker, offline: Iterable[bytes], *, is_leaving: bool
) -> list[MetadataRecord]:
    lost = [each for each in broker.directories if each in frozenset(offline)]
    if not lost:
        return []
    left = [each for each in broker.directories if each not in lost]
    # A broker on its way out has left every in-sync set already.
    partitions = [] if is_leaving else leave_directories(view, broker.id, lost)
    if not left:
        # No list would mean no change; a broker without directories stops by itself.
        return [*partitions]
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=[*left])
    return [*partitions, change]


def fence_silent_brokers(view: ClusterView, sessions: Sessions, now_ms: int) -> ControllerDecision[None]:
    """Fence one broker whose session has run out; ask again until nothing is decided.

    One at a time, so that each election sees the fences before it.
    """
    for broker in view.image.brokers.values():
        session = sessions.get(broker.id)
        is_silent = session is None or session.epoch != broker.epoch or now_ms >= session.deadline_ms
        if not broker.is_fenced and is_silent:
            return Decision(None, tuple(fence(view, broker)))
    return Decision(None)


def next_deadline_ms(view: ClusterView, sessions: Sessions) -> int | None:
    """When the next session runs out, if any can."""
    deadlines = (
        session.deadline_ms
        for node_id, session in sessions.items()
        if (broker := view.image.brokers.get(node_id)) is not None and not broker.is_fenced
    )
    return min(deadlines, default=None)
