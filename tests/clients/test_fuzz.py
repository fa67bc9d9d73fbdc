"""A fuzzer against the ports of a real broker: it answers or closes, and nobody else notices.

More of it, with other seeds: FUZZ_SEED=7 FUZZ_ROUNDS=200 python -m pytest tests/clients/test_fuzz.py
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from clients.fuzz import WAIT_MS_MAX, Fuzz
from clients.raw_client import Closed, RawClient, batch_of, wait_until
from clients.rough_broker import RoughBroker

from moldau.model.errors import ErrorCode
from moldau.node.apis.table import BROKER_APIS, CONTROLLER_APIS, Api
from moldau.wire.messages import RESPONSES, ApiKey, response_header_version
from moldau.wire.messages.header import ResponseHeader

SEED = os.environ.get("FUZZ_SEED", "1")
ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "12"))
MIB = 2**20
GROWTH_BYTES_MAX = 48 * MIB
# These may wait for others, whose requests never come, or need no answer at all.
MAY_BE_SILENT = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
PATIENCE_S = 2 * WAIT_MS_MAX / 1000
# So long an answer may take on a busy machine before it counts as none.
ANSWER_S = 20
# Somebody who may do anything can take a broker out of its cluster, which then ends.
LEFT_OUT = (ApiKey.UNREGISTER_BROKER,)


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_whatever_is_asked_is_answered_or_ends_its_connection_alone(listener: str, tmp_path: Path) -> None:
    with RoughBroker(tmp_path, {"socket.request.max.bytes": str(8 * MIB)}) as broker:
        with broker.connect("bystander") as bystander:
            for name, configs in (("sound", {}), ("compacted", {"cleanup.policy": "compact"}), ("kept", {})):
                assert bystander.create_topic(name, configs=configs) == ErrorCode.NONE
            # The topic of the bystander is none that the fuzzer knows of.
            topics = [(name, bystander.topic_id(name)) for name in ("sound", "compacted")]
            values = [b"before"]
            assert bystander.produce("kept", batch_of(*values)).error_code == ErrorCode.NONE
            before = broker.memory_bytes()
            apis, address = (
                (BROKER_APIS, broker.address)
                if listener == "broker"
                else (CONTROLLER_APIS, broker.controller_address)
            )
            for number in range(ROUNDS):
                bother(broker, address, apis, Fuzz(f"{SEED} {listener} {number}", topics))
                values.append(b"after round %d" % number)
                assert bystander.produce("kept", batch_of(values[-1])).error_code == ErrorCode.NONE
            assert bystander.values("kept") == values
            assert broker.memory_bytes() - before < GROWTH_BYTES_MAX
        broker.check_health()
        # One line for so many, or the log would be an attack of its own.
        closed = [line for line in broker.log().splitlines() if "connection closed" in line]
        assert len(closed) < 50
        # What was left behind can be read again.
        broker.kill()
        broker.start()
        with broker.connect() as client:
            assert client.values("kept") == values


def bother(broker: RoughBroker, address: str, apis: Mapping[int, Api], fuzz: Fuzz) -> None:
    """One request to every API in every version, each on a connection of its own."""
    correlation_id = 0
    for api in apis.values():
        if api.key in LEFT_OUT:
            continue
        for version in range(api.versions.lowest, api.versions.highest + 1):
            correlation_id += 1
            content, is_sound = fuzz.frame(api.key, version, correlation_id)
            with RawClient(address) as client:
                client.send_frame(content)
                try:
                    check_answer(client, api.key, version, correlation_id)
                except Closed:
                    wait_until(broker.is_running, f"the broker lives after {content.hex()}", 1)
                    assert api.key in (ApiKey.PRODUCE, ApiKey.ENVELOPE) or not is_sound, content.hex()


def check_answer(client: RawClient, key: ApiKey, version: int, correlation_id: int) -> None:
    client.socket.settimeout(PATIENCE_S if key in MAY_BE_SILENT else ANSWER_S)
    try:
        frame = client.read_frame()
    except TimeoutError:
        assert key in MAY_BE_SILENT, f"{key.api_name} in version {version} is not answered"
        return
    header_version = response_header_version(key, version)
    start = 4 + header_version
    header = ResponseHeader.decode(frame[:start], header_version)
    assert header.correlation_id == correlation_id
    response = RESPONSES[key].decode(frame[start:], version)
    code = getattr(response, "error_code", 0)
    assert code != ErrorCode.UNKNOWN_SERVER_ERROR, response
