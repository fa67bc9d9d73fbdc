"""`python -m moldau` is the `moldau` command."""

from moldau.cli import main

main(prog_name="moldau")
