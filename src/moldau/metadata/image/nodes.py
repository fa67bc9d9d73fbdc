"""Brokers and controllers as they have registered themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from moldau.model.ids import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    BrokerEpoch,
    DirectoryId,
    NodeId,
    Uuid,
)
from moldau.wire.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)


class Endpoint(NamedTuple):
    """Where a node listens, and with which security protocol."""

    name: str
    host: str
    port: int
    security_protocol: int


class FeatureRange(NamedTuple):
    """The levels of a feature that a node can live with."""

    name: str
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's registration."""

    id: NodeId
    # The offset of the record that registered this incarnation.
    epoch: BrokerEpoch
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[DirectoryId, ...]
    # None when the broker has said nothing about it (KIP-1066).
    cordoned: tuple[DirectoryId, ...] | None = None

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and be in sync."""
        return not (self.is_fenced or self.in_controlled_shutdown)

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener with this name."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)

    def supports(self, feature: str, level: int) -> bool:
        """Whether the broker can live with this level; one that does not know a feature has level 0."""
        return supports(self.features, feature, level)

    def has_online(self, directory: DirectoryId) -> bool:
        """Whether a replica in this directory can be used."""
        if directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED):
            return True
        return directory != DIRECTORY_LOST and directory in self.directories

    @property
    def default_directory(self) -> DirectoryId:
        """Where a new replica is assumed to be until the broker says it."""
        return self.directories[0] if len(self.directories) == 1 else DIRECTORY_UNASSIGNED

    def to_record(self) -> RegisterBrokerRecord:
        """The record that says all of this."""
        return RegisterBrokerRecord(
            broker_id=self.id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[BrokerEndpoint(**endpoint._asdict()) for endpoint in self.endpoints],
            features=[
                BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in self.features
            ],
            rack=self.rack,
            fenced=self.is_fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories),
            cordoned_log_dirs=None if self.cordoned is None else list(self.cordoned),
        )

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> Broker:
        """The registration that a record tells of."""
        return cls(
            id=NodeId(record.broker_id),
            epoch=BrokerEpoch(record.broker_epoch),
            incarnation_id=record.incarnation_id,
            endpoints=endpoints_of(record.end_points),
            features=features_of(record.features),
            rack=record.rack,
            is_fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(DirectoryId(each) for each in record.log_dirs),
            cordoned=None
            if record.cordoned_log_dirs is None
            else tuple(DirectoryId(each) for each in record.cordoned_log_dirs),
        )


@dataclass(frozen=True, slots=True)
class RegisteredController:
    """A controller's registration."""

    id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener with this name."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)

    def to_record(self) -> RegisterControllerRecord:
        """The record that says all of this."""
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=False,
            end_points=[ControllerEndpoint(**endpoint._asdict()) for endpoint in self.endpoints],
            features=[
                ControllerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in self.features
            ],
        )

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> RegisteredController:
        """The registration that a record tells of."""
        return cls(
            id=NodeId(record.controller_id),
            incarnation_id=record.incarnation_id,
            endpoints=endpoints_of(record.end_points),
            features=features_of(record.features),
        )


def supports(features: Iterable[FeatureRange], name: str, level: int) -> bool:
    """Whether the level is in the range of the feature; a feature that is not named has only level 0."""
    found = next((each for each in features if each.name == name), FeatureRange(name, 0, 0))
    return found.lowest <= level <= found.highest


class _EndpointLike(Protocol):
    name: str
    host: str
    port: int
    security_protocol: int


class _FeatureLike(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


def endpoints_of(given: Iterable[_EndpointLike]) -> tuple[Endpoint, ...]:
    """The endpoints that a record or request names."""
    # Records name listeners and features in any order; equal registrations are to be equal here.
    return tuple(sorted(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in given))


def features_of(given: Iterable[_FeatureLike]) -> tuple[FeatureRange, ...]:
    """The features that a record or request names."""
    return tuple(
        sorted(
            FeatureRange(each.name, each.min_supported_version, each.max_supported_version) for each in given
        )
    )
