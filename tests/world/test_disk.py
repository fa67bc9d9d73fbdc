"""What every Disk does: the simulated one and the real one give the same answers."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.sim.disk import SimDisk
from moldau.world.ports import Disk, FileSlice, Flush
from moldau.world.real.disk import RealDisk


@pytest.fixture(params=["sim", "real"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "sim":
        yield SimDisk()
    else:
        real = RealDisk(str(tmp_path / "data"))
        yield real
        real.close()


def put(disk: Disk, path: str, data: bytes = b"") -> None:
    disk.open(path, create=True).append([data])


def content(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    return file.read(0, file.size())


# ---------------------------------------------------------------------------------------------- files


def test_chunks_are_appended_in_order_and_the_position_is_told(disk: Disk) -> None:
    file = disk.open("a", create=True)
    assert file.append([b"one", bytearray(b"two"), memoryview(b"three")]) == 0
    assert file.append([]) == 11
    assert file.append([b"", b"!"]) == 11
    assert file.size() == 12
    assert file.read(0, 100) == b"onetwothree!"


def test_an_append_of_thousands_of_chunks_is_whole(disk: Disk) -> None:
    file = disk.open("a", create=True)
    chunks = [str(number).encode() for number in range(3000)]
    file.append(chunks)
    assert file.read(0, 1 << 20) == b"".join(chunks)


@pytest.mark.parametrize(
    ("position", "size", "expected"), [(0, 3, b"abc"), (2, 2, b"cd"), (4, 9, b"e"), (5, 1, b""), (9, 1, b"")]
)
def test_a_read_is_short_only_at_the_end(disk: Disk, position: int, size: int, expected: bytes) -> None:
    put(disk, "a", b"abcde")
    assert disk.open("a").read(position, size) == expected


def test_bytes_are_overwritten_in_place(disk: Disk) -> None:
    put(disk, "a", b"abcde")
    disk.open("a").write_at(1, b"BC")
    assert content(disk, "a") == b"aBCde"


def test_a_write_past_the_end_leaves_a_hole_of_zeros(disk: Disk) -> None:
    put(disk, "a", b"ab")
    disk.open("a").write_at(4, b"e")
    assert content(disk, "a") == b"ab\0\0e"


def test_a_truncated_file_is_appended_to_at_its_new_end(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append([b"abcde"])
    file.truncate(2)
    assert file.append([b"!"]) == 2
    assert content(disk, "a") == b"ab!"


def test_truncation_to_a_larger_size_extends_with_zeros(disk: Disk) -> None:
    put(disk, "a", b"ab")
    disk.open("a").truncate(4)
    assert content(disk, "a") == b"ab\0\0"


def test_a_closed_file_takes_no_writes_and_its_slices_can_still_be_read(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append([b"abcde"])
    part = FileSlice(file, 1, 3)
    file.close()
    for write in (lambda: file.append([b"x"]), lambda: file.write_at(0, b"x"), lambda: file.truncate(0)):
        with pytest.raises(ValueError, match="closed"):
            write()
    disk.remove("a")
    assert part.read() == b"bcd"
    assert len(part) == 3


def test_two_openings_of_a_file_see_each_other(disk: Disk) -> None:
    one, two = disk.open("a", create=True), disk.open("a", create=True)
    one.append([b"one"])
    assert two.append([b"two"]) == 3
    assert one.read(0, 10) == b"onetwo"


def test_an_open_file_keeps_its_content_under_another_name(disk: Disk) -> None:
    file = disk.open("a", create=True)
    disk.rename("a", "b")
    file.append([b"still here"])
    assert content(disk, "b") == b"still here"
    assert file.path == "a"


# ---------------------------------------------------------------------------------------------- names


def test_names_are_listed_sorted_and_directories_are_marked(disk: Disk) -> None:
    disk.make_directory("t/deep/er")
    disk.make_directory("t/deep")
    put(disk, "t/b")
    put(disk, "t/a")
    assert disk.list("") == disk.list(".") == ["t/"]
    assert disk.list("t") == ["a", "b", "deep/"]
    assert disk.list("t/deep") == ["er/"]


def test_a_rename_replaces_a_file(disk: Disk) -> None:
    put(disk, "a", b"new")
    put(disk, "b", b"old")
    disk.rename("a", "b")
    assert disk.list("") == ["b"]
    assert content(disk, "b") == b"new"


def test_a_directory_is_renamed_with_what_is_in_it(disk: Disk) -> None:
    disk.make_directory("old")
    put(disk, "old/a", b"data")
    disk.rename("old", "new")
    assert content(disk, "new/a") == b"data"
    assert not disk.exists("old")


def test_a_directory_is_removed_with_what_is_in_it(disk: Disk) -> None:
    disk.make_directory("t/deep")
    put(disk, "t/deep/a")
    put(disk, "t/b")
    disk.remove("t")
    assert disk.list("") == []
    disk.remove("t")


ERRORS: dict[str, tuple[Callable[[Disk], object], type[Exception]]] = {
    "open what is not there": (lambda disk: disk.open("none"), FileNotFoundError),
    "create in a directory that is not there": (
        lambda disk: disk.open("none/a", create=True),
        FileNotFoundError,
    ),
    "open a directory": (lambda disk: disk.open("d"), IsADirectoryError),
    "list what is not there": (lambda disk: disk.list("none"), FileNotFoundError),
    "list a file": (lambda disk: disk.list("f"), NotADirectoryError),
    "rename what is not there": (lambda disk: disk.rename("none", "other"), FileNotFoundError),
    "rename a file to a directory": (lambda disk: disk.rename("f", "d"), IsADirectoryError),
    "rename a directory to a file": (lambda disk: disk.rename("d", "f"), NotADirectoryError),
    "rename a directory to one that is not empty": (lambda disk: disk.rename("e", "d"), OSError),
    "move a directory into itself": (lambda disk: disk.rename("d", "d/d"), OSError),
    "make a directory where a file is": (lambda disk: disk.make_directory("f"), FileExistsError),
    "make a directory below a file": (lambda disk: disk.make_directory("f/d"), NotADirectoryError),
    "open a file below a file": (lambda disk: disk.open("f/a", create=True), NotADirectoryError),
    "leave the data directory": (lambda disk: disk.open("../f"), ValueError),
    "an absolute path": (lambda disk: disk.open("/etc/hostname"), ValueError),
    "lock what is locked": (lambda disk: disk.lock(), BlockingIOError),
}


@pytest.mark.parametrize("what", ERRORS)
def test_errors_are_the_same_everywhere(disk: Disk, what: str) -> None:
    disk.make_directory("d")
    disk.make_directory("e")
    put(disk, "d/inside")
    put(disk, "f")
    disk.lock()
    use, error = ERRORS[what]
    with pytest.raises(error):
        use(disk)


def test_there_is_room(disk: Disk) -> None:
    assert disk.free_bytes() > 0


# ---------------------------------------------------------------------------------------------- flushes


def test_a_flush_renames_once_the_bytes_are_safe(disk: Disk) -> None:
    draft = disk.open("a.tmp", create=True)
    draft.append([b"new"])
    disk.flush_blocking(Flush(files=(draft,), renames=(("a.tmp", "a"),), directories=("",)))
    assert disk.list("") == ["a"]
    assert content(disk, "a") == b"new"


def test_a_flush_passes_over_what_was_removed_meanwhile(disk: Disk) -> None:
    disk.make_directory("gone")
    file = disk.open("gone/a", create=True)
    disk.remove("gone")
    disk.flush_blocking(Flush(files=(file,), renames=(("gone/a", "gone/b"),), directories=("gone",)))
    assert disk.list("") == []


def test_many_files_and_directories_are_flushed_at_once(disk: Disk) -> None:
    directories = [f"d{number}" for number in range(12)]
    for directory in directories:
        disk.make_directory(directory)
    files = tuple(disk.open(f"{directory}/a", create=True) for directory in directories)
    for file in files:
        file.append([b"data"])
    disk.flush_blocking(Flush(files=files, directories=("", *directories)))
    assert [content(disk, f"{directory}/a") for directory in directories] == [b"data"] * 12


def test_flushes_asked_for_together_all_come_true(disk: Disk) -> None:
    async def scenario() -> None:
        files = [disk.open(f"{number}.tmp", create=True) for number in range(5)]
        await asyncio.gather(
            *(
                disk.flush(Flush(files=(file,), renames=((f"{number}.tmp", str(number)),)))
                for number, file in enumerate(files)
            )
        )

    asyncio.run(scenario())
    assert disk.list("") == ["0", "1", "2", "3", "4"]


def test_an_empty_flush_is_false() -> None:
    assert not Flush()
    assert Flush(directories=("",))
