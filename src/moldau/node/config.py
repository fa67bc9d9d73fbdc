"""What a file of settings makes of a node: its roles, its listeners and its place in the quorum."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from os import strerror
from os.path import abspath
from types import MappingProxyType
from typing import Final

from moldau.model.ids import NodeId
from moldau.model.settings import node as rows
from moldau.model.settings.resolve import Layer, Settings, Source, find, resolve
from moldau.model.settings.setting import InvalidSetting, Scope, Setting
from moldau.node.tls import server_tls
from moldau.raft.voters import Endpoint
from moldau.world.ports import Address, ServerTls

_PREFIX: Final = "listener.name."
_ANY_HOSTS: Final = ("0.0.0.0", "::")
_PORT_MAX: Final = 65_535

_LISTENER: Final = re.compile(r"([^:/]+)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
_HOST_AND_PORT: Final = re.compile(r"\[?([0-9a-zA-Z\-%._:]+)\]?:([0-9]+)")
_VOTER: Final = re.compile(r"([0-9]+)@(.*)")


class CannotListen(Exception):
    """An address that cannot be had, taken perhaps; the text names it and the setting that wants it."""

    def __init__(self, who: str, address: Address, error: OSError) -> None:
        # What asyncio says of an address that is taken names it once more; the numbers of names that lead
        # nowhere are not those of the system.
        is_name = isinstance(error, socket.gaierror)
        why = strerror(error.errno) if error.errno is not None and not is_name else error.strerror or error
        super().__init__(f"{who} cannot listen at {address}: {why}.")


class Role(Enum):
    """What a node does."""

    BROKER = "broker"
    CONTROLLER = "controller"


class SecurityProtocol(IntEnum):
    """What is spoken below Kafka's protocol, as registrations number it."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener: where it is, where others find it, and what is spoken there."""

    name: str
    bind: Address
    advertised: Address
    protocol: SecurityProtocol
    is_controller: bool
    tls: ServerTls | None


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A node that can be made: everything that follows from its file of settings."""

    node_id: NodeId
    roles: tuple[Role, ...]
    listeners: tuple[ListenerConfig, ...]
    # Where controllers are found, also by nodes that are none.
    controller_listener_name: str
    # None for a node that is no broker.
    inter_broker_listener: str | None
    quorum_voters: tuple[tuple[NodeId, Endpoint], ...]
    quorum_bootstrap: tuple[Endpoint, ...]
    log_directory: str
    rack: str | None
    # Where the node says how it is; None where it does not.
    admin: Address | None
    # Every setting of the file by its name, as `metadata.view.ClusterView` takes it.
    static: Mapping[str, str]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, texts: Mapping[str, str], *, machine_name: Callable[[], str] = socket.getfqdn) -> NodeConfig:
        """The node that the texts describe; InvalidSetting, with a sentence that helps, if they do not.

        The machine's name is asked for only where a listener has no host and none is advertised.
        """
        return _Reader(texts, machine_name).read()

    @property
    def is_broker(self) -> bool:
        """Whether the node keeps partitions and serves clients."""
        return Role.BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether the node is part of the quorum."""
        return Role.CONTROLLER in self.roles

    @property
    def is_alone(self) -> bool:
        """Whether the settings name no controller but this one."""
        listener = self.controller_listener
        if listener is None:
            return False
        if self.quorum_voters:
            return all(node_id == self.node_id for node_id, _ in self.quorum_voters)
        return all(Address(at.host, at.port) == listener.advertised for at in self.quorum_bootstrap)

    @property
    def controller_listener(self) -> ListenerConfig | None:
        """Where a controller is found by its peers; None for a node that is none."""
        return next((listener for listener in self.listeners if listener.is_controller), None)

    @property
    def broker_listeners(self) -> tuple[ListenerConfig, ...]:
        """Where clients and other brokers find a broker."""
        return tuple(listener for listener in self.listeners if not listener.is_controller)

    @property
    def peer_tls(self) -> ServerTls | None:
        """What the node proves itself with to other nodes; None where nodes talk in plaintext."""
        name = self.inter_broker_listener or self.controller_listener_name
        return next((listener.tls for listener in self.listeners if listener.name == name), None)


