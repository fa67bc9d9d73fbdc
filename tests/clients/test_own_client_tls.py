"""Our client over TLS: what it sends arrives, and a broker that cannot prove its name is not talked to."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
from client.fake_cluster import TOPIC, FakeCluster

from moldau.client import Unreachable, connect
from moldau.world.ports import Address, ServerTls
from moldau.world.real.network import RealNetwork


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that vouches for itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = [openssl, "req", "-x509", *curve, *names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def serving(certificate: tuple[Path, Path]) -> tuple[FakeCluster, ServerTls]:
    cluster = FakeCluster(broker_count=1, partition_count=1)
    cluster.brokers[1] = Address("localhost", 0)
    return cluster, ServerTls("".join(path.read_text() for path in certificate))


def test_records_pass_through_tls(certificate: tuple[Path, Path]) -> None:
    cluster, tls = serving(certificate)
    large = b"x" * 500_000

    async def work() -> list[bytes | None]:
        await cluster.listen(RealNetwork(), 1, tls=tls)
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(certificate[0])}
        async with connect(str(cluster.brokers[1]), **settings) as client:
            async with client.producer() as producer:
                for value in (b"small", large):
                    await producer.send(TOPIC, value)
            async with client.consumer({(TOPIC, 0): 0}) as consumer:
                read: list[bytes | None] = []
                while len(read) < 2:
                    for records in (await consumer.poll(timeout_ms=10_000)).values():
                        read += [record.value for record in records]
        return read

    assert asyncio.run(work()) == [b"small", large]


def test_a_broker_whose_certificate_nobody_vouches_for_is_not_talked_to(
    certificate: tuple[Path, Path],
) -> None:
    cluster, tls = serving(certificate)

    async def work() -> None:
        await cluster.listen(RealNetwork(), 1, tls=tls)
        async with connect(str(cluster.brokers[1]), security_protocol="SSL"):
            raise AssertionError("the client trusts anybody")

    with pytest.raises(Unreachable, match="certificate verify failed"):
        asyncio.run(work())
    assert cluster.requests == []
