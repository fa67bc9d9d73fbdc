"""`python -m moldau` is the `moldau` command."""

import sys


def run() -> None:
    """Run the command; who interrupts it while it is still being loaded gets no complaint either."""
    try:
        from moldau.cli import main

        main(prog_name="moldau")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
