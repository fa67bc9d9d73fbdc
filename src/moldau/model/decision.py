"""What a core answers when it is asked to decide: data, which the node then carries out."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Reply_co = TypeVar("Reply_co", covariant=True)
Record_co = TypeVar("Record_co", covariant=True)
Effect_co = TypeVar("Effect_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[Reply_co, Record_co, Effect_co]):
    """Records to append, the reply to give once they are committed, and what else is to be done.

    A core names its own records and effects once, `GroupDecision = Decision[T, GroupRecord, GroupEffect]`,
    so that its functions return a `GroupDecision[JoinReply]`. Deciding changes no logged state: the core
    sees its records again through `apply`, as it does when it loads them after a restart.
    """

    reply: Reply_co
    records: tuple[Record_co, ...] = ()
    effects: tuple[Effect_co, ...] = ()
