"""What a simulated disk keeps, loses and tears, and how it fails."""

import asyncio
import errno
from collections.abc import Callable
from typing import TypeVar

import pytest

from moldau.sim.disk import SECTOR_BYTES, PowerCut, SimDisk, Survives
from moldau.sim.randomness import Seeded
from moldau.world.ports import DiskFailed, File, Flush

SECTOR = SECTOR_BYTES
MANY = 200
T = TypeVar("T")


def disk_with(path: str, data: bytes) -> tuple[SimDisk, File]:
    """A disk that durably holds one file."""
    disk = SimDisk()
    file = disk.open(path, create=True)
    file.append([data])
    disk.flush_blocking(Flush(files=(file,), directories=("",)))
    return disk, file


def content(disk: SimDisk, path: str) -> bytes | None:
    """What a file holds, or None if there is none."""
    if not disk.exists(path):
        return None
    file = disk.open(path)
    return file.read(0, file.size())


def endings(disk: SimDisk, what: Callable[[SimDisk], T], count: int = MANY) -> list[T]:
    """What is found after each of many power cuts."""
    return [what(disk.crash(Survives.SOME, Seeded(seed))) for seed in range(count)]


# ---------------------------------------------------------------------------------------------- bytes


def test_what_was_flushed_survives_every_crash() -> None:
    disk, _ = disk_with("a", b"safe" * 1000)
    for survives in Survives:
        for seed in range(20):
            assert content(disk.crash(survives, Seeded(seed)), "a") == b"safe" * 1000


def test_nothing_unflushed_survives_the_harshest_crash() -> None:
    disk, file = disk_with("a", b"safe")
    file.append([b"unsafe"])
    file.write_at(0, b"SAFE")
    assert content(disk.crash(Survives.NOTHING), "a") == b"safe"


def test_a_killed_process_leaves_its_page_cache_which_is_still_volatile() -> None:
    disk, file = disk_with("a", b"safe")
    file.append([b" cached"])
    disk.open("new", create=True)
    after_kill = disk.crash(Survives.EVERYTHING)
    assert content(after_kill, "a") == b"safe cached"
    assert after_kill.exists("new")
    after_power_cut = after_kill.crash(Survives.NOTHING)
    assert content(after_power_cut, "a") == b"safe"
    assert not after_power_cut.exists("new")


def test_a_flush_after_a_kill_makes_durable_what_the_dead_process_wrote() -> None:
    disk, file = disk_with("a", b"safe")
    file.append([b" cached"])
    after_kill = disk.crash(Survives.EVERYTHING)
    after_kill.flush_blocking(Flush(files=(after_kill.open("a"),)))
    assert content(after_kill.crash(Survives.NOTHING), "a") == b"safe cached"


def test_sectors_are_kept_or_lost_independently_and_holes_read_as_zeros() -> None:
    disk, file = disk_with("a", b"")
    file.append([b"x" * (4 * SECTOR)])
    whole = [data for data in endings(disk, lambda d: content(d, "a")) if data and len(data) == 4 * SECTOR]
    patterns = set()
    for data in whole:
        sectors = [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]
        assert all(sector in (b"x" * SECTOR, bytes(SECTOR)) for sector in sectors)
        patterns.add("".join("x" if sector[0] else "." for sector in sectors))
    assert len(patterns) == 16


def test_the_length_is_that_after_one_of_the_appends() -> None:
    disk, file = disk_with("a", b"0")
    for _ in range(4):
        file.append([b"1234567"])
    sizes = {len(data) for data in endings(disk, lambda d: content(d, "a")) if data is not None}
    assert sizes == {1, 8, 15, 22, 29}


def test_an_overwritten_sector_is_old_or_new_or_in_between_and_never_torn() -> None:
    disk, file = disk_with("a", b"a" * SECTOR)
    file.write_at(0, b"b" * SECTOR)
    file.write_at(0, b"c" * SECTOR)
    assert set(endings(disk, lambda d: content(d, "a"))) == {b"a" * SECTOR, b"b" * SECTOR, b"c" * SECTOR}


def test_an_unflushed_truncation_may_not_have_happened() -> None:
    disk, file = disk_with("a", b"a" * 2 * SECTOR)
    file.truncate(SECTOR)
    assert set(endings(disk, lambda d: content(d, "a"))) == {b"a" * SECTOR, b"a" * 2 * SECTOR}


def test_cut_bytes_do_not_return_under_what_was_appended_after_the_cut() -> None:
    disk, file = disk_with("a", b"old!" * SECTOR)
    file.truncate(SECTOR)
    file.append([b"new!" * SECTOR])
    for data in endings(disk, lambda d: content(d, "a")):
        assert data is not None
        tail = data[SECTOR:]
        # Either the truncation never happened, or nothing of the old tail is left.
        assert b"new!" not in tail if b"old!" in tail else set(tail) <= set(b"new!\0")


