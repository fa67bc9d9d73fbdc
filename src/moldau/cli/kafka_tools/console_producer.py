"""`kafka-console-producer`: write lines from stdin to a topic."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import parse_pairs, run
from moldau.cli._errors import Failure
from moldau.cli._records import BadRecord, NewRecord
from moldau.cli._stdin import line_batches
from moldau.cli._writing import write
from moldau.cli.kafka_tools._tool import (
    KafkaTool,
    connection_options,
    file_option,
    is_true,
    read_properties,
    target_of,
)

if TYPE_CHECKING:
    from moldau.client import Client

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LINE_READER: Final = "org.apache.kafka.tools.LineMessageReader"
# Flags of the producer -> the settings that they stand for.
_FLAGS: Final = {
    "max_partition_memory_bytes": "batch.size",
    "batch_size": "batch.size",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "timeout": "linger.ms",
    "request_required_acks": "acks",
    "request_timeout_ms": "request.timeout.ms",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "max_block_ms": "max.block.ms",
    "max_memory_bytes": "buffer.memory",
}


@click.command("kafka-console-producer", cls=KafkaTool)
@click.option("--topic", required=True, metavar="NAME", help="The topic to write to.")
@click.option("--sync", is_flag=True, help="Write one record after the other.")
@click.option(
    "--compression-codec",
    type=click.Choice(CODECS),
    is_flag=False,
    flag_value="gzip",
    help="How to compress; gzip if no codec is named.",
)
@click.option("--request-required-acks", type=click.Choice(["all", "-1", "0", "1"]), help="acks")
@click.option("--batch-size", type=int, help="batch.size")
@click.option("--timeout", type=int, help="linger.ms")
@click.option("--request-timeout-ms", type=int, help="request.timeout.ms")
@click.option("--message-send-max-retries", type=int, help="retries")
@click.option("--retry-backoff-ms", type=int, help="retry.backoff.ms")
@click.option("--max-block-ms", type=int, help="max.block.ms")
@click.option("--max-memory-bytes", type=int, help="buffer.memory")
@click.option("--max-partition-memory-bytes", type=int, help="batch.size, by its old name")
@click.option("--metadata-expiry-ms", type=int, help="metadata.max.age.ms")
@click.option("--socket-buffer-size", type=int, help="Taken without effect.")
@click.option("--line-reader", metavar="CLASS", default=LINE_READER, show_default=True, help="No other.")
@click.option(
    "--reader-property",
    "--property",
    "reader_properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="parse.key, key.separator, parse.headers, headers.delimiter, headers.separator,"
    " headers.key.separator, null.marker, ignore.error.",
)
@file_option("--reader-config", help="A file of the same.")
@connection_options(
    "--command-config", "--producer.config", property_names=("--command-property", "--producer-property")
)
@click.pass_context
def command(
    ctx: click.Context,
    topic: str,
    sync: bool,
    compression_codec: str | None,
    request_required_acks: str | None,
    batch_size: int | None,
    timeout: int | None,
    request_timeout_ms: int | None,
    message_send_max_retries: int | None,
    retry_backoff_ms: int | None,
    max_block_ms: int | None,
    max_memory_bytes: int | None,
    max_partition_memory_bytes: int | None,
    metadata_expiry_ms: int | None,
    socket_buffer_size: int | None,
    line_reader: str,
    reader_config: Path | None,
    reader_properties: tuple[str, ...],
    bootstrap: str,
    config_file: Path | None,
    properties: tuple[str, ...],
) -> None:
    """Write lines from stdin to a topic.

    \b
    Examples:
      moldau kafka-console-producer --bootstrap-server localhost:9092 --topic orders
      moldau kafka-console-producer --topic orders --property parse.key=true --property key.separator=:
    """
    if line_reader != LINE_READER:
        raise Failure(f"There is no reader {line_reader}; there is {LINE_READER}.")
    reader = LineReader.of(read_properties(reader_config) | parse_pairs(reader_properties))
    target = target_of(bootstrap, config_file, properties)
    settings = {name: str(ctx.params[flag]) for flag, name in _FLAGS.items() if ctx.params[flag] is not None}
    if compression_codec is not None:
        settings["compression.type"] = compression_codec
    if settings.get("acks", "all") in ("0", "1"):
        settings["enable.idempotence"] = "false"

    async def batches() -> AsyncIterator[list[NewRecord]]:
        number = 0
        async for lines in line_batches():
            if not lines:
                prompt()
                yield []
            for line in lines:
                number += 1
                yield [reader.record(line.removesuffix(b"\r"), number)]
                if sync:
                    yield []

    async def produce(client: Client) -> None:
        await write(
            client,
            topic,
            batches(),
            settings={name.replace(".", "_"): value for name, value in settings.items()},
            on_delivered=lambda delivered: None,
        )

    run(target, produce)


def prompt() -> None:
    """Show a person that it is their turn."""
    if sys.stdin.isatty():
        click.echo(">", nl=False)


@dataclass(frozen=True, slots=True)
class LineReader:
    """How a line is a record: headers and key come before the value, each with a separator behind it."""

    has_key: bool
    has_headers: bool
    key_separator: bytes
    headers_delimiter: bytes
    headers_separator: bytes
    header_key_separator: bytes
    null_marker: bytes | None
    ignores_errors: bool

    @classmethod
    def of(cls, properties: dict[str, str]) -> LineReader:
        """The reader that Kafka's properties ask for."""
        marker = properties.get("null.marker")
        return cls(
            has_key=is_true(properties, "parse.key"),
            has_headers=is_true(properties, "parse.headers"),
            key_separator=properties.get("key.separator", "\t").encode(),
            headers_delimiter=properties.get("headers.delimiter", "\t").encode(),
            headers_separator=properties.get("headers.separator", ",").encode(),
            header_key_separator=properties.get("headers.key.separator", ":").encode(),
            null_marker=None if marker is None else marker.encode(),
            ignores_errors=is_true(properties, "ignore.error"),
        )

    def record(self, line: bytes, number: int) -> NewRecord:
        """The record of a line."""
        rest = line
        try:
            headers, key = b"", None
            if self.has_headers:
                headers, rest = self._cut(rest, self.headers_delimiter, "headers delimiter", number)
            if self.has_key:
                text, rest = self._cut(rest, self.key_separator, "key separator", number)
                key = self._data(text)
            pairs = self._headers(headers, number) if self.has_headers else ()
        except BadRecord as error:
            if self.ignores_errors:
                return NewRecord(self._data(rest))
            raise Failure(str(error)) from error
        return NewRecord(self._data(rest), key, pairs)

    def _cut(self, text: bytes, separator: bytes, name: str, number: int) -> tuple[bytes, bytes]:
        before, found, after = text.partition(separator)
        if not found:
            shown = text.decode(errors="replace")
            raise BadRecord(f"No {name} found on line number {number}: '{shown}'")
        return before, after

    def _headers(self, text: bytes, number: int) -> tuple[tuple[str, bytes | None], ...]:
        if not text or text == self.null_marker:
            return ()
        headers = []
        for pair in text.split(self.headers_separator):
            name, value = self._cut(pair, self.header_key_separator, "header key separator", number)
            headers.append((name.decode(errors="replace"), self._data(value)))
        return tuple(headers)

    def _data(self, text: bytes) -> bytes | None:
        return None if text == self.null_marker else text
