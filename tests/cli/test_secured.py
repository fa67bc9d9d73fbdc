"""Commands at a listener that lets in only clients with a certificate, as `start` wants it off loopback."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from clients.rough_broker import RoughBroker
from world.certificates import Authority

from moldau.cli import main

SettingsOf = Callable[[Path], dict[str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The authority's certificate, and the client's in one file and in two."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    (folder / "broker.pem").write_text(authority.identity("broker"))
    key, chain = authority.key_and_chain("ada")
    (folder / "ada.key").write_text(key)
    (folder / "ada.crt").write_text(chain)
    (folder / "ada.pem").write_text(key + chain)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A broker that asks its clients for certificates."""
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{folder}/broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/ca.pem",
        "ssl.client.auth": "required",
    }
    with RoughBroker(folder / "node", settings, protocol="SSL") as broker:
        yield broker.address


def moldau(*words: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == exit_code, result.output
    return result


def options(settings: dict[str, str]) -> list[str]:
    return [word for name, text in settings.items() for word in ("-X", f"{name}={text}")]


def as_librdkafka(folder: Path) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": f"{folder}/ca.pem",
        "ssl.certificate.location": f"{folder}/ada.crt",
        "ssl.key.location": f"{folder}/ada.key",
    }


def as_kafka(folder: Path) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{folder}/ada.pem",
    }


@pytest.mark.parametrize("settings_of", [as_librdkafka, as_kafka])
def test_whoever_shows_a_certificate_is_let_in(address: str, folder: Path, settings_of: SettingsOf) -> None:
    words = ["-b", address, *options(settings_of(folder))]
    name = settings_of.__name__
    moldau("topic", "create", name, *words)
    moldau("produce", name, "hello", *words)
    assert moldau("consume", name, *words).stdout == "hello\n"
    assert " problem " not in moldau("doctor", *words).stdout


@pytest.mark.parametrize("settings_of", [as_librdkafka, as_kafka])
def test_tools_of_kafka_take_the_same_from_their_files(
    address: str, folder: Path, settings_of: SettingsOf, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in settings_of(folder).items()))
    words = ["kafka-topics", "--bootstrap-server", address, "--command-config", str(path)]
    topic = f"tool-{settings_of.__name__}"
    moldau(*words, "--create", "--topic", topic)
    listed = moldau(*words, "--list")
    assert topic in listed.stdout.split()
    assert listed.stderr == ""


def test_whoever_shows_none_is_told_how(address: str, folder: Path) -> None:
    settings = {"security.protocol": "SSL", "ssl.ca.location": f"{folder}/ca.pem"}
    refused = moldau("topic", "list", "-b", address, *options(settings), exit_code=5)
    ends = "(the broker closed the connection|Connection reset by peer)"
    assert re.search(rf"Tried {address}: {ends}\. If the broker wants a certificate", refused.stderr)
    assert "ssl.keystore.location" in refused.stderr
    told = moldau("doctor", address, *options(settings), exit_code=5)
    assert "ended right after the handshake" in told.stdout
    assert "-X ssl.keystore.location=client.pem" in told.stdout


@pytest.mark.parametrize("command", [["topic", "list"], ["doctor"]])
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        (
            "ssl.ca.location=/nosuch.pem",
            "/nosuch.pem of ssl.ca.location cannot be read: No such file or directory.",
        ),
        (f"ssl.ca.location={__file__}", "of ssl.ca.location holds no certificate in PEM."),
    ],
)
def test_a_file_that_is_no_good_is_one_line(command: list[str], setting: str, why: str) -> None:
    result = moldau(*command, "-X", "security.protocol=SSL", "-X", setting, exit_code=1)
    assert result.stderr.count("\n") == 1
    assert why in result.stderr


def test_a_store_of_java_is_refused_with_how_to_convert_it() -> None:
    words = [
        "-X",
        "security.protocol=SSL",
        "-X",
        "ssl.keystore.location=a.jks",
        "-X",
        "ssl.keystore.type=JKS",
    ]
    result = moldau("topic", "list", *words, exit_code=2)
    assert (
        "Error: ssl.keystore.type is JKS, and only PEM is read: set it to PEM. To convert it: keytool"
        in result.stderr
    )
