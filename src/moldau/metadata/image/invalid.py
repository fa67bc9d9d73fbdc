"""The error for metadata that makes no sense."""


class InvalidMetadata(Exception):
    """A record that does not fit what is known: nothing is guessed and nothing is dropped, the node stops."""
