"""What goes wrong, and when: a nemesis draws faults from the kinds that its seed has turned on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from moldau.sim.cluster import Cluster, SimNode
from moldau.sim.disk import Survives
from moldau.sim.network import Weather
from moldau.sim.randomness import Seeded

Undo = Callable[[], None]


class Nemesis:
    """Hurts a cluster until it is told to heal it."""

    def __init__(
        self,
        cluster: Cluster,
        kinds: Sequence[str],
        *,
        victims: Sequence[str],
        pause_ms: tuple[int, int] = (50, 3_000),
        down_max: int | None = None,
    ) -> None:
        self.cluster = cluster
        self.randomness = cluster.randomness.fork("nemesis")
        # Each seed turns on a random part of what can go wrong, so that rare pairs of faults meet.
        self.kinds = self.randomness.some(kinds)
        self.victims = [cluster.nodes[name] for name in victims]
        self.down_max = len(victims) if down_max is None else down_max
        self._pause_ms = pause_ms
        self._is_active = False
        self._undos: list[Undo] = []
        for node in self.victims:
            node.on_ended = self._operator_of(node)

    def start(self) -> None:
        """Begin; the first fault comes after a pause."""
        self.cluster.loop.note("faults on", ", ".join(self.kinds) or "none", place="nemesis")
        self._is_active = bool(self.kinds)
        self._next()

    def heal(self, core: Sequence[str] | None = None) -> None:
        """Undo every fault and start all nodes again, or only those of `core`; the others stay down."""
        self._is_active = False
        for undo in self._undos:
            undo()
        self._undos.clear()
        self.cluster.network.heal()
        self.cluster.network.weather = Weather()
        for node in self.victims:
            node.disk.forget_faults()
            if core is None or node.name in core:
                node.resume()
                self.revive(node)
            else:
                node.on_ended = None
                if node.is_alive:
                    node.kill()
        self.cluster.loop.note("healed", ", ".join(core) if core is not None else "all", place="nemesis")

    def revive(self, node: SimNode) -> None:
        """Start a node again, unless that has happened."""
        if not node.is_alive:
            node.start()

    def later(self, delay_ms: int, action: Undo) -> None:
        """Do something in the middle of the faults; once they are over it is not done any more."""

        def act() -> None:
            if self._is_active:
                action()

        self.cluster.loop.call_outside(delay_ms * 1000, act)

    def until(self, delay_ms: int, undo: Undo) -> None:
        """Undo a fault after a while, or when the faults end, whichever comes first."""
        self._undos.append(undo)

        def act() -> None:
            if undo in self._undos:
                self._undos.remove(undo)
                undo()

        self.cluster.loop.call_outside(delay_ms * 1000, act)

    def may_take_down(self, node: SimNode) -> bool:
        """Whether this node runs, and enough others would go on if it did not."""
        down = sum(not victim.is_alive for victim in self.victims)
        return node.is_alive and down < self.down_max

    def _next(self) -> None:
        self.later(self.randomness.between(*self._pause_ms), self._strike)

    def _strike(self) -> None:
        kind = self.randomness.choice(self.kinds)
        FAULTS[kind](self, self.randomness.choice(self.victims), self.randomness)
        self._next()

    def _operator_of(self, node: SimNode) -> Callable[[BaseException | None], None]:
        """Someone who starts a node again that ended by itself, say over a failed disk."""

        def on_ended(error: BaseException | None) -> None:
            delay_us = self.randomness.between(100_000, 2_000_000)
            self.cluster.loop.call_outside(delay_us, self.revive, node)

        return on_ended


def kill(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """kill -9, and a restart."""
    if nemesis.may_take_down(node):
        node.kill()
        nemesis.later(chance.between(1, 3_000), lambda: nemesis.revive(node))


def power_cut(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """A power cut, and a reboot."""
    if nemesis.may_take_down(node):
        node.power_cut(chance.choice((Survives.SOME, Survives.SOME, Survives.NOTHING)))
        nemesis.later(chance.between(1, 3_000), lambda: nemesis.revive(node))


def pause(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """A process that stands still for a while."""
    if node.is_alive and not node.is_paused:
        node.pause()
        nemesis.until(chance.between(1, 5_000), node.resume)


def isolate(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """A node cut off from all others."""
    _cut(nemesis, [(a, b) for a, b in _pairs(nemesis, node)], chance)


def one_way_cut(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """Links that carry nothing in one direction."""
    _cut(nemesis, chance.some(_pairs(nemesis, node)), chance)


def reset(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """Connections that break."""
    other = chance.choice(list(nemesis.cluster.nodes))
    count = nemesis.cluster.network.reset(node.name, other)
    nemesis.cluster.loop.note("reset", f"{count} connections with {other}", place=node.name)


def lose_responses(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """Requests that are carried out and never answered."""
    client = chance.choice(list(nemesis.cluster.nodes))
    nemesis.cluster.loop.note("responses lost", f"to {client}", place=node.name)
    nemesis.cluster.network.lose_responses(
        client=client, server=node.name, reset_after_ms=chance.between(1, 1_000)
    )


def slow_network(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """Delays of up to half a second, and very small pieces."""
    network = nemesis.cluster.network
    network.weather = Weather(delay_us=(1_000, chance.between(2_000, 500_000)), fragment_bytes=(1, 200))
    nemesis.cluster.loop.note("slow network", f"up to {network.weather.delay_us[1]} us", place="nemesis")

    def clear_up() -> None:
        network.weather = Weather()

    nemesis.until(chance.between(100, 5_000), clear_up)


def slow_disk(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """Flushes that take up to two seconds."""
    normal_ms, node.disk.flush_ms = node.disk.flush_ms, (50, chance.between(50, 2_000))
    nemesis.cluster.loop.note("slow disk", f"up to {node.disk.flush_ms[1]} ms", place=node.name)

    def speed_up() -> None:
        node.disk.flush_ms = normal_ms

    if normal_ms[1] < 50:
        nemesis.until(chance.between(100, 5_000), speed_up)


def clock_jump(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """A calendar that is set forward or back by up to a day."""
    node.move_clock(chance.between(-86_400_000, 86_400_000))


def disk_full(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """A disk with little room left."""
    normal = node.disk.capacity_bytes
    node.disk.capacity_bytes = normal - node.disk.free_bytes() + chance.below(4_096)
    nemesis.cluster.loop.note("disk full", place=node.name)

    def make_room() -> None:
        node.disk.capacity_bytes = 1 << 40

    nemesis.until(chance.between(100, 5_000), make_room)


def write_error(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """A write that fails with EIO or ENOSPC."""
    node.disk.fail("write", code=chance.choice((errno.EIO, errno.ENOSPC)))
    nemesis.cluster.loop.note("write error ahead", place=node.name)


def fsync_error(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """A flush that fails and takes its pages along."""
    node.disk.fail("fsync")
    nemesis.cluster.loop.note("fsync error ahead", place=node.name)


def bit_flip(nemesis: Nemesis, node: SimNode, chance: Seeded) -> None:
    """A bit that rots in some file."""
    paths = [path for path in node.disk.paths() if not path.endswith(".lock")]
    if not paths or not node.is_alive:
        return
    path = chance.choice(paths)
    size = node.disk.open(path).size()
    if size:
        position = chance.below(size)
        node.disk.flip_bit(path, position, bit=chance.below(8))
        nemesis.cluster.loop.note("bit flipped", f"{path} at {position}", place=node.name)


FAULTS: dict[str, Callable[[Nemesis, SimNode, Seeded], None]] = {
    "kill": kill,
    "power-cut": power_cut,
    "pause": pause,
    "isolate": isolate,
    "one-way-cut": one_way_cut,
    "reset": reset,
    "lose-responses": lose_responses,
    "slow-network": slow_network,
    "slow-disk": slow_disk,
    "clock-jump": clock_jump,
    "disk-full": disk_full,
    "write-error": write_error,
    "fsync-error": fsync_error,
    "bit-flip": bit_flip,
}

# What a node must bear without replicas; rot needs a second copy to be repaired from.
ALL_BUT_ROT = tuple(kind for kind in FAULTS if kind != "bit-flip")


def _pairs(nemesis: Nemesis, node: SimNode) -> list[tuple[str, str]]:
    others = [name for name in nemesis.cluster.nodes if name != node.name]
    return [pair for other in others for pair in ((node.name, other), (other, node.name))]


def _cut(nemesis: Nemesis, pairs: Sequence[tuple[str, str]], chance: Seeded) -> None:
    network = nemesis.cluster.network
    for source, target in pairs:
        network.cut(source, target)
    shown = ", ".join(f"{source} -> {target}" for source, target in pairs)
    nemesis.cluster.loop.note("cut", shown, place="nemesis")

    def mend() -> None:
        for source, target in pairs:
            network.heal(source, target)
        nemesis.cluster.loop.note("mended", shown, place="nemesis")

    nemesis.until(chance.between(10, 8_000), mend)
