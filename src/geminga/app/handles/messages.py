"""Messages of a topic as lines: read by a client, written to a file.

Files are as docs/formats/message-lines.md says. What a client reads it may read by its rights alone.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from itertools import count
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from geminga.app.handles.core.filters import Filter
from geminga.app.handles.core.message_lines import (
    Header,
    LineError,
    MessageLine,
    SchemaLine,
    header_line,
    message_line,
    parse_line,
    schema_line,
)
from geminga.client import (
    Client,
    ConsumerCryptoFailureAction,
    Message,
    MessageId,
)
from geminga.client.schema import MessageDecoder, MessageEncoder, SchemaInfo, SchemaSource
from geminga.model.errors import ConfigurationError
from geminga.runtime.local_file import sync_folder_of

if TYPE_CHECKING:
    from geminga.admin._subscriptions import Subscriptions

#: A payload that is larger is no part of a batch, and goes in chunks if it is larger than the broker takes.
ALONE_ABOVE_BYTES: Final = 128 * 1024
ALL: Final = Filter()
#: Property of what reads, by which the audit log of Geminga's broker names it (``broker.handlers.kept_reads``).
COMMAND: Final = "geminga-command"


class Transfer(NamedTuple):
    """What an export or import did."""

    messages: int
    #: Of the file, which were there, or stored, before.
    resumed: int


#: Bytes of a line of a file: a message twice as large as a consumer takes by itself. A file without ends of lines would
#: be read whole.
LINE_BYTES_MAX: Final = 512 << 20


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Each with its end, if it has one. Raises LineError for one of more than :data:`LINE_BYTES_MAX`."""
    for number in count(1):
        text = file.readline(LINE_BYTES_MAX + 1)
        if len(text) > LINE_BYTES_MAX:
            raise LineError(f"line {number} has more than {LINE_BYTES_MAX} bytes: expected one message, or a schema")
        if not text:
            return
        yield text


# ---- reading


class RawSchema:
    """Bytes as they are; on the way the schemas that they were written with are looked up, each once."""

    def __init__(self, info: SchemaInfo | None = None) -> None:
        """``info``: what a producer says of its bytes."""
        #: By version; None: it can not be had.
        self.schemas: dict[bytes, SchemaInfo | None] = {}
        self.info = info
        self._source: SchemaSource | None = None
        self._topic = ""

    sets_key = False

    async def bind_producer(self, topic: str, source: SchemaSource) -> MessageEncoder[bytes]:
        """Itself."""
        return self

    async def bind_consumer(self, topic: str, source: SchemaSource) -> MessageDecoder[bytes]:
        """Itself."""
        self._topic, self._source = topic, source
        return self

    def encode(self, value: bytes) -> bytes:
        """As it is."""
        return value

    def encode_key(self, value: bytes) -> bytes:
        """Never asked for."""
        return b""

    def is_ready(self, schema_version: bytes) -> bool:
        """Whether it is known."""
        return not schema_version or schema_version in self.schemas

    async def prepare(self, schema_version: bytes) -> None:
        """Look it up."""
        found = await self._source.get_schema(self._topic, schema_version) if self._source is not None else None
        self.schemas[schema_version] = found.info if found is not None else None

    def decode(self, payload: bytes, *, schema_version: bytes = b"", key: bytes | None = None) -> bytes:
        """As it is."""
        return payload


