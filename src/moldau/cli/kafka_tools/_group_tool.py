"""What all of `kafka-consumer-groups` needs: how it fails, which groups it means, what it prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._errors import Failure, OutOfReach
from moldau.cli.kafka_tools._tool import FAILED, KafkaTool

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.groups import GroupListing
    from moldau.model.errors import ErrorCode
    from moldau.model.ids import TopicPartition

# Kafka prints the classes of Java that stand for errors, and what they say.
_EXCEPTIONS: Final = {
    "GROUP_ID_NOT_FOUND": ("GroupIdNotFoundException", "The group id does not exist."),
    "NON_EMPTY_GROUP": ("GroupNotEmptyException", "The group is not empty."),
    "GROUP_SUBSCRIBED_TO_TOPIC": (
        "GroupSubscribedToTopicException",
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "UnknownTopicOrPartitionException",
        "This server does not host this topic-partition.",
    ),
    "GROUP_AUTHORIZATION_FAILED": ("GroupAuthorizationException", "Group authorization failed."),
    "TOPIC_AUTHORIZATION_FAILED": ("TopicAuthorizationException", "Topic authorization failed."),
}


class GroupTool(KafkaTool):
    """Kafka's prints to stdout what stands in its way, and calls it a success all the same."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the tool."""
        try:
            return click.Command.invoke(self, ctx)
        except click.UsageError as error:
            error.show()
            ctx.exit(FAILED)
        except OutOfReach as error:
            error.show()
            ctx.exit(FAILED)
        except Failure as error:
            print_error(f"Executing consumer group command failed due to {error.reason}")
            return None


@dataclass(frozen=True, slots=True)
class Scope:
    """Which groups, and which of their partitions."""

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    is_all_groups: bool
    is_all_topics: bool

    async def names(self, client: Client) -> list[str]:
        """The groups by name."""
        if self.is_all_groups:
            return [group.group_id for group in await client.admin.list_groups() if is_of_consumers(group)]
        return list(self.groups)


async def partitions_named(client: Client, topics: Iterable[str]) -> list[TopicPartition]:
    """`orders` is all its partitions, `orders:0,2` two of them."""
    from moldau.client.offsets import place_of

    places: list[TopicPartition] = []
    for text in topics:
        topic, colon, indexes = text.partition(":")
        if not colon:
            views = (await client.admin.describe_topics(topic))[topic].partitions
            places += [view.place for view in views.values()]
            continue
        for index in indexes.split(","):
            if not index.isascii() or not index.isdigit():
                raise click.UsageError(f"Invalid partition '{index}' specified in topic arg '{text}''")
            places.append(place_of((topic, int(index))))
    return places


def is_of_consumers(group: GroupListing) -> bool:
    """Whether a group is one that the tool is about."""
    return group.protocol_type in ("consumer", "")


def print_error(text: str) -> None:
    """As Kafka does, on stdout."""
    click.echo(f"\nError: {text}")


def exception(code: ErrorCode) -> tuple[str, str]:
    """What Java calls an error, and what it says."""
    name, sentence = _EXCEPTIONS.get(code.name, ("ApiException", code.message))
    return f"org.apache.kafka.common.errors.{name}", sentence


def java(code: ErrorCode) -> str:
    """Both in a line."""
    return ": ".join(exception(code))


def print_rows(rows: list[list[str]], widths: list[int]) -> None:
    """A table below an empty line; the last column is as wide as it is."""
    click.echo()
    for *cells, last in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        click.echo(" ".join([*padded, last]))
