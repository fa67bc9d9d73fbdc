"""The settings from which a node is made: who it is, where it listens, what it trusts, where its data is."""

from typing import Final

from moldau.model.settings.setting import Setting, UpdateMode, broker
from moldau.model.settings.types import INT32, LIST, PASSWORD, STRING, Value
from moldau.model.settings.validity import at_least, items, one_of

_PER_BROKER = UpdateMode.PER_BROKER
_SOME: Final = items(may_be_empty=False)

# One line says what a row is, the next what it does.
# fmt: off

PROCESS_ROLES: Final = broker(
    "process.roles", LIST, None, items("broker", "controller", may_be_empty=False),
    "Whether the node is a broker, a controller, or both.",
    is_required=True,
)
NODE_ID: Final = broker(
    "node.id", INT32, None, at_least(0),
    "The node's number, which no other node of the cluster has.",
    is_required=True,
)
BROKER_ID: Final = broker(
    "broker.id", INT32, -1, None,
    "An older name of node.id; where both are given they must be equal.",
)
BROKER_RACK: Final = broker(
    "broker.rack", STRING, None, None,
    "Where the broker stands: the replicas of a partition are spread over racks.",
)
LOG_DIR: Final = broker(
    "log.dir", LIST, ("/tmp/kafka-logs",), _SOME,
    "Where the data is, unless log.dirs says it.",
)
LOG_DIRS: Final = broker(
    "log.dirs", LIST, None, _SOME,
    "Where the data is; one directory only.",
)
METADATA_LOG_DIR: Final = broker(
    "metadata.log.dir", STRING, None, None,
    "Where the metadata log is; it must be the directory of the data.",
)

# Where the node listens, and where it is found.

LISTENERS: Final = broker(
    "listeners", LIST, ("PLAINTEXT://:9092",), _SOME,
    "The addresses at which the node listens, each with a name; without a host it is every interface.",
    update=_PER_BROKER,
)
ADVERTISED_LISTENERS: Final = broker(
    "advertised.listeners", LIST, None, _SOME,
    "The addresses at which others reach the listeners, where these differ.",
)
LISTENER_SECURITY_PROTOCOL_MAP: Final = broker(
    "listener.security.protocol.map", STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None,
    "What each listener speaks, by its name.",
    update=_PER_BROKER,
)
INTER_BROKER_LISTENER_NAME: Final = broker(
    "inter.broker.listener.name", STRING, None, None,
    "The listener at which brokers reach each other.",
)
SECURITY_INTER_BROKER_PROTOCOL: Final = broker(
    "security.inter.broker.protocol", STRING, "PLAINTEXT",
    one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "The same, for a listener that is named after what it speaks.",
)
CONTROLLER_LISTENER_NAMES: Final = broker(
    "controller.listener.names", LIST, None, _SOME,
    "The listeners of controllers; brokers reach them at the first.",
    is_required=True,
)
ADMIN_LISTENER: Final = broker(
    "moldau.admin.listener", STRING, None, None,
    "Where /livez, /readyz and /metrics are served over HTTP, as host:port; nowhere if it is not set.",
)
CONTROLLER_QUORUM_VOTERS: Final = broker(
    "controller.quorum.voters", LIST, (), None,
    "The controllers of a quorum that never changes, each as id@host:port.",
)
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS: Final = broker(
    "controller.quorum.bootstrap.servers", LIST, (), None,
    "Where to find the quorum, as host:port.",
)

# TLS; all of these can be given for one listener as listener.name.<name>.<setting>.

SSL_KEYSTORE_TYPE: Final = broker(
    "ssl.keystore.type", STRING, "JKS", None,
    "The format of the key and its certificates; PEM only.",
    update=_PER_BROKER,
)
SSL_KEYSTORE_LOCATION: Final = broker(
    "ssl.keystore.location", STRING, None, None,
    "A file with the private key and the chain of its certificates.",
    update=_PER_BROKER,
)
SSL_KEYSTORE_KEY: Final = broker(
    "ssl.keystore.key", PASSWORD, None, None,
    "The private key itself, instead of a file.",
    update=_PER_BROKER,
)
SSL_KEYSTORE_CERTIFICATE_CHAIN: Final = broker(
    "ssl.keystore.certificate.chain", PASSWORD, None, None,
    "The chain of its certificates itself, instead of a file.",
    update=_PER_BROKER,
)
SSL_KEYSTORE_PASSWORD: Final = broker(
    "ssl.keystore.password", PASSWORD, None, None,
    "The password of a key store, which PEM does not have.",
    update=_PER_BROKER,
)
SSL_KEY_PASSWORD: Final = broker(
    "ssl.key.password", PASSWORD, None, None,
    "The password of the private key.",
    update=_PER_BROKER,
)
SSL_TRUSTSTORE_TYPE: Final = broker(
    "ssl.truststore.type", STRING, "JKS", None,
    "The format of the trusted certificates; PEM only.",
    update=_PER_BROKER,
)
SSL_TRUSTSTORE_LOCATION: Final = broker(
    "ssl.truststore.location", STRING, None, None,
    "A file with the certificates of those who may vouch for others.",
    update=_PER_BROKER,
)
SSL_TRUSTSTORE_CERTIFICATES: Final = broker(
    "ssl.truststore.certificates", PASSWORD, None, None,
    "The same certificates themselves, instead of a file.",
    update=_PER_BROKER,
)
SSL_TRUSTSTORE_PASSWORD: Final = broker(
    "ssl.truststore.password", PASSWORD, None, None,
    "The password of a trust store, which PEM does not have.",
    update=_PER_BROKER,
)
SSL_CLIENT_AUTH: Final = broker(
    "ssl.client.auth", STRING, "none", one_of("required", "requested", "none"),
    "Whether a client must, may or need not show a certificate.",
    update=_PER_BROKER,
)
SSL_ENABLED_PROTOCOLS: Final = broker(
    "ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), items(),
    "The versions of TLS that are spoken.",
    update=_PER_BROKER,
)
# fmt: on

# Every constant above that is a row, so that none can be declared and then forgotten.
NODE: Final[tuple[Setting[Value], ...]] = tuple(
    row for row in tuple(globals().values()) if isinstance(row, Setting)
)
