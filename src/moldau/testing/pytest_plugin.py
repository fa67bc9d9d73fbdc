"""The fixtures that come with Moldau: a cluster for all tests of a process, and a new topic for each test."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from secrets import token_hex
from typing import Final

import pytest

from moldau.testing.broker import BrokerFailed
from moldau.testing.clusters import Cluster, SettingValue, cluster

# A topic's name has at most 249.
_NAME_LETTERS_MAX: Final = 150

_CLUSTER: Final = pytest.StashKey[Cluster]()


@pytest.fixture(scope="session")
def moldau_settings() -> Mapping[str, SettingValue]:
    """Settings of the brokers, as in server.properties; for a conftest.py to override."""
    return {}


@pytest.fixture(scope="session")
def moldau_cluster(
    moldau_settings: Mapping[str, SettingValue], request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    """A cluster of one broker for all tests of this process; each worker of pytest-xdist has its own."""
    with cluster(settings=moldau_settings) as running:
        request.session.stash[_CLUSTER] = running
        yield running
        del request.session.stash[_CLUSTER]


@pytest.fixture
def moldau_topic(moldau_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with one partition, which goes with the test."""
    letters = (letter if letter.isascii() and letter.isalnum() else "-" for letter in request.node.name)
    name = f"{''.join(letters)[:_NAME_LETTERS_MAX]}-{token_hex(4)}"
    yield moldau_cluster.topic(name)
    moldau_cluster.delete_topic(name)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Undo what a test did to the brokers, before its fixtures end; one that failed fails the test."""
    running = _cluster_of(item)
    failure = None
    if running is not None:
        try:
            running.check()
        except BrokerFailed as error:
            failure = error
        running.heal()
    yield
    # Only now, because whoever raises before the fixtures have ended keeps them from it.
    if failure is not None:
        raise failure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a test that failed goes what its brokers have logged."""
    report = yield
    running = _cluster_of(item)
    if report.failed and running is not None:
        for broker_id in running.broker_ids:
            report.sections.append((f"Log of Moldau's broker {broker_id}", running.log_end(broker_id)))
    return report


def _cluster_of(item: pytest.Item) -> Cluster | None:
    """The cluster of the session, if it runs and the test has asked for it."""
    is_asked_for = moldau_cluster.__name__ in getattr(item, "fixturenames", ())
    return item.session.stash.get(_CLUSTER, None) if is_asked_for else None
