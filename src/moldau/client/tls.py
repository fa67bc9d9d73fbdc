"""How a client speaks TLS, from its settings: whom it trusts, and the certificate that it shows.

Files are named as Kafka names them or as librdkafka does; only PEM is read, and other formats are explained.
"""

from __future__ import annotations

from typing import Final

from moldau.client.settings import ClientSettings
from moldau.model.settings.setting import InvalidSetting
from moldau.world.ports import ClientTls, InvalidTls

_PEM: Final = "PEM"
_KEY: Final = "PRIVATE KEY-----"
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_HOW_TO_CONVERT: Final = {
    "JKS": "keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12, and"
    " then openssl pkcs12 -in store.p12 -out store.pem -nodes",
    "PKCS12": "openssl pkcs12 -in {path} -out store.pem -nodes",
}


def client_tls(settings: ClientSettings) -> ClientTls | None:
    """What the settings say of TLS, None where they say plaintext.

    InvalidSetting tells what they leave open, InvalidTls which file cannot be used.
    """
    if settings.security_protocol != "SSL":
        return None
    for name, path, kind, password in (
        (
            "keystore",
            settings.ssl_keystore_location,
            settings.ssl_keystore_type,
            settings.ssl_keystore_password,
        ),
        (
            "truststore",
            settings.ssl_truststore_location,
            settings.ssl_truststore_type,
            settings.ssl_truststore_password,
        ),
    ):
        if path:
            _check_store(name, path, kind.upper(), has_password=bool(password))
    return ClientTls(
        identity=_identity(settings),
        key_password=settings.ssl_key_password or None,
        authorities=_authorities(settings),
        checks_names=settings.ssl_endpoint_identification_algorithm == "https",
    )


def _identity(settings: ClientSettings) -> str | None:
    store, certificate, key = (
        settings.ssl_keystore_location,
        settings.ssl_certificate_location,
        settings.ssl_key_location,
    )
    if store and (certificate or key):
        raise InvalidSetting(
            "Set either ssl.keystore.location or ssl.certificate.location and ssl.key.location, not both."
        )
    if key and not certificate:
        raise InvalidSetting("ssl.key.location needs ssl.certificate.location, the certificate of that key.")
    if store:
        text, where = _read("ssl.keystore.location", store), f"{store} of ssl.keystore.location"
    elif certificate:
        text, where = (
            _read("ssl.certificate.location", certificate),
            f"{certificate} of ssl.certificate.location",
        )
        if key:
            # Another key that stands beside the certificate is not the one that was asked for.
            text, where = _read("ssl.key.location", key) + _certificates(text), f"{where} with {key}"
    else:
        return None
    if _KEY not in text:
        raise InvalidTls(
            f"The file {where} must hold a private key in PEM, and there is none"
            + ("." if store else ": ssl.key.location says where it is.")
        )
    if _CERTIFICATE not in text:
        raise InvalidTls(f"The file {where} must hold a certificate in PEM, and there is none.")
    return text


def _authorities(settings: ClientSettings) -> str | None:
    store, path = settings.ssl_truststore_location, settings.ssl_ca_location
    if store and path:
        raise InvalidSetting("Set either ssl.truststore.location or ssl.ca.location, not both.")
    name = "ssl.truststore.location" if store else "ssl.ca.location"
    if not (store or path):
        return None
    text = _read(name, store or path)
    if _CERTIFICATE not in text:
        raise InvalidTls(f"The file {store or path} of {name} holds no certificate in PEM.")
    return text


def _check_store(name: str, path: str, kind: str, *, has_password: bool) -> None:
    # A store whose type is not said may be in PEM, as far as we are concerned; reading it will show.
    if kind and kind != _PEM:
        how = _HOW_TO_CONVERT.get(kind)
        hint = f" To convert it: {how.format(path=path)}" if how else ""
        raise InvalidSetting(f"ssl.{name}.type is {kind}, and only PEM is read: set it to PEM.{hint}")
    if kind and has_password:
        raise InvalidSetting(
            f"ssl.{name}.password cannot be set with PEM; a key that is encrypted has ssl.key.password."
        )


def _read(setting: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise InvalidTls(f"The file {path} of {setting} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        # JKS begins with these bytes; else it may be PKCS12, in which Java has written stores since 9.
        kind = "JKS" if error.object.startswith(b"\xfe\xed\xfe\xed") else "PKCS12"
        raise InvalidTls(
            f"The file {path} of {setting} is not in PEM, and nothing else is read. To convert it:"
            f" {_HOW_TO_CONVERT[kind].format(path=path)}"
        ) from error


def _certificates(text: str) -> str:
    end = "-----END CERTIFICATE-----"
    blocks = (part.partition(end)[0] for part in text.split(_CERTIFICATE)[1:])
    return "".join(f"{_CERTIFICATE}{block}{end}\n" for block in blocks)
