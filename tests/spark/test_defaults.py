"""Options that the environment has for queries which leave them out."""

import json

import pytest

from moldau.spark.datasource import MoldauDataSource
from moldau.spark.options import BOOTSTRAP_SERVERS, DEFAULTS_VARIABLE


def test_what_a_query_says_itself_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"subscribe": "lines", "kafka.bootstrap.servers": "own:1"}
    assert MoldauDataSource(dict(given)).options == given
    defaults = {BOOTSTRAP_SERVERS: "default:1", "kafka.fetch.min.bytes": "2"}
    monkeypatch.setenv(DEFAULTS_VARIABLE, json.dumps(defaults))
    assert MoldauDataSource({"subscribe": "lines"}).options == {"subscribe": "lines", **defaults}
    assert MoldauDataSource({"KAFKA.bootstrap.servers": "own:1"}).options == {
        "KAFKA.bootstrap.servers": "own:1",
        "kafka.fetch.min.bytes": "2",
    }
