"""One connection: versions are agreed on, requests overlap, replies are matched, and every wait ends."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from moldau.client.connection import BrokerConnection, open_connection
from moldau.client.errors import ClientError
from moldau.model.errors import ErrorCode
from moldau.sim.cluster import Cluster
from moldau.wire import framing
from moldau.wire.compiler import Chunk
from moldau.wire.message import Response
from moldau.wire.messages import ApiKey
from moldau.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from moldau.wire.messages.txn import InitProducerIdRequest
from moldau.world.clock import LoopClock
from moldau.world.ports import Address, Buffer, Connection, ConnectionLost, FileSlice, World

T = TypeVar("T")

BROKER = Address("broker", 9092)
Answer = Callable[["ScriptedBroker", framing.Request | framing.UnservedRequest], None]


class ScriptedBroker:
    """A connection at the broker's end that does with each request what the test says."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._receiver = framing.Receiver(bytearray(65536), frame_bytes_max=2**20)
        self.connection: Connection | None = None

    def reply(self, request: framing.Request, response: Response, *, version: int | None = None) -> None:
        self.send(
            framing.encode_response(
                response,
                api_key=request.api_key,
                version=request.version if version is None else version,
                correlation_id=request.correlation_id,
            )
        )

    def send(self, chunks: list[Chunk]) -> None:
        assert self.connection is not None
        self.connection.send(chunks)  # type: ignore[arg-type]  # there are no slices of files here

    def connected(self, connection: Connection) -> None:
        self.connection = connection

    def buffer_to_fill(self, hint: int) -> memoryview:
        return self._receiver.buffer_to_fill(hint)

    def filled(self, count: int) -> None:
        for frame in self._receiver.filled(count):
            kept = framing.Frame(
                bytes(frame.buffer[frame.start : frame.end]), 0, frame.end - frame.start, False
            )
            self._answer(self, framing.read_request(kept))

    def pause_sending(self) -> None:
        pass

    def resume_sending(self) -> None:
        pass

    def disconnected(self, error: Exception | None) -> None:
        self.connection = None


def versions_offered(**highest: int) -> ApiVersionsResponse:
    rows = [
        ApiVersion(api_key=ApiKey[name.upper()], min_version=0, max_version=version)
        for name, version in highest.items()
    ]
    return ApiVersionsResponse(error_code=0, api_keys=rows)


def metadata(cluster_id: str) -> MetadataResponse:
    return MetadataResponse(brokers=[], cluster_id=cluster_id, topics=[])


@pytest.fixture
def sim() -> Iterator[Cluster]:
    with Cluster(1) as sim:
        yield sim


def talk(sim: Cluster, answer: Answer, work: Callable[[BrokerConnection, World], object]) -> list[object]:
    """What `work`, a coroutine function, gives with a connection to a broker that answers like this."""
    results: list[object] = []

    async def serve(world: World) -> None:
        await world.network.listen(BROKER, lambda: ScriptedBroker(answer))
        await world.clock.sleep_ms(2**31)

    async def main(world: World) -> None:
        try:
            connection = await open_connection(
                BROKER, network=world.network, clock=world.clock, client_id="test", timeout_ms=5_000
            )
            outcome = work(connection, world)
            assert asyncio.iscoroutine(outcome)
            results.append(await outcome)
        except (ConnectionLost, ClientError, TimeoutError) as error:
            results.append(error)

    sim.add("broker", serve).start()
    sim.add("client", main).start()
    assert sim.run_until(lambda: bool(results), timeout_ms=60_000)
    return results


async def chosen_version(connection: BrokerConnection, world: World) -> int:
    return connection.version_of(MetadataRequest)


def test_the_newest_version_that_both_speak_is_used(sim: Cluster) -> None:
    def answer(broker: ScriptedBroker, request: object) -> None:
        assert isinstance(request, framing.Request)
        broker.reply(request, versions_offered(metadata=9, api_versions=4))

    assert talk(sim, answer, chosen_version) == [9]


