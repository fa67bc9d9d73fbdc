"""What only the real machine can do wrong, and what it has to do about it."""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from world.network_receivers import Recorder

from moldau.world import real
from moldau.world.ports import Address, DiskFailed, FileSlice, Flush
from moldau.world.real import disk as real_disk
from moldau.world.real.disk import RealDisk
from moldau.world.real.network import RealNetwork


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    disk = RealDisk(str(tmp_path))
    yield disk
    disk.close()


# ---------------------------------------------------------------------------------------------- the disk


def test_a_write_that_stops_half_way_is_continued(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, chunks, at: real_write(fd, [b"".join(chunks)[:3]], at))
    file = disk.open("a", create=True)
    file.append([b"ab", b"cd", b"", b"efghi"])
    assert file.read(0, 100) == b"abcdefghi"


def test_a_write_that_fails_half_way_is_cut_off_again(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("a", create=True)
    file.append([b"whole"])
    real_write = os.pwritev

    def fill_up(fd: int, chunks: Sequence[bytes], position: int) -> int:
        if position == 5:
            return real_write(fd, [b"half"], position)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwritev", fill_up)
    with pytest.raises(OSError, match="no space"):
        file.append([b"half of it"])
    assert file.size() == 5


def test_half_a_write_that_cannot_be_cut_off_fails_the_disk(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, "broken")

    file = disk.open("a", create=True)
    monkeypatch.setattr(os, "pwritev", fail)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(DiskFailed):
        file.append([b"x"])
    assert disk.is_failed


def test_a_failed_fsync_is_never_tried_again(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def fail(fd: int) -> None:
        nonlocal calls
        calls += 1
        raise OSError(errno.EIO, "broken")

    file = disk.open("a", create=True)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(DiskFailed, match="broken"):
        asyncio.run(disk.flush(Flush(files=(file,))))
    monkeypatch.undo()
    for use in (
        lambda: asyncio.run(disk.flush(Flush(files=(file,)))),
        lambda: disk.flush_blocking(Flush(files=(file,))),
        lambda: file.append([b"x"]),
        lambda: disk.open("b", create=True),
        lambda: disk.remove("a"),
    ):
        with pytest.raises(DiskFailed):
            use()
    assert calls == 1
    assert file.read(0, 1) == b""


def test_many_dirty_files_are_flushed_with_one_call(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(real_disk, "SYNCFS", lambda fd: calls.append("syncfs"))
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append("fdatasync"))
    files = [disk.open(f"{number}", create=True) for number in range(9)]
    disk.flush_blocking(Flush(files=tuple(files[:8])))
    assert calls == ["fdatasync"] * 8
    calls.clear()
    disk.flush_blocking(Flush(files=tuple(files)))
    assert calls == ["syncfs"]
    calls.clear()
    monkeypatch.setattr(real_disk, "SYNCFS", None)
    disk.flush_blocking(Flush(files=tuple(files)))
    assert calls == ["fdatasync"] * 9


def test_the_bytes_are_safe_before_the_name_and_the_name_before_the_answer(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append("bytes"))
    monkeypatch.setattr(os, "rename", lambda old, new: calls.append("rename"))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("directory"))
    file = disk.open("a.tmp", create=True)
    disk.flush_blocking(Flush(files=(file,), renames=(("a.tmp", "a"),)))
    assert calls == ["bytes", "rename", "directory"]


def test_a_directory_is_locked_against_other_processes_until_it_is_let_go(
    disk: RealDisk, tmp_path: Path
) -> None:
    program = "import sys; from moldau.world.real.disk import RealDisk; RealDisk(sys.argv[1]).lock()"
    command = [sys.executable, "-c", program, str(tmp_path)]
    disk.lock()
    assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    disk.close()
    subprocess.run(command, check=True)


def test_the_descriptor_is_closed_with_the_last_slice(disk: RealDisk) -> None:
    file = disk.open("a", create=True)
    file.append([b"abc"])
    fd, part = file.fd, FileSlice(file, 0, 3)
    file.close()
    del file
    assert part.read() == b"abc"
    del part
    with pytest.raises(OSError):
        os.fstat(fd)


# ---------------------------------------------------------------------------------------------- the network


def test_a_file_that_is_shorter_than_its_slice_ends_the_connection(disk: RealDisk) -> None:
    async def scenario() -> None:
        file = disk.open("a", create=True)
        file.append([b"x" * 100_000])
        server, client = Recorder(), Recorder()
        network = RealNetwork()
        listener = await network.listen(Address("127.0.0.1", 0), lambda: server)
        connection = await network.connect(listener.address, client)
        connection.send([FileSlice(file, 0, 200_000)])
        await client.until_event("disconnected")
        await server.until_event("disconnected")
        assert server.received == b"x" * len(server.received)
        assert len(server.received) <= 100_000
        await listener.close()

    asyncio.run(scenario())


def test_large_slices_leave_by_sendfile_and_small_ones_do_not(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    sendfile = os.sendfile

    def counted(out: int, file: int, position: int, size: int) -> int:
        sent = sendfile(out, file, position, size)
        sizes.append(sent)
        return sent

    monkeypatch.setattr(os, "sendfile", counted)

    async def scenario() -> None:
        file = disk.open("a", create=True)
        file.append([b"x" * 300_000])
        server, client = Recorder(), Recorder()
        network = RealNetwork()
        listener = await network.listen(Address("127.0.0.1", 0), lambda: server)
        connection = await network.connect(listener.address, client)
        connection.send([FileSlice(file, 0, 1_000)])
        connection.send([FileSlice(file, 0, 300_000)])
        connection.close()
        await server.until_event("disconnected")
        assert len(server.received) == 301_000
        await listener.close()

    asyncio.run(scenario())
    assert sum(sizes) == 300_000


# ---------------------------------------------------------------------------------------------- the rest


def test_the_real_world_has_time_chance_and_threads(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = real.real_world(str(tmp_path))
        before = world.clock.now_ms()
        await world.clock.sleep_ms(2)
        assert world.clock.now_ms() - before >= 1
        assert world.clock.wall_ms() > 1_600_000_000_000
        with pytest.raises(TimeoutError):
            async with world.clock.timeout_ms(1):
                await world.clock.sleep_ms(60_000)
        assert 0 <= world.randomness.below(10) < 10
        assert len(world.randomness.bytes(16)) == 16
        assert await world.tasks.off_loop(os.getpid) == os.getpid()

    real.run(scenario())
