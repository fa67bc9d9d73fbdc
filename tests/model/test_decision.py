"""A decision is a value: what to append, what to reply, what to do."""

from dataclasses import FrozenInstanceError

import pytest

from moldau.model.decision import Decision


def test_a_decision_that_changes_nothing_is_only_a_reply() -> None:
    decision: Decision[str, bytes, str] = Decision("no such group")
    assert (decision.records, decision.effects) == ((), ())


def test_equal_decisions_are_equal_and_cannot_be_changed() -> None:
    decision = Decision("joined", records=(b"member",), effects=("expect a heartbeat",))
    assert decision == Decision("joined", (b"member",), ("expect a heartbeat",))
    with pytest.raises(FrozenInstanceError):
        decision.reply = "left"  # type: ignore[misc]
