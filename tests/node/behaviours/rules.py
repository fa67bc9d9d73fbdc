"""What clients depend on in a broker, rule by rule: what this broker shows, and what it cannot show yet.

The numbers are those of the project's list of behaviours.
"""

RULES = range(1, 83)

APPLICABLE = {
    # Connections
    1: "requests take effect, and are answered, in the order in which they came",
    2: "a request that waits holds the line of its connection",
    3: "headers by version, and the header of ApiVersions' response is always the oldest",
    4: "ApiVersions in an unknown version is answered in version 0, with the versions that there are",
    5: "which features ApiVersions tells, and that it tells their epoch",
    6: "what is not served or cannot be read ends the connection",
    7: "acks=0 is never answered, and an error then ends the connection",
    8: "Produce is advertised from version 0 on",
    9: "JoinGroup is advertised from version 0 on",
    10: "a throttled client is answered at once, and then not heard for a while",
    11: "too large requests and idle connections are closed",
    # Metadata
    12: "any broker takes what the controller decides",
    13: "all topics or none, the cluster's id, and leader epochs that never fall",
    14: "topics are created by asking for them only if both sides want it",
    15: "topic ids stay over restarts, are new for a new topic, and stand for the name",
    16: "who does not lead says who does",
    # Produce
    17: "exactly one batch that is sound in every field",
    18: "only the offset and the leader epoch are stamped; log append time changes more, and the CRC with it",
    19: "batches and segments have sizes that no batch exceeds",
    20: "a compacted topic takes no record without a key, and says which record it was",
    21: "zstd only for clients whose version knows it",
    22: "acks=all needs enough replicas, and waits for the commit",
    23: "how far timestamps may lie in the past and in the future",
    # Idempotence
    24: "the last five batches of a producer are recognised",
    25: "sequences have no gaps, epochs never fall, and an unknown producer may begin anywhere",
    26: "a restart and compaction forget no producer's sequences",
    27: "every idempotent producer gets an id of its own, and may raise its epoch itself",
    # Coordinators
    29: "a group's coordinator is found by the hash of its name, as Java hashes text",
    # Fetch
    39: "a fetch from the middle of a batch gets the whole batch",
    40: "the first batch comes whatever its size, later partitions only as long as there is room",
    41: "a fetch waits for enough bytes, or until its time is over",
    42: "which offsets are out of range",
    43: "fetch sessions tell only what is new",
    44: "leader epochs of clients that are too old, too new, or diverged",
    46: "a session is told of a topic that is gone",
    # Offsets
    47: "offsets by time, and by the negative numbers that stand for something else",
    48: "a new leader tells no end of the log before it is sure of it",
    49: "where leader epochs ended",
    # Groups
    50: "a new member is given an id, and counts until it comes with it or is late",
    51: "an empty group waits for more members before it begins",
    52: "all join or are left behind, one leads, and the protocol is voted for",
    53: "only a leader or a change makes a stable group rebalance",
    54: "what a heartbeat is told in every state",
    55: "members wait for the leader's assignment, and those without one get empty bytes",
    56: "who may commit offsets when, and the note that comes with them",
    57: "what members tell each other is passed on untouched",
    58: "a static member comes back without a rebalance, and fences what is left of it",
    59: "groups of all types share one namespace, and are listed, described and deleted there",
    60: "which offsets expire, and when",
    61: "offsets that were never committed are no error; all of them, and those of several groups",
    # Groups whose assignment the broker makes
    62: "what a heartbeat says and is told: joining, leaving for good or a while, and what has not changed",
    63: "a partition has one owner at a time, who keeps it until he says that he has given it up",
    64: "which epochs of members are fenced, accepted once more, or too old to commit with",
    65: "topics by expression, the assignors, and the times that the broker prescribes",
    66: "classic members and those of the new kind share a group, which changes its kind with them",
    # Brokers
    73: "brokers register and send heartbeats, and clients see none that is fenced",
    # Logs
    75: "what compaction keeps, and what it leaves alone",
    76: "tombstones stay for a while",
    77: "retention by time and by size, also of what is compacted",
    78: "records are deleted up to an offset, for good",
    79: "a fetch in a hole gets what comes after it",
    # Settings and administration
    80: "every setting is described, and changed by all four operations",
    81: "topics and partitions: defaults, validation, and an error for each topic",
    82: "quotas by user and client, and which of them counts",
}

NOT_YET = {
    "transactions": (28, *range(30, 39)),
    "several brokers": (45, *range(69, 73)),
    "share groups": (67, 68),
    # Of a quorum of several; tests of raft/ and its simulation stand for it.
    "several controllers": (74,),
}
