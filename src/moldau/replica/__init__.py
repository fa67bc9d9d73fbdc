"""One partition across brokers: who leads it, and what of it is committed."""
