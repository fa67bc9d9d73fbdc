"""Who acts, on what, and who decides whether they may."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple, Protocol


class Principal(NamedTuple):
    """Whom a connection speaks for, written `User:ada`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER: Final = "User"
# Who has not said who they are.
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
# As whom nodes of the cluster act towards each other, on listeners that serve nobody else.
INTER_BROKER: Final = Principal(USER, "INTER_BROKER")

# The one resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"


class Operation(IntEnum):
    """What can be done to a resource, as Kafka numbers it in access control lists."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What access is controlled to, numbered otherwise than what has settings."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name in an access control list is compared with the name of a resource."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Authorizer(Protocol):
    """Decides who may do what."""

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> bool:
        """Whether the principal may do this from that host; asked for every request, so it must be quick."""
        ...


class AllowAll:
    """Lets everyone do everything."""

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> bool:
        """Yes."""
        return True


def permitted_names(
    names: Iterable[str],
    authorizer: Authorizer,
    principal: Principal,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
) -> list[str]:
    """Those of the names whose resource the principal may do this to, in the same order."""
    return [name for name in names if authorizer.authorize(principal, host, operation, resource_type, name)]