def id_text(message_id: MessageId) -> str:
    """``ledger:entry``, or ``ledger:entry:index`` in a batch."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}"
    return f"{text}:{message_id.batch_index()}" if message_id.batch_index() >= 0 else text


def id_of(text: str) -> MessageId:
    """``earliest``, ``latest``, or as :func:`id_text`. Raises ConfigurationError."""
    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    parts = text.split(":")
    if not 2 <= len(parts) <= 3 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise ConfigurationError(f"{text!r} is no message id: expected earliest, latest, LEDGER:ENTRY[:INDEX]")
    numbers = [int(part) for part in parts]
    return MessageId(-1, numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else -1)


def line_of(message: Message[Any]) -> MessageLine:
    """A message as a line."""
    key: str | bytes | None = None
    if message.has_key():
        key = message.key_bytes()
        if not message.has_base64_key():
            with suppress(UnicodeDecodeError):
                key = key.decode()
    message_id = message.message_id()
    return MessageLine(
        id_text(message_id),
        None if message.has_null_value() else message.data(),
        key,
        message.ordering_key_bytes(),
        message.properties(),
        message.publish_timestamp(),
        message.event_timestamp(),
        message.schema_version(),
        message_id.partition(),
    )


async def read_lines(
    client: Client,
    topic: str,
    start: MessageId = MessageId.earliest,
    *,
    follow: bool = False,
    schema: RawSchema | None = None,
    command: str = "messages browse",
) -> AsyncGenerator[MessageLine, None]:
    """Messages behind ``start`` of a topic without partitions, or of one partition, up to what was last there now.

    ``follow``: all that come later too. ``schema``: has their schemas by version then. ``command``: told to the broker,
    whose audit log says who reads payloads. Raises ConfigurationError at a message that is encrypted, the client's
    errors.
    """
    reader = await client.create_reader(
        topic,
        start,
        schema=schema or RawSchema(),
        properties={COMMAND: command},
        # Any other action passes over what can not be decrypted: nobody would know that it is missing.
        crypto_failure_action=ConsumerCryptoFailureAction.CONSUME,
        # So does a limit pass over what is larger.
        chunked_message_bytes_max=0,
    )
    try:
        if follow:
            async for message in reader:
                yield _clear_line(topic, message)
            return
        last = await reader.get_last_message_id()
        while await reader.has_message_available():
            message = await reader.read_next()
            # What was published since is the next one's.
            if message.message_id().ledger_id() > last.ledger_id() or (
                message.message_id().ledger_id() == last.ledger_id()
                and message.message_id().entry_id() > last.entry_id()
            ):
                return
            yield _clear_line(topic, message)
    finally:
        await reader.close()


def _clear_line(topic: str, message: Message[Any]) -> MessageLine:
    if message.encryption_context() is not None:
        raise ConfigurationError(
            f"message {id_text(message.message_id())} of {topic} is encrypted: there is no key for it here"
        )
    return line_of(message)


async def unacknowledged_lines(
    client: Client, subscriptions: Subscriptions, topic: str, subscription: str
) -> AsyncIterator[MessageLine]:
    """Messages that a subscription has not acknowledged, of a batch those alone; a topic without partitions, or one.

    ``subscriptions`` of an admin client says which; what is delayed, or held by a consumer, is one of them. Raises
    AdminError, what :func:`read_lines` raises.
    """
    start: str | None = None
    lines: AsyncGenerator[MessageLine, None] | None = None
    line: MessageLine | None = None
    try:
        while True:
            page = await subscriptions.analyze_backlog(topic, subscription, positions=True, start=start)
            if "positions" not in page:
                raise ConfigurationError("the broker does not tell where a backlog is: only Geminga's does")
            wanted = {each["id"]: each.get("indexes") for each in page["positions"]}
            if wanted and lines is None:
                first = id_of(next(iter(wanted)))
                # One reader for all pages: chunks of a message may be in several.
                lines = read_lines(client, topic, MessageId(-1, first.ledger_id(), first.entry_id() - 1))
                line = await anext(lines, None)
            last = _entry_of(next(reversed(wanted))) if wanted else (-1, -1)
            while lines is not None and line is not None and _entry_of(line.id) <= last:
                ledger, entry, *index = line.id.split(":")
                indexes = wanted.get(f"{ledger}:{entry}", ())
                if indexes is None or (index and int(index[0]) in indexes):
                    yield line
                line = await anext(lines, None)
            start = page.get("nextMessageId")
            if start is None:
                return
    finally:
        if lines is not None:
            await lines.aclose()


def _entry_of(text: str) -> tuple[int, int]:
    """Ledger and entry of what :func:`id_text` made."""
    ledger, entry, *_ = text.split(":")
    return int(ledger), int(entry)


# ---- export


async def export_messages(
    client: Client, topic: str, path: str, *, wanted: Filter = ALL, is_resumed: bool = False
) -> Transfer:
    """Write what a topic has now to a file, partition after partition.

    ``is_resumed``: go on behind the last whole line that is there; else the file must not be there. Raises LineError,
    OSError, ConfigurationError, the client's errors.
    """
    place = _Written() if not is_resumed else _written(path)
    if is_resumed and place.topic not in ("", topic):
        raise ConfigurationError(f"{path} has messages of {place.topic}, and not of {topic}")
    # Before there is a file: one that has a header alone is the export of an empty topic.
    partitions = await client.get_topic_partitions(topic)
    written = 0
    with _opened(path, place.end, is_new=not is_resumed) as file:
        if not place.end:
            file.write(f"{header_line(Header(topic))}\n".encode())
        told = set(place.versions)
        for number, partition in enumerate(partitions):
            if number < place.partition:
                continue
            start = id_of(place.id) if place.id and number == max(0, place.partition) else MessageId.earliest
            schema = RawSchema()
            async for line in read_lines(client, partition, start, schema=schema, command="messages export"):
                if not wanted.wants(line):
                    continue
                if line.schema_version and line.schema_version not in told:
                    told.add(line.schema_version)
                    info = schema.schemas.get(line.schema_version)
                    if info is not None:
                        file.write(f"{schema_line(_schema_line(line.schema_version, info))}\n".encode())
                text = f"{message_line(line._replace(partition=_number_of(partition)))}\n".encode()
                if len(text) > LINE_BYTES_MAX:
                    raise LineError(f"message {line.id} of {partition} has no room in a line of {LINE_BYTES_MAX} bytes")
                file.write(text)
                written += 1
        file.flush()
        os.fsync(file.fileno())
        sync_folder_of(path)
    return Transfer(written, place.messages)


class _Written(NamedTuple):
    """What a file has."""

    topic: str = ""
    end: int = 0
    messages: int = 0
    #: Of the last message.
    id: str = ""
    partition: int = -1
    versions: frozenset[bytes] = frozenset()


def _opened(path: str, end: int, *, is_new: bool) -> IO[bytes]:
    """To go on behind ``end``. Raises FileExistsError for a new one that is there."""
    file = open(path, "xb" if is_new or not os.path.exists(path) else "r+b")  # noqa: SIM115  (closed by who asks)
    file.seek(end)
    file.truncate()
    return file


def _written(path: str) -> _Written:
    """Up to the last whole line: a kill leaves half of one."""
    found, versions = _Written(), set[bytes]()
    if not os.path.exists(path):
        return found
    with open(path, "rb") as file:
        for number, text in enumerate(lines_of(file), 1):
            if not text.endswith(b"\n"):
                break
            line = parse_line(text, number)
            found = found._replace(end=found.end + len(text))
            if isinstance(line, Header):
                found = found._replace(topic=line.topic)
            elif isinstance(line, SchemaLine):
                versions.add(line.version)
            else:
                found = found._replace(messages=found.messages + 1, id=line.id, partition=line.partition)
    return found._replace(versions=frozenset(versions))


def _schema_line(version: bytes, info: SchemaInfo) -> SchemaLine:
    return SchemaLine(version, info.name, info.type.name, info.schema, dict(info.properties))


def _number_of(topic: str) -> int:
    _, found, number = topic.rpartition("-partition-")
    return int(number) if found and number.isdecimal() else -1
