"""What observations of an installation and of a cluster mean, and what to do about them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from moldau.cli._probe import (
    ENDED_AFTER_HANDSHAKE,
    REFUSED,
    TIMED_OUT,
    Answers,
    Foreign,
    HangsUp,
    Outcome,
    Silent,
    TlsFailed,
    Unconnected,
    Unresolved,
    WantsPlaintext,
    WantsTls,
)
from moldau.wire.compiled import HOW_TO_REBUILD
from moldau.wire.messages import ApiKey

Status = Literal["ok", "warning", "problem"]

INSTALLATION: Final = "installation"
CLUSTER: Final = "cluster"

# A clock that is off by so much confuses those who look at times; by an hour, brokers refuse records.
CLOCK_MS_WARNING: Final = 5_000
CLOCK_MS_PROBLEM: Final = 3_600_000

# How many replicas brokers want of their own topics -> what these are for.
INTERNAL_TOPICS: Final = {
    "offsets.topic.replication.factor": "consumer groups",
    "transaction.state.log.replication.factor": "transactions",
    "share.coordinator.state.topic.replication.factor": "share groups",
}

_CONTAINER: Final = re.compile(r"[0-9a-f]{12}")
_ANY_HOSTS: Final = ("0.0.0.0", "::", "")
_PROTOCOLS: Final = {
    b"HTTP/": "It is a web server.",
    b"SSH-": "It is an SSH server.",
    b"220 ": "It is a mail or FTP server.",
    b"-ERR": "It is perhaps Redis.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it is and, unless it is well, what to do."""

    section: str
    check: str
    status: Status
    detail: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """An address as somebody wrote it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class WayIn:
    """Where we got in, and to whom, as far as that is known."""

    place: Place
    is_loopback: bool
    # What the listener is called, if it is not called something else.
    protocol: Literal["PLAINTEXT", "SSL"]
    node_id: int | None
    # The listeners of that broker, and where it says that each is.
    advertised: Mapping[str, str]


def ok(check: str, detail: str, *, section: str = CLUSTER) -> Finding:
    """All is well with this."""
    return Finding(section, check, "ok", detail)


def warning(check: str, detail: str, fix: str, *, section: str = CLUSTER) -> Finding:
    """This works, and may not for others or later."""
    return Finding(section, check, "warning", detail, fix)


def problem(check: str, detail: str, fix: str) -> Finding:
    """This keeps somebody from using the cluster."""
    return Finding(CLUSTER, check, "problem", detail, fix)


# ---------------------------------------------------------------- the first connection


def of_bootstrap(place: Place, outcome: Outcome) -> Finding:
    """Whether a client that is given this address finds a broker there."""
    check = "connection"
    match outcome:
        case Answers(apis=apis) if ApiKey.METADATA not in apis:
            return problem(
                check,
                f"{place} is the port of a controller, which serves no clients.",
                "Connect to a broker: its port is in `listeners`, under a name that controller.listener.names"
                " does not have; usually it is 9092, and the controller's 9093.",
            )
        case Answers(passed_over=passed_over, address=address) if passed_over:
            dead = ", ".join(f"{each} ({why})" for each, why in passed_over.items())
            return warning(
                check,
                f"{place} answers at {address}, but first stands for {dead}.",
                f"Write {Place(address, place.port)} instead of {place.host}: not every client tries the next"
                " address.",
            )
        case Answers(apis=apis, milliseconds=milliseconds):
            return ok(
                check,
                f"{place} speaks Kafka's protocol: {len(apis)} APIs, answered in {milliseconds:.0f} ms.",
            )
    detail, fix = _why_not(place, outcome)
    return problem(check, detail, fix)


def _why_not(place: Place, outcome: Outcome) -> tuple[str, str]:
    """Why nobody who speaks Kafka's protocol, as we do, was found at a place, and what to do."""
    match outcome:
        case Unresolved(why):
            return (
                f"The name {place.host} leads nowhere from here: {why}.",
                f"Check how it is spelt; if it is right, add it to the DNS or to /etc/hosts: IP {place.host}",
            )
        case Unconnected(tried):
            shown = ", ".join(f"{address}: {why}" for address, why in tried.items())
            return f"{place} lets nobody in ({shown}).", _how_to_get_in(place, list(tried.values()))
        case Silent():
            return (
                f"{place} accepts connections and then says nothing.",
                "It may hang, or be no broker, or a proxy with nothing behind it: look at what listens there,"
                f" on its machine with: ss -ltnp 'sport = :{place.port}'",
            )
        case HangsUp():
            return (
                f"{place} accepts connections and ends them at once.",
                "It may be no broker, a proxy whose broker is down, or a broker that has too many"
                " connections (max.connections, max.connections.per.ip): its log says which.",
            )
        case Foreign(first_bytes):
            known = [text for start, text in _PROTOCOLS.items() if first_bytes.startswith(start)]
            return (
                f"{place} answers, but not in Kafka's protocol: it begins with {first_bytes!r}.",
                " ".join([*known, "Find the broker's port in its `listeners`; it is usually 9092."]),
            )
        case WantsTls():
            return (
                f"{place} speaks TLS, and was spoken to in plaintext.",
                "Give the client security.protocol=SSL, and the authority's certificate if it is not a public"
                " one; here: -X security.protocol=SSL -X ssl.ca.location=ca.pem",
            )
        case WantsPlaintext():
            return (
                f"{place} speaks in plaintext, and was spoken to with TLS.",
                "Leave security.protocol=SSL out, or connect to the port of a listener with TLS.",
            )
        case TlsFailed(why):
            return f"The TLS connection to {place} failed: {why}.", _how_to_be_trusted(why)
        case Answers():
            raise AssertionError("who answers was found")


