"""Every error that Kafka's protocol has a number for, and the exceptions that carry them."""

from enum import IntEnum
from typing import Final, Self

_RETRIABLE: Final = True


class ErrorCode(IntEnum):
    """An error as clients know it: its number, a line about it, and whether asking again may help."""

    message: str
    is_retriable: bool

    # The defaults are for type checkers, which take `ErrorCode(3)`, a look-up, for a call of this.
    def __new__(cls, code: int, message: str = "", is_retriable: bool = False) -> Self:
        """A member made of one row of the table below."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.is_retriable = is_retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "The server failed in a way it did not foresee."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The log holds no such offset."
    CORRUPT_MESSAGE = 2, "A record batch is damaged, or lacks a key that the topic needs.", _RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker has no such topic or partition.", _RETRIABLE
    INVALID_FETCH_SIZE = 4, "The fetch asks for an impossible number of bytes."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader for the moment.", _RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not lead the partition, or has no replica.", _RETRIABLE
    REQUEST_TIMED_OUT = 7, "The request was not done in time.", _RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "The broker is not there."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not there.", _RETRIABLE
    MESSAGE_TOO_LARGE = 10, "A record batch is larger than the topic accepts."
    STALE_CONTROLLER_EPOCH = 11, "Another controller has taken over since."
    OFFSET_METADATA_TOO_LARGE = 12, "The note committed with the offset is too long."
    NETWORK_EXCEPTION = 13, "The connection was lost before the reply came.", _RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state.", _RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator for the moment.", _RETRIABLE
    NOT_COORDINATOR = 16, "Another broker is the coordinator.", _RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic cannot have this name, or cannot be used in this way."
    RECORD_LIST_TOO_LARGE = 18, "The batch does not fit into a segment."
    NOT_ENOUGH_REPLICAS = 19, "Too few replicas are in sync, so nothing was written.", _RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Written, but too few replicas are in sync.", _RETRIABLE
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with the group."
    INVALID_GROUP_ID = 24, "This is no valid group id."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is shorter or longer than the broker allows."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offset commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not allowed on this topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not allowed on this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not allowed on this cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is too far from the broker's clock."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "This request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, "This version of the request is not served."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is impossible."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replicas cannot be placed like this."
    INVALID_CONFIG = 40, "A setting is unknown or has an impossible value."
    NOT_CONTROLLER = 41, "Another node is the active controller.", _RETRIABLE
    INVALID_REQUEST = 42, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The log's record format cannot do this."
    POLICY_VIOLATION = 44, "A policy of this cluster forbids it."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "A batch of this producer is missing before this one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "This batch was written before."
    INVALID_PRODUCER_EPOCH = 47, "A newer instance of this producer has written since."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is longer than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, "An earlier operation on this transaction is not finished yet.", _RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "A newer transaction coordinator has written since."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not allowed on this transactional id."
    SECURITY_DISABLED = 54, "No authorizer is configured."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk of this replica failed.", _RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "The credentials were not accepted."
    UNKNOWN_PRODUCER_ID = 59, "Nothing is remembered of this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal neither owns the delegation token nor may renew it."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "This connection may not ask for delegation tokens."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not allowed on this delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "This type of principal is not served."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker has no such fetch session.", _RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session is at another epoch.", _RETRIABLE
    LISTENER_NOT_FOUND = 72, "The leader has no listener of this name.", _RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, "The partition has had a newer leader since.", _RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "This broker has not heard of so new a leader yet.", _RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The client cannot read this compression."
    STALE_BROKER_EPOCH = 77, "The broker has registered anew since."
    OFFSET_NOT_AVAILABLE = 78, "A new leader does not know yet what is committed.", _RETRIABLE
    MEMBER_ID_REQUIRED = 79, "Join again with the member id given here."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader cannot lead now.", _RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica may lead the partition now.", _RETRIABLE
    ELECTION_NOT_NEEDED = 84, "The partition has the leader it should have.", _RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to this topic, so its offsets stay."
    INVALID_RECORD = 87, "A record breaks a rule of the topic."
    UNSTABLE_OFFSET_COMMIT = 88, "A transaction that commits offsets is still open.", _RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up for the moment.", _RETRIABLE
    PRODUCER_FENCED = 90, "A newer producer uses this transactional id."
    RESOURCE_NOT_FOUND = 91, "There is no such resource."
    DUPLICATE_RESOURCE = 92, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential is too weak or malformed."
    INCONSISTENT_VOTER_SET = 94, "Sender or receiver is not a voter of this quorum."
    INVALID_UPDATE_VERSION = 95, "The partition's state has changed since."
    FEATURE_UPDATE_FAILED = 96, "The features could not be finalised."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The principal of a forwarded request cannot be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The snapshot does not reach to this position."
    UNKNOWN_TOPIC_ID = 100, "This broker has no topic with this id.", _RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "Another broker uses this id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker has registered with this id."
    INCONSISTENT_TOPIC_ID = 103, "The topic has been created anew since: its id differs.", _RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and topic ids.", _RETRIABLE
    INELIGIBLE_REPLICA = 107, "A replica may not join the in-sync set now."
    NEW_LEADER_ELECTED = 108, "The partition's state was changed, and with it the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset has been moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member is cast out: give up all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds this group instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group does not offer this assignor."
    STALE_MEMBER_EPOCH = 113, "The member must learn its new epoch from a heartbeat first."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request came to the wrong kind of listener."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of listener is not served."
    UNKNOWN_CONTROLLER_ID = 116, "There is no controller with this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The client's telemetry subscription is out of date."
    TELEMETRY_TOO_LARGE = 118, "The client sent more telemetry than the broker takes."
    INVALID_REGISTRATION = 119, "The controller does not accept this registration."
    TRANSACTION_ABORTABLE = 120, "The transaction must be aborted; the producer can go on afterwards."
    INVALID_RECORD_STATE = 121, "The record is not in a state that allows this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The broker has no such share session.", _RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session is at another epoch.", _RETRIABLE
    FENCED_STATE_EPOCH = 124, "The share group's state is at another epoch."
    INVALID_VOTER_KEY = 125, "The request is meant for another voter."
    DUPLICATE_VOTER = 126, "The node is a voter already."
    VOTER_NOT_FOUND = 127, "The node is not a voter."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression cannot be read."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata is too old: start from the bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The streams topology is impossible."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The epoch of the streams topology is impossible."
    STREAMS_TOPOLOGY_FENCED = 132, "The group has a newer streams topology."
    SHARE_SESSION_LIMIT_REACHED = 133, "The broker has no room for another share session.", _RETRIABLE


class KafkaError(Exception):
    """An error that is answered to the client under its protocol number."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = code.message if message is None else message
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f"{self.code.name} ({self.code.value}): {self.message}"


class MalformedMessage(ValueError):
    """Bytes that cannot be what they should be; the text says what is wrong with them."""
