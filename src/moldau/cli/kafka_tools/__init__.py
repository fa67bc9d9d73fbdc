"""Kafka's own command line tools, by their flags and with their output, so that tutorials can be pasted."""
