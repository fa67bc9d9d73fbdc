"""Every client plays every scenario with the broker, and the page about clients knows them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kafka_jars
import pytest
from clients.broker_process import BrokerProcess, product_under_test
from clients.drivers import DRIVERS, REFERENCE, make_driver
from clients.drivers.driver import Driver, ToolchainMissing, Unsupported
from clients.scenarios import SCENARIOS, Scenario, Scene

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker under test, one for all scenarios."""
    try:
        process = BrokerProcess(product_under_test(), tmp_path_factory.mktemp("broker"))
    except kafka_jars.Unavailable as why:
        pytest.skip(str(why))
    yield process
    process.stop()


@pytest.fixture(scope="module")
def reference(broker: BrokerProcess) -> Iterator[Driver]:
    driver = make_driver(REFERENCE, broker.address)
    yield driver
    driver.close()


@pytest.fixture(scope="module")
def client(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """A client, started once for all its scenarios."""
    try:
        driver = make_driver(request.param, broker.address)
    except ToolchainMissing as why:
        pytest.skip(f"{request.param}: {why}")
    yield driver
    driver.close()


@pytest.mark.parametrize("client", DRIVERS, indirect=True)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_client_finds_what_kafka_promises(
    broker: BrokerProcess, client: Driver, reference: Driver, scenario: Scenario
) -> None:
    try:
        scenario.play(Scene(client, reference))
    except Unsupported as why:
        pytest.skip(f"not for this client: {why}")
    except Exception as failed:
        failed.add_note(f"The end of the broker's log:\n{broker.log_end()}")
        raise


def test_the_page_about_clients_has_every_scenario_and_every_client() -> None:
    page = PAGE.read_text()
    assert [scenario.name for scenario in SCENARIOS if f"| {scenario.name} |" not in page] == []
    assert [name for name in DRIVERS if f"| {name} |" not in page] == []
