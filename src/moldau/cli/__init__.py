"""The `moldau` command: one module per noun, imported only when its command runs."""

from __future__ import annotations

import difflib
import errno
import importlib
import os

import click

import moldau

# Command -> the line that `moldau --help` shows for it, kept here so that help imports none of the modules.
COMMANDS = {
    "dev": "Run a broker to develop against, with nothing to set up.",
    "start": "Run a node until it is told to stop.",
    "storage": "Make the data directory of a node ready, or look at it.",
    "topic": "Create, look at, change, fill and read topics.",
    "produce": "Write records to a topic.",
    "consume": "Read records of a topic.",
    "group": "Look at groups and their lag, move them, delete them, and see why they rebalanced.",
    "cluster": "Look at the cluster: brokers, health, quorum, features, disks.",
    "config": "Look at and change the settings of topics and brokers.",
    "pipeline": "Run data pipelines on Spark: ingest, transform, join, aggregate, export.",
    "dump-log": "Show what segments, indexes and snapshots hold, and whether they are sound.",
    "bench": "Measure a cluster with work of which every byte is checked.",
    "doctor": "Find out why clients cannot use a cluster, and what to do about it.",
    "sim": "Run clusters in the simulator under seeds, or replay one seed.",
    "completion": "Print the script that lets a shell complete commands.",
    "version": "Show what is installed, and whether the compiled kernel is in use.",
}

# Kafka's own tools, with their flags and their output -> the same; a module each in `moldau.cli.kafka_tools`.
KAFKA_TOOLS = {
    "kafka-topics": "Create, list, describe, alter and delete topics.",
    "kafka-console-producer": "Write lines from stdin to a topic.",
    "kafka-console-consumer": "Print the records of topics.",
    "kafka-consumer-groups": "List, describe, reset and delete groups.",
    "kafka-configs": "Describe and alter settings of topics and brokers.",
    "kafka-get-offsets": "Print offsets of partitions.",
    "kafka-dump-log": "Print what segments, indexes and snapshots hold.",
}

INTERRUPTED = 130
# Why a file that stdout leads to may take no more.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# The id of the process that starts a command which must not outlive it, as `moldau.testing` does.
PARENT_VARIABLE = "MOLDAU_ENDS_WITH"


# In the environment of a process that a shell asks how a line could go on.
COMPLETION_VARIABLE = "_MOLDAU_COMPLETE"


class SuggestingGroup(click.Group):
    """A group that answers a mistyped command with the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was perhaps meant."""
        names = self.list_commands(ctx)
        if args[0] not in names and (near := difflib.get_close_matches(args[0], names, n=1)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group whose commands live in `moldau.cli.<name>` as `command`; it also says how the process ends."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the tables."""
        return [*COMMANDS, *KAFKA_TOOLS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        if cmd_name in COMMANDS:
            module = f"moldau.cli.{cmd_name.replace('-', '_')}"
        elif cmd_name in KAFKA_TOOLS:
            module = f"moldau.cli.kafka_tools.{cmd_name.removeprefix('kafka-').replace('-', '_')}"
        else:
            return None
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the tables of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        with formatter.section("Kafka's own tools, with their flags and their output"):
            formatter.write_dl(list(KAFKA_TOOLS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a tool of Kafka's goes by its name with `.sh` too."""
        if args[0].removesuffix(".sh") in KAFKA_TOOLS:
            args = [args[0].removesuffix(".sh"), *args[1:]]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; whoever interrupts it or stops reading its output gets no complaint."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # The reader, `head` perhaps, has all it wants.
            _drop_stdout()
            ctx.exit(0)
        except OSError as error:
            # What concerns a file or a socket has an answer elsewhere, and a file has a name.
            if error.errno not in NO_ROOM or error.filename is not None:
                raise
            _drop_stdout()
            why = os.strerror(error.errno)
            raise click.ClickException(f"What is to be printed cannot be written: {why}.") from error


def _drop_stdout() -> None:
    from moldau.cli._output import drop_stdout

    drop_stdout()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(moldau.__version__, prog_name="moldau")
def main() -> None:
    """A distributed commit log that speaks Kafka's wire protocol.

    \b
    Start here:
      moldau dev                     a broker at 127.0.0.1:9092, with nothing to set up
      moldau version                 what is installed, and how fast it can be
      moldau topic create orders     a topic on the cluster at 127.0.0.1:9092; -b says where else
      moldau produce orders hello    a record into it
      moldau consume orders          all its records; -f goes on as they come
      moldau COMMAND --help          what a command does, with examples

    Results go to stdout, everything else to stderr; -o json gives results to scripts. Exit codes: 0 done,
    1 failed, 2 wrong usage, 3 not found, 4 not allowed, 5 unreachable or too late, 130 interrupted.
    """
    # Taken out of the environment, because what this process starts has another parent.
    if parent_id := os.environ.pop(PARENT_VARIABLE, None):
        from moldau.cli._parent import end_with

        end_with(int(parent_id))


if COMPLETION_VARIABLE in os.environ:
    importlib.import_module("moldau.cli.completion")
