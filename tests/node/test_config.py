"""A file of settings makes a node, or says in a sentence why it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from world.certificates import Authority

from moldau.model.ids import NodeId
from moldau.model.settings.setting import InvalidSetting
from moldau.node.config import NodeConfig, Role, SecurityProtocol
from moldau.raft.voters import Endpoint
from moldau.world.ports import Address, ClientAuth, TlsVersion
from moldau.world.real.tls import server_context

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "data",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "controller:9093",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}


def config_of(base: dict[str, str], **changes: str | None) -> NodeConfig:
    """The node of a file with some changes: `log_dirs="x"` sets log.dirs, None takes it away."""
    named = {name.replace("_", "."): text for name, text in changes.items()}
    texts = {name: text for name, text in (base | named).items() if text is not None}
    return NodeConfig.of(texts, machine_name=lambda: "this-machine")


def refusal(base: dict[str, str], **changes: str | None) -> str:
    with pytest.raises(InvalidSetting) as refused:
        config_of(base, **changes)
    assert refused.value.message.endswith((".", "?"))
    return refused.value.message


def addresses(config: NodeConfig) -> dict[str, tuple[str, str]]:
    return {each.name: (str(each.bind), str(each.advertised)) for each in config.listeners}


# ---------------------------------------------------------------- who


@pytest.mark.honours("process.roles", "node.id")
def test_a_node_may_be_broker_and_controller() -> None:
    config = config_of(COMBINED)
    assert config.node_id == 1
    assert config.roles == (Role.BROKER, Role.CONTROLLER)
    assert config.is_broker
    assert config.is_controller
    assert config.controller_listener is not None
    assert config.controller_listener.name == "CONTROLLER"
    assert [listener.name for listener in config.broker_listeners] == ["PLAINTEXT"]
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.peer_tls is None
    assert config.warnings == ()


def test_a_node_may_be_one_of_the_two() -> None:
    broker, controller = config_of(BROKER), config_of(CONTROLLER)
    assert (broker.is_broker, broker.is_controller) == (True, False)
    assert (controller.is_broker, controller.is_controller) == (False, True)
    assert broker.controller_listener is None
    assert controller.broker_listeners == ()
    assert controller.inter_broker_listener is None


@pytest.mark.honours("broker.id")
def test_the_older_name_of_the_nodes_number_may_say_the_same() -> None:
    assert config_of(COMBINED, broker_id="1").node_id == 1
    assert refusal(COMBINED, broker_id="2").startswith("node.id is 1 and broker.id is 2")


@pytest.mark.honours("broker.rack")
def test_a_broker_stands_in_a_rack() -> None:
    assert config_of(COMBINED).rack is None
    assert config_of(COMBINED, broker_rack="r1").rack == "r1"


@pytest.mark.honours("log.dirs", "log.dir", "metadata.log.dir")
def test_the_data_is_in_one_directory() -> None:
    assert config_of(COMBINED, log_dirs=None).log_directory == "/tmp/kafka-logs"
    assert config_of(COMBINED, log_dirs=None, log_dir="one").log_directory == "one"
    assert config_of(COMBINED, log_dirs="two", log_dir="one").log_directory == "two"
    assert config_of(COMBINED, metadata_log_dir="./data").log_directory == "data"
    assert refusal(COMBINED, log_dirs="a,b").startswith("log.dirs names 2 directories (a, b)")
    assert refusal(COMBINED, metadata_log_dir="meta").startswith("metadata.log.dir is meta and log.dirs is")


def test_every_setting_of_the_file_is_kept_for_the_view_of_the_cluster() -> None:
    config = config_of(COMBINED, log_retention_hours="5")
    assert config.static == COMBINED | {"log.retention.hours": "5"}


def test_what_has_no_effect_is_said() -> None:
    config = config_of(COMBINED, num_network_threads="8")
    assert config.warnings == ("num.network.threads is accepted but has no effect.",)


def test_a_misspelt_setting_is_refused_with_the_likeliest() -> None:
    assert "Did you mean process.roles" in refusal(COMBINED, process_rolse="broker")


@pytest.mark.parametrize("name", ["process.roles", "node.id", "controller.listener.names"])
def test_what_must_be_there_is_asked_for(name: str) -> None:
    assert refusal(COMBINED | {name: "x"}, **{name: None}).startswith(f"{name} must be set")


# ---------------------------------------------------------------- listeners


@pytest.mark.honours("listeners", "advertised.listeners")
def test_a_listener_is_advertised_where_it_is_unless_something_else_is_said() -> None:
    assert addresses(config_of(COMBINED)) == {
        "CONTROLLER": ("localhost:9093", "localhost:9093"),
        "PLAINTEXT": ("localhost:9092", "localhost:9092"),
    }
    said = config_of(COMBINED, advertised_listeners="PLAINTEXT://example.org:19092")
    assert addresses(said)["PLAINTEXT"] == ("localhost:9092", "example.org:19092")
    assert addresses(said)["CONTROLLER"] == ("localhost:9093", "localhost:9093")


def test_a_listener_without_a_host_is_on_all_interfaces_and_advertised_by_the_machines_name() -> None:
    config = config_of(BROKER, listeners="PLAINTEXT://:9092")
    assert addresses(config) == {"PLAINTEXT": (":9092", "this-machine:9092")}
    assert config.listeners[0].bind == Address("", 9092)


def test_without_any_word_a_broker_listens_where_kafka_does() -> None:
    assert addresses(config_of(BROKER, listeners=None)) == {"PLAINTEXT": (":9092", "this-machine:9092")}


def test_addresses_of_version_6_are_in_brackets() -> None:
    config = config_of(BROKER, listeners="plaintext://[::1]:9092")
    assert config.listeners[0].bind == Address("::1", 9092)
    assert addresses(config) == {"PLAINTEXT": ("[::1]:9092", "[::1]:9092")}


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_address_that_leads_nowhere_is_not_advertised(host: str) -> None:
    listeners = f"PLAINTEXT://{host}:9092"
    assert "nobody can connect" in refusal(BROKER, listeners=listeners)
    config = config_of(BROKER, listeners=listeners, advertised_listeners="PLAINTEXT://here:9092")
    assert addresses(config)["PLAINTEXT"][1] == "here:9092"
    assert "nobody can connect" in refusal(BROKER, advertised_listeners=listeners)


@pytest.mark.parametrize(
    ("listeners", "why"),
    [
        ("localhost:9092", "every entry must be NAME://HOST:PORT"),
        ("PLAINTEXT://localhost", "every entry must be NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:65536", "every entry must be NAME://HOST:PORT"),
        ("PLAINTEXT://a:1,PLAINTEXT://a:2", "names PLAINTEXT twice"),
        ("PLAINTEXT://a:1,SSL://a:1", "a port of its own"),
    ],
)
def test_a_listener_that_cannot_be_is_refused(listeners: str, why: str) -> None:
    assert why in refusal(BROKER, listeners=listeners)


def test_only_what_is_listened_at_is_advertised() -> None:
    message = refusal(BROKER, advertised_listeners="OTHER://localhost:1")
    assert message == "advertised.listeners names OTHER, which is not one of the listeners PLAINTEXT."


@pytest.mark.honours("listener.security.protocol.map")
def test_a_listener_speaks_what_the_map_says() -> None:
    listeners = "CLIENTS://localhost:9092"
    assert "does not say what listener CLIENTS speaks" in refusal(BROKER, listeners=listeners)
    config = config_of(
        BROKER,
        listeners=listeners,
        listener_security_protocol_map="clients:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="clients",
    )
    assert config.listeners[0].protocol is SecurityProtocol.PLAINTEXT
    assert config.inter_broker_listener == "CLIENTS"


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ("PLAINTEXT", "every entry must be NAME:PROTOCOL"),
        ("PLAINTEXT:PLAIN", "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("A:SSL,a:PLAINTEXT", "names A twice"),
        ("PLAINTEXT:PLAINTEXT", "does not say what listener CONTROLLER speaks"),
        ("PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT", "SASL_PLAINTEXT, which is not served yet"),
        ("PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL", "SASL_SSL, which is not served yet"),
    ],
)
def test_a_map_that_cannot_be_followed_is_refused(texts: str, why: str) -> None:
    assert why in refusal(COMBINED, listener_security_protocol_map=texts)


@pytest.mark.honours("inter.broker.listener.name", "security.inter.broker.protocol")
def test_brokers_reach_each_other_at_one_of_their_listeners() -> None:
    two = "PLAINTEXT://localhost:9092,INTERNAL://localhost:9094"
    protocols = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    base = BROKER | {"listeners": two, "listener.security.protocol.map": protocols}
    assert config_of(base).inter_broker_listener == "PLAINTEXT"
    assert config_of(base, security_inter_broker_protocol="PLAINTEXT").inter_broker_listener == "PLAINTEXT"
    assert config_of(base, inter_broker_listener_name="INTERNAL").inter_broker_listener == "INTERNAL"
    both = refusal(base, inter_broker_listener_name="INTERNAL", security_inter_broker_protocol="PLAINTEXT")
    assert both.startswith("Set either")
    assert "must be one of the listeners" in refusal(base, inter_broker_listener_name="CONTROLLER")
    assert "set inter.broker.listener.name to one of" in refusal(base, security_inter_broker_protocol="SSL")


@pytest.mark.honours("controller.listener.names")
def test_peers_reach_a_controller_at_the_first_of_its_names() -> None:
    config = config_of(
        CONTROLLER,
        listeners="A://localhost:1,B://localhost:2",
        controller_listener_names="B,A",
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
    )
    assert config.controller_listener is not None
    assert config.controller_listener.name == "B"
    assert [listener.is_controller for listener in config.listeners] == [True, True]


def test_listeners_must_suit_the_roles() -> None:
    assert "a controller must listen there" in refusal(COMBINED, controller_listener_names="OTHER")
    assert "only a broker does not listen" in refusal(BROKER, listeners=COMBINED["listeners"])
    assert "only a controller has no other" in refusal(CONTROLLER, listeners=COMBINED["listeners"])
    assert "needs a listener for clients" in refusal(COMBINED, listeners=CONTROLLER["listeners"])


# ---------------------------------------------------------------- the quorum


@pytest.mark.honours("controller.quorum.voters")
def test_voters_have_a_number_and_an_address() -> None:
    config = config_of(COMBINED, controller_quorum_voters="2@b:9093,1@[::1]:9093")
    assert config.quorum_voters == (
        (NodeId(1), Endpoint("CONTROLLER", "::1", 9093)),
        (NodeId(2), Endpoint("CONTROLLER", "b", 9093)),
    )


@pytest.mark.honours("controller.quorum.bootstrap.servers")
def test_the_quorum_is_found_at_its_bootstrap_servers() -> None:
    config = config_of(COMBINED, controller_quorum_bootstrap_servers="a:1,b:2")
    assert config.quorum_bootstrap == (Endpoint("CONTROLLER", "a", 1), Endpoint("CONTROLLER", "b", 2))


@pytest.mark.parametrize(
    ("base", "voters", "why"),
    [
        (COMBINED, "localhost:9093", "every entry must be ID@HOST:PORT"),
        (COMBINED, "1@localhost", "must be HOST:PORT"),
        (COMBINED, "1@localhost:0", "must be HOST:PORT"),
        (COMBINED, "1@0.0.0.0:9093", "where nobody can connect to"),
        (COMBINED, "1@a:1,1@b:1", "names node 1 twice"),
        (COMBINED, "2@localhost:9093", "must name node 1, which is a controller: it names 2"),
        (BROKER, "1@localhost:9093", "names node 1, which is no controller"),
    ],
)
def test_voters_that_cannot_be_are_refused(base: dict[str, str], voters: str, why: str) -> None:
    assert why in refusal(base, controller_quorum_voters=voters)


def test_a_node_must_know_where_its_quorum_is() -> None:
    assert refusal(BROKER, controller_quorum_bootstrap_servers=None).startswith(
        "Set controller.quorum.bootstrap.servers"
    )


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secure(authority: Authority, tmp_path: Path) -> dict[str, str]:
    """A broker whose clients use TLS, and a node beside it that does not matter here."""
    (tmp_path / "server.pem").write_text(authority.identity("server"))
    (tmp_path / "ca.pem").write_text(authority.certificate)
    return BROKER | {
        "listeners": "PLAINTEXT://localhost:9092,CLIENTS://localhost:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
    }


def without(base: dict[str, str], *names: str) -> dict[str, str]:
    return {name: text for name, text in base.items() if name not in names}


@pytest.mark.honours("ssl.keystore.type", "ssl.keystore.location")
def test_a_listener_with_tls_has_its_key_and_certificate_from_a_file(secure: dict[str, str]) -> None:
    plain, clients = config_of(secure).listeners
    assert plain.tls is None
    assert clients.tls is not None
    assert clients.protocol is SecurityProtocol.SSL
    assert clients.tls.identity == Path(secure["ssl.keystore.location"]).read_text()
    assert clients.tls.client_auth is ClientAuth.NONE
    assert clients.tls.versions == (TlsVersion.TLS_1_2, TlsVersion.TLS_1_3)


@pytest.mark.honours("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates")
@pytest.mark.parametrize("newline", ["\n", " "], ids=["lines", "one line"])
def test_keys_and_certificates_may_stand_in_the_file_of_settings(
    secure: dict[str, str], authority: Authority, newline: str
) -> None:
    key, chain = (text.replace("\n", newline) for text in authority.key_and_chain("inline"))
    texts = without(secure, "ssl.keystore.location") | {
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": chain,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate.replace("\n", newline),
    }
    tls = config_of(texts).listeners[1].tls
    assert tls is not None
    server_context(tls)
    assert "together" in refusal(without(texts, "ssl.keystore.key"))
    assert "not both" in refusal(texts | {"ssl.keystore.location": secure["ssl.keystore.location"]})
    assert "only PEM is read" in refusal(texts | {"ssl.keystore.type": "JKS"})
    assert "holds nothing in PEM" in refusal(texts | {"ssl.keystore.key": "secret"})


@pytest.mark.honours("ssl.key.password")
def test_an_encrypted_key_comes_with_its_password(
    secure: dict[str, str], authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "server.pem").write_text(authority.identity("server", password="secret"))
    tls = config_of(secure | {"ssl.key.password": "secret"}).listeners[1].tls
    assert tls is not None
    server_context(tls)


@pytest.mark.honours("ssl.client.auth", "ssl.truststore.location", "ssl.truststore.type")
def test_clients_may_have_to_show_a_certificate_of_a_trusted_authority(
    secure: dict[str, str], authority: Authority, tmp_path: Path
) -> None:
    texts = secure | {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    tls = config_of(texts).listeners[1].tls
    assert tls is not None
    assert tls.client_auth is ClientAuth.REQUIRED
    assert tls.authorities == authority.certificate
    assert "needs the certificates" in refusal(without(texts, "ssl.truststore.location"))
    assert "ssl.truststore.type is JKS" in refusal(without(texts, "ssl.truststore.type"))
    assert "not both" in refusal(texts | {"ssl.truststore.certificates": authority.certificate})


@pytest.mark.honours("ssl.enabled.protocols")
def test_only_the_enabled_versions_are_spoken(secure: dict[str, str]) -> None:
    tls = config_of(secure | {"ssl.enabled.protocols": "TLSv1.3"}).listeners[1].tls
    assert tls is not None
    assert tls.versions == (TlsVersion.TLS_1_3,)
    for text in ("TLSv1.1,TLSv1.2", ""):
        assert "TLSv1.2, TLSv1.3 or both" in refusal(secure | {"ssl.enabled.protocols": text})


@pytest.mark.honours("ssl.keystore.password", "ssl.truststore.password")
@pytest.mark.parametrize("name", ["ssl.keystore.password", "ssl.truststore.password"])
def test_a_store_in_pem_has_no_password(secure: dict[str, str], tmp_path: Path, name: str) -> None:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    assert f"{name} cannot be set with PEM" in refusal(secure | trust | {name: "secret"})


@pytest.mark.parametrize(
    ("kind", "hint"), [("JKS", "keytool -importkeystore"), ("PKCS12", "openssl pkcs12 -in")]
)
def test_javas_stores_are_refused_with_the_way_to_convert_them(
    secure: dict[str, str], kind: str, hint: str
) -> None:
    message = refusal(secure | {"ssl.keystore.type": kind})
    assert f"ssl.keystore.type is {kind}, and only PEM is read" in message
    assert hint in message


def test_a_listeners_own_settings_come_before_the_general_ones(
    secure: dict[str, str], tmp_path: Path
) -> None:
    own = "listener.name.clients.ssl."
    texts = secure | {
        f"{own}client.auth": "requested",
        f"{own}truststore.type": "PEM",
        f"{own}truststore.location": str(tmp_path / "ca.pem"),
    }
    config = config_of(texts)
    assert config.listeners[1].tls is not None
    assert config.listeners[1].tls.client_auth is ClientAuth.REQUESTED
    assert config.warnings == ()
    assert "'perhaps'" in refusal(texts | {f"{own}client.auth": "perhaps"})
    assert "Did you mean ssl.client.auth" in refusal(texts | {f"{own}client.auht": "none"})


@pytest.mark.parametrize(
    "name", ["listener.name.plaintext.ssl.client.auth", "listener.name.clients.max.connections"]
)
def test_a_listeners_own_setting_without_effect_is_said(secure: dict[str, str], name: str) -> None:
    config = config_of(secure | {name: "none"})
    assert config.warnings == (f"{name} is accepted but has no effect.",)


def test_a_file_that_holds_no_key_is_refused_by_its_name(secure: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    path.write_text((tmp_path / "ca.pem").read_text())
    assert f"{path} of ssl.keystore.location must hold a private key" in refusal(secure)
    path.write_bytes(b"\xfe\xed\xfe\xed")
    assert "is no text, so it is not PEM" in refusal(secure)
    path.unlink()
    assert "cannot be read: No such file or directory" in refusal(secure)
    assert "has no certificate" in refusal(without(secure, "ssl.keystore.location"))


def test_nodes_use_their_own_certificate_among_each_other(secure: dict[str, str]) -> None:
    both = "PLAINTEXT:PLAINTEXT,CLIENTS:SSL,CONTROLLER:SSL"
    texts = secure | {"inter.broker.listener.name": "CLIENTS", "listener.security.protocol.map": both}
    config = config_of(texts)
    assert config.peer_tls is config.listeners[1].tls
    assert config.peer_tls is not None
    message = refusal(secure | {"inter.broker.listener.name": "CLIENTS"})
    assert message.startswith("Listener CONTROLLER speaks PLAINTEXT and listener CLIENTS SSL")
