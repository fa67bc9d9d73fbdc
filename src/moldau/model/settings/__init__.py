"""Every setting of Kafka 4.3: what it is, whether Moldau honours it, and which value holds where."""
