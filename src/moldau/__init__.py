"""A distributed commit log that speaks Kafka's wire protocol."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.testing.clusters import cluster

__version__ = "0.1.0"

__all__ = ["__version__", "cluster"]


def __getattr__(name: str) -> object:
    # Every process imports this module, and few start a cluster.
    if name == "cluster":
        from moldau.testing.clusters import cluster

        return cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
