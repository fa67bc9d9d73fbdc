"""A recovery that cuts a log at its first bad batch, wherever that is, and deletes what follows (Kafka)."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.log import recovery
from moldau.log.config import LogConfig
from moldau.log.recovery import Opened
from moldau.world.ports import Disk

verify_tail = recovery._verify_tail


def verify_and_cut(disk: Disk, path: str, opened: Opened, config: LogConfig, recovery_point: int) -> None:
    verify_tail(disk, path, opened, config, 0)


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(recovery, "_verify_tail", verify_and_cut):
        yield
