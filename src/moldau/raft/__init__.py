"""Agreement: who leads the metadata quorum, and which records of its log are committed. Pure."""
