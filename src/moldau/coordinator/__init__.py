"""State kept in a log: groups, transactions and share groups, on one shard protocol."""
