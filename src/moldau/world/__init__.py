"""The door: everything a node needs from the machine, as ports, and the real machine behind them."""
