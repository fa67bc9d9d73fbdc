"""The same work by the same client, in turns, on Moldau, on Apache Kafka and on bare sockets."""
