"""Consumer groups whose assignment the coordinator makes (KIP-848), with or without classic members."""
