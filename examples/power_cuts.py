"""Write a partition, cut the power in the middle, recover, read back, and say what happened."""

from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.sim.disk import PowerCut, SimDisk, Survives
from moldau.sim.randomness import Seeded
from moldau.wire.records.batch import decode_batch, encode_batch
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import iter_headers
from moldau.wire.records.record import Record

PARTITION = "orders-0"
# Small, so that a short story has several segments.
CONFIG = LogConfig(segment_bytes=16 * 1024, index_interval_bytes=1024)
POWER_CUTS = 100
START_MS = 1_790_000_000_000


def main() -> None:
    """Tell one power cut in detail, then try many more."""
    print(f"Writing {PARTITION} on a simulated disk, and cutting the power at its 100th operation\n")
    shop = Shop(seed=7)
    shop.write_until_the_power_goes(operation=100)
    print(f"  written       {shop.appended:5} records in {len(shop.log.segments)} segments")
    print(f"  acknowledged  {shop.acknowledged:5} records: they were flushed")
    print(f"  the cut came  {shop.last_words}\n")

    print("What was not flushed has survived in part, sector by sector. Opening what is left:")
    log = shop.reopen(seed=7)
    report = log.recovery_report
    print(f"  {report.batches_verified} batches verified, {report.bytes_cut} torn bytes cut off")
    records = read_all(log)
    print(f"  {len(records)} records are readable, offsets {records[0].offset} to {records[-1].offset}")
    print(f"  the last one: {records[-1].key!r} -> {records[-1].value!r} {dict(records[-1].headers)}")
    shop.check(records)
    print(f"  all {shop.acknowledged} acknowledged records are there, and nothing that was never written\n")

    print(f"The same with {POWER_CUTS} other seeds, each cut somewhere else:")
    acknowledged = survived = cut = 0
    for seed in range(POWER_CUTS):
        shop = Shop(seed=seed)
        shop.write_until_the_power_goes(operation=10 + Seeded(seed).below(200))
        log = shop.reopen(seed=seed)
        records = read_all(log)
        shop.check(records)
        acknowledged += shop.acknowledged
        survived += len(records)
        cut += log.recovery_report.bytes_cut
    print(f"  {acknowledged} records acknowledged, {survived} readable, {cut} torn bytes cut off, 0 lost")


class Shop:
    """Somebody who writes orders, and remembers what the log has promised to keep."""

    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(Seeded(seed))
        self.acknowledged = self.appended = 0
        self.last_words = ""
        self.log = Log.open(self.disk, PARTITION, CONFIG, recovery_point=0, is_clean=True, now_ms=START_MS)

    def write_until_the_power_goes(self, operation: int) -> None:
        """Append batches and flush after every sixth, until the disk's `operation`-th change."""
        self.disk.stop_at(self.disk.operation_count + operation)
        try:
            for number in range(1_000_000):
                batch = encode_batch(
                    orders(self.appended, count=10), base_offset=self.appended, codec=list(Codec)[number % 5]
                )
                result = self.log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=START_MS)
                self.appended = result.last_offset + 1
                if number % 6 == 5:
                    work = self.log.begin_flush()
                    self.disk.flush_blocking(work.flush)
                    self.log.flushed(work)
                    self.acknowledged = self.log.flushed_end_offset
        except PowerCut as cut:
            self.last_words = str(cut)

    def reopen(self, seed: int) -> Log:
        """What the next process finds on the disk."""
        image = self.disk.crash(Survives.SOME, Seeded(seed))
        return Log.open(
            image, PARTITION, CONFIG, recovery_point=self.acknowledged, is_clean=False, now_ms=START_MS
        )

    def check(self, records: list[Record]) -> None:
        """Nothing acknowledged is lost, and nothing is there that was not written."""
        # A batch may have reached the disk although the cut came before its append returned.
        written = orders(0, count=self.appended + 10)
        if len(records) < self.acknowledged:
            raise SystemExit(f"lost: {self.acknowledged} were acknowledged, {len(records)} are left")
        if records != written[: len(records)]:
            raise SystemExit("the log holds something that was never written")


def orders(first: int, count: int) -> list[Record]:
    """So many orders, the same ones each time."""
    return [
        Record(
            offset=number,
            timestamp=START_MS + number,
            key=b"customer-%d" % (number % 17),
            value=b"order %d: %d mugs" % (number, number % 5 + 1),
            headers=(("shop", b"prague"),),
        )
        for number in range(first, first + count)
    ]


def read_all(log: Log) -> list[Record]:
    """Every record, batch by batch, as a fetch would get them."""
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
    main()
