"""The blobs of the classic protocol, byte for byte as other clients write them."""

from __future__ import annotations

import pytest

from moldau.client.assignors import Subscription
from moldau.client.embedded import read_assignment, read_subscription, write_assignment, write_subscription
from moldau.client.offsets import place_of
from moldau.model.errors import MalformedMessage

ORDERS_0, ORDERS_2 = place_of(("orders", 0)), place_of(("orders", 2))


def test_an_assignment_is_written_topic_by_topic_and_read_back() -> None:
    data = write_assignment([ORDERS_2, ORDERS_0])
    assert data.hex() == ("0003000000010006" + b"orders".hex() + "000000020000000000000002ffffffff")
    assert read_assignment(data) == (ORDERS_0, ORDERS_2)
    assert read_assignment(b"") == ()


def test_a_subscription_of_any_version_can_be_read() -> None:
    topics = "000000010006" + b"orders".hex() + "ffffffff"
    owned = "000000010006" + b"orders".hex() + "0000000100000002"
    expected = Subscription(("orders",), (ORDERS_2,), 7, "static")
    for version, rest in {
        0: "",
        1: owned,
        2: owned + "00000007",
        3: owned + "00000007ffff",
        9: owned + "00000007ffff0102",
    }.items():
        read = read_subscription(bytes.fromhex(f"{version:04x}" + topics + rest), instance_id="static")
        assert read.topics == ("orders",)
        assert read.owned == (() if version == 0 else expected.owned)
        assert read.generation == (7 if version >= 2 else -1)
    again = read_subscription(write_subscription(expected, rack_id="r"), instance_id="static")
    assert again == expected


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x05"])
def test_what_is_no_subscription_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_subscription(data, instance_id=None)
