"""What clients are told about the cluster: pure functions from a view to the bodies of replies."""
