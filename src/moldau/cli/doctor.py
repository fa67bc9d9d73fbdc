"""`moldau doctor`: find out why clients cannot use a cluster, from where the clients are."""

from __future__ import annotations

import shutil
import socket
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

import moldau
from moldau.cli._connect import Ask, Target, cluster_options, parse_bootstrap
from moldau.cli._diagnosis import (
    INSTALLATION,
    INTERNAL_TOPICS,
    Finding,
    Place,
    Status,
    WayIn,
    is_loopback,
    of_advertised,
    of_bootstrap,
    of_clock,
    of_creation,
    of_internal_topics,
    of_kernel,
    ok,
    problem,
)
from moldau.cli._errors import Failure, OutOfReach, one_line_errors
from moldau.cli._output import output_option, print_json, styled
from moldau.cli._probe import Answers, open_connection, probe
from moldau.wire.messages import ApiKey, spoken_versions

if TYPE_CHECKING:
    import ssl

    from moldau.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

# Long enough for a slow network, short enough for somebody who waits.
PROBE_S_MAX: Final = 10.0
PROBES_AT_ONCE: Final = 16

_COLOURS: Final[dict[Status, str]] = {"ok": "green", "warning": "yellow", "problem": "red"}
_BROKER: Final = 4
_DEFAULT_SOURCE: Final = 5
# What every client needs.
_NEEDED: Final = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.API_VERSIONS)
# Where a broker says that it is, where it says so if it does not, and which of its listeners no client needs.
_LISTENER_SETTINGS: Final = ("advertised.listeners", "listeners", "controller.listener.names")
_HEALTH_FIXES: Final = {
    "brokers": "A fenced broker has lost its controller: look at its log and at the network between them.",
    "quorum": "Start the controllers that are down; a majority of the voters must run.",
    "leaders": "Start the brokers that are down; moldau topic describe says which replicas there are.",
    "replicas in sync": "Start the brokers that are down, or look at the logs of those that lag.",
    "replicas online": "Start the brokers that are down, or replace the disks that failed.",
}


@click.command("doctor")
@click.argument("address", metavar="[HOST:PORT]", required=False)
@output_option
@cluster_options
def command(target: Target, address: str | None, output: str) -> None:
    """Find out why clients cannot use a cluster, and what to do about it.

    Run it where the client runs: it goes the way that a client goes, to HOST:PORT and from there to where
    the brokers say that they are. It changes nothing. Exit code 1 says that there is a problem, and 5 that
    nobody could be asked.

    \b
    Examples:
      moldau doctor localhost:9092
      moldau doctor broker.example.org:9093 -X security.protocol=SSL -X ssl.ca.location=ca.pem
      moldau doctor -o json | jq -r '.findings[] | select(.status == "problem") | .fix'
    """
    if address is not None:
        target = Target(parse_bootstrap(address), target.timeout_s, target.settings)
    places = [Place(host, port) for host, port in target.addresses]
    patient = Patient(target)
    findings = [*installation(), *patient.findings(places)]
    is_well = all(finding.status != "problem" for finding in findings)
    if output == "json":
        print_json({"healthy": is_well, "findings": [asdict(finding) for finding in findings]})
    else:
        show(findings, places)
    if not is_well:
        sys.exit(Failure.exit_code if patient.is_reached else OutOfReach.exit_code)


# ---------------------------------------------------------------- this machine


def installation() -> list[Finding]:
    """What is installed here."""
    from moldau.cli.version import OPTIONAL_LIBRARIES, installed
    from moldau.wire import compiler
    from moldau.wire.records import kernel

    versions = installed()
    present = [f"{name} {version}" for name, version in versions["libraries"].items() if version]
    absent = [name for name, version in versions["libraries"].items() if not version]
    extras = f" Not installed: {', '.join(absent)}; moldau version says how." if absent else ""
    assert OPTIONAL_LIBRARIES.keys() == versions["libraries"].keys()
    return [
        ok(
            "moldau",
            f"Moldau {moldau.__version__} on Python {versions['python']}, in {moldau.__path__[0]}.",
            section=INSTALLATION,
        ),
        of_kernel(versions["kernel"], "record kernel", stale=kernel.STALE),
        of_kernel(versions["decoder"], "message decoder", stale=compiler.STALE),
        ok(
            "libraries",
            f"{', '.join(present) or 'None of those that are optional'}.{extras}",
            section=INSTALLATION,
        ),
    ]


# ---------------------------------------------------------------- the cluster


