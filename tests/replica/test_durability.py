"""When an appended record counts as committed: once it is flushed, or at once, as the topic chooses."""

import pytest
from log.support import NOW_MS, batch

from moldau.log.log import Log
from moldau.metadata.image import Image
from moldau.metadata.view import ClusterView
from moldau.model.ids import ClusterId, LeaderEpoch, NodeId
from moldau.replica.leader import Isolation, Leader, PartitionConfig
from moldau.sim.disk import SimDisk
from moldau.sim.randomness import Seeded

ME = NodeId(1)


def leader_of(**topic: str) -> Leader:
    view = ClusterView(Image(), ClusterId("c"), ME, {})
    texts = {name.replace("_", "."): text for name, text in topic.items()}
    config = PartitionConfig.of(view.topic_settings(texts), view.broker_settings, isr_size_min=1)
    log = Log.open(SimDisk(Seeded(1)), "orders-0", config.log, recovery_point=0, is_clean=True, now_ms=NOW_MS)
    return Leader(log, config, me=ME, epoch=LeaderEpoch(0), isr=[ME])


def flush(leader: Leader) -> None:
    work = leader.log.begin_flush()
    leader.log.disk.flush_blocking(work.flush)
    leader.log.flushed(work)


@pytest.mark.honours("moldau.durability")
def test_a_record_is_committed_once_it_is_flushed() -> None:
    leader = leader_of()
    leader.append(batch(3), needs_all=True, now_ms=NOW_MS)
    assert not leader.advance_high_watermark()
    assert leader.read(0, bytes_max=1000, isolation=Isolation.READ_UNCOMMITTED).records is None
    flush(leader)
    assert leader.advance_high_watermark()
    assert leader.read(0, bytes_max=1000, isolation=Isolation.READ_UNCOMMITTED).end_offset == 3


@pytest.mark.honours("moldau.durability")
def test_a_topic_may_commit_what_is_in_memory_as_kafka_does() -> None:
    leader = leader_of(moldau_durability="replicated")
    leader.append(batch(3), needs_all=True, now_ms=NOW_MS)
    assert leader.advance_high_watermark()
    assert leader.log.flushed_end_offset == 0
    assert leader.log.high_watermark == 3
