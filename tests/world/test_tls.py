"""TLS at a listener: who is let in, under which name, and what is wrong with what it was given."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from world.certificates import Authority
from world.network_receivers import Recorder, echo

from moldau.sim.loop import SimLoop
from moldau.sim.network import SimNetwork
from moldau.sim.randomness import Seeded
from moldau.world.ports import Address, ClientAuth, ConnectionLost, InvalidTls, ServerTls, TlsVersion
from moldau.world.real.network import RealNetwork
from moldau.world.real.subject import subject_of
from moldau.world.real.tls import peer_context, server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def identity(authority: Authority) -> str:
    return authority.identity("server")


def client_context(authority: Authority, tmp_path: Path, identity: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate)
    if identity is not None:
        (tmp_path / "client.pem").write_text(identity)
        context.load_cert_chain(tmp_path / "client.pem")
    return context


def subject_seen(tls: ServerTls, context: ssl.SSLContext) -> str | None:
    """Connect, exchange a few bytes, and say under which name the server knows the client."""

    async def meet() -> str | None:
        server, client = Recorder(on_data=echo), Recorder()
        listener = await RealNetwork().listen(Address("127.0.0.1", 0), lambda: server, tls=tls)
        connection = await RealNetwork(client_tls=context).connect(listener.address, client)
        assert connection.peer_subject is None
        connection.send([b"hello"])
        await client.until(lambda: client.received == b"hello" or "disconnected" in client.events)
        await listener.close()
        if client.received != b"hello":
            raise ConnectionLost(str(client.error))
        connection.close()
        await server.until_event("disconnected")
        return server.connection.peer_subject

    return asyncio.run(meet())


# ---------------------------------------------------------------- who is let in


@pytest.mark.parametrize("auth", ClientAuth)
def test_a_client_that_shows_its_certificate_is_known_by_its_name(
    auth: ClientAuth, authority: Authority, identity: str, tmp_path: Path
) -> None:
    client = authority.identity("ada", subject="/O=x/CN=ada")
    tls = ServerTls(identity, authorities=authority.certificate, client_auth=auth)
    seen = subject_seen(tls, client_context(authority, tmp_path, client))
    assert seen == (None if auth is ClientAuth.NONE else "CN=ada,O=x")


@pytest.mark.parametrize("auth", [ClientAuth.NONE, ClientAuth.REQUESTED])
def test_a_client_without_a_certificate_has_no_name(
    auth: ClientAuth, authority: Authority, identity: str, tmp_path: Path
) -> None:
    tls = ServerTls(identity, authorities=authority.certificate, client_auth=auth)
    assert subject_seen(tls, client_context(authority, tmp_path)) is None


def test_a_client_without_a_certificate_is_not_let_in_where_one_is_required(
    authority: Authority, identity: str, tmp_path: Path
) -> None:
    tls = ServerTls(identity, authorities=authority.certificate, client_auth=ClientAuth.REQUIRED)
    with pytest.raises(ConnectionLost):
        subject_seen(tls, client_context(authority, tmp_path))


@pytest.mark.parametrize("auth", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
def test_a_certificate_that_nobody_vouches_for_is_not_let_in(
    auth: ClientAuth, authority: Authority, identity: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").identity("ada")
    tls = ServerTls(identity, authorities=authority.certificate, client_auth=auth)
    with pytest.raises(ConnectionLost):
        subject_seen(tls, client_context(authority, tmp_path, stranger))


def test_a_client_of_another_version_is_not_let_in(
    authority: Authority, identity: str, tmp_path: Path
) -> None:
    context = client_context(authority, tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert subject_seen(ServerTls(identity, versions=(TlsVersion.TLS_1_2,)), context) is None
    with pytest.raises(ConnectionLost):
        subject_seen(ServerTls(identity, versions=(TlsVersion.TLS_1_3,)), context)


def test_nodes_with_certificates_of_one_authority_know_each_other(
    authority: Authority, identity: str
) -> None:
    tls = ServerTls(identity, authorities=authority.certificate, client_auth=ClientAuth.REQUIRED)
    assert subject_seen(tls, peer_context(tls)) == "CN=server"


# ---------------------------------------------------------------- what cannot be used


def test_an_encrypted_key_opens_with_its_password_only(authority: Authority) -> None:
    encrypted = authority.identity("server", password="secret")
    server_context(ServerTls(encrypted, key_password="secret"))
    with pytest.raises(InvalidTls, match="password does not open the key"):
        server_context(ServerTls(encrypted, key_password="guess"))
    with pytest.raises(InvalidTls, match="needs a password"):
        server_context(ServerTls(encrypted))


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    key, _ = authority.key_and_chain("one")
    _, chain = authority.key_and_chain("other")
    with pytest.raises(InvalidTls, match="the key belongs to another certificate"):
        server_context(ServerTls(key + chain))


def test_what_is_no_certificate_is_refused_when_it_is_needed(identity: str) -> None:
    async def listen(tls: ServerTls) -> None:
        await RealNetwork().listen(Address("127.0.0.1", 0), Recorder, tls=tls)

    with pytest.raises(InvalidTls, match="certificate and its key cannot be used"):
        asyncio.run(listen(ServerTls("nothing of that kind")))
    with pytest.raises(InvalidTls, match="trusted certificates cannot be used"):
        asyncio.run(listen(ServerTls(identity, authorities="nor of that")))


def test_a_simulation_has_no_tls(identity: str) -> None:
    loop = SimLoop()
    network = SimNetwork(loop, Seeded(1)).endpoint("server")
    with pytest.raises(InvalidTls, match="the simulated network has no TLS"):
        loop.run_until_complete(network.listen(Address("server", 1), Recorder, tls=ServerTls(identity)))
    loop.close()


def test_no_secret_is_shown(authority: Authority) -> None:
    shown = repr(ServerTls(authority.identity("server"), key_password="secret"))
    assert "BEGIN" not in shown
    assert "secret" not in shown


# ---------------------------------------------------------------- names

SUBJECTS = {
    "/CN=ada": "CN=ada",
    "/C=CZ/ST=Bohemia/L=Praha/O=x/OU=y/CN=ada": "CN=ada,OU=y,O=x,L=Praha,ST=Bohemia,C=CZ",
    "/DC=org/DC=example/UID=7/CN=ada": "CN=ada,UID=7,DC=example,DC=org",
    r"/O=Plus \+ Comma, Inc./CN=a=b": r"CN=a\=b,O=Plus \+ Comma\, Inc.",
    "/CN= led and trailed  ": r"CN=\ led and trailed\ \ ",
    "/CN=Vltava – Moldau": "CN=Vltava – Moldau",
    "/O=x+OU=y/CN=ada": "CN=ada,O=x+OU=y",
    "/CN=ada/emailAddress=ada@x.org": "1.2.840.113549.1.9.1=#160961646140782e6f7267,CN=ada",
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_name_is_written_with_its_most_specific_part_first(subject: str, authority: Authority) -> None:
    _, chain = authority.key_and_chain("named", subject=subject)
    assert subject_of(ssl.PEM_cert_to_DER_cert(chain)) == SUBJECTS[subject]


NAME_IN_JAVA = """
import java.io.*;
import java.security.cert.*;
public class NameInJava {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(System.in))
            out.println(((X509Certificate) each).getSubjectX500Principal().getName());
    }
}
"""


def test_names_are_written_as_java_writes_them(authority: Authority, run_java: Callable[..., str]) -> None:
    chains = "".join(authority.key_and_chain("named", subject=subject)[1] for subject in SUBJECTS)
    assert run_java(NAME_IN_JAVA, stdin=chains).splitlines() == list(SUBJECTS.values())
