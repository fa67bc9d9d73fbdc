"""What a node answers: one module for each family of requests, and one table of all."""