class _Reader:
    """Reads one file of settings; each method answers one question that the file must answer."""

    def __init__(self, texts: Mapping[str, str], machine_name: Callable[[], str]) -> None:
        self.texts = texts
        self.machine_name = machine_name
        self.general = {name: text for name, text in texts.items() if not name.startswith(_PREFIX)}
        self.settings = resolve(Scope.BROKER, Layer(Source.STATIC, self.general))
        self.warnings = list(self.settings.warnings)

    def read(self) -> NodeConfig:
        node_id, roles = self._node_id(), self._roles()
        controller_names = self._controller_names()
        bound = self._addresses(rows.LISTENERS)
        self._check_roles(roles, list(bound), controller_names)
        protocols = self._protocols([*controller_names, *bound], controller_names)
        listeners = self._listeners(bound, controller_names, protocols)
        inter_broker = self._inter_broker_listener(listeners) if Role.BROKER in roles else None
        self._check_peers(inter_broker, controller_names[0], protocols)
        self._warn_of_unused_listener_settings(listeners)
        voters, bootstrap = self._quorum(node_id, roles, controller_names[0])
        return NodeConfig(
            node_id=node_id,
            roles=roles,
            listeners=listeners,
            controller_listener_name=controller_names[0],
            inter_broker_listener=inter_broker,
            quorum_voters=voters,
            quorum_bootstrap=bootstrap,
            log_directory=self._log_directory(),
            rack=self.settings[rows.BROKER_RACK],
            admin=self._admin(),
            static=MappingProxyType(dict(self.texts)),
            warnings=tuple(self.warnings),
        )

    # ------------------------------------------------------------ who

    def _node_id(self) -> NodeId:
        node_id, broker_id = self.settings[rows.NODE_ID], self.settings[rows.BROKER_ID]
        if node_id is None:
            raise InvalidSetting("node.id must be set: the number of this node, which no other node has.")
        if "broker.id" in self.texts and broker_id != node_id:
            raise InvalidSetting(
                f"node.id is {node_id} and broker.id is {broker_id}: they are two names of one number."
            )
        return NodeId(node_id)

    def _roles(self) -> tuple[Role, ...]:
        names = self.settings[rows.PROCESS_ROLES]
        if names is None:
            raise InvalidSetting("process.roles must be set: broker, controller, or broker,controller.")
        return tuple(role for role in Role if role.value in names)

    def _log_directory(self) -> str:
        given = self.settings[rows.LOG_DIRS]
        name = "log.dir" if given is None else "log.dirs"
        directories = self.settings[rows.LOG_DIR] if given is None else given
        if len(directories) > 1:
            raise InvalidSetting(
                f"{name} names {len(directories)} directories ({', '.join(directories)}), and a node has its"
                " data in one for now."
            )
        metadata = self.settings[rows.METADATA_LOG_DIR]
        if metadata is not None and abspath(metadata) != abspath(directories[0]):
            raise InvalidSetting(
                f"metadata.log.dir is {metadata} and {name} is {directories[0]}: for now the metadata log is"
                " in the same directory as the data."
            )
        return directories[0]

    # ------------------------------------------------------------ listeners

    def _controller_names(self) -> tuple[str, ...]:
        names = self.settings[rows.CONTROLLER_LISTENER_NAMES]
        if names is None:
            raise InvalidSetting(
                "controller.listener.names must be set: the names of the controllers' listeners, such as"
                " CONTROLLER."
            )
        return tuple(name.upper() for name in names)

    def _protocols(self, used: Iterable[str], controller_names: Iterable[str]) -> dict[str, SecurityProtocol]:
        """What is spoken at the listener of each name."""
        protocols = {}
        for entry in self.settings[rows.LISTENER_SECURITY_PROTOCOL_MAP].split(","):
            name, colon, protocol = (part.strip() for part in entry.partition(":"))
            if not name or not colon:
                raise InvalidSetting(
                    f"listener.security.protocol.map has {entry.strip()!r}: every entry must be"
                    " NAME:PROTOCOL."
                )
            if name.upper() in protocols:
                raise InvalidSetting(f"listener.security.protocol.map names {name.upper()} twice.")
            if protocol not in SecurityProtocol.__members__:
                raise InvalidSetting(
                    f"listener.security.protocol.map gives {name} the protocol {protocol!r}, which must be"
                    f" one of {', '.join(SecurityProtocol.__members__)}."
                )
            protocols[name.upper()] = SecurityProtocol[protocol]
        plaintext = SecurityProtocol.PLAINTEXT
        is_secure = any(protocols.get(name, plaintext) is not plaintext for name in used)
        # As in Kafka, controllers are in plaintext unless something shows that security is wanted.
        if rows.LISTENER_SECURITY_PROTOCOL_MAP.name not in self.texts and not is_secure:
            protocols |= {name: plaintext for name in controller_names if name not in protocols}
        return protocols

    def _listeners(
        self,
        bound: Mapping[str, Address],
        controller_names: Sequence[str],
        protocols: Mapping[str, SecurityProtocol],
    ) -> tuple[ListenerConfig, ...]:
        ports = [address.port for address in bound.values() if address.port]
        if len(set(ports)) < len(ports):
            raise InvalidSetting(
                f"listeners is {self.texts[rows.LISTENERS.name]}: every listener must have a port of its own."
            )
        advertised = self._addresses(rows.ADVERTISED_LISTENERS)
        for name in advertised:
            if name not in bound:
                raise InvalidSetting(
                    f"advertised.listeners names {name}, which is not one of the listeners {_list(bound)}."
                )
        # The first of the controllers' names is where peers connect to, so its listener goes first.
        rank = {name: number for number, name in enumerate(controller_names)}
        return tuple(
            self._listener(name, bound[name], advertised, controller_names, protocols)
            for name in sorted(bound, key=lambda name: rank.get(name, len(rank)))
        )

    def _listener(
        self,
        name: str,
        bind: Address,
        advertised: Mapping[str, Address],
        controller_names: Sequence[str],
        protocols: Mapping[str, SecurityProtocol],
    ) -> ListenerConfig:
        protocol = self._protocol_of(name, protocols)
        is_tls = protocol is SecurityProtocol.SSL
        return ListenerConfig(
            name=name,
            bind=bind,
            advertised=self._advertised(name, bind, advertised),
            protocol=protocol,
            is_controller=name in controller_names,
            tls=server_tls(self._settings_of_listener(name), name) if is_tls else None,
        )

    def _protocol_of(self, name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
        protocol = protocols.get(name)
        if protocol is None:
            raise InvalidSetting(
                f"listener.security.protocol.map does not say what listener {name} speaks: add"
                f" {name}:PLAINTEXT or {name}:SSL to it."
            )
        if protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL):
            raise InvalidSetting(
                f"Listener {name} speaks {protocol.name}, which is not served yet: use SSL, where"
                " ssl.client.auth=required lets clients prove who they are, or PLAINTEXT."
            )
        return protocol

    def _advertised(self, name: str, bind: Address, advertised: Mapping[str, Address]) -> Address:
        address = advertised.get(name, bind)
        if address.host in _ANY_HOSTS:
            raise InvalidSetting(
                f"Listener {name} would be advertised at {address}, where nobody can connect to: set"
                f" advertised.listeners={name}://HOST:{address.port} with a host that clients can reach."
            )
        return address if address.host else Address(self.machine_name(), address.port)

    def _addresses(self, setting: Setting[tuple[str, ...] | None]) -> dict[str, Address]:
        addresses: dict[str, Address] = {}
        for entry in self.settings[setting] or ():
            match = _LISTENER.fullmatch(entry)
            if match is None or int(match[3]) > _PORT_MAX:
                raise InvalidSetting(
                    f"{setting.name} has {entry!r}: every entry must be NAME://HOST:PORT, such as"
                    " PLAINTEXT://localhost:9092."
                )
            name = match[1].upper()
            if name in addresses:
                raise InvalidSetting(
                    f"{setting.name} names {name} twice: every listener must have its own name."
                )
            addresses[name] = Address(match[2], int(match[3]))
        return addresses

    def _admin(self) -> Address | None:
        text = self.settings[rows.ADMIN_LISTENER]
        if not text:
            return None
        match = _HOST_AND_PORT.fullmatch(text)
        if match is None or int(match[2]) > _PORT_MAX:
            raise InvalidSetting(
                f"moldau.admin.listener is {text!r}, which must be HOST:PORT, such as 127.0.0.1:9644;"
                " port 0 is any that is free."
            )
        return Address(match[1], int(match[2]))

    # ------------------------------------------------------------ settings of one listener

    def _settings_of_listener(self, name: str) -> Settings:
        """The settings that hold at one listener: its own come before the general ones."""
        own = {}
        for full_name, text in self.texts.items():
            listener, setting = _of_listener(full_name)
            if listener == name and setting.startswith("ssl."):
                own[find(Scope.BROKER, setting).name] = text
        return resolve(Scope.BROKER, Layer(Source.STATIC, self.general | own))

    def _warn_of_unused_listener_settings(self, listeners: Iterable[ListenerConfig]) -> None:
        with_tls = [listener.name for listener in listeners if listener.tls is not None]
        honoured = [row.name for row in rows.NODE if row.name.startswith("ssl.")]
        for full_name in self.texts:
            if full_name.startswith(_PREFIX):
                listener, setting = _of_listener(full_name)
                if listener not in with_tls or setting not in honoured:
                    self.warnings.append(f"{full_name} is accepted but has no effect.")

    # ------------------------------------------------------------ roles and peers

    def _check_roles(
        self, roles: Sequence[Role], names: Sequence[str], controller_names: Sequence[str]
    ) -> None:
        if Role.CONTROLLER in roles:
            for name in controller_names:
                if name not in names:
                    raise InvalidSetting(
                        f"controller.listener.names names {name}, which is not one of the listeners"
                        f" {_list(names)}: a controller must listen there."
                    )
        elif common := [name for name in names if name in controller_names]:
            raise InvalidSetting(
                f"controller.listener.names names {common[0]}, which is one of the listeners: a node that is"
                " only a broker does not listen for controllers."
            )
        others = [name for name in names if name not in controller_names]
        if Role.BROKER not in roles and others:
            raise InvalidSetting(
                f"listeners has {others[0]}, which controller.listener.names does not name: a node that is"
                " only a controller has no other listeners."
            )
        if Role.BROKER in roles and not others:
            raise InvalidSetting(
                "A broker needs a listener for clients, and all listeners are named in"
                " controller.listener.names."
            )

    def _inter_broker_listener(self, listeners: Iterable[ListenerConfig]) -> str:
        name_row, protocol_row = rows.INTER_BROKER_LISTENER_NAME, rows.SECURITY_INTER_BROKER_PROTOCOL
        if name_row.name in self.texts and protocol_row.name in self.texts:
            raise InvalidSetting(f"Set either {name_row.name} or {protocol_row.name}, not both.")
        given = self.settings[name_row]
        name = self.settings[protocol_row] if given is None else given.upper()
        names = [listener.name for listener in listeners if not listener.is_controller]
        if name in names:
            return name
        if given is None:
            raise InvalidSetting(
                f"Brokers would reach each other at a listener {name}, and there is none: set"
                f" inter.broker.listener.name to one of {_list(names)}."
            )
        raise InvalidSetting(
            f"inter.broker.listener.name is {name}, which must be one of the listeners for clients and"
            f" brokers: {_list(names)}."
        )

    def _check_peers(
        self, inter_broker: str | None, controller: str, protocols: Mapping[str, SecurityProtocol]
    ) -> None:
        spoken = self._protocol_of(controller, protocols)
        if inter_broker is not None and protocols[inter_broker] is not spoken:
            raise InvalidSetting(
                f"Listener {controller} speaks {spoken.name} and listener {inter_broker}"
                f" {protocols[inter_broker].name}: for now nodes talk to each other in one way only."
            )

    # ------------------------------------------------------------ the quorum

    def _quorum(
        self, node_id: NodeId, roles: Sequence[Role], name: str
    ) -> tuple[tuple[tuple[NodeId, Endpoint], ...], tuple[Endpoint, ...]]:
        voters: dict[NodeId, Endpoint] = {}
        for entry in self.settings[rows.CONTROLLER_QUORUM_VOTERS]:
            match = _VOTER.fullmatch(entry)
            if match is None:
                raise InvalidSetting(
                    f"controller.quorum.voters has {entry!r}: every entry must be ID@HOST:PORT, such as"
                    " 1@localhost:9093."
                )
            voter = NodeId(int(match[1]))
            if voter in voters:
                raise InvalidSetting(f"controller.quorum.voters names node {voter} twice.")
            voters[voter] = _endpoint("controller.quorum.voters", match[2], name)
        servers = self.settings[rows.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS]
        bootstrap = tuple(_endpoint("controller.quorum.bootstrap.servers", entry, name) for entry in servers)
        if not voters and not bootstrap:
            raise InvalidSetting(
                "Set controller.quorum.bootstrap.servers, the addresses of controllers, or"
                " controller.quorum.voters, such as 1@localhost:9093."
            )
        if voters and Role.CONTROLLER in roles and node_id not in voters:
            raise InvalidSetting(
                f"controller.quorum.voters must name node {node_id}, which is a controller: it names"
                f" {', '.join(map(str, sorted(voters)))}."
            )
        if Role.CONTROLLER not in roles and node_id in voters:
            raise InvalidSetting(
                f"controller.quorum.voters names node {node_id}, which is no controller: either process.roles"
                " or node.id is wrong."
            )
        return tuple(sorted(voters.items())), bootstrap


def _of_listener(full_name: str) -> tuple[str, str]:
    """The listener and the setting in a name like `listener.name.internal.ssl.client.auth`."""
    if not full_name.startswith(_PREFIX):
        return "", full_name
    name, _, setting = full_name.removeprefix(_PREFIX).partition(".")
    return name.upper(), setting


def _endpoint(setting: str, text: str, name: str) -> Endpoint:
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not 0 < int(match[2]) <= _PORT_MAX:
        raise InvalidSetting(f"{setting} has the address {text!r}, which must be HOST:PORT.")
    if match[1] in _ANY_HOSTS:
        raise InvalidSetting(f"{setting} has the address {text}, where nobody can connect to.")
    return Endpoint(name, match[1], int(match[2]))


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "(there are none)"
