"""Checkpoints that are written over the last ones: a crash leaves half of both (etcd #13766)."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.log import checkpoints
from moldau.world.ports import Disk, Flush


def replace_in_place(disk: Disk, path: str, text: str, *, number: int = 0) -> Flush:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.append((text.encode(),))
    file.close()
    return Flush(files=(file,), directories=("",))


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(checkpoints, "replace_text", replace_in_place):
        yield
