"""What works today: a client's batch is checked and given its place, a message travels in every version."""

from moldau.model.errors import KafkaError
from moldau.wire.message import Request
from moldau.wire.records.header import check_crc, read_header, stamp
from moldau.wire.types import Int32, String, field

# Three records, exactly as a Kafka client (kafka-python 3) put them into one batch.
CLIENT_BATCH = bytes.fromhex(
    "0000000000000000000000610000000002697aa3c50000000000020000018bcfe568000000018bcfe5680a"
    "ffffffffffffffffffffffffffff000000031e000000066164610c6a6f696e65640022000a020a67726163"
    "650c6a6f696e6564001a00140406616461086c65667400"
)


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    """A message is declared once, with the versions that each field lives in."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", nullable="3+", default=None)


def main() -> None:
    """Tell the story, step by step."""
    print("A record batch, as a Kafka client sends it")
    batch = bytearray(CLIENT_BATCH)
    header = read_header(batch)
    check_crc(batch, 0, header)
    print(
        f"  {header.size_bytes} bytes hold {header.count} records; CRC {header.crc:#010x} agrees with them\n"
    )

    print("The same batch with one bit flipped on the way")
    damaged = bytearray(batch)
    damaged[-3] ^= 1
    try:
        check_crc(damaged, 0, read_header(damaged))
    except KafkaError as error:
        print(f"  refused: {error}\n")
    else:
        raise SystemExit("the damage went unnoticed")

    print("The broker gives the batch its place in the log")
    stamp(batch, 0, base_offset=41, leader_epoch=7)
    header = read_header(batch)
    check_crc(batch, 0, header)
    changed = sum(before != after for before, after in zip(CLIENT_BATCH, batch, strict=True))
    print(f"  offsets {header.base_offset} to {header.last_offset}, leader epoch {header.leader_epoch}:")
    print(f"  {changed} bytes changed, no record touched, and the client's CRC still holds\n")

    print("One declaration, five versions on the wire")
    request = HeartbeatRequest(group_id="orders", generation_id=5, member_id="ada-1")
    for version in range(5):
        data = request.encode(version)
        assert HeartbeatRequest.decode(data, version) == request
        print(f"  v{version}  {len(data)} bytes  {data.hex(' ')}")


if __name__ == "__main__":
    main()
