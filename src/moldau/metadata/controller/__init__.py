"""Who decides what becomes of the cluster: one module per kind of request, and the state that they share."""
