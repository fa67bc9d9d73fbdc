"""Pipelines on Spark as the command line runs them: what they are, what they need, how they run, stop and go on."""
