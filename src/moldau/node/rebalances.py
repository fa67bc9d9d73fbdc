"""What a coordinator remembers of the rebalances of a group, as a page of the admin port."""

from __future__ import annotations

import json

from moldau.coordinator.group.shard import GroupShard
from moldau.node.coordinators import Coordinators
from moldau.node.http import Reply

JSON = "application/json"


def rebalances_page(groups: Coordinators, group_id: str) -> Reply:
    """Why a group was assigned anew lately, the oldest first; 404 where its coordinator is another node."""
    shard = groups.shard_of(group_id)
    if not isinstance(shard, GroupShard):
        return Reply(404, f"This node is not the coordinator of {group_id!r}, or is still loading it.\n")
    document = {
        "group": group_id,
        "rebalances": [
            {
                "wall_ms": each.wall_ms,
                "epoch": each.epoch,
                "causes": [
                    {"what": cause.what, "member_id": cause.member_id, "who": cause.who}
                    for cause in each.causes
                ],
            }
            for each in shard.state.histories.of(group_id)
        ],
    }
    return Reply(200, json.dumps(document) + "\n", JSON)
