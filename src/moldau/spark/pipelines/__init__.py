"""Pipelines on Spark as `moldau pipeline` runs them: what they are, what they need, how they run and stop."""
