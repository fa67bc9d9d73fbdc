"""The `moldau` command: one module per noun, imported only when its command runs."""

import difflib
import importlib

import click

import moldau

# Command -> the line that `moldau --help` shows for it, kept here so that help imports none of the modules.
COMMANDS = {
    "start": "Run a node until it is told to stop.",
    "storage": "Make the data directory of a node ready, or look at it.",
    "sim": "Run clusters in the simulator under seeds, or replay one seed.",
    "version": "Show what is installed, and whether the compiled kernel is in use.",
}


class LazyGroup(click.Group):
    """A group whose commands live in `moldau.cli.<name>` as `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"moldau.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Answer a mistyped command with the nearest one."""
        if args[0] not in COMMANDS and (near := difflib.get_close_matches(args[0], COMMANDS, n=1)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(moldau.__version__, prog_name="moldau")
def main() -> None:
    """A distributed commit log that speaks Kafka's wire protocol.

    \b
    Start here:
      moldau version           what is installed, and how fast it can be
      moldau version -o json   the same for scripts; every command takes -o
      moldau COMMAND --help    what a command does, with examples

    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage.
    """
