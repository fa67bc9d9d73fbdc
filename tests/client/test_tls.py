"""How a client speaks TLS: the files that its settings name, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from world.certificates import Authority

from moldau.client.settings import ClientSettings
from moldau.client.tls import client_tls
from moldau.model.settings.setting import InvalidSetting
from moldau.world.ports import ClientTls, InvalidTls
from moldau.world.real.tls import client_context


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files by which a client may be known, in a folder of their own."""
    folder = tmp_path_factory.mktemp("client")
    authority = Authority(folder)
    for name, password in (("ada", None), ("locked", "secret")):
        key, chain = authority.key_and_chain(name, password=password)
        (folder / f"{name}.key").write_text(key)
        (folder / f"{name}.crt").write_text(chain)
        (folder / f"{name}.pem").write_text(key + chain)
    (folder / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    (folder / "store.p12").write_bytes(b"\x30\x82\x09\xff\x02\x01\x03")
    (folder / "words.pem").write_text("no certificate")
    return folder


def tls(folder: Path, **given: str) -> ClientTls:
    """What the settings say, whose locations are names of files in the folder."""
    texts = {
        name.replace("_", "."): str(folder / text) if name.endswith("location") else text
        for name, text in given.items()
    }
    found = client_tls(ClientSettings.parse({"security.protocol": "SSL", **texts}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "given",
    [
        {"ssl_certificate_location": "ada.crt", "ssl_key_location": "ada.key", "ssl_ca_location": "ca.pem"},
        # Whatever else stands beside the certificate, it is the key that was named which counts.
        {"ssl_certificate_location": "ada.pem", "ssl_key_location": "ada.key", "ssl_ca_location": "ca.pem"},
        {"ssl_certificate_location": "ada.pem", "ssl_ca_location": "ca.pem"},
        {"ssl_keystore_location": "ada.pem", "ssl_truststore_location": "ca.pem"},
        {
            "ssl_keystore_location": "ada.pem",
            "ssl_keystore_type": "PEM",
            "ssl_truststore_location": "ca.pem",
            "ssl_truststore_type": "pem",
        },
    ],
)
def test_files_go_by_the_names_of_librdkafka_and_of_kafka(folder: Path, given: dict[str, str]) -> None:
    found = tls(folder, **given)
    assert found.identity is not None
    assert found.identity.split() == (folder / "ada.pem").read_text().split()
    assert found.authorities == (folder / "ca.pem").read_text()
    client_context(found)


def test_a_client_may_be_unknown_and_trust_whom_the_system_trusts(folder: Path) -> None:
    assert tls(folder) == ClientTls()
    assert (
        client_tls(ClientSettings.parse({"ssl.keystore.location": "nowhere", "ssl.keystore.type": "JKS"}))
        is None
    )


@pytest.mark.parametrize(("algorithm", "checks"), [("https", True), ("", False), ("none", False)])
def test_the_name_of_a_broker_is_checked_unless_that_is_switched_off(
    folder: Path, algorithm: str, checks: bool
) -> None:
    found = tls(folder, ssl_endpoint_identification_algorithm=algorithm)
    assert found.checks_names is client_context(found).check_hostname is checks


def test_a_locked_key_is_opened_with_its_password(folder: Path) -> None:
    files = {"ssl_certificate_location": "locked.crt", "ssl_key_location": "locked.key"}
    client_context(tls(folder, **files, ssl_key_password="secret"))
    for password, why in (("", "the key needs a password"), ("wrong", "the password does not open the key")):
        with pytest.raises(InvalidTls, match=why):
            client_context(tls(folder, **files, ssl_key_password=password))


def test_passwords_are_not_shown() -> None:
    names = ("ssl.key.password", "ssl.keystore.password", "ssl.truststore.password")
    assert "hidden" not in repr(ClientSettings.parse(dict.fromkeys(names, "hidden")))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"ssl_keystore_location": "store.jks", "ssl_keystore_type": "JKS"},
            "ssl.keystore.type is JKS, and only PEM is read: set it to PEM. To convert it: keytool",
        ),
        (
            {"ssl_truststore_location": "store.p12", "ssl_truststore_type": "pkcs12"},
            "ssl.truststore.type is PKCS12, and only PEM is read: set it to PEM. To convert it: openssl",
        ),
        (
            {"ssl_keystore_location": "ada.pem", "ssl_keystore_type": "PEM", "ssl_keystore_password": "x"},
            "ssl.keystore.password cannot be set with PEM; a key that is encrypted has ssl.key.password",
        ),
        ({"ssl_key_location": "ada.key"}, "ssl.key.location needs ssl.certificate.location"),
        ({"ssl_keystore_location": "ada.pem", "ssl_certificate_location": "ada.crt"}, "not both"),
        ({"ssl_truststore_location": "ca.pem", "ssl_ca_location": "ca.pem"}, "not both"),
    ],
)
def test_settings_that_leave_something_open_are_explained(
    folder: Path, given: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        tls(folder, **given)
    assert why in refused.value.message


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ssl_ca_location": "nowhere.pem"}, "cannot be read: No such file or directory."),
        ({"ssl_ca_location": "words.pem"}, "of ssl.ca.location holds no certificate in PEM."),
        (
            {"ssl_truststore_location": "store.jks"},
            "is not in PEM, and nothing else is read. To convert it: keytool",
        ),
        (
            {"ssl_truststore_location": "store.p12"},
            "is not in PEM, and nothing else is read. To convert it: openssl",
        ),
        ({"ssl_keystore_location": "ada.crt"}, "must hold a private key in PEM, and there is none."),
        ({"ssl_certificate_location": "ada.crt"}, "there is none: ssl.key.location says where it is."),
        ({"ssl_keystore_location": "ada.key"}, "must hold a certificate in PEM, and there is none."),
        (
            {
                "ssl_certificate_location": "ada.crt",
                "ssl_key_location": "locked.key",
                "ssl_key_password": "secret",
            },
            "the key belongs to another certificate",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named(folder: Path, given: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidTls) as refused:
        client_context(tls(folder, **given))
    assert why in str(refused.value)