def test_a_broker_that_does_not_know_our_version_of_the_question_is_asked_in_its_own(sim: Cluster) -> None:
    asked: list[int] = []

    def answer(broker: ScriptedBroker, request: object) -> None:
        assert isinstance(request, framing.Request)
        asked.append(request.version)
        response = versions_offered(metadata=7, api_versions=2)
        if request.version > 2:
            # KIP-511: in version 0, whatever was asked.
            response.error_code = ErrorCode.UNSUPPORTED_VERSION
            broker.reply(request, response, version=0)
        else:
            broker.reply(request, response)

    assert talk(sim, answer, chosen_version) == [7]
    assert asked == [4, 2]


@pytest.mark.parametrize("garbles", [True, False], ids=["garbles", "hangs up"])
def test_a_broker_that_cannot_bear_our_version_of_the_question_is_called_again(
    sim: Cluster, garbles: bool
) -> None:
    asked: list[int] = []

    def answer(broker: ScriptedBroker, request: object) -> None:
        assert isinstance(request, framing.Request)
        asked.append(request.version)
        if request.version == 0:
            broker.reply(request, versions_offered(metadata=7, api_versions=2))
        elif garbles:
            broker.send([b"\0\0\0\x0a" + request.correlation_id.to_bytes(4, "big") + b"\0\x23\x01\0\0\0"])
        else:
            assert broker.connection is not None
            broker.connection.close()

    assert talk(sim, answer, chosen_version) == [7]
    assert asked == [4, 0]


def test_a_request_that_the_broker_does_not_speak_is_refused_before_it_is_sent(sim: Cluster) -> None:
    def answer(broker: ScriptedBroker, request: object) -> None:
        assert isinstance(request, framing.Request) and request.api_key == ApiKey.API_VERSIONS
        broker.reply(request, versions_offered(metadata=9, fetch=3))

    async def work(connection: BrokerConnection, world: World) -> list[str]:
        messages = []
        for request in (InitProducerIdRequest, FetchRequest):
            with pytest.raises(ClientError) as error:
                connection.version_of(request)
            messages.append(error.value.message)
        return messages

    assert talk(sim, answer, work) == [
        [
            "The broker offers InitProducerId in versions none, and the client speaks 0-5.",
            "The broker offers Fetch in versions 0-3, and the client speaks 4-18.",
        ]
    ]


def test_the_port_of_a_controller_is_named_as_such(sim: Cluster) -> None:
    def answer(broker: ScriptedBroker, request: object) -> None:
        assert isinstance(request, framing.Request) and request.api_key == ApiKey.API_VERSIONS
        broker.reply(request, versions_offered(vote=2, fetch=18))

    async def work(connection: BrokerConnection, world: World) -> str:
        assert connection.version_of(FetchRequest) == 18
        with pytest.raises(ClientError, match="connect to that of a broker") as error:
            connection.version_of(InitProducerIdRequest)
        return error.value.message

    assert talk(sim, answer, work) == [
        "This is the port of a controller, which serves no clients; connect to that of a broker."
    ]


