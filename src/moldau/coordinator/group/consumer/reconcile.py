"""The next step of one member towards its target: a partition is handed over only once it was given up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from moldau.coordinator.group.assignors import Partitions
from moldau.coordinator.group.consumer.member import CurrentAssignment, Epochs, MemberState
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicId

# What a member says that it has. A member that says nothing has confirmed nothing.
Owned = Mapping[TopicId, Collection[int]]


@dataclass(frozen=True, slots=True)
class Target:
    """What a member is to have."""

    epoch: int
    partitions: Partitions


def reconcile(
    current: CurrentAssignment,
    target: Target,
    *,
    owned: Owned | None,
    wants: Callable[[TopicId], bool],
    is_held_by_another: Callable[[TopicId, int], bool],
    wants_other_topics: bool = False,
) -> CurrentAssignment:
    """What the member has next; the same as now if it has to wait.

    A member gives up first, and stays in its epoch while it does. Then it goes to the epoch of the target and
    gets whatever of it is free; what is not free follows when it is. If it has just said that it wants other
    topics, it is to give up at once what it wants no more.
    """
    must_wait = False
    match current.state:
        case MemberState.STABLE:
            must_wait = current.epoch == target.epoch
        case MemberState.UNREVOKED_PARTITIONS:
            must_wait = _may_still_read(current.revoking, owned)
        case MemberState.UNKNOWN if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH, "The state of the member is not known: give up all and join."
            )
    if not must_wait:
        return _move_on(current, target, owned, wants, is_held_by_another)
    return _give_up_unwanted(current, owned, wants) if wants_other_topics else current


def _move_on(
    current: CurrentAssignment,
    target: Target,
    owned: Owned | None,
    wants: Callable[[TopicId], bool],
    is_held_by_another: Callable[[TopicId, int], bool],
) -> CurrentAssignment:
    kept: dict[TopicId, dict[int, int]] = {}
    revoking: dict[TopicId, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        is_to_have = frozenset(target.partitions.get(topic_id, ()) if wants(topic_id) else ())
        for partition, epoch in epochs.items():
            side = kept if partition in is_to_have else revoking
            side.setdefault(topic_id, {})[partition] = epoch
    if _may_still_read(revoking, owned):
        return replace(
            current,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=revoking,
        )

    state = MemberState.STABLE
    assigned: dict[TopicId, Mapping[int, int]] = {}
    for topic_id, partitions in target.partitions.items():
        if not wants(topic_id):
            continue
        had = kept.get(topic_id, {})
        got: dict[int, int] = {}
        for partition in partitions:
            if partition in had:
                got[partition] = had[partition]
            elif is_held_by_another(topic_id, partition):
                state = MemberState.UNRELEASED_PARTITIONS
            else:
                got[partition] = target.epoch
        if got:
            assigned[topic_id] = got
    return CurrentAssignment(
        epoch=target.epoch,
        # If the reply is lost, the member comes with the epoch that it had before this one, however often.
        previous_epoch=current.previous_epoch if current.epoch == target.epoch else current.epoch,
        state=state,
        assigned=assigned,
    )


def _give_up_unwanted(
    current: CurrentAssignment, owned: Owned | None, wants: Callable[[TopicId], bool]
) -> CurrentAssignment:
    unwanted = {topic_id: epochs for topic_id, epochs in current.assigned.items() if not wants(topic_id)}
    if not unwanted:
        return current
    assigned = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in unwanted}
    revoking = dict(current.revoking)
    for topic_id, epochs in unwanted.items():
        revoking[topic_id] = dict(sorted({**revoking.get(topic_id, {}), **epochs}.items()))
    if _may_still_read(revoking, owned):
        return replace(
            current,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=assigned,
            revoking=revoking,
        )
    # All of it was given up before it was asked for.
    return replace(current, assigned=assigned)


def _may_still_read(partitions: Epochs, owned: Owned | None) -> bool:
    """Whether the member may have any of these, by what it says."""
    if owned is None:
        return bool(partitions)
    return any(
        partition in owned[topic_id]
        for topic_id, epochs in partitions.items()
        if topic_id in owned
        for partition in epochs
    )
