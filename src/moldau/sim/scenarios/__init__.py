"""The stories that a simulation can play: one module each, listed here and imported only when played."""

# Name -> where its class is. A scenario's first line of documentation is what `moldau sim --list` shows.
SCENARIOS = {
    "broker": "moldau.sim.scenarios.broker:Broker",
    "echo": "moldau.sim.scenarios.echo:Echo",
    "groups": "moldau.sim.scenarios.groups:Groups",
    "raft": "moldau.sim.scenarios.raft:Raft",
}
