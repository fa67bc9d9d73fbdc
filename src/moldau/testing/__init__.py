"""Clusters of real brokers for the tests of applications, each broker in a process of its own.

    with moldau.cluster() as cluster:
        topic = cluster.topic(partitions=3)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})

With pytest there is nothing to import: `moldau_cluster` and `moldau_topic` are fixtures that it knows.
"""

from moldau.testing.broker import BrokerFailed
from moldau.testing.clusters import AsyncCluster, Cluster, cluster

__all__ = ["AsyncCluster", "BrokerFailed", "Cluster", "cluster"]