class HoldsBack:
    """Answers the first questions all at once when the last has come."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.held: list[framing.Request] = []

    def __call__(self, broker: ScriptedBroker, request: object) -> None:
        assert isinstance(request, framing.Request)
        if request.api_key == ApiKey.API_VERSIONS:
            broker.reply(request, versions_offered(metadata=9, api_versions=4))
            return
        self.held.append(request)
        if len(self.held) == self._count:
            for number, each in enumerate(self.held):
                broker.reply(each, metadata(f"reply {number}"))


def test_requests_do_not_wait_for_the_replies_of_those_before_them(sim: Cluster) -> None:
    async def work(connection: BrokerConnection, world: World) -> list[str | None]:
        asked = [
            connection.ask(MetadataRequest(topics=None), MetadataResponse, timeout_ms=1_000) for _ in range(3)
        ]
        assert connection.in_flight == 3
        return [(await each).cluster_id for each in asked]

    assert talk(sim, HoldsBack(3), work) == [["reply 0", "reply 1", "reply 2"]]


def test_one_who_stops_waiting_does_not_shift_the_replies_of_the_others(sim: Cluster) -> None:
    async def work(connection: BrokerConnection, world: World) -> str | None:
        with pytest.raises(TimeoutError):
            async with world.clock.timeout_ms(10):
                await connection.ask(MetadataRequest(topics=None), MetadataResponse, timeout_ms=1_000)
        second = await connection.ask(MetadataRequest(topics=None), MetadataResponse, timeout_ms=1_000)
        return second.cluster_id

    assert talk(sim, HoldsBack(2), work) == ["reply 1"]


def test_a_reply_that_does_not_come_ends_the_connection_and_tells_all_who_wait(sim: Cluster) -> None:
    async def work(connection: BrokerConnection, world: World) -> list[str]:
        first = connection.ask(MetadataRequest(topics=None), MetadataResponse, timeout_ms=300)
        second = connection.ask(MetadataRequest(topics=None), MetadataResponse, timeout_ms=9_000)
        messages = []
        for each in (first, second):
            with pytest.raises((ClientError, ConnectionLost)) as error:
                await each
            messages.append(str(error.value))
        assert not connection.is_open
        return messages

    assert talk(sim, HoldsBack(3), work) == [
        [
            "REQUEST_TIMED_OUT (7) at broker:9092: No MetadataResponse came within 300 ms.",
            "broker:9092: no MetadataResponse came within 300 ms",
        ]
    ]


def test_a_reply_to_another_request_ends_the_connection(sim: Cluster) -> None:
    def answer(broker: ScriptedBroker, request: object) -> None:
        assert isinstance(request, framing.Request)
        if request.api_key == ApiKey.API_VERSIONS:
            broker.reply(request, versions_offered(metadata=9, api_versions=4))
        else:
            chunks = framing.encode_response(
                metadata(""), api_key=request.api_key, version=request.version, correlation_id=77
            )
            broker.send(chunks)

    async def work(connection: BrokerConnection, world: World) -> bool:
        with pytest.raises(ValueError, match="a response to request 77, not to 1"):
            await connection.ask(MetadataRequest(topics=None), MetadataResponse, timeout_ms=1_000)
        return connection.is_open

    assert talk(sim, answer, work) == [False]


def test_nothing_is_asked_on_a_closed_connection(sim: Cluster) -> None:
    async def work(connection: BrokerConnection, world: World) -> None:
        connection.close()
        with pytest.raises(ConnectionLost, match="broker:9092: the connection is closed"):
            connection.ask(MetadataRequest(topics=None), MetadataResponse, timeout_ms=1_000)

    assert talk(sim, HoldsBack(1), work) == [None]


class WritesNowhere:
    """A connection that takes everything and sends nothing."""

    peer = BROKER
    peer_subject: str | None = None

    def send(self, chunks: Sequence[Buffer | FileSlice]) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


def test_the_records_of_a_reply_outlive_the_reading_of_the_next() -> None:
    def fetched(records: bytes) -> FetchResponse:
        row = PartitionData(
            partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=records
        )
        return FetchResponse(
            throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=[row])]
        )

    async def work() -> list[bytes]:
        connection = BrokerConnection(BROKER, clock=LoopClock(wall_ms=lambda: 0), client_id="test")
        connection.connected(WritesNowhere())
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
        asked = [connection.ask(request, FetchResponse, timeout_ms=1_000, version=11) for _ in range(2)]
        for number, records in enumerate((b"first", b"other")):
            chunks = framing.encode_response(
                fetched(records), api_key=ApiKey.FETCH, version=11, correlation_id=number
            )
            frame = b"".join(bytes(chunk) for chunk in chunks if isinstance(chunk, bytes))
            connection.buffer_to_fill(-1)[: len(frame)] = frame
            connection.filled(len(frame))
        found = []
        for each in asked:
            fields = (await each).responses[0].partitions[0].records
            assert isinstance(fields, memoryview)
            found.append(bytes(fields))
        return found

    assert asyncio.run(work()) == [b"first", b"other"]