class Patient:
    """A cluster, examined step by step in the way of a client."""

    def __init__(self, target: Target) -> None:
        self.is_reached = False
        self._timeout_s = min(target.timeout_s, PROBE_S_MAX)
        self._tls = tls_of(target)

    def findings(self, places: list[Place]) -> Iterator[Finding]:
        """All that was looked at, as far as one gets."""
        reached: tuple[Place, Answers] | None = None
        for place in places:
            outcome = probe(place.host, place.port, tls=self._tls, timeout_s=self._timeout_s)
            yield of_bootstrap(place, outcome)
            if reached is None and isinstance(outcome, Answers) and ApiKey.METADATA in outcome.apis:
                reached = place, outcome
        if reached is None:
            return
        self.is_reached = True
        place, answers = reached
        yield of_versions(answers)
        try:
            with self._asking(place) as ask:
                metadata = described(ask)
                way_in = self._way_in(ask, place, answers, metadata.brokers)
                yield from self._advertised(way_in, metadata)
                yield from examined("metadata version", lambda: feature_level(ask))
                yield from examined("clock", lambda: clock_of(ask))
                yield from examined("creating topics", lambda: creation(ask))
                yield from examined("internal topics", lambda: internal_topics(ask, metadata.brokers))
                yield from health(ask)
        except OutOfReach as error:
            yield problem(
                "questions",
                f"{place} ends the conversation when it is asked something: {error.message}",
                "Brokers do that to clients that must authenticate with SASL, which Moldau's commands do not"
                " speak yet: use a listener that does not want it. If it should not, its log says why.",
            )

    @contextmanager
    def _asking(self, place: Place) -> Iterator[Ask]:
        from moldau.cli._socket import SocketConnection

        try:
            with open_connection(
                place.host, place.port, tls=self._tls, timeout_s=self._timeout_s
            ) as connected:
                yield SocketConnection(connected, timeout_s=self._timeout_s, name=str(place)).ask
        except OSError as error:
            raise OutOfReach(f"The connection to {place} broke: {error}.") from error

    def _way_in(
        self, ask: Ask, place: Place, answers: Answers, brokers: list[MetadataResponseBroker]
    ) -> WayIn:
        listeners = listeners_of_who_answers(ask, [row.node_id for row in brokers])
        # If there is only one, it is that one which answers.
        node_id = next(iter(listeners), brokers[0].node_id if len(brokers) == 1 else None)
        return WayIn(
            place,
            is_loopback=is_loopback(answers.address),
            protocol="PLAINTEXT" if self._tls is None else "SSL",
            node_id=node_id,
            advertised={} if node_id is None else listeners.get(node_id, {}),
        )

    def _advertised(self, way_in: WayIn, metadata: MetadataResponse) -> Iterator[Finding]:
        """Where each broker says that it is, tried from here."""
        rows = sorted(metadata.brokers, key=lambda row: row.node_id)

        def look(row: MetadataResponseBroker) -> Finding:
            place = Place(row.host, row.port)
            outcome = probe(row.host, row.port, tls=self._tls, timeout_s=self._timeout_s)
            is_same = None
            if isinstance(outcome, Answers) and ApiKey.METADATA in outcome.apis:
                is_same = self._cluster_id_at(place) in (None, metadata.cluster_id)
            return of_advertised(
                row.node_id,
                place,
                outcome,
                way_in=way_in,
                is_same_cluster=is_same,
            )

        with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
            yield from pool.map(look, rows)

    def _cluster_id_at(self, place: Place) -> str | None:
        try:
            with self._asking(place) as ask:
                return described(ask).cluster_id
        except Failure:
            return None


def tls_of(target: Target) -> ssl.SSLContext | None:
    """How the client would speak TLS, if it would."""
    from moldau.client.settings import ClientSettings
    from moldau.client.tls import client_tls
    from moldau.world.real.tls import client_context

    with one_line_errors():
        tls = client_tls(ClientSettings.parse(target.settings))
        return None if tls is None else client_context(tls)


def examined(check: str, look: Callable[[], Finding | None]) -> Iterator[Finding]:
    """One finding; that a question was not answered is one too."""
    try:
        finding = look()
    except OutOfReach:
        raise
    except Failure as error:
        finding = problem(check, error.message, "Look at the log of the broker that was asked.")
    if finding is not None:
        yield finding


def of_versions(answers: Answers) -> Finding:
    """Whether client and broker have versions of the most needed requests in common."""
    foreign = []
    for api in _NEEDED:
        lowest, highest = answers.apis.get(api, (0, -1))
        spoken = spoken_versions(api)
        if min(highest, spoken.highest) < max(lowest, spoken.lowest):
            foreign.append(api.api_name)
    if not foreign:
        return ok("versions", "Client and broker have versions of all requests in common that matter most.")
    return problem(
        "versions",
        f"Client and broker share no version of {', '.join(foreign)}.",
        "Kafka's protocol of today begins with Kafka 2.1: update whichever is older.",
    )


def described(ask: Ask) -> MetadataResponse:
    """The brokers as clients are told of them."""
    from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

    return ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), MetadataResponse)


