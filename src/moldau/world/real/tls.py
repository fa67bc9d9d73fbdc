"""TLS contexts from texts in PEM, for those who accept connections and for their peers who open them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from moldau.world.ports import ClientAuth, ClientTls, InvalidTls, ServerTls, TlsVersion

_VERSIONS: Final = {
    TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2,
    TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3,
}
_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """What a listener accepts connections with; InvalidTls if it cannot be made."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY_MODES[tls.client_auth]
    return _filled(context, tls)


def peer_context(tls: ServerTls) -> ssl.SSLContext:
    """What a node opens connections with to listeners like its own, where it shows the same certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.authorities is None:
        context.load_default_certs()
    return _filled(context, tls)


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """What a client opens connections with; InvalidTls if it cannot be made."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.checks_names
    if tls.identity is not None:
        _show(context, tls.identity, tls.key_password)
    if tls.authorities is None:
        context.load_default_certs()
    else:
        _trust(context, tls.authorities)
    return context


def _filled(context: ssl.SSLContext, tls: ServerTls) -> ssl.SSLContext:
    context.minimum_version = _VERSIONS[min(tls.versions)]
    context.maximum_version = _VERSIONS[max(tls.versions)]
    _show(context, tls.identity, tls.key_password)
    if tls.authorities is not None:
        _trust(context, tls.authorities)
    return context


def _show(context: ssl.SSLContext, identity: str, key_password: str | None) -> None:
    is_key_encrypted = False

    def tell_password() -> str:
        nonlocal is_key_encrypted
        is_key_encrypted = True
        return key_password or ""

    try:
        with _as_file(identity) as path:
            # Even where there is no password: OpenSSL would ask for it at the terminal.
            context.load_cert_chain(path, password=tell_password)
    except ssl.SSLError as error:
        # Of a wrong password OpenSSL only says that it could not read the file.
        if not is_key_encrypted or error.reason == "KEY_VALUES_MISMATCH":
            why = _why(error)
        else:
            why = "the password does not open the key" if key_password else "the key needs a password"
        raise InvalidTls(f"The certificate and its key cannot be used: {why}.") from error


def _trust(context: ssl.SSLContext, authorities: str) -> None:
    try:
        with _as_file(authorities) as path:
            context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise InvalidTls(f"The trusted certificates cannot be used: {_why(error)}.") from error


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path to the text, because OpenSSL reads nothing else; it leads to memory, so no disk sees a key."""
    fd = os.memfd_create("pem")
    try:
        os.write(fd, text.encode())
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _why(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key belongs to another certificate"
    return f"OpenSSL says {error.reason.lower().replace('_', ' ') if error.reason else error}"
