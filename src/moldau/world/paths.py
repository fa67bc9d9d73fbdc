"""Paths inside a data directory: relative to it, never leading out of it; both worlds share this."""

from __future__ import annotations


def parts_of(path: str) -> tuple[str, ...]:
    """The names in a path; "" is the data directory itself."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts or path.startswith("/"):
        raise ValueError(f"{path} leads out of the data directory")
    return parts


def directory_of(path: str) -> str:
    """The directory that a path is in."""
    return path.rpartition("/")[0]
