"""The Network port on asyncio's transports, with sendfile for large slices of files."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from moldau.world.ports import Address, Buffer, ConnectionLost, FileSlice, Receiver, ServerTls
from moldau.world.real.disk import RealFile
from moldau.world.real.subject import subject_of
from moldau.world.real.tls import server_context
from moldau.world.real.turns import TurnLoop

CONNECT_TIMEOUT_MS = 10_000
# Smaller slices are cheaper to read and join than to give a system call of their own.
SENDFILE_BYTES_MIN = 64 * 1024
# Larger buffers are cheaper to write by themselves than to copy into one.
JOIN_BYTES_MAX = 64 * 1024
# What may be sent, or read, before others get their turn.
SENDFILE_BYTES_MAX = 1024 * 1024
READ_BYTES_MAX = 1024 * 1024
# The marks of the queue behind a sendfile, the same as the transport's own.
QUEUE_BYTES_HIGH = 64 * 1024
QUEUE_BYTES_LOW = 16 * 1024
RECEIVE_BYTES_HINT = 64 * 1024
# How many clients may knock at once, say after a restart, before some have to knock again.
BACKLOG = 1024

_NUMBER = re.compile(r"\[Errno (\d+)\]")


class RealNetwork:
    """Sockets; with TLS at listeners that are given it, and to all peers if there is a context for them.

    `held` are sockets that listen already, for whoever must be sure of a port before it is listened at here.
    """

    def __init__(
        self,
        *,
        client_tls: ssl.SSLContext | None = None,
        held: Mapping[Address, socket.socket] | None = None,
    ) -> None:
        self._client_tls = client_tls
        self._held = dict(held or {})

    async def listen(
        self, address: Address, accept: Callable[[], Receiver], *, tls: ServerTls | None = None
    ) -> RealListener:
        """Accept connections at `address`, each with a receiver of its own; InvalidTls if `tls` is no good.

        Port 0 is any free one, an empty host means all interfaces.
        """
        loop, context = asyncio.get_running_loop(), None if tls is None else server_context(tls)
        if (held := self._held.pop(address, None)) is not None:
            server = await loop.create_server(
                lambda: RealConnection(accept()), sock=held, ssl=context, backlog=BACKLOG
            )
        else:
            server = await loop.create_server(
                lambda: RealConnection(accept()),
                address.host or None,
                address.port,
                ssl=context,
                backlog=BACKLOG,
            )
        port = server.sockets[0].getsockname()[1]
        return RealListener(Address(address.host, port), server)

    async def connect(self, address: Address, receiver: Receiver) -> RealConnection:
        """A connection to `address`; ConnectionLost if nobody answers."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: RealConnection(receiver), address.host, address.port, ssl=self._client_tls
                )
        except TimeoutError:
            raise ConnectionLost(f"{address}: no answer within {CONNECT_TIMEOUT_MS // 1000} s") from None
        except OSError as error:
            raise ConnectionLost(f"{address}: {_why(error, is_tls=self._client_tls is not None)}") from error
        return connection


class RealListener:
    """The Listener port."""

    def __init__(self, address: Address, server: asyncio.Server) -> None:
        self.address = address
        self._server = server

    async def close(self) -> None:
        """Accept no more; connections stay."""
        # Not `wait_closed`: that waits for the connections too.
        self._server.close()