def test_a_flush_covers_what_was_written_before_it_was_issued_and_no_more() -> None:
    async def scenario() -> SimDisk:
        async def sleep_ms(_: int) -> None:
            await asyncio.sleep(0)

        disk = SimDisk(sleep_ms=sleep_ms, flush_ms=(1, 1))
        file = disk.open("a", create=True)
        disk.flush_blocking(Flush(directories=("",)))
        file.append([b"before"])
        flush = asyncio.create_task(disk.flush(Flush(files=(file,))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        file.append([b" during"])
        await flush
        return disk

    disk = asyncio.run(scenario())
    assert content(disk, "a") == b"before during"
    assert content(disk.crash(Survives.NOTHING), "a") == b"before"


# ---------------------------------------------------------------------------------------------- names


def test_a_new_name_is_lost_until_its_directory_is_flushed() -> None:
    disk = SimDisk()
    file = disk.open("a", create=True)
    file.append([b"data"])
    disk.flush_blocking(Flush(files=(file,)))
    assert not disk.crash(Survives.NOTHING).exists("a")
    disk.flush_blocking(Flush(directories=("",)))
    assert content(disk.crash(Survives.NOTHING), "a") == b"data"


def test_a_flushed_directory_is_lost_with_a_parent_that_was_not() -> None:
    disk = SimDisk()
    disk.make_directory("outer/inner")
    disk.open("outer/inner/a", create=True)
    disk.flush_blocking(Flush(directories=("outer/inner",)))
    assert disk.crash(Survives.NOTHING).list("") == []
    disk.flush_blocking(Flush(directories=("outer", "")))
    assert disk.crash(Survives.NOTHING).list("outer/inner") == ["a"]


def test_renames_in_one_directory_happen_in_order() -> None:
    disk, _ = disk_with("a", b"data")
    for old, new in ("ab", "bc", "cd"):
        disk.rename(old, new)
    assert {*endings(disk, lambda d: "".join(d.list("")))} == {"a", "b", "c", "d"}


def test_directories_do_not_wait_for_each_other() -> None:
    disk = SimDisk()
    disk.make_directory("one")
    disk.make_directory("two")
    disk.flush_blocking(Flush(directories=("",)))
    disk.open("one/a", create=True)
    disk.open("two/b", create=True)
    assert set(endings(disk, lambda d: (d.exists("one/a"), d.exists("two/b")))) == {
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    }


def test_a_rename_across_directories_happens_in_both_or_in_neither() -> None:
    disk, _ = disk_with("a", b"data")
    disk.make_directory("sub")
    disk.flush_blocking(Flush(directories=("",)))
    disk.rename("a", "sub/a")
    assert set(endings(disk, lambda d: (d.exists("a"), d.exists("sub/a")))) == {(True, False), (False, True)}
    disk.flush_blocking(Flush(directories=("sub",)))
    assert disk.crash(Survives.NOTHING).list("") == ["sub/"]


def test_a_removed_file_may_come_back_whole_until_its_directory_is_flushed() -> None:
    disk, _ = disk_with("a", b"data")
    disk.remove("a")
    assert set(endings(disk, lambda d: content(d, "a"))) == {None, b"data"}
    disk.flush_blocking(Flush(directories=("",)))
    assert set(endings(disk, lambda d: content(d, "a"))) == {None}


def test_a_file_renamed_before_its_bytes_are_safe_may_be_found_empty() -> None:
    disk, _ = disk_with("a", b"old")
    draft = disk.open("a.tmp", create=True)
    draft.append([b"new"])
    disk.rename("a.tmp", "a")
    assert b"" in endings(disk, lambda d: content(d, "a"))


def test_a_file_replaced_through_a_flush_is_old_or_new_at_every_crash_point() -> None:
    found = set()
    for point in range(1, 100):
        disk, _ = disk_with("a", b"old")
        disk.stop_at(disk.operation_count + point)
        try:
            draft = disk.open("a.tmp", create=True)
            draft.append([b"new"])
            disk.flush_blocking(Flush(files=(draft,), renames=(("a.tmp", "a"),)))
        except PowerCut:
            found |= set(endings(disk, lambda d: content(d, "a"), count=50))
        else:
            assert set(endings(disk, lambda d: content(d, "a"))) == {b"new"}
            break
    else:
        raise AssertionError("the replacement never finished")
    assert found == {b"old", b"new"}


# ---------------------------------------------------------------------------------------------- crash points


def test_the_power_goes_before_the_chosen_operation_and_stays_off() -> None:
    disk, file = disk_with("a", b"")
    disk.stop_at(disk.operation_count + 2)
    file.append([b"one"])
    with pytest.raises(PowerCut, match="write a"):
        file.append([b"two"])
    for use in (file.size, lambda: disk.exists("a"), lambda: file.truncate(0), lambda: disk.remove("a")):
        with pytest.raises(PowerCut):
            use()
    assert content(disk.crash(Survives.EVERYTHING), "a") == b"one"


def test_a_power_cut_is_not_an_exception_that_code_under_test_could_answer() -> None:
    assert not issubclass(PowerCut, Exception)


def test_every_change_is_counted_and_named() -> None:
    disk = SimDisk()
    disk.make_directory("d")
    file = disk.open("d/a", create=True)
    file.append([b"12", b"34"])
    file.write_at(0, b"x")
    file.truncate(1)
    disk.rename("d/a", "d/b")
    disk.flush_blocking(Flush(files=(file,), directories=("d",)))
    disk.remove("d")
    assert [str(operation) for operation in disk.operations] == [
        "mkdir d",
        "create d/a",
        "write d/a 0..4",
        "write d/a 0..1",
        "truncate d/a to 1",
        "rename d/a -> d/b",
        "fsync d/a",
        "fsync d/",
        "unlink d/b",
        "unlink d",
    ]
    assert disk.operation_count == 10


def test_equal_seeds_give_equal_images() -> None:
    disk, file = disk_with("a", b"a" * 3000)
    for position in range(0, 3000, 100):
        file.write_at(position, b"b" * 50)
    images = [content(disk.crash(Survives.SOME, Seeded(7)), "a") for _ in range(2)]
    assert images[0] == images[1]
    assert images[0] != content(disk.crash(Survives.SOME, Seeded(8)), "a")


# ---------------------------------------------------------------------------------------------- faults


def test_a_failed_fsync_loses_the_pages_and_fails_the_disk_for_ever() -> None:
    disk, file = disk_with("a", b"safe")
    file.append([b" lost"])
    disk.fail("fsync", path="a")
    with pytest.raises(DiskFailed, match="fsync of a"):
        disk.flush_blocking(Flush(files=(file,)))
    for use in (
        lambda: disk.flush_blocking(Flush(files=(file,))),
        lambda: file.append([b"more"]),
        lambda: disk.remove("a"),
        lambda: asyncio.run(disk.flush(Flush(files=(file,)))),
    ):
        with pytest.raises(DiskFailed):
            use()
    assert file.read(0, 100) == b"safe lost"
    assert set(endings(disk, lambda d: content(d, "a"))) == {b"safe"}


def test_pages_lost_by_a_failed_fsync_look_safe_to_the_next_process_and_are_not() -> None:
    disk, file = disk_with("a", b"safe")
    file.append([b" lost"])
    disk.fail("fsync")
    with pytest.raises(DiskFailed):
        disk.flush_blocking(Flush(files=(file,)))
    after_kill = disk.crash(Survives.EVERYTHING)
    after_kill.flush_blocking(Flush(files=(after_kill.open("a"),)))
    assert content(after_kill, "a") == b"safe lost"
    assert content(after_kill.crash(Survives.NOTHING), "a") == b"safe"


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_write_that_fails_changes_nothing(code: int) -> None:
    disk, file = disk_with("a", b"safe")
    disk.fail("write", path="a", code=code)
    with pytest.raises(OSError) as failure:
        file.append([b"more"])
    assert failure.value.errno == code
    assert file.append([b"!"]) == 4


def test_a_read_can_fail_once() -> None:
    disk, file = disk_with("a", b"safe")
    disk.fail("read")
    with pytest.raises(OSError):
        file.read(0, 4)
    assert file.read(0, 4) == b"safe"


def test_a_full_disk_refuses_growth_and_takes_it_again_once_there_is_room() -> None:
    disk = SimDisk(capacity_bytes=100)
    file = disk.open("a", create=True)
    file.append([bytes(90)])
    with pytest.raises(OSError) as failure:
        file.append([bytes(11)])
    assert failure.value.errno == errno.ENOSPC
    file.write_at(0, b"in place")
    assert disk.free_bytes() == 10
    disk.open("b", create=True)
    file.truncate(50)
    file.append([bytes(50)])
    disk.remove("a")
    assert disk.free_bytes() == 100


def test_a_flipped_bit_is_seen_now_and_after_a_crash() -> None:
    disk, file = disk_with("a", b"abc")
    file.append([b"def"])
    disk.flip_bit("a", 1)
    disk.flip_bit("a", 4, bit=5)
    assert file.read(0, 6) == b"acc" + b"dEf"
    disk.flush_blocking(Flush(files=(file,)))
    assert content(disk.crash(Survives.NOTHING), "a") == b"accdEf"
