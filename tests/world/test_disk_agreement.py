"""Whatever is done to them, the simulated disk and the real one show the same files."""

import tempfile
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.sim.disk import SimDisk, Survives
from moldau.sim.randomness import Seeded
from moldau.world.ports import Disk, Flush
from moldau.world.real.disk import RealDisk

PATHS = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e/c"])
SIZES = st.integers(0, 2_000)
DATA = st.binary(max_size=1_500)

Step = Callable[[Disk], object]


def append(path: str, data: bytes) -> Step:
    return lambda disk: disk.open(path, create=True).append([data[:7], data[7:]])


def write_at(path: str, position: int, data: bytes) -> Step:
    return lambda disk: disk.open(path).write_at(position, data)


def truncate(path: str, size: int) -> Step:
    return lambda disk: disk.open(path).truncate(size)


def flush(path: str) -> Step:
    def step(disk: Disk) -> None:
        disk.flush_blocking(Flush(files=(disk.open(path),), directories=("", "d")))

    return step


STEPS = st.lists(
    st.one_of(
        st.builds(append, PATHS, DATA),
        st.builds(write_at, PATHS, SIZES, DATA),
        st.builds(truncate, PATHS, SIZES),
        st.builds(flush, PATHS),
        st.builds(lambda path: lambda disk: disk.make_directory(path), PATHS),
        st.builds(lambda path: lambda disk: disk.remove(path), PATHS),
        st.builds(lambda old, new: lambda disk: disk.rename(old, new), PATHS, PATHS),
    ),
    max_size=25,
)


def attempt(disk: Disk, step: Step) -> str:
    """What a step answers: its result, or that it is an error; `test_disk` says which."""
    try:
        return repr(step(disk))
    except OSError:
        return "error"


def everything(disk: Disk, directory: str = "") -> dict[str, bytes | None]:
    """Every file with its content, every directory with None."""
    found: dict[str, bytes | None] = {}
    for name in disk.list(directory):
        path = f"{directory}/{name}".strip("/")
        if name.endswith("/"):
            found[path] = None
            found.update(everything(disk, path))
        else:
            file = disk.open(path)
            found[path] = file.read(0, file.size())
    return found


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_both_disks_give_the_same_answers_and_hold_the_same_files(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        sim, real = SimDisk(), RealDisk(directory)
        for step in steps:
            answers = attempt(sim, step), attempt(real, step)
            assert answers[0] == answers[1]
        assert everything(sim) == everything(real)
        real.close()


@given(STEPS, STEPS, st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_a_crash_leaves_alone_what_was_flushed_and_not_touched_since(
    before: list[Step], after: list[Step], seed: int
) -> None:
    disk = SimDisk()
    disk.make_directory("kept")
    kept = disk.open("kept/safe", create=True)
    kept.append([b"safe" * 500])
    for step in before:
        attempt(disk, step)
    disk.flush_blocking(Flush(files=(kept,), directories=("", "kept")))
    for step in after:
        attempt(disk, step)
    for survives in Survives:
        image = disk.crash(survives, Seeded(seed))
        assert image.open("kept/safe").read(0, 4_000) == b"safe" * 500
        # What a crash leaves is itself a disk: it crashes again into the same, unless the cache had survived.
        if survives is not Survives.EVERYTHING:
            assert everything(image.crash(Survives.NOTHING)) == everything(image)
        else:
            assert everything(image) == everything(disk)


@given(STEPS)
@settings(max_examples=30, deadline=None)
def test_flushing_everything_leaves_nothing_to_lose(steps: list[Step]) -> None:
    disk = SimDisk()
    for step in steps:
        attempt(disk, step)
    files = tuple(disk.open(path) for path in disk.paths())
    directories = tuple(path.rstrip("/") for path, content in everything(disk).items() if content is None)
    disk.flush_blocking(Flush(files=files, directories=("", *directories)))
    for survives in Survives:
        assert everything(disk.crash(survives, Seeded(1))) == everything(disk)
