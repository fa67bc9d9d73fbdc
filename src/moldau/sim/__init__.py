"""The test world: whole clusters on simulated time, network and disks, all of it following from one seed."""
