"""Measuring a broker from outside: prepared work, what it used, and figures with their spread."""
