"""What a listener's `ssl.*` settings say about its TLS; only PEM is read, and other formats are explained."""

from __future__ import annotations

import re
from typing import Final

from moldau.model.settings import node as rows
from moldau.model.settings.resolve import Settings
from moldau.model.settings.setting import InvalidSetting, Setting
from moldau.model.settings.types import Password
from moldau.world.ports import ClientAuth, ServerTls, TlsVersion

PEM: Final = "PEM"

_VERSIONS: Final = {"TLSv1.2": TlsVersion.TLS_1_2, "TLSv1.3": TlsVersion.TLS_1_3}
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_LENGTH: Final = 64


def server_tls(settings: Settings, listener: str) -> ServerTls:
    """The TLS of a listener with these settings; InvalidSetting if something is missing or unreadable."""
    client_auth = ClientAuth(settings[rows.SSL_CLIENT_AUTH])
    authorities = _authorities(settings)
    if client_auth is not ClientAuth.NONE and authorities is None:
        raise InvalidSetting(
            f"ssl.client.auth={client_auth.value} at listener {listener} needs the certificates of those who"
            " vouch for clients: set ssl.truststore.type=PEM and ssl.truststore.location."
        )
    password = settings[rows.SSL_KEY_PASSWORD]
    return ServerTls(
        identity=_identity(settings, listener),
        key_password=None if password is None else password.secret,
        authorities=authorities,
        client_auth=client_auth,
        versions=_versions(settings),
    )


def _identity(settings: Settings, listener: str) -> str:
    key, chain = settings[rows.SSL_KEYSTORE_KEY], settings[rows.SSL_KEYSTORE_CERTIFICATE_CHAIN]
    path = settings[rows.SSL_KEYSTORE_LOCATION]
    if key is not None or chain is not None:
        if key is None or chain is None:
            raise InvalidSetting(
                "ssl.keystore.key and ssl.keystore.certificate.chain belong together: set both or neither."
            )
        if path is not None:
            raise InvalidSetting("Set either ssl.keystore.location or ssl.keystore.key, not both.")
        _check_pem(settings, rows.SSL_KEYSTORE_TYPE, rows.SSL_KEYSTORE_PASSWORD, path=None)
        text = _inline(rows.SSL_KEYSTORE_KEY, key) + _inline(rows.SSL_KEYSTORE_CERTIFICATE_CHAIN, chain)
        where = "ssl.keystore.key and ssl.keystore.certificate.chain"
    elif path is not None:
        _check_pem(settings, rows.SSL_KEYSTORE_TYPE, rows.SSL_KEYSTORE_PASSWORD, path=path)
        text, where = _read(rows.SSL_KEYSTORE_LOCATION, path), f"The file {path} of ssl.keystore.location"
    else:
        raise InvalidSetting(
            f"Listener {listener} speaks TLS and has no certificate: set ssl.keystore.type=PEM and"
            " ssl.keystore.location, a file with the private key and the chain of its certificates."
        )
    kinds = [kind for kind, _ in _BLOCK.findall(text)]
    if not any(kind.endswith("PRIVATE KEY") for kind in kinds):
        raise InvalidSetting(f"{where} must hold a private key in PEM, and there is none.")
    if "CERTIFICATE" not in kinds:
        raise InvalidSetting(f"{where} must hold a certificate in PEM, and there is none.")
    return text


def _authorities(settings: Settings) -> str | None:
    inline, path = settings[rows.SSL_TRUSTSTORE_CERTIFICATES], settings[rows.SSL_TRUSTSTORE_LOCATION]
    if inline is not None and path is not None:
        raise InvalidSetting("Set either ssl.truststore.location or ssl.truststore.certificates, not both.")
    if inline is None and path is None:
        return None
    _check_pem(settings, rows.SSL_TRUSTSTORE_TYPE, rows.SSL_TRUSTSTORE_PASSWORD, path=path)
    if inline is not None:
        return _inline(rows.SSL_TRUSTSTORE_CERTIFICATES, inline)
    assert path is not None, "one of the two is given"
    text = _read(rows.SSL_TRUSTSTORE_LOCATION, path)
    if not _BLOCK.search(text):
        raise InvalidSetting(f"The file {path} of ssl.truststore.location holds no certificate in PEM.")
    return text


def _check_pem(
    settings: Settings, type_row: Setting[str], password_row: Setting[Password | None], *, path: str | None
) -> None:
    found = settings[type_row]
    if found != PEM:
        source = "store.jks" if path is None else path
        commands = {
            "JKS": f"keytool -importkeystore -srckeystore {source} -destkeystore store.p12 -deststoretype"
            " PKCS12, and then openssl pkcs12 -in store.p12 -out store.pem -nodes",
            "PKCS12": f"openssl pkcs12 -in {source} -out store.pem -nodes",
        }
        hint = f" To convert one: {commands[found]}." if found in commands and path is not None else ""
        raise InvalidSetting(f"{type_row.name} is {found}, and only PEM is read: set it to PEM.{hint}")
    if settings[password_row] is not None:
        raise InvalidSetting(
            f"{password_row.name} cannot be set with PEM; a key that is encrypted has ssl.key.password."
        )


def _inline(setting: Setting[Password | None], value: Password) -> str:
    """PEM as it stands in a file of settings, where its lines may have become one, broken again."""
    blocks = _BLOCK.findall(value.secret)
    if not blocks:
        raise InvalidSetting(f"{setting.name} holds nothing in PEM.")
    return "".join(_block(kind, "".join(content.split())) for kind, content in blocks)


def _block(kind: str, content: str) -> str:
    lines = (content[at : at + _LINE_LENGTH] for at in range(0, len(content), _LINE_LENGTH))
    return "\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""))


def _read(setting: Setting[str | None], path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise InvalidSetting(
            f"The file {path} of {setting.name} cannot be read: {error.strerror}."
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"The file {path} of {setting.name} is no text, so it is not PEM.") from error


def _versions(settings: Settings) -> tuple[TlsVersion, ...]:
    names = settings[rows.SSL_ENABLED_PROTOCOLS]
    unknown = [name for name in names if name not in _VERSIONS]
    if unknown or not names:
        raise InvalidSetting(
            f"ssl.enabled.protocols is {','.join(names) or 'empty'}: it must be TLSv1.2, TLSv1.3 or both."
        )
    return tuple(sorted(_VERSIONS[name] for name in names))