def _how_to_get_in(place: Place, reasons: list[str]) -> str:
    if REFUSED in reasons:
        return (
            f"Nothing listens there: start the broker, or look up its port. In a container, publish the port"
            f" (-p {place.port}:{place.port}), and let the broker listen at 0.0.0.0 rather than localhost."
        )
    if TIMED_OUT in reasons:
        return "Something drops the packets: look at firewalls, security groups, VPN and routes on the way."
    return "Look at the network between here and there."


_HOW_TO_SHOW: Final = (
    "The broker wants a certificate of the client (ssl.client.auth=required), from an authority in its"
    " ssl.truststore: -X ssl.keystore.location=client.pem, a file with the key and the certificate, or"
    " -X ssl.certificate.location=client.crt -X ssl.key.location=client.key"
)


def _how_to_be_trusted(why: str) -> str:
    if "certificate required" in why or "bad certificate" in why or "handshake failure" in why:
        return _HOW_TO_SHOW
    if why == ENDED_AFTER_HANDSHAKE:
        return f"Brokers do that to clients whose certificate they miss, or do not trust. {_HOW_TO_SHOW}"
    if "mismatch" in why.lower() or "not valid for" in why.lower():
        return (
            "Connect with a name that is in the broker's certificate, or have one issued whose subjectAltName"
            " has this name."
        )
    if "expired" in why:
        return "Have the broker's certificate renewed, and check the clock of this machine."
    return (
        "Give the client the certificate of the authority that issued the broker's: -X ssl.ca.location=ca.pem"
    )


# ---------------------------------------------------------------- where brokers say they are


def of_advertised(
    node_id: int,
    place: Place,
    outcome: Outcome,
    *,
    way_in: WayIn,
    is_same_cluster: bool | None,
) -> Finding:
    """Whether clients get from the first connection to where a broker says that it is."""
    check = f"broker {node_id}"
    said = f"Broker {node_id} tells clients to connect to {place}"
    fix = _how_to_advertise(node_id, place, way_in)
    if place.host in _ANY_HOSTS:
        return problem(check, f"{said}, which is no address to connect to.", fix)
    is_reached = isinstance(outcome, Answers) and is_same_cluster is not False
    if is_loopback(place.host) and not way_in.is_loopback:
        detail = f"{said}, which on every machine is that machine itself."
        if is_reached:
            return warning(check, f"{detail} It works here only.", fix)
        return problem(check, detail, fix)
    match outcome:
        case Answers() if is_same_cluster is False:
            return problem(check, f"{said}, where a node of another cluster answers.", fix)
        case Answers(apis=apis) if ApiKey.METADATA not in apis:
            return problem(check, f"{said}, which is the port of a controller.", fix)
        case Answers(milliseconds=milliseconds):
            return ok(check, f"{said}, which works from here ({milliseconds:.0f} ms).")
        case Unresolved(why):
            hint = " It looks like the id of a container." if _CONTAINER.fullmatch(place.host) else ""
            return problem(check, f"{said}, and that name leads nowhere from here: {why}.{hint}", fix)
        case Unconnected(tried):
            shown = ", ".join(f"{address}: {why}" for address, why in tried.items())
            return problem(check, f"{said}, which lets nobody in from here ({shown}).", fix)
    detail, other_fix = _why_not(place, outcome)
    return problem(check, f"{said}. {detail}", other_fix)