def listeners_of_who_answers(ask: Ask, node_ids: list[int]) -> dict[int, dict[str, str]]:
    """The listeners of the broker that is asked, by its id; nothing if it does not say them.

    Nobody is told which of the brokers they speak to. But every broker describes the settings of itself only.
    """
    from moldau.wire.messages.configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    resources = [
        DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(node_id), configuration_keys=list(_LISTENER_SETTINGS)
        )
        for node_id in node_ids
    ]
    try:
        reply = ask(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    except OutOfReach:
        raise
    except Failure:
        return {}
    return {
        int(row.resource_name): advertised_listeners({entry.name: entry.value for entry in row.configs})
        for row in reply.results
        if not row.error_code
    }


def advertised_listeners(settings: Mapping[str, str | None]) -> dict[str, str]:
    """What a broker's settings say of where clients find each listener."""
    advertised, listeners, of_controllers = (settings.get(name) or "" for name in _LISTENER_SETTINGS)
    pairs = [part.strip().partition("://") for part in (advertised or listeners).split(",")]
    controllers = [name.strip() for name in of_controllers.split(",")]
    return {name: address for name, _, address in pairs if address and name not in controllers}


def feature_level(ask: Ask) -> Finding | None:
    """Which version of the metadata the cluster is at, if it says so."""
    from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    request = ApiVersionsRequest(client_software_name="moldau-doctor", client_software_version="1")
    levels = {row.name: row.max_version_level for row in ask(request, ApiVersionsResponse).finalized_features}
    level = levels.get("metadata.version")
    return None if level is None else ok("metadata version", f"The cluster is at metadata.version {level}.")


def clock_of(ask: Ask) -> Finding | None:
    """What the active controller takes the time to be."""
    from moldau.cli.cluster import described_quorum

    before = time.time() * 1000
    quorum = described_quorum(ask)
    after = time.time() * 1000
    # The leader has fetched from itself just now.
    theirs = [row.last_fetch_timestamp for row in quorum.current_voters if row.replica_id == quorum.leader_id]
    if not theirs or theirs[0] < 0:
        return None
    return of_clock(theirs[0] - (before + after) / 2, (after - before) / 2 + 1)


def creation(ask: Ask) -> Finding:
    """Whether a topic could be created."""
    from secrets import token_hex

    from moldau.model.errors import ErrorCode
    from moldau.wire.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

    topic = CreatableTopic(
        name=f"moldau-doctor-{token_hex(4)}",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[],
        configs=[],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)
    row = ask(request, CreateTopicsResponse).topics[0]
    if row.error_code == ErrorCode.NONE:
        return of_creation(None, "")
    is_known = row.error_code in ErrorCode._value2member_map_
    code = ErrorCode(row.error_code) if is_known else ErrorCode.UNKNOWN_SERVER_ERROR
    return of_creation(code.name, row.error_message or code.message)


def internal_topics(ask: Ask, brokers: list[MetadataResponseBroker]) -> Finding | None:
    """How many replicas the brokers want of the topics that they need for themselves."""
    from moldau.wire.messages.configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    resource = DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(brokers[0].node_id), configuration_keys=None
    )
    reply = ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    entries = {entry.name: entry for entry in reply.results[0].configs}
    # Moldau takes what it can get where nothing else is said; Kafka insists on its default.
    is_moldau = any(name.startswith("moldau.") for name in entries)
    factors: dict[str, int] = {
        name: int(entries[name].value or 0)
        for name in INTERNAL_TOPICS
        if name in entries and not (is_moldau and entries[name].config_source == _DEFAULT_SOURCE)
    }
    return of_internal_topics(factors, len(brokers)) if factors or entries else None


def health(ask: Ask) -> Iterator[Finding]:
    """What `moldau cluster health` looks at."""
    from moldau.cli.cluster import (
        brokers_check,
        described_cluster,
        described_quorum,
        partition_checks,
        quorum_check,
    )
    from moldau.cli.topic import every_topic

    checks = [
        brokers_check(described_cluster(ask)),
        quorum_check(described_quorum(ask)),
        *partition_checks(every_topic(ask)),
    ]
    for check in checks:
        yield (
            ok(check.name, check.detail)
            if check.ok
            else problem(check.name, check.detail, _HEALTH_FIXES[check.name])
        )


# ---------------------------------------------------------------- what it says


def show(findings: list[Finding], places: list[Place]) -> None:
    """The findings for people, with what to do below each that is not well."""
    width = max(len(finding.check) for finding in findings)
    titles = {INSTALLATION: f"This machine, {socket.gethostname()}"}
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            cluster = f"The cluster at {', '.join(map(str, places))}"
            click.echo(styled(titles.get(section, cluster), bold=True))
        mark = styled(f"{finding.status:<7}", colour=_COLOURS[finding.status], bold=finding.status != "ok")
        text = finding.detail if finding.fix is None else f"{finding.detail}\nFix: {finding.fix}"
        indent = 4 + len("problem") + width + 2
        first, *rest = wrapped(text, indent)
        click.echo(f"  {mark}  {finding.check:<{width}}  {first}")
        for line in rest:
            click.echo(" " * indent + line)


def wrapped(text: str, indent: int) -> list[str]:
    """Lines that a terminal does not break."""
    lines = text.splitlines()
    if not sys.stdout.isatty():
        return lines
    columns = max(40, shutil.get_terminal_size().columns - indent)
    return [part for line in lines for part in textwrap.wrap(line, columns, break_on_hyphens=False)]
