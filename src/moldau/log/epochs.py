"""Which leader epoch wrote which part of a log, and the checkpoint file that remembers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moldau.model.errors import MalformedMessage

FILE_NAME: Final = "leader-epoch-checkpoint"
UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochStart(NamedTuple):
    """An epoch and the first offset that its leader could write."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """Where an epoch ends: the largest epoch known up to it, and the offset after that one."""

    epoch: int
    end_offset: int


UNDEFINED_END: Final = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochs:
    """The epochs of one log; both epochs and start offsets rise strictly."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts: list[EpochStart] = []
        self.is_changed = False
        for start in starts:
            self.assign(epoch=start.epoch, start_offset=start.start_offset)
        self.is_changed = False

    def __iter__(self) -> Iterator[EpochStart]:
        return iter(self._starts)

    @property
    def latest(self) -> int | None:
        """The epoch that is being written; None in a log that nobody has led yet."""
        return self._starts[-1].epoch if self._starts else None

    def assign(self, *, epoch: int, start_offset: int) -> None:
        """Note that `epoch` writes from `start_offset` on; what contradicts that gives way."""
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        starts = self._starts
        if starts and starts[-1].epoch == epoch and starts[-1].start_offset <= start_offset:
            return
        while starts and (starts[-1].epoch >= epoch or starts[-1].start_offset >= start_offset):
            starts.pop()
        starts.append(EpochStart(epoch, start_offset))
        self.is_changed = True

    def end_of(self, epoch: int, *, log_end: int) -> EpochEnd:
        """Where the largest epoch that is at most `epoch` ends (KIP-279); undefined for one of the future."""
        if epoch == UNDEFINED_EPOCH or not self._starts or epoch > self._starts[-1].epoch:
            return UNDEFINED_END
        if epoch == self._starts[-1].epoch:
            return EpochEnd(epoch, log_end)
        higher = next(number for number, start in enumerate(self._starts) if start.epoch > epoch)
        # An epoch from before the log's first one ended where that one began.
        known = self._starts[higher - 1].epoch if higher else epoch
        return EpochEnd(known, self._starts[higher].start_offset)

    def epoch_at(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None if it was before all that are known."""
        return next((start.epoch for start in reversed(self._starts) if start.start_offset <= offset), None)

    def truncate_end(self, offset: int) -> None:
        """Forget the epochs that start at `offset` or later."""
        while self._starts and self._starts[-1].start_offset >= offset:
            self._starts.pop()
            self.is_changed = True

    def truncate_start(self, offset: int) -> None:
        """Forget what was before `offset`; the epoch that wrote it starts there from now on."""
        gone = [start for start in self._starts if start.start_offset <= offset]
        if (gone and gone[-1].start_offset < offset) or len(gone) > 1:
            self._starts[: len(gone)] = [EpochStart(gone[-1].epoch, offset)]
            self.is_changed = True

    def clear(self) -> None:
        """Forget everything."""
        self.is_changed = self.is_changed or bool(self._starts)
        self._starts.clear()

    def to_text(self) -> str:
        """The checkpoint file's contents."""
        lines = ["0", str(len(self._starts)), *(f"{epoch} {start}" for epoch, start in self._starts)]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> LeaderEpochs:
        """What a checkpoint file says; MalformedMessage if it is none."""
        lines = text.split()
        try:
            version, count, *numbers = (int(line) for line in lines)
        except ValueError as error:
            raise MalformedMessage(f"{FILE_NAME}: {error}") from None
        if version != 0 or len(numbers) != 2 * count:
            raise MalformedMessage(f"{FILE_NAME}: version {version}, {count} entries announced")
        return cls(EpochStart(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True))