def _how_to_advertise(node_id: int, place: Place, way_in: WayIn) -> str:
    in_containers = (
        "In a container give it two listeners: one advertised to other containers, one to clients outside."
    )
    wrong = [name for name, address in way_in.advertised.items() if _is_of_listener(place, address)]
    if node_id != way_in.node_id or place == way_in.place:
        return (
            f"In the settings of broker {node_id} set advertised.listeners={way_in.protocol}://HOST:PORT (the"
            " name of its listener, and a host and port of it that clients can reach), and start it again."
            f" {in_containers}"
        )
    if wrong:
        listeners = {**way_in.advertised, wrong[0]: str(way_in.place)}
        names = ""
    else:
        listeners = {way_in.protocol: str(way_in.place)}
        names = " (with the name of its listener)"
    value = ",".join(f"{name}://{address}" for name, address in listeners.items())
    elsewhere = " Clients on other machines need a name or address of this one in it." * way_in.is_loopback
    return (
        f"It was reached at {way_in.place}: in the settings of broker {node_id} set"
        f" advertised.listeners={value}{names}, and start it again.{elsewhere} {in_containers}"
    )


def _is_of_listener(place: Place, address: str) -> bool:
    """Whether a listener that is at an address in the settings may be advertised as a place."""
    host, _, port = address.rpartition(":")
    return port == str(place.port) and host.strip("[]") in (place.host, *_ANY_HOSTS)


def is_loopback(host: str) -> bool:
    """Whether an address is that of the machine itself, on every machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in ("localhost", "localhost.localdomain", "ip6-localhost")


# ---------------------------------------------------------------- what the cluster says


def of_clock(difference_ms: float, uncertainty_ms: float) -> Finding:
    """Whether the cluster's time is ours; what is positive is ahead of us."""
    size_ms = max(0.0, abs(difference_ms) - uncertainty_ms)
    if size_ms < CLOCK_MS_WARNING:
        return ok("clock", f"The clocks here and there agree, to within {uncertainty_ms + size_ms:.0f} ms.")
    direction = "ahead of" if difference_ms > 0 else "behind"
    detail = f"The controller's clock is {size_ms / 1000:.0f} s {direction} this machine's."
    fix = "Let both machines keep the time with NTP (timedatectl set-ntp true)."
    if size_ms < CLOCK_MS_PROBLEM:
        return warning("clock", detail, f"{fix} Times of records, and what is read by time, are off by that.")
    return problem("clock", detail, f"{fix} Records an hour ahead of the broker are refused.")


def of_creation(error: str | None, message: str) -> Finding:
    """Whether a topic could be created; nothing was."""
    if error is None:
        return ok("creating topics", "A topic with the defaults could be created.")
    fixes = {
        "INVALID_REPLICATION_FACTOR": "Set default.replication.factor to at most the number of brokers, or"
        " give topics a replication factor (moldau topic create -r 1).",
        "CLUSTER_AUTHORIZATION_FAILED": "Ask for an ACL: Create on the cluster, or on topics.",
        "TOPIC_AUTHORIZATION_FAILED": "Ask for an ACL: Create on the cluster, or on topics.",
        "NOT_CONTROLLER": "The controllers have no leader: moldau cluster quorum",
        "POLICY_VIOLATION": "Create topics as create.topic.policy.class.name wants them.",
    }
    fix = fixes.get(error, "Look at the log of the active controller: moldau cluster info says who it is.")
    return problem("creating topics", f"A topic could not be created: {message} ({error})", fix)


def of_internal_topics(factors: Mapping[str, int], broker_count: int) -> Finding:
    """Whether the brokers can create the topics that they need for themselves."""
    lacking = {name: factor for name, factor in factors.items() if factor > broker_count}
    if not lacking:
        return ok("internal topics", "Their replication factors are not above the number of brokers.")
    shown = ", ".join(f"{name}={factor}" for name, factor in lacking.items())
    detail = (
        f"There are fewer brokers ({broker_count}) than replicas wanted: {shown}."
        f" So there cannot be {', '.join(INTERNAL_TOPICS[name] for name in lacking)}."
    )
    fix = f"Start more brokers, or set this to {broker_count} in the brokers' settings and start them again."
    # Nearly everybody has consumer groups, and few have the others.
    is_grave = "consumer groups" in detail
    return problem("internal topics", detail, fix) if is_grave else warning("internal topics", detail, fix)


# ---------------------------------------------------------------- this machine


def of_kernel(name: Literal["compiled", "pure"], what: str, *, stale: str | None = None) -> Finding:
    """Whether the fast twin of some code is in use here; `stale` says why one that is there is not."""
    if name == "compiled":
        return ok(what, "The compiled one is in use.", section=INSTALLATION)
    if stale is not None:
        return warning(
            what,
            "The one in pure Python is in use, which is many times slower. There is a compiled one, but"
            f" {stale}.",
            f"In the directory of the sources, {HOW_TO_REBUILD}.",
            section=INSTALLATION,
        )
    return warning(
        what,
        "The one in pure Python is in use, which is many times slower.",
        "Install a C compiler (apt install gcc python3-dev), then: pip install --force-reinstall --no-deps"
        " --no-binary moldau moldau",
        section=INSTALLATION,
    )
