"""The language: Kafka's protocol as typed messages, record batches and frames, with no input or output."""
