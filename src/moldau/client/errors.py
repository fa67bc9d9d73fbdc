"""What a client is told when something fails: the code, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicPartition
from moldau.world.ports import Address, ConnectionLost

# What people ask next, for the errors that they meet most.
_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Check the name, or create the topic.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "Seek to an offset that the log holds, or set auto.offset.reset.",
    ErrorCode.MESSAGE_TOO_LARGE: "Raise max.message.bytes of the topic, or max.request.size here.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Ask for an ACL on the topic.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Ask for an ACL on the cluster.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Bring brokers back, or lower min.insync.replicas.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The broker lacks records that it had acknowledged.",
    ErrorCode.INVALID_RECORD: "A compacted topic needs a key in every record.",
    ErrorCode.INVALID_TIMESTAMP: "Check the clock, or message.timestamp.*.max.ms of the topic.",
    ErrorCode.UNSUPPORTED_VERSION: "Client and broker share no version of this request.",
}


class ClientError(KafkaError):
    """An error that ends an operation; `where` names the partition, topic or other resource it concerns."""

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        *,
        where: TopicPartition | str | None = None,
        is_final: bool = False,
    ) -> None:
        super().__init__(code, message or code.message)
        self.where = where
        # Set where asking again is known not to help, whatever the code says.
        self.is_final = is_final

    @property
    def advice(self) -> str:
        """What usually helps; empty where there is nothing to say."""
        return _ADVICE.get(self.code, "")

    def __str__(self) -> str:
        place = "" if self.where is None else f" at {self.where}"
        said = f"{self.code.name} ({self.code.value}){place}: {self.message}"
        return f"{said} {self.advice}" if self.advice else said


class Unreachable(ClientError):
    """None of the addresses answered; `tried` says why, one by one."""

    def __init__(self, tried: Mapping[Address, str], *, hint: str = "") -> None:
        reasons = "; ".join(f"{address}: {why}" for address, why in tried.items())
        said = f"No broker could be reached. Tried {reasons.removesuffix('.')}."
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"{said} {hint}" if hint else said)
        self.tried = dict(tried)


def code_of(number: int) -> ErrorCode:
    """The error with this number; one from a newer broker is an unknown server error."""
    return ErrorCode(number) if number in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR


def check(
    number: int,
    message: str | None = None,
    *,
    where: TopicPartition | str | None = None,
    is_final: bool = False,
) -> None:
    """Raise what a response reports, unless it reports no error."""
    if number != ErrorCode.NONE:
        code = code_of(number)
        if code == ErrorCode.UNKNOWN_SERVER_ERROR and number != code:
            message = f"The broker answered with error {number}, which this client does not know."
        raise ClientError(code, message, where=where, is_final=is_final)


def is_worth_another_try(error: Exception) -> bool:
    """Whether the same request may succeed later, perhaps at another broker."""
    if isinstance(error, ClientError) and error.is_final:
        return False
    if isinstance(error, KafkaError):
        return error.code.is_retriable
    return isinstance(error, ConnectionLost | TimeoutError)
