"""Classic groups: members meet at a barrier, one of them assigns, and the coordinator passes that on."""
