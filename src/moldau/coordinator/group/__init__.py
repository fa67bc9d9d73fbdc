"""Groups of every kind and the offsets that they commit: what is kept in `__consumer_offsets`."""
