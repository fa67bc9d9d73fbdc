"""The process: carries out what the cores decide, over the ports of a world."""