class RealConnection(asyncio.BufferedProtocol):
    """The Connection port: an asyncio protocol between a transport and a receiver.

    While a slice of a file is being sent, whatever comes after it waits in a queue here, because sendfile
    goes past the transport, straight to the socket.
    """

    peer: Address
    peer_subject: str | None
    _transport: asyncio.Transport

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._turns = self._loop if isinstance(self._loop, TurnLoop) else None
        # What is sent once all that has come is read, and before everything in the queue.
        self._outbox: list[bytes] = []
        self._queue: deque[Buffer | FileSlice] = deque()
        self._queued_bytes = 0
        # The transport owns its descriptor on the loop, so that we watch and send through a twin of it.
        self._twin_fd: int | None = None
        self._is_transport_full = False
        self._is_sender_paused = False
        self._is_reading = True
        self._is_reading_on = False
        self._is_closing = False
        self._offered_bytes = 0

    # ------------------------------------------------------------ the port

    def send(self, chunks: Sequence[Buffer | FileSlice]) -> None:
        """Queue `chunks`, in one write where possible; a large slice leaves by sendfile."""
        if self._is_closing or self._transport.is_closing():
            return
        turns = self._turns
        is_crowded = turns is not None and turns.is_crowded
        if (is_crowded or self._is_reading_on) and not self._queue:
            # Only what cannot change meanwhile, and cannot fail as the read of a slice can.
            for chunk in chunks:
                if not isinstance(chunk, bytes):
                    break
            else:
                if turns is not None and not self._outbox and not self._is_reading_on:
                    turns.at_end_of_turn(self._send_outbox)
                self._outbox += chunks  # type: ignore[arg-type]  # the loop has found nothing else
                return
        self._send_outbox()
        self._send_now(chunks)

    def _send_outbox(self) -> None:
        if self._outbox:
            chunks, self._outbox = self._outbox, []
            if not self._transport.is_closing():
                self._send_now(chunks)

    def _send_now(self, chunks: Sequence[Buffer | FileSlice]) -> None:
        if len(chunks) == 1 and not self._queue and isinstance(chunks[0], bytes):
            # A small reply, as most are.
            self._transport.write(chunks[0])
            return
        for chunk in self._prepared(chunks):
            if self._queue or isinstance(chunk, FileSlice):
                self._queue.append(chunk)
                self._queued_bytes += len(chunk)
            else:
                self._transport.write(chunk)
        if self._queue:
            self._send_queued()
            self._tell_sender()

    def pause_reading(self) -> None:
        """Take no more bytes from the peer until `resume_reading`."""
        self._is_reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        self._is_reading = True
        self._transport.resume_reading()

    def close(self) -> None:
        """Send what is queued, then end the connection."""
        self._send_outbox()
        self._is_closing = True
        if not self._queue:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now; what is queued is lost."""
        self._outbox.clear()
        self._is_closing = True
        self._transport.abort()

    # ------------------------------------------------------------ asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._is_plaintext = transport.get_extra_info("sslcontext") is None
        host, port = transport.get_extra_info("peername")[:2]
        self.peer = Address(host, port)
        self.peer_subject = _subject_of_client(transport.get_extra_info("ssl_object"))
        self._receiver.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the transport puts what arrives."""
        buffer = self._receiver.buffer_to_fill(sizehint if sizehint > 0 else RECEIVE_BYTES_HINT)
        self._offered_bytes = len(buffer)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Something has arrived."""
        if nbytes < self._offered_bytes or not self._is_plaintext:
            self._receiver.filled(nbytes)
            return
        self._is_reading_on = True
        try:
            self._receiver.filled(nbytes)
            self._read_on()
        finally:
            self._is_reading_on = False
            self._send_outbox()

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._is_transport_full = True
        self._tell_sender()

    def resume_writing(self) -> None:
        """The transport's buffer has drained."""
        self._is_transport_full = False
        self._tell_sender()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_watching()
        self._outbox.clear()
        self._queue.clear()
        self._queued_bytes = 0
        if exc is None:
            self._receiver.disconnected(None)
        else:
            why = _why(exc, is_tls=False) if isinstance(exc, OSError) else str(exc)
            self._receiver.disconnected(ConnectionLost(f"{self.peer}: {why}"))

    # ------------------------------------------------------------ within

    def _read_on(self) -> None:
        """Read what did not fit: a buffer that ended with a frame is often full before the socket is empty.

        A turn of the loop for each would cost more than the frame. Errors and the end are the transport's.
        """
        left = READ_BYTES_MAX
        while left > 0 and self._is_reading and not self._is_closing and not self._transport.is_closing():
            buffer = self._receiver.buffer_to_fill(RECEIVE_BYTES_HINT)
            try:
                count = os.readv(self._transport.get_extra_info("socket").fileno(), (buffer,))
            except OSError:
                return
            if not count:
                return
            self._receiver.filled(count)
            if count < len(buffer):
                return
            left -= count

    def _prepared(self, chunks: Sequence[Buffer | FileSlice]) -> list[Buffer | FileSlice]:
        """The same bytes in as few writes as copying is worth."""
        prepared: list[Buffer | FileSlice] = []
        small: list[Buffer] = []
        for chunk in chunks:
            piece = chunk
            if isinstance(piece, FileSlice):
                is_large = self._is_plaintext and isinstance(piece.file, RealFile)
                if not is_large or len(piece) < SENDFILE_BYTES_MIN:
                    piece = piece.read()
            if isinstance(piece, FileSlice) or len(piece) > JOIN_BYTES_MAX:
                if small:
                    prepared.append(small[0] if len(small) == 1 else b"".join(small))
                    small = []
                prepared.append(piece)
            elif len(piece):
                small.append(piece)
        if small:
            prepared.append(small[0] if len(small) == 1 else b"".join(small))
        return prepared

    def _send_queued(self) -> None:
        """Send from the queue until it is empty, the socket is full, or it is the others' turn."""
        turn_bytes = SENDFILE_BYTES_MAX
        while self._queue and turn_bytes > 0:
            chunk = self._queue[0]
            if not isinstance(chunk, FileSlice):
                self._transport.write(chunk)
                sent = len(chunk)
            elif self._transport.get_write_buffer_size() > 0:
                # What was written before it goes first.
                break
            else:
                try:
                    sent = self._sendfile(chunk, turn_bytes)
                except BlockingIOError:
                    break
                except OSError:
                    self._transport.abort()
                    return
            self._queued_bytes -= sent
            turn_bytes -= sent
            if sent == len(chunk):
                self._queue.popleft()
            elif isinstance(chunk, FileSlice):
                self._queue[0] = FileSlice(chunk.file, chunk.position + sent, chunk.size - sent)
        if self._queue:
            self._watch()
        else:
            self._stop_watching()
            if self._is_closing:
                self._transport.close()

    def _sendfile(self, chunk: FileSlice, bytes_max: int) -> int:
        assert isinstance(chunk.file, RealFile)
        sent = os.sendfile(self._twin(), chunk.file.fd, chunk.position, min(chunk.size, bytes_max))
        if sent == 0:
            raise OSError("the file is shorter than its slice")
        return sent

    def _twin(self) -> int:
        if self._twin_fd is None:
            self._twin_fd = os.dup(self._transport.get_extra_info("socket").fileno())
        return self._twin_fd

    def _watch(self) -> None:
        self._loop.add_writer(self._twin(), self._on_writable)

    def _on_writable(self) -> None:
        self._send_queued()
        self._tell_sender()

    def _stop_watching(self) -> None:
        if self._twin_fd is not None:
            self._loop.remove_writer(self._twin_fd)
            os.close(self._twin_fd)
            self._twin_fd = None

    def _tell_sender(self) -> None:
        """Pause the sender while the transport or the queue is full; resume it once neither is."""
        mark = QUEUE_BYTES_LOW if self._is_sender_paused else QUEUE_BYTES_HIGH
        is_full = self._is_transport_full or self._queued_bytes > mark
        if is_full and not self._is_sender_paused:
            self._is_sender_paused = True
            self._receiver.pause_sending()
        elif not is_full and self._is_sender_paused:
            self._is_sender_paused = False
            self._receiver.resume_sending()


def _why(error: OSError, *, is_tls: bool) -> str:
    """Why nobody could be connected to, in the system's words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason.lower().replace('_', ' ') if error.reason else error}"
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    # Instead of the system's words asyncio gives the address, or all of that for each address of a name.
    number = error.errno or next(map(int, _NUMBER.findall(str(error))), None)
    if number is not None:
        return os.strerror(number)
    if is_tls and isinstance(error, ConnectionError):
        return "the connection was ended while TLS was being agreed on; perhaps TLS is not spoken there"
    return str(error) or type(error).__name__


def _subject_of_client(tls: ssl.SSLObject | None) -> str | None:
    # The other end of a connection that we opened is a server, whose name was checked when we connected.
    certificate = tls.getpeercert(binary_form=True) if tls is not None and tls.server_side else None
    return None if certificate is None else subject_of(certificate)
