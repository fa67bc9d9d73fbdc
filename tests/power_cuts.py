"""Real power cuts: a log is written to ext4 on a loop device, which is shut down under it, hundreds of times.

    sudo .venv/bin/python tests/power_cuts.py --times 300

Each round formats an image, mounts it, and lets a child process append batches, flush them, and report what
is durable. At a random moment EXT4_IOC_SHUTDOWN makes the file system forget all that it has not written, as
a power cut would. The image is mounted again, the journal replayed, and the log recovered: everything that
was reported before the cut must be there, and nothing that was never written. It needs root and loop devices,
and says so and ends with 0 where there are none.
"""

import argparse
import contextlib
import fcntl
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track

from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.wire.records.batch import decode_batch, encode_batch
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import iter_headers
from moldau.wire.records.record import Record
from moldau.world.real.disk import RealDisk

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING_THE_JOURNAL = 2

IMAGE_BYTES = 64 * 1024 * 1024
PARTITION = "orders-0"
CONFIG = LogConfig(segment_bytes=64 * 1024, index_interval_bytes=1024)
RECORDS_A_BATCH = 20
NOW_MS = 1_790_000_000_000


class Unavailable(Exception):
    """This machine does not let us cut its power."""


def main() -> int:
    """Cut the power as often as asked, and say what was seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=300, help="how many power cuts (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="for the moments of the cuts (default: 0)")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    reported = survived = torn = 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="moldau-power-") as directory:
        machine = Machine(Path(directory))
        try:
            for _ in track(range(options.times), "power cuts", console=Console(stderr=True)):
                durable, records, cut = machine.live_and_die(chance.uniform(0.005, 0.12))
                reported, survived, torn = reported + durable, survived + records, torn + cut
        except Unavailable as why:
            print(f"skipped: {why}")
            return 0
        finally:
            machine.unmount()
    print(
        f"{options.times} power cuts in {time.monotonic() - started:.0f} s: {reported} records reported "
        f"durable, {survived} readable, {torn} torn bytes cut off, 0 lost"
    )
    return 0


class Machine:
    """A disk image that is mounted while the machine has power."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / "image"
        self.root = directory / "root"
        self.root.mkdir()

    def live_and_die(self, after_s: float) -> tuple[int, int, int]:
        """One life: records reported durable, records found after the cut, and torn bytes."""
        self.format()
        self.mount()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            write_until_the_end(str(self.root), writer)
        os.close(writer)
        # The cut is to hit somebody who is writing, so it waits for the first word.
        durable = last_word(os.read(reader, 8))
        time.sleep(after_s)
        # What is reported from here on does not count: an fsync that runs while ext4 is shut down may succeed
        # without having done anything, which no power cut lives to tell.
        os.set_blocking(reader, False)
        with contextlib.suppress(BlockingIOError):
            while words := os.read(reader, 1 << 16):
                durable = last_word(words)
        self.cut_power()
        os.close(reader)
        os.waitpid(pid, 0)
        self.unmount()
        self.mount()
        records, torn = recovered(str(self.root), durable)
        self.unmount()
        if len(records) < durable:
            raise SystemExit(f"lost: {durable} records were reported durable, {len(records)} are left")
        if records != orders(0, len(records)):
            raise SystemExit("the log holds something that was never written")
        return durable, len(records), torn

    def format(self) -> None:
        """An empty file system."""
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        self.run("mkfs.ext4", "-q", "-F", str(self.image))

    def mount(self) -> None:
        """Switch the machine on."""
        self.run("mount", "-o", "loop", str(self.image), str(self.root))

    def unmount(self) -> None:
        """Let go of the file system, if it is there."""
        if os.path.ismount(self.root):
            subprocess.run(["umount", str(self.root)], check=True)

    def cut_power(self) -> None:
        """Switch it off."""
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING_THE_JOURNAL))
        except OSError as error:
            raise Unavailable(f"the kernel does not shut ext4 down: {error.strerror}") from None
        finally:
            os.close(fd)

    @staticmethod
    def run(*command: str) -> None:
        """Run a tool, or say why there can be no power cut here."""
        path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin" + os.pathsep + "/sbin"
        if shutil.which(command[0], path=path) is None:
            raise Unavailable(f"{command[0]} is not installed")
        result = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": path})
        if result.returncode:
            raise Unavailable(f"{command[0]} says: {result.stderr.strip()}")


def write_until_the_end(root: str, words: int) -> None:
    """The child: append, flush, report, until the disk is gone; never returns."""
    try:
        disk = RealDisk(root)
        log = Log.open(disk, PARTITION, CONFIG, recovery_point=0, is_clean=True, now_ms=NOW_MS)
        for number in range(10**9):
            first = log.log_end_offset
            codec = list(Codec)[number % len(Codec)]
            batch = encode_batch(orders(first, RECORDS_A_BATCH), base_offset=first, codec=codec)
            log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=NOW_MS)
            if number % 4 == 3:
                work = log.begin_flush()
                disk.flush_blocking(work.flush)
                log.flushed(work)
                os.write(words, struct.pack(">q", log.flushed_end_offset))
    finally:
        # The disk is gone, whatever the error says; nothing of the parent's may run here.
        os._exit(0)


def last_word(words: bytes) -> int:
    """The newest of some reports: up to which offset everything is durable."""
    return int(struct.unpack(">q", words[-8:])[0])


def recovered(root: str, durable: int) -> tuple[list[Record], int]:
    """The records that recovery finds, and how many torn bytes it cut off."""
    log = Log.open(RealDisk(root), PARTITION, CONFIG, recovery_point=durable, is_clean=False, now_ms=NOW_MS)
    if log.corrupt_ranges:
        raise SystemExit(f"damaged although flushed: {log.corrupt_ranges}")
    return read_all(log), log.recovery_report.bytes_cut


def orders(first: int, count: int) -> list[Record]:
    """So many records, the same ones each time."""
    return [
        Record(number, NOW_MS + number, b"customer-%d" % (number % 17), b"order %d" % number * 5)
        for number in range(first, first + count)
    ]


def read_all(log: Log) -> list[Record]:
    """Every record, as a fetch would get them."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, bytes_max=1 << 20, end_limit=log.log_end_offset)
        assert data.records is not None, f"no batch at {offset}"
        batches = data.records.read()
        for position, _ in iter_headers(batches):
            records += decode_batch(memoryview(batches)[position:])[1]
        offset = data.end_offset
    return records


if __name__ == "__main__":
    raise SystemExit(main())
